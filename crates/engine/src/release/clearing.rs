//! Clearing jobs away once they are released: processes go back to where they came from, and groups
//! and files go.

use std::{path::Path, time::Duration};

use gang_linux::{Roots, cgroup::Group};
use gang_timetable::record::{Confinement, Placement, Record};
use rustix::io::Errno;

use super::{
    OnFile, ROUNDS_MAX, from_common_group, job_of, or_default, or_missed, remove_memory_limit,
};
use crate::{shared_group, store::Store};

/// Puts the processes of a job back where they came from, and removes its groups. False where a
/// process or a group stays for now: processes that were killed are in their groups until they have
/// ended, and a daemon without descriptors moves nobody.
pub fn dissolve(record: &Record) -> bool {
    let Placement::Cgroup {
        group,
        origin,
        cpu_group,
        cpu_origin,
        cpu_group_is_shared,
        adopted,
        memory,
        other,
    } = &record.placement
    else {
        return true;
    };
    let (group, other) = (Group::at(group), other.as_ref().map(Group::at));
    let (mut processes, mut missed) = or_missed(group.processes());
    for other in other.iter().filter(|other| other.has("cgroup.threads")) {
        let (in_other, unread) = or_missed(other.processes());
        processes.extend(in_other);
        missed += unread;
    }
    let mut is_done = missed == 0;
    for pid in processes {
        let joined = record.joined.iter().find(|joined| joined.pid == pid);
        if let (Some(origin), Some(_)) = (joined.and_then(|it| it.memory_origin.as_ref()), memory) {
            is_done &= move_to_origin(pid, origin);
        }
        let cpu_origin = joined.and_then(|it| it.cpu_origin.as_ref()).or(cpu_origin.as_ref());
        if let (Some(_), Some(origin)) = (cpu_group, cpu_origin) {
            is_done &= move_to_origin(pid, origin);
        }
        if !adopted {
            is_done &= move_to_origin(pid, joined.map_or(origin, |it| &it.origin));
        }
    }
    if !adopted {
        is_done &= remove(&group);
    }
    is_done &= other.as_ref().is_none_or(remove);
    if let Some(at) = memory {
        is_done &= unconfine(at);
    }
    if let (Some(cpu_group), false) = (cpu_group, cpu_group_is_shared) {
        is_done &= remove(&Group::at(cpu_group));
    }
    is_done
}

/// How often, and how far apart, a group is tried to be removed: processes that were killed are in
/// it until they have ended.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// Removes a group; false where it has processes yet.
fn remove(group: &Group) -> bool {
    for _ in 0..TRIES {
        if !group.remove_unused() {
            if group.exists() {
                let group = group.path().display();
                tracing::warn!(%group, "a group of a job is left behind: it has groups of its own");
            }
            return true;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    false
}

/// Clears away the files of jobs that have no process left, and the daemon's where no job has one.
/// Returns how many jobs are still on file. For a daemon that is gone, after [`super::all`], which
/// logs the files that cannot be read.
pub fn sweep(roots: &Roots, store: &Store) -> usize {
    let on_file = OnFile::of(roots, store);
    let mut left = 0;
    for record in on_file.records() {
        if job_of(roots, store, record, &on_file).threads > 0 {
            from_common_group(record, &|| true);
            left += 1;
            continue;
        }
        // The next sweep tries again.
        left += usize::from(!dissolve(record) || store.remove(record.id).is_err());
    }
    if left == 0 {
        dissolve_common(on_file.records());
        store.destroy();
    }
    left
}

/// Removes the groups that the jobs of a daemon that is gone had in common, where nobody is in
/// them.
pub fn dissolve_common(records: &[Record]) {
    for record in records {
        let Placement::Cgroup { group, origin, cpu_group, adopted, .. } = &record.placement else {
            continue;
        };
        // A gang that has a group for itself has it beside that of all gangs.
        if let Some(root) = cpu_group.as_ref().and_then(|cpu_group| cpu_group.parent()) {
            shared_group::remove(root);
        }
        let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // That of a group below where its processes came from is not the daemon's.
        let above = match name.rsplit_once("-job-") {
            Some((of_all, _)) => Some(group.with_file_name(of_all)),
            None => group.parent().filter(|parent| parent != origin).map(Path::to_owned),
        };
        if let (Some(above), false) = (above, adopted) {
            let _ = Group::at(above).remove();
        }
    }
}

/// Moves a process to the group it came from, or to the nearest one above where that is gone; false
/// where it lives and could not be moved. A group that takes no process leaves it where it is: one
/// above might limit it less.
pub(super) fn move_to_origin(pid: u32, origin: &Path) -> bool {
    let has_ended =
        |error: gang_linux::Error| error.source.raw_os_error() == Some(Errno::SRCH.raw_os_error());
    let nearest = origin.ancestors().map(Group::at).find(Group::exists);
    nearest.is_some_and(|group| group.add(pid).map_or_else(has_ended, |()| true))
}

/// Leaves no trace of a limit on the memory of a job; false where a group stays, as with
/// [`dissolve`].
pub fn unconfine(at: &Confinement) -> bool {
    or_default(remove_memory_limit(at));
    let Some(origin) = &at.origin else { return true };
    let group = Group::at(&at.group);
    // Others may be started while those that were found are moved.
    for _ in 0..ROUNDS_MAX {
        let processes = or_default(group.processes());
        if processes.is_empty() {
            break;
        }
        for pid in processes {
            move_to_origin(pid, origin);
        }
    }
    remove(&group)
}
