//! The page of a port, which the port's process shares with the daemon of its host.
//!
//! Problem: the daemon flushes ports whose programs do not call, and must know what these have sent
//! and got. Neither side may be misled by the other.
//!
//! Approach: a memfd with one word for each fact, which its writer alone writes. The daemon reads
//! copies of the page and never maps it. Numbers that make no sense are taken for "computes" and
//! for frames that are under way, or harm the port's own job alone.
//!
//! | bytes | field | writer |
//! |---|---|---|
//! | 0–7 | `GangPrt1` | port |
//! | 8–15 | number of the port | port |
//! | 16–31 | key | port |
//! | 32–35, 36–39 | descriptors of queue and socket in its process; all ones: none | port |
//! | 40–43 | rank that its launcher gave the process; all ones: none | port |
//! | 64– | words of the port, see [`word`] | port |
//! | 512–1023 | ports that the thread waits for | port |
//! | 2048– | words of the daemon | daemon |
//! | 4096– | an entry of 128 bytes for each peer by UDP, see [`Peer`] | port |
//! | [`SPILL`]– | the ring for frames that the host holds, see [`spill`](crate::spill) | daemon |
//!
//! Numbers are little-endian.

use std::{collections::BTreeSet, net::SocketAddr};

use crate::{
    Key, Numbers, Rank,
    spill::{bytes_of, ip_of},
};

/// Where the numbers of frames begin in a peer's entry.
pub const NUMBERS: usize = 48;
/// The head of the page, in bytes: all but peers and ring.
pub const HEAD: usize = 4_096;
/// The length of a peer's entry, in bytes.
pub const PEER: usize = 128;
/// Peers by UDP that there is room for. A port with more is not flushed.
pub const PEERS_MAX: usize = 4_096;
/// Where the ring begins, and its length in bytes.
pub const SPILL: usize = HEAD + PEER * PEERS_MAX;
pub const SPILL_LENGTH: usize = 1 << 20;
/// The length of a page, in bytes.
pub const LENGTH: usize = SPILL + SPILL_LENGTH;

pub const MAGIC: u64 = u64::from_le_bytes(*b"GangPrt1");
/// No descriptor, no rank.
pub const NONE: u32 = u32::MAX;

/// Offsets of the words.
pub mod word {
    pub const MAGIC: usize = 0;
    pub const PORT: usize = 8;
    pub const KEY: usize = 16;
    /// The queue's descriptor, and the socket's in the upper half.
    pub const DESCRIPTORS: usize = 32;
    pub const RANK: usize = 40;

    /// Grows when a thread begins to wait without a timeout, and when it ends to.
    pub const TURN: usize = 64;
    /// Threads that wait so.
    pub const WAITERS: usize = 72;
    /// Things that have come: packets, completions, signals.
    pub const EVENTS: usize = 80;
    /// `EVENTS` as the thread that waits saw it when it found nothing for itself.
    pub const LOOKED: usize = 88;
    /// Packets that a medium has taken, and that came from one.
    pub const SENT: usize = 96;
    pub const TAKEN: usize = 104;
    /// The place of the reader in its queue.
    pub const POSITION: usize = 112;
    /// Calls that made no progress and did not wait: a program that polls makes them.
    pub const POLLS: usize = 120;
    /// 1 while frames are carried to and from the socket, 2 if none is begun meanwhile.
    pub const BUSY: usize = 128;
    /// 1 once the port is closed.
    pub const CLOSED: usize = 136;
    /// Entries of peers that are in use; more than there is room for where there are more.
    pub const PEERS: usize = 144;
    /// The thread that waits, by the number that it has in its own namespace.
    pub const THREAD: usize = 152;
    /// The reader's position in the ring.
    pub const SPILL_READ: usize = 160;
    /// How many ports the thread waits for; all ones: for any.
    pub const AWAITED: usize = 168;
    /// Peers with packets that wait for room in a medium.
    pub const WAITING: usize = 176;
    /// Peers with messages of which frames are not begun.
    pub const BACKLOG: usize = 184;
    /// The ports that the thread waits for.
    pub const AWAITED_PORTS: usize = 512;

    /// No frame is begun before this moment (CLOCK_MONOTONIC, in nanoseconds).
    pub const HELD_UNTIL: usize = 2_048;
    /// The writer's position in the ring.
    pub const SPILL_WRITTEN: usize = 2_056;
    /// Errors that the daemon has taken from the socket: the port looks for their reasons.
    pub const ERRORS: usize = 2_064;
}

/// Ports that a thread waits for by name; of more it is said that it waits for any.
pub const AWAITED_MAX: usize = 64;
/// In [`word::AWAITED`]: any port may wake the thread.
pub const ANY: u64 = u64::MAX;

/// The head of a page, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub port: u64,
    pub key: Key,
    pub queue: Option<u32>,
    pub socket: Option<u32>,
    pub rank: Option<u32>,
    pub turn: u64,
    pub waiters: u64,
    pub events: u64,
    pub looked: u64,
    pub sent: u64,
    pub taken: u64,
    pub position: u64,
    pub polls: u64,
    /// Frames are carried at this moment, and perhaps begun.
    pub is_busy: bool,
    pub may_begin: bool,
    pub is_closed: bool,
    pub peers: u64,
    pub thread: u64,
    pub spill_read: u64,
    pub waiting: u64,
    pub backlog: u64,
    /// None: any port.
    pub awaited: Option<BTreeSet<u64>>,
}

impl Head {
    /// None if it is no page of this version.
    pub fn read(bytes: &[u8; HEAD]) -> Option<Head> {
        let word = |at: usize| read_word(bytes, at);
        if word(word::MAGIC) != MAGIC {
            return None;
        }
        let halves = |at: usize| {
            let of = word(at);
            [of as u32, (of >> 32) as u32].map(|half| (half != NONE).then_some(half))
        };
        let [queue, socket] = halves(word::DESCRIPTORS);
        let [rank, _] = halves(word::RANK);
        let count = word(word::AWAITED);
        let ports = 0..usize::try_from(count).unwrap_or(usize::MAX).min(AWAITED_MAX);
        let awaited = ports.map(|at| word(word::AWAITED_PORTS + 8 * at)).collect();
        Some(Head {
            port: word(word::PORT),
            key: Key(bytes[word::KEY..word::KEY + 16].try_into().expect("16 bytes")),
            queue,
            socket,
            rank,
            turn: word(word::TURN),
            waiters: word(word::WAITERS),
            events: word(word::EVENTS),
            looked: word(word::LOOKED),
            sent: word(word::SENT),
            taken: word(word::TAKEN),
            position: word(word::POSITION),
            polls: word(word::POLLS),
            is_busy: word(word::BUSY) != 0,
            may_begin: !matches!(word(word::BUSY), 0 | 2),
            is_closed: word(word::CLOSED) != 0,
            peers: word(word::PEERS),
            thread: word(word::THREAD),
            spill_read: word(word::SPILL_READ),
            waiting: word(word::WAITING),
            backlog: word(word::BACKLOG),
            awaited: (count <= AWAITED_MAX as u64).then_some(awaited),
        })
    }

    /// One thread waits without a timeout, has looked at all that came, and nothing waits to be
    /// sent: a message alone wakes it.
    pub fn waits(&self) -> bool {
        self.waiters == 1 && self.events == self.looked && self.has_sent_all()
    }

    /// A medium has taken all that was to be sent.
    pub fn has_sent_all(&self) -> bool {
        self.waiting == 0 && self.backlog == 0 && !self.is_busy
    }
}

/// A peer by UDP, as its entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub socket: SocketAddr,
    /// The number that it has in frames.
    pub rank: Rank,
    /// Its port's number; 0 where it has not said.
    pub port: u64,
    /// The key that it wants in frames.
    pub key: Key,
    /// It lives, as far as is known, and this is the entry that counts for it.
    pub is_live: bool,
    pub numbers: Numbers,
}

impl Peer {
    /// As words, for one after the other.
    pub fn to_words(&self) -> [u64; PEER / 8] {
        let halves = |bytes: [u8; 16]| {
            let (low, high) = bytes.split_at(8);
            [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("8 bytes")))
        };
        let Numbers { next, acknowledged, receipted, expected, seen, answered } = self.numbers;
        let [ip_low, ip_high] = halves(bytes_of(self.socket.ip()));
        let [key_low, key_high] = halves(self.key.0);
        let place = u64::from(self.socket.port()) | u64::from(self.rank.0) << 32;
        let live = u64::from(self.is_live);
        let named = [ip_low, ip_high, place, self.port, key_low, key_high];
        let counted = [next, acknowledged, receipted, expected, seen, answered, live];
        let mut words = [0; PEER / 8];
        for (word, value) in words.iter_mut().zip(named.into_iter().chain(counted)) {
            *word = value;
        }
        words
    }

    pub fn read(bytes: &[u8; PEER]) -> Peer {
        let word = |at: usize| read_word(bytes, 8 * at);
        let both = |at: usize| bytes[8 * at..8 * at + 16].try_into().expect("16 bytes");
        Peer {
            socket: SocketAddr::from((ip_of(both(0)), word(2) as u16)),
            rank: Rank((word(2) >> 32) as u32),
            port: word(3),
            key: Key(both(4)),
            numbers: Numbers {
                next: word(6),
                acknowledged: word(7),
                receipted: word(8),
                expected: word(9),
                seen: word(10),
                answered: word(11),
            },
            is_live: word(12) == 1,
        }
    }
}

fn read_word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Cells of a port's queue in shared memory, as far as a host looks at them.
///
/// `gang_fabric::queue` describes the queue, and checks that these are the same.
pub mod queue {
    /// Offset of the first cell, and the distance of cells, in bytes.
    pub const FIRST: usize = 4_096;
    pub const STRIDE: usize = 65 * 64;
    pub const CELLS: u64 = 256;
    /// The head of a packet in its cell, and the packet's payload.
    pub const PACKET: usize = 8;
    pub const PACKET_HEAD: usize = 32;
    pub const PAYLOAD_MAX: usize = 4_096;

    /// The offset of the cell at a position.
    pub fn cell(position: u64) -> usize {
        FIRST + (position % CELLS) as usize * STRIDE
    }

    /// Something is in the cell at a position, or about to be: its word is not that of a free cell.
    pub fn is_in_use(position: u64, word: u64) -> bool {
        word != (position / CELLS) << 24
    }

    /// The length of the payload of a packet that is whole; none while it is written.
    pub fn length(position: u64, word: u64, second: u64) -> Option<usize> {
        let is_ready = word >> 24 == position / CELLS && word & 3 == 2;
        let length = usize::from((second >> 48) as u16);
        (is_ready && length <= PAYLOAD_MAX).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn page() -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        put(&mut bytes, word::MAGIC, MAGIC);
        put(&mut bytes, word::DESCRIPTORS, 5 | u64::from(NONE) << 32);
        put(&mut bytes, word::RANK, 3);
        bytes
    }

    #[test]
    fn head_says_what_stands_there() {
        let mut bytes = page();
        put(&mut bytes, word::TURN, 7);
        put(&mut bytes, word::AWAITED, 2);
        put(&mut bytes, word::AWAITED_PORTS, 20);
        put(&mut bytes, word::AWAITED_PORTS + 8, 10);
        let head = Head::read(&bytes).unwrap();
        assert_eq!((head.queue, head.socket, head.rank), (Some(5), None, Some(3)));
        assert_eq!((head.turn, head.awaited), (7, Some(BTreeSet::from([10, 20]))));
        put(&mut bytes, word::AWAITED, 65);
        assert_eq!(Head::read(&bytes).unwrap().awaited, None, "more than have names");
        let busy = |value| {
            let mut bytes = page();
            put(&mut bytes, word::BUSY, value);
            Head::read(&bytes).map(|head| (head.is_busy, head.may_begin)).unwrap()
        };
        assert_eq!([0, 1, 2].map(busy), [(false, false), (true, true), (true, false)]);
        bytes[0] = 0;
        assert_eq!(Head::read(&bytes), None);
    }

    #[test]
    fn thread_that_has_not_looked_does_not_wait() {
        let mut bytes = page();
        assert!(!Head::read(&bytes).unwrap().waits());
        put(&mut bytes, word::WAITERS, 1);
        assert!(Head::read(&bytes).unwrap().waits());
        for (at, odd) in
            [(word::EVENTS, 1), (word::WAITING, 1), (word::BACKLOG, 1), (word::WAITERS, 2)]
                .into_iter()
                .chain([(word::BUSY, 1)])
        {
            let mut other = bytes;
            put(&mut other, at, odd);
            assert!(!Head::read(&other).unwrap().waits(), "{at}");
        }
    }

    #[test]
    fn peer_comes_as_it_went() {
        let numbers =
            Numbers { next: 1, acknowledged: 2, receipted: 3, expected: 4, seen: 5, answered: 6 };
        for socket in ["10.1.2.3:77", "[fe80::1]:9"].map(|it| it.parse().unwrap()) {
            let (rank, key) = (Rank(8), Key([9; 16]));
            let peer = Peer { socket, rank, port: 7, key, is_live: true, numbers };
            let bytes: Vec<u8> = peer.to_words().iter().flat_map(|it| it.to_le_bytes()).collect();
            assert_eq!(Peer::read(bytes[..].try_into().unwrap()), peer);
        }
    }

    #[test]
    fn cell_is_free_ready_or_neither() {
        let lap = 300 / queue::CELLS;
        assert!(!queue::is_in_use(300, lap << 24));
        assert!(queue::is_in_use(300, lap << 24 | 7 << 2 | 1));
        assert_eq!(queue::length(300, lap << 24 | 7 << 2 | 1, 9 << 48), None);
        assert_eq!(queue::length(300, lap << 24 | 7 << 2 | 2, 9 << 48), Some(9));
        assert_eq!(queue::length(300, lap << 24 | 7 << 2 | 2, 5_000 << 48), None);
        assert_eq!(queue::length(300, (lap + 1) << 24 | 2, 9 << 48), None);
    }

    proptest! {
        #[test]
        fn any_page_can_be_read(words in proptest::collection::vec(any::<u64>(), HEAD / 8)) {
            let mut bytes = [0; HEAD];
            words.iter().enumerate().for_each(|(at, &word)| put(&mut bytes, 8 * at, word));
            put(&mut bytes, word::MAGIC, MAGIC);
            prop_assert!(Head::read(&bytes).is_some());
            Peer::read(bytes[..PEER].try_into().unwrap());
        }
    }
}
