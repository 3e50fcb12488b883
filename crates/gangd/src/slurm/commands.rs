//! The commands of Slurm, as gangd executes them.
//!
//! Every Slurm has `squeue`, `scontrol` and `sacctmgr`, of the version of its daemons. libslurm
//! changes with each release and is GPL; slurmrestd is a further daemon with tokens of its own.
//!
//! [`gang_linux::command`] bounds them.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use gang_linux::command::Bounded;

use super::{
    account::Change,
    job::{Answer, FORMAT, SlurmJob},
};

/// Where the commands are looked for, in this order.
const DIRECTORIES: [&str; 4] =
    ["/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin"];

/// The longest that a command may take. Slurm's own wait for an answer is 10 s unless it is set.
const WITHIN: Duration = Duration::from_secs(20);

/// Nothing was heard of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Slurm does not answer.
    Silent(String),
    /// It says of this job what cannot be read.
    Unreadable(String),
}

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
    /// There is no answer, or none that can be read.
    pub fn look(&self, job: SlurmJob) -> Result<Option<Answer>, NoAnswer> {
        let (jobs, format) = (format!("--jobs={job}"), format!("--Format={FORMAT}"));
        match self.execute("squeue", &["--noheader", "--states=all", &jobs, &format]) {
            Ok(output) => Answer::read(&output).map_err(NoAnswer::Unreadable),
            Err(reason) if reason.contains("Invalid job id specified") => Ok(None),
            Err(reason) => Err(NoAnswer::Silent(reason)),
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

    /// Of the daemon's environment, the place of slurm.conf alone goes on: a site may have set it
    /// for the service. A command that begins once the daemon ends has less time.
    fn execute(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let was_closing = self.is_closing.load(Ordering::Relaxed);
        let conf = std::env::var_os("SLURM_CONF").map(|conf| ("SLURM_CONF", conf));
        let command = Bounded {
            directories: self.directories.clone(),
            environment: conf.into_iter().collect(),
            within: if was_closing { WITHIN / 8 } else { WITHIN },
        };
        let is_over = || !was_closing && self.is_closing.load(Ordering::Relaxed);
        command.output(program, arguments, is_over)
    }
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
        let script = "printf '<%s>' \"$@\" >\"${0%/*}/said\"";
        let (directory, slurm) = slurm_of("scontrol", script);
        let comment = "a b; $(reboot) 'c'".to_owned();
        slurm.change(job(), &Change { limit_min: Some(7), comment: Some(comment) }).unwrap();
        let said = fs::read_to_string(directory.path().join("said")).unwrap();
        let wanted = "<update><JobId=12_3><TimeLimit=7><AdminComment=a b; $(reboot) 'c'>";
        assert_eq!(said, wanted);
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
        let NoAnswer::Silent(reason) = slurm.look(job()).unwrap_err() else { panic!() };
        assert!(
            reason.contains("squeue failed") && reason.contains("Unable to contact"),
            "{reason}"
        );
        let (_directory, odd) = slurm_of("squeue", "echo odd");
        assert!(matches!(odd.look(job()), Err(NoAnswer::Unreadable(_))));
        assert!(slurm.file(job(), "x").unwrap_err().contains("sacctmgr is in none of"));
    }
}
