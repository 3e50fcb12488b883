//! Programs that the doctor is asked about, and those that compete with them.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
};

use gang_harness::skipped;

/// A process that is killed when this is dropped.
pub struct Program(pub Child);

impl Program {
    /// Spins, for ten minutes at most.
    pub fn spinner() -> Program {
        let spin = "while [ $SECONDS -lt 600 ]; do :; done";
        Program(Command::new("bash").args(["-c", spin]).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
