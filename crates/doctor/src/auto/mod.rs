//! `gang-doctor --auto`: proves the jobs of policy `auto` of a daemon, while they run.
//!
//! Problem: whether a program is better off as a gang depends on it and on who competes with it;
//! both change. Finding out has a price: in half of a comparison the program is scheduled the worse
//! way.
//!
//! Approach: one job at a time. Where others compete for its CPUs, it is a gang and Linux's in
//! turn, in pairs of periods ([`crate::proof`]), until the pairs are clear (`verdict`). Then the
//! daemon gets the decision. Now and then a glance of half a second looks whether the job behaves
//! as it did (`behaviour`). Glances become rarer the longer it does (`glances`); where it does not,
//! it is compared again. All of this is paid from an account (`ledger`).
//!
//! Properties: a job is never left as it was tried: the daemon takes it back where this program
//! ends or falls silent (`crate::pulse`). Of a job no file is opened, and nothing is read but the
//! kernel's lists and figures; this program gives up all rights that that does not take
//! (`crate::confinement`).

mod behaviour;
mod glances;
mod job;
mod ledger;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use gang_linux::Roots;
use gang_protocol::{
    client::Client,
    error::ClientError,
    v1::{self, Policy},
};

use crate::{
    cli::Auto,
    confinement::confine,
    program::{is_awake, is_gang},
    pulse::Pulse,
    sampler::{Sampler, Ticks},
};
use behaviour::Competition;
use job::{Around, AutoJob};

/// How often jobs are listed.
const ROUND: Duration = Duration::from_secs(1);

/// Of the time, listing them takes this part at most: there may be thousands.
const LISTING: u32 = 100;

/// How often any of the jobs is glanced at, at most: a tenth of the time.
const GLANCE_EVERY: Duration = Duration::from_secs(5);

/// Proves jobs until the daemon ends, or closes our standard input. Says first on standard output
/// whether it can measure here: `ready`, or why not.
pub fn run(Auto { cost, without, user }: Auto) -> Result<()> {
    // As the user that started this program: the daemon decides by that what this client may do.
    let client = Client::find().context("cannot find the daemon whose jobs are to be proved")?;
    let roots = Roots::default();
    // Which group does not matter: none of its threads needs to be there.
    let tried = confine(user)
        .and_then(|()| Sampler::begin(&roots, Path::new("/"), 1, Ticks::Many).map(drop));
    let mut stdout = std::io::stdout();
    match &tried {
        Ok(()) => writeln!(stdout, "ready")?,
        Err(error) => writeln!(stdout, "{error:#}")?,
    }
    stdout.flush()?;
    if tried.is_err() {
        return Ok(());
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let pulse = Pulse::beating();
    let (jobs, next_glance) = (BTreeMap::new(), Instant::now());
    Prover { roots, client, cost, without, pulse, jobs, next_glance }.run()
}

struct Prover {
    roots: Roots,
    client: Client,
    /// The cost that a job may have, as a share of its time.
    cost: f64,
    /// Jobs at which doctors before this one ended.
    without: BTreeSet<i64>,
    pulse: Pulse,
    jobs: BTreeMap<i64, AutoJob>,
    next_glance: Instant,
}

impl Prover {
    fn run(mut self) -> Result<()> {
        loop {
            self.pulse.at(None)?;
            let began = Instant::now();
            let jobs = self.client.list_jobs()?.jobs;
            let status = self.client.status()?.status;
            let listed = began.elapsed();
            self.note(&jobs, &status);
            let worked = self.work()?;
            if !worked {
                self.pulse.at(None)?;
                self.rest(ROUND.max(listed * LISTING))?;
            }
        }
    }

    fn rest(&self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        loop {
            self.pulse.beat()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(ROUND));
        }
    }

    /// Takes note of who is there, and of who competes with whom.
    fn note(&mut self, jobs: &[v1::Job], status: &v1::Status) {
        let now = Instant::now();
        let is_auto = |id: &i64| jobs.iter().any(|it| it.id == *id && it.policy == Policy::auto);
        self.jobs.retain(|id, _| is_auto(id));
        let without = &self.without;
        let measured = |job: &&v1::Job| job.policy == Policy::auto && !without.contains(&job.id);
        for job in jobs.iter().filter(measured) {
            let around = around(job, jobs, status);
            self.jobs
                .entry(job.id)
                .or_insert_with(|| AutoJob::new(job, self.cost, self.pulse.clone(), now))
                .note(job, around, now);
        }
    }

    /// Does what is due, if anything is.
    fn work(&mut self) -> Result<bool> {
        for job in self.jobs.values_mut() {
            job.send_because(&mut self.client);
        }
        let due = self.jobs.values_mut().filter(|job| job.is_to_be_proved());
        // A job that was begun is finished first: it changes who competes with the others.
        if let Some(job) = due.max_by_key(|job| job.pairs()) {
            let proved = job.prove(&self.roots, &mut self.client);
            return survived(job, proved).map(|()| true);
        }
        if Instant::now() < self.next_glance {
            return Ok(false);
        }
        let due = self.jobs.values_mut().filter(|job| job.is_to_be_glanced_at());
        if let Some(job) = due.min_by_key(|job| job.glanced_at()) {
            self.next_glance = Instant::now() + GLANCE_EVERY;
            let glanced = job.glance(&self.roots);
            survived(job, glanced)?;
        }
        Ok(false)
    }
}

/// A job may end, or become another user's, while it is looked at: the next listing leaves it out.
/// Any other failure is noted on the job, and tried again later. Without its connection this
/// program ends; the daemon starts it anew.
fn survived(job: &mut AutoJob, outcome: Result<()>) -> Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    match error.downcast_ref::<ClientError>() {
        Some(lost) if lost.is_no_daemon() || lost.breaks_the_connection() => return Err(error),
        Some(_) => job.put_off(format!("{error:#}")),
        None => job.put_off(format!("it cannot be measured: {error:#}")),
    }
    Ok(())
}

/// The competition of a job.
fn around(job: &v1::Job, jobs: &[v1::Job], status: &v1::Status) -> Around {
    let wants = |job: &v1::Job| job.threads.min(job.cpus).max(0);
    let gangs = || jobs.iter().filter(|it| it.id != job.id && is_awake(it) && is_gang(it));
    // One that Linux schedules counts among the rest.
    let own = if is_gang(job) { 0 } else { wants(job) };
    let rest = (status.unregistered_threads - own).max(0);
    let threads = gangs().map(wants).sum::<i64>() + rest;
    Around {
        is_awake: is_awake(job),
        gangs: gangs().count(),
        slice: Duration::from_nanos(status.slice_ns.max(0) as u64),
        competition: Competition {
            threads: threads as f64,
            has_gangs: gangs().next().is_some(),
            is_tight: job.cpus.min(status.cpus) + threads > status.cpus,
        },
    }
}
