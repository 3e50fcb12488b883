//! The competitors for the CPUs, by name: the processes of others that used the most of them while
//! the program was watched.

use std::{collections::BTreeMap, path::Path, time::Instant};

use anyhow::{Context, Result};
use gang_linux::{cgroup::Group, error::unless_gone, process};
use serde::Serialize;

/// So many are named.
const NAMED: usize = 3;

/// A process that used less of a CPU is no competitor.
const LEAST: f64 = 0.05;

/// The kernel counts CPU time in ticks of 10 ms (proc(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// A process of others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Competitor {
    pub pid: u32,
    /// Its name, as `ps` has it.
    pub name: String,
    /// CPUs that it used on average.
    pub cpus: f64,
}

/// The CPU time of a process, with its start, by which it is known from another one of its number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Used {
    start_ticks: u64,
    cpu_ticks: u64,
}

/// Processes as they were when the program began to be watched.
pub struct Before {
    began: Instant,
    used: BTreeMap<u32, Used>,
}

impl Before {
    pub fn now(proc_root: &Path) -> Result<Before> {
        Ok(Before { began: Instant::now(), used: all(proc_root)? })
    }

    /// The processes that used the most CPU since, but for those of a cgroup and the one that asks.
    pub fn competitors(&self, proc_root: &Path, group: &Path) -> Result<Vec<Competitor>> {
        let mut own = unless_gone(Group::at(group).processes())?;
        own.push(std::process::id());
        let mut now = all(proc_root)?;
        now.retain(|pid, _| !own.contains(pid));
        let most = most(&self.used, &now, self.began.elapsed().as_secs_f64());
        // One that has ended since has no name any more.
        let name = |pid: u32| process::read_lossy(&proc_root.join(format!("{pid}/comm"))).ok();
        let named =
            |(pid, cpus)| Some(Competitor { pid, name: name(pid)?.trim_end().into(), cpus });
        Ok(most.into_iter().filter_map(named).take(NAMED).collect())
    }
}

fn all(proc_root: &Path) -> Result<BTreeMap<u32, Used>> {
    let pids = process::processes(proc_root).context("cannot list who competes for CPUs")?;
    let used = |pid: u32| {
        let stat = process::stat(proc_root, pid).ok()?;
        Some((pid, Used { start_ticks: stat.start_ticks, cpu_ticks: stat.cpu_ticks }))
    };
    Ok(pids.into_iter().filter_map(used).collect())
}

/// Processes with the CPUs that they used, the most first.
fn most(before: &BTreeMap<u32, Used>, now: &BTreeMap<u32, Used>, seconds: f64) -> Vec<(u32, f64)> {
    let ticks = |pid: &u32, now: &Used| {
        let before = before.get(pid).filter(|before| before.start_ticks == now.start_ticks);
        now.cpu_ticks.saturating_sub(before.map_or(0, |before| before.cpu_ticks)) as f64
    };
    let cpus = |(pid, used): (&u32, &Used)| {
        (*pid, ticks(pid, used) / TICKS_PER_SECOND / seconds.max(0.001))
    };
    let mut most: Vec<(u32, f64)> = now.iter().map(cpus).filter(|it| it.1 >= LEAST).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    most
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn used(start_ticks: u64, cpu_ticks: u64) -> Used {
        Used { start_ticks, cpu_ticks }
    }

    #[test]
    fn who_used_the_most_comes_first() {
        let before = BTreeMap::from([(1, used(5, 1000)), (2, used(6, 0)), (3, used(7, 9000))]);
        let now = BTreeMap::from([
            (1, used(5, 1050)),
            (2, used(6, 200)),
            // Another process with the number of one that has ended.
            (3, used(900, 100)),
            (4, used(901, 150)),
            (5, used(902, 5)),
        ]);
        assert_eq!(most(&before, &now, 2.0), [(2, 1.0), (4, 0.75), (3, 0.5), (1, 0.25)]);
    }

    #[test]
    fn they_are_named_but_for_those_of_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let process = |pid: u32, name: &str, ticks: u64| {
            let own = dir.path().join("proc").join(pid.to_string());
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("comm"), format!("{name}\n")).unwrap();
            let stat = format!(
                "{pid} ({name}) R 1 {pid} 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77 0 0 0 0 0 0 \
                 0 0 0 0 0 0 0 0 0 17 1 0 0 0"
            );
            fs::write(own.join("stat"), stat).unwrap();
        };
        let (root, group) = (dir.path().join("proc"), dir.path().join("group"));
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "9\n").unwrap();
        for pid in 7..=12 {
            process(pid, "idle", 100);
        }
        let before = Before::now(&root).unwrap();
        process(7, "cc1 (a)", 1_000_000);
        process(9, "program", 9_000_000);
        process(12, "make", 2_000_000);
        let found = before.competitors(&root, &group).unwrap();
        let names: Vec<_> = found.iter().map(|it| (it.pid, it.name.as_str())).collect();
        assert_eq!(names, [(12, "make"), (7, "cc1 (a)")]);
        assert!(found[0].cpus > found[1].cpus);
    }
}
