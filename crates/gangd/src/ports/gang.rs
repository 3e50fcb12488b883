//! The ports of a gang: one flush of all, and what is seen of its program.

use std::{path::Path, time::Duration};

use gang_linux::clock;
use gang_net::{Doing, Lead, Seen, Standing, Stands, Sums, Times, flush::HELD_MAX_NS};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    Shown,
    contents::Held,
    port::{Buffer, Port, View},
};

/// How long a flush sleeps where nothing has come.
const REST: Duration = Duration::from_micros(20);
/// Ports that have ended, of which it is known that they have.
const ENDED_MAX: usize = 1_024;

/// The ports of a gang, and its flushes.
#[derive(Debug, Default)]
pub struct Gang {
    ports: Vec<Port>,
    sums: Sums,
    lead: Lead,
    standing: Standing,
    stands: Stands,
    /// Ports that held something at the last flush.
    holding: usize,
    /// When it was looked at last (CLOCK_MONOTONIC).
    pub looked_ns: u64,
}

/// All of a gang at one moment.
pub struct Look {
    pub views: Vec<Option<View>>,
    pub seen: Vec<Seen>,
    pub stands: Stands,
    /// Nothing was under way.
    pub is_settled: bool,
}

impl Gang {
    pub fn add(&mut self, port: Port) {
        self.ports.push(port);
    }

    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Ports that are open.
    pub fn open(&self) -> usize {
        self.ports.iter().filter(|port| !port.is_over()).count()
    }

    /// Forgets ports that have ended where there are many: those that are left say enough.
    pub fn forget_closed(&mut self) {
        if self.ports.len() - self.open() >= ENDED_MAX {
            self.ports.retain(|port| !port.is_over());
        }
    }

    pub fn shown(&self) -> Shown {
        let (sums, stands, holding) = (self.sums, self.stands.clone(), self.holding);
        Shown { ports: self.open(), all: self.ports.len(), holding, sums, stands }
    }

    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// How long before the edge a flush of this gang begins.
    pub fn lead_ns(&self, timeout_ns: u64) -> u64 {
        self.lead.ns(timeout_ns)
    }

    /// Flushes all ports within a time, and counts that. The slot ends at `edge_ns`, of the
    /// monotonic clock: frames are held back until then.
    pub fn flush(&mut self, edge_ns: u64, timeout_ns: u64, buffer: &mut Buffer) -> bool {
        let began_ns = clock::monotonic_ns();
        let over_ns = began_ns + timeout_ns;
        let until_ns = over_ns.max(edge_ns).min(began_ns + HELD_MAX_NS);
        self.ports.iter().for_each(|port| port.hold(until_ns));
        let is_over = || clock::monotonic_ns() >= over_ns;
        let is_flushed = loop {
            if self.settle(buffer, &is_over) {
                break true;
            }
            if is_over() {
                break false;
            }
            self.rest();
        };
        let flushed_ns = clock::monotonic_ns();
        self.holding = self.ports.iter().filter(|port| port.save()).count();
        let saved_ns = clock::monotonic_ns();
        let then_ns = if edge_ns > saved_ns { edge_ns } else { 0 };
        self.ports.iter_mut().for_each(|port| {
            port.hold(then_ns.min(saved_ns + HELD_MAX_NS));
            port.wake();
        });
        let ended_ns = clock::monotonic_ns();
        let times = Times {
            flush_ns: flushed_ns - began_ns,
            save_ns: saved_ns - flushed_ns,
            switch_ns: ended_ns - saved_ns,
        };
        self.sums.add(is_flushed.then_some(times));
        self.lead.took(times.flush_ns + times.save_ns);
        is_flushed
    }

    /// One round: true where nothing was under way.
    fn settle(&mut self, buffer: &mut Buffer, is_over: &impl Fn() -> bool) -> bool {
        for port in &mut self.ports {
            let Some(view) = port.view().filter(|view| !port.has_ended(view)) else { continue };
            port.drain(&view.head, buffer, is_over);
            port.send_receipts(&view.head, is_over);
        }
        // Receipts of ports of this host have come by now.
        let mut is_settled = true;
        for port in &mut self.ports {
            let Some(view) = port.view() else {
                is_settled = false;
                continue;
            };
            // Nobody hears of what one that has ended has sent.
            if port.has_ended(&view) {
                continue;
            }
            port.drain(&view.head, buffer, is_over);
            let view = port.view();
            is_settled &= view.is_some_and(|view| view.is_settled());
        }
        is_settled
    }

    /// The reason why a flush is not over, for the log.
    pub fn why_unsettled(&mut self) -> String {
        let of_port = |port: &mut Port| {
            let Some(View { head, under_way, .. }) = port.view() else {
                return format!("the page of process {} cannot be read", port.pid);
            };
            let carries = if head.is_busy { ", carries frames" } else { "" };
            format!("process {}: {under_way} under way{carries}", port.pid)
        };
        self.ports.iter_mut().map(of_port).collect::<Vec<_>>().join("; ")
    }

    /// Waits for a frame, or for a short time.
    fn rest(&self) {
        let sockets = self.ports.iter().filter_map(Port::socket);
        let mut fds: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&clock::timespec(REST)));
    }

    /// Looks at all ports: how the program stands. Where that depends on it, `has_outsiders` says
    /// whether the program may have other ports than these.
    pub fn look(&mut self, proc_root: &Path, has_outsiders: impl FnOnce(&[Port]) -> bool) -> Look {
        let mut is_settled = true;
        let (mut views, mut seen) = (Vec::new(), Vec::new());
        for port in &mut self.ports {
            let view = port.view();
            let doing = match &view {
                Some(view) => port.seen(proc_root, view),
                None => Seen {
                    port: port.number,
                    doing: Doing::Computes,
                    awaited: None,
                    sent: 0,
                    taken: 0,
                    turn: 0,
                    has_inbound: false,
                },
            };
            // Nobody hears of what one that has ended has sent.
            let is_over = matches!(doing.doing, Doing::Closed | Doing::Gone);
            is_settled &= is_over || view.as_ref().is_some_and(View::is_settled);
            views.push(view);
            seen.push(doing);
        }
        let waits_for_any = |seen: &Seen| {
            matches!(seen.doing, Doing::Waits | Doing::Polls) && seen.awaited.is_none()
        };
        let are_over = seen.iter().all(|seen| matches!(seen.doing, Doing::Closed | Doing::Gone));
        let depends = is_settled && (are_over || seen.iter().any(waits_for_any));
        let has_outsiders = depends && has_outsiders(&self.ports);
        self.stands = self.standing.looked(clock::utc_ns(), is_settled, has_outsiders, &seen);
        self.looked_ns = clock::monotonic_ns();
        Look { views, seen, stands: self.stands.clone(), is_settled }
    }

    /// The contents of the channels to all ports, by the places of these.
    pub fn contents(&self, look: &Look) -> Vec<(usize, Held)> {
        let of_port = |(at, port): (usize, &Port)| {
            let view = look.views.get(at).and_then(Option::as_ref);
            let held = view.map(|view| port.contents(&view.head)).unwrap_or_default();
            held.into_iter().map(move |it| (at, it)).collect::<Vec<_>>()
        };
        self.ports.iter().enumerate().flat_map(of_port).collect()
    }
}

impl View {
    /// Nothing is under way from the port.
    fn is_settled(&self) -> bool {
        self.under_way == 0 && !self.is_unclear
    }
}
