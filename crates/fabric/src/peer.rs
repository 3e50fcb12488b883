//! Peers: which medium each is reached by, what waits to be sent to them, and how they end.

use std::{collections::VecDeque, net::SocketAddr};

use gang_net::{Channel, Config, Key, Numbers, Rank};

use crate::{
    address::{self, Address},
    completion::{Completion, fi},
    packet::{Head, Kind},
    page::Page,
    queue::Writer,
    settings::Medium,
    spans::{Span, Spans},
    state::State,
};

/// Peers that have said nothing but frames yet: no more are listened to.
const UNKNOWN_MAX: usize = 1_024;
/// Frames that a channel has room for: about as many as Linux keeps for a socket that nobody reads,
/// unless net.core.rmem_max says otherwise. It is the same on all hosts.
const WINDOW: u64 = 128;
/// A channel takes no packets while so many frames wait.
const BACKLOG_MAX: usize = 256;

#[derive(Debug)]
pub struct Peer {
    /// None for a socket that has not said hello.
    pub address: Option<Address>,
    pub link: Link,
    /// The channel by which frames come, whatever the link is.
    pub way: Option<Way>,
    pub waiting: VecDeque<Packet>,
    pub streams: VecDeque<Stream>,
    /// The kernel has refused to copy from its memory.
    pub no_copy: bool,
    pub is_busy: bool,
    pub is_dead: bool,
}

/// The medium to a peer.
#[derive(Debug)]
pub enum Link {
    SharedMemory(Writer),
    Udp,
    /// There is none, or none any more.
    Nothing,
}

/// A channel over UDP.
#[derive(Debug)]
pub struct Way {
    pub channel: Channel,
    pub to: SocketAddr,
    /// Before, the peer would take no frame of ours.
    pub is_known: bool,
    /// Sends that end once the peer has so many messages of ours.
    pub unacknowledged: VecDeque<(u64, Ended)>,
    key: Key,
    rank: Rank,
    /// The number of the peer's port; 0 where it has not said.
    port: u64,
    /// The entry in the page, and what stands there.
    entry: Entry,
}

/// The entry of a channel in the port's page.
#[derive(Debug, Default)]
enum Entry {
    #[default]
    New,
    /// The page has no room for it.
    None,
    At {
        place: usize,
        numbers: Numbers,
        is_live: bool,
        key: Key,
        port: u64,
    },
}

/// A packet that waits for room, and the send that ends with it.
#[derive(Debug)]
pub struct Packet {
    pub head: Head,
    pub payload: Vec<u8>,
    pub ended: Option<Ended>,
}

/// A send, once it has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub endpoint: usize,
    pub reports: bool,
    pub completion: Completion,
}

/// A message that the peer has pulled, on its way in parts.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub send: u64,
    pub receive: u64,
    pub from: u16,
    pub to: u16,
    pub offset: usize,
    pub wanted: usize,
}

/// The bytes of a vector, as parts.
pub fn spans_of(bytes: &[u8]) -> Spans {
    let part = Span { base: bytes.as_ptr() as usize, length: bytes.len() };
    Spans::new(&[part]).expect("one part")
}

/// The number that a port has in frames.
fn rank(port: u64) -> Rank {
    Rank(port as u32)
}

fn channel(key: Key, own: u64, peer: Rank) -> Channel {
    let config = Config { window: WINDOW, ..Config::default() };
    Channel::new(config, key, rank(own), peer)
}

impl Way {
    fn new(channel: Channel, to: SocketAddr, key: Key, rank: Rank) -> Way {
        let (unacknowledged, entry) = (VecDeque::new(), Entry::New);
        Way { channel, to, is_known: false, unacknowledged, key, rank, port: 0, entry }
    }

    /// The peer has said who it is.
    fn know(&mut self, port: u64, key: Key) {
        self.channel.set_peer_key(key);
        (self.is_known, self.port, self.key) = (true, port, key);
    }

    /// The page says of the channel what holds.
    pub fn publish(&mut self, page: &mut Page, is_dead: bool) {
        let new = self.channel.numbers();
        let (is_live_now, key_now, port_now) = (!is_dead, self.key, self.port);
        match &mut self.entry {
            Entry::None => return,
            Entry::At { place, numbers, is_live, key, port }
                if (*is_live, *key, *port) == (is_live_now, key_now, port_now) =>
            {
                if *numbers != new {
                    page.set_numbers(*place, numbers, &new);
                    *numbers = new;
                }
                return;
            }
            Entry::New | Entry::At { .. } => {}
        }
        let place = match self.entry {
            Entry::At { place, .. } => Some(place),
            _ => page.add_peer(),
        };
        let Some(place) = place else {
            self.entry = Entry::None;
            return;
        };
        let (socket, rank) = (self.to, self.rank);
        let (port, key, is_live, numbers) = (port_now, key_now, is_live_now, new);
        page.set_peer(place, &gang_net::port::Peer { socket, rank, port, key, is_live, numbers });
        self.entry = Entry::At { place, numbers, is_live, key, port };
    }

    /// Another channel counts for the peer from now on.
    fn leave(mut self, page: &mut Page) {
        self.publish(page, true);
    }
}

impl Peer {
    fn new(address: Option<Address>, link: Link, way: Option<Way>) -> Peer {
        Peer {
            address,
            link,
            way,
            waiting: VecDeque::new(),
            streams: VecDeque::new(),
            no_copy: false,
            is_busy: false,
            is_dead: false,
        }
    }

    /// Hands a packet to the medium; false where that has no room.
    ///
    /// # Safety
    /// `payload` may be read.
    pub unsafe fn push(&mut self, head: Head, payload: &Spans) -> bool {
        match (&self.link, &mut self.way) {
            // SAFETY: the caller vouches for the payload.
            (Link::SharedMemory(writer), _) => unsafe { writer.push(head, payload) },
            (Link::Udp, Some(way)) if way.channel.backlog() < BACKLOG_MAX => {
                // SAFETY: as above.
                let bytes = head.to_bytes(&unsafe { payload.to_vec() });
                way.channel.send(&bytes).is_ok()
            }
            _ => false,
        }
    }

    /// The end of a send whose last packet the medium has taken: now, or with its acknowledgement.
    /// A program that waits for the end makes progress meanwhile, which loss asks for.
    pub fn taken(&mut self, ended: Ended) -> Option<Ended> {
        match (&self.link, &mut self.way) {
            (Link::Udp, Some(way)) => {
                way.unacknowledged.push_back((way.channel.counts().messages_sent, ended));
                None
            }
            _ => Some(ended),
        }
    }

    pub fn has_nothing_to_send(&self) -> bool {
        let way = self.way.as_ref().filter(|_| matches!(self.link, Link::Udp));
        let is_flushed =
            way.is_none_or(|way| way.channel.is_flushed() && way.channel.backlog() == 0);
        self.is_dead || self.waiting.is_empty() && self.streams.is_empty() && is_flushed
    }
}

impl State {
    /// The peer at an address; chooses its medium when it is addressed first.
    pub fn connect(&mut self, address: &Address) -> usize {
        let known = self.by_port.get(&address.port).copied();
        if let Some(at) = known.filter(|&at| !matches!(self.peers[at].link, Link::Nothing)) {
            return at;
        }
        if let Some(at) = known.filter(|&at| self.peers[at].is_dead) {
            return at;
        }
        let (link, why) = self.choose(address);
        let at = known.unwrap_or_else(|| {
            self.peers.push(Peer::new(None, Link::Nothing, None));
            self.peers.len() - 1
        });
        self.by_port.insert(address.port, at);
        let whom = format!("peer {:08x} (process {})", address.port as u32, address.pid);
        let is_none = matches!(link, Link::Nothing);
        (self.log)(is_none, &format!("{whom}: {why}"));
        if let (Link::Udp, None, Some(to)) = (&link, &self.peers[at].way, address.socket) {
            let rank = rank(address.port);
            let channel = channel(self.own.key, self.own.port, rank);
            let mut way = Way::new(channel, to, address.key, rank);
            way.know(address.port, address.key);
            self.peers[at].way = Some(way);
            self.by_socket.insert(to, at);
            self.ways.push(at);
        }
        let peer = &mut self.peers[at];
        (peer.address, peer.link) = (Some(*address), link);
        if is_none {
            self.bury(at);
            return at;
        }
        let hello = self.head(Kind::Hello, 0, 0);
        let payload = self.own.to_bytes().to_vec();
        self.post(at, Packet { head: hello, payload, ended: None });
        at
    }

    /// The medium to an address, and why.
    fn choose(&self, address: &Address) -> (Link, String) {
        let medium = self.settings.medium;
        let mut why = match medium {
            Medium::Udp => "GANG_NET_MEDIUM wants it".to_owned(),
            _ if address.host == self.own.host => {
                let is_there = address::started(address.pid) == Some(address.started);
                let opened = match is_there {
                    true => Writer::open(address.pid, address.descriptor, address.key),
                    false => return (Link::Nothing, "its process has ended".to_owned()),
                };
                match opened {
                    Ok(writer) => {
                        let why = "shared memory, since it is on this host".to_owned();
                        return (Link::SharedMemory(writer), why);
                    }
                    Err(error) => format!("its queue cannot be opened: {error}"),
                }
            }
            _ => "it is on another host".to_owned(),
        };
        if medium == Medium::SharedMemory {
            return (Link::Nothing, format!("no medium: {why}, and GANG_NET_MEDIUM is shm"));
        }
        match (address.socket, self.own.socket) {
            (Some(to), Some(_)) => (Link::Udp, format!("UDP to {to}, since {why}")),
            _ => {
                why.push_str(", and one of the two has no socket");
                (Link::Nothing, format!("no medium: {why}"))
            }
        }
    }

    pub fn head(&self, kind: Kind, from: u16, to: u16) -> Head {
        let (is_tagged, has_data, source) = (false, false, self.own.port);
        Head { source, kind, is_tagged, has_data, from, to, tag: 0, data: 0 }
    }

    /// Hands a packet to the medium of a peer; false where that has no room.
    ///
    /// # Safety
    /// `payload` may be read.
    pub unsafe fn push(&mut self, at: usize, head: Head, payload: &Spans) -> bool {
        if matches!(self.peers[at].link, Link::Udp) {
            // Until frames are carried next, which counts again.
            self.page.set_backlog(1);
        }
        // SAFETY: the caller vouches for it.
        let is_sent = unsafe { self.peers[at].push(head, payload) };
        if is_sent {
            self.page.sent();
        }
        is_sent
    }

    /// Sends a packet of our own, now or when there is room.
    pub fn post(&mut self, at: usize, packet: Packet) {
        if self.peers[at].is_dead {
            return;
        }
        // SAFETY: the payload is the packet's own.
        let is_sent = self.peers[at].waiting.is_empty()
            && unsafe { self.push(at, packet.head, &spans_of(&packet.payload)) };
        if !is_sent {
            self.peers[at].waiting.push_back(packet);
            self.is_busy(at);
        }
    }

    /// The peer has something that waits.
    pub fn is_busy(&mut self, at: usize) {
        if !std::mem::replace(&mut self.peers[at].is_busy, true) {
            self.busy.push(at);
            self.page.set_waiting(self.busy.len());
        }
    }

    /// A peer has said where it is.
    pub fn greet(&mut self, from: Option<usize>, address: &Address) -> Option<usize> {
        let Some(unknown) = from.filter(|&at| self.peers[at].address.is_none()) else {
            return Some(self.connect(address));
        };
        // It came by a socket, whose address must be the one that it says.
        let way = self.peers[unknown].way.take()?;
        if address.socket != Some(way.to) {
            self.refused += 1;
            return None;
        }
        let at = match self.by_port.get(&address.port) {
            Some(&known) if known != unknown => known,
            _ => {
                self.by_port.insert(address.port, unknown);
                unknown
            }
        };
        self.by_socket.insert(way.to, at);
        self.ways.retain(|&it| it != unknown);
        self.ways.push(at);
        let mut way = way;
        way.know(address.port, address.key);
        if let Some(other) = self.peers[at].way.replace(way) {
            other.leave(&mut self.page);
        }
        Some(self.connect(address))
    }

    /// The peer at a socket that has sent a frame with our key.
    pub fn heard(&mut self, from: SocketAddr, peer: Rank) -> Option<usize> {
        let unknown =
            self.peers.iter().filter(|it| it.address.is_none() && it.way.is_some()).count();
        if unknown >= UNKNOWN_MAX {
            return None;
        }
        let channel = channel(self.own.key, self.own.port, peer);
        let way = Way::new(channel, from, self.own.key, peer);
        self.peers.push(Peer::new(None, Link::Nothing, Some(way)));
        let at = self.peers.len() - 1;
        self.by_socket.insert(from, at);
        self.ways.push(at);
        Some(at)
    }

    /// Tells peers elsewhere that nothing is read here any more.
    pub fn say_bye(&mut self) {
        for at in self.ways.clone() {
            let head = self.head(Kind::Bye, 0, 0);
            if matches!(self.peers[at].link, Link::Udp) {
                self.post(at, Packet { head, payload: Vec::new(), ended: None });
            }
        }
    }

    /// A peer has ended: all that is under way with it ends with ENOTCONN.
    pub fn bury(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if std::mem::replace(&mut peer.is_dead, true) {
            return;
        }
        self.deaths += 1;
        peer.link = Link::Nothing;
        peer.streams.clear();
        let waiting = std::mem::take(&mut peer.waiting);
        let port = peer.address.map(|address| address.port);
        let sent = self.peers[at].way.as_mut().map(|way| std::mem::take(&mut way.unacknowledged));
        let sent = sent.unwrap_or_default().into_iter().map(|(_, ended)| ended);
        for ended in sent.chain(waiting.into_iter().filter_map(|packet| packet.ended)) {
            self.end_send(ended, fi::ENOTCONN);
        }
        for number in self.sends.numbers(|sending| sending.peer == at) {
            if let Some(sending) = self.sends.remove(number) {
                self.end_send(sending.ended, fi::ENOTCONN);
            }
        }
        for number in self.receives.numbers(|receiving| receiving.peer == at) {
            if let Some(receiving) = self.receives.remove(number) {
                self.end_receive(receiving.end, receiving.got, fi::ENOTCONN);
            }
        }
        if let Some(port) = port {
            self.fail_receives_from(port);
        }
    }
}
