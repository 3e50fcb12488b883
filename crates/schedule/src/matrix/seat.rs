//! A seat: columns on all hosts of a job, and the rows that it can have there.

use crate::matrix::fit::Choice;
use crate::matrix::{HostId, Job, MAX_MOVES, Matrix, Placement, Rows};
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
        self.seat_by(job, frame, surplus, |host, width, left| {
            let mut taken = Cow::Borrowed(&self.hosts[&host].taken[..]);
            let rivals = self.rivals(host, job, surplus);
            rivals.chain([job]).for_each(|it| self.release_in(&mut taken, host, it));
            let allowed = self.jobs[&job].span.allowed.get(&host);
            (self.fit)(Choice { taken: &taken, left, width, allowed, due })
        })
    }

    /// The same on the columns that the job has.
    pub(crate) fn seat_on_own(&self, job: JobId, frame: u32, surplus: &Surplus) -> Seat {
        let own = &self.jobs[&job].placement.cpus;
        self.seat_by(job, frame, surplus, |host, _, _| own[&host].clone())
    }

    /// `columns` chooses them on a host, given how many and the rows that are left so far.
    fn seat_by(
        &self,
        id: JobId,
        frame: u32,
        surplus: &Surplus,
        columns: impl Fn(HostId, u32, &Rows) -> CpuSet,
    ) -> Seat {
        let Job { span, placement } = &self.jobs[&id];
        let (mut free, mut left) = (Rows::all(frame), Rows::all(frame));
        let mut cpus = BTreeMap::new();
        let mut rivals = BTreeSet::new();
        for (&host, &width) in &span.cpus {
            let columns = columns(host, width, &left);
            let own = placement.cpus.get(&host);
            let placed = |rival| (rival, &self.jobs[&rival].placement);
            let of_host: Vec<(JobId, &Placement)> = self
                .rivals(host, id, surplus)
                .map(placed)
                .filter(|(_, it)| !it.cpus[&host].is_disjoint(&columns))
                .collect();
            for column in columns.iter() {
                let mut taken = Cow::Borrowed(&self.hosts[&host].taken[column as usize]);
                if own.is_some_and(|own| own.contains(column)) {
                    taken.to_mut().subtract(&placement.rows);
                }
                free.subtract(&taken);
                for (_, it) in of_host.iter().filter(|(_, it)| it.cpus[&host].contains(column)) {
                    taken.to_mut().subtract(&it.rows);
                }
                left.subtract(&taken);
            }
            rivals.extend(of_host.into_iter().map(|(rival, _)| rival));
            cpus.insert(host, columns);
        }
        left.subtract(&free);
        Seat { cpus, free, held: left, rivals }
    }

    /// The other jobs of a host that have a surplus.
    fn rivals<'a>(
        &'a self,
        host: HostId,
        job: JobId,
        surplus: &'a Surplus,
    ) -> impl Iterator<Item = JobId> + 'a {
        let others = if surplus.is_empty() { None } else { Some(self.hosts[&host].shares.keys()) };
        let others = others.into_iter().flatten().copied();
        others.filter(move |other| *other != job && surplus.contains_key(other))
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
