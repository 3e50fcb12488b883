//! Operations that have ended: completion queues and counters.

use std::collections::VecDeque;

/// Flags and errors, with libfabric's numbers; `gang_fi.c` compares them with its headers.
pub mod fi {
    pub const MSG: u64 = 1 << 1;
    pub const TAGGED: u64 = 1 << 3;
    pub const RECV: u64 = 1 << 10;
    pub const SEND: u64 = 1 << 11;
    pub const MULTI_RECV: u64 = 1 << 16;
    pub const REMOTE_CQ_DATA: u64 = 1 << 17;
    pub const ADDR_UNSPEC: u64 = u64::MAX;

    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EBUSY: i32 = 16;
    pub const EINVAL: i32 = 22;
    pub const ENOMSG: i32 = 42;
    pub const EMSGSIZE: i32 = 90;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ENOTCONN: i32 = 107;
    pub const EHOSTUNREACH: i32 = 113;
    pub const ECANCELED: i32 = 125;
    pub const EAVAIL: i32 = 259;
    pub const ETRUNC: i32 = 265;
}

/// An operation that has ended, well or not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    pub context: usize,
    pub flags: u64,
    /// Bytes that were received or sent.
    pub length: usize,
    /// Where they are, in a buffer for several messages.
    pub buffer: usize,
    pub data: u64,
    pub tag: u64,
    /// `fi_addr_t` of the sender, or [`fi::ADDR_UNSPEC`].
    pub source: u64,
    /// Bytes that there was no room for.
    pub missing: usize,
    /// 0, or libfabric's number of what went wrong.
    pub error: i32,
}

/// A completion queue.
#[derive(Debug)]
pub struct Queue {
    entries: VecDeque<Completion>,
    capacity: usize,
    /// Threads that wait return, though nothing has come to its end.
    pub is_signalled: bool,
}

impl Queue {
    pub fn new(capacity: usize) -> Queue {
        Queue { entries: VecDeque::new(), capacity, is_signalled: false }
    }

    /// Nobody has read what there is room for: no send begins meanwhile. Receives are never lost.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn push(&mut self, completion: Completion) {
        self.entries.push_back(completion);
    }

    /// The next completion that is no error.
    ///
    /// # Errors
    /// EAGAIN where there is none, EAVAIL where an error is before it.
    pub fn read(&mut self) -> Result<Completion, i32> {
        match self.entries.front() {
            None => Err(fi::EAGAIN),
            Some(first) if first.error != 0 => Err(fi::EAVAIL),
            Some(_) => self.entries.pop_front().ok_or(fi::EAGAIN),
        }
    }

    /// The error that is next.
    ///
    /// # Errors
    /// EAGAIN where none is.
    pub fn read_error(&mut self) -> Result<Completion, i32> {
        let is_error = self.entries.front().is_some_and(|first| first.error != 0);
        is_error.then(|| self.entries.pop_front()).flatten().ok_or(fi::EAGAIN)
    }
}

/// A counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub value: u64,
    pub errors: u64,
}
