//! Which job a person means.

use anyhow::{Result, bail};
use gang_protocol::client::Client;
use gang_protocol::v1;

/// The id of a job given by its id or by a name that only one job has. Digits are an id.
pub fn resolve(client: &mut Client, given: &str) -> Result<i64> {
    match given.parse() {
        Ok(id) => Ok(id),
        Err(_) => by_name(&client.list_jobs()?.jobs, given),
    }
}

fn by_name(jobs: &[v1::Job], name: &str) -> Result<i64> {
    let mut ids = jobs.iter().filter(|job| job.name == name).map(|job| job.id);
    match (ids.next(), ids.next()) {
        (Some(id), None) => Ok(id),
        (Some(first), Some(second)) => {
            let all: Vec<String> =
                [first, second].into_iter().chain(ids).map(|id| id.to_string()).collect();
            bail!("the name {name} has more than one job, say which: {}", all.join(", "))
        }
        (None, _) => bail!("there is no job {name}; `gang ls` lists them"),
    }
}

#[cfg(test)]
mod tests {
    use gang_view::fixture::job;

    use super::*;

    #[test]
    fn a_name_must_be_unique() {
        let jobs = [job(1, "lu"), job(4, "sp"), job(7, "lu")];
        assert_eq!(by_name(&jobs, "sp").unwrap(), 4);
        let message = by_name(&jobs, "lu").unwrap_err().to_string();
        assert!(message.ends_with("say which: 1, 7"), "{message}");
        let message = by_name(&jobs, "mg").unwrap_err().to_string();
        assert!(message.contains("no job mg"), "{message}");
    }
}
