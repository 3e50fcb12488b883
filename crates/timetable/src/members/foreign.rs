//! Members of another user than the job.
//!
//! A program in a job may become another user's, by the set-user-ID bit or as a service does. The
//! owner of the job has no power over it: it is left alone, neither raised nor stopped, and gets
//! back what it had. An administrator has that power.

use super::Members;

impl Members {
    /// Notes whether a thread that is known belongs to another user than the job. `is_new` where it
    /// was read for the first time just now. True where that has changed: the thread is to be left
    /// alone from now on, or to stand as its job.
    pub fn note_owner(&mut self, tid: u32, is_foreign: bool, is_new: bool) -> bool {
        let Ok(at) = self.find(tid) else { return false };
        let thread = &mut self.threads[at];
        if std::mem::replace(&mut thread.is_foreign, is_foreign) == is_foreign {
            return false;
        }
        if is_foreign {
            // It may have what gangd gave to it, or to the thread that started it.
            self.left_alone.push(tid);
            self.became_foreign.extend((!is_new).then_some(tid));
        } else {
            self.pins_are_unknown = true;
            self.became_foreign.remove(&tid);
            // It stands as its job again before it was left alone.
            self.left_alone.retain(|&it| it != tid);
        }
        true
    }

    /// Whether some member belongs to another user than the job, and goes on where the job stands
    /// still. The kernel freezes a group as a whole, so that such a job is not frozen.
    pub fn has_foreign_that_run(&self) -> bool {
        let any = self.foreign_leaves || self.threads.iter().any(|thread| thread.is_foreign);
        any && !self.stops_foreign
    }

    /// All that were let go are out of the job's groups. True where the job can be frozen as a
    /// whole from now on.
    pub fn all_left(&mut self) -> bool {
        std::mem::take(&mut self.foreign_leaves) && !self.has_foreign_that_run()
    }

    /// Whether a thread, such as the first one of a process, belongs to another user than the job.
    pub fn is_foreign(&self, tid: u32) -> bool {
        self.find(tid).is_ok_and(|at| self.threads[at].is_foreign)
    }

    /// Threads of other users, of these, that may have been stopped as processes of the job's
    /// owner, and are to go on.
    pub fn became_foreign(&self, tids: &[u32]) -> Vec<u32> {
        let go_on = |tid: &u32| !self.stops_foreign && self.became_foreign.contains(tid);
        tids.iter().copied().filter(go_on).collect()
    }
}
