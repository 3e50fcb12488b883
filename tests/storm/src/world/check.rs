//! The invariants that are checked after each event.

use gang_conductor::Eligibility;
use gang_schedule::{CpuSet, Plan, Schedule, Slot, clock as slices};
use gang_timetable::{Backend, Group, Standing, Weight};

use super::{World, time::STEP_SHOWS_NS};

/// Plans that stood as the CPUs of a gang's threads changed are over then.
pub(super) const SETTLED_NS: u64 = 700_000_000;

/// Threads that leave their job by themselves, or become another user's, are lowered within this
/// time.
const STRAYS_NS: u64 = 100_000_000;

/// For so long the shares of gangs are looked at.
const FRAME_SLICES: u64 = 200;

impl World {
    /// In one slice no CPU belongs to two gangs, and a gang has slots only where it takes turns.
    /// Plans that begin before `resume_ns` are from before the last events.
    pub(super) fn check_plans(&self, plans: &[Plan], resume_ns: u64) {
        let mut machine = self.machine.borrow_mut();
        let Some(daemon) = &self.daemon else { return };
        for plan in plans {
            let mut owned = CpuSet::new();
            for slot in &plan.row {
                if !owned.is_disjoint(&slot.cpus) {
                    let what = format!("in one slice no CPU belongs to two gangs: {}", plan.slice);
                    machine.violations.push(what);
                }
                owned = owned.union(&slot.cpus);
            }
        }
        let made = slices::slice_at(daemon.core.schedule().config(), resume_ns);
        for plan in plans.iter().filter(|plan| plan.slice >= made) {
            let wrong = gang_schedule::check::plan(daemon.core.schedule(), plan);
            machine.violations.extend(wrong.iter().map(ToString::to_string));
        }
    }

    /// Were nothing to happen any more, every gang would have its slots.
    pub(super) fn check_shares(&self) {
        let Some(daemon) = &self.daemon else { return };
        // Where slices differ in their gaps, shares are of time and not of slices.
        if self.config.slice_ns % self.config.gap.period_ns != 0 {
            return;
        }
        let mut schedule = Schedule::clone(daemon.core.schedule());
        let last = daemon.core.schedule().plans().last().map_or(0, |plan| plan.slice);
        let mut frame = gang_schedule::check::Frame::new();
        for slice in last + 1..last + FRAME_SLICES {
            let plan = schedule.plan(slice);
            let wrong = frame.observe(&schedule, &plan);
            if !wrong.is_empty() {
                let wrong = wrong.iter().map(ToString::to_string);
                return self.machine.borrow_mut().violations.extend(wrong);
            }
        }
    }

    /// Were nothing to happen any more, the gangs of each group would have no more CPU time than
    /// its quota, which the daemon has read.
    pub(super) fn check_quotas(&self) {
        let Some(daemon) = self.daemon.as_ref().filter(|_| self.config.fill) else { return };
        let mut schedule = Schedule::clone(daemon.core.schedule());
        let last = daemon.core.schedule().plans().last().map_or(0, |plan| plan.slice);
        let plans: Vec<Plan> =
            (last + 1..last + FRAME_SLICES).map(|slice| schedule.plan(slice)).collect();
        let mut machine = self.machine.borrow_mut();
        let mut wrong = Vec::new();
        for (group, &cpu_permille) in &machine.quotas {
            let limited_ns = machine.limited_ns[group].max(self.held_up_until_ns);
            if self.now.monotonic_ns < limited_ns + SETTLED_NS {
                continue;
            }
            // Spanning slots are had all the same.
            let is_there = |slot: &&Slot| {
                let is_local = daemon.core.jobs()[&slot.job].nonce.is_none();
                let quota = machine.quota_of(slot.job);
                is_local && quota.is_some_and(|quota| quota.group == *group)
            };
            let slots = || plans.iter().flat_map(|plan| &plan.row).filter(is_there);
            let widest = slots().map(|slot| slot.cpus.len()).max().unwrap_or(0);
            let used = slots().map(|slot| slot.cpus.len()).sum::<usize>() * 1000;
            let most = cpu_permille as usize * plans.len() + widest * 1000;
            if used > most {
                wrong.push(format!(
                    "the gangs of a group have no more CPU time than its quota: {used} of {most}"
                ));
            }
        }
        machine.violations.extend(wrong);
    }

    /// All that must hold now.
    pub(super) fn check(&mut self) {
        let mut machine = self.machine.borrow_mut();
        machine.check_raised();
        let now_ns = self.now.utc_ns;
        let Some(daemon) = &mut self.daemon else { return };
        machine.violations.extend(daemon.check_handed_on());
        let Some(daemon) = &self.daemon else { return };
        let calm_ns = self.held_up_until_ns.max(self.stepped_until_ns) + STRAYS_NS;
        if calm_ns < self.now.monotonic_ns && self.dies_after.is_none() {
            let before_ns = self.now.monotonic_ns - STRAYS_NS;
            machine.check_strays(before_ns, |tid| !daemon.core.is_of_no_job(tid));
            machine.check_foreign(before_ns);
        }
        let (core, config) = (&daemon.core, daemon.core.published_config());
        let is_followed = daemon.lanes.iter().all(|lane| {
            let wakes = lane.wakes_ns.is_none_or(|at_ns| at_ns > now_ns);
            lane.last.generation == lane.line.current().generation
                && wakes
                && lane.stalled_until_ns <= now_ns
                && lane.last.from_ns <= now_ns
        });
        let is_over = daemon.lanes.iter().all(|lane| lane.last.deadline_ns <= now_ns);
        let is_covered = daemon.lanes.iter().all(|lane| now_ns < lane.last.until_ns);
        let is_steady = self.now.monotonic_ns > self.stepped_until_ns;
        let begins_ns = daemon.lanes.iter().map(|lane| lane.last.from_ns).max().unwrap_or(0);
        let has_members = core.jobs().values().any(|job| job.home.is_some());
        let is_asleep = daemon.wakes_ns > now_ns;
        if is_steady && is_asleep && has_members && begins_ns > now_ns + STEP_SHOWS_NS {
            let in_ns = begins_ns - now_ns;
            machine.violations.push(format!("plans are for now: they begin in {in_ns} ns"));
        }
        let is_told = is_steady && daemon.orders.is_empty() && !core.schedule().is_changed();
        let missed = daemon.followed().missed;
        if !is_followed || !is_told || !core.has_seen(missed) || !(is_covered || is_over) {
            return;
        }
        machine.orders_are_done();
        if let Some(what) = daemon.overfull_edge() {
            machine.violations.push(format!("each edge has time for its gangs: {what}"));
        }
        let slice = slices::slice_at(config, now_ns);
        let in_gap = slices::in_gap(config, now_ns);
        let plan = core.schedule().plan_of(slice).filter(|_| is_covered);
        if plan.is_none() && !is_over {
            return;
        }
        let slot_of = |job| plan.and_then(|plan| plan.slot(job));
        let online = core.schedule().topology().set();
        let (mut wrong, mut seen) = (Vec::new(), Vec::new());
        for (id, job) in core.jobs() {
            let Some(home) = &job.home else { continue };
            let is_unpinning = core.is_unpinning(*id);
            let foreign = home.members.threads().iter().filter(|thread| thread.is_foreign);
            let foreign: Vec<u32> = foreign.map(|thread| thread.tid).collect();
            if is_unpinning && !foreign.is_empty() {
                continue;
            }
            // A member was found to be its owner's again after the plans were made.
            if job.suspended && core.is_to_be_restated(*id) {
                continue;
            }
            // No timetable has them any more. Those that are the owner's again are not read yet.
            seen.extend(foreign.into_iter().filter(|&tid| machine.is_foreign(tid, job.owner_uid)));
            // One that has just fallen asleep has its slot to the end.
            let has_slot = slot_of(*id).is_some() && !job.suspended;
            let standing = match core.eligibility(job).is_gang() {
                // The deadline has lowered those that the end of the timetable left raised.
                _ if is_over && job.standing == Standing::Raised => Standing::Filling,
                _ if is_over => job.standing,
                _ if has_slot && in_gap => Standing::Filling,
                _ if has_slot => Standing::Raised,
                true => job.standing_out_of_row(config.fill, core.machine()),
                // One that was in its slot stays filling until the next plans.
                false => job.standing,
            };
            let is_paused = |it| match it {
                Standing::Paused => true,
                Standing::Filling => !self.backend.can_fill(),
                Standing::Raised | Standing::Released => false,
            };
            // The daemon lowers those besides that no timetable has, now and then. One that has
            // ended threads stands as before until the next plans.
            match core.eligibility(job) {
                Eligibility::TooManyThreads => drop(self.crowded.insert(*id, begins_ns)),
                Eligibility::Asleep if job.standing == Standing::Filling => {}
                _ if self.crowded.get(id) == Some(&begins_ns) => {}
                _ => drop(self.crowded.remove(id)),
            }
            // Until the daemon has planned again. One that does not run plans nothing.
            let waits_for_itself = matches!(
                core.eligibility(job),
                Eligibility::TooManyThreads | Eligibility::Unplaceable
            );
            if waits_for_itself && is_paused(standing) {
                let since_ns = *self.still.entry(*id).or_insert(self.now.monotonic_ns);
                let since_ns = since_ns.max(self.held_up_until_ns);
                if since_ns + SETTLED_NS < self.now.monotonic_ns {
                    wrong.push(format!("who keeps itself out of the rows can run: job {id}"));
                }
            } else {
                self.still.remove(id);
            }
            if self.crowded.contains_key(id) {
                continue;
            }
            // A process that was about to stop may start another one.
            if core.is_stopping(*id) && !core.eligibility(job).is_gang() {
                continue;
            }
            let is_settled = job.confined_at_ns + SETTLED_NS < self.now.monotonic_ns
                && !core.is_confined_anew(*id);
            let members = machine.living(*id, &home.members);
            // The last of them has ended, and nobody has looked since.
            if home.members.has_foreign_that_run() && !members.has_foreign_that_run() {
                continue;
            }
            let slot_cpus = slot_of(*id).map(|slot| &slot.cpus).filter(|_| {
                standing == Standing::Raised
                    && self.backend == Backend::Rt
                    && job.in_slot.raises_threads()
            });
            let outside = slot_cpus.map(|it| home.members.outside(it, online));
            let outside = outside.unwrap_or_default();
            // Those that chose their CPUs lately may be raised yet, or not raised again yet.
            let chose = |tid| outside.contains(&tid) || home.members.own_cpus(tid).is_some();
            // A group with another user's thread is not frozen, whatever the part.
            let part = |is_in: &dyn Fn(u32) -> bool| {
                let is_in = |it: &&gang_timetable::Thread| it.is_foreign || is_in(it.tid);
                let threads = members.threads().iter().filter(is_in).copied();
                members.clone().with_threads(threads.collect())
            };
            let raised = part(&|tid| !outside.contains(&tid) && (is_settled || !chose(tid)));
            let filling = part(&|tid| is_settled && outside.contains(&tid));
            let check = |members, standing| {
                machine.model.check(self.backend, (*id, members), standing, job.in_slot)
            };
            let stands = check(&raised, standing).and_then(|()| match slot_cpus {
                Some(_) => check(&filling, Standing::Filling),
                None => Ok(()),
            });
            let group = machine.model.group(Group::Job(*id));
            let is_plain = group.idle != Some(true) && group.weight != Some(Weight::Highest);
            // That of no job but those that are weighed.
            let weighs_plainly =
                self.backend != Backend::Rt || members.controls.weigh() || is_plain;
            let stands = stands.and_then(|()| match weighs_plainly {
                true => Ok(()),
                false => Err(format!("its group weighs what it should not: {group:?}")),
            });
            let cpus = match standing {
                Standing::Raised => Some(slot_of(*id).map(|slot| &slot.cpus)),
                Standing::Released => Some(None),
                Standing::Filling | Standing::Paused => None,
            };
            let cpus = cpus.filter(|slot| slot.is_none() || self.backend.can_fill());
            let stands = stands.and_then(|()| {
                cpus.map_or(Ok(()), |slot| machine.check_cpus(&members, slot, online))
            });
            let slot = slot_of(*id).filter(|_| is_settled && standing == Standing::Raised);
            let stands = stands.and_then(|()| {
                let slot = slot.map(|slot| &slot.cpus);
                slot.map_or(Ok(()), |slot| machine.check_places(&members, &home.members, slot))
            });
            let stands = match is_unpinning {
                false => stands.and_then(|()| machine.check_left_alone(&members)),
                true => stands,
            };
            let roster = daemon.rosters.get(id);
            // Threads that a gang has just started are read with the next plans.
            let is_still = standing == Standing::Paused && !core.eligibility(job).is_gang();
            let runs = roster.filter(|_| is_still);
            let is_elsewhere = |pid| {
                let others = daemon.rosters.iter().filter(|(other, _)| *other != id);
                let jobs = core.jobs().values().filter(|job| job.id != *id);
                let leaving = jobs.flat_map(|job| &job.home).flat_map(|home| &home.leaving);
                let mut all = others.flat_map(|(_, of)| &of.tree).chain(leaving);
                all.any(|&other| other == pid)
            };
            let runs =
                runs.and_then(|roster| machine.find_running(*id, home, roster, is_elsewhere));
            let stands = match runs {
                Some(pid) => Err(format!("its processes stand still, and {pid} does not")),
                None => stands,
            };
            if let Err(what) = stands {
                wrong.push(format!(
                    "each job is in its standing: job {id} ({:?}) at slice {slice}: {what}",
                    core.eligibility(job)
                ));
            }
        }
        for tid in seen {
            machine.is_seen(tid);
        }
        machine.violations.extend(wrong.into_iter().take(4));
    }
}
