//! Threads that left their job by themselves, and are lowered.
//!
//! Problem: a stray stays as a slot left it, and a timetable in force may raise it once more. Its
//! number may be given to another thread. When a thread started, which distinguishes the two, is in
//! a file whose reader waits while the process becomes another program.
//!
//! Approach: a thread of its own lowers strays ([`gang_conductor::strays`] finds them). It looks at
//! each again and again until no switcher follows a timetable that has the stray. Each time it sees
//! to it that the stray is the same thread, and of no job.
//!
//! Properties: a round costs the conductor a question for [`STRAYS_AT_ONCE`] strays, and the daemon
//! the files of each stray. The thread is above the gangs within its allowance alone.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Instant,
};

use gang_conductor::Stray;
use gang_engine::{bound::Bound, pins::Pins, singles, thread};
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, record::Single};

use super::{
    detach::perform,
    waiting::{LONGEST, LOOK_EVERY},
};
use crate::{
    conduct::{client_priority::ThreadPriority, requests::Unavailable},
    daemon::Daemon,
};

/// Strays of which the conductor is asked at a time.
const STRAYS_AT_ONCE: usize = 256;

/// A stray that a timetable may have yet.
struct Waiting {
    stray: Stray<Bound>,
    since: Instant,
    /// The thread, since it was last looked at.
    single: Option<Single>,
    /// It has waited for long, and that is in the log.
    is_late: bool,
    /// Nobody raises it any more.
    is_back: bool,
}

impl Waiting {
    fn new(stray: Stray<Bound>) -> Waiting {
        let since = Instant::now();
        Waiting { stray, since, single: None, is_late: false, is_back: false }
    }

    /// The thread, unless it has ended.
    fn look(&mut self, proc_root: &Path) -> Option<Single> {
        let known = self.single.filter(|single| singles::is_there(single, proc_root));
        let Stray { tid, was_there_ticks, .. } = self.stray;
        self.single = known.or_else(|| singles::stray(proc_root, tid, was_there_ticks));
        self.single
    }

    /// Gives the thread back what it had.
    fn lower(&self, pins: Option<&Pins>) {
        // CPUs that it was not given it has by its owner's choice, which may be of this moment.
        let were_given = |cpus: &CpuSet| pins.is_none_or(|it| it.were_given(cpus));
        let has_pinned = thread::affinity(self.stray.tid).is_ok_and(|now| were_given(&now));
        let is_due = |it: &&Bound| has_pinned || !matches!(it.action, Action::Affinity { .. });
        for action in self.stray.actions.iter().filter(is_due) {
            perform(std::slice::from_ref(action));
        }
    }
}

impl Daemon {
    /// Lowers strays as they come. Returns when the conductor has ended.
    pub fn lower_strays(&self, strays: &Receiver<Stray<Bound>>) {
        let mut waiting: Vec<Waiting> = Vec::new();
        while let Ok(first) = strays.recv() {
            // A stray that spins may have the CPU of an ordinary thread.
            let mut priority = ThreadPriority::of(&self.client_priority, None);
            waiting.push(Waiting::new(first));
            while !waiting.is_empty() {
                waiting.extend(strays.try_iter().map(Waiting::new));
                self.lower_all(&mut waiting, &mut priority);
                if waiting.is_empty() {
                    break;
                }
                match strays.recv_timeout(LOOK_EVERY) {
                    Ok(next) => waiting.push(Waiting::new(next)),
                    Err(RecvTimeoutError::Timeout) => {}
                    // Its switchers have lowered all that they raised.
                    Err(RecvTimeoutError::Disconnected) => {
                        return self.lower_all(&mut waiting, &mut priority);
                    }
                }
            }
        }
    }

    /// Gives strays what they had; leaves those that somebody may raise yet.
    fn lower_all(&self, waiting: &mut Vec<Waiting>, priority: &mut ThreadPriority) {
        waiting.chunks_mut(STRAYS_AT_ONCE).for_each(|some| self.lower_some(some, priority));
        waiting.retain(|it| !it.is_back);
        let late = waiting.iter_mut().filter(|it| !it.is_late && it.since.elapsed() >= LONGEST);
        let late = late.map(|it| it.is_late = true).count();
        if late > 0 {
            let longest_s = LONGEST.as_secs();
            tracing::warn!(late, longest_s, "threads that left their job are in timetables yet");
        }
    }

    fn lower_some(&self, some: &mut [Waiting], priority: &mut ThreadPriority) {
        let asked: Vec<(JobId, u32)> = some.iter().map(|it| (it.stray.job, it.stray.tid)).collect();
        let strays = match self.conductor.ask(move |state| state.strays_among(&asked)) {
            Ok(strays) => Some(strays),
            Err(Unavailable::Busy) => return,
            // Without a conductor nobody is of a job.
            Err(Unavailable::Ended) => None,
        };
        let mut pins: BTreeMap<JobId, Option<Pins>> = BTreeMap::new();
        let mut of_jobs: BTreeMap<JobId, (CpuSet, Vec<_>)> = BTreeMap::new();
        for waiting in some.iter_mut() {
            priority.renew();
            let (job, tid) = (waiting.stray.job, waiting.stray.tid);
            let is_out = self.conductor.is_in_force(waiting.stray.gone_from);
            let is_stray = strays.as_ref().is_none_or(|strays| strays.contains(&(job, tid)));
            let single = if is_stray { waiting.look(&self.roots.proc) } else { None };
            waiting.is_back = is_out || single.is_none();
            let Some(single) = single else { continue };
            if let Err(error) =
                self.jobs.cgroups.leave_of_version_1(&waiting.stray.placement, &single)
            {
                tracing::debug!(%job, tid, %error, "a thread that left its job stays in a group");
            }
            let pins = pins
                .entry(job)
                .or_insert_with(|| Pins::read(&self.jobs.files.store.pins(job.0)).ok().flatten());
            waiting.lower(pins.as_ref());
            let Stray { everywhere, normal, .. } = &waiting.stray;
            let of_job = of_jobs.entry(job).or_insert_with(|| (everywhere.clone(), Vec::new()));
            of_job.1.push((single, *normal));
        }
        // The threads that they have started since they were last read have what they had then.
        let is_busy = Cell::new(false);
        for (job, (everywhere, singles)) in &of_jobs {
            priority.renew();
            let of_no_job = |tids: BTreeSet<u32>| {
                let all = tids.clone();
                match self.conductor.ask(move |state| state.core.of_no_job(tids)) {
                    Ok(of_none) => of_none,
                    Err(Unavailable::Ended) => all,
                    Err(Unavailable::Busy) => {
                        is_busy.set(true);
                        BTreeSet::new()
                    }
                }
            };
            let (proc_root, pins) = (&self.roots.proc, pins[job].as_ref());
            singles::release_started(proc_root, singles, everywhere, pins, of_no_job);
        }
        let mut back: BTreeMap<JobId, BTreeSet<u32>> = BTreeMap::new();
        for stray in some.iter().filter(|it| it.is_back).map(|it| &it.stray) {
            back.entry(stray.job).or_default().insert(stray.tid);
        }
        for (job, tids) in back {
            let answer = self.conductor.ask(move |state| state.strays_are_back(job, &tids));
            is_busy.set(is_busy.get() || answer == Err(Unavailable::Busy));
        }
        if is_busy.get() {
            // All of it is done again.
            some.iter_mut().for_each(|it| it.is_back = false);
        }
    }
}
