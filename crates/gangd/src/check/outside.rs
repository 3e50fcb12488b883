//! Threads of no job that have what gangd gives in a slot.
//!
//! Problem: a thread that keeps it is in front of everybody, and no job shows it.
//!
//! Approach: all threads of the machine are looked at. One that leaves its job by itself keeps it
//! for a moment, so that three looks within a fifth of a second must find it. Gangs of another
//! daemon look alike: where one runs, nothing is said.

use std::{collections::BTreeSet, path::Path, process::id, thread::sleep, time::Duration};

use gang_engine::thread;
use gang_linux::process;
use gang_protocol::v1;
use gang_timetable::Backend;

use super::PORTION;
use crate::{daemon::Daemon, error::Error};

/// How often a thread must be found, and how far the looks are apart.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub fn violations(daemon: &Daemon) -> Result<Vec<v1::Violation>, Error> {
    let proc_root = &daemon.roots.proc;
    if daemon.backend != Backend::Rt || has_other_daemon(proc_root) {
        return Ok(Vec::new());
    }
    let mut found = look(daemon)?;
    for _ in 1..LOOKS {
        if found.is_empty() {
            break;
        }
        sleep(BETWEEN_LOOKS);
        let again = look(daemon)?;
        found.retain(|tid| again.contains(tid));
    }
    let name = |tid| process::name(proc_root, tid).unwrap_or_default();
    let violation = |tid| v1::Violation {
        id: "given_to_members".into(),
        invariant: "threads of no job have nothing of a slot".into(),
        found: format!("thread {tid} {} of no job is as one in its slot", name(tid)),
    };
    Ok(found.into_iter().map(violation).collect())
}

fn look(daemon: &Daemon) -> Result<BTreeSet<u32>, Error> {
    let raised = thread::as_in_slot(&daemon.roots.proc).unwrap_or_default();
    let mut outside = BTreeSet::new();
    for portion in raised.chunks(PORTION) {
        let portion = portion.to_vec();
        outside.extend(daemon.conductor.ask(move |state| state.outside_of_jobs(portion))?);
    }
    Ok(outside)
}

/// Whether another daemon runs that can be seen, besides this one's guardian.
fn has_other_daemon(proc_root: &Path) -> bool {
    let own_uid = rustix::process::geteuid().as_raw();
    let is_other = |&pid: &u32| {
        // Others cannot raise threads, whatever they call themselves.
        let may_raise = || {
            let owner = process::owner(proc_root, pid);
            owner.is_ok_and(|it| [0, own_uid].contains(&it.effective))
        };
        let is_gangd = process::name(proc_root, pid).is_ok_and(|name| name == "[gangd]");
        let parent = || process::status(proc_root, pid).ok().map(|status| status.parent);
        is_gangd && pid != id() && may_raise() && parent().is_some_and(|parent| parent != id())
    };
    process::processes(proc_root).unwrap_or_default().iter().any(is_other)
}
