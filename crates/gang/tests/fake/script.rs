//! Programs that play `gangd`.

use std::{fs::create_dir_all, path::Path, process::Command};

use gang_daemon::{Place, copy};

/// A copy of gang beside a `gangd` that is a shell script; the variables `$socket`, `$fd` and
/// `$release` are set from its arguments.
pub fn gang_beside(place: &Place, gangd: &str, args: &[&str]) -> Command {
    let bin = place.path("bin");
    create_dir_all(&bin).unwrap();
    let gang = bin.join("gang");
    if !gang.exists() {
        copy(&[place.programs.join("gang")], &gang);
    }
    let script = format!(
        "#!/bin/sh\nargs=\"$*\"\nwhile [ $# -gt 0 ]; do case $1 in\n\
         --socket) socket=$2; shift;; --ready-fd) fd=$2; shift;; --release) release=1;;\n\
         esac; shift; done\n{gangd}\n"
    );
    write_script(&bin.join("gangd"), &script);
    let mut gang = place.command(gang);
    gang.args(args);
    gang
}

/// Writes a program, by another process as [`copy`] does.
pub fn write_script(path: &Path, script: &str) {
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let status = Command::new("sh").args(["-c", write, "sh", script]).arg(path).status().unwrap();
    assert!(status.success());
}
