//! The things of a job that can be looked at, and how they must be.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use gang_conductor::Home;
use gang_engine::{bound::ProcessHandle, roster::Roster, thread};
use gang_linux::{cgroup::Group, process};
use gang_schedule::CpuSet;
use gang_timetable::{
    Attributes, Backend, InSlot, OVERSUBSCRIBED, SchedPolicy, Standing, is_of_oversubscribed_slot,
    is_outside, is_raised,
};

/// How a job is to stand, and on which CPUs of the machine it has its slot.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub standing: Standing,
    /// The mode of its slot, where it is raised.
    pub in_slot: InSlot,
    pub cpus: Option<&'a CpuSet>,
    pub machine: &'a CpuSet,
}

/// A thing of the kernel's on which it can be seen how a job stands.
#[derive(Clone, Debug)]
pub enum Subject {
    Thread {
        tid: u32,
        user_pinned: bool,
        /// The CPUs that it chose.
        own_cpus: Option<CpuSet>,
        /// Its policy without gangd.
        normal: SchedPolicy,
    },
    /// A thread that is to have nothing of a slot: a stray, or a foreign one.
    LeftAlone { tid: u32, is_stray: bool },
    /// The group whose weight is changed: the files of the weight, and whether the group can be
    /// frozen, too.
    Weight { idle: PathBuf, weight: PathBuf, freezes: bool },
    /// The group that stands still, or does not.
    Group(PathBuf),
    /// A process that is stopped, or is not.
    Process(Arc<ProcessHandle>),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Thread { tid, .. } => write!(f, "thread {tid}"),
            Subject::LeftAlone { tid, is_stray: true } => write!(f, "stray thread {tid}"),
            Subject::LeftAlone { tid, is_stray: false } => {
                write!(f, "thread {tid} of another user")
            }
            Subject::Weight { idle: file, .. } => {
                write!(f, "the weight of {}", file.with_file_name("").display())
            }
            Subject::Group(group) => write!(f, "{}", group.display()),
            Subject::Process(process) => write!(f, "process {}", process.pid),
        }
    }
}

pub fn name(standing: Standing) -> &'static str {
    match standing {
        Standing::Raised => "raised",
        Standing::Filling => "filling",
        Standing::Paused => "paused",
        Standing::Released => "released",
    }
}

impl Subject {
    /// All of a job that a backend changes.
    pub fn all(backend: Backend, home: &Home, roster: &Roster) -> impl Iterator<Item = Subject> {
        let controls = &roster.control_files;
        let members = &home.members;
        let threads = members.threads().iter();
        let threads = threads
            .filter(move |thread| backend == Backend::Rt && !thread.is_exempt())
            .map(|thread| Subject::Thread {
                tid: thread.tid,
                user_pinned: thread.user_pinned,
                own_cpus: home.members.own_cpus(thread.tid).cloned(),
                normal: thread.original.policy,
            });
        let foreign = members.threads().iter().filter(|thread| thread.is_foreign);
        let foreign = foreign.map(|thread| (thread.tid, false));
        let weigh = home.members.controls.weigh();
        let weight = controls.idle.iter().zip(&controls.weight).filter(move |_| weigh);
        let weight = weight.map(|(idle, weight)| {
            let freezes = controls.freeze.is_some();
            Subject::Weight { idle: idle.path.clone(), weight: weight.path.clone(), freezes }
        });
        let freezes = !members.has_foreign_that_run();
        let group = controls.freeze.iter().filter(move |_| freezes);
        let group = group.filter_map(|file| file.path.parent());
        let group = group.map(|group| Subject::Group(group.into()));
        let stops = |process: &&Arc<ProcessHandle>| members.processes.contains(&process.pid);
        let processes = roster.tree().iter().filter(stops).cloned().map(Subject::Process);
        let strays = roster.strays_on_file().filter(move |_| backend == Backend::Rt);
        let left_alone = foreign.chain(strays.map(|tid| (tid, true)));
        let left_alone = left_alone.map(|(tid, is_stray)| Subject::LeftAlone { tid, is_stray });
        threads.chain(left_alone).chain(weight).chain(group).chain(processes)
    }

    /// The fault of a subject. A subject that is gone has none.
    pub fn look(&self, backend: Backend, proc_root: &Path, wanted: &Wanted<'_>) -> Option<String> {
        // Jobs that would fill stand still where the backend cannot fill.
        let is_still = match wanted.standing {
            Standing::Paused => true,
            Standing::Filling => !backend.can_fill(),
            Standing::Raised | Standing::Released => false,
        };
        match self {
            Subject::Thread { tid, user_pinned, own_cpus, normal } => {
                let fills = wanted.cpus.zip(own_cpus.as_ref()).is_some_and(|(slot, own)| {
                    wanted.in_slot.raises_threads() && is_outside(own, slot, wanted.machine)
                });
                let standing = if fills { Standing::Filling } else { wanted.standing };
                let wanted = &Wanted { standing, ..*wanted };
                let (now, cpus) = (thread::attributes(*tid).ok()?, thread::affinity(*tid).ok()?);
                of_thread(wanted, &now, *normal, (!user_pinned).then_some(&cpus))
            }
            Subject::LeftAlone { tid, .. } => {
                let now = thread::attributes(*tid).ok()?;
                let is_given = is_raised(&now) || now == OVERSUBSCRIBED;
                is_given.then(|| format!("has {:?} with nice {}", now.policy, now.nice))
            }
            Subject::Weight { idle, weight, freezes } => {
                let read = |file| fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
                of_weight(wanted.standing, &read(idle)?, &read(weight)?, *freezes)
            }
            Subject::Group(group) => {
                // A frozen thread stands still once it comes to run: how soon, depends on the
                // machine.
                let frozen = Group::at(group).read("cgroup.freeze").ok()?.trim() == "1";
                let text = if frozen { "is frozen" } else { "is not frozen" };
                // One that is left alone may be frozen by somebody else.
                let free = wanted.standing == Standing::Released;
                (frozen != is_still && !free).then(|| text.into())
            }
            // One that its user stopped stands still in its slot too.
            Subject::Process(process) if is_still => {
                let stat = process::stat(proc_root, process.pid).ok()?;
                let stands = matches!(stat.state, b'T' | b't' | b'Z' | b'X');
                (!stands && process.is_alive()).then(|| "is not stopped".into())
            }
            Subject::Process(_) => None,
        }
    }
}

/// `cpus` are those of a thread that has not chosen them.
fn of_thread(
    wanted: &Wanted<'_>,
    now: &Attributes,
    normal: SchedPolicy,
    cpus: Option<&CpuSet>,
) -> Option<String> {
    // As an oversubscribed gang has it in its slot, where its owner may choose another nice value.
    let raised = is_raised(now) || is_of_oversubscribed_slot(now);
    let fills = matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch);
    let stands = match wanted.standing {
        // A group of its own weighs its threads.
        _ if wanted.in_slot == InSlot::Weighed => now.policy == normal,
        Standing::Raised if wanted.in_slot == InSlot::Uncontended => now.policy == normal,
        Standing::Raised => raised,
        Standing::Filling | Standing::Paused => fills,
        Standing::Released => !is_raised(now),
    };
    if !stands {
        return Some(format!("has {:?} with nice {}", now.policy, now.nice));
    }
    let outside = cpus?.intersection(wanted.machine).difference(wanted.cpus?).first()?;
    Some(format!("may run on CPU {outside}, which is not of its slot"))
}

/// The backend writes these.
fn of_weight(standing: Standing, idle: &str, weight: &str, freezes: bool) -> Option<String> {
    let stands = match standing {
        Standing::Raised => idle == "0" && matches!(weight, "10000" | "262144"),
        Standing::Filling => idle == "1",
        // Idle only where it cannot be frozen.
        Standing::Paused if freezes => idle == "0" && !matches!(weight, "10000" | "262144"),
        Standing::Paused => idle == "1",
        Standing::Released => idle == "0",
    };
    (!stands).then(|| format!("has cpu.idle {idle} and weight {weight}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_of_wrong_standing_is_found() {
        use Standing::{Filling, Paused, Raised, Released};
        let (machine, slot) = (CpuSet::from_iter([0, 1]), CpuSet::from_iter([1]));
        let fifo = Attributes::fifo(gang_timetable::priority::GANG);
        let (anywhere, of_slot) = (machine.clone(), slot.clone());
        let in_slot = InSlot::Exclusive;
        for (standing, now, cpus, is_right) in [
            (Raised, fifo, &of_slot, true),
            (Raised, fifo, &anywhere, false),
            (Raised, OVERSUBSCRIBED, &of_slot, true),
            (Raised, Attributes::other(0), &of_slot, false),
            (Raised, Attributes::batch(0), &of_slot, false),
            (Filling, Attributes::batch(0), &anywhere, true),
            (Filling, fifo, &of_slot, false),
            (Filling, Attributes::other(0), &anywhere, false),
            (Paused, Attributes::idle(0), &anywhere, true),
            (Paused, fifo, &anywhere, false),
            (Released, Attributes::other(5), &anywhere, true),
            (Released, fifo, &anywhere, false),
        ] {
            let cpus_of_slot = (standing == Raised).then_some(&slot);
            let wanted = Wanted { standing, in_slot, cpus: cpus_of_slot, machine: &machine };
            let wrong = of_thread(&wanted, &now, SchedPolicy::Other, Some(cpus));
            assert_eq!(wrong.is_none(), is_right, "{standing:?} {now:?}: {wrong:?}");
        }
        let wanted = Wanted { standing: Raised, in_slot, cpus: Some(&slot), machine: &machine };
        assert_eq!(
            of_thread(&wanted, &fifo, SchedPolicy::Other, None),
            None,
            "it chose its CPUs itself"
        );
        let alone = Wanted { in_slot: InSlot::Uncontended, ..wanted };
        for (now, is_right) in
            [(fifo, false), (Attributes::batch(0), false), (Attributes::other(5), true)]
        {
            let wrong = of_thread(&alone, &now, SchedPolicy::Other, Some(&of_slot));
            assert_eq!(wrong.is_none(), is_right, "alone, {now:?}: {wrong:?}");
        }
        for standing in [Raised, Filling, Paused] {
            let weighed = Wanted { standing, in_slot: InSlot::Weighed, ..wanted };
            let of = |now| of_thread(&weighed, &now, SchedPolicy::Other, None);
            assert_eq!(of(Attributes::other(0)), None, "{standing:?}");
            assert!(of(fifo).is_some() && of(Attributes::batch(0)).is_some(), "{standing:?}");
        }
    }

    #[test]
    fn group_of_wrong_weight_is_found() {
        use Standing::{Filling, Paused, Raised, Released};
        for (freezes, idle, weight, is_right) in [
            (true, "0", "100", true),
            (true, "0", "1024", true),
            (true, "0", "262144", false),
            (true, "1", "100", false),
            (false, "1", "100", true),
            (false, "0", "100", false),
        ] {
            let wrong = of_weight(Paused, idle, weight, freezes);
            assert_eq!(wrong.is_none(), is_right, "{freezes} {idle} {weight}");
        }
        for (standing, idle, weight, is_right) in [
            (Raised, "0", "10000", true),
            (Raised, "0", "262144", true),
            (Raised, "0", "100", false),
            (Raised, "1", "100", false),
            (Filling, "1", "100", true),
            (Filling, "0", "10000", false),
            (Released, "0", "100", true),
            (Released, "1", "100", false),
        ] {
            let wrong = of_weight(standing, idle, weight, true);
            assert_eq!(wrong.is_none(), is_right, "{standing:?}");
        }
    }

    #[test]
    fn group_frozen_at_the_wrong_time_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let machine = CpuSet::from_iter([0]);
        let subject = Subject::Group(directory.path().into());
        let look = |frozen: u8, backend, standing| {
            fs::write(directory.path().join("cgroup.freeze"), format!("{frozen}\n")).unwrap();
            let in_slot = InSlot::default();
            let wanted = Wanted { standing, in_slot, cpus: None, machine: &machine };
            subject.look(backend, Path::new("/proc"), &wanted).is_none()
        };
        assert!(
            look(0, Backend::Freeze, Standing::Raised)
                && !look(1, Backend::Freeze, Standing::Raised)
        );
        assert!(
            look(1, Backend::Freeze, Standing::Filling)
                && !look(0, Backend::Freeze, Standing::Filling)
        );
        assert!(
            look(0, Backend::Rt, Standing::Filling) && !look(1, Backend::Rt, Standing::Filling)
        );
        assert!(look(1, Backend::Rt, Standing::Paused) && !look(0, Backend::Rt, Standing::Paused));
    }
}
