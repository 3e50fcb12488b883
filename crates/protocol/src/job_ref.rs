//! Which job a person means.

use std::collections::BTreeSet;

use crate::client::Client;
use crate::error::ClientError;
use crate::name::escaped;

/// Why a job is not found.
#[derive(Debug, thiserror::Error)]
pub enum JobRefError {
    #[error("there is no job {}; `gang ls` lists them", escaped(.name))]
    None { name: String },
    #[error("the name {} has more than one job, say which: {}", escaped(.name), list(.ids))]
    Several { name: String, ids: Vec<i64> },
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The id of a job given by its id or by a name that only one job has. Digits are an id. Jobs that
/// span other hosts alone have names, too.
pub fn resolve(client: &mut Client, given: &str) -> Result<i64, JobRefError> {
    match given.parse() {
        Ok(id) => Ok(id),
        Err(_) => {
            let jobs = client.list_jobs()?.jobs;
            let cluster = client.cluster()?;
            let here = jobs.iter().map(|job| (job.id, job.name.as_str()));
            let spanning = cluster.iter().flat_map(|cluster| &cluster.jobs);
            by_name(here.chain(spanning.map(|job| (job.id, job.name.as_str()))), given)
        }
    }
}

fn by_name<'a>(jobs: impl Iterator<Item = (i64, &'a str)>, name: &str) -> Result<i64, JobRefError> {
    let ids: BTreeSet<i64> = jobs.filter(|(_, other)| *other == name).map(|(id, _)| id).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let name = name.to_owned();
    match ids[..] {
        [id] => Ok(id),
        [] => Err(JobRefError::None { name }),
        _ => Err(JobRefError::Several { name, ids }),
    }
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_be_unique() {
        let named = |name: &str| by_name([(1, "lu"), (4, "sp"), (7, "lu")].into_iter(), name);
        assert_eq!(named("sp").unwrap(), 4);
        let message = named("lu").unwrap_err().to_string();
        assert!(message.ends_with("say which: 1, 7"), "{message}");
        // A part of a job that spans hosts, which the cluster has as well.
        assert_eq!(by_name([(9, "cg"), (9, "cg")].into_iter(), "cg").unwrap(), 9);
        let message = named("mg").unwrap_err().to_string();
        assert!(message.contains("no job mg"), "{message}");
    }
}
