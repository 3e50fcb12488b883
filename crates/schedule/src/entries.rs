//! Entries: the rows and CPUs of this host that spanning jobs have.
//!
//! Problem. A job of several hosts runs in the same slices on all of them, on CPUs that the matrix
//! gave it ([`matrix`](crate::matrix)). The schedule of a host has to keep these free, and changes
//! of the matrix have to begin in the same slice everywhere.
//!
//! Approach. Entries are an immutable value. A list says which jobs have which rows, and from which
//! slice on this is so. The last list that has begun is in force. A host learns of a change before
//! it begins, and needs no message at that moment.
//!
//! Terms:
//! - *spanning*: a job that the list in force names, or one that has slots by entries alone
//!   ([`Spec::spanning`](crate::Spec::spanning)).
//! - *spanning slot*: its CPUs in a slice whose row is one of its own.
//! - *room*: the CPUs that a row leaves, all of its jobs awake or not.
//!
//! Algorithm. In the row of a slice (`matrix::frame`) a job has the CPUs of its entry: all of them
//! or none. It has none while it cannot run, or where a CPU is offline or closed to its threads.
//! Local gangs may have these CPUs then. A job that has slots by entries alone waits for them once
//! a list names it, also one that begins later; while none does, it is with the rest.
//!
//! Properties: in a row no CPU belongs to two jobs; a list names each job once; which list is in
//! force depends on the slice alone.

use std::collections::BTreeMap;

use crate::matrix::{HostId, MAX_ROWS, Matrix, Rows, frame};
use crate::schedule::{Job, Readiness, Schedule};
use crate::seating::Seating;
use crate::{Config, CpuSet, JobId, Refusal, Slot, Topology};

/// A spanning job has these CPUs in each of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub job: JobId,
    pub rows: Rows,
    pub cpus: CpuSet,
}

/// All entries of a host, from a slice on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryList {
    pub from_slice: u64,
    /// The rows of a frame.
    pub frame: u32,
    pub entries: Vec<Entry>,
}

impl EntryList {
    /// The entries of a host of the matrix. `columns` are its CPUs, those that are offline, too. A
    /// job with a column beyond them has no entry.
    pub fn of(matrix: &Matrix, host: HostId, columns: &Topology, from_slice: u64) -> EntryList {
        let cpu = |column: u32| columns.cpus().get(column as usize).map(|cpu| cpu.id);
        let entries = matrix.jobs().filter_map(|(job, _, placement)| {
            let cpus = placement.cpus.get(&host)?.iter().map(cpu).collect::<Option<CpuSet>>()?;
            Some(Entry { job, rows: placement.rows.clone(), cpus })
        });
        EntryList { from_slice, frame: matrix.frame(), entries: entries.collect() }
    }
}

/// The entries of this host, now and later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries(Vec<List>);

impl Entries {
    /// Lists in the order in which they come into force.
    ///
    /// # Errors
    /// [`Refusal::Config`] for a frame of no rows or of more than [`MAX_ROWS`],
    /// [`Refusal::EntryOrder`], [`Refusal::EntryTwice`], [`Refusal::EntryRows`] and
    /// [`Refusal::EntriesOverlap`].
    pub fn new(lists: impl IntoIterator<Item = EntryList>) -> Result<Entries, Refusal> {
        let lists: Vec<List> = lists.into_iter().map(List::new).collect::<Result<_, _>>()?;
        for two in lists.windows(2) {
            let (before, from) = (two[0].list.from_slice, two[1].list.from_slice);
            if before >= from {
                return Err(Refusal::EntryOrder { before, from });
            }
        }
        Ok(Entries(lists))
    }

    /// The lists, each in force until the next one begins.
    pub fn lists(&self) -> impl Iterator<Item = &EntryList> {
        self.0.iter().map(|it| &it.list)
    }

    /// Whether a job has entries, now or later.
    pub(crate) fn name(&self, job: JobId) -> bool {
        self.0.iter().any(|list| list.entry(job).is_some())
    }

    /// The list in force in a slice.
    pub(crate) fn at(&self, slice: u64) -> Option<&List> {
        self.0.iter().rev().find(|it| it.list.from_slice <= slice)
    }

    /// Each row has a turn in every hour.
    pub(crate) fn validate(&self, config: &Config) -> Result<(), Refusal> {
        let most = frame::slices_per_hour(config).min(MAX_ROWS.into());
        let longest = self.lists().map(|list| list.frame).max().unwrap_or(1);
        frame_within(longest, most)
    }
}

fn frame_within(frame: u32, most: u64) -> Result<(), Refusal> {
    match (1..=most).contains(&frame.into()) {
        true => Ok(()),
        false => Err(Refusal::Config { key: "frame", value: frame.into(), least: 1, most }),
    }
}

/// A list, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    /// Its entries are in the order of jobs.
    list: EntryList,
    /// The CPUs that rows take, and the rows that take these.
    kinds: Vec<(CpuSet, Rows)>,
    /// The rows in the order in which they run.
    order: Vec<u32>,
}

impl List {
    fn new(mut list: EntryList) -> Result<List, Refusal> {
        frame_within(list.frame, MAX_ROWS.into())?;
        list.entries.sort_by_key(|entry| entry.job);
        let twice = list.entries.windows(2).find(|two| two[0].job == two[1].job);
        if let Some(two) = twice {
            return Err(Refusal::EntryTwice { job: two[0].job });
        }
        let mut taken = vec![CpuSet::new(); list.frame as usize];
        for (at, Entry { job, rows, cpus }) in list.entries.iter().enumerate() {
            let last = rows.last().filter(|_| !cpus.is_empty());
            if last.is_none_or(|last| last >= list.frame) {
                return Err(Refusal::EntryRows { job: *job, frame: list.frame });
            }
            for row in rows.iter() {
                if !taken[row as usize].is_disjoint(cpus) {
                    let holds = |it: &&Entry| it.rows.contains(row) && !it.cpus.is_disjoint(cpus);
                    let other = list.entries[..at].iter().find(holds).expect("it took the CPUs");
                    let cpus = other.cpus.intersection(cpus);
                    return Err(Refusal::EntriesOverlap { job: *job, other: other.job, row, cpus });
                }
                taken[row as usize].add(cpus);
            }
        }
        let mut kinds: BTreeMap<CpuSet, Vec<u32>> = BTreeMap::new();
        for (row, taken) in (0..).zip(taken) {
            kinds.entry(taken).or_default().push(row);
        }
        let kinds = kinds.into_iter().map(|(cpus, rows)| (cpus, rows.into_iter().collect()));
        Ok(List { kinds: kinds.collect(), order: frame::order(list.frame), list })
    }

    pub fn frame(&self) -> u32 {
        self.list.frame
    }

    /// The slice from which it is in force.
    pub fn begins(&self) -> u64 {
        self.list.from_slice
    }

    pub fn entry(&self, job: JobId) -> Option<&Entry> {
        let at = self.list.entries.binary_search_by_key(&job, |entry| entry.job);
        at.ok().map(|at| &self.list.entries[at])
    }

    /// The entries of the row of a slice.
    fn in_slice(&self, config: &Config, slice: u64) -> impl Iterator<Item = &Entry> {
        let row = frame::row_at(config, self.list.frame, slice);
        self.list.entries.iter().filter(move |entry| entry.rows.contains(row))
    }

    /// The rows that leave some of these CPUs, of which `suffice` says whether they do.
    pub fn rows_with(&self, online: &CpuSet, mut suffice: impl FnMut(CpuSet) -> bool) -> Rows {
        let mut rows = Rows::new();
        for (taken, of_kind) in &self.kinds {
            if suffice(online.difference(taken)) {
                rows.add(of_kind);
            }
        }
        rows
    }

    /// The rows that take CPUs.
    fn taken(&self) -> Rows {
        let mut rows = Rows::new();
        let kinds = self.kinds.iter().filter(|(taken, _)| !taken.is_empty());
        kinds.for_each(|(_, of_kind)| rows.add(of_kind));
        rows
    }

    /// How many they are.
    pub fn rows_taken(&self) -> u32 {
        self.taken().len()
    }

    /// How unevenly they are spread.
    pub fn unevenness_of_taken(&self) -> u32 {
        self.unevenness(&self.taken())
    }

    /// The CPUs that rows take on average.
    pub fn cpus_taken(&self) -> f64 {
        let taken = self.kinds.iter().map(|(cpus, rows)| cpus.len() as u64 * u64::from(rows.len()));
        taken.sum::<u64>() as f64 / f64::from(self.list.frame)
    }

    /// The fewest CPUs that a row leaves of these, of the rows that leave any.
    pub fn least_room(&self, online: &CpuSet) -> usize {
        let left = self.kinds.iter().map(|(taken, _)| online.difference(taken).len());
        left.filter(|&left| left > 0).min().unwrap_or(0)
    }

    /// The slices by which some rows come later than if they were spread evenly over the frame:
    /// the greatest difference over any stretch of it, rounded up.
    pub fn unevenness(&self, rows: &Rows) -> u32 {
        let (frame, there) = (i64::from(self.list.frame), i64::from(rows.len()));
        let (mut owed, mut least, mut most) = (0, 0, 0);
        for &row in &self.order {
            owed += there - if rows.contains(row) { frame } else { 0 };
            (least, most) = (owed.min(least), owed.max(most));
        }
        ((most - least) as u64).div_ceil(frame as u64) as u32
    }
}

impl Job {
    /// Whether a job has the CPUs of an entry while its row runs.
    fn has(&self, entry: &Entry, online: &CpuSet) -> bool {
        let allowed = &self.spec.allowed;
        self.readiness() == Readiness::Runnable
            && entry.cpus.is_subset(&allowed.of(online))
            && allowed.bound().iter().all(|bound| !bound.cpus.is_disjoint(&entry.cpus))
    }
}

impl Schedule {
    /// The entries of this host.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The slots that spanning jobs have in a slice, by job, as things are now. All other CPUs are
    /// for local jobs (L14).
    pub fn spanning_slots(&self, slice: u64) -> Vec<Slot> {
        let Some(list) = self.entries.at(slice) else { return Vec::new() };
        let online = self.topology.set();
        let has =
            |entry: &&Entry| self.jobs.get(&entry.job).is_some_and(|it| it.has(entry, online));
        let entries = list.in_slice(&self.config, slice).filter(has);
        entries.map(|entry| Slot { job: entry.job, cpus: entry.cpus.clone() }).collect()
    }

    /// The list of a slice comes into force. A job that it does not name takes turns again, and has
    /// no credit for the time in which it had entries.
    pub(crate) fn bring_into_force(&mut self, slice: u64) {
        self.in_force = Some(slice);
        let list = self.entries.at(slice);
        let mut local = Vec::new();
        for (&id, job) in &mut self.jobs {
            let spans = list.is_some_and(|list| list.entry(id).is_some());
            if job.spans && !spans {
                local.push(id);
            }
            job.spans = spans;
        }
        local.into_iter().for_each(|id| self.forget_credit(id));
    }

    /// The greatest debt of allowance (L8): as much as spanning jobs can take beyond the cap in a
    /// frame.
    pub(crate) fn most_overdrawn(&self, slice: u64) -> i64 {
        let frame = self.entries.at(slice).map_or(0, List::frame);
        i64::from(frame) * (1000 - i64::from(self.config.cap_permille))
    }
}

/// The CPUs of some slots.
pub(crate) fn cpus_of(slots: &[Slot]) -> CpuSet {
    slots.iter().fold(CpuSet::new(), |mut all, slot| {
        all.add(&slot.cpus);
        all
    })
}

/// Whether a gang fits on these CPUs.
pub(crate) fn fits(job: &Job, cpus: CpuSet) -> bool {
    job.width() as usize <= cpus.len() && Seating::new(cpus).seat(job.parts())
}
