//! The slot page: what a program can know of its slot without asking anybody.
//!
//! Problem: a thread that waits for another thread of its gang does best to spin while that one
//! runs, and to block while it does not. To ask takes longer than the wait.
//!
//! Approach: a file for each job that wants one, which its programs map read-only. The switchers
//! write it at the edges, by one call each; who has mapped it sees that at once. Nobody but the
//! daemon can write, lock or shorten it. Of other users the job's owner alone can read it, and
//! everybody where the file system has no access control lists.
//!
//! Layout, in the byte order of the machine: [`MAGIC`], [`VERSION`], then [`Word`], then a count of
//! slots.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use gang_linux::{Error, Result, own_files};
use gang_timetable::{Validity, Word};

pub const MAGIC: u32 = 0x474e_4147;
pub const VERSION: u32 = 1;
/// The whole file: what is not used yet is zero.
pub const LENGTH: u64 = 4096;

const WORD_AT: u64 = 8;
const SLOTS_AT: u64 = 40;

const WORD_LENGTH: usize = 32;

fn encode(word: &Word) -> [u8; WORD_LENGTH] {
    let mut bytes = [0; WORD_LENGTH];
    bytes[0..4].copy_from_slice(&u32::from(word.running).to_ne_bytes());
    bytes[4..8].copy_from_slice(&word.on_cpus.to_ne_bytes());
    bytes[8..16].copy_from_slice(&word.until_ns.to_ne_bytes());
    bytes[16..24].copy_from_slice(&word.slice_ns.to_ne_bytes());
    bytes[24..28].copy_from_slice(&word.cpus.to_ne_bytes());
    bytes[28..32].copy_from_slice(&(word.validity as u32).to_ne_bytes());
    bytes
}

/// The page of one job. When this is dropped, the page's last word is that the job is gone.
#[derive(Debug)]
pub struct SlotPage {
    pub path: PathBuf,
    file: File,
}

impl SlotPage {
    /// Makes the page of a job of that user, or takes over one that an earlier daemon left, which
    /// programs may have mapped.
    pub fn open(path: impl Into<PathBuf>, owner_uid: u32) -> Result<Arc<SlotPage>> {
        let path = path.into();
        let error = |e| Error::new("open slot page", path.display(), e);
        let file = own_files::open_or_create(&path, 0o600).map_err(error)?;
        let begin = || -> io::Result<()> {
            if !own_files::share_with(&file, owner_uid)? {
                // The owner could not read it otherwise.
                file.set_permissions(Permissions::from_mode(0o644))?;
            }
            file.set_len(LENGTH)?;
            let mut head = [0; WORD_AT as usize];
            head[0..4].copy_from_slice(&MAGIC.to_ne_bytes());
            head[4..8].copy_from_slice(&VERSION.to_ne_bytes());
            file.write_all_at(&head, 0)
        };
        begin().map_err(error)?;
        let page = SlotPage { path, file };
        page.write(&Word { validity: Validity::NotScheduled, ..Word::default() })
            .map_err(|e| Error::new("write slot page", page.path.display(), e))?;
        Ok(Arc::new(page))
    }

    pub fn write(&self, word: &Word) -> io::Result<()> {
        self.file.write_all_at(&encode(word), WORD_AT)
    }

    /// Slots of the job so far.
    pub fn write_slots(&self, slots: u64) -> io::Result<()> {
        self.file.write_all_at(&slots.to_ne_bytes(), SLOTS_AT)
    }
}

impl Drop for SlotPage {
    fn drop(&mut self) {
        let _ = self.write(&GONE);
    }
}

const GONE: Word = Word {
    running: false,
    on_cpus: 0,
    until_ns: 0,
    slice_ns: 0,
    cpus: 0,
    validity: Validity::Gone,
};

/// Says in a page of which nobody knows any more, where there is one, that its daemon is gone.
pub fn invalidate(path: &Path) {
    if let Ok(file) = own_files::open(path) {
        let _ = file.write_all_at(&encode(&GONE), WORD_AT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(path: &Path) -> (u32, u32, u64, u32, u64) {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len() as u64, LENGTH);
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((u32_at(0), u32_at(4)), (MAGIC, VERSION));
        (u32_at(8), u32_at(12), u64_at(16), u32_at(36), u64_at(40))
    }

    #[test]
    fn the_file_says_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.page");
        let page = SlotPage::open(&path, 7).unwrap();
        assert_eq!(numbers(&path), (0, 0, 0, Validity::NotScheduled as u32, 0));
        let word = Word { running: true, on_cpus: 2, until_ns: 7, cpus: 2, ..Word::default() };
        page.write(&word).unwrap();
        page.write_slots(9).unwrap();
        assert_eq!(numbers(&path), (1, 2, 7, Validity::Scheduled as u32, 9));
        let again = SlotPage::open(&path, 7).unwrap();
        assert_eq!(numbers(&path), (0, 0, 0, Validity::NotScheduled as u32, 9));
        drop((page, again));
        assert_eq!(numbers(&path).3, Validity::Gone as u32);
    }

    #[test]
    fn a_page_without_a_daemon_is_invalid() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.page");
        invalidate(&path);
        assert!(!path.exists());
        std::mem::forget(SlotPage::open(&path, 7).unwrap());
        invalidate(&path);
        assert_eq!(numbers(&path).3, Validity::Gone as u32);
    }

    #[test]
    fn page_is_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, dear) = (directory.path().join("1.page"), directory.path().join("dear"));
        std::fs::write(&dear, "dear").unwrap();
        std::os::unix::fs::symlink(&dear, &path).unwrap();
        invalidate(&path);
        assert_eq!(std::fs::read_to_string(&dear).unwrap(), "dear");
        let page = SlotPage::open(&path, 7).unwrap();
        page.write_slots(9).unwrap();
        assert_eq!(std::fs::read_to_string(&dear).unwrap(), "dear");
        assert_eq!(numbers(&path).4, 9);
    }
}
