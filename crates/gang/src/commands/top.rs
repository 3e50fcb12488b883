//! `gang top`: what the daemon does, live, in the terminal.

use std::time::Duration;

use anyhow::{Context, Result};
use gang_protocol::client::Client;
use gang_protocol::paths::Surroundings;
use gang_view::live::TIME_LIMIT;
use gang_view::top::{self, Look};

use crate::cli::Top;
use crate::leftovers;
use crate::table::terminal_width;

pub fn top(args: &Top, surroundings: &Surroundings) -> Result<()> {
    let look = Look::of_this_process(args.no_color);
    // As every command does that finds no daemon.
    let found = Client::find_within(surroundings, TIME_LIMIT);
    if found.is_err_and(|error| error.is_no_daemon()) {
        leftovers::release_and_report(surroundings);
    }
    if args.once {
        let width = terminal_width().unwrap_or(top::WIDTH_OF_ALL);
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        print!("{}", top::once(surroundings.clone(), look, width)?);
        return Ok(());
    }
    let every = Duration::from_secs_f64(1.0 / args.rate);
    top::run(surroundings, look, every).context("cannot show the jobs in this terminal")
}
