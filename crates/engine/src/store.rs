//! All that must be known of a job when no process is left that remembers it.
//!
//! One file for each job, in a directory beside the daemon's socket. The guardian reads them to
//! release the jobs of a daemon that died, and the next daemon to find its jobs again. Nobody else
//! can read them or list the directory; programs open the slot page whose name they were given.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use gang_linux::own_files;
use gang_timetable::record::Record;

/// A file of the store that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}")]
pub struct Error {
    pub operation: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// A file of a job that is no record, or none that this version knows.
#[derive(Debug)]
pub struct Unreadable {
    /// The number of the job, by the name of the file; absent where the directory cannot be listed.
    pub job: Option<u64>,
    /// As far as it can be read.
    pub text: Vec<u8>,
    pub error: Error,
}

/// Others come to a file that they know, and see no names of files.
const DIRECTORY_MODE: u32 = 0o711;

/// The directory of job files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    pub fn at(directory: impl Into<PathBuf>) -> Store {
        Store { directory: directory.into() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory, or takes that of an earlier daemon.
    pub fn create(&self) -> Result<(), Error> {
        let error = |operation| move |e| self.error(operation, &self.directory, e);
        match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(&self.directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(error("create")(e)),
            _ => {}
        }
        own_files::check_directory(&self.directory).map_err(|e| error("use")(e.source))?;
        // Whatever the umask, and of a daemon that let everybody list it.
        fs::set_permissions(&self.directory, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(error("create"))
    }

    /// Writes a record whole or not at all.
    pub fn put(&self, record: &Record) -> Result<(), Error> {
        let path = self.path(record.id);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other);
        text.and_then(|text| own_files::replace(&path, &new, &text, 0o600))
            .map_err(|e| self.error("write", &path, e))
    }

    /// Where the slot page of a job is.
    pub fn page(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id}.page"))
    }

    /// Where it is written which CPUs gangd gave to the threads of a job.
    pub fn pins(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id}.pins"))
    }

    /// Where it is written which entries of a cluster this host follows.
    pub fn entries(&self) -> PathBuf {
        self.directory.join("cluster.entries")
    }

    /// Where it is written which processes were added to jobs of a cluster that await some.
    pub fn ranks(&self) -> PathBuf {
        self.directory.join("cluster.ranks")
    }

    /// Removes all that is on file of a job.
    pub fn remove(&self, id: u64) -> Result<(), Error> {
        self.remove_page(id);
        self.remove_record(id)
    }

    /// Removes the slot page of a job. Few jobs have one; a page that stays says by itself that it
    /// counts no more.
    pub fn remove_page(&self, id: u64) {
        let _ = fs::remove_file(self.page(id));
    }

    /// Removes what is on file of the members of a job.
    pub fn remove_record(&self, id: u64) -> Result<(), Error> {
        let _ = fs::remove_file(self.pins(id));
        let path = self.path(id);
        // Of a daemon that was killed while it wrote.
        let _ = fs::remove_file(path.with_extension("new"));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.error("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// All records, in order of id, and what could not be read.
    pub fn records(&self) -> (Vec<Record>, Vec<Unreadable>) {
        let (mut records, mut unreadable) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return (records, unreadable),
            Err(e) => {
                let error = self.error("list", &self.directory, e);
                return (records, vec![Unreadable { job: None, text: Vec::new(), error }]);
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let (text, record) = match fs::read(&path) {
                Ok(text) => {
                    let record = serde_json::from_slice::<Record>(&text).map_err(io::Error::from);
                    (text, record)
                }
                Err(e) => (Vec::new(), Err(e)),
            };
            match record {
                Ok(record) => records.push(record),
                Err(e) => {
                    let job = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
                    unreadable.push(Unreadable { job, text, error: self.error("read", &path, e) });
                }
            }
        }
        records.sort_unstable_by_key(|record| record.id);
        (records, unreadable)
    }

    /// Removes the store, unless there is a job in it.
    pub fn destroy(&self) {
        self.remove_leftovers();
        let _ = fs::remove_dir(&self.directory);
    }

    /// Removes the files of jobs that have no record: a daemon that is killed may have written
    /// these first, or removed them last.
    pub fn remove_leftovers(&self) {
        let left = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
        let has_extension = |path: &PathBuf, extension: &str| {
            path.extension().is_some_and(|found| found == extension)
        };
        let has_job = left.iter().any(|path| has_extension(path, "json"));
        let is_of_no_job = |path: &PathBuf| {
            let of_a_job = ["new", "page", "pins"].iter().any(|it| has_extension(path, it));
            (of_a_job && !path.with_extension("json").exists())
                || (has_extension(path, "entries") && !has_job)
        };
        for path in left.into_iter().filter(is_of_no_job) {
            let _ = fs::remove_file(path);
        }
    }

    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    pub(crate) fn error(&self, operation: &'static str, path: &Path, source: io::Error) -> Error {
        Error { operation, path: path.into(), source }
    }
}

#[cfg(test)]
pub(crate) fn record(id: u64, placement: gang_timetable::record::Placement) -> Record {
    Record {
        id,
        name: format!("job{id}"),
        owner_uid: 0,
        class: "batch".into(),
        policy: "gang".into(),
        weight: 100,
        cpus: 2,
        min_cpus: 1,
        registered_at_ns: 0,
        suspended: false,
        suspended_by_group: false,
        stops_foreign: false,
        placement,
        normal: Default::default(),
        keeps_attributes: false,
        affinity: vec![0],
        signals: false,
        mem_bytes: 0,
        disk_bytes: 0,
        joined: Vec::new(),
        coming: None,
        nonce: None,
        slurm_job: None,
        auto: true,
    }
}

#[cfg(test)]
mod tests {
    use gang_timetable::record::Placement;

    use super::*;

    #[test]
    fn records_are_ordered_and_damage_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().join("jobs"));
        assert_eq!(store.records().0, []);
        store.create().unwrap();
        let tree = || Placement::Tree { processes: vec![(7, 9)] };
        for id in [10, 2] {
            store.put(&record(id, tree())).unwrap();
        }
        fs::write(store.directory().join("3.json"), "{").unwrap();
        fs::write(store.directory().join("4.new"), "{").unwrap();
        let (records, unreadable) = store.records();
        assert_eq!(records.iter().map(|r| r.id).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(records[0], record(2, tree()));
        let [Unreadable { job: Some(3), text, error }] = &unreadable[..] else {
            panic!("{unreadable:?}")
        };
        assert_eq!(text, b"{");
        assert!(error.to_string().contains("3.json"), "{error}");
        store.remove(2).unwrap();
        store.remove(2).unwrap();
        assert_eq!(store.records().0.len(), 1);
    }

    #[test]
    fn other_users_neither_list_nor_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().join("jobs"));
        fs::create_dir(store.directory()).unwrap();
        fs::set_permissions(store.directory(), Permissions::from_mode(0o755)).unwrap();
        store.create().unwrap();
        store.put(&record(1, Placement::Tree { processes: Vec::new() })).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(store.directory()), mode(&store.path(1))), (0o711, 0o600));
        for planted in [0o777, 0o775] {
            fs::set_permissions(store.directory(), Permissions::from_mode(planted)).unwrap();
            let refused = store.create().unwrap_err();
            assert!(refused.source.to_string().contains("others may write"), "{}", refused.source);
        }
        let link = Store::at(directory.path().join("link"));
        std::os::unix::fs::symlink("/etc", link.directory()).unwrap();
        assert!(link.create().unwrap_err().source.to_string().contains("it is a link"));
    }

    #[test]
    fn record_is_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (store, dear) = (Store::at(directory.path()), directory.path().join("dear"));
        fs::write(&dear, "dear").unwrap();
        let record = record(1, Placement::Tree { processes: Vec::new() });
        for planted in ["1.new", "1.json"] {
            std::os::unix::fs::symlink(&dear, directory.path().join(planted)).unwrap();
            store.put(&record).unwrap();
            assert_eq!(fs::read_to_string(&dear).unwrap(), "dear", "{planted}");
            assert_eq!(store.records().0, std::slice::from_ref(&record));
            store.remove_record(1).unwrap();
        }
    }

    #[test]
    fn record_that_cannot_be_written_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        // Nothing can be renamed to a directory.
        fs::create_dir(directory.path().join("1.json")).unwrap();
        let record = record(1, Placement::Tree { processes: Vec::new() });
        let error = store.put(&record).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
