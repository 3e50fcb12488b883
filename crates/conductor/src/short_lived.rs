//! Gangs whose threads live too short to be switched one by one.
//!
//! Problem: a thread that a gang starts in its slot is an ordinary one in a group that is idle as a
//! whole, until a timetable has it. Neither real-time priority nor a nice value below 0 may be
//! inherited. A process that lives for 10 to 30 ms is over by then, so that a build beside a
//! spinning gang was slower as a gang than as an ordinary program.
//!
//! Approach: such a gang is weighed as a whole. Its processes move to a group of the cpu controller
//! for themselves. In its slots this group has the highest weight, and out of them it is idle. Its
//! threads keep the attributes that their owners gave them, and what they start is in the group
//! from its beginning on. The group lies beside that of all gangs: one below a group that is idle
//! as a whole would outweigh nobody outside. If the group of all gangs had the weight instead,
//! gangs out of their slots would have it, too, and take CPUs from programs outside.
//!
//! The rule: threads of a gang are looked at ten times a second. A thread has ended young if it was
//! seen at two looks at most: within 0.3 s, in which a process of 30 ms has its time beside two
//! other gangs. At a look, many have ended young if they are two or more, and as many at least as
//! the threads that stay longer and want to run. A gang that computes on threads of its own, and
//! starts a helper now and then, has more of these. One that waits for its compilers, with a thread
//! for each, has none. Programs start others as they begin: shells, `mpirun`. So a gang counts as
//! short-lived only after three such looks of five in succession, and until fifty looks, five
//! seconds, had none. A move takes the kernel some 10 ms, and each process 0.02 ms more.
//!
//! Properties: a gang is in one group or the other, or on its way. On its way it is weighed by
//! neither, and its threads are ordinary ones. Gangs that nobody competes with do not move.

use gang_schedule::{JobId, Policy};
use gang_timetable::{Backend, InSlot, Turnover, record::Placement};

use crate::{Conductor, Job};

/// Whether the threads of a job live too short to be switched one by one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShortLived {
    /// The last looks, the latest one in the lowest bit: at which many threads had ended young.
    lately: u32,
    /// Looks since the last one of these.
    quiet: u32,
    is_so: bool,
}

impl ShortLived {
    /// Threads that have ended young, at least.
    const MANY: u32 = 2;
    /// So many of so many looks in succession.
    const BECOMES: u32 = 3;
    const OF: u32 = 5;
    const ENDS: u32 = 50;

    /// A job that was so under an earlier daemon.
    fn as_before() -> ShortLived {
        ShortLived { is_so: true, ..ShortLived::default() }
    }

    /// Takes note of a look, at which so many threads wanted to run.
    pub fn saw(&mut self, turnover: Turnover, runnable: u32) {
        let Turnover { ended_young, staying } = turnover;
        let many = ended_young >= staying.min(runnable).max(ShortLived::MANY);
        self.lately = ((self.lately << 1) | u32::from(many)) & ((1 << ShortLived::OF) - 1);
        self.quiet = if many { 0 } else { self.quiet.saturating_add(1) };
        self.is_so |= self.lately.count_ones() >= ShortLived::BECOMES;
        self.is_so &= self.quiet < ShortLived::ENDS;
    }

    pub fn is_so(&self) -> bool {
        self.is_so
    }
}

/// How a gang is scheduled whose threads are short-lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortLivedGang {
    /// As a whole, by its own group.
    Weighed,
    /// One by one, since it cannot have a group of its own: it has less than its share.
    Unweighed,
}

impl Job {
    /// A group weighs it alone. With [`Backend::Rt`] only a gang has one that was moved there.
    pub(crate) fn has_own_group(&self) -> bool {
        self.home.as_ref().is_some_and(|home| home.members.controls.weigh())
    }
}

impl Conductor {
    /// The gang is not switched thread by thread: it has a group of its own, or is on its way to
    /// one or from one.
    pub(crate) fn is_weighed(&self, job: &Job) -> bool {
        self.backend == Backend::Rt && (job.regroup.is_some() || job.has_own_group())
    }

    /// Whether the threads of a gang are switched one by one: those that came need a timetable that
    /// has them.
    pub fn is_switched_by_thread(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_none_or(|job| !self.is_weighed(job))
    }

    /// How a gang is scheduled whose threads are short-lived; absent for any other job, and where
    /// the backend switches whole jobs anyway.
    pub fn short_lived_gang(&self, job: &Job) -> Option<ShortLivedGang> {
        if self.backend != Backend::Rt || job.spec.policy != Policy::Gang {
            return None;
        }
        if job.has_own_group() {
            return Some(ShortLivedGang::Weighed);
        }
        let is_stuck = !self.can_have_own_group(job) || job.regroup_failed_ns.is_some();
        (job.short_lived.is_so() && is_stuck).then_some(ShortLivedGang::Unweighed)
    }

    /// Whether there can be a group of the cpu controller for the job, beside that of all gangs. A
    /// job that is kept where it came from stays there, and in version 2 one that adopted a group.
    pub(crate) fn can_have_own_group(&self, job: &Job) -> bool {
        let placement = job.home.as_ref().map(|home| &home.placement);
        let Some(Placement::Cgroup { cpu_group, cpu_group_is_shared, adopted, .. }) = placement
        else {
            return false;
        };
        let is_free = *cpu_group_is_shared && (cpu_group.is_some() || !adopted);
        self.backend == Backend::Rt && self.has_common_group && is_free
    }

    /// A job that lived in a group of its own under an earlier daemon.
    pub(crate) fn restore_short_lived(&mut self, id: JobId) {
        let is_rt = self.backend == Backend::Rt;
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| is_rt && job.has_own_group()) {
            job.short_lived = ShortLived::as_before();
            job.in_slot = InSlot::Weighed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saw(job: &mut ShortLived, looks: &[(u32, u32)]) -> bool {
        for &(ended_young, staying) in looks {
            job.saw(Turnover { ended_young, staying }, staying);
        }
        job.is_so()
    }

    #[test]
    fn threads_that_wait_for_others_do_not_count() {
        let looks = |runnable| {
            let mut job = ShortLived::default();
            (0..5).for_each(|_| job.saw(Turnover { ended_young: 2, staying: 3 }, runnable));
            job.is_so()
        };
        assert!(looks(2) && looks(0), "one that waits for each of two compilers, and a first one");
        assert!(!looks(3), "those that stay compute");
    }

    #[test]
    fn gang_is_short_lived_after_three_looks_of_five() {
        let mut job = ShortLived::default();
        assert!(!saw(&mut job, &[(6, 1), (0, 7), (5, 2)]), "two looks");
        assert!(!saw(&mut job, &[(0, 3), (0, 3), (4, 1)]), "the first one is too long ago");
        assert!(saw(&mut job, &[(2, 2)]));
    }

    #[test]
    fn few_threads_that_end_young_are_no_reason() {
        let mut job = ShortLived::default();
        assert!(!saw(&mut job, &[(1, 0); 20]), "a helper at a time");
        assert!(!saw(&mut job, &[(7, 8); 20]), "most threads stay");
    }

    #[test]
    fn gang_is_short_lived_until_it_was_quiet_for_long() {
        let mut job = ShortLived::default();
        assert!(saw(&mut job, &[(3, 1); 3]));
        assert!(saw(&mut job, &[(0, 2); 49]));
        assert!(saw(&mut job, &[(2, 1)]));
        assert!(saw(&mut job, &[(1, 1); 49]) && !saw(&mut job, &[(1, 1)]));
        assert!(saw(&mut ShortLived::as_before(), &[(0, 2); 49]), "as under an earlier daemon");
    }
}
