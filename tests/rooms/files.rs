//! The files of the project, by their ends.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// Directories of the output of builds, and of packages that npm has brought.
const OF_OTHERS: [&str; 4] = ["dist", "node_modules", "target", "__pycache__"];

/// All files below a directory whose names end so, but for those that a build makes; an empty end
/// stands for names that have none.
pub fn files_of(directory: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !OF_OTHERS.iter().any(|it| path.ends_with(it)) {
                files.extend(files_of(&path, ends));
            }
        } else if ends.contains(&path.extension().map_or("", |end| end.to_str().unwrap_or("?"))) {
            files.push(path);
        }
    }
    files
}
