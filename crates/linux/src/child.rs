//! Programs that do not outlive who started them.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    io::Errno,
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Has the kernel kill the program when the thread that starts it ends, however that comes about.
///
/// It holds for the program and after `execve`, unless the new program has more rights than the old
/// one. Children of the program do not inherit it.
pub fn ends_with_its_parent(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let ask = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that had ended before sends no signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls, and neither allocates nor takes a
    // lock.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(ask)
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Stdio, thread};

    use super::*;

    #[test]
    fn child_dies_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            ends_with_its_parent(command.arg("600").stdin(Stdio::null())).spawn().unwrap()
        };
        let mut ended = thread::spawn(start).join().unwrap();
        assert!(!ended.wait().unwrap().success());
        let mut lives = start();
        assert!(lives.try_wait().unwrap().is_none());
        lives.kill().unwrap();
        lives.wait().unwrap();
    }
}
