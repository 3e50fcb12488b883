//! The arguments.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, time::Duration};

use clap::Parser;

use crate::program::Meant;

/// Say whether gang scheduling helps a program
///
/// Watches a program for some seconds: one that runs, or one that it starts, and ends when it has
/// seen enough. It judges the five conditions under which gang scheduling helps, predicts the gain,
/// and says in one sentence what to do. Watch it where and when it usually runs: where nobody
/// competes for its CPUs, nothing can be gained. A job that is a gang is scheduled by plain Linux
/// while it is watched.
#[derive(Debug, Parser)]
#[command(name = "gang doctor", version, max_term_width = 100)]
pub struct Cli {
    /// The job to watch: its id, or its name where only one job has it
    #[arg(value_name = "JOB", required_unless_present_any = ["pid", "command", "auto"],
        conflicts_with_all = ["pid", "command"])]
    pub job: Option<String>,
    /// The process to watch, with its descendants
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i64)
            .range(1..=i64::from(i32::MAX)),
        conflicts_with = "command")]
    pub pid: Option<i64>,
    /// Socket of the daemon to talk to, and the only one that is tried [env: GANG_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// For how long to watch, in seconds
    ///
    /// From ten seconds on it is looked at half as often, which costs the program less.
    #[arg(short, long, default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Prove it: schedule the program as a gang and by plain Linux in turn, and measure what it
    /// gains
    ///
    /// Its pace is the time in which it works on CPUs. Where it reports its progress through
    /// libgang (gang_job_progress), the pace is how fast that grows. The proof then takes half a
    /// minute at least, and in any case 80 slices of each gang that competes.
    #[arg(long)]
    pub prove: bool,
    /// Watch a program that is started only after so many seconds
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub after: Duration,
    /// Write the diagnosis as JSON (docs/doctor.md); what a program that is started writes goes to
    /// standard error
    #[arg(long)]
    pub json: bool,
    /// Prove the jobs of policy auto of the daemon, which starts this program for it
    #[arg(long, hide = true, conflicts_with_all = ["pid", "job", "command", "prove", "json"])]
    pub auto: bool,
    /// The cost that a job may have, as a share of its time
    #[arg(long, hide = true, default_value_t = 0.01, requires = "auto")]
    pub cost: f64,
    /// Jobs that are not measured
    #[arg(long, hide = true, value_delimiter = ',', requires = "auto", value_name = "ID")]
    pub without: Vec<i64>,
    /// The user that this program becomes, with the group, where it may
    #[arg(long, hide = true, num_args = 2, requires = "auto", value_names = ["UID", "GID"])]
    pub user: Vec<u32>,
    /// The program to start and watch, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Cli {
    pub fn auto(&self) -> Option<Auto> {
        let user = match self.user[..] {
            [uid, gid] => Some((uid, gid)),
            _ => None,
        };
        let without = self.without.iter().copied().collect();
        self.auto.then_some(Auto { cost: self.cost, without, user })
    }

    pub fn meant(&self) -> Meant {
        match (self.pid, &self.job) {
            (Some(pid), _) => Meant::Process(pid),
            (None, Some(job)) => Meant::Job(job.clone()),
            (None, None) => Meant::Command(self.command.clone()),
        }
    }
}

/// How a daemon has its jobs of policy auto proved.
#[derive(Clone, Debug, PartialEq)]
pub struct Auto {
    pub cost: f64,
    pub without: BTreeSet<i64>,
    /// The user and group to be.
    pub user: Option<(u32, u32)>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let accepted = "a number of seconds from 0.1 to 3600";
    let seconds: f64 = text.parse().map_err(|_| accepted.to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(accepted.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Ticks;

    #[test]
    fn what_is_meant() {
        let parse = |line: &str| {
            Cli::try_parse_from(std::iter::once("doctor").chain(line.split_whitespace()))
        };
        assert_eq!(parse("--pid 77").unwrap().meant(), Meant::Process(77));
        assert_eq!(parse("3 --prove").unwrap().meant(), Meant::Job("3".into()));
        assert_eq!(parse("lu.C").unwrap().meant(), Meant::Job("lu.C".into()));
        assert_eq!(Ticks::over(parse("77").unwrap().seconds), Ticks::Few);
        let command = Meant::Command(vec!["ls".into(), "-l".into()]);
        assert_eq!(parse("--seconds 2 -- ls -l").unwrap().meant(), command);
        let auto = parse("--auto --cost 0.02 --without 3,7 --user 61 62").unwrap().auto();
        let expected = Auto { cost: 0.02, without: [3, 7].into(), user: Some((61, 62)) };
        assert_eq!((auto, parse("3").unwrap().auto()), (Some(expected), None));
        for wrong in ["", "--pid 0", "3 --pid 77", "3 -- ls", "--pid 77 -- ls", "--seconds 0 3"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
