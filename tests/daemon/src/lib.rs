//! A daemon in a directory of its own, for tests of the programs that use one.
//!
//! A [`Place`] is a directory with a socket; the commands that it makes talk to that socket. A
//! [`Daemon`] is a place in which gangd runs; [`TwoHosts`] are two of them in one
//! cluster. A [`Program`] is what a test starts beside it.
//!
//! Tests may run side by side, since each place is its own. A test waits until something holds
//! ([`gang_harness::wait_until`]); no program ends by itself, because a machine may be slow. The
//! end of a test ends its daemons and programs, the end of the test program all that is left.

mod daemon;
mod hosts;
mod keeper;
mod place;
mod program;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub use daemon::{Daemon, Options};
use gang_harness::skipped;
pub use hosts::{Own, TwoHosts};
pub use place::Place;
pub use program::{Program, SPIN};

/// The directory into which cargo puts the programs of the build that this test program is of.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// True where these were built with the test program; says what is skipped where not.
pub fn are_built(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !built().join(name).is_file());
    if let Some(name) = missing {
        skipped(format!("{name} is not built: cargo build --workspace --lib --bins"));
    }
    missing.is_none()
}

/// True where the test runs as root; says what is skipped where not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("needs root");
    }
    root
}

/// Copies programs into a directory, or one to a path. Another process does it: a descriptor that
/// this one has open for writing would be inherited by what other tests start at that moment, and
/// the kernel executes no file that is open for writing.
pub fn copy(programs: &[impl AsRef<OsStr>], to: &Path) {
    assert!(Command::new("cp").args(programs).arg(to).status().unwrap().success());
}

/// The standard output of a program.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a program.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
