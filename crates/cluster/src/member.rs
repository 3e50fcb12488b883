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
//!
//! Algorithm.
//! 1. A wish is worked out from what was read ([`change::draft`]). A conflict means that another
//!    host was first: once its change was read, the wish is worked out anew.
//! 2. Where no answer came, the wish waits until the registry was read again. Wishes that were
//!    granted are then found to be so, and change nothing.
//! 3. Wishes are refused while the registry cannot be reached, those in flight after [`WAIT_NS`].
//! 4. One member adjusts: it holds the adjuster's key by its lease, and tends the matrix now and
//!    then (L16).
//! 5. A host whose clock is too bad for the slice follows no rows, and says so (L13).
//!
//! Properties: the timeline depends only on revisions that were read and on when; each wish has one
//! answer; nothing is sent while something is in flight.

use std::collections::{BTreeMap, VecDeque};

use gang_schedule::matrix::{HostId, Matrix};
use gang_schedule::{JobId, Slot, clock};

use crate::change::{self, Draft, From, Granted, Refused, Wish};
use crate::keys::Keys;
use crate::record::{Alive, Clock, encode};
use crate::store::{Event, Outcome, Revision, Snapshot, Txn};
use crate::timeline::{Step, Timeline};
use crate::view::View;

/// The number of a wish.
pub type Ticket = u64;

/// A wish whose transaction was not answered is given up after this time.
pub const WAIT_NS: u64 = 5_000_000_000;
/// What is known of hosts that are alive is read anew when it is older.
const ALIVE_NS: u64 = 5_000_000_000;
/// A host says that it is alive so often at least, and twice a second at most.
const ANNOUNCE_NS: (u64, u64) = (500_000_000, 10_000_000_000);
/// The host that adjusts looks at all others so often.
const TEND_NS: u64 = 10_000_000_000;
/// A wish of the host itself that was refused comes again after this time.
const RETRY_NS: u64 = 2_000_000_000;
/// A clock may be off by this part of a slice.
const CLOCK_PART: u64 = 20;

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
pub struct Me {
    pub name: String,
    pub cpus: u32,
    /// The machine id.
    pub machine: String,
    /// The same for hosts that share one kernel.
    pub boot: String,
    /// The length of this host's slices; the cluster's must be the same.
    pub slice_ns: u64,
}

/// What the host sees of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub clock: Clock,
    pub threads: u32,
    pub of_users: BTreeMap<u32, u32>,
    /// Spanning jobs that have processes here.
    pub parts: Vec<JobId>,
}

/// The next thing that the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
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
    /// Records that cannot be used: key and reason.
    Fault { key: String, why: String },
}

/// What the host is doing with the registry.
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
    /// It was sent, and no answer came.
    is_unknown: bool,
}

/// A wish that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flight {
    of: Waiting,
    granted: Granted,
    since_ns: u64,
}

impl Waiting {
    /// A wish of the host itself.
    fn own(wish: Wish) -> Waiting {
        Waiting { ticket: None, wish, is_unknown: false }
    }
}

/// A host of the cluster.
#[derive(Debug, Clone)]
pub struct Member {
    me: Me,
    view: View,
    link: Link,
    alive: BTreeMap<String, Alive>,
    alive_ns: Option<u64>,
    wishes: VecDeque<Waiting>,
    last_ticket: Ticket,
    flight: Option<Flight>,
    /// The next wish is worked out once this revision was read.
    read_first: Revision,
    /// Something that is no transaction is being done.
    is_busy: bool,
    answers: Vec<(Ticket, Result<Granted, Refused>)>,
    notes: Vec<Note>,
    timeline: Timeline,
    seen: Option<Seen>,
    unwilling: Option<String>,
    announced: Option<(u64, Alive)>,
    /// The longest that a change took since the last announcement.
    took_ns: u64,
    tended_ns: u64,
    /// A wish of this host itself was refused then.
    refused_ns: Option<u64>,
    wants_in: bool,
}

impl Member {
    pub fn new(me: Me, keys: Keys) -> Member {
        Member {
            me,
            view: View::new(keys),
            link: Link::Away,
            alive: BTreeMap::new(),
            alive_ns: None,
            wishes: VecDeque::new(),
            last_ticket: 0,
            flight: None,
            read_first: 0,
            is_busy: false,
            answers: Vec::new(),
            notes: Vec::new(),
            timeline: Timeline::default(),
            seen: None,
            unwilling: None,
            announced: None,
            took_ns: 0,
            tended_ns: 0,
            refused_ns: None,
            wants_in: true,
        }
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The slots of spanning jobs on this host in a slice: columns, by job.
    pub fn slots(&self, slice: u64) -> Vec<Slot> {
        let config = self.view.matrix().map(Matrix::config);
        let step = self.timeline.at(slice).filter(|_| self.unwilling.is_none());
        config.zip(step).map_or_else(Vec::new, |(config, step)| step.slots(config, slice))
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

    /// What is to be logged since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// A wish; its answer comes later.
    pub fn wish(&mut self, wish: Wish) -> Ticket {
        self.last_ticket += 1;
        if self.link == Link::Away {
            self.answers.push((self.last_ticket, Err(Refused::Unreachable)));
        } else {
            let ticket = Some(self.last_ticket);
            self.wishes.push_back(Waiting { ticket, wish, is_unknown: false });
        }
        self.last_ticket
    }

    /// The registry was read whole. `first` is the first slice that is not planned yet.
    pub fn read(&mut self, now: Now, first: u64, snapshot: &Snapshot) {
        let before = self.view.state().map(|(state, _)| state.change);
        self.view.read(snapshot);
        (self.link, self.is_busy, self.announced) = (Link::Up, false, None);
        if let Some(flight) = self.flight.take() {
            self.wishes.push_front(flight.of);
        }
        self.note_faults(&BTreeMap::new());
        let is_other = before != self.view.state().map(|(state, _)| state.change);
        if is_other || self.timeline.steps().is_empty() {
            self.follow(now, first, false);
        }
    }

    /// A revision changed these keys.
    pub fn watched(&mut self, now: Now, first: u64, revision: Revision, events: &[Event]) {
        if self.link != Link::Up || revision <= self.view.revision() {
            return;
        }
        let faults = self.view.faults().clone();
        let change = self.view.state().map(|(state, _)| state.change);
        self.view.follow(revision, events);
        self.note_faults(&faults);
        if self.view.state().map(|(state, _)| state.change) != change {
            self.follow(now, first, true);
        }
    }

    /// The registry cannot be reached any more. The rows go on.
    pub fn lost(&mut self) {
        self.link = Link::Away;
        self.is_busy = false;
        self.alive_ns = None;
        if let Some(flight) = &mut self.flight {
            flight.of.is_unknown = true;
        }
        for of in std::mem::take(&mut self.wishes) {
            let why = if of.is_unknown { Refused::Unanswered } else { Refused::Unreachable };
            self.answer(of.ticket, Err(why));
        }
    }

    /// The registry can be reached: it is to be read.
    pub fn found(&mut self) {
        if self.link == Link::Away {
            self.link = Link::Reading;
        }
    }

    /// The keys of the hosts that are alive were read.
    pub fn read_alive(&mut self, now: Now, alive: BTreeMap<String, Alive>) {
        (self.alive, self.alive_ns, self.is_busy) = (alive, Some(now.monotonic_ns), false);
    }

    /// This host's key was written, or not.
    pub fn announced(&mut self) {
        self.is_busy = false;
    }

    /// The lease of this host has ended: its keys are gone.
    pub fn lease_ended(&mut self) {
        self.announced = None;
    }

    /// What became of a transaction.
    pub fn committed(&mut self, now: Now, outcome: &Outcome) {
        let Some(mut flight) = self.flight.take() else { return };
        match outcome {
            Outcome::Committed(revision) => {
                self.read_first = self.read_first.max(*revision);
                self.wants_in = match flight.of.wish {
                    Wish::Leave => false,
                    Wish::Join { .. } => true,
                    _ => self.wants_in,
                };
                self.answer(flight.of.ticket, Ok(flight.granted));
            }
            Outcome::Conflict(revision) => {
                self.read_first = self.read_first.max(*revision);
                self.wishes.push_front(flight.of);
            }
            Outcome::Refused(why) => {
                let is_own = flight.of.ticket.is_none();
                self.refused_ns = is_own.then_some(now.monotonic_ns).or(self.refused_ns);
                self.answer(flight.of.ticket, Err(Refused::Store(why.clone())));
            }
            Outcome::Unknown => {
                flight.of.is_unknown = true;
                self.flight = Some(flight);
                self.link = Link::Reading;
            }
        }
    }

    /// What the host sees of itself. A clock that is too bad ends the rows from the next slice on.
    pub fn see(&mut self, seen: Seen) {
        let bound_ns = seen.clock.bound_ns;
        self.seen = Some(seen);
        let longest_ns = self.me.slice_ns / CLOCK_PART;
        let by_clock = (bound_ns > longest_ns).then(|| {
            format!(
                "its clock may be {} µs off, and {} µs are the most for slices of {} ms",
                bound_ns / 1_000,
                longest_ns / 1_000,
                self.me.slice_ns as f64 / 1e6
            )
        });
        let of_cluster = self.view.settings().map(|settings| settings.slice_ns);
        let by_slice =
            of_cluster.filter(|&slice_ns| slice_ns != self.me.slice_ns).map(|slice_ns| {
                let (here, there) = (self.me.slice_ns as f64 / 1e6, slice_ns as f64 / 1e6);
                format!("its slices are {here} ms long, and those of the cluster {there} ms")
            });
        let unwilling = by_slice.or(by_clock);
        if unwilling != self.unwilling {
            if unwilling.is_some() != self.unwilling.is_some() {
                self.notes.push(Note::Unwilling(unwilling.clone()));
            }
            self.unwilling = unwilling;
        }
    }

    /// The next thing to do, if any.
    pub fn next(&mut self, now: Now) -> Option<Do> {
        let now_ns = now.monotonic_ns;
        self.give_up(now_ns);
        if self.is_busy || self.flight.as_ref().is_some_and(|it| !it.of.is_unknown) {
            return None;
        }
        match self.link {
            Link::Away => None,
            Link::Reading => {
                self.is_busy = true;
                Some(Do::Read)
            }
            Link::Up => self.announce(now_ns).or_else(|| self.change(now)),
        }
    }

    /// A wish that was not answered for long is done, or not.
    fn give_up(&mut self, now_ns: u64) {
        let is_over = |flight: &Flight| flight.of.is_unknown && flight.since_ns + WAIT_NS <= now_ns;
        if let Some(flight) = self.flight.take_if(|flight| is_over(flight)) {
            self.answer(flight.of.ticket, Err(Refused::Unanswered));
        }
    }

    fn answer(&mut self, ticket: Option<Ticket>, answer: Result<Granted, Refused>) {
        self.answers.extend(ticket.map(|ticket| (ticket, answer)));
    }

    /// The key that says that this host is alive, where it is to be written.
    fn announce(&mut self, now_ns: u64) -> Option<Do> {
        let (seen, host) = (self.seen.as_ref()?, self.host());
        let read = self.view.revision();
        let alive = Alive {
            boot: self.me.boot.clone(),
            read,
            clock: seen.clock.clone(),
            threads: seen.threads,
            of_users: seen.of_users.clone(),
            took_ns: self.took_ns,
            unwilling: self.unwilling.clone(),
            parts: seen.parts.iter().map(|job| job.0).collect(),
        };
        host?;
        let is_due = match &self.announced {
            None => true,
            Some((at_ns, before)) => {
                let (least_ns, most_ns) = ANNOUNCE_NS;
                let is_other = before.unwilling != alive.unwilling
                    || before.parts != alive.parts
                    || before.took_ns < alive.took_ns;
                now_ns >= at_ns + if is_other { least_ns } else { most_ns }
            }
        };
        if !is_due {
            return None;
        }
        let key = self.view.keys().alive(&self.me.name);
        let value = encode(&alive);
        (self.announced, self.took_ns, self.is_busy) = (Some((now_ns, alive)), 0, true);
        Some(Do::Announce { key, value })
    }

    /// The next wish as a transaction.
    fn change(&mut self, now: Now) -> Option<Do> {
        let now_ns = now.monotonic_ns;
        if self.view.revision() < self.read_first || self.flight.is_some() {
            return None;
        }
        self.wish_for_itself(now_ns);
        while let Some(of) = self.wishes.pop_front() {
            let is_known = self.alive_ns.is_some_and(|at_ns| now_ns < at_ns + ALIVE_NS);
            let needs_alive = matches!(of.wish, Wish::Register(_) | Wish::Tend);
            if needs_alive && !is_known {
                self.wishes.push_front(of);
                self.is_busy = true;
                return Some(Do::ReadAlive);
            }
            let (view, alive, host) = (&self.view, &self.alive, self.me.name.as_str());
            let from = From { view, alive, host, now_ns: now.utc_ns };
            match change::draft(from, &of.wish) {
                Ok(Draft { txn, granted }) if txn.ops.is_empty() => {
                    self.answer(of.ticket, Ok(granted));
                }
                Ok(Draft { txn, granted }) => {
                    self.flight = Some(Flight { of, granted, since_ns: now_ns });
                    return Some(Do::Commit(txn));
                }
                Err(why) => {
                    self.refused_ns = of.ticket.is_none().then_some(now_ns).or(self.refused_ns);
                    self.answer(of.ticket, Err(why));
                }
            }
        }
        None
    }

    /// The wishes that nobody asked for.
    fn wish_for_itself(&mut self, now_ns: u64) {
        let has_to_wait = self.refused_ns.is_some_and(|at_ns| now_ns < at_ns + RETRY_NS);
        let can = self.view.settings().is_some() && self.wants_in && !has_to_wait;
        if !self.wishes.is_empty() || !can {
            return;
        }
        let of_me = self.view.hosts().get(&self.me.name);
        if of_me.is_none_or(|host| host.cpus != self.me.cpus && self.host().is_some()) {
            let Me { cpus, machine, .. } = self.me.clone();
            self.wishes.push_back(Waiting::own(Wish::Join { cpus, machine }));
        } else if self.view.adjuster().is_none() && self.host().is_some() {
            self.wishes.push_back(Waiting::own(Wish::Elect));
        } else if self.is_adjuster() && now_ns >= self.tended_ns + TEND_NS {
            self.tended_ns = now_ns;
            self.wishes.push_back(Waiting::own(Wish::Tend));
        }
    }

    /// The timeline goes on with what was read.
    fn follow(&mut self, now: Now, first: u64, is_new: bool) {
        // A host that leaves follows its rows until that holds.
        let host = self.host();
        if host.is_none() && self.timeline.steps().is_empty() {
            return;
        }
        let Some((state, _)) = self.view.state() else { return };
        let from_slice = state.from_slice;
        if is_new {
            if from_slice < first {
                let (revision, slices) = (self.view.revision(), first - from_slice);
                self.notes.push(Note::Late { revision, slices });
            }
            let Some(matrix) = self.view.matrix() else { return };
            let committed_ns =
                clock::slice_start(matrix.config(), from_slice).saturating_sub(state.lead_ns);
            let ready_ns = clock::slice_start(matrix.config(), first).max(now.utc_ns);
            self.took_ns = self.took_ns.max(ready_ns.saturating_sub(committed_ns));
        }
        let step = Step::of(&self.view, host, from_slice);
        self.timeline.push(step, first);
    }

    fn note_faults(&mut self, before: &BTreeMap<String, crate::record::Fault>) {
        let new = self.view.faults().iter().filter(|(key, fault)| before.get(*key) != Some(fault));
        let notes =
            new.map(|(key, fault)| Note::Fault { key: key.clone(), why: fault.to_string() });
        self.notes.extend(notes);
    }
}
