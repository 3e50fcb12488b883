//! Programs whose mapped files keep a reader waiting, or have no end. The doctor says as much of
//! them as it can without.

mod programs;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use gang_daemon::is_root;
use gang_doctor::{
    sites::{Site, Sites},
    symbols::NAME_MAX,
};
use gang_harness::{TEST_TIMEOUT, skipped};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

/// The name of a runtime, whose functions the doctor looks up.
const RUNTIME: &str = "libgomp.so.1";

/// The status of a program that cannot do here what it is to do.
const CANNOT: i32 = 77;

/// A program that has mapped a file.
struct Hostile {
    child: Child,
    address: u64,
}

impl Hostile {
    /// None where that cannot be done here, which is said.
    fn start(directory: &Path, mode: &str, path: &Path) -> Option<Hostile> {
        let mut command = Command::new(programs::hostile(directory)?);
        command.arg(mode).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            assert_eq!(child.wait().unwrap().code(), Some(CANNOT), "{mode}");
            skipped(format!("this machine permits no program that is hostile by {mode}"));
            return None;
        }
        let address = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap();
        Some(Hostile { child, address })
    }

    /// The place in it where a thread is `offset` bytes into the file.
    fn site(&self, offset: u64) -> Site {
        let (pid, address) = (self.child.id(), self.address);
        let (send, looked) = mpsc::channel();
        thread::spawn(move || {
            let mut sites = Sites::with_names();
            let _ = send.send(sites.of(Path::new("/proc"), pid, address + offset, None, &[0; 128]));
        });
        looked.recv_timeout(TEST_TIMEOUT).expect("the doctor does not wait for the program")
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unnamed() -> Site {
    Site::Wait(RUNTIME.into())
}

fn with_runtime(contents: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RUNTIME);
    fs::write(&path, contents).unwrap();
    (directory, path)
}

/// After it was mapped, something else has the name of the file.
fn replaced_by(replace: impl FnOnce(&Path)) {
    let (directory, path) = with_runtime(&[0; 1 << 16]);
    let Some(program) = Hostile::start(directory.path(), "file", &path) else { return };
    fs::remove_file(&path).unwrap();
    replace(&path);
    assert!(matches!(program.site(0), Site::Wait(name) if name.starts_with(RUNTIME)));
}

#[test]
fn pipe_in_the_place_of_a_file_is_not_opened() {
    replaced_by(|path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap());
}

#[test]
fn link_to_a_device_instead_of_a_file_is_not_read() {
    replaced_by(|path| symlink("/dev/zero", path).unwrap());
}

#[test]
fn needs_root_mapped_device_is_not_read() {
    if !is_root() {
        return;
    }
    let (directory, path) = with_runtime(b"");
    let Some(program) = Hostile::start(directory.path(), "device", &path) else { return };
    assert_eq!(program.site(0), unnamed());
}

#[test]
fn needs_root_and_fuse_silent_fs_is_not_asked() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mounted = directory.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let Some(program) = Hostile::start(directory.path(), "silent", &mounted) else { return };
    assert_eq!(program.site(0), unnamed());
}

/// A file of ELF with so many functions, whose names are all one, of so many bytes.
fn with_one_name(functions: usize, name_bytes: usize) -> Vec<u8> {
    const HEADER: usize = 64;
    const PROGRAM: usize = 56;
    const SECTION: usize = 64;
    const SYMBOL: usize = 24;
    let symbols_at = HEADER + PROGRAM;
    let names_at = symbols_at + functions * SYMBOL;
    let sections_at = (names_at + name_bytes + 2).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |values: &[(u64, usize)]| {
        for (value, bytes) in values {
            file.extend(&value.to_le_bytes()[..*bytes]);
        }
    };
    let at = |offset: usize| (offset as u64, 8);
    // A shared library of x86-64, with one segment and three sections.
    put(&[(3, 2), (62, 2), (1, 4), at(0), at(HEADER), at(sections_at), (0, 4)]);
    put(&[(HEADER as u64, 2), (PROGRAM as u64, 2), (1, 2), (SECTION as u64, 2), (3, 2), (2, 2)]);
    // All of the file is mapped, and where it is.
    put(&[(1, 4), (5, 4), at(0), at(0), at(0), at(sections_at), at(sections_at), at(0x1000)]);
    for number in 0..functions {
        put(&[(1, 4), (0x12, 1), (0, 1), (1, 2), at(number), (1, 8)]);
    }
    put(&[(0, 1)]);
    file.resize(names_at + 1 + name_bytes, b'x');
    file.resize(sections_at + SECTION, 0);
    let mut section = |kind: u64, offset: usize, length: usize, link: u64, entry: usize| {
        let values = [(0, 4), (kind, 4), (0, 8), (0, 8), at(offset), at(length), (link, 4), (0, 4)];
        for (value, bytes) in values.into_iter().chain([(1, 8), at(entry)]) {
            file.extend(&value.to_le_bytes()[..bytes]);
        }
    };
    section(2, symbols_at, functions * SYMBOL, 2, SYMBOL);
    section(3, names_at, name_bytes + 2, 0, 0);
    file
}

/// The part of it that is kept is bounded (see `symbols`): else this would take terabytes.
#[test]
fn a_million_functions_of_one_long_name_are_read() {
    let (directory, path) = with_runtime(&with_one_name(1_000_000, 10 << 20));
    let Some(program) = Hostile::start(directory.path(), "file", &path) else { return };
    let name = "x".repeat(NAME_MAX);
    assert_eq!(program.site(7), Site::Wait(format!("{name} of {RUNTIME}")));
}
