//! Two hosts of a cluster on one machine.

use std::{fs, ops::Deref, os::unix::fs::PermissionsExt, path::Path, process::Output};

use gang_harness::{etcd::Etcd, skipped, wait_until};
use gang_protocol::v1;

use crate::{Daemon, Options, Place, is_root};

/// Two daemons in one cluster over a real etcd. Each is in a mount namespace in which one CPU of
/// this machine is online.
pub struct TwoHosts<P> {
    pub a: P,
    pub b: P,
    pub etcd: Etcd,
    folder: tempfile::TempDir,
}

/// The differences of a host from its machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<'a> {
    /// Files that it sees in place of others: each with its text.
    pub files: &'a [(&'a str, &'a str)],
    /// More options of its daemon.
    pub flags: &'a [&'a str],
}

fn host(etcd: &Etcd, folder: &Path, name: &str, cpu: u32, own: Own<'_>) -> Daemon {
    let online = ("/sys/devices/system/cpu/online", &*format!("{cpu}\n"));
    let mut mount = String::new();
    for (place, text) in own.files.iter().chain([&online]) {
        // Two hosts may have the same name.
        let file = tempfile::Builder::new().prefix(name).tempfile_in(folder).unwrap();
        let (_, file) = file.keep().unwrap();
        fs::write(&file, text).unwrap();
        // As readable as what it stands for.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        mount += &format!("mount --bind {} {place} && ", file.display());
    }
    mount += "exec \"$@\"";
    let url = etcd.url();
    let configuration =
        format!("[cluster]\nname = \"lab\"\nendpoints = [\"{url}\"]\nhost = \"{name}\"\n");
    let options = Options {
        launcher: &["unshare", "-m", "sh", "-c", &mount, "sh"],
        configuration: &configuration,
        flags: &[&["--no-uncontended-passthrough"], own.flags].concat(),
    };
    Daemon::start_in(Place::new(), &options)
}

impl<P: Deref<Target = Daemon>> TwoHosts<P> {
    /// Hosts `a` and `b`, which are alive, each as the tests have its daemon. None, and says why,
    /// where this machine cannot have them.
    pub fn start(of: fn(Daemon) -> P) -> Option<TwoHosts<P>> {
        if !is_root() {
            return None;
        }
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        if !(online.starts_with("0-") || online.starts_with("0,1")) {
            skipped("needs CPUs 0 and 1");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let etcd = Etcd::start()?;
        let start = |name: &str, cpu| of(host(&etcd, folder.path(), name, cpu, Own::default()));
        let (a, b) = (start("a", 0), start("b", 1));
        let hosts = TwoHosts { a, b, etcd, folder };
        wait_until("etcd takes the cluster", || hosts.init().status.success());
        hosts.wait_for_hosts();
        Some(hosts)
    }

    /// A third host. Its CPU is that of the first one.
    pub fn third(&self, name: &str, own: Own<'_>) -> Daemon {
        host(&self.etcd, self.folder.path(), name, 0, own)
    }

    /// `gang cluster init` with the configuration of the first host.
    pub fn init(&self) -> Output {
        let mut gang = self.a.command(self.a.programs.join("gang"));
        gang.args(["cluster", "init", "--lost-after", "2s", "--config"]);
        gang.arg(self.a.path("gangd.toml")).output().unwrap()
    }

    /// Waits until both hosts are alive and take part.
    pub fn wait_for_hosts(&self) {
        wait_until("both hosts are alive", || {
            let cluster = self.a.client().cluster().unwrap().expect("it is in a cluster");
            let is_there = |host: &v1::Host| host.is_alive && host.unwilling.is_none();
            cluster.hosts.len() == 2 && cluster.hosts.iter().all(is_there)
        });
    }
}
