//! What must be known of a job when nobody is left who remembers it.
//!
//! One file for each job, in a directory beside the daemon's socket. The guardian reads them to
//! release the jobs of a daemon that died, and the next daemon to find its jobs again.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gang_timetable::{Attributes, Policy};
use serde::{Deserialize, Serialize};

use crate::singles::Single;

/// How to find the processes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whereabouts {
    /// Its own cgroup of version 2, and the cpu group of version 1 that its processes were put into.
    /// The homes are where they came from.
    Cgroup {
        group: PathBuf,
        home: PathBuf,
        cpu_group: Option<PathBuf>,
        cpu_home: Option<PathBuf>,
        /// Other jobs are in the cpu group too; it outlives this one.
        cpu_group_is_shared: bool,
        /// The group was there before the job, and stays.
        adopted: bool,
        /// Where its memory is limited.
        #[serde(default)]
        memory: Option<Confinement>,
    },
    /// Processes, each with the time it started (clock ticks since boot).
    Tree { processes: Vec<(u32, u64)> },
    /// Single threads, wherever their processes are.
    Threads { threads: Vec<Single> },
}

impl Whereabouts {
    /// Where the memory of the job is limited.
    pub fn confinement(&self) -> Option<&Confinement> {
        match self {
            Whereabouts::Cgroup { memory, .. } => memory.as_ref(),
            Whereabouts::Tree { .. } | Whereabouts::Threads { .. } => None,
        }
    }

    pub fn set_confinement(&mut self, to: Option<Confinement>) {
        if let Whereabouts::Cgroup { memory, .. } = self {
            *memory = to;
        }
    }
}

/// A group whose memory the kernel limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub group: PathBuf,
    /// Of version 1: where the processes came from. Of version 2 it is the job's own group.
    pub home: Option<PathBuf>,
    /// Of version 2: the limit of where they came from, in bytes, which they are to keep.
    #[serde(default)]
    pub inherited: Option<u64>,
}

/// A process that came into a job from other groups than the first one of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomer {
    pub pid: u32,
    pub home: PathBuf,
    pub cpu_home: Option<PathBuf>,
    pub memory_home: Option<PathBuf>,
}

/// The attributes that a released thread gets; the policy by its number in sched(7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Normal {
    pub policy: u32,
    pub nice: i32,
    pub priority: u32,
}

impl From<Attributes> for Normal {
    fn from(attributes: Attributes) -> Self {
        let Attributes { policy, nice, priority, .. } = attributes;
        Normal { policy: policy.number(), nice, priority }
    }
}

impl From<Normal> for Attributes {
    fn from(normal: Normal) -> Self {
        let policy = Policy::from_number(normal.policy).unwrap_or(Policy::Other);
        Attributes { policy, nice: normal.nice, priority: normal.priority, reset_on_fork: false }
    }
}

/// A job on file. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: u64,
    pub name: String,
    pub owner_uid: u32,
    pub class: String,
    pub policy: String,
    pub weight: u32,
    pub cpus: u32,
    pub min_cpus: u32,
    pub registered_at_ns: u64,
    pub suspended: bool,
    pub whereabouts: Whereabouts,
    pub normal: Normal,
    /// CPUs its first process might run on.
    pub affinity: Vec<u32>,
    /// Its processes hear of its slots by signals.
    #[serde(default)]
    pub signals: bool,
    /// It is proved which policy it is to have; the one above is that which it has.
    #[serde(default)]
    pub auto: bool,
    /// What it was promised; 0 for nothing.
    #[serde(default)]
    pub mem_bytes: u64,
    #[serde(default)]
    pub disk_bytes: u64,
    #[serde(default)]
    pub newcomers: Vec<Newcomer>,
    /// The first process, with its start time, while it is on its way into the job's groups.
    #[serde(default)]
    pub coming: Option<(u32, u64)>,
}

/// A file of the store that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}")]
pub struct Error {
    pub operation: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

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

    pub fn create(&self) -> Result<(), Error> {
        fs::create_dir_all(&self.directory).map_err(|e| self.error("create", &self.directory, e))
    }

    /// Writes a record whole or not at all.
    pub fn put(&self, record: &Record) -> Result<(), Error> {
        let path = self.path(record.id);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other);
        text.and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path))
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

    pub fn remove(&self, id: u64) -> Result<(), Error> {
        // Few jobs have one; a page that stays says by itself that it counts no more.
        let _ = fs::remove_file(self.page(id));
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
    pub fn records(&self) -> (Vec<Record>, Vec<Error>) {
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return (records, errors),
            Err(e) => return (records, vec![self.error("list", &self.directory, e)]),
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text =
                fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Record>(&text)?));
            match text {
                Ok(record) => records.push(record),
                Err(e) => errors.push(self.error("read", &path, e)),
            }
        }
        records.sort_unstable_by_key(|record| record.id);
        (records, errors)
    }

    /// Removes the store, unless there is a job in it.
    pub fn destroy(&self) {
        // A daemon that is killed may have written these first, or removed them last.
        let is_of_no_job = |path: &PathBuf| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("new" | "page" | "pins"))
                && !path.with_extension("json").exists()
        };
        let left = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for path in left.map(|entry| entry.path()).filter(is_of_no_job) {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.directory);
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    fn error(&self, operation: &'static str, path: &Path, source: io::Error) -> Error {
        Error { operation, path: path.into(), source }
    }
}

#[cfg(test)]
pub(crate) fn record(id: u64, whereabouts: Whereabouts) -> Record {
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
        whereabouts,
        normal: Normal::default(),
        affinity: vec![0],
        signals: false,
        mem_bytes: 0,
        disk_bytes: 0,
        newcomers: Vec::new(),
        coming: None,
        auto: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_back_the_policy_that_it_had() {
        for policy in Policy::ALL {
            let had = Attributes { policy, ..Attributes::other(3) };
            assert_eq!(Attributes::from(Normal::from(had)), had);
        }
        assert_eq!(Normal::from(Attributes::idle(0)).policy, 5, "as in sched(7)");
    }

    #[test]
    fn records_come_back_in_order_and_damage_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path().join("jobs"));
        assert_eq!(store.records().0, []);
        store.create().unwrap();
        let tree = || Whereabouts::Tree { processes: vec![(7, 9)] };
        for id in [10, 2] {
            store.put(&record(id, tree())).unwrap();
        }
        fs::write(store.directory().join("3.json"), "{").unwrap();
        fs::write(store.directory().join("4.new"), "{").unwrap();
        let (records, errors) = store.records();
        assert_eq!(records.iter().map(|r| r.id).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(records[0], record(2, tree()));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().contains("3.json"), "{}", errors[0]);
        store.remove(2).unwrap();
        store.remove(2).unwrap();
        assert_eq!(store.records().0.len(), 1);
    }
}
