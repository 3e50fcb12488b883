//! What the conductor looks at before it plans: who wants to run.

use gang_conductor::{
    Eligibility,
    activity::{Change, Look},
};
use gang_linux::{Roots, clock, process::Census, topology};
use gang_schedule::{Cpu, Event, JobId, Policy, Topology};
use gang_timetable::Runnable;

use crate::{
    scout::{Asked, Scout},
    state::State,
};

/// Jobs whose CPU time is looked at in one go; and while one of those that sleep may have woken.
const LOOKS: usize = 8;
const LOOKS_AT_ONCE: usize = 32;

/// How often the survey looks (CLOCK_MONOTONIC).
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The most threads whose state is read for one count; of more, a part stands for all.
const THREADS_COUNTED: usize = 32;

/// CPUs are counted, and working hours looked at, this often (CLOCK_MONOTONIC).
const TOPOLOGY_EVERY_NS: u64 = 1_000_000_000;

/// What the survey remembers from period to period.
#[derive(Debug)]
pub struct Survey {
    census: Census,
    scout: Scout,
    look_at_ns: u64,
    topology_at_ns: u64,
    online: String,
    /// Jobs that are still to be looked at because one of them may have woken.
    suspects: usize,
}

impl Survey {
    pub fn new(roots: &Roots, realtime: bool) -> std::io::Result<Survey> {
        Ok(Survey {
            census: Census::open(&roots.proc).map_err(std::io::Error::other)?,
            scout: Scout::start(roots.proc.clone(), realtime)?,
            look_at_ns: 0,
            topology_at_ns: 0,
            // Where it cannot be read, the first look that can reads the topology anew.
            online: topology::online_text(roots).unwrap_or_default(),
            suspects: 0,
        })
    }

    /// Whether it is time for a look.
    pub fn is_due(&self) -> bool {
        clock::monotonic_ns() >= self.look_at_ns
    }

    /// How long until then.
    pub fn due_in_ns(&self) -> u64 {
        self.look_at_ns.saturating_sub(clock::monotonic_ns())
    }

    /// The share of the time of one CPU that looking took before the gangs of late, besides that of the conductor.
    pub fn used(&self) -> f64 {
        self.scout.used()
    }

    /// Looks at the machine and tells the policy what changed.
    pub fn look(&mut self, state: &mut State) {
        let now_ns = clock::monotonic_ns();
        // It is looked at the ends of gaps, which may be far apart.
        let on_time_ns = LOOK_EVERY_NS.max(2 * state.schedule.config().gap.period_ns);
        if now_ns > self.look_at_ns + on_time_ns {
            state.load.pauses();
        }
        self.look_at_ns = now_ns + LOOK_EVERY_NS;
        self.count_runnable(state);
        let short_tasks = state.gauge.short_tasks(state.machine(), state.jobs.values());
        if state.gaps.saw_short_tasks(short_tasks) {
            tracing::debug!(gap = ?state.gaps.usual(), "gaps come more or less often");
            state.schedule.renew();
        }
        self.look_at_jobs(state, now_ns);
        if now_ns >= self.topology_at_ns {
            self.topology_at_ns = now_ns + TOPOLOGY_EVERY_NS;
            self.look_at_cpus(state);
            state.look_at_hours(clock::utc_ns());
        }
    }

    fn count_runnable(&mut self, state: &mut State) {
        let Some(all) = self.census.count().map(|count| count.runnable) else { return };
        let mut of_jobs = Runnable::default();
        let machine = state.schedule.topology().cpus().len() as u32;
        // This thread is runnable; the switchers sleep.
        let of_daemon = 1 + u32::from(self.scout.is_runnable(&state.roots.proc));
        for (id, cpus) in self.scout.take() {
            let home = state.jobs.get_mut(&id).and_then(|job| job.home.as_mut());
            home.into_iter().for_each(|home| home.members.note_cpus(&cpus));
        }
        let mut to_look_at = Asked::new();
        if all > of_daemon {
            let proc_root = &state.roots.proc;
            for job in state.jobs.values_mut() {
                let eligibility = job.eligibility(machine);
                let Some(home) = &mut job.home else { continue };
                // One with too many threads has no slots, and is no load for others all the same.
                if !job.activity.awake && eligibility != Eligibility::TooManyThreads {
                    continue;
                }
                let part = home.members.part(THREADS_COUNTED);
                let runnable = match state.gauge.runnable(job.id) {
                    // The kernel's programs know it without a look at each thread.
                    Some(threads) => Runnable::exactly(threads),
                    None => home.members.count_runnable(proc_root, &part),
                };
                to_look_at.push((job.id, part.tids));
                if job.activity.awake {
                    job.width.saw(runnable.threads, job.spec.cpus.min(machine));
                }
                // Those that Linux alone schedules have their time with the rest (L18).
                if job.spec.policy == Policy::Gang {
                    of_jobs.threads += runnable.threads;
                    of_jobs.unseen += runnable.unseen;
                }
            }
        }
        self.scout.ask(to_look_at);
        state.load.saw(all, of_jobs, of_daemon, machine);
        if state.load.rises() {
            self.suspects = state.jobs.len();
        }
        let threads = state.load.threads();
        if threads != state.schedule.load() {
            let _ = state.schedule.apply(Event::Load { threads });
        }
    }

    /// Looks at a few jobs, in turn: who fell asleep, who woke?
    fn look_at_jobs(&mut self, state: &mut State, now_ns: u64) {
        let after = state.jobs.range(state.next_look..).map(|(&id, _)| id);
        let looks = self.suspects.clamp(LOOKS, LOOKS_AT_ONCE).min(state.jobs.len());
        self.suspects = self.suspects.saturating_sub(looks);
        let ids: Vec<JobId> = after.chain(state.jobs.keys().copied()).take(looks).collect();
        state.next_look = ids.last().map_or(JobId(0), |id| JobId(id.0 + 1));
        for id in ids {
            let machine = state.machine();
            let Some(job) = state.jobs.get_mut(&id) else { continue };
            let is_crowd = job.eligibility(machine) == Eligibility::TooManyThreads;
            let Some(home) = &mut job.home else { continue };
            let Some(cpu_time_ns) = home.members.cpu_time_ns(&state.roots.proc) else { continue };
            // Of one that is awake it makes no difference.
            let waited_us = if job.activity.awake { None } else { home.members.waited_us() };
            let look = Look {
                now_ns,
                cpu_time_ns,
                waited_us,
                slots: job.slots,
                in_slot_ns: job.in_slot_ns,
                threads: home.members.threads().len(),
                stands_still: !state.backend.can_fill() && job.spec.policy == Policy::Gang,
                is_crowded: is_crowd,
                slice_ns: state.schedule.config().slice_ns,
            };
            let has_runnable = || {
                let threads = state.gauge.runnable(id).unwrap_or_else(|| {
                    let part = home.members.part(THREADS_COUNTED);
                    home.members.count_runnable(&state.roots.proc, &part).threads
                });
                threads > 0
            };
            let change = job.activity.look(&look, has_runnable);
            if is_crowd {
                let _ = home.members.refresh(&state.roots.proc);
            }
            match change {
                Change::None => continue,
                Change::Wakes => {}
                Change::FallsAsleep => {
                    let waited_us = home.members.waited_us().unwrap_or(0);
                    job.activity.fell_asleep(now_ns, job.slots, waited_us);
                }
            }
            let _ = state.wake(id, change == Change::Wakes);
        }
    }

    /// CPUs may go and come back.
    fn look_at_cpus(&mut self, state: &mut State) {
        let Ok(online) = topology::online_text(&state.roots) else { return };
        if online == self.online {
            return;
        }
        match machine(&state.roots) {
            Ok(topology) => {
                tracing::info!(cpus = topology.len(), "CPUs went or came: {}", online.trim());
                let _ = state.schedule.apply(Event::Topology(topology));
                self.online = online;
            }
            Err(error) => tracing::warn!("cannot read the topology: {error:#}"),
        }
    }
}

/// The machine as the policy sees it.
pub fn machine(roots: &Roots) -> anyhow::Result<Topology> {
    let cpus = topology::online(roots)?;
    let cpus = cpus.into_iter().map(|topology::Cpu { id, core, cache, node }| Cpu {
        id,
        core,
        cache,
        node,
    });
    Ok(Topology::new(cpus.collect())?)
}
