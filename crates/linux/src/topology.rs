//! Which CPUs are online, and what they share.
//!
//! Read from `/sys/devices/system/cpu` (Documentation/admin-guide/cputopology.rst and
//! Documentation/ABI/testing/sysfs-devices-system-cpu).

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Error, Result, Roots};

/// One online CPU. Those that share a core, a last-level cache or a NUMA node have the same number
/// there; the numbers have no other meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    pub id: u32,
    pub core: u32,
    pub cache: u32,
    pub node: u32,
}

/// The online CPUs, in order of number.
///
/// A unit that the kernel does not name counts as shared by all CPUs of the next larger unit. A
/// virtual machine, for instance, may have no cache directory.
pub fn online(roots: &Roots) -> Result<Vec<Cpu>> {
    let directory = cpu_directory(roots);
    let nodes = nodes(roots);
    let mut cpus = Vec::new();
    for id in parse_list(&online_text(roots)?) {
        let cpu = directory.join(format!("cpu{id}"));
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(&id)).map_or(0, |(node, _)| *node);
        let core = first_of_list(&cpu.join("topology/thread_siblings_list")).unwrap_or(id);
        let cache = last_level_cache(&cpu).unwrap_or(u32::MAX - node);
        cpus.push(Cpu { id, core, cache, node });
    }
    Ok(cpus)
}

fn cpu_directory(roots: &Roots) -> PathBuf {
    roots.sys.join("devices/system/cpu")
}

/// The list of online CPUs as the kernel writes it: cheap to read, to see whether it changed.
pub fn online_text(roots: &Roots) -> Result<String> {
    let path = cpu_directory(roots).join("online");
    fs::read_to_string(&path).map_err(|e| Error::new("read", path.display(), e))
}

fn nodes(roots: &Roots) -> Vec<(u32, Vec<u32>)> {
    let Ok(entries) = fs::read_dir(roots.sys.join("devices/system/node")) else {
        return Vec::new();
    };
    let mut nodes: Vec<(u32, Vec<u32>)> = entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some((number, parse_list(&cpus)))
        })
        .collect();
    nodes.sort_unstable();
    nodes
}

/// The first CPU of those that share this CPU's cache of the highest level.
fn last_level_cache(cpu: &Path) -> Option<u32> {
    let caches = fs::read_dir(cpu.join("cache")).ok()?.flatten();
    let of_level = caches.filter_map(|entry| {
        let level: u32 =
            fs::read_to_string(entry.path().join("level")).ok()?.trim().parse().ok()?;
        Some((level, first_of_list(&entry.path().join("shared_cpu_list"))?))
    });
    of_level.max().map(|(_, cpu)| cpu)
}

fn first_of_list(path: &Path) -> Option<u32> {
    parse_list(&fs::read_to_string(path).ok()?).first().copied()
}

/// Reads the kernel's list format, `0-3,8`.
pub fn parse_list(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots { proc: root.path().into(), sys: root.path().into() };
        (root, roots)
    }

    #[test]
    fn two_nodes_of_two_cores_with_siblings() {
        let (_root, roots) = machine(&[
            ("cpu/online", "0-3\n"),
            ("node/node0/cpulist", "0-1\n"),
            ("node/node1/cpulist", "2-3\n"),
            ("cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
            ("cpu/cpu2/topology/thread_siblings_list", "2\n"),
            ("cpu/cpu3/topology/thread_siblings_list", "3\n"),
            ("cpu/cpu0/cache/index0/level", "1\n"),
            ("cpu/cpu0/cache/index0/shared_cpu_list", "0\n"),
            ("cpu/cpu0/cache/index3/level", "3\n"),
            ("cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n"),
        ]);
        let cpus = online(&roots).unwrap();
        assert_eq!(cpus.iter().map(|c| c.core).collect::<Vec<_>>(), [0, 0, 2, 3]);
        assert_eq!(cpus.iter().map(|c| c.node).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(cpus[0].cache, 0);
        assert_eq!(cpus[2].cache, cpus[3].cache, "unknown caches are shared by the node");
    }

    #[test]
    fn lists_have_holes() {
        assert_eq!(parse_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(parse_list("\n"), [] as [u32; 0]);
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(!online(&Roots::default()).unwrap().is_empty());
    }
}
