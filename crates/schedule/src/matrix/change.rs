//! Changes of the matrix: a job comes, a job goes, loads change.

use crate::JobId;
use crate::matrix::share::rows_due;
use crate::matrix::{Change, Job, MAX_MOVES, Matrix, Placement, Refused, Rows, Span};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A job keeps its rows while they are so many percent of its due more or fewer.
const TOLERANCE_PERCENT: u32 = 3;

/// Whether a job that has so many rows is due others.
fn is_off(has: u32, due: u32) -> bool {
    has.abs_diff(due) * 100 > due * TOLERANCE_PERCENT
}

/// The surplus of a job that has so many rows.
fn beyond(has: u32, due: u32) -> Option<u32> {
    (has > due && is_off(has, due)).then(|| has - due)
}

/// The columns on which a job may have other rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// Those that it has.
    Own,
    Any,
}

impl Matrix {
    /// A spanning job starts. It gets the rows that it is due (L15): free ones, then those that its
    /// neighbours hold beyond what they are due beside it. Where these are too few for the job's
    /// share of the least frame, the frame gets longer.
    ///
    /// # Errors
    /// A [`Refused`]; then nothing was changed.
    pub fn place(&mut self, job: JobId, span: Span) -> Result<Change, Refused> {
        self.validate(job, &span)?;
        self.join(job, span);
        let due = self.due(job);
        // Several hosts ask for the same job.
        let known = RefCell::new(BTreeMap::new());
        let surplus = |of| {
            *known
                .borrow_mut()
                .entry(of)
                .or_insert_with(|| beyond(self.rows_of(of).len(), self.due(of)))
        };
        let seat = self.seat(job, self.frame, due, Some(&surplus));
        let (mut rows, lost) = self.pick(&seat, &Rows::new(), due, &surplus, &BTreeSet::new());
        self.lengthen(self.least(job), &mut rows);
        if rows.is_empty() {
            self.leave(job);
            return Err(Refused::Full { max: self.longest() });
        }
        let mut moved = BTreeSet::from([job]);
        self.lose(lost, &mut moved);
        self.hold(job, Placement { cpus: seat.cpus, rows });
        Ok(self.change(moved))
    }

    /// A spanning job is gone. Where the frame is longer than the least one, jobs move from its
    /// last rows to rows that are free now, and it gets shorter.
    ///
    /// # Errors
    /// [`Refused::UnknownJob`].
    pub fn remove(&mut self, job: JobId) -> Result<Change, Refused> {
        if !self.jobs.contains_key(&job) {
            return Err(Refused::UnknownJob { job });
        }
        self.release(job);
        self.leave(job);
        self.settle();
        let mut moved = BTreeSet::new();
        self.repack(&mut moved, Columns::Own);
        Ok(self.change(moved))
    }

    /// Gives jobs more rows or fewer, as loads have changed (L16); those first that lack the most.
    /// [`MAX_MOVES`] jobs change at most. Once it changes nothing, each job has what it is due,
    /// within the tolerance, or there is no more to be had on its columns.
    pub fn adjust(&mut self) -> Change {
        let mut moved = BTreeSet::new();
        self.repack(&mut moved, Columns::Any);
        let mut below: Vec<(Reverse<u64>, JobId)> = Vec::new();
        let mut surplus = BTreeMap::new();
        for (&job, it) in &self.jobs {
            let (has, due) = (it.placement.rows.len(), self.due(job));
            if has < due && is_off(has, due) {
                let lacks = u64::from(due - has) * 1_000_000 / u64::from(due);
                below.push((Reverse(lacks), job));
            }
            surplus.extend(beyond(has, due).map(|rows| (job, rows)));
        }
        below.sort_unstable();
        for (_, job) in below {
            if moved.len() < MAX_MOVES {
                self.grow(job, &mut surplus, &mut moved);
            }
        }
        for (job, rows) in surplus {
            let may_move = moved.len() < MAX_MOVES || moved.contains(&job);
            if rows > 0 && may_move && is_off(self.rows_of(job).len(), self.due(job)) {
                self.shrink(job);
                moved.insert(job);
            }
        }
        self.change(moved)
    }

    /// Places all jobs anew, wide ones first. All placements may change: only for a matrix that
    /// nobody uses yet, or where the frame has become long. Nothing changes where the frame would
    /// be longer than it is.
    pub fn rebuild(&mut self) -> Change {
        let before = self.clone();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for &job in &jobs {
            self.release(job);
        }
        self.settle();
        let mut by_size = jobs.clone();
        let columns = |job| -> u64 { self.widths(job).map(u64::from).sum() };
        by_size.sort_by_cached_key(|&job| Reverse(columns(job)));
        for job in by_size {
            let due = self.least(job);
            let seat = self.seat(job, self.frame, due, None);
            let mut rows = seat.free.iter().take(due as usize).collect();
            self.lengthen(due, &mut rows);
            if rows.is_empty() {
                *self = before;
                return self.change(BTreeSet::new());
            }
            self.frame = self.frame.max(rows.last().map_or(0, |last| last + 1));
            self.hold(job, Placement { cpus: seat.cpus, rows });
        }
        if self.frame > before.frame {
            *self = before;
            return self.change(BTreeSet::new());
        }
        for &job in &jobs {
            let missing = self.due(job).saturating_sub(self.rows_of(job).len());
            if missing > 0 {
                let seat = self.seat_on_own(job, self.frame, None);
                let own = self.rows_of(job);
                let more = seat.free.iter().filter(|&row| !own.contains(row));
                let rows: Rows = own.iter().chain(more.take(missing as usize)).collect();
                self.hold(job, Placement { cpus: seat.cpus, rows });
            }
        }
        let is_new = |job: &JobId| before.jobs[job].placement != self.jobs[job].placement;
        let moved = jobs.into_iter().filter(is_new).collect();
        self.change(moved)
    }

    /// Shortens the frame, row by row from its end, as far as all jobs of a row can do without it.
    fn repack(&mut self, moved: &mut BTreeSet<JobId>, columns: Columns) {
        while self.frame > self.least_frame {
            let last = self.frame - 1;
            let holds = |(_, it): &(&JobId, &Job)| it.placement.rows.contains(last);
            let mut holders: Vec<JobId> =
                self.jobs.iter().filter(holds).map(|(&id, _)| id).collect();
            let new = holders.iter().filter(|job| !moved.contains(job)).count();
            if moved.len() + new > MAX_MOVES {
                return;
            }
            // Those that cannot do without a row come first: only they can fail.
            holders.sort_by_key(|&job| self.rows_of(job).len() > self.least(job));
            let mut before = Vec::new();
            for &job in &holders {
                let Some(placement) = self.without_last(job, last, columns) else { break };
                before.push((job, self.hold(job, placement)));
            }
            if before.len() < holders.len() {
                before.into_iter().rev().for_each(|(job, placement)| _ = self.hold(job, placement));
                return;
            }
            moved.extend(holders);
            self.settle();
        }
    }

    /// The placement of a job without the last row: with a free one instead, else with one row
    /// fewer where its share of the least frame is met, else on other columns if it may.
    fn without_last(&self, job: JobId, last: u32, columns: Columns) -> Option<Placement> {
        let own = &self.jobs[&job].placement;
        let mut rows = own.rows.clone();
        rows.remove(last);
        let on_own = self.seat_on_own(job, last, None);
        if let Some(row) = on_own.free.iter().find(|&row| !rows.contains(row)) {
            rows.add(&Rows::from_iter([row]));
            return Some(Placement { cpus: on_own.cpus, rows });
        }
        let least = self.least(job);
        if rows.len() >= least {
            return Some(Placement { cpus: on_own.cpus, rows });
        }
        if columns == Columns::Own {
            return None;
        }
        let seat = self.seat(job, last, own.rows.len(), None);
        let rows: Rows = seat.free.iter().take(own.rows.len() as usize).collect();
        (rows.len() >= least.min(own.rows.len())).then_some(Placement { cpus: seat.cpus, rows })
    }

    /// Gives a job the rows that it lacks, on its columns or, where it gets more there, on others.
    fn grow(
        &mut self,
        job: JobId,
        surplus: &mut BTreeMap<JobId, u32>,
        moved: &mut BTreeSet<JobId>,
    ) {
        let (own, due) = (self.rows_of(job).clone(), self.due(job));
        let of = |job| surplus.get(&job).copied();
        let seat = self.seat_on_own(job, self.frame, Some(&of));
        let (more, mut lost) = self.pick(&seat, &own, due - own.len(), &of, moved);
        let mut rows = own.clone();
        rows.add(&more);
        let mut cpus = seat.cpus;
        if is_off(rows.len(), due) {
            let seat = self.seat(job, self.frame, due, Some(&of));
            let (elsewhere, lost_there) = self.pick(&seat, &Rows::new(), due, &of, moved);
            if elsewhere.len() > rows.len() {
                (cpus, rows, lost) = (seat.cpus, elsewhere, lost_there);
            }
        }
        if rows.len() > own.len() {
            for (rival, rows) in &lost {
                *surplus.entry(*rival).or_default() -= rows.len();
            }
            self.lose(lost, moved);
            self.hold(job, Placement { cpus, rows });
            moved.insert(job);
        }
    }

    /// Takes the last rows beyond what a job is due.
    fn shrink(&mut self, job: JobId) {
        let due = self.due(job) as usize;
        let Placement { cpus, rows } = self.jobs[&job].placement.clone();
        self.hold(job, Placement { cpus, rows: rows.iter().take(due).collect() });
    }

    /// Jobs lose rows to others.
    fn lose(&mut self, lost: BTreeMap<JobId, Rows>, moved: &mut BTreeSet<JobId>) {
        for (job, lost) in lost {
            let Placement { cpus, mut rows } = self.jobs[&job].placement.clone();
            rows.subtract(&lost);
            self.hold(job, Placement { cpus, rows });
            moved.insert(job);
        }
    }

    /// New rows at the end of the frame, where a job has fewer than its share of the least frame.
    fn lengthen(&self, least: u32, rows: &mut Rows) {
        let end = self.frame + least.saturating_sub(rows.len());
        rows.add(&(self.frame..end.min(self.longest())).collect());
    }

    /// The rows that a job is due of the frame.
    fn due(&self, job: JobId) -> u32 {
        rows_due(self.share(job), self.frame)
    }

    /// The rows that a job has at its start, however short the frame is.
    fn least(&self, job: JobId) -> u32 {
        rows_due(self.share(job), self.least_frame)
    }

    /// The columns that a job has on each of its hosts.
    fn widths(&self, job: JobId) -> impl Iterator<Item = u32> {
        self.jobs[&job].span.cpus.values().copied()
    }

    fn rows_of(&self, job: JobId) -> &Rows {
        &self.jobs[&job].placement.rows
    }

    /// The change that consists of the new placements of these jobs.
    fn change(&mut self, moved: BTreeSet<JobId>) -> Change {
        self.settle();
        let placed = moved.into_iter().map(|job| (job, self.jobs[&job].placement.clone()));
        Change { frame: self.frame, placed: placed.collect() }
    }
}
