//! Memory that ports of one host share: a memfd whose size is sealed.
//!
//! A peer opens it by `/proc/PID/fd/N`, so no name is left behind, whatever happens to the
//! processes. The kernel lets those do so that may read the owner's memory.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::fd::{AsRawFd, FromRawFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64},
};

/// Shared memory, mapped as long as this lives.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: all access is by atomics or by raw copies, which any thread may make.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

impl Region {
    /// New memory, all zero, and its descriptor.
    ///
    /// # Errors
    /// The kernel refuses one of the calls.
    pub fn create(length: usize) -> io::Result<(Region, File)> {
        let name = CString::new("gang-net").expect("it has no zero byte");
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let raw = checked(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: the descriptor is new, so nobody else has it.
        let file = unsafe { File::from_raw_fd(raw) };
        file.set_len(length as u64)?;
        let seals = SIZE_SEALS | libc::F_SEAL_SEAL;
        // SAFETY: the call takes no pointer.
        checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        Ok((Region::map(&file, length)?, file))
    }

    /// A file of which nothing is written here.
    ///
    /// # Errors
    /// The file is shorter, or cannot be mapped.
    pub fn of_reader(file: &File, length: usize) -> io::Result<Region> {
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("it is too short"));
        }
        Region::map_for(libc::PROT_READ, file, length)
    }

    /// Memory that another process has made.
    ///
    /// # Errors
    /// It cannot be opened, is of another length, or its length may change.
    pub fn open(pid: u32, descriptor: u32, length: usize) -> io::Result<Region> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: the call takes no pointer.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SIZE_SEALS != SIZE_SEALS || file.metadata()?.len() != length as u64 {
            return Err(io::Error::other("it is no queue of this version"));
        }
        Region::map(&file, length)
    }

    fn map(file: &File, length: usize) -> io::Result<Region> {
        Region::map_for(libc::PROT_READ | libc::PROT_WRITE, file, length)
    }

    fn map_for(access: libc::c_int, file: &File, length: usize) -> io::Result<Region> {
        let (at, flags) = (ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: the kernel chooses the place, so that nothing that is mapped changes.
        let base = unsafe { libc::mmap(at, length, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("nothing is mapped at 0");
        Ok(Region { base, length })
    }

    fn place(&self, offset: usize, length: usize, align: usize) -> *mut u8 {
        let is_within = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(is_within && offset % align == 0, "{offset} + {length} of {}", self.length);
        // SAFETY: it is within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the place is within the mapping and aligned; all access to it is atomic.
        unsafe { AtomicU64::from_ptr(self.place(offset, 8, 8).cast()) }
    }

    pub fn half(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(self.place(offset, 4, 4).cast()) }
    }

    /// Memory for raw copies.
    pub fn bytes(&self, offset: usize, length: usize) -> *mut u8 {
        self.place(offset, length, 1)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and nothing borrows from a region that is dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
