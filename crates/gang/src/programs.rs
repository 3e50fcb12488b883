//! Where the other programs of gangd are, seen from this one.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::executable;

/// The daemon: beside this program (a build directory), in ../sbin (as installed), in
/// ../libexec/gangd, else in `$PATH`.
pub fn gangd() -> Result<PathBuf> {
    let path = std::env::var_os("PATH");
    find("gangd", &[".", "../sbin", "../libexec/gangd"])
        .or_else(|| executable::find(OsStr::new("gangd"), path.as_deref()).ok())
        .context(
            "cannot find the program gangd beside gang, in ../sbin, in ../libexec/gangd or in \
             PATH; install it, or set GANG_SOCKET to the socket of a daemon that runs",
        )
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
