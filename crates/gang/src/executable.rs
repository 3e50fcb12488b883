//! Which file a command is, as execvp(3) would find it.
//!
//! `gang run` looks before it registers a job, so that a command that cannot be leaves none. The
//! kernel still has the last word when the command is executed.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::exit::{CannotExecute, NOT_EXECUTABLE, NOT_FOUND};

/// Where commands are looked for when `$PATH` is not set, as glibc has it.
const PATH_UNSET: &str = "/bin:/usr/bin";

/// The most that the kernel reads of a script's first line (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE_MAX: u64 = 256;

/// The file of a command: itself where it contains a slash, else the first executable one in the
/// directories of `path`.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, CannotExecute> {
    if command.as_bytes().contains(&b'/') {
        let file = PathBuf::from(command);
        return match problem(&file) {
            None => Ok(file),
            Some(errno) => Err(cannot(command, errno)),
        };
    }
    let path = path.unwrap_or(OsStr::new(PATH_UNSET));
    let mut found = Errno::NOENT;
    if !command.is_empty() {
        for dir in std::env::split_paths(path) {
            // An empty entry is the current directory.
            let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
            let file = dir.join(command);
            match problem(&file) {
                None => return Ok(file),
                Some(Errno::NOENT | Errno::NOTDIR) => {}
                Some(errno) => found = errno,
            }
        }
    }
    Err(cannot(command, found))
}

/// The error for a command that cannot be executed because of `errno`.
pub fn cannot(command: &OsStr, errno: Errno) -> CannotExecute {
    let (code, reason) = match errno {
        Errno::NOENT | Errno::NOTDIR => (NOT_FOUND, "there is no such program".to_owned()),
        Errno::ACCESS => (NOT_EXECUTABLE, "permission denied".to_owned()),
        Errno::ISDIR => (NOT_EXECUTABLE, "it is a directory".to_owned()),
        other => (NOT_EXECUTABLE, std::io::Error::from(other).to_string()),
    };
    CannotExecute {
        code,
        message: format!("cannot execute {}: {reason}", command.to_string_lossy()),
    }
}

/// The error for a command whose file is there, and which the kernel refused to execute.
pub fn refused(command: &OsStr, file: &Path, errno: Errno) -> CannotExecute {
    let is_there = errno == Errno::NOENT && problem(file).is_none();
    match is_there.then(|| missing_part(file)) {
        None => cannot(command, errno),
        Some(part) => CannotExecute {
            code: NOT_FOUND,
            message: format!("cannot execute {}: {part}", command.to_string_lossy()),
        },
    }
}

/// The part that a file needs to be executed, and that is missing.
fn missing_part(file: &Path) -> String {
    let mut start = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|file| file.take(SCRIPT_LINE_MAX).read_to_end(&mut start));
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match (read, line.strip_prefix(b"#!")) {
        (Ok(_), Some(words)) => {
            let text = String::from_utf8_lossy(words);
            let interpreter = text.split_whitespace().next().unwrap_or_default();
            format!("its interpreter {interpreter} is missing")
        }
        _ => "the loader of programs of its kind is missing".to_owned(),
    }
}

fn problem(file: &Path) -> Option<Errno> {
    match std::fs::metadata(file) {
        Err(error) => {
            return Some(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error));
        }
        Ok(metadata) if metadata.is_dir() => return Some(Errno::ISDIR),
        Ok(_) => {}
    }
    accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).err()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn takes_the_first_executable_file_of_the_path() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(one.path(), "a", 0o644);
        std::fs::create_dir(one.path().join("b")).unwrap();
        let (a, b) = (file(two.path(), "a", 0o755), file(two.path(), "b", 0o755));
        let path = std::env::join_paths(["/nonexistent".as_ref(), one.path(), two.path()]).unwrap();
        assert_eq!(find("a".as_ref(), Some(&path)).unwrap(), a);
        assert_eq!(find("b".as_ref(), Some(&path)).unwrap(), b);
    }

    #[test]
    fn missing_is_127_and_not_executable_126() {
        let dir = tempfile::tempdir().unwrap();
        let plain = file(dir.path(), "plain", 0o644);
        let code = |command: &OsStr| find(command, Some(dir.path().as_os_str())).unwrap_err().code;
        assert_eq!(code("plain".as_ref()), NOT_EXECUTABLE);
        assert_eq!(code(plain.as_os_str()), NOT_EXECUTABLE);
        assert_eq!(code("/".as_ref()), NOT_EXECUTABLE);
        assert_eq!(code("nowhere".as_ref()), NOT_FOUND);
        assert_eq!(code("./nowhere".as_ref()), NOT_FOUND);
        assert_eq!(code(plain.join("x").as_os_str()), NOT_FOUND);
        assert_eq!(code("".as_ref()), NOT_FOUND);
    }

    #[test]
    fn without_a_path_system_directories_are_searched() {
        assert!(find("sh".as_ref(), None).is_ok());
    }
}
