//! The machine on which figures were measured, as far as it explains them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    pub cpus: usize,
    pub kernel: String,
    /// Its CPUs are those of a virtual machine, as far as they say so.
    pub is_virtual: bool,
    /// The last level of cache of the first CPU, and the CPUs that share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cache: Option<Cache>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Runnable threads over the last minute when the experiment began: what else was going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_before: Option<f64>,
    /// The same when it ended; most of it is the experiment's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_after: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    pub level: u32,
    pub bytes: u64,
}

impl Machine {
    pub fn this(cpus: usize) -> Self {
        Self::read(Path::new("/"), cpus)
    }

    fn read(root: &Path, cpus: usize) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let cpuinfo = read("proc/cpuinfo");
        let of_cpu = |name: &str| {
            let value = cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
            value.map(|(_, value)| value.trim())
        };
        let is_virtual = of_cpu("flags")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
        let memory = read("proc/meminfo");
        let memory_kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let memory_kib = memory_kib.and_then(|kib| kib.split_ascii_whitespace().next());
        Self {
            cpu_model: of_cpu("model name").unwrap_or("unknown").into(),
            cpus,
            kernel: read("proc/sys/kernel/osrelease").trim().into(),
            is_virtual,
            last_cache: last_cache(root),
            memory_bytes: memory_kib.and_then(|kib| Some(kib.parse::<u64>().ok()? << 10)),
            load_before: load(root),
            load_after: None,
        }
    }

    /// Notes how loaded the machine is now that the experiment has ended.
    pub fn look_again(&mut self) {
        self.look_again_at(Path::new("/"));
    }

    fn look_again_at(&mut self, root: &Path) {
        self.load_after = load(root);
    }

    pub fn line(&self) -> String {
        let load = self.load_before.map_or("unknown".into(), |load| load.to_string());
        format!("{} CPUs ({}), Linux {}, load {load}", self.cpus, self.cpu_model, self.kernel)
    }

    /// The part that stays the same from run to run.
    pub fn identity(&self) -> String {
        format!("{} CPUs ({}), Linux {}", self.cpus, self.cpu_model, self.kernel)
    }
}

/// Numbers of the CPUs that this process may use.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("asking which CPUs this process may use")?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

fn load(root: &Path) -> Option<f64> {
    fs::read_to_string(root.join("proc/loadavg")).ok()?.split(' ').next()?.parse().ok()
}

/// The cache of the highest level that holds data.
fn last_cache(root: &Path) -> Option<Cache> {
    let dir = fs::read_dir(root.join("sys/devices/system/cpu/cpu0/cache")).ok()?;
    let caches = dir.flatten().filter_map(|index| {
        let read = |name: &str| fs::read_to_string(index.path().join(name)).ok();
        if read("type")?.trim() == "Instruction" {
            return None;
        }
        let size = read("size")?;
        let (number, unit) = size.trim().split_at(size.trim().len().checked_sub(1)?);
        let bytes = match unit {
            "K" => number.parse::<u64>().ok()? << 10,
            "M" => number.parse::<u64>().ok()? << 20,
            _ => size.trim().parse().ok()?,
        };
        Some(Cache { level: read("level")?.trim().parse().ok()?, bytes })
    });
    caches.max_by_key(|cache| cache.level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fpu hypervisor\n",
        );
        write("proc/meminfo", "MemTotal:       2048 kB\n");
        write("proc/loadavg", "0.25 1 2 3/4 5\n");
        write("proc/sys/kernel/osrelease", "6.18\n");
        for (index, level, kind, size) in
            [(0, 1, "Data", "32K"), (1, 1, "Instruction", "32K"), (2, 3, "Unified", "16384K")]
        {
            let dir = format!("sys/devices/system/cpu/cpu0/cache/index{index}");
            write(&format!("{dir}/level"), &format!("{level}\n"));
            write(&format!("{dir}/type"), &format!("{kind}\n"));
            write(&format!("{dir}/size"), &format!("{size}\n"));
        }
        let mut machine = Machine::read(root.path(), 4);
        assert_eq!(machine.last_cache, Some(Cache { level: 3, bytes: 16 << 20 }));
        assert_eq!((machine.memory_bytes, machine.is_virtual), (Some(2 << 20), true));
        assert_eq!(machine.line(), "4 CPUs (Fast One), Linux 6.18, load 0.25");
        assert_eq!(machine.load_after, None, "it has not ended");
        write("proc/loadavg", "3.5 1 2 3/4 5\n");
        machine.look_again_at(root.path());
        assert_eq!((machine.load_before, machine.load_after), (Some(0.25), Some(3.5)));
        let nothing = Machine::read(&root.path().join("nowhere"), 1);
        assert_eq!((nothing.last_cache, nothing.load_before), (None, None));
        assert!(!nothing.is_virtual);
    }
}
