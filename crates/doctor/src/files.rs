//! The files whose functions are known.
//!
//! Problem: threads wait at thousands of places in one runtime, and its file may have 64 MiB. Each
//! look at a place would read all of it.
//!
//! Approach: a table of functions is kept by device, inode and time of change, and stays right for
//! as long as these are the same. Of too many files the one is forgotten that was asked for longest
//! ago.

use std::fs::File;

use crate::{mapped::Identity, symbols::Symbols};

/// A table has some megabytes at most, and its file stays open.
const FILES_MAX: usize = 32;

/// The one that was asked for last is at the end.
#[derive(Debug, Default)]
pub struct Files(Vec<(Identity, Symbols)>);

impl Files {
    /// The functions of a file, which is read where they are not known; none where it cannot be
    /// opened.
    pub fn symbols(
        &mut self,
        identity: Identity,
        open: impl FnOnce() -> Option<File>,
    ) -> Option<&Symbols> {
        let known = match self.0.iter().position(|(other, _)| *other == identity) {
            Some(at) => self.0.remove(at).1,
            None => Symbols::of(open()?),
        };
        if self.0.len() >= FILES_MAX {
            self.0.remove(0);
        }
        self.0.push((identity, known));
        self.0.last().map(|(_, symbols)| symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_once_and_the_oldest_forgotten() {
        let (mut files, mut read) = (Files::default(), Vec::new());
        let mut ask = |inode| {
            let open = || {
                read.push(inode);
                File::open("/proc/version").ok()
            };
            assert!(files.symbols(Identity::made_up(inode), open).is_some());
            files.0.len()
        };
        for inode in 0..FILES_MAX as u64 {
            assert!(ask(inode) <= FILES_MAX);
        }
        // The second one is the oldest then.
        for inode in [0, FILES_MAX as u64, 0, 1, 0] {
            assert_eq!(ask(inode), FILES_MAX);
        }
        let anew = [FILES_MAX as u64, 1];
        assert!(read.into_iter().eq((0..FILES_MAX as u64).chain(anew)));
        assert!(files.symbols(Identity::made_up(99), || None).is_none());
    }
}
