//! The life of the daemon: start, wait, end.

use std::{
    fs,
    io::Read,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::Path,
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use gang_conductor::{Conductor, Gaps};
use gang_engine::{probe::Means, store::Store};
use gang_linux::{Roots, clock, descriptors, memory, own_files, process, sched};
use gang_protocol::hash::fnv1a;
use gang_schedule::{Gap, Schedule};
use gang_timetable::{Backend, Switchers};
use rustix::event::epoll;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    Starter,
    args::Args,
    caller,
    check::Checks,
    cluster::Cluster,
    conduct::{
        client_priority::{ClientPriority, ThreadPriority},
        conductor::{self, Setup},
        state::State,
        survey,
    },
    daemon::{Daemon, EndedJobs, Instance},
    groups::{
        cgroups::Cgroups,
        watch::{Source, Watch},
    },
    guardian_keeper::{GuardianKeeper, Pulse},
    history::History,
    life::{job_ids::JobIds, jobs::Jobs, prover::Prover},
    measure::measuring::Measuring,
    ports::Ports,
    serve::{
        command_lines::CommandLines,
        connections::{self, Clients},
        socket::SocketLock,
        status_file::{self, StatusFile},
    },
    settings::{InForce, Settings},
    slurm::Accounts,
};

/// A daemon that ends when it is idle waits this long for somebody.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// The same, as long as it had no job: the program that started it may be slow.
const FIRST_JOB_WITHIN: Duration = Duration::from_secs(10);

/// How often the main thread looks around without being asked.
const ROUND: Duration = Duration::from_millis(250);

/// Runs the daemon until a signal or a client ends it, or until it is idle and was asked to end
/// then.
pub fn run(
    roots: &Roots,
    socket: &Path,
    store: Store,
    settings: Settings,
    args: &Args,
    starter: &mut Starter,
) -> anyhow::Result<()> {
    let Some(mut lock) = SocketLock::wait_for(socket)? else {
        // Two `gang run` at once: the one that came first serves both.
        if args.exit_when_idle && wait_for_listener(socket) {
            starter.report("ready");
            return Ok(());
        }
        bail!("a daemon runs at {} already", socket.display());
    };
    let name = group_name(socket);
    let means = Means::probe(roots, &name);
    let backend = settings.backend.unwrap_or_else(|| means.best());
    if let Some(obstacle) = means.obstacle(backend) {
        bail!("backend {}: {obstacle}", backend.name());
    }
    let cgroups = Cgroups::open(roots.clone(), &means, backend, &name, settings.leave);
    store.create().map_err(|e| anyhow::anyhow!("{e}: {}", e.source))?;
    if let Err(error) = descriptors::have_all() {
        tracing::info!(%error, source = %error.source, "there is room for fewer jobs");
    }
    if let Err(error) = memory::lock_all() {
        tracing::info!(%error, source = %error.source, "switches may wait for memory");
    }
    let pulse = Arc::<Pulse>::default();
    let realtime = backend == Backend::Rt;
    // Under a service manager the guardian stays where the manager looks for it.
    let apart = cgroups.of_guardian(&means).filter(|_| caller::is_program(args));
    let guardian_keeper = GuardianKeeper::start(socket.into(), pulse.clone(), realtime, apart)
        .context("cannot start the guardian")?;
    let schedule = Schedule::new(effective(&settings, backend), survey::machine(roots)?)?;
    let client_priority = ClientPriority::new(realtime);
    let all = cgroups.cpu.of_all();
    let switchers = Switchers::new(schedule.topology());
    let asked = schedule.config().gap;
    let kept = sched::kept_for_ordinary(roots);
    let how = gang_conductor::Setup {
        backend,
        switchers: switchers.clone(),
        has_common_group: all.is_some(),
        passthrough: settings.uncontended_passthrough,
        gaps: Gaps::new(kept, asked, settings.adapt_gaps && asked.length_ns > 0),
    };
    let tunables = settings.tunables(schedule.config().slice_ns);
    let mut state = State::new(Conductor::new(how, tunables, schedule), roots.clone(), all);
    state.hours = settings.working_hours.clone();
    let (regroups, to_regroup) = std::sync::mpsc::channel();
    state.regroups = Some(regroups);
    let (strays, to_lower) = std::sync::mpsc::channel();
    state.strays = Some(strays);
    let (conductor, thread) = conductor::start(Setup {
        state,
        switchers,
        pulse: pulse.clone(),
        realtime,
        client_priority: client_priority.clone(),
    })
    .context("cannot start the conductor")?;
    let (stop_sender, stop_receiver) = UnixStream::pair().context("cannot make a pipe")?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, stop_sender.try_clone()?)
            .context("cannot handle signals")?;
    }
    let (reload_sender, reload) = UnixStream::pair().context("cannot make a pipe")?;
    signal_hook::low_level::pipe::register(SIGHUP, reload_sender)
        .context("cannot handle signals")?;
    let history = open_history(socket, &settings, args);
    let watch = Arc::new(Watch::new().context("cannot make an epoll")?);
    let writes_status = settings.status_file.unwrap_or_else(|| is_machines(socket, args));
    let last = history.as_ref().map_or(0, History::last_number);
    let daemon = Arc::new(Daemon {
        roots: roots.clone(),
        means,
        backend,
        in_force: InForce::new(settings),
        instance: Instance::new(socket.into(), guardian_keeper.pid(), stop_sender),
        conductor,
        client_priority,
        jobs: Jobs::new(cgroups, watch.clone(), JobIds::of(socket, last), store),
        ended: EndedJobs::new(history),
        measuring: Measuring::default(),
        ports: Ports::default(),
        prover: Prover::default(),
        command_lines: CommandLines::default(),
        checks: Checks::default(),
        cluster: OnceLock::new(),
    });
    daemon.restore();
    // A host has one daemon in its cluster, and not each that a user has started.
    let may_join = is_machines(socket, args) || args.config.is_some();
    if let Some(settings) = daemon.settings().cluster.as_ref().filter(|_| may_join) {
        match Cluster::start(&daemon, settings) {
            Ok(cluster) => drop(daemon.cluster.set(cluster)),
            Err(error) => {
                let name = &settings.name;
                tracing::error!(name, "this host does not join its cluster: {error:#}");
            }
        }
    }
    if daemon.settings().slurm_account_time && may_join {
        let accounts = Accounts::start(&daemon).context("cannot start the thread of Slurm")?;
        daemon.ended.account_to(accounts);
    }
    let listener = lock.listen()?;
    watch.add(Source::Listener, &listener)?;
    watch.add(Source::Signal, &stop_receiver)?;
    watch.add(Source::Reload, &reload)?;
    let status_file = writes_status
        .then(|| StatusFile::start(status_file::path(socket), daemon.clone()))
        .transpose()
        .context("cannot start the thread of the status file")?;
    if let Some(pid_max) = process::small_pid_max(&daemon.roots.proc).filter(|_| backend.can_fill())
    {
        // Timetables name threads by their numbers for a quarter of a second.
        tracing::info!(pid_max, "numbers of threads come back soon; kernel.pid_max may be 4194304");
    }
    tracing::info!(socket = %socket.display(), backend = backend.name(), "gangd is ready");
    starter.report("ready");
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);

    let measured = daemon.clone();
    std::thread::Builder::new()
        .name("measuring".into())
        .spawn(move || measured.measure())
        .context("cannot start the thread that measures")?;
    if daemon.has_auto() {
        let proved = daemon.clone();
        std::thread::Builder::new()
            .name("proving".into())
            .spawn(move || Prover::ensure(&proved))
            .context("cannot start the thread that has jobs proved")?;
    }
    let clients = Arc::<Clients>::default();
    let ending = daemon.clone();
    let clearer = std::thread::Builder::new()
        .name("cleanup".into())
        .spawn(move || ending.clear_ended())
        .context("cannot start the thread that clears jobs away")?;
    let moving = daemon.clone();
    let mover = std::thread::Builder::new()
        .name("mover".into())
        .spawn(move || moving.move_gangs(&to_regroup))
        .context("cannot start the thread that moves gangs between groups")?;
    let lowering = daemon.clone();
    let lowerer = std::thread::Builder::new()
        .name("strays".into())
        .spawn(move || lowering.lower_strays(&to_lower))
        .context("cannot start the thread that lowers strays")?;
    let flushing = daemon.clone();
    let flusher = std::thread::Builder::new()
        .name("flusher".into())
        .spawn(move || flushing.flush_ports())
        .context("cannot start the thread that flushes ports")?;
    let (stop, reload) = (&stop_receiver, &reload);
    let waiting = Waiting { daemon: &daemon, watch: &watch, listener: &listener, stop, reload };
    waiting.wait(&thread, &clients, args, &pulse)?;
    // All that are over are in the history, then; the others are released with the daemon.
    daemon.jobs.close();
    let _ = clearer.join();
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    drop(listener);
    drop(status_file);
    end(&daemon, thread, [mover, lowerer, flusher], guardian_keeper, lock);
    Ok(())
}

/// The schedule's settings as this backend can carry them out.
fn effective(settings: &Settings, backend: Backend) -> gang_schedule::Config {
    let mut config = settings.schedule.clone();
    // Gaps are for threads that a raised gang keeps from running; these backends raise none that
    // high.
    if backend != Backend::Rt {
        config.gap = Gap::NONE;
    }
    config.fill &= backend.can_fill();
    config
}

/// The name of this daemon's cgroups. The machine's daemon has a plain one; others are
/// distinguished by their sockets.
pub fn group_name(socket: &Path) -> String {
    if socket == Path::new(gang_protocol::paths::SYSTEM_SOCKET) {
        return "gangd".into();
    }
    // The next daemon at this socket finds them.
    format!("gangd-{:016x}", fnv1a(socket.as_os_str().as_encoded_bytes()))
}

fn wait_for_listener(socket: &Path) -> bool {
    (0..100).any(|_| {
        let connected = UnixStream::connect(socket).is_ok();
        if !connected {
            std::thread::sleep(Duration::from_millis(50));
        }
        connected
    })
}

/// Whether this is the daemon of the machine, which stays, and not one that `gang run` has started.
fn is_machines(socket: &Path, args: &Args) -> bool {
    socket == Path::new(gang_protocol::paths::SYSTEM_SOCKET) && !args.exit_when_idle
}

/// Where the machine's daemon keeps the jobs that have ended.
const HISTORY: &str = "/var/lib/gangd/history.db";

/// Without a history the daemon runs all the same: its jobs need slots, whatever the disk does.
fn open_history(socket: &Path, settings: &Settings, args: &Args) -> Option<History> {
    let path = match &settings.history {
        _ if !settings.history_enabled => return None,
        Some(path) => path.clone(),
        None if is_machines(socket, args) => HISTORY.into(),
        None => return None,
    };
    let directory = gang_protocol::paths::runtime_dir(&path);
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(&directory);
    let opened = made
        .map_err(anyhow::Error::from)
        // SQLite puts files beside its own.
        .and_then(|()| Ok(own_files::check_directory_behind_links(&directory)?))
        .and_then(|()| History::open(&path, settings.retention.clone()));
    opened
        .inspect_err(|error| {
            tracing::error!(path = %path.display(), "no history of jobs is kept: {error:#}");
        })
        .ok()
}

/// The sources that the main thread waits for.
struct Waiting<'a> {
    daemon: &'a Arc<Daemon>,
    watch: &'a Watch,
    listener: &'a std::os::unix::net::UnixListener,
    stop: &'a UnixStream,
    reload: &'a UnixStream,
}

impl Waiting<'_> {
    /// Serves until a signal comes.
    fn wait(
        &self,
        conductor: &JoinHandle<()>,
        clients: &Arc<Clients>,
        args: &Args,
        pulse: &Pulse,
    ) -> anyhow::Result<()> {
        let Waiting { daemon, watch, listener, mut stop, mut reload } = *self;
        let mut last_beat = pulse.beats();
        let mut idle_since: Option<Instant> = None;
        let mut tended = None;
        let mut events = Vec::with_capacity(64);
        // A client that connects is not to wait for a gap either.
        let mut priority = ThreadPriority::of(&daemon.client_priority, None);
        loop {
            priority.renew();
            events.clear();
            match epoll::wait(
                watch.epoll(),
                rustix::buffer::spare_capacity(&mut events),
                Some(&clock::timespec(ROUND)),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e).context("cannot wait for events"),
            }
            let sources: Vec<Source> =
                events.iter().map(|&epoll::Event { data, .. }| Source::of(data)).collect();
            daemon.jobs_changed(&sources);
            for &source in &sources {
                match source {
                    Source::Listener => connections::accept(listener, daemon, clients),
                    Source::Signal => {
                        let _ = stop.read(&mut [0; 16]);
                        return Ok(());
                    }
                    Source::Reload => {
                        let _ = reload.read(&mut [0; 16]);
                        let read = Settings::read(args.config.as_deref(), &args.overrides());
                        let applied = read.and_then(|settings| {
                            daemon
                                .reconfigure(settings)
                                .map_err(|error| anyhow::anyhow!("{error:?}"))
                        });
                        if let Err(error) = applied {
                            tracing::error!("the configuration stays as it was: {error:#}");
                        }
                    }
                    Source::Deputy(job) => daemon.deputy_ended(job),
                    Source::CallersGroup(job) => daemon.callers_group_changed(job),
                    Source::Job(_) => {}
                }
            }
            if conductor.is_finished() {
                bail!("the conductor has ended; the guardian releases all jobs");
            }
            // The service manager hears from the conductor, by us.
            let beat = pulse.beats();
            if std::mem::replace(&mut last_beat, beat) != beat {
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            if pulse.take_astray() {
                let daemon = Arc::clone(daemon);
                // The service manager, and clients that connect, are not to wait for it.
                let regroup = std::thread::Builder::new().name("regroup".into());
                if let Err(error) = regroup.spawn(move || daemon.return_jobs_to_shared()) {
                    tracing::error!(%error, "jobs do not give way to the rest of the machine");
                }
            }
            // All of what follows looks at every job.
            if tended.is_some_and(|at: Instant| at.elapsed() < ROUND) {
                continue;
            }
            tended = Some(Instant::now());
            let (has_jobs, had_jobs) = daemon.tend();
            if args.exit_when_idle {
                let has_remains = daemon.jobs.has_remains();
                let busy = clients.count() > 0 || has_jobs || has_remains;
                idle_since = if busy { None } else { idle_since.or(Some(Instant::now())) };
                let io_deadline = if had_jobs { IDLE_FOR } else { FIRST_JOB_WITHIN };
                if idle_since.is_some_and(|since| since.elapsed() >= io_deadline) {
                    return Ok(());
                }
            }
        }
    }
}

/// Releases everything and leaves no trace: programs run on.
fn end(
    daemon: &Arc<Daemon>,
    conductor: JoinHandle<()>,
    helpers: [JoinHandle<()>; 3],
    guardian_keeper: GuardianKeeper,
    lock: SocketLock,
) {
    daemon.ended.close_accounts();
    daemon.ports.close();
    daemon.cluster.get().into_iter().for_each(Cluster::close);
    daemon.conductor.stop();
    let _ = conductor.join();
    // They end with the conductor.
    helpers.into_iter().for_each(|helper| drop(helper.join()));
    let found = daemon.release_all();
    guardian_keeper.dismiss();
    daemon.jobs.store().destroy();
    lock.leave();
    daemon.ended.close();
    tracing::info!(jobs = found.jobs, threads = found.threads, "gangd ends; all programs run on");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_differ_by_socket() {
        assert_eq!(group_name(Path::new("/run/gangd/gangd.sock")), "gangd");
        assert_ne!(group_name(Path::new("/tmp/a")), group_name(Path::new("/tmp/b")));
    }
}
