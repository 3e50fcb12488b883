//! Control groups: where they are mounted, and one group of them.
//!
//! Version 2 is what gangd stands on; on a hybrid machine version 1 holds the controllers and
//! version 2 still has membership, the freezer and `cgroup.kill` (Linux 5.14). See
//! Documentation/admin-guide/cgroup-v2.rst.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{
    Error, Result, Roots,
    mounts::{self, Mount},
};

/// Where the hierarchies of this machine are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The unified hierarchy.
    pub v2: Option<PathBuf>,
    /// Controllers that the unified hierarchy has at its root.
    pub v2_controllers: Vec<String>,
    /// Controllers of version 1, each with its mount point.
    pub v1: BTreeMap<String, PathBuf>,
}

impl Hierarchies {
    /// Reads the mounts of this process.
    pub fn detect(roots: &Roots) -> Result<Hierarchies> {
        let mut found = Hierarchies::of(mounts::here(&roots.proc)?);
        if let Some(v2) = &found.v2 {
            let controllers = Group::at(v2).read("cgroup.controllers")?;
            found.v2_controllers = controllers.split_whitespace().map(str::to_owned).collect();
        }
        Ok(found)
    }

    fn of(mounts: Vec<Mount>) -> Hierarchies {
        let mut found = Hierarchies::default();
        for mount in mounts.into_iter().filter(|mount| mount.root == Path::new("/")) {
            match mount.kind.as_str() {
                "cgroup2" if found.v2.is_none() => found.v2 = Some(mount.point),
                "cgroup" => {
                    for controller in V1_CONTROLLERS.iter().filter(|it| mount.has(it)) {
                        let found = found.v1.entry((*controller).to_owned());
                        found.or_insert_with(|| mount.point.clone());
                    }
                }
                _ => {}
            }
        }
        found
    }
}

const V1_CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "cpuset", "freezer", "memory"];

/// The groups a process is in, as `/proc/PID/cgroup` lists them: of version 2, and of a version 1
/// controller. Paths are relative to the root of their hierarchy and start with `/`.
pub fn of_process(
    roots: &Roots,
    pid: u32,
    v1_controller: &str,
) -> Result<(String, Option<String>)> {
    let path = roots.proc.join(pid.to_string()).join("cgroup");
    let text = fs::read_to_string(&path).map_err(|e| Error::new("read", path.display(), e))?;
    let mut v2 = String::from("/");
    let mut v1 = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if controllers.is_empty() {
            v2 = group.to_owned();
        } else if controllers.split(',').any(|c| c == v1_controller) {
            v1 = Some(group.to_owned());
        }
    }
    Ok((v2, v1))
}

/// Moves this process to the root of each hierarchy, of both versions, where no group limits,
/// freezes or kills it. Returns the groups in which it stays, each with the reason.
pub fn leave_all(roots: &Roots) -> Vec<Error> {
    let path = roots.proc.join("self/cgroup");
    let groups = fs::read_to_string(&path).map_err(|e| Error::new("read", path.display(), e));
    let (groups, mounts) = match (groups, mounts::here(&roots.proc)) {
        (Ok(groups), Ok(mounts)) => (groups, mounts),
        (Err(error), _) | (_, Err(error)) => return vec![error],
    };
    let mut stays = Vec::new();
    for (controllers, group) in groups.lines().filter_map(membership).filter(|it| it.1 != "/") {
        let moved = match root_of(&mounts, controllers) {
            // 0 stands for the process that writes.
            Some(root) => Group::at(root).add(0),
            None => Err(Error::new("find", "its mount", io::ErrorKind::NotFound)),
        };
        if let Err(error) = moved {
            let of = if controllers.is_empty() { "version 2" } else { controllers };
            stays.push(Error::new("leave", format!("cgroup {group} of {of}"), error.source));
        }
    }
    stays
}

/// The controllers of a line of `/proc/PID/cgroup`, none for version 2, and the group.
fn membership(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    fields.next().zip(fields.next())
}

/// Where the root of the hierarchy with these controllers is mounted; none of them for version 2.
fn root_of<'a>(mounts: &'a [Mount], controllers: &str) -> Option<&'a Path> {
    let is_wanted = |mount: &&Mount| {
        let has_controllers = match (mount.kind.as_str(), controllers) {
            ("cgroup2", "") => true,
            ("cgroup", of) if !of.is_empty() => of.split(',').all(|it| mount.has(it)),
            _ => false,
        };
        has_controllers && mount.root == Path::new("/")
    };
    mounts.iter().find(is_wanted).map(|mount| mount.point.as_path())
}

/// A path without the slashes at its beginning; none where its text has parts that are no names of
/// groups. Other spellings of the same path are refused: a group has one name.
pub fn below(path: &str) -> Option<&str> {
    let relative = path.trim_start_matches('/');
    let is_name = |part: &str| !["", ".", ".."].contains(&part) && !part.contains('\0');
    relative.split('/').all(is_name).then_some(relative)
}

/// The file system of version 2 (`CGROUP2_SUPER_MAGIC` of `linux/magic.h`).
const CGROUP2: rustix::fs::FsWord = 0x6367_7270;

/// One control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// The group at a path of the mounted file system, whether it exists or not.
    pub fn at(path: impl Into<PathBuf>) -> Group {
        Group { path: path.into() }
    }

    /// The group at a path that somebody else named, relative to the root of the unified hierarchy.
    /// The path leads through no link, out of no directory and into no other file system, so that
    /// every file of the group is the kernel's.
    pub fn named(root: &Path, path: &str) -> Result<Group> {
        let error = |e: io::Error| Error::new("find cgroup", path.to_owned(), e);
        let relative = below(path).ok_or_else(|| error(io::ErrorKind::InvalidInput.into()))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = File::open(root).and_then(|root| {
            let way = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let group = rustix::fs::openat2(root, relative, flags, Mode::empty(), way)?;
            Ok(rustix::fs::fstatfs(&group)?.f_type)
        });
        match found {
            Ok(CGROUP2) => Ok(Group { path: root.join(relative) }),
            Ok(_) => Err(error(io::ErrorKind::NotFound.into())),
            Err(e) => Err(error(e)),
        }
    }

    /// Makes the group where it does not exist. The one above it is there: where it was its owner's
    /// and has gone, it does not come back as ours, without its limits.
    pub fn create(&self) -> Result<()> {
        match fs::create_dir(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::new("create cgroup", self.path.display(), e))
            }
            _ => Ok(()),
        }
    }

    /// Removes the group, which must have no processes; one that is gone is no error.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::new("remove cgroup", self.path.display(), e))
            }
            _ => Ok(()),
        }
    }

    /// Removes the group where it has no processes; true where it has some, if only until they have
    /// ended. A group in which a program left groups of its own stays: they are not its maker's.
    pub fn remove_unused(&self) -> bool {
        let is_busy =
            self.remove().is_err_and(|error| error.source.kind() == io::ErrorKind::ResourceBusy);
        let has_groups = || self.children().is_ok_and(|groups| !groups.is_empty());
        is_busy && (!has_groups() || self.is_populated().unwrap_or(true))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn child(&self, name: impl AsRef<Path>) -> Group {
        Group { path: self.path.join(name) }
    }

    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The user who made the group, or to whom it was given.
    pub fn owner_uid(&self) -> Result<u32> {
        let found = fs::symlink_metadata(&self.path);
        let error = |e| Error::new("look at cgroup", self.path.display(), e);
        found.map(|directory| directory.uid()).map_err(error)
    }

    /// Whether the group has a file, such as those of a controller.
    pub fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// The groups directly below, in order of name.
    pub fn children(&self) -> Result<Vec<Group>> {
        let error = |e| Error::new("list cgroup", self.path.display(), e);
        let mut children = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(error)? {
            let entry = entry.map_err(error)?;
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                children.push(Group { path: entry.path() });
            }
        }
        children.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(children)
    }

    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|e| Error::new("read", path.display(), e))
    }

    pub fn write(&self, file: &str, value: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path.join(file);
        // Not fs::write: a control file is never to be created or truncated.
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.write_at(value.as_ref(), 0).map(drop))
            .map_err(|e| Error::new("write", path.display(), e))
    }

    /// Moves a process with all its threads into the group.
    pub fn add(&self, pid: u32) -> Result<()> {
        self.write("cgroup.procs", pid.to_string())
    }

    pub fn processes(&self) -> Result<Vec<u32>> {
        Ok(parse_numbers(self.read("cgroup.procs")?.as_bytes()))
    }

    pub fn threads(&self) -> Result<Vec<u32>> {
        Ok(parse_numbers(self.read("cgroup.threads")?.as_bytes()))
    }

    /// True where the group, or one below it, has a process.
    pub fn is_populated(&self) -> Result<bool> {
        Ok(keyed_number(&self.read("cgroup.events")?, "populated") == Some(1))
    }

    pub fn freeze(&self, frozen: bool) -> Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })
    }

    /// True as soon as every process of the group stands still.
    pub fn is_frozen(&self) -> Result<bool> {
        Ok(keyed_number(&self.read("cgroup.events")?, "frozen") == Some(1))
    }
}

/// A file of a group that is read again and again: it stays open, and no read allocates once the
/// buffers have grown.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    path: PathBuf,
}

impl OpenFile {
    pub fn open(group: &Group, name: &str) -> Result<OpenFile> {
        let path = group.path.join(name);
        let file = File::open(&path).map_err(|e| Error::new("open", path.display(), e))?;
        Ok(OpenFile { file, path })
    }

    /// The numbers of a list such as `cgroup.threads`, in `numbers`; what was there is replaced.
    pub fn numbers(&self, bytes: &mut Vec<u8>, numbers: &mut Vec<u32>) -> Result<()> {
        self.fill(bytes)?;
        numbers.clear();
        for_each_number(bytes, |number| numbers.push(number));
        Ok(())
    }

    /// The value of a key in a file such as `cpu.stat`.
    pub fn keyed(&self, key: &str, bytes: &mut Vec<u8>) -> Result<Option<u64>> {
        self.fill(bytes)?;
        Ok(std::str::from_utf8(bytes).ok().and_then(|text| keyed_number(text, key)))
    }

    /// The total of the line `some` of a file such as `cpu.pressure`, in microseconds.
    pub fn pressure_us(&self, bytes: &mut Vec<u8>) -> Result<Option<u64>> {
        self.fill(bytes)?;
        Ok(std::str::from_utf8(bytes).ok().and_then(pressure_total))
    }

    /// For waiting until the kernel says that the file has changed (`EPOLLPRI`).
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn fill(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut length = 0;
        loop {
            if bytes.len() < length + 512 {
                bytes.resize((length + 512).next_power_of_two().max(4096), 0);
            }
            match self.file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => {
                    // The kernel fills a buffer up to the last line that fits, and a page of its
                    // own before that. So much room left in both means that there was no further
                    // line.
                    let room = (bytes.len() - length).min(PAGE).saturating_sub(read);
                    length += read;
                    if room >= LINE_MAX {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::new("read", self.path.display(), e)),
            }
        }
        bytes.truncate(length);
        Ok(())
    }
}

/// Longer than any line of the files that are read again and again.
const LINE_MAX: usize = 256;

/// The kernel has no more than a page ready for one read (seq_file), which is as long as this at
/// least.
const PAGE: usize = 4096;

fn parse_numbers(text: &[u8]) -> Vec<u32> {
    let mut numbers = Vec::new();
    for_each_number(text, |number| numbers.push(number));
    numbers
}

fn for_each_number(text: &[u8], mut each: impl FnMut(u32)) {
    for line in text.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        // 0 stands for a process of another pid namespace, which cannot be named from here.
        match std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()) {
            Some(0) | None => {}
            Some(number) => each(number),
        }
    }
}

fn pressure_total(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ').find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

pub(crate) fn keyed_number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 30 0:29 / /sys/fs/cgroup/a\\040b rw shared:9 - cgroup2 cgroup2 rw
34 30 0:29 /docker/x /elsewhere rw - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_machine_has_both_versions() {
        let found = Hierarchies::of(mounts::parse(HYBRID.as_bytes()));
        assert_eq!(found.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/a b")));
        assert_eq!(found.v1["cpu"], Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!(found.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct"]);
    }

    #[test]
    fn each_hierarchy_has_its_root() {
        let mounts = mounts::parse(HYBRID.as_bytes());
        let root = |controllers| root_of(&mounts, controllers);
        assert_eq!(root("cpu,cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(root("name=systemd"), Some(Path::new("/sys/fs/cgroup/systemd")));
        assert_eq!(root(""), Some(Path::new("/sys/fs/cgroup/a b")));
        assert_eq!(root("memory"), None);
        let below = b"34 30 0:29 /docker/x /elsewhere rw - cgroup2 cgroup2 rw\n";
        assert_eq!(root_of(&mounts::parse(below), ""), None, "only a part of it is mounted");
    }

    #[test]
    fn process_leaves_what_it_can_and_names_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
        assert_eq!(leave_all(&roots).len(), 1, "nothing can be read");
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        fs::create_dir(root.path().join("cpu")).unwrap();
        write("cpu/cgroup.procs", "");
        let mount = format!("1 0 0:1 / {}/cpu rw - cgroup none rw,cpu\n", root.path().display());
        write("proc/self/mountinfo", &mount);
        write("proc/self/cgroup", "3:cpu:/a\n2:memory:/b:c\n1:name=systemd:/\n0::/d\n");
        let stays: Vec<_> = leave_all(&roots).iter().map(ToString::to_string).collect();
        assert_eq!(
            stays,
            ["cannot leave cgroup /b:c of memory", "cannot leave cgroup /d of version 2"]
        );
        assert_eq!(fs::read_to_string(root.path().join("cpu/cgroup.procs")).unwrap(), "0");
    }

    #[test]
    fn named_group_is_one_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("link")).unwrap();
        for path in ["", "/", "a", "a/..", "a/../a", "./a", "a//a", "../etc", "link", "link/etc"] {
            assert!(Group::named(root.path(), path).is_err(), "{path}");
        }
        let Some(root) = Hierarchies::detect(&Roots::default()).unwrap().v2 else {
            return gang_harness::skipped("no cgroups of version 2");
        };
        let below = Group::at(&root).children().unwrap().into_iter().next();
        let Some(below) = below.filter(|group| group.path().to_str().is_some()) else {
            return gang_harness::skipped("no cgroup below the root");
        };
        let name = below.path().strip_prefix(&root).unwrap().to_str().unwrap();
        assert_eq!(Group::named(&root, name).unwrap(), below);
        assert!(Group::named(&root, &format!("{name}/../{name}")).is_err());
    }

    #[test]
    fn pure_machine_has_only_version_2() {
        let text = b"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Hierarchies::of(mounts::parse(text));
        assert_eq!(found.v2.as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert!(found.v1.is_empty());
    }

    #[test]
    fn detection_reads_the_injected_root() {
        let root = tempfile::tempdir().unwrap();
        let v2 = root.path().join("cg");
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir(&v2).unwrap();
        fs::write(v2.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let mountinfo = format!("1 0 0:1 / {} rw - cgroup2 none rw\n", v2.display());
        fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
        let found = Hierarchies::detect(&roots).unwrap();
        assert_eq!(found.v2_controllers, ["cpu", "memory"]);
    }

    #[test]
    fn membership_names_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("7");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("cgroup"), "3:cpu,cpuacct:/a:b\n2:name=systemd:/\n0::/c\n")
            .unwrap();
        let roots = Roots { proc: root.path().into(), sys: root.path().into() };
        let found = of_process(&roots, 7, "cpu").unwrap();
        assert_eq!(found, ("/c".to_owned(), Some("/a:b".to_owned())));
    }

    #[test]
    fn lists_are_read_again_through_one_descriptor() {
        let root = tempfile::tempdir().unwrap();
        let group = Group::at(root.path());
        let long: String = (1..3000).map(|n| format!("{n}\n")).collect();
        fs::write(root.path().join("cgroup.threads"), long).unwrap();
        let list = OpenFile::open(&group, "cgroup.threads").unwrap();
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        list.numbers(&mut bytes, &mut numbers).unwrap();
        assert_eq!(numbers.len(), 2999);
        fs::write(root.path().join("cgroup.threads"), "0\n5\n\nx\n6\n").unwrap();
        list.numbers(&mut bytes, &mut numbers).unwrap();
        assert_eq!(numbers, [5, 6]);
    }

    #[test]
    fn long_kernel_files_are_read_whole_each_time() {
        // A list in the kernel's way that is long everywhere, as those of large groups are.
        let Ok(whole) = fs::read("/proc/kallsyms") else {
            return gang_harness::skipped("this kernel has no /proc/kallsyms");
        };
        let list = OpenFile::open(&Group::at("/proc"), "kallsyms").unwrap();
        let mut bytes = Vec::new();
        for _ in 0..3 {
            list.fill(&mut bytes).unwrap();
            // Programs that are loaded into the kernel meanwhile are in it, too.
            assert!(bytes.len() > whole.len() / 2, "{} of {} bytes", bytes.len(), whole.len());
        }
    }

    #[test]
    fn a_write_makes_and_cuts_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let group = Group::at(directory.path());
        assert!(group.write("cpu.weight", "100").is_err());
        assert!(!directory.path().join("cpu.weight").exists());
        fs::write(directory.path().join("cpu.max"), "max 100000").unwrap();
        group.write("cpu.max", "20").unwrap();
        assert_eq!(group.read("cpu.max").unwrap(), "20x 100000");
    }

    #[test]
    fn a_group_that_is_gone_says_so() {
        let group = Group::at("/nonexistent/gang");
        assert!(group.processes().unwrap_err().is_gone());
        assert!(group.remove().is_ok());
        assert!(!group.exists());
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=9\n";
        assert_eq!(pressure_total(text), Some(1234));
        assert_eq!(pressure_total("full total=9\n"), None);
    }

    #[test]
    fn keys_match_whole_words() {
        assert_eq!(keyed_number("usage_usec_x 1\nusage_usec 22\n", "usage_usec"), Some(22));
    }
}
