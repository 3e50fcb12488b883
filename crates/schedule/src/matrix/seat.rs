//! A seat: columns on all hosts of a job, and the rows that it can have there.

use crate::matrix::fit::Choice;
use crate::matrix::{HostId, MAX_MOVES, Matrix, Placement, Rows};
use crate::{CpuSet, JobId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The rows that jobs hold beyond what they are due.
pub(crate) type Surplus = BTreeMap<JobId, u32>;

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

impl Matrix {
    /// The seat of a job within so many rows, for as many as it is due. Its own entries count as
    /// free.
    pub(crate) fn seat(&self, job: JobId, frame: u32, due: u32, surplus: &Surplus) -> Seat {
        self.seat_by(job, frame, surplus, |_, choice| (self.fit)(Choice { due, ..choice }))
    }

    /// The same on the columns that the job has.
    pub(crate) fn seat_on_own(&self, job: JobId, frame: u32, surplus: &Surplus) -> Seat {
        let own = &self.jobs[&job].placement.cpus;
        self.seat_by(job, frame, surplus, |host, _| own[&host].clone())
    }

    fn seat_by(
        &self,
        job: JobId,
        frame: u32,
        surplus: &Surplus,
        columns: impl Fn(HostId, Choice) -> CpuSet,
    ) -> Seat {
        let (mut free, mut left) = (Rows::all(frame), Rows::all(frame));
        let mut cpus = BTreeMap::new();
        let mut rivals = BTreeSet::new();
        for (&id, &width) in &self.jobs[&job].span.cpus {
            let host = &self.hosts[&id];
            let mut taken = Cow::Borrowed(&host.taken[..]);
            self.release_in(&mut taken, id, job);
            let mut firmly = taken.clone();
            let of_host = surplus.keys().filter(|rival| host.shares.contains_key(rival));
            let of_host: Vec<JobId> = of_host.copied().filter(|&rival| rival != job).collect();
            of_host.iter().for_each(|&rival| self.release_in(&mut firmly, id, rival));
            let own = columns(id, Choice { taken: &firmly, left: &left, width, due: 0 });
            for column in own.iter() {
                left.subtract(&firmly[column as usize]);
                free.subtract(&taken[column as usize]);
            }
            let is_rival = |it: &JobId| !self.jobs[it].placement.cpus[&id].is_disjoint(&own);
            rivals.extend(of_host.into_iter().filter(is_rival));
            cpus.insert(id, own);
        }
        left.subtract(&free);
        Seat { cpus, free, held: left, rivals }
    }

    /// Takes the entries of a job on a host out of its columns.
    fn release_in(&self, taken: &mut Cow<[Rows]>, host: HostId, job: JobId) {
        let Placement { cpus, rows } = &self.jobs[&job].placement;
        let Some(cpus) = cpus.get(&host).filter(|_| !rows.is_empty()) else { return };
        let taken = taken.to_mut();
        cpus.iter().for_each(|column| taken[column as usize].subtract(rows));
    }

    /// So many rows of a seat beside those that the job keeps: free ones, then those of jobs with a
    /// surplus, which lose them. The lowest of both. No more jobs move than may.
    pub(crate) fn pick(
        &self,
        seat: &Seat,
        keeps: &Rows,
        more: u32,
        surplus: &Surplus,
        moved: &BTreeSet<JobId>,
    ) -> (Rows, BTreeMap<JobId, Rows>) {
        let mut rows: Vec<u32> =
            seat.free.iter().filter(|&row| !keeps.contains(row)).take(more as usize).collect();
        let mut lost: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
        let mut left = surplus.clone();
        let mut moves = MAX_MOVES.saturating_sub(moved.len() + 1);
        for row in seat.held.iter().filter(|&row| !keeps.contains(row)) {
            if rows.len() >= more as usize {
                break;
            }
            let holds = |rival: &&JobId| self.jobs[*rival].placement.rows.contains(row);
            let holders: Vec<JobId> = seat.rivals.iter().filter(holds).copied().collect();
            let is_new = |it: &&JobId| !lost.contains_key(it) && !moved.contains(it);
            let new = holders.iter().filter(is_new).count();
            if new > moves || holders.iter().any(|holder| left[holder] == 0) {
                continue;
            }
            moves -= new;
            for holder in holders {
                *left.entry(holder).or_default() -= 1;
                lost.entry(holder).or_default().push(row);
            }
            rows.push(row);
        }
        let lost = lost.into_iter().map(|(job, rows)| (job, rows.into_iter().collect()));
        (rows.into_iter().collect(), lost.collect())
    }
}
