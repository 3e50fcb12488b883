//! Time out of slot, accounted to the jobs of Slurm whose steps are gangs (`[slurm]
//! account_time`).
//!
//! Problem: Slurm's accounts and limits know wall-clock time alone. But no gang may feel a Slurm
//! that is slow, or does not answer.
//!
//! Approach: a thread of its own reads every few seconds what gangs of Slurm have waited, and tells
//! Slurm. [`account`] decides, without I/O; [`job`] reads what Slurm says; [`commands`] asks it. A
//! thread that ends a job hands the job over and goes on.
//!
//! Properties: only jobs that root has named (`SetSlurmJob`) are accounted for. One host of a job
//! does so, its first one.

mod account;
mod commands;
mod job;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_linux::clock;
use gang_schedule::JobId;

pub use self::job::SlurmJob;
use self::{
    account::{Account, Gang, Outcome, SECOND},
    commands::{NoAnswer, Slurm},
};
use crate::{daemon::Daemon, history::Ended};

/// How often gangs of Slurm are looked at.
const ROUND: Duration = Duration::from_secs(5);

/// Jobs that have ended, and wait to be accounted for.
const WAITING_MAX: usize = 10_000;

/// The wait after Slurm did not answer; each further one is twice as long, up to a minute.
const SILENT_NS: u64 = 10 * SECOND;
const SILENT_MAX_NS: u64 = 60 * SECOND;

/// A gang of a job of Slurm that has ended.
type Step = (SlurmJob, Gang);

/// Where jobs that end are handed over.
pub struct Accounts {
    slurm: Arc<Slurm>,
    /// Absent once it is closed.
    thread: Mutex<Option<(SyncSender<Step>, JoinHandle<()>)>>,
}

impl Accounts {
    /// Starts the thread that accounts for jobs.
    ///
    /// # Errors
    /// The kernel has no thread for it.
    pub fn start(daemon: &Arc<Daemon>) -> std::io::Result<Accounts> {
        let slurm = Arc::new(Slurm::new());
        let (sender, ended) = sync_channel(WAITING_MAX);
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let configured = daemon.settings().cluster.as_ref().map(|cluster| cluster.host.clone());
        let short = node.split('.').next().unwrap_or_default().to_owned();
        let accountant = Accountant {
            daemon: Arc::downgrade(daemon),
            slurm: slurm.clone(),
            own: configured.map_or_else(|| vec![node, short], |name| vec![name]),
            accounts: BTreeMap::new(),
            silence: Silence::default(),
            is_unfiled_logged: false,
        };
        let thread = std::thread::Builder::new().name("slurm".into());
        let thread = thread.spawn(move || accountant.run(&ended))?;
        Ok(Accounts { slurm, thread: Mutex::new(Some((sender, thread))) })
    }

    /// Hands over a job that has ended; never waits.
    pub fn add(&self, ended: &Ended) {
        let Some(slurm_job) = ended.slurm_job.as_deref().and_then(SlurmJob::parse) else { return };
        let gang = Gang { job: JobId(ended.job), out_of_slot_ns: ended.out_of_slot_ns };
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken =
            thread.as_ref().is_some_and(|(to, _)| to.try_send((slurm_job, gang)).is_ok());
        if !is_taken {
            tracing::debug!(%slurm_job, "a step is not accounted for");
        }
    }

    /// Gives jobs that go on what they are owed, as far as Slurm answers at once, and ends the
    /// thread.
    pub fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.slurm.is_closing.store(true, Ordering::Relaxed);
        if let Some((sender, thread)) = thread {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Slurm does not answer: until when nobody asks, and how long the wait was.
#[derive(Default)]
struct Silence {
    until_ns: u64,
    wait_ns: u64,
}

impl Silence {
    /// Says so once; returns when to ask again.
    fn begins(&mut self, now_ns: u64, reason: &str) -> u64 {
        if self.wait_ns == 0 {
            tracing::warn!(reason, "Slurm does not hear of time out of slot; it is asked again");
        }
        self.wait_ns = (self.wait_ns * 2).clamp(SILENT_NS, SILENT_MAX_NS);
        self.until_ns = now_ns + self.wait_ns;
        self.until_ns
    }

    fn ends(&mut self) {
        if std::mem::take(&mut self.wait_ns) > 0 {
            tracing::info!("Slurm hears of time out of slot again");
        }
    }
}

/// The thread's own knowledge.
struct Accountant {
    daemon: Weak<Daemon>,
    slurm: Arc<Slurm>,
    /// The names by which Slurm may know this host.
    own: Vec<String>,
    accounts: BTreeMap<SlurmJob, Account>,
    silence: Silence,
    /// The log says already that accounts cannot be written.
    is_unfiled_logged: bool,
}

impl Accountant {
    fn run(mut self, ended: &Receiver<Step>) {
        loop {
            match ended.recv_timeout(ROUND) {
                Ok(ended) => self.look(Some(ended)),
                Err(RecvTimeoutError::Timeout) => self.look(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now_ns = clock::monotonic_ns();
            let due = self.accounts.iter().filter(|(_, account)| account.is_due(now_ns));
            let due: Vec<SlurmJob> = due.map(|(&job, _)| job).collect();
            for job in due {
                if clock::monotonic_ns() < self.silence.until_ns {
                    break;
                }
                self.turn(job, false);
            }
        }
        // A later daemon counts from 0.
        let all: Vec<SlurmJob> = self.accounts.keys().copied().collect();
        let _ = all.into_iter().all(|job| self.turn(job, true));
    }

    /// Takes note of the gangs that there are, and of one that has just ended.
    fn look(&mut self, ended: Option<Step>) {
        let Some(daemon) = self.daemon.upgrade() else { return };
        let gangs = daemon.conductor.ask(|state| {
            let of_slurm = |job: &gang_conductor::Job| {
                let slurm_job = SlurmJob::parse(job.slurm_job.as_deref()?)?;
                Some((slurm_job, Gang { job: job.id, out_of_slot_ns: job.out_of_slot_ns }))
            };
            state.core.jobs().values().filter_map(of_slurm).collect::<Vec<_>>()
        });
        let Ok(gangs) = gangs else { return };
        let mut by_job: BTreeMap<SlurmJob, Vec<Gang>> = BTreeMap::new();
        for (slurm_job, gang) in gangs {
            by_job.entry(slurm_job).or_default().push(gang);
        }
        for &slurm_job in by_job.keys().chain(ended.iter().map(|(slurm_job, _)| slurm_job)) {
            self.accounts.entry(slurm_job).or_default();
        }
        let now_ns = clock::monotonic_ns();
        for (slurm_job, account) in &mut self.accounts {
            let running = by_job.get(slurm_job).map_or(&[][..], Vec::as_slice);
            let ended = ended.filter(|(of, _)| of == slurm_job).map(|(_, gang)| gang);
            account.saw(now_ns, running, ended);
        }
    }

    /// Asks Slurm for a job, and tells it what follows; false where Slurm does not answer.
    fn turn(&mut self, job: SlurmJob, is_last: bool) -> bool {
        let Some(account) = self.accounts.get_mut(&job) else { return true };
        let answer = match self.slurm.look(job) {
            Ok(answer) => answer,
            Err(NoAnswer::Silent(reason)) => {
                account.failed(self.silence.begins(clock::monotonic_ns(), &reason));
                return false;
            }
            // Others are asked for all the same.
            Err(NoAnswer::Unreadable(reason)) => {
                self.silence.ends();
                if account.refused(clock::monotonic_ns()) == 2 {
                    tracing::warn!(%job, reason, "what Slurm says of a job cannot be read");
                }
                return true;
            }
        };
        self.silence.ends();
        let mut is_over = false;
        match account.hear(clock::monotonic_ns(), answer.as_ref(), &self.own, is_last) {
            Outcome::Nothing => {}
            Outcome::Change(change) => match self.slurm.change(job, &change) {
                Ok(()) => {
                    account.changed(&change);
                    tracing::debug!(%job, ?change, "Slurm heard of time out of slot");
                }
                Err(reason) => {
                    if account.refused(clock::monotonic_ns()) == 2 {
                        tracing::warn!(%job, ?change, reason, "Slurm does not change a job");
                    }
                }
            },
            Outcome::File(comment) => {
                // The accounts may be none that slurmdbd keeps.
                if let Err(reason) = self.slurm.file(job, &comment) {
                    tracing::debug!(%job, reason, "the record of a job was not written");
                    if !std::mem::replace(&mut self.is_unfiled_logged, true) {
                        tracing::warn!(%job, reason, "time out of slot is not in Slurm's accounts");
                    }
                }
                is_over = account.filed();
            }
            Outcome::Forget => is_over = true,
        }
        if is_over {
            self.accounts.remove(&job);
        }
        true
    }
}
