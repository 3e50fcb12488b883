//! `gang run`: register a job, join it, become the program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use gang_protocol::client::{Client, Registration};
use gang_protocol::error::ClientError;
use gang_protocol::name::{escaped, nearest_name};
use gang_protocol::v1;
use rustix::io::Errno;

use crate::cli::Run;
use crate::connect::connect_or_start;
use crate::environment::environment;
use crate::executable;
use crate::job_options::allowed_cpus;

/// How often registering is tried when the daemon ends under our hands.
const TRIES_MAX: usize = 3;

pub fn run(args: &Run) -> Result<()> {
    let command = &args.command[0];
    // Before a job is registered, so that a program that is missing leaves none.
    let file = executable::find(command, std::env::var_os("PATH").as_deref())?;
    let cpus = allowed_cpus(None).context("cannot ask which CPUs this process may use")?;
    let job = args.job.registration(&default_name(command), cpus)?;

    let (client, id) = join(args, &job)?;
    let error = execute(&file, &args.command, variables(id, job.cpus));
    // The job ends with this process, its only one.
    drop(client);
    Err(executable::cannot(command, error).into())
}

/// Registers the job and adds this process to it. The connection is kept until the program is
/// executed, because closing it ends a job without processes.
fn join(args: &Run, job: &Registration) -> Result<(Client, i64)> {
    let mut tries = 1;
    let (mut client, id) = loop {
        let mut client = connect_or_start(args.backend.as_deref())?;
        match register(args, &mut client, job) {
            // The daemon was about to end after its last job when we came.
            Err(error) if tries < TRIES_MAX && is_closed(&error) => tries += 1,
            outcome => break (client, outcome?),
        }
    };
    client.add_process(id, std::process::id().into())?;
    Ok((client, id))
}

fn register(args: &Run, client: &mut Client, job: &Registration) -> Result<i64> {
    let status = client.status()?.status;
    if let Some(wanted) = args.backend.as_ref().filter(|wanted| **wanted != status.backend) {
        bail!(
            "the daemon at {} uses the backend {}, not {wanted}; leave --backend out, or set \
             GANG_SOCKET to a socket for another daemon",
            client.socket().display(),
            status.backend
        );
    }
    let id = client.register(job)?;
    if let Some(notice) = weakness(&status).filter(|_| !args.quiet) {
        eprintln!("gang: {}", escaped(&notice));
    }
    Ok(id)
}

/// What a person should know who gets less than gangd can do, in one line.
fn weakness(status: &v1::Status) -> Option<String> {
    if status.backend != "signal" {
        return None;
    }
    let rt = status.backends.iter().find(|backend| backend.name == "rt" && !backend.usable);
    let why = match rt.and_then(|backend| backend.reason.as_ref()) {
        Some(reason) => format!("because rt cannot be used: {reason}"),
        None => "as the daemon was told to".to_owned(),
    };
    Some(format!("gangs take turns by SIGSTOP and SIGCONT, {why}"))
}

fn is_closed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Closed { .. }))
}

fn default_name(command: &OsStr) -> String {
    let base = Path::new(command).file_name().unwrap_or(command);
    nearest_name(&base.to_string_lossy(), "job")
}

/// The whole environment of the program.
fn variables(job: i64, cpus: i64) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| name != "GANG_JOB").collect();
    let names: Vec<OsString> = all.iter().map(|(name, _)| name.clone()).collect();
    let added = environment(cpus, &names);
    all.extend(added.into_iter().map(|(name, value)| (name.into(), value.into())));
    all.push(("GANG_JOB".into(), job.to_string().into()));
    all
}

/// Becomes the program. Not by `std`, which would empty the mask of blocked signals that the
/// program inherits from whoever called `gang run`.
fn execute(file: &Path, command: &[OsString], variables: Vec<(OsString, OsString)>) -> Errno {
    let outcome = || -> Result<Infallible, Errno> {
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Errno::INVAL);
        // A slash keeps a file of the working directory from being looked for in PATH.
        let file = if file.as_os_str().as_bytes().contains(&b'/') {
            file.to_owned()
        } else {
            Path::new(".").join(file)
        };
        let file = text(file.into_os_string().into_vec())?;
        let command = command.iter().map(|arg| text(arg.as_bytes().to_vec()));
        let command = command.collect::<Result<Vec<_>, _>>()?;
        let variables = variables
            .into_iter()
            .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<Vec<_>, _>>()?;
        nix::unistd::execvpe(&file, &command, &variables)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))
    };
    match outcome() {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_after_its_program() {
        assert_eq!(default_name("./bin/lu.C".as_ref()), "lu.C");
        assert_eq!(default_name("a\nb".as_ref()), "a?b");
        assert_eq!(default_name(OsStr::from_bytes(b"\xff")), "\u{fffd}");
        assert_eq!(default_name("..".as_ref()), "..");
    }
}
