//! The way of a path from a client to a cgroup, with the properties that must hold on it. Shared by
//! the test of the corpus and by the fuzz target.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
    sync::OnceLock,
};

use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies, below},
};

/// Whether the text of a path may name a group. No path may lead out of the tree of groups, nor to
/// a directory among the traps.
pub fn is_name(data: &[u8], traps: &Path) -> bool {
    let Ok(path) = std::str::from_utf8(data) else { return false };
    let relative = below(path);
    if let Some(relative) = relative {
        let parts: Vec<_> = Path::new(relative).components().collect();
        assert!(!parts.is_empty() && parts.iter().all(|part| matches!(part, Component::Normal(_))));
        assert_eq!(parts.len(), relative.split('/').count(), "{relative:?} is spelt otherwise");
    }
    assert!(Group::named(traps, path).is_err(), "{path:?} is a group of a disk");
    if let Some(root) = groups() {
        if let Ok(group) = Group::named(root, path) {
            assert!(relative.is_some());
            assert_eq!(group.path().canonicalize().unwrap(), group.path(), "{path:?}");
            assert!(group.path().starts_with(root) && group.path() != root);
        }
    }
    relative.is_some()
}

/// The groups of this machine, if there are any.
fn groups() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = || Hierarchies::detect(&Roots::default()).ok()?.v2?.canonicalize().ok();
    ROOT.get_or_init(found).as_deref()
}

/// Makes directories that are no groups, with links that lead out of them.
pub fn make_traps(directory: &Path) {
    fs::create_dir_all(directory.join("a/b")).unwrap();
    for (name, to) in [("a/l", ".."), ("r", "/"), ("g", "/sys/fs/cgroup")] {
        // They may be there from before.
        let _ = symlink(to, directory.join(name));
    }
}
