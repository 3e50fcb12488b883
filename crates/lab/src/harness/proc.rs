//! The lab's reads of processes from procfs. The root is an argument, so tests bring theirs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gang_linux::process::read_lossy;

/// The number of `sched_setscheduler(2)` for the policy of the lab's programs, which no daemon has
/// changed.
const SCHED_OTHER: u32 = 0;

/// State, nice value and policy of one thread, from its `stat` (proc_pid_stat(5), fields 3, 19 and
/// 41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStat {
    pub state: char,
    pub nice: i32,
    pub policy: u32,
}

/// Reads one `stat` file. A command may contain blanks and parentheses, so fields are counted from
/// the last closing one.
pub fn parse_stat(text: &str) -> Option<ThreadStat> {
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let nice = fields.nth(19 - 4)?.parse().ok()?;
    let policy = fields.nth(41 - 20)?.parse().ok()?;
    Some(ThreadStat { state, nice, policy })
}

/// How many threads of the processes given are not as those of a process that no scheduler has: of
/// another policy than the usual one, of another nice value, kept to other CPUs, or stopped.
///
/// A process with a group of its own, gangd's, is not seen here: in it, ordinary threads may give
/// way to others.
pub fn held_threads(root: &Path, pids: &[i32], free: i32) -> usize {
    let read = |path: &Path| {
        let stat = parse_stat(&read_lossy(&path.join("stat")).ok()?)?;
        let status = read_lossy(&path.join("status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
        Some((stat, cpus.trim().to_owned()))
    };
    let Some((normal, anywhere)) = read(&root.join(free.to_string())) else { return usize::MAX };
    let mut held = 0;
    for pid in pids {
        let Ok(tasks) = fs::read_dir(root.join(pid.to_string()).join("task")) else { continue };
        for task in tasks.flatten() {
            // A thread that is gone is held by nobody.
            let Some((stat, cpus)) = read(&task.path()) else { continue };
            let ordinary = stat.policy == SCHED_OTHER && stat.nice == normal.nice;
            held += usize::from(!ordinary || stat.state == 'T' || cpus != anywhere);
        }
    }
    held
}

/// The memory of a process that is in use (VmRSS).
pub fn memory_mib(root: &Path, pid: i32) -> Result<f64> {
    let path = root.join(pid.to_string()).join("status");
    let text = read_lossy(&path).with_context(|| format!("reading {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{} has no VmRSS", path.display()))? / 1024.0)
}

/// The CPU time of a thread of a process, by the name of the thread (proc_pid_schedstat(5)); none
/// where the kernel does not count it.
pub fn cpu_ns_of_thread(root: &Path, pid: i32, name: &str) -> Option<u64> {
    let tasks = fs::read_dir(root.join(pid.to_string()).join("task")).ok()?;
    let is_it = |task: &Path| read_lossy(&task.join("comm")).is_ok_and(|it| it.trim() == name);
    let task = tasks.flatten().map(|task| task.path()).find(|task| is_it(task))?;
    let times = read_lossy(&task.join("schedstat")).ok()?;
    times.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str, state: char, policy: u32) -> String {
        let middle = "1 ".repeat(37);
        format!("7 ({command}) {state} {middle}{policy} 0 0 0\n")
    }

    #[test]
    fn state_and_policy_of_awkward_commands() {
        for command in ["a", "a b", "x) R 1 2", "(("] {
            let stat = parse_stat(&line(command, 'S', 1));
            assert_eq!(stat, Some(ThreadStat { state: 'S', nice: 1, policy: 1 }), "{command}");
        }
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (a) R 1"), None);
    }

    #[test]
    fn threads_of_a_program_are_ordinary() {
        // Other tests of this process bind their threads.
        let mut program = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = program.id() as i32;
        let held = held_threads(Path::new("/proc"), &[pid], pid);
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(held, 0);
        let text = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parse_stat(&text).unwrap().policy, SCHED_OTHER);
    }

    #[test]
    fn memory_and_threads_of_a_process() {
        let root = tempfile::tempdir().unwrap();
        for (task, name, times) in [("7", "gangd", "10 1 1"), ("8", "conductor", "20 3 4")] {
            let dir = root.path().join("7/task").join(task);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
            fs::write(dir.join("schedstat"), format!("{times}\n")).unwrap();
        }
        fs::write(root.path().join("7/status"), "Name:\tx\nVmRSS:\t    2048 kB\n").unwrap();
        assert_eq!(memory_mib(root.path(), 7).unwrap(), 2.0);
        assert_eq!(cpu_ns_of_thread(root.path(), 7, "conductor"), Some(20));
        assert_eq!(cpu_ns_of_thread(root.path(), 7, "nobody"), None);
        assert!(memory_mib(root.path(), 8).unwrap_err().to_string().contains("8/status"));
    }

    #[test]
    fn held_threads_are_counted_over_processes() {
        let root = tempfile::tempdir().unwrap();
        let thread = |at: &str, state, policy, cpus: &str| {
            let dir = root.path().join(at);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), line("x", state, policy)).unwrap();
            fs::write(dir.join("status"), format!("Name:\tx\nCpus_allowed:\t{cpus}\n")).unwrap();
        };
        for (at, state, policy, cpus) in [
            ("1/task/1", 'R', 1, "3"),
            ("1/task/2", 'R', 0, "3"),
            ("1/task/3", 'T', 0, "3"),
            ("2/task/2", 'S', 5, "3"),
            ("3/task/3", 'S', 3, "3"),
            ("3/task/4", 'S', 0, "1"),
        ] {
            thread(at, state, policy, cpus);
        }
        assert_eq!(held_threads(root.path(), &[1, 2, 3, 4], 9), usize::MAX, "nobody is as usual");
        thread("9", 'S', 0, "3");
        assert_eq!(held_threads(root.path(), &[1, 2, 3, 4], 9), 5);
    }
}
