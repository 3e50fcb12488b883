//! The host of a record, and how near its clock was to UTC.
//!
//! Problem: records of several hosts are put side by side, and each host had its own clock.
//!
//! Approach: a record notes the boot of the kernel, for hosts of one kernel have one clock. At its
//! begin and at its end it notes how far the clock was from UTC, as chrony or the kernel knows. The
//! settings of the daemon say whom to ask.

use std::fs;

use anyhow::{Context, Result};
use gang_linux::{
    clock,
    clock_quality::{self, Quality},
};
use gang_protocol::{client::Client, v1};
use serde::{Deserialize, Serialize};

/// Of several readings of two clocks, the one that took the least time is kept.
const READINGS: usize = 5;

/// Where a record was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Host {
    #[serde(rename = "host")]
    pub name: String,
    /// That of the kernel; hosts that share it have one clock.
    pub boot_id: String,
}

/// The clock of a record, CLOCK_REALTIME, at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The moment, by that clock and by CLOCK_MONOTONIC.
    pub utc_ns: u64,
    pub monotonic_ns: u64,
    /// By whose word the rest is: chrony, adjtimex or ptp.
    pub source: String,
    /// UTC is later than the clock by this.
    pub offset_ns: i64,
    /// UTC is nearer to the clock with its offset than this.
    pub bound_ns: u64,
}

/// The clock of a record at both of its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    pub begin: Reading,
    pub end: Reading,
}

impl Clock {
    /// How far the clock was set meanwhile, ns. Whatever disciplines it slews both clocks alike.
    pub fn step_ns(&self) -> u64 {
        let apart = |it: &Reading| i128::from(it.utc_ns) - i128::from(it.monotonic_ns);
        let step_ns = (apart(&self.end) - apart(&self.begin)).unsigned_abs();
        u64::try_from(step_ns).unwrap_or(u64::MAX)
    }
}

/// This host, by the name that it has in its cluster, and its clock now; none where nobody knows
/// how good the clock is.
///
/// # Errors
/// The daemon does not answer, or the kernel does not say which boot it is.
pub fn look(client: &mut Client) -> Result<(Host, Option<Reading>)> {
    let cluster = client.cluster()?;
    let own = cluster.as_ref().and_then(|it| it.hosts.iter().find(|host| host.is_this));
    let name = match &cluster {
        Some(cluster) => cluster.host.clone(),
        None => of_kernel("hostname")?,
    };
    let boot_id = of_kernel("random/boot_id")?;
    let quality = quality(own.and_then(|host| host.clock.as_ref()));
    let reading = quality.map(|(source, Quality { offset_ns, bound_ns })| {
        let (utc_ns, monotonic_ns) = both_clocks();
        Reading { utc_ns, monotonic_ns, source, offset_ns, bound_ns }
    });
    Ok((Host { name, boot_id }, reading))
}

fn of_kernel(name: &str) -> Result<String> {
    let path = format!("/proc/sys/kernel/{name}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim_end().to_owned())
}

/// The daemon's word may be some seconds old, so the source that it has is asked again. Of a clock
/// that PTP disciplines, the site has set the bound.
fn quality(said: Option<&v1::HostClock>) -> Option<(String, Quality)> {
    let by_kernel = || Some(("adjtimex".to_owned(), clock_quality::by_kernel().ok()?));
    match said {
        Some(clock) if clock.source == "ptp" => {
            let bound_ns = u64::try_from(clock.bound_ns).ok()?;
            Some((clock.source.clone(), Quality { offset_ns: clock.offset_ns, bound_ns }))
        }
        Some(clock) if clock.source == "adjtimex" => by_kernel(),
        _ => match clock_quality::by_chrony() {
            Ok(quality) => Some(("chrony".to_owned(), quality)),
            Err(_) => by_kernel(),
        },
    }
}

/// CLOCK_REALTIME and CLOCK_MONOTONIC of one moment, ns.
fn both_clocks() -> (u64, u64) {
    let readings = (0..READINGS).map(|_| {
        let before_ns = clock::monotonic_ns();
        let utc_ns = clock::utc_ns();
        let took_ns = clock::monotonic_ns().saturating_sub(before_ns);
        (took_ns, (utc_ns, before_ns + took_ns / 2))
    });
    readings.min().map_or((0, 0), |(_, clocks)| clocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_are_of_one_moment() {
        let (before, (utc_ns, monotonic_ns)) = (clock::monotonic_ns(), both_clocks());
        assert!((before..=clock::monotonic_ns()).contains(&monotonic_ns));
        assert!(utc_ns > 1_700_000_000_000_000_000);
    }

    #[test]
    fn step_of_a_clock_is_found_and_slewing_is_none() {
        let reading = |utc_ns, monotonic_ns| {
            let source = String::new();
            Reading { utc_ns, monotonic_ns, source, offset_ns: 0, bound_ns: 0 }
        };
        let step_ns = |end| Clock { begin: reading(5_000, 100), end }.step_ns();
        assert_eq!(step_ns(reading(7_000, 2_100)), 0);
        assert_eq!(step_ns(reading(7_000, 2_000)), 100);
        assert_eq!(step_ns(reading(4_000, 2_100)), 3_000, "backwards");
        assert_eq!(step_ns(reading(u64::MAX, 0)), u64::MAX - 4_900);
    }

    #[test]
    fn bound_of_ptp_is_that_of_the_site() {
        let said =
            |source: &str| v1::HostClock { source: source.into(), offset_ns: 0, bound_ns: 7 };
        let of_ptp = ("ptp".to_owned(), Quality { offset_ns: 0, bound_ns: 7 });
        assert_eq!(quality(Some(&said("ptp"))), Some(of_ptp));
        assert_eq!(quality(Some(&said("adjtimex"))).unwrap().0, "adjtimex");
    }
}
