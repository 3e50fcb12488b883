//! Undoing everything, from files only.
//!
//! Any process that is left can do it. The guardian does when the daemon dies, and the daemon when
//! it starts or stops; so do the service manager's stop command and the next `gang` command.
//! Releasing what is released changes nothing, so that it may be done twice, and by two at once.

mod clearing;

pub use clearing::{dissolve, dissolve_common, sweep, unconfine};

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeSet,
    path::Path,
};

use clearing::move_to_origin;
use gang_linux::{
    Roots,
    cgroup::Group,
    error::{is_gone, unless_gone},
    process,
};
use gang_schedule::CpuSet;
use gang_timetable::{
    Attributes, as_default,
    record::{Confinement, Placement, Record, Single},
};
use rustix::process::Signal;

use crate::{
    bound::ProcessHandle,
    listeners, page,
    pins::{Pins, unpin},
    singles::{self, Listed, Others},
    store::{Error, Store, Unreadable},
    thread,
};

/// The result of a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Jobs whose processes are still there.
    pub jobs: usize,
    pub threads: usize,
    /// Threads that were raised, at the lowest priority, or kept to some CPUs.
    pub lowered: usize,
    /// Jobs that stood still.
    pub paused: usize,
    /// Threads that left their job by themselves.
    pub strays: usize,
    /// Steps for which descriptors or memory were missing: something is left to release.
    pub missed: usize,
}

impl std::ops::AddAssign for Found {
    fn add_assign(&mut self, other: Found) {
        self.jobs += other.jobs;
        self.threads += other.threads;
        self.lowered += other.lowered;
        self.paused += other.paused;
        self.strays += other.strays;
        self.missed += other.missed;
    }
}

/// Releases all jobs on file: their programs run on, as if gangd did not exist. Threads that left
/// their job by themselves come last: a job may have thousands of them.
pub fn all(roots: &Roots, store: &Store) -> Found {
    let on_file = OnFile::of(roots, store);
    for (unreadable, record) in &on_file.jobs().unreadable {
        let Error { path, source, .. } = &unreadable.error;
        let (path, reason) = (path.display(), source);
        match record {
            Some(_) => {
                tracing::error!(%path, %reason, "a job whose file is unreadable is released")
            }
            None => tracing::error!(%path, %reason, "an unreadable file names no job to release"),
        }
    }
    let mut found = Found::default();
    let mut released = Vec::new();
    for record in on_file.records() {
        let past = Past::of(roots, store, record);
        found += release_members(&past, &on_file);
        page::invalidate(&store.page(record.id));
        released.push(past);
    }
    for past in &released {
        found += release_strays(past, &on_file);
        found.missed += past.missed.get();
    }
    found
}

/// Releases one job.
pub fn job(roots: &Roots, store: &Store, record: &Record) -> Found {
    job_of(roots, store, record, &OnFile::of(roots, store))
}

fn job_of(roots: &Roots, store: &Store, record: &Record, on_file: &OnFile<'_>) -> Found {
    let past = Past::of(roots, store, record);
    let mut found = release_members(&past, on_file);
    found += release_strays(&past, on_file);
    Found { missed: past.missed.get(), ..found }
}

/// Releases the members of a job that are where the job lives.
fn release_members(record: &Past<'_>, on_file: &OnFile<'_>) -> Found {
    let proc_root = record.proc_root;
    let mut found = match &record.placement {
        Placement::Cgroup { group, cpu_group, cpu_group_is_shared, other, .. } => {
            let group = Group::at(group);
            let mut found = release_group(&group, record);
            record.add_missed(reset_controls(&group));
            if let Some(other) = other.as_ref().map(Group::at) {
                found += release_other(&other, record);
            }
            if let (Some(own), false) = (cpu_group, cpu_group_is_shared) {
                record.add_missed(reset_controls(&Group::at(own)));
            }
            if record.signals {
                let processes = record.or_default(group.processes());
                listeners::let_go(proc_root, &record.own_of(processes));
            }
            // It may not be in the group yet, and have its slot already.
            let coming = release_tree(proc_root, record.coming.as_slice(), record);
            let lowered = found.lowered + coming.lowered;
            Found { lowered, threads: found.threads.max(coming.threads), ..found }
        }
        Placement::Tree { processes } => release_tree(proc_root, processes, record),
        Placement::Threads { threads } => {
            let of_others = on_file.records().iter().filter(|other| other.id != record.id);
            let others = Others::on_file(proc_root, of_others.map(|other| &other.placement));
            release_singles(proc_root, threads, &others, record)
        }
    };
    if let Some(at) = record.placement.confinement() {
        record.or_default(remove_memory_limit(at));
    }
    found.jobs = usize::from(found.threads > 0);
    found
}

/// The jobs on file, those among them whose records cannot be read.
#[derive(Debug)]
pub struct Jobs {
    /// In order of id, each with what could be read of it.
    pub records: Vec<Record>,
    /// The files that are no records, each with what a release can know of its job.
    pub unreadable: Vec<(Unreadable, Option<Record>)>,
}

impl Jobs {
    /// All that are on file.
    pub fn read(roots: &Roots, store: &Store) -> Jobs {
        let (mut records, unreadable) = store.records();
        let salvage = |file: Unreadable| {
            let record = file.salvage(roots, store);
            (file, record)
        };
        let unreadable: Vec<_> = unreadable.into_iter().map(salvage).collect();
        records.extend(unreadable.iter().filter_map(|(_, record)| record.clone()));
        records.sort_unstable_by_key(|record| record.id);
        Jobs { records, unreadable }
    }
}

/// The jobs on file, read where a release must know what is others'.
struct OnFile<'a> {
    roots: &'a Roots,
    store: &'a Store,
    jobs: OnceCell<Jobs>,
    members: OnceCell<Listed>,
}

impl OnFile<'_> {
    fn of<'a>(roots: &'a Roots, store: &'a Store) -> OnFile<'a> {
        OnFile { roots, store, jobs: OnceCell::new(), members: OnceCell::new() }
    }

    fn jobs(&self) -> &Jobs {
        self.jobs.get_or_init(|| Jobs::read(self.roots, self.store))
    }

    fn records(&self) -> &[Record] {
        &self.jobs().records
    }

    /// The members of all jobs, listed once: reading the groups of many jobs takes long.
    fn members(&self) -> &Listed {
        self.members.get_or_init(|| {
            let placements = self.records().iter().map(|record| &record.placement);
            Others::on_file(&self.roots.proc, placements).listed()
        })
    }
}

/// A job, and what gangd did to its threads that cannot be seen on them.
struct Past<'a> {
    record: &'a Record,
    /// Absent where the CPUs of threads were not touched, or a daemon that kept no file of it did
    /// so.
    pins: Option<Pins>,
    proc_root: &'a Path,
    missed: Cell<usize>,
}

/// How far up it is looked for what an owner wants of a thread that nobody has read.
const STARTERS_MAX: usize = 16;

impl Past<'_> {
    fn of<'a>(roots: &'a Roots, store: &Store, record: &'a Record) -> Past<'a> {
        let mut past = Past { record, pins: None, proc_root: &roots.proc, missed: Cell::new(0) };
        past.pins = past.or_default(Pins::read(&store.pins(record.id)));
        past
    }

    fn add_missed(&self, steps: usize) {
        self.missed.set(self.missed.get() + steps);
    }

    /// Of these processes, those that are not foreign to the job's owner.
    fn own_of(&self, mut pids: Vec<u32>) -> Vec<u32> {
        let owner = |pid| process::owner(self.proc_root, pid);
        pids.retain(|&pid| owner(pid).is_ok_and(|owner| !owner.is_foreign_to(self.owner_uid)));
        pids
    }

    /// As [`or_default`], and counts a step that was missed.
    fn or_default<T: Default>(&self, found: gang_linux::Result<T>) -> T {
        let (value, missed) = or_missed(found);
        self.add_missed(missed);
        value
    }

    /// The attributes that the owner of a thread wants, on file of it; or those that it has by
    /// default after one that started it.
    fn own(&self, tid: u32) -> Option<Attributes> {
        let pins = self.pins.as_ref().filter(|pins| !pins.all_own().is_empty())?;
        let starters = std::iter::successors(Some(tid), |&at| {
            process::starter(self.proc_root, at).ok().filter(|&starter| starter > 1)
        });
        let starters = starters.skip(1).take(STARTERS_MAX);
        let by_default = || starters.map(|at| pins.own(at)).find_map(|own| own.map(as_default));
        pins.own(tid).or_else(by_default)
    }
}

impl std::ops::Deref for Past<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record
    }
}

/// The weights of a group: its file, the weight that gangd sets, and the one of an unchanged group.
const WEIGHTS: [(&str, &str, &str); 2] =
    [("cpu.weight", "10000", "100"), ("cpu.shares", "262144", "1024")];

/// Takes back from a group what a slot gave to it, or the time between two slots. Returns how many
/// steps were missed.
fn reset_controls(group: &Group) -> usize {
    let mut missed = 0;
    // The weight of one that was idle is the usual one then.
    for (file, given, usual) in [("cpu.idle", "1", "0")].into_iter().chain(WEIGHTS) {
        let (now, unread) = or_missed(group.read(file));
        missed += unread;
        if now.trim() == given {
            missed += or_missed(group.write(file, usual)).1;
        }
    }
    missed
}

/// Lets no job give way to the rest of the machine any more, for as long as no daemon schedules
/// them. The group that gangs have in common is idle as a whole. The next daemon makes it idle
/// again; one that was stuck does so when it goes on. Moving many processes takes a while, and ends
/// as soon as it is not `wanted` any more.
pub fn all_from_common_groups(roots: &Roots, store: &Store, wanted: impl Fn() -> bool) {
    for record in Jobs::read(roots, store).records {
        from_common_group(&record, &wanted);
    }
}

fn from_common_group(record: &Record, wanted: &impl Fn() -> bool) {
    let Placement::Cgroup { group, cpu_group, cpu_origin, cpu_group_is_shared, adopted, .. } =
        &record.placement
    else {
        return;
    };
    if !cpu_group_is_shared {
        return;
    }
    match (cpu_group, cpu_origin) {
        // Jobs of other daemons are in it too: it stays as it is, and those of this one leave.
        (Some(shared), Some(origin)) => {
            // Those that have not left may start others meanwhile.
            for _ in 0..ROUNDS_MAX {
                let in_shared = BTreeSet::from_iter(or_default(Group::at(shared).processes()));
                let mut of_job = or_default(Group::at(group).processes());
                of_job.retain(|pid| in_shared.contains(pid));
                let mut left = of_job.iter().take_while(|_| wanted()).peekable();
                if left.peek().is_none() {
                    break;
                }
                left.for_each(|&pid| {
                    let joined = record.joined.iter().find(|joined| joined.pid == pid);
                    let own = joined.and_then(|joined| joined.cpu_origin.as_ref());
                    move_to_origin(pid, own.unwrap_or(origin));
                });
            }
        }
        _ if !adopted => {
            group.parent().map(Group::at).iter().for_each(|group| {
                reset_controls(group);
            });
        }
        _ => {}
    }
}

/// Lets a job have as much memory as it could have without gangd; its processes stay where they are
/// counted.
fn remove_memory_limit(at: &Confinement) -> gang_linux::Result<()> {
    let (file, limit) = match (&at.origin, at.inherited) {
        (Some(_), _) => ("memory.limit_in_bytes", "-1".to_owned()),
        (None, None) => ("memory.max", "max".to_owned()),
        (None, Some(bytes)) => ("memory.max", bytes.to_string()),
    };
    Group::at(&at.group).write(file, limit)
}

/// The threads of a job are read again until none needs anything, at most so often. A thread may
/// start another one while the list is read.
const ROUNDS_MAX: usize = 100;

/// The value, or its default. An error is logged, unless the thing is gone: a release goes on with
/// what else there is to release.
fn or_default<T: Default>(found: gang_linux::Result<T>) -> T {
    or_missed(found).0
}

/// The same, with the number of steps that were missed.
fn or_missed<T: Default>(found: gang_linux::Result<T>) -> (T, usize) {
    match unless_gone(found) {
        Ok(value) => (value, 0),
        Err(error) => {
            tracing::error!(%error, source = %error.source, "a job may be released only in part");
            (T::default(), error.is_shortage().into())
        }
    }
}

fn release_group(group: &Group, record: &Past<'_>) -> Found {
    let paused = usize::from(group.is_frozen().unwrap_or(false));
    let mut found = Found { paused, ..Found::default() };
    record.or_default(group.freeze(false));
    for round in 0..ROUNDS_MAX {
        let threads = record.or_default(group.threads());
        if round == 0 {
            found.threads = threads.len();
        }
        let lowered = threads.iter().filter(|&&tid| release_thread(tid, record)).count();
        found.lowered += lowered;
        if lowered == 0 {
            break;
        }
    }
    found
}

/// Releases what is in the other group of a job whose processes move. One of version 1 has the same
/// processes as the job's own group.
fn release_other(other: &Group, record: &Past<'_>) -> Found {
    record.add_missed(reset_controls(other));
    let is_of_v2 = other.has("cgroup.threads");
    if is_of_v2 { release_group(other, record) } else { Found::default() }
}

/// Releases members that left the groups of their job by themselves, and that no job has.
fn release_strays(record: &Past<'_>, on_file: &OnFile<'_>) -> Found {
    let proc_root = record.proc_root;
    let members = record.pins.iter().flat_map(Pins::members);
    let Placement::Cgroup { group, other, cpu_group, cpu_origin, .. } = &record.placement else {
        return Found::default();
    };
    let inside: BTreeSet<u32> = [Some(group), other.as_ref()]
        .into_iter()
        .flatten()
        .flat_map(|group| or_default(Group::at(group).threads()))
        .collect();
    let outside = members.filter(|(tid, _)| !inside.contains(tid));
    // The number of one that has ended may be a younger one's.
    let stray = |(tid, was_there_ticks)| singles::stray(proc_root, tid, was_there_ticks);
    let mut strays: Vec<Single> = outside.filter_map(stray).collect();
    if strays.is_empty() {
        return Found::default();
    }
    let is_of_job = |tid: &u32| inside.contains(tid) || on_file.members().have(proc_root, *tid);
    strays.retain(|stray| !is_of_job(&stray.tid));
    let lowered = strays.iter().filter(|stray| release_thread(stray.tid, record)).count();
    if let (Some(cpu_group), Some(origin)) = (cpu_group, cpu_origin) {
        // A process of which one thread alone has left is the job's.
        let in_group = BTreeSet::from_iter(or_default(Group::at(cpu_group).processes()));
        let left = strays.iter().filter(|it| in_group.contains(&it.pid) && !is_of_job(&it.pid));
        // One that cannot be moved has ended, or stays where it is.
        left.for_each(|stray| {
            move_to_origin(stray.pid, origin);
        });
    }
    let normal = Some(record.normal.into()).filter(|_| !record.keeps_attributes);
    let with_normal: Vec<_> = strays.iter().map(|stray| (*stray, normal)).collect();
    let (everywhere, pins) = (everywhere(record), record.pins.as_ref());
    let of_no_job = |mut tids: BTreeSet<u32>| {
        tids.retain(|tid| !is_of_job(tid));
        tids
    };
    let started = singles::release_started(proc_root, &with_normal, &everywhere, pins, of_no_job);
    Found { strays: strays.len(), lowered: lowered + started, ..Found::default() }
}

fn release_tree(proc_root: &Path, processes: &[(u32, u64)], record: &Past<'_>) -> Found {
    let mut found = Found::default();
    for round in 0..ROUNDS_MAX {
        let once = release_tree_once(proc_root, processes, record);
        if round == 0 {
            found.threads = once.threads;
        }
        found.lowered += once.lowered;
        found.paused = found.paused.max(once.paused);
        if once.lowered == 0 {
            break;
        }
    }
    found
}

fn release_tree_once(proc_root: &Path, processes: &[(u32, u64)], record: &Past<'_>) -> Found {
    let mut found = Found::default();
    let alive = processes.iter().filter(|(pid, started)| {
        process::stat(proc_root, *pid).is_ok_and(|stat| stat.start_ticks == *started)
    });
    let descendants = |pid| record.or_default(process::descendants(proc_root, pid));
    let trees = alive.flat_map(|(pid, _)| descendants(*pid));
    // Most of them are on file as well as below one that is.
    for pid in trees.collect::<BTreeSet<u32>>() {
        let stopped = process::stat(proc_root, pid).is_ok_and(|stat| stat.state == b'T');
        if stopped && ProcessHandle::open(pid).is_ok_and(|p| p.signal(Signal::CONT).is_ok()) {
            found.paused = 1;
        }
        if record.signals {
            listeners::let_go(proc_root, &record.own_of(vec![pid]));
        }
        for tid in record.or_default(process::threads(proc_root, pid)) {
            found.threads += 1;
            found.lowered += usize::from(release_thread(tid, record));
        }
    }
    found
}

/// Releases single threads, and what they have started without its being a member.
fn release_singles(
    proc_root: &Path,
    threads: &[Single],
    others: &Others,
    record: &Past<'_>,
) -> Found {
    let mut found = Found::default();
    for single in threads.iter().filter(|single| singles::is_there(single, proc_root)) {
        found.threads += 1;
        found.lowered += usize::from(release_to(single.tid, single.normal.into(), record));
    }
    let everywhere = everywhere(record);
    for _ in 0..ROUNDS_MAX {
        let inheritors = singles::inheritors(proc_root, threads, others);
        let had = inheritors.iter().filter(|(tid, member)| {
            singles::release_inheritor(*tid, member, &everywhere, record.pins.as_ref())
        });
        if had.count() == 0 {
            break;
        }
    }
    found
}

/// Gives a thread back what it would have had after the job's first process; false where it has
/// nothing of gangd's.
fn release_thread(tid: u32, record: &Past<'_>) -> bool {
    release_to(tid, as_default(record.normal.into()), record)
}

/// Gives a thread back what it had.
fn release_to(tid: u32, normal: Attributes, record: &Past<'_>) -> bool {
    let normal = record.own(tid).unwrap_or(normal);
    let everywhere = everywhere(record);
    let unpinned = unpin(tid, &everywhere, record.pins.as_ref());
    let Ok(now) = thread::attributes(tid) else { return unpinned };
    let had = gang_timetable::released(&now, &normal).filter(|_| !record.keeps_attributes);
    let Some(had) = had else { return unpinned };
    let released = thread::set_attributes(tid, &had);
    if let Some(error) = released.as_ref().err().filter(|error| !is_gone(error)) {
        tracing::error!(tid, ?now, ?had, %error, "a thread stays as gangd has it");
    }
    if record.pins.is_none() && !record.affinity.is_empty() {
        // Refused where none of them is online any more; then any CPU is as good.
        let _ = thread::set_affinity(tid, &everywhere);
    }
    released.is_ok() || unpinned
}

/// The CPUs that a job could have without gangd.
fn everywhere(record: &Record) -> CpuSet {
    record.affinity.iter().copied().collect()
}
