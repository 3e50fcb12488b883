//! A real etcd for a test.

use std::{
    ffi::OsString,
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::skipped;

/// A real etcd on loopback, with a directory of its own; it ends with the test.
pub struct Etcd {
    child: Child,
    folder: TempDir,
    /// For clients, and for other members.
    ports: [u16; 2],
    options: Vec<OsString>,
}

fn scheme(options: &[OsString]) -> &'static str {
    if options.iter().any(|option| option == "--cert-file") { "https" } else { "http" }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

impl Etcd {
    /// Starts one; none where there is no etcd on this machine, which it says.
    pub fn start() -> Option<Etcd> {
        Etcd::with(Vec::new())
    }

    /// The same with more options. It has a certificate where they name one (`--cert-file`).
    pub fn with(options: Vec<OsString>) -> Option<Etcd> {
        let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            skipped("there is no etcd: install etcd-server");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let ports = [free_port(), free_port()];
        let child = Etcd::spawn(&folder, ports, &options);
        Some(Etcd { child, folder, ports, options })
    }

    fn spawn(folder: &TempDir, [client, peer]: [u16; 2], options: &[OsString]) -> Child {
        let scheme = scheme(options);
        let (client, peer) =
            (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        Command::new("etcd")
            .args(["--name", "one", "--unsafe-no-fsync", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .arg("--data-dir")
            .arg(folder.path())
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts")
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", scheme(&self.options), self.ports[0])
    }

    /// Kills it; what it has on disk stays.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn start_again(&mut self) {
        self.child = Etcd::spawn(&self.folder, self.ports, &self.options);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}
