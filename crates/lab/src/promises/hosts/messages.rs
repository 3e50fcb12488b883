//! Pairs of MPI's ranks that send a message to and fro, one rank on each host.
//!
//! The launcher starts a rank on a host by an agent in the place of ssh, which gives the rank's
//! surroundings the name of the host, and MPI sends by TCP, as between machines.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gang_linux::child::ends_with_its_parent;

use super::SAMPLES;
use super::bed::{Bed, HOSTS, spanning, wait_until};
use crate::harness::compiled::compile_by;
use crate::harness::lab::Lab;
use crate::harness::samples::{Figures, Sample};

/// The rate of two pairs that share the hosts, over that of one alone: as gangs, by Linux alone.
pub const GANGS: &str = "gangs_over_one";
pub const LINUX: &str = "linux_over_one";

const LAUNCHER: &str = "mpirun.mpich";
const COMPILER: (&str, &str) = ("mpicc.mpich", "the package libmpich-dev");

/// Takes a file: 8 bytes of rounds so far, then the process of each rank.
const PROGRAM: &str = "\
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, other;
    char message[8] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    int file = open(argv[1], O_RDWR);
    volatile int64_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    page[1 + rank] = getpid();
    for (;;) {
        if (rank == 0)
            MPI_Send(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD);
        MPI_Recv(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(message, 8, MPI_CHAR, other, 0, MPI_COMM_WORLD);
        else
            page[0]++;
    }
}
";

/// In the place of ssh: a host and what to run there.
const AGENT: &str = "while [ \"${1#-}\" != \"$1\" ]; do shift; done; host=$1; shift; \
                     exec unshare --uts sh -c \"hostname $host; $*\"\n";

/// The pages of rounds and processes.
const PAGE: u64 = 4096;

/// Says what the experiment needs and this machine does not have.
pub fn needs() -> Result<()> {
    for (program, package) in [(LAUNCHER, "the package mpich"), COMPILER] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        ensure!(version.is_ok(), "there is no {program}: install {package}");
    }
    Ok(())
}

/// Two ranks. They end with this.
struct Pair {
    launcher: Child,
    page: File,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        for rank in 1..=HOSTS.len() {
            if let Ok(Some(pid)) = self.number(rank).map(rank_of) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn rank_of(pid: i64) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)
}

impl Pair {
    fn start(bed: &Bed, dir: &Path, name: &str, program: &Path) -> Result<Pair> {
        let page = dir.join(name);
        let file = File::options().create(true).read(true).write(true).truncate(true).open(&page);
        let file = file.context("making a page of rounds")?;
        file.set_len(PAGE).context("making a page of rounds")?;
        let cpus: Vec<String> =
            bed.cpus().iter().map(|(host, cpu)| format!("{host}) cpu={cpu};;")).collect();
        let rank = format!(
            "ulimit -t 900; case $(hostname) in {} esac; exec taskset -c $cpu {} {}\n",
            cpus.join(" "),
            program.display(),
            page.display()
        );
        let agent = script(&dir.join("agent"), AGENT)?;
        let rank = script(&dir.join(format!("{name}.sh")), &rank)?;
        let mut command = Command::new(LAUNCHER);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(agent);
        command.args(["-hosts", &HOSTS.join(","), "-ppn", "1", "-n", "2"]).arg(rank);
        // Both libraries under MPICH would find the memory that both ranks share.
        command.envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo"), ("FI_PROVIDER", "tcp")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let launcher = ends_with_its_parent(&mut command).spawn().context("starting MPI")?;
        let pair = Pair { launcher, page: file };
        wait_until("the ranks send messages", || Ok(pair.rounds()? > 0))?;
        Ok(pair)
    }

    fn number(&self, at: usize) -> Result<i64> {
        let mut bytes = [0; 8];
        self.page.read_exact_at(&mut bytes, 8 * at as u64).context("reading a page of rounds")?;
        Ok(i64::from_ne_bytes(bytes))
    }

    fn rounds(&self) -> Result<i64> {
        self.number(0)
    }

    /// Makes the ranks a job that spans the hosts.
    fn register(&self, bed: &Bed, name: &str) -> Result<i64> {
        let mut clients = bed.clients()?;
        let id = clients[0].register_spanning(spanning(name, 100))?.job;
        for (rank, client) in clients.iter_mut().enumerate() {
            client.job_here(id)?;
            client.add_process(id, self.number(1 + rank)?)?;
        }
        wait_until("the ranks have slots on each host", || {
            let slots = |host: usize| Ok(bed.client(host)?.show_job(id)?.details.slots);
            let all: Vec<i64> = (0..HOSTS.len()).map(slots).collect::<Result<_>>()?;
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

/// The rounds of all pairs in a second.
fn rate(pairs: &[&Pair], length: Duration) -> Result<f64> {
    let rounds = || pairs.iter().map(|pair| pair.rounds()).sum::<Result<i64>>();
    let before = rounds()?;
    std::thread::sleep(length);
    Ok((rounds()? - before) as f64 / length.as_secs_f64())
}

/// Two pairs by Linux alone, one as a gang, and two as gangs.
pub fn messages(lab: &Lab, length: Duration) -> Result<Sample> {
    let bed = Bed::start(lab)?;
    let dir = bed.dir();
    let program = compile_by(COMPILER, dir, "pairs", PROGRAM, &[])?;
    let first = Pair::start(&bed, dir, "one", &program)?;
    let second = Pair::start(&bed, dir, "other", &program)?;
    let linux = rate(&[&first, &second], length)?;
    drop(second);
    first.register(&bed, "one")?;
    let alone = rate(&[&first], length)?;
    let second = Pair::start(&bed, dir, "another", &program)?;
    second.register(&bed, "other")?;
    bed.settle(0.5)?;
    let gangs = rate(&[&first, &second], length)?;
    ensure!(alone > 0.0, "one pair alone sends no message");
    Ok(bed.sample()?.with_all(Figures::from([
        (SAMPLES, gangs * length.as_secs_f64()),
        ("alone_per_s", alone),
        ("gangs_per_s", gangs),
        ("linux_per_s", linux),
        (GANGS, gangs / alone),
        (LINUX, linux / alone),
    ])))
}
