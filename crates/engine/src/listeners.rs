//! The processes of a job that hear of its slots by signals.
//!
//! SIGUSR1 pauses and SIGUSR2 continues, as LLNL's scheduler had it (L5). Both end a program that
//! does not expect them. So only a process that handles both gets them, whatever the job has asked
//! for. One that was just forked has the handlers of its parent until it executes another program:
//! it listens only once it has lived for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use gang_linux::{clock, process};
use gang_schedule::JobId;
use gang_timetable::{self as timetable, Action};

use crate::{
    bound::ProcessHandle,
    thread::{SLOT_BEGINS, SLOT_ENDS},
};

/// A process listens once it has had its handlers for so long. A fork takes less until it executes
/// another program, also where both wait for a slot.
const LISTENS_AFTER: Duration = Duration::from_millis(500);

/// A process that handles both signals.
#[derive(Debug)]
struct Listener {
    process: Arc<ProcessHandle>,
    /// When its handlers were first seen (CLOCK_MONOTONIC). The file that has its start can keep a
    /// reader waiting ([`process::stat`]).
    since_ns: u64,
    listens: bool,
}

/// Those of one job.
#[derive(Debug, Default)]
pub struct Listeners {
    processes: BTreeMap<u32, Listener>,
    /// Threads that are not the first of their process.
    others: BTreeSet<u32>,
}

impl Listeners {
    /// Looks who listens, of the threads of the job.
    pub fn refresh(&mut self, proc_root: &Path, threads: impl Iterator<Item = u32>) {
        self.refresh_at(clock::monotonic_ns(), proc_root, threads);
    }

    fn refresh_at(&mut self, now_ns: u64, proc_root: &Path, threads: impl Iterator<Item = u32>) {
        let threads: BTreeSet<u32> = threads.collect();
        self.others.retain(|tid| threads.contains(tid));
        self.processes.retain(|tid, of| threads.contains(tid) && of.process.is_alive());
        for &tid in threads.difference(&self.others.clone()) {
            match process::handles(proc_root, tid, &[SLOT_ENDS, SLOT_BEGINS]) {
                Ok(Some(true)) => match self.processes.get_mut(&tid) {
                    Some(of) => {
                        of.listens |= now_ns >= of.since_ns + LISTENS_AFTER.as_nanos() as u64
                    }
                    None => {
                        let of = |process| Listener { process, since_ns: now_ns, listens: false };
                        self.processes.extend(handle(proc_root, tid).map(|it| (tid, of(it))));
                    }
                },
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

    fn listening(&self) -> impl Iterator<Item = &Arc<ProcessHandle>> {
        self.processes.values().filter(|of| of.listens).map(|of| &of.process)
    }

    /// Those that listen.
    pub fn pids(&self) -> Vec<u32> {
        self.listening().map(|process| process.pid).collect()
    }

    /// A process that listens, or is going to.
    pub fn process(&self, pid: u32) -> Option<&Arc<ProcessHandle>> {
        self.processes.get(&pid).map(|of| &of.process)
    }

    /// Appends the actions that send them a signal.
    pub fn signal(&self, job: JobId, signal: timetable::Signal, out: &mut Vec<Action>) {
        out.extend(self.listening().map(|of| Action::Signal { job, pid: of.pid, signal }));
    }

    /// Appends the action that sends a signal to one of them.
    pub fn signal_one(
        &self,
        job: JobId,
        pid: u32,
        signal: timetable::Signal,
        out: &mut Vec<Action>,
    ) {
        let listens = self.processes.get(&pid).is_some_and(|of| of.listens);
        out.extend(listens.then_some(Action::Signal { job, pid, signal }));
    }

    /// A process has left the job.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    pub fn is_empty(&self) -> bool {
        self.listening().next().is_none()
    }
}

/// Its number may have been given to another process before it was opened.
fn handle(proc_root: &Path, pid: u32) -> Option<Arc<ProcessHandle>> {
    let process = ProcessHandle::open(pid).ok()?;
    let still = process::handles(proc_root, pid, &[SLOT_ENDS, SLOT_BEGINS]);
    matches!(still, Ok(Some(true))).then_some(process)
}

/// Continues the processes of a job that nobody would continue any more.
pub fn let_go(proc_root: &Path, threads: &[u32]) {
    for process in threads.iter().filter_map(|&tid| handle(proc_root, tid)) {
        let _ = process.signal(SLOT_BEGINS);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::*;

    /// A program that handles both signals, and has said so.
    fn with_handlers() -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "trap : USR1 USR2; echo ready; read line"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh is there");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        child
    }

    #[test]
    fn process_with_handlers_listens_after_a_while() {
        let mut child = with_handlers();
        let tids = [child.id(), std::process::id()];
        let after_ns = LISTENS_AFTER.as_nanos() as u64;
        let mut listeners = Listeners::default();
        let mut listens = |now_ns, tids: &[u32]| {
            listeners.refresh_at(now_ns, Path::new("/proc"), tids.iter().copied());
            !listeners.is_empty()
        };
        assert!(!listens(0, &tids));
        assert!(!listens(after_ns - 1, &tids));
        assert!(listens(after_ns, &tids));
        assert!(!listens(after_ns, &[]), "it has left the job");
        assert!(!listens(after_ns, &tids), "and comes anew");
        assert!(listens(2 * after_ns, &tids));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!listens(2 * after_ns, &tids));
    }
}
