//! A build beside a gang that spins: its compilers are short-lived processes, of which each is seen
//! only once it runs. As a gang it is to get as much done as an ordinary program does beside the
//! same gang.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::compiled::compile;
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{LONG_ENOUGH, Lab, Launch, Together, all_completed};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::promises::list;

const RATE: &str = "files_per_s";
const OF_GANG: &str = "gang_iterations_per_s";
const LENGTH: Duration = Duration::from_secs(10);
const ORDINARY: &str = "an ordinary build";
const AS_GANG: &str = "the build as a gang";

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no gang beside the build")?;
    let dir = tempfile::tempdir().context("making a directory for the source")?;
    let source = source(dir.path())?;
    let conditions = [(ORDINARY, false), (AS_GANG, true)].map(|(name, is_gang)| {
        let source = source.clone();
        Condition::new(name, move |lab: &Lab| measure(lab, &source, is_gang))
    });
    let run = alternate(lab, "build", lab.runs(), &conditions)?;
    let about =
        format!("a build with {} compilers at once beside a gang that spins", lab.threads());
    let mut report = Report::new(lab, about, run, RATE);
    let ratio = report.ratio(AS_GANG, ORDINARY, RATE);
    report.promise(&list::BUILD, ratio);
    Ok(report)
}

/// A file that a compiler takes a tenth of a second for, and that is known to compile.
fn source(dir: &Path) -> Result<String> {
    const FUNCTIONS: usize = 8;
    let function = |number: usize| {
        format!(
            "double f{number}(double *a, int n) {{ double s = {number}; \
             for (int i = 1; i < n; i++) {{ a[i] = a[i - 1] * s + i % {number}1; s += a[i]; }} \
             return s; }}\n"
        )
    };
    let text: String = (1..=FUNCTIONS).map(function).collect();
    compile(dir, "unit", &format!("{text}int main(void) {{ return 0; }}\n"), &[])?;
    Ok(dir.join("unit.c").display().to_string())
}

fn measure(lab: &Lab, source: &str, is_gang: bool) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let cpus = lab.threads().min(lab.cpus);
    let gang = Launch::gang(cpus, &format!("hog --threads {}", lab.threads()));
    let build = format!("build --threads {} --source", lab.threads());
    let mut build = if is_gang { Launch::gang(cpus, &build) } else { Launch::unregistered(&build) };
    build.arguments.push(source.to_owned());
    let copies = [build, gang];
    let measure = |span: &_| lab.run_in(span, lab.by(Some(&daemon)), &copies);
    let is_enough = |seen: &Together| all_completed(&seen.outcomes);
    let (Together { outcomes, sample }, longer_s) =
        lab.over_window(lab.length(LENGTH), LONG_ENOUGH, measure, is_enough)?;
    let figures = [(RATE, outcomes[0].rate()), (OF_GANG, outcomes[1].rate())];
    Ok(sample.over(longer_s).with(figures))
}
