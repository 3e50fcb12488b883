//! A host of a cluster on the lab's own machine: CPUs and a load of its own, by a mount namespace
//! of its daemon's.
//!
//! All such hosts have one kernel, and so one clock, which a daemon can be made to read wrongly.
//! Each daemon reads of the host's CPUs that are online, and of no load but its jobs': the kernel's
//! count has the threads of all hosts. So processes of such a host have one thread each, since that
//! file says of no thread that was started later.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use gang_linux::child::ends_with_its_parent;

use crate::harness::duration;

/// A runnable thread beside the daemon's own, so that it counts those of its jobs; the last number
/// would be that of the newest thread.
const LOAD: &str = "0.00 0.00 0.00 2/100 1\n";

/// Hides the kernel's files behind those of the host, and becomes its daemon. Nobody else
/// sees these mounts, and they end with the daemon.
const SCRIPT: &str = "mount --bind \"$1\" /sys/devices/system/cpu/online && \
                      mount --bind \"$2\" /proc/loadavg && shift 2 && exec \"$@\"";

/// A host as programs see it: a name, and CPUs of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    pub name: String,
    pub cpus: Vec<usize>,
}

impl HostSpec {
    /// Hosts of so many CPUs each, on the first of these CPUs; None where there are too few, and
    /// of more than 26 hosts.
    pub fn several(hosts: usize, cpus_each: usize, cpus: &[usize]) -> Option<Vec<HostSpec>> {
        let spec = |(number, cpus): (usize, &[usize])| {
            // From a on.
            let letter = char::from_digit(10 + u32::try_from(number).ok()?, 36)?;
            Some(HostSpec { name: letter.to_string(), cpus: cpus.to_vec() })
        };
        let of_each = cpus.get(..hosts * cpus_each)?.chunks(cpus_each);
        of_each.enumerate().map(spec).collect()
    }

    /// Its CPUs as the kernel lists them, as in `0,2`.
    pub fn cpu_list(&self) -> String {
        let cpus: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
        cpus.join(",")
    }

    /// A program that runs on its CPUs.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cpu_list()]).arg(program);
        command
    }
}

/// A host of a cluster, and where etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub cluster: String,
    pub spec: HostSpec,
    /// The URL of etcd.
    pub etcd: String,
    /// How far its daemon reads the clock ahead.
    pub clock_error: Duration,
}

impl Host {
    /// Its part of gangd.toml.
    pub fn configuration(&self) -> String {
        let Host { cluster, etcd, spec: HostSpec { name, .. }, .. } = self;
        format!("[cluster]\nname = {cluster:?}\nendpoints = [{etcd:?}]\nhost = {name:?}\n")
    }

    /// The command of its daemon, without options. It ends with the lab: a daemon that etcd does
    /// not answer keeps jobs of the cluster, and would not be idle.
    pub fn daemon(&self, gangd: &Path, dir: &Path) -> Result<Command> {
        let (online, load) = (dir.join("online"), dir.join("loadavg"));
        for (path, text) in [(&online, self.spec.cpu_list() + "\n"), (&load, LOAD.into())] {
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let mut command = self.spec.program("unshare");
        command.args(["-m", "sh", "-c", SCRIPT, "sh"]).args([online, load]).arg(gangd);
        if !self.clock_error.is_zero() {
            command.args(["--clock-error", &duration::show(self.clock_error)]);
        }
        ends_with_its_parent(&mut command);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_the_first_cpus_of_a_machine() {
        let cpus_of = |hosts: usize, cpus_each: usize| {
            let specs = HostSpec::several(hosts, cpus_each, &[0, 2, 4, 6, 8])?;
            Some(specs.iter().map(|it| format!("{} {}", it.name, it.cpu_list())).collect())
        };
        let of = |hosts: &[&str]| Some(hosts.iter().map(|&host| host.to_owned()).collect());
        assert_eq!(cpus_of(1, 4), of(&["a 0,2,4,6"]));
        assert_eq!(cpus_of(2, 2), of(&["a 0,2", "b 4,6"]));
        assert_eq!(cpus_of(3, 2), None::<Vec<String>>, "there are five CPUs");
    }
}
