//! Where a test runs `gang`: beside a fake daemon, and beside programs that play `gangd`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gang_harness::TEST_TIMEOUT;

use super::Fake;

/// A directory with a socket, and the gang of this build that talks to it.
pub struct Place {
    pub dir: tempfile::TempDir,
    /// How long its programs wait for a daemon, in seconds: as long as the test. Empty: as long as
    /// usual.
    pub timeout: String,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), timeout: TEST_TIMEOUT.as_secs().to_string() }
    }

    /// With a fake that listens.
    pub fn of(fake: &Fake) -> Self {
        let place = Self::new();
        fake.listen(&place.socket());
        place
    }

    /// Where the daemon of this place keeps what must outlive it.
    pub fn jobs_dir(&self) -> PathBuf {
        gang_protocol::paths::jobs_dir(&self.socket())
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("gangd.sock")
    }

    /// `gang` with arguments, in an environment that says nothing about threads.
    pub fn gang(&self, args: &[&str]) -> Command {
        self.gang_at(Path::new(env!("CARGO_BIN_EXE_gang")), args)
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.gang(args).output().unwrap()
    }

    /// A copy of gang beside a `gangd` that is a shell script; the variables `$socket`, `$fd` and
    /// `$release` are set from its arguments.
    pub fn gang_beside(&self, gangd: &str, args: &[&str]) -> Command {
        let bin = self.dir.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let gang = bin.join("gang");
        if !gang.exists() {
            copy(Path::new(env!("CARGO_BIN_EXE_gang")), &gang);
        }
        let script = format!(
            "#!/bin/sh\nargs=\"$*\"\nwhile [ $# -gt 0 ]; do case $1 in\n\
             --socket) socket=$2; shift;; --ready-fd) fd=$2; shift;; --release) release=1;;\n\
             esac; shift; done\n{gangd}\n"
        );
        write_script(&bin.join("gangd"), &script);
        self.gang_at(&gang, args)
    }

    fn gang_at(&self, gang: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(gang);
        command.args(args).env("GANG_SOCKET", self.socket()).env("GANG_TIMEOUT", &self.timeout);
        for name in
            ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "RAYON_NUM_THREADS", "GOMAXPROCS", "GANG_JOB"]
        {
            command.env_remove(name);
        }
        command
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Copies a program. Another process does it: a descriptor that this one has open for writing would
/// be inherited by what other tests start at that moment, and the kernel executes no file that is
/// open for writing.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().unwrap();
    assert!(status.success());
}

/// Writes a program, as [`copy`] does.
pub fn write_script(path: &Path, script: &str) {
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let status = Command::new("sh").args(["-c", write, "sh", script]).arg(path).status().unwrap();
    assert!(status.success());
}
