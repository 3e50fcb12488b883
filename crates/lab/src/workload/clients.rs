//! Many clients at once, each of which registers jobs, gives each a process, and ends it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use gang_linux::child::ends_with_its_parent;
use gang_protocol::client::{Client, Registration};
use serde::{Deserialize, Serialize};

use super::{on_threads, seconds};

#[derive(Args, Debug, Clone)]
pub struct Clients {
    /// Socket of the daemon
    #[arg(long)]
    pub socket: PathBuf,
    #[arg(long, default_value_t = 50)]
    pub clients: usize,
    /// Jobs that each of them has at a time
    #[arg(long, default_value_t = 20)]
    pub jobs: usize,
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub seconds: Duration,
    /// Rest once they have as many
    #[arg(long)]
    pub hold: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientsOutcome {
    pub registered: u64,
    /// Jobs of which the daemon did not know any more while they had a process.
    pub lost: u64,
    /// Time of each registration, and of each process added, ordered.
    pub register_ns: Vec<u64>,
    pub add_ns: Vec<u64>,
}

/// A process that sleeps until it is killed.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Result<Sleeper> {
        let mut command = Command::new("sleep");
        ends_with_its_parent(command.arg("3600").stdin(Stdio::null()).stdout(Stdio::null()));
        command.spawn().map(Sleeper).context("starting sleep")
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Clients {
    pub fn run(&self) -> Result<ClientsOutcome> {
        let end = Instant::now() + self.seconds;
        let outcomes = on_threads(self.clients, |number| self.client(number, end))?;
        let mut sum =
            ClientsOutcome { registered: 0, lost: 0, register_ns: Vec::new(), add_ns: Vec::new() };
        for outcome in outcomes {
            let outcome = outcome?;
            sum.registered += outcome.registered;
            sum.lost += outcome.lost;
            sum.register_ns.extend(outcome.register_ns);
            sum.add_ns.extend(outcome.add_ns);
        }
        sum.register_ns.sort_unstable();
        sum.add_ns.sort_unstable();
        Ok(sum)
    }

    fn client(&self, number: usize, end: Instant) -> Result<ClientsOutcome> {
        let mut client = Client::connect(&self.socket)?;
        let mut held: Vec<(i64, Sleeper)> = Vec::new();
        let mut outcome =
            ClientsOutcome { registered: 0, lost: 0, register_ns: Vec::new(), add_ns: Vec::new() };
        while Instant::now() < end {
            if held.len() >= self.jobs && self.hold {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            if held.len() >= self.jobs {
                let (job, _sleeper) = held.remove(0);
                outcome.lost += u64::from(client.show_job(job).is_err());
            }
            let sleeper = Sleeper::start()?;
            let wanted = Registration::new(format!("client {number}"), 1);
            let began = Instant::now();
            let job = client.register(&wanted)?;
            outcome.register_ns.push(began.elapsed().as_nanos() as u64);
            let began = Instant::now();
            client.add_process(job, sleeper.0.id().into())?;
            outcome.add_ns.push(began.elapsed().as_nanos() as u64);
            outcome.registered += 1;
            held.push((job, sleeper));
        }
        for (job, _sleeper) in held {
            outcome.lost += u64::from(client.show_job(job).is_err());
        }
        Ok(outcome)
    }
}
