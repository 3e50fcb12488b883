//! Progress: packets that have come, packets that wait, frames, and whether peers live.

use std::time::{Duration, Instant};

use gang_net::{Frame, Refused};

use crate::{address, packet::Head, queue::Next, spans::Foreign, state::State, udp::Came};

/// Packets and frames that are taken in one go.
const AT_ONCE: usize = 64;
/// Frames to one peer in one go.
const FRAMES_AT_ONCE: usize = 64;
/// Without channels, the socket is looked at once in so many calls.
const SOCKET_CALLS: u32 = 256;
/// Calls until the clock is read.
const CLOCK_CALLS: u32 = 1_024;
/// How often processes of peers are looked at, and how many in one go.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOK_AT: usize = 8;

impl State {
    /// Does what can be done now, without waiting.
    pub fn progress(&mut self) {
        self.drain();
        if !self.busy.is_empty() {
            self.send_waiting();
        }
        self.calls = self.calls.wrapping_add(1);
        if !self.ways.is_empty() || self.calls % SOCKET_CALLS == 0 {
            self.carry();
        }
        if self.calls % CLOCK_CALLS == 0 {
            self.look_after_peers();
        }
    }

    /// Takes packets from the queue.
    fn drain(&mut self) {
        for _ in 0..AT_ONCE {
            match self.reader.look() {
                Next::Nothing => return,
                Next::Packet(head, payload) => {
                    self.arrive(None, head, payload);
                    self.reader.done();
                }
                // See `look_after_peers`, which knows whether the process lives.
                Next::Claimed { .. } => return,
                Next::Nonsense => self.refused += 1,
            }
        }
    }

    /// Takes frames from the socket, and sends what channels have to send.
    pub fn carry(&mut self) {
        let Some(mut socket) = self.socket.take() else { return };
        for _ in 0..AT_ONCE {
            match socket.receive() {
                Came::Nothing => break,
                Came::Frame(from, bytes) => self.arrive_frame(from, bytes),
                Came::Refused(address) => {
                    if let Some(&at) = self.by_socket.get(&address) {
                        let text = format!("nobody has a socket at {address} any more");
                        (self.log)(false, &text);
                        self.bury(at);
                    }
                }
                Came::Other(error) => {
                    (self.log)(false, &format!("UDP: {error}"));
                    break;
                }
            }
        }
        self.end_acknowledged();
        let now_ns = self.now_ns();
        let mut frame = Vec::new();
        for n in 0..self.ways.len() {
            let peer = &mut self.peers[self.ways[n]];
            let Some(way) = peer.way.as_mut().filter(|way| way.is_known && !peer.is_dead) else {
                continue;
            };
            for _ in 0..FRAMES_AT_ONCE {
                frame.clear();
                if !way.channel.poll(now_ns, &mut frame) {
                    break;
                }
                socket.send(way.to, &frame);
            }
        }
        socket.release_all();
        self.socket = Some(socket);
    }

    /// Ends sends that peers elsewhere have acknowledged.
    fn end_acknowledged(&mut self) {
        for n in 0..self.ways.len() {
            let at = self.ways[n];
            while let Some(way) = &mut self.peers[at].way {
                let acknowledged = way.channel.counts().messages_acknowledged;
                let front = way.unacknowledged.front();
                if front.is_none_or(|(number, _)| *number > acknowledged) {
                    break;
                }
                if let Some((_, ended)) = way.unacknowledged.pop_front() {
                    self.end_send(ended, 0);
                }
            }
        }
    }

    fn arrive_frame(&mut self, from: std::net::SocketAddr, bytes: &[u8]) {
        let Ok(frame) = Frame::read(bytes) else {
            self.refused += 1;
            return;
        };
        let known = self.by_socket.get(&from).copied();
        let at = match known {
            None if frame.header.key == self.own.key => self.heard(from, frame.header.from),
            known => known,
        };
        let Some(at) = at else {
            self.refused += 1;
            return;
        };
        let now_ns = self.now_ns();
        let Some(way) = self.peers[at].way.as_mut() else { return };
        if let Err(Refused::Key | Refused::Peer) = way.channel.receive(now_ns, &frame) {
            self.refused += 1;
            return;
        }
        // The first packet may say who the peer is, and move the channel there.
        let mut at = at;
        while let Some(bytes) = self.peers[at].way.as_mut().and_then(|way| way.channel.take()) {
            match Head::from_bytes(&bytes) {
                Some((head, payload)) => self.arrive(Some(at), head, Foreign::of(payload)),
                None => self.refused += 1,
            }
            let Some(&now_at) = self.by_socket.get(&from) else { return };
            at = now_at;
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Looks whether processes of peers live, now and then, and puts the queue right.
    pub fn look_after_peers(&mut self) {
        let now = Instant::now();
        if now - self.looked_at < LOOK_EVERY {
            return;
        }
        self.looked_at = now;
        self.reader.repair();
        if let Next::Claimed { pid } = self.reader.look() {
            if address::started(pid).is_none() {
                self.reader.done();
            }
        }
        self.meet_awaited();
        let own = self.own.host;
        for _ in 0..LOOK_AT.min(self.peers.len()) {
            let at = self.look_at % self.peers.len();
            self.look_at = at + 1;
            let peer = &self.peers[at];
            let near = peer.address.filter(|address| address.host == own && !peer.is_dead);
            let Some(address) = near else { continue };
            if address::started(address.pid) == Some(address.started) {
                continue;
            }
            (self.log)(false, &format!("process {} has ended", address.pid));
            // Packets that it had written before come first.
            while let Next::Packet(head, payload) = self.reader.look() {
                self.arrive(None, head, payload);
                self.reader.done();
            }
            self.bury(at);
        }
    }

    /// Connects to senders that receives wait for: only of peers it is known whether they live.
    fn meet_awaited(&mut self) {
        let mut awaited = Vec::new();
        for endpoint in self.endpoints.iter().flatten() {
            let Some(vector) = endpoint.vector.and_then(|it| self.vectors[it].as_ref()) else {
                continue;
            };
            let sources = endpoint.tagged.awaited().chain(endpoint.plain.awaited());
            let unknown = sources.filter(|source| !self.by_port.contains_key(&source.port));
            let places = unknown.filter_map(|source| vector.places.get(&source));
            let entries = places.filter_map(|&place| vector.entries[place as usize]);
            awaited.extend(entries.map(|entry| entry.address).take(LOOK_AT));
        }
        for address in awaited {
            self.connect(&address);
        }
    }

    /// Nothing waits to be sent, or is on its way without an answer.
    pub fn is_flushed(&self) -> bool {
        self.busy.is_empty() && self.peers.iter().all(|peer| peer.has_nothing_to_send())
    }

    /// How long a thread may block at most, for what no writer wakes it for.
    pub fn wakes_after(&self) -> Duration {
        let soon = Duration::from_millis(1);
        if !self.busy.is_empty() {
            return soon;
        }
        let ways = self.ways.iter().filter_map(|&at| self.peers[at].way.as_ref());
        let wakes_ns = ways.filter_map(|way| way.channel.wakes_ns()).min();
        let now_ns = self.now_ns();
        let again = wakes_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now_ns)));
        again.unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
    }
}
