//! What the daemon measures of the gangs of a condition: which part of their slots they ran as a whole, and how
//! far apart their threads were.
//!
//! Every experiment with gangs asks here. What was not measured is told as such, with its reason, and is never 0.

use std::time::{Duration, Instant};

use anyhow::Result;
use gang_protocol::client::Client;

use crate::child::Running;
use crate::daemon::Daemon;
use crate::harness::{Figures, Sample};
use crate::lab::{Lab, Span};
use crate::workload::window::sleep_until_ns;

pub const COSCHEDULED: &str = "coscheduled_percent";
/// Why it is not known yet of programs under plain Linux: a daemon would be part of what gangs are compared with.
pub const APART: &str = "plain Linux is looked at in a round of its own";
const SKEW: &str = "gangs_skew_us_p99";
/// How long before the end of a window the daemon is asked.
const LOOK: Duration = Duration::from_millis(100);
/// When gangs that run until they are done are looked at first; each further look comes after twice the time, so
/// that looking costs next to nothing, however long they take.
const FIRST: Duration = Duration::from_millis(100);

/// What the daemon says of one job.
struct Job {
    coscheduled: Option<f64>,
    cpu_time_ns: i64,
    skew_us_p99: Option<f64>,
    not_measured: Option<String>,
}

/// The mean over the CPU time of all gangs, and the largest skew: a job that sleeps, and had one slot to begin in,
/// says little of how gangs ran.
fn summed(jobs: &[Job]) -> Sample {
    let measured =
        jobs.iter().filter_map(|job| Some((job.coscheduled?, job.cpu_time_ns.max(1) as f64)));
    let (sum, time) =
        measured.fold((0.0, 0.0), |(sum, time), (share, used)| (sum + share * used, time + used));
    if time == 0.0 {
        let reason = jobs.iter().find_map(|job| job.not_measured.clone());
        return not_measured(reason.unwrap_or_else(|| match jobs {
            [] => "no gang was there when they were looked at".into(),
            _ => "no gang had a slot in which it wanted to run".into(),
        }));
    }
    let skew = jobs.iter().filter_map(|job| job.skew_us_p99).reduce(f64::max);
    let mut figures = Figures::from([(COSCHEDULED, sum / time * 100.0)]);
    figures.extend(skew.map(|us| (SKEW, us)));
    Sample { figures, not_measured: None }
}

fn not_measured(reason: impl Into<String>) -> Sample {
    Sample { figures: Figures::new(), not_measured: Some(reason.into()) }
}

impl Lab {
    /// Waits until just before the end of the window, when all gangs are there yet, and notes what is measured
    /// of them.
    pub fn look_at_gangs(&self, daemon: Option<&Daemon>, span: &Span) {
        let before = (span.length / 4).min(LOOK);
        self.look_at_gangs_at(daemon, span.end_ns() - before.as_nanos() as u64);
    }

    /// The same at another moment.
    pub fn look_at_gangs_at(&self, daemon: Option<&Daemon>, at_ns: u64) {
        let Some(daemon) = daemon else { return };
        sleep_until_ns(at_ns);
        self.note(match jobs(daemon) {
            Ok(jobs) => summed(&jobs),
            Err(error) => not_measured(format!("{error:#}")),
        });
    }

    /// Looks at gangs that run until they are done, again and again, until the first of them has ended or the
    /// time is over. What was seen last of the most of them counts.
    pub fn look_at_gangs_until_done(
        &self,
        daemon: Option<&Daemon>,
        running: &mut [Running],
        deadline: Instant,
    ) {
        let (Some(daemon), Some(first)) = (daemon, running.first_mut()) else { return };
        let (mut most, mut seen, mut wait) = (0, summed(&[]), FIRST);
        while !first.ends_by(deadline.min(Instant::now() + wait)) && Instant::now() < deadline {
            match jobs(daemon) {
                Ok(jobs) if jobs.len() >= most => {
                    most = jobs.len();
                    seen = summed(&jobs);
                }
                // Some have ended.
                Ok(_) => {}
                Err(error) if most == 0 => seen = not_measured(format!("{error:#}")),
                Err(_) => {}
            }
            wait *= 2;
        }
        self.note(seen);
    }

    /// Plain Linux is looked at by a daemon that does nothing else, and not while it is compared unless that is asked
    /// for.
    pub fn note_plain(&self) {
        self.note(not_measured(APART));
    }

    /// It is not looked at how much the gangs of the condition run as a whole.
    pub fn note_not_measured(&self, reason: &str) {
        self.note(not_measured(reason));
    }

    fn note(&self, seen: Sample) {
        self.measured.replace(seen);
    }
}

fn jobs(daemon: &Daemon) -> Result<Vec<Job>> {
    let jobs = Client::connect(daemon.socket())?.list_jobs()?.jobs;
    let job = |job: gang_protocol::v1::Job| Job {
        coscheduled: job.coscheduled,
        cpu_time_ns: job.cpu_time_ns,
        skew_us_p99: job.skew_us_p99,
        not_measured: job.not_measured,
    };
    Ok(jobs.into_iter().map(job).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(coscheduled: Option<f64>, skew_us_p99: Option<f64>) -> Job {
        Job { coscheduled, cpu_time_ns: 1_000, skew_us_p99, not_measured: None }
    }

    #[test]
    fn gangs_are_summed_up() {
        let gangs = summed(&[job(Some(0.5), Some(60.0)), job(Some(1.0), Some(20.0))]);
        assert_eq!(gangs.figures, Figures::from([(COSCHEDULED, 75.0), (SKEW, 60.0)]));
        let one = summed(&[job(Some(0.5), None), job(None, None)]);
        assert_eq!(one.figures, Figures::from([(COSCHEDULED, 50.0)]));
        assert_eq!((gangs.not_measured, one.not_measured), (None, None));
        let short = Job { cpu_time_ns: 10, ..job(Some(0.0), None) };
        let gangs = summed(&[short, Job { cpu_time_ns: 990, ..job(Some(1.0), None) }]);
        assert_eq!(gangs.figures, Figures::from([(COSCHEDULED, 99.0)]));
    }

    #[test]
    fn what_was_not_measured_has_a_reason_and_is_not_zero() {
        let reason = |jobs: &[Job]| {
            let gangs = summed(jobs);
            assert!(gangs.figures.is_empty(), "{gangs:?}");
            gangs.not_measured.unwrap()
        };
        let off = || Job { not_measured: Some("it takes CAP_BPF".into()), ..job(None, None) };
        assert_eq!(reason(&[off(), off()]), "it takes CAP_BPF");
        assert!(reason(&[job(None, None)]).contains("no gang had a slot"));
        assert!(reason(&[]).contains("no gang was there"));
    }
}
