//! Every promise in one table: the experiments with fixed settings, one after the other. This is
//! the command that SPECIFICATION.md quotes.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use super::{
    arrival, auto, barrier, barriers, calls, clients, coscheduled, doctor, fill, idle, lateness,
    openmp, release, share, switch, views, watching,
};
use crate::harness::lab::Lab;
use crate::harness::machine::Machine;
use crate::harness::report::{Measure, Report, deliver, measure_table, write_csv};
use crate::published::{deadlines, holes, overhead, solvers, stream};

#[derive(Args, Debug, Clone, Default)]
pub struct Spec {
    /// Only what these experiments show
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub only: Vec<String>,
    /// Measure nothing: write SPECIFICATION.md, with what was last measured
    #[arg(long, conflicts_with = "only")]
    pub markdown: bool,
}

#[derive(Serialize)]
struct Specification {
    machine: Machine,
    measures: Vec<Measure>,
    /// Experiments that failed, and why.
    failures: Vec<Failure>,
    reports: Vec<Report>,
}

#[derive(Serialize)]
struct Failure {
    experiment: &'static str,
    error: String,
}

impl Spec {
    /// Runs everything; what fails is listed, and does not keep the rest from being measured.
    pub fn run(&self, lab: &Lab) -> Result<()> {
        run(lab, &self.only)
    }
}

fn run(lab: &Lab, only: &[String]) -> Result<()> {
    lab.needs_gangd("the specification is about gangd")?;
    ensure!(lab.options.picture.is_empty(), "each experiment draws its own picture");
    let barrier = barrier::Barrier {
        slices: vec![Duration::from_millis(20), Duration::from_millis(1)],
        ..Default::default()
    };
    let barriers = barriers::Barriers { work: barriers::WORK };
    let fill = fill::Fill::default();
    let switch = switch::Switch { sizes: vec![2, 64, 1000] };
    let stream = stream::Stream { bursts: vec![1, 64] };
    type Experiment<'a> = (&'static str, Box<dyn Fn() -> Result<Report> + 'a>);
    let experiments: Vec<Experiment> = vec![
        ("barrier", Box::new(|| barrier.run(lab))),
        ("overhead", Box::new(|| overhead::run(lab))),
        ("fill", Box::new(|| fill.run(lab))),
        ("share", Box::new(|| share::run(lab))),
        ("lateness", Box::new(|| lateness::run(lab))),
        ("openmp", Box::new(|| openmp::Openmp::default().run(lab))),
        ("switch", Box::new(|| switch.run(lab))),
        ("idle", Box::new(|| idle::Idle::default().run(lab))),
        ("views", Box::new(|| views::run(lab))),
        ("release", Box::new(|| release::run(lab))),
        ("arrival", Box::new(|| arrival::Arrival::default().run(lab))),
        ("barriers", Box::new(|| barriers.run(lab))),
        ("calls", Box::new(|| calls::run(lab))),
        ("clients", Box::new(|| clients::Clients::default().run(lab))),
        ("coscheduled", Box::new(|| coscheduled::run(lab))),
        ("auto", Box::new(|| auto::run(lab))),
        ("gauss", Box::new(|| solvers::Gauss::default().run(lab))),
        ("deadlines", Box::new(|| deadlines::run(lab))),
        ("holes", Box::new(|| holes::Holes::default().run(lab))),
        ("stream", Box::new(|| stream.run(lab))),
        ("watching", Box::new(|| watching::run(lab))),
        ("doctor", Box::new(|| doctor::run(lab))),
    ];
    let named = |name: &str| only.iter().any(|only| only == name);
    if let Some(name) = only.iter().find(|name| !experiments.iter().any(|(known, _)| known == name))
    {
        let names: Vec<&str> = experiments.iter().map(|(name, _)| *name).collect();
        bail!("the specification has nothing of {name}; it has {}", names.join(", "));
    }
    let wanted = experiments.iter().filter(|(name, _)| only.is_empty() || named(name));
    let machine = Machine::this(lab.cpus);
    let mut specification =
        Specification { machine, measures: Vec::new(), failures: Vec::new(), reports: Vec::new() };
    for (experiment, run) in wanted {
        eprintln!("{experiment} …");
        lab.begin_anew();
        match run() {
            Ok(report) => {
                specification.measures.extend(report.measures.iter().cloned());
                specification.reports.push(report);
            }
            Err(error) => {
                let error = format!("{error:#}");
                specification.failures.push(Failure { experiment, error });
            }
        }
    }
    let mut text = format!("{}\n\n", specification.machine.line());
    text += &measure_table(&specification.measures);
    for failure in &specification.failures {
        text += &format!("\n{}: not measured: {}\n", failure.experiment, failure.error);
    }
    deliver(lab, &specification, &text)?;
    match &lab.options.csv {
        Some(path) => write_csv(path, &specification.reports),
        None => Ok(()),
    }
}
