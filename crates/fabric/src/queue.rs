//! The inbound queue of a port: many processes write, one reads.
//!
//! Problem: a writer may be killed between any two instructions, and any process of the user can
//! write anything into the memory. Neither may stop, crash or mislead the reader.
//!
//! Approach: a ring of cells. Each cell has a state word: the *lap* for which the cell is free,
//! claimed or ready, and the process that has claimed it. A writer claims the cell at the tail by
//! one compare-and-swap of its state, moves the tail on, writes, and says that the cell is ready.
//! A writer that finds a claimed cell at the tail moves the tail on for the other writer. So the
//! tail is only a hint, and the cell says who holds it: if that process has ended, the reader
//! skips the cell. If a state makes no sense, the reader makes the cell free.
//!
//! A writer that is stopped between claim and write holds the queue up until it goes on. Writers of
//! one gang are stopped together with their reader.
//!
//! Properties: packets of one writer come in order, each once and whole. A full queue refuses and
//! loses nothing. The reader copies each head out before it looks at it, and reads only within
//! cells. [`Reader::repair`] puts right what was scribbled over.

use std::{
    fs::File,
    io, process,
    sync::atomic::{AtomicU32, Ordering, fence},
    time::Duration,
};

use gang_net::{Key, port::queue as layout};

use crate::{
    packet::{HEAD, Head, PAYLOAD_MAX},
    region::Region,
    spans::{Foreign, Spans},
};

/// Cells of a queue.
pub const CELLS: u64 = 256;

const MAGIC: u64 = u64::from_le_bytes(*b"GangQue1");
// Offsets of fields, each with a cache line of its own.
const KEY: usize = 16;
const TAIL: usize = 128;
const SLEEPING: usize = 256;
const FIRST: usize = 4_096;
// An odd number of cache lines, so that states of cells are in different sets of a cache.
const STRIDE: usize = 65 * 64;
const BODY: usize = 8 + HEAD;
const LENGTH: usize = FIRST + CELLS as usize * STRIDE;
const _: () = assert!(BODY + PAYLOAD_MAX <= STRIDE && CELLS.is_power_of_two());
// The daemon looks into queues, too.
const _: () = {
    assert!(FIRST == layout::FIRST && STRIDE == layout::STRIDE && CELLS == layout::CELLS);
    assert!(BODY == layout::PACKET + layout::PACKET_HEAD && PAYLOAD_MAX == layout::PAYLOAD_MAX);
};

/// Attempts of a writer to claim a cell, while others are faster.
const ATTEMPTS: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Claimed { pid: u32 },
    Ready { pid: u32 },
}

/// 2 bits of state, 22 of a process (the kernel's PID_MAX_LIMIT), 40 of the lap.
fn word(lap: u64, state: State) -> u64 {
    let (bits, pid) = match state {
        State::Free => (0, 0),
        State::Claimed { pid } => (1, pid),
        State::Ready { pid } => (2, pid),
    };
    lap << 24 | u64::from(pid) << 2 | bits
}

fn read(word: u64) -> (u64, Option<State>) {
    let pid = (word >> 2) as u32 & 0x3f_ffff;
    let state = match word & 3 {
        0 if pid == 0 => Some(State::Free),
        1 => Some(State::Claimed { pid }),
        2 => Some(State::Ready { pid }),
        _ => None,
    };
    (word >> 24, state)
}

fn cell(position: u64) -> usize {
    FIRST + (position % CELLS) as usize * STRIDE
}

/// The end of the port that owns the queue.
#[derive(Debug)]
pub struct Reader {
    region: Region,
    file: File,
    position: u64,
}

/// The end of a peer.
#[derive(Debug)]
pub struct Writer {
    region: Region,
    pid: u32,
}

/// The state of the cell at the head of the queue.
#[derive(Debug)]
pub enum Next {
    Nothing,
    /// [`Reader::done`] gives the cell back.
    Packet(Head, Foreign),
    /// A process is about to write, or was when it ended.
    Claimed {
        pid: u32,
    },
    /// Something that no writer writes; the cell is free again.
    Nonsense,
}

impl Reader {
    /// # Errors
    /// There is no memory for it.
    pub fn new(key: Key) -> io::Result<Reader> {
        let (region, file) = Region::create(LENGTH)?;
        for (at, half) in key.0.chunks_exact(8).enumerate() {
            let half = u64::from_le_bytes(half.try_into().expect("8 bytes"));
            region.word(KEY + 8 * at).store(half, Ordering::Relaxed);
        }
        region.word(0).store(MAGIC, Ordering::Release);
        Ok(Reader { region, file, position: 0 })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The cell at the head, which stays there.
    pub fn look(&mut self) -> Next {
        let at = cell(self.position);
        let state = self.region.word(at);
        let lap = self.position / CELLS;
        match read(state.load(Ordering::Acquire)) {
            (of, Some(State::Free)) if of == lap => Next::Nothing,
            (of, Some(State::Claimed { pid })) if of == lap => Next::Claimed { pid },
            (of, Some(State::Ready { .. })) if of == lap => {
                let head = |n: usize| self.region.word(at + 8 * (n + 1)).load(Ordering::Relaxed);
                match Head::from_words([head(0), head(1), head(2), head(3)]) {
                    Some((head, length)) => {
                        let body = self.region.bytes(at + BODY, length);
                        // SAFETY: the mapping lives as long as the reader.
                        Next::Packet(head, unsafe { Foreign::new(body, length) })
                    }
                    None => {
                        self.done();
                        Next::Nonsense
                    }
                }
            }
            _ => {
                self.done();
                Next::Nonsense
            }
        }
    }

    /// The cell at the head is free for the next lap.
    pub fn done(&mut self) {
        let free = word(self.position / CELLS + 1, State::Free);
        self.region.word(cell(self.position)).store(free, Ordering::Release);
        self.position += 1;
    }

    /// The position of the head, from 0 on.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Makes the tail one that writers can use, if it is not. To be called now and then.
    pub fn repair(&mut self) {
        let tail = self.region.word(TAIL);
        let found = tail.load(Ordering::Acquire);
        if found.wrapping_sub(self.position) > CELLS && self.position.wrapping_sub(found) > CELLS {
            let _ =
                tail.compare_exchange(found, self.position, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// From now on writers wake [`sleep`]. The caller looks at the queue once more before.
    pub fn fall_asleep(&self) {
        self.region.half(SLEEPING).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub fn wake_up(&self) {
        self.region.half(SLEEPING).store(0, Ordering::SeqCst);
    }

    /// The word that threads of this process sleep on; it lives as long as the reader.
    pub fn sleeping(&self) -> *const AtomicU32 {
        self.region.half(SLEEPING)
    }
}

/// Waits until a writer wakes, for `at_most` or, now and then, for less.
///
/// # Safety
/// `sleeping` is the word of a reader that lives.
pub unsafe fn sleep(sleeping: *const AtomicU32, at_most: Duration) {
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs() as libc::time_t,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: the caller vouches for the word.
    unsafe { libc::syscall(libc::SYS_futex, sleeping, libc::FUTEX_WAIT, 1, &timeout) };
}

/// Wakes all that sleep.
fn wake(sleeping: &AtomicU32) {
    if sleeping.swap(0, Ordering::SeqCst) != 0 {
        // SAFETY: the word is mapped.
        unsafe { libc::syscall(libc::SYS_futex, sleeping.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// Wakes threads of the reader's own process.
///
/// # Safety
/// `sleeping` is the word of a reader that lives.
pub unsafe fn wake_own(sleeping: *const AtomicU32) {
    // SAFETY: the caller vouches for it.
    wake(unsafe { &*sleeping });
}

impl Writer {
    /// Opens the queue of a process.
    ///
    /// # Errors
    /// It is not there, may not be opened, or has another key.
    pub fn open(pid: u32, descriptor: u32, key: Key) -> io::Result<Writer> {
        let region = Region::open(pid, descriptor, LENGTH)?;
        let mut found = [0; 16];
        for (at, half) in found.chunks_exact_mut(8).enumerate() {
            half.copy_from_slice(&region.word(KEY + 8 * at).load(Ordering::Relaxed).to_le_bytes());
        }
        if region.word(0).load(Ordering::Acquire) != MAGIC || Key(found) != key {
            return Err(io::Error::other("its queue has another key"));
        }
        Ok(Writer { region, pid: process::id() })
    }

    /// Writes a packet; false where the queue is full.
    ///
    /// # Safety
    /// `payload` may be read; it has [`PAYLOAD_MAX`] bytes at most.
    pub unsafe fn push(&self, head: Head, payload: &Spans) -> bool {
        let length = payload.length();
        let Some(position) = self.claim() else { return false };
        let at = cell(position);
        for (n, value) in head.to_words(length).into_iter().enumerate() {
            self.region.word(at + 8 * (n + 1)).store(value, Ordering::Relaxed);
        }
        let body = self.region.bytes(at + BODY, length);
        // SAFETY: the caller vouches for the payload; `bytes` has checked the place.
        unsafe { payload.copy_to(body) };
        let ready = word(position / CELLS, State::Ready { pid: self.pid });
        // A full barrier: the flag is read after the cell is ready, or the reader sleeps on it.
        self.region.word(at).swap(ready, Ordering::SeqCst);
        let sleeping = self.region.half(SLEEPING);
        if sleeping.load(Ordering::SeqCst) != 0 {
            wake(sleeping);
        }
        true
    }

    fn claim(&self) -> Option<u64> {
        let tail = self.region.word(TAIL);
        let advance = |from: u64| {
            let to = from.wrapping_add(1);
            tail.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
        };
        for _ in 0..ATTEMPTS {
            let position = tail.load(Ordering::Acquire);
            let lap = position / CELLS;
            let state = self.region.word(cell(position));
            let found = state.load(Ordering::Acquire);
            let claimed = word(lap, State::Claimed { pid: self.pid });
            match read(found) {
                (of, Some(State::Free)) if of == lap => {
                    let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
                    if state.compare_exchange(found, claimed, yes, no).is_ok() {
                        let _ = advance(position);
                        return Some(position);
                    }
                }
                // Another writer has it, or the reader is done with it: the tail is late.
                (of, _) if of == lap || of == lap + 1 => {
                    let _ = advance(position);
                }
                _ => return None,
            }
        }
        None
    }

    /// All of the memory: what another process of the user could write to.
    #[doc(hidden)]
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.region.bytes(0, LENGTH), LENGTH)
    }

    /// Claims a cell, and leaves it: what a writer does that is killed at once.
    #[doc(hidden)]
    pub fn abandon(&self, pid: u32) -> bool {
        let Some(position) = self.claim() else { return false };
        let claimed = word(position / CELLS, State::Claimed { pid });
        self.region.word(cell(position)).store(claimed, Ordering::Release);
        true
    }
}
