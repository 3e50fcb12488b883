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
//! [`OPS_MAX`](crate::store::OPS_MAX) operations at most; a job's record is written by the host
//! where it was registered alone; where a record is of a newer version, nothing is changed here.

mod hosts;
mod jobs;
mod tend;

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{
    JobId, UserId, clock,
    matrix::{Change, HostId, Load, Matrix, Placement, Rows, Span},
};

use crate::{
    keys::{FIRST_JOB, Key, Keys},
    record::{Alive, ClusterSettings, Fault, Host, Job, State, Wanted, encode},
    store::{BYTES_MAX, Condition, Op, Revision, Txn},
    view::View,
};

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
pub fn init(keys: &Keys, settings: &ClusterSettings) -> Result<Txn, Refused> {
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
    settings: &'a ClusterSettings,
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
