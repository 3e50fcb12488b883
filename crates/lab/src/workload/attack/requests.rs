//! Floods of requests, and connections that keep the daemon waiting.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use gang_protocol::client::{Client, Registration};

use super::Ground;

/// Requests that are sent before the first of their answers is read.
const AHEAD: usize = 16;
/// Empty jobs of one thread.
const EMPTY_JOBS: usize = 32;

/// A request as it is sent (varlink.org).
pub(super) fn request(method: &str, parameters: &str) -> Vec<u8> {
    let call = format!("{{\"method\":\"org.gangd.v1.{method}\",\"parameters\":{parameters}}}\0");
    call.into_bytes()
}

pub(super) fn connections(ground: &Arc<Ground>) -> Result<()> {
    const MOST: usize = 128;
    let mut held = VecDeque::with_capacity(MOST);
    loop {
        if held.len() == MOST {
            held.pop_front();
        }
        held.push_back(ground.connect()?);
        ground.did(1);
    }
}

pub(super) fn lists(ground: &Arc<Ground>) -> Result<()> {
    let _jobs = empty_jobs(ground)?;
    flood(ground, &request("ListJobs", "{}"))
}

pub(super) fn statuses(ground: &Arc<Ground>) -> Result<()> {
    flood(ground, &request("GetStatus", "{}"))
}

pub(super) fn frames(ground: &Arc<Ground>) -> Result<()> {
    flood(ground, &request("GetFrame", "{\"since_ns\":1}"))
}

pub(super) fn checks(ground: &Arc<Ground>) -> Result<()> {
    let _jobs = empty_jobs(ground)?;
    flood(ground, &request("Check", "{}"))
}

pub(super) fn deaf(ground: &Arc<Ground>) -> Result<()> {
    let _jobs = empty_jobs(ground)?;
    let mut connection = ground.connect()?;
    connection.set_write_timeout(Some(Duration::from_millis(100)))?;
    let requests = [request("ListJobs", "{}"), request("GetFrame", "{\"since_ns\":1}")].concat();
    let mut sent = 0;
    // Until the daemon takes no more, and then until it hangs up.
    loop {
        match connection.write(&requests[sent..]) {
            Ok(length) if sent + length == requests.len() => {
                ground.did(2);
                sent = 0;
            }
            Ok(length) => sent += length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn slow(ground: &Arc<Ground>) -> Result<()> {
    let mut connection = ground.connect()?;
    loop {
        for byte in request("GetStatus", "{}") {
            ground.send(&mut connection, &[byte])?;
            std::thread::sleep(Duration::from_millis(20));
        }
        answers(&mut connection, 1, |count| ground.did(count))?;
    }
}

/// Sends a request over and over.
fn flood(ground: &Arc<Ground>, request: &[u8]) -> Result<()> {
    let mut connection = ground.connect()?;
    let requests = request.repeat(AHEAD);
    loop {
        ground.send(&mut connection, &requests)?;
        answers(&mut connection, AHEAD, |count| ground.did(count))?;
    }
}

/// Reads so many answers; each ends with a zero.
fn answers(connection: &mut impl Read, count: usize, did: impl Fn(u64)) -> Result<()> {
    let mut chunk = [0; 16 << 10];
    let mut left = count;
    while left > 0 {
        let length = connection.read(&mut chunk)?;
        ensure!(length > 0, "gangd hung up");
        let ends = chunk[..length].iter().filter(|byte| **byte == 0).count();
        did(ends as u64);
        left = left.saturating_sub(ends);
    }
    Ok(())
}

/// Jobs without processes, which end with this client: as many as it gets.
fn empty_jobs(ground: &Arc<Ground>) -> Result<Client> {
    let mut client = ground.client()?;
    for _ in 0..EMPTY_JOBS {
        if client.register(&Registration::new("x".repeat(64), ground.cpus as i64)).is_err() {
            break;
        }
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_their_ends() {
        let read = |mut bytes: &[u8]| {
            let seen = std::cell::Cell::new(0);
            let all = answers(&mut bytes, 2, |count| seen.set(seen.get() + count));
            (all.is_ok(), seen.get())
        };
        assert_eq!(read(b"a\0bc\0d"), (true, 2));
        assert_eq!(read(b"a\0bc"), (false, 1));
    }
}
