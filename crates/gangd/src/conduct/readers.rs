//! The threads that read for the conductor what it must not wait for.
//!
//! Problem: the kernel has the CPU on which a thread was last, and when the thread started, in a
//! file (`/proc/PID/stat`) that makes its reader wait while the process becomes another program
//! (execve(2)). Where the process waits for a CPU, beside hundreds of threads that compute, the
//! reader waits for seconds. The conductor must never wait so long: without it no thread is
//! switched, and the guardian releases all jobs.
//!
//! Approach: other threads read. One reads on which CPU the threads of gangs were last, since they
//! are switched from there; one looks at single threads and at what these have started. Each is
//! asked for some threads at a time, once it has answered the question about them before. The next
//! look takes the answer.
//!
//! Properties: asking and taking never wait. While a reader waits, its last answer holds. A reader
//! takes no more of the gangs' time than its allowance ([`super::client_priority`]), however many
//! threads there are.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use gang_engine::singles;
use gang_linux::process;
use gang_schedule::JobId;

use crate::conduct::client_priority::{ClientPriority, ThreadPriority};

/// Of threads of jobs, by number, the CPU that each was on last; none of those that have ended.
pub type CpuReader = Reader<Vec<(JobId, Vec<u32>)>, Vec<(JobId, Vec<(u32, u32)>)>>;

/// Of a job of single threads, what there is to see.
pub type SingleReader = Reader<(JobId, singles::Look), (JobId, singles::Seen)>;

/// The way to a reader, which ends with this once it has answered.
#[derive(Debug)]
pub struct Reader<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
    /// Questions that are not answered yet.
    open: usize,
    tid: u32,
    client_priority: Arc<ClientPriority>,
}

impl CpuReader {
    pub fn of_cpus(proc_root: PathBuf, realtime: bool) -> io::Result<CpuReader> {
        Reader::start("cpu-reader", realtime, move |asked: Vec<(JobId, Vec<u32>)>, priority| {
            let cpu = |tid: u32| Some((tid, process::stat(&proc_root, tid).ok()?.cpu));
            let look = |(job, tids): (JobId, Vec<u32>)| {
                priority.renew();
                (job, tids.into_iter().filter_map(cpu).collect())
            };
            asked.into_iter().map(look).collect()
        })
    }
}

impl SingleReader {
    pub fn of_singles(proc_root: PathBuf, realtime: bool) -> io::Result<SingleReader> {
        Reader::start("single-reader", realtime, move |(job, look): (JobId, singles::Look), _| {
            (job, look.take(&proc_root))
        })
    }
}

impl<Q: Send + 'static, A: Send + 'static> Reader<Q, A> {
    /// Starts a reader; `realtime` puts it above the gangs, whose slots would be over before it
    /// runs. Its allowance is its own: reading many threads must not keep clients waiting.
    fn start(
        name: &str,
        realtime: bool,
        mut answer: impl FnMut(Q, &mut ThreadPriority) -> A + Send + 'static,
    ) -> io::Result<Reader<Q, A>> {
        let (questions, asked) = channel();
        let (found, answers) = channel();
        let (numbers, number) = channel();
        let client_priority = ClientPriority::new(realtime);
        let its_own = client_priority.clone();
        thread::Builder::new().name(name.into()).spawn(move || {
            let _ = numbers.send(thread_number());
            let mut priority = ThreadPriority::of(&its_own, None);
            for question in asked {
                priority.renew();
                if found.send(answer(question, &mut priority)).is_err() {
                    break;
                }
                priority.renew();
            }
        })?;
        let tid = number.recv().map_err(io::Error::other)?;
        Ok(Reader { questions, answers, open: 0, tid, client_priority })
    }

    /// The share of one CPU that the reader lately took before the gangs.
    pub fn used(&self) -> f64 {
        self.client_priority.used()
    }

    /// Whether it wants a CPU: it may wait long for one, beyond its allowance.
    pub fn is_runnable(&self, proc_root: &Path) -> bool {
        !self.is_idle() && process::status(proc_root, self.tid).is_ok_and(|it| it.is_runnable())
    }

    /// It has answered all questions.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// The next answer, if it is there.
    pub fn take(&mut self) -> Option<A> {
        let answer = self.answers.try_recv().ok()?;
        self.open -= 1;
        Some(answer)
    }

    pub fn ask(&mut self, question: Q) {
        self.open += usize::from(self.questions.send(question).is_ok());
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
    fn asking_and_taking_do_not_wait() {
        let mut cpu_reader = CpuReader::of_cpus("/proc".into(), false).unwrap();
        assert!(cpu_reader.is_idle() && cpu_reader.take().is_none(), "nobody asked");
        let me = thread_number();
        assert!(cpu_reader.tid != me && !cpu_reader.is_runnable(Path::new("/proc")));
        cpu_reader.ask(vec![(JobId(7), vec![me, u32::MAX])]);
        assert!(!cpu_reader.is_idle());
        let found = wait_for("it answers", || cpu_reader.take());
        let [(JobId(7), cpus)] = &found[..] else { panic!("{found:?}") };
        assert!(
            matches!(cpus[..], [(tid, _)] if tid == me),
            "who is not there is left out: {cpus:?}"
        );
        assert!(cpu_reader.is_idle() && cpu_reader.take().is_none());
    }
}
