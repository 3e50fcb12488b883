//! Requests about ports: the key of a job, a new port, a snapshot of a program.

use std::collections::BTreeMap;

use gang_linux::{clock, process};
use gang_net::{Doing, Seen, Stands};
use gang_protocol::v1;
use gang_schedule::{JobId, UserId};

use super::{
    Shown, contents,
    gang::{Gang, Look},
    locked,
    port::{self, Port, Refused},
};
use crate::{daemon::Daemon, error::Error, life::peer::Peer};

/// Bytes of contents in one reply, which is JSON of 16 MiB at most.
const CONTENTS_MAX: usize = 4 << 20;
/// Attempts to read the contents of channels while nothing moves.
const ATTEMPTS: usize = 20;
/// Parents of a process that are looked at.
const PARENTS_MAX: usize = 64;

impl Daemon {
    /// Refuses all but processes of a job.
    fn permit_member(&self, peer: Peer, job: JobId, operation: &str) -> Result<u32, Error> {
        let pid = peer.seen(operation, &self.roots)?;
        if self.job_of_peer(peer)? != Some(job) {
            let reason = format!("processes of job {job} alone may, and the caller is none");
            return Err(Error::not_permitted(operation, reason));
        }
        Ok(pid)
    }

    /// The account of a job.
    fn payer(&self, job: JobId) -> Result<UserId, Error> {
        self.conductor.ask(move |state| Ok::<_, Error>(state.job(job)?.spec.user))?
    }

    /// The key of a job's ports, as text.
    pub fn net_key(&self, peer: Peer, job: JobId) -> Result<String, Error> {
        self.permit_member(peer, job, "have the key of a job's ports")?;
        let key = self.ports.key(job, self.payer(job)?)?;
        Ok(hexadecimal(&key.0))
    }

    /// A port of the process that asks.
    pub fn add_port(&self, peer: Peer, job: JobId, page: i64) -> Result<(), Error> {
        let pid = self.permit_member(peer, job, "add a port")?;
        let odd = |accepted: &str| Error::invalid("page", page, accepted);
        let number = i32::try_from(page).ok().filter(|it| *it >= 0);
        let number = number.ok_or_else(|| odd("the descriptor of a port's page"))?;
        let key = self.ports.key(job, self.payer(job)?)?;
        let port = Port::open(pid, number, key).map_err(|refused| match refused {
            Refused::Kernel(what, error) => Error::Failed {
                operation: format!("{what} of a port of process {pid}"),
                reason: error.to_string(),
            },
            Refused::Odd(what) => odd(&format!("a port's page, and not: {what}")),
            Refused::Key => odd("a page with the key of the job (GetNetKey)"),
        })?;
        // The number may have become another process's before the copies were taken.
        peer.seen("add a port", &self.roots)?;
        let of = self.ports.of(job).ok_or(Error::NoSuchJob(job))?;
        self.ports.add(job, &of, port, &self.settings().accounts)?;
        // A job may end while its port comes.
        if self.conductor.ask(move |state| state.job(job).is_err())? {
            self.ports.end(job);
            return Err(Error::NoSuchJob(job));
        }
        Ok(())
    }

    /// Whether a job spans hosts, or has processes without a port. Those below which ports are do
    /// not count: they are launchers.
    pub(super) fn has_outsiders(&self, job: JobId, ports: &[Port]) -> bool {
        let known = self.conductor.ask(move |state| {
            let is_spanning = state.job(job).is_ok_and(|job| job.nonce.is_some());
            (is_spanning, state.address(job).ok().flatten())
        });
        // Without a conductor nothing is known, and all may send.
        let Ok((is_spanning, Some(address))) = known else { return true };
        let Ok(mut pids) = self.jobs.processes(&address) else { return true };
        for port in ports {
            let mut next = Some(port.pid);
            for _ in 0..PARENTS_MAX {
                let Some(pid) = next else { break };
                let before = pids.len();
                pids.retain(|&it| it != pid);
                // Above a process that is none of the job is none, either, or one that was seen.
                if pids.len() == before && pid != port.pid {
                    break;
                }
                next = process::stat(&self.roots.proc, pid).ok().map(|stat| stat.parent);
            }
        }
        is_spanning || !pids.is_empty()
    }

    /// Flushes a job's ports twice, and says how its program stands.
    pub fn snapshot(
        &self,
        peer: Peer,
        job: JobId,
        with_contents: bool,
    ) -> Result<v1::Snapshot, Error> {
        self.permit(peer, job, "take a snapshot")?;
        let of = self.ports.of(job).filter(|of| locked(&of.shown).all > 0);
        let of = of.ok_or_else(|| Error::Failed {
            operation: format!("take a snapshot of job {job}"),
            reason: "it has opened no port: its program sends no messages by libgang-fi.so (gang \
                     run --net), or began before this daemon"
                .into(),
        })?;
        let timeout_ns = self.settings().flush_timeout.as_nanos() as u64;
        let mut buffer = port::buffer();
        let mut gang = locked(&of.gang);
        let mut round = |gang: &mut Gang| {
            let is_flushed = gang.flush(clock::monotonic_ns(), timeout_ns, &mut buffer);
            let look = gang.look(&self.roots.proc, |ports| self.has_outsiders(job, ports));
            (is_flushed, look)
        };
        round(&mut gang);
        let (mut is_flushed, mut look) = round(&mut gang);
        let (mut found, mut not_there) = (None, None);
        if with_contents {
            for _ in 0..ATTEMPTS {
                let held = gang.contents(&look);
                let (is_flushed_now, now) = round(&mut gang);
                // Numbers that are the same stood still while contents were read.
                let is_same = is_flushed && is_flushed_now && numbers(&look) == numbers(&now);
                (is_flushed, look) = (is_flushed_now, now);
                if is_same {
                    found = Some(held);
                    break;
                }
            }
            not_there = found.is_none().then(|| {
                format!("messages went in each of {ATTEMPTS} flushes; gang suspend {job} stops it")
            });
        }
        let contents = found.and_then(|held: Vec<(usize, contents::Held)>| {
            let bytes: usize = held.iter().map(|(_, it)| it.bytes.len() + 128).sum();
            if bytes > CONTENTS_MAX {
                not_there = Some(format!("more than {CONTENTS_MAX} bytes are in its channels"));
                return None;
            }
            Some(held.into_iter().map(|(at, it)| in_channel(&gang.ports()[at], &it)).collect())
        });
        let shown = gang.shown();
        *locked(&of.shown) = shown.clone();
        let pids: BTreeMap<u64, i64> =
            gang.ports().iter().map(|port| (port.number, port.pid.into())).collect();
        let ports = gang.ports().iter().zip(&look.seen).zip(&look.views);
        let ports = ports.map(|((port, seen), view)| {
            let held = view.as_ref().map_or(0, |view| port.contents(&view.head).len());
            let under_way = view.as_ref().map_or(0, |view| view.under_way);
            describe_port(port, seen, &pids, under_way, held)
        });
        let (state, since_ns) = state(&look.stands);
        Ok(v1::Snapshot {
            job: job.0 as i64,
            at_ns: clock::utc_ns() as i64,
            state,
            since_ns,
            is_flushed: is_flushed && look.is_settled,
            ports: ports.collect(),
            flushes: flushes(shown.ports, &gang.sums()),
            contents,
            not_there,
        })
    }
}

/// The numbers by which it shows that nothing went.
fn numbers(look: &Look) -> Vec<(u64, u64, u64, u64)> {
    let of = |(seen, view): (&Seen, &Option<port::View>)| {
        let head = view.as_ref().map(|view| &view.head);
        let position = head.map_or(0, |head| head.position ^ head.spill_read << 32);
        (seen.sent, seen.taken, seen.turn, position)
    };
    look.seen.iter().zip(&look.views).map(of).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn in_channel(port: &Port, held: &contents::Held) -> v1::InChannel {
    let (medium, from) = match held.from {
        contents::From::Process(pid) => ("shm", pid.to_string()),
        contents::From::Socket(socket) => ("udp", socket.to_string()),
    };
    v1::InChannel {
        pid: port.pid.into(),
        medium: medium.to_owned(),
        from,
        sequence: number(held.sequence),
        bytes: hexadecimal(&held.bytes),
    }
}

fn number(of: u64) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

fn describe_port(
    port: &Port,
    seen: &Seen,
    pids: &BTreeMap<u64, i64>,
    under_way: u64,
    held: usize,
) -> v1::Port {
    let state = match seen.doing {
        Doing::Computes => v1::PortState::computes,
        Doing::Polls => v1::PortState::polls,
        Doing::Waits => v1::PortState::waits,
        Doing::Closed | Doing::Gone => v1::PortState::closed,
    };
    let waits = matches!(seen.doing, Doing::Waits | Doing::Polls);
    let awaited = seen.awaited.as_ref().filter(|_| waits);
    let whom = awaited.map(|ports| ports.iter().filter_map(|port| pids.get(port).copied()));
    v1::Port {
        pid: port.pid.into(),
        rank: port.rank.map(i64::from),
        state,
        waits_for: whom.map(Iterator::collect),
        sent: number(seen.sent),
        taken: number(seen.taken),
        under_way: number(under_way),
        held: held as i64,
    }
}

fn flushes(ports: usize, sums: &gang_net::Sums) -> v1::Flushes {
    v1::Flushes {
        ports: ports as i64,
        flushes: number(sums.flushes),
        failed: number(sums.failed),
        flush_ns: number(sums.times.flush_ns),
        save_ns: number(sums.times.save_ns),
        switch_ns: number(sums.times.switch_ns),
        longest_ns: number(sums.longest_ns),
    }
}

fn state(stands: &Stands) -> (v1::GlobalState, Option<i64>) {
    match stands {
        Stands::Running => (v1::GlobalState::running, None),
        Stands::Terminated => (v1::GlobalState::terminated, None),
        Stands::Deadlocked(since_ns, _) => (v1::GlobalState::deadlocked, Some(number(*since_ns))),
        Stands::Stalled(since_ns, _) => (v1::GlobalState::stalled, Some(number(*since_ns))),
    }
}

impl Shown {
    /// In the terms of the interface.
    pub fn describe(&self) -> v1::Net {
        let (state, since_ns) = state(&self.stands);
        let holding = self.holding as i64;
        v1::Net { flushes: flushes(self.ports, &self.sums), holding, state, since_ns }
    }
}

impl super::Ports {
    /// Of all jobs, in the terms of the interface.
    pub fn describe(&self) -> Option<v1::Flushes> {
        self.total().map(|(ports, sums)| flushes(ports, &sums))
    }
}
