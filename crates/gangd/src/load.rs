//! How many threads outside all gangs want to run (L18): those of jobs of policy `none` are among them.
//!
//! The kernel says how many threads are runnable on the whole machine; those of the jobs are counted
//! one by one and taken off. A thread that wakes for a moment is no load that needs slices of its
//! own: it is served in the gaps. So counts are taken at the end of a gap, when short tasks are done,
//! and the least of the last few is what counts.

use std::collections::VecDeque;

/// The counts that the least is taken of.
const REMEMBERED: usize = 3;

/// The load of the rest of the machine.
#[derive(Clone, Debug, Default)]
pub struct Load {
    last: VecDeque<u32>,
}

impl Load {
    /// Takes note of a count: all runnable threads, those of jobs, and those of the daemon itself.
    pub fn saw(&mut self, all: u32, of_jobs: u32, of_daemon: u32) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(all.saturating_sub(of_jobs + of_daemon));
    }

    /// More threads want to run than at the count before: one that came, or one that slept.
    pub fn rises(&self) -> bool {
        let mut counts = self.last.iter().rev();
        counts.next() > counts.next()
    }

    /// Runnable threads that stayed so.
    pub fn threads(&self) -> u32 {
        if self.last.len() < REMEMBERED { 0 } else { self.last.iter().copied().min().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wakes_for_a_moment_is_no_load() {
        let mut load = Load::default();
        for all in [3, 4, 3, 4, 3] {
            load.saw(all, 2, 1);
        }
        assert_eq!(load.threads(), 0);
        for _ in 0..3 {
            load.saw(5, 2, 1);
        }
        assert_eq!(load.threads(), 2);
        load.saw(3, 2, 1);
        assert_eq!(load.threads(), 0);
    }

    #[test]
    fn who_wants_to_run_besides_is_noticed_at_once() {
        let mut load = Load::default();
        let mut rises = |all, of_jobs| {
            load.saw(all, of_jobs, 1);
            load.rises()
        };
        assert!(rises(5, 2), "nothing is known of before");
        assert!(!rises(5, 2) && !rises(6, 3) && !rises(4, 2));
        assert!(rises(5, 2) && !rises(5, 2));
    }
}
