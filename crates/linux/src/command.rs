//! Programs of the system that are asked for one answer.
//!
//! Each is a child with an environment of its own, without a shell, found in fixed directories. One
//! that hangs is killed. Of one that prints much, only the beginning is kept; what it has started
//! and left is not waited for.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{OFlags, fcntl_setfl};

/// The time between looks at a command that runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// So much is kept of a command's output.
const OUTPUT_MAX: usize = 32 * 1024;

/// Where commands are looked for, in this order.
pub const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];

/// A command that is to be executed.
pub struct Bounded {
    pub directories: Vec<PathBuf>,
    /// Besides `LC_ALL=C`, all that it has in its environment.
    pub environment: Vec<(&'static str, OsString)>,
    /// The longest that it may take.
    pub within: Duration,
}

impl Bounded {
    /// The output of a program. `is_over` is asked while it runs; where it says so, the program is
    /// killed.
    ///
    /// # Errors
    /// The reason why there is none, beginning with the name of the program: it is in none of the
    /// directories, it took too long, or it failed and said why.
    pub fn output(
        &self,
        program: &str,
        arguments: &[impl AsRef<OsStr>],
        is_over: impl Fn() -> bool,
    ) -> Result<String, String> {
        let mut found = self.directories.iter().map(|directory| directory.join(program));
        let path = found.find(|path| path.is_file()).ok_or_else(|| {
            let all: Vec<_> = self.directories.iter().map(|it| it.to_string_lossy()).collect();
            format!("{program} is in none of {}", all.join(", "))
        })?;
        let child = self.command(&path, arguments).spawn();
        let child = child.map_err(|error| format!("{program} cannot be executed: {error}"))?;
        self.wait(child, is_over).map_err(|reason| format!("{program} {reason}"))
    }

    fn command(&self, path: &Path, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(path);
        command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn wait(&self, mut child: Child, is_over: impl Fn() -> bool) -> Result<String, String> {
        let began = Instant::now();
        let [mut out, mut errors] = [
            Output::of(child.stdout.take().map(OwnedFd::from)),
            Output::of(child.stderr.take().map(OwnedFd::from)),
        ];
        let status = loop {
            let ended = child.try_wait();
            // After its end, all that it wrote is there.
            out.read();
            errors.read();
            match ended {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(format!("cannot be waited for: {error}")),
            }
            if is_over() || began.elapsed() >= self.within {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("did not end within {:.0?}", began.elapsed()));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        if status.success() {
            return Ok(out.text());
        }
        let said = errors.text();
        let said: String = said.trim().chars().filter(|it| !it.is_control()).take(300).collect();
        Err(format!("failed ({status}): {said}"))
    }
}

/// The beginning of a stream, read without ever waiting for more.
struct Output {
    stream: Option<File>,
    kept: Vec<u8>,
}

impl Output {
    fn of(stream: Option<OwnedFd>) -> Output {
        let is_prompt = |of: &OwnedFd| fcntl_setfl(of, OFlags::NONBLOCK).is_ok();
        Output { stream: stream.filter(is_prompt).map(File::from), kept: Vec::new() }
    }

    /// Reads what is there, so that the program can write on; of one that never stops, a pipe's
    /// worth.
    fn read(&mut self) {
        let mut chunk = [0; 4096];
        for _ in 0..16 {
            let read = self.stream.as_mut().map(|stream| stream.read(&mut chunk));
            let Some(Ok(length @ 1..)) = read else { break };
            let room = OUTPUT_MAX.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&chunk[..length.min(room)]);
        }
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    fn with(script: &str, within: Duration) -> (tempfile::TempDir, Bounded) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let environment = vec![("KEPT", OsString::from("it"))];
        let directories = vec!["/nowhere".into(), directory.path().into()];
        (directory, Bounded { directories, environment, within })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn environment_is_its_own() {
        let (_directory, of) = with("/usr/bin/env | /usr/bin/sort; printf '<%s>' \"$@\"", LONG);
        let said = of.output("program", &["a b", "$(reboot)"], || false).unwrap();
        assert!(said.contains("KEPT=it\nLC_ALL=C\n") && !said.contains("HOME="), "{said}");
        assert!(said.ends_with("<a b><$(reboot)>"), "{said}");
    }

    #[test]
    fn failure_says_what_the_program_said() {
        let (_directory, of) = with("echo no time >&2; exit 3", LONG);
        let reason = of.output("program", &[""; 0], || false).unwrap_err();
        assert!(reason.starts_with("program failed") && reason.ends_with("no time"), "{reason}");
        let reason = of.output("other", &[""; 0], || false).unwrap_err();
        assert!(reason.starts_with("other is in none of /nowhere, "), "{reason}");
    }

    #[test]
    fn long_output_is_cut_and_leftovers_are_not_awaited() {
        let (_directory, of) = with("head -c 1000000 /dev/zero; echo end", LONG);
        assert_eq!(of.output("program", &[""; 0], || false).unwrap().len(), OUTPUT_MAX);
        let (_directory, of) = with("sleep 60 & echo $!", LONG);
        let said = of.output("program", &[""; 0], || false).unwrap();
        let left = said.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        let _ = rustix::process::kill_process(left, rustix::process::Signal::KILL);
    }

    #[test]
    fn program_that_hangs_is_killed() {
        let (_directory, mut of) = with("exec sleep 60", Duration::from_millis(50));
        let reason = of.output("program", &[""; 0], || false).unwrap_err();
        assert!(reason.contains("did not end"), "{reason}");
        of.within = LONG;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let waits =
                scope.spawn(|| of.output("program", &[""; 0], || is_over.load(Ordering::Relaxed)));
            std::thread::sleep(Duration::from_millis(50));
            is_over.store(true, Ordering::Relaxed);
            assert!(waits.join().unwrap().is_err());
        });
    }
}
