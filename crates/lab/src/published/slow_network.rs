//! The case in which gangs lose (Strazdins and Uhlmann, 2004): jobs whose ranks wait for a slow
//! network. While the messages of the gang in its slot travel, its CPUs idle; Linux alone runs
//! another job there. So do gangs that fill.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::bed::{self, Bed, BedSettings};
use crate::harness::daemon::{DaemonOptions, runtime_dir};
use crate::harness::duration;
use crate::harness::host::HostSpec;
use crate::harness::lab::Lab;
use crate::harness::network::{self, Network};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::verdict::Better;
use crate::workload::ranks::{self, Came, EXCHANGE, Launch, Ranks, come_in};

/// Of all jobs together.
const RATE: &str = "rounds_per_s";
const CPUS: &str = "cpus_used";
const LINUX: &str = "plain Linux";
const STRICT: &str = "gangs without filling";
const FILLING: &str = "gangs";
const JOBS: usize = 8;
/// The network of the paper.
const MBIT_PER_S: u32 = 100;
/// Both messages of a round take 10.5 ms of such a network.
const BYTES: u32 = 64 * 1024;
const LENGTH: Duration = Duration::from_secs(8);
/// Each takes a minute or two.
const ROUNDS: usize = 3;

#[derive(Args, Debug, Clone)]
pub struct SlowNetwork {
    /// Jobs that share the hosts
    #[arg(long, default_value_t = JOBS as u64, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub jobs: u64,
    /// The network carries so many megabits a second
    #[arg(long, default_value_t = MBIT_PER_S, value_parser = clap::value_parser!(u32).range(1..))]
    pub mbit: u32,
    /// CPU time of a rank between two messages
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = duration::parse)]
    pub compute: Duration,
    /// Bytes of a message
    #[arg(long, default_value_t = BYTES, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    pub bytes: u32,
}

impl SlowNetwork {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("it is about gangs that span hosts")?;
        bed::needs()?;
        let specs = bed::two_hosts()?;
        ranks::needs()?;
        network::needs()?;
        let alone = "one job alone";
        let gangs = |no_fill| DaemonOptions { no_fill, ..DaemonOptions::default() };
        let conditions = [
            Condition::new(alone, |lab| self.by_linux(lab, &specs, 1)),
            Condition::new(LINUX, |lab| self.by_linux(lab, &specs, self.jobs as usize)),
            Condition::new(STRICT, |lab| self.as_gangs(lab, &specs, gangs(true))),
            Condition::new(FILLING, |lab| self.as_gangs(lab, &specs, gangs(false))),
        ];
        let run = alternate(lab, "slow-network", lab.options.runs.unwrap_or(ROUNDS), &conditions)?;
        let about = format!(
            "{} jobs on two hosts that a network of {} Mbit/s connects (Strazdins and Uhlmann)",
            self.jobs, self.mbit
        );
        let mut report = Report::new(lab, about, run, RATE);
        report.ratio(LINUX, alone, RATE);
        report.judge(STRICT, LINUX, RATE, Better::More);
        report.judge(FILLING, LINUX, RATE, Better::More);
        report.judge(FILLING, STRICT, RATE, Better::More);
        Ok(report)
    }

    fn start(&self, launch: &Launch, jobs: usize) -> Result<Vec<Ranks>> {
        let program = ranks::compile(launch.dir, "exchange", EXCHANGE)?;
        let arguments = format!("{} {}", self.compute.as_micros(), self.bytes);
        (0..jobs).map(|job| launch.start(&format!("job{job}"), &program, &arguments)).collect()
    }

    /// So many jobs by Linux alone, without any daemon.
    fn by_linux(&self, lab: &Lab, specs: &[HostSpec], jobs: usize) -> Result<Sample> {
        let network = Network::slow(self.mbit)?;
        let dir = runtime_dir().context("making a directory for programs")?;
        let launch = Launch { specs, dir: dir.path(), network: Some(&network) };
        let jobs = self.start(&launch, jobs)?;
        Ok(sample(Sample::default(), come_in(&jobs, lab.length(LENGTH))?))
    }

    /// All jobs as gangs.
    fn as_gangs(&self, lab: &Lab, specs: &[HostSpec], daemon: DaemonOptions) -> Result<Sample> {
        let network = Network::slow(self.mbit)?;
        let settings = BedSettings { specs: specs.to_vec(), daemon, ..BedSettings::default() };
        let bed = Bed::start(lab, &settings)?;
        let launch = Launch { specs, dir: bed.dir(), network: Some(&network) };
        let jobs = self.start(&launch, self.jobs as usize)?;
        for (number, job) in jobs.iter().enumerate() {
            job.register(&bed, &format!("job{number}"))?;
        }
        bed.until_shares(1.0 / jobs.len() as f64)?;
        let came = come_in(&jobs, lab.length(LENGTH))?;
        Ok(sample(bed.sample()?, came))
    }
}

fn sample(of: Sample, came: Came) -> Sample {
    of.with([(RATE, came.steps_per_s), (CPUS, came.cpus)])
}
