//! Processes and threads as `/proc` shows them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    event::{PollFd, PollFlags},
    process::Signal,
};

use crate::{Error, Result};

/// The fields of `/proc/TID/stat` that gangd uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `T`, … as in `proc(5)`.
    pub state: u8,
    pub parent: u32,
    /// A thread of the kernel, which is of no program.
    pub is_kernel_thread: bool,
    /// User and system time, in clock ticks of 10 ms.
    pub cpu_ticks: u64,
    /// When the thread started, in clock ticks since boot: with the number, its identity.
    pub start_ticks: u64,
    /// The CPU it ran on last.
    pub cpu: u32,
    /// Scheduling policy number (see [`crate::sched::SchedPolicy`]).
    pub policy: u32,
}

/// Reads one `stat` line. The command's name may hold any byte, so fields count from its last `)`.
pub fn parse_stat(line: &[u8]) -> Option<Stat> {
    let after_name = line.iter().rposition(|&b| b == b')')? + 1;
    let text = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields are numbered from 1 in proc(5); the parent is field 4.
    let flags: u32 = fields.nth(9 - 4 - 1)?.parse().ok()?;
    let utime: u64 = fields.nth(14 - 9 - 1)?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(22 - 15 - 1)?.parse().ok()?;
    let cpu = fields.nth(39 - 22 - 1)?.parse().ok()?;
    let policy = fields.nth(41 - 39 - 1)?.parse().ok()?;
    let is_kernel_thread = flags & PF_KTHREAD != 0;
    Some(Stat {
        state,
        parent,
        is_kernel_thread,
        cpu_ticks: utime + stime,
        start_ticks,
        cpu,
        policy,
    })
}

/// The flag of a thread that belongs to the kernel (include/linux/sched.h).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Whether the process of a handle has ended: its number may be another's.
pub fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    // A poll that a signal interrupts has seen nothing.
    matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..))
}

/// The state of a thread or process. The time that it used is that of its process. Waits while it
/// becomes another program (execve(2)), beside many threads that compute for a second and more;
/// [`status`] does not.
pub fn stat(proc_root: &Path, tid: u32) -> Result<Stat> {
    stat_at(&proc_root.join(tid.to_string()))
}

/// The state of one thread of a process, and the time that it used by itself.
pub fn thread_stat(proc_root: &Path, pid: u32, tid: u32) -> Result<Stat> {
    stat_at(&proc_root.join(format!("{pid}/task/{tid}")))
}

fn stat_at(directory: &Path) -> Result<Stat> {
    let path = directory.join("stat");
    let error = |e: io::Error| Error::new("read", path.display(), e);
    let mut line = [0; 1024];
    let read = File::open(&path).and_then(|mut file| file.read(&mut line)).map_err(error)?;
    parse_stat(&line[..read]).ok_or_else(|| error(io::ErrorKind::InvalidData.into()))
}

/// The part of `/proc/TID/status` that gangd uses. Its reader never waits, even while the thread is
/// busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// As in [`Stat`].
    state: u8,
    pub parent: u32,
}

impl Status {
    pub fn is_runnable(&self) -> bool {
        self.state == b'R'
    }
}

/// Whether a thread wants to run, and whose child its process is.
pub fn status(proc_root: &Path, tid: u32) -> Result<Status> {
    let text = StatusText::read(proc_root, tid)?;
    let state = text.field("State:").and_then(|state| state.as_bytes().first().copied());
    let parent = text.field("PPid:").and_then(|parent| parent.parse().ok());
    state.zip(parent).map(|(state, parent)| Status { state, parent }).ok_or_else(|| text.is_odd())
}

/// Whether a thread of a process has not ended. The first one of a process stays on the list until
/// the others have ended. Unlike [`thread_stat`], this does not wait.
pub fn has_thread(proc_root: &Path, pid: u32, tid: u32) -> bool {
    let text = StatusText::read_at(&proc_root.join(format!("{pid}/task/{tid}")));
    text.is_ok_and(|text| text.field("State:").is_some_and(|it| !it.starts_with(['Z', 'X'])))
}

/// The CPU time of one thread in nanoseconds (proc_pid_schedstat(5)); absent for one that has
/// ended, and where the kernel does not say.
pub fn thread_cpu_ns(proc_root: &Path, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(proc_root.join(tid.to_string()).join("schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The CPUs that a thread may run on, those that are offline among them, as the kernel lists CPUs.
pub fn cpus_allowed(proc_root: &Path, tid: u32) -> Result<String> {
    let text = StatusText::read(proc_root, tid)?;
    text.field("Cpus_allowed_list:").map(str::to_owned).ok_or_else(|| text.is_odd())
}

/// A `status` file of a thread (proc_pid_status(5)).
pub(crate) struct StatusText {
    path: PathBuf,
    text: String,
}

impl StatusText {
    pub(crate) fn read(proc_root: &Path, tid: u32) -> Result<StatusText> {
        StatusText::read_at(&proc_root.join(tid.to_string()))
    }

    fn read_at(directory: &Path) -> Result<StatusText> {
        let path = directory.join("status");
        let text = read_lossy(&path).map_err(|e| Error::new("read", path.display(), e))?;
        Ok(StatusText { path, text })
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    /// It lacks a field, or has something else in it.
    fn is_odd(&self) -> Error {
        Error::new("read", self.path.display(), io::ErrorKind::InvalidData)
    }
}

/// A file of `/proc` that has a name in it, which may hold any byte: the kernel cuts names after 15
/// of them.
pub fn read_lossy(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The user that a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process itself, also where one of its threads was asked for.
    pub pid: u32,
    /// The user ids: the real, the effective and the saved one.
    pub real: u32,
    pub effective: u32,
    pub saved: u32,
}

impl Owner {
    /// Whether the process is another user's: the kernel lets this one send no signal to it
    /// (kill(2)). No process is foreign to root.
    pub fn is_foreign_to(&self, uid: u32) -> bool {
        uid != 0 && ![self.real, self.saved].contains(&uid)
    }
}

/// The user who has the files of a process in /proc: its effective user, or root where that one
/// may not look at it, as with a set-user-ID program (PR_SET_DUMPABLE). To ask for it costs a tenth
/// of reading its [`owner`].
pub fn files_uid(proc_root: &Path, pid: u32) -> Option<u32> {
    fs::metadata(proc_root.join(pid.to_string())).ok().map(|it| it.uid())
}

/// The user that a process belongs to, or the process that a thread is of.
pub fn owner(proc_root: &Path, tid: u32) -> Result<Owner> {
    let text = StatusText::read(proc_root, tid)?;
    let ids = text.field("Uid:").unwrap_or_default().split_ascii_whitespace();
    let ids: Vec<u32> = ids.map_while(|id| id.parse().ok()).collect();
    let pid = text.field("Tgid:").and_then(|pid| pid.parse().ok());
    match (pid, &ids[..]) {
        (Some(pid), &[real, effective, saved, ..]) => Ok(Owner { pid, real, effective, saved }),
        _ => Err(text.is_odd()),
    }
}

/// Whether a process has handlers for all of these signals; `None` for a thread that is not the
/// first of its process.
pub fn handles(proc_root: &Path, tid: u32, signals: &[Signal]) -> Result<Option<bool>> {
    let text = StatusText::read(proc_root, tid)?;
    let of_process = text.field("Tgid:").and_then(|text| text.parse::<u32>().ok());
    let caught = text.field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let (Some(of_process), Some(caught)) = (of_process, caught) else {
        return Err(text.is_odd());
    };
    let is_caught = |signal: &Signal| caught & (1 << (signal.as_raw() - 1)) != 0;
    Ok((of_process == tid).then(|| signals.iter().all(is_caught)))
}

/// The process that a thread is of.
pub fn of_thread(proc_root: &Path, tid: u32) -> Result<u32> {
    let text = StatusText::read(proc_root, tid)?;
    text.field("Tgid:").and_then(|pid| pid.parse().ok()).ok_or_else(|| text.is_odd())
}

/// The first thread of the process that started a thread: the one that it is of, or the parent of
/// that one.
pub fn starter(proc_root: &Path, tid: u32) -> Result<u32> {
    let text = StatusText::read(proc_root, tid)?;
    let number = |field| text.field(field).and_then(|pid| pid.parse().ok());
    let of = number("Tgid:").filter(|&pid| pid != tid).or_else(|| number("PPid:"));
    of.ok_or_else(|| text.is_odd())
}

/// The greatest part of a command that is read, in bytes.
const COMMAND_MAX: u64 = 4096;

/// The command a process was started as: its arguments, joined by blanks, or its name in brackets;
/// the first 4 KiB of it. It is read in the memory of the process, whose owner may have whoever
/// reads it wait.
pub fn command(proc_root: &Path, pid: u32) -> Result<String> {
    let path = proc_root.join(pid.to_string()).join("cmdline");
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|it| it.take(COMMAND_MAX).read_to_end(&mut bytes));
    read.map_err(|e| Error::new("read", path.display(), e))?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0').replace('\0', " ");
    if text.is_empty() { name(proc_root, pid) } else { Ok(text) }
}

/// The name of a process, in brackets.
pub fn name(proc_root: &Path, pid: u32) -> Result<String> {
    let path = proc_root.join(pid.to_string()).join("comm");
    let name = read_lossy(&path).map_err(|e| Error::new("read", path.display(), e))?;
    Ok(format!("[{}]", name.trim_end()))
}

/// The threads of a process.
pub fn threads(proc_root: &Path, pid: u32) -> Result<Vec<u32>> {
    numbered_entries(&proc_root.join(pid.to_string()).join("task"))
}

/// All processes.
pub fn processes(proc_root: &Path) -> Result<Vec<u32>> {
    numbered_entries(proc_root)
}

/// The threads of all processes, in order of process.
pub fn all_threads(proc_root: &Path) -> Result<impl Iterator<Item = u32>> {
    let processes = processes(proc_root)?.into_iter();
    Ok(processes.flat_map(move |pid| threads(proc_root, pid).unwrap_or_default()))
}

fn numbered_entries(directory: &Path) -> Result<Vec<u32>> {
    let error = |e: io::Error| Error::new("list", directory.display(), e);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(error)? {
        // An entry may vanish while the directory is read.
        let Ok(entry) = entry else { continue };
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// How many numbers there are for processes and threads, where these come back before the kernel
/// has gone through all that it can give (`kernel.pid_max`, proc(5)).
pub fn small_pid_max(proc_root: &Path) -> Option<u32> {
    let text = fs::read_to_string(proc_root.join("sys/kernel/pid_max")).ok()?;
    text.trim().parse().ok().filter(|&most| most < NUMBERS_MAX)
}

/// The most that a kernel of 64 bits can give (`PID_MAX_LIMIT` in include/linux/threads.h).
const NUMBERS_MAX: u32 = 1 << 22;

/// The children that a thread has started, where the kernel lists them; none where it does not.
pub fn children_of_thread(proc_root: &Path, pid: u32, tid: u32) -> Vec<u32> {
    let list = fs::read_to_string(proc_root.join(format!("{pid}/task/{tid}/children")));
    let list = list.unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The children of a process, whichever of its threads started them.
///
/// The kernel lists them for each thread (`/proc/PID/task/TID/children`, proc(5)). One built
/// without that list (CONFIG_PROC_CHILDREN) is asked for the parents of all processes.
pub fn children(proc_root: &Path, pid: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for tid in threads(proc_root, pid)? {
        let path = proc_root.join(format!("{pid}/task/{tid}/children"));
        match fs::read_to_string(&path) {
            Ok(list) => found
                .extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            Err(e)
                if e.kind() == io::ErrorKind::NotFound && path.with_file_name("stat").exists() =>
            {
                return children_by_parents(proc_root, pid);
            }
            // The thread has ended; another one has its children now.
            Err(_) => {}
        }
    }
    Ok(found)
}

fn children_by_parents(proc_root: &Path, pid: u32) -> Result<Vec<u32>> {
    let is_child = |child: &u32| status(proc_root, *child).is_ok_and(|it| it.parent == pid);
    Ok(processes(proc_root)?.into_iter().filter(is_child).collect())
}

/// A process and all its descendants, in order of number.
pub fn descendants(proc_root: &Path, pid: u32) -> Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in processes(proc_root)? {
        if let Ok(stat) = stat(proc_root, process) {
            children.entry(stat.parent).or_default().push(process);
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children.remove(&parent).unwrap_or_default());
        next += 1;
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_those_of_the_process() {
        let root = tempfile::tempdir().unwrap();
        let status = |tid: u32, text: &str| {
            let directory = root.path().join(tid.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("status"), text).unwrap();
        };
        let both = [Signal::USR1, Signal::USR2];
        status(7, "Name:\tlu\nTgid:\t7\nSigCgt:\t0000000000000a00\n");
        assert_eq!(handles(root.path(), 7, &both).unwrap(), Some(true));
        status(7, "Tgid:\t7\nSigCgt:\t0000000000000200\n");
        assert_eq!(handles(root.path(), 7, &both).unwrap(), Some(false));
        assert_eq!(handles(root.path(), 7, &both[..1]).unwrap(), Some(true));
        status(8, "Tgid:\t7\nSigCgt:\t0000000000000a00\n");
        assert_eq!(handles(root.path(), 8, &both).unwrap(), None);
        status(9, "Tgid:\t9\n");
        assert!(handles(root.path(), 9, &both).is_err());
    }

    #[test]
    fn process_is_foreign_to_users_who_cannot_signal_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("7")).unwrap();
        let is_foreign = |ids: &str| {
            let text = format!("Tgid:\t5\nUid:\t{ids}\n");
            fs::write(root.path().join("7/status"), text).unwrap();
            owner(root.path(), 7).map(|owner| {
                assert!(!owner.is_foreign_to(0), "root may signal all");
                (owner.pid, owner.is_foreign_to(1000))
            })
        };
        // The real, the effective, the saved and the file system's.
        assert_eq!(is_foreign("1000\t1000\t1000\t1000").unwrap(), (5, false));
        assert_eq!(is_foreign("1000\t0\t0\t0").unwrap(), (5, false), "sudo, before it changes");
        assert_eq!(is_foreign("0\t0\t1000\t0").unwrap(), (5, false));
        assert_eq!(is_foreign("0\t1000\t0\t1000").unwrap(), (5, true), "a service of root");
        assert_eq!(is_foreign("1\t1\t1\t1").unwrap(), (5, true));
        assert!(is_foreign("1000\t1000").is_err());
    }

    #[test]
    fn numbers_are_few_below_what_kernels_can_give() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(small_pid_max(root.path()), None);
        fs::create_dir_all(root.path().join("sys/kernel")).unwrap();
        for (text, few) in [("32768\n", Some(32768)), ("4194304\n", None)] {
            fs::write(root.path().join("sys/kernel/pid_max"), text).unwrap();
            assert_eq!(small_pid_max(root.path()), few);
        }
    }

    #[test]
    fn name_with_parentheses_and_blanks_is_parsed() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 4194304 92 0 0 0 11 5 0 0 20 0 1 0 995 2 3 184 \
            0 0 0 0 0 0 0 0 0 0 0 0 17 1 3 5 0 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: b'S',
                parent: 7,
                is_kernel_thread: false,
                cpu_ticks: 16,
                start_ticks: 995,
                cpu: 1,
                policy: 5
            }
        );
    }

    #[test]
    fn a_flag_marks_threads_of_the_kernel() {
        let of = |flags: &str| {
            let line = format!(
                "2 (kthreadd) S 0 0 0 0 -1 {flags} 0 0 0 0 0 5 0 0 20 0 1 0 4 0 0 \
                 184 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
            );
            parse_stat(line.as_bytes()).unwrap().is_kernel_thread
        };
        assert!(of("2129984"), "of kthreadd");
        assert!(!of("4194560"), "of a program");
    }

    #[test]
    fn runnable_threads_are_counted_without_waiting() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("7")).unwrap();
        let file = root.path().join("7/status");
        let write = |text: &[u8]| fs::write(&file, text).unwrap();
        let read = || status(root.path(), 7).map(|it| (it.is_runnable(), it.parent));
        let is = |text: &str| {
            write(text.as_bytes());
            read()
        };
        assert_eq!(is("Name:\tState: S\nState:\tR (running)\nPPid:\t3\n").unwrap(), (true, 3));
        // Names end in the midst of a character where they are longer than the kernel keeps.
        write(b"Name:\t\xd0\xbf\xd0\nState:\tR (running)\nPPid:\t3\n");
        assert_eq!(read().unwrap(), (true, 3));
        assert_eq!(is("State:\tS (sleeping)\nPPid:\t1\n").unwrap(), (false, 1));
        let error = is("State:\nPPid:\t1\n").unwrap_err();
        assert!(error.to_string().ends_with("7/status"), "{error}");
        assert!(is("State:\tR (running)\n").is_err());
    }

    #[test]
    fn garbage_is_no_stat() {
        for line in [&b""[..], b")", b"1 (x", b"1 (x) R", b"1 (x) R 2 3", b"\xff\xfe) \xff"] {
            assert_eq!(parse_stat(line), None);
        }
    }

    #[test]
    fn descendants_survive_dead_ends_and_cycles() {
        let root = tempfile::tempdir().unwrap();
        let tail = "0 0 0 0 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        for (pid, parent) in [(10, 1), (11, 10), (12, 11), (20, 1), (13, 10)] {
            fs::create_dir(root.path().join(pid.to_string())).unwrap();
            let stat = format!("{pid} (x) S {parent} {tail}");
            fs::write(root.path().join(pid.to_string()).join("stat"), stat).unwrap();
        }
        fs::create_dir(root.path().join("self")).unwrap();
        fs::create_dir(root.path().join("99")).unwrap();
        assert_eq!(descendants(root.path(), 10).unwrap(), [10, 11, 12, 13]);
    }

    #[test]
    fn children_are_listed_or_found_by_parents() {
        let proc_root = Path::new("/proc");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        assert!(children(proc_root, own).unwrap().contains(&child.id()));
        assert!(children_by_parents(proc_root, own).unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(proc_root, own).unwrap().contains(&child.id()));
        assert!(children(proc_root, u32::MAX).is_err());
    }

    #[test]
    fn this_process_is_its_own() {
        let pid = std::process::id();
        let proc_root = Path::new("/proc");
        assert_eq!(owner(proc_root, pid).unwrap().effective, rustix::process::geteuid().as_raw());
        assert!(threads(proc_root, pid).unwrap().contains(&pid));
        assert!(stat(proc_root, pid).unwrap().start_ticks > 0);
        assert!(!command(proc_root, pid).unwrap().is_empty());
    }
}
