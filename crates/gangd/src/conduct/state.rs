//! The state of the daemon: the decisions, and the descriptors that their numbers stand for.
//!
//! The conductor's thread alone owns the state, and nothing here waits. A client's question is a
//! function that runs on that thread ([`super::requests::Handle`]).
//!
//! The decisions are those of [`gang_conductor`]. Beside them stand the [descriptors] of each job
//! ([`super::registry`]). Each change of either is a method here; [`super::members`] reads who is
//! in a job, and [`super::leaving`] is of those that leave.
//!
//! [descriptors]: Descriptors

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use gang_bpf::Meter;
use gang_conductor::{
    Candidate, Conductor, Home, Job, Now, Regroup, Stray, Suspension, turns::Overhead,
};
use gang_engine::{
    bound::{Bound, ControlFiles, ProcessHandle},
    listeners::Listeners,
    page::SlotPage,
    roster::Roster,
};
use gang_linux::{Roots, clock, process};
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::{
    Attributes, Backend, Members, Seen, Standing,
    record::{Placement, Record, Single},
};

use crate::{
    conduct::{
        carrier::Planner,
        readers::SingleReader,
        registry::{Descriptors, Registry, bind},
    },
    error::Error,
    groups::cgroups::Address,
    history::Ended,
    measure::{gangs::MeasuredGangs, measuring::Looks, outside::Gangs},
    settings::{Settings, hours::WorkingHours},
};

/// The moment that it is.
pub fn now() -> Now {
    Now { utc_ns: clock::utc_ns(), monotonic_ns: clock::monotonic_ns() }
}

/// A job that is over.
#[derive(Clone, Debug)]
pub enum Over {
    /// It never had a member.
    Unstarted,
    /// Its record, to be cleared away, and what the job used.
    Ended(Box<Record>, Ended),
}

/// Everything that the conductor's thread owns.
pub struct State {
    pub core: Conductor,
    pub registry: Registry,
    /// The gangs that the BPF programs measure.
    pub measured: MeasuredGangs,
    pub roots: Roots,
    pub hours: Option<WorkingHours>,
    /// Looks at single threads; where there is none, the conductor does.
    pub single_reader: Option<SingleReader>,
    /// The way to the thread that moves gangs between groups.
    pub regroups: Option<Sender<JobId>>,
    /// The way to the thread that lowers strays.
    pub strays: Option<Sender<Stray<Bound>>>,
    /// The job whose limits were looked at last.
    pub limits_seen: JobId,
    /// When limits were read last, on the monotonic clock.
    pub limits_at_ns: u64,
    /// When a job could not take over its limits (monotonic).
    pub limits_failed_ns: BTreeMap<JobId, u64>,
    /// Actions for what changed outside the clock; they go with the next timetable.
    pub orders: Vec<Bound>,
    /// The cost of requests besides their own time, and their own time in this step.
    pub request_overhead: Overhead,
    pub requests_ns: u64,
    /// The conductor is to end.
    pub stopped: bool,
}

impl State {
    pub fn new(core: Conductor, roots: Roots, all: Option<ControlFiles>) -> State {
        State {
            core,
            registry: Registry { all, ..Registry::default() },
            measured: MeasuredGangs::default(),
            roots,
            hours: None,
            single_reader: None,
            regroups: None,
            strays: None,
            limits_seen: JobId(0),
            limits_at_ns: 0,
            limits_failed_ns: BTreeMap::new(),
            orders: Vec::new(),
            request_overhead: Overhead::default(),
            requests_ns: 0,
            stopped: false,
        }
    }

    pub fn backend(&self) -> Backend {
        self.core.backend()
    }

    pub fn job(&self, job: JobId) -> Result<&Job, Error> {
        Ok(self.core.job(job)?)
    }

    /// Carries out what was decided since the last call, outside of plans. Descriptors that go away
    /// are taken out of the registry after this.
    pub fn carry_out(&mut self) {
        let effects = self.core.take_effects();
        effects.carry_out(&mut Planner { state: self, switchers: &mut [], began_ns: 0 });
    }

    /// Asks the thread that moves gangs between groups to look at one. Where that thread has ended,
    /// the daemon ends.
    pub fn move_between_groups(&self, job: JobId) {
        let _ = self.regroups.as_ref().map(|way| way.send(job));
    }

    /// The limits of a job were looked at. Where it has others than are in force, it takes them
    /// over, and moves before that where it is to live elsewhere.
    pub fn follow_limits(&mut self, id: JobId, way: Option<Regroup>, has_others: bool) {
        self.core.move_for_limits(id, way);
        if has_others && way.is_none() {
            self.move_between_groups(id);
        }
    }

    /// Measures the jobs from the next plans on, which come at once.
    pub fn begin_measuring(&mut self, meter: Arc<Meter>, looks: Arc<Looks>) {
        self.measured.begin(meter, looks, self.core.jobs().values());
        self.core.renew_plans();
    }

    /// The gangs, as the kernel's programs tell their threads from others.
    pub fn gangs(&self) -> Gangs {
        let (machine, fill) = (self.core.machine(), self.core.config().fill);
        let is_gang = |job: &&Job| !job.is_with_rest(fill, machine);
        let homes = self.core.jobs().values().filter(is_gang).filter_map(|job| job.home.as_ref());
        // The members of others have no group of their own.
        let others = homes.filter(|it| !matches!(it.placement, Placement::Cgroup { .. }));
        Gangs {
            groups: self.measured.groups_of_gangs(&self.core),
            tids: others.flat_map(|home| home.members.threads()).map(|it| it.tid).collect(),
        }
    }

    /// The job without a cgroup that a process is in.
    pub fn tree_of(&self, pid: u32) -> Option<JobId> {
        let has = |of: &Descriptors| of.roster.tree().iter().any(|process| process.pid == pid);
        self.registry.jobs.iter().find(|(_, of)| has(of)).map(|(&id, _)| id)
    }

    /// The job that lives in a group.
    pub fn lives_in(&self, group: &Path) -> Option<JobId> {
        let is_there = |job: &&Job| {
            let home = job.home.as_ref().map(|home| &home.placement);
            matches!(home, Some(Placement::Cgroup { group: own, .. }) if own == group)
        };
        self.core.jobs().values().find(is_there).map(|job| job.id)
    }

    /// Where the processes of a job are; absent until its first one came.
    pub fn address(&self, id: JobId) -> Result<Option<Address>, Error> {
        let home = self.job(id)?.home.as_ref();
        let tree = self.registry.jobs.get(&id).map(|it| it.roster.tree().to_vec());
        Ok(home.map(|home| Address {
            placement: home.placement.clone(),
            tree: tree.unwrap_or_default(),
        }))
    }

    pub fn register(&mut self, wanted: Candidate) -> Result<JobId, Error> {
        Ok(self.core.register(now(), wanted)?)
    }

    /// The first process of a job, with its start time, is going to move in.
    pub fn attach(
        &mut self,
        id: JobId,
        home: Home,
        roster: Roster,
        process: (u32, u64),
    ) -> Result<(), Error> {
        self.core.attach(now(), id, home, process)?;
        let tids = process::threads(&self.roots.proc, process.0).unwrap_or_default();
        self.descriptors(id, roster).roster.expect(tids);
        self.read(id);
        Ok(())
    }

    /// The first process of a job is where the job lives.
    pub fn arrive(&mut self, id: JobId) -> Result<Option<Record>, Error> {
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.roster.expect(Vec::new());
            of.roster.all_came();
        }
        Ok(self.core.arrive(id)?)
    }

    /// Threads that are there become the members of a job that has none.
    pub fn join(&mut self, id: JobId, home: Home, roster: Roster) -> Result<Option<Record>, Error> {
        let record = self.core.join(now(), id, home)?;
        self.descriptors(id, roster);
        self.read(id);
        Ok(record)
    }

    /// A job that an earlier daemon left.
    pub fn restore(
        &mut self,
        record: &Record,
        roster: Roster,
        members: Members,
    ) -> Result<(), Error> {
        let id = JobId(record.id);
        self.core.restore(now(), record, members)?;
        self.descriptors(id, roster);
        // The job is read before any member comes that is remembered to have had something else.
        // The first threads read have what they had without gangd; later ones may have been started
        // by them.
        self.read(id);
        Ok(())
    }

    /// Jobs on file that are not restored yet; no other job takes or releases what is theirs.
    pub fn expect(&mut self, on_file: BTreeMap<JobId, Placement>) {
        self.registry.on_file = on_file;
    }

    fn descriptors(&mut self, id: JobId, roster: Roster) -> &mut Descriptors {
        let listeners = Listeners::default();
        self.registry.jobs.entry(id).or_insert(Descriptors { roster, listeners })
    }

    /// A process comes into a job without a cgroup; it started then.
    pub fn follow_in_tree(
        &mut self,
        id: JobId,
        process: Arc<ProcessHandle>,
        started: u64,
    ) -> Result<Option<Record>, Error> {
        let record = self.core.follow_in_tree(id, (process.pid, started))?;
        let reading = self.core.reading(id);
        if let (Some(reading), Some(of)) = (reading, self.registry.jobs.get_mut(&id)) {
            of.roster.add_process(reading.members, process);
        }
        Ok(record)
    }

    /// Threads that chose their CPUs are going to come.
    pub fn expect_user_pinned(&mut self, id: JobId, tids: Vec<u32>) {
        if let Some(of) = self.registry.jobs.get_mut(&id).filter(|_| !tids.is_empty()) {
            of.roster.expect_user_pinned(tids);
        }
    }

    /// Threads are going to come whose owners want these attributes.
    pub fn expect_own(&mut self, id: JobId, own: BTreeMap<u32, Attributes>) {
        if let Some(of) = self.registry.jobs.get_mut(&id).filter(|_| !own.is_empty()) {
            of.roster.expect_own(own);
        }
    }

    /// Members that were expected are there; this is what those had before of which it is not what
    /// the job's first thread had.
    pub fn members_came(&mut self, id: JobId, before: &[Seen]) -> Result<(), Error> {
        self.core.members_came(id, before)?;
        self.read(id);
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.roster.all_came();
        }
        Ok(())
    }

    /// A further single thread comes, which may run on these CPUs; it is on file.
    pub fn add_single(&mut self, id: JobId, single: Single, cpus: CpuSet) -> Result<(), Error> {
        self.core.add_thread(id, single)?;
        let home = self.core.job(id).ok().and_then(|job| job.home.as_ref());
        let chose_cpus = home.is_some_and(|home| home.members.everywhere != cpus);
        self.expect_user_pinned(id, chose_cpus.then_some(single.tid).into_iter().collect());
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.roster.add_single(single);
        }
        let now = single.normal.into();
        let seen = Seen {
            tid: single.tid,
            now,
            cpus,
            were_given: false,
            original: Some(now),
            started_by: None,
        };
        Ok(self.core.members_came(id, &[seen])?)
    }

    /// The single threads of a job, as they are read.
    pub fn singles(&self, id: JobId) -> &[Single] {
        self.registry.jobs.get(&id).map_or(&[], |of| of.roster.singles())
    }

    pub fn suspend(&mut self, id: JobId, how: Suspension) -> Result<Option<Record>, Error> {
        Ok(self.core.suspend(now(), id, how)?)
    }

    pub fn suspend_with_group(
        &mut self,
        id: JobId,
        how: Suspension,
    ) -> Result<Option<Record>, Error> {
        Ok(self.core.suspend_with_group(now(), id, how)?)
    }

    /// The job of Slurm that a job is of.
    pub fn set_slurm_job(&mut self, id: JobId, name: String) -> Result<Option<Record>, Error> {
        Ok(self.core.set_slurm_job(id, name)?)
    }

    /// Whether the processes of a job hear of its slots by signals.
    pub fn set_signals(&mut self, id: JobId, signals: bool) -> Result<Option<Record>, Error> {
        let record = self.core.set_signals(id, signals)?;
        self.carry_out();
        if let Some(of) = self.registry.jobs.get_mut(&id).filter(|_| !signals) {
            of.listeners = Listeners::default();
        }
        Ok(record)
    }

    /// A job lives elsewhere, and is scheduled by another policy.
    pub fn moved(
        &mut self,
        id: JobId,
        policy: Policy,
        placement: Placement,
        (roster, members): (Roster, Members),
    ) -> Result<Option<Record>, Error> {
        let group = |at: &Placement| match at {
            Placement::Cgroup { group, .. } => Some(group.clone()),
            Placement::Tree { .. } | Placement::Threads { .. } => None,
        };
        let now = group(&placement);
        // Choices of owners meanwhile are judged by what gangd gave there.
        self.read(id);
        let before = self.core.job(id)?.home.as_ref().and_then(|home| group(&home.placement));
        let record = self.core.moved(id, policy, placement, members.controls)?;
        let State { core, registry, roots, .. } = &mut *self;
        let reading = core.reading(id);
        // A tree has its members in its processes, wherever they are.
        if let (Some(it), Some(of), true) = (reading, registry.jobs.get_mut(&id), now.is_some()) {
            of.roster.moved(roster, before != now, it.members, &roots.proc);
        }
        self.read(id);
        Ok(record)
    }

    /// Has the own group of a gang weigh what others weigh, once more.
    pub fn weigh_as_others(&self, id: JobId) -> Vec<Bound> {
        bind(&self.registry, Conductor::as_others(id).into())
    }

    /// Gives back to the threads of a job what they had, once more.
    pub fn release_again(&mut self, id: JobId) -> Vec<Bound> {
        // The numbers of threads that have ended may be others'.
        self.read(id);
        let mut actions = Vec::new();
        if let Ok(job) = self.core.job(id) {
            let (from, to) = (Standing::Filling, Standing::Released);
            if let Some(home) = &job.home {
                self.backend().actions(id, &home.members, from, to, job.in_slot, &mut actions);
            }
        }
        bind(&self.registry, actions)
    }

    /// The page of a job, from now on written at its slots; `page` is a new one.
    pub fn page(&mut self, id: JobId, page: Arc<SlotPage>) -> Result<(), Error> {
        self.core.open_page(id)?;
        let _ = page.write_slots(self.job(id)?.slots);
        self.registry.pages.insert(id, page);
        Ok(())
    }

    /// The job is over, unless there is none.
    pub fn end(&mut self, id: JobId) -> Option<Over> {
        let mut job = self.core.end(id)?;
        self.carry_out();
        let descriptors = self.registry.jobs.remove(&id);
        self.registry.pages.remove(&id);
        let Some(record) = job.record() else { return Some(Over::Unstarted) };
        let last = descriptors
            .zip(job.home.as_mut())
            .and_then(|(mut of, home)| of.roster.cpu_time_ns(&mut home.members, &self.roots.proc));
        let ended = Ended {
            job: id.0,
            name: job.name,
            owner_uid: job.owner_uid,
            class: record.class.clone(),
            policy: record.policy.clone(),
            weight: record.weight,
            cpus: record.cpus,
            registered_at_ns: job.registered_at_ns,
            ended_at_ns: clock::utc_ns(),
            // The processes of one without a cgroup are not counted any more.
            cpu_time_ns: last.unwrap_or(0).max(job.activity.cpu_time_ns),
            in_slot_ns: job.in_slot_ns,
            slots: job.slots,
            out_of_slot_ns: job.out_of_slot_ns,
            slurm_job: job.slurm_job,
        };
        Some(Over::Ended(Box::new(record), ended))
    }

    /// The kernel saw threads in these groups that want to run, of jobs that slept.
    pub fn woke(&mut self, groups: &[u64]) {
        let jobs: Vec<JobId> =
            groups.iter().filter_map(|&group| self.measured.job_of(group)).collect();
        self.core.woke(now(), &jobs);
    }

    /// The configuration file was read again.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.hours = settings.working_hours.clone();
        let are_working = self.are_working();
        let own_ns = self.core.config().slice_ns;
        self.core.reconfigure(settings.tunables(own_ns), are_working);
    }

    /// Working hours begin and end.
    pub fn look_at_hours(&mut self) {
        let are_working = self.are_working();
        self.core.work(are_working);
    }

    fn are_working(&self) -> Option<bool> {
        let now_ns = clock::utc_ns();
        self.hours.as_ref().map(|hours| hours.contain(now_ns))
    }

    /// Jobs that have used no CPU for a time: they leave (L20).
    pub fn unused_for(&self, time: Duration) -> Vec<JobId> {
        self.core.unused_for(now(), time.as_nanos() as u64)
    }
}
