//! A daemon, the library and programs in C, in a directory of their own.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    ffi::OsStr,
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
};

use gang_harness::{TEST_TIMEOUT, skipped, wait_until};

/// The end of programs that hang, in seconds: before the program of tests is killed
/// (tests/bounded.sh).
pub const BOUND: &str = "600";

pub fn here() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Where cargo puts what it has built.
pub fn built(name: &str) -> Option<PathBuf> {
    let directory = std::env::current_exe().unwrap();
    let path = directory.ancestors().nth(2).unwrap().join(name);
    path.exists().then_some(path)
}

/// The directory with the shared libraries of this program of tests, which links them once: that
/// takes longer than most tests.
pub fn linked(library: &Path) -> &'static Path {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    LINKED.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.file_name().unwrap());
        fs::create_dir_all(&directory).unwrap();
        for script in ["link-libgang", "link-preload"] {
            let script = here().join("../../scripts").join(script);
            let output = Command::new(script).arg(library).arg(&directory).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        directory
    })
}

/// A directory with the shared library and a daemon, or nothing where they were not built.
pub struct Place {
    pub directory: tempfile::TempDir,
    daemon: Child,
}

impl Place {
    pub fn new() -> Option<Place> {
        let (Some(library), Some(gangd)) = (built("libgang.a"), built("gangd")) else {
            skipped("it takes `cargo build --workspace --lib --bins`");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        fs::copy(&library, directory.path().join("libgang.a")).unwrap();
        for name in ["libgang.so", "libgang.so.1"] {
            fs::copy(linked(&library).join(name), directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("gangd.toml"), "").unwrap();
        let daemon = Command::new(gangd)
            .arg("--socket")
            .arg(directory.path().join("gangd.sock"))
            .arg("--config")
            .arg(directory.path().join("gangd.toml"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let place = Place { directory, daemon };
        let listens = || UnixStream::connect(place.path("gangd.sock")).is_ok();
        wait_until("the daemon listens", listens);
        Some(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn compile(&self, compiler: &str, source: &Path, flags: &[&str], name: &str) -> PathBuf {
        let program = self.path(name);
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(here().join("include"))
            .arg("-I")
            .arg(here().join("tests"))
            .arg(source)
            .arg("-L")
            .arg(self.directory.path())
            .args(flags)
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// It ends as whoever runs it wishes.
    pub fn end_daemon(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        if matches!(self.daemon.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.daemon.wait();
    }

    /// A program that finds the library and the daemon, and waits for it as long as a test.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.arg(BOUND).arg(program);
        command.env("GANG_SOCKET", self.path("gangd.sock"));
        command.env("GANG_TIMEOUT", TEST_TIMEOUT.as_secs().to_string());
        command.env("LD_LIBRARY_PATH", self.directory.path());
        command
    }

    pub fn run(&self, program: impl AsRef<OsStr>) -> Output {
        let output = self.command(program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        output
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end_daemon();
    }
}
