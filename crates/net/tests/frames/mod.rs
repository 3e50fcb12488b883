//! Bytes that anybody may send or write: frames, heads of pages, peers' entries, rings.

use gang_net::{
    Frame,
    port::{self, Head, Peer},
    spill::{self, Next},
};

/// A ring of so many bytes.
const RING: usize = 4_096;

/// Reads the bytes as each of these. A frame that is read is written as it was.
pub fn read_as_all(data: &[u8]) {
    if let Ok(frame) = Frame::read(data) {
        let mut again = Vec::new();
        frame.write(&mut again);
        assert_eq!(again, data, "a frame is written otherwise than it was read");
        let flags = frame.header.flags;
        assert!(!flags.is_receipt || (!flags.is_data && frame.payload.is_empty()));
    }
    let mut page = [0; port::HEAD];
    let length = data.len().min(page.len());
    page[..length].copy_from_slice(&data[..length]);
    if let Some(head) = Head::read(&page) {
        assert!(head.awaited.is_none_or(|ports| ports.len() <= port::AWAITED_MAX));
    }
    if let Some(peer) = data.first_chunk::<{ port::PEER }>() {
        let words = Peer::read(peer).to_words();
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let again = bytes[..].try_into().map(Peer::read);
        assert_eq!(again.map(|peer: Peer| peer.to_words()).ok(), Some(words));
    }
    ring(data);
}

/// Reads a ring of these bytes after two positions.
fn ring(data: &[u8]) {
    let Some((first, rest)) = data.split_first_chunk::<16>() else { return };
    let half = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().expect("8 bytes"));
    let (written, mut read) = (half(0), half(8));
    let mut bytes = [0; RING];
    let length = rest.len().min(RING);
    bytes[..length].copy_from_slice(&rest[..length]);
    let head = |at: usize| bytes[at..at + spill::HEAD].try_into().expect("a head is within");
    loop {
        match spill::next(written, read, RING, head) {
            Next::Record { head, at, read: after } => {
                assert!(at + usize::from(head.length) <= RING && after <= written);
                read = after;
            }
            Next::Skip { read: after } => {
                assert!(after > read && after <= written);
                read = after;
            }
            Next::Nothing | Next::Nonsense => break,
        }
    }
    if let Some(place) = spill::room(written, read, RING, length) {
        assert!(place.at + spill::HEAD + length <= RING);
    }
}
