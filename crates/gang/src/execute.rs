//! Becoming another program.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::io::Errno;

use crate::inherited;

/// Executes the program in `file` in the place of this one; returns only where that fails. Not by
/// `std`, which would empty the mask of blocked signals that the program inherits from the
/// caller of `gang run`.
pub fn execute(
    file: &Path,
    command: &[OsString],
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Errno {
    let outcome = || -> Result<Infallible, Errno> {
        // A slash keeps a file of the working directory from being looked for in PATH.
        let file = if file.as_os_str().as_bytes().contains(&b'/') {
            file.to_owned()
        } else {
            Path::new(".").join(file)
        };
        let (file, command) = (text(file.as_os_str())?, texts(command)?);
        let variables = assignments(variables)?;
        inherited::close_streams();
        nix::unistd::execvpe(&file, &command, &variables)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))
    };
    match outcome() {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}

/// A string as the kernel takes it; one with a zero byte cannot be.
pub fn text(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::INVAL)
}

pub fn texts(texts: &[OsString]) -> Result<Vec<CString>, Errno> {
    texts.iter().map(|one| text(one)).collect()
}

/// An environment as the kernel takes it.
pub fn assignments(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<CString>, Errno> {
    variables
        .map(|(name, value)| {
            let line = [name.as_bytes(), b"=", value.as_bytes()].concat();
            text(&OsString::from_vec(line))
        })
        .collect()
}
