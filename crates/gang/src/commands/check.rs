//! `gang check`: do the invariants hold?

use anyhow::Result;
use gang_protocol::name::escaped;
use gang_protocol::paths::Surroundings;

use crate::cli::Listing;
use crate::connect::connect;
use crate::exit::{Explained, FAILED};
use crate::show_values::{count, print_json};

pub fn check(args: &Listing, daemon: &Surroundings) -> Result<()> {
    let reply = connect(daemon)?.check()?;
    if args.json {
        print_json(&reply)?;
    } else if reply.violations.is_empty() {
        println!("{}, all hold", checked(reply.checked));
    } else {
        println!(
            "{}, {}",
            checked(reply.checked),
            count(failed(reply.violations.len()), "violation")
        );
        for violation in &reply.violations {
            let [id, invariant, found] =
                [&violation.id, &violation.invariant, &violation.found].map(|it| escaped(it));
            println!("{id}: {invariant}: {found}");
        }
    }
    if reply.violations.is_empty() { Ok(()) } else { Err(Explained(FAILED).into()) }
}

fn checked(number: i64) -> String {
    count(number, "invariant") + " checked"
}

fn failed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
