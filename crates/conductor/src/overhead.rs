//! The cost of switching the threads of a job.
//!
//! Problem: at each edge of a gang's slot, each of its threads is switched, also those that sleep.
//! With thousands of threads that takes milliseconds, which the next gang waits for.
//!
//! Approach: the time counts as the job's own. Each time that its threads are read, it follows from
//! their number what part of a slice they take, beyond a few for each of its CPUs that every
//! program has. The policy has such a job weigh less ([`gang_schedule::Event::Overhead`]).

use gang_schedule::{Config, Event, JobId};
use gang_timetable::Backend;

use crate::{Conductor, crowding::ACTION_NS};

/// Threads for each CPU of a job that cost it nothing.
const FREE_THREADS: u64 = 4;

/// The part of a slice that it takes to switch so many threads of a job of so many CPUs, in
/// percent. Greater figures are in steps, so that a few threads more or less change no plan.
fn percent(config: &Config, threads: usize, cpus: u32) -> u32 {
    let gaps = match config.gap.length_ns {
        0 => 0,
        _ => config.slice_ns.div_ceil(config.gap.period_ns) - 1,
    };
    let edges = 2 * (1 + gaps);
    let charged = (threads as u64).saturating_sub(FREE_THREADS * u64::from(cpus));
    let percent = charged * edges * ACTION_NS * 100 / config.slice_ns;
    let percent = u32::try_from(percent).unwrap_or(u32::MAX);
    let step = (percent / 8).next_power_of_two();
    percent / step * step
}

impl Conductor {
    /// A job pays for the switches of the threads that it has now.
    pub(crate) fn charge_switches_of(&mut self, id: JobId) {
        // The other backends switch a job as a whole, or by its processes.
        if self.backend != Backend::Rt {
            return;
        }
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(home) = &job.home else { return };
        let threads = home.members.threads().iter().filter(|thread| !thread.is_exempt()).count();
        let percent = percent(self.schedule.config(), threads, job.spec.cpus);
        if percent == job.spec.overhead {
            return;
        }
        let _ = self.schedule.apply(Event::Overhead { job: id, percent });
        if let Some(job) = self.jobs.get_mut(&id) {
            job.spec.overhead = percent;
        }
    }
}

#[cfg(test)]
mod tests {
    use gang_schedule::Gap;

    use super::*;

    const MS: u64 = 1_000_000;

    fn config(slice_ns: u64, length_ns: u64, period_ns: u64) -> Config {
        Config { slice_ns, gap: Gap { length_ns, period_ns }, ..Config::default() }
    }

    #[test]
    fn threads_of_usual_programs_cost_nothing() {
        let usual = config(20 * MS, MS, 20 * MS);
        assert_eq!([1, 8, 100].map(|threads| percent(&usual, threads, 2)), [0, 0, 0]);
        assert_eq!(percent(&usual, 512, 128), 0);
    }

    #[test]
    fn thousands_cost_what_they_take_of_a_slice() {
        // Lowered and raised once in each slice; twice where there are two gaps.
        assert_eq!(percent(&config(20 * MS, MS, 20 * MS), 4096, 2), 40);
        assert_eq!(percent(&config(20 * MS, MS / 2, 10 * MS), 4096, 2), 80);
        assert_eq!(percent(&config(MS, 0, 20 * MS), 1004, 1), 192);
    }

    #[test]
    fn a_few_threads_change_no_plan() {
        let usual = config(20 * MS, MS, 20 * MS);
        let all: std::collections::BTreeSet<u32> =
            (0..4096).map(|threads| percent(&usual, threads, 1)).collect();
        assert!(all.len() < 30, "{all:?}");
    }
}
