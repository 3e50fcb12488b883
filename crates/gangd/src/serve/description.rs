//! Jobs, plans and the daemon itself, in the terms of the interface.

use std::{collections::BTreeMap, io, sync::Arc};

use gang_cluster::{
    change::LEAD_LEAST_NS,
    member::{HostSeen, JobSeen},
    record::{self, Fault},
};
use gang_conductor::{Eligibility, Home, Job, Now, ShortLivedGang, admission::Supply};
use gang_engine::timing;
use gang_linux::{Roots, clock};
use gang_protocol::v1;
use gang_schedule::{Class, Config, CpuSet, Gap, JobId, Plan, Sharing, clock as slices};
use gang_timetable::{
    Backend, InSlot,
    record::{Placement, Single},
};

use crate::{
    cluster::{Cluster, name_of},
    conduct::{
        at_work,
        state::{State, now},
    },
    daemon::Daemon,
    error::Error,
    groups::cgroups::Address,
    history::Ended,
    life::{auto, peer::Sees},
    measure::description as measured,
};

/// Single switches in one reply; more would make it too long.
const SWITCHES_MAX: usize = 32_768;

/// A job in the terms of the interface, without the parts for which the conductor has no time.
pub struct Described {
    job: v1::Job,
    address: Option<Address>,
}

impl Described {
    /// `shares` are what the weights of all jobs give them now.
    pub fn of(state: &State, job: &Job, shares: &BTreeMap<JobId, f64>, now: Now) -> Described {
        let spanning =
            || state.core.schedule().share_wanted(job.id).filter(|_| job.nonce.is_some());
        let share = shares.get(&job.id).copied().or_else(spanning).unwrap_or(0.0);
        Described {
            job: describe(state, job, share, now),
            address: state.address(job.id).ok().flatten(),
        }
    }

    pub fn id(&self) -> JobId {
        JobId(self.job.id as u64)
    }

    pub fn owner_uid(&self) -> u32 {
        self.job.owner_uid as u32
    }

    /// The parts that the conductor knows.
    pub fn brief(self) -> v1::Job {
        v1::Job { cpu_quota: None, ..self.job }
    }

    /// The members of a job of single threads.
    pub fn singles(&self) -> &[Single] {
        match self.address.as_ref().map(|at| &at.placement) {
            Some(Placement::Threads { threads }) => threads,
            _ => &[],
        }
    }

    /// The processes that the job waited for in its slots.
    pub fn lost_to(&self, daemon: &Daemon) -> Option<Vec<v1::Culprit>> {
        measured::lost_to(&daemon.measuring, &self.address.as_ref()?.placement)
    }

    /// The times of the job on each CPU.
    pub fn per_cpu(&self, daemon: &Daemon) -> Option<Vec<v1::OnCpu>> {
        measured::per_cpu(&daemon.measuring, &self.address.as_ref()?.placement)
    }

    /// All of it, and the processes of the job.
    pub fn complete(self, daemon: &Daemon) -> Result<(v1::Job, Vec<u32>), Error> {
        let Described { mut job, address } = self;
        let address = address.as_ref();
        let pids = address.map_or(Ok(Vec::new()), |at| daemon.jobs.processes(at))?;
        job.processes = pids.len() as i64;
        if let Some(memory) = &mut job.memory {
            let used = address.map_or(0, |at| daemon.jobs.memory_used(&at.placement));
            memory.used_bytes = Some(used as i64);
        }
        let placement = address.map(|at| &at.placement);
        let gang = placement.filter(|_| job.policy != v1::Policy::none);
        job.cpu_quota = job.cpu_quota.and_then(|planned| {
            let read = daemon.jobs.cpu_quota(gang?)?;
            Some(v1::CpuQuota { by: read.limit.to_string(), ..planned })
        });
        job.kept_by = gang.and_then(|placement| daemon.jobs.kept_by(placement));
        // Of a job that takes turns, or is suspended, gangd itself may have frozen the group.
        let sleeps = matches!(job.state, v1::JobState::sleeping | v1::JobState::idle);
        let sleeper = placement.filter(|_| sleeps);
        job.frozen_by = sleeper.and_then(|placement| daemon.jobs.frozen_by(placement));
        measured::describe(&daemon.measuring, placement, &mut job);
        job.net = daemon.ports.shown(JobId(job.id as u64)).map(|shown| shown.describe());
        Ok((job, pids))
    }
}

/// Jobs that are described in one go.
const PORTION: usize = 64;

/// Describes all jobs, some at a time: others have their turns in between, and plans are made in
/// time. The shares are those of the first moment. With it comes how long the conductor was busy,
/// in nanoseconds.
pub fn all_jobs(daemon: &Daemon) -> Result<(Vec<Described>, u64), Error> {
    let (mut all, mut known, mut from, mut busy_ns) = (Vec::new(), None, JobId(0), 0);
    loop {
        at_work::wait_for_time();
        let shares: Option<Arc<BTreeMap<JobId, f64>>> = known.take();
        let (shares, portion, last, took_ns) = daemon.conductor.ask(move |state| {
            let began_ns = clock::monotonic_ns();
            let shares = shares.unwrap_or_else(|| Arc::new(state.core.schedule().shares()));
            let (jobs, now) = (state.core.jobs().range(from..).take(PORTION), now());
            let last = jobs.clone().last().map(|(&id, _)| id);
            let describe = |(_, job)| Described::of(state, job, &shares, now);
            let portion: Vec<Described> = jobs.map(describe).collect();
            (shares, portion, last, clock::monotonic_ns() - began_ns)
        })?;
        known = Some(shares);
        busy_ns += took_ns;
        let is_last = portion.len() < PORTION;
        all.extend(portion);
        match last {
            Some(JobId(last)) if !is_last => from = JobId(last + 1),
            _ => return Ok((all, busy_ns)),
        }
    }
}

/// The state of a job.
fn job_state(state: &State, job: &Job, now: Now) -> v1::JobState {
    match state.core.eligibility(job) {
        Eligibility::Suspended => v1::JobState::suspended,
        Eligibility::Starting => v1::JobState::starting,
        Eligibility::TooManyThreads => v1::JobState::too_many_threads,
        Eligibility::Asleep if state.core.is_idle(job, now) => v1::JobState::idle,
        Eligibility::Asleep => v1::JobState::sleeping,
        Eligibility::NotScheduled => v1::JobState::not_scheduled,
        Eligibility::TooFewCpus | Eligibility::Unplaceable => v1::JobState::too_few_cpus,
        Eligibility::TakesTurns if state.core.has_slot(job.id, now) => v1::JobState::running,
        Eligibility::TakesTurns => v1::JobState::waiting,
    }
}

fn describe(state: &State, job: &Job, share: f64, now: Now) -> v1::Job {
    let cgroup = match job.home.as_ref().map(|home| &home.placement) {
        Some(Placement::Cgroup { group, .. }) => Some(group.display().to_string()),
        _ => None,
    };
    let asked = |bytes: u64| (bytes > 0).then_some(bytes as i64);
    let lived_ns = now.utc_ns.saturating_sub(job.registered_at_ns);
    let monotonic_ns = now.monotonic_ns;
    let mut described = v1::Job {
        id: job.id.0 as i64,
        name: job.name.clone(),
        owner_uid: job.owner_uid.into(),
        class: job.spec.class.into(),
        policy: job.spec.policy.into(),
        decision: None,
        weight: job.spec.weight.into(),
        cpus: job.spec.cpus.into(),
        min_cpus: job.spec.min_cpus.into(),
        state: job_state(state, job, now),
        unplaceable: job.unplaceable.as_ref().map(ToString::to_string),
        crowded: job.crowded.as_ref().map(|it| v1::Crowded {
            size: it.size as i64,
            size_max: it.size_max as i64,
            takes_ns: it.takes_ns as i64,
            others_ns: it.others_ns as i64,
            edge_ns: it.edge_ns as i64,
        }),
        cgroup,
        kept_by: None,
        frozen_by: None,
        processes: 0,
        single_threads: job.home.as_ref().map(Home::is_of_threads),
        uncontended: job.in_slot == InSlot::Uncontended,
        short_lived: state.core.short_lived_gang(job).map(|how| match how {
            ShortLivedGang::Weighed => v1::ShortLived::weighed,
            ShortLivedGang::Unweighed => v1::ShortLived::unweighed,
        }),
        overhead: f64::from(job.spec.overhead) / 100.0,
        user_cap: state.core.config().caps.get(&job.spec.user).map(|&it| f64::from(it) / 1000.0),
        cpu_quota: job.spec.quota.map(|quota| v1::CpuQuota {
            cpus: f64::from(quota.cpu_permille) / 1000.0,
            by: String::new(),
        }),
        threads: job.home.as_ref().map_or(0, |home| home.members.threads().len()) as i64,
        cpu_list: job.cpus.iter().map(i64::from).collect(),
        share_wanted: share,
        share_had: job.share.share(monotonic_ns, monotonic_ns.saturating_sub(lived_ns)),
        registered_at_ns: job.registered_at_ns as i64,
        slots: job.slots as i64,
        in_slot_ns: job.in_slot_ns as i64,
        cpu_time_ns: job.activity.cpu_time_ns as i64,
        memory: asked(job.resources.mem_bytes).map(|promised_bytes| v1::Memory {
            promised_bytes,
            used_bytes: None,
            enforced: job.mem_is_enforced,
        }),
        disk_bytes: asked(job.resources.disk_bytes),
        signals: job.signals,
        progress: job.progress.map(|it| v1::Progress {
            done: it.done,
            total: it.total,
            at_ns: it.at_ns as i64,
        }),
        net: None,
        measured: None,
        not_measured: None,
    };
    auto::describe(job, &mut described);
    described
}

/// The daemon and its machine, and how many jobs a client sees.
pub fn status(daemon: &Daemon, sees: Sees) -> Result<v1::Status, Error> {
    let (jobs, cpus, config, load, are_working) = daemon.conductor.ask(move |state| {
        let schedule = state.core.schedule();
        let cpus = schedule.topology().cpus().len();
        let config = Config { gap: state.core.gaps().usual(), ..schedule.config().clone() };
        let are_working = state.core.are_working();
        let jobs = state.core.jobs().values().filter(|job| sees.job(job.id, job.owner_uid)).count();
        (jobs, cpus, config, schedule.load(), are_working)
    })?;
    let (count, summary) = daemon.conductor.switches();
    let (late_plans, ran_out) = daemon.conductor.belated();
    let phase = |d: timing::Distribution| v1::Phase {
        p50_ns: measured::ns(d.p50_us),
        p99_ns: measured::ns(d.p99_us),
        max_ns: measured::ns(d.max_us),
    };
    let backends = daemon.means.findings.iter().map(|finding| v1::Backend {
        name: finding.backend.name().to_owned(),
        guarantee: guarantee(finding.backend),
        usable: finding.obstacle.is_none(),
        reason: finding.obstacle.clone(),
    });
    let class_slice = |class: Class| v1::ClassSlice {
        slice_ns: i64::from(config.class_slices.of(class)) * config.slice_ns as i64,
        class: class.into(),
    };
    let stock = daemon.stock()?;
    let (measuring, not_measured) = daemon.measuring.state();
    Ok(v1::Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id().into(),
        guardian_pid: daemon.instance.guardian_pid().map(Into::into),
        uptime_ns: daemon.instance.uptime().as_nanos() as i64,
        backend: daemon.backend.name().to_owned(),
        guarantee: guarantee(daemon.backend),
        backends: backends.collect(),
        slice_ns: config.slice_ns as i64,
        gap_ns: config.gap.length_ns as i64,
        gap_period_ns: config.gap.period_ns as i64,
        fill: config.fill && daemon.backend.can_fill(),
        shares: match config.sharing {
            Sharing::ByUser(_) => v1::Shares::equal,
            Sharing::ByProgram => v1::Shares::by_program,
        },
        gang_share_max: f64::from(config.cap_permille) / 1000.0,
        cpus: cpus as i64,
        jobs: jobs as i64,
        unregistered_threads: load.into(),
        switches: v1::Switches {
            count: count as i64,
            late: phase(summary.late),
            lower: phase(summary.lower),
            raise: phase(summary.raise),
            skew: phase(summary.skew),
            late_plans: late_plans as i64,
            ran_out: ran_out as i64,
        },
        measuring,
        not_measured,
        whole: measured::whole_of_all(&daemon.measuring),
        not_proved: daemon.prover.obstacle(),
        working_hours: are_working,
        express_weight: config.class_weights.express.map(Into::into),
        interactive_weight: config.class_weights.interactive.into(),
        batch_weight: config.class_weights.batch.into(),
        class_slices: Class::ALL.map(class_slice).into(),
        memory: supply(stock.memory),
        disk: supply(stock.disk),
        load_average: load_average(&daemon.roots)?,
        flushes: daemon.ports.describe(),
    })
}

fn supply(supply: Supply) -> v1::Supply {
    let Supply { total, free, promised } = supply;
    v1::Supply { total: total as i64, free: free as i64, promised: promised as i64 }
}

fn load_average(roots: &Roots) -> Result<f64, Error> {
    let path = roots.proc.join("loadavg");
    let error = |source: io::Error| gang_linux::Error::new("read", path.display(), source);
    let text = std::fs::read_to_string(&path).map_err(error)?;
    let first = text.split_ascii_whitespace().next().and_then(|first| first.parse().ok());
    Ok(first.ok_or_else(|| error(io::ErrorKind::InvalidData.into()))?)
}

fn guarantee(backend: Backend) -> v1::Guarantee {
    match backend.guarantee() {
        gang_timetable::Guarantee::Exclusive => v1::Guarantee::exclusive,
        gang_timetable::Guarantee::Preferred => v1::Guarantee::preferred,
        gang_timetable::Guarantee::Paused => v1::Guarantee::paused,
    }
}

/// Plans of the slice under way and of those planned after it, and of earlier slices that ended
/// after `since_ns`. Each has the gaps in force when it began.
pub fn frame(state: &State, now_ns: u64, since_ns: Option<u64>) -> Vec<(Arc<Plan>, Gap)> {
    let now = slices::slice_at(state.core.schedule().config(), now_ns);
    let plans = match since_ns {
        Some(since_ns) => state.core.schedule().plans_since(since_ns.min(now_ns)),
        None => {
            let plans = state.core.schedule().plans().iter();
            plans.filter(|plan| plan.slice >= now).cloned().collect()
        }
    };
    let with_gap = |plan: Arc<Plan>| {
        let gap = state.core.gaps().published(plan.start_ns);
        (plan, gap)
    };
    plans.into_iter().map(with_gap).collect()
}

/// Plans in the terms of the interface.
pub fn rows(plans: &[(Arc<Plan>, Gap)]) -> Vec<v1::Row> {
    plans.iter().map(|(plan, gap)| row(plan, *gap)).collect()
}

/// The switches asked for after `since_ns` (UTC), of all switchers, in order.
pub fn switches(daemon: &Daemon, since_ns: u64) -> (Vec<v1::Switcher>, Vec<v1::Switch>) {
    let bounds = daemon.cluster.get().map(Cluster::clock_bounds).unwrap_or_default();
    let (mut switchers, mut switches) = (Vec::new(), Vec::new());
    for (switcher, (cpus, timings)) in daemon.conductor.timings().iter().enumerate() {
        let (first, own) = timings.numbered();
        let own = (first..).zip(own).filter(|(_, switch)| switch.asked_ns > since_ns);
        switches.extend(own.map(|(number, switch)| v1::Switch {
            switcher: switcher as i64,
            number: number as i64,
            asked_ns: switch.asked_ns as i64,
            began_ns: switch.began_ns as i64,
            lowered_ns: switch.lowered_ns as i64,
            raised_ns: switch.raised_ns as i64,
            lowers: switch.lowers.into(),
            raises: switch.raises.into(),
            clock_bound_ns: bounds.at(switch.asked_ns).map(|ns| ns as i64),
        }));
        let cpu_list = cpus.iter().map(i64::from).collect();
        switchers.push(v1::Switcher { cpu_list, count: timings.count() as i64 });
    }
    switches.sort_unstable_by_key(|switch| (switch.asked_ns, switch.switcher));
    switches.drain(..switches.len().saturating_sub(SWITCHES_MAX));
    (switchers, switches)
}

/// A job that has ended.
pub fn ended(ended: Ended) -> v1::EndedJob {
    v1::EndedJob {
        id: ended.job as i64,
        name: ended.name,
        owner_uid: ended.owner_uid.into(),
        class: ended.class.parse().map_or(v1::Class::batch, |class: Class| class.into()),
        cpus: ended.cpus.into(),
        weight: ended.weight.into(),
        registered_at_ns: ended.registered_at_ns as i64,
        ended_at_ns: ended.ended_at_ns as i64,
        slots: ended.slots as i64,
        in_slot_ns: ended.in_slot_ns as i64,
        out_of_slot_ns: ended.out_of_slot_ns as i64,
        slurm_job: ended.slurm_job,
        cpu_time_ns: ended.cpu_time_ns as i64,
    }
}

/// The row of a slice.
fn row(plan: &Plan, gap: Gap) -> v1::Row {
    let is_there = gap.length_ns > 0;
    let gap = v1::Gap { period_ns: gap.period_ns as i64, length_ns: gap.length_ns as i64 };
    v1::Row {
        slice: plan.slice as i64,
        start_ns: plan.start_ns as i64,
        end_ns: plan.end_ns as i64,
        slots: plan
            .row
            .iter()
            .map(|slot| v1::Slot {
                job: slot.job.0 as i64,
                cpu_list: slot.cpus.iter().map(i64::from).collect(),
            })
            .collect(),
        rest_cpus: plan.rest.len() as i64,
        rest_turn: plan.rest_turn,
        gap: is_there.then_some(gap),
    }
}

/// The cluster that this host is in.
pub fn cluster(daemon: &Daemon, sees: Sees) -> Option<v1::Cluster> {
    let sees_all = sees == Sees::All;
    let cluster = daemon.cluster.get()?;
    let seen = cluster.look()?;
    let missing = cluster.missing();
    let me = seen.hosts.get(&cluster.host).filter(|_| seen.is_in);
    let boot = me.map(|host| host.record.boot.clone());
    // A host that is never late has planned two slices already.
    let slice_ns = seen.settings.as_ref().map_or(0, |settings| settings.slice_ns);
    let soon_ns = LEAD_LEAST_NS + 3 * slice_ns;
    let host = |(name, host): (&String, &HostSeen)| {
        let alive = host.alive.as_ref();
        v1::Host {
            name: name.clone(),
            cpus: host.record.cpus.into(),
            is_this: seen.is_in && *name == cluster.host,
            shares_kernel: Some(&host.record.boot) == boot.as_ref(),
            adjusts: seen.adjuster.as_ref() == Some(name),
            is_alive: alive.is_some(),
            clock: alive.map(|it| v1::HostClock {
                source: it.clock.source.clone(),
                offset_ns: it.clock.offset_ns,
                bound_ns: it.clock.bound_ns as i64,
            }),
            unwilling: alive.and_then(|it| it.unwilling.clone()),
            revision: alive.map(|it| it.read as i64),
            late_ns: alive.map(|it| it.took_ns).filter(|&it| it > soon_ns).map(|it| it as i64),
            threads: alive.map(|it| it.threads.into()),
            parts: alive
                .filter(|_| sees_all)
                .map(|it| it.parts.iter().map(|&job| job as i64).collect()),
        }
    };
    let numbers = |set: &CpuSet| set.iter().map(i64::from).collect::<Vec<_>>();
    let job = |(id, job): (&JobId, &JobSeen)| {
        let JobSeen { registrar, record, entries, rows, cpus, lost, awaited } = job;
        let count = |(host, &cpus): (&String, &u32)| v1::HostCpus {
            host: host.clone(),
            cpus: cpus.into(),
            ranks: record.ranks.get(host).map(|&ranks| ranks.into()),
            allowed: record.allowed.get(host).and_then(|it| Some(numbers(&it.parse().ok()?))),
        };
        let columns = |(host, cpus): (&String, &CpuSet)| v1::Columns {
            host: host.clone(),
            columns: numbers(cpus),
        };
        Some(v1::SpanningJob {
            id: id.0 as i64,
            name: record.name.clone(),
            owner: record.owner.name.clone(),
            owner_uid: record.owner.uid.into(),
            by_root: record.owner.by_root,
            class: record::class(&entries.class).ok()?.into(),
            weight: entries.weight.into(),
            registrar: registrar.clone(),
            cpus: record.cpus.iter().map(count).collect(),
            wanted: match entries.wanted {
                record::Wanted::Run => v1::Wanted::run,
                record::Wanted::Suspend => v1::Wanted::suspend,
                record::Wanted::Kill => v1::Wanted::kill,
                record::Wanted::Release => v1::Wanted::release,
            },
            rows: rows.iter().map(i64::from).collect(),
            columns: cpus.iter().map(columns).collect(),
            lost: lost.clone(),
            awaited: awaited.clone(),
            launched_as: record.launched_as.clone(),
            registered_at_ns: record.registered_at_ns as i64,
            missing: reasons(*id, &cluster.host, &missing, &seen.hosts),
        })
    };
    let by_name = seen.settings.as_ref().is_none_or(|it| it.users == record::Users::Name);
    let own_name = match sees {
        Sees::Of(uid) if by_name => Some(name_of(uid)),
        _ => None,
    };
    let is_seen = |(id, job): &(&JobId, &JobSeen)| match &own_name {
        Some(own) => job.record.owner.name == *own,
        None => sees.job(**id, job.record.owner.uid),
    };
    let fault = |(key, fault): &(String, Fault)| {
        let reason = match fault {
            // It may tell what is in the record.
            Fault::Unreadable(_) if !sees_all => "it cannot be read".to_owned(),
            Fault::Contradicts(_) if !sees_all => "it contradicts others".to_owned(),
            fault => fault.to_string(),
        };
        v1::Fault { key: key.clone(), reason }
    };
    Some(v1::Cluster {
        name: cluster.name.clone(),
        host: cluster.host.clone(),
        refused: seen.unwilling.clone().filter(|_| !seen.is_in),
        unreachable: cluster.unreachable(),
        revision: seen.revision as i64,
        slice_ns: seen.settings.as_ref().map(|settings| settings.slice_ns as i64),
        frame: seen.state.as_ref().map(|state| state.frame.into()),
        hosts: seen.hosts.iter().map(host).collect(),
        jobs: seen.jobs.iter().filter(is_seen).filter_map(job).collect(),
        faults: seen.faults.iter().map(fault).collect(),
    })
}

/// Why hosts do not have a job as it is wanted: this one, and others as they have said.
fn reasons(
    id: JobId,
    me: &str,
    missing: &BTreeMap<JobId, String>,
    hosts: &BTreeMap<String, HostSeen>,
) -> Option<String> {
    let own = missing.get(&id).map(|why| format!("{me}: {why}"));
    let others = hosts.iter().filter(|(name, _)| *name != me);
    let said = |(name, host): (&String, &HostSeen)| {
        let why = host.alive.as_ref()?.missing.get(&id.0)?;
        Some(format!("{name}: {why}"))
    };
    let all: Vec<String> = own.into_iter().chain(others.filter_map(said)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
