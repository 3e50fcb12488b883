//! Two hosts whose clocks differ: how far apart they switch to the same slice, and what two pairs
//! of ranks that send messages do together, against one pair alone and against plain Linux. The
//! pair alone is a gang, too.
//!
//! Both hosts have one clock, which the daemon of the second is made to read ahead. So it is known
//! how much the clocks differ, and the hosts know nothing of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::apart::{self, APART_P50, APART_P99};
use crate::harness::bed::{self, Bed, BedSettings};
use crate::harness::daemon::runtime_dir;
use crate::harness::duration;
use crate::harness::lab::Lab;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::figure;
use crate::harness::verdict::Better;
use crate::workload::ranks::{self, Launch, Ranks, come_during, come_in};

const RATE: &str = "rounds_per_s";
const ALONE: &str = "one pair alone";
const LINUX: &str = "two pairs, plain Linux";
const ERRORS_MS: [u64; 4] = [0, 1, 5, 20];
const LENGTH: Duration = Duration::from_secs(8);
/// An error of whole frames would be none.
const LONGEST_ERROR: Duration = Duration::from_millis(100);
/// Each takes minutes.
const ROUNDS: usize = 2;

#[derive(Args, Debug, Clone, Default)]
pub struct Skew {
    /// By how much the clocks differ [default: 0ms,1ms,5ms,20ms]
    #[arg(long, value_delimiter = ',', value_name = "TIME", value_parser = duration::parse)]
    pub errors: Vec<Duration>,
}

impl Skew {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no jobs that span hosts")?;
        bed::needs()?;
        bed::two_hosts()?;
        ranks::needs()?;
        let errors = match self.errors.is_empty() {
            true => ERRORS_MS.map(Duration::from_millis).to_vec(),
            false => self.errors.clone(),
        };
        let is_short = errors.iter().all(|&error| error <= LONGEST_ERROR);
        ensure!(is_short, "clocks differ by {} at most here", duration::show(LONGEST_ERROR));
        let gangs: Vec<(String, Duration)> =
            errors.iter().map(|&error| (name(error), error)).collect();
        let mut conditions = vec![Condition::new(ALONE, alone), Condition::new(LINUX, by_linux)];
        for (name, error) in &gangs {
            conditions.push(Condition::new(name, |lab| as_gangs(lab, *error)));
        }
        let run = alternate(lab, "skew", lab.options.runs.unwrap_or(ROUNDS), &conditions)?;
        let about = "pairs of ranks on two hosts, by how much the clocks of these differ";
        let mut report = Report::new(lab, about, run, RATE);
        report.ratio(LINUX, ALONE, RATE);
        for (gangs, error) in &gangs {
            let [median, late] = [APART_P50, APART_P99].map(|it| report.mean(gangs, it));
            if let (Some(median), Some(late)) = (median, late) {
                let clocks = match *error {
                    Duration::ZERO => "With one clock".to_owned(),
                    error => format!("With clocks {} apart", duration::show(error)),
                };
                report.verdict.push(format!(
                    "{clocks} hosts switch {} µs apart in the median and {} µs at p99.",
                    figure(median.value),
                    figure(late.value)
                ));
            }
            report.ratio(gangs, ALONE, RATE);
            report.judge(gangs, LINUX, RATE, Better::More);
        }
        Ok(report)
    }
}

fn name(error: Duration) -> String {
    match error {
        Duration::ZERO => "two pairs, gangs, one clock".into(),
        error => format!("two pairs, gangs, clocks {} apart", duration::show(error)),
    }
}

/// Two pairs by Linux alone, without any daemon.
fn by_linux(lab: &Lab) -> Result<Sample> {
    let dir = runtime_dir().context("making a directory for programs")?;
    let dir = dir.path();
    let program = ranks::compile(dir, "pair", ranks::PAIR)?;
    let launch = Launch { specs: &bed::two_hosts()?, dir, network: None };
    let pairs = [launch.start("one", &program, "")?, launch.start("other", &program, "")?];
    let came = come_in(&pairs, lab.length(LENGTH))?;
    Ok(Sample::default().with([(RATE, came.steps_per_s)]))
}

/// Hosts with pairs that are gangs, of which the second host reads the clock ahead.
struct Gangs {
    // They end in this order.
    pairs: Vec<Ranks>,
    bed: Bed,
}

impl Gangs {
    fn start(lab: &Lab, names: &[&str], error: Duration) -> Result<Gangs> {
        let settings = BedSettings { clock_error: error, ..BedSettings::two_hosts()? };
        let bed = Bed::start(lab, &settings)?;
        let program = ranks::compile(bed.dir(), "pair", ranks::PAIR)?;
        let launch = Launch { specs: &settings.specs, dir: bed.dir(), network: None };
        let mut pairs = Vec::new();
        for name in names {
            let pair = launch.start(name, &program, "")?;
            pair.register(&bed, name)?;
            pairs.push(pair);
        }
        bed.until_shares(1.0 / names.len() as f64)?;
        Ok(Gangs { pairs, bed })
    }
}

fn alone(lab: &Lab) -> Result<Sample> {
    let gangs = Gangs::start(lab, &["one"], Duration::ZERO)?;
    let came = come_in(&gangs.pairs, lab.length(LENGTH))?;
    Ok(gangs.bed.sample()?.with([(RATE, came.steps_per_s)]))
}

fn as_gangs(lab: &Lab, error: Duration) -> Result<Sample> {
    let gangs = Gangs::start(lab, &["one", "other"], error)?;
    let (bed, length) = (&gangs.bed, lab.length(LENGTH));
    let (came, apart) = come_during(&gangs.pairs, || apart::of_hosts(bed, length, error))?;
    Ok(bed.sample()?.with_all(apart).with([(RATE, came.steps_per_s)]))
}
