//! The means that this kernel and this user permit.

use std::{
    io,
    path::Path,
    process::{Child, Command, Stdio},
};

use gang_linux::{
    Error, Roots,
    cgroup::{Group, Hierarchies},
    sched::{self, Attributes},
};
use gang_timetable::{Backend, priority};

use crate::shared_group;

/// Whether a backend can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub backend: Backend,
    /// Why not; `None` where it can.
    pub obstacle: Option<String>,
}

/// How the cpu controller keeps the threads of jobs out of slot below the rest of the machine.
///
/// SCHED_IDLE weighs threads only against those of the same task group. The kernel may put every
/// session into a group of its own (autogroup), and so may foreign cgroups. The jobs then need a
/// group that is idle as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuControl {
    /// The unified hierarchy has the cpu controller.
    V2,
    /// A hierarchy of version 1 has it, mounted here.
    V1(std::path::PathBuf),
    /// Nobody has: every thread is in the one group there is, or in its session's.
    None,
}

/// The means of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Means {
    pub hierarchies: Hierarchies,
    /// Jobs can have cgroups: the unified hierarchy is there and this user may make groups in it.
    pub groups: Option<std::path::PathBuf>,
    pub cpu: CpuControl,
    pub findings: Vec<Finding>,
}

impl Means {
    /// Looks at the machine and tries, in a cgroup of its own, what it is going to need. `name` is
    /// that of the groups of this daemon.
    pub fn probe(roots: &Roots, name: &str) -> Means {
        let hierarchies = Hierarchies::detect(roots).unwrap_or_else(|error| {
            tracing::error!(%error, source = %error.source, "cgroups are not used");
            Hierarchies::default()
        });
        let groups = usable_groups(&hierarchies, name);
        let cpu = cpu_control(&hierarchies, groups.is_ok());
        let groups_obstacle = groups.as_ref().err().cloned();
        let findings = Backend::ALL.map(|backend| Finding {
            backend,
            obstacle: match backend {
                Backend::Rt => fifo_obstacle(groups.as_deref().ok(), &cpu, name),
                Backend::Weight => groups_obstacle.clone().or_else(|| match cpu {
                    CpuControl::None => {
                        Some("no hierarchy of cgroups has the cpu controller".into())
                    }
                    _ => None,
                }),
                Backend::Freeze => groups_obstacle.clone(),
                Backend::Signal => None,
            },
        });
        Means { hierarchies, groups: groups.ok(), cpu, findings: findings.to_vec() }
    }

    /// The best backend that can be used.
    pub fn best(&self) -> Backend {
        let usable = self.findings.iter().find(|finding| finding.obstacle.is_none());
        usable.map_or(Backend::Signal, |finding| finding.backend)
    }

    /// Why a backend cannot be used here.
    pub fn obstacle(&self, backend: Backend) -> Option<&str> {
        let finding = self.findings.iter().find(|finding| finding.backend == backend)?;
        finding.obstacle.as_deref()
    }
}

fn usable_groups(hierarchies: &Hierarchies, name: &str) -> Result<std::path::PathBuf, String> {
    let root = hierarchies.v2.clone().ok_or("no cgroup hierarchy of version 2 is mounted")?;
    let group = Group::at(&root).child(format!("{name}.probe"));
    let tried = group.create().and_then(|()| {
        let frozen = group.freeze(false);
        group.remove().and(frozen)
    });
    tried.map(|()| root).map_err(|e| format!("{e}: {}", e.source))
}

fn cpu_control(hierarchies: &Hierarchies, groups: bool) -> CpuControl {
    if groups && hierarchies.v2_controllers.iter().any(|c| c == "cpu") {
        return CpuControl::V2;
    }
    match hierarchies.v1.get("cpu") {
        Some(path) if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok() => {
            CpuControl::V1(path.clone())
        }
        _ => CpuControl::None,
    }
}

/// Why jobs can have no SCHED_FIFO.
///
/// A kernel that groups real-time threads (CONFIG_RT_GROUP_SCHED) gives no group of version 2 with
/// the cpu controller any of their time, unless it was booted with `rt_group_sched=0` (Linux 6.16).
/// Where no group has the controller, gangs do without it and are SCHED_IDLE out of slot. Where
/// groups have it, the backend cannot be `rt`. The controller may be turned on beside such gangs.
/// While one of them is in its slot the kernel refuses that. Between slots it does not refuse, and
/// then does not let them be raised.
fn fifo_obstacle(groups: Option<&Path>, cpu: &CpuControl, name: &str) -> Option<String> {
    let grouped =
        "a kernel that groups real-time threads needs rt_group_sched=0 at boot (Linux 6.16)";
    if let Err(error) = try_fifo(None) {
        return Some(match error.raw_os_error() {
            Some(1) => format!(
                "SCHED_FIFO is not permitted: it takes root or CAP_SYS_NICE; and in a cgroup of \
                 version 1 a share of cpu.rt_runtime_us, in one of version 2 with the cpu \
                 controller {grouped}"
            ),
            _ => format!("SCHED_FIFO is refused: {error}"),
        });
    }
    // Where jobs will have a group with the cpu controller whatever the daemon does. Elsewhere it
    // tries when it has made theirs.
    let root = groups.map(Group::at).filter(|_| *cpu == CpuControl::V2)?;
    match has_cpu_below(&root) {
        Ok(false) => return None,
        Ok(true) => {}
        Err(e) => return Some(format!("{e}: {}", e.source)),
    }
    let _lock = shared_group::lock(root.path());
    let group = root.child(format!("{name}.probe"));
    let tried = group.create().map_err(|e| e.source).and_then(|()| try_fifo(Some(&group)));
    let _ = group.remove();
    tried.err().map(|error| {
        format!(
            "SCHED_FIFO is refused in cgroups of version 2 with the cpu controller ({error}): \
             {grouped}"
        )
    })
}

/// Whether the groups directly below one of version 2 have the cpu controller.
pub fn has_cpu_below(group: &Group) -> Result<bool, Error> {
    let enabled = group.read("cgroup.subtree_control")?;
    Ok(enabled.split_whitespace().any(|controller| controller == "cpu"))
}

/// A process that does nothing until it is killed, or this process has ended. Which program that is
/// is nobody else's choice: the daemon may have its environment from a user.
fn waiting_process() -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", "read -r _"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| io::Error::other(format!("cannot start a process to try it on: {e}")))
}

/// Raises a child process as a gang would be raised, and says whether the kernel lets it. The child
/// stays where this process is, or is moved into a group, as a job is moved that has its first slot
/// meanwhile. A kernel that groups real-time threads (CONFIG_RT_GROUP_SCHED) gives groups of
/// version 2 with the cpu controller none of their time.
pub fn try_fifo(group: Option<&Group>) -> io::Result<()> {
    let mut child = waiting_process()?;
    let raise = || sched::set(child.id(), &Attributes::fifo(priority::GANG));
    let result = match group {
        None => raise(),
        Some(group) => raise()
            .and_then(|()| group.add(child.id()).map_err(|e| e.source))
            .and_then(|()| raise()),
    };
    let _ = child.kill();
    let _ = child.wait();
    result
}
