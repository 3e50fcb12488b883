//! The mappings of a process, and their files, read so that nobody can keep the reader waiting.
//!
//! Problem: the doctor has root's rights, and the process is anybody's. A path of the process may
//! lead to a pipe or a device. A file may lie on a file system that a program of the same user
//! serves (FUSE), and such a program may never answer. A thread that waits for it in the kernel
//! cannot even be killed.
//!
//! Approach: a file is opened by its mapping (`/proc/PID/map_files`), so by no path. The first
//! descriptor only refers to the file (O_PATH), which asks no file system for anything. It says
//! which file this is, by what the kernel knows already. Only a regular file of a file system that
//! this kernel serves by itself, and that our own mount namespace has, is then opened for reading.
//! Users cannot mount such a file system there.
//!
//! Properties: a file that is replaced or changed in between is not the one that is opened. Files
//! of network file systems, and of those that only the process sees, are not read. The list of
//! mappings is read up to a bound. Reading that list may wait for the process, but SIGKILL ends the
//! wait.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
};

use gang_linux::mounts;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, open, statx};

/// Of a list of mappings no more is read: the 65,530 that Linux permits, with usual names.
const MAPS_BYTES_MAX: u64 = 16 << 20;

/// No more code is known of a process.
pub const MAPPINGS_MAX: usize = 4096;

/// File systems that the kernel serves from devices that root has attached, or from memory.
const LOCAL: [&str; 14] = [
    "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs",
    "squashfs", "tmpfs", "xfs", "zfs",
];

/// Code that a process has mapped.
#[derive(Debug, PartialEq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's name, without its directory, or the kernel's name in brackets; empty for none.
    pub name: String,
}

impl Mapping {
    pub fn holds(&self, ip: u64) -> bool {
        (self.start..self.end).contains(&ip)
    }
}

/// The kernel's code in every program, which reads the clock.
pub const VDSO: &str = "[vdso]";

/// The code of a process; none where it may not be read.
pub fn mappings(proc_root: &Path, pid: u32) -> Vec<Mapping> {
    let maps = File::open(proc_root.join(pid.to_string()).join("maps"));
    maps.map(|maps| read(BufReader::new(maps.take(MAPS_BYTES_MAX)))).unwrap_or_default()
}

fn read(mut maps: impl BufRead) -> Vec<Mapping> {
    let (mut found, mut line) = (Vec::new(), Vec::new());
    while found.len() < MAPPINGS_MAX {
        line.clear();
        match maps.read_until(b'\n', &mut line) {
            Ok(read) if read > 0 => {}
            _ => break,
        }
        // A line that cannot be understood is code that is not known.
        found.extend(mapping(line.trim_ascii_end()));
    }
    found
}

/// A mapping with code, by its line in proc(5): `start-end perms offset device inode name`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.splitn(6, ' ');
    let (range, perms, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let path = fields.nth(2).unwrap_or_default().trim_start();
    if perms.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = range.split_once('-')?;
    let name = match path {
        VDSO => VDSO,
        // Names in brackets are not those of files.
        path if path.starts_with('/') => path.rsplit('/').next().unwrap_or_default(),
        _ => "",
    };
    let (start, end, offset) = (number(start)?, number(end)?, number(offset)?);
    Some(Mapping { start, end, offset, name: name.to_owned() })
}

/// The file systems whose files can be read without waiting for anybody.
#[derive(Debug, Default)]
pub struct Local {
    devices: BTreeSet<(u32, u32)>,
    mounts: BTreeSet<u64>,
}

/// A file with what it holds: another file, or the same one after a change, is not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: (u32, u32),
    inode: u64,
    /// When it was changed last, in seconds and nanoseconds.
    changed: (i64, u32),
}

#[cfg(test)]
impl Identity {
    pub fn made_up(inode: u64) -> Identity {
        Identity { device: (0, 0), inode, changed: (0, 0) }
    }
}

/// A file of which nothing was read yet.
#[derive(Debug)]
pub struct Seen {
    pub identity: Identity,
    file: OwnedFd,
}

impl Local {
    /// Those of this mount namespace; none where they cannot be listed.
    pub fn here() -> Local {
        let mut local = Local::default();
        let mounts = mounts::here(Path::new("/proc")).unwrap_or_default();
        for mount in mounts.into_iter().filter(|mount| LOCAL.contains(&mount.kind.as_str())) {
            local.devices.insert(mount.device);
            local.mounts.insert(mount.id);
            // Its files have another device than it has itself, for each subvolume.
            if mount.kind == "btrfs" {
                let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
                let found = statx(CWD, &mount.point, flags, StatxFlags::TYPE);
                local.devices.extend(found.ok().map(|it| (it.stx_dev_major, it.stx_dev_minor)));
            }
        }
        local
    }

    /// The file of a mapping of a process.
    pub fn see(&self, proc_root: &Path, pid: u32, map: &Mapping) -> Option<Seen> {
        let link = format!("{pid}/map_files/{:x}-{:x}", map.start, map.end);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = open(proc_root.join(link), flags, Mode::empty()).ok()?;
        Some(Seen { identity: self.identity(&file)?, file })
    }

    /// The file, opened for reading.
    pub fn open(&self, seen: &Seen) -> Option<File> {
        // The same file, by its descriptor.
        let same = format!("/proc/self/fd/{}", seen.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open(same, flags, Mode::empty()).ok()?);
        (self.identity(&file)? == seen.identity).then_some(file)
    }

    /// Which file it is; none where reading it may take for ever.
    fn identity(&self, file: impl AsFd) -> Option<Identity> {
        // The kernel's own knowledge: else it would ask the file system.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::MNT_ID;
        let is: Statx = statx(file, "", flags, wanted).ok()?;
        let is_regular = FileType::from_raw_mode(is.stx_mode.into()) == FileType::RegularFile;
        let knows_mount = is.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = (is.stx_dev_major, is.stx_dev_minor);
        let is_local =
            self.devices.contains(&device) || knows_mount && self.mounts.contains(&is.stx_mnt_id);
        let changed = (is.stx_mtime.tv_sec, is.stx_mtime.tv_nsec);
        let identity = Identity { device, inode: is.stx_ino, changed };
        (is_regular && is_local).then_some(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_listed() {
        let maps = b"\
400000-401000 r--p 00000000 fe:00 7 /bin/program
401000-402000 r-xp 00001000 fe:00 7 /opt/a b/lib gomp.so.1 (deleted)
no mapping
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 00:00 0   [vdso]
7f0000004000-7f0000005000 r-xp 00000000 00:00 0 /SYSV
7f0000006000-7f0000007000 r-xp 00000000 00:00 0 [stack:x]
7f0000008000-7f00000";
        let found = read(&maps[..]);
        let names: Vec<_> = found.iter().map(|map| (map.start, &*map.name)).collect();
        let expected = [
            (0x40_1000, "lib gomp.so.1 (deleted)"),
            (0x7f00_0000_0000, ""),
            (0x7f00_0000_2000, VDSO),
            (0x7f00_0000_4000, "SYSV"),
            (0x7f00_0000_6000, ""),
        ];
        assert_eq!(names, expected);
        assert_eq!((found[0].end, found[0].offset), (0x40_2000, 0x1000));
        assert!(found[0].holds(0x40_1fff) && !found[0].holds(0x40_2000));
    }

    #[test]
    fn a_list_without_end_is_read_up_to_its_bound() {
        let line = "401000-402000 r-xp 00001000 fe:00 7 /lib/libgomp.so.1\n".repeat(10_000);
        assert_eq!(read(line.as_bytes()).len(), MAPPINGS_MAX);
    }

    #[test]
    fn only_regular_files_of_this_kernel_are_local() {
        let local = Local::here();
        let file = |path: &str| File::open(path).unwrap();
        let program = file(std::env::current_exe().unwrap().to_str().unwrap());
        if local.identity(&program).is_none() {
            return gang_harness::skipped("this test is not on a local file system");
        }
        for path in ["/dev/zero", "/proc/self/maps", "/"] {
            assert_eq!(local.identity(file(path)), None, "{path}");
        }
        assert_eq!(Local::default().identity(&program), None);
    }
}
