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
//! 2. Express gangs are packed in order.
//! 3. Interactive and batch gangs are packed beside them in order. If the rest
//!    leads them, a CPU for each of its threads is kept from them.
//! 4. Standby gangs are packed on CPUs that the rest does not use either.
//! 5. Gangs keep the CPUs they had where those are free; then the others are
//!    placed, leader first.
//! 6. Who is in the row is charged, and the rest for the CPUs it can use.
//!
//! A gang that does not fit beside what comes before its tier does not contend
//! in this slice: it neither holds the others up nor saves up turns.
//!
//! Properties:
//! - no CPU is in two slots, slots and `rest` are all CPUs online;
//! - a slot has all CPUs of its gang;
//! - a job out of the row could not have been packed (the row is maximal);
//! - every job is at one place: row, fillers, paused, or none of them (idle,
//!   or not scheduled by us);
//! - amending a plan to which nothing happened changes nothing.
//!
//! The whole is compared with a naive version (tests/naive).

use crate::place::Room;
use crate::schedule::{Job, Rest, Schedule, Standing};
use crate::turn::{self, Tier, Turn};
use crate::{CpuSet, JobId, Plan, Slot, clock};
use std::collections::BTreeSet;

/// One who waits for a turn.
struct Contender<'a> {
    who: Who<'a>,
    turn: Turn,
}

enum Who<'a> {
    Gang { id: JobId, width: u32, job: &'a mut Job, in_row: bool },
    Rest(&'a mut Rest),
}

impl Contender<'_> {
    /// The least number of CPUs with which it can lead.
    fn least(&self) -> u32 {
        match self.who {
            Who::Gang { width, .. } => width,
            Who::Rest(_) => 1,
        }
    }

    fn vtime(&mut self) -> &mut u128 {
        match &mut self.who {
            Who::Gang { job, .. } => &mut job.vtime,
            Who::Rest(rest) => &mut rest.vtime,
        }
    }
}

/// What the packing of a tier leaves.
struct Packed {
    /// CPUs still free.
    free: u32,
    rest_leads: bool,
}

/// Packs a line of contenders, the leader first. `free` CPUs are there; of
/// those, `threads` are kept if the rest leads.
fn pack(line: &mut [Contender], free: u32, threads: u32) -> Packed {
    let rest_leads = matches!(line.first(), Some(Contender { who: Who::Rest(_), .. }));
    let kept = if rest_leads { threads.min(free) } else { 0 };
    let mut room = free - kept;
    for contender in line {
        if let Who::Gang { width, in_row, .. } = &mut contender.who {
            if *width <= room {
                room -= *width;
                *in_row = true;
            }
        }
    }
    Packed { free: room + kept, rest_leads }
}

impl Schedule {
    /// Decides slice number `slice`, and charges it to those who get it.
    ///
    /// Call it once for each slice; slices that are left out, or numbers that
    /// go back, are harmless, since only the slices that are planned are
    /// charged.
    pub fn plan(&mut self, slice: u64) -> Plan {
        self.generation += 1;
        // What is not used up within a slice is not saved: over any number of
        // slices, gangs are within one slice of the cap.
        self.allowance = self.allowance.min(999) + i64::from(self.config.cap_permille);
        let capped = self.allowance < 1000;

        let machine = self.topology.len();
        let threads = self.rest.threads;
        let (mut paused, mut too_wide) = (Vec::new(), Vec::new());
        let mut tiers: [Vec<Contender>; 3] = Default::default();
        for (&id, job) in &mut self.jobs {
            match job.standing(machine) {
                Standing::Runnable => {
                    let width = job.width(machine);
                    let turn = Turn::gang(job.vtime, job.stride, job.weight, id.0);
                    let tier = job.tier() as usize;
                    let who = Who::Gang { id, width, job, in_row: false };
                    tiers[tier].push(Contender { who, turn });
                }
                Standing::TooWide => too_wide.push(id),
                Standing::Suspended => paused.push(id),
                Standing::Asleep | Standing::Unscheduled => {}
            }
        }

        let mut free = machine;
        let mut served = 0;
        let mut rest_turn = capped;
        let mut blocked_rest = None;
        let mut blocked = [0; 3];
        let [express, shared, standby] = &mut tiers;
        let mut rest = Some(&mut self.rest);
        for (tier, line) in
            [(Tier::Express, express), (Tier::Shared, shared), (Tier::Standby, standby)]
        {
            if tier == Tier::Shared && threads > 0 {
                let rest = rest.take().expect("there is one shared tier");
                if free > 0 {
                    let turn = Turn::rest(rest.vtime, threads.min(free), threads);
                    line.push(Contender { who: Who::Rest(rest), turn });
                } else {
                    blocked_rest = Some(rest);
                }
            }
            let available = if tier == Tier::Standby { free - served } else { free };
            let contending = turn::order(line, |c| c.turn, |c| c.least() <= available);
            blocked[tier as usize] = contending;
            if !capped {
                let packed = pack(&mut line[..contending], available, threads);
                free -= available - packed.free;
                rest_turn |= packed.rest_leads;
            }
            if tier == Tier::Shared {
                served = threads.min(free);
            }
        }

        let mut row: Vec<(JobId, u32, &mut CpuSet)> = Vec::new();
        let mut fillers = Vec::new();
        for (tier, line) in [Tier::Express, Tier::Shared, Tier::Standby].into_iter().zip(&mut tiers)
        {
            for contender in line.iter_mut() {
                match &mut contender.who {
                    Who::Gang { id, job, in_row: true, .. } => {
                        job.vtime += contender.turn.stride;
                        job.charged = Some(slice);
                        let _ = id;
                    }
                    Who::Gang { id, .. } => fillers.push(*id),
                    Who::Rest(rest) => rest.vtime += turn::rest_stride(served, threads),
                }
            }
            let (contending, out) = line.split_at_mut(blocked[tier as usize]);
            let floor = turn::settle(
                contending.iter_mut().map(|c| {
                    let stride = c.turn.stride;
                    (c.vtime(), stride)
                }),
                self.floors.of(tier),
            );
            self.floors.set(tier, floor);
            for contender in out {
                let vtime = contender.vtime();
                *vtime = (*vtime).max(floor);
            }
        }
        if let Some(rest) = blocked_rest {
            rest.vtime = rest.vtime.max(self.floors.of(Tier::Shared));
        }
        for contender in tiers.iter_mut().flatten() {
            if let Who::Gang { id, width, job, in_row: true } = &mut contender.who {
                row.push((*id, *width, &mut job.home));
            }
        }
        if !row.is_empty() {
            self.allowance -= 1000;
        }
        fillers.extend(too_wide);
        if !self.config.fill {
            paused.append(&mut fillers);
            paused.sort_unstable();
        }

        let mut room = Room::new(&self.topology, self.topology.set().clone());
        let row = place(&mut room, row);
        Plan {
            generation: self.generation,
            slice,
            start_ns: clock::slice_start(&self.config, slice),
            end_ns: clock::slice_start(&self.config, slice.saturating_add(1)),
            row,
            rest: room.into_free(),
            rest_turn,
            capped,
            fillers,
            paused,
        }
    }

    /// The slice under way, after events (L17): slots of jobs that can no
    /// longer have one are dropped, and jobs that wait are put on CPUs that
    /// stand free, as if they came last in the order of the plan. `None` if
    /// nothing changes.
    ///
    /// Who enters is charged the whole slice, once.
    pub fn amend(&mut self, current: &Plan) -> Option<Plan> {
        let machine = self.topology.len();
        let threads = self.rest.threads;
        let keeps = |slot: &&Slot| {
            self.jobs.get(&slot.job).is_some_and(|job| {
                job.standing(machine) == Standing::Runnable
                    && job.width(machine) as usize == slot.cpus.len()
                    && slot.cpus.is_subset(self.topology.set())
            })
        };
        let mut row: Vec<Slot> = current.row.iter().filter(keeps).cloned().collect();
        let mut free = self.topology.set().clone();
        for slot in &row {
            free.subtract(&slot.cpus);
        }
        let kept: BTreeSet<JobId> = row.iter().map(|slot| slot.job).collect();

        let (mut paused, mut out) = (BTreeSet::new(), BTreeSet::new());
        let mut tiers: [Vec<Contender>; 3] = Default::default();
        for (&id, job) in self.jobs.iter_mut().filter(|(id, _)| !kept.contains(id)) {
            match job.standing(machine) {
                Standing::Runnable => {
                    let width = job.width(machine);
                    let turn = Turn::gang(job.vtime, job.stride, job.weight, id.0);
                    let tier = job.tier() as usize;
                    out.insert(id);
                    if !current.capped {
                        let who = Who::Gang { id, width, job, in_row: false };
                        tiers[tier].push(Contender { who, turn });
                    }
                }
                Standing::TooWide => _ = out.insert(id),
                Standing::Suspended => _ = paused.insert(id),
                Standing::Asleep | Standing::Unscheduled => {}
            }
        }

        let mut left = free.len() as u32;
        let mut entering = Vec::new();
        for (tier, line) in [Tier::Express, Tier::Shared, Tier::Standby].into_iter().zip(&mut tiers)
        {
            let reserved = match tier {
                Tier::Express => 0,
                Tier::Shared if !current.rest_turn => 0,
                Tier::Shared | Tier::Standby => threads.min(left),
            };
            line.sort_unstable_by_key(|c| c.turn.rank());
            left = reserved + pack(line, left - reserved, 0).free;
            for contender in line {
                if let Who::Gang { id, width, job, in_row: true } = &mut contender.who {
                    if job.charged != Some(current.slice) {
                        job.charged = Some(current.slice);
                        job.vtime += contender.turn.stride;
                    }
                    out.remove(id);
                    entering.push((*id, *width, &mut job.home));
                }
            }
        }
        if current.row.is_empty() && !entering.is_empty() {
            self.allowance -= 1000;
        }
        let mut room = Room::new(&self.topology, free);
        row.extend(place(&mut room, entering));
        let rest = room.into_free();
        self.rest.correct(
            threads.min(current.rest.len() as u32),
            threads.min(rest.len() as u32),
            self.floors.of(Tier::Shared),
        );

        let mut fillers = Vec::new();
        if self.config.fill {
            fillers.extend(current.fillers.iter().copied().filter(|id| out.remove(id)));
            fillers.extend(out);
        } else {
            paused.extend(out);
        }
        let paused: Vec<JobId> = paused.into_iter().collect();
        if (&row, &rest, &fillers, &paused)
            == (&current.row, &current.rest, &current.fillers, &current.paused)
        {
            return None;
        }
        self.generation += 1;
        Some(Plan { generation: self.generation, row, rest, fillers, paused, ..current.clone() })
    }
}

impl Rest {
    /// A slice for which `before` threads were charged serves `after`.
    fn correct(&mut self, before: u32, after: u32, floor: u128) {
        if after > before {
            self.vtime += turn::rest_stride(after - before, self.threads);
        } else if before > after {
            let back = turn::rest_stride(before - after, self.threads);
            self.vtime = self.vtime.saturating_sub(back).max(floor.min(self.vtime));
        }
    }
}

/// Gives each gang its CPUs: those it had if they are free, else new ones.
fn place(room: &mut Room, mut row: Vec<(JobId, u32, &mut CpuSet)>) -> Vec<Slot> {
    let at_home: Vec<bool> = row
        .iter()
        .map(|(_, width, home)| home.len() == *width as usize && room.take_these(home))
        .collect();
    for ((_, width, home), at_home) in row.iter_mut().zip(at_home) {
        if !at_home {
            **home = room.take(*width);
        }
    }
    row.into_iter().map(|(job, _, home)| Slot { job, cpus: home.clone() }).collect()
}
