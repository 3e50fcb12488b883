//! The program that the doctor is asked about.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use gang_harness::skipped;

/// Threads that meet at a barrier, or work apart where there is an argument; none without a
/// compiler.
pub fn meet(directory: &Path) -> Option<PathBuf> {
    let program = directory.join("meet");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/meet.c");
    let mut cc = Command::new("cc");
    let done = cc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status();
    if !done.is_ok_and(|status| status.success()) {
        skipped("no C compiler");
        return None;
    }
    Some(program)
}
