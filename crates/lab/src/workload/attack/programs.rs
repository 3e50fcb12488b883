//! Programs that are hard to switch, and one that does not stay where it was put.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gang_linux::sched;
use gang_protocol::client::Registration;
use rustix::thread::sched_getcpu;

use super::{Ground, Helper, on_a_thread};
use crate::workload::work::spend;

/// For as long as the helpers of a job run by themselves.
fn rest() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

pub(super) fn threads(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    let helper = Helper::workload(&["sleepers", "--threads", "4000", "--busy", "1"])?;
    let _job = ground.job(&mut client, 1, &helper)?;
    rest()
}

pub(super) fn forks(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    let helper = Helper::forking()?;
    let _job = ground.job(&mut client, ground.cpus.div_ceil(2), &helper)?;
    rest()
}

pub(super) fn cpus(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    // A job is kept to the CPUs of its slots.
    let all = sched::affinity(0)?;
    let threads = ground.cpus.div_ceil(2);
    let job = client.register(&Registration::new("attack", threads as i64))?;
    client.add_process(job, std::process::id().into())?;
    for _ in 0..threads {
        let (ground, all) = (Arc::clone(ground), all.clone());
        on_a_thread(move || leaves_its_slot(&ground, &all))?;
    }
    rest()
}

/// Computes, and moves to the CPUs of others as soon as it is raised.
fn leaves_its_slot(ground: &Ground, all: &[u32]) {
    let mut was_raised = false;
    loop {
        spend(20_000, 1);
        let is_raised = sched::get_without_nice(0).is_ok_and(|now| now.policy.is_realtime());
        if is_raised && !was_raised {
            let here = sched_getcpu() as u32;
            let others = all.iter().copied().filter(|&cpu| cpu != here);
            if sched::set_affinity(0, others).is_ok() {
                ground.did(1);
            }
        } else if was_raised && !is_raised {
            let _ = sched::set_affinity(0, all.iter().copied());
        }
        was_raised = is_raised;
    }
}
