//! A host of a cluster on the lab's own machine: one CPU and a load of its own, by a mount
//! namespace of its daemon's.
//!
//! All such hosts have one kernel, and so one clock. Each daemon reads of one CPU that is online,
//! and of no load but its jobs': the kernel's count has the threads of all hosts. So programs of
//! such a host have one thread each, since that file says of no thread that was started later.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use gang_linux::child::ends_with_its_parent;

/// A runnable thread beside the daemon's own, so that it counts those of its jobs; the last number
/// would be that of the newest thread.
const LOAD: &str = "0.00 0.00 0.00 2/100 1\n";

/// Hides the kernel's files behind those of the host, and becomes its daemon. What is mounted here
/// nobody else sees, and it ends with the daemon.
const SCRIPT: &str = "mount --bind \"$1\" /sys/devices/system/cpu/online && \
                      mount --bind \"$2\" /proc/loadavg && shift 2 && exec \"$@\"";

/// A host, and where etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub cluster: String,
    pub name: String,
    /// Its only CPU.
    pub cpu: usize,
    /// The URL of etcd.
    pub etcd: String,
}

impl Host {
    /// Its part of gangd.toml.
    pub fn configuration(&self) -> String {
        let Host { cluster, name, etcd, .. } = self;
        format!("[cluster]\nname = {cluster:?}\nendpoints = [{etcd:?}]\nhost = {name:?}\n")
    }

    /// The command of its daemon, without options. It ends with the lab: a daemon that etcd does
    /// not answer keeps jobs of the cluster, and would not be idle.
    pub fn daemon(&self, gangd: &Path, dir: &Path) -> Result<Command> {
        let (online, load) = (dir.join("online"), dir.join("loadavg"));
        for (path, text) in [(&online, format!("{}\n", self.cpu)), (&load, LOAD.into())] {
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let mut command = self.program("unshare");
        command.args(["-m", "sh", "-c", SCRIPT, "sh"]).args([online, load]).arg(gangd);
        ends_with_its_parent(&mut command);
        Ok(command)
    }

    /// A program that runs on its CPU.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cpu.to_string()]).arg(program);
        command
    }
}
