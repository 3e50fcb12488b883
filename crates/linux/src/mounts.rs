//! The mounts of a process, as `mountinfo` of proc(5) lists them.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    /// The numbers of the device, major and minor.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    pub point: PathBuf,
    pub kind: String,
    /// Of the file system, with commas between them.
    pub options: String,
}

impl Mount {
    /// Whether the file system has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|it| it == option)
    }
}

/// The mounts of this process.
pub fn here(proc_root: &Path) -> Result<Vec<Mount>> {
    let path = proc_root.join("self/mountinfo");
    let text = fs::read(&path).map_err(|e| Error::new("read", path.display(), e))?;
    Ok(parse(&text))
}

/// The lines that can be understood.
pub(crate) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

/// A line: `id parent device root point options … - kind source options`.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let text = |field: &[u8]| std::str::from_utf8(field).ok().map(str::to_owned);
    let id = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.nth(1)?)?;
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let mut file_system = fields.skip_while(|&field| field != b"-").skip(1);
    let kind = text(file_system.next()?)?;
    let options = file_system.nth(1).unwrap_or_default();
    let options = String::from_utf8_lossy(options).into_owned();
    Some(Mount { id, device, root, point, kind, options })
}

/// The kernel writes blanks, tabs, line feeds and backslashes as `\040` and the like.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = path;
    while let [first, others @ ..] = rest {
        let digits = (*first == b'\\').then(|| others.get(..3)).flatten();
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let line = b"34 30 0:29 /docker/x /a\\040b\\134 rw shared:9 - btrfs /dev/vda rw,ssd";
        let expected = Mount {
            id: 34,
            device: (0, 29),
            root: "/docker/x".into(),
            point: "/a b\\".into(),
            kind: "btrfs".into(),
            options: "rw,ssd".into(),
        };
        assert!(expected.has("ssd") && !expected.has("ss"));
        assert_eq!(parse(&[line, &b"\nno mount\n"[..]].concat()), [expected]);
        let bare = mount(b"1 0 0:1 / / rw - cgroup2 none").unwrap();
        assert_eq!((bare.kind.as_str(), bare.options.as_str()), ("cgroup2", ""));
        assert_eq!((mount(b""), mount(b"34 30 0:29 / / rw shared:9 -")), (None, None));
        assert_eq!(unescaped(b"\\\\9\\04"), Path::new("\\\\9\\04"));
    }

    #[test]
    fn mount_of_any_bytes_hides_no_other() {
        let text = b"1 0 0:1 / /\xff rw - tmpfs none rw\n2 0 0:2 / /b rw - cgroup2 none rw\n";
        let points = parse(text).into_iter().map(|mount| mount.point.into_os_string().into_vec());
        assert_eq!(points.collect::<Vec<_>>(), [&b"/\xff"[..], b"/b"]);
    }

    #[test]
    fn this_process_has_a_root() {
        let mounts = here(Path::new("/proc")).unwrap();
        assert!(mounts.iter().any(|mount| mount.point == Path::new("/")));
    }
}
