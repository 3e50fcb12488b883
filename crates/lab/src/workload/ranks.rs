//! Programs of MPICH with a rank for each CPU of several hosts, all of them on this machine.
//!
//! The launcher starts ranks on a host by an agent in the place of ssh, which gives their
//! surroundings the name of the host. Between hosts MPI sends by TCP, as between machines, and
//! within a host by memory. A program runs until it is dropped.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gang_linux::child::ends_with_its_parent;
use gang_linux::clock;
use gang_protocol::client::Registration;

use crate::harness::bed::{Bed, wait_until};
use crate::harness::compiled::compile_by;
use crate::harness::host::HostSpec;
use crate::harness::network::Network;

/// Two ranks that send a small message to and fro.
pub const PAIR: &str = include_str!("ranks/pair.c");

/// A code of hydrodynamics, whose argument is the side of its square of cells.
pub const HYDRO: &str = include_str!("ranks/hydro.c");
/// Two ranks that compute and send messages; they sleep while these travel.
pub const EXCHANGE: &str = include_str!("ranks/exchange.c");

/// All programs begin with it.
pub const PAGE_C: &str = include_str!("ranks/page.c");
const LAUNCHER: &str = "mpirun.mpich";
const COMPILER: (&str, &str) = ("mpicc.mpich", "the package libmpich-dev");

/// In the place of ssh: a host and what to run there.
const AGENT: &str = "while [ \"${1#-}\" != \"$1\" ]; do shift; done; host=$1; shift; \
                     exec unshare --uts sh -c \"hostname $host; $*\"\n";

/// The page of a program, in bytes.
const PAGE: u64 = 4096;

/// Says what such programs need and this machine does not have.
pub fn needs() -> Result<()> {
    for (program, package) in [(LAUNCHER, "the package mpich"), COMPILER] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        ensure!(version.is_ok(), "there is no {program}: install {package}");
    }
    Ok(())
}

/// Compiles a program into `dir`.
pub fn compile(dir: &Path, name: &str, source: &str) -> Result<PathBuf> {
    compile_by(COMPILER, dir, name, &format!("{PAGE_C}\n{source}"), &["-lm"])
}

/// How programs are started.
pub struct Launch<'a> {
    /// Hosts with equally many CPUs.
    pub specs: &'a [HostSpec],
    /// For scripts, pages and what the launcher says.
    pub dir: &'a Path,
    /// Absent where the machine's own loopback connects the ranks.
    pub network: Option<&'a Network>,
}

/// The ranks of a program. They end with this.
pub struct Ranks {
    launcher: Child,
    page: File,
    log: PathBuf,
    ranks: usize,
    per_host: usize,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        for rank in 0..self.ranks {
            if let Ok(Some(pid)) = self.process(rank).map(pid_of) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn pid_of(pid: i64) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)
}

impl Launch<'_> {
    /// Starts a program, and waits until it has made its first step.
    pub fn start(&self, name: &str, program: &Path, arguments: &str) -> Result<Ranks> {
        let page = self.dir.join(name);
        let file = File::options().create(true).read(true).write(true).truncate(true).open(&page);
        let file = file.context("making a program's page")?;
        file.set_len(PAGE).context("making a program's page")?;
        let cpus = |spec: &HostSpec| format!("{}) cpus={};;", spec.name, spec.cpu_list());
        let cpus: Vec<String> = self.specs.iter().map(cpus).collect();
        let rank = format!(
            "ulimit -t 900; case $(hostname) in {} esac; exec taskset -c $cpus {} {} {arguments}\n",
            cpus.join(" "),
            program.display(),
            page.display()
        );
        let agent = script(&self.dir.join("agent"), AGENT)?;
        let rank = script(&self.dir.join(format!("{name}.sh")), &rank)?;
        let log = self.dir.join(format!("{name}.log"));
        let errors = File::create(&log).context("making a launcher's log")?;
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let per_host = self.specs.first().map_or(0, |spec| spec.cpus.len());
        let ranks = per_host * self.specs.len();
        let mut command = match self.network {
            Some(network) => network.program(LAUNCHER),
            None => Command::new(LAUNCHER),
        };
        // The name of this machine may lead to a network that the ranks do not have.
        command.args(["-localhost", "127.0.0.1"]);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(agent);
        command.args(["-hosts", &names.join(","), "-ppn", &per_host.to_string()]);
        command.args(["-n", &ranks.to_string()]).arg(rank);
        // Both libraries under MPICH would find the memory that ranks of two hosts share.
        command.envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo"), ("FI_PROVIDER", "tcp")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let launcher = ends_with_its_parent(&mut command).spawn().context("starting MPI")?;
        let mut started = Ranks { launcher, page: file, log, ranks, per_host };
        wait_until("a program of MPI makes its first step", || {
            started.still_runs()?;
            Ok(started.steps()? > 0)
        })?;
        Ok(started)
    }
}

impl Ranks {
    fn still_runs(&mut self) -> Result<()> {
        let Some(status) = self.launcher.try_wait().context("waiting for MPI")? else {
            return Ok(());
        };
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        anyhow::bail!("{LAUNCHER} ended with {status}: {}", said.trim())
    }

    fn number(&self, at: usize) -> Result<i64> {
        let mut bytes = [0; 8];
        self.page.read_exact_at(&mut bytes, 8 * at as u64).context("reading a program's page")?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// How far the program is.
    pub fn steps(&self) -> Result<i64> {
        self.number(0)
    }

    /// The CPU time that all ranks had.
    fn cpu_ns(&self) -> Result<u64> {
        let of_rank = |rank| {
            let pid = u32::try_from(self.process(rank)?).context("reading a program's page")?;
            Ok(clock::cpu_ns_of(pid)?)
        };
        (0..self.ranks).map(of_rank).sum()
    }

    fn process(&self, rank: usize) -> Result<i64> {
        self.number(1 + rank)
    }

    /// Makes the ranks a job of all hosts; returns once it has had slots on each of them.
    pub fn register(&self, bed: &Bed, name: &str) -> Result<i64> {
        let mut clients = bed.clients()?;
        // A job of one host has no entries in the matrix.
        let id = match &mut clients[..] {
            [only] => only.register(&Registration::new(name, self.per_host as i64))?,
            several => several[0].register_spanning(bed.spanning(name, 100))?.job,
        };
        let is_spanning = clients.len() > 1;
        for (host, client) in clients.iter_mut().enumerate() {
            if is_spanning {
                client.job_here(id)?;
            }
            for rank in host * self.per_host..(host + 1) * self.per_host {
                client.add_process(id, self.process(rank)?)?;
            }
        }
        wait_until("the ranks have slots on each host", || {
            let slots = |host: usize| Ok(bed.client(host)?.show_job(id)?.details.slots);
            let all: Vec<i64> = bed.each().map(slots).collect::<Result<_>>()?;
            Ok(all.iter().all(|&slots| slots > 0))
        })?;
        Ok(id)
    }
}

fn script(path: &Path, text: &str) -> Result<PathBuf> {
    let made = fs::write(path, format!("#!/bin/sh\n{text}"));
    let made = made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    made.with_context(|| format!("writing {}", path.display()))?;
    Ok(path.to_owned())
}

/// How far programs came in a time.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// The steps of all of them.
    pub steps_per_s: f64,
    /// CPU time of all ranks over the time.
    pub cpus: f64,
}

/// How far all programs come while `meanwhile` goes on, and what that returned.
pub fn come_during<T>(
    programs: &[Ranks],
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(Came, T)> {
    let look = || -> Result<(Instant, i64, u64)> {
        let steps = programs.iter().map(Ranks::steps).sum::<Result<_>>()?;
        let cpu_ns = programs.iter().map(Ranks::cpu_ns).sum::<Result<_>>()?;
        Ok((Instant::now(), steps, cpu_ns))
    };
    let (began, steps, cpu_ns) = look()?;
    let returned = meanwhile()?;
    let (ended, steps_then, cpu_ns_then) = look()?;
    let length = ended - began;
    let came = Came {
        steps_per_s: (steps_then - steps) as f64 / length.as_secs_f64(),
        cpus: (cpu_ns_then - cpu_ns) as f64 / length.as_nanos() as f64,
    };
    Ok((came, returned))
}

/// How far all programs come in so long a time.
pub fn come_in(programs: &[Ranks], length: Duration) -> Result<Came> {
    let wait = || {
        std::thread::sleep(length);
        Ok(())
    };
    Ok(come_during(programs, wait)?.0)
}
