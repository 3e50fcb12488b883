//! Handles: tokens for jobs.
//!
//! Problem: C can hand over any number as a handle: null, garbage, one that was given back.
//! Approach: a handle is an entry of a table and a number that is used once, and points to nothing.
//! The table is made of atomic numbers, so that it needs no lock and is whole in the child of a
//! fork.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::{
    progress::Pace,
    result::{Code, Failure},
};

/// Handles that are open at a time.
const ENTRIES: usize = 4096;

/// No job has it.
const NO_JOB: i64 = -1;

struct Entry {
    /// Odd while the handle is open.
    turn: AtomicU32,
    job: AtomicI64,
    /// Of the reports of its progress.
    pace: Pace,
}

static TABLE: [Entry; ENTRIES] =
    [const { Entry { turn: AtomicU32::new(0), job: AtomicI64::new(0), pace: Pace::new() } };
        ENTRIES];

/// The type that C has as `gang_job`: never looked at.
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// A handle without a job yet: where none is left, the caller knows before anything is asked of the
/// daemon. It is given back where it gets no job.
pub struct Blank(*mut Handle);

impl Blank {
    pub fn new() -> Result<Blank, Failure> {
        open(NO_JOB).map(Blank)
    }

    /// The handle, on a job.
    pub fn fill(self, job: i64) -> *mut Handle {
        if let Ok((entry, _)) = entry(self.0) {
            entry.job.store(job, Ordering::Release);
        }
        let handle = self.0;
        std::mem::forget(self);
        handle
    }
}

impl Drop for Blank {
    fn drop(&mut self) {
        let _ = close(self.0);
    }
}

/// A handle on a job.
pub fn open(job: i64) -> Result<*mut Handle, Failure> {
    for (index, entry) in TABLE.iter().enumerate() {
        let turn = entry.turn.load(Ordering::Acquire);
        if turn % 2 == 1 {
            continue;
        }
        let next = turn.wrapping_add(1);
        if entry.turn.compare_exchange(turn, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            entry.job.store(job, Ordering::Release);
            entry.pace.begin();
            let token = (next as usize) << 16 | (index + 1);
            return Ok(std::ptr::without_provenance_mut(token));
        }
    }
    Err(Failure::new(Code::Limit, format!("{ENTRIES} jobs are open in this process")))
}

/// The job of a handle.
pub fn job(handle: *const Handle) -> Result<i64, Failure> {
    let (entry, turn) = entry(handle)?;
    let job = entry.job.load(Ordering::Acquire);
    if entry.turn.load(Ordering::Acquire) == turn { Ok(job) } else { Err(stale()) }
}

/// The job of a handle, and when its progress is to be reported.
pub fn job_and_pace(handle: *const Handle) -> Result<(i64, &'static Pace), Failure> {
    Ok((job(handle)?, &entry(handle)?.0.pace))
}

/// Gives a handle back.
pub fn close(handle: *const Handle) -> Result<(), Failure> {
    let (entry, turn) = entry(handle)?;
    let next = turn.wrapping_add(1);
    let closed = entry.turn.compare_exchange(turn, next, Ordering::AcqRel, Ordering::Relaxed);
    closed.map(drop).map_err(|_| stale())
}

fn entry(handle: *const Handle) -> Result<(&'static Entry, u32), Failure> {
    let token = handle.addr();
    if token == 0 {
        return Err(Failure::invalid("the job is null"));
    }
    let (index, turn) = ((token & 0xffff).wrapping_sub(1), (token >> 16) as u32);
    let known = TABLE.get(index).filter(|entry| {
        token >> 48 == 0 && turn % 2 == 1 && entry.turn.load(Ordering::Acquire) == turn
    });
    known.map(|entry| (entry, turn)).ok_or_else(stale)
}

fn stale() -> Failure {
    Failure::invalid("the job is no open handle of this process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_gets_no_job_is_given_back() {
        let blank = Blank::new().unwrap();
        let token = blank.0;
        drop(blank);
        assert!(job(token).is_err());
        let filled = Blank::new().unwrap().fill(7);
        assert_eq!(job(filled).unwrap(), 7);
        close(filled).unwrap();
    }

    #[test]
    fn a_handle_is_good_until_it_is_given_back() {
        let (one, other) = (open(7).unwrap(), open(8).unwrap());
        assert_eq!((job(one).unwrap(), job(other).unwrap()), (7, 8));
        close(one).unwrap();
        assert!(job(one).is_err() && close(one).is_err());
        let again = open(9).unwrap();
        assert!(again != one && job(one).is_err());
        assert_eq!(job(again).unwrap(), 9);
        for garbage in [0, 1, 0x10001, usize::MAX, 0xdead_beef, other.addr() + 1] {
            assert!(job(std::ptr::without_provenance(garbage)).is_err(), "{garbage:#x}");
        }
    }
}
