//! The programs that the doctor is asked about.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use gang_harness::skipped;

/// Threads that meet at a barrier, or work apart where there is an argument; none without a
/// compiler.
#[allow(dead_code, reason = "each test uses its own")]
pub fn meet(directory: &Path) -> Option<PathBuf> {
    compiled("meet", directory)
}

/// Maps what a reader may wait for; none without a compiler.
#[allow(dead_code, reason = "each test uses its own")]
pub fn hostile(directory: &Path) -> Option<PathBuf> {
    compiled("hostile", directory)
}

fn compiled(name: &str, directory: &Path) -> Option<PathBuf> {
    let program = directory.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(sources.join(format!("{name}.c")));
    if !cc.status().is_ok_and(|status| status.success()) {
        skipped("no C compiler");
        return None;
    }
    Some(program)
}
