//! Users other than root, as whom experiments run programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::programs::Programs;

/// Two ordinary users, each on an account of his own. The numbers are of a range that systemd
/// leaves unused (systemd.io/UIDS-GIDS), and nobody has them.
pub const ORDINARY: [u32; 2] = [60_578, 60_579];
/// A user whom every machine has.
const NOBODY: u32 = 65_534;
/// Subordinate numbers are above those of users.
const LEAST_SUBORDINATE: u32 = 65_536;

/// Has a program run as this user, in a directory that he may enter.
pub fn as_user(command: &mut Command, uid: u32) -> &mut Command {
    command.uid(uid).gid(uid).current_dir("/")
}

pub fn needs_root(why: &str) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "this experiment needs root: {why}");
    Ok(())
}

/// The numbers of one user who is neither root nor one of [`ORDINARY`]: so many of those that
/// /etc/subuid gives to a user, or else that of nobody alone.
///
/// They are subordinate numbers alone, so that no program of that user is within reach of what is
/// run as them.
pub fn numbers_of_one(most: u32) -> Vec<u32> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    subordinate(&read("/etc/subuid"), &read("/etc/passwd"), most).unwrap_or_else(|| vec![NOBODY])
}

/// The last numbers of the first range that is large enough and has a known owner (subuid(5)).
fn subordinate(subuid: &str, passwd: &str, most: u32) -> Option<Vec<u32>> {
    let is_known = |owner: &str| {
        let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        lines.any(|line| {
            let uid = line.get(2).copied();
            uid != Some("0") && (line.first() == Some(&owner) || uid == Some(owner))
        })
    };
    let of_range = |line: &str| {
        let [owner, first, count] = line.split(':').collect::<Vec<_>>().try_into().ok()?;
        let (first, count): (u32, u32) = (first.parse().ok()?, count.trim().parse().ok()?);
        let end = first.checked_add(count)?;
        let is_fit = first >= LEAST_SUBORDINATE && count >= most && is_known(owner);
        is_fit.then(|| (end - most..end).collect())
    };
    subuid.lines().find_map(of_range)
}

/// Programs that every user may execute: where they are, or else as copies in a directory that is
/// there for as long as this.
pub struct ForEverybody {
    pub programs: Programs,
    _dir: Option<TempDir>,
}

impl ForEverybody {
    pub fn find(programs: &Programs) -> Result<Self> {
        let gang = programs.gang()?;
        if is_for_everybody(gang) && is_for_everybody(&programs.lab) {
            return Ok(Self { programs: programs.clone(), _dir: None });
        }
        for place in [Path::new("/dev/shm"), Path::new("/tmp"), &std::env::temp_dir()] {
            let Ok(dir) = tempfile::Builder::new().prefix("gang-lab-").tempdir_in(place) else {
                continue;
            };
            let copy = |from: &Path, name: &str| {
                let to = dir.path().join(name);
                fs::copy(from, &to).with_context(|| format!("copying {}", from.display()))?;
                anyhow::Ok(to)
            };
            let mut programs = programs.clone();
            programs.gang = Some(copy(gang, "gang")?);
            programs.lab = copy(&programs.lab, "gang-lab")?;
            fs::set_permissions(dir.path(), Permissions::from_mode(0o755))
                .with_context(|| format!("opening {} to everybody", dir.path().display()))?;
            if is_for_everybody(&programs.lab) {
                return Ok(Self { programs, _dir: Some(dir) });
            }
        }
        bail!("other users may not execute {}, nor a copy of it", programs.lab.display())
    }
}

fn is_for_everybody(program: &Path) -> bool {
    let mut command = Command::new(program);
    as_user(&mut command, NOBODY).arg("--version");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_numbers_are_of_a_known_user() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        let of = |subuid: &str| subordinate(subuid, passwd, 3);
        assert_eq!(of("ann:100000:65536\n"), Some(vec![165_533, 165_534, 165_535]));
        assert_eq!(of("1000:100000:65536\n"), Some(vec![165_533, 165_534, 165_535]));
        for none in ["", "root:100000:65536", "0:100000:65536", "bob:100000:65536", "ann:1:9"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(of("ann:100000:2"), None, "too few");
        assert_eq!(of("ann:4294967295:9\nann:100000:3\n"), Some(vec![100_000, 100_001, 100_002]));
    }
}
