//! Jobs that a daemon left raised, paused or frozen when it died with its guardian.
//!
//! The daemon keeps an entry for each job in a directory beside its socket. Entries without a
//! daemon that listens mean that nobody released those jobs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use gang_protocol::name::escaped;
use gang_protocol::paths::{Surroundings, jobs_dir};

use crate::programs;

/// The owner of the leftovers beside a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftovers {
    None,
    /// This user can release them.
    Ours,
    /// An administrator can.
    Roots,
}

/// Releases leftovers at every socket where a daemon is looked for, and says on standard error
/// what was found. That it fails does not keep a command from its own work.
pub fn release_and_report(surroundings: &Surroundings) {
    release_at(surroundings, surroundings.candidates());
}

/// The same, at the sockets besides that of a daemon that has taken over what was left there.
pub fn release_others(surroundings: &Surroundings, socket: &Path) {
    let others = surroundings.candidates().into_iter().filter(|other| other != socket);
    release_at(surroundings, others.collect());
}

fn release_at(surroundings: &Surroundings, sockets: Vec<PathBuf>) {
    for socket in sockets {
        match leftovers(&socket, surroundings.uid) {
            Leftovers::None => {}
            Leftovers::Ours => match release(&socket) {
                Ok(output) => eprint!("{}", harmless(&output.stdout)),
                Err(error) => eprintln!("gang: {}", escaped(&format!("{error:#}"))),
            },
            Leftovers::Roots => report_roots(&socket, surroundings.uid),
        }
    }
}

/// Says on standard error what only root can release at a socket, if there is anything.
pub fn report_roots(socket: &Path, uid: u32) {
    if leftovers(socket, uid) == Leftovers::Roots {
        eprintln!(
            "gang: the daemon at {} died and may have left jobs that it held; as root, `gang \
             recover` releases them",
            socket.display()
        );
    }
}

/// Runs `gangd --release` for a socket; an error where it fails. Its output is for people.
pub fn release(socket: &Path) -> Result<Output> {
    let mut gangd = programs::gangd_at(socket)?;
    let program = Path::new(gangd.get_program()).to_owned();
    let output = gangd
        .arg("--release")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    anyhow::ensure!(
        output.status.success(),
        "{} could not release what a dead daemon left at {} ({}): {}{}",
        program.display(),
        socket.display(),
        output.status,
        harmless(&output.stdout),
        harmless(&output.stderr)
    );
    Ok(output)
}

/// The output of a program, harmless to a terminal, line by line.
pub fn harmless(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().flat_map(|line| [escaped(line).into_owned(), "\n".to_owned()]).collect()
}

fn leftovers(socket: &Path, uid: u32) -> Leftovers {
    let dir = jobs_dir(socket);
    let Ok(metadata) = std::fs::symlink_metadata(&dir) else { return Leftovers::None };
    let is_empty = match std::fs::read_dir(&dir) {
        Ok(mut entries) => entries.next().is_none(),
        // Root's daemon lets nobody list it. It was killed: at its end it removes the directory.
        Err(error) => error.kind() != std::io::ErrorKind::PermissionDenied,
    };
    if !metadata.is_dir() || is_empty {
        return Leftovers::None;
    }
    whose(metadata.uid(), uid)
}

/// Beside a socket in /tmp anybody can make a directory of this name; what somebody else wrote
/// there says nothing.
fn whose(owner: u32, uid: u32) -> Leftovers {
    match owner {
        _ if owner == uid => Leftovers::Ours,
        0 => Leftovers::Roots,
        _ => Leftovers::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_beside_a_socket_is_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let socket = dir.path().join("gangd.sock");
        assert_eq!(leftovers(&socket, uid), Leftovers::None);
        std::fs::create_dir(dir.path().join("gangd.jobs")).unwrap();
        assert_eq!(leftovers(&socket, uid), Leftovers::None);
        std::fs::write(dir.path().join("gangd.jobs/3"), "").unwrap();
        assert_eq!(leftovers(&socket, uid), Leftovers::Ours);
    }

    #[test]
    fn a_link_to_a_directory_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("gangd.jobs")).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(leftovers(&dir.path().join("gangd.sock"), uid), Leftovers::None);
    }

    #[test]
    fn other_users_are_not_believed() {
        assert_eq!(whose(1000, 1000), Leftovers::Ours);
        assert_eq!(whose(0, 1000), Leftovers::Roots);
        assert_eq!(whose(1001, 1000), Leftovers::None);
        assert_eq!(whose(1000, 0), Leftovers::None);
    }

    #[test]
    fn what_gangd_says_keeps_its_lines_and_nothing_else() {
        assert_eq!(
            harmless(b"released job 3\nreleased \x1b[2J\n"),
            "released job 3\nreleased \\u{1b}[2J\n"
        );
    }
}
