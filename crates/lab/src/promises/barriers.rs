//! The barrier of libgang beside those of libgomp and pthread: one copy and two, under plain Linux
//! and under gangd. It is asked to be as fast as the best that spins where it is alone, and as the
//! best that blocks where it shares the machine without gangd.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::compiled::compile_with_libgang;
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Gang, LONG_ENOUGH, Lab, Span, Under};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::promises::list;

const RATE: &str = "barriers_per_s";
const SOURCE: &str = include_str!("../../../../demo/barriers.c");
const COPIES: usize = 2;
/// About a microsecond.
pub const WORK: u32 = 3000;

/// The name of a barrier here, its name in the program, and OMP_WAIT_POLICY.
const KINDS: [(&str, &str, Option<&str>); 5] = [
    (AWARE, "gang", None),
    ("libgang, spins 50 µs", "fixed", None),
    (ACTIVE, "libgomp", Some("active")),
    (DEFAULT, "libgomp", None),
    (BLOCKING, "pthread", None),
];
const AWARE: &str = "libgang, slot page";
const ACTIVE: &str = "libgomp, active";
const DEFAULT: &str = "libgomp, default";
const BLOCKING: &str = "pthread";

#[derive(Args, Debug, Clone)]
pub struct Barriers {
    /// Turns of an empty loop between two barriers
    #[arg(long, default_value_t = WORK)]
    pub work: u32,
}

#[derive(Deserialize)]
struct Counted {
    iterations: u64,
    page: bool,
    ready_at_ns: u64,
}

impl Barriers {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        let dir = tempfile::tempdir().context("making a directory for the program")?;
        let program = compile_with_libgang(&lab.programs, dir.path(), "barriers", SOURCE)?;
        let ways = plain_and_default(lab);
        let mut conditions = Vec::new();
        for (way, under) in &ways {
            for copies in [1, COPIES] {
                for (kind, word, policy) in KINDS {
                    let program = &program;
                    conditions.push(Condition::new(name(copies, way, kind), move |lab| {
                        self.measure(lab, under, copies, program, word, policy)
                    }));
                }
            }
        }
        let threads = lab.threads();
        let about = format!("{threads} threads that work for {} turns and meet", self.work);
        let run = alternate(lab, "barriers", lab.runs(), &conditions)?;
        let mut report = Report::new(lab, about, run, RATE);
        for (way, _) in &ways {
            for copies in [1, COPIES] {
                let aware = name(copies, way, AWARE);
                for other in [ACTIVE, DEFAULT, BLOCKING] {
                    let ratio = report.ratio(&aware, &name(copies, way, other), RATE);
                    let promise = match (*way, copies, other) {
                        ("gangd", 1, ACTIVE) => &list::OWN_BARRIER_GANGD,
                        (_, 1, ACTIVE) => &list::OWN_BARRIER_LINUX,
                        ("plain Linux", COPIES, DEFAULT) => &list::OWN_BARRIER_LIBGOMP,
                        ("plain Linux", COPIES, BLOCKING) => &list::OWN_BARRIER_PTHREAD,
                        _ => continue,
                    };
                    report.promise(promise, ratio);
                }
            }
        }
        Ok(report)
    }

    fn measure(
        &self,
        lab: &Lab,
        under: &Under,
        copies: usize,
        program: &Path,
        kind: &str,
        policy: Option<&str>,
    ) -> Result<Sample> {
        let daemon = lab.daemon_of(under)?;
        let run = |span: &Span| -> Result<(Vec<u64>, Sample, Duration)> {
            let mut command = vec!["env".into(), "-u".into(), "OMP_WAIT_POLICY".into()];
            command.extend(policy.map(|policy| format!("OMP_WAIT_POLICY={policy}")));
            command.extend([
                program.display().to_string(),
                kind.into(),
                lab.threads().to_string(),
                self.work.to_string(),
                span.start_ns.to_string(),
                span.length.as_nanos().to_string(),
            ]);
            let gang = Gang { cpus: lab.threads().min(lab.cpus), weight: None };
            let mut running = Vec::new();
            for _ in 0..copies {
                running.push(lab.start(daemon.as_ref(), Some(gang), &command)?);
            }
            let seen = lab.by(daemon.as_ref()).look(span);
            let mut barriers = Vec::new();
            for copy in running {
                let counted: Counted = copy.outcome(span.deadline)?;
                let has_page = daemon.is_some() && kind == "gang";
                ensure!(counted.page == has_page, "the program has a slot page: {}", counted.page);
                if counted.ready_at_ns > span.start_ns {
                    eprintln!("gang lab: a copy with {kind} began after its measurement did");
                }
                barriers.push(counted.iterations);
            }
            Ok((barriers, seen, span.length))
        };
        let length = lab.length(Duration::from_secs(1));
        let is_enough = |(barriers, ..): &(Vec<u64>, _, _)| barriers.iter().all(|&met| met > 0);
        let ((barriers, seen, length), longer_s) =
            lab.over_window(length, LONG_ENOUGH, run, is_enough)?;
        Ok(seen
            .over(longer_s)
            .with([(RATE, barriers.iter().sum::<u64>() as f64 / length.as_secs_f64())]))
    }
}

fn name(copies: usize, way: &str, kind: &str) -> String {
    let copies = if copies == 1 { "alone".into() } else { format!("{copies} copies") };
    format!("{copies}, {way}, {kind}")
}
