//! A seat: columns on all hosts of a job, and the rows that it can have there.

use crate::matrix::fit::Choice;
use crate::matrix::{HostId, Job, MAX_MOVES, Matrix, Placement, Rows};
use crate::{CpuSet, JobId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The rows that a job holds beyond what it is due, where others may take rows from it. It is a
/// function, since the share of a job takes time and few jobs are in the way of a seat.
pub(crate) type Surplus<'a> = &'a dyn Fn(JobId) -> Option<u32>;

/// Columns for a job, and their rows.
pub(crate) struct Seat {
    pub cpus: BTreeMap<HostId, CpuSet>,
    /// The rows that nobody else holds on any of them.
    pub free: Rows,
    /// The rows that are held only by jobs with a surplus.
    held: Rows,
    /// Jobs with a surplus that hold some of the columns.
    rivals: BTreeSet<JobId>,
}

/// A job with a surplus, and its entries on a host.
struct Rival<'a> {
    job: JobId,
    cpus: &'a CpuSet,
    rows: &'a Rows,
}

impl Matrix {
    /// The seat of a job within so many rows, for as many as it is due. Its own entries count as
    /// free. Without `surplus`, all other jobs keep their rows.
    pub(crate) fn seat(&self, job: JobId, frame: u32, due: u32, surplus: Option<Surplus>) -> Seat {
        let Job { span, placement } = &self.jobs[&job];
        self.seat_by(job, frame, surplus, |host, left, rivals| {
            let mut taken = Cow::Borrowed(&self.hosts[&host].taken[..]);
            let own = placement.cpus.get(&host).map(|cpus| (cpus, &placement.rows));
            for (cpus, rows) in rivals.iter().map(|it| (it.cpus, it.rows)).chain(own) {
                let taken = taken.to_mut();
                cpus.iter().for_each(|column| taken[column as usize].subtract(rows));
            }
            let (width, allowed) = (span.cpus[&host], span.allowed.get(&host));
            (self.fit)(Choice { taken: &taken, left, width, allowed, due })
        })
    }

    /// The same on the columns that the job has.
    pub(crate) fn seat_on_own(&self, job: JobId, frame: u32, surplus: Option<Surplus>) -> Seat {
        let own = &self.jobs[&job].placement.cpus;
        self.seat_by(job, frame, surplus, |host, _, _| own[&host].clone())
    }

    /// `columns` chooses them on a host, given the rows that are left so far and the rivals there.
    fn seat_by(
        &self,
        id: JobId,
        frame: u32,
        surplus: Option<Surplus>,
        columns: impl Fn(HostId, &Rows, &[Rival]) -> CpuSet,
    ) -> Seat {
        let Job { span, placement } = &self.jobs[&id];
        let (mut free, mut left) = (Rows::all(frame), Rows::all(frame));
        let mut cpus = BTreeMap::new();
        let mut rivals = BTreeSet::new();
        for &host in span.cpus.keys() {
            let mut of_host = self.rivals(host, id, &left, surplus);
            let columns = columns(host, &left, &of_host);
            let own = placement.cpus.get(&host);
            of_host.retain(|it| !it.cpus.is_disjoint(&columns));
            for column in columns.iter() {
                let mut taken = Cow::Borrowed(&self.hosts[&host].taken[column as usize]);
                if own.is_some_and(|own| own.contains(column)) {
                    taken.to_mut().subtract(&placement.rows);
                }
                free.subtract(&taken);
                for it in of_host.iter().filter(|it| it.cpus.contains(column)) {
                    taken.to_mut().subtract(it.rows);
                }
                left.subtract(&taken);
            }
            rivals.extend(of_host.iter().map(|it| it.job));
            cpus.insert(host, columns);
        }
        left.subtract(&free);
        Seat { cpus, free, held: left, rivals }
    }

    /// The other jobs of a host that have a surplus and hold some of the rows that are left.
    fn rivals(
        &self,
        host: HostId,
        job: JobId,
        left: &Rows,
        surplus: Option<Surplus>,
    ) -> Vec<Rival<'_>> {
        let Some(surplus) = surplus.filter(|_| !left.is_empty()) else { return Vec::new() };
        let rival = |job: JobId| {
            let Placement { cpus, rows } = &self.jobs[&job].placement;
            (!rows.is_disjoint(left)).then(|| Rival { job, cpus: &cpus[&host], rows })
        };
        let others = self.hosts[&host].jobs().filter(|&it| it != job);
        others.filter(|&it| surplus(it).is_some()).filter_map(rival).collect()
    }

    /// So many rows of a seat beside those that the job keeps: free ones, then those of jobs with a
    /// surplus, which lose them. The lowest of both. No more jobs move than may.
    pub(crate) fn pick(
        &self,
        seat: &Seat,
        keeps: &Rows,
        more: u32,
        surplus: Surplus,
        moved: &BTreeSet<JobId>,
    ) -> (Rows, BTreeMap<JobId, Rows>) {
        let mut rows: Vec<u32> =
            seat.free.iter().filter(|&row| !keeps.contains(row)).take(more as usize).collect();
        let mut lost: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        let mut moves = MAX_MOVES.saturating_sub(moved.len() + 1);
        for row in seat.held.iter().filter(|&row| !keeps.contains(row)) {
            if rows.len() >= more as usize {
                break;
            }
            let holds = |rival: &&JobId| self.jobs[*rival].placement.rows.contains(row);
            let holders: Vec<JobId> = seat.rivals.iter().filter(holds).copied().collect();
            let is_new = |it: &&JobId| !lost.contains_key(it) && !moved.contains(it);
            let new = holders.iter().filter(is_new).count();
            let has_lost = |it: &JobId| lost.get(it).map_or(0, |rows| rows.len() as u32);
            if new > moves || holders.iter().any(|it| surplus(*it) <= Some(has_lost(it))) {
                continue;
            }
            moves -= new;
            for holder in holders {
                lost.entry(holder).or_default().push(row);
            }
            rows.push(row);
        }
        let lost = lost.into_iter().map(|(job, rows)| (job, rows.into_iter().collect()));
        (rows.into_iter().collect(), lost.collect())
    }
}
