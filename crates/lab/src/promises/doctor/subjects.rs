//! The programs that the doctor is asked about: of every kind that the lab has, and real ones where
//! they are installed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::child::Running;
use crate::harness::daemon::Daemon;
use crate::harness::gangs::Scheduled;
use crate::harness::lab::{Gang, Lab, Span, words};
use crate::harness::real_programs::{self, Program, numpy, open_mpi, scikit_learn};
use crate::harness::samples::Sample;

/// Workloads of the lab, by what they are for.
const WORKLOADS: [(&str, &str); 26] = [
    ("barrier, 1 µs, spins", "barrier --interval 1us --wait spin"),
    ("barrier, 10 µs, spins", "barrier --interval 10us --wait spin"),
    ("barrier, 100 µs, spins", "barrier --interval 100us --wait spin"),
    ("barrier, 1 ms, spins", "barrier --interval 1ms --wait spin"),
    ("barrier, 5 ms, spins", "barrier --interval 5ms --wait spin"),
    ("barrier, 20 ms, spins", "barrier --interval 20ms --wait spin"),
    ("barrier, 50 ms, spins", "barrier --interval 50ms --wait spin"),
    ("barrier, 10 µs, blocks", "barrier --interval 10us --wait spin-block"),
    ("barrier, 100 µs, blocks", "barrier --interval 100us --wait spin-block"),
    ("barrier, 1 ms, blocks", "barrier --interval 1ms --wait spin-block"),
    ("barrier, 10 ms, blocks", "barrier --interval 10ms --wait spin-block"),
    ("barrier, 50 ms, blocks", "barrier --interval 50ms --wait spin-block"),
    ("barrier, 100 µs ± 100 µs, spins", "barrier --interval 100us --variance 200us --wait spin"),
    ("barrier, 1 ms ± 3 ms, spins", "barrier --interval 1ms --variance 6ms --wait spin"),
    ("gauss, spins", "gauss --wait spin"),
    ("gauss, blocks", "gauss --wait spin-block"),
    ("gauss, small, spins", "gauss --size 128 --wait spin"),
    ("matmul, spins", "matmul --wait spin"),
    ("matmul, small, spins", "matmul --size 96 --wait spin"),
    ("matmul, blocks", "matmul --wait spin-block"),
    ("independent threads", "hog"),
    ("independent threads over memory", "scan"),
    // More packets than can be clustered, which come at once.
    ("stream, spins", "stream --packets 10000000 --time-limit 0s --wait spin"),
    ("stream, blocks", "stream --packets 10000000 --time-limit 0s --wait spin-block"),
    // More rounds than there is time for.
    ("phases, spins", "phases --rounds 1000000000 --wait spin"),
    ("deadlines", "deadlines --step 1ms"),
];

/// A first answer is made of every so many of them.
const QUICK: usize = 6;

/// Real programs that have not ended by then are killed, and count as if they had. Copies that
/// share the machine evenly take as long as workloads count.
fn time_limit(span: &Span) -> Duration {
    span.length * 5 / 2
}

pub const COPIES: usize = 2;

pub enum Subject {
    Workload { name: &'static str, arguments: &'static str },
    Real(Program),
}

/// Those that are asked about, and how many there are in all.
pub struct Subjects {
    pub chosen: Vec<Subject>,
    pub all: usize,
    /// Why real programs are not among them.
    pub missing: Vec<String>,
}

/// Chooses those whose name has one of the words of `only` in it; without any, all, or for a first
/// answer some of the lab's own. Each real program is to run for `alone` by itself.
pub fn choose(lab: &Lab, dir: &Path, only: &[String], alone: Duration) -> Result<Subjects> {
    let is_meant =
        |name: &str| only.is_empty() || only.iter().any(|word| name.contains(word.as_str()));
    let every = if lab.options.quick && only.is_empty() { QUICK } else { 1 };
    let workloads = WORKLOADS.iter().step_by(every).filter(|(name, _)| is_meant(name));
    let mut chosen: Vec<Subject> =
        workloads.map(|&(name, arguments)| Subject::Workload { name, arguments }).collect();
    type Find = fn(&Path, usize) -> Result<Program>;
    let real: [(&str, Find); 3] = [
        ("numpy (OpenBLAS)", |dir, _| numpy(dir)),
        ("scikit-learn", |dir, _| scikit_learn(dir)),
        ("Open MPI", open_mpi),
    ];
    let all = WORKLOADS.len() + real.len();
    let mut missing = Vec::new();
    for (name, find) in real {
        if every > 1 || !is_meant(name) {
            continue;
        }
        match find(dir, lab.cpus).and_then(|program| program.sized(lab, alone)) {
            Ok(program) => chosen.push(Subject::Real(program)),
            Err(error) => missing.push(format!("Without {name}: {error:#}.")),
        }
    }
    ensure!(!chosen.is_empty(), "no such program: {}. {}", only.join(", "), missing.join(" "));
    Ok(Subjects { chosen, all, missing })
}

impl Subject {
    pub fn name(&self) -> &'static str {
        match self {
            Subject::Workload { name, .. } => name,
            Subject::Real(program) => program.name,
        }
    }

    /// Starts copies at once, as gangs of the daemon where there is one; workloads count over the
    /// span, and real programs have `longer` times as much to do as was chosen.
    pub fn start(
        &self,
        lab: &Lab,
        daemon: Option<&Daemon>,
        span: &Span,
        longer: f64,
    ) -> Result<Copies> {
        match self {
            Subject::Workload { arguments, .. } => {
                let threads = lab.threads();
                let gang = Gang { cpus: threads.min(lab.cpus), weight: None };
                let mut words = words(&format!("{arguments} --threads {threads}"));
                words.extend(span_arguments(&words[0], span));
                let start = |_| lab.start_workload(daemon, Some(gang), &words);
                (0..COPIES).map(start).collect::<Result<_>>().map(Copies::Workload)
            }
            Subject::Real(program) => {
                let time_limit = time_limit(span);
                let times = (program.times as f64 * longer).round() as u64;
                let program = program.clone().with_times(times);
                let copies = program.start(lab, daemon, COPIES)?.within(time_limit);
                Ok(Copies::Real { copies, times, time_limit })
            }
        }
    }
}

/// The arguments of a workload that say when it counts.
fn span_arguments(workload: &str, span: &Span) -> Vec<String> {
    let mut arguments = span.arguments();
    if workload == "phases" {
        // It does what it can until it gives up.
        for argument in arguments.iter_mut().filter(|it| *it == "--seconds") {
            *argument = "--limit".into();
        }
    }
    arguments
}

/// Copies that run.
pub enum Copies {
    Workload(Vec<Running>),
    Real { copies: real_programs::Copies, times: u64, time_limit: Duration },
}

impl Copies {
    /// The program that the doctor looks at.
    pub fn first(&mut self) -> &mut Running {
        match self {
            Copies::Workload(running) => &mut running[0],
            Copies::Real { copies, .. } => copies.first(),
        }
    }

    /// The daemon's figures of them, which are its jobs.
    pub fn look(&mut self, daemon: &Daemon, span: &Span) -> Sample {
        match self {
            Copies::Workload(_) => daemon.look(span),
            Copies::Real { copies, .. } => copies.look(Scheduled::By(daemon)),
        }
    }

    /// Their work, when they have ended.
    pub fn done(self, span: &Span) -> Result<Done> {
        match self {
            Copies::Workload(running) => {
                let outcomes = running.into_iter().map(|copy| copy.outcome(span.deadline));
                let outcomes: Vec<Value> = outcomes.collect::<Result<_>>()?;
                let rates: Vec<f64> = outcomes.iter().map(rate).collect::<Result<_>>()?;
                let first_ns = outcomes[0]["elapsed_ns"].as_f64();
                let first_s = first_ns.context("a workload did not say how long it ran")? / 1e9;
                Ok(Done { rate: rates.iter().sum(), of_first: rates[0], first_s })
            }
            Copies::Real { copies, times, time_limit } => {
                let limit_s = time_limit.as_secs_f64();
                let ends = copies.finish_each()?;
                let times_s: Vec<f64> =
                    ends.iter().map(|end| end.time_s.unwrap_or(limit_s)).collect();
                let last_s = times_s.iter().copied().fold(0.0, f64::max);
                let rate = |time_s: f64| times as f64 / time_s;
                Ok(Done {
                    rate: COPIES as f64 * rate(last_s),
                    of_first: rate(times_s[0]),
                    first_s: times_s[0],
                })
            }
        }
    }
}

/// The work of copies in a second, in units of their own.
pub struct Done {
    pub rate: f64,
    /// The work of the first, at which the doctor looks, and for how long it ran.
    pub of_first: f64,
    pub first_s: f64,
}

/// The count of a workload, by its names there.
const COUNTS: [&str; 4] = ["iterations", "packets", "rounds", "steps"];

fn rate(outcome: &Value) -> Result<f64> {
    let count = COUNTS.iter().find_map(|name| outcome[*name].as_f64());
    let seconds = outcome["elapsed_ns"].as_f64().map(|ns| ns / 1e9);
    let both = count.zip(seconds).filter(|(_, seconds)| *seconds > 0.0);
    both.map(|(count, seconds)| count / seconds)
        .with_context(|| format!("a workload did not say what it did: {outcome}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::options::Options;

    #[test]
    fn each_kind_of_workload_has_a_rate() {
        for name in COUNTS {
            let outcome = serde_json::json!({ name: 30, "elapsed_ns": 2e9 });
            assert_eq!(rate(&outcome).unwrap(), 15.0, "{name}");
        }
        assert!(rate(&serde_json::json!({ "elapsed_ns": 2e9 })).is_err());
        assert!(rate(&serde_json::json!({ "steps": 1, "elapsed_ns": 0 })).is_err());
    }

    #[test]
    fn some_are_chosen_by_name_or_for_a_first_answer() {
        let chosen = |only: &str, quick| {
            let lab = Lab::new(&Options { quick, ..Options::default() }).unwrap();
            let only: Vec<String> = only.split_whitespace().map(String::from).collect();
            let dir = tempfile::tempdir().unwrap();
            choose(&lab, dir.path(), &only, Duration::ZERO).map(|it| it.chosen.len())
        };
        assert_eq!(chosen("gauss, deadlines", false).unwrap(), 4);
        assert_eq!(chosen("phases", true).unwrap(), 1);
        assert_eq!(chosen("", true).unwrap(), 5);
        assert!(chosen("nothing", true).is_err());
    }
}
