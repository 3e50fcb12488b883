//! `gang history`: jobs that have ended.

use anyhow::{Context, Result};
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};
use nix::unistd::User;

use crate::cli::History;
use crate::connect::connect;
use crate::show_values::{Owners, duration, print_json, word};
use crate::table::{Align, render, terminal_width};

const COLUMNS: [(&str, Align); 9] = [
    ("ID", Align::Right),
    ("NAME", Align::Shrink),
    ("OWNER", Align::Left),
    ("CLASS", Align::Left),
    ("CPUS", Align::Right),
    ("ENDED", Align::Left),
    ("LASTED", Align::Right),
    ("OUT OF SLOT", Align::Right),
    ("CPU TIME", Align::Right),
];

pub fn history(args: &History, daemon: &Surroundings) -> Result<()> {
    let owner_uid = args.user.as_deref().map(user_id).transpose()?;
    let reply = connect(daemon)?.history(args.number, owner_uid, args.since)?;
    if args.listing.json {
        return print_json(&reply);
    }
    print!("{}", table(&reply.jobs, terminal_width()));
    Ok(())
}

fn user_id(name: &str) -> Result<i64> {
    if let Ok(number) = name.parse::<u32>() {
        return Ok(number.into());
    }
    let user = User::from_name(name).with_context(|| format!("cannot look for the user {name}"))?;
    Ok(user.with_context(|| format!("there is no user {name}"))?.uid.as_raw().into())
}

/// Reads a point in time: a date, a date and time, or how long ago, such as `2h` or `7d`.
pub fn point_in_time(text: &str) -> Result<i64, String> {
    let now = Zoned::now();
    let wrong = || format!("{text:?} is not a date, a time, or a length of time such as 2h or 7d");
    let zoned = |local: civil::DateTime| local.to_zoned(now.time_zone().clone());
    let moment = if let Ok(moment) = text.parse::<Timestamp>() {
        moment
    } else if let Ok(span) = text.parse::<jiff::Span>() {
        now.checked_sub(span.abs()).map_err(|_| wrong())?.timestamp()
    } else if let Ok(local) = text.parse::<civil::DateTime>() {
        zoned(local).map_err(|_| wrong())?.timestamp()
    } else {
        return Err(wrong());
    };
    i64::try_from(moment.as_nanosecond()).map_err(|_| wrong())
}

fn local(at_ns: i64, zone: &TimeZone) -> String {
    let moment = Timestamp::from_nanosecond(at_ns.into())
        .map(|moment| moment.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string());
    moment.unwrap_or_else(|_| "?".to_owned())
}

fn table(jobs: &[v1::EndedJob], width: Option<usize>) -> String {
    if jobs.is_empty() {
        return "no jobs have ended\n".to_owned();
    }
    let (mut owners, zone) = (Owners::default(), TimeZone::system());
    let row = |job: &v1::EndedJob| {
        vec![
            job.id.to_string(),
            job.name.clone(),
            owners.name(job.owner_uid),
            word(&job.class),
            job.cpus.to_string(),
            local(job.ended_at_ns, &zone),
            duration(job.ended_at_ns.saturating_sub(job.registered_at_ns)),
            duration(job.out_of_slot_ns),
            duration(job.cpu_time_ns),
        ]
    };
    render(&COLUMNS, &jobs.iter().map(row).collect::<Vec<_>>(), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_points_or_ages() {
        let now = Timestamp::now().as_nanosecond() as i64;
        let minute = 60_000_000_000;
        let hours = |text: &str| (now + minute - point_in_time(text).unwrap()) / (60 * minute);
        assert_eq!((hours("2h"), hours("1h 30m")), (2, 1));
        assert!((6 * 24..=7 * 24 + 1).contains(&hours("7d")));
        assert_eq!(point_in_time("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert!(point_in_time("2026-11-20").is_ok() && point_in_time("2026-11-20 08:00").is_ok());
        for wrong in ["", "soon", "2", "2026-13-01"] {
            assert!(point_in_time(wrong).is_err(), "{wrong}");
        }
    }
}
