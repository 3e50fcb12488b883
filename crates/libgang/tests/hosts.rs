//! Programs on several hosts of a cluster: ranks of MPI by the preload library, and those that use
//! the interfaces of C themselves.

mod place;

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use gang_daemon::{Program, TwoHosts, are_built};
use gang_harness::{skipped, wait_until};
use gang_protocol::v1;
use place::{Place, here, linked};

/// The end of programs that hang, s.
const BOUND: &str = "170";

type Hosts = TwoHosts<Place>;

fn hosts() -> Option<Hosts> {
    if !are_built(&["libgang.a", "gangd", "gang"]) {
        return None;
    }
    TwoHosts::start(Place::of)
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn script(place: &Place, name: &str, text: &str) -> String {
    let path = place.path(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The line that starts two ranks, one on each host, by the agent.
fn launch(mpi: &str, agent: &str) -> Vec<String> {
    let line: &[&str] = match mpi {
        "openmpi" => &[
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--host",
            "a:1,b:1",
            "--map-by",
            "node",
            "--bind-to",
            "none",
            "--mca",
            "plm_rsh_agent",
            agent,
            "--mca",
            "btl_tcp_if_include",
            "lo",
            "--mca",
            "oob_tcp_if_include",
            "lo",
        ],
        _ => &[
            "mpirun.mpich",
            "-launcher",
            "ssh",
            "-launcher-exec",
            agent,
            "-hosts",
            "a,b",
            "-ppn",
            "1",
        ],
    };
    line.iter().map(|word| word.to_string()).collect()
}

fn jobs(place: &Place) -> Vec<v1::SpanningJob> {
    place.client().cluster().unwrap().expect("it is in a cluster").jobs
}

#[test]
fn needs_root_ranks_on_two_hosts_are_one_job() {
    let Some(hosts) = hosts() else { return };
    // The remote shell of both launchers: here it gives the host its name.
    let agent = "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\n\
                 exec unshare --uts sh -c \"hostname $host; $*\"\n";
    let agent = script(&hosts.a, "agent", agent);
    let library = linked(&hosts.a.path("libgang.a")).join("libgang-preload.so");
    for mpi in ["openmpi", "mpich"] {
        let compiler = format!("mpicc.{mpi}");
        if !has(&format!("mpirun.{mpi}")) || !has(&compiler) {
            skipped(format!("mpirun.{mpi} or {compiler} is not here"));
            continue;
        }
        let program = hosts.a.path(mpi);
        let source = here().join("tests/spread.c");
        let compiled = Command::new(compiler).arg(source).arg("-o").arg(&program).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        // A launcher hands its own environment on: each rank is to ask the daemon of its host. It
        // is bound to a CPU, as launchers do it.
        let rank = format!(
            "case $(hostname) in a) socket={} cpu=0;; *) socket={} cpu=1;; esac\n\
             export GANG_SOCKET=$socket GANG=1 GANG_NAME=spread\n\
             exec timeout {BOUND} taskset -c $cpu env LD_PRELOAD={} {}\n",
            hosts.a.socket().display(),
            hosts.b.socket().display(),
            library.display(),
            program.display(),
        );
        let rank = script(&hosts.a, &format!("rank-{mpi}"), &rank);
        let line = launch(mpi, &agent);
        let mut launcher = Command::new("timeout");
        launcher.arg(BOUND).args(line).args(["-n", "2", &rank]);
        let mut ranks = Program::start(&mut launcher);
        let mut seen = None;
        wait_until("the ranks are one job, and have slots", || {
            let ended = ranks.0.try_wait().unwrap();
            assert!(ended.is_none(), "{mpi}: {ended:?}");
            let Some(job) = jobs(&hosts.a).pop() else { return false };
            let has_slots =
                |place: &Place| place.client().job_here(job.id).is_ok_and(|part| part.slots > 3);
            let is_there = job.awaited.is_empty() && has_slots(&hosts.a) && has_slots(&hosts.b);
            seen = Some(job);
            is_there
        });
        let job = seen.unwrap();
        let on: Vec<_> = job.cpus.iter().map(|of| (of.host.as_str(), of.cpus, of.ranks)).collect();
        assert_eq!((job.name.as_str(), on), ("spread", vec![("a", 1, Some(1)), ("b", 1, Some(1))]));
        // Each is bound to the CPU of its host.
        let bound: Vec<_> = job.cpus.iter().map(|of| of.allowed.clone().unwrap()).collect();
        assert_eq!(bound, [[0], [1]]);
        // With the job, its launcher ends.
        hosts.b.client().kill(job.id, 15).unwrap();
        wait_until("the launcher has ended", || ranks.0.try_wait().unwrap().is_some());
        wait_until("the cluster forgets the job", || jobs(&hosts.a).is_empty());
    }
}

#[test]
fn needs_root_llnl_job_on_two_computers() {
    let Some(hosts) = hosts() else { return };
    let source = here().join("tests/computers.c");
    let program = hosts.a.compile("gcc", &source, &["-lgang"], "computers");
    let mut parent = Program::start(hosts.a.bounded(&program).arg("a").arg("b"));
    let mut seen = None;
    wait_until("the job has its second class", || {
        seen = jobs(&hosts.a).pop();
        seen.as_ref().is_some_and(|job| job.class == v1::Class::interactive)
    });
    let job = seen.unwrap();
    assert_eq!(job.cpus.len(), 2);
    // Its other process, which has the id from the first one.
    let library = hosts.a.path("libgang.so.1");
    fs::copy(&library, hosts.b.path("libgang.so.1")).unwrap();
    let id = job.id.to_string();
    let mut part = Program::start(hosts.b.bounded(&program).args(["--join", &id]));
    for place in [&hosts.a, &hosts.b] {
        wait_until("slots", || place.client().job_here(job.id).unwrap().slots > 3);
    }
    hosts.a.client().kill(job.id, 15).unwrap();
    for child in [&mut parent, &mut part] {
        wait_until("its processes have ended", || child.0.try_wait().unwrap().is_some());
    }
}
