//! The daemon of gangd: wires the rooms together.

mod args;
mod caller;
mod check;
mod cluster;
mod conduct;
mod daemon;
mod error;
mod groups;
mod guardian_keeper;
mod history;
mod life;
mod manual;
mod measure;
mod ports;
mod run;
mod serve;
mod settings;
mod slurm;

use std::{
    fs::File,
    io::Write,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use gang_engine::{guardian, release, store::Store};
use gang_linux::{Roots, cgroup::Group, clock, inherited, namespaces, sched};
use gang_protocol::{
    paths::{Surroundings, jobs_dir},
    peer,
};
use nix::sys::signal::SigSet;
use rustix::process::getppid;

use args::Args;
use groups::cgroups::Cgroups;
use serve::{socket::SocketLock, status_file};
use settings::Settings;

fn main() -> ExitCode {
    let args = Args::parse();
    caller::close_descriptors(&args);
    if let Some(identity) = args.deputy {
        return match life::deputies::serve(identity) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if let Some(ahead) = args.clock_error {
        clock::set_error(ahead);
    }
    let mut starter = Starter::at(args.ready_fd);
    log();
    let result = match args.manual {
        Some(page) => manual::write(page, &mut std::io::stdout()),
        None => dispatch(&args, &mut starter),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            starter.report(&format!("{error:#}"));
            eprintln!("gangd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &Args, starter: &mut Starter) -> anyhow::Result<()> {
    let roots = Roots::default();
    let socket = match &args.socket {
        Some(socket) => {
            std::path::absolute(socket).context("cannot make the socket's path absolute")?
        }
        None => Surroundings::of_this_process().own_socket(),
    };
    let store = Store::at(jobs_dir(&socket));
    anyhow::ensure!(
        namespaces::are_numbered_as_here(&roots.proc),
        "{} is of another PID namespace; mount that of this one (mount -t proc proc /proc)",
        roots.proc.display()
    );
    if args.guardian {
        // The thread of the daemon that has started it blocks some signals.
        SigSet::all().thread_unblock().context("cannot hear of signals")?;
        let daemon = peer::credentials(&std::io::stdin()).ok().and_then(|daemon| daemon.pid);
        let daemon = daemon.map(NonZeroU32::get);
        let apart = args.guardian_group.as_ref().map(Group::at);
        guardian::run(&roots, &store, std::io::stdin(), apart.as_ref());
        clear_up(&roots, &store, &socket, daemon);
        return Ok(());
    }
    if args.release && args.keep_jobs {
        // A daemon that holds the lock cares for its jobs.
        if let Some(_lock) = SocketLock::take(&socket)? {
            let on_file = release::Jobs::read(&roots, &store).records.len();
            let found = release::all(&roots, &store);
            release::all_from_common_groups(&roots, &store, || true);
            print_found(on_file, found, "all are released, and on file for the next daemon");
        }
        return Ok(());
    }
    if args.release {
        caller::forget(&roots);
        return release_leftovers(&roots, &store, &socket);
    }
    let settings = Settings::read(args.config.as_deref(), &args.overrides())?;
    if args.check_config {
        let path = args.config.clone().unwrap_or_else(|| PathBuf::from(settings::FILE));
        let found = if path.exists() { "fine" } else { "not there; all settings are the defaults" };
        println!("{}: {found}", path.display());
        return Ok(());
    }
    if args.init_cluster {
        return cluster::init(&settings, args);
    }
    if let Some(directory) = &args.certificates {
        return cluster::write_certificates(&settings, args, directory);
    }
    if !args.leave_cluster.is_empty() {
        return cluster::leave(&settings, &args.leave_cluster);
    }
    if caller::is_program(args) {
        caller::forget(&roots);
        caller::leave_groups(&roots);
    } else {
        caller::forget_terminal();
    }
    run::run(&roots, &socket, store, settings, args, starter)
}

/// For how long a daemon that has died may hold its lock yet. The kernel drops the lock when the
/// daemon's last thread has closed its files, and so have processes that it was about to start.
const DYING: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// After the daemon's end, lets its jobs give way to nobody, and clears each of them away when it
/// has ended. Another daemon that comes takes the jobs over. The daemon that started this holds its
/// lock until the last of its threads has ended, which takes long where others have the CPUs. Then
/// that daemon is the parent no more.
fn clear_up(roots: &Roots, store: &Store, socket: &Path, daemon: Option<u32>) {
    let _ = sched::set(0, &sched::Attributes::other(0));
    let mut had_lock = false;
    let mut dead_by = Instant::now() + DYING;
    loop {
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
        if daemon.is_some() && parent == daemon {
            dead_by = Instant::now() + DYING;
        }
        match SocketLock::take(socket) {
            Ok(Some(lock)) => {
                had_lock = true;
                // No daemon keeps the file true any more.
                let _ = std::fs::remove_file(status_file::path(socket));
                let is_clear = || !Cgroups::clear_up(roots, &run::group_name(socket));
                if release::sweep(roots, store) == 0 && is_clear() {
                    lock.leave();
                    return;
                }
                drop(lock);
                std::thread::sleep(Duration::from_secs(1));
            }
            Ok(None) if !had_lock && Instant::now() < dead_by => std::thread::sleep(LOOK_EVERY),
            // Another daemon has the lock.
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(?error, "jobs whose daemon is gone are not cleared away");
                return;
            }
        }
    }
}

/// Undoes what a daemon that died together with its guardian left behind.
fn release_leftovers(roots: &Roots, store: &Store, socket: &Path) -> anyhow::Result<()> {
    // The guardian of a daemon that died holds the lock for moments while it clears up.
    let until = Instant::now() + DYING;
    let lock = loop {
        match SocketLock::take(socket)? {
            Some(lock) => break lock,
            None if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            None => anyhow::bail!("a daemon runs at {}; nothing was released", socket.display()),
        }
    };
    let records = release::Jobs::read(roots, store).records;
    let found = release::all(roots, store);
    for record in &records {
        release::dissolve(record);
        store.remove(record.id).with_context(|| format!("cannot clear job {} away", record.id))?;
    }
    release::dissolve_common(&records);
    Cgroups::clear_up(roots, &run::group_name(socket));
    store.destroy();
    let _ = std::fs::remove_file(status_file::path(socket));
    lock.leave();
    print_found(records.len(), found, "all are released");
    Ok(())
}

/// Prints what was found of the jobs on file, if there are any, and what became of them.
fn print_found(on_file: usize, found: release::Found, fate: &str) {
    if on_file > 0 {
        let release::Found { jobs, threads, lowered, paused, missed: _, strays: _ } = found;
        println!(
            "a daemon left {on_file} job(s) behind, {jobs} of them with {threads} thread(s): {lowered} \
             thread(s) were raised or at the lowest priority, {paused} job(s) stood still; {fate}"
        );
    }
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("GANGD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Under systemd the journal keeps levels and fields apart.
    let in_journal = is_in_journal();
    if let Some(journal) = in_journal.then(tracing_journald::layer).and_then(Result::ok) {
        use tracing_subscriber::layer::SubscriberExt;
        use tracing_subscriber::util::SubscriberInitExt;
        let journal = journal.with_field_prefix(Some("GANGD".into()));
        tracing_subscriber::registry().with(filter).with(journal).init();
        return;
    }
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}

/// Whether standard error is the journal. The variable alone does not say so: programs of a service
/// have it too, whatever their standard error is (systemd.exec(5)).
fn is_in_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|found| stream == *format!("{}:{}", found.st_dev, found.st_ino))
}

/// The program that started the daemon, and waits to hear that it listens, or why it does not.
struct Starter(Option<File>);

impl Starter {
    /// The program at the other end of an inherited pipe.
    fn at(fd: Option<i32>) -> Starter {
        Starter(fd.and_then(|fd| inherited::take(fd).ok()).map(File::from))
    }

    /// Writes one line, once. A starter that reads no more is no reason to fail.
    fn report(&mut self, line: &str) {
        if let Some(mut pipe) = self.0.take() {
            let _ = writeln!(pipe, "{}", line.replace('\n', " "));
        }
    }
}
