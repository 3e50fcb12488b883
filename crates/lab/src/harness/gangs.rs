//! The figures that the daemon measures of the gangs of a condition: which part of their slots they
//! were coscheduled, how far apart their threads were, how long these waited in their slots, and
//! how long they ran out of them.
//!
//! Every experiment with gangs asks here. A figure that was not measured is reported as such, with
//! its reason, and is never 0.

use std::time::{Duration, Instant};

use anyhow::Result;
use gang_protocol::client::Client;

use crate::harness::child::Running;
use crate::harness::daemon::Daemon;
use crate::harness::lab::Span;
use crate::harness::samples::{Figures, Sample};
use crate::workload::window::sleep_until_ns;

pub const COSCHEDULED: &str = "coscheduled_percent";
/// Why it is not known of gangs that have not begun, or have ended, by the look.
const NOT_THERE: &str = "no gang was there when they were looked at";
const NO_SLOT: &str = "no gang had a slot in which it wanted to run";
/// Why it is not known yet of programs under plain Linux: a daemon would be part of what gangs are
/// compared with.
pub const APART: &str = "plain Linux is looked at in a round of its own";
const SKEW: &str = "gangs_skew_us_p99";
/// Sums over the threads of all gangs, as parts of their CPU time: waiting in slot, running out of
/// slot, waiting out of slot.
const LOST: &str = "gangs_lost_percent";
const FILLED: &str = "gangs_filled_percent";
const WAITING: &str = "gangs_waiting_percent";
/// A terminal has no room for these; all else has.
pub const NOT_ON_TERMINALS: [&str; 3] = [LOST, FILLED, WAITING];
/// All figures of a look at gangs.
const OF_GANGS: [&str; 5] = [COSCHEDULED, SKEW, LOST, FILLED, WAITING];
/// How long before the end of a window the daemon is asked.
const LOOK: Duration = Duration::from_millis(100);
/// When gangs that run until they are done are looked at first; each further look comes after twice
/// the time, so that looking costs next to nothing, however long they take.
const FIRST: Duration = Duration::from_millis(100);

/// The figures that the daemon has of one job.
struct Job {
    coscheduled: Option<f64>,
    cpu_time_ns: i64,
    skew_us_p99: Option<f64>,
    lost_ns: Option<i64>,
    filled_ns: Option<i64>,
    waiting_ns: Option<i64>,
    not_measured: Option<String>,
}

/// One of the sums over the threads of a job.
type Sum = fn(&Job) -> Option<i64>;

/// A sum of all gangs as a part of the CPU time of those that have it.
fn percent_of_time(jobs: &[Job], of: Sum) -> Option<f64> {
    let known = jobs.iter().filter_map(|job| Some((of(job)?, job.cpu_time_ns)));
    let (sum, time) = known.fold((0, 0), |(sum, time), (ns, used)| (sum + ns, time + used));
    (time > 0).then(|| sum as f64 / time as f64 * 100.0)
}

/// The mean over the CPU time of all gangs, and the largest skew: a job that sleeps, and had one
/// slot to begin in, says little of how gangs ran.
fn summed(jobs: &[Job]) -> Sample {
    let measured =
        jobs.iter().filter_map(|job| Some((job.coscheduled?, job.cpu_time_ns.max(1) as f64)));
    let (sum, time) =
        measured.fold((0.0, 0.0), |(sum, time), (share, used)| (sum + share * used, time + used));
    if time == 0.0 {
        let reason = jobs.iter().find_map(|job| job.not_measured.clone());
        return Sample::not_measured(reason.unwrap_or_else(|| match jobs {
            [] => NOT_THERE.into(),
            _ => NO_SLOT.into(),
        }));
    }
    let skew = jobs.iter().filter_map(|job| job.skew_us_p99).reduce(f64::max);
    let mut figures = Figures::from([(COSCHEDULED, sum / time * 100.0)]);
    figures.extend(skew.map(|us| (SKEW, us)));
    let sums: [(_, Sum); 3] =
        [(LOST, |job| job.lost_ns), (FILLED, |job| job.filled_ns), (WAITING, |job| job.waiting_ns)];
    figures
        .extend(sums.into_iter().filter_map(|(name, of)| Some((name, percent_of_time(jobs, of)?))));
    Sample { figures, ..Sample::default() }
}

/// The scheduler of the programs of a condition, which decides how much can be known of them.
#[derive(Clone, Copy)]
pub enum Scheduled<'a> {
    /// The daemon, which reports their figures.
    By(&'a Daemon),
    /// Linux; and a daemon is to look at them in a round of its own.
    SeenApart,
    /// Linux, and nobody asks.
    Unseen,
}

impl<'a> Scheduled<'a> {
    pub fn daemon(self) -> Option<&'a Daemon> {
        match self {
            Scheduled::By(daemon) => Some(daemon),
            Scheduled::SeenApart | Scheduled::Unseen => None,
        }
    }

    /// Looks just before the end of the window, when all gangs are there yet.
    pub fn look(self, span: &Span) -> Sample {
        self.look_by(|daemon| daemon.look(span))
    }

    /// Looks at gangs that run until they are done.
    pub fn look_until_done(self, running: &mut [Running], deadline: Instant) -> Sample {
        self.look_by(|daemon| daemon.look_until_done(running, deadline))
    }

    fn look_by(self, look: impl FnOnce(&Daemon) -> Sample) -> Sample {
        match self {
            Scheduled::By(daemon) => look(daemon),
            // A daemon would be part of what gangs are compared with.
            Scheduled::SeenApart => Sample::not_measured(APART),
            Scheduled::Unseen => Sample::default(),
        }
    }
}

impl Daemon {
    /// A sample of it, of which it was not asked how its gangs ran.
    pub fn sample(&self) -> Sample {
        Sample { daemons: self.schedules_by().into_iter().collect(), ..Sample::default() }
    }

    /// Waits until just before the end of the window, when all gangs are there yet, and looks at
    /// them.
    pub fn look(&self, span: &Span) -> Sample {
        let before = (span.length / 4).min(LOOK);
        self.look_at(span.end_ns() - before.as_nanos() as u64)
    }

    /// Looks at gangs at another moment.
    pub fn look_at(&self, at_ns: u64) -> Sample {
        sleep_until_ns(at_ns);
        let seen = match jobs(self) {
            Ok(jobs) => summed(&jobs),
            Err(error) => Sample::not_measured(format!("{error:#}")),
        };
        Sample { daemons: self.sample().daemons, ..seen }
    }

    /// Looks at gangs that run until they are done, again and again, until the first of them has
    /// ended or the time is over. The last look at the most of them counts.
    pub fn look_until_done(&self, running: &mut [Running], deadline: Instant) -> Sample {
        let (mut most, mut seen, mut wait) = (0, summed(&[]), FIRST);
        let Some(first) = running.first_mut() else { return self.sample() };
        while !first.ends_by(deadline.min(Instant::now() + wait)) && Instant::now() < deadline {
            match jobs(self) {
                Ok(jobs) if jobs.len() >= most => {
                    most = jobs.len();
                    seen = summed(&jobs);
                }
                // Some have ended.
                Ok(_) => {}
                Err(error) if most == 0 => seen = Sample::not_measured(format!("{error:#}")),
                Err(_) => {}
            }
            wait *= 2;
        }
        Sample { daemons: self.sample().daemons, ..seen }
    }
}

impl Sample {
    /// The figures of the look alone, without those that are compared.
    pub fn of_gangs(self) -> Self {
        let Sample { mut figures, not_measured, lost_to_ns, .. } = self;
        figures.retain(|figure, _| OF_GANGS.contains(figure));
        Sample { figures, not_measured, lost_to_ns, ..Sample::default() }
    }

    /// Whether gangs were looked at before any of them had run, or after all of them had.
    pub fn saw_no_gang_run(&self) -> bool {
        self.not_measured.as_deref().is_some_and(|why| why == NOT_THERE || why == NO_SLOT)
    }
}

fn jobs(daemon: &Daemon) -> Result<Vec<Job>> {
    let jobs = Client::connect(daemon.socket())?.list_jobs()?.jobs;
    let job = |job: gang_protocol::v1::Job| {
        let measured = job.measured.as_ref();
        Job {
            coscheduled: job.coscheduled(),
            cpu_time_ns: job.cpu_time_ns,
            skew_us_p99: job.skew_ns_p99().map(|ns| ns as f64 / 1e3),
            lost_ns: measured.map(|it| it.lost_ns),
            filled_ns: measured.map(|it| it.filled_ns),
            waiting_ns: measured.map(|it| it.waiting_ns),
            not_measured: job.not_measured,
        }
    };
    Ok(jobs.into_iter().map(job).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(coscheduled: Option<f64>, skew_us_p99: Option<f64>) -> Job {
        let cpu_time_ns = 1_000;
        let [lost_ns, filled_ns, waiting_ns] = [None; 3];
        Job {
            coscheduled,
            cpu_time_ns,
            skew_us_p99,
            lost_ns,
            filled_ns,
            waiting_ns,
            not_measured: None,
        }
    }

    #[test]
    fn gangs_are_summed_up() {
        let gangs = summed(&[job(Some(0.5), Some(60.0)), job(Some(1.0), Some(20.0))]);
        assert_eq!(gangs.figures, Figures::from([(COSCHEDULED, 75.0), (SKEW, 60.0)]));
        let one = summed(&[job(Some(0.5), None), job(None, None)]);
        assert_eq!(one.figures, Figures::from([(COSCHEDULED, 50.0)]));
        assert_eq!((gangs.not_measured, one.not_measured), (None, None));
        let with_sums = |lost_ns, filled_ns, waiting_ns| Job {
            lost_ns: Some(lost_ns),
            filled_ns: Some(filled_ns),
            waiting_ns: Some(waiting_ns),
            ..job(Some(1.0), None)
        };
        let gangs =
            summed(&[with_sums(10, 300, 900), with_sums(30, 0, 1_100), job(Some(1.0), None)]);
        let sums = NOT_ON_TERMINALS.map(|name| gangs.figures[name]);
        assert_eq!(sums, [2.0, 15.0, 100.0], "of those of which they are known");
        let short = Job { cpu_time_ns: 10, ..job(Some(0.0), None) };
        let gangs = summed(&[short, Job { cpu_time_ns: 990, ..job(Some(1.0), None) }]);
        assert_eq!(gangs.figures, Figures::from([(COSCHEDULED, 99.0)]));
    }

    #[test]
    fn unmeasured_figure_has_a_reason_and_is_not_zero() {
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
