//! The Ousterhout matrix: which spanning job runs in which rows, on which CPUs of which hosts.
//!
//! Problem. A job of several hosts needs all of its CPUs on all of them at the same moment, again
//! and again, for the time that its weight gives it on each host. Nobody sends a message at a
//! switch. The matrix is kept in a registry that many hosts read and any of them changes, so that
//! the data of a job must be small and its own, and a change must move few jobs.
//!
//! Approach. Columns are the CPUs of all hosts, rows are slices, and a frame of rows repeats from
//! the full hour (L11, [`frame`]). A job has the same columns in each of its rows, so that its
//! caches stay warm and its entries are one rectangle: [`Placement`]. Nothing in it depends on
//! another job or on the length of the frame. Jobs of one host have no entries: they are placed at
//! each slice on what [`Matrix::slots`] leaves (L14).
//!
//! Terms.
//! - *least frame*: the rows that a frame has at least, which is how finely shares are told apart.
//! - *needed frame*: the rows of which the smallest share is four (`share`), the least frame at
//!   least and the longest one at most. The longest has [`MAX_ROWS`] and the slices of an hour.
//! - *due*: the rows that a job should have, its share of the frame rounded down (`share`); one at
//!   least.
//! - *surplus*: the rows that a job has beyond what it is due, where others came or loads grew.
//! - *free*: a row that nobody has on the columns of a job.
//!
//! Algorithm.
//! 1. A job that comes is due its share on its most loaded host (L15). On each host it takes
//!    columns (`fit`), then the lowest rows: free ones first, then those of neighbours with a
//!    surplus, which lose them. Low rows first is what makes rows nest: two jobs on different hosts
//!    take the same ones and leave the same ones to a third that needs both hosts.
//! 2. Before, the frame gets as long as the needed one. Many jobs of one user thus have small parts
//!    of the time instead of the rows of others. The same change gives rows to the jobs that lack
//!    the most, as in 5. Where one change cannot move all jobs, the frame doubles at most, and the
//!    adjustments go on: each once all jobs have what they are due.
//! 3. Where the rows of the job are too few, the frame gets rows at its end, until the job has its
//!    share of the needed frame. That happens where jobs exclude each other by threes, or do not
//!    nest. All others then have a smaller part of the frame, until they are given new rows, too.
//! 4. Once a job has gone, and before each adjustment, the frame is repacked down to the needed
//!    one: a job with an entry in the last row takes a free row instead; or does without, where it
//!    has its share of the needed frame; or, at an adjustment, goes to other columns. Where all
//!    jobs of the row can, the frame is a row shorter.
//! 5. The adjustment (L16) gives rows to the jobs that lack the most, first free ones, then those
//!    of others with a surplus, and takes what is left of surpluses. Up to 3 % of what a job is due
//!    it leaves alone.
//! 6. The frame ends with the last row in use, so that it follows from the placements whatever
//!    loads a host knows. Where the last rows of the needed frame are free, the local load has
//!    them, and one job has the very last row instead of one of its own.
//! 7. Each job has a row at least. A job is refused where the longest frame is too short for it and
//!    small jobs of its user would have more than the part of the user: with four times as many
//!    users as there are, more than a row and a hundredth of the frame beyond that part.
//!
//! Packing: of four ways to choose columns, those that leave the most rows are taken. Streams of
//! jobs as in the archives of parallel workloads gave the following. The frame is in parts of the
//! least one, shares are in parts of what jobs are due, and moves are placements of others for each
//! job that comes or goes (`cargo run --release -p gang-schedule --example packing`):
//!
//! | | 16 hosts, 5 jobs | 64 hosts, 5 jobs | 64 hosts, 9 jobs |
//! |---|---|---|---|
//! | | frame, share, moves | frame, share, moves | frame, share, moves |
//! | first fit | 1.097, 0.969, 1.25 | 1.174, 0.941, 0.87 | 1.494, 0.918, 2.35 |
//! | best fit | 1.092, 0.970, 1.28 | 1.176, 0.944, 0.95 | 1.467, 0.921, 2.48 |
//! | buddy | 1.108, 0.969, 1.84 | 1.202, 0.944, 1.49 | 1.585, 0.908, 3.45 |
//! | most room | 1.095, 0.970, 1.11 | 1.176, 0.944, 0.88 | 1.373, 0.937, 2.52 |
//!
//! All four have their rows unified when the frame is repacked. A job of many hosts can have only
//! the rows that all of them leave. Tight columns on the first host, by best fit or by blocks of
//! powers of two, are thus columns that the last host does not match. Placed anew, wide jobs first
//! ([`Matrix::rebuild`]), frames were 1.08, 1.13 and 1.24 of the least one.
//!
//! Properties:
//! - in a row no CPU belongs to two jobs, and a job has all its CPUs on all its hosts in the same
//!   rows;
//! - once an adjustment changes nothing, a job has the rows that it is due, within 3 % or the row
//!   to which shares are rounded, or its columns have no free row; none has more;
//! - then the jobs of a user have no more entries on a host than his share of the frame, within
//!   3 %, and the local load has what is left, unless shares are less than a row of the longest
//!   frame;
//! - a change moves [`MAX_MOVES`] jobs at most, and says which; all others stay as they are;
//! - after a job has gone, some job needs the last row of a frame that is longer than the needed
//!   one, or more jobs would have to move than may;
//! - a decision depends only on hosts, loads, spans and placements: a host that has read them from
//!   the registry goes on as one that made them.
//!
//! The whole is compared with a naive version (tests/matrix/naive.rs). LLNL's example of L15 is a
//! script (tests/matrix/scripts/llnl.txt).

mod apply;
mod change;
pub mod fit;
pub mod frame;
mod rows;
mod seat;
mod share;
mod span;

pub use rows::Rows;
pub use span::{Change, HostId, Load, Placement, Refused, Span};

use crate::accounts::Asking;
use crate::schedule::MAX_JOBS;
use crate::{Config, CpuSet, JobId, MAX_CPUS, Slot, Spec};
use fit::{Fit, most_room};
use std::collections::BTreeMap;

/// The most rows of a frame.
pub const MAX_ROWS: u32 = 4096;
/// The most jobs that one change moves, itself included. A transaction of etcd has 128 operations:
/// one for each of them, and some for what all changes have.
pub const MAX_MOVES: usize = 100;

/// The matrix: hosts, spanning jobs, and their entries.
#[derive(Debug, Clone)]
pub struct Matrix {
    config: Config,
    /// The rows that a frame has at least.
    least_frame: u32,
    /// The rows of the frame: the least ones, or up to the last one in use.
    frame: u32,
    hosts: BTreeMap<HostId, Host>,
    jobs: BTreeMap<JobId, Job>,
    fit: Fit,
}

/// A host, and what follows from the jobs on it.
#[derive(Debug, Clone)]
struct Host {
    load: Load,
    /// The rows in which each column is taken.
    taken: Vec<Rows>,
    /// The requests of its jobs, by id.
    jobs: Vec<Asking>,
    /// The shares of its jobs, in the same order, see `share`.
    shares: Vec<u64>,
    /// The smallest of them, without jobs that of all rows.
    smallest: u64,
}

#[derive(Debug, Clone)]
struct Job {
    span: Span,
    placement: Placement,
}

impl Matrix {
    /// A matrix without hosts, whose frame has so many rows at least. Of the settings, the length
    /// of a slice, the weights of classes and the sharing matter.
    ///
    /// # Errors
    /// [`Refused::Config`] and [`Refused::Rows`]: at most [`MAX_ROWS`] and the slices of an hour.
    pub fn new(config: Config, rows: u32) -> Result<Matrix, Refused> {
        config.validate()?;
        let matrix = Matrix {
            config,
            least_frame: rows,
            frame: rows,
            hosts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            fit: most_room,
        };
        let max = matrix.longest();
        if (1..=max).contains(&rows) { Ok(matrix) } else { Err(Refused::Rows { rows, max }) }
    }

    /// The same, packed in another way.
    #[must_use]
    pub fn packed_by(self, fit: Fit) -> Matrix {
        Matrix { fit, ..self }
    }

    /// A host joins, with so many columns and without load.
    ///
    /// # Errors
    /// [`Refused::DuplicateHost`] and [`Refused::Cpus`].
    pub fn add_host(&mut self, host: HostId, cpus: u32) -> Result<(), Refused> {
        if self.hosts.contains_key(&host) {
            return Err(Refused::DuplicateHost { host });
        }
        if !(1..=MAX_CPUS).contains(&cpus) {
            return Err(Refused::Cpus { cpus, max: MAX_CPUS });
        }
        let taken = vec![Rows::new(); cpus as usize];
        let new = Host {
            load: Load::default(),
            taken,
            jobs: Vec::new(),
            shares: Vec::new(),
            smallest: share::WHOLE,
        };
        self.hosts.insert(host, new);
        Ok(())
    }

    /// A host leaves. Its jobs must have been removed.
    ///
    /// # Errors
    /// [`Refused::UnknownHost`] and [`Refused::HostInUse`].
    pub fn remove_host(&mut self, host: HostId) -> Result<(), Refused> {
        let jobs = self.hosts.get(&host).ok_or(Refused::UnknownHost { host })?.jobs.len();
        if jobs > 0 {
            return Err(Refused::HostInUse { host, jobs });
        }
        self.hosts.remove(&host);
        Ok(())
    }

    /// A host has another load beside spanning jobs. Entries change with the next
    /// [`Matrix::adjust`].
    ///
    /// # Errors
    /// [`Refused::UnknownHost`] and [`Refused::Load`].
    pub fn set_load(&mut self, host: HostId, load: Load) -> Result<(), Refused> {
        let of = self.hosts.get_mut(&host).ok_or(Refused::UnknownHost { host })?;
        let known = load.of_users.values().map(|&count| u64::from(count)).sum();
        if known > u64::from(load.threads) {
            return Err(Refused::Load { host, threads: load.threads, known });
        }
        of.load = load;
        of.weigh(&self.config);
        Ok(())
    }

    /// A job is in the matrix, with these entries: as the registry has it.
    ///
    /// # Errors
    /// Those of [`Matrix::place`], [`Refused::OtherCpus`], [`Refused::Taken`] and
    /// [`Refused::Rows`]. Nothing was changed then.
    pub fn restore(&mut self, job: JobId, span: Span, placement: Placement) -> Result<(), Refused> {
        self.validate(job, &span)?;
        self.check_fit(job, &span, &placement)?;
        self.join(job, span);
        self.hold(job, placement);
        self.fit_frame();
        Ok(())
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The rows of a frame.
    pub fn frame(&self) -> u32 {
        self.frame
    }

    /// The row that runs in a slice, see [`frame`].
    pub fn row_at(&self, slice: u64) -> u32 {
        frame::row_at(&self.config, self.frame, slice)
    }

    /// The CPUs of a host that spanning jobs have in a slice, by job. All others are for its own
    /// jobs (L14). Of a host that is not in the matrix, none.
    pub fn slots(&self, host: HostId, slice: u64) -> Vec<Slot> {
        self.slots_in(host, self.row_at(slice))
    }

    /// The same in a row.
    pub fn slots_in(&self, host: HostId, row: u32) -> Vec<Slot> {
        let jobs = self.hosts.get(&host).into_iter().flat_map(Host::jobs);
        let placed = jobs.map(|job| (job, &self.jobs[&job].placement));
        let in_row = placed.filter(|(_, placement)| placement.rows.contains(row));
        in_row.map(|(job, it)| Slot { job, cpus: it.cpus[&host].clone() }).collect()
    }

    /// The entries of a host: jobs, by id, with their rows and the CPUs that they have there.
    pub fn entries(&self, host: HostId) -> impl Iterator<Item = (JobId, &Rows, &CpuSet)> {
        let jobs = self.hosts.get(&host).into_iter().flat_map(Host::jobs);
        let placed = jobs.map(|job| (job, &self.jobs[&job].placement));
        placed.filter_map(move |(job, it)| Some((job, &it.rows, it.cpus.get(&host)?)))
    }

    /// The hosts and how many columns they have. Their columns stand side by side in this order.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, u32)> {
        self.hosts.iter().map(|(&id, host)| (id, host.cpus()))
    }

    /// All jobs with their entries, by id.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &Span, &Placement)> {
        self.jobs.iter().map(|(&id, job)| (id, &job.span, &job.placement))
    }

    /// The entries of a job.
    pub fn placement(&self, job: JobId) -> Option<&Placement> {
        self.jobs.get(&job).map(|job| &job.placement)
    }

    /// The fraction of the rows that a job is due as things are now (L15).
    pub fn share_due(&self, job: JobId) -> Option<f64> {
        self.jobs.contains_key(&job).then(|| self.share(job) as f64 / share::WHOLE as f64)
    }

    /// The most rows of a frame: each row has a turn in every hour.
    fn longest(&self) -> u32 {
        frame::slices_per_hour(&self.config).min(MAX_ROWS.into()) as u32
    }

    fn validate(&self, job: JobId, span: &Span) -> Result<(), Refused> {
        let Span { weight, cpus, allowed, .. } = span;
        if self.jobs.contains_key(&job) {
            return Err(Refused::DuplicateJob { job });
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err(Refused::TooManyJobs { max: MAX_JOBS });
        }
        if !(1..=Spec::MAX_WEIGHT).contains(weight) {
            return Err(Refused::Weight { weight: *weight, max: Spec::MAX_WEIGHT });
        }
        if cpus.len() < 2 {
            return Err(Refused::OneHost { hosts: cpus.len() });
        }
        for (&host, &cpus) in cpus {
            let there = self.hosts.get(&host).ok_or(Refused::UnknownHost { host })?.cpus();
            if !(1..=there).contains(&cpus) {
                return Err(Refused::TooWide { host, cpus, there });
            }
            let allowed = allowed.get(&host).map(|of| of.iter().filter(|&of| of < there).count());
            if let Some(allowed) = allowed.map(|of| of as u32).filter(|&allowed| allowed < cpus) {
                return Err(Refused::Bound { host, cpus, allowed });
            }
        }
        Ok(())
    }

    /// Whether a job can have these entries beside all others.
    fn check_fit(&self, job: JobId, span: &Span, placement: &Placement) -> Result<(), Refused> {
        let Placement { cpus, rows } = placement;
        let widths = cpus.iter().map(|(host, cpus)| (host, cpus.len() as u32));
        if !widths.eq(span.cpus.iter().map(|(host, &width)| (host, width))) {
            return Err(Refused::OtherCpus { job });
        }
        let (max, last) = (self.longest(), rows.last());
        if last.is_none_or(|last| last >= max) {
            return Err(Refused::Rows { rows: last.map_or(0, |last| last.saturating_add(1)), max });
        }
        for (&host, cpus) in cpus {
            let of = &self.hosts[&host];
            let is_bound = span.allowed.get(&host).is_some_and(|allowed| !cpus.is_subset(allowed));
            if is_bound || cpus.last().is_some_and(|last| last >= of.cpus()) {
                return Err(Refused::OtherCpus { job });
            }
            for other in of.jobs().filter(|&other| other != job) {
                let theirs = &self.jobs[&other].placement;
                if !theirs.rows.is_disjoint(rows) && !theirs.cpus[&host].is_disjoint(cpus) {
                    let rows = rows.iter().filter(|&row| theirs.rows.contains(row)).collect();
                    return Err(Refused::Taken { job, other, host, rows });
                }
            }
        }
        Ok(())
    }

    /// A job counts on its hosts, and has no entries yet.
    fn join(&mut self, job: JobId, span: Span) {
        for &id in span.cpus.keys() {
            let host = self.hosts.get_mut(&id).expect("it was found");
            let at = host.jobs.partition_point(|it| it.job < job);
            host.jobs.insert(at, share::asking(&self.config, id, job, &span));
            host.weigh(&self.config);
        }
        let placement = Placement { cpus: BTreeMap::new(), rows: Rows::new() };
        self.jobs.insert(job, Job { span, placement });
    }

    /// A job without entries counts no longer.
    fn leave(&mut self, job: JobId) {
        let Some(gone) = self.jobs.remove(&job) else { return };
        for host in gone.span.cpus.into_keys() {
            let host = self.hosts.get_mut(&host).expect("it had a job");
            host.jobs.retain(|it| it.job != job);
            host.weigh(&self.config);
        }
    }

    /// The share of a job, in parts of [`share::WHOLE`]: that on its most loaded host (L15).
    fn share(&self, job: JobId) -> u64 {
        let hosts = self.jobs[&job].span.cpus.keys();
        hosts.map(|host| self.hosts[host].share(job)).min().unwrap_or(0)
    }

    /// A job has these entries from now on; those before come back.
    fn hold(&mut self, job: JobId, placement: Placement) -> Placement {
        let before = self.release(job);
        for (host, cpus) in &placement.cpus {
            let taken = &mut self.hosts.get_mut(host).expect("it is a host of the job").taken;
            cpus.iter().for_each(|column| taken[column as usize].add(&placement.rows));
        }
        self.jobs.get_mut(&job).expect("it joined").placement = placement;
        before
    }

    /// A job has no entries any more.
    fn release(&mut self, job: JobId) -> Placement {
        let none = Placement { cpus: BTreeMap::new(), rows: Rows::new() };
        let of = &mut self.jobs.get_mut(&job).expect("it joined").placement;
        let before = std::mem::replace(of, none);
        for (host, cpus) in &before.cpus {
            let taken = &mut self.hosts.get_mut(host).expect("it is a host of the job").taken;
            cpus.iter().for_each(|column| taken[column as usize].subtract(&before.rows));
        }
        before
    }

    /// The frame ends with its last row in use.
    fn fit_frame(&mut self) {
        let last = self.jobs.values().filter_map(|job| job.placement.rows.last()).max();
        self.frame = self.least_frame.max(last.map_or(0, |last| last + 1));
    }
}

impl Host {
    fn cpus(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Its jobs, by id.
    fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.jobs.iter().map(|it| it.job)
    }

    /// The share of one of its jobs.
    fn share(&self, job: JobId) -> u64 {
        self.shares[self.jobs.partition_point(|it| it.job < job)]
    }

    /// The shares of its jobs follow from all their requests and the load.
    fn weigh(&mut self, config: &Config) {
        self.shares = share::shares(config, self.cpus(), &self.jobs, &self.load);
        self.smallest = self.shares.iter().copied().min().unwrap_or(share::WHOLE);
    }
}
