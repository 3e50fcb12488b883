//! Threads that left their job by themselves, and are lowered.
//!
//! Problem: a stray stays as a slot left it, and a timetable in force may raise it once more. Its
//! number may be given to another thread. When a thread started, which distinguishes the two, is in
//! a file whose reader waits while the process becomes another program.
//!
//! Approach: a thread of its own lowers strays ([`gang_conductor::strays`] finds them). It looks at
//! each again and again until no switcher follows a timetable that has the stray. Each time it sees
//! to it that the stray is the same thread, and of no job.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use gang_conductor::Stray;
use gang_engine::{bound::Bound, pins::Pins, singles, thread};
use gang_schedule::CpuSet;
use gang_timetable::{Action, record::Single};

use super::{
    detach::perform,
    waiting::{LONGEST, LOOK_EVERY},
};
use crate::{conduct::client_priority::ThreadPriority, daemon::Daemon};

impl Daemon {
    /// Lowers strays as they come. Returns when the conductor has ended.
    pub fn lower_strays(&self, strays: &Receiver<Stray<Bound>>) {
        let mut waiting: Vec<(Instant, Stray<Bound>)> = Vec::new();
        while let Ok(first) = strays.recv() {
            // A stray that spins may have the CPU of an ordinary thread.
            let mut priority = ThreadPriority::of(&self.client_priority, None);
            waiting.push((Instant::now(), first));
            while !waiting.is_empty() {
                waiting
                    .retain(|(since, stray)| self.lower_stray(stray) && since.elapsed() < LONGEST);
                priority.renew();
                match strays.recv_timeout(if waiting.is_empty() { NO_TIME } else { LOOK_EVERY }) {
                    Ok(next) => waiting.push((Instant::now(), next)),
                    Err(RecvTimeoutError::Timeout) => {}
                    // Its switchers have lowered all that they raised.
                    Err(RecvTimeoutError::Disconnected) => {
                        waiting.retain(|(_, stray)| self.lower_stray(stray));
                        return;
                    }
                }
            }
        }
    }

    /// Gives a stray what it had; false once nobody raises it any more.
    fn lower_stray(&self, stray: &Stray<Bound>) -> bool {
        let (job, tid) = (stray.job, stray.tid);
        let is_out = self.conductor.is_in_force(stray.gone_from);
        // Strays of a job that is over are released with it.
        let is_of_none = self
            .conductor
            .ask(move |state| state.core.jobs.contains_key(&job) && state.core.is_stray(tid));
        // Without a conductor nobody is of a job either.
        let single = singles::stray(&self.roots.proc, tid, stray.was_there_ticks);
        let single = single.filter(|_| is_of_none.unwrap_or(true));
        if let Some(single) = single {
            let pins = Pins::read(&self.files.store.pins(job.0)).ok().flatten();
            // CPUs that it was not given it has by its owner's choice, which may be of this moment.
            let were_given = |cpus: &CpuSet| pins.as_ref().is_none_or(|it| it.were_given(cpus));
            let has_pinned = thread::affinity(tid).is_ok_and(|now| were_given(&now));
            let is_due = |it: &&Bound| has_pinned || !matches!(it.action, Action::Affinity { .. });
            for action in stray.actions.iter().filter(is_due) {
                perform(std::slice::from_ref(action));
            }
            self.release_started(stray, single, pins.as_ref());
            if !is_out {
                return true;
            }
        }
        let _ = self.conductor.ask(move |state| state.stray_is_back(job, tid));
        false
    }
}

impl Daemon {
    /// The threads that a stray has started since it was last read have what it had then.
    fn release_started(&self, stray: &Stray<Bound>, single: Single, pins: Option<&Pins>) {
        let is_of_job = |tid| {
            let is_stray = self.conductor.ask(move |state| state.core.is_stray(tid));
            !is_stray.unwrap_or(true)
        };
        let (normal, everywhere) = (stray.normal, &stray.everywhere);
        let proc_root = &self.roots.proc;
        singles::release_started(proc_root, single, normal, everywhere, pins, is_of_job);
    }
}

const NO_TIME: Duration = Duration::ZERO;
