//! Pairs of MPI's ranks that send a message to and fro, one rank on each host.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::SAMPLES;
use crate::harness::bed::{self, Bed};
use crate::harness::lab::Lab;
use crate::harness::samples::{Figures, Sample};
use crate::workload::ranks::{self, Launch, come_in};

/// The rate of two pairs that share the hosts, over that of one alone: as gangs, by Linux alone.
pub const GANGS: &str = "gangs_over_one";
pub const LINUX: &str = "linux_over_one";

/// Two pairs by Linux alone, one as a gang, and two as gangs.
pub fn messages(lab: &Lab, length: Duration) -> Result<Sample> {
    let settings = bed::BedSettings::two_hosts()?;
    let bed = Bed::start(lab, &settings)?;
    let dir = bed.dir();
    let program = ranks::compile(dir, "pair", ranks::PAIR)?;
    let launch = Launch { specs: &settings.specs, dir, network: None };
    let mut pairs = vec![launch.start("one", &program, "")?, launch.start("other", &program, "")?];
    let linux = come_in(&pairs, length)?.steps_per_s;
    pairs.truncate(1);
    pairs[0].register(&bed, "one")?;
    let alone = come_in(&pairs, length)?.steps_per_s;
    pairs.push(launch.start("another", &program, "")?);
    pairs[1].register(&bed, "other")?;
    bed.until_shares(0.5)?;
    let gangs = come_in(&pairs, length)?.steps_per_s;
    ensure!(alone > 0.0, "one pair alone sends no message");
    Ok(bed.sample()?.with_all(Figures::from([
        (SAMPLES, gangs * length.as_secs_f64()),
        ("alone_per_s", alone),
        ("gangs_per_s", gangs),
        ("linux_per_s", linux),
        (GANGS, gangs / alone),
        (LINUX, linux / alone),
    ])))
}
