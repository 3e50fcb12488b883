//! Namespaces of processes: whether numbers of processes and users mean here what they mean there.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use crate::{
    Result,
    process::{StatusText, has_ended},
};

/// Names of the first namespaces in `/proc/PID/ns`. Their numbers are fixed (PROC_PID_INIT_INO and
/// PROC_USER_INIT_INO in include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Whether this process is in the machine's first PID namespace, whose process 1 is init. In
/// others process 1 is an ordinary program. True where the kernel does not say it.
pub fn is_in_first_pid_namespace(proc_root: &Path) -> bool {
    let namespace = fs::read_link(proc_root.join("self/ns/pid"));
    namespace.map_or(true, |name| name.as_os_str() == FIRST_PID_NAMESPACE)
}

/// Whether the numbers by which the kernel knows threads and users are those of this process: it is
/// in the machine's first PID namespace and in its first user namespace. True where the kernel does
/// not say it.
pub fn has_numbers_of_the_kernel(proc_root: &Path) -> bool {
    let namespace = fs::read_link(proc_root.join("self/ns/user"));
    is_in_first_pid_namespace(proc_root)
        && namespace.map_or(true, |name| name.as_os_str() == FIRST_USER_NAMESPACE)
}

/// Whether the processes that `proc_root` lists have the numbers by which this process knows them.
/// A mount of another PID namespace lists the same numbers for other processes.
pub fn are_numbered_as_here(proc_root: &Path) -> bool {
    match fs::read_link(proc_root.join("self")) {
        Ok(own) => own.as_os_str() == std::process::id().to_string().as_str(),
        // Either the mount does not have this process, or there is no mount.
        Err(_) => !proc_root.join("stat").exists(),
    }
}

/// Whether a process is in a PID namespace below that of `proc_root`, and so knows processes by
/// other numbers.
pub fn is_in_inner_pid_namespace(proc_root: &Path, pid: u32) -> Result<bool> {
    let text = StatusText::read(proc_root, pid)?;
    // The numbers of the process, one for each namespace. Linux 4.1 and later list them.
    let numbers = text.field("NSpid:").unwrap_or_default();
    Ok(numbers.split_ascii_whitespace().count() > 1)
}

/// Whether a process is in the user namespace of this one, so that its user ids are the same users
/// here: by a handle on it where there is one, by its number elsewhere. An error where that cannot
/// be looked at, or the number may be another's by now.
pub fn is_in_own_user_namespace(
    proc_root: &Path,
    pid: Option<u32>,
    pidfd: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    let own = match fs::metadata(proc_root.join("self/ns/user")) {
        // A kernel without user namespaces has no others either.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        own => identity(&own?),
    };
    let by_handle = pidfd.map(|pidfd| user_namespace(pidfd)?.metadata());
    if let Some(Ok(its)) = by_handle {
        return Ok(identity(&its) == own);
    }
    let pid = pid.ok_or(io::ErrorKind::NotFound)?;
    let its = identity(&fs::metadata(proc_root.join(format!("{pid}/ns/user")))?);
    if pidfd.is_some_and(has_ended) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(its == own)
}

fn identity(namespace: &fs::Metadata) -> (u64, u64) {
    (namespace.dev(), namespace.ino())
}

/// `PIDFD_GET_USER_NAMESPACE` of `linux/pidfd.h`, Linux 6.11, for which libc has no name.
const PIDFD_GET_USER_NAMESPACE: libc::Ioctl = 0xff09;

fn user_namespace(pidfd: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: the call has no argument, and the kernel touches no memory of this process.
    #[allow(unsafe_code)]
    let opened = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_USER_NAMESPACE, 0) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process, and nobody else knows it.
    #[allow(unsafe_code)]
    Ok(unsafe { File::from_raw_fd(opened) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn own_user_namespace_is_known_by_handle_and_number() {
        let (root, own) = (Path::new("/proc"), std::process::id());
        let is_own = |pid, pidfd| is_in_own_user_namespace(root, pid, pidfd).ok();
        assert_eq!(is_own(Some(own), None), Some(true));
        assert_eq!(is_own(None, None), None);
        let mut child = std::process::Command::new("unshare")
            .args(["--user", "sleep", "600"])
            .spawn()
            .expect("unshare is there");
        let number = rustix::process::Pid::from_child(&child);
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(number, flags).unwrap();
        // It takes a while until it is elsewhere, unless this kernel refuses.
        let mut has_left = false;
        while child.try_wait().unwrap().is_none() && !has_left {
            has_left = is_own(Some(child.id()), None) == Some(false);
        }
        if has_left {
            assert_eq!(is_own(Some(child.id()), Some(pidfd.as_fd())), Some(false));
            let by_handle = is_own(None, Some(pidfd.as_fd()));
            assert!(by_handle.is_none_or(|is_own| !is_own), "absent before Linux 6.11");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(pidfd.as_fd()));
        // By now the number may be another's.
        assert_eq!(is_own(Some(own), Some(pidfd.as_fd())), None);
    }

    #[test]
    fn namespaces_are_told_apart() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let link = root.path().join("self/ns/pid");
            let _ = fs::remove_file(&link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(name, link).unwrap();
            is_in_first_pid_namespace(root.path())
        };
        assert!(is_in_first_pid_namespace(root.path()), "it is not said");
        assert!(has_numbers_of_the_kernel(root.path()), "it is not said");
        assert!(of("pid:[4026531836]"));
        assert!(!of("pid:[4026532200]"));
        for (pid, user, is_first) in [
            ("pid:[4026531836]", "user:[4026531837]", true),
            ("pid:[4026531836]", "user:[4026532300]", false),
            ("pid:[4026532200]", "user:[4026531837]", false),
        ] {
            let link = root.path().join("self/ns/user");
            let _ = fs::remove_file(&link);
            symlink(user, link).unwrap();
            of(pid);
            assert_eq!(has_numbers_of_the_kernel(root.path()), is_first, "{pid}, {user}");
        }
        fs::create_dir(root.path().join("7")).unwrap();
        let is_inner = |text: &str| {
            fs::write(root.path().join("7/status"), text).unwrap();
            is_in_inner_pid_namespace(root.path(), 7).unwrap()
        };
        assert!(!is_inner("Name:\ta\nNSpid:\t7\n"));
        assert!(is_inner("Name:\ta\nNSpid:\t7\t1\n"));
        assert!(!is_inner("Name:\ta\n"), "an old kernel");
        let other = tempfile::tempdir().unwrap();
        assert!(are_numbered_as_here(other.path()), "nothing is mounted");
        fs::write(other.path().join("stat"), "").unwrap();
        assert!(!are_numbered_as_here(other.path()), "this process is not in it");
        symlink("1", other.path().join("self")).unwrap();
        assert!(!are_numbered_as_here(other.path()));
        assert!(are_numbered_as_here(Path::new("/proc")));
    }
}
