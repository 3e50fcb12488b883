//! The thread that reads on which CPU each thread of a gang was last: a thread is switched from
//! there.
//!
//! Problem: the kernel has the CPU in a file (`/proc/PID/stat`) that makes its reader wait while
//! the process becomes another program (execve(2)). Where the process waits for a CPU, beside
//! hundreds of threads that compute, the reader waits for seconds. The conductor must never wait so
//! long: without it no thread is switched, and the guardian releases all jobs.
//!
//! Approach: another thread reads. It is asked for some threads at a time, once it has answered the
//! question before. The next look takes the answer.
//!
//! Properties: asking and taking never wait. While the reader waits, its last answer holds. The
//! reader takes no more of the gangs' time than its allowance ([`super::client_priority`]), however
//! many threads there are.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use gang_linux::process;
use gang_schedule::JobId;

use crate::conduct::client_priority::{ClientPriority, ThreadPriority};

/// Threads of jobs, by number.
pub type Asked = Vec<(JobId, Vec<u32>)>;

/// The threads of them that are there, with the CPU that each was on last.
pub type Found = Vec<(JobId, Vec<(u32, u32)>)>;

/// The way to the reader, which ends with this once it has answered.
#[derive(Debug)]
pub struct CpuReader {
    asked: Sender<Asked>,
    found: Receiver<Found>,
    is_out: bool,
    tid: u32,
    client_priority: Arc<ClientPriority>,
}

impl CpuReader {
    /// Starts the reader; `realtime` lifts it above the gangs, whose slots would be over before it
    /// runs. Its allowance is its own: reading many threads must not keep clients waiting.
    pub fn start(proc_root: PathBuf, realtime: bool) -> std::io::Result<CpuReader> {
        let (asked, questions) = channel::<Asked>();
        let (answers, found) = channel();
        let (numbers, number) = channel();
        let client_priority = ClientPriority::new(realtime);
        let its_own = client_priority.clone();
        thread::Builder::new().name("cpu-reader".into()).spawn(move || {
            let _ = numbers.send(thread_number());
            let mut priority = ThreadPriority::of(&its_own, None);
            for question in questions {
                let cpu = |tid: u32| Some((tid, process::stat(&proc_root, tid).ok()?.cpu));
                let look = |(job, tids): (JobId, Vec<u32>)| {
                    priority.renew();
                    (job, tids.into_iter().filter_map(cpu).collect())
                };
                if answers.send(question.into_iter().map(look).collect()).is_err() {
                    break;
                }
                priority.renew();
            }
        })?;
        let tid = number.recv().map_err(std::io::Error::other)?;
        Ok(CpuReader { asked, found, is_out: false, tid, client_priority })
    }

    /// The share of one CPU that the reader lately took before the gangs.
    pub fn used(&self) -> f64 {
        self.client_priority.used()
    }

    /// Whether it wants a CPU: it may wait long for one, beyond its allowance.
    pub fn is_runnable(&self, proc_root: &Path) -> bool {
        self.is_out && process::status(proc_root, self.tid).is_ok_and(|it| it.is_runnable())
    }

    /// The CPUs found since the question, if the answer is there.
    pub fn take(&mut self) -> Found {
        let found = self.found.try_recv();
        self.is_out &= found.is_err();
        found.unwrap_or_default()
    }

    /// Asks, unless it is still looking.
    pub fn ask(&mut self, threads: Asked) {
        if !self.is_out && !threads.is_empty() {
            self.is_out = self.asked.send(threads).is_ok();
        }
    }
}

fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

#[cfg(test)]
mod tests {
    use gang_harness::wait_for;

    use super::*;

    #[test]
    fn it_is_asked_once_it_has_answered() {
        let mut cpu_reader = CpuReader::start("/proc".into(), false).unwrap();
        assert!(cpu_reader.take().is_empty(), "nobody asked");
        let me = thread_number();
        assert!(cpu_reader.tid != me && !cpu_reader.is_runnable(Path::new("/proc")));
        cpu_reader.ask(vec![(JobId(7), vec![me, u32::MAX])]);
        // The reader has not answered yet.
        cpu_reader.ask(vec![(JobId(8), vec![me])]);
        let found =
            wait_for("it answers", || Some(cpu_reader.take()).filter(|found| !found.is_empty()));
        let [(JobId(7), cpus)] = &found[..] else { panic!("{found:?}") };
        assert!(
            matches!(cpus[..], [(tid, _)] if tid == me),
            "who is not there is left out: {cpus:?}"
        );
        assert!(
            !cpu_reader.is_out && cpu_reader.take().is_empty(),
            "the second question was not asked"
        );
    }
}
