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

#[derive(Deserialize)]
struct Finished {
    finished_at_ns: u64,
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
        let times_s: Option<Vec<f64>> = self.finish_each()?.into_iter().collect();
        Ok(times_s.map(latest))
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

    /// The time until each copy was done, in seconds; none of those that were not in time, and were
    /// killed.
    pub fn finish_each(mut self) -> Result<Vec<Option<f64>>> {
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
        let finish = |(copy, in_time): (Running, bool)| -> Result<Option<f64>> {
            if !in_time {
                return Ok(None);
            }
            let finished_at_ns = match self.done {
                Done::Reported => copy.outcome::<Finished>(deadline)?.finished_at_ns,
                Done::Ended => copy.ended_at_ns(deadline)?,
            };
            let time_ns = finished_at_ns.saturating_sub(self.started_at_ns);
            Ok(Some(time_ns as f64 / 1e9))
        };
        self.running.into_iter().zip(in_time).map(finish).collect()
    }
}

fn latest(times_s: Vec<f64>) -> f64 {
    times_s.into_iter().fold(0.0, f64::max)
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
        assert_eq!(copies(&[done, late]).finish_each().unwrap(), [Some(2.0), None]);
        assert_eq!(copies(&[late, done]).finish_in_time().unwrap(), None);
        assert!(copies(&[late, "exit 3"]).finish_in_time().is_err(), "it was not killed");
        let error = format!("{:#}", copies(&[late]).finish().unwrap_err());
        assert!(error.contains("did not end in its time"), "{error}");
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
