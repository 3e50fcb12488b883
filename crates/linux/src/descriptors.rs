//! The table of open files: how many fit into it, and where two threads must not share it.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Error, Result};

/// Lets this process have as many open files as it may, and the programs that it starts. The limit
/// that a shell gives is for programs that call select(2), which does not know more than 1,024.
pub fn have_all() -> Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|e| Error::new("raise the limit on", "the open files of this process", e))
}

/// Gives the calling thread a table of open files of its own, with nothing in it but the standard
/// three.
///
/// Files that the thread opens from now on are closed by the kernel as soon as the thread ends,
/// without the other threads of the process. To be called at the start of a thread that was handed
/// no descriptor.
pub fn unshare_table() -> Result<()> {
    let error = || Error::new("unshare", "the open files of a thread", io::Error::last_os_error());
    // SAFETY: it changes which table this thread uses, and touches no memory of this process.
    #[allow(unsafe_code)]
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(error());
    }
    // SAFETY: the table is this thread's own now, and the thread was handed no descriptor. So
    // nothing that owns one of the closed descriptors is ever used in this thread.
    #[allow(unsafe_code)]
    if unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } != 0 {
        return Err(error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn there_may_be_as_many_as_the_limit_can_be() {
        let before = getrlimit(Resource::Nofile);
        // Enough for the other tests of this program.
        let few = before.current.map(|most| most.min(512));
        setrlimit(Resource::Nofile, Rlimit { current: few, ..before }).unwrap();
        have_all().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }

    #[test]
    fn own_table_hides_files_from_other_threads() {
        let before = File::open("/dev/null").unwrap();
        let number = std::thread::spawn(|| {
            unshare_table().unwrap();
            let opened = File::open("/dev/zero").unwrap();
            std::fs::read_link(format!("/proc/thread-self/fd/{}", opened.as_raw_fd())).unwrap()
        })
        .join()
        .unwrap();
        assert_eq!(number.to_str(), Some("/dev/zero"));
        let link = std::fs::read_link(format!("/proc/self/fd/{}", before.as_raw_fd())).unwrap();
        assert_eq!(link.to_str(), Some("/dev/null"));
    }
}
