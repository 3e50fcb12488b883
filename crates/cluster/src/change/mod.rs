//! Changes of the registry: what a host wishes becomes one transaction.
//!
//! Problem. Any host may change the matrix at any moment, and no row may have two jobs on one CPU.
//! No host knows whether another one changes something just now.
//!
//! Approach. A change is worked out by the pure planner from the revision that the host has read.
//! Its transaction compares the matrix's [`State`], which every change writes anew: of two changes
//! that were worked out from the same revision, one is committed, and the other is worked out
//! again from what the first one left.
//!
//! Each change names the slice from which it holds. That is never before the slice of the change
//! before, and so far ahead ([`State::lead_ns`]) that all live hosts have read it by then.
//!
//! Properties: what is refused changes nothing, and says why; a transaction has
//! [`OPS_MAX`] operations at most; a job's record is written by the host
//! where it was registered alone; where a record is of a newer version, nothing is changed here.

mod tend;

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::matrix::{Change, HostId, Load, Matrix, Placement, Rows, Span};
use gang_schedule::{CpuSet, JobId, MAX_CPUS, UserId, clock};

use crate::keys::{FIRST_JOB, Key, Keys, is_name};
use crate::record::{
    Alive, Entries, Fault, HOSTS_MAX, Host, Job, Settings, State, Users, Wanted, class, encode,
};
use crate::store::{BYTES_MAX, Condition, OPS_MAX, Op, Revision, Txn};
use crate::view::View;

/// The beginning of the name of a user who has no login, by his number.
const NAMELESS: char = '#';

/// The lead of a new cluster, which is the least. A host that needs longer for a change has all
/// hosts wait longer.
pub const LEAD_LEAST_NS: u64 = 100_000_000;
/// A change that holds from a later moment than this was made by a clock that was wrong.
const FAR_NS: u64 = 60_000_000_000;
/// The most bytes of the new places of other jobs, of each try of a change that is too large. Later
/// changes bring the places that are left out.
const MOVES_MAX: [usize; 3] = [usize::MAX, BYTES_MAX / 2, 0];

/// The user that wishes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    pub uid: u32,
    pub name: String,
}

/// A wish of a host, or of a user of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// This host joins the cluster, or comes back with other CPUs or after a boot.
    Join { cpus: u32, numbers: String, machine: String, boot: String },
    /// This host leaves the cluster for good, and these leave together with it: no job that was
    /// killed waits for them. Where many records of jobs that are over are left, a part of them
    /// goes first.
    Leave { with: BTreeSet<String> },
    /// A user of this host registers a job.
    Register(Job),
    /// A user wants a job in another state on all hosts.
    Want { job: JobId, wanted: Wanted, by: By },
    /// All processes that a job awaits on this host have come.
    Arrive { job: JobId },
    /// A user wants another class or weight for a job.
    Set { job: JobId, class: Option<String>, weight: Option<u32>, by: By },
    /// A job that was registered here has ended here. Its record is written anew: hosts say which
    /// parts they have once they have read that.
    Ask { job: JobId },
    /// A job that was registered here has ended everywhere.
    Remove { job: JobId },
    /// This host becomes the one that adjusts, if there is none.
    Elect,
    /// It is so no longer.
    Resign,
    /// The host that adjusts looks at all hosts and jobs.
    Tend,
}

impl Wish {
    /// It names no slice, so that a clock that is wrong does no harm. Nor does a host that was
    /// booted: which hosts share its clock is known only by what it says then.
    pub fn needs_no_clock(&self, known: Option<&Host>) -> bool {
        match self {
            Wish::Elect | Wish::Resign => true,
            Wish::Join { cpus, machine, .. } => {
                known.is_some_and(|it| (it.cpus, &it.machine) == (*cpus, machine))
            }
            _ => false,
        }
    }

    /// Whether the host leaves by it.
    pub fn is_leave(&self) -> bool {
        matches!(self, Wish::Leave { .. })
    }

    /// The job that it names by its number.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Wish::Want { job, .. }
            | Wish::Set { job, .. }
            | Wish::Arrive { job }
            | Wish::Ask { job }
            | Wish::Remove { job } => Some(*job),
            _ => None,
        }
    }
}

/// Why a wish was not granted. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the registry has no cluster {0:?}: `gang cluster init` makes one")]
    NoCluster(String),
    #[error("the registry's record {key} is not used here, so that nothing is changed: {fault}")]
    Faulty { key: String, fault: Fault },
    #[error("{0:?} cannot be the name of a host: letters, digits, dots, - and _ can")]
    Name(String),
    #[error(
        "host {name} is in the cluster already as another machine ({machine}): give this one \
         another name, or have the other one leave (gang cluster leave)"
    )]
    OtherMachine { name: String, machine: String },
    #[error("the cluster has {0} hosts already, which is the most")]
    TooManyHosts(u32),
    #[error("host {0} is not in the cluster")]
    NoHost(String),
    #[error("host {0} is in the cluster, and away")]
    Away(String),
    #[error("host {host} takes no spanning jobs: {why}")]
    Unwilling { host: String, why: String },
    #[error("there is no job {0} in the cluster")]
    NoJob(JobId),
    #[error("job {job} is not yours: it is of user {owner}")]
    NotOwner { job: JobId, owner: String },
    #[error("job {0} has no part on this host: ask a host where it has one")]
    NotHere(JobId),
    #[error("job {job} was launched as {name:?} before, on other hosts: a program has one job")]
    Launched { job: JobId, name: String },
    #[error("the host has jobs of the cluster, {0} of them: they must end first")]
    HasJobs(usize),
    #[error("job {job} was registered at host {host}, which removes it")]
    OfOtherHost { job: JobId, host: String },
    #[error("job {0} is being killed")]
    Killed(JobId),
    #[error(transparent)]
    Job(Fault),
    #[error(transparent)]
    Matrix(gang_schedule::matrix::Refused),
    #[error("the change would have {ops} operations and {bytes} bytes, more than etcd takes")]
    TooLarge { ops: usize, bytes: usize },
    #[error("etcd did not take the change: {0}")]
    Store(String),
    #[error("the registry cannot be reached, so that nothing of the cluster can be changed")]
    Unreachable,
    #[error("the registry did not answer: the change is done, or not")]
    Unanswered,
    #[error("{0} changes wait already: try again later")]
    Busy(usize),
}

/// The answer to a wish that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Granted {
    /// The job has this number and this nonce, and slots from this slice on, unless it awaits
    /// processes. It may have been registered before, under the launcher's name of the program.
    Registered { job: JobId, nonce: String, from_slice: u64 },
    /// It holds from this slice on; now where nothing was to be changed.
    Done { from_slice: u64 },
}

/// A wish as a transaction, and the answer once it is committed. Without operations there is
/// nothing to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub txn: Txn,
    pub granted: Granted,
}

/// All that a change is worked out from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub view: &'a View,
    /// The hosts that are alive, as they were read last.
    pub alive: &'a BTreeMap<String, Alive>,
    /// Hosts that were away for so long that their jobs are to know.
    pub lost: &'a BTreeSet<String>,
    /// The name of this host, and its machine id.
    pub host: &'a str,
    pub machine: &'a str,
    pub now_ns: u64,
}

/// The transactions of a new cluster's first records. It fails where there is a cluster already.
pub fn init(keys: &Keys, settings: &Settings) -> Result<Txn, Refused> {
    let settings_key = keys.of(&Key::Settings);
    Matrix::new(settings.config(), settings.rows).map_err(Refused::Matrix)?;
    let (next_job, lead_ns, frame) = (FIRST_JOB, LEAD_LEAST_NS, settings.rows);
    let state = State { next_job, lead_ns, frame, ..State::default() };
    let put = |key: String, value: String| Op::Put { key, value, leased: false };
    Ok(Txn {
        compares: vec![(settings_key.clone(), Condition::Absent)],
        ops: vec![put(settings_key, encode(settings)), put(keys.of(&Key::State), encode(&state))],
    })
}

/// Works out a wish.
///
/// # Errors
/// [`Refused`].
pub fn draft(from: Inputs, wish: &Wish) -> Result<Draft, Refused> {
    // Where this host cannot read the registry, another one is to adjust.
    if *wish == Wish::Resign {
        return Ok(resign(from));
    }
    let mut last = draft_within(from, wish, MOVES_MAX[0])?;
    for bytes in MOVES_MAX.into_iter().skip(1) {
        if last.txn.is_within_limits() {
            break;
        }
        last = draft_within(from, wish, bytes)?;
    }
    let (ops, bytes) = (last.txn.ops.len(), last.txn.bytes());
    if last.txn.is_within_limits() { Ok(last) } else { Err(Refused::TooLarge { ops, bytes }) }
}

/// The same, where the new places of other jobs have so many bytes at most.
fn draft_within(from: Inputs, wish: &Wish, moves_max: usize) -> Result<Draft, Refused> {
    let desk = Drafting { moves_max, ..Drafting::new(from)? };
    Ok(match wish {
        Wish::Join { cpus, numbers, machine, boot } => desk.join(*cpus, numbers, machine, boot)?,
        Wish::Leave { with } => desk.leave(with)?,
        Wish::Register(job) => desk.register(job)?,
        Wish::Want { job, wanted, by } => desk.want(*job, *wanted, by)?,
        Wish::Arrive { job } => desk.arrive(*job),
        Wish::Set { job, class, weight, by } => desk.set(*job, class.as_deref(), *weight, by)?,
        Wish::Ask { job } => desk.ask(*job),
        Wish::Remove { job } => desk.remove(*job)?,
        Wish::Elect => desk.elect(),
        Wish::Resign => desk.nothing(),
        Wish::Tend => desk.tend()?,
    })
}

/// The host that adjusts cannot, and another one is to. Its key may have gone with its lease, and
/// another host may have it: a deletion without a condition would delete that, or nothing.
fn resign(from: Inputs) -> Draft {
    let granted = Granted::Done { from_slice: 0 };
    let mut txn = Txn::default();
    let since = from.view.adjuster_since();
    if let Some(since) = since.filter(|_| from.view.adjuster() == Some(from.host)) {
        let key = from.view.keys().of(&Key::Adjuster);
        txn.compares.push((key.clone(), Condition::ModifiedAt(since)));
        txn.ops.push(Op::Delete { key });
    }
    Draft { txn, granted }
}

/// The registry as a change finds it, and what the change writes.
struct Drafting<'a> {
    from: Inputs<'a>,
    settings: &'a Settings,
    state: &'a State,
    modified: Revision,
    matrix: &'a Matrix,
    /// The slice from which the change holds.
    from_slice: u64,
    /// The rows of a frame from then on.
    frame: u32,
    ops: Vec<Op>,
    /// The most bytes of the new places of other jobs.
    moves_max: usize,
}

impl<'a> Drafting<'a> {
    fn new(from: Inputs<'a>) -> Result<Drafting<'a>, Refused> {
        let view = from.view;
        let newer = view.newer().map(|(key, fault)| (key.to_owned(), fault));
        if let Some((key, fault)) = newer.or_else(|| view.fault_of_all()) {
            return Err(Refused::Faulty { key, fault: fault.clone() });
        }
        let known = (view.settings(), view.state(), view.matrix());
        let (Some(settings), Some((state, modified)), Some(matrix)) = known else {
            return Err(Refused::NoCluster(view.keys().registry()));
        };
        let from_slice = from_slice(matrix, from.now_ns, state, state.lead_ns);
        let (frame, ops, moves_max) = (matrix.frame(), Vec::new(), MOVES_MAX[0]);
        Ok(Drafting { from, settings, state, modified, matrix, from_slice, frame, ops, moves_max })
    }

    /// The transaction, with the state that every change of the matrix writes.
    fn finish(mut self, granted: Granted, state: State) -> Draft {
        let key = self.from.view.keys().of(&Key::State);
        let compares = vec![(key, Condition::ModifiedAt(self.modified))];
        let (change, from_slice, frame) = (state.change + 1, self.from_slice, self.frame);
        self.put(&Key::State, encode(State { change, from_slice, frame, ..state }));
        Draft { txn: Txn { compares, ops: self.ops }, granted }
    }

    /// The transaction of a change that leaves the matrix as it is.
    fn finish_beside(self) -> Draft {
        let key = self.from.view.keys().of(&Key::State);
        let compares = vec![(key, Condition::ModifiedAt(self.modified))];
        let from_slice = clock::slice_at(self.matrix.config(), self.from.now_ns);
        Draft { txn: Txn { compares, ops: self.ops }, granted: Granted::Done { from_slice } }
    }

    /// The same of one that changes entries. Changes are worked out from entries, so that the state
    /// is written anew as it was.
    fn finish_entries_beside(mut self) -> Draft {
        let state = encode(self.state);
        self.put(&Key::State, state);
        self.finish_beside()
    }

    fn done(self) -> Draft {
        let (from_slice, state) = (self.from_slice, self.state.clone());
        self.finish(Granted::Done { from_slice }, state)
    }

    /// Nothing is to be changed.
    fn nothing(self) -> Draft {
        let from_slice = clock::slice_at(self.matrix.config(), self.from.now_ns);
        Draft { txn: Txn::default(), granted: Granted::Done { from_slice } }
    }

    fn put(&mut self, key: &Key, value: String) {
        let key = self.from.view.keys().of(key);
        self.ops.push(Op::Put { key, value, leased: false });
    }

    fn delete(&mut self, key: &Key) {
        let key = self.from.view.keys().of(key);
        self.ops.push(Op::Delete { key });
    }

    /// The matrix with the loads of the hosts that are alive. How long its frame is to be depends
    /// on them: without loads, jobs would have the time of others until the next adjustment.
    fn loaded(&self) -> Matrix {
        let mut matrix = self.matrix.clone();
        for (name, alive) in self.from.alive {
            let Some(host) = self.from.view.hosts().get(name) else { continue };
            let of_users = alive.of_users.iter().map(|(&of, &count)| (UserId(of), count));
            let load = Load { threads: alive.threads, of_users: of_users.collect() };
            // A host that counts wrongly, or that the matrix has no room for, has no load.
            let _ = matrix.set_load(HostId(host.number), load);
        }
        matrix
    }

    /// Writes the new placements of a change, except that of one job.
    fn place(&mut self, change: &Change, except: Option<JobId>) {
        self.frame = change.frame;
        for (&job, placement) in change.placed.iter().filter(|(job, _)| Some(**job) != except) {
            let Some(entries) = self.from.view.entries(job) else { continue };
            let mut entries = entries.clone();
            entries.place(placement);
            self.put(&Key::Entries(job), encode(&entries));
        }
    }

    /// As much of a change as may be written: first the moves that take no row, then others. A job
    /// that comes does without the rows that others keep then.
    fn fitting(&self, change: Change, of: Option<(JobId, Option<&Span>)>) -> Change {
        let id = of.map(|(id, _)| id);
        let bytes = |job: &JobId, placement: &Placement| {
            let Some(entries) = self.from.view.entries(*job) else { return 0 };
            let mut entries = entries.clone();
            entries.place(placement);
            encode(&entries).len()
        };
        let moves = || change.placed.iter().filter(|(job, _)| Some(**job) != id);
        if moves().map(|(job, new)| bytes(job, new)).sum::<usize>() <= self.moves_max {
            return change;
        }
        let mut matrix = self.matrix.clone();
        if let Some((id, None)) = of {
            matrix.apply([(id, None)].into());
        }
        let known: BTreeMap<JobId, (&Span, &Placement)> =
            self.matrix.jobs().map(|(job, span, old)| (job, (span, old))).collect();
        let without = |rows: &Rows, other: &Rows| -> Rows {
            rows.iter().filter(|&row| !other.contains(row)).collect()
        };
        let mut moves: Vec<(&JobId, &Placement, &Span, &Placement)> = moves()
            .filter_map(|(job, new)| known.get(job).map(|&(span, old)| (job, new, span, old)))
            .collect();
        moves.sort_by_key(|(_, new, _, old)| {
            old.cpus != new.cpus || !without(&new.rows, &old.rows).is_empty()
        });
        let (mut placed, mut kept, mut left) = (BTreeMap::new(), Rows::new(), self.moves_max);
        for (&job, new, span, old) in moves {
            let needs = bytes(&job, new);
            let mut place = |to: &Placement| {
                matrix.apply([(job, Some((span.clone(), to.clone())))].into()).is_empty()
            };
            if needs <= left && place(new) {
                left -= needs;
                placed.insert(job, new.clone());
            } else {
                // One that could not be placed is where it was.
                place(old);
                kept.add(&without(&old.rows, &new.rows));
            }
        }
        if let Some((id, Some(span))) = of {
            let own = change
                .placed
                .get(&id)
                .map(|own| Placement { cpus: own.cpus.clone(), rows: without(&own.rows, &kept) });
            if let Some(own) = own.filter(|own| !own.rows.is_empty()) {
                if matrix.apply([(id, Some((span.clone(), own.clone())))].into()).is_empty() {
                    placed.insert(id, own);
                }
            }
        }
        Change { frame: matrix.frame(), placed }
    }

    fn join(
        mut self,
        cpus: u32,
        numbers: &str,
        machine: &str,
        boot: &str,
    ) -> Result<Draft, Refused> {
        let name = self.from.host;
        if !is_name(name) {
            return Err(Refused::Name(name.to_owned()));
        }
        let hosts = self.from.view.hosts();
        if let Some(known) = hosts.get(name) {
            if known.machine != machine {
                let machine = known.machine.clone();
                return Err(Refused::OtherMachine { name: name.to_owned(), machine });
            }
            if (known.cpus, known.numbers.as_str(), known.boot.as_str()) == (cpus, numbers, boot) {
                return Ok(self.nothing());
            }
            // Columns are what entries name: they stay the same CPUs while the kernel runs.
            let has_others = known.numbers != numbers && known.boot == boot;
            if known.cpus != cpus || has_others {
                self.check_unused(known.number)?;
            }
        }
        if !(1..=MAX_CPUS).contains(&cpus) {
            let wrong = gang_schedule::matrix::Refused::Cpus { cpus, max: MAX_CPUS };
            return Err(Refused::Matrix(wrong));
        }
        let taken = hosts.values().map(|host| host.number);
        let taken: BTreeSet<u32> = taken.chain(self.from.view.numbers_of_unreadable()).collect();
        let is_free = |number: &u32| !taken.contains(number) && self.check_unused(*number).is_ok();
        // Entries name it by its number, which stays though the rest of its record was lost.
        let known = self.from.view.number_of(name);
        if let Some(fault) = self.from.view.fault_of_host(name).filter(|_| known.is_none()) {
            let key = self.from.view.keys().of(&Key::Host(name.to_owned()));
            return Err(Refused::Faulty { key, fault: fault.clone() });
        }
        let number = known.or_else(|| (0..HOSTS_MAX).find(is_free));
        let number = number.ok_or(Refused::TooManyHosts(HOSTS_MAX))?;
        let [numbers, machine, boot] = [numbers, machine, boot].map(str::to_owned);
        let is_new = hosts.get(name).is_none_or(|known| known.cpus != cpus);
        if hosts.get(name).is_some_and(|known| known.boot != boot) && !self.mark_booted(number) {
            return Ok(self.finish_entries_beside());
        }
        let host = Host { number, cpus, numbers, machine, boot };
        self.put(&Key::Host(name.to_owned()), encode(&host));
        Ok(if is_new { self.done() } else { self.finish_entries_beside() })
    }

    /// A boot has ended the processes of jobs on this host, however short it was. The jobs are
    /// marked, and the host that adjusts does what their owners chose: this one may not know the
    /// slice yet. Returns whether all are marked; as many are as one change can have.
    fn mark_booted(&mut self, number: u32) -> bool {
        let (view, me) = (self.from.view, HostId(number));
        let columns_max = view.columns_max();
        let mut bytes = 0;
        for (id, entries) in view.all_entries() {
            let is_known = entries.lost().contains(&me) || entries.booted().contains(&me);
            let names =
                || entries.decode(columns_max).is_ok_and(|(it, _)| it.cpus.contains_key(&me));
            if is_known || entries.wanted == Wanted::Kill || !names() {
                continue;
            }
            let mut entries = entries.clone();
            entries.boot(&entries.booted().into_iter().chain([me]).collect());
            let value = encode(&entries);
            bytes += value.len();
            let is_full = self.ops.len() + 2 >= OPS_MAX || bytes > BYTES_MAX / 2;
            if is_full && !self.ops.is_empty() {
                return false;
            }
            self.put(&Key::Entries(id), value);
        }
        true
    }

    /// No job has entries of a host, not even one that was released.
    fn check_unused(&self, number: u32) -> Result<(), Refused> {
        self.check_unused_but(number, |_| false)
    }

    /// The same without some jobs.
    fn check_unused_but(
        &self,
        number: u32,
        is_out: impl Fn(&Entries) -> bool,
    ) -> Result<(), Refused> {
        let columns_max = self.from.view.columns_max();
        let names = |entries: &Entries| {
            let decoded = entries.decode(columns_max);
            let is_of = decoded.is_ok_and(|(span, _)| span.cpus.contains_key(&HostId(number)));
            is_of && !is_out(entries)
        };
        let jobs = self.from.view.all_entries().filter(|(_, entries)| names(entries)).count();
        if jobs == 0 {
            return Ok(());
        }
        Err(Refused::Matrix(gang_schedule::matrix::Refused::HostInUse {
            host: HostId(number),
            jobs,
        }))
    }

    fn leave(mut self, with: &BTreeSet<String>) -> Result<Draft, Refused> {
        let name = self.from.host;
        let Some(host) = self.from.view.hosts().get(name) else { return Ok(self.nothing()) };
        let me = HostId(host.number);
        let view = self.from.view;
        let columns_max = view.columns_max();
        let has_no_part =
            |it: &Entries| it.decode(columns_max).is_ok_and(|(it, _)| !it.cpus.contains_key(&me));
        // A job that is killed waits for a host that is lost, until that is back or has left. Its
        // home may be one that has no part of it.
        let ends_with_it = |it: &Entries| {
            let is_killed = it.wanted == Wanted::Kill && it.rows.is_empty();
            is_killed && (it.lost().contains(&me) || has_no_part(it))
        };
        self.check_unused_but(host.number, ends_with_it)?;
        let waits_for_others = |it: &Entries| {
            let others = it.lost().into_iter().filter(|&other| other != me);
            let stays = |other| view.name_of(other).is_some_and(|name| !with.contains(name));
            others.into_iter().any(stays)
        };
        let has_entries = |job: JobId| match view.entries(job) {
            Some(it) => !ends_with_it(it) || waits_for_others(it),
            None => view.fault(&view.keys().of(&Key::Entries(job))).is_some(),
        };
        let (jobs, over): (Vec<JobId>, Vec<JobId>) =
            view.records(name).map(|(job, _)| job).partition(|&job| has_entries(job));
        if !jobs.is_empty() {
            return Err(Refused::HasJobs(jobs.len()));
        }
        // Jobs that ended without their host: it had no time to remove their records.
        for &job in over.iter().take(OPS_MAX / 4) {
            self.delete(&Key::Job { host: name.to_owned(), job });
            if view.entries(job).is_some() {
                self.delete(&Key::Entries(job));
            }
        }
        if over.len() > OPS_MAX / 4 {
            return Ok(self.done());
        }
        self.delete(&Key::Host(name.to_owned()));
        if self.from.view.adjuster() == Some(name) {
            self.delete(&Key::Adjuster);
        }
        Ok(self.done())
    }

    fn register(mut self, job: &Job) -> Result<Draft, Refused> {
        job.validate().map_err(Refused::Job)?;
        match self.from.view.hosts().get(self.from.host) {
            Some(host) if host.machine == self.from.machine => {}
            Some(host) => {
                let (name, machine) = (self.from.host.to_owned(), host.machine.clone());
                return Err(Refused::OtherMachine { name, machine });
            }
            None => return Err(Refused::NoHost(self.from.host.to_owned())),
        }
        if let Some((id, nonce)) = self.registered(job)? {
            let from_slice = self.state.from_slice;
            let granted = Granted::Registered { job: id, nonce, from_slice };
            return Ok(Draft { txn: Txn::default(), granted });
        }
        let (mut cpus, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for (name, &count) in &job.cpus {
            let host = self.from.view.hosts().get(name);
            let host = host.ok_or_else(|| Refused::NoHost(name.clone()))?;
            let alive = self.from.alive.get(name).ok_or_else(|| Refused::Away(name.clone()))?;
            if let Some(why) = &alive.unwilling {
                return Err(Refused::Unwilling { host: name.clone(), why: why.clone() });
            }
            cpus.insert(HostId(host.number), count);
            allowed.extend(columns_allowed(job, name, host));
        }
        let job = &Job { allowed: self.known_cpus(job), ..job.clone() };
        let id = JobId(self.state.next_job);
        let class = class(&job.class).map_err(Refused::Job)?;
        let user = self.settings.users.account_of(&job.owner);
        let span = Span { user, class, weight: job.weight, cpus, allowed };
        let mut matrix = self.loaded();
        let change = matrix.place(id, span.clone()).map_err(Refused::Matrix)?;
        let change = self.fitting(change, Some((id, Some(&span))));
        self.place(&change, Some(id));
        let placement = change.placed.get(&id).ok_or_else(|| self.full())?;
        let from_slice = self.from_slice;
        let mut entries =
            Entries { wanted_from: from_slice, ..Entries::new(&span, placement, self.from.host) };
        let awaited = job.ranks.iter().filter(|(_, ranks)| **ranks > 0);
        let number = |name: &String| Some(HostId(self.from.view.hosts().get(name)?.number));
        entries.await_hosts(&awaited.filter_map(|(name, _)| number(name)).collect());
        self.put(&Key::Job { host: self.from.host.to_owned(), job: id }, encode(job));
        self.put(&Key::Entries(id), encode(&entries));
        let state = State { next_job: id.0 + 1, ..self.state.clone() };
        let granted = Granted::Registered { job: id, nonce: job.nonce.clone(), from_slice };
        Ok(self.finish(granted, state))
    }

    /// The job that is to be registered, where it is there already, and its nonce: an answer did
    /// not come, or another host has registered the launcher's program.
    fn registered(&self, job: &Job) -> Result<Option<(JobId, String)>, Refused> {
        let mut own = self.from.view.records(self.from.host);
        if let Some((id, _)) = own.find(|(_, it)| it.nonce == job.nonce) {
            return Ok(Some((id, job.nonce.clone())));
        }
        let Some(name) = &job.launched_as else { return Ok(None) };
        let is_owner = |other: &Job| match self.settings.users {
            Users::Name if job.owner.name.starts_with(NAMELESS) => false,
            Users::Name => other.owner.name == job.owner.name,
            Users::Uid => other.owner.uid == job.owner.uid,
        };
        let is_it = |(id, _, other): &(JobId, &str, &Job)| {
            let is_over = self.from.view.entries(*id).is_none_or(|it| it.wanted == Wanted::Kill);
            other.launched_as.as_ref() == Some(name) && is_owner(other) && !is_over
        };
        match self.from.view.jobs().find(is_it) {
            Some((id, _, other)) if (&other.cpus, &other.ranks) == (&job.cpus, &job.ranks) => {
                Ok(Some((id, other.nonce.clone())))
            }
            Some((id, ..)) => Err(Refused::Launched { job: id, name: name.clone() }),
            None => Ok(None),
        }
    }

    /// The CPUs to which a job is bound, as far as its hosts have them.
    fn known_cpus(&self, job: &Job) -> BTreeMap<String, String> {
        let known = |(name, list): (&String, &String)| {
            let host = self.from.view.hosts().get(name)?;
            let there: CpuSet = host.numbers.split(',').filter_map(|it| it.parse().ok()).collect();
            let bound: CpuSet = list.parse().ok()?;
            let bound: CpuSet = bound.iter().filter(|&cpu| there.contains(cpu)).collect();
            Some((name.clone(), bound.to_string()))
        };
        job.allowed.iter().filter_map(known).collect()
    }

    /// The processes of this host are there. With those of the last host, the slots begin.
    fn arrive(mut self, id: JobId) -> Draft {
        let me = self.from.view.hosts().get(self.from.host).map(|host| HostId(host.number));
        let Some((mut entries, me)) = self.from.view.entries(id).cloned().zip(me) else {
            return self.nothing();
        };
        let mut awaited = entries.awaited();
        if !awaited.remove(&me) {
            return self.nothing();
        }
        entries.await_hosts(&awaited);
        self.put(&Key::Entries(id), encode(&entries));
        self.done()
    }

    /// The entries of a job that a user may change.
    fn permitted(&self, id: JobId, by: &By) -> Result<Entries, Refused> {
        let view = self.from.view;
        let (Some((home, job)), Some(entries)) = (view.job(id), view.entries(id)) else {
            return Err(self.no_job(id));
        };
        let is_owner = match self.settings.users {
            Users::Name => by.name == job.owner.name,
            Users::Uid => by.uid == job.owner.uid,
        };
        if by.uid != 0 && !is_owner {
            return Err(Refused::NotOwner { job: id, owner: job.owner.name.clone() });
        }
        // A user of the same name may be somebody else where the job's owner has no part; and a
        // number that has no login is another one's on each host.
        let is_home = home == self.from.host;
        let is_nameless =
            self.settings.users == Users::Name && job.owner.name.starts_with(NAMELESS);
        let is_here = is_home || (job.cpus.contains_key(self.from.host) && !is_nameless);
        if by.uid != 0 && !is_here {
            return Err(Refused::NotHere(id));
        }
        Ok(entries.clone())
    }

    /// The reason why there is no such job: one whose records cannot be read is there all the same.
    fn no_job(&self, id: JobId) -> Refused {
        let view = self.from.view;
        let home = view.entries(id).map(|entries| entries.from.clone());
        let record = home.map(|host| Key::Job { host, job: id });
        let keys = record.into_iter().chain([Key::Entries(id)]);
        let fault = keys.map(|key| view.keys().of(&key)).find_map(|key| {
            let fault = view.fault(&key)?.clone();
            Some(Refused::Faulty { key, fault })
        });
        fault.unwrap_or(Refused::NoJob(id))
    }

    /// No row is free for a job, and none of others is taken.
    fn full(&self) -> Refused {
        Refused::Matrix(gang_schedule::matrix::Refused::Full { max: self.matrix.frame() })
    }

    fn want(mut self, id: JobId, wanted: Wanted, by: &By) -> Result<Draft, Refused> {
        let entries = self.permitted(id, by)?;
        // A job that is resumed waits for nobody any more.
        let is_awaiting = wanted == Wanted::Run && !entries.awaited.is_empty();
        if entries.wanted == wanted && !is_awaiting {
            return Ok(self.nothing());
        }
        if entries.wanted == Wanted::Kill {
            return Err(Refused::Killed(id));
        }
        let mut matrix = self.loaded();
        self.turn_to(&mut matrix, id, entries, wanted)?;
        Ok(self.done())
    }

    /// A job is in another wanted state from now on.
    fn turn_to(
        &mut self,
        matrix: &mut Matrix,
        id: JobId,
        mut entries: Entries,
        wanted: Wanted,
    ) -> Result<(), Refused> {
        let was_released = entries.rows.is_empty();
        (entries.wanted, entries.wanted_from) = (wanted, self.from_slice);
        if wanted == Wanted::Run {
            entries.await_hosts(&BTreeSet::new());
        }
        // A job that is killed may wait long for a host that is away, and needs no rows for that.
        if matches!(wanted, Wanted::Release | Wanted::Kill) {
            if matrix.placement(id).is_some() {
                let change = matrix.remove(id).map_err(Refused::Matrix)?;
                self.place(&self.fitting(change, Some((id, None))), Some(id));
            }
            entries.rows = String::new();
        } else if wanted == Wanted::Run && was_released {
            let span = self.span_again(id, &entries)?;
            let hosts: BTreeSet<HostId> = span.cpus.keys().copied().collect();
            let change = matrix.place(id, span.clone()).map_err(Refused::Matrix)?;
            let change = self.fitting(change, Some((id, Some(&span))));
            self.place(&change, Some(id));
            let placement = change.placed.get(&id).ok_or_else(|| self.full())?;
            let before = entries;
            entries = Entries::new(&span, placement, &before.from);
            (entries.wanted, entries.wanted_from) = (wanted, self.from_slice);
            entries.lose(&before.lost().intersection(&hosts).copied().collect());
            entries.boot(&before.booted().intersection(&hosts).copied().collect());
        }
        self.put(&Key::Entries(id), encode(&entries));
        Ok(())
    }

    /// A job that was released, as it is placed again: by its record, since its hosts may have got
    /// other numbers and columns meanwhile.
    fn span_again(&self, id: JobId, entries: &Entries) -> Result<Span, Refused> {
        let view = self.from.view;
        let (_, job) = view.job(id).ok_or(Refused::NoJob(id))?;
        let (mut cpus, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for (name, &count) in &job.cpus {
            let host = view.hosts().get(name).ok_or_else(|| Refused::NoHost(name.clone()))?;
            cpus.insert(HostId(host.number), count);
            allowed.extend(columns_allowed(job, name, host));
        }
        let class = class(&entries.class).map_err(Refused::Job)?;
        let user = self.settings.users.account_of(&job.owner);
        Ok(Span { user, class, weight: entries.weight, cpus, allowed })
    }

    fn set(
        mut self,
        id: JobId,
        class_name: Option<&str>,
        weight: Option<u32>,
        by: &By,
    ) -> Result<Draft, Refused> {
        let mut entries = self.permitted(id, by)?;
        let (_, job) = self.from.view.job(id).ok_or(Refused::NoJob(id))?;
        let class_name = class_name.unwrap_or(&entries.class).to_owned();
        let weight = weight.unwrap_or(entries.weight);
        Job { class: class_name.clone(), weight, ..job.clone() }
            .validate()
            .map_err(Refused::Job)?;
        if (&class_name, weight) == (&entries.class, entries.weight) {
            return Ok(self.nothing());
        }
        // The rows follow with the next adjustment (L16).
        (entries.class, entries.weight) = (class_name, weight);
        self.put(&Key::Entries(id), encode(&entries));
        Ok(self.done())
    }

    /// The record of a job that was registered here is written as it is.
    fn ask(mut self, id: JobId) -> Draft {
        let host = self.from.host.to_owned();
        let Some(record) = self.from.view.record(&host, id) else { return self.nothing() };
        self.put(&Key::Job { host, job: id }, encode(record));
        self.finish_beside()
    }

    /// The record of a job that was registered here is deleted, and its entries with it.
    fn remove(mut self, id: JobId) -> Result<Draft, Refused> {
        let view = self.from.view;
        let host = self.from.host.to_owned();
        // A record of this host goes, whichever host the entries name.
        let has_record = view.record(&host, id).is_some();
        if let Some((home, _)) = view.job(id).filter(|(home, _)| *home != host && !has_record) {
            return Err(Refused::OfOtherHost { job: id, host: home.to_owned() });
        }
        let entries = view.entries(id).filter(|entries| entries.from == host);
        if !has_record && entries.is_none() {
            return Ok(self.nothing());
        }
        let has_unreadable = view.fault(&view.keys().of(&Key::Entries(id))).is_some();
        if entries.is_some() || (view.entries(id).is_none() && has_unreadable) {
            self.clear(id)?;
        }
        if has_record {
            self.delete(&Key::Job { host, job: id });
        }
        Ok(self.done())
    }

    /// A job has no entries any more; others move to what it leaves.
    fn clear(&mut self, id: JobId) -> Result<(), Refused> {
        if self.matrix.placement(id).is_some() {
            let change = self.loaded().remove(id).map_err(Refused::Matrix)?;
            self.place(&self.fitting(change, Some((id, None))), Some(id));
        }
        self.delete(&Key::Entries(id));
        Ok(())
    }

    /// The key goes with this host's lease.
    fn elect(self) -> Draft {
        let from_slice = self.from_slice;
        let granted = Granted::Done { from_slice };
        if self.from.view.adjuster().is_some() {
            return Draft { txn: Txn::default(), granted };
        }
        let key = self.from.view.keys().of(&Key::Adjuster);
        let compares = vec![(key.clone(), Condition::Absent)];
        let put = Op::Put { key, value: self.from.host.to_owned(), leased: true };
        Draft { txn: Txn { compares, ops: vec![put] }, granted }
    }
}

/// The columns of a host among which a job has its CPUs, where its processes are bound there.
fn columns_allowed(job: &Job, name: &str, host: &Host) -> Option<(HostId, CpuSet)> {
    let cpus = job.allowed.get(name)?.parse().ok()?;
    Some((HostId(host.number), host.columns(&cpus)))
}

/// The first slice from which a change can hold whose lead is this long, and not before the change
/// before it. One that a clock far ahead has made is not waited for.
fn from_slice(matrix: &Matrix, now_ns: u64, state: &State, lead_ns: u64) -> u64 {
    let ahead = clock::slice_at(matrix.config(), now_ns + lead_ns) + 1;
    let is_far = is_far(matrix, now_ns, state.from_slice);
    if is_far { ahead } else { ahead.max(state.from_slice) }
}

/// Whether a clock that was wrong has named this slice.
fn is_far(matrix: &Matrix, now_ns: u64, slice: u64) -> bool {
    slice > clock::slice_at(matrix.config(), now_ns + State::LEAD_NS.end() + FAR_NS)
}

/// A slice that is further ahead by so many was named by a clock that was wrong.
pub(crate) fn far_slices(slice_ns: u64) -> u64 {
    (State::LEAD_NS.end() + FAR_NS) / slice_ns.max(1)
}
