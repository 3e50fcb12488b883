//! The single copy of a long message: from the sender's memory into the receiver's, by the kernel.

use std::io;

use crate::spans::Spans;

/// Copies from another process's memory into this one's, as much as both have.
///
/// # Errors
/// The kernel refuses, or the memory is not there. Bytes that were copied before stay.
///
/// # Safety
/// `to` may be written, and nobody else uses it meanwhile.
pub unsafe fn copy_from(pid: u32, from: &Spans, to: &Spans) -> io::Result<()> {
    let wanted = from.length().min(to.length());
    let mut done = 0;
    while done < wanted {
        let (ours, theirs) = (to.within(done, wanted - done), from.within(done, wanted - done));
        let ((ours, our_count), (theirs, their_count)) = (ours.as_iovec(), theirs.as_iovec());
        let [our_count, their_count] = [our_count, their_count].map(|it| it as libc::c_ulong);
        let pid = pid as libc::pid_t;
        // SAFETY: the caller vouches for `to`; the kernel checks the other process's memory.
        let copied =
            unsafe { libc::process_vm_readv(pid, ours, our_count, theirs, their_count, 0) };
        match copied {
            ..0 => return Err(io::Error::last_os_error()),
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            copied => done += copied as usize,
        }
    }
    Ok(())
}
