//! The row of a slice: who is in it, and on which CPUs.
//!
//! Problem: each slice has one leader; the CPUs that it leaves free should
//! serve whoever they can, without delaying anyone's own turn.
//! Approach: pack in the order of turns, first fit.
//! Terms: see `turn` and the crate. The rest is *served* by the CPUs of no
//! gang, one for each of its threads, as far as they go.
//!
//! Algorithm, for one slice:
//! 0. Spanning jobs have the CPUs of their entries (`entries`), and the others what these leave
//!    (L14). Spanning slots are charged to nobody's turns.
//! 1. Under the cap (L8) gangs may be out of allowance: then no local gang is in the row. Spanning
//!    slots are never denied, since the other hosts do not know of the cap. They are charged to
//!    the allowance, so that local gangs give way.
//! 2. Express gangs without a weight are packed in order.
//! 3. Interactive and batch gangs are packed beside them in order. When it is
//!    the turn of the rest, a CPU for each of its threads is kept from those
//!    that come after it.
//! 4. Standby gangs are packed on CPUs that the rest does not use either.
//! 5. The gangs of the row are charged, and the rest for the CPUs it can use.
//! 6. Confined gangs come before the others. Of both, gangs keep the CPUs they had where those are
//!    free and leave room for other confined ones; then the others are placed, leader first.
//!
//! A gang that does not fit beside the tiers before its own, or that its user's cap or its group's
//! quota (`caps`) has no room for, does not contend in this slice. It
//! neither holds the others up nor saves up turns. One that does not fit because of entries keeps a
//! claim (`claim`).
//!
//! Properties:
//! - no CPU is in two slots; slots and `rest` are all CPUs online;
//! - a slot has all CPUs of its gang, and only those that its threads may use;
//! - in each of its rows, a spanning job that can run has exactly the CPUs of its entry;
//! - a local gang out of the row could not have been packed beside what is in it and
//!   what is kept for the rest (the row is maximal);
//! - every job is at one place: row, fillers, paused, or none of them (idle,
//!   not scheduled by us, or not on the CPUs that its threads may use);
//! - amending a plan to which nothing happened changes nothing.
//!
//! The whole is compared with a naive version (tests/policy/naive.rs).

use crate::entries::cpus_of;
use crate::line::{Lines, Packed, Who, Whole, pack};
use crate::place::{Room, place};
use crate::schedule::{Job, Schedule};
use crate::seating::Seating;
use crate::turn::{self, Tier};
use crate::{CpuSet, JobId, Plan, Slot, caps, claim, clock};
use std::collections::{BTreeMap, BTreeSet};

impl Schedule {
    /// Decides slice number `slice`, and charges it to those who get it.
    ///
    /// Call it once for each slice. Slices left out and numbers that go back
    /// are harmless: only what is planned is charged.
    pub fn plan(&mut self, slice: u64) -> Plan {
        self.generation += 1;
        // Less than a slice of allowance is carried over, so that over any
        // stretch of slices gangs are within one slice of the cap.
        self.allowance = self.allowance.min(999) + i64::from(self.config.cap_permille);
        let capped = self.allowance < 1000;

        self.bring_into_force(slice);
        let spanning = self.spanning_slots(slice);
        let taken = cpus_of(&spanning);
        let local = self.topology.set().difference(&taken);
        let threads = self.rest.threads;
        self.grant_allowances();
        self.charge_spanning(&spanning);
        let out = self.beyond_caps(|_, _| true);
        let mut costs = BTreeMap::new();
        let is_local = |id| spanning.iter().all(|slot| slot.job != id);
        let mut lines = Lines::new(&mut self.jobs, is_local, &out);
        let mut seating = Seating::new(local.clone());
        lines.join(&mut self.rest);
        let mut free = local.len() as u32;
        let mut served = 0;
        let mut rest_turn = capped;
        let mut rest_kept = 0;
        for tier in Tier::ALL {
            let there = if tier == Tier::Standby { free - served } else { free };
            let whole = (!taken.is_empty()).then(|| {
                let whole = free + taken.len() as u32;
                let served = if tier == Tier::Standby { threads.min(whole) } else { 0 };
                Whole { there: whole - served, seating: seating.with(&taken) }
            });
            let line = lines.of(tier);
            line.order(there, &mut seating, whole);
            if !capped {
                let contenders = line.contenders();
                rest_turn |= contenders.first().is_some_and(|leader| leader.is_rest());
                let Packed { taken, kept } = pack(contenders, there, &mut seating);
                free -= taken;
                rest_kept += kept;
            }
            if tier == Tier::Shared {
                served = threads.min(free);
            }
        }

        let online = self.topology.set();
        let left = self.entries.at(slice).map(|list| claim::Left { list, online });
        for tier in Tier::ALL {
            let line = lines.of(tier);
            for waiting in line.all() {
                match &mut waiting.who {
                    Who::Gang { job, in_row, .. } if *in_row => {
                        let by = turn::charge(&self.config, waiting.turn.stride, slice);
                        job.charge(slice, by);
                        caps::add_cost(&mut costs, job, self.config.slice_ns);
                    }
                    Who::Gang { .. } => {}
                    Who::Rest(rest) => rest.vtime += turn::rest_stride(served, rest.weight),
                }
            }
            line.advance_floor(self.floors.of_mut(tier), left);
        }

        let mut fillers = lines.waiting();
        fillers.append(&mut lines.too_wide);
        let mut paused = std::mem::take(&mut lines.suspended);
        if !self.config.fill {
            paused.append(&mut fillers);
            paused.sort_unstable();
        }
        let mut room = Room::new(&self.topology, local);
        let mut row = spanning;
        row.extend(place(&mut room, lines.row()));
        let rest = room.into_free();
        self.gangs_charged = false;
        self.charge_gangs(&row, slice);
        self.charge_allowances(costs);
        Plan {
            generation: self.generation,
            slice,
            start_ns: clock::slice_start(&self.config, slice),
            end_ns: clock::slice_start(&self.config, slice.saturating_add(1)),
            row,
            rest,
            rest_turn,
            rest_kept,
            capped,
            beyond_caps: out.into_iter().collect(),
            fillers,
            paused,
        }
    }

    /// The slice under way, after events (L17). Slots of jobs that can no longer have them are
    /// dropped. Jobs that wait are put on CPUs that stand free, as if they came last in the order
    /// of the plan. A spanning job that can run again has its CPUs at once, as its other hosts run
    /// it now: local gangs that have them are dropped. `None` if nothing changes.
    ///
    /// A gang that enters is charged the whole slice, once.
    pub fn amend(&mut self, current: &Plan) -> Option<Plan> {
        let threads = self.rest.threads;
        self.bring_into_force(current.slice);
        let mut row = self.spanning_slots(current.slice);
        let taken = cpus_of(&row);
        let keeps = |slot: &&Slot| self.keeps(slot) && slot.cpus.is_disjoint(&taken);
        row.extend(current.row.iter().filter(keeps).cloned());
        let free = self.topology.set().difference(&cpus_of(&row));
        let kept: BTreeSet<JobId> = row.iter().map(|slot| slot.job).collect();

        // A slot that was charged for this slice already costs nothing more.
        let is_new =
            |id: JobId, job: &Job| !kept.contains(&id) && job.charged != Some(current.slice);
        let beyond = self.beyond_caps(is_new);
        let mut costs = BTreeMap::new();
        let mut lines = Lines::new(&mut self.jobs, |id| !kept.contains(&id), &beyond);
        let mut seating = Seating::new(free.clone());
        let mut left = free.len() as u32;
        let mut rest_kept = 0;
        for tier in Tier::ALL {
            let reserved = match tier {
                Tier::Express => 0,
                Tier::Shared => {
                    rest_kept = threads.min(current.rest_kept).min(left);
                    rest_kept
                }
                Tier::Standby => threads.min(left),
            };
            let line = lines.of(tier);
            line.sort();
            if !current.capped {
                left -= pack(line.all(), left - reserved, &mut seating).taken;
            }
            for waiting in line.all() {
                if let Who::Gang { job, in_row: true, .. } = &mut waiting.who {
                    if job.charged != Some(current.slice) {
                        let stride = waiting.turn.stride;
                        let by = turn::charge(&self.config, stride, current.slice);
                        job.charge(current.slice, by);
                        caps::add_cost(&mut costs, job, self.config.slice_ns);
                    }
                }
            }
        }
        let out: Vec<JobId> = lines.waiting().into_iter().chain(lines.too_wide.drain(..)).collect();
        let mut paused = std::mem::take(&mut lines.suspended);
        let mut room = Room::new(&self.topology, free);
        row.extend(place(&mut room, lines.row()));
        let rest = room.into_free();
        self.charge_gangs(&row, current.slice);
        self.charge_allowances(costs);

        let mut fillers = Vec::new();
        if self.config.fill {
            // Those who fill already stay in front, so that nothing changes
            // where nothing happened.
            let mut new: BTreeSet<JobId> = out.iter().copied().collect();
            fillers.extend(current.fillers.iter().copied().filter(|id| new.remove(id)));
            fillers.extend(out.into_iter().filter(|id| new.contains(id)));
        } else {
            paused.extend(out);
            paused.sort_unstable();
        }
        let beyond_caps = beyond.into_iter().collect();
        let now = Plan { row, rest, rest_kept, beyond_caps, fillers, paused, ..current.clone() };
        if now == *current {
            return None;
        }
        let served = |rest: &CpuSet| threads.min(rest.len() as u32);
        self.rest.correct(served(&current.rest), served(&now.rest), self.floors.of(Tier::Shared));
        self.generation += 1;
        Some(Plan { generation: self.generation, ..now })
    }

    /// Under the cap, a slice with a gang in its row costs a slice, once.
    fn charge_gangs(&mut self, row: &[Slot], slice: u64) {
        if !row.is_empty() && !self.gangs_charged {
            self.allowance = (self.allowance - 1000).max(-self.most_overdrawn(slice));
            self.gangs_charged = true;
        }
    }

    /// Whether the slot of a local gang may stay as it is for the rest of its slice.
    fn keeps(&self, slot: &Slot) -> bool {
        self.jobs.get(&slot.job).is_some_and(|job| {
            job.takes_turns()
                && job.demand.as_ref().is_ok_and(|demand| demand.is_met_by(&slot.cpus))
                && slot.cpus.is_subset(self.topology.set())
        })
    }
}
