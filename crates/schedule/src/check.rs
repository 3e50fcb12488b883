//! The checker of the invariants.
//!
//! Problem: a plan that breaks an invariant must be seen wherever plans are
//! made: in tests, in the daemon and by `gang check`.
//! Approach: one checker, written from the invariants and not from the
//! algorithm. [`plan`] looks at one plan, [`Frame`] at plan after plan.
//! Terms: a job is *ahead* by the slices it had beyond what its weight gives
//! it, by virtual time.
//!
//! Properties: plans of a [`Schedule`] pass; a plan changed by hand in any of
//! the ways below does not (tests).

use crate::entries::List;
use crate::schedule::{Job, Readiness, Schedule};
use crate::seating::Seating;
use crate::turn::{SCALE, SLICE, Tier};
use crate::{CpuSet, JobId, Plan, caps, clock};
use std::collections::{BTreeMap, BTreeSet};

/// The invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invariant {
    /// Its name, which stays from version to version.
    pub id: &'static str,
    pub sentence: &'static str,
}

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    /// The state that was found instead, with the numbers.
    pub found: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant.sentence, self.found)
    }
}

/// No CPU belongs to two gangs in one slice.
pub const ONE_OWNER: Invariant =
    Invariant { id: "one_owner", sentence: "in one slice no CPU belongs to two gangs" };
/// Slots and rest are all CPUs online.
pub const ALL_CPUS: Invariant = Invariant {
    id: "all_cpus",
    sentence: "every CPU online is in one slot or in the rest, and no other CPU is",
};
/// All or none.
pub const ALL_OR_NONE: Invariant =
    Invariant { id: "all_or_none", sentence: "a gang has all of its CPUs or none" };
/// Nobody is moved to where it may not run.
pub const ALLOWED: Invariant = Invariant {
    id: "allowed",
    sentence: "a gang has slots only on CPUs that its threads may use, some for each of them",
};
/// All hosts of a job agree.
pub const ENTRIES: Invariant = Invariant {
    id: "entries",
    sentence: "a spanning job that can run has exactly its CPUs in each of its rows and no other",
};
/// The jobs that may be in a row.
pub const ONLY_RUNNABLE: Invariant = Invariant {
    id: "only_runnable",
    sentence: "only jobs that can run and are awake are in a row",
};
/// Exactly one place.
pub const ONE_PLACE: Invariant =
    Invariant { id: "one_place", sentence: "a job is at one place: row, fillers or paused" };
/// The place that is right.
pub const RIGHT_PLACE: Invariant = Invariant {
    id: "right_place",
    sentence: "who is suspended is paused, who waits fills (or is paused), nobody else is either",
};
/// The cap.
pub const CAP: Invariant = Invariant {
    id: "cap",
    sentence: "no local gang is in the row of a slice that the cap denies to gangs",
};
/// The caps of users.
pub const USER_CAP: Invariant = Invariant {
    id: "user_cap",
    sentence: "the gangs of a user have no more of the CPUs than his cap",
};
/// The quotas of groups.
pub const QUOTA: Invariant = Invariant {
    id: "quota",
    sentence: "the gangs of a group have no more CPU time than its quota",
};
/// The clock.
pub const CLOCK: Invariant =
    Invariant { id: "clock", sentence: "a slice begins and ends where the clock says" };
/// No CPU is wasted.
pub const MAXIMAL: Invariant = Invariant {
    id: "maximal",
    sentence: "a gang waits only if it does not fit on CPUs that stand free",
};
/// The rest takes no more than it can use.
pub const KEPT: Invariant =
    Invariant { id: "kept", sentence: "no more CPUs are kept for the rest than it has threads" };
/// No starvation. A frame of a gang is twice the slices in which its share is
/// one slot; of gangs with equal weights none needs more than one time.
pub const WAIT: Invariant =
    Invariant { id: "wait", sentence: "every gang that can run is in a row of every frame" };
/// Fairness.
pub const SHARE: Invariant = Invariant {
    id: "share",
    sentence: "a gang has its share of the slices, within the slices that gangs ask for at a time",
};

/// The faults of a plan that this schedule just made, by [`Schedule::plan`] or [`Schedule::amend`],
/// with no event since.
pub fn plan(schedule: &Schedule, plan: &Plan) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    found.cpus(schedule, plan);
    found.slots(schedule, plan);
    found.entries(schedule, plan);
    found.places(schedule, plan);
    found.waits(schedule, plan);
    let (start, end) = (
        clock::slice_start(schedule.config(), plan.slice),
        clock::slice_start(schedule.config(), plan.slice.saturating_add(1)),
    );
    found.unless((plan.start_ns, plan.end_ns) == (start, end), CLOCK, || {
        format!("slice {} is {}-{} ns, not {start}-{end}", plan.slice, plan.start_ns, plan.end_ns)
    });
    let local = plan.row.iter().filter(|slot| !spans(schedule, slot.job)).count();
    found.unless(!plan.capped || local == 0, CAP, || {
        format!("slice {} has {local} local gangs in its row", plan.slice)
    });
    for (invariant, is_of) in [(USER_CAP, caps::is_user as fn(&_) -> bool), (QUOTA, caps::is_group)]
    {
        let overdrawn: Vec<String> =
            schedule.overdrawn().filter(is_of).map(|holder| holder.to_string()).collect();
        found.unless(overdrawn.is_empty(), invariant, || {
            format!("{} had more in slice {}", overdrawn.join(", "), plan.slice)
        });
    }
    let raised = plan.row.iter().find(|slot| plan.beyond_caps.contains(&slot.job));
    found.unless(raised.is_none(), USER_CAP, || {
        format!("slice {} has a gang in its row that is beyond a cap: {raised:?}", plan.slice)
    });
    found.0
}

/// Whether a job has slots by entries alone in the slice that was planned last.
fn spans(schedule: &Schedule, job: JobId) -> bool {
    schedule.jobs.get(&job).is_some_and(Job::is_spanning)
}

struct Found(Vec<Violation>);

impl Found {
    fn unless(&mut self, holds: bool, invariant: Invariant, found: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { invariant, found: found() });
        }
    }

    fn cpus(&mut self, schedule: &Schedule, plan: &Plan) {
        let mut owned = CpuSet::new();
        for slot in &plan.row {
            let twice = owned.intersection(&slot.cpus);
            self.unless(twice.is_empty(), ONE_OWNER, || {
                format!("CPUs {twice} of job {} are another gang's too", slot.job)
            });
            owned = owned.union(&slot.cpus);
        }
        let online = schedule.topology().set();
        self.unless(owned.is_disjoint(&plan.rest), ALL_CPUS, || {
            format!("CPUs {} are in a slot and in the rest", owned.intersection(&plan.rest))
        });
        let all = owned.union(&plan.rest);
        self.unless(all == *online, ALL_CPUS, || {
            format!("the plan has {all}, online are {online}")
        });
    }

    fn slots(&mut self, schedule: &Schedule, plan: &Plan) {
        for slot in &plan.row {
            let readiness = schedule.readiness(slot.job);
            self.unless(
                readiness == Some(Readiness::Runnable),
                ONLY_RUNNABLE,
                || match readiness {
                    Some(readiness) => format!("job {} is {readiness:?}", slot.job),
                    None => format!("there is no job {}", slot.job),
                },
            );
            let Some(spec) = schedule.spec(slot.job) else { continue };
            let usable = spec.allowed.of(schedule.topology().set());
            let outside = slot.cpus.difference(&usable);
            self.unless(outside.is_empty(), ALLOWED, || {
                format!("job {} has CPUs {outside}, which its threads may not use", slot.job)
            });
            for bound in spec.allowed.bound() {
                self.unless(!bound.cpus.is_disjoint(&slot.cpus), ALLOWED, || {
                    format!(
                        "job {} has CPUs {}, and threads that may use {} alone",
                        slot.job, slot.cpus, bound.cpus
                    )
                });
            }
            if spans(schedule, slot.job) {
                continue;
            }
            let (has, due) = (slot.cpus.len(), spec.cpus.min(usable.len() as u32));
            self.unless(has == due as usize, ALL_OR_NONE, || {
                format!("job {} has {has} CPUs of {due}", slot.job)
            });
        }
    }

    /// Local gangs on CPUs of a spanning slot are found as two owners of a CPU.
    fn entries(&mut self, schedule: &Schedule, plan: &Plan) {
        let due: BTreeMap<JobId, CpuSet> =
            schedule.spanning_slots(plan.slice).into_iter().map(|it| (it.job, it.cpus)).collect();
        let in_row = plan.row.iter().filter(|slot| spans(schedule, slot.job));
        let has: BTreeMap<JobId, CpuSet> = in_row.map(|it| (it.job, it.cpus.clone())).collect();
        for job in due.keys().chain(has.keys().filter(|job| !due.contains_key(job))) {
            let none = CpuSet::new();
            let of = |cpus: &BTreeMap<JobId, CpuSet>| cpus.get(job).unwrap_or(&none).clone();
            let (due, has) = (of(&due), of(&has));
            self.unless(has == due, ENTRIES, || {
                format!("in slice {} job {job} has CPUs {has} and is due {due}", plan.slice)
            });
        }
    }

    fn places(&mut self, schedule: &Schedule, plan: &Plan) {
        let mut placed = BTreeMap::new();
        let row = plan.row.iter().map(|slot| (slot.job, "in the row"));
        let fillers = plan.fillers.iter().map(|&job| (job, "a filler"));
        let paused = plan.paused.iter().map(|&job| (job, "paused"));
        for (job, place) in row.chain(fillers).chain(paused) {
            let other = placed.insert(job, place);
            self.unless(other.is_none(), ONE_PLACE, || {
                format!("job {job} is {} and {place}", other.unwrap_or_default())
            });
            self.unless(schedule.spec(job).is_some(), RIGHT_PLACE, || {
                format!("there is no job {job}, but it is {place}")
            });
        }
        let waiting = if schedule.config().fill { "a filler" } else { "paused" };
        for (job, _) in schedule.jobs() {
            let place = placed.get(&job).copied();
            let readiness = schedule.readiness(job).expect("it is one of its jobs");
            let right = match readiness {
                Readiness::Suspended => place == Some("paused"),
                Readiness::TooWide => place == Some(waiting),
                Readiness::Runnable => place == Some("in the row") || place == Some(waiting),
                Readiness::Asleep | Readiness::Unplaceable | Readiness::Unscheduled => {
                    place.is_none()
                }
            };
            self.unless(right, RIGHT_PLACE, || {
                format!("job {job} is {readiness:?} and {}", place.unwrap_or("nowhere"))
            });
        }
    }

    fn waits(&mut self, schedule: &Schedule, plan: &Plan) {
        if plan.capped {
            return;
        }
        let free = plan.rest.len() as u32;
        let kept = plan.rest_kept;
        self.unless(kept <= schedule.load().min(free), KEPT, || {
            format!("{kept} of {free} CPUs are kept for {} threads", schedule.load())
        });
        let beside_kept = free.saturating_sub(kept);
        let beside_rest = free - schedule.load().min(free);
        let in_row: BTreeSet<JobId> = plan.row.iter().map(|slot| slot.job).collect();
        for (&id, job) in &schedule.jobs {
            let may_wait = in_row.contains(&id) || plan.beyond_caps.contains(&id);
            if may_wait || !job.takes_turns() {
                continue;
            }
            let usable = match job.tier {
                Tier::Express => free,
                Tier::Shared => beside_kept,
                Tier::Standby => beside_rest,
            };
            let width = job.width();
            let fits = || Seating::new(plan.rest.clone()).seat(job.parts());
            self.unless(width > usable || !fits(), MAXIMAL, || {
                format!("job {id} waits for {width} CPUs while {usable} stand free")
            });
        }
    }
}

/// The checker of a sequence of plans. Every gang that can run has its turn, and its share by
/// weight within one request: the longest of its tier.
///
/// Shares are those that hold however gangs are packed. A gang may have less
/// than its share only to the extent that it was ahead; by its part of one more
/// slice under a cap (L8); by one more request where gangs are packed or the
/// rest is served beside them; and by its part of what others were owed when the
/// sequence began, or were ahead, beyond a request each: an event can bring in who
/// is far behind, and change the weight of who is ahead. A capped gang of its tier that goes out
/// takes along what it is ahead, by up to a request: the others then count as ahead by that.
/// Beside spanning jobs a share is of the rows with room for the gang (`share`). It may have less
/// by as much as these rows come late, and by its part of what others claim (`claim`).
/// Of users with caps and groups with quotas nothing is said, nor of the tiers behind a gang of
/// theirs: while that gang is out, one has slots that others of its tier had beside the gang. The
/// sequence starts anew after an event or an amendment.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    generation: u64,
    shares: BTreeMap<JobId, f64>,
    since: BTreeMap<JobId, Account>,
    /// From which slice on the entries are in force.
    entries_from: Option<u64>,
    /// By how many slices rows with room for each gang come late, and what the claims of its tier
    /// can be together.
    late: BTreeMap<JobId, (f64, f64)>,
    /// By how many slices spanning slots can have overdrawn the allowance.
    overdrawn: f64,
}

/// The slots that a gang had since the sequence began, and since its last slot.
#[derive(Debug, Clone, Copy)]
struct Account {
    /// By how many slices it was ahead when the sequence began.
    ahead: f64,
    /// The debt to others at that moment, beyond one request each.
    owed: f64,
    slices: u64,
    slots: u64,
    /// By how many slices it was ahead after its last slot.
    ahead_then: f64,
    waited: u64,
}

/// Virtual times of common weights are exact, others are rounded, and shares
/// are floating-point numbers.
const ROUNDING: f64 = 1e-6;

impl Frame {
    /// A checker that has seen nothing yet.
    pub fn new() -> Frame {
        Frame::default()
    }

    /// The faults so far, given the plan that [`Schedule::plan`] just made.
    pub fn observe(&mut self, schedule: &Schedule, plan: &Plan) -> Vec<Violation> {
        let ahead = ahead(schedule);
        let list = schedule.list_in_force();
        let entries_from = list.map(List::begins);
        let next = self.generation + 1 == plan.generation && self.entries_from == entries_from;
        (self.generation, self.entries_from) = (plan.generation, entries_from);
        if !next {
            let start = |(&job, &ahead): (&JobId, &f64)| {
                let owed = owed_to_others(schedule, job);
                let zero =
                    Account { ahead, owed, slices: 0, slots: 0, ahead_then: ahead, waited: 0 };
                (job, zero)
            };
            self.since = ahead.iter().map(start).collect();
            self.shares = schedule.guaranteed();
            // Local gangs wait until the cap has made up for spanning slots.
            let ahead = list.map_or(0, List::unevenness_of_taken);
            self.overdrawn = (-schedule.allowance).max(0) as f64 / 1000.0 + f64::from(ahead);
            self.late = list.map(|list| late(schedule, list)).unwrap_or_default();
            return Vec::new();
        }
        let in_row: BTreeSet<JobId> = plan.row.iter().map(|slot| slot.job).collect();
        let cap = f64::from(schedule.config().cap_permille) / 1000.0;
        let is_plain = schedule.load() == 0 && !schedule.packs();
        let mut found = Found(Vec::new());
        let is_capped = |job: &Job| schedule.is_capped(job);
        let runnable = schedule.jobs.values().filter(|it| it.takes_turns());
        let capped: Vec<&Job> = runnable.filter(|job| is_capped(job)).collect();
        let first_capped = capped.iter().map(|job| job.tier).min();
        let of_capped = |tier: Tier| -> f64 {
            let of_tier = capped.iter().filter(|job| job.tier == tier);
            of_tier.map(|job| f64::from(job.request.slices())).sum()
        };
        let is_certain = |job: &JobId| {
            let job = schedule.jobs.get(job);
            job.is_none_or(|job| !is_capped(job) && first_capped.is_none_or(|it| job.tier <= it))
        };
        for (job, account) in self.since.iter_mut().filter(|(job, _)| is_certain(job)) {
            account.slices += 1;
            account.waited += 1;
            if in_row.contains(job) {
                account.slots += 1;
                account.waited = 0;
                account.ahead_then = ahead[job];
            }
            let Account { ahead, owed, slices, slots, ahead_then, waited } = *account;
            let share = self.shares[job];
            // A leader leads for as much as it asks for.
            let request = longest(schedule, schedule.jobs[job].tier);
            // Under a cap, the slices of all gangs are within one of their own.
            let under_cap = if cap < 1.0 { share / cap + self.overdrawn } else { 0.0 };
            // The rest and gangs that were packed are served in part by the
            // turns of others, and so may come early with a request of their own.
            let by_guests = if is_plain { 0.0 } else { request };
            let taken_along = share * of_capped(schedule.jobs[job].tier);
            let (late, claims) = self.late.get(job).copied().unwrap_or_default();
            let by_entries = late + share * claims;
            let slack = request
                + under_cap
                + by_guests
                + by_entries
                + share * owed
                + taken_along
                + ROUNDING;
            let owed = share * slices as f64 - slots as f64 - ahead.max(0.0);
            found.unless(owed <= slack, SHARE, || {
                format!(
                    "job {job} had {slots} of {slices} slices, {owed:.2} fewer than its share of \
                     {share:.4}; it was ahead by {ahead:.2}"
                )
            });
            // Within one request at both ends of the wait; what it had early, by
            // virtual time or by count, it may wait for.
            let early = slots as f64 - share * (slices - waited) as f64;
            let late = share * waited as f64 - ahead_then.max(early).max(0.0);
            found.unless(late <= request + slack, WAIT, || {
                format!(
                    "job {job} waits for {waited} slices with a share of {share:.4}; it was ahead \
                     by {ahead_then:.2}"
                )
            });
        }
        found.0
    }
}

/// By how many slices the rows with room for each gang can come late, and the slices that those of
/// its tier can claim together.
fn late(schedule: &Schedule, list: &List) -> BTreeMap<JobId, (f64, f64)> {
    let mut all = BTreeMap::new();
    for tier in Tier::ALL {
        let gangs = schedule.jobs.iter().filter(|(_, it)| it.tier == tier && it.takes_turns());
        let late: Vec<(JobId, f64)> = gangs
            .map(|(&id, job)| (id, list.unevenness(&schedule.rows_with_room(job, list)).into()))
            .collect();
        let request = longest(schedule, tier);
        let claims: f64 = late.iter().map(|(_, late)| late + request).sum();
        all.extend(late.into_iter().map(|(id, late)| (id, (late, claims))));
    }
    all
}

/// The slices of the longest request among those who can lead a tier.
fn longest(schedule: &Schedule, tier: Tier) -> f64 {
    let runnable = |job: &&Job| job.tier == tier && job.takes_turns();
    let requests = schedule.jobs.values().filter(runnable).map(|job| job.request.slices());
    requests.max().unwrap_or(1).into()
}

/// The debt to the others of its tier, beyond one request each. Debts sum up to nothing: where one
/// of the others is ahead, the rest of them is behind by as much.
fn owed_to_others(schedule: &Schedule, job: JobId) -> f64 {
    let tier = schedule.jobs[&job].tier;
    let request = longest(schedule, tier);
    let (gangs, rest) = ahead_in(schedule, tier);
    let others = gangs.into_iter().filter(|&(other, _)| other != job).map(|(_, ahead)| ahead);
    others.chain(rest).map(|ahead| (ahead.abs() - request).max(0.0)).sum()
}

/// By how many slices each job that takes turns is ahead of its tier.
fn ahead(schedule: &Schedule) -> BTreeMap<JobId, f64> {
    Tier::ALL.into_iter().flat_map(|tier| ahead_in(schedule, tier).0).collect()
}

/// By how many slices the jobs of a tier are ahead of its average, and the rest
/// if it takes turns there.
fn ahead_in(schedule: &Schedule, tier: Tier) -> (BTreeMap<JobId, f64>, Option<f64>) {
    let machine = schedule.topology.len();
    let runnable = || {
        let of_tier = |(_, job): &(&JobId, &Job)| job.tier == tier && job.takes_turns();
        schedule.jobs.iter().filter(of_tier)
    };
    let floor = schedule.floors.of(tier);
    // A gang whose weight changed may be behind the floor.
    let slices = |vtime: u128| {
        (vtime.saturating_sub(floor) as f64 - floor.saturating_sub(vtime) as f64) / SLICE as f64
    };
    let mut turns: Vec<(f64, f64)> =
        runnable().map(|(_, job)| (slices(job.vtime), job.weight as f64)).collect();
    let threads = schedule.load();
    let rest = (tier == Tier::Shared && threads > 0).then(|| {
        let led = f64::from(threads.min(machine));
        let weight = schedule.rest.weight as f64 / led;
        (slices(schedule.rest.vtime), weight)
    });
    turns.extend(rest);
    let weights: f64 = turns.iter().map(|(_, weight)| weight).sum();
    let average = turns.iter().map(|(v, weight)| v * weight).sum::<f64>() / weights;
    let ahead = |(vtime, weight): (f64, f64)| (vtime - average) * weight / SCALE as f64;
    let gangs =
        runnable().map(|(&id, job)| (id, ahead((slices(job.vtime), job.weight as f64)))).collect();
    (gangs, rest.map(ahead))
}
