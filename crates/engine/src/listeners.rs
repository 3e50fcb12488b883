//! The processes of a job that hear of its slots by signals.
//!
//! SIGUSR1 pauses and SIGUSR2 continues, as LLNL's scheduler had it (L5). Both end a program that does
//! not expect them. So only a process that handles both gets them, whatever the job has asked for. One that was just
//! forked has the handlers of its parent until it executes another program: it listens only once it has lived for a
//! while.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use gang_linux::{clock, process};
use rustix::process::Signal;

use crate::action::{Action, ProcessHandle};

/// Before a job is stopped.
pub const PAUSE: Signal = Signal::USR1;
/// After it was started.
pub const CONTINUE: Signal = Signal::USR2;

/// Ticks that a process lives before it listens: longer than from a fork to what is executed then, also where both
/// have to wait for a slot.
const SETTLED_TICKS: u64 = 50;

/// Those of one job.
#[derive(Debug, Default)]
pub struct Listeners {
    processes: BTreeMap<u32, Arc<ProcessHandle>>,
    /// Threads that are not the first of their process.
    others: BTreeSet<u32>,
}

impl Listeners {
    /// Looks who listens, of the threads of the job.
    pub fn refresh(&mut self, proc_root: &Path, threads: impl Iterator<Item = u32>) {
        let threads: BTreeSet<u32> = threads.collect();
        self.others.retain(|tid| threads.contains(tid));
        self.processes.retain(|tid, process| threads.contains(tid) && process.is_alive());
        for &tid in threads.difference(&self.others.clone()) {
            match process::handles(proc_root, tid, &[PAUSE, CONTINUE]) {
                Ok(Some(true)) if self.processes.contains_key(&tid) => {}
                Ok(Some(true)) if is_settled(proc_root, tid) => {
                    self.processes.extend(listener(proc_root, tid).map(|process| (tid, process)));
                }
                Ok(Some(true)) => {}
                Ok(None) => {
                    self.others.insert(tid);
                }
                // It has given its handlers up, or ended.
                Ok(Some(false)) | Err(_) => {
                    self.processes.remove(&tid);
                }
            }
        }
    }

    /// Appends the calls that tell them.
    pub fn tell(&self, signal: Signal, out: &mut Vec<Action>) {
        let tell =
            |process: &Arc<ProcessHandle>| Action::Signal { process: process.clone(), signal };
        out.extend(self.processes.values().map(tell));
    }

    /// A process leaves the job: it hears the last of it.
    pub fn dismiss(&mut self, pid: u32, out: &mut Vec<Action>) {
        let process = self.processes.remove(&pid);
        out.extend(process.map(|process| Action::Signal { process, signal: CONTINUE }));
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Takes processes as they are told instead of asking the kernel.
    #[cfg(feature = "recording")]
    pub fn of(processes: impl IntoIterator<Item = Arc<ProcessHandle>>) -> Listeners {
        let processes = processes.into_iter().map(|process| (process.pid, process)).collect();
        Listeners { processes, others: BTreeSet::new() }
    }
}

fn is_settled(proc_root: &Path, pid: u32) -> bool {
    let is_old = |stat: process::Stat| stat.start_ticks + SETTLED_TICKS <= clock::boot_ticks();
    process::stat(proc_root, pid).is_ok_and(is_old)
}

/// Its number may have been given to another process before it was opened.
fn listener(proc_root: &Path, pid: u32) -> Option<Arc<ProcessHandle>> {
    let process = ProcessHandle::open(pid).ok()?;
    let still = process::handles(proc_root, pid, &[PAUSE, CONTINUE]);
    matches!(still, Ok(Some(true))).then_some(process)
}

/// Continues the processes of a job that nobody would continue any more.
pub fn let_go(proc_root: &Path, threads: &[u32]) {
    for process in threads.iter().filter_map(|&tid| listener(proc_root, tid)) {
        let _ = process.signal(CONTINUE);
    }
}
