//! A lab that is killed leaves nothing running: neither the programs that it started, of whatever
//! kind, nor its daemons.

mod lab;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gang_harness::{skipped, wait_for, wait_until};
use gang_linux::process::stat;
use lab::gangd_is_there;

/// A process that runs: its number, and when it started, which distinguishes it from another of
/// that number.
type Process = (u32, u64);

/// All processes below one, by their names.
fn below(root: u32) -> BTreeMap<Process, String> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<_> =
        numbers.filter_map(|pid| Some((pid, stat(Path::new("/proc"), pid).ok()?))).collect();
    let mut found = BTreeMap::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            found.insert((*pid, stat.start_ticks), name.trim().to_owned());
            parents.push(*pid);
        }
    }
    found
}

fn runs(&(pid, start_ticks): &Process) -> bool {
    stat(Path::new("/proc"), pid)
        .is_ok_and(|stat| stat.start_ticks == start_ticks && stat.state != b'Z')
}

/// A lab with a place for its temporary files, which a killed one leaves behind.
struct Lab {
    child: Child,
    dir: tempfile::TempDir,
}

impl Lab {
    fn start(arguments: &str) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let said = fs::File::create(dir.path().join("said")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gang-lab"))
            .args(arguments.split(' '))
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        Lab { child, dir }
    }

    /// Waits until so many programs of these names run below it; where it ends before, what it
    /// said.
    fn until_there(
        &mut self,
        names: &[(&str, usize)],
    ) -> Result<BTreeMap<Process, String>, String> {
        wait_for(&format!("{names:?} below the lab"), || {
            let there = below(self.child.id());
            let count = |name: &str| there.values().filter(|it| *it == name).count();
            if names.iter().all(|&(name, least)| count(name) >= least) {
                return Some(Ok(there));
            }
            let has_ended = self.child.try_wait().unwrap().is_some();
            has_ended.then(|| Err(fs::read_to_string(self.dir.path().join("said")).unwrap()))
        })
    }

    /// Kills it, and waits until all of those have ended.
    fn kill(mut self, there: &BTreeMap<Process, String>) {
        let of_daemons: Vec<PathBuf> =
            there.keys().filter_map(|(pid, _)| runtime_dir(*pid)).collect();
        let of_ranks: Vec<PathBuf> = there.keys().flat_map(|(pid, _)| shared(*pid)).collect();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        wait_until(&format!("none outlives the lab, of {there:?}"), || !there.keys().any(runs));
        for place in of_daemons {
            let _ = fs::remove_dir_all(place);
        }
        for file in of_ranks {
            let _ = fs::remove_file(file);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of the lab's that a daemon has its socket in, etcd its data, or a rank its page.
fn runtime_dir(pid: u32) -> Option<PathBuf> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let is_the_labs = |dir: &&Path| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("gang-lab-"))
    };
    line.split('\0')
        .find_map(|word| Path::new(word).ancestors().find(is_the_labs).map(Path::to_owned))
}

/// The memory that ranks share as files, which Open MPI leaves behind where it is killed.
fn shared(pid: u32) -> Vec<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    files.filter(|file| file.starts_with("/dev/shm/vader_segment.")).map(PathBuf::from).collect()
}

#[test]
fn workloads_and_redis_end_with_a_killed_lab() {
    let holes = "holes --plain --noisy --runs 1 --seconds 40 --instances 1";
    let mut lab = Lab::start(holes);
    if !Command::new("redis-server").arg("--version").output().is_ok_and(|it| it.status.success()) {
        skipped("there is no redis-server");
        let there = lab.until_there(&[("gang-lab", 1)]).unwrap();
        return lab.kill(&there);
    }
    let there = lab.until_there(&[("gang-lab", 1), ("redis-server", 1)]).unwrap();
    lab.kill(&there);
}

#[test]
fn interpreter_ends_with_killed_lab_needs_a_library() {
    let users = "users --plain --noisy --runs 1 --times 1000000 --time-limit 600s";
    let mut lab = Lab::start(users);
    match lab.until_there(&[("python3", 1)]) {
        Ok(there) => lab.kill(&there),
        Err(said) => {
            assert!(said.contains("nothing to run"), "{said}");
            skipped(said);
        }
    }
}

#[test]
fn gangs_and_daemon_end_with_killed_lab_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    for backend in ["rt", "signal"] {
        let idle = format!("idle --noisy --runs 1 --seconds 600 --jobs 3 --backend {backend}");
        let mut lab = Lab::start(&idle);
        match lab.until_there(&[("gangd", 1), ("gang-lab", 5)]) {
            Ok(there) => lab.kill(&there),
            Err(said) => skipped(format!("backend {backend}: {said}")),
        }
    }
}

#[test]
fn ranks_end_with_lab_needs_gangd_and_open_mpi() {
    if !gangd_is_there() {
        return;
    }
    let mut lab = Lab::start("doctor --noisy --runs 1 --seconds 20 --only MPI");
    match lab.until_there(&[("gangd", 1), ("exchange", 2)]) {
        Ok(there) => lab.kill(&there),
        Err(said) => {
            assert!(said.contains("Open MPI: "), "{said}");
            skipped(said);
        }
    }
}

#[test]
fn needs_root_attacks_and_victims_end_with_lab() {
    if !gangd_is_there() {
        return;
    }
    for (attack, names) in [
        ("threads", [("gangd", 1), ("gang-lab", 5)].as_slice()),
        ("policies", &[("gangd", 1), ("gang-lab", 4), ("sh", 8)]),
    ] {
        // The attack comes after as long without it.
        let mut lab =
            Lab::start(&format!("hostile --noisy --runs 1 --seconds 10 --attack {attack}"));
        let there = lab.until_there(names).unwrap_or_else(|said| panic!("{said}"));
        lab.kill(&there);
    }
}

#[test]
fn needs_root_hosts_and_etcd_end_with_a_killed_lab() {
    if !gangd_is_there() {
        return;
    }
    let mut lab = Lab::start("hosts --noisy --runs 1 --only switches --seconds 120");
    match lab.until_there(&[("etcd", 1), ("gangd", 2), ("sh", 4)]) {
        Ok(there) => lab.kill(&there),
        Err(said) => {
            let reasons = ["install etcd-server", "needs a CPU"];
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
            skipped(said);
        }
    }
}

#[test]
fn needs_root_ranks_in_network_end_with_killed_lab() {
    if !gangd_is_there() {
        return;
    }
    let mut lab = Lab::start("slow-network --noisy --runs 1 --jobs 2 --seconds 60");
    match lab.until_there(&[("sleep", 1), ("exchange", 2)]) {
        Ok(there) => lab.kill(&there),
        Err(said) => {
            let reasons = ["install ", "needs a CPU", "no network could be made"];
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
            skipped(said);
        }
    }
}
