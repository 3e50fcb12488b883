//! The slot page of the job that a port is in: whether its peers run at this moment.
//!
//! Problem: a thread that waits for a peer that has no CPU spins in vain, and takes CPU time from
//! programs that fill the slot of others. All ranks of a gang are out of their slot together.
//!
//! Approach: the daemon writes the page at the edges of slots, and the thread reads one word of it
//! in each round of its spinning. `gang.h` describes the page; its magic number and version are in
//! `engine/src/page.rs`.
//!
//! Property: a page that says nothing never makes a thread block. The page says nothing where the
//! job is not scheduled, or its daemon is gone.

use std::{fmt, fs::File, io, path::Path, sync::atomic::Ordering};

use gang_protocol::error::ClientError;

use crate::region::Region;

const LENGTH: usize = 4_096;
const MAGIC: u32 = 0x474e_4147;
const VERSION: u32 = 1;

/// Offsets of words.
pub const MAGIC_AT: usize = 0;
pub const VERSION_AT: usize = 4;
pub const RUNNING: usize = 8;
pub const VALIDITY: usize = 36;

/// A page, mapped as long as this lives.
#[derive(Debug)]
pub struct Slot {
    page: Region,
}

/// Why a port knows nothing of its slot.
#[derive(Debug)]
pub enum Unknown {
    Daemon(ClientError),
    Page(String, io::Error),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Daemon(error) => write!(f, "{error}"),
            Unknown::Page(path, error) => write!(f, "cannot map the slot page {path}: {error}"),
        }
    }
}

impl std::error::Error for Unknown {}

impl Slot {
    /// # Errors
    /// The file cannot be mapped, or is no slot page of this version.
    pub fn open(path: &Path) -> io::Result<Slot> {
        let page = Region::of_reader(&File::open(path)?, LENGTH)?;
        let word = |offset| page.half(offset).load(Ordering::Relaxed);
        if (word(MAGIC_AT), word(VERSION_AT)) != (MAGIC, VERSION) {
            return Err(io::Error::other("it is no slot page of this version"));
        }
        Ok(Slot { page })
    }

    /// Whether the slot of the job is over, so that no peer runs. One load while the slot runs.
    pub fn is_out(&self) -> bool {
        let word = |offset| self.page.half(offset).load(Ordering::Relaxed);
        word(RUNNING) == 0 && word(VALIDITY) == 0
    }
}
