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
    groups::{cgroups::Cgroups, watch::Watch},
    history::History,
    life::{
        admission::Admission, deputies::Deputies, files::JobFiles, locks::JobLocks, prover::Prover,
    },
    measure::measuring::Measuring,
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
    pub command_lines: CommandLines,
    pub cgroups: Cgroups,
    pub watch: Watch,
    /// The queue, room and number of a new job.
    pub admission: Admission,
    pub files: JobFiles,
    pub locks: JobLocks,
    pub measuring: Measuring,
    /// Keeps the program that proves jobs of policy `auto`.
    pub prover: Prover,
    /// Jobs that have ended; absent where none is kept.
    pub history: Option<History>,
    pub checks: Checks,
    /// Empty where Slurm does not hear of time out of slot.
    pub slurm: OnceLock<Accounts>,
    /// Empty where this host is in no cluster.
    pub cluster: OnceLock<Cluster>,
    /// Processes that stay in the groups which jobs have left.
    pub deputies: Deputies,
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
