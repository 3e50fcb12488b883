//! The state of the policy, and how events change it.
//!
//! Everything that a decision depends on is here. How a row is chosen from it
//! is in `row`, whose turn it is in `turn`.
//!
//! Properties: a refused event changes nothing; the order of events is part of
//! the input, their number and their moment are not; a job is in exactly one
//! [`Readiness`]; neither sleeping, suspending, waiting for CPUs nor changing
//! the class gives credit.

use crate::allowed::{Demand, Part};
use crate::caps::Holder;
use crate::request::Request;
use crate::turn::{self, Tier, Turn};
use crate::{
    Config, CpuSet, Entries, Event, JobId, Policy, Refusal, Spec, Topology, Unplaceable, UserId,
    caps,
};
use std::collections::BTreeMap;

/// The most jobs that are kept.
pub const MAX_JOBS: usize = 65_536;

/// The state of the policy: jobs, machine, load, and who is owed what.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub(crate) config: Config,
    pub(crate) topology: Topology,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) rest: Rest,
    /// The rows of spanning jobs, see `entries`.
    pub(crate) entries: Entries,
    /// The slice that was planned or amended last: its entries are in force.
    pub(crate) in_force: Option<u64>,
    /// The floor of each tier, see `turn`.
    pub(crate) floors: Floors,
    /// Up to which virtual time users are ahead who left so, at the usual weight: see `accounts`.
    pub(crate) debts: BTreeMap<(UserId, Tier), u128>,
    /// ‰ of a slice that gangs may still take under the cap (L8). A slice adds
    /// the cap, a slice with a gang in its row costs 1,000. Spanning slots can overdraw it.
    pub(crate) allowance: i64,
    /// Whether the slice under way has cost a slice of that.
    pub(crate) gangs_charged: bool,
    /// The rest that capped users, and groups with a quota, may take: see `caps`.
    pub(crate) allowances: BTreeMap<Holder, i64>,
    pub(crate) generation: u64,
}

/// A job as the policy keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub spec: Spec,
    /// The CPUs that it needs of those online, or why these do not do.
    pub demand: Result<Demand, Unplaceable>,
    pub asleep: bool,
    pub suspended: bool,
    /// It has entries in the list in force.
    pub spans: bool,
    /// Those it shares with.
    pub tier: Tier,
    /// Its weight among them, see `accounts`.
    pub weight: u64,
    /// How far a slice moves its virtual time, see `turn`.
    pub stride: u128,
    pub vtime: u128,
    /// The same among its user's gangs alone, and among those of its group, never moved by others:
    /// see `caps`.
    pub own_vtime: u128,
    pub group_vtime: u128,
    /// Its request at a time, by its class.
    pub request: Request,
    /// The CPUs it had last; empty before its first slot.
    pub last_cpus: CpuSet,
    /// The last slice that was charged to it.
    pub charged: Option<u64>,
}

/// The rest of the machine (L18).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rest {
    /// Runnable threads outside all jobs.
    pub threads: u32,
    /// How many of them are of which users, as far as that is known.
    pub of_users: BTreeMap<UserId, u32>,
    /// Their weight together, see `accounts`.
    pub weight: u128,
    pub vtime: u128,
}

/// The least virtual time of each tier, as of the last slice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Floors([u128; 3]);

impl Floors {
    pub fn of(&self, tier: Tier) -> u128 {
        self.0[tier as usize]
    }

    pub fn of_mut(&mut self, tier: Tier) -> &mut u128 {
        &mut self.0[tier as usize]
    }
}

/// The jobs that ask for something else.
#[derive(Debug, Clone, Copy)]
enum Anew {
    Nothing,
    Of(JobId),
    All,
}

impl Anew {
    fn is_of(self, job: JobId) -> bool {
        match self {
            Anew::Nothing => false,
            Anew::Of(other) => other == job,
            Anew::All => true,
        }
    }
}

/// Whether a job can be in a row, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It takes turns.
    Runnable,
    /// It needs more CPUs than are online; it waits until they come back.
    TooWide,
    /// The CPUs that are online and that its threads may use do not do for it: it is with the
    /// rest until there are others.
    Unplaceable,
    /// It is idle (L19).
    Asleep,
    /// A person suspended it (L33).
    Suspended,
    /// Its policy is [`Policy::None`].
    Unscheduled,
}

impl std::fmt::Display for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Readiness::Runnable => "runnable",
            Readiness::TooWide => "too wide",
            Readiness::Unplaceable => "unplaceable",
            Readiness::Asleep => "asleep",
            Readiness::Suspended => "suspended",
            Readiness::Unscheduled => "unscheduled",
        })
    }
}

impl Job {
    pub fn readiness(&self) -> Readiness {
        if self.suspended {
            Readiness::Suspended
        } else if self.spec.policy == Policy::None {
            Readiness::Unscheduled
        } else if self.asleep {
            Readiness::Asleep
        } else {
            match self.demand {
                Ok(_) => Readiness::Runnable,
                Err(Unplaceable::TooWide { .. }) => Readiness::TooWide,
                Err(_) => Readiness::Unplaceable,
            }
        }
    }

    /// Whether it waits in a line: it can run, and has no slots by entries.
    pub fn takes_turns(&self) -> bool {
        !self.is_spanning() && self.readiness() == Readiness::Runnable
    }

    /// Whether it has slots by entries, and takes no turns.
    pub fn is_spanning(&self) -> bool {
        self.spans || self.spec.spanning
    }

    /// The parts of its demand; none where it is not confined.
    pub fn parts(&self) -> &[Part] {
        self.demand.as_ref().map_or(&[], |demand| &demand.parts)
    }

    pub fn turn(&self, id: JobId) -> Turn {
        let weight = self.weight.into();
        Turn {
            vtime: self.vtime,
            since: self.request.since(self.vtime),
            stride: self.stride,
            left: self.request.left(),
            slices: self.request.slices(),
            weight,
            tie: id.0,
        }
    }

    /// It has a slot in this slice, which moves its virtual time by `by`.
    pub fn charge(&mut self, slice: u64, by: u128) {
        self.vtime += by;
        self.own_vtime += by;
        self.group_vtime += by;
        self.request.use_slot(by);
        self.charged = Some(slice);
    }

    /// It weighs something else from now on; `average` is that of its tier.
    fn reweigh(&mut self, weight: u64, average: u128) {
        let old = std::mem::replace(&mut self.weight, weight);
        self.stride = turn::stride(weight);
        let request = self.stride * u128::from(self.request.slices());
        self.vtime = turn::reweigh(self.vtime, average, old, weight, request);
        self.request.reweigh(old, weight);
    }

    /// It shares with others from now on. Another tier has another virtual time;
    /// what the job is ahead goes with it, so that changing the class back and
    /// forth gains nothing.
    fn go_to(&mut self, tier: Tier, floors: &Floors) {
        if tier != self.tier {
            let ahead = self.vtime.saturating_sub(floors.of(self.tier));
            (self.tier, self.vtime) = (tier, floors.of(tier) + ahead);
        }
    }

    /// Where it is behind the floor, it starts there, with a new request.
    pub fn raise_to_floor(&mut self, floor: u128) {
        if self.vtime < floor {
            self.vtime = floor;
            self.request.renew();
        }
    }

    /// How many CPUs its slots have: all that it asks for, as far as its threads may use them.
    pub fn width(&self) -> u32 {
        self.demand.as_ref().map_or(0, |demand| demand.width)
    }
}

impl Rest {
    /// Its turn where `there` CPUs are left to it. Among equals it comes after
    /// every gang.
    pub fn turn(&self, there: u32) -> Turn {
        let served = self.threads.min(there).max(1);
        let weight = self.weight / u128::from(served);
        let stride = turn::rest_stride(served, self.weight);
        Turn {
            vtime: self.vtime,
            since: self.vtime,
            stride,
            left: 1,
            slices: 1,
            weight,
            tie: u64::MAX,
        }
    }

    /// A slice in which it was charged for `before` threads serves `after`.
    pub fn correct(&mut self, before: u32, after: u32, floor: u128) {
        if after > before {
            self.vtime += turn::rest_stride(after - before, self.weight);
        } else if before > after {
            let back = turn::rest_stride(before - after, self.weight);
            self.vtime = self.vtime.saturating_sub(back).max(floor.min(self.vtime));
        }
    }
}

impl Schedule {
    /// A machine without jobs and without load.
    ///
    /// # Errors
    /// [`Refusal::Config`] if a setting is out of bounds.
    pub fn new(config: Config, topology: Topology) -> Result<Schedule, Refusal> {
        config.validate()?;
        let allowance = 1000 - i64::from(config.cap_permille);
        let allowances = caps::at_first(&config.caps, topology.len());
        Ok(Schedule {
            config,
            topology,
            jobs: BTreeMap::new(),
            rest: Rest { threads: 0, of_users: BTreeMap::new(), weight: 0, vtime: turn::START },
            floors: Floors([turn::START; 3]),
            entries: Entries::default(),
            in_force: None,
            debts: BTreeMap::new(),
            allowance,
            allowances,
            gangs_charged: false,
            generation: 0,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The runnable threads outside all jobs, as of the last [`Event::Load`].
    pub fn load(&self) -> u32 {
        self.rest.threads
    }

    /// How many of them are of which users, as far as that is known.
    pub fn load_of_users(&self) -> &BTreeMap<UserId, u32> {
        &self.rest.of_users
    }

    /// Whether an event tells of the load or of the entries that there are already.
    pub fn is_known(&self, event: &Event) -> bool {
        match event {
            Event::Load { threads, of_users } => {
                (*threads, of_users) == (self.rest.threads, &self.rest.of_users)
            }
            Event::Entries(entries) => *entries == self.entries,
            _ => false,
        }
    }

    /// The request of a job.
    pub fn spec(&self, job: JobId) -> Option<&Spec> {
        self.jobs.get(&job).map(|job| &job.spec)
    }

    /// All jobs, by id.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &Spec)> {
        self.jobs.iter().map(|(&id, job)| (id, &job.spec))
    }

    /// Whether a job can be in a row, and if not, why.
    pub fn readiness(&self, job: JobId) -> Option<Readiness> {
        self.jobs.get(&job).map(Job::readiness)
    }

    /// Why a job can have no slot on the CPUs that are online, if so.
    pub fn unplaceable(&self, job: JobId) -> Option<&Unplaceable> {
        self.jobs.get(&job).and_then(|job| job.demand.as_ref().err())
    }

    /// Takes note of an event.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing was changed.
    pub fn apply(&mut self, event: Event) -> Result<(), Refusal> {
        if self.is_known(&event) {
            return Ok(());
        }
        // Of those who could run before, and stay: who leaves takes his place along.
        let leaver = event.leaver();
        let averages = Tier::ALL.map(|tier| self.average(tier, leaver));
        let mut anew = Anew::Nothing;
        let mut without_credit = Vec::new();
        match event {
            Event::Arrived { job, spec } => self.arrive(job, spec)?,
            Event::Departed { job } => {
                let gone = self.jobs.remove(&job).ok_or(Refusal::UnknownJob { job })?;
                self.note_debt(&gone);
            }
            Event::Changed { job, spec } => {
                let machine = self.topology.len();
                let of = self.job(job)?;
                spec.validate(machine)?;
                let (had, group) = (of.spec.quota, spec.quota.map(|quota| quota.group));
                of.spec = spec;
                if had.map(|quota| quota.group) != group {
                    self.enter_group(job);
                }
                self.work_out(job);
                anew = Anew::Of(job);
                without_credit.push(job);
            }
            Event::Confined { job, to } => {
                let of = self.job(job)?;
                if of.spec.allowed == to {
                    return Ok(());
                }
                of.spec.allowed = to;
                if of.demand.is_err() {
                    without_credit.push(job);
                }
                self.work_out(job);
            }
            Event::Limited { job, to } => {
                let of = self.job(job)?;
                if of.spec.quota == to {
                    return Ok(());
                }
                let had = of.spec.quota.map(|quota| quota.group);
                of.spec.quota = to;
                if had != to.map(|quota| quota.group) {
                    self.enter_group(job);
                }
            }
            Event::Overhead { job, percent } => self.job(job)?.spec.overhead = percent,
            Event::Woke { job } => {
                self.job(job)?.asleep = false;
                without_credit.push(job);
            }
            Event::Slept { job } => self.job(job)?.asleep = true,
            Event::Suspended { job } => self.job(job)?.suspended = true,
            Event::Resumed { job } => {
                self.job(job)?.suspended = false;
                without_credit.push(job);
            }
            Event::Load { threads, of_users } => {
                let known = of_users.values().map(|&count| u64::from(count)).sum();
                if known > u64::from(threads) {
                    return Err(Refusal::Load { threads, known });
                }
                if self.rest.threads == 0 {
                    self.rest.vtime = self.rest.vtime.max(self.floors.of(Tier::Shared));
                }
                (self.rest.threads, self.rest.of_users) = (threads, of_users);
            }
            Event::Topology(topology) => {
                let waits = |job: &Job| {
                    matches!(job.readiness(), Readiness::TooWide | Readiness::Unplaceable)
                };
                let waiting = self.jobs.iter().filter(|(_, job)| waits(job));
                without_credit.extend(waiting.map(|(&id, _)| id));
                self.topology = topology;
                self.work_out_all();
            }
            Event::Classes { weights, slices } => {
                let config =
                    Config { class_weights: weights, class_slices: slices, ..self.config.clone() };
                config.validate()?;
                self.config = config;
                anew = Anew::All;
            }
            Event::Sharing(sharing) => {
                let config = Config { sharing, ..self.config.clone() };
                config.validate()?;
                self.config = config;
            }
            Event::Entries(entries) => {
                entries.validate(&self.config)?;
                self.entries = entries;
                self.work_out_all();
            }
            Event::Caps(caps) => {
                Config { caps: caps.clone(), ..self.config.clone() }.validate()?;
                self.cap_anew(caps);
            }
        }
        self.cap_groups();
        self.weigh_anew(averages, anew);
        without_credit.into_iter().for_each(|job| self.forget_credit(job));
        self.generation += 1;
        Ok(())
    }

    /// Everybody weighs what follows from all of them; some jobs ask for something else as well.
    /// `averages` are those before.
    fn weigh_anew(&mut self, averages: [u128; 3], anew: Anew) {
        let weights = self.weigh();
        self.rest.weight = weights.rest;
        for (&id, job) in &mut self.jobs {
            let weight = weights.gangs.get(&id).copied().unwrap_or(job.weight);
            let asks_anew = anew.is_of(id);
            if asks_anew {
                job.request = Request::new(self.config.class_slices.of(job.spec.class));
            }
            if asks_anew || weight != job.weight {
                job.reweigh(weight, averages[job.tier as usize]);
            }
            if asks_anew {
                job.go_to(self.config.tier(&job.spec), &self.floors);
            }
        }
    }

    fn job(&mut self, job: JobId) -> Result<&mut Job, Refusal> {
        self.jobs.get_mut(&job).ok_or(Refusal::UnknownJob { job })
    }

    fn arrive(&mut self, job: JobId, spec: Spec) -> Result<(), Refusal> {
        if self.jobs.contains_key(&job) {
            return Err(Refusal::DuplicateJob { job });
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err(Refusal::TooManyJobs { max: MAX_JOBS });
        }
        spec.validate(self.topology.len())?;
        let tier = self.config.tier(&spec);
        let request = Request::new(self.config.class_slices.of(spec.class));
        let (user, usual) = (spec.user, self.config.weight(&spec));
        let new = Job {
            demand: self.demand(job, &spec),
            spec,
            asleep: false,
            suspended: false,
            spans: false,
            tier,
            weight: usual,
            stride: turn::stride(usual),
            vtime: self.floors.of(tier),
            own_vtime: 0,
            group_vtime: 0,
            request,
            last_cpus: CpuSet::new(),
            charged: None,
        };
        self.jobs.insert(job, new);
        let weight = self.weigh().gangs.get(&job).copied().unwrap_or(usual);
        let ahead = self.take_debt(user, tier, weight);
        if let Some(job) = self.jobs.get_mut(&job) {
            (job.weight, job.stride) = (weight, turn::stride(weight));
            job.vtime += ahead;
        }
        self.forget_own_credit(job);
        Ok(())
    }

    fn demand(&self, id: JobId, spec: &Spec) -> Result<Demand, Unplaceable> {
        match Demand::of(spec, self.topology.set()) {
            Ok(_) if spec.spanning && !self.entries.name(id) => Err(Unplaceable::NoEntries),
            demand => demand,
        }
    }

    /// Works out what a job needs of the machine.
    fn work_out(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let demand = self.demand(id, &job.spec);
        self.jobs.entry(id).and_modify(|job| job.demand = demand);
    }

    fn work_out_all(&mut self) {
        self.jobs.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.work_out(id));
    }

    /// The average virtual time of those who can run, without one of them; the floor where nobody
    /// can.
    fn average(&self, tier: Tier, without: Option<JobId>) -> u128 {
        let machine = self.topology.len();
        let stays = |id, job: &Job| job.takes_turns() && without != Some(id);
        let gangs = self.jobs.iter().filter(|(id, job)| job.tier == tier && stays(**id, job));
        let mut turns: Vec<Turn> = gangs.map(|(&id, job)| job.turn(id)).collect();
        if tier == Tier::Shared && self.rest.threads > 0 {
            turns.push(self.rest.turn(machine));
        }
        turn::average(&turns).unwrap_or(self.floors.of(tier))
    }

    /// Time without contending is no credit: whoever is behind the floor
    /// starts there.
    pub(crate) fn forget_credit(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.raise_to_floor(self.floors.of(job.tier));
        }
        self.forget_own_credit(id);
    }
}
