//! Memory of the program that messages are sent from and received into, as libfabric hands it over.

use std::ptr;

/// Parts that a message has at most; the provider tells libfabric as `iov_limit`.
pub const SPANS_MAX: usize = 4;

/// A part of a message in some process: an address, and a length in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub base: usize,
    pub length: usize,
}

/// The parts of a message, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    parts: [Span; SPANS_MAX],
    count: usize,
}

/// Bytes that another process may change while they are read: they are copied, never looked at.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    base: *const u8,
    length: usize,
}

impl Spans {
    /// None if there are more than [`SPANS_MAX`], or their lengths overflow.
    pub fn new(parts: &[Span]) -> Option<Spans> {
        let mut spans = Spans::default();
        spans.parts.get_mut(..parts.len())?.copy_from_slice(parts);
        spans.count = parts.len();
        parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.length))?;
        Some(spans)
    }

    pub fn parts(&self) -> &[Span] {
        &self.parts[..self.count]
    }

    /// The bytes of all parts.
    pub fn length(&self) -> usize {
        self.parts().iter().map(|part| part.length).sum()
    }

    /// Where the first byte is.
    pub fn base(&self) -> usize {
        self.parts().first().map_or(0, |part| part.base)
    }

    /// `length` bytes from `offset` on, or as many as there are.
    pub fn within(&self, mut offset: usize, mut length: usize) -> Spans {
        let mut found = Spans::default();
        for part in self.parts() {
            let skipped = offset.min(part.length);
            let taken = length.min(part.length - skipped);
            if taken > 0 {
                found.parts[found.count] = Span { base: part.base + skipped, length: taken };
                found.count += 1;
            }
            (offset, length) = (offset - skipped, length - taken);
        }
        found
    }

    /// Copies the beginning of `bytes` into the parts; says how many bytes there was room for.
    ///
    /// # Safety
    /// The parts are memory of this process that may be written, and nobody else uses meanwhile.
    pub unsafe fn fill(&self, bytes: Foreign) -> usize {
        let mut done = 0;
        for part in self.parts() {
            let length = part.length.min(bytes.length - done);
            // SAFETY: the caller vouches for the part; `bytes` has `done + length` bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.base.add(done), part.base as *mut u8, length) };
            done += length;
        }
        done
    }

    /// Copies the bytes of all parts to `to`.
    ///
    /// # Safety
    /// The parts may be read, and `to` has room for [`Spans::length`] bytes.
    pub unsafe fn copy_to(&self, mut to: *mut u8) {
        for part in self.parts() {
            // SAFETY: the caller vouches for both sides.
            unsafe {
                ptr::copy_nonoverlapping(part.base as *const u8, to, part.length);
                to = to.add(part.length);
            }
        }
    }

    /// The bytes of all parts.
    ///
    /// # Safety
    /// The parts may be read.
    pub unsafe fn to_vec(&self) -> Vec<u8> {
        let length = self.length();
        let mut bytes = Vec::with_capacity(length);
        // SAFETY: there is room for all, and all are written.
        unsafe {
            self.copy_to(bytes.as_mut_ptr());
            bytes.set_len(length);
        }
        bytes
    }

    /// As an array of `struct iovec`, which has the same layout.
    pub fn as_iovec(&self) -> (*const libc::iovec, usize) {
        const { assert!(size_of::<Span>() == size_of::<libc::iovec>()) };
        (self.parts.as_ptr().cast(), self.count)
    }
}

impl Foreign {
    /// # Safety
    /// `length` bytes at `base` stay mapped and readable as long as this is used.
    pub unsafe fn new(base: *const u8, length: usize) -> Foreign {
        Foreign { base, length }
    }

    pub fn of(bytes: &[u8]) -> Foreign {
        Foreign { base: bytes.as_ptr(), length: bytes.len() }
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length);
        // SAFETY: the memory is readable (see `new`), there is room for all, and all are written.
        unsafe {
            ptr::copy_nonoverlapping(self.base, bytes.as_mut_ptr(), self.length);
            bytes.set_len(self.length);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Foreign, Span, Spans};

    fn spans(bytes: &mut [u8], lengths: &[usize]) -> Spans {
        let mut base = bytes.as_mut_ptr() as usize;
        let parts: Vec<Span> = lengths
            .iter()
            .map(|&length| {
                let part = Span { base, length };
                base += length;
                part
            })
            .collect();
        Spans::new(&parts).unwrap()
    }

    #[test]
    fn bytes_go_through_parts_in_order() {
        let mut to = [0_u8; 10];
        let all = spans(&mut to, &[3, 0, 4, 3]);
        // SAFETY: the parts are `to`.
        let filled = unsafe { all.fill(Foreign::of(b"abcdefgh")) };
        assert_eq!((filled, &to[..]), (8, &b"abcdefgh\0\0"[..]));
        let all = spans(&mut to, &[3, 0, 4, 3]);
        // SAFETY: as above.
        assert_eq!(unsafe { all.within(2, 4).to_vec() }, b"cdef");
        // SAFETY: as above.
        assert_eq!(unsafe { all.within(7, 100).to_vec() }, b"h\0\0");
        assert_eq!(all.within(10, 1).length(), 0);
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        let part = Span { base: 8, length: usize::MAX };
        assert_eq!(Spans::new(&[part, part]), None);
        assert_eq!(Spans::new(&[part; 5]), None);
    }
}
