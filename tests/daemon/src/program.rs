//! Programs that a test starts beside a daemon.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::keeper;

/// A script that spins until it is killed.
pub const SPIN: &str = "while :; do :; done";

/// A process with a group of its own. The group is killed when this is dropped, or when the test
/// program ends otherwise.
pub struct Program(pub Child);

impl Program {
    pub fn start(command: &mut Command) -> Program {
        let child = command.process_group(0).spawn().unwrap();
        keeper::keep(-i64::from(child.id()));
        Program(child)
    }

    pub fn shell(script: &str) -> Program {
        let mut shell = Command::new("sh");
        Program::start(shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    /// Spins until it is killed; one process, so that adding it adds all.
    pub fn spinner() -> Program {
        Program::shell(&format!("exec bash -c '{SPIN}'"))
    }

    /// Sleeps until it is killed; one process.
    pub fn sleeper() -> Program {
        Program::shell("exec sleep infinity")
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn pid_i64(&self) -> i64 {
        self.0.id().into()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        keeper::forget(-self.pid_i64());
        let _ = self.0.wait();
    }
}
