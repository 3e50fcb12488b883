//! Every promise in one table: the experiments with fixed settings, one after the other. This is
//! the command that SPECIFICATION.md quotes.

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::harness::lab::Lab;
use crate::harness::machine::Machine;
use crate::harness::report::{Measure, Report, deliver, measure_table, write_csv};
use crate::registry::Experiment;

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
    let promised = || Experiment::promised();
    if let Some(name) = only.iter().find(|name| !promised().any(|known| known.name == **name)) {
        let names: Vec<&str> = promised().map(|it| it.name).collect();
        bail!("the specification has nothing of {name}; it has {}", names.join(", "));
    }
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let machine = Machine::this(lab.cpus);
    let mut specification =
        Specification { machine, measures: Vec::new(), failures: Vec::new(), reports: Vec::new() };
    for experiment in promised().filter(|it| is_wanted(it.name)) {
        eprintln!("{} …", experiment.name);
        match experiment.run_for_spec(lab) {
            Ok(report) => {
                specification.measures.extend(report.measures.iter().cloned());
                specification.reports.push(report);
            }
            Err(error) => {
                let error = format!("{error:#}");
                let experiment = experiment.name;
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
