//! The parts that the threads of the daemon share. The rooms have the methods, [`crate::life`] most
//! of them.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use gang_engine::probe::Means;
use gang_linux::Roots;
use gang_timetable::Backend;

use crate::{
    check::Checks,
    cluster::Cluster,
    conduct::{client_priority::ClientPriority, requests::Handle},
    error::Error,
    history::{Ended, History},
    life::{jobs::Jobs, prover::Prover},
    measure::measuring::Measuring,
    ports::Ports,
    serve::command_lines::CommandLines,
    settings::{InForce, Settings},
    slurm::Accounts,
};

/// The daemon, as the threads that serve clients see it.
pub struct Daemon {
    pub roots: Roots,
    /// The means that kernel and user permit.
    pub means: Means,
    pub backend: Backend,
    pub in_force: InForce,
    pub instance: Instance,
    /// The way to the thread that decides.
    pub conductor: Handle,
    pub client_priority: Arc<ClientPriority>,
    /// Carries out what the conductor decides about jobs.
    pub jobs: Jobs,
    /// Hears of jobs that have ended.
    pub ended: EndedJobs,
    pub measuring: Measuring,
    /// Ports by which programs of jobs send messages.
    pub ports: Ports,
    /// Keeps the program that proves jobs of policy `auto`.
    pub prover: Prover,
    pub command_lines: CommandLines,
    pub checks: Checks,
    /// Empty where this host is in no cluster.
    pub cluster: OnceLock<Cluster>,
}

/// Those who hear of jobs that have ended.
pub struct EndedJobs {
    /// Absent where none is kept.
    history: Option<History>,
    /// Empty where Slurm does not hear of time out of slot.
    slurm: OnceLock<Accounts>,
}

impl EndedJobs {
    pub fn new(history: Option<History>) -> EndedJobs {
        EndedJobs { history, slurm: OnceLock::new() }
    }

    /// Slurm hears of them from now on.
    pub fn account_to(&self, slurm: Accounts) {
        let _ = self.slurm.set(slurm);
    }

    /// Never waits.
    pub fn add(&self, ended: Ended) {
        self.slurm.get().into_iter().for_each(|accounts| accounts.add(&ended));
        if let Some(history) = &self.history {
            history.add(ended);
        }
    }

    /// The history that this daemon keeps, if it keeps one.
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Slurm hears what jobs that go on are owed, while the conductor can still be asked.
    pub fn close_accounts(&self) {
        self.slurm.get().into_iter().for_each(Accounts::close);
    }

    /// All are in the history then.
    pub fn close(&self) {
        self.history.iter().for_each(History::close);
    }
}

/// This daemon among the processes of the machine.
pub struct Instance {
    pub socket: PathBuf,
    started: Instant,
    /// The pid of the guardian, 0 where there is none.
    guardian: Arc<AtomicU32>,
    /// A byte written here has the main thread end the daemon.
    stop: UnixStream,
}

impl Instance {
    pub fn new(socket: PathBuf, guardian: Arc<AtomicU32>, stop: UnixStream) -> Instance {
        Instance { socket, started: Instant::now(), guardian, stop }
    }

    pub fn guardian_pid(&self) -> Option<u32> {
        Some(self.guardian.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks the main thread to end the daemon.
    pub fn request_stop(&self) {
        let _ = (&self.stop).write_all(b"s");
    }
}

impl Daemon {
    /// The settings as last read, as far as they are in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.in_force.get()
    }

    /// Takes new settings, as far as a running daemon can.
    pub fn reconfigure(&self, new: Settings) -> Result<(), Error> {
        let old = self.settings();
        let later = old.what_needs_a_restart(&new);
        if !later.is_empty() {
            tracing::warn!(keys = later.join(", "), "changed, and needs a restart to take effect");
        }
        self.in_force.set(old.renewed(new.clone()));
        self.conductor.ask(move |state| state.reconfigure(&new))?;
        tracing::info!("the configuration was read again");
        Ok(())
    }
}
