//! The command line of the daemon.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use gang_timetable::Backend;

use crate::{
    life::deputies::Identity,
    manual,
    settings::{self, GapSetting, Overrides},
};

/// Gang scheduling daemon: runs all threads of a program at the same moment.
///
/// Programs are handed to it by gang(1). It may be killed at any moment: its guardian then
/// releases every program, and a daemon that is started again finds its jobs.
#[derive(Debug, Parser)]
#[command(
    name = "gangd",
    version,
    after_help = "See gang(1) for how programs are run as gangs, gangd.toml(5) for the configuration file."
)]
pub struct Args {
    /// Socket to listen on [default: /run/gangd/gangd.sock for root, the user's own otherwise]
    #[arg(long, value_name = "PATH", env = "GANG_SOCKET")]
    pub socket: Option<PathBuf>,

    /// Configuration file [default: /etc/gangd/gangd.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Length of a slice, 200us to 60s [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = settings::duration)]
    pub slice: Option<Duration>,

    /// Time in which no gang is raised, at the end of each period of the clock, as LENGTH/PERIOD,
    /// none, or auto: a twentieth of the time at least, every 10 or 20 ms by who waits for it
    /// [default: auto]
    #[arg(long, value_name = "GAP", value_parser = settings::gap)]
    pub gap: Option<GapSetting>,

    /// How gangs get their slots: rt, weight, freeze or signal [default: the best that can be used]
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    pub backend: Option<Backend>,

    /// Let CPUs idle that a gang in its slot does not use
    #[arg(long)]
    pub no_fill: bool,

    /// Raise gangs in their slots even while nobody else wants a CPU
    #[arg(long)]
    pub no_uncontended_passthrough: bool,

    /// Do not measure how far gangs are coscheduled, and what keeps them from it
    #[arg(long)]
    pub no_measure: bool,

    /// Share of the machine that all gangs together may take, 0.001 to 1 [default: 1]
    #[arg(long, value_name = "FRACTION")]
    pub gang_share_max: Option<f64>,

    /// End when the last job has ended and no client is connected
    #[arg(long)]
    pub exit_when_idle: bool,

    /// Check the configuration file, and end
    #[arg(long)]
    pub check_config: bool,

    /// Release what a daemon that died together with its guardian left behind at the socket, say
    /// what was found, and end
    #[arg(long)]
    pub release: bool,

    /// With --release: leave the jobs on file, for the next daemon to take over
    #[arg(long, requires = "release")]
    pub keep_jobs: bool,

    /// Make the cluster that the configuration names in etcd, and end (used by gang cluster init)
    #[arg(long, hide = true)]
    pub init_cluster: bool,

    /// Take hosts out of the cluster in etcd, and end (used by gang cluster leave)
    #[arg(long, hide = true, value_name = "HOST")]
    pub leave_cluster: Vec<String>,

    /// Write certificates of the cluster that the configuration names to a directory, and end (used
    /// by gang cluster certificates)
    #[arg(long, hide = true, value_name = "DIR")]
    pub certificates: Option<PathBuf>,

    /// With --certificates: a name or address by which hosts reach etcd
    #[arg(long, hide = true)]
    pub etcd_name: Vec<String>,

    /// With --certificates: a host of the cluster
    #[arg(long, hide = true)]
    pub certificate_host: Vec<String>,

    /// With --certificates: the days for which they are in force
    #[arg(long, hide = true, default_value_t = 1095)]
    pub certificate_days: u32,

    /// With --init-cluster: rows of the least frame
    #[arg(long, hide = true, default_value_t = 16)]
    pub rows: u32,

    /// With --init-cluster: jobs share by program, whoever owns them
    #[arg(long, hide = true)]
    pub by_program: bool,

    /// With --init-cluster: users have the same numbers on all hosts
    #[arg(long, hide = true)]
    pub users_by_number: bool,

    /// With --init-cluster: a host that is away for this long is lost
    #[arg(long, hide = true, default_value = "30s", value_parser = settings::duration)]
    pub lost_after: Duration,

    /// With --init-cluster: hosts that get a user and a role of etcd
    #[arg(long, hide = true)]
    pub permit_host: Vec<String>,

    /// Write a manual page to standard output, and end
    #[arg(long, value_name = "PAGE", hide = true)]
    pub manual: Option<manual::Page>,

    /// Run as the guardian of the daemon that holds the other end of standard input
    #[arg(long, hide = true)]
    pub guardian: bool,

    /// With --guardian: the cgroup to live in, made and removed by the guardian
    #[arg(long, value_name = "PATH", hide = true)]
    pub guardian_group: Option<PathBuf>,

    /// Become this user, and stay in a group until the daemon at the other end of standard input
    /// ends
    #[arg(long, value_name = "UID:GID", hide = true)]
    pub deputy: Option<Identity>,

    /// For tests: read the clock ahead by so much, as a host does whose clock is wrong
    #[arg(long, value_name = "TIME", hide = true, value_parser = settings::duration)]
    pub clock_error: Option<Duration>,

    /// Descriptor of a pipe on which to say `ready`, or why not
    #[arg(long, value_name = "N", hide = true)]
    pub ready_fd: Option<i32>,
}

fn backend(name: &str) -> Result<Backend, String> {
    Backend::from_name(name).ok_or_else(|| "rt, weight, freeze and signal are known".to_owned())
}

impl Args {
    /// The settings that the command line gives.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            slice: self.slice,
            gap: self.gap,
            backend: self.backend,
            fill: self.no_fill.then_some(false),
            measure: self.no_measure.then_some(false),
            uncontended_passthrough: self.no_uncontended_passthrough.then_some(false),
            gang_share_max: self.gang_share_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn values_are_read() {
        let args = Args::parse_from(["gangd", "--slice", "20ms", "--gap", "1ms/20ms", "--no-fill"]);
        let overrides = args.overrides();
        assert_eq!(overrides.slice, Some(Duration::from_millis(20)));
        assert_eq!(overrides.gap, settings::gap("1ms/20ms").ok());
        assert_eq!(overrides.fill, Some(false));
    }
}
