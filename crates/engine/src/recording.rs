//! A kernel that makes no calls, and remembers what they would have done.
//!
//! Tests build it with the feature `recording`; no program does. Where Linux refuses a call, or does
//! something else than its words say, the model does too.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use gang_linux::sched::Attributes;
use rustix::{io::Errno, process::Signal, thread::CpuSet};

use crate::{
    InSlot, Standing,
    action::{Action, Kernel},
    backend::Backend,
    members::{Members, Thread, is_raised},
    page::Word,
};

/// A call that was asked for, in terms that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Attributes { tid: u32, attributes: Attributes },
    Affinity { tid: u32, cpus: Vec<u32> },
    Write { path: PathBuf, value: String },
    Signal { pid: u32, signal: Signal },
    Page { path: PathBuf, word: Word },
}

impl Call {
    /// The thread it is about.
    pub fn tid(&self) -> Option<u32> {
        match *self {
            Call::Attributes { tid, .. } | Call::Affinity { tid, .. } => Some(tid),
            Call::Write { .. } | Call::Signal { .. } | Call::Page { .. } => None,
        }
    }

    /// True for one that stops a job, or lets it go on.
    pub fn pauses(&self) -> bool {
        match self {
            Call::Write { path, .. } => path.ends_with("cgroup.freeze"),
            Call::Signal { signal, .. } => [Signal::STOP, Signal::CONT].contains(signal),
            Call::Attributes { .. } | Call::Affinity { .. } | Call::Page { .. } => false,
        }
    }
}

impl From<&Action> for Call {
    fn from(action: &Action) -> Call {
        match action {
            Action::Attributes { tid, attributes } => {
                Call::Attributes { tid: *tid, attributes: *attributes }
            }
            Action::Affinity { tid, cpus } => Call::Affinity { tid: *tid, cpus: numbers(cpus) },
            Action::Write { file, value } => {
                Call::Write { path: file.path.clone(), value: (*value).to_owned() }
            }
            Action::Signal { process, signal } => {
                Call::Signal { pid: process.pid, signal: *signal }
            }
            Action::Page { page, word } => Call::Page { path: page.path.clone(), word: *word },
        }
    }
}

fn numbers(cpus: &CpuSet) -> Vec<u32> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

/// What calls have left behind. What was never touched is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub attributes: BTreeMap<u32, Attributes>,
    pub affinity: BTreeMap<u32, Vec<u32>>,
    pub files: BTreeMap<PathBuf, String>,
    /// Processes that were stopped and not continued.
    pub stopped: BTreeSet<u32>,
    pub pages: BTreeMap<PathBuf, Word>,
    /// The last of the other signals that a process got.
    pub told: BTreeMap<u32, Signal>,
}

impl Model {
    /// The attributes that the threads of a job have before anything happens.
    pub fn begin(&mut self, threads: &[Thread]) {
        self.attributes.extend(threads.iter().map(|thread| (thread.tid, thread.original)));
    }

    pub fn perform(&mut self, call: &Call) -> io::Result<()> {
        match call {
            Call::Attributes { tid, attributes } => {
                // The nice value of a real-time thread cannot be set; it stays (sched(7)).
                let before = self.attributes.get(tid).filter(|_| attributes.policy.is_realtime());
                let nice = before.map_or(attributes.nice, |before| before.nice);
                self.attributes.insert(*tid, Attributes { nice, ..*attributes });
            }
            Call::Affinity { tid, cpus } if cpus.is_empty() => {
                return Err(io::Error::other(format!("no CPU for thread {tid}")));
            }
            Call::Affinity { tid, cpus } => {
                self.affinity.insert(*tid, cpus.clone());
            }
            Call::Write { path, value } => self.write(path, value)?,
            Call::Signal { pid, signal } if *signal == Signal::STOP => {
                self.stopped.insert(*pid);
            }
            Call::Signal { pid, signal } if *signal == Signal::CONT => {
                self.stopped.remove(pid);
            }
            Call::Signal { pid, signal } => {
                self.told.insert(*pid, *signal);
            }
            Call::Page { path, word } => {
                self.pages.insert(path.clone(), *word);
            }
        }
        Ok(())
    }

    /// A group that is idle has no weight to set, and one that becomes idle or ceases to be has
    /// forgotten its own (`sched_group_set_idle` of the kernel).
    fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        const WEIGHTS: [&str; 2] = ["cpu.weight", "cpu.shares"];
        if WEIGHTS.iter().any(|name| path.ends_with(name))
            && self.file(&path.with_file_name("cpu.idle")) == Some("1")
        {
            return Err(Errno::INVAL.into());
        }
        if path.ends_with("cpu.idle") && self.file(path) != Some(value) {
            for name in WEIGHTS {
                self.files.remove(&path.with_file_name(name));
            }
        }
        self.files.insert(path.into(), value.to_owned());
        Ok(())
    }

    /// What a control file holds.
    pub fn file(&self, path: &Path) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Says in what a job does not stand as it should; `in_slot` is what it has where it is raised.
    pub fn check(
        &self,
        backend: Backend,
        job: &Members,
        standing: Standing,
        in_slot: InSlot,
    ) -> Result<(), String> {
        for thread in job.threads() {
            let now = self.attributes.get(&thread.tid).unwrap_or(&thread.original);
            if !stands(backend, thread, now, standing, in_slot, job.controls.in_idle_group) {
                return Err(format!(
                    "{backend:?}: not {standing:?} ({in_slot:?}): {now:?} of {thread:?}"
                ));
            }
        }
        if backend == Backend::Weight {
            self.check_weights(job, standing)?;
        }
        let paused = match standing {
            Standing::Paused => true,
            Standing::Filling => !backend.can_fill(),
            Standing::Raised | Standing::Released => false,
        };
        self.check_paused(job, paused)
    }

    fn check_weights(&self, job: &Members, standing: Standing) -> Result<(), String> {
        let (Some(idle), Some(weight)) = (&job.controls.cpu_idle, &job.controls.cpu_weight) else {
            return Ok(());
        };
        let (idle, weight_now) = (self.file(&idle.path), self.file(&weight.path));
        let (most, usual) =
            if weight.path.ends_with("cpu.shares") { ("262144", "1024") } else { ("10000", "100") };
        let right = match standing {
            Standing::Raised => idle == Some("0") && weight_now == Some(most),
            Standing::Filling => idle == Some("1"),
            Standing::Paused => (idle == Some("1")) == job.controls.freeze.is_none(),
            Standing::Released => {
                idle.is_none_or(|idle| idle == "0") && weight_now.is_none_or(|now| now == usual)
            }
        };
        if right {
            Ok(())
        } else {
            Err(format!("idle {idle:?}, weight {weight_now:?}: {standing:?}"))
        }
    }

    fn check_paused(&self, job: &Members, paused: bool) -> Result<(), String> {
        if let Some(file) = &job.controls.freeze {
            let frozen = self.file(&file.path);
            if (frozen == Some("1")) != paused {
                return Err(format!("frozen {frozen:?}, to be paused: {paused}"));
            }
        }
        match job.tree().iter().find(|p| self.stopped.contains(&p.pid) != paused) {
            None => Ok(()),
            Some(process) => Err(format!("to be paused: {paused}, and {} is not", process.pid)),
        }
    }
}

/// Whether one thread is as its job's standing asks.
fn stands(
    backend: Backend,
    thread: &Thread,
    now: &Attributes,
    standing: Standing,
    in_slot: InSlot,
    in_idle_group: bool,
) -> bool {
    let untouched = *now == thread.original;
    if thread.is_exempt() || backend != Backend::Rt {
        return untouched;
    }
    match standing {
        Standing::Raised => match in_slot {
            InSlot::Wide => *now == Attributes::other(-20),
            // Its nice value counts for nothing, and may still be that of a wide gang.
            InSlot::Exclusive => is_raised(now),
            InSlot::Alone => untouched,
        },
        Standing::Filling | Standing::Paused if in_idle_group => {
            *now == Attributes::batch(thread.original.nice)
        }
        Standing::Filling | Standing::Paused => *now == Attributes::idle(thread.original.nice),
        Standing::Released => untouched,
    }
}

type Refusal = Box<dyn Fn(&Call) -> Option<Errno> + Send>;

#[derive(Default)]
struct Book {
    model: Model,
    calls: Vec<Call>,
    refusal: Option<Refusal>,
}

/// The kernel of the tests.
#[derive(Default)]
pub struct Recording(Mutex<Book>);

impl Recording {
    /// One that finds things as a model says.
    pub fn from_model(model: Model) -> Recording {
        Recording(Mutex::new(Book { model, ..Book::default() }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the calls so far have left behind.
    pub fn model(&self) -> Model {
        self.book().model.clone()
    }

    /// Looks at the model without copying it.
    pub fn with_model<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.book().model)
    }

    /// The calls since this was last asked, those that were refused too.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.book().calls)
    }

    /// From now on refuses the calls for which a function gives an error; they change nothing.
    pub fn refuse(&self, refusal: impl Fn(&Call) -> Option<Errno> + Send + 'static) {
        self.book().refusal = Some(Box::new(refusal));
    }
}

impl Kernel for Recording {
    fn perform(&self, action: &Action) -> io::Result<()> {
        let call = Call::from(action);
        let mut book = self.book();
        let refused = book.refusal.as_ref().and_then(|refusal| refusal(&call));
        let result = match refused {
            Some(errno) => Err(errno.into()),
            None => book.model.perform(&call),
        };
        book.calls.push(call);
        result
    }
}
