//! `gang run`: register a job, join it, become the program; or stay as its parent, where gangs
//! take turns by signals.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gang_protocol::caller::Caller;
use gang_protocol::client::{Client, Registration};
use gang_protocol::error::ClientError;
use gang_protocol::limits;
use gang_protocol::name::{escaped, nearest_name};
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;

use crate::cli::{HostCpus, OnHostLost, Run};
use crate::connect::{connect, connect_or_start};
use crate::environment::environment;
use crate::executable;
use crate::execute::execute;
use crate::exit::Usage;
use crate::job_options::allowed_cpus;
use crate::net::Provider;
use crate::show_values::size;
use crate::stand_in::Gated;

/// How often registering is tried when the daemon ends under our hands.
const TRIES_MAX: usize = 3;

/// For how long a start waits for its turn to connect.
const CROWDED_FOR_MAX: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The backend by which gangs stop and go on in the sight of their parents.
const SIGNAL: &str = "signal";

/// A whole environment.
type Variables = Vec<(OsString, OsString)>;

pub fn run(args: &Run, socket: Option<&Path>) -> Result<()> {
    let command = &args.command[0];
    // Before a job is registered, so that a program that is missing leaves none.
    let file = executable::find(command, std::env::var_os("PATH").as_deref())?;
    let own = own_variables(args)?;
    let cpus = allowed_cpus(None).context("cannot ask which CPUs this process may use")?;
    let job = args.job.registration(&default_name(command), cpus, Caller::of_this_process())?;
    let job = Registration { wait: args.wait, ..job };
    if !args.hosts.is_empty() || args.join.is_some() {
        let socket = socket.map(std::path::absolute).transpose().context("cannot find --socket")?;
        return run_across_hosts(args, &job, socket.as_deref(), &file, own);
    }

    let socket = socket.map(std::path::absolute).transpose().context("cannot find --socket")?;
    let daemon = Surroundings::with_socket(socket.as_deref());
    if let Some(job) = own_job(&daemon) {
        return run_within(job, args, &file);
    }
    let registered = registered(args, &daemon, &job)?;
    let threads = Some(job.cpus).filter(|&of_gang| args.env || of_gang < cpus);
    let variables = variables(own, registered.id, threads, socket.as_deref());
    if registered.takes_turns_by_signals {
        stay(registered, &file, args, variables)
    } else {
        become_program(registered, &file, args, variables)
    }
}

/// The job that `$GANG_JOB` names, where this process is in it, as the daemon says.
fn own_job(daemon: &Surroundings) -> Option<i64> {
    let job = std::env::var("GANG_JOB").ok()?.parse().ok()?;
    let own = Client::find_beyond(daemon).ok()?.get_caller().ok()?;
    (own == Some(job)).then_some(job)
}

/// Becomes a program of the job that this process is in: a gang within a gang could not be
/// scheduled otherwise than the outer one.
fn run_within(job: i64, args: &Run, file: &Path) -> Result<()> {
    if !args.quiet {
        eprintln!("gang: the program runs in job {job}, in which gang run was called");
    }
    let error = execute(file, &args.command, own_variables(args)?.into_iter());
    Err(executable::refused(&args.command[0], file, error).into())
}

/// Runs the program in a job of several hosts, or in a job that is there.
fn run_across_hosts(
    args: &Run,
    job: &Registration,
    socket: Option<&Path>,
    file: &Path,
    own: Variables,
) -> Result<()> {
    let mut client = connect(&Surroundings::with_socket(socket))?;
    let takes_turns_by_signals = client.status()?.status.backend == SIGNAL;
    let (id, cpus) = match &args.join {
        Some(join) => {
            let id = job_to_join(join)?;
            (id, Some(client.job_here(id)?.cpus))
        }
        None => {
            let (me, _) = client.host()?.context("this host is in no cluster")?;
            let here = args.hosts.iter().find(|of| of.host == me).map(|of| of.cpus);
            let cpus = |of: &HostCpus| v1::HostCpus {
                host: of.host.clone(),
                cpus: of.cpus,
                ranks: None,
                allowed: None,
            };
            let wanted = v1::RegisterSpanning_Args {
                name: job.name.clone(),
                cpus: args.hosts.iter().map(cpus).collect(),
                class: job.class.clone(),
                weight: job.weight,
                on_host_lost: args.on_host_lost.into(),
                owner_uid: None,
                launched_as: None,
            };
            let id = client.register_spanning(wanted)?.job;
            (id, here)
        }
    };
    let variables = variables(own, id, cpus, socket);
    let registered = Registered { client, id, takes_turns_by_signals };
    match (cpus, takes_turns_by_signals) {
        (None, _) => launch(registered, file, &args.command, variables),
        (_, true) => stay(registered, file, args, variables),
        (_, false) => become_program(registered, file, args, variables),
    }
}

/// Lets a child launch the job from a host that has no part of it. The job is there for as long as
/// the child is, or a process of it.
fn launch(
    registered: Registered,
    file: &Path,
    command: &[OsString],
    variables: Variables,
) -> Result<()> {
    let program = Gated::start(file, command, variables)?;
    let socket = registered.client.socket().to_owned();
    let end = program.let_go(&socket, registered.id)?;
    // The connection holds the job.
    drop(registered);
    end.follow()
}

/// The job that `--join` names, or `$GANG_JOB`.
fn job_to_join(named: &str) -> Result<i64> {
    let named = match named {
        "" => std::env::var("GANG_JOB")
            .map_err(|_| Usage("--join: say which job (--join=JOB), or set GANG_JOB".to_owned()))?,
        named => named.to_owned(),
    };
    let wrong = |_| Usage(format!("--join: {named:?} is not the number of a job"));
    Ok(named.parse::<i64>().map_err(wrong)?)
}

impl From<OnHostLost> for v1::OnHostLost {
    fn from(lost: OnHostLost) -> Self {
        match lost {
            OnHostLost::Mark => Self::mark,
            OnHostLost::Suspend => Self::suspend,
            OnHostLost::Release => Self::release,
        }
    }
}

/// A job without a process. It ends when the connection closes before a process was added.
struct Registered {
    client: Client,
    id: i64,
    takes_turns_by_signals: bool,
}

/// Joins the job and executes the program in the place of this one.
fn become_program(
    mut registered: Registered,
    file: &Path,
    args: &Run,
    variables: Variables,
) -> Result<()> {
    if let Err(error) = registered.client.add_caller(registered.id) {
        return run_within_or(error, registered, args, file);
    }
    let error = execute(file, &args.command, variables.into_iter());
    // The job ends with this process, its only one.
    drop(registered);
    Err(executable::refused(&args.command[0], file, error).into())
}

/// The process was refused. Where it is in a job already, without `$GANG_JOB` as below sudo, the
/// program runs there, unless it is to run in a job of several hosts.
fn run_within_or(
    error: ClientError,
    mut registered: Registered,
    args: &Run,
    file: &Path,
) -> Result<()> {
    let is_of_hosts = !args.hosts.is_empty() || args.join.is_some();
    let may_be_within = matches!(error, ClientError::NotPermitted { .. }) && !is_of_hosts;
    match registered.client.get_caller() {
        Ok(Some(job)) if may_be_within => {
            drop(registered);
            run_within(job, args, file)
        }
        _ => Err(error.into()),
    }
}

/// Lets a child be the program, and ends as it ends: the caller would see the program stop
/// with every slice.
fn stay(mut registered: Registered, file: &Path, args: &Run, variables: Variables) -> Result<()> {
    let program = Gated::start(file, &args.command, variables)?;
    if let Err(error) = registered.client.add_process(registered.id, program.pid()) {
        program.give_up();
        return run_within_or(error, registered, args, file);
    }
    let Registered { client, id, .. } = registered;
    let socket = client.socket().to_owned();
    // A daemon serves only so many at once; the job is held by its process now.
    drop(client);
    program.let_go(&socket, id)?.follow()
}

fn registered(args: &Run, daemon: &Surroundings, job: &Registration) -> Result<Registered> {
    let (mut tries, began) = (1, Instant::now());
    loop {
        let mut client = connect_or_start(daemon, args.backend.as_deref())?;
        if !args.quiet {
            client.notice_silence(say_silence);
        }
        match register(args, client, job) {
            // The daemon was about to end after its last job when we came.
            Err(error) if tries < TRIES_MAX && is_closed(&error) => tries += 1,
            // Others start programs, too, and each holds its connection for some milliseconds.
            Err(error) if is_crowded(&error) && began.elapsed() < CROWDED_FOR_MAX => {
                std::thread::sleep(pause());
            }
            outcome => return outcome,
        }
    }
}

/// Says why nothing happens: a daemon that is stopped takes connections, and answers none.
fn say_silence(socket: &Path, left: Duration) {
    let (socket, left) = (socket.display(), left.as_secs_f64());
    eprintln!("gang: gangd at {socket} does not answer yet; waiting for {left} s more");
}

/// A pause before the next try. Those who were refused together do not come back together.
fn pause() -> Duration {
    LONGEST_PAUSE * (std::process::id() % 8 + 1) / 8
}

fn register(args: &Run, mut client: Client, job: &Registration) -> Result<Registered> {
    let status = client.status()?.status;
    if let Some(wanted) = args.backend.as_ref().filter(|wanted| **wanted != status.backend) {
        bail!(
            "the daemon at {} uses the backend {}, not {wanted}; leave --backend out, or \
             name a socket for another daemon (--socket)",
            client.socket().display(),
            status.backend
        );
    }
    let id = register_or_wait(args, &mut client, job)?;
    // Whether jobs can be proved is known once one has asked for it.
    let unproved = match job.policy {
        v1::Policy::auto => unproved(&client.status()?.status),
        _ => None,
    };
    for notice in weakness(&status).into_iter().chain(unproved).filter(|_| !args.quiet) {
        eprintln!("gang: {}", escaped(&notice));
    }
    Ok(Registered { client, id, takes_turns_by_signals: status.backend == SIGNAL })
}

/// Says what is waited for, so that nobody takes a wait for a hang.
fn register_or_wait(
    args: &Run,
    client: &mut Client,
    job: &Registration,
) -> Result<i64, ClientError> {
    let at_once = Registration { wait: false, ..job.clone() };
    match client.register(&at_once) {
        Err(ClientError::NotEnough { resource, wanted, free, promised, total, .. })
            if args.wait && wanted <= total =>
        {
            if !args.quiet {
                let (wanted, left) = (size(wanted), size(free.saturating_sub(promised).max(0)));
                eprintln!("gang: waiting for {wanted} of {resource}, {left} are to be had now");
            }
            client.register(job)
        }
        outcome => outcome,
    }
}

/// Says in one line why a person gets less than gangd can do.
fn weakness(status: &v1::Status) -> Option<String> {
    if status.backend != SIGNAL {
        return None;
    }
    let rt = status.backends.iter().find(|backend| backend.name == "rt" && !backend.usable);
    let why = match rt.and_then(|backend| backend.reason.as_ref()) {
        Some(reason) => format!("because rt cannot be used: {reason}"),
        None => "because the daemon was started so".to_owned(),
    };
    Some(format!("gangs take turns by SIGSTOP and SIGCONT, {why}"))
}

/// Says so where jobs of policy auto are not proved.
pub fn report_unproved(client: &mut Client) -> Result<()> {
    if let Some(notice) = unproved(&client.status()?.status) {
        eprintln!("gang: {}", escaped(&notice));
    }
    Ok(())
}

/// The same, of a job of policy auto that cannot be proved.
fn unproved(status: &v1::Status) -> Option<String> {
    let reason = status.not_proved.as_ref()?;
    Some(format!("policy auto: what it gains cannot be measured here, so it is a gang: {reason}"))
}

fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Closed { .. }))
}

/// Whether the daemon has too many connections, of a user or of all.
fn is_crowded(error: &anyhow::Error) -> bool {
    let limit = match error.downcast_ref() {
        Some(ClientError::LimitReached { limit, .. }) => limit,
        _ => return false,
    };
    [limits::CLIENTS, limits::CLIENTS_OF_USER].contains(&limit.as_str())
}

fn default_name(command: &OsStr) -> String {
    let base = Path::new(command).file_name().unwrap_or(command);
    nearest_name(&base.to_string_lossy(), "job")
}

/// The environment of this process, with what `--net` adds.
fn own_variables(args: &Run) -> Result<Variables> {
    let mut own = std::env::vars_os().collect();
    if args.net {
        Provider::find()?.choose(&mut own);
    }
    Ok(own)
}

/// The environment of the program: what it asks of its job, it asks the daemon that has it.
fn variables(
    mut all: Variables,
    job: i64,
    threads: Option<i64>,
    socket: Option<&Path>,
) -> Variables {
    all.retain(|(name, _)| name != "GANG_JOB");
    if let Some(socket) = socket {
        all.retain(|(name, _)| name != "GANG_SOCKET");
        all.push(("GANG_SOCKET".into(), socket.into()));
    }
    let names: Vec<OsString> = all.iter().map(|(name, _)| name.clone()).collect();
    let added = environment(threads, &names);
    all.extend(added.into_iter().map(|(name, value)| (name.into(), value.into())));
    all.push(("GANG_JOB".into(), job.to_string().into()));
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_job_is_named_after_its_program() {
        assert_eq!(default_name("./bin/lu.C".as_ref()), "lu.C");
        assert_eq!(default_name("a\nb".as_ref()), "a?b");
        assert_eq!(default_name(OsStr::from_bytes(b"\xff")), "\u{fffd}");
        assert_eq!(default_name("..".as_ref()), "..");
    }
}
