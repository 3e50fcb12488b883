//! Two hosts of a cluster.

use std::ops::{Deref, DerefMut};

use gang_daemon::{TwoHosts, stderr, stdout};
use gang_protocol::{error::ClientError, v1};

use crate::place::{Place, Program, has_backend, wait_until};

/// Two hosts of a cluster.
pub struct Bed(TwoHosts<Place>);

impl Deref for Bed {
    type Target = TwoHosts<Place>;

    fn deref(&self) -> &TwoHosts<Place> {
        &self.0
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut TwoHosts<Place> {
        &mut self.0
    }
}

impl Bed {
    pub fn start() -> Option<Bed> {
        if !has_backend("rt") {
            return None;
        }
        TwoHosts::start(Place::of).map(Bed)
    }

    /// A job with a spinner on each host, and the connection that has registered it.
    pub fn job(&self, name: &str) -> (i64, [Program; 2]) {
        let mut client = self.a.client();
        let id = client.register_spanning(wanted(name, &[("a", 1), ("b", 1)])).unwrap().job;
        let programs = [Program::spinner(), Program::spinner()];
        client.add_process(id, programs[0].pid_i64()).unwrap();
        wait_until("b has its part", || self.b.job(id).is_some());
        self.b.client().add_process(id, programs[1].pid_i64()).unwrap();
        (id, programs)
    }

    pub fn wait_for_slots(&self, id: i64, when: &str) {
        for place in [&self.a, &self.b] {
            let before = place.job(id).map_or(0, |job| job.slots);
            let more = || place.job(id).is_some_and(|job| job.slots > before + 5);
            wait_until(&format!("slots {when}"), more);
        }
    }
}

pub fn cluster(place: &Place) -> v1::Cluster {
    place.client().cluster().unwrap().expect("it is in a cluster")
}

pub fn spanning(place: &Place, id: i64) -> Option<v1::SpanningJob> {
    cluster(place).jobs.into_iter().find(|job| job.id == id)
}

pub fn wanted(name: &str, hosts: &[(&str, i64)]) -> v1::RegisterSpanning_Args {
    let cpus = |&(host, cpus): &(&str, i64)| v1::HostCpus {
        host: host.to_owned(),
        cpus,
        ranks: None,
        allowed: None,
    };
    v1::RegisterSpanning_Args {
        name: name.to_owned(),
        cpus: hosts.iter().map(cpus).collect(),
        class: v1::Class::batch,
        weight: 100,
        on_host_lost: v1::OnHostLost::mark,
        owner_uid: None,
        launched_as: None,
    }
}

pub fn reason(refused: Result<v1::RegisterSpanning_Reply, ClientError>) -> String {
    refused.expect_err("it is refused").to_string()
}

/// The output of a command of `gang` at a host.
pub fn gang(place: &Place, args: &[&str]) -> String {
    let output = place.command(place.programs.join("gang")).args(args).output().unwrap();
    format!("{}{}", stdout(&output), stderr(&output))
}
