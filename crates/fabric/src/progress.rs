//! Progress: packets that have come, packets that wait, frames, and whether peers live.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use gang_net::{Frame, Refused};

use crate::{
    address, packet::Head, page::Awaited, queue::Next, spans::Foreign, state::State, udp::Came,
};

/// Packets that are taken in one go.
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
                    self.page.takes();
                    self.arrive(None, head, payload);
                    self.done();
                }
                // See `look_after_peers`, which knows whether the process lives.
                Next::Claimed { .. } => return,
                Next::Nonsense => {
                    self.refused += 1;
                    self.page.set_position(self.reader.position());
                }
            }
        }
    }

    /// The cell at the head of the queue is free.
    fn done(&mut self) {
        self.reader.done();
        self.page.set_position(self.reader.position());
    }

    /// A thread that waits found nothing for itself.
    pub fn found_nothing(&mut self) {
        if self.page.is_new() {
            let awaited = self.awaited();
            self.page.publish_awaited(&awaited);
        }
        self.page.looked();
    }

    /// A program that polls found nothing.
    pub fn polled(&mut self) {
        if self.page.polled() {
            let awaited = self.awaited();
            self.page.publish_awaited(&awaited);
        }
    }

    /// The ports of which a packet may end what is under way here.
    fn awaited(&self) -> Awaited {
        let mut ports = BTreeSet::new();
        for endpoint in self.endpoints.iter().flatten() {
            for source in endpoint.tagged.wanted().chain(endpoint.plain.wanted()) {
                match source {
                    Some(source) => drop(ports.insert(source.port)),
                    None => return Awaited::Any,
                }
            }
        }
        let sends = self.sends.things().map(|sending| sending.peer);
        let peers = sends.chain(self.receives.things().map(|receiving| receiving.peer));
        for at in peers {
            match self.peers[at].address {
                Some(address) => drop(ports.insert(address.port)),
                None => return Awaited::Any,
            }
        }
        // A thread without anything under way waits for a signal, which no port sends.
        if ports.is_empty() { Awaited::Any } else { Awaited::Of(ports) }
    }

    /// Takes frames from the socket, and sends what channels have to send.
    pub fn carry(&mut self) {
        let Some(mut socket) = self.socket.take() else { return };
        let is_held = self.page.begin_carrying();
        // Frames that the host holds came before those in the socket.
        while let Some((from, frame)) = self.page.take_spilled() {
            self.arrive_frame(from, &frame);
        }
        if self.page.has_errors() {
            while let Some(address) = socket.next_refused() {
                self.is_refused(address);
            }
        }
        match socket.receive() {
            Came::Frames(count) => {
                for (from, bytes) in (0..count).filter_map(|n| socket.frame(n)) {
                    self.arrive_frame(from, bytes);
                }
            }
            Came::Refused(address) => self.is_refused(address),
            Came::Other(error) => (self.log)(false, &format!("UDP: {error}")),
        }
        self.end_acknowledged();
        let now_ns = self.now_ns();
        let mut backlog = 0;
        let mut frame = Vec::new();
        for n in 0..self.ways.len() {
            let peer = &mut self.peers[self.ways[n]];
            let is_dead = peer.is_dead;
            let Some(way) = peer.way.as_mut() else { continue };
            way.publish(&mut self.page, is_dead);
            if is_dead || !way.is_known {
                continue;
            }
            if is_held {
                way.channel.hold()
            } else {
                way.channel.go_on()
            }
            for _ in 0..FRAMES_AT_ONCE {
                frame.clear();
                if !way.channel.poll(now_ns, &mut frame) {
                    break;
                }
                // The daemon knows of a frame before it is on its way.
                way.publish(&mut self.page, is_dead);
                socket.send(way.to, &frame);
            }
            socket.flush();
            backlog += usize::from(way.channel.backlog() > 0);
        }
        self.page.set_backlog(backlog);
        socket.release_all();
        self.page.end_carrying();
        self.socket = Some(socket);
    }

    /// A frame came to nobody.
    fn is_refused(&mut self, address: SocketAddr) {
        if let Some(&at) = self.by_socket.get(&address) {
            (self.log)(false, &format!("nobody has a socket at {address} any more"));
            self.bury(at);
        }
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

    fn arrive_frame(&mut self, from: SocketAddr, bytes: &[u8]) {
        // The daemon wakes threads that wait for the socket, by a frame from the port to itself.
        if self.own.socket == Some(from) {
            return;
        }
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
            self.page.takes();
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
                self.done();
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
                self.page.takes();
                self.arrive(None, head, payload);
                self.done();
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
