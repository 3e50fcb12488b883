//! Jobs that come and go, and what is done to them all the time.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use gang_protocol::client::Registration;
use gang_protocol::v1::Policy;

use super::requests::request;
use super::{Ground, Helper};

/// Jobs of one thread at a time.
const JOBS: usize = 64;

pub(super) fn jobs(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    let wanted = Registration::new("attack", ground.cpus as i64);
    for _ in 0..JOBS {
        client.register(&wanted)?;
        ground.did(1);
    }
    // Jobs without a process end with their client.
    Ok(())
}

/// Each connection is another number's, and has a job.
pub(super) fn numbers(ground: &Arc<Ground>) -> Result<()> {
    let mut held = VecDeque::with_capacity(JOBS);
    loop {
        if held.len() == JOBS {
            held.pop_front();
        }
        let mut client = ground.client_as_next()?;
        client.register(&Registration::new("attack", 1))?;
        client.list_jobs()?;
        held.push_back(client);
        ground.did(1);
    }
}

pub(super) fn memory(ground: &Arc<Ground>) -> Result<()> {
    let bytes = ground.client()?.status()?.status.memory.total / 10 * 9;
    let mut connection = ground.connect()?;
    for wait in [false, true] {
        let parameters = format!(
            "{{\"name\":\"attack\",\"cpus\":1,\"min_cpus\":1,\"class\":\"batch\",\
             \"policy\":\"gang\",\"weight\":100,\"mem_bytes\":{bytes},\"wait\":{wait}}}"
        );
        ground.send(&mut connection, &request("Register", &parameters))?;
        ground.did(1);
    }
    // It gives up now and then, to come again.
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}

pub(super) fn signals(ground: &Arc<Ground>) -> Result<()> {
    /// Of one job.
    const PROCESSES: usize = 16;
    /// Those that do nothing to a program that sleeps: SIGCONT and SIGWINCH.
    const HARMLESS: [i64; 2] = [18, 28];
    let mut client = ground.client()?;
    let start = || Helper::start(Command::new("sleep").arg("3000"));
    let first = start()?;
    let job = ground.job(&mut client, 1, &first)?;
    let mut more = Vec::new();
    for _ in 1..PROCESSES {
        let helper = start()?;
        client.add_process(job, helper.0.id().into())?;
        more.push(helper);
    }
    loop {
        for signal in HARMLESS {
            client.kill(job, signal)?;
            ground.did(1);
        }
    }
}

pub(super) fn suspensions(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    let helper = Helper::workload(&["hog", "--threads", "1"])?;
    let job = ground.job(&mut client, 1, &helper)?;
    loop {
        client.suspend(job)?;
        client.set_signals(job, true)?;
        client.resume(job)?;
        client.set_signals(job, false)?;
        ground.did(4);
    }
}

pub(super) fn policies(ground: &Arc<Ground>) -> Result<()> {
    let mut client = ground.client()?;
    let helper = Helper::forking()?;
    let job = ground.job(&mut client, 1, &helper)?;
    loop {
        for policy in [Policy::none, Policy::gang] {
            client.set_policy(job, policy)?;
            ground.did(1);
        }
    }
}
