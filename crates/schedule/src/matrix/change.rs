//! Changes of the matrix: a job comes, a job goes, loads change.

use crate::JobId;
use crate::accounts::Asking;
use crate::matrix::share::{FINENESS, WHOLE, frame_needed, rows_due};
use crate::matrix::{Change, Job, MAX_MOVES, Matrix, Placement, Refused, Rows, Span};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A job keeps its rows while they are so many percent of its due more or fewer.
const TOLERANCE_PERCENT: u32 = 3;

/// The part of the longest frame that small jobs of a user may have beyond their shares.
const TOO_MUCH: u64 = WHOLE / 100;

/// Whether a job that has so many rows is due others.
fn is_off(has: u32, due: u32) -> bool {
    has.abs_diff(due) * 100 > due * TOLERANCE_PERCENT
}

/// The surplus of a job that has so many rows: however small it is, others may take it.
fn beyond(has: u32, due: u32) -> Option<u32> {
    (has > due).then(|| has - due)
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
    /// neighbours hold beyond what they are due beside it. Where the smallest share needs a longer
    /// frame, the frame gets longer, and the jobs that lack the most get more rows. Where the rows
    /// of the job are too few for its share of the needed frame, the frame gets longer still.
    ///
    /// # Errors
    /// A [`Refused`]; then nothing was changed.
    pub fn place(&mut self, job: JobId, span: Span) -> Result<Change, Refused> {
        self.validate(job, &span)?;
        self.join(job, span);
        if self.is_too_small(job) {
            self.leave(job);
            return Err(Refused::Full { max: self.longest() });
        }
        let (before, needed) = (self.frame, self.needed());
        self.frame = before.max(self.reach(before, needed));
        let frame = self.frame;
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
        self.lengthen(due.min(self.due_of(job, needed)), &mut rows);
        if rows.is_empty() {
            self.leave(job);
            self.fit_frame();
            return Err(Refused::Full { max: self.longest() });
        }
        let mut moved = BTreeSet::from([job]);
        self.lose(lost, &mut moved);
        self.hold(job, Placement { cpus: seat.cpus, rows });
        if frame > before {
            self.redistribute(&mut moved);
            self.reserve(frame, &mut moved);
        }
        Ok(self.change(moved))
    }

    /// A spanning job is gone. Where the frame is longer than the needed one, jobs move from its
    /// last rows to rows that are free now, and it gets shorter.
    ///
    /// # Errors
    /// [`Refused::UnknownJob`].
    pub fn remove(&mut self, job: JobId) -> Result<Change, Refused> {
        if !self.jobs.contains_key(&job) {
            return Err(Refused::UnknownJob { job });
        }
        let (before, mut moved) = (self.frame, BTreeSet::new());
        self.release(job);
        self.leave(job);
        self.fit_frame();
        let needed = self.needed();
        self.repack(needed, &mut moved, Columns::Own);
        self.reserve(needed.min(before), &mut moved);
        Ok(self.change(moved))
    }

    /// Gives jobs more rows or fewer, as loads have changed (L16); those first that lack the most.
    /// [`MAX_MOVES`] jobs change at most. Once it changes nothing, each job has what it is due,
    /// within the tolerance, or there is no more to be had on its columns.
    ///
    /// The frame gets as long as the smallest share needs: at once where one change can move all
    /// jobs, else to the double, and only once nothing else is to be changed.
    pub fn adjust(&mut self) -> Change {
        let (before, mut moved) = (self.frame, BTreeSet::new());
        let needed = self.needed();
        self.repack(needed, &mut moved, Columns::Any);
        let reach = self.reach(before, needed);
        let held = if self.can_all_move() { reach } else { reach.min(before) };
        self.frame = self.frame.max(held);
        self.redistribute(&mut moved);
        if moved.is_empty() && self.frame < reach {
            self.frame = reach;
            self.redistribute(&mut moved);
        }
        self.reserve(reach.min(self.frame), &mut moved);
        self.change(moved)
    }

    /// Gives rows to the jobs that lack the most, and takes what is left of surpluses.
    fn redistribute(&mut self, moved: &mut BTreeSet<JobId>) {
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
                self.grow(job, &mut surplus, moved);
            }
        }
        for (job, rows) in surplus {
            let may_move = moved.len() < MAX_MOVES || moved.contains(&job);
            if rows > 0 && may_move && is_off(self.rows_of(job).len(), self.due(job)) {
                self.shrink(job);
                moved.insert(job);
            }
        }
    }

    /// A frame ends with its last row in use, so that it follows from the placements alone. Where
    /// the frame would be shorter than so many rows, a job has the last of them instead of the last
    /// of its own: one that moves anyway, or else the first of all.
    fn reserve(&mut self, frame: u32, moved: &mut BTreeSet<JobId>) {
        self.fit_frame();
        let first = moved.first().or(self.jobs.keys().next());
        let Some(&job) = first.filter(|_| self.frame < frame) else { return };
        let Placement { cpus, mut rows } = self.jobs[&job].placement.clone();
        rows.last().into_iter().for_each(|last| rows.remove(last));
        rows.add(&Rows::from_iter([frame - 1]));
        self.hold(job, Placement { cpus, rows });
        moved.insert(job);
    }

    /// Places all jobs anew, wide ones first. All placements may change: only for a matrix that
    /// nobody uses yet, or where the frame has become long. Nothing changes where the frame would
    /// be longer than it is and than it needs to be.
    pub fn rebuild(&mut self) -> Change {
        let before = self.clone();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for &job in &jobs {
            self.release(job);
        }
        let needed = self.needed();
        let longest = before.frame.max(needed);
        self.frame = needed;
        let mut by_size = jobs.clone();
        let columns = |job| -> u64 { self.widths(job).map(u64::from).sum() };
        by_size.sort_by_cached_key(|&job| Reverse(columns(job)));
        for job in by_size {
            let due = self.due_of(job, needed);
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
        if self.frame > longest {
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
        self.reserve(needed, &mut BTreeSet::new());
        let is_new = |job: &JobId| before.jobs[job].placement != self.jobs[job].placement;
        let moved = jobs.into_iter().filter(is_new).collect();
        self.change(moved)
    }

    /// Shortens the frame down to the needed one as far as all jobs of the rows that go can do
    /// without them: all rows at once, or half as many, and in the end row by row.
    fn repack(&mut self, needed: u32, moved: &mut BTreeSet<JobId>, columns: Columns) {
        let mut rows = self.frame.saturating_sub(needed);
        while rows > 0 {
            if self.shorten(self.frame - rows, needed, moved, columns) {
                self.fit_frame();
                rows = (2 * rows).min(self.frame.saturating_sub(needed));
            } else {
                rows /= 2;
            }
        }
    }

    /// Shortens the frame to so many rows, if all jobs of the rows beyond can do without them.
    fn shorten(
        &mut self,
        frame: u32,
        needed: u32,
        moved: &mut BTreeSet<JobId>,
        columns: Columns,
    ) -> bool {
        let holds = |(_, it): &(&JobId, &Job)| it.placement.rows.last() >= Some(frame);
        let mut holders: Vec<JobId> = self.jobs.iter().filter(holds).map(|(&id, _)| id).collect();
        let new = holders.iter().filter(|job| !moved.contains(job)).count();
        if moved.len() + new > MAX_MOVES {
            return false;
        }
        // Those that cannot do without a row come first: only they can fail.
        let least = |job| self.due_of(job, needed);
        let kept = |job| self.rows_of(job).iter().filter(|&row| row < frame).count() as u32;
        holders.sort_by_cached_key(|&job| kept(job) >= least(job));
        let mut before = Vec::new();
        for &job in &holders {
            let least = self.due_of(job, needed);
            let Some(placement) = self.within(job, frame, least, columns) else { break };
            before.push((job, self.hold(job, placement)));
        }
        if before.len() < holders.len() {
            before.into_iter().rev().for_each(|(job, placement)| _ = self.hold(job, placement));
            return false;
        }
        moved.extend(holders);
        true
    }

    /// The placement of a job within so many rows: with free ones instead of those beyond, else
    /// with fewer where it keeps so many at least, else on other columns if it may.
    fn within(&self, job: JobId, frame: u32, least: u32, columns: Columns) -> Option<Placement> {
        let own = &self.jobs[&job].placement;
        let all = own.rows.len();
        let mut rows: Rows = own.rows.iter().filter(|&row| row < frame).collect();
        let on_own = self.seat_on_own(job, frame, None);
        let more = on_own.free.iter().filter(|&row| !own.rows.contains(row));
        rows.add(&more.take((all - rows.len()) as usize).collect());
        if rows.len() >= least.min(all) {
            return Some(Placement { cpus: on_own.cpus, rows });
        }
        if columns == Columns::Own {
            return None;
        }
        let seat = self.seat(job, frame, all, None);
        let rows: Rows = seat.free.iter().take(all as usize).collect();
        (rows.len() >= least.min(all)).then_some(Placement { cpus: seat.cpus, rows })
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

    /// New rows at the end of the frame, where a job has fewer than so many.
    fn lengthen(&self, least: u32, rows: &mut Rows) {
        let end = self.frame + least.saturating_sub(rows.len());
        rows.add(&(self.frame..end.min(self.longest())).collect());
    }

    /// The rows that a job is due of the frame.
    fn due(&self, job: JobId) -> u32 {
        self.due_of(job, self.frame)
    }

    /// The rows that a job is due of a frame.
    fn due_of(&self, job: JobId, frame: u32) -> u32 {
        rows_due(self.share(job), frame)
    }

    /// The needed frame: the smallest share is some rows of it.
    fn needed(&self) -> u32 {
        let smallest = self.hosts.values().map(|host| host.smallest).min().unwrap_or(WHOLE);
        frame_needed(smallest).clamp(self.least_frame, self.longest())
    }

    /// The frame after a change, of the frame before and the needed one. A longer frame takes time
    /// from all jobs that do not move: half at most, where one change cannot move all jobs.
    fn reach(&self, before: u32, needed: u32) -> u32 {
        if self.can_all_move() { needed } else { needed.min(2 * before) }
    }

    fn can_all_move(&self) -> bool {
        self.jobs.len() <= MAX_MOVES
    }

    /// Whether the jobs of a user would be too small on a host of this job. Each job has a row at
    /// least. Once others have come, and shares are a fourth, the jobs of the user may have a row
    /// and [`TOO_MUCH`] of the longest frame beyond their shares.
    fn is_too_small(&self, job: JobId) -> bool {
        let longest = self.longest();
        if frame_needed(self.share(job)) <= longest {
            return false;
        }
        let Span { user, cpus, .. } = &self.jobs[&job].span;
        let row = WHOLE / u64::from(longest);
        // Jobs of the user are on many of these hosts.
        let known = RefCell::new(BTreeMap::new());
        let share = |of| *known.borrow_mut().entry(of).or_insert_with(|| self.share(of));
        cpus.keys().any(|host| {
            let host = &self.hosts[host];
            let of_user = host.jobs.iter().filter(|it| it.user == *user);
            let beyond =
                |it: &Asking| row.saturating_sub(share(it.job) / FINENESS) * u64::from(it.width);
            of_user.map(beyond).sum::<u64>() > (row + TOO_MUCH) * u64::from(host.cpus())
        })
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
        self.fit_frame();
        let placed = moved.into_iter().map(|job| (job, self.jobs[&job].placement.clone()));
        Change { frame: self.frame, placed: placed.collect() }
    }
}
