//! A packet, over any medium: a head of 32 bytes, and a payload of up to 4 KiB.
//!
//! | kind | tag | data | payload |
//! |---|---|---|---|
//! | hello | | | the sender's address |
//! | eager | the message's | the message's | the message |
//! | offer | the message's | the message's | number of the send, bytes, parts (address, length) |
//! | pull | number of the send | number of the receive | |
//! | part | number of the receive | offset in bytes | bytes from there |
//! | done | number of the send | 0, or an error of libfabric | |
//! | bye | | | |
//!
//! A short message is *eager*. A longer one is *offered*: once a receive matches, the receiver
//! copies it from the sender's memory and says that it is done, or it pulls, and parts come. A
//! port that closes says bye over UDP: once that is acknowledged, so is known all that came here.
//! Numbers are little-endian. A reader compares every field with what it has itself.

use crate::spans::{Span, Spans};

/// The length of a head, in bytes.
pub const HEAD: usize = 32;
/// The most that a packet has beside its head, in bytes.
pub const PAYLOAD_MAX: usize = 4_096;

/// The kinds of packets, by the number that goes over the medium.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hello = 1,
    Eager = 2,
    Offer = 3,
    Pull = 4,
    Part = 5,
    Done = 6,
    Bye = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all =
            [Kind::Hello, Kind::Eager, Kind::Offer, Kind::Pull, Kind::Part, Kind::Done, Kind::Bye];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The port that the packet is from.
    pub source: u64,
    pub kind: Kind,
    /// The message is one with a tag.
    pub is_tagged: bool,
    /// `data` is for the completion of the receive.
    pub has_data: bool,
    /// Endpoints, by their numbers at both ports.
    pub from: u16,
    pub to: u16,
    pub tag: u64,
    pub data: u64,
}

impl Head {
    const TAGGED: u8 = 1;
    const DATA: u8 = 2;

    /// As four words; the length of the payload is in the second one.
    pub fn to_words(self, length: usize) -> [u64; 4] {
        debug_assert!(length <= PAYLOAD_MAX);
        let flags = u8::from(self.is_tagged) * Head::TAGGED + u8::from(self.has_data) * Head::DATA;
        let second = u64::from(self.kind as u8)
            | u64::from(flags) << 8
            | u64::from(self.from) << 16
            | u64::from(self.to) << 32
            | (length as u64) << 48;
        [self.source, second, self.tag, self.data]
    }

    /// The head, and the length of its payload; none if they make no sense.
    pub fn from_words([source, second, tag, data]: [u64; 4]) -> Option<(Head, usize)> {
        let kind = Kind::from_byte(second as u8)?;
        let flags = (second >> 8) as u8;
        let length = usize::from((second >> 48) as u16);
        if flags & !(Head::TAGGED | Head::DATA) != 0 || length > PAYLOAD_MAX {
            return None;
        }
        let (is_tagged, has_data) = (flags & Head::TAGGED != 0, flags & Head::DATA != 0);
        let (from, to) = ((second >> 16) as u16, (second >> 32) as u16);
        Some((Head { source, kind, is_tagged, has_data, from, to, tag, data }, length))
    }

    /// A packet as a message of a channel.
    pub fn to_bytes(self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + payload.len());
        for word in self.to_words(payload.len()) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(payload);
        bytes
    }

    /// Reads a message of a channel; none if it is no packet.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Head, &[u8])> {
        let (head, payload) = bytes.split_first_chunk::<HEAD>()?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let (head, length) = Head::from_words(words)?;
        (length == payload.len()).then_some((head, payload))
    }
}

/// A message that waits in its sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    pub send: u64,
    pub length: usize,
    /// Where it is, in the sender's address space.
    pub spans: Spans,
}

impl Offer {
    pub fn to_bytes(self) -> Vec<u8> {
        let parts = self.spans.parts().iter().flat_map(|part| [part.base, part.length]);
        let words = [self.send, self.length as u64].into_iter().chain(parts.map(|it| it as u64));
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// None if it makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Option<Offer> {
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let words: Option<Vec<u64>> = bytes.chunks(8).map(word).collect();
        let (&[send, length], parts) = words.as_deref()?.split_first_chunk::<2>()?;
        let mut pairs = parts.chunks_exact(2);
        let parts: Vec<Span> = pairs
            .by_ref()
            .map(|pair| Span { base: pair[0] as usize, length: pair[1] as usize })
            .collect();
        let (spans, length) = (Spans::new(&parts)?, usize::try_from(length).ok()?);
        let is_whole = pairs.remainder().is_empty() && spans.length() == length;
        is_whole.then_some(Offer { send, length, spans })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Head, Kind, Offer, PAYLOAD_MAX};
    use crate::spans::{Span, Spans};

    #[test]
    fn head_comes_as_it_went() {
        let head = Head {
            source: 7,
            kind: Kind::Offer,
            is_tagged: true,
            has_data: false,
            from: 3,
            to: 0xffff,
            tag: u64::MAX,
            data: 9,
        };
        assert_eq!(Head::from_words(head.to_words(PAYLOAD_MAX)), Some((head, PAYLOAD_MAX)));
        assert_eq!(Head::from_bytes(&head.to_bytes(b"four")), Some((head, &b"four"[..])));
        assert_eq!(Head::from_bytes(&head.to_bytes(b"four")[..35]), None);
    }

    #[test]
    fn offer_comes_as_it_went() {
        let spans =
            Spans::new(&[Span { base: 1, length: 2 }, Span { base: 3, length: 4 }]).unwrap();
        let offer = Offer { send: 5, length: 6, spans };
        assert_eq!(Offer::from_bytes(&offer.to_bytes()), Some(offer));
        assert_eq!(Offer::from_bytes(&Offer { length: 7, ..offer }.to_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Head::from_bytes(&bytes);
            let _ = Offer::from_bytes(&bytes);
        }
    }
}
