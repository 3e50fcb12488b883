//! The page that a port shares with the daemon of its host: [`gang_net::port`] lays it down.
//!
//! Problem: the daemon flushes the port while the program computes, and decides whether the program
//! waits for itself. It sees the page at any moment, between any two instructions.
//!
//! Approach: all words are written by the thread that holds the lock of the domain. Things that
//! make a thread look again are counted before they are taken from a medium, and frames before they
//! are sent. So a reader that finds the same numbers twice knows what held in between.
//!
//! The ring for frames that the host holds, and three words, are the daemon's. A ring that makes no
//! sense is left out; a moment until which frames are held back counts only if it is near.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, RawFd},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use gang_net::{
    Key, Numbers, flush,
    port::{self, AWAITED_MAX, NONE, PEER, PEERS_MAX, Peer, SPILL, SPILL_LENGTH, word},
    spill::{self, Next},
};

use crate::region::Region;

#[derive(Debug)]
pub struct Page {
    region: Region,
    file: File,
    peers: usize,
    /// Errors of the socket that were looked at.
    errors: u64,
    /// Events for which the ports that are waited for are published.
    published: Option<u64>,
}

/// The ports that a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    Any,
    Of(BTreeSet<u64>),
}

impl Page {
    /// # Errors
    /// There is no memory for it.
    pub fn new(port: u64, key: Key) -> io::Result<Page> {
        let (region, file) = Region::create(port::LENGTH)?;
        let page = Page { region, file, peers: 0, errors: 0, published: None };
        page.set(word::PORT, port);
        for (at, half) in key.0.chunks_exact(8).enumerate() {
            page.set(word::KEY + 8 * at, u64::from_le_bytes(half.try_into().expect("8 bytes")));
        }
        page.describe(None, None, None);
        page.set(word::MAGIC, port::MAGIC);
        Ok(page)
    }

    /// The descriptor of the page.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The descriptors of queue and socket, and the rank of the process.
    pub fn describe(&self, queue: Option<RawFd>, socket: Option<RawFd>, rank: Option<u32>) {
        let half = |of: Option<RawFd>| of.map_or(NONE, |it| it as u32);
        self.set(word::DESCRIPTORS, u64::from(half(queue)) | u64::from(half(socket)) << 32);
        self.set(word::RANK, u64::from(rank.unwrap_or(NONE)) | u64::from(NONE) << 32);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.region.word(at)
    }

    fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    fn add(&self, at: usize) {
        self.set(at, self.get(at).wrapping_add(1));
    }

    /// Something has come, or has ended: a thread that waits is to look again.
    pub fn happened(&self) {
        self.add(word::EVENTS);
    }

    /// A medium takes a packet.
    pub fn sent(&self) {
        self.add(word::SENT);
    }

    /// A packet is about to be taken.
    pub fn takes(&self) {
        self.happened();
        self.add(word::TAKEN);
    }

    pub fn set_position(&self, position: u64) {
        self.set(word::POSITION, position);
    }

    /// So many peers have packets that wait for room.
    pub fn set_waiting(&self, peers: usize) {
        self.set(word::WAITING, peers as u64);
    }

    /// So many peers have messages of which frames are not begun.
    pub fn set_backlog(&self, peers: usize) {
        self.set(word::BACKLOG, peers as u64);
    }

    /// A thread begins to wait without a timeout; it has looked at nothing yet.
    pub fn begin_wait(&mut self) {
        self.published = None;
        self.happened();
        // SAFETY: the call takes no argument.
        let thread = unsafe { libc::gettid() };
        self.set(word::THREAD, thread as u64);
        self.set(word::WAITERS, self.get(word::WAITERS).wrapping_add(1));
        self.add(word::TURN);
    }

    pub fn end_wait(&mut self) {
        self.set(word::WAITERS, self.get(word::WAITERS).saturating_sub(1));
        self.add(word::TURN);
    }

    /// A call found nothing; true where it is to be said for what it waits.
    pub fn polled(&mut self) -> bool {
        const EVERY: u64 = 4_096;
        let polls = self.get(word::POLLS).wrapping_add(1);
        self.set(word::POLLS, polls);
        polls % EVERY == 0 && self.is_new()
    }

    /// Something has happened since it was said for what a thread waits.
    pub fn is_new(&self) -> bool {
        self.published != Some(self.get(word::EVENTS))
    }

    /// Says for what a thread waits.
    pub fn publish_awaited(&mut self, awaited: &Awaited) {
        let count = match awaited {
            Awaited::Of(ports) if ports.len() <= AWAITED_MAX => {
                for (at, &port) in ports.iter().enumerate() {
                    self.set(word::AWAITED_PORTS + 8 * at, port);
                }
                ports.len() as u64
            }
            Awaited::Any | Awaited::Of(_) => port::ANY,
        };
        self.set(word::AWAITED, count);
        self.published = Some(self.get(word::EVENTS));
    }

    /// The thread that waits has looked at all that came, and found nothing for itself.
    pub fn looked(&self) {
        self.set(word::LOOKED, self.get(word::EVENTS));
    }

    /// Frames are carried from now on; true where none is to be begun. A daemon that holds frames
    /// back sees that some may be begun, or this finds that they are held back.
    pub fn begin_carrying(&self) -> bool {
        self.word(word::BUSY).store(1, Ordering::SeqCst);
        let is_held = self.is_held();
        if is_held {
            self.set(word::BUSY, 2);
        }
        is_held
    }

    pub fn end_carrying(&self) {
        self.set(word::BUSY, 0);
    }

    /// Whether the daemon wants no frame to be begun.
    fn is_held(&self) -> bool {
        let until_ns = self.word(word::HELD_UNTIL).load(Ordering::SeqCst);
        until_ns != 0 && flush::is_held(until_ns, monotonic_ns())
    }

    /// The daemon has taken errors from the socket since the last call.
    pub fn has_errors(&mut self) -> bool {
        let errors = self.get(word::ERRORS);
        std::mem::replace(&mut self.errors, errors) != errors
    }

    pub fn close(&self) {
        self.set(word::CLOSED, 1);
    }

    /// The entry of a new peer; none where there is no room for one.
    pub fn add_peer(&mut self) -> Option<usize> {
        let place = self.peers;
        self.peers += 1;
        self.set(word::PEERS, self.peers as u64);
        (place < PEERS_MAX).then_some(place)
    }

    pub fn set_peer(&self, place: usize, peer: &Peer) {
        for (at, value) in peer.to_words().into_iter().enumerate() {
            self.set(port::HEAD + PEER * place + 8 * at, value);
        }
    }

    /// Writes the numbers that differ from those that stand there.
    pub fn set_numbers(&self, place: usize, old: &Numbers, new: &Numbers) {
        let words = |of: &Numbers| {
            [of.next, of.acknowledged, of.receipted, of.expected, of.seen, of.answered]
        };
        for (at, (old, new)) in words(old).into_iter().zip(words(new)).enumerate() {
            if old != new {
                self.set(port::HEAD + PEER * place + port::NUMBERS + 8 * at, new);
            }
        }
    }

    /// The next frame that the host holds, and whom it is from.
    pub fn take_spilled(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        loop {
            let written = self.word(word::SPILL_WRITTEN).load(Ordering::Acquire);
            let read = self.get(word::SPILL_READ);
            let head = |at: usize| {
                let mut head = [0; spill::HEAD];
                self.copy(SPILL + at, &mut head);
                head
            };
            match spill::next(written, read, SPILL_LENGTH, head) {
                Next::Nothing => return None,
                Next::Skip { read } => self.set(word::SPILL_READ, read),
                Next::Nonsense => {
                    self.set(word::SPILL_READ, written);
                    return None;
                }
                Next::Record { head, at, read } => {
                    let mut frame = vec![0; usize::from(head.length)];
                    self.copy(SPILL + at, &mut frame);
                    // It is an event before nobody sees it in the ring any more.
                    self.happened();
                    self.set(word::SPILL_READ, read);
                    return Some((head.from, frame));
                }
            }
        }
    }

    fn copy(&self, at: usize, to: &mut [u8]) {
        let from = self.region.bytes(at, to.len());
        // SAFETY: `bytes` has checked the place; the copy is of bytes that others may change.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), to.as_mut_ptr(), to.len()) };
    }
}

/// CLOCK_MONOTONIC, as the daemon reads it.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time may be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the daemon reads it.
    fn head(page: &Page) -> port::Head {
        let mut bytes = [0; port::HEAD];
        page.copy(0, &mut bytes);
        port::Head::read(&bytes).unwrap()
    }

    #[test]
    fn waiting_thread_has_looked_at_what_came() {
        let mut page = Page::new(7, Key([3; 16])).unwrap();
        assert_eq!((head(&page).port, head(&page).key), (7, Key([3; 16])));
        assert!(!head(&page).waits());
        page.begin_wait();
        assert!(!head(&page).waits(), "it has not looked");
        page.publish_awaited(&Awaited::Of([4, 5].into()));
        page.looked();
        assert!(head(&page).waits() && !page.is_new());
        assert_eq!(head(&page).awaited, Some([4, 5].into()));
        page.takes();
        assert!(!head(&page).waits() && page.is_new());
        page.publish_awaited(&Awaited::Of((0..65).collect()));
        page.looked();
        assert_eq!(head(&page).awaited, None);
        page.end_wait();
        assert!(!head(&page).waits());
    }

    #[test]
    fn moment_that_is_not_near_holds_nothing() {
        let page = Page::new(7, Key([3; 16])).unwrap();
        let hold = |until_ns| page.set(word::HELD_UNTIL, until_ns);
        assert!(!page.is_held());
        hold(monotonic_ns() + 5_000_000);
        assert!(page.is_held());
        for far in [1, monotonic_ns() + 1_000_000_000, u64::MAX] {
            hold(far);
            assert!(!page.is_held(), "{far}");
        }
    }

    #[test]
    fn ring_that_makes_no_sense_is_left_out() {
        let mut page = Page::new(7, Key([3; 16])).unwrap();
        assert_eq!(page.take_spilled(), None);
        page.set(word::SPILL_WRITTEN, u64::MAX);
        assert_eq!(page.take_spilled(), None);
        page.set(word::SPILL_READ, 0);
        page.set(word::SPILL_WRITTEN, 4_096);
        for at in (0..4_096).step_by(8) {
            page.set(SPILL + at, u64::MAX);
        }
        assert_eq!(page.take_spilled(), None);
        assert_eq!(page.get(word::SPILL_READ), 4_096);
    }
}
