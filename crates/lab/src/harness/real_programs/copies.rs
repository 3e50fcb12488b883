//! Copies of a real program that run at once until they are done, or until their time is over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Done;
use crate::harness::child::Running;
use crate::harness::gangs::Scheduled;
use crate::harness::samples::Sample;

/// A copy that has not ended by then is killed, and the measurement fails.
pub const LIMIT: Duration = Duration::from_secs(300);
/// How long copies that are to end have for it: mpirun removes the memory that its ranks share.
const GRACE: Duration = Duration::from_secs(30);

/// Copies of a program that run at once.
pub struct Copies {
    pub(super) running: Vec<Running>,
    pub started_at_ns: u64,
    pub(super) deadline: Instant,
    pub(super) done: Done,
}

/// The words of a copy at its end, or where it is asked to end.
#[derive(Deserialize)]
struct Finished {
    finished_at_ns: u64,
    /// Only some programs say it.
    work: Option<Work>,
}

/// How often a copy solved its problem, from when on. Its start is no part of that time.
#[derive(Deserialize)]
struct Work {
    began_at_ns: u64,
    done: u64,
}

/// How a copy ended.
pub struct End {
    /// The time until it was done, in seconds; none where it was not in time, and was killed.
    pub time_s: Option<f64>,
    finished: Option<Finished>,
}

impl Copies {
    /// The same, with less time to end.
    pub fn within(mut self, limit: Duration) -> Self {
        self.deadline = self.deadline.min(Instant::now() + limit);
        self
    }

    /// The figures of their gangs while they run.
    pub fn look(&mut self, by: Scheduled) -> Sample {
        by.look_until_done(&mut self.running, self.deadline)
    }

    /// Like [`Copies::finish`]; none where one was not done in its time, and was killed.
    pub fn finish_in_time(self) -> Result<Option<f64>> {
        Ok(latest_s(&self.finish_each()?))
    }

    pub fn first(&mut self) -> &mut Running {
        &mut self.running[0]
    }

    pub fn pids(&self) -> Vec<i32> {
        self.running.iter().map(Running::pid).collect()
    }

    /// The time until the last copy was done, in seconds.
    pub fn finish(self) -> Result<f64> {
        self.finish_in_time()?.context("a copy did not end in its time and was killed")
    }

    /// How each copy ended.
    pub fn finish_each(mut self) -> Result<Vec<End>> {
        let deadline = self.deadline;
        let in_time: Vec<bool> =
            self.running.iter_mut().map(|copy| copy.ends_by(deadline)).collect();
        if in_time.contains(&false) {
            self.running.iter().for_each(Running::ask_to_end);
            let end = Instant::now() + GRACE;
            for copy in &mut self.running {
                copy.ends_by(end);
            }
        }
        let done = self.done;
        let started_at_ns = self.started_at_ns;
        let finish = |(copy, in_time): (Running, bool)| -> Result<End> {
            if !in_time {
                return Ok(End { time_s: None, finished: copy.outcome(deadline).ok() });
            }
            let (at_ns, finished) = match done {
                Done::Reported => {
                    let finished: Finished = copy.outcome(deadline)?;
                    (finished.finished_at_ns, Some(finished))
                }
                Done::Ended => (copy.ended_at_ns(deadline)?, None),
            };
            let time_s = at_ns.saturating_sub(started_at_ns) as f64 / 1e9;
            Ok(End { time_s: Some(time_s), finished })
        };
        self.running.into_iter().zip(in_time).map(finish).collect()
    }
}

/// The time until the last copy was done, in seconds; none where one was not done in its time.
pub fn latest_s(ends: &[End]) -> Option<f64> {
    ends.iter().try_fold(0.0_f64, |latest, end| Some(latest.max(end.time_s?)))
}

/// How often all copies together solved their problem a second, those that were not done in time
/// as far as they came; none where one does not say it.
pub fn solved_per_s(ends: &[End]) -> Option<f64> {
    let (mut began_at_ns, mut finished_at_ns, mut done) = (u64::MAX, 0, 0);
    for End { finished, .. } in ends {
        let finished = finished.as_ref()?;
        let work = finished.work.as_ref()?;
        began_at_ns = began_at_ns.min(work.began_at_ns);
        finished_at_ns = finished_at_ns.max(finished.finished_at_ns);
        done += work.done;
    }
    let time_ns = finished_at_ns.checked_sub(began_at_ns).filter(|&time_ns| time_ns > 0)?;
    Some(done as f64 / (time_ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::workload::window::now_ns;

    #[test]
    fn a_copy_that_fails_is_no_late_one() {
        let copies = |scripts: &[&str]| {
            let start =
                |script: &&str| Running::start(Command::new("sh").args(["-c", script])).unwrap();
            let running = scripts.iter().map(start).collect();
            let deadline = Instant::now() + Duration::from_millis(500);
            Copies { running, started_at_ns: 0, deadline, done: Done::Reported }
        };
        let (done, late) = ("echo '{\"finished_at_ns\": 2000000000}'", "exec sleep 60");
        let ends = copies(&[done, late]).finish_each().unwrap();
        assert_eq!(ends.iter().map(|end| end.time_s).collect::<Vec<_>>(), [Some(2.0), None]);
        assert_eq!(solved_per_s(&ends), None, "they do not say it");
        assert_eq!(copies(&[late, done]).finish_in_time().unwrap(), None);
        assert!(copies(&[late, "exit 3"]).finish_in_time().is_err(), "it was not killed");
        let error = format!("{:#}", copies(&[late]).finish().unwrap_err());
        assert!(error.contains("did not end in its time"), "{error}");
    }

    #[test]
    fn work_counts_as_far_as_a_copy_came() {
        let end = |time_s, finished_at_ns, began_at_ns, done| {
            let work = Some(Work { began_at_ns, done });
            End { time_s, finished: Some(Finished { finished_at_ns, work }) }
        };
        let ends = [
            end(Some(3.0), 3_000_000_000, 1_000_000_000, 10),
            end(None, 5_000_000_000, 2_000_000_000, 6),
        ];
        assert_eq!(solved_per_s(&ends), Some(4.0));
        assert_eq!(latest_s(&ends), None);
        assert_eq!(latest_s(&ends[..1]), Some(3.0));
    }

    #[test]
    fn one_that_says_nothing_is_done_at_its_end() {
        let started_at_ns = now_ns();
        let copies = |script: &str| {
            let running = vec![Running::start(Command::new("sh").args(["-c", script])).unwrap()];
            Copies { running, started_at_ns, deadline: Instant::now() + LIMIT, done: Done::Ended }
        };
        let time_s = copies("echo so it is").finish().unwrap();
        assert!((0.0..LIMIT.as_secs_f64()).contains(&time_s), "{time_s}");
        assert!(copies("exit 3").finish().is_err());
    }
}
