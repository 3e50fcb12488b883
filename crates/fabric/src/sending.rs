//! Sends: eager or offered, now or when there is room.

use crate::{
    completion::{Completion, fi},
    packet::{Kind, Offer, PAYLOAD_MAX},
    peer::{Ended, Link, Packet, Stream, spans_of},
    spans::Spans,
    state::{Entry, Sending, State},
};

/// The longest message that is sent without an offer, in bytes.
pub const EAGER_MAX: usize = PAYLOAD_MAX;

/// Parts of a pulled message that go to one peer before others have their turn.
const PARTS_AT_ONCE: usize = 64;

/// A send, as the provider hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub spans: Spans,
    pub to: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub context: usize,
    /// The memory may be used again when the call returns.
    pub is_injected: bool,
    /// There is a completion, even where only those that ask for it have one.
    pub asks_report: bool,
    /// There is none, but for an error.
    pub is_silent: bool,
    /// It ends when the message is in the receiver's memory.
    pub is_delivered: bool,
}

impl State {
    /// The entry of an address vector, and its peer; connects if need be.
    pub fn peer_at(&mut self, vector: Option<usize>, to: u64) -> Result<(Entry, usize), i32> {
        let of = self.vector(vector.ok_or(fi::EINVAL)?)?;
        let entry = of.entries.get(to as usize).copied().flatten().ok_or(fi::EINVAL)?;
        if let Some(peer) = entry.peer {
            return Ok((entry, peer));
        }
        let peer = self.connect(&entry.address);
        let of = self.vector(vector.ok_or(fi::EINVAL)?)?;
        of.entries[to as usize] = Some(Entry { peer: Some(peer), ..entry });
        Ok((entry, peer))
    }

    /// Begins a send.
    ///
    /// # Errors
    /// EAGAIN: too many are under way, or nobody reads their completions. ENOTCONN: the peer has
    /// ended, or there is no way to it. EINVAL, EMSGSIZE: it cannot be.
    ///
    /// # Safety
    /// The message's memory may be read until the send has ended; if it is injected, until this
    /// returns.
    pub unsafe fn send(&mut self, from: usize, send: &Send) -> Result<(), i32> {
        let endpoint = self.endpoint(from)?;
        if !endpoint.is_enabled {
            return Err(fi::EINVAL);
        }
        let (vector, bound) = (endpoint.vector, endpoint.sent);
        let has_too_many = endpoint.sends >= endpoint.sends_max;
        let is_unread = bound.queue.is_some_and(|it| self.queue(it).is_ok_and(|it| it.is_full()));
        if has_too_many || is_unread {
            self.progress();
            return Err(fi::EAGAIN);
        }
        let length = send.spans.length();
        if send.is_injected && length > EAGER_MAX {
            return Err(fi::EMSGSIZE);
        }
        let (entry, at) = self.peer_at(vector, send.to)?;
        if self.peers[at].is_dead {
            return Err(fi::ENOTCONN);
        }
        let is_eager = length <= EAGER_MAX && !send.is_delivered;
        let kind = if is_eager { Kind::Eager } else { Kind::Offer };
        let mut head = self.head(kind, from as u16, entry.address.endpoint);
        head.is_tagged = send.tag.is_some();
        head.has_data = send.data.is_some();
        (head.tag, head.data) = (send.tag.unwrap_or(0), send.data.unwrap_or(0));
        let flags = fi::SEND | if head.is_tagged { fi::TAGGED } else { fi::MSG };
        let source = fi::ADDR_UNSPEC;
        let context = send.context;
        let completion = Completion { context, flags, length, source, ..Completion::default() };
        let reports = !send.is_silent && (send.asks_report || !bound.is_selective);
        let ended = Ended { endpoint: from, reports, completion };
        self.endpoint(from)?.sends += 1;
        if !is_eager {
            // SAFETY: the caller vouches for the memory.
            let kept = if send.is_injected { unsafe { send.spans.to_vec() } } else { Vec::new() };
            let spans = if send.is_injected { spans_of(&kept) } else { send.spans };
            let number = self.sends.insert(Sending { peer: at, spans, ended, kept });
            let payload = Offer { send: number, length, spans }.to_bytes();
            self.post(at, Packet { head, payload, ended: None });
            self.carry_if(at);
            return Ok(());
        }
        let is_free = self.peers[at].waiting.is_empty();
        // SAFETY: the caller vouches for the memory.
        if is_free && unsafe { self.push(at, head, &send.spans) } {
            self.taken(at, ended);
        } else {
            // SAFETY: as above.
            let payload = unsafe { send.spans.to_vec() };
            self.peers[at].waiting.push_back(Packet { head, payload, ended: Some(ended) });
            self.is_busy(at);
        }
        self.carry_if(at);
        Ok(())
    }

    fn taken(&mut self, at: usize, ended: Ended) {
        if let Some(ended) = self.peers[at].taken(ended) {
            self.end_send(ended, 0);
        }
    }

    /// Sends frames at once: the program may not call again soon.
    fn carry_if(&mut self, at: usize) {
        if matches!(self.peers[at].link, Link::Udp) {
            self.carry();
        }
    }

    /// Sends what waits, as far as there is room.
    pub fn send_waiting(&mut self) {
        let mut busy = std::mem::take(&mut self.busy);
        busy.retain(|&at| {
            let is_left = self.send_waiting_to(at);
            self.peers[at].is_busy = is_left;
            is_left
        });
        // Reports of ends may have made others busy.
        self.busy.extend(busy);
        self.page.set_waiting(self.busy.len());
    }

    /// True if something is left.
    fn send_waiting_to(&mut self, at: usize) -> bool {
        while let Some(packet) = self.peers[at].waiting.pop_front() {
            // SAFETY: the payload is the packet's own.
            if !unsafe { self.push(at, packet.head, &spans_of(&packet.payload)) } {
                self.peers[at].waiting.push_front(packet);
                return true;
            }
            if let Some(ended) = packet.ended {
                self.taken(at, ended);
            }
        }
        for _ in 0..PARTS_AT_ONCE {
            let Some(stream) = self.peers[at].streams.pop_front() else { return false };
            match self.send_part(at, stream) {
                Sent::More(stream) => self.peers[at].streams.push_back(stream),
                Sent::Last => {}
                Sent::NoRoom => {
                    self.peers[at].streams.push_front(stream);
                    return true;
                }
            }
        }
        !self.peers[at].streams.is_empty()
    }

    fn send_part(&mut self, at: usize, stream: Stream) -> Sent {
        let Some(sending) = self.sends.get(stream.send) else { return Sent::Last };
        let length = (stream.wanted - stream.offset).min(PAYLOAD_MAX);
        let part = sending.spans.within(stream.offset, length);
        let mut head = self.head(Kind::Part, stream.from, stream.to);
        (head.tag, head.data) = (stream.receive, stream.offset as u64);
        // SAFETY: the send has not ended, so that its memory may be read.
        if !unsafe { self.push(at, head, &part) } {
            return Sent::NoRoom;
        }
        let offset = stream.offset + length;
        if offset < stream.wanted {
            return Sent::More(Stream { offset, ..stream });
        }
        if let Some(sending) = self.sends.remove(stream.send) {
            self.taken(at, sending.ended);
        }
        Sent::Last
    }

    /// The receiver of an offer wants so many bytes of it.
    pub fn pulled(&mut self, at: usize, stream: Stream) {
        let is_its = |it: &&Sending| it.peer == at && stream.wanted <= it.spans.length();
        if self.sends.get(stream.send).filter(is_its).is_none() || stream.wanted == 0 {
            self.refused += 1;
            return;
        }
        // Twice for one send: the peer makes it up.
        if self.peers[at].streams.iter().any(|it| it.send == stream.send) {
            self.refused += 1;
            return;
        }
        self.peers[at].streams.push_back(stream);
        self.is_busy(at);
    }

    /// The receiver of an offer has the message.
    pub fn delivered(&mut self, at: usize, send: u64, error: u64) {
        if self.sends.get(send).is_none_or(|sending| sending.peer != at) {
            self.refused += 1;
            return;
        }
        self.peers[at].streams.retain(|stream| stream.send != send);
        if let Some(sending) = self.sends.remove(send) {
            let error = i32::try_from(error).unwrap_or(fi::EIO);
            self.end_send(sending.ended, error);
        }
    }
}

enum Sent {
    More(Stream),
    Last,
    NoRoom,
}
