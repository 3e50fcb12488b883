//! What this kernel and this user permit.

use std::process::{Command, Stdio};

use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
    sched::{self, Attributes},
};

use crate::{backend::Backend, priority};

/// Whether a backend can be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub backend: Backend,
    /// Why not; `None` where it can.
    pub obstacle: Option<String>,
}

/// How the cpu controller keeps the threads of jobs out of slot below the rest of the machine.
///
/// SCHED_IDLE weighs threads only against those of the same task group. Where the kernel puts every
/// session into a group of its own (autogroup), or somebody else's cgroups do, the jobs need a group
/// that is idle as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuControl {
    /// The unified hierarchy has the cpu controller.
    V2,
    /// A hierarchy of version 1 has it, mounted here.
    V1(std::path::PathBuf),
    /// Nobody has: every thread is in the one group there is, or in its session's.
    None,
}

/// What the machine has.
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
                Backend::Rt => try_fifo(),
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

/// Lifts a child process as a gang would be, and looks whether the kernel lets it.
fn try_fifo() -> Option<String> {
    let mut child = match Command::new("sleep")
        .arg("10")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    {
        Ok(child) => child,
        Err(e) => return Some(format!("cannot start a process to try SCHED_FIFO on: {e}")),
    };
    let result = sched::set(child.id(), &Attributes::fifo(priority::GANG));
    let _ = child.kill();
    let _ = child.wait();
    result.err().map(|e| match e.raw_os_error() {
        Some(1) => {
            "SCHED_FIFO is not permitted: it takes root or CAP_SYS_NICE, and in a cgroup of \
                    version 1 a share of cpu.rt_runtime_us"
                .to_owned()
        }
        _ => format!("SCHED_FIFO is refused: {e}"),
    })
}
