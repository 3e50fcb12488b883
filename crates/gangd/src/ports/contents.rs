//! The contents of channels to a port: its queue in shared memory, and the ring for its socket.

use std::{collections::BTreeSet, fs::File, net::SocketAddr, os::unix::fs::FileExt};

use gang_net::{
    Frame,
    port::{Head, SPILL, SPILL_LENGTH, queue},
    spill::{self, Next},
};

use super::port::read_word;

/// Something that a host holds for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub from: From,
    /// Its place in the queue, or its number among the frames of its sender.
    pub sequence: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The process that wrote it, by its number in its own namespace.
    Process(u32),
    Socket(SocketAddr),
}

/// All that is there of messages, in order: at most as many as a queue has cells, and a ring has
/// room for. A frame that was sent again is there once.
pub fn read(queue: Option<&File>, page: &File, written: u64, head: &Head) -> Vec<Held> {
    let mut all = Vec::new();
    let cells = head.position..head.position.saturating_add(queue::CELLS);
    for position in cells.take_while(|_| queue.is_some()) {
        let Some(packet) = queue.and_then(|queue| in_cell(queue, position)) else { break };
        all.push(packet);
    }
    let mut read = head.spill_read;
    let mut seen = BTreeSet::new();
    loop {
        let of_ring = |at: usize| {
            let mut head = [0; spill::HEAD];
            let _ = page.read_exact_at(&mut head, (SPILL + at) as u64);
            head
        };
        match spill::next(written, read, SPILL_LENGTH, of_ring) {
            Next::Nothing | Next::Nonsense => return all,
            Next::Skip { read: after } => read = after,
            Next::Record { head, at, read: after } => {
                read = after;
                let mut bytes = vec![0; usize::from(head.length)];
                if page.read_exact_at(&mut bytes, (SPILL + at) as u64).is_err() {
                    return all;
                }
                let header = Frame::read(&bytes).ok().map(|frame| frame.header);
                let sequence = header.filter(|it| it.flags.is_data).map(|it| it.sequence);
                let Some(sequence) = sequence.filter(|&it| seen.insert((head.from, it))) else {
                    continue;
                };
                all.push(Held { from: From::Socket(head.from), sequence, bytes });
            }
        }
    }
}

/// The packet in a cell; none where there is none yet.
fn in_cell(queue: &File, position: u64) -> Option<Held> {
    let at = queue::cell(position);
    let word = read_word(queue, at)?;
    let second = read_word(queue, at + queue::PACKET + 8)?;
    let length = queue::length(position, word, second)?;
    let mut bytes = vec![0; queue::PACKET_HEAD + length];
    queue.read_exact_at(&mut bytes, (at + queue::PACKET) as u64).ok()?;
    let from = From::Process((word >> 2) as u32 & 0x3f_ffff);
    Some(Held { from, sequence: position, bytes })
}
