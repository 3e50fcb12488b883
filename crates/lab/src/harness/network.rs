//! A network of its own for programs of the lab: a network namespace whose loopback is as slow as
//! it is told to be.
//!
//! The namespace and its queue are there for as long as something runs in it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use gang_linux::child::ends_with_its_parent;

/// Makes the network and stays in it. A packet has the size that it has on an Ethernet.
const SCRIPT: &str = "ip link set lo mtu 1500 up && \
                      tc qdisc add dev lo root tbf rate \"$1\" burst 16kb limit 8mb && \
                      echo ready && exec sleep infinity";

/// It ends when this is dropped and no program is left in it.
pub struct Network(Child);

/// Says what such a network needs and this machine does not have.
pub fn needs() -> Result<()> {
    for (program, version, package) in
        [("tc", "-V", "iproute2"), ("ip", "-V", "iproute2"), ("nsenter", "--version", "util-linux")]
    {
        let version = Command::new(program).arg(version).stdout(Stdio::null()).status();
        ensure!(version.is_ok(), "there is no {program}: install {package}");
    }
    Ok(())
}

impl Network {
    /// A network that carries so many megabits a second, in both directions together.
    pub fn slow(mbit_per_s: u32) -> Result<Network> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", SCRIPT, "sh", &format!("{mbit_per_s}mbit")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = ends_with_its_parent(&mut command).spawn().context("making a network")?;
        let mut network = Network(child);
        let mut said = String::new();
        let out = network.0.stdout.take().context("making a network")?;
        BufReader::new(out).read_line(&mut said).context("making a network")?;
        if said != "ready\n" {
            let mut why = String::new();
            let errors = network.0.stderr.take().context("making a network")?;
            BufReader::new(errors).read_to_string(&mut why).context("making a network")?;
            anyhow::bail!("no network could be made that is slow: {}", why.trim());
        }
        Ok(network)
    }

    /// A program that has no other network.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(program);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
