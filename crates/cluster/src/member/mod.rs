//! A host of the cluster: what it has read, what it wishes, and the rows that it follows.
//!
//! Problem. Hosts change the registry at the same time, answers are late or do not come, etcd may
//! be away for an hour, and the gangs of this host must go on all the while.
//!
//! Approach. A [`Member`] does no I/O. A driver reads the registry and hands it on
//! ([`Member::read`], [`Member::watched`]), does what [`Member::next`] says, one thing at a time,
//! and returns what became of it. The rows that this host follows come from [`Member::timeline`],
//! which needs nobody: without a registry the last matrix goes on.
//!
//! Terms.
//! - *wish*: something that a user or the daemon wants changed; wishes are granted in their order.
//! - *ticket*: the number of a wish, by which its answer is known.
//! - *first slice*: the first one that this host has not planned yet.
//! - *nonce*: what the host calls its own job, before the registry has given it a number.
//!
//! Algorithm.
//! 1. A wish is worked out from what was read ([`crate::change::draft`]). A conflict means that
//!    another host was first: once its change was read, the wish is worked out anew. Each conflict
//!    makes the host wait a little longer.
//! 2. Where no answer came, the wish waits until the registry was read again. Wishes that were
//!    granted are then found to be so, and change nothing.
//! 3. Wishes are refused while the registry cannot be reached, those in flight after [`WAIT_NS`].
//! 4. One member adjusts: it holds the adjuster's key by its lease, and tends the matrix now and
//!    then (L16).
//! 5. A host whose clock is too bad for the slice follows no rows, changes nothing, and says so
//!    (L13).
//! 6. Records of this host's jobs that no longer exist are removed, whichever answer was lost. A
//!    job that has ended here exists while another host says that it has a part of it, or is away
//!    and not lost yet. Its record is written anew, as a question: a host whose key does not say
//!    that it has read so far says nothing of the job. The longer that takes, the more seldom the
//!    others are asked. A job that was killed exists until hosts that are lost are back, or have
//!    left: they have to kill their parts.
//!
//! Properties: the timeline depends only on the changes of the matrix that were read and on when,
//! not on the way in which they were read; each wish has one answer; nothing is sent while
//! something is in flight.

mod judge;
mod next;
mod overview;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gang_schedule::matrix::HostId;
use gang_schedule::{JobId, Slot, clock};

use crate::change::{Granted, Refused, Wish, far_slices};
use crate::keys::Keys;
use crate::record::{Alive, Clock, Fault, State};
use crate::store::{Bound, Event, Outcome, Revision, Snapshot, Txn};
use crate::timeline::{Step, Timeline};
use crate::view::View;

pub use overview::{HostSeen, JobSeen, Overview};

/// The number of a wish.
pub type Ticket = u64;

/// A wish whose transaction was not answered is given up after this time.
pub const WAIT_NS: u64 = 5_000_000_000;
/// The longest wait after the first conflict of a wish; it doubles with each.
const BACKOFF_NS: u64 = 2_000_000;
/// Between two readings of the hosts that are alive that are further apart, a host that is away in
/// both may have been there.
const BREAK_NS: u64 = 60_000_000_000;
/// The most wishes that wait.
const WISHES_MAX: usize = 256;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// UTC, by which slices are counted. It may be set.
    pub utc_ns: u64,
    /// It never goes back, and means something on this host alone.
    pub monotonic_ns: u64,
}

/// This host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub cpus: u32,
    /// The kernel's numbers of these, in the order of the columns: `0,2,1,3`.
    pub numbers: String,
    /// The machine id.
    pub machine: String,
    /// The same for hosts that share one kernel.
    pub boot: String,
    /// The length of this host's slices; the cluster's must be the same.
    pub slice_ns: u64,
    /// The clock may be off by this part of a slice, in percent.
    pub clock_percent: u32,
}

/// The state of this host, as its daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub clock: Clock,
    pub threads: u32,
    /// By account ([`crate::record::Users::account`]).
    pub of_users: BTreeMap<u32, u32>,
    /// Spanning jobs that have processes here.
    pub parts: Vec<JobId>,
    /// Those of which all processes that they await here have come.
    pub complete: BTreeSet<JobId>,
    /// Why spanning jobs are not here as they are wanted.
    pub missing: BTreeMap<JobId, String>,
    /// The nonces of the jobs that were registered here and have not ended, and of those that are
    /// being registered.
    pub nonces: BTreeSet<String>,
}

/// The next thing that the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read the registry whole, then watch it from the next revision on.
    Read,
    /// Read the keys of all hosts that are alive.
    ReadAlive,
    /// Commit a transaction.
    Commit(Txn),
    /// Write the key of this host, with its lease.
    Announce { key: String, value: String },
}

/// Something to be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A change came so many slices late; the host keeps to what it had until it joined.
    Late { revision: Revision, slices: u64 },
    /// Why the host follows no rows from now on; None where it does again.
    Unwilling(Option<String>),
    /// A wish of the host itself was refused, for another reason than the last one.
    Refused(Refused),
    /// Records that cannot be used: key and reason.
    Fault { key: String, why: String },
}

/// The link of this host to the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Link {
    /// Nobody reaches it.
    Away,
    /// It is being read.
    Reading,
    Up,
}

/// A wish that is to be worked out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    /// None for a wish of the host itself.
    ticket: Option<Ticket>,
    wish: Wish,
    /// It was sent before, and no answer came.
    is_unknown: bool,
    /// How often another host was first.
    conflicts: u32,
    /// The nonce of the job that it was sent for: the number may be another's afterwards.
    nonce: Option<String>,
    /// A host that it needs is away: it is waited for until then, and not looked for before.
    waits_for_host_until_ns: Option<u64>,
    not_before_ns: u64,
}

/// A wish that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flight {
    of: Waiting,
    granted: Granted,
    since_ns: u64,
    /// Its outcome does not come any more.
    is_unanswered: bool,
}

/// The end of a job on this host, as it was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ended {
    since_ns: u64,
    /// The revision that was read by then.
    read: Revision,
}

impl Waiting {
    /// A wish of the host itself.
    fn own(wish: Wish) -> Waiting {
        Waiting {
            ticket: None,
            wish,
            is_unknown: false,
            conflicts: 0,
            nonce: None,
            waits_for_host_until_ns: None,
            not_before_ns: 0,
        }
    }
}

/// A host of the cluster.
#[derive(Debug, Clone)]
pub struct Member {
    me: Identity,
    view: View,
    link: Link,
    alive: BTreeMap<String, Alive>,
    /// When these were read: the question, and the answer.
    asked_ns: Option<u64>,
    alive_ns: Option<u64>,
    /// When they were asked for last, answered or not.
    asks_ns: u64,
    /// They are to be read before the next wish that needs them.
    alive_is_old: bool,
    wishes: VecDeque<Waiting>,
    last_ticket: Ticket,
    flight: Option<Flight>,
    /// The next wish is worked out once this revision was read.
    read_first: Revision,
    /// Somebody looks at the cluster.
    is_looked_at: bool,
    /// Something that is no transaction is being done.
    is_busy: bool,
    answers: Vec<(Ticket, Result<Granted, Refused>)>,
    notes: Vec<Note>,
    timeline: Timeline,
    /// The state of the matrix that the timeline followed last, and its revision.
    followed: Option<(State, Revision)>,
    seen: Option<Observation>,
    unwilling: Option<String>,
    /// It counts slices wrongly: nothing that it changes could name one.
    is_out_of_time: bool,
    /// This daemon has read its own boot in the record of this host, since all was read.
    has_joined: bool,
    /// Another machine has the name of this one in the cluster.
    is_another: bool,
    announced: Option<(u64, Alive)>,
    /// The longest that a change took since the last announcement.
    took_ns: u64,
    /// The last time that there was nothing to tend.
    tended_ns: Option<u64>,
    /// Jobs that were registered here and have ended here.
    ended: BTreeMap<JobId, Ended>,
    /// Since when each host is away, as this one has seen it without a break.
    missing: BTreeMap<String, u64>,
    /// The next wish waits until then: others were first.
    waits_until_ns: u64,
    last_refused: Option<Refused>,
    /// A wish of this host itself was refused then.
    refused_ns: Option<u64>,
    wants_in: bool,
}

impl Member {
    pub fn new(me: Identity, keys: Keys) -> Member {
        Member {
            me,
            view: View::new(keys),
            link: Link::Away,
            alive: BTreeMap::new(),
            asked_ns: None,
            alive_ns: None,
            asks_ns: 0,
            alive_is_old: false,
            wishes: VecDeque::new(),
            last_ticket: 0,
            flight: None,
            read_first: 0,
            is_looked_at: false,
            is_busy: false,
            answers: Vec::new(),
            notes: Vec::new(),
            timeline: Timeline::default(),
            followed: None,
            seen: None,
            unwilling: None,
            is_out_of_time: false,
            has_joined: false,
            is_another: false,
            announced: None,
            took_ns: 0,
            tended_ns: None,
            ended: BTreeMap::new(),
            missing: BTreeMap::new(),
            waits_until_ns: 0,
            last_refused: None,
            refused_ns: None,
            wants_in: true,
        }
    }

    /// Keeps so much of the registry at most. Nothing was read yet.
    pub fn keep_at_most(&mut self, bound: Bound) {
        self.view = View::bounded(self.view.keys().clone(), bound);
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The steps that this host follows. It has no slots in those of other columns than its own,
    /// and none at all while its slices are not the cluster's.
    pub fn followed(&self) -> impl Iterator<Item = (&Step, bool)> {
        let is_in = !self.is_out_of_time && !self.is_another;
        let follows = move |step: &Step| is_in && step.columns == self.me.cpus;
        self.timeline.steps().iter().map(move |step| (step, follows(step)))
    }

    /// The slots of spanning jobs on this host in a slice: columns, by job.
    pub fn slots(&self, slice: u64) -> Vec<Slot> {
        let step = self.timeline.at(slice).filter(|_| !self.is_out_of_time && !self.is_another);
        // Those of as many CPUs as there are: columns may be others until a change holds.
        let step = step.filter(|step| step.columns == self.me.cpus);
        step.map_or_else(Vec::new, |step| step.slots(slice))
    }

    /// The hosts that are alive, as far as this one knows.
    pub fn alive(&self) -> &BTreeMap<String, Alive> {
        &self.alive
    }

    /// Whether the registry can be reached.
    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// This host is the one that adjusts.
    pub fn is_adjuster(&self) -> bool {
        self.view.adjuster() == Some(&self.me.name)
    }

    /// Why this host follows no rows, if so.
    pub fn unwilling(&self) -> Option<&str> {
        self.unwilling.as_deref()
    }

    /// This host in the matrix.
    pub fn host(&self) -> Option<HostId> {
        let of_me = self.view.hosts().get(&self.me.name);
        of_me.filter(|host| host.machine == self.me.machine).map(|host| HostId(host.number))
    }

    /// The answers since the last call.
    pub fn take_answers(&mut self) -> Vec<(Ticket, Result<Granted, Refused>)> {
        std::mem::take(&mut self.answers)
    }

    /// The notes since the last call, to be logged.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// A wish; its answer comes later.
    pub fn wish(&mut self, wish: Wish) -> Ticket {
        self.last_ticket += 1;
        if self.link == Link::Away {
            self.answers.push((self.last_ticket, Err(Refused::Unreachable)));
        } else if self.wishes.len() >= WISHES_MAX {
            self.answers.push((self.last_ticket, Err(Refused::Busy(WISHES_MAX))));
        } else {
            match wish {
                Wish::Leave { .. } => self.wants_in = false,
                Wish::Join { .. } => self.wants_in = true,
                _ => {}
            }
            let ticket = Some(self.last_ticket);
            self.wishes.push_back(Waiting { ticket, ..Waiting::own(wish) });
        }
        self.last_ticket
    }

    /// The registry was read whole. `first` is the first slice that is not planned yet.
    pub fn read(&mut self, now: Now, first: u64, snapshot: &Snapshot) {
        let faults = self.faults();
        self.view.read(snapshot);
        (self.link, self.is_busy, self.announced) = (Link::Up, false, None);
        // A registry that was restored has smaller revisions than those that it has answered.
        (self.read_first, self.missing) = (0, BTreeMap::new());
        if let Some(mut flight) = self.flight.take() {
            flight.of.is_unknown = true;
            self.wishes.push_front(flight.of);
        }
        // A wish to leave that was given up did nothing.
        let is_leaving = self.wishes.iter().any(|of| of.wish.is_leave());
        self.wants_in |= self.host().is_some() && !is_leaving;
        self.note_faults(&faults);
        (self.has_joined, self.is_another) = (false, false);
        self.judge();
        // Others, who have read the same change before, follow what is beside it with the next one.
        let state = self.view.state().map(|(state, at)| (state.clone(), at));
        if self.followed != state || self.timeline.steps().is_empty() {
            self.follow(now, first, false);
        }
    }

    /// An earlier daemon of this host has followed these steps. They hold until the registry is
    /// read.
    pub fn remember(&mut self, timeline: Timeline) {
        if self.timeline.steps().is_empty() {
            self.timeline = timeline;
        }
    }

    /// A revision changed these keys.
    pub fn watched(&mut self, now: Now, first: u64, revision: Revision, events: &[Event]) {
        if self.link != Link::Up || revision <= self.view.revision() {
            return;
        }
        let faults = self.faults();
        let change = self.view.state().map(|(state, _)| state.change);
        self.view.follow(revision, events);
        self.note_faults(&faults);
        self.judge();
        if !self.view.is_within_bound() {
            // The next reading fails with the reason, and others follow no more of it either.
            self.link = Link::Reading;
        }
        if self.view.state().map(|(state, _)| state.change) != change {
            self.follow(now, first, true);
        } else if let Some(((followed, at), (state, modified))) =
            self.followed.as_mut().zip(self.view.state())
        {
            if followed == state {
                *at = modified;
            }
        }
    }

    /// The registry cannot be reached any more. The rows go on.
    pub fn lost(&mut self) {
        self.link = Link::Away;
        self.is_busy = false;
        (self.asked_ns, self.alive_ns, self.missing) = (None, None, BTreeMap::new());
        // Other hosts come back as well, and have to have the time to say what they have.
        self.ended.clear();
        if let Some(flight) = &mut self.flight {
            flight.is_unanswered = true;
        }
        for of in std::mem::take(&mut self.wishes) {
            self.wants_in |= of.wish.is_leave() && !of.is_unknown;
            let why = if of.is_unknown { Refused::Unanswered } else { Refused::Unreachable };
            self.answer(of.ticket, Err(why));
        }
    }

    /// The clock of this host was set back: `first` is the first slice that is planned now. Changes
    /// that name later slices wait for these again.
    pub fn clock_was_set_back(&mut self, first: u64) {
        self.timeline.set_back(first, far_slices(self.me.slice_ns));
    }

    /// The registry can be reached: it is to be read.
    pub fn is_reachable(&mut self) {
        if self.link == Link::Away {
            self.link = Link::Reading;
        }
    }

    /// Revisions were compacted before they were read: all is to be read anew.
    pub fn is_stale(&mut self) {
        if self.link == Link::Up {
            self.link = Link::Reading;
        }
    }

    /// The keys of the hosts that are alive were read.
    pub fn read_alive(&mut self, now: Now, alive: BTreeMap<String, Alive>) {
        let now_ns = now.monotonic_ns;
        // A host that was away long ago may have been back meanwhile.
        if self.alive_ns.is_none_or(|at_ns| now_ns >= at_ns + BREAK_NS) {
            self.missing.clear();
        }
        let hosts = self.view.hosts().keys().filter(|name| !alive.contains_key(*name));
        let since = |name: &String| self.missing.get(name).copied().unwrap_or(now_ns);
        self.missing = hosts.map(|name| (name.clone(), since(name))).collect();
        (self.asked_ns, self.alive_ns) = (Some(self.asks_ns), Some(now_ns));
        (self.alive, self.is_busy, self.is_looked_at) = (alive, false, false);
        self.alive_is_old = false;
    }

    /// This host's key was written, or not.
    pub fn announced(&mut self) {
        self.is_busy = false;
    }

    /// The lease of this host has ended: its keys are gone.
    pub fn lease_ended(&mut self) {
        self.announced = None;
    }

    /// The outcome of a transaction came.
    pub fn committed(&mut self, now: Now, outcome: &Outcome) {
        let Some(mut flight) = self.flight.take() else { return };
        match outcome {
            Outcome::Committed(revision) => {
                self.read_first = self.read_first.max(*revision);
                self.answer(flight.of.ticket, Ok(flight.granted));
            }
            Outcome::Conflict(revision) => {
                self.read_first = self.read_first.max(*revision);
                flight.of.conflicts += 1;
                self.waits_until_ns = now.monotonic_ns + self.backoff_ns(flight.of.conflicts);
                self.wishes.push_front(flight.of);
            }
            Outcome::Refused(why) => self.refuse(now, flight.of, Refused::Store(why.clone())),
            Outcome::Unknown => {
                flight.is_unanswered = true;
                self.flight = Some(flight);
                self.link = Link::Reading;
            }
        }
    }

    /// The wait after so many conflicts of a wish. Hosts wait differently long.
    fn backoff_ns(&self, conflicts: u32) -> u64 {
        let bytes = self.me.name.bytes().chain(conflicts.to_le_bytes());
        // FNV-1a.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, mix);
        (hash >> 32) % (BACKOFF_NS << conflicts.min(9))
    }

    fn refuse(&mut self, now: Now, of: Waiting, why: Refused) {
        if of.ticket.is_none() {
            self.refused_ns = Some(now.monotonic_ns);
            if self.last_refused.as_ref() != Some(&why) {
                self.notes.push(Note::Refused(why.clone()));
            }
            self.last_refused = Some(why);
        } else {
            // An earlier try may have been committed.
            let why = if of.is_unknown { Refused::Unanswered } else { why };
            self.wants_in |= of.wish.is_leave() && why != Refused::Unanswered;
            self.answer(of.ticket, Err(why));
        }
    }

    /// This host looked at itself. A clock that is too bad ends the rows from the next slice on.
    pub fn see(&mut self, seen: Observation) {
        self.seen = Some(seen);
        self.judge();
    }

    fn answer(&mut self, ticket: Option<Ticket>, answer: Result<Granted, Refused>) {
        self.answers.extend(ticket.map(|ticket| (ticket, answer)));
    }

    /// The timeline goes on with what was read; while settings or state cannot be used, as it was.
    fn follow(&mut self, now: Now, first: u64, is_new: bool) {
        self.timeline.forget(first);
        if self.view.fault_of_all().is_some() {
            return;
        }
        // A host that leaves follows its rows until that holds.
        let host = self.host();
        if host.is_none() && self.timeline.steps().is_empty() {
            return;
        }
        let state = self.view.state().map(|(state, _)| state);
        let from_slice = state.map_or(first, |state| state.from_slice);
        let step = Step::of(&self.view, host, from_slice);
        if let Some((state, matrix)) = state.zip(self.view.matrix()).filter(|_| is_new) {
            if from_slice < first {
                let (revision, slices) = (self.view.revision(), first - from_slice);
                self.notes.push(Note::Late { revision, slices });
            }
            let config = matrix.config();
            let committed_ns = clock::slice_start(config, from_slice).saturating_sub(state.lead_ns);
            let ready_ns = clock::slice_start(config, first).max(now.utc_ns);
            let took_ns = ready_ns.saturating_sub(committed_ns).min(*State::LEAD_NS.end());
            self.took_ns = self.took_ns.max(took_ns);
        }
        // A registry that was restored gives the numbers of changes again: one that says the same
        // may hold earlier.
        let is_known =
            |last: &Step| last.says_as(&step) && last.from_slice <= step.from_slice.max(first);
        self.followed = state.zip(self.view.state()).map(|(state, (_, at))| (state.clone(), at));
        if !self.timeline.steps().last().is_some_and(is_known) {
            self.timeline.push(step, first);
        }
    }

    fn faults(&self) -> BTreeMap<String, Fault> {
        self.view.faults().map(|(key, fault)| (key.to_owned(), fault.clone())).collect()
    }

    fn note_faults(&mut self, before: &BTreeMap<String, Fault>) {
        let new = self.view.faults().filter(|(key, fault)| before.get(*key) != Some(fault));
        let note = |(key, fault): (&str, &Fault)| Note::Fault {
            key: key.to_owned(),
            why: fault.to_string(),
        };
        self.notes.extend(new.map(note).collect::<Vec<_>>());
    }
}
