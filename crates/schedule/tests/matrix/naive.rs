//! A deliberately naive version of the matrix, written from its description and with none of its
//! shortcuts: whether an entry is taken is asked of all jobs each time. The real one must make the
//! same changes.

use crate::random::{self, Step};
use gang_schedule::matrix::{Change, HostId, Load, MAX_MOVES, Matrix, Placement, Span};
use gang_schedule::{Class, CpuSet, JobId, Sharing, UserId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Debug)]
struct Job {
    id: JobId,
    span: Span,
    cpus: Columns,
    rows: Vec<u32>,
}

#[derive(Clone)]
pub struct Naive {
    sharing: Sharing,
    least: u32,
    longest: u32,
    hosts: BTreeMap<HostId, (u32, Load)>,
    jobs: Vec<Job>,
}

/// Columns for a job; the rows that nobody holds there, and those of jobs with a surplus alone.
struct Seat {
    cpus: Columns,
    free: Vec<u32>,
    held: Vec<u32>,
}

type Surplus = BTreeMap<JobId, u32>;
/// The CPUs of a job on its hosts.
type Columns = BTreeMap<HostId, Vec<u32>>;

const WHOLE: u128 = 1_000_000_000;

fn is_off(has: u32, due: u32) -> bool {
    100 * has.abs_diff(due) > 3 * due
}

impl Naive {
    pub fn of(matrix: &Matrix) -> Naive {
        let hosts = matrix.hosts().map(|(host, cpus)| (host, (cpus, Load::default()))).collect();
        let sharing = matrix.config().sharing.clone();
        let longest = (3_600_000_000_000 / matrix.config().slice_ns).min(4096) as u32;
        Naive { sharing, least: matrix.frame(), longest, hosts, jobs: vec![] }
    }

    fn frame(&self) -> u32 {
        let rows = self.jobs.iter().flat_map(|job| &job.rows);
        rows.map(|row| row + 1).max().unwrap_or(0).max(self.least)
    }

    fn job(&self, id: JobId) -> &Job {
        self.jobs.iter().find(|job| job.id == id).unwrap()
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).unwrap()
    }

    /// The weight that a job asks for.
    fn asks(span: &Span) -> u128 {
        let percent = match span.class {
            Class::Express => 10_000,
            Class::Interactive => 200,
            Class::Batch => 100,
            Class::Standby => 1,
        };
        u128::from(span.weight) * percent * 100
    }

    /// The share of a job on a host, from the weights of everything there.
    fn share_on(&self, id: JobId, host: HostId) -> u128 {
        const USUAL: u128 = 1_000_000;
        let (cpus, ref load) = self.hosts[&host];
        let cpus = u128::from(cpus);
        // Of a user, what is asked and on how many CPUs.
        let mut all: Vec<(Option<JobId>, Option<UserId>, u128, u128)> = Vec::new();
        for job in self.jobs.iter().filter(|job| job.span.cpus.contains_key(&host)) {
            let width = job.span.cpus[&host].into();
            all.push((Some(job.id), Some(job.span.user), Naive::asks(&job.span), width));
        }
        let mut unknown = load.threads;
        for (&user, &count) in &load.of_users {
            unknown -= count;
            all.extend((0..count).map(|_| (None, Some(user), USUAL, 1)));
        }
        let weigh = |user: Option<UserId>, asked: u128| match (&self.sharing, user) {
            (Sharing::ByUser(shares), Some(user)) => {
                let of_user = || all.iter().filter(|it| it.1 == Some(user));
                let greatest = of_user().map(|it| it.2).max().unwrap().max(USUAL) * cpus;
                let side_by_side: u128 = of_user().map(|it| it.2 * it.3).sum();
                let share = u128::from(shares.get(&user).copied().unwrap_or(100)) * 10_000;
                (share * asked * cpus / greatest.max(side_by_side)).max(100)
            }
            _ => asked,
        };
        let weights: Vec<u128> = all.iter().map(|it| weigh(it.1, it.2)).collect();
        let of_known: u128 = weights.iter().zip(&all).map(|(weight, it)| weight * it.3).sum();
        let unknown = u128::from(unknown);
        let given: u128 = weights.iter().sum();
        let asked: u128 = all.iter().map(|it| it.2).sum();
        let of_unknown = match self.sharing {
            Sharing::ByUser(_) => (unknown * USUAL * given / asked).max(unknown * 100),
            Sharing::ByProgram => unknown * USUAL,
        };
        let at = all.iter().position(|it| it.0 == Some(id)).unwrap();
        (WHOLE * weights[at] * cpus / (of_known + of_unknown)).min(WHOLE)
    }

    pub fn share(&self, id: JobId) -> u128 {
        let hosts = self.job(id).span.cpus.keys();
        hosts.map(|host| self.share_on(id, *host)).min().unwrap()
    }

    /// The rows that a job is due. All but a thousandth of a row is one: shares are rounded, too.
    fn rows_due(&self, id: JobId, frame: u32) -> u32 {
        (Naive::rows_in(self.share(id), frame) as u32).clamp(1, frame)
    }

    fn rows_in(share: u128, frame: u32) -> u128 {
        (share * u128::from(frame) + WHOLE / 1000) / WHOLE
    }

    /// The least rows of a frame of which each job is due four rows, as far as a frame may be so
    /// long.
    fn needed(&self) -> u32 {
        let shares: Vec<u128> = self.jobs.iter().map(|job| self.share(job.id)).collect();
        let is_enough =
            |frame: &u32| shares.iter().all(|share| Naive::rows_in(*share, *frame) >= 4);
        (self.least..self.longest).find(is_enough).unwrap_or(self.longest)
    }

    /// The frame after a change.
    fn reach(&self, before: u32) -> u32 {
        match self.jobs.len() {
            0..=MAX_MOVES => self.needed(),
            _ => self.needed().min(2 * before),
        }
    }

    /// Some job has the last row of a frame that is so long at least.
    fn reserve(&mut self, frame: u32, moved: &mut BTreeSet<JobId>) {
        let first = moved.first().copied().or(self.jobs.first().map(|job| job.id));
        if let Some(id) = first.filter(|_| self.frame() < frame) {
            *self.job_mut(id).rows.last_mut().unwrap() = frame - 1;
            moved.insert(id);
        }
    }

    /// The jobs that have an entry, others than this one.
    fn holders(&self, except: JobId, host: HostId, cpu: u32, row: u32) -> Vec<JobId> {
        let holds = |job: &&Job| {
            let has = job.cpus.get(&host).is_some_and(|cpus| cpus.contains(&cpu));
            job.id != except && has && job.rows.contains(&row)
        };
        self.jobs.iter().filter(holds).map(|job| job.id).collect()
    }

    fn seat(&self, id: JobId, frame: u32, surplus: &Surplus, on_own: bool) -> Seat {
        let job = self.job(id);
        let mut left: Vec<u32> = (0..frame).collect();
        let mut cpus: Columns = BTreeMap::new();
        for (&host, &width) in &job.span.cpus {
            let may_have = |cpu: u32, row: u32| {
                self.holders(id, host, cpu, row).iter().all(|it| surplus.contains_key(it))
            };
            let mut own = Vec::new();
            for at in 0..width as usize {
                let rows = |cpu: u32| left.iter().filter(|&&row| may_have(cpu, row)).count();
                let allowed = job.span.allowed.get(&host);
                let may = |cpu: &u32| allowed.is_none_or(|allowed| allowed.contains(*cpu));
                let others = (0..self.hosts[&host].0).filter(|cpu| !own.contains(cpu) && may(cpu));
                // The last of equals is taken by max.
                let most = others.rev().max_by_key(|&cpu| rows(cpu)).unwrap();
                own.push(if on_own { job.cpus[&host][at] } else { most });
                left.retain(|&row| may_have(own[at], row));
            }
            own.sort_unstable();
            cpus.insert(host, own);
        }
        let is_free = |row: &u32| {
            let mut entries = cpus.iter().flat_map(|(host, cpus)| cpus.iter().map(|c| (*host, *c)));
            entries.all(|(host, cpu)| self.holders(id, host, cpu, *row).is_empty())
        };
        let free: Vec<u32> = left.iter().copied().filter(is_free).collect();
        let held = left.iter().copied().filter(|row| !free.contains(row)).collect();
        Seat { free, held, cpus }
    }

    fn pick(
        &self,
        id: JobId,
        seat: &Seat,
        keeps: &[u32],
        more: u32,
        surplus: &Surplus,
        moved: &BTreeSet<JobId>,
    ) -> (Vec<u32>, Vec<(JobId, u32)>) {
        let is_new = |row: &&u32| !keeps.contains(row);
        let mut rows: Vec<u32> =
            seat.free.iter().filter(is_new).copied().take(more as usize).collect();
        let mut lost: Vec<(JobId, u32)> = Vec::new();
        for &row in seat.held.iter().filter(is_new) {
            let entries =
                seat.cpus.iter().flat_map(|(host, cpus)| cpus.iter().map(|c| (*host, *c)));
            let holders: BTreeSet<JobId> =
                entries.flat_map(|(host, cpu)| self.holders(id, host, cpu, row)).collect();
            let lose = |it: &JobId| lost.iter().filter(|(job, _)| job == it).count() as u32;
            let all: BTreeSet<JobId> =
                lost.iter().map(|(job, _)| *job).chain(holders.iter().copied()).collect();
            let moves = moved.len() + 1 + all.difference(moved).count();
            if rows.len() < more as usize
                && moves <= MAX_MOVES
                && holders.iter().all(|it| lose(it) < surplus[it])
            {
                rows.push(row);
                lost.extend(holders.into_iter().map(|job| (job, row)));
            }
        }
        (rows, lost)
    }

    fn lose(&mut self, lost: &[(JobId, u32)], moved: &mut BTreeSet<JobId>) {
        for (job, row) in lost {
            self.job_mut(*job).rows.retain(|it| it != row);
            moved.insert(*job);
        }
    }

    fn set(&mut self, id: JobId, cpus: Columns, mut rows: Vec<u32>) {
        rows.sort_unstable();
        let job = self.job_mut(id);
        (job.cpus, job.rows) = (cpus, rows);
    }

    fn surplus(&self, frame: u32, of: impl Fn(&Job) -> bool) -> Surplus {
        let jobs = self.jobs.iter().filter(|job| of(job));
        let rows = jobs.map(|job| (job.id, job.rows.len() as u32, self.rows_due(job.id, frame)));
        let above = rows.filter(|&(_, has, due)| has > due);
        above.map(|(job, has, due)| (job, has - due)).collect()
    }

    fn place(&mut self, id: JobId, span: &Span) -> BTreeSet<JobId> {
        let before = self.frame();
        let job = Job { id, span: span.clone(), cpus: BTreeMap::new(), rows: vec![] };
        self.jobs.push(job);
        self.jobs.sort_by_key(|job| job.id);
        let shares_a_host = |job: &Job| job.span.cpus.keys().any(|it| span.cpus.contains_key(it));
        let frame = before.max(self.reach(before));
        let surplus = self.surplus(frame, |job| job.id != id && shares_a_host(job));
        let seat = self.seat(id, frame, &surplus, false);
        let none = BTreeSet::new();
        let due = self.rows_due(id, frame);
        let (mut rows, lost) = self.pick(id, &seat, &[], due, &surplus, &none);
        let least = due.min(self.rows_due(id, self.needed()));
        let missing = least.saturating_sub(rows.len() as u32);
        rows.extend(frame..(frame + missing).min(self.longest));
        let mut moved = BTreeSet::from([id]);
        self.lose(&lost, &mut moved);
        self.set(id, seat.cpus, rows);
        if frame > before {
            self.redistribute(frame, &mut moved);
            self.reserve(frame, &mut moved);
        }
        moved
    }

    /// A job within so many rows, if it can be.
    fn within(&self, id: JobId, frame: u32, elsewhere: bool) -> Option<(Columns, Vec<u32>)> {
        let job = self.job(id);
        let least = (self.rows_due(id, self.needed()) as usize).min(job.rows.len());
        let mut rows: Vec<u32> = job.rows.iter().copied().filter(|&row| row < frame).collect();
        let own = self.seat(id, frame, &Surplus::new(), true);
        for row in own.free {
            if rows.len() < job.rows.len() && !rows.contains(&row) {
                rows.push(row);
            }
        }
        if rows.len() >= least {
            return Some((own.cpus, rows));
        }
        if !elsewhere {
            return None;
        }
        let mut other = self.seat(id, frame, &Surplus::new(), false);
        other.free.truncate(job.rows.len());
        (other.free.len() >= least).then_some((other.cpus, other.free))
    }

    /// All that hold rows beyond go without them, first those that have too few others; or nobody.
    fn shorten(&self, frame: u32, moved: &BTreeSet<JobId>, elsewhere: bool) -> Option<Naive> {
        let has_enough = |job: &&Job| {
            let kept = job.rows.iter().filter(|row| **row < frame).count() as u32;
            kept >= self.rows_due(job.id, self.needed())
        };
        let holders = || self.jobs.iter().filter(|job| job.rows.iter().any(|row| *row >= frame));
        let ordered = holders().filter(|it| !has_enough(it)).chain(holders().filter(has_enough));
        let mut after = self.clone();
        let mut now = moved.clone();
        for job in ordered {
            now.insert(job.id);
            let (cpus, rows) = after.within(job.id, frame, elsewhere)?;
            after.set(job.id, cpus, rows);
        }
        (now.len() <= MAX_MOVES).then_some(after)
    }

    fn repack(&mut self, moved: &mut BTreeSet<JobId>, elsewhere: bool) {
        let beyond = |naive: &Naive| naive.frame().saturating_sub(naive.needed());
        let mut rows = beyond(self);
        while rows > 0 {
            let frame = self.frame() - rows;
            match self.shorten(frame, moved, elsewhere) {
                Some(after) => {
                    let holds = |job: &&Job| job.rows.iter().any(|row| *row >= frame);
                    moved.extend(self.jobs.iter().filter(holds).map(|job| job.id));
                    *self = after;
                    rows = beyond(self).min(2 * rows);
                }
                None => rows /= 2,
            }
        }
    }

    fn adjust(&mut self) -> BTreeSet<JobId> {
        let (before, mut moved) = (self.frame(), BTreeSet::new());
        self.repack(&mut moved, true);
        let reach = self.reach(before);
        let is_small = self.jobs.len() <= MAX_MOVES;
        let mut frame = self.frame().max(if is_small { reach } else { reach.min(before) });
        self.redistribute(frame, &mut moved);
        if moved.is_empty() && frame < reach {
            frame = reach;
            self.redistribute(frame, &mut moved);
        }
        self.reserve(frame.min(reach), &mut moved);
        moved
    }

    /// Rows for the jobs that lack the most, and none beyond what a job is due.
    fn redistribute(&mut self, frame: u32, moved: &mut BTreeSet<JobId>) {
        let ids: Vec<JobId> = self.jobs.iter().map(|job| job.id).collect();
        let mut surplus = self.surplus(frame, |_| true);
        let lacks = |naive: &Naive, id: &JobId| {
            let (has, due) = (naive.job(*id).rows.len() as u32, naive.rows_due(*id, frame));
            (has < due && is_off(has, due))
                .then(|| u64::from(due - has) * 1_000_000 / u64::from(due))
        };
        let mut below: Vec<JobId> =
            ids.iter().copied().filter(|id| lacks(self, id).is_some()).collect();
        below.sort_by_key(|id| (std::cmp::Reverse(lacks(self, id)), *id));
        for id in below {
            let (own, due) = (self.job(id).rows.clone(), self.rows_due(id, frame));
            let seat = self.seat(id, frame, &surplus, true);
            let (more, mut lost) =
                self.pick(id, &seat, &own, due - own.len() as u32, &surplus, moved);
            let (mut cpus, mut rows) = (seat.cpus, [own.clone(), more].concat());
            if is_off(rows.len() as u32, due) {
                let seat = self.seat(id, frame, &surplus, false);
                let (there, lost_there) = self.pick(id, &seat, &[], due, &surplus, moved);
                if there.len() > rows.len() {
                    (cpus, rows, lost) = (seat.cpus, there, lost_there);
                }
            }
            if rows.len() > own.len() && moved.len() < MAX_MOVES {
                lost.iter().for_each(|(job, _)| *surplus.get_mut(job).unwrap() -= 1);
                self.lose(&lost, moved);
                self.set(id, cpus, rows);
                moved.insert(id);
            }
        }
        for (job, _) in surplus {
            let due = self.rows_due(job, frame);
            if is_off(self.job(job).rows.len() as u32, due) {
                self.job_mut(job).rows.truncate(due as usize);
                moved.insert(job);
            }
        }
    }

    /// The same change; the real one has accepted it.
    pub fn apply(&mut self, step: &Step) -> Option<BTreeSet<JobId>> {
        match step {
            Step::Place(job, span) => Some(self.place(JobId(*job), span)),
            Step::Remove(job) => {
                let (before, mut moved) = (self.frame(), BTreeSet::new());
                self.jobs.retain(|it| it.id != JobId(*job));
                self.repack(&mut moved, false);
                self.reserve(self.needed().min(before), &mut moved);
                Some(moved)
            }
            Step::Load(host, load) => {
                self.hosts.get_mut(&HostId(*host)).unwrap().1 = load.clone();
                Some(BTreeSet::new())
            }
            Step::Adjust => Some(self.adjust()),
            Step::Rebuild => None,
        }
    }

    /// Takes over what a change says.
    pub fn take_over(&mut self, change: &Change) {
        for (job, placement) in &change.placed {
            let columns = placement.cpus.iter().map(|(host, cpus)| (*host, cpus.iter().collect()));
            self.set(*job, columns.collect(), placement.rows.iter().collect());
        }
    }

    fn placements(&self, of: &BTreeSet<JobId>) -> BTreeMap<JobId, Placement> {
        let of = self.jobs.iter().filter(|job| of.contains(&job.id));
        of.map(|job| {
            let columns =
                job.cpus.iter().map(|(host, cpus)| (*host, cpus.iter().copied().collect()));
            (
                job.id,
                Placement { cpus: columns.collect(), rows: job.rows.iter().copied().collect() },
            )
        })
        .collect()
    }

    /// Whether some job needs the last row: with all other rows of its columns taken, and no more
    /// rows than its share of the needed frame is.
    pub fn needs_last_row(&self) -> bool {
        if self.frame() <= self.needed() {
            return true;
        }
        let last = self.frame() - 1;
        self.jobs.iter().filter(|job| job.rows.contains(&last)).any(|job| {
            let seat = self.seat(job.id, last, &Surplus::new(), true);
            let is_full = seat.free.iter().all(|row| job.rows.contains(row));
            is_full && job.rows.len() as u32 <= self.rows_due(job.id, self.needed())
        })
    }

    /// Whether each job is due some rows, so that none has a row beyond its share.
    pub fn is_fine(&self) -> bool {
        self.jobs.iter().all(|job| Naive::rows_in(self.share(job.id), self.frame()) >= 1)
    }

    /// The entries that the jobs of a user have on a host, and the share of it that they are due.
    pub fn account(&self, host: HostId, user: UserId) -> (f64, f64) {
        let (cpus, _) = self.hosts[&host];
        let is_there = |job: &&Job| job.span.user == user && job.span.cpus.contains_key(&host);
        let jobs = self.jobs.iter().filter(is_there);
        let of_job = |job: &Job| {
            let width = f64::from(job.span.cpus[&host]);
            let share = self.share_on(job.id, host) as f64 / WHOLE as f64;
            (job.rows.len() as f64 * width, share * width / f64::from(cpus))
        };
        jobs.map(of_job).fold((0.0, 0.0), |(has, share), it| (has + it.0, share + it.1))
    }

    /// Rows that a job has, that it is due, and that are free on its columns.
    pub fn rows(&self, id: JobId) -> (u32, u32, u32) {
        let has = &self.job(id).rows;
        let free = self.seat(id, self.frame(), &Surplus::new(), true).free;
        let more = free.iter().filter(|row| !has.contains(row)).count();
        (has.len() as u32, self.rows_due(id, self.frame()), more as u32)
    }
}

/// The invariants of every state, entry by entry, and that a change names what is new.
pub fn check_change(before: &Matrix, after: &Matrix, change: &Change) {
    let mut entries: BTreeMap<(HostId, u32, u32), JobId> = BTreeMap::new();
    let hosts: BTreeMap<HostId, u32> = after.hosts().collect();
    let mut last = 0;
    for (job, span, placement) in after.jobs() {
        assert!(!placement.rows.is_empty(), "job {job} has no row");
        let widths = |cpus: &BTreeMap<HostId, CpuSet>| -> Vec<(HostId, u32)> {
            cpus.iter().map(|(host, cpus)| (*host, cpus.len() as u32)).collect()
        };
        let asked: Vec<(HostId, u32)> = span.cpus.iter().map(|(h, cpus)| (*h, *cpus)).collect();
        assert_eq!(widths(&placement.cpus), asked, "job {job} has all of its CPUs");
        for (host, allowed) in &span.allowed {
            let is_within = placement.cpus.get(host).is_none_or(|cpus| cpus.is_subset(allowed));
            assert!(is_within, "job {job} is bound to {allowed} on host {host}");
        }
        for row in placement.rows.iter() {
            last = last.max(row + 1);
            assert!(row < after.frame(), "job {job} has row {row} of {}", after.frame());
            for (&host, cpus) in &placement.cpus {
                let slots = after.slots_in(host, row);
                assert!(slots.iter().any(|slot| slot.job == job && slot.cpus == *cpus));
                for cpu in cpus.iter() {
                    assert!(cpu < hosts[&host], "host {host} has no CPU {cpu}");
                    let other = entries.insert((host, cpu, row), job);
                    assert_eq!(other, None, "CPU {cpu} of host {host} in row {row} is job {job}'s");
                }
            }
        }
        let is_new = before.placement(job) != Some(placement);
        assert_eq!(is_new, change.placed.contains_key(&job), "job {job} changed: {is_new}");
    }
    assert_eq!(change.frame, after.frame());
    assert!(after.frame() == last || after.jobs().count() == 0 || after.frame() > last);
    for (job, placement) in &change.placed {
        assert_eq!(after.placement(*job), Some(placement));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The real matrix changes as this one does.
    #[test]
    fn changes_are_those_of_the_naive_one(matrix in random::empty(), steps in random::history()) {
        let mut naive = Naive::of(&matrix);
        let mut matrix = matrix;
        for step in steps {
            let before = matrix.clone();
            let Ok(change) = step.apply(&mut matrix) else {
                prop_assert_eq!(format!("{:?}", before), format!("{:?}", matrix));
                continue;
            };
            check_change(&before, &matrix, &change);
            match naive.apply(&step) {
                Some(moved) => {
                    let moved = naive.placements(&moved);
                    prop_assert_eq!(change.frame, naive.frame());
                    prop_assert_eq!(change.placed, moved);
                }
                None => naive.take_over(&change),
            }
        }
    }
}
