//! A deliberately naive version of the policy, written from its description
//! and with none of its shortcuts: everything is recomputed from plain lists
//! each time. The real one must make the same plans.

use crate::random::{self, Step};
use gang_schedule::matrix::Rows;
use gang_schedule::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SLICE: u128 = 5_342_931_457_063_200 * 10_000;
const START: u128 = SLICE * 10_000;

#[derive(Clone)]
struct Job {
    id: u64,
    spec: Spec,
    asleep: bool,
    suspended: bool,
    /// The entries in force name it.
    spans: bool,
    tier: usize,
    weight: u128,
    vtime: u128,
    /// Among the gangs of its user, and among those of its group.
    own: u128,
    in_group: u128,
    /// The request: virtual time used of it, and slices left.
    used: u128,
    left: u32,
    last_cpus: Vec<u32>,
    charged: Option<u64>,
}

#[derive(Clone)]
struct Naive {
    config: Config,
    cpus: Vec<Cpu>,
    jobs: Vec<Job>,
    entries: Vec<EntryList>,
    threads: u32,
    of_users: Vec<(UserId, u32)>,
    rest_weight: u128,
    rest_vtime: u128,
    /// Users who left ahead of the floor: in which tier, and up to which virtual time.
    debts: Vec<(UserId, usize, u128)>,
    floors: [u128; 3],
    allowance: i64,
    /// The rest that capped users may take, in ‰ of a CPU for a slice, and groups with a quota.
    of_caps: Vec<(UserId, i64)>,
    of_quotas: Vec<(u64, i64)>,
    /// Whether a gang had a slot in the slice under way at any time.
    with_gangs: bool,
}

/// Someone in a line; the rest has no id.
#[derive(Clone, Copy)]
struct One {
    id: Option<u64>,
    width: usize,
    vtime: u128,
    since: u128,
    stride: u128,
    left: u32,
    slices: u32,
    weight: u128,
}

impl One {
    fn rank(&self) -> (u128, u64) {
        (self.vtime + u128::from(self.left) * self.stride, self.id.unwrap_or(u64::MAX))
    }
}

/// A row can be had at once.
fn first_of_caps(caps: &BTreeMap<UserId, u32>, machine: usize) -> Vec<(UserId, i64)> {
    caps.iter().map(|(&user, &cap)| (user, (1000 - i64::from(cap)) * machine as i64)).collect()
}

impl Naive {
    fn new(config: &Config, topology: &Topology) -> Naive {
        Naive {
            config: config.clone(),
            cpus: topology.cpus().to_vec(),
            jobs: vec![],
            entries: vec![],
            threads: 0,
            of_users: vec![],
            rest_weight: 0,
            rest_vtime: START,
            debts: vec![],
            floors: [START; 3],
            allowance: 1000 - i64::from(config.cap_permille),
            of_caps: first_of_caps(&config.caps, topology.cpus().len()),
            of_quotas: vec![],
            with_gangs: false,
        }
    }

    fn machine(&self) -> usize {
        self.cpus.len()
    }

    fn job(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.id == id.0)
    }

    fn tier(&self, spec: &Spec) -> usize {
        match spec.class {
            Class::Express if self.config.class_weights.express.is_none() => 0,
            Class::Express | Class::Interactive | Class::Batch => 1,
            Class::Standby => 2,
        }
    }

    /// The weight that a job asks for, in hundredths.
    fn asked(&self, spec: &Spec) -> u128 {
        let percent = match spec.class {
            Class::Interactive => self.config.class_weights.interactive,
            Class::Batch => self.config.class_weights.batch,
            Class::Express => self.config.class_weights.express.unwrap_or(100),
            Class::Standby => 100,
        };
        let asked = u128::from(spec.weight) * u128::from(percent) * 100;
        asked * 100 / (100 + u128::from(spec.overhead.min(900)))
    }

    fn width(&self, spec: &Spec) -> usize {
        self.demand(spec).unwrap().iter().map(|(_, count)| count).sum()
    }

    /// The weights that all of a user ask for in a tier, with their widths: jobs that can run, and
    /// threads outside of all jobs.
    fn of_user(&self, user: UserId, tier: usize) -> Vec<(u128, u128)> {
        let jobs = self.jobs.iter().filter(|job| {
            job.spec.user == user && self.tier(&job.spec) == tier && self.runnable(job)
        });
        let mut all: Vec<(u128, u128)> =
            jobs.map(|job| (self.asked(&job.spec), self.width(&job.spec) as u128)).collect();
        for &(other, threads) in &self.of_users {
            if other == user && tier == 1 {
                all.extend(std::iter::repeat_n((1_000_000, 1), threads as usize));
            }
        }
        all
    }

    /// The weight of a program of a user that asks for so much.
    fn part(&self, user: UserId, tier: usize, asked: u128) -> u128 {
        let Sharing::ByUser(shares) = &self.config.sharing else { return asked };
        let share = u128::from(shares.get(&user).copied().unwrap_or(100)) * 10_000;
        let all = self.of_user(user, tier);
        let cpus = self.machine() as u128;
        let greatest = all.iter().map(|(asked, _)| *asked).max().unwrap().max(1_000_000) * cpus;
        let side_by_side = all.iter().map(|(asked, width)| asked * width).sum();
        (share * asked * cpus / greatest.max(side_by_side)).max(100)
    }

    fn weigh_the_rest(&self) -> u128 {
        if self.config.sharing == Sharing::ByProgram {
            return u128::from(self.threads) * 1_000_000;
        }
        let known: u32 = self.of_users.iter().map(|(_, threads)| threads).sum();
        let (mut of_known, mut given, mut asked) = (0, 0, 0);
        for &(user, threads) in &self.of_users {
            for _ in 0..threads {
                of_known += self.part(user, 1, 1_000_000);
                asked += 1_000_000;
            }
        }
        given += of_known;
        for job in self.jobs.iter().filter(|job| self.runnable(job)) {
            if self.tier(&job.spec) == 1 {
                given += self.part(job.spec.user, 1, self.asked(&job.spec));
                asked += self.asked(&job.spec);
            }
        }
        let unknown = u128::from(self.threads - known);
        of_known
            + match asked {
                0 => unknown * 1_000_000,
                asked => (unknown * 1_000_000 * given / asked).max(unknown * 100),
            }
    }

    fn slices(&self, class: Class) -> u32 {
        match class {
            Class::Express => self.config.class_slices.express,
            Class::Interactive => self.config.class_slices.interactive,
            Class::Batch => self.config.class_slices.batch,
            Class::Standby => self.config.class_slices.standby,
        }
    }

    /// A slot of a job.
    fn charge(&mut self, id: u64, slice: u64) {
        let spec = self.job(JobId(id)).unwrap().spec.clone();
        let slices = self.slices(spec.class);
        let job = self.job(JobId(id)).unwrap();
        let stride = SLICE * 100 / job.weight;
        job.charged = Some(slice);
        job.vtime += stride;
        job.own += stride;
        job.in_group += stride;
        (job.used, job.left) = (job.used + stride, job.left - 1);
        if job.left == 0 {
            (job.used, job.left) = (0, slices);
        }
    }

    /// The mean virtual time of those of a tier who can run, without one of them.
    fn mean(&self, tier: usize, leaver: Option<u64>) -> u128 {
        let stays = |one: &&One| leaver.is_none() || one.id != leaver;
        let mut all: Vec<(u128, u128)> =
            self.line(tier).iter().filter(stays).map(|one| (one.weight, one.vtime)).collect();
        if tier == 1 && self.threads > 0 {
            let led = (self.threads as usize).min(self.machine()) as u128;
            all.push((self.rest_weight / led, self.rest_vtime));
        }
        let weights: u128 = all.iter().map(|(weight, _)| weight).sum();
        if weights == 0 {
            return self.floors[tier];
        }
        let least = all.iter().map(|(_, vtime)| *vtime).min().unwrap();
        let moment: u128 = all.iter().map(|(weight, vtime)| weight * (vtime - least)).sum();
        least + moment / weights
    }

    /// Another weight: ahead of the mean or behind it by as many slices, but not
    /// behind by more than a request.
    fn rescaled(vtime: u128, mean: u128, old: u128, new: u128, slices: u32) -> u128 {
        if vtime > mean {
            mean + (vtime - mean) * old / new
        } else {
            mean - ((mean - vtime) * old / new).min(SLICE * 100 / new * u128::from(slices))
        }
    }

    /// In another tier: ahead of its floor by as much as in the old one.
    fn moved(vtime: u128, old: usize, new: usize, floors: [u128; 3]) -> u128 {
        if old == new { vtime } else { floors[new] + vtime.saturating_sub(floors[old]) }
    }

    /// A job begins no further back than the last of its user's gangs, and of its group's.
    fn is_owed_nothing(&mut self, id: u64) {
        let user = self.job(JobId(id)).unwrap().spec.user;
        let others = self.jobs.iter();
        let others =
            others.filter(|it| it.id != id && it.spec.user == user && self.takes_turns(it));
        let mut least = others.map(|job| job.own).min();
        if least.is_none() {
            let others = self.jobs.iter();
            let others = others.filter(|it| it.id != id && it.spec.user == user);
            least = others.map(|job| job.own).min();
        }
        let least = least.unwrap_or(0);
        let least_in_group = self.least_in_group(id).unwrap_or(0);
        let job = self.job(JobId(id)).unwrap();
        job.own = job.own.max(least);
        job.in_group = job.in_group.max(least_in_group);
    }

    fn least_in_group(&self, id: u64) -> Option<u128> {
        let group = self.spec(id).quota?.group;
        let is_there = |it: &&Job| {
            let quota = it.spec.quota;
            it.id != id && quota.is_some_and(|it| it.group == group)
        };
        let there: Vec<&Job> = self.jobs.iter().filter(is_there).collect();
        let in_turns = there.iter().filter(|job| self.takes_turns(job)).map(|job| job.in_group);
        in_turns.min().or(there.iter().map(|job| job.in_group).min())
    }

    /// A job is bound by this quota from now on, in another group than before, or in the same.
    fn limit(&mut self, id: u64, before: Option<Quota>) {
        let group = |quota: Option<Quota>| quota.map(|quota| quota.group);
        if group(before) != group(self.spec(id).quota) {
            let least = self.least_in_group(id).unwrap_or(0);
            self.job(JobId(id)).unwrap().in_group = least;
        }
    }

    /// Of each group with a quota that jobs are in: what a slice adds, and the most that is kept.
    fn quotas(&self) -> Vec<(u64, i64, i64)> {
        let mut groups: Vec<u64> =
            self.jobs.iter().filter_map(|job| Some(job.spec.quota?.group)).collect();
        groups.sort();
        groups.dedup();
        let quota = |group: u64| {
            let jobs: Vec<&Job> = self
                .jobs
                .iter()
                .filter(|job| job.spec.quota.is_some_and(|quota| quota.group == group))
                .collect();
            let least = jobs.iter().map(|job| job.spec.quota.unwrap().cpu_permille.max(1)).min();
            let gangs = jobs.iter().filter(|it| it.spec.policy == Policy::Gang);
            let costs = gangs
                .filter(|it| self.has_place(it))
                .map(|it| self.cost_of_quota(it.spec.quota, self.width(&it.spec) as i64));
            let most = costs.max().unwrap_or(0) - 1;
            (group, i64::from(least.unwrap()), most.max(0))
        };
        groups.into_iter().map(quota).collect()
    }

    /// A job behind the floor starts there, and asks anew.
    fn raise_to_floor(&mut self, id: u64) {
        let spec = self.job(JobId(id)).unwrap().spec.clone();
        let (floor, slices) = (self.floors[self.tier(&spec)], self.slices(spec.class));
        let job = self.job(JobId(id)).unwrap();
        if job.vtime < floor {
            (job.vtime, job.used, job.left) = (floor, 0, slices);
        }
    }

    fn acceptable(&self, spec: &Spec) -> bool {
        spec.min_cpus >= 1
            && spec.cpus >= spec.min_cpus
            && (1..=10_000).contains(&spec.weight)
            && (spec.policy == Policy::None || spec.min_cpus as usize <= self.machine())
    }

    /// Whether the event was accepted.
    fn apply(&mut self, event: &Event) -> bool {
        let leaver = match event {
            Event::Departed { job } | Event::Slept { job } | Event::Suspended { job } => {
                Some(job.0)
            }
            _ => None,
        };
        let means = [0, 1, 2].map(|tier| self.mean(tier, leaver));
        let before = self.clone();
        let Some((anew, without_credit)) = self.happen(event) else {
            *self = before;
            return false;
        };
        let of_quota = |(group, ..): (u64, i64, i64)| {
            let had = before.of_quotas.iter().find(|(other, _)| *other == group);
            (group, had.map_or(0, |(_, left)| *left))
        };
        self.of_quotas = self.quotas().into_iter().map(of_quota).collect();
        for at in 0..self.jobs.len() {
            let Job { id, spec, tier, weight, vtime, .. } = self.jobs[at].clone();
            let by_program = self.config.sharing == Sharing::ByProgram;
            let new = if by_program || self.runnable(&self.jobs[at]) {
                self.part(spec.user, self.tier(&spec), self.asked(&spec))
            } else if weight == 0 {
                self.asked(&spec)
            } else {
                weight
            };
            let slices = self.slices(spec.class);
            let floors = self.floors;
            let job = &mut self.jobs[at];
            if weight == 0 {
                // It has just come.
                let debt = before.debts.iter().find(|it| (it.0, it.1) == (spec.user, tier));
                let ahead = debt.map_or(0, |it| it.2.saturating_sub(floors[tier]));
                job.vtime += ahead * 1_000_000 / new;
                self.debts.retain(|it| (it.0, it.1) != (spec.user, tier));
            } else if anew.contains(&id) || new != weight {
                job.used = job.used * weight / new;
                job.vtime = Naive::rescaled(vtime, means[tier], weight, new, slices);
            }
            job.weight = new;
            if anew.contains(&id) {
                (job.used, job.left) = (0, slices);
                let now = self.tier(&spec);
                self.jobs[at].vtime = Naive::moved(self.jobs[at].vtime, tier, now, floors);
                self.jobs[at].tier = now;
            }
        }
        self.rest_weight = self.weigh_the_rest();
        for id in without_credit {
            self.raise_to_floor(id);
            self.is_owed_nothing(id);
        }
        true
    }

    /// The jobs that ask for something else now, and those that have no credit for the time before.
    /// Absent where the event is refused.
    fn happen(&mut self, event: &Event) -> Option<(Vec<u64>, Vec<u64>)> {
        let floors = self.floors;
        let nobody = Some((vec![], vec![]));
        match event {
            Event::Arrived { job, spec } => {
                if self.job(*job).is_some() || !self.acceptable(spec) {
                    return None;
                }
                let (left, tier) = (self.slices(spec.class), self.tier(spec));
                self.jobs.push(Job {
                    id: job.0,
                    spec: spec.clone(),
                    asleep: false,
                    suspended: false,
                    spans: false,
                    tier,
                    weight: 0,
                    vtime: floors[tier],
                    own: 0,
                    in_group: 0,
                    used: 0,
                    left,
                    last_cpus: vec![],
                    charged: None,
                });
                self.jobs.sort_by_key(|job| job.id);
                self.is_owed_nothing(job.0);
                nobody
            }
            Event::Departed { job } => {
                let Job { spec, tier, weight, vtime, .. } = self.job(*job)?.clone();
                self.jobs.retain(|other| other.id != job.0);
                let ahead = vtime.saturating_sub(floors[tier]) * weight / 1_000_000;
                let is_his = |it: &&mut (UserId, usize, u128)| (it.0, it.1) == (spec.user, tier);
                self.debts.retain(|it| it.2 > floors[it.1]);
                match self.debts.iter_mut().find(is_his) {
                    Some(debt) if vtime > floors[tier] => debt.2 += ahead,
                    None if vtime > floors[tier] => {
                        self.debts.push((spec.user, tier, floors[tier] + ahead));
                    }
                    _ => {}
                }
                nobody
            }
            Event::Confined { job: id, to } => {
                let job = self.job(*id)?.clone();
                let waited = !self.has_place(&job) && job.spec.allowed != *to;
                self.job(*id)?.spec.allowed = to.clone();
                Some((vec![], if waited { vec![id.0] } else { vec![] }))
            }
            Event::Load { threads, of_users } => {
                if of_users.values().map(|&of| u64::from(of)).sum::<u64>() > u64::from(*threads) {
                    return None;
                }
                if self.threads == 0 && *threads > 0 {
                    self.rest_vtime = self.rest_vtime.max(floors[1]);
                }
                self.threads = *threads;
                self.of_users = of_users.iter().map(|(&user, &of)| (user, of)).collect();
                nobody
            }
            Event::Topology(topology) => {
                let waits = |job: &&Job| {
                    let ready = !job.asleep && !job.suspended && job.spec.policy == Policy::Gang;
                    ready && !self.has_place(job)
                };
                let waiting = self.jobs.iter().filter(waits).map(|job| job.id).collect();
                self.cpus = topology.cpus().to_vec();
                Some((vec![], waiting))
            }
            Event::Classes { weights, slices } => {
                let known = (1..=10_000).contains(&weights.express.unwrap_or(1))
                    && (1..=10_000).contains(&weights.interactive)
                    && (1..=10_000).contains(&weights.batch)
                    && [slices.express, slices.interactive, slices.batch, slices.standby]
                        .iter()
                        .all(|slices| (1..=1000).contains(slices));
                self.config.class_weights = *weights;
                self.config.class_slices = *slices;
                known.then(|| (self.jobs.iter().map(|job| job.id).collect(), vec![]))
            }
            Event::Caps(caps) => {
                self.config.caps = caps.clone();
                let before = std::mem::take(&mut self.of_caps);
                self.of_caps = first_of_caps(caps, self.cpus.len());
                for (user, left) in &mut self.of_caps {
                    let had = before.iter().find(|(other, _)| other == user);
                    *left = had.map_or(*left, |(_, had)| *had);
                }
                if caps.values().all(|cap| (1..=1000).contains(cap)) { nobody } else { None }
            }
            Event::Entries(entries) => {
                self.entries = entries.lists().cloned().collect();
                nobody
            }
            Event::Sharing(sharing) => {
                self.config.sharing = sharing.clone();
                let is_known = match sharing {
                    Sharing::ByProgram => true,
                    Sharing::ByUser(of) => of.values().all(|it| (1..=10_000).contains(it)),
                };
                if is_known { nobody } else { None }
            }
            Event::Changed { job, spec } => {
                if !self.acceptable(spec) {
                    return None;
                }
                let before = self.job(*job)?.spec.quota;
                self.job(*job)?.spec = spec.clone();
                self.limit(job.0, before);
                Some((vec![job.0], vec![job.0]))
            }
            Event::Limited { job, to } => {
                let before = std::mem::replace(&mut self.job(*job)?.spec.quota, *to);
                self.limit(job.0, before);
                nobody
            }
            Event::Overhead { job, percent } => {
                self.job(*job)?.spec.overhead = *percent;
                nobody
            }
            Event::Woke { job } => {
                self.job(*job)?.asleep = false;
                Some((vec![], vec![job.0]))
            }
            Event::Resumed { job } => {
                self.job(*job)?.suspended = false;
                Some((vec![], vec![job.0]))
            }
            Event::Slept { job } => {
                self.job(*job)?.asleep = true;
                nobody
            }
            Event::Suspended { job } => {
                self.job(*job)?.suspended = true;
                nobody
            }
        }
    }

    fn runnable(&self, job: &Job) -> bool {
        !job.suspended && !job.asleep && job.spec.policy == Policy::Gang && self.has_place(job)
    }

    /// There are CPUs for it, and entries where it has slots by these alone.
    fn has_place(&self, job: &Job) -> bool {
        let mut entries = self.entries.iter().flat_map(|list| &list.entries);
        self.demand(&job.spec).is_some()
            && (!job.spec.spanning || entries.any(|entry| entry.job.0 == job.id))
    }

    fn takes_turns(&self, job: &Job) -> bool {
        self.runnable(job) && !job.spans && !job.spec.spanning
    }

    /// The entries in force.
    fn list(&self, slice: u64) -> Option<EntryList> {
        let begun = self.entries.iter().filter(|list| list.from_slice <= slice);
        begun.max_by_key(|list| list.from_slice).cloned()
    }

    /// The entries of a slice come into force: what spanning jobs have in it.
    fn span(&mut self, slice: u64) -> Vec<Slot> {
        let list = self.list(slice);
        let entries: Vec<Entry> = list.iter().flat_map(|list| list.entries.clone()).collect();
        let mut local = vec![];
        for job in &mut self.jobs {
            let spans = entries.iter().any(|entry| entry.job.0 == job.id);
            local.extend((job.spans && !spans).then_some(job.id));
            job.spans = spans;
        }
        for id in local {
            self.raise_to_floor(id);
            self.is_owed_nothing(id);
        }
        let Some(EntryList { frame, .. }) = list else { return vec![] };
        let mut order: Vec<u32> = (0..frame).collect();
        order.sort_by_key(|row| row.reverse_bits());
        let slices_per_hour = 3_600_000_000_000 / self.config.slice_ns;
        let row = order[(slice % slices_per_hour) as usize % order.len()];
        let mut slots = vec![];
        for job in self.jobs.iter().filter(|job| self.runnable(job)) {
            let entry = entries.iter().find(|it| it.job.0 == job.id && it.rows.contains(row));
            let Some(Entry { cpus, .. }) = entry else { continue };
            let allowed = &job.spec.allowed;
            let is_open = |cpu: u32| {
                self.cpus.iter().any(|it| it.id == cpu)
                    && allowed.cpus().is_none_or(|cpus| cpus.contains(cpu))
            };
            let has = |bound: &Bound| cpus.iter().any(|cpu| bound.cpus.contains(cpu));
            if cpus.iter().all(is_open) && allowed.bound().iter().all(has) {
                slots.push(Slot { job: JobId(job.id), cpus: cpus.clone() });
            }
        }
        slots
    }

    /// The rows with room for a gang or for the rest, however many of the others run.
    fn rows(&self, list: &EntryList, id: Option<u64>) -> Rows {
        let has_room = |row: &u32| {
            let taken = |cpu: u32| {
                let mut in_row = list.entries.iter().filter(|entry| entry.rows.contains(*row));
                in_row.any(|entry| entry.cpus.contains(cpu))
            };
            let left: Vec<u32> =
                self.cpus.iter().map(|cpu| cpu.id).filter(|&cpu| !taken(cpu)).collect();
            let width = id.map_or(1, |id| self.width(self.spec(id)));
            width <= left.len() && self.fits_beside(&[], id, &left)
        };
        (0..list.frame).filter(has_room).collect()
    }

    /// By how many slices rows come late, over any stretch of a frame after the other.
    fn late(list: &EntryList, rows: &Rows) -> u32 {
        let mut order: Vec<u32> = (0..list.frame).collect();
        order.sort_by_key(|row| row.reverse_bits());
        let mut most = 0;
        for first in 0..order.len() {
            let mut owed = 0;
            for at in 0..order.len() {
                let row = order[(first + at) % order.len()];
                owed += i64::from(rows.len());
                owed -= if rows.contains(row) { i64::from(list.frame) } else { 0 };
                most = most.max(owed);
            }
        }
        (most as u64).div_ceil(u64::from(list.frame)) as u32
    }

    /// The claims of those that entries keep out, beside contenders.
    fn bound_claims(
        &mut self,
        list: &EntryList,
        held: &[One],
        contenders: &[One],
        floor: u128,
        most: u32,
    ) {
        let mut groups: Vec<Rows> = held.iter().map(|one| self.rows(list, one.id)).collect();
        groups.sort_by_key(|rows| (std::cmp::Reverse(rows.len()), rows.clone()));
        groups.dedup();
        let standing = |this: &mut Naive, all: &[One]| {
            let weight: u128 = all.iter().map(|one| one.weight).sum();
            let least = all.iter().map(|one| *this.vtime(one.id)).min()?;
            let moment: u128 =
                all.iter().map(|one| one.weight * (*this.vtime(one.id) - least)).sum();
            Some((least + moment / weight, weight, least))
        };
        let contenders = standing(self, contenders);
        // The rows of the groups before, how far these moved, and where they stand.
        let mut before: Vec<(Rows, u128, (u128, u128, u128))> = vec![];
        for rows in groups {
            let group: Vec<One> =
                held.iter().copied().filter(|one| self.rows(list, one.id) == rows).collect();
            if rows.is_empty() {
                for one in group {
                    match one.id {
                        Some(id) => self.raise_to_floor(id),
                        None => self.rest_vtime = self.rest_vtime.max(floor),
                    }
                }
                continue;
            }
            let shares_rows = |other: &Rows| other.iter().any(|row| rows.contains(row));
            let mut along = 0;
            let mut others: Vec<(u128, u128, u128)> = contenders.into_iter().collect();
            for (_, by, of_others) in before.iter().filter(|it| shares_rows(&it.0)) {
                along = along.max(*by);
                others.push(*of_others);
            }
            let of_group: u128 = group.iter().map(|one| one.weight).sum();
            let slices = u128::from(Naive::late(list, &rows) + most);
            let beyond = |this: &mut Naive, one: &One| {
                let bound = others.iter().map(|(average, weight, least)| {
                    let most = slices * one.stride;
                    let far = average.saturating_sub(most + most * of_group / weight);
                    far.min(least.saturating_sub(most))
                });
                bound.min().unwrap_or(0).saturating_sub(*this.vtime(one.id))
            };
            let by = group.iter().map(|one| beyond(self, one)).min().unwrap().max(along);
            for one in &group {
                *self.vtime(one.id) += by;
            }
            let of_group = standing(self, &group).unwrap();
            before.push((rows, by, of_group));
        }
    }

    /// The allowance after a slice with gangs.
    fn pay_for_gangs(&mut self, slice: u64) {
        let frame = self.list(slice).map_or(0, |list| list.frame);
        let beyond = i64::from(frame) * (1000 - i64::from(self.config.cap_permille));
        self.allowance = (self.allowance - 1000).max(-beyond);
        self.with_gangs = true;
    }

    /// Of how many CPUs a gang needs how many: the CPUs of each set of bound threads, then all that
    /// it may use. Absent where these do not do.
    fn demand(&self, spec: &Spec) -> Option<Units> {
        let online: Vec<u32> = self.cpus.iter().map(|cpu| cpu.id).collect();
        let of = |cpus: Option<&CpuSet>| -> Vec<u32> {
            online.iter().copied().filter(|&cpu| cpus.is_none_or(|it| it.contains(cpu))).collect()
        };
        let usable = of(spec.allowed.cpus());
        let width = usable.len().min(spec.cpus as usize);
        if usable.is_empty() || (spec.min_cpus as usize) > width {
            return None;
        }
        // Of each set: its CPUs, and its threads.
        let mut sets: Vec<(Vec<u32>, usize)> = vec![];
        for bound in spec.allowed.bound() {
            let mut cpus = of(Some(&bound.cpus));
            cpus.sort();
            match sets.iter_mut().find(|(other, _)| *other == cpus) {
                Some((_, threads)) => *threads += bound.threads as usize,
                None => sets.push((cpus, bound.threads as usize)),
            }
        }
        sets.sort_by_key(|(cpus, _)| (cpus.len(), cpus.iter().copied().collect::<CpuSet>()));
        if sets.iter().any(|(cpus, _)| cpus.is_empty()) {
            return None;
        }
        let mut counts = vec![0; sets.len()];
        let units = |counts: &[usize]| -> Units {
            sets.iter().zip(counts).map(|((cpus, _), &count)| (cpus.clone(), count)).collect()
        };
        let more = |counts: &mut Vec<usize>, at: usize| {
            counts[at] += 1;
            let can = can_be_met(&online, &units(counts));
            counts[at] -= usize::from(!can);
            can
        };
        for at in 0..sets.len() {
            let contains = |small: &[u32]| small.iter().all(|cpu| sets[at].0.contains(cpu));
            if !sets[..at].iter().any(|(small, _)| contains(small)) {
                more(&mut counts, at);
            }
        }
        if counts.iter().sum::<usize>() > width {
            return None;
        }
        for _ in 0..width {
            for at in 0..sets.len() {
                if counts[at] < sets[at].1 && counts.iter().sum::<usize>() < width {
                    more(&mut counts, at);
                }
            }
        }
        // Sets of which it needs all CPUs are one.
        let mut all: Units = vec![(vec![], 0)];
        for (cpus, count) in units(&counts) {
            if count == cpus.len() {
                all[0].0.extend(cpus);
                all[0].1 += count;
            } else {
                all.push((cpus, count));
            }
        }
        all.push((usable, width - counts.iter().sum::<usize>()));
        all.retain(|(_, count)| *count > 0);
        Some(all)
    }

    /// Whether it has to be placed with care.
    fn is_confined(&self, spec: &Spec) -> bool {
        let is_subset = |cpus: &CpuSet| self.cpus.iter().all(|cpu| cpus.contains(cpu.id));
        !spec.allowed.bound().is_empty() || !spec.allowed.cpus().is_none_or(is_subset)
    }

    fn line(&self, tier: usize) -> Vec<One> {
        let mut line: Vec<One> = vec![];
        for job in &self.jobs {
            if self.takes_turns(job) && self.tier(&job.spec) == tier {
                let (weight, width) = (job.weight, self.width(&job.spec));
                let stride = SLICE * 100 / weight;
                let since = job.vtime.saturating_sub(job.used);
                let (id, slices) = (Some(job.id), self.slices(job.spec.class));
                let (vtime, left) = (job.vtime, job.left);
                line.push(One { id, width, vtime, since, stride, left, slices, weight });
            }
        }
        line.sort_by_key(One::rank);
        line
    }

    /// Gangs for which too little of their group's quota is left, and all of that group after
    /// them; of the others the same by their users' caps. Some `paid` before.
    fn out_of_caps(&self, paid: &[u64]) -> Vec<u64> {
        let mut out = paid.to_vec();
        for &(group, left) in &self.of_quotas {
            let is_there = |job: &Job| job.spec.quota.is_some_and(|quota| quota.group == group);
            // A gang for which nothing is left of its user's cap takes nothing here.
            let has_none = |job: &&Job| {
                let cap = self.of_caps.iter().find(|(user, _)| *user == job.spec.user);
                let cost = || 1000 * self.width(&job.spec) as i64;
                let is_beyond = |left: i64| cost() > left;
                is_there(job)
                    && self.takes_turns(job)
                    && cap.is_some_and(|&(_, left)| is_beyond(left))
            };
            let is_new = |job: &&Job| !out.contains(&job.id);
            let none: Vec<u64> =
                self.jobs.iter().filter(has_none).filter(is_new).map(|job| job.id).collect();
            out.extend(none);
            let cost = |job: &Job, width| self.cost_of_quota(job.spec.quota, width);
            out.extend(self.beyond(left, &out, is_there, |job| job.in_group, cost));
        }
        for &(user, left) in &self.of_caps {
            let whole = |_: &Job, width| 1000 * width;
            out.extend(self.beyond(left, &out, |job| job.spec.user == user, |job| job.own, whole));
        }
        out.retain(|id| !paid.contains(id));
        out.sort();
        out
    }

    /// The first of some gangs, in the order of what they had, for whom nothing is `left`, and
    /// those after him; without some.
    fn beyond(
        &self,
        mut left: i64,
        without: &[u64],
        is_one: impl Fn(&Job) -> bool,
        had: impl Fn(&Job) -> u128,
        cost: impl Fn(&Job, i64) -> i64,
    ) -> Vec<u64> {
        let (mut out, mut ended) = (vec![], false);
        let job = |one: &One| self.jobs.iter().find(|job| Some(job.id) == one.id).unwrap();
        for tier in 0..3 {
            let mut line = self.line(tier);
            line.retain(|one| is_one(job(one)) && !without.contains(&job(one).id));
            line.sort_by_key(|one| (had(job(one)), one.id));
            for one in line {
                left -= cost(job(&one), one.width as i64);
                ended |= left < 0;
                out.extend(one.id.filter(|_| ended));
            }
        }
        out
    }

    /// A slot takes no more than the kernel gives at a time.
    fn cost_of_quota(&self, quota: Option<Quota>, cpus: i64) -> i64 {
        let Some(Quota { cpu_permille, period_us, .. }) = quota else { return 1000 * cpus };
        let slice_ns = i128::from(self.config.slice_ns);
        let at_a_time =
            i128::from(cpu_permille.max(1)) * (1000 * i128::from(period_us)).max(slice_ns);
        i128::min(1000 * i128::from(cpus), at_a_time / slice_ns) as i64
    }

    fn pay(&mut self, id: u64) {
        let job = self.jobs.iter().find(|job| job.id == id).unwrap();
        let (user, quota) = (job.spec.user, job.spec.quota);
        let width = self.width(&job.spec) as i64;
        self.pay_from_quota(quota, self.cost_of_quota(quota, width));
        if let Some((_, left)) = self.of_caps.iter_mut().find(|(other, _)| *other == user) {
            *left -= 1000 * width;
        }
    }

    fn pay_from_quota(&mut self, quota: Option<Quota>, cost: i64) {
        let is_it = |(group, _): &&mut (u64, i64)| quota.is_some_and(|it| it.group == *group);
        self.of_quotas.iter_mut().find(is_it).into_iter().for_each(|(_, left)| *left -= cost);
    }

    fn rest_stride(&self, served: usize) -> u128 {
        SLICE * 100 * served as u128 / self.rest_weight
    }

    fn plan(&mut self, slice: u64) -> Plan {
        let threads = self.threads as usize;
        self.allowance = self.allowance.min(999) + i64::from(self.config.cap_permille);
        let capped = self.allowance < 1000;
        let machine = self.machine() as i64;
        for (&user, &cap) in &self.config.caps {
            let add = i64::from(cap) * machine;
            let (_, left) = self.of_caps.iter_mut().find(|(other, _)| *other == user).unwrap();
            *left = (*left).min(1000 * machine - 1) + add;
        }
        let spanning = self.span(slice);
        for (group, add, most) in self.quotas() {
            let (_, left) = self.of_quotas.iter_mut().find(|(other, _)| *other == group).unwrap();
            *left = (*left).min(most) + add;
        }
        for Slot { job, cpus } in &spanning {
            let quota = self.spec(job.0).quota;
            self.pay_from_quota(quota, self.cost_of_quota(quota, cpus.len() as i64));
            self.of_quotas.iter_mut().for_each(|(_, left)| *left = (*left).max(0));
            let user = self.spec(job.0).user;
            if let Some((_, left)) = self.of_caps.iter_mut().find(|(other, _)| *other == user) {
                *left = (*left - 1000 * cpus.len() as i64).max(0);
            }
        }
        let all: Vec<u32> = self.cpus.iter().map(|cpu| cpu.id).collect();
        let taken = |cpu: u32| spanning.iter().any(|slot| slot.cpus.contains(cpu));
        let online: Vec<u32> = all.iter().copied().filter(|&cpu| !taken(cpu)).collect();
        let out = self.out_of_caps(&[]);
        let mut free = online.len();
        let mut served = 0;
        let mut rest_turn = capped;
        let mut rest_kept = 0;
        let (mut row, mut waiting): (Vec<(u64, usize)>, Vec<u64>) = (vec![], vec![]);
        let mut charged = vec![];
        for tier in 0..3 {
            let there = if tier == 2 { free - served } else { free };
            let mut line = self.line(tier);
            if tier == 1 && threads > 0 {
                let led = threads.min(there).max(1);
                let weight = self.rest_weight / led as u128;
                let stride = self.rest_stride(led);
                let vtime = self.rest_vtime;
                let (since, left, slices) = (vtime, 1, 1);
                line.push(One { id: None, width: 1, vtime, since, stride, left, slices, weight });
                line.sort_by_key(One::rank);
            }
            let can_lead = |o: &One| {
                !o.id.is_some_and(|id| out.contains(&id))
                    && o.width <= there
                    && self.fits_beside(&row, o.id, &online)
            };
            // As many as there would be without entries in this slice.
            let whole = free + all.len() - online.len();
            let whole = if tier == 2 { whole - threads.min(whole) } else { whole };
            let is_held = |o: &One| {
                !o.id.is_some_and(|id| out.contains(&id))
                    && o.width <= whole
                    && self.fits_beside(&row, o.id, &all)
            };
            let contenders: Vec<One> = line.iter().copied().filter(can_lead).collect();
            let others: Vec<One> = line.iter().copied().filter(|o| !can_lead(o)).collect();
            let held: Vec<One> = others.iter().copied().filter(is_held).collect();
            let weights: u128 = contenders.iter().map(|o| o.weight).sum();
            let least = contenders.iter().map(|o| o.vtime).min().unwrap_or(0);
            let moment: u128 = contenders.iter().map(|o| o.weight * (o.vtime - least)).sum();
            let leader = contenders
                .iter()
                .filter(|o| o.since.saturating_sub(least) * weights <= moment)
                .min_by_key(|o| o.rank())
                .map(|o| o.id);
            let mut ordered: Vec<One> =
                contenders.iter().copied().filter(|o| Some(o.id) == leader).collect();
            ordered.extend(contenders.iter().copied().filter(|o| Some(o.id) != leader));
            if leader == Some(None) && !capped {
                rest_turn = true;
            }
            let mut room = there;
            for one in &ordered {
                let Some(id) = one.id else {
                    if !capped {
                        rest_kept = threads.min(room);
                        room -= rest_kept;
                    }
                    continue;
                };
                if !capped && one.width <= room && self.fits_beside(&row, Some(id), &online) {
                    room -= one.width;
                    free -= one.width;
                    row.push((id, one.width));
                } else {
                    waiting.push(id);
                }
            }
            waiting.extend(others.iter().filter_map(|o| o.id));
            if tier == 1 {
                served = threads.min(free);
            }
            charged.push((contenders, others, held));
        }

        for &(id, _) in &row {
            self.charge(id, slice);
            self.pay(id);
        }
        if threads > 0 {
            self.rest_vtime += self.rest_stride(served);
        }
        for (tier, (contenders, others, held)) in charged.iter().enumerate() {
            if let Some(least) = contenders.iter().map(|o| *self.vtime(o.id)).min() {
                let longest =
                    contenders.iter().map(|o| o.stride * u128::from(o.slices)).max().unwrap();
                self.floors[tier] = self.floors[tier].max(least);
                let bound = self.floors[tier] + 2 * longest;
                for one in contenders {
                    let vtime = self.vtime(one.id);
                    if *vtime > bound {
                        *vtime -= (*vtime - bound) / 4;
                    }
                }
            }
            let is_held = |one: &&One| held.iter().any(|it| it.id == one.id);
            for one in others.iter().filter(|one| !is_held(one)) {
                match one.id {
                    Some(id) => self.raise_to_floor(id),
                    None => self.rest_vtime = self.rest_vtime.max(self.floors[tier]),
                }
            }
            if let Some(list) = self.list(slice) {
                let floor = self.floors[tier];
                let most = contenders.iter().chain(others).map(|o| o.slices).max().unwrap_or(1);
                self.bound_claims(&list, held, contenders, floor, most);
            }
        }
        self.with_gangs = false;
        if !row.is_empty() || !spanning.is_empty() {
            self.pay_for_gangs(slice);
        }
        let (local, rest) = self.place(row, online);
        let row = [spanning, local].concat();
        let mut plan = Plan {
            generation: 0,
            slice,
            start_ns: slice * self.config.slice_ns,
            end_ns: (slice + 1) * self.config.slice_ns,
            row,
            rest,
            rest_turn,
            rest_kept: rest_kept as u32,
            capped,
            beyond_caps: out.iter().copied().map(JobId).collect(),
            fillers: vec![],
            paused: vec![],
        };
        self.put_away(&mut plan, waiting);
        plan
    }

    fn amend(&mut self, current: &Plan) -> Option<Plan> {
        let threads = self.threads as usize;
        let online: Vec<u32> = self.cpus.iter().map(|cpu| cpu.id).collect();
        let mut plan = current.clone();
        let spanning = self.span(current.slice);
        plan.row.retain(|slot| {
            self.jobs.iter().any(|job| {
                job.id == slot.job.0
                    && self.takes_turns(job)
                    && spanning.iter().all(|it| it.cpus.is_disjoint(&slot.cpus))
                    && self.is_met_by(&job.spec, &slot.cpus.iter().collect::<Vec<_>>())
                    && slot.cpus.iter().all(|cpu| online.contains(&cpu))
            })
        });
        plan.row = [spanning, plan.row].concat();
        let owned = |cpu: u32| plan.row.iter().any(|slot| slot.cpus.contains(cpu));
        let free: Vec<u32> = online.iter().copied().filter(|&cpu| !owned(cpu)).collect();
        let mut left = free.len();
        // Those in the row, and those that were there, have paid.
        let paid = |job: &&Job| {
            job.charged == Some(current.slice) || plan.row.iter().any(|slot| slot.job.0 == job.id)
        };
        let paid: Vec<u64> = self.jobs.iter().filter(paid).map(|job| job.id).collect();
        let out = self.out_of_caps(&paid);
        plan.beyond_caps = out.iter().copied().map(JobId).collect();
        let (mut entering, mut waiting): (Vec<(u64, usize)>, Vec<u64>) = (vec![], vec![]);
        for tier in 0..3 {
            let reserved = match tier {
                1 => {
                    plan.rest_kept = threads.min(current.rest_kept as usize).min(left) as u32;
                    plan.rest_kept as usize
                }
                2 => threads.min(left),
                _ => 0,
            };
            for one in self.line(tier) {
                let id = one.id.unwrap();
                if plan.row.iter().any(|slot| slot.job.0 == id) {
                    continue;
                }
                let fits = self.fits_beside(&entering, Some(id), &free);
                let is_in = !current.capped && !out.contains(&id);
                if is_in && one.width <= left - reserved && fits {
                    left -= one.width;
                    entering.push((id, one.width));
                    if self.job(JobId(id)).unwrap().charged != Some(current.slice) {
                        self.charge(id, current.slice);
                        self.pay(id);
                    }
                } else {
                    waiting.push(id);
                }
            }
        }
        let has_gangs = !entering.is_empty() || !plan.row.is_empty();
        if !self.with_gangs && has_gangs {
            self.pay_for_gangs(current.slice);
        }
        let (entered, rest) = self.place(entering, free);
        plan.row.extend(entered);
        plan.rest = rest;
        self.put_away(&mut plan, waiting);
        // Jobs that filled before stay in front.
        let old: Vec<JobId> =
            current.fillers.iter().copied().filter(|j| plan.fillers.contains(j)).collect();
        let new: Vec<JobId> =
            plan.fillers.iter().copied().filter(|j| !current.fillers.contains(j)).collect();
        plan.fillers = [old, new].concat();
        if plan == *current {
            return None;
        }
        let (before, after) = (threads.min(current.rest.len()), threads.min(plan.rest.len()));
        if after > before {
            self.rest_vtime += self.rest_stride(after - before);
        } else if before > after {
            let lower = self.rest_vtime.saturating_sub(self.rest_stride(before - after));
            self.rest_vtime = lower.max(self.floors[1].min(self.rest_vtime));
        }
        Some(plan)
    }

    fn vtime(&mut self, id: Option<u64>) -> &mut u128 {
        match id {
            Some(id) => &mut self.job(JobId(id)).unwrap().vtime,
            None => &mut self.rest_vtime,
        }
    }

    fn put_away(&self, plan: &mut Plan, waiting: Vec<u64>) {
        let mut waiting: Vec<JobId> = waiting.into_iter().map(JobId).collect();
        let mut suspended = vec![];
        let in_row = |id| plan.row.iter().any(|slot| slot.job.0 == id);
        for job in self.jobs.iter().filter(|job| self.runnable(job) && !self.takes_turns(job)) {
            waiting.extend((!in_row(job.id)).then_some(JobId(job.id)));
        }
        for job in &self.jobs {
            if job.suspended {
                suspended.push(JobId(job.id));
            } else if !job.asleep
                && job.spec.policy == Policy::Gang
                && job.spec.min_cpus as usize > self.cpus.len()
            {
                waiting.push(JobId(job.id));
            }
        }
        if self.config.fill {
            plan.fillers = waiting;
            plan.paused = suspended;
        } else {
            plan.fillers = vec![];
            plan.paused = [waiting, suspended].concat();
            plan.paused.sort();
        }
    }

    fn spec(&self, id: u64) -> &Spec {
        &self.jobs.iter().find(|job| job.id == id).unwrap().spec
    }

    /// Whether the confined gangs of a row and another one fit on these CPUs.
    fn fits_beside(&self, row: &[(u64, usize)], id: Option<u64>, free: &[u32]) -> bool {
        let confined = row.iter().map(|&(id, _)| id).chain(id);
        let confined = confined.filter(|&id| self.is_confined(self.spec(id)));
        let units: Units = confined.flat_map(|id| self.demand(self.spec(id)).unwrap()).collect();
        can_be_met(free, &units)
    }

    fn is_met_by(&self, spec: &Spec, cpus: &[u32]) -> bool {
        let units = self.demand(spec).unwrap();
        let width: usize = units.iter().map(|(_, count)| count).sum();
        cpus.len() == width && (!self.is_confined(spec) || can_be_met(cpus, &units))
    }

    fn place(&mut self, row: Vec<(u64, usize)>, mut free: Vec<u32>) -> (Vec<Slot>, CpuSet) {
        let mut cpus: Vec<Option<Vec<u32>>> = vec![None; row.len()];
        for is_confined in [true, false] {
            let is_of_kind = |this: &Naive, id| this.is_confined(this.spec(id)) == is_confined;
            // The confined gangs that have no CPUs yet.
            let others = |this: &Naive, cpus: &[Option<Vec<u32>>], at: usize| -> Units {
                let waits = |&other: &usize| {
                    other != at
                        && cpus[other].is_none()
                        && this.is_confined(this.spec(row[other].0))
                };
                let units = |other: usize| this.demand(this.spec(row[other].0)).unwrap();
                (0..row.len()).filter(waits).flat_map(units).collect()
            };
            for (at, &(id, _)) in row.iter().enumerate() {
                if !is_of_kind(self, id) {
                    continue;
                }
                let last_cpus = self.job(JobId(id)).unwrap().last_cpus.clone();
                let left: Vec<u32> =
                    free.iter().copied().filter(|cpu| !last_cpus.contains(cpu)).collect();
                if last_cpus.iter().all(|cpu| free.contains(cpu))
                    && self.is_met_by(self.spec(id), &last_cpus)
                    && can_be_met(&left, &others(self, &cpus, at))
                {
                    free = left;
                    cpus[at] = Some(last_cpus);
                }
            }
            for (at, &(id, width)) in row.iter().enumerate() {
                if !is_of_kind(self, id) || cpus[at].is_some() {
                    continue;
                }
                let mut taken = vec![];
                if is_confined {
                    let mut units = self.demand(self.spec(id)).unwrap();
                    units.extend(others(self, &cpus, at));
                    while taken.len() < width {
                        let (of, count) = units.remove(0);
                        let may = self.free_cpus(&free, &of);
                        let near = take(&may, count, 0);
                        let some = if can_be_met(&without(&free, &near), &units) {
                            near
                        } else {
                            first_of(&self.free_cpus(&free, &of), &free, (of, count), &units)
                        };
                        free = without(&free, &some);
                        taken.extend(some);
                    }
                } else {
                    let all: Vec<u32> = self.cpus.iter().map(|cpu| cpu.id).collect();
                    taken = take(&self.free_cpus(&free, &all), width, 0);
                    free = without(&free, &taken);
                }
                self.job(JobId(id)).unwrap().last_cpus = taken.clone();
                cpus[at] = Some(taken);
            }
        }
        let slot = |(&(id, _), cpus): (&(u64, usize), Option<Vec<u32>>)| Slot {
            job: JobId(id),
            cpus: cpus.unwrap().into_iter().collect(),
        };
        (row.iter().zip(cpus).map(slot).collect(), free.into_iter().collect())
    }

    fn free_cpus(&self, free: &[u32], of: &[u32]) -> Vec<Cpu> {
        let is_free = |cpu: &Cpu| free.contains(&cpu.id) && of.contains(&cpu.id);
        self.cpus.iter().copied().filter(is_free).collect()
    }
}

/// Of how many CPUs how many are needed.
type Units = Vec<(Vec<u32>, usize)>;

fn without(cpus: &[u32], taken: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| !taken.contains(cpu)).collect()
}

/// The first CPUs for some units that leave enough for the others.
fn first_of(may: &[Cpu], free: &[u32], (of, count): (Vec<u32>, usize), others: &Units) -> Vec<u32> {
    let mut taken = vec![];
    for cpu in may {
        let more = [taken.clone(), vec![cpu.id]].concat();
        let mut left = others.clone();
        if taken.len() < count {
            left.push((of.clone(), count - more.len()));
            if can_be_met(&without(free, &more), &left) {
                taken = more;
            }
        }
    }
    taken
}

/// Whether all can be met at once, each by CPUs of its own: a matching, one CPU after the other.
fn can_be_met(free: &[u32], units: &Units) -> bool {
    let single: Vec<&Vec<u32>> =
        units.iter().flat_map(|(cpus, count)| std::iter::repeat_n(cpus, *count)).collect();
    let mut owner = BTreeMap::new();
    fn find(
        unit: usize,
        single: &[&Vec<u32>],
        free: &[u32],
        owner: &mut BTreeMap<u32, usize>,
        seen: &mut Vec<u32>,
    ) -> bool {
        for &cpu in single[unit].iter().filter(|cpu| free.contains(cpu)) {
            if seen.contains(&cpu) {
                continue;
            }
            seen.push(cpu);
            let other = owner.get(&cpu).copied();
            if other.is_none_or(|other| find(other, single, free, owner, seen)) {
                owner.insert(cpu, unit);
                return true;
            }
        }
        false
    }
    (0..single.len()).all(|unit| find(unit, &single, free, &mut owner, &mut vec![]))
}

/// `count` of these free CPUs of one domain, by the rule of `place`.
pub fn take(free: &[Cpu], count: usize, level: usize) -> Vec<u32> {
    if count == free.len() {
        return free.iter().map(|cpu| cpu.id).collect();
    }
    let key = |cpu: &Cpu| match level {
        0 => (cpu.node, 0, 0, 0),
        1 => (cpu.node, cpu.cache, 0, 0),
        2 => (cpu.node, cpu.cache, cpu.core, 0),
        _ => (cpu.node, cpu.cache, cpu.core, cpu.id),
    };
    let (mut left, mut free, mut taken) = (count, free.to_vec(), vec![]);
    while left > 0 {
        let mut children: Vec<_> = free.iter().map(key).collect();
        children.sort();
        children.dedup();
        let members =
            |child| -> Vec<Cpu> { free.iter().copied().filter(|cpu| key(cpu) == child).collect() };
        let enough = children
            .iter()
            .copied()
            .filter(|&child| members(child).len() >= left)
            .min_by_key(|&child| (members(child).len(), child));
        let child = enough.unwrap_or_else(|| {
            children
                .iter()
                .copied()
                .min_by_key(|&child| (std::cmp::Reverse(members(child).len()), child))
                .unwrap()
        });
        let members = members(child);
        let some = if members.len() > left {
            take(&members, left, level + 1)
        } else {
            members.iter().map(|cpu| cpu.id).collect()
        };
        left -= some.len();
        free.retain(|cpu| !some.contains(&cpu.id));
        taken.extend(some);
    }
    taken
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The same plans from the same history, plan by plan.
    #[test]
    fn plans_are_those_of_the_naive_version(
        config in random::config(),
        topology in random::topology(),
        history in random::history(),
    ) {
        let mut schedule = Schedule::new(config.clone(), topology.clone()).unwrap();
        let mut naive = Naive::new(&config, &topology);
        let mut slice = 1_000;
        let mut last: Option<Plan> = None;
        for step in history {
            match step {
                Step::Event(event) => {
                    let accepted = naive.apply(&event);
                    prop_assert_eq!(schedule.apply(event).is_ok(), accepted);
                }
                Step::Plan => {
                    slice += 1;
                    let plan = schedule.plan(slice);
                    prop_assert_eq!(&Plan { generation: 0, ..plan.clone() }, &naive.plan(slice));
                    last = Some(plan);
                }
                Step::Amend => if let Some(current) = &last {
                    let current = Plan { generation: 0, ..current.clone() };
                    let plan = schedule.amend(&current).map(|p| Plan { generation: 0, ..p });
                    prop_assert_eq!(&plan, &naive.amend(&current));
                    last = plan.or(last);
                }
            }
        }
    }
}
