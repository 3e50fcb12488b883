//! The names of the registry's keys.
//!
//! ```text
//! /gang/CLUSTER/registry/settings            the same for all hosts
//! /gang/CLUSTER/registry/hosts/HOST/record   columns of a host; it stays while the host is away
//! /gang/CLUSTER/registry/hosts/HOST/jobs/ID  a job, as it was registered at that host
//! /gang/CLUSTER/registry/matrix/state        changed by every change of the matrix
//! /gang/CLUSTER/registry/matrix/jobs/ID      the entries of a job, and its wanted state
//! /gang/CLUSTER/registry/matrix/adjuster     the host that adjusts; leased
//! /gang/CLUSTER/alive/HOST                   clock, load, revision read; leased
//! ```
//!
//! Every host watches all of `registry`. It is below a prefix of its own since `alive` changes
//! often and concerns few. A host may write below its own `hosts/HOST/`, its `alive` and `matrix/`
//! ([`Keys::writable`]), so that none can register a job as another. Root of any host can thus
//! suspend, kill and move every job of the cluster.

use gang_schedule::JobId;

/// The number of the first job of a cluster. Jobs of one host have smaller ones, so that no record
/// of the registry can be of such a job.
pub const FIRST_JOB: u64 = JobId::FIRST_SPANNING.0;

/// The keys of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

/// The meaning of a key of the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Settings,
    Host(String),
    Job { host: String, job: JobId },
    State,
    Entries(JobId),
    Adjuster,
}

/// The most characters of a host's or a cluster's name.
const NAME_MAX: usize = 253;

/// Whether this can be the name of a host or a cluster: letters, digits, `.`, `-` and `_`.
pub fn is_name(name: &str) -> bool {
    let is_of = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    let is_dots = name.chars().all(|it| it == '.');
    !is_dots && name.len() <= NAME_MAX && name.chars().all(is_of)
}

impl Keys {
    /// The keys of a cluster. None where the name cannot be one ([`is_name`]).
    pub fn new(cluster: &str) -> Option<Keys> {
        is_name(cluster).then(|| Keys { prefix: format!("/gang/{cluster}/") })
    }

    /// The prefix that all hosts watch.
    pub fn registry(&self) -> String {
        format!("{}registry/", self.prefix)
    }

    /// The prefix of the hosts that are alive.
    pub fn all_alive(&self) -> String {
        format!("{}alive/", self.prefix)
    }

    pub fn alive(&self, host: &str) -> String {
        format!("{}alive/{host}", self.prefix)
    }

    pub fn of(&self, key: &Key) -> String {
        let registry = self.registry();
        match key {
            Key::Settings => format!("{registry}settings"),
            Key::Host(host) => format!("{registry}hosts/{host}/record"),
            Key::Job { host, job } => format!("{registry}hosts/{host}/jobs/{job}"),
            Key::State => format!("{registry}matrix/state"),
            Key::Entries(job) => format!("{registry}matrix/jobs/{job}"),
            Key::Adjuster => format!("{registry}matrix/adjuster"),
        }
    }

    /// The meaning of a key; none of one that no version known here writes.
    pub fn parse(&self, key: &str) -> Option<Key> {
        let parts: Vec<&str> = key.strip_prefix(&self.registry())?.split('/').collect();
        let host = |name: &str| is_name(name).then(|| name.to_owned());
        let job = |id: &str| id.parse().ok().filter(|&id| id >= FIRST_JOB).map(JobId);
        let of = match parts[..] {
            ["settings"] => Key::Settings,
            ["hosts", name, "record"] => Key::Host(host(name)?),
            ["hosts", name, "jobs", id] => Key::Job { host: host(name)?, job: job(id)? },
            ["matrix", "state"] => Key::State,
            ["matrix", "jobs", id] => Key::Entries(job(id)?),
            ["matrix", "adjuster"] => Key::Adjuster,
            _ => return None,
        };
        // One that is spelled in another way is another key.
        (self.of(&of) == key).then_some(of)
    }

    /// The prefixes below which a host writes, and the single key: what its role permits.
    pub fn writable(&self, host: &str) -> ([String; 2], String) {
        let registry = self.registry();
        ([format!("{registry}hosts/{host}/"), format!("{registry}matrix/")], self.alive(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_parsed_as_it_was_spelled() {
        let keys = Keys::new("lab").unwrap();
        let host = || "a.b-c".to_owned();
        for key in [
            Key::Settings,
            Key::Host(host()),
            Key::Job { host: host(), job: JobId(FIRST_JOB + 17) },
            Key::State,
            Key::Entries(JobId(FIRST_JOB + 17)),
            Key::Adjuster,
        ] {
            assert_eq!(keys.parse(&keys.of(&key)), Some(key));
        }
        for odd in [
            "/gang/lab/registry/matrix/jobs/01000000017",
            "/gang/lab/registry/matrix/jobs/17",
            "/gang/lab/registry/matrix/jobs/x",
            "/gang/lab/registry/hosts/../record",
            "/gang/lab/registry/hosts/a/b/record",
            "/gang/lab/registry/matrix/rows",
            "/gang/other/registry/settings",
            "/gang/lab/alive/a",
        ] {
            assert_eq!(keys.parse(odd), None, "{odd}");
        }
        assert_eq!(Keys::new("a/b"), None);
        assert_eq!(Keys::new(""), None);
    }

    #[test]
    fn hosts_write_below_their_own_prefix_and_the_matrix() {
        let keys = Keys::new("lab").unwrap();
        let ([own, matrix], alive) = keys.writable("a");
        let may = |key: &Key| {
            let key = keys.of(key);
            key.starts_with(&own) || key.starts_with(&matrix)
        };
        assert!(may(&Key::Job { host: "a".to_owned(), job: JobId(FIRST_JOB) }) && may(&Key::State));
        assert!(!may(&Key::Job { host: "ab".to_owned(), job: JobId(FIRST_JOB) }));
        assert!(!may(&Key::Settings) && alive == keys.alive("a"));
    }
}
