//! The survey: the conductor looks, before it plans, at which jobs want to run.

use gang_conductor::{Counted, Eligibility, Job, JobSeen, Now};
use gang_linux::{Roots, census::Census, clock, topology};
use gang_schedule::{Cpu, JobId, Topology};
use gang_timetable::Runnable;

use crate::conduct::{
    at_work::Workers,
    readers::CpuReader,
    state::{State, now},
};

/// How often the survey looks (CLOCK_MONOTONIC).
const LOOK_EVERY_NS: u64 = 100_000_000;

/// The most threads that are read for one count; of a larger job, a part stands for all.
const THREADS_COUNTED: usize = 32;

/// CPUs are counted, and working hours looked at, this often (CLOCK_MONOTONIC).
const TOPOLOGY_EVERY_NS: u64 = 1_000_000_000;

/// State of the survey from period to period.
#[derive(Debug)]
pub struct Survey {
    census: Census,
    cpu_reader: CpuReader,
    look_at_ns: u64,
    topology_at_ns: u64,
    online: String,
}

impl Survey {
    pub fn new(roots: &Roots, realtime: bool) -> std::io::Result<Survey> {
        Ok(Survey {
            census: Census::open(&roots.proc).map_err(std::io::Error::other)?,
            cpu_reader: CpuReader::of_cpus(roots.proc.clone(), realtime)?,
            look_at_ns: 0,
            topology_at_ns: 0,
            // Where it cannot be read, the first look that can reads the topology anew.
            online: topology::online_text(roots).unwrap_or_default(),
        })
    }

    /// How long until it is time for a look; 0 where it is.
    pub fn due_in_ns(&self) -> u64 {
        self.look_at_ns.saturating_sub(clock::monotonic_ns())
    }

    /// The share of one CPU that the reader of CPUs lately took before the gangs, besides the
    /// conductor's.
    pub fn used(&self) -> f64 {
        self.cpu_reader.used()
    }

    /// Looks at the machine.
    pub fn look(&mut self, state: &mut State, workers: &Workers) {
        let now = now();
        // Looks are made at the ends of gaps, which may be far apart.
        let on_time_ns = LOOK_EVERY_NS.max(2 * state.core.config().gap.period_ns);
        if now.monotonic_ns > self.look_at_ns + on_time_ns {
            state.core.looked_late();
        }
        self.look_at_ns = now.monotonic_ns + LOOK_EVERY_NS;
        self.count_runnable(state, workers, now);
        if state.core.asks_for_users() {
            state.measured.list_runnable();
        }
        let machine = state.core.machine();
        let short_tasks = state.measured.short_tasks(machine, state.core.jobs().values());
        state.core.saw_short_tasks(short_tasks);
        self.look_at_jobs(state, now);
        if now.monotonic_ns >= self.topology_at_ns {
            self.topology_at_ns = now.monotonic_ns + TOPOLOGY_EVERY_NS;
            self.look_at_cpus(state);
            state.look_at_hours();
        }
    }

    fn count_runnable(&mut self, state: &mut State, workers: &Workers, now: Now) {
        let Some(all) = self.census.count().map(|count| count.runnable) else { return };
        // This thread is runnable; the switchers sleep. A request of a user to the daemon is no
        // reason for gangs to make room.
        let (proc_root, singles) = (&state.roots.proc, state.single_reader.as_ref());
        let readers = u32::from(self.cpu_reader.is_runnable(proc_root))
            + u32::from(singles.is_some_and(|it| it.is_runnable(proc_root)));
        let of_daemon = 1 + readers + workers.runnable(proc_root);
        for (id, cpus) in self.cpu_reader.take().into_iter().flatten() {
            if let Some(reading) = state.core.reading(id) {
                reading.members.note_cpus(&cpus);
            }
        }
        let (mut to_look_at, mut of_jobs) = (Vec::new(), Vec::new());
        if all > of_daemon {
            for id in state.core.to_count() {
                let Some((runnable, tids)) = count(state, id) else { continue };
                to_look_at.push((id, tids));
                of_jobs.push((id, runnable));
            }
        }
        if self.cpu_reader.is_idle() && !to_look_at.is_empty() {
            self.cpu_reader.ask(to_look_at);
        }
        state.core.count(now, &Counted { all, of_daemon, of_jobs });
    }

    /// Looks at a few jobs, in turn: some have fallen asleep, others have woken.
    fn look_at_jobs(&mut self, state: &mut State, now: Now) {
        for id in state.core.to_look_at() {
            let is_over_limit =
                |job: &Job| state.core.eligibility(job) == Eligibility::TooManyThreads;
            if state.core.job(id).is_ok_and(is_over_limit) {
                // It may have fewer by now.
                state.read(id);
            }
            let State { core, registry, roots, .. } = &mut *state;
            let Ok(is_awake) = core.job(id).map(|job| job.activity.awake) else { continue };
            let (Some(reading), Some(of)) = (core.reading(id), registry.jobs.get_mut(&id)) else {
                continue;
            };
            let roster = &mut of.roster;
            let cpu_time_ns = roster.cpu_time_ns(reading.members, &roots.proc);
            let Some(cpu_time_ns) = cpu_time_ns else { continue };
            // Of one that is awake it makes no difference.
            let waited_us = if is_awake { None } else { roster.waited_us() };
            if !core.looked_at(now, JobSeen { id, cpu_time_ns, waited_us }) {
                continue;
            }
            if count(state, id).is_some_and(|(runnable, _)| runnable.threads == 0) {
                let of = state.registry.jobs.get_mut(&id);
                let waited_us = of.and_then(|of| of.roster.waited_us()).unwrap_or(0);
                let _ = state.core.fall_asleep(now, id, waited_us);
            }
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
                let _ = state.core.change_topology(topology);
                self.online = online;
            }
            Err(error) => tracing::warn!("cannot read the topology: {error:#}"),
        }
    }
}

/// How many threads of a job want to run, and of which threads the CPU is to be read.
fn count(state: &mut State, id: JobId) -> Option<(Runnable, Vec<u32>)> {
    let members = &state.core.job(id).ok()?.home.as_ref()?.members;
    let roster = &mut state.registry.jobs.get_mut(&id)?.roster;
    let part = roster.part(members, THREADS_COUNTED);
    let runnable = match state.measured.runnable(id) {
        // The kernel's programs know it without a look at each thread.
        Some(threads) => Runnable::exactly(threads),
        None => roster.count_runnable(members, &state.roots.proc, &part),
    };
    Some((runnable, part.tids))
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
