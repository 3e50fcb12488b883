//! The ring for frames that a host holds for a port: the daemon writes, and the port reads.
//!
//! Problem: both sides see the same memory, and neither may trust the other. A daemon that believed
//! a made-up position would write elsewhere; a port that believed a made-up length would read
//! there.
//!
//! Approach: positions only grow, in bytes since the beginning. A record is a head and a frame, and
//! never goes over the end of the ring: where there is no room before the end, a head of length 0
//! says so, or the end is nearer than a head. A position that makes no sense leaves no room to a
//! writer, and shows nothing to a reader.
//!
//! | bytes | field of a head |
//! |---|---|
//! | 0–15 | IPv6 address of the sender's socket, or its IPv4 address mapped |
//! | 16–17 | its port |
//! | 18–19 | length of the frame; 0: the next record is at the ring's beginning |
//! | 20–23 | 0 |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The length of a head, in bytes.
pub const HEAD: usize = 24;

/// Records begin at multiples of so many bytes.
const ALIGN: u64 = 8;

/// Where a record goes, as offsets in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub at: usize,
    /// Where a head of length 0 goes before.
    pub skip: Option<usize>,
    /// The position after the record.
    pub written: u64,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub from: SocketAddr,
    pub length: u16,
}

/// The find of a reader at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    /// A frame at this offset, and the position after it.
    Record {
        head: Head,
        at: usize,
        read: u64,
    },
    /// It goes on at this position.
    Skip {
        read: u64,
    },
    /// The ring makes no sense: all up to the writer's position is left out.
    Nonsense,
}

fn is_sound(written: u64, read: u64, ring: usize) -> bool {
    written >= read && written - read <= ring as u64 && (written | read) % ALIGN == 0
}

/// The place for a frame; none where there is no room, or the positions make no sense.
pub fn room(written: u64, read: u64, ring: usize, frame: usize) -> Option<Room> {
    if !is_sound(written, read, ring) || frame == 0 || frame > usize::from(u16::MAX) {
        return None;
    }
    let length = ((HEAD + frame) as u64).next_multiple_of(ALIGN);
    let at = (written % ring as u64) as usize;
    let before_end = (ring - at) as u64;
    let skipped = if before_end < length { before_end } else { 0 };
    let after = written.checked_add(skipped + length)?;
    (after - read <= ring as u64).then(|| match skipped {
        0 => Room { at, skip: None, written: after },
        _ => Room { at: 0, skip: (before_end >= HEAD as u64).then_some(at), written: after },
    })
}

/// The head of what comes next: `bytes` gives the head at an offset of the ring.
pub fn next(written: u64, read: u64, ring: usize, bytes: impl FnOnce(usize) -> [u8; HEAD]) -> Next {
    if written == read {
        return Next::Nothing;
    }
    if !is_sound(written, read, ring) {
        return Next::Nonsense;
    }
    let at = (read % ring as u64) as usize;
    let before_end = ring - at;
    let skip = || {
        let read = read + before_end as u64;
        if read <= written { Next::Skip { read } } else { Next::Nonsense }
    };
    if before_end < HEAD {
        return skip();
    }
    let head = Head::read(&bytes(at));
    if head.length == 0 {
        return skip();
    }
    let length = (HEAD + usize::from(head.length)).next_multiple_of(ALIGN as usize);
    let after = read + length as u64;
    if length > before_end || after > written {
        return Next::Nonsense;
    }
    Next::Record { head, at: at + HEAD, read: after }
}

impl Head {
    pub fn read(bytes: &[u8; HEAD]) -> Head {
        let ip: [u8; 16] = bytes[..16].try_into().expect("16 bytes");
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Head { from: SocketAddr::from((ip_of(ip), half(16))), length: half(18) }
    }

    pub fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..16].copy_from_slice(&bytes_of(self.from.ip()));
        bytes[16..18].copy_from_slice(&self.from.port().to_le_bytes());
        bytes[18..20].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

/// An address of 16 bytes; a mapped one is of version 4.
pub fn ip_of(bytes: [u8; 16]) -> IpAddr {
    let ip = Ipv6Addr::from(bytes);
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

/// The 16 bytes of an address.
pub fn bytes_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RING: usize = 256;

    struct Ring {
        bytes: [u8; RING],
        written: u64,
        read: u64,
    }

    impl Ring {
        fn new() -> Ring {
            Ring { bytes: [0; RING], written: 0, read: 0 }
        }

        fn put(&mut self, from: SocketAddr, frame: &[u8]) -> bool {
            let Some(place) = room(self.written, self.read, RING, frame.len()) else {
                return false;
            };
            if let Some(at) = place.skip {
                self.bytes[at..at + HEAD].fill(0);
            }
            let head = Head { from, length: frame.len() as u16 };
            self.bytes[place.at..place.at + HEAD].copy_from_slice(&head.to_bytes());
            self.bytes[place.at + HEAD..][..frame.len()].copy_from_slice(frame);
            self.written = place.written;
            true
        }

        fn take(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
            loop {
                let head = |at: usize| self.bytes[at..at + HEAD].try_into().unwrap();
                match next(self.written, self.read, RING, head) {
                    Next::Nothing => return None,
                    Next::Skip { read } => self.read = read,
                    Next::Record { head, at, read } => {
                        self.read = read;
                        return Some((head.from, self.bytes[at..at + head.length as usize].into()));
                    }
                    Next::Nonsense => panic!("the writer is honest"),
                }
            }
        }
    }

    fn socket(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    proptest! {
        #[test]
        fn frames_come_as_they_went(
            steps in proptest::collection::vec((any::<bool>(), 1usize..150), 0..200),
        ) {
            let (mut ring, mut expected) = (Ring::new(), std::collections::VecDeque::new());
            for (turn, (puts, length)) in steps.into_iter().enumerate() {
                if puts {
                    let frame = vec![turn as u8; length];
                    if ring.put(socket(turn as u16), &frame) {
                        expected.push_back((socket(turn as u16), frame));
                    } else {
                        prop_assert!(!expected.is_empty() || length > RING / 2 - HEAD);
                    }
                } else {
                    prop_assert_eq!(ring.take(), expected.pop_front());
                }
            }
        }

        #[test]
        fn whatever_stands_there_stays_within(
            written in prop_oneof![0u64..2_000, any::<u64>()],
            read in prop_oneof![0u64..2_000, any::<u64>()],
            noise in any::<[u8; HEAD]>(),
            frame in 0usize..100_000,
        ) {
            if let Some(place) = room(written, read, RING, frame) {
                prop_assert!(place.at + HEAD + frame <= RING);
                prop_assert!(place.skip.is_none_or(|at| at + HEAD <= RING));
            }
            match next(written, read, RING, |at| { assert!(at + HEAD <= RING); noise }) {
                Next::Record { head, at, read: after } => {
                    prop_assert!(at + usize::from(head.length) <= RING && after <= written);
                }
                Next::Skip { read: after } => prop_assert!(after > read && after <= written),
                Next::Nothing | Next::Nonsense => {}
            }
        }
    }

    #[test]
    fn head_comes_as_it_went() {
        for from in ["10.1.2.3:77", "[fe80::1]:9"].map(|it| it.parse().unwrap()) {
            let head = Head { from, length: 1_472 };
            assert_eq!(Head::read(&head.to_bytes()), head);
        }
    }
}
