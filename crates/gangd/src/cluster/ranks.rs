//! The processes that were added to parts of spanning jobs, which await so many before their first
//! slot.
//!
//! They are on file: a daemon that starts again goes on counting. Some may have ended meanwhile,
//! and what others have started is not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use gang_cluster::record;
use gang_linux::own_files;
use gang_schedule::JobId;
use serde::{Deserialize, Serialize};

/// No part awaits more of them.
const RANKS_MAX: usize = 65_536;

/// The numbers of processes, by part.
#[derive(Debug, Default)]
pub struct Ranks {
    by_job: BTreeMap<JobId, BTreeSet<u32>>,
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    ranks: BTreeMap<u64, BTreeSet<u32>>,
}

impl Ranks {
    /// Those on file; none where the file cannot be read, which is logged.
    pub fn read(file: PathBuf) -> Ranks {
        let lost = |why: String| tracing::warn!(why, "ranks of an earlier daemon are not known");
        let kept = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(text) => Some(record::decode::<Kept>(&text).map_err(|fault| fault.to_string())),
        };
        let kept = kept.and_then(|kept| kept.map_err(lost).ok());
        let of_job = |(job, ranks)| (JobId(job), ranks);
        let by_job = kept.map(|kept| kept.ranks.into_iter().map(of_job).collect());
        Ranks { by_job: by_job.unwrap_or_default(), file }
    }

    pub fn count(&self, job: JobId) -> usize {
        self.by_job.get(&job).map_or(0, BTreeSet::len)
    }

    pub fn add(&mut self, job: JobId, pid: u32) {
        let of_job = self.by_job.entry(job).or_default();
        if of_job.len() < RANKS_MAX && of_job.insert(pid) {
            self.write();
        }
    }

    /// Forgets the parts for which this does not hold.
    pub fn retain(&mut self, holds: impl Fn(&JobId) -> bool) {
        let before = self.by_job.len();
        self.by_job.retain(|job, _| holds(job));
        if self.by_job.len() != before {
            self.write();
        }
    }

    fn write(&self) {
        let ranks = self.by_job.iter().map(|(job, ranks)| (job.0, ranks.clone()));
        let text = record::encode(Kept { ranks: ranks.collect() });
        let done = match self.by_job.is_empty() {
            true => fs::remove_file(&self.file),
            false => {
                let new = self.file.with_extension("new-ranks");
                own_files::replace(&self.file, &new, text.as_bytes(), 0o600)
            }
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the ranks of spanning jobs are not on file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_on_by_the_next_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.ranks");
        let mut ranks = Ranks::read(file.clone());
        let [one, two] = [1, 2].map(|at| JobId(JobId::FIRST_SPANNING.0 + at));
        ranks.add(one, 7);
        ranks.add(one, 7);
        ranks.add(two, 8);
        ranks.add(one, 9);
        let mut ranks = Ranks::read(file.clone());
        assert_eq!([ranks.count(one), ranks.count(two)], [2, 1]);
        ranks.retain(|job| *job == two);
        let ranks = Ranks::read(file.clone());
        assert_eq!([ranks.count(one), ranks.count(two)], [0, 1]);
        fs::write(&file, "{\"v\":1").unwrap();
        assert_eq!(Ranks::read(file).count(two), 0);
    }
}
