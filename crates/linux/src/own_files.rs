//! Files that nobody else can put in the daemon's way.
//!
//! Problem: the daemon writes files beside its socket, often as root. If somebody else may write to
//! that directory, he puts a link there, and the daemon writes to a file of another user, cuts it,
//! or opens it to everybody.
//!
//! Approach: a directory is used only if nobody else can change what is in it, or put another in
//! its place: what lies above is root's or this user's. And no file is opened through a link, even
//! there: a new file is really new, and one that is opened again is a plain file of this user with
//! one name.

use std::{
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::{fs::XattrFlags, io::Errno};

use crate::{Error, Result};

/// The permission of others than the owner to change what is in a directory. Where it has an access
/// control list, the bits of the group are the most that any entry of the list permits.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Refuses a directory unless it is one (and no link to one) of this user, to which nobody else may
/// write, and which nobody else but root can rename away.
pub fn check_directory(path: &Path) -> Result<()> {
    judge(path, fs::symlink_metadata(path))
}

/// The same of a directory to which a link may lead, since an administrator has named it.
pub fn check_directory_behind_links(path: &Path) -> Result<()> {
    judge(path, fs::metadata(path))
}

fn judge(path: &Path, found: io::Result<fs::Metadata>) -> Result<()> {
    let error = |source| Error::new("use", path.display(), source);
    let found = found.map_err(error)?;
    let own_uid = rustix::process::geteuid().as_raw();
    let refuse = |fault| error(io::Error::new(ErrorKind::PermissionDenied, fault));
    if let Some(fault) = fault(found.is_dir(), found.uid(), found.mode(), own_uid) {
        return Err(refuse(fault));
    }
    let real = fs::canonicalize(path).map_err(error)?;
    for above in real.ancestors().skip(1) {
        let found = fs::metadata(above).map_err(error)?;
        let is_trusted = |uid| uid == 0 || uid == own_uid || is_from_outside(uid);
        if let Some(fault) = fault_above(is_trusted(found.uid()), &found) {
            return Err(refuse(format!("{} {fault}", above.display())));
        }
    }
    Ok(())
}

/// Whether files of this owner belong to a user that a container does not know: to the system that
/// made the container.
fn is_from_outside(uid: u32) -> bool {
    let is_whole = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    overflow.trim().parse() == Ok(uid)
        && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_whole(map))
}

/// Why somebody else could put another directory in the place of one below this one.
fn fault_above(is_trusted: bool, found: &fs::Metadata) -> Option<String> {
    // In a directory with the sticky bit only the owner of a file renames it.
    let is_sticky = found.mode() & 0o1000 != 0;
    let of_others = if found.gid() == 0 { 0o002 } else { WRITE_OF_OTHERS };
    let fault = if !is_trusted {
        format!("belongs to user {}", found.uid())
    } else if !is_sticky && found.mode() & of_others != 0 {
        format!("may be written to by others (mode {:04o})", found.mode() & 0o7777)
    } else {
        return None;
    };
    Some(format!(
        "{fault}, who could put another directory in the place of the one that gangd uses: name one \
         elsewhere"
    ))
}

/// Why a directory is not used, and the way out.
fn fault(is_directory: bool, uid: u32, mode: u32, own_uid: u32) -> Option<String> {
    let (fault, way_out) = if !is_directory {
        ("it is a link, or no directory".to_owned(), "name another, or remove it")
    } else if uid != own_uid {
        (format!("it belongs to user {uid}"), "name another, or have it removed")
    } else if mode & WRITE_OF_OTHERS != 0 {
        (
            format!("others may write to it (mode {:04o})", mode & 0o7777),
            "chmod go-w, or name another",
        )
    } else {
        return None;
    };
    Some(format!(
        "{fault}, and gangd keeps files only in a directory of its own user ({own_uid}) to which \
         nobody else may write: {way_out}"
    ))
}

/// A new file in place of what has this name, where something has; whatever the umask, with these
/// permissions.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let create = || File::options().read(true).write(true).create_new(true).mode(mode).open(path);
    let file = match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()?
        }
        created => created?,
    };
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Opens a file that is there, for reading and writing. Anything else of this name is refused.
pub fn open(path: &Path) -> io::Result<File> {
    let refused = |fault: &str| {
        let kind = ErrorKind::PermissionDenied;
        io::Error::new(kind, format!("{fault}, which gangd does not follow: remove it"))
    };
    // A pipe is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match File::options().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(refused("it is a link"));
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() > 1 {
        return Err(refused("it is no plain file of this user alone"));
    }
    Ok(file)
}

/// Opens a file that is there, or makes a new one, also in place of anything else of this name.
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    match open(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            create(path, mode)
        }
        opened => opened,
    }
}

/// Lets one user besides this one read a file, and nobody else; false where the file system has no
/// access control lists (acl(5)), and this user alone can read the file.
pub fn share_with(file: &File, uid: u32) -> io::Result<bool> {
    file.set_permissions(Permissions::from_mode(0o600))?;
    if uid == rustix::process::geteuid().as_raw() {
        return Ok(true);
    }
    let list = access_list(uid);
    match rustix::fs::fsetxattr(file, c"system.posix_acl_access", &list, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Read and write for the owner, read for one user, in the kernel's layout
/// (linux/posix_acl_xattr.h): a version, then tag, permissions and number of each entry.
fn access_list(uid: u32) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    let owner = (0x01, 6, NOBODY);
    let user = (0x02, 4, uid);
    let group = (0x04, 0, NOBODY);
    let mask = (0x10, 4, NOBODY);
    let others = (0x20, 0, NOBODY);
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, number) in [owner, user, group, mask, others] {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(permissions));
        list.extend(u32::to_le_bytes(number));
    }
    list
}

/// Writes a file whole or not at all: under the name `new`, which becomes `path` then.
pub fn replace(path: &Path, new: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let written = create(new, mode)
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| fs::rename(new, path));
    // A full disk is to be no fuller by what is of no use.
    written.inspect_err(|_| drop(fs::remove_file(new)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directory_that_others_can_change_is_refused() {
        assert_eq!(fault(true, 7, 0o40755, 7), None);
        assert_eq!(fault(true, 7, 0o41711, 7), None);
        for (is_directory, uid, mode, what) in [
            (false, 7, 0o120_777, "link"),
            (true, 8, 0o40700, "user 8"),
            (true, 0, 0o40755, "user 0"),
            (true, 7, 0o41777, "mode 1777"),
            (true, 7, 0o40775, "mode 0775"),
        ] {
            let fault = fault(is_directory, uid, mode, 7).unwrap();
            assert!(fault.contains(what) && fault.contains("its own user (7)"), "{fault}");
        }
        let place = tempfile::tempdir().unwrap();
        let (real, link) = (place.path().join("real"), place.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        check_directory(&real).unwrap();
        check_directory_behind_links(&link).unwrap();
        let refused = check_directory(&link).unwrap_err();
        assert_eq!(refused.source.kind(), ErrorKind::PermissionDenied);
        // A user who can write above it puts another in its place, unless that is sticky.
        for (mode, is_used) in [(0o777, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
            let checked = check_directory(&real);
            assert_eq!(checked.is_ok(), is_used, "{mode:o}: {checked:?}");
        }
        let missing = check_directory(&place.path().join("missing")).unwrap_err();
        assert_eq!(missing.source.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (dear, link) = (place.path().join("dear"), place.path().join("link"));
        let is_dear = || {
            let mode = fs::metadata(&dear).unwrap().mode() & 0o777;
            fs::read_to_string(&dear).unwrap() == "dear" && mode == 0o640
        };
        fs::write(&dear, "dear").unwrap();
        fs::set_permissions(&dear, Permissions::from_mode(0o640)).unwrap();
        let plant: [&dyn Fn(); 2] =
            [&|| symlink(&dear, &link).unwrap(), &|| fs::hard_link(&dear, &link).unwrap()];
        for plant in plant {
            plant();
            assert_eq!(open(&link).unwrap_err().kind(), ErrorKind::PermissionDenied);
            create(&link, 0o600).unwrap().write_all(b"new").unwrap();
            assert!(is_dear());
            assert_eq!(fs::read_to_string(&link).unwrap(), "new");
            fs::remove_file(&link).unwrap();
            plant();
            replace(&place.path().join("whole"), &link, b"new", 0o644).unwrap();
            assert!(is_dear() && !link.exists());
            assert_eq!(fs::metadata(place.path().join("whole")).unwrap().mode() & 0o777, 0o644);
        }
        assert!(open(place.path()).is_err());
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(open(&pipe).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(open(&place.path().join("missing")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn file_is_shared_with_one_user() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("shared");
        let file = create(&path, 0o644).unwrap();
        assert!(share_with(&file, rustix::process::geteuid().as_raw()).unwrap());
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        let is_shared = share_with(&file, 7).unwrap();
        let mode = if is_shared { 0o640 } else { 0o600 };
        assert_eq!(
            file.metadata().unwrap().mode() & 0o777,
            mode,
            "the mask is in place of a group"
        );
        if is_shared {
            let mut list = [0; 64];
            let read = rustix::fs::fgetxattr(&file, c"system.posix_acl_access", &mut list).unwrap();
            assert_eq!(list[..read], access_list(7));
        }
    }
}
