//! One end of the way between two processes of a job.
//!
//! Problem: media lose, double and reorder frames. A receiver that is out of its slot does not
//! read for a slice or more, and no message may be lost for that, nor may a sender take it for a
//! fault. Before a switch, nothing of a gang may be on its way: what came then would find the
//! context of another gang.
//!
//! Approach: frames have numbers. The receiver says with each frame that it sends below which
//! number all have come, which came beyond, and up to which number it has room: its *credit*. A
//! sender sends nothing beyond that, and sends again what was overtaken by three others, or is not
//! acknowledged in time. Time is that of the end's own slots: out of slot it stands still, so that
//! nothing runs out meanwhile. For a *flush*, an end begins no frame any more, and waits until
//! all that it has sent are acknowledged; nobody has to take a message for that, since credits are
//! given for what there is room for.
//!
//! A program that does not call acknowledges nothing, and its host holds what comes for it. Then
//! the daemon of that host sends a *receipt*. A receipt ends a flush as an acknowledgement does,
//! and nothing else: frames are kept, and sent again, until the program itself has acknowledged
//! them.
//!
//! The time until a frame is sent again follows RFC 6298: four deviations beyond the mean of the
//! round trips of frames that were sent once, doubled with each turn, within bounds. It goes on for
//! ever: whether the peer lives is known by others.
//!
//! Properties: messages come as they were sent: all of them, once, in order, and whole. A receiver
//! holds `window` frames at most, and those of one message besides. A frame of another job, of
//! another peer, or beyond the credit changes nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use crate::{Flags, Frame, Header, Key, Rank, flush::Numbers};

/// Bits that say which frames came after one that did not.
const SEEN: u64 = 64;

/// A frame that so many later ones have overtaken is lost: fewer are reordered by usual media.
const OVERTAKEN: u64 = 3;

/// Bounds of a channel, the same at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The part of a message that one frame has at most, in bytes.
    pub payload_max: usize,
    /// The longest message, in bytes.
    pub message_max: usize,
    /// Frames that an end has room for, beside those of a message that is not whole.
    pub window: u64,
    /// A frame is sent again after this time at the soonest, and at the latest.
    pub again_min_ns: u64,
    pub again_max_ns: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            payload_max: 1_408,
            message_max: 1 << 30,
            window: 64,
            again_min_ns: 1_000_000,
            again_max_ns: 200_000_000,
        }
    }
}

/// The number of what has happened at an end since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub messages_sent: u64,
    /// Messages that the peer has whole.
    pub messages_acknowledged: u64,
    pub messages_taken: u64,
    /// Frames with parts of messages, each time that one was sent.
    pub frames_sent: u64,
    pub frames_sent_again: u64,
    /// Frames that had come before.
    pub doubled: u64,
    pub refused: u64,
}

/// Why a frame that has come changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Of another job, or made up.
    Key,
    /// Of somebody else than the peer, or meant for somebody else.
    Peer,
    /// Beyond what the receiver has room for.
    Credit,
    /// It acknowledges what was never sent.
    Acknowledgement,
    /// A part of a message, or a message, is longer than may be.
    Length,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Key => "it has not the key of this job",
            Refused::Peer => "it is not of this peer, or not for this rank",
            Refused::Credit => "it is beyond what may be sent",
            Refused::Acknowledgement => "it acknowledges what was never sent",
            Refused::Length => "it is longer than frames or messages may be",
        })
    }
}

impl std::error::Error for Refused {}

/// A message that is longer than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub bytes: usize,
    pub most: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message has {} bytes at most, and this one {}", self.most, self.bytes)
    }
}

impl std::error::Error for TooLong {}

/// A part of a message.
#[derive(Clone, Debug)]
struct Part {
    payload: Vec<u8>,
    ends_message: bool,
}

/// A part that was sent, and is not acknowledged.
#[derive(Clone, Debug)]
struct Sent {
    part: Part,
    at_ns: u64,
    times: u32,
    /// It has come, though one before it has not.
    is_seen: bool,
    is_lost: bool,
}

/// One end of the way between two processes.
#[derive(Debug)]
pub struct Channel {
    config: Config,
    /// Of frames that come; those that go have the key of the peer.
    key: Key,
    peer_key: Key,
    from: Rank,
    to: Rank,
    counts: Counts,
    again: Again,

    waiting: VecDeque<Part>,
    /// From number `acknowledged` on.
    sent: VecDeque<Sent>,
    acknowledged: u64,
    /// The peer's host holds all frames below this number.
    receipted: u64,
    /// The peer has room for frames below this number.
    credit: u64,
    is_held: bool,
    /// When it asked for credit last.
    asked_ns: Option<u64>,

    /// All frames below this number have come.
    expected: u64,
    early: BTreeMap<u64, Part>,
    /// The message that is not whole.
    partial: Vec<u8>,
    partial_frames: u64,
    /// Messages that nobody has taken, and how many frames each had.
    ready: VecDeque<(Vec<u8>, u64)>,
    ready_frames: u64,
    granted: u64,
    /// The credit that the peer was sent last, and the acknowledgement.
    advertised: u64,
    answered: u64,
    owes_answer: bool,
}

impl Channel {
    pub fn new(config: Config, key: Key, from: Rank, to: Rank) -> Channel {
        Channel {
            config,
            key,
            peer_key: key,
            from,
            to,
            counts: Counts::default(),
            again: Again::default(),
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            acknowledged: 0,
            receipted: 0,
            credit: config.window,
            is_held: false,
            asked_ns: None,
            expected: 0,
            early: BTreeMap::new(),
            partial: Vec::new(),
            partial_frames: 0,
            ready: VecDeque::new(),
            ready_frames: 0,
            granted: config.window,
            advertised: config.window,
            answered: 0,
            owes_answer: false,
        }
    }

    /// The peer wants this key in what comes to it; before, both ends have one key.
    pub fn set_peer_key(&mut self, key: Key) {
        self.peer_key = key;
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Frames that are not begun.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a message to be sent.
    ///
    /// # Errors
    /// It is longer than messages may be.
    pub fn send(&mut self, message: &[u8]) -> Result<(), TooLong> {
        let most = self.config.message_max;
        if message.len() > most {
            return Err(TooLong { bytes: message.len(), most });
        }
        let mut parts = message.chunks(self.config.payload_max).peekable();
        if parts.peek().is_none() {
            self.waiting.push_back(Part { payload: Vec::new(), ends_message: true });
        }
        while let Some(part) = parts.next() {
            let ends_message = parts.peek().is_none();
            self.waiting.push_back(Part { payload: part.to_vec(), ends_message });
        }
        self.counts.messages_sent += 1;
        Ok(())
    }

    /// The next message that has come whole.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let (message, frames) = self.ready.pop_front()?;
        self.ready_frames -= frames;
        self.grant();
        self.counts.messages_taken += 1;
        Some(message)
    }

    /// No frame is begun from now on: what was sent comes to its end.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    pub fn go_on(&mut self) {
        self.is_held = false;
    }

    /// Nothing that this end has sent is on its way, or without an answer of the peer itself.
    pub fn is_flushed(&self) -> bool {
        self.sent.is_empty()
    }

    /// The numbers of this end's frames, as a host needs them for a flush.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            next: self.next(),
            acknowledged: self.acknowledged,
            receipted: self.receipted,
            expected: self.expected,
            seen: self.seen(),
            answered: self.answered,
        }
    }

    /// Nothing is on its way from this end, waits to be sent, or waits to be taken.
    pub fn is_empty(&self) -> bool {
        let has_come = self.ready.is_empty() && self.partial_frames == 0 && self.early.is_empty();
        self.is_flushed() && self.waiting.is_empty() && has_come
    }

    /// Takes a frame that has come.
    ///
    /// # Errors
    /// Why it changes nothing.
    pub fn receive(&mut self, now_ns: u64, frame: &Frame<'_>) -> Result<(), Refused> {
        let received = self.check(frame);
        match received {
            Ok(()) if frame.header.flags.is_receipt => {
                self.receipted = self.receipted.max(frame.header.acknowledged);
            }
            Ok(()) => {
                self.learn(now_ns, &frame.header);
                self.keep(frame);
            }
            Err(_) => self.counts.refused += 1,
        }
        received
    }

    fn check(&self, Frame { header, payload }: &Frame<'_>) -> Result<(), Refused> {
        if header.key != self.key {
            return Err(Refused::Key);
        }
        if (header.from, header.to) != (self.to, self.from) {
            return Err(Refused::Peer);
        }
        if header.acknowledged > self.next() {
            return Err(Refused::Acknowledgement);
        }
        if header.flags.is_data {
            if header.sequence >= self.granted {
                return Err(Refused::Credit);
            }
            let is_next = header.sequence == self.expected;
            let length = payload.len() + if is_next { self.partial.len() } else { 0 };
            if payload.len() > self.config.payload_max || length > self.config.message_max {
                return Err(Refused::Length);
            }
        }
        Ok(())
    }

    /// The number of the next frame that is begun.
    fn next(&self) -> u64 {
        self.acknowledged + self.sent.len() as u64
    }

    /// Takes note of how much the peer has, and has room for.
    fn learn(&mut self, now_ns: u64, header: &Header) {
        if header.credit > self.credit {
            (self.credit, self.again.turns) = (header.credit, 0);
        }
        while self.acknowledged < header.acknowledged {
            let Some(sent) = self.sent.pop_front() else { break };
            self.acknowledged += 1;
            self.counts.messages_acknowledged += u64::from(sent.part.ends_message);
            if sent.times == 1 && !sent.is_seen {
                self.again.took(now_ns.saturating_sub(sent.at_ns));
            }
            self.again.turns = 0;
        }
        // An older frame says less than what is known.
        if header.acknowledged < self.acknowledged {
            return;
        }
        let came = |sent: usize| sent > 0 && header.seen >> (sent - 1) & 1 == 1;
        let looked_at = self.sent.len().min(SEEN as usize + 1);
        let mut later = 0;
        for at in (0..looked_at).rev() {
            let sent = &mut self.sent[at];
            if came(at) {
                later += 1;
                if !std::mem::replace(&mut sent.is_seen, true) && sent.times == 1 {
                    self.again.took(now_ns.saturating_sub(sent.at_ns));
                }
            } else if later >= OVERTAKEN && sent.times == 1 && !sent.is_seen {
                sent.is_lost = true;
            }
        }
    }

    /// Keeps a part of a message, unless it has come before.
    fn keep(&mut self, Frame { header, payload }: &Frame<'_>) {
        self.owes_answer |= header.flags.is_data || header.flags.asks;
        if !header.flags.is_data {
            return;
        }
        let is_known = header.sequence < self.expected || self.early.contains_key(&header.sequence);
        if is_known {
            self.counts.doubled += 1;
            return;
        }
        let ends_message = header.flags.ends_message;
        self.early.insert(header.sequence, Part { payload: payload.to_vec(), ends_message });
        while let Some(part) = self.early.remove(&self.expected) {
            self.expected += 1;
            self.partial.extend(part.payload);
            self.partial_frames += 1;
            if part.ends_message {
                let frames = std::mem::take(&mut self.partial_frames);
                self.ready.push_back((std::mem::take(&mut self.partial), frames));
                self.ready_frames += frames;
            }
        }
        self.grant();
    }

    /// Frames of messages that nobody has taken are in the window; those of one that is not whole
    /// are not, or a long message would never be. Credit that was granted once stays granted.
    fn grant(&mut self) {
        let room = self.config.window.saturating_sub(self.ready_frames);
        self.granted = self.granted.max(self.expected + room);
    }

    /// The next frame that is to be sent now.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if let Some(at) = self.due_again(now_ns) {
            let sent = &mut self.sent[at];
            // Once for all that are late together.
            if at == 0 && !sent.is_lost {
                self.again.turns += 1;
            }
            (sent.at_ns, sent.is_lost) = (now_ns, false);
            sent.times = sent.times.saturating_add(1);
            self.counts.frames_sent_again += 1;
            self.write_part(at, out);
            return true;
        }
        if !self.is_held && self.next() < self.credit {
            if let Some(part) = self.waiting.pop_front() {
                let (times, is_seen, is_lost) = (1, false, false);
                self.sent.push_back(Sent { part, at_ns: now_ns, times, is_seen, is_lost });
                self.write_part(self.sent.len() - 1, out);
                return true;
            }
        }
        let asks = self.asks_at_ns().is_some_and(|at_ns| at_ns <= now_ns);
        if asks {
            self.asked_ns = Some(now_ns);
            self.again.turns += 1;
        }
        // The peer may have stopped for want of credit, which is sent once half of it is new.
        let has_news = self.granted - self.advertised >= self.config.window.div_ceil(2);
        if asks || self.owes_answer || has_news {
            self.write(Flags { asks, ..Flags::default() }, self.next(), &[], out);
            return true;
        }
        false
    }

    /// When there may be something to send again, if nothing happens before.
    pub fn wakes_ns(&self) -> Option<u64> {
        let again_ns = self.again_ns();
        let unseen = self.sent.iter().filter(|sent| !sent.is_seen);
        let due = unseen.map(|sent| if sent.is_lost { 0 } else { sent.at_ns + again_ns });
        due.chain(self.asks_at_ns()).min()
    }

    /// A sender without credit asks, since the frame with more of it may be lost.
    fn asks_at_ns(&self) -> Option<u64> {
        let is_stuck = self.sent.is_empty() && !self.waiting.is_empty() && !self.is_held;
        let is_stuck = is_stuck && self.next() >= self.credit;
        is_stuck.then(|| self.asked_ns.map_or(0, |at_ns| at_ns + self.again_ns()))
    }

    fn due_again(&self, now_ns: u64) -> Option<usize> {
        let again_ns = self.again_ns();
        self.sent.iter().position(|sent| {
            !sent.is_seen && (sent.is_lost || now_ns >= sent.at_ns.saturating_add(again_ns))
        })
    }

    fn again_ns(&self) -> u64 {
        let Config { again_min_ns, again_max_ns, .. } = self.config;
        self.again.after_ns(again_min_ns, again_max_ns)
    }

    fn write_part(&mut self, at: usize, out: &mut Vec<u8>) {
        self.counts.frames_sent += 1;
        let sequence = self.acknowledged + at as u64;
        let Part { payload, ends_message } = self.sent[at].part.clone();
        let flags = Flags { is_data: true, ends_message, ..Flags::default() };
        self.write(flags, sequence, &payload, out);
    }

    /// Of the frames after the first that has not come, which have come, bit by bit.
    fn seen(&self) -> u64 {
        let first = self.expected + 1;
        let seen = self.early.range(first..first + SEEN);
        seen.fold(0, |bits, (number, _)| bits | 1 << (number - first))
    }

    fn write(&mut self, flags: Flags, sequence: u64, payload: &[u8], out: &mut Vec<u8>) {
        (self.owes_answer, self.advertised) = (false, self.granted);
        self.answered = self.expected;
        let seen = self.seen();
        let (from, to, key) = (self.from, self.to, self.peer_key);
        let (acknowledged, credit) = (self.expected, self.granted);
        let header = Header { flags, key, from, to, sequence, acknowledged, seen, credit };
        Frame { header, payload }.write(out);
    }
}

/// How long a frame is waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Again {
    /// Mean and mean deviation of round trips, once there was one.
    round_trip: Option<(u64, u64)>,
    /// Times in a row that something was sent again for want of an answer.
    turns: u32,
}

impl Again {
    /// The wait doubles as often as this at most, whatever its bound.
    const TURNS_MAX: u32 = 16;

    fn took(&mut self, took_ns: u64) {
        self.round_trip = Some(match self.round_trip {
            None => (took_ns, took_ns / 2),
            Some((mean, deviation)) => {
                let off = mean.abs_diff(took_ns);
                ((7 * mean + took_ns) / 8, (3 * deviation + off) / 4)
            }
        });
    }

    fn after_ns(self, min_ns: u64, max_ns: u64) -> u64 {
        let usual = self.round_trip.map_or(min_ns, |(mean, deviation)| mean + 4 * deviation);
        let usual = usual.clamp(min_ns, max_ns);
        usual.saturating_mul(1 << self.turns.min(Again::TURNS_MAX)).min(max_ns)
    }
}
