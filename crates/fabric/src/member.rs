//! A port of a program in a job: what its daemon gives it, and what it tells the daemon.
//!
//! A program without a daemon goes on as if it were in no job.

use gang_net::Key;
use gang_protocol::{client::Client, error::ClientError, paths::Surroundings};

use crate::{
    settings::key_of,
    slot::{Slot, Unknown},
};

/// The connection to the daemon while a domain is opened.
#[derive(Debug)]
pub struct Member {
    client: Client,
    job: i64,
}

impl Member {
    /// # Errors
    /// No daemon answers.
    pub fn of(job: i64) -> Result<Member, ClientError> {
        // No number of another process is asked for, so the daemon may be outside of a container.
        let client = Client::find_beyond(&Surroundings::of_this_process())?;
        Ok(Member { client, job })
    }

    /// The slot page of the job.
    ///
    /// # Errors
    /// The daemon has no such job, or the page cannot be mapped.
    pub fn slot(&mut self) -> Result<Slot, Unknown> {
        let path = self.client.slot_page(self.job).map_err(Unknown::Daemon)?;
        Slot::open(path.as_ref()).map_err(|error| Unknown::Page(path, error))
    }

    /// The key of the job's ports.
    ///
    /// # Errors
    /// This process is not in the job, or the daemon is too old to have one.
    pub fn key(&mut self) -> Result<Option<Key>, ClientError> {
        self.client.net_key(self.job).map(|text| key_of(&text))
    }

    /// Has the daemon flush a port.
    ///
    /// # Errors
    /// The daemon may not see the port.
    pub fn add_port(&mut self, page: i32) -> Result<(), ClientError> {
        self.client.add_port(self.job, page.into())
    }
}
