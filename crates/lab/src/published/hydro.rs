//! L37 in our form: a code of hydrodynamics on 1, 2 and 4 hosts, with a rank for each CPU. It runs
//! alone, beside another one under plain Linux, and beside another one as gangs. The one alone is a
//! gang, too.
//!
//! All numbers of hosts have the same CPUs of this machine, so that the work of a rank is the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::bed::{self, Bed, BedSettings};
use crate::harness::daemon::runtime_dir;
use crate::harness::host::HostSpec;
use crate::harness::lab::Lab;
use crate::harness::machine::allowed_cpus;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::figure;
use crate::harness::verdict::Better;
use crate::workload::ranks::{self, HYDRO, Launch, Ranks, come_in};

/// Of all programs that run.
const RATE: &str = "steps_per_s";
const HOSTS: [usize; 3] = [1, 2, 4];
const SIDE: usize = 256;
/// Each takes minutes.
const ROUNDS: usize = 3;
const LENGTH: Duration = Duration::from_secs(6);
const NAMES: [&str; 2] = ["one", "other"];

#[derive(Args, Debug, Clone, Default)]
pub struct Hydro {
    /// Numbers of hosts, each a power of two [default: 1,2,4]
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    pub hosts: Vec<usize>,
    /// Cells along each side, a power of two [default: 256]
    #[arg(long, value_name = "CELLS")]
    pub side: Option<usize>,
}

/// Hosts that share the CPUs, and the names of the conditions on them.
struct Hosts {
    specs: Vec<HostSpec>,
    alone: String,
    linux: String,
    gangs: String,
}

impl Hosts {
    fn of(specs: Vec<HostSpec>) -> Hosts {
        let hosts = match specs.len() {
            1 => "1 host".to_owned(),
            several => format!("{several} hosts"),
        };
        let [alone, linux, gangs] =
            ["alone", "two, plain Linux", "two, gangs"].map(|it| format!("{hosts}, {it}"));
        Hosts { specs, alone, linux, gangs }
    }
}

impl Hydro {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no jobs that span hosts")?;
        bed::needs()?;
        ranks::needs()?;
        let wanted = if self.hosts.is_empty() { HOSTS.to_vec() } else { self.hosts.clone() };
        let side = self.side.unwrap_or(SIDE);
        let cpus = allowed_cpus()?;
        // Strips of rows are equal.
        let ranks = 1 << cpus.len().ilog2();
        ensure!(
            side.is_power_of_two() && (ranks..=8192).contains(&side),
            "the side is a power of two from {ranks}, one row for each rank, to 8192"
        );
        let mut all = Vec::new();
        let mut left_out = Vec::new();
        for hosts in wanted {
            ensure!(hosts.is_power_of_two(), "{hosts} hosts: a power of two is possible");
            let cpus_each = (ranks / hosts).max(1);
            match HostSpec::several(hosts, cpus_each, &cpus) {
                Some(specs) => all.push(Hosts::of(specs)),
                None => left_out.push(format!(
                    "{hosts} hosts: each needs a CPU, and there are {}.",
                    cpus.len()
                )),
            }
        }
        ensure!(!all.is_empty(), "nothing to run: {}", left_out.join(" "));
        let mut conditions = Vec::new();
        for hosts in &all {
            let specs = &hosts.specs;
            let as_gangs = move |lab: &Lab, names: &[&str]| as_gangs(lab, specs, side, names);
            conditions.push(Condition::new(&hosts.alone, move |lab| as_gangs(lab, &NAMES[..1])));
            conditions.push(Condition::new(&hosts.linux, move |lab| by_linux(lab, specs, side)));
            conditions.push(Condition::new(&hosts.gangs, move |lab| as_gangs(lab, &NAMES)));
        }
        let run = alternate(lab, "hydro", lab.options.runs.unwrap_or(ROUNDS), &conditions)?;
        let about = "a code of hydrodynamics on several hosts, alone and beside another one (L37)";
        let mut report = Report::new(lab, about, run, RATE);
        report.notes.extend(left_out);
        for hosts in &all {
            report.ratio(&hosts.linux, &hosts.alone, RATE);
            report.ratio(&hosts.gangs, &hosts.alone, RATE);
            report.judge(&hosts.gangs, &hosts.linux, RATE, Better::More);
        }
        if let Some((one, others)) = all.split_first() {
            for several in others {
                report.ratio(&several.gangs, &one.gangs, RATE);
                let Some(ratio) = report.ratio(&several.alone, &one.alone, RATE) else { continue };
                report.verdict.push(format!(
                    "Alone the program does {} times as many steps on {} hosts as on {} (LLNL: \
                     one and two computers are within 5 %).",
                    figure(ratio.value),
                    several.specs.len(),
                    one.specs.len()
                ));
            }
        }
        Ok(report)
    }
}

fn start(launch: &Launch, side: usize, names: &[&str]) -> Result<Vec<Ranks>> {
    let program = ranks::compile(launch.dir, "hydro", HYDRO)?;
    names.iter().map(|name| launch.start(name, &program, &side.to_string())).collect()
}

/// Two programs by Linux alone, without any daemon.
fn by_linux(lab: &Lab, specs: &[HostSpec], side: usize) -> Result<Sample> {
    let dir = runtime_dir().context("making a directory for programs")?;
    let launch = Launch { specs, dir: dir.path(), network: None };
    let programs = start(&launch, side, &NAMES)?;
    let came = come_in(&programs, lab.length(LENGTH))?;
    Ok(Sample::default().with([(RATE, came.steps_per_s)]))
}

fn as_gangs(lab: &Lab, specs: &[HostSpec], side: usize, names: &[&str]) -> Result<Sample> {
    let settings = BedSettings { specs: specs.to_vec(), ..BedSettings::default() };
    let bed = Bed::start(lab, &settings)?;
    let launch = Launch { specs, dir: bed.dir(), network: None };
    let programs = start(&launch, side, names)?;
    for (program, name) in programs.iter().zip(names) {
        program.register(&bed, name)?;
    }
    bed.until_shares(1.0 / names.len() as f64)?;
    let came = come_in(&programs, lab.length(LENGTH))?;
    Ok(bed.sample()?.with([(RATE, came.steps_per_s)]))
}
