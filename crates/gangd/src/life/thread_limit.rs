//! Jobs of more threads than are switched.
//!
//! Problem: such a job has no slots. But a thread that it starts while it is lowered may have what
//! its parent had in the last slot, and no timetable has all of its threads. These would run beside
//! ordinary threads, or before them: the threads of an oversubscribed gang have the highest weight.
//!
//! Approach: as long as there is such a job, the main thread looks at all of its threads now and
//! then, and lowers each that is not lowered. If the job has shrunk meanwhile, this costs it one
//! slot.

use std::path::Path;

use gang_conductor::{Eligibility, Job};
use gang_engine::thread;
use gang_linux::{cgroup::Group, error::unless_gone, process};
use gang_timetable::{
    Attributes, InSlot, OVERSUBSCRIBED, before_gangd, is_of_oversubscribed_slot, is_raised,
    lowered, record::Placement,
};

/// A job that is over the limit, with what lowering it needs.
pub struct OverLimit {
    group: Group,
    owner_uid: u32,
    normal: Attributes,
    in_idle_group: bool,
}

impl OverLimit {
    /// Absent for a job that has slots, and for one without a cgroup: its processes are not raised;
    /// and for one that is weighed as a whole.
    pub fn of(job: &Job, machine: u32) -> Option<OverLimit> {
        let home = job.home.as_ref()?;
        let Placement::Cgroup { group, .. } = &home.placement else { return None };
        let is_weighed = job.in_slot == InSlot::Weighed;
        let is_over = job.eligibility(machine) == Eligibility::TooManyThreads && !is_weighed;
        is_over.then(|| OverLimit {
            group: Group::at(group),
            owner_uid: job.owner_uid,
            normal: home.normal,
            in_idle_group: home.members.controls.in_idle_group,
        })
    }

    /// Lowers every thread that does not stand as the job does. Threads that are real-time by their
    /// own choice stay so, and those of other users have nothing but what gangd gave them taken.
    pub fn lower(&self, proc_root: &Path) {
        let is_foreign = |tid| {
            let owner = process::owner(proc_root, tid);
            owner.is_ok_and(|owner| owner.is_foreign_to(self.owner_uid))
        };
        for tid in unless_gone(self.group.threads()).unwrap_or_default() {
            // One that ended meanwhile needs nothing.
            let Ok(now) = thread::attributes(tid) else { continue };
            let is_oversubscribed = is_of_oversubscribed_slot(&now);
            let original = before_gangd(
                if is_oversubscribed { OVERSUBSCRIBED } else { now },
                self.normal,
                true,
            );
            let wanted = lowered(&original, InSlot::Oversubscribed, self.in_idle_group);
            let is_given = is_raised(&now) || is_oversubscribed;
            if now == wanted || original.policy.is_realtime() || (!is_given && is_foreign(tid)) {
                continue;
            }
            let _ = thread::set_attributes(tid, &wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc::channel};

    use gang_harness::skipped;
    use gang_timetable::SchedPolicy;

    use super::*;

    #[test]
    fn needs_root_threads_over_the_limit_are_lowered() {
        let raised = Attributes::fifo(gang_timetable::priority::GANG);
        let (began, tids) = channel();
        let threads = [(); 4].map(|()| {
            let began = began.clone();
            std::thread::spawn(move || {
                began.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                std::thread::park();
            })
        });
        let tids: Vec<u32> = tids.iter().take(4).collect();
        let normal = thread::attributes(tids[0]).unwrap();
        // As a gang has it in its slot, as an oversubscribed one has it, and what was started in
        // either.
        let chosen = Attributes { nice: -19, ..OVERSUBSCRIBED };
        let had = [raised, OVERSUBSCRIBED, Attributes::other(0), chosen];
        let set: Vec<_> =
            tids.iter().zip(had).map(|(&tid, had)| thread::set_attributes(tid, &had)).collect();
        if set.iter().any(Result::is_err) {
            skipped("needs root");
        } else {
            let group = tempfile::tempdir().unwrap();
            let lines: String = tids.iter().map(|tid| format!("{tid}\n")).collect();
            fs::write(group.path().join("cgroup.threads"), lines).unwrap();
            let group = Group::at(group.path());
            let proc_root = Path::new("/proc");
            let of = |owner_uid| {
                let group = group.clone();
                OverLimit { group, owner_uid, normal, in_idle_group: true }
            };
            let now = |at: usize| thread::attributes(tids[at]).unwrap();
            of(65_534).lower(proc_root);
            assert_eq!(now(2), had[2], "another user's, which has nothing of gangd");
            of(0).lower(proc_root);
            for at in 0..tids.len() {
                assert_eq!((now(at).policy, now(at).nice), (SchedPolicy::Batch, normal.nice));
            }
        }
        for thread in threads {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}
