//! The commands of Slurm, as gangd executes them.
//!
//! Every Slurm has `squeue`, `scontrol` and `sacctmgr`, of the version of its daemons. libslurm
//! changes with each release and is GPL; slurmrestd is a further daemon with tokens of its own.
//!
//! Each is a child with an environment of its own, without a shell, found in fixed directories. One
//! that hangs is killed.

use std::{
    ffi::OsStr,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{
    account::Change,
    job::{Answer, FORMAT, SlurmJob},
};

/// Where the commands are looked for, in this order.
const DIRECTORIES: [&str; 4] =
    ["/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin"];

/// The longest that a command may take. Slurm's own wait for an answer is 10 s unless it is set.
const WITHIN: Duration = Duration::from_secs(20);

/// The time between looks at a command that runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// So much is read of a command's output: less than a pipe holds.
const OUTPUT_MAX: u64 = 32 * 1024;

/// The way to Slurm.
pub struct Slurm {
    directories: Vec<PathBuf>,
    /// Set where nobody is to wait for a command any more.
    pub is_closing: AtomicBool,
}

impl Slurm {
    pub fn new() -> Slurm {
        Slurm {
            directories: DIRECTORIES.iter().map(PathBuf::from).collect(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Asks for a job; `None` of one that Slurm has forgotten.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub fn look(&self, job: SlurmJob) -> Result<Option<Answer>, String> {
        let (jobs, format) = (format!("--jobs={job}"), format!("--Format={FORMAT}"));
        match self.execute("squeue", &["--noheader", "--states=all", &jobs, &format]) {
            Ok(output) => Answer::read(&output),
            Err(reason) if reason.contains("Invalid job id specified") => Ok(None),
            Err(reason) => Err(reason),
        }
    }

    /// Changes a job that runs, in one call.
    ///
    /// # Errors
    /// The reason why it may not have changed.
    pub fn change(&self, job: SlurmJob, change: &Change) -> Result<(), String> {
        let mut words = vec!["update".to_owned(), format!("JobId={job}")];
        words.extend(change.limit_min.map(|min| format!("TimeLimit={min}")));
        words.extend(change.comment.iter().map(|text| format!("AdminComment={text}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.execute("scontrol", &words).map(drop)
    }

    /// Writes the comment of a job that is over into the accounts.
    ///
    /// # Errors
    /// The reason why it may not be there, such as accounts that no slurmdbd keeps.
    pub fn file(&self, job: SlurmJob, comment: &str) -> Result<(), String> {
        let (of, to) = (format!("JobID={job}"), format!("AdminComment={comment}"));
        self.execute("sacctmgr", &["--immediate", "modify", "job", "where", &of, "set", &to])
            .map(drop)
    }

    fn execute(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let found = self.directories.iter().map(|directory| directory.join(program));
        let path = found
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| format!("cannot find {program} in {}", DIRECTORIES.join(", ")))?;
        let child = command(&path, arguments).spawn();
        let child = child.map_err(|error| format!("cannot execute {}: {error}", path.display()))?;
        let within = if self.is_closing.load(Ordering::Relaxed) { WITHIN / 8 } else { WITHIN };
        self.output(child, within).map_err(|reason| format!("{program} {reason}"))
    }

    fn output(&self, mut child: Child, within: Duration) -> Result<String, String> {
        let began = Instant::now();
        let was_closing = self.is_closing.load(Ordering::Relaxed);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(format!("cannot be waited for: {error}")),
            }
            let is_closing = !was_closing && self.is_closing.load(Ordering::Relaxed);
            if is_closing || began.elapsed() >= within {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("did not end within {:.0?}", began.elapsed()));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let text = |stream: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            let read = stream.map(|stream| stream.take(OUTPUT_MAX).read_to_end(&mut bytes));
            drop(read);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        if status.success() {
            return Ok(text(child.stdout.as_mut().map(|stream| stream as &mut dyn Read)));
        }
        let said = text(child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
        let said: String = said.trim().chars().filter(|it| !it.is_control()).take(300).collect();
        Err(format!("failed ({status}): {said}"))
    }
}

/// Of the daemon's environment, the place of slurm.conf alone goes on: a site may have set it for
/// the service.
fn command(path: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/");
    if let Some(conf) = std::env::var_os("SLURM_CONF") {
        command.env("SLURM_CONF", conf);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn slurm_of(program: &str, script: &str) -> (tempfile::TempDir, Slurm) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(program);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let slurm = Slurm { directories: vec![directory.path().into()], ..Slurm::new() };
        (directory, slurm)
    }

    fn job() -> SlurmJob {
        SlurmJob::parse("12_3").unwrap()
    }

    #[test]
    fn change_is_one_call_without_a_shell() {
        let script = "printf '<%s>' \"$@\" >\"${0%/*}/said\"; env | sort >\"${0%/*}/env\"";
        let (directory, slurm) = slurm_of("scontrol", script);
        let comment = "a b; $(reboot) 'c'".to_owned();
        slurm.change(job(), &Change { limit_min: Some(7), comment: Some(comment) }).unwrap();
        let said = fs::read_to_string(directory.path().join("said")).unwrap();
        let wanted = "<update><JobId=12_3><TimeLimit=7><AdminComment=a b; $(reboot) 'c'>";
        assert_eq!(said, wanted);
        let env = fs::read_to_string(directory.path().join("env")).unwrap();
        assert!(env.contains("LC_ALL=C") && !env.contains("HOME="), "{env}");
    }

    #[test]
    fn job_that_slurm_has_forgotten_is_none() {
        let script = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";
        let (_directory, slurm) = slurm_of("squeue", script);
        assert_eq!(slurm.look(job()), Ok(None));
    }

    #[test]
    fn failure_says_what_the_command_said() {
        let (_directory, slurm) = slurm_of("squeue", "echo 'Unable to contact' >&2; exit 1");
        let reason = slurm.look(job()).unwrap_err();
        assert!(
            reason.contains("squeue failed") && reason.contains("Unable to contact"),
            "{reason}"
        );
        assert!(slurm.file(job(), "x").unwrap_err().contains("cannot find sacctmgr"));
    }

    #[test]
    fn command_that_hangs_is_killed() {
        let (_directory, slurm) = slurm_of("squeue", "exec sleep 60");
        let path = slurm.directories[0].join("squeue");
        let child = command(&path, &[""; 0]).spawn().unwrap();
        let reason = slurm.output(child, Duration::from_millis(50)).unwrap_err();
        assert!(reason.contains("did not end"), "{reason}");
        let child = command(&path, &[""; 0]).spawn().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| slurm.output(child, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(50));
            slurm.is_closing.store(true, Ordering::Relaxed);
            assert!(waits.join().unwrap().is_err());
        });
    }
}
