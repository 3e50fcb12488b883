//! X6 and X7: programs that leave CPUs idle now and then, which made the verdict against strict
//! gangs. One has CoEVP's profile and uses 9.43 of 14 CPUs on average, one has CoHMM's, 12.37 of
//! 14, and looks its results up in Redis; 1 to 8 of each run in batch, under plain Linux, as gangs
//! that fill no holes, and as gangs that do. And beside such gangs a program with deadlines (X5)
//! must keep them.
//!
//! A profile is a parallel phase with barriers and a serial phase in which all threads but one
//! block, in such a proportion that the program uses the same part of this machine's CPUs.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use gang_linux::child::ends_with_its_parent;
use tempfile::TempDir;

use super::deadlines::{MISSED, STEPS, missed_of};
use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{DEFAULT_SLICE, DaemonOptions};
use crate::harness::duration;
use crate::harness::finish::{TIME, batch, together};
use crate::harness::lab::{Gang, LONG_ENOUGH, Lab, Span, Under, words};
use crate::harness::report::{Promise, Report};
use crate::harness::samples::Sample;
use crate::harness::stats::Estimate;
use crate::harness::verdict::Better;
use crate::promises::list;
use crate::workload::deadlines::DeadlinesOutcome;
use crate::workload::work::Amount;

const PUBLISHED: usize = 8;
/// Barriers in a parallel phase, and the work between them.
const BARRIERS: u64 = 20;
const INTERVAL: Duration = Duration::from_micros(100);
/// Of a program with deadlines, in slices (X5).
const STEP_SLICES: u32 = 2;
/// Time of one instance alone.
const ALONE: Duration = Duration::from_millis(500);
/// Instances that have not ended by then never will.
const LIMIT: Duration = Duration::from_secs(60);
const WAYS: [&str; 4] = ["batch", "plain Linux", "strict gang", "gang"];

/// A program of the paper: the part of the CPUs that it uses.
#[derive(Clone, Copy)]
struct Profile {
    name: &'static str,
    used: f64,
    cache: bool,
    /// The promise of deadlines beside two of it.
    deadlines: &'static Promise,
}

const PROFILES: [Profile; 2] = [
    Profile {
        name: "CoEVP",
        used: 9.43 / 14.0,
        cache: false,
        deadlines: &list::DEADLINES_BESIDE_COEVP,
    },
    Profile {
        name: "CoHMM",
        used: 12.37 / 14.0,
        cache: true,
        deadlines: &list::DEADLINES_BESIDE_COHMM,
    },
];

#[derive(Args, Debug, Clone, Default)]
pub struct Holes {
    /// How many of each program there are at once [default: 1,2,4,8, with --quick 1,4, with --paper
    /// 1 to 8]
    #[arg(long, value_delimiter = ',')]
    pub instances: Vec<usize>,
}

impl Holes {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!(
            self.instances.iter().all(|count| (1..=100).contains(count)),
            "between 1 and 100 of each program run at once"
        );
        let instances = match (lab.options.quick, lab.options.paper) {
            _ if !self.instances.is_empty() => self.instances.clone(),
            (true, _) => vec![1, 4],
            (_, true) => (1..=8).collect(),
            _ => vec![1, 2, 4, 8],
        };
        // One after the other, and half as much again for what that costs.
        let most = instances.iter().copied().max().unwrap_or(1);
        ensure!(
            alone(lab) * 3 * most as u32 <= LIMIT * 2,
            "{most} at once that take {} each are not sure to be done within {}: let there be fewer (--instances), or \
             let them be shorter (--seconds)",
            duration::show(alone(lab)),
            duration::show(LIMIT)
        );
        run(lab, &instances)
    }
}

/// How long an instance takes alone.
fn alone(lab: &Lab) -> Duration {
    lab.seconds_asked().unwrap_or(if lab.options.quick { ALONE / 2 } else { ALONE })
}

fn run(lab: &Lab, instances: &[usize]) -> Result<Report> {
    let redis = Redis::start();
    let socket = redis.as_ref().ok().map(|redis| redis.socket.as_path());
    let gangd =
        |no_fill| Under::Gangd(lab.settings(DaemonOptions { no_fill, ..DaemonOptions::default() }));
    let unders = [Under::Plain, gangd(true), gangd(false)];
    let ways = if lab.options.plain { 2 } else { WAYS.len() };
    let cycles = lab
        .amount("cycles of a millisecond", || Ok(Amount::Time(Duration::from_millis(1)).cycles()))?
        as f64;
    let programs = PROFILES.map(|profile| profile.arguments(lab, cycles, socket));
    let mut conditions = Vec::new();
    for (profile, program) in PROFILES.iter().zip(&programs) {
        for &count in instances {
            for (number, way) in WAYS[..ways].iter().enumerate() {
                let under = number.checked_sub(1).map(|under| &unders[under]);
                conditions.push(Condition::new(name(profile, count, way), move |lab| {
                    let copies = vec![program.clone(); count];
                    match under {
                        None => batch(lab, &copies),
                        Some(under) => together(lab, under, &copies),
                    }
                }));
            }
        }
    }
    if !lab.options.plain {
        let under = &unders[2];
        for (profile, program) in PROFILES.iter().zip(&programs) {
            let beside = move |lab: &Lab| beside(lab, under, program);
            conditions.push(Condition::new(name_beside(profile), beside));
        }
    }
    let run = alternate(lab, "holes", lab.rounds(PUBLISHED), &conditions)?;
    let mut report =
        Report::new(lab, "programs that leave CPUs idle, by their number (X6, X7)", run, TIME);
    if let Err(error) = &redis {
        report.notes.push(format!("Redis, in which CoHMM looks results up: {error:#}."));
    }
    if !lab.options.plain {
        compare(lab, &mut report, instances);
    }
    Ok(report)
}

fn compare(lab: &Lab, report: &mut Report, instances: &[usize]) {
    let most = instances.iter().copied().max().unwrap_or(1);
    let promises = [("plain Linux", &list::HOLES_OVER_LINUX), ("batch", &list::HOLES_OVER_BATCH)];
    for (over, promise) in promises {
        let mut worst: Option<Estimate> = None;
        for profile in &PROFILES {
            for &count in instances {
                let (of, over) = (name(profile, count, "gang"), name(profile, count, over));
                let ratio = match count == most {
                    true => report.judge(&of, &over, TIME, Better::Less),
                    false => report.ratio(&of, &over, TIME),
                };
                worst = match (worst, ratio) {
                    (Some(worst), Some(ratio)) if ratio.value <= worst.value => Some(worst),
                    (worst, ratio) => ratio.or(worst),
                };
            }
        }
        report.promise(promise, worst);
    }
    for profile in &PROFILES {
        let strict = name(profile, most, "strict gang");
        report.judge(&name(profile, most, "gang"), &strict, TIME, Better::Less);
    }
    for profile in &PROFILES {
        let missed = missed_of(lab, report, &name_beside(profile));
        report.promise(profile.deadlines, missed);
    }
}

fn name_beside(profile: &Profile) -> String {
    format!("deadlines beside 2 of {}, gang", profile.name)
}

fn name(profile: &Profile, count: usize, way: &str) -> String {
    format!("{count} of {}, {way}", profile.name)
}

impl Profile {
    /// How long the serial phase is for each unit of the parallel one, on so many CPUs.
    ///
    /// In the parallel phase all CPUs are used, in the serial one a single one. Where a single CPU
    /// is more than the program should use on average, the phases are of the same length.
    fn serial_part(self, cpus: usize) -> f64 {
        let one = 1.0 / cpus as f64;
        let parallel = (self.used - one) / (1.0 - one);
        if parallel.is_finite() && parallel > 0.0 { (1.0 - parallel) / parallel } else { 1.0 }
    }

    /// The workload with this profile; `cycles` are those of a millisecond.
    fn arguments(self, lab: &Lab, cycles: f64, redis: Option<&Path>) -> Vec<String> {
        let parallel_ms = (INTERVAL * BARRIERS as u32).as_secs_f64() * 1e3;
        let serial_ms = parallel_ms * self.serial_part(lab.threads());
        let rounds = (alone(lab).as_secs_f64() * 1e3 / (parallel_ms + serial_ms)).max(1.0);
        // In cycles, so that copies that start on a busy machine do not each find another amount.
        let mut arguments = words(&format!(
            "phases --threads {} --rounds {rounds:.0} --barriers {BARRIERS} --interval {:.0} --serial \
             {:.0} --wait spin-block --limit {}s",
            lab.threads(),
            cycles * INTERVAL.as_secs_f64() * 1e3,
            cycles * serial_ms,
            LIMIT.as_secs()
        ));
        if let (true, Some(socket)) = (self.cache, redis) {
            arguments.extend(["--cache".into(), socket.display().to_string()]);
        }
        arguments
    }
}

/// A program with deadlines beside two with holes, all of them gangs.
fn beside(lab: &Lab, under: &Under, program: &[String]) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let gang = Gang { cpus: lab.threads().min(lab.cpus), weight: None };
    // They have more to do than there is time, and are killed at the end.
    let mut endless = program.to_vec();
    if let Some(rounds) = endless.iter().position(|word| word == "--rounds") {
        endless[rounds + 1] = "100000000".into();
    }
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(lab.start_workload(daemon.as_ref(), Some(gang), &endless)?);
    }
    let step = duration::show(STEP_SLICES * DEFAULT_SLICE);
    let domain = words(&format!("deadlines --threads {} --step {step}", lab.threads()));
    let run = |span: &Span| -> Result<(DeadlinesOutcome, Sample)> {
        let arguments = [domain.as_slice(), &span.arguments()].concat();
        let domain = lab.start_workload(daemon.as_ref(), Some(gang), &arguments)?;
        let seen = lab.by(daemon.as_ref()).look(span);
        Ok((domain.outcome(span.deadline)?, seen))
    };
    let length = lab.length(Duration::from_secs(4));
    let ((outcome, seen), longer_s) =
        lab.over_window(length, LONG_ENOUGH, run, |(outcome, _)| outcome.steps > 0)?;
    let all_ran = others.iter_mut().all(|other| !other.ends_by(Instant::now()));
    ensure!(all_ran, "one of the programs beside those with deadlines has ended before them");
    let missed = outcome.missed as f64 / outcome.steps.max(1) as f64 * 100.0;
    Ok(seen.over(longer_s).with([(MISSED, missed), (STEPS, outcome.steps as f64)]))
}

/// A Redis that keeps nothing, on a socket of its own.
struct Redis {
    child: Child,
    socket: PathBuf,
    _dir: TempDir,
}

impl Redis {
    fn start() -> Result<Self> {
        const LIMIT: Duration = Duration::from_secs(60);
        let dir = tempfile::tempdir().context("making a directory for the socket of Redis")?;
        let socket = dir.path().join("redis");
        let child = ends_with_its_parent(&mut Command::new("redis-server"))
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting redis-server, of the package redis-server")?;
        let mut redis = Self { child, socket, _dir: dir };
        let end = Instant::now() + LIMIT;
        // The socket is there a moment before anybody listens.
        while UnixStream::connect(&redis.socket).is_err() {
            if let Some(status) = redis.child.try_wait().context("waiting for Redis")? {
                bail!("redis-server ended with {status}");
            }
            if Instant::now() > end {
                bail!("redis-server did not listen within {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_use_their_part_of_the_cpus() {
        for profile in PROFILES {
            for cpus in [2, 4, 14, 16] {
                let serial = profile.serial_part(cpus);
                let used = (cpus as f64 + serial) / (cpus as f64 * (1.0 + serial));
                assert!((used - profile.used).abs() < 1e-9, "{}, {cpus} CPUs", profile.name);
            }
            assert_eq!(profile.serial_part(1), 1.0);
        }
    }
}
