//! What the lab reads about processes from procfs. The root is an argument, so tests bring theirs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The numbers of `sched_setscheduler(2)` for policies of ordinary threads.
const SCHED_OTHER: u32 = 0;
const SCHED_BATCH: u32 = 3;

/// State and policy of one thread, from its `stat` (proc_pid_stat(5), fields 3 and 41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStat {
    pub state: char,
    pub policy: u32,
}

/// Reads one `stat` file. A command may contain blanks and parentheses, so fields are counted from
/// the last closing one.
pub fn parse_stat(text: &str) -> Option<ThreadStat> {
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let policy = fields.nth(41 - 4)?.parse().ok()?;
    Some(ThreadStat { state, policy })
}

/// How many threads of the processes given are not as they were before a scheduler came: of
/// another policy than the ordinary ones, or stopped.
pub fn held_threads(root: &Path, pids: &[i32]) -> usize {
    let mut held = 0;
    for pid in pids {
        let Ok(tasks) = fs::read_dir(root.join(pid.to_string()).join("task")) else { continue };
        for task in tasks.flatten() {
            // A thread that is gone is held by nobody.
            let Ok(text) = fs::read_to_string(task.path().join("stat")) else { continue };
            let Some(stat) = parse_stat(&text) else { continue };
            let ordinary = matches!(stat.policy, SCHED_OTHER | SCHED_BATCH);
            held += usize::from(!ordinary || stat.state == 'T');
        }
    }
    held
}

/// CPU time of a process with all its threads, in nanoseconds, from their `schedstat`.
///
/// Threads that have ended no longer count, so this suits processes whose threads stay.
pub fn cpu_ns(root: &Path, pid: i32) -> Result<u64> {
    let dir = root.join(pid.to_string()).join("task");
    let mut sum = 0;
    for task in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = task.with_context(|| format!("reading {}", dir.display()))?.path();
        let path = path.join("schedstat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let ns = text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        sum += ns.with_context(|| format!("{} does not begin with a number", path.display()))?;
    }
    Ok(sum)
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
            assert_eq!(stat, Some(ThreadStat { state: 'S', policy: 1 }), "{command}");
        }
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (a) R 1"), None);
    }

    #[test]
    fn own_threads_are_ordinary() {
        let me = std::process::id() as i32;
        assert_eq!(held_threads(Path::new("/proc"), &[me]), 0);
        let text = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parse_stat(&text).unwrap().policy, SCHED_OTHER);
    }

    #[test]
    fn held_threads_are_counted_over_processes() {
        let root = tempfile::tempdir().unwrap();
        for (pid, tid, state, policy) in
            [(1, 1, 'R', 1), (1, 2, 'R', 0), (1, 3, 'T', 0), (2, 2, 'S', 5), (3, 3, 'S', 3)]
        {
            let dir = root.path().join(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), line("x", state, policy)).unwrap();
        }
        assert_eq!(held_threads(root.path(), &[1, 2, 3, 4]), 3);
    }

    #[test]
    fn cpu_time_adds_up_over_threads() {
        let root = tempfile::tempdir().unwrap();
        for (tid, ns) in [(5, "1500 0 3\n"), (6, "500 9 1\n")] {
            let dir = root.path().join(format!("5/task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("schedstat"), ns).unwrap();
        }
        assert_eq!(cpu_ns(root.path(), 5).unwrap(), 2000);
        assert!(cpu_ns(root.path(), 9).is_err());
    }
}
