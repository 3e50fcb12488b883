//! Where the other programs of gangd are, seen from this one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::executable;

/// The daemon: beside this program (a build directory), in ../sbin (as installed), in
/// ../libexec/gangd, else in `$PATH`.
fn gangd() -> Result<PathBuf> {
    let path = std::env::var_os("PATH");
    find("gangd", &[".", "../sbin", "../libexec/gangd"])
        .or_else(|| executable::find(OsStr::new("gangd"), path.as_deref()).ok())
        .context(
            "cannot find the program gangd beside gang, in ../sbin, in ../libexec/gangd or in \
             PATH; install it, or set GANG_SOCKET to the socket of a daemon that runs",
        )
}

/// Variables that the daemon keeps of its caller's: where to find programs, and what to log.
///
/// All others are dropped here, since some of them act while a program is executed (LD_PRELOAD).
/// The daemon is everybody's, and what it does is not to hang on the first caller's TZ, libraries
/// or secrets. The socket is an argument.
const KEPT: [&str; 2] = ["PATH", "GANGD_LOG"];

/// The daemon to start for a socket, without its caller's environment.
pub fn gangd_at(socket: &Path) -> Result<Command> {
    let mut command = Command::new(gangd()?);
    command.env_clear().arg("--socket").arg(socket);
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    Ok(command)
}

/// The daemon's program, for what it does besides being the daemon.
pub fn gangd_command() -> Result<Command> {
    Ok(Command::new(gangd()?))
}

/// A program that is a subcommand: beside this one, else in ../libexec/gangd.
pub fn companion(name: &str) -> Result<PathBuf> {
    find(name, &[".", "../libexec/gangd"]).with_context(|| {
        format!(
            "cannot find the program {name} beside gang or in ../libexec/gangd; install it from \
             the sources of gangd (make install)"
        )
    })
}

fn find(name: &str, places: &[&str]) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let dir = own.parent()?;
    places
        .iter()
        .map(|place| if *place == "." { dir.join(name) } else { dir.join(place).join(name) })
        .find(|file| executable::find(file.as_os_str(), None).is_ok())
}
