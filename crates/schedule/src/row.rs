//! The row of a slice: who is in it, and on which CPUs.
//!
//! Problem: each slice has one leader; the CPUs that it leaves free should
//! serve whoever they can, without delaying anyone's own turn.
//! Approach: pack in the order of turns, first fit.
//! Terms: see `turn` and the crate. The rest is *served* by the CPUs of no
//! gang, one for each of its threads, as far as they go.
//!
//! Algorithm, for one slice:
//! 1. Under the cap (L8) gangs may be out of allowance: then the row is empty.
//! 2. Express gangs without a weight are packed in order.
//! 3. Interactive and batch gangs are packed beside them in order. When it is
//!    the turn of the rest, a CPU for each of its threads is kept from those
//!    that come after it.
//! 4. Standby gangs are packed on CPUs that the rest does not use either.
//! 5. The gangs of the row are charged, and the rest for the CPUs it can use.
//! 6. Confined gangs come before the others. Of both, gangs keep the CPUs they had where those are
//!    free and leave room for other confined ones; then the others are placed, leader first.
//!
//! A gang that does not fit beside the tiers before its own, or that its user's cap (`caps`) has no
//! room for, does not contend in this slice. It
//! neither holds the others up nor saves up turns.
//!
//! Properties:
//! - no CPU is in two slots; slots and `rest` are all CPUs online;
//! - a slot has all CPUs of its gang, and only those that its threads may use;
//! - a job out of the row could not have been packed beside what is in it and
//!   what is kept for the rest (the row is maximal);
//! - every job is at one place: row, fillers, paused, or none of them (idle,
//!   not scheduled by us, or not on the CPUs that its threads may use);
//! - amending a plan to which nothing happened changes nothing.
//!
//! The whole is compared with a naive version (tests/policy/naive.rs).

use crate::line::{Lines, Packed, Who, pack};
use crate::place::{Room, place};
use crate::schedule::{Job, Readiness, Schedule};
use crate::seating::Seating;
use crate::turn::{self, Tier};
use crate::{CpuSet, JobId, Plan, Slot, caps, clock};
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

        let machine = self.topology.len();
        let threads = self.rest.threads;
        self.grant_allowances();
        let out = self.beyond_caps(|_, _| true);
        let mut costs = BTreeMap::new();
        let mut lines = Lines::new(&mut self.jobs, |_| true, &out);
        let mut seating = Seating::new(self.topology.set().clone());
        lines.join(&mut self.rest);
        let mut free = machine;
        let mut served = 0;
        let mut rest_turn = capped;
        let mut rest_kept = 0;
        for tier in Tier::ALL {
            let there = if tier == Tier::Standby { free - served } else { free };
            let line = lines.of(tier);
            line.order(there, &mut seating);
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

        for tier in Tier::ALL {
            let line = lines.of(tier);
            for waiting in line.all() {
                match &mut waiting.who {
                    Who::Gang { job, in_row, .. } if *in_row => {
                        let by = turn::charge(&self.config, waiting.turn.stride, slice);
                        job.charge(slice, by);
                        *costs.entry(job.spec.user).or_default() += caps::cost(job);
                    }
                    Who::Gang { .. } => {}
                    Who::Rest(rest) => rest.vtime += turn::rest_stride(served, rest.weight),
                }
            }
            line.advance_floor(self.floors.of_mut(tier));
        }

        let mut fillers = lines.waiting();
        fillers.append(&mut lines.too_wide);
        let mut paused = std::mem::take(&mut lines.suspended);
        if !self.config.fill {
            paused.append(&mut fillers);
            paused.sort_unstable();
        }
        let mut room = Room::new(&self.topology, self.topology.set().clone());
        let row = place(&mut room, lines.row());
        let rest = room.into_free();
        self.gangs_charged = false;
        self.charge_gangs(&row);
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
    /// of the plan. `None` if nothing changes.
    ///
    /// A gang that enters is charged the whole slice, once.
    pub fn amend(&mut self, current: &Plan) -> Option<Plan> {
        let threads = self.rest.threads;
        let mut row: Vec<Slot> =
            current.row.iter().filter(|slot| self.keeps(slot)).cloned().collect();
        let mut free = self.topology.set().clone();
        for slot in &row {
            free.subtract(&slot.cpus);
        }
        let kept: BTreeSet<JobId> = row.iter().map(|slot| slot.job).collect();

        // What was charged for this slice already costs nothing more.
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
                        *costs.entry(job.spec.user).or_default() += caps::cost(job);
                    }
                }
            }
        }
        let out: Vec<JobId> = lines.waiting().into_iter().chain(lines.too_wide.drain(..)).collect();
        let mut paused = std::mem::take(&mut lines.suspended);
        let mut room = Room::new(&self.topology, free);
        row.extend(place(&mut room, lines.row()));
        let rest = room.into_free();
        self.charge_gangs(&row);
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
    fn charge_gangs(&mut self, row: &[Slot]) {
        if !row.is_empty() && !self.gangs_charged {
            self.allowance -= 1000;
            self.gangs_charged = true;
        }
    }

    /// Whether a slot may stay as it is for the rest of its slice.
    fn keeps(&self, slot: &Slot) -> bool {
        self.jobs.get(&slot.job).is_some_and(|job| {
            job.readiness() == Readiness::Runnable
                && job.demand.as_ref().is_ok_and(|demand| demand.is_met_by(&slot.cpus))
                && slot.cpus.is_subset(self.topology.set())
        })
    }
}
