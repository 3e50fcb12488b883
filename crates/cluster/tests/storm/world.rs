//! Hosts, their clocks, their links to etcd, and what must hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use fastrand::Rng;
use gang_cluster::change::{By, Draft, Granted, Inputs, Refused, Wish, draft, init};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::member::{Identity, Member, Note, Now, Observation, Request, Ticket};
use gang_cluster::record::{
    Alive, Clock, ClusterSettings, Entries, Host, Job, OnHostLost, Owner, Users, Wanted, decode,
    numbers,
};
use gang_cluster::store::{Event, Op, Outcome, Revision, Txn};
use gang_cluster::timeline::{Step, Timeline};
use gang_cluster::view::View;
use gang_schedule::matrix::HostId;
use gang_schedule::{Config, CpuSet, JobId, Slot, clock};

use crate::etcd::Etcd;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SLICE_NS: u64 = 20 * MS;
/// A host plans so far ahead.
const AHEAD_NS: u64 = 50 * MS;
/// Events of a seed, and the time after them in which nothing more happens.
const EVENTS: u32 = 60;
const CALM_NS: u64 = 120 * SECOND;

/// The events of all seeds, counted.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Tally) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }

    /// Each of these happens in some seed.
    pub fn covers_all(&self) {
        for what in [
            "registered",
            "suspended",
            "resumed",
            "released",
            "killed",
            "removed",
            "weighed",
            "conflict",
            "unknown, done",
            "unknown, not done",
            "late",
            "unwilling",
            "compacted",
            "restored",
            "removed by itself",
            "waits for a part",
            "booted",
            "unanswered",
            "not here",
            "own wish refused",
            "full",
            "unreachable",
            "adjuster died",
            "moved",
            "newer",
            "corrupt",
            "corrupt for all",
            "other machine",
            "not owner",
            "away",
        ] {
            assert!(self.0.contains_key(what), "no seed has {what:?}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "{what}: {count}"))
    }
}

/// A change of the matrix: how often the registry had been restored, and its number.
type Change = (u64, u64);

/// A message on its way to a host.
#[derive(Debug)]
enum Mail {
    Outcome(Outcome),
    Alive(BTreeMap<String, Alive>),
    Announced,
}

struct Node {
    name: String,
    cpus: u32,
    member: Member,
    /// Its clock is so far from true time.
    offset_ns: i64,
    bound_ns: u64,
    /// Its kernel.
    boot: String,
    /// When it asked for the hosts that are alive, and how often.
    asked_ns: u64,
    asked_count: u64,
    /// The parts of jobs that it has said to have, and since when.
    said: BTreeMap<JobId, u64>,
    wakes_ns: u64,
    paused_until_ns: u64,
    /// Its link to etcd is cut.
    cut_until_ns: u64,
    is_connected: bool,
    lag_ns: u64,
    /// Revisions on their way, and when they arrive.
    watch: VecDeque<(u64, Revision, Vec<Event>)>,
    watched: Revision,
    mail: VecDeque<(u64, Mail)>,
    /// The first slice that is not planned.
    first: u64,
    /// The steps that it follows, each with the epoch in which it was read: a registry that was
    /// restored gives numbers of changes again.
    steps: Vec<(Step, u64)>,
    /// Those that it has followed lately.
    known: VecDeque<(Step, u64)>,
    /// When it has said last what it has.
    written_ns: u64,
    asked: BTreeMap<Ticket, Wish>,
    /// The jobs of this host that have not ended, as its daemon has them on file.
    nonces: BTreeSet<String>,
    threads: u32,
}

impl Node {
    /// The jobs of which all processes have come that they await here: of some they never do.
    fn complete(&self) -> BTreeSet<JobId> {
        let has_come = |job: &JobId| (job.0 + u64::from(self.cpus)) % 4 != 0;
        self.member.view().jobs().map(|(job, ..)| job).filter(has_come).collect()
    }

    /// The steps that it follows are noted after each reading, in this epoch.
    fn note_steps(&mut self, epoch: u64) {
        let is_it = |it: &Step, step: &Step| it.says_as(step) && it.named_slice == step.named_slice;
        let known = &self.known;
        let of = |step: &Step| {
            let before = known.iter().rev().find(|(it, _)| is_it(it, step));
            before.map_or(epoch, |it| it.1)
        };
        let steps = self.member.timeline().steps().iter();
        self.steps = steps.map(|step| (step.clone(), of(step))).collect();
        for step in &self.steps {
            if !self.known.iter().any(|(it, of)| is_it(it, &step.0) && *of == step.1) {
                self.known.push_back(step.clone());
            }
        }
        self.known.drain(..self.known.len().saturating_sub(100));
    }
}

struct World {
    rng: Rng,
    now_ns: u64,
    etcd: Etcd,
    down_until_ns: u64,
    keys: Keys,
    config: Config,
    hosts: Vec<Node>,
    /// Plans by slice: of each host the change that it follows, and its slots.
    plans: BTreeMap<u64, BTreeMap<String, (Change, Vec<Slot>)>>,
    /// The view of a reader of every revision.
    reference: View,
    /// The step that each host has to follow, by the change.
    steps: BTreeMap<Change, BTreeMap<String, Step>>,
    /// Jobs that were granted: the numbers by their nonces.
    granted: BTreeMap<String, JobId>,
    /// When jobs ended where they were registered, by their nonces.
    ended: BTreeMap<String, u64>,
    /// All hosts have one kernel, and one clock that is bad.
    is_one_kernel: bool,
    boots: u64,
    /// Jobs that were killed, and whose homes have left since.
    killed: BTreeSet<JobId>,
    backup: Etcd,
    epoch: u64,
    is_spoiled: bool,
    is_spoiled_for_all: bool,
    /// Jobs whose entries somebody else wrote.
    spoiled: BTreeSet<JobId>,
    tickets: u64,
    /// Nothing happens any more, and hosts wake seldom.
    is_calm: bool,
    tally: Tally,
    is_traced: bool,
}

pub fn run(seed: u64, is_traced: bool) -> Tally {
    let mut world = World::new(seed, is_traced);
    for _ in 0..EVENTS {
        let passes_ns = match world.rng.u32(0..20) {
            0 => world.rng.u64(0..20 * SECOND),
            1..8 => world.rng.u64(0..SECOND),
            _ => world.rng.u64(0..60 * MS),
        };
        world.pass(passes_ns);
        world.happen();
    }
    world.calm_down();
    world.tally
}

/// Time, after which a host that is gone counts as lost.
const LOST_AFTER_MS: u64 = 30_000;

/// Of half of the seeds users share, of the others programs do.
fn settings(seed: u64) -> ClusterSettings {
    ClusterSettings {
        id: "storm".to_owned(),
        slice_ns: SLICE_NS,
        rows: 16,
        by_program: seed % 2 == 1,
        users: Users::Name,
        lost_after_ms: LOST_AFTER_MS,
    }
}

impl World {
    fn new(seed: u64, is_traced: bool) -> World {
        let mut rng = Rng::with_seed(seed);
        let settings = settings(seed);
        let keys = Keys::new("storm").unwrap();
        let mut etcd = Etcd::default();
        let now_ns = 1_000_000 * SECOND + rng.u64(0..7_200) * SECOND;
        let made = etcd.commit(&keys, "", &init(&keys, &settings).unwrap(), now_ns);
        assert!(matches!(made, Outcome::Committed(_)));
        let again = etcd.commit(&keys, "", &init(&keys, &settings).unwrap(), now_ns);
        assert!(matches!(again, Outcome::Conflict(_)));
        let mut reference = View::new(keys.clone());
        reference.read(&etcd.snapshot(&keys.registry()));
        etcd.unread.clear();
        let hosts = if rng.u32(0..10) == 0 { rng.u32(10..50) } else { rng.u32(3..8) };
        let is_one_kernel = rng.u32(0..8) == 0;
        let mut world = World {
            now_ns,
            etcd,
            down_until_ns: 0,
            config: settings.config(),
            hosts: Vec::new(),
            plans: BTreeMap::new(),
            reference,
            steps: BTreeMap::new(),
            granted: BTreeMap::new(),
            ended: BTreeMap::new(),
            is_one_kernel,
            boots: 0,
            killed: BTreeSet::new(),
            backup: Etcd::default(),
            epoch: 0,
            is_spoiled: false,
            is_spoiled_for_all: false,
            spoiled: BTreeSet::new(),
            tickets: 0,
            is_calm: false,
            tally: Tally::default(),
            is_traced,
            keys,
            rng,
        };
        for host in 0..hosts {
            let cpus = world.rng.u32(1..9);
            let host = world.start(format!("host{host}"), cpus);
            world.hosts.push(host);
        }
        world.pass(5 * SECOND);
        world.backup = world.etcd.clone();
        world
    }

    fn start(&mut self, name: String, cpus: u32) -> Node {
        let offset_ns = self.rng.i64(-400_000..400_000);
        let boot = self.boot(&name);
        let member = self.member(&name, cpus, &format!("machine of {name}"), &boot);
        let now_ns = self.now_ns.saturating_add_signed(offset_ns);
        Node {
            name,
            cpus,
            member,
            offset_ns,
            bound_ns: self.bound_ns(false),
            boot,
            asked_ns: 0,
            asked_count: 0,
            said: BTreeMap::new(),
            wakes_ns: self.now_ns,
            paused_until_ns: 0,
            cut_until_ns: 0,
            is_connected: false,
            lag_ns: self.rng.u64(0..5 * MS),
            watch: VecDeque::new(),
            watched: 0,
            mail: VecDeque::new(),
            first: clock::slice_at(&self.config, now_ns + AHEAD_NS) + 1,
            steps: Vec::new(),
            known: VecDeque::new(),
            written_ns: 0,
            asked: BTreeMap::new(),
            nonces: BTreeSet::new(),
            threads: 0,
        }
    }

    /// The kernel that a host has now.
    fn boot(&self, name: &str) -> String {
        let of = if self.is_one_kernel { "all" } else { name };
        format!("{of}, {}", self.boots)
    }

    fn bound_ns(&self, is_bad: bool) -> u64 {
        if is_bad || self.is_one_kernel { 5 * MS } else { 500_000 }
    }

    fn member(&self, name: &str, cpus: u32, machine: &str, boot: &str) -> Member {
        let me = Identity {
            name: name.to_owned(),
            cpus,
            numbers: numbers(0..cpus),
            machine: machine.to_owned(),
            boot: boot.to_owned(),
            slice_ns: SLICE_NS,
            clock_percent: 5,
        };
        Member::new(me, self.keys.clone())
    }

    fn trace(&self, what: impl fmt::Display) {
        if self.is_traced {
            println!("{:.3} {what}", (self.now_ns % 100_000_000_000_000) as f64 / 1e9);
        }
    }

    /// Time passes: hosts wake, one after the other.
    fn pass(&mut self, passes_ns: u64) {
        let until_ns = self.now_ns + passes_ns;
        loop {
            let hosts = self.hosts.iter().enumerate();
            let next = hosts.map(|(at, host)| (host.wakes_ns.max(host.paused_until_ns), at)).min();
            let Some((wakes_ns, at)) = next.filter(|(wakes_ns, _)| *wakes_ns <= until_ns) else {
                break;
            };
            self.now_ns = self.now_ns.max(wakes_ns);
            if self.now_ns >= self.down_until_ns {
                self.etcd.expire(self.now_ns);
                self.check_registry();
            }
            self.wake(at);
        }
        self.now_ns = until_ns;
    }

    fn wake(&mut self, at: usize) {
        let tick_ms = if self.is_calm { 40..120 } else { 1..15 };
        let (now_ns, tick_ns) = (self.now_ns, self.rng.u64(tick_ms) * MS);
        let is_down = now_ns < self.down_until_ns;
        let registry = self.keys.registry();
        let host = &mut self.hosts[at];
        host.wakes_ns = now_ns + tick_ns;
        let local_ns = now_ns.saturating_add_signed(host.offset_ns);
        let local = Now { utc_ns: local_ns, monotonic_ns: now_ns };
        let is_cut = is_down || now_ns < host.cut_until_ns;
        if is_cut && host.is_connected {
            host.is_connected = false;
            (host.watch, host.mail) = (VecDeque::new(), VecDeque::new());
            host.member.lost();
        } else if !is_cut && !host.is_connected {
            host.is_connected = true;
            host.member.is_reachable();
        }
        if host.is_connected {
            if !self.etcd.keep_alive(&host.name, now_ns) {
                host.member.lease_ended();
            }
            match self.etcd.after(host.watched, &registry) {
                Some(later) => {
                    for (revision, events) in later {
                        host.watch.push_back((now_ns + host.lag_ns, revision, events));
                    }
                    host.watched = self.etcd.revision;
                }
                None if host.member.is_up() => {
                    self.tally.count("compacted");
                    host.watch.clear();
                    host.member.is_stale();
                }
                None => {}
            }
        }
        while host.watch.front().is_some_and(|(arrives_ns, ..)| *arrives_ns <= now_ns) {
            let Some((_, revision, events)) = host.watch.pop_front() else { break };
            host.member.watched(local, host.first, revision, &events);
            host.note_steps(self.epoch);
        }
        while host.mail.front().is_some_and(|(arrives_ns, _)| *arrives_ns <= now_ns) {
            match host.mail.pop_front() {
                Some((_, Mail::Outcome(outcome))) => {
                    if matches!(outcome, Outcome::Conflict(_)) {
                        self.tally.count("conflict");
                    }
                    host.member.committed(local, &outcome);
                }
                Some((_, Mail::Alive(alive))) => host.member.read_alive(local, alive),
                Some((_, Mail::Announced)) => host.member.announced(),
                None => {}
            }
        }
        // Parts of jobs that have ended elsewhere live on for a while.
        let has_part = |(job, name, record): (JobId, &str, &Job)| {
            let is_here = record.cpus.contains_key(&host.name) && name != host.name;
            let lives = (job.0 + host.cpus as u64) % 3 != 0;
            let lives_ns = [1, 3, 12, 40][job.0 as usize % 4] * SECOND;
            let ended_ns = self.ended.get(&record.nonce).map_or(u64::MAX, |at_ns| at_ns + lives_ns);
            (is_here && lives && now_ns < ended_ns).then_some(job)
        };
        let parts = host.member.view().jobs().filter_map(has_part).collect();
        let seen = Observation {
            clock: Clock { source: "chrony".into(), offset_ns: 0, bound_ns: host.bound_ns },
            threads: host.threads,
            of_users: BTreeMap::new(),
            parts,
            complete: host.complete(),
            missing: BTreeMap::new(),
            nonces: host.nonces.clone(),
        };
        host.member.see(seen);
        self.carry_out(at, local);
        self.plan(at, local_ns);
        self.listen(at);
    }

    /// Does what the member says, as long as it says something.
    fn carry_out(&mut self, at: usize, local: Now) {
        while let Some(what) = self.hosts[at].member.next(local) {
            let name = self.hosts[at].name.clone();
            if !self.hosts[at].is_connected {
                panic!("{name} does {what:?} without a link");
            }
            let is_slow = self.rng.u32(0..50) == 0;
            let late_ms = if is_slow { self.rng.u64(0..8_000) } else { self.rng.u64(0..8) };
            let arrives_ns = self.now_ns + late_ms * MS;
            match what {
                Request::Read => {
                    let snapshot = self.etcd.snapshot(&self.keys.registry());
                    let host = &mut self.hosts[at];
                    (host.watched, host.watch) = (snapshot.revision, VecDeque::new());
                    host.member.read(local, host.first, &snapshot);
                    host.note_steps(self.epoch);
                }
                Request::ReadAlive => {
                    let host = &mut self.hosts[at];
                    host.asked_ns = self.now_ns;
                    host.asked_count += 1;
                    let prefix = self.keys.all_alive();
                    let items = self.etcd.snapshot(&prefix).items;
                    let name = |key: &str| key.strip_prefix(&prefix).unwrap().to_owned();
                    let alive = items.iter().map(|it| (name(&it.key), Alive::read(&it.value)));
                    let mail = Mail::Alive(alive.collect());
                    self.hosts[at].mail.push_back((arrives_ns, mail));
                }
                Request::Announce { key, value } => {
                    let now_ns = self.now_ns;
                    if !self.etcd.has(&key) {
                        self.hosts[at].said.clear();
                    }
                    let put = value.clone();
                    let ops = vec![Op::Put { key, value: put, leased: true }];
                    let txn = Txn { compares: Vec::new(), ops };
                    let outcome = self.etcd.commit(&self.keys, &name, &txn, self.now_ns);
                    self.check_registry();
                    if matches!(outcome, Outcome::Committed(_)) {
                        let said = decode::<Alive>(&value).unwrap().parts.into_iter().map(JobId);
                        let host = &mut self.hosts[at];
                        let since = |job| (job, host.said.get(&job).copied().unwrap_or(now_ns));
                        host.said = said.map(since).collect();
                        host.written_ns = now_ns;
                    }
                    self.hosts[at].mail.push_back((arrives_ns, Mail::Announced));
                }
                Request::Commit(txn) => {
                    let outcome = self.commit(&name, &txn);
                    self.hosts[at].mail.push_back((arrives_ns, Mail::Outcome(outcome)));
                }
            }
        }
    }

    fn commit(&mut self, name: &str, txn: &Txn) -> Outcome {
        let fate = self.rng.u32(0..20);
        if fate == 0 {
            self.tally.count("unknown, not done");
            return Outcome::Unknown;
        }
        let removed = self.own_removal(name, txn);
        let outcome = self.etcd.commit(&self.keys, name, txn, self.now_ns);
        if let Some(job) = removed.filter(|_| matches!(outcome, Outcome::Committed(_))) {
            self.tally.count("removed by itself");
            self.check_removal(name, job);
        }
        self.check_registry();
        self.trace(format_args!("{name}: {outcome:?}"));
        if fate == 1 && matches!(outcome, Outcome::Committed(_)) {
            self.tally.count("unknown, done");
            return Outcome::Unknown;
        }
        outcome
    }

    /// The job with entries whose record a host removes though nobody wished it.
    fn own_removal(&self, name: &str, txn: &Txn) -> Option<JobId> {
        let host = self.hosts.iter().find(|it| it.name == name)?;
        let removed = |op: &Op| match op {
            Op::Delete { key } => match self.keys.parse(key) {
                Some(Key::Job { job, .. }) => Some(job),
                _ => None,
            },
            Op::Put { .. } => None,
        };
        let job = txn.ops.iter().find_map(removed)?;
        let is_wished = host.asked.values().any(|wish| *wish == Wish::Remove { job });
        (!is_wished && self.reference.job(job).is_some()).then_some(job)
    }

    /// A host removes the record of a job that has no part any more, as far as others could say.
    fn check_removal(&self, name: &str, job: JobId) {
        let host = self.hosts.iter().find(|it| it.name == name).unwrap();
        let (_, record) = self.reference.job(job).unwrap();
        assert!(!host.nonces.contains(&record.nonce), "{name} removes {job}, which lives");
        let asked_ns = host.asked_ns;
        let late_ns = self.now_ns - asked_ns;
        assert!(late_ns < 14 * SECOND, "{name} removes {job} and has not asked for {late_ns} ns");
        let ended_ns = self.ended.get(&record.nonce).map_or(0, |at_ns| at_ns + SECOND);
        assert!(asked_ns >= ended_ns, "{name} removes {job} before others can say what they have");
        for other in self.hosts.iter().filter(|it| it.name != name) {
            let is_alive = self.etcd.has(&self.keys.alive(&other.name));
            let said_ns = other.said.get(&job).filter(|_| is_alive);
            let is_early = said_ns.is_some_and(|&since_ns| since_ns <= asked_ns);
            assert!(!is_early, "{name} removes {job}, of which {} has a part", other.name);
            let is_of = record.cpus.contains_key(&other.name);
            // A key that was written before the job ended says nothing of it.
            let ended_ns = self.ended.get(&record.nonce).copied().unwrap_or(0);
            let is_in = self.reference.hosts().contains_key(&other.name);
            let is_new = !is_of || !is_in || !is_alive || other.written_ns >= ended_ns;
            assert!(is_new, "{name} removes {job}, and {} has not said what it has", other.name);
            let is_known = !is_of || is_alive;
            // One that has gone since it was asked about has said what it had.
            let is_gone = |gone_ns: &&u64| !is_known && **gone_ns <= asked_ns;
            let Some(gone_ns) = self.etcd.gone.get(&other.name).filter(is_gone) else { continue };
            let number = self.reference.hosts().get(&other.name).map(|it| HostId(it.number));
            let lost = self.reference.entries(job).map(|it| it.lost()).unwrap_or_default();
            let is_lost = number.is_some_and(|number| lost.contains(&number))
                || self.now_ns >= gone_ns + LOST_AFTER_MS * MS;
            assert!(is_lost, "{name} removes {job}, and {} has just gone", other.name);
            let is_killed = self.reference.entries(job).map(|it| it.wanted) == Some(Wanted::Kill);
            assert!(!is_killed || !is_in, "{name} removes {job}, which {} has to kill", other.name);
        }
    }

    /// A host plans slices ahead of its clock.
    fn plan(&mut self, at: usize, local_ns: u64) {
        let host = &mut self.hosts[at];
        let until = clock::slice_at(&self.config, local_ns + AHEAD_NS);
        // Slices that it did not plan in time have no plan.
        host.first = host.first.max(clock::slice_at(&self.config, local_ns));
        while host.first <= until {
            let slice = host.first;
            host.first += 1;
            let Some(step) = host.member.timeline().at(slice) else { continue };
            let slots = host.member.slots(slice);
            let mut taken = CpuSet::new();
            for slot in &slots {
                assert!(taken.is_disjoint(&slot.cpus), "{}: two jobs have a CPU", host.name);
                taken = taken.union(&slot.cpus);
            }
            assert!(taken.last().is_none_or(|last| last < host.cpus), "{}: {taken}", host.name);
            let of_epoch = host.steps.iter().find(|(it, _)| it == step);
            let change = (of_epoch.expect("its steps are noted").1, step.change);
            let of_change = self.steps.get(&change).and_then(|steps| steps.get(&host.name));
            // Unless a clock that was wrong has named its slice, a change is not followed before.
            let is_early = of_change.is_some_and(|it| {
                slice < it.from_slice && it.from_slice - step.from_slice <= 66 * SECOND / SLICE_NS
            });
            assert!(!is_early, "{}: {change:?} at {slice}", host.name);
            let plan = (change, slots);
            let is_willing = host.member.unwilling().is_none() && step.columns == host.cpus;
            let of_slice = self.plans.entry(slice).or_default();
            let before = if is_willing { of_slice.insert(host.name.clone(), plan) } else { None };
            assert!(before.is_none(), "{} plans slice {slice} twice", host.name);
        }
        while self.plans.first_key_value().is_some_and(|(slice, _)| slice + 10_000 < until) {
            let Some((slice, plans)) = self.plans.pop_first() else { break };
            self.check_slice(slice, &plans);
        }
    }

    /// Hosts that follow the same change have the same jobs in their rows.
    fn check_slice(&self, slice: u64, plans: &BTreeMap<String, (Change, Vec<Slot>)>) {
        for (name, (change, slots)) in plans {
            let Some(steps) = self.steps.get(change) else { continue };
            let is_sound = |slot: &&Slot| !self.spoiled.contains(&slot.job);
            let sound: Vec<&Slot> = slots.iter().filter(is_sound).collect();
            let wanted = steps.get(name).map_or_else(Vec::new, |step| step.slots(slice));
            let wanted: Vec<&Slot> = wanted.iter().filter(is_sound).collect();
            assert_eq!(sound, wanted, "slice {slice}: {name} follows change {change:?}");
            for slot in sound {
                let parts = |step: &Step| step.parts.iter().any(|part| part.job == slot.job);
                for (other, _) in steps.iter().filter(|(_, step)| parts(step)) {
                    let Some((of_other, theirs)) = plans.get(other) else { continue };
                    let has_rows = steps[other]
                        .parts
                        .iter()
                        .any(|part| part.job == slot.job && !part.rows.is_empty());
                    let is_there = !has_rows || theirs.iter().any(|it| it.job == slot.job);
                    assert!(
                        of_other != change || is_there,
                        "slice {slice}: job {} has its slot on {name} and not on {other}: {plans:?}",
                        slot.job
                    );
                }
            }
        }
    }

    /// The steps of all hosts by the change that the reference has read last.
    fn keep_steps(&mut self) {
        let Some((state, _)) = self.reference.state() else { return };
        let of = |(name, host): (&String, &Host)| {
            let number = Some(HostId(host.number));
            (name.clone(), Step::of(&self.reference, number, state.from_slice))
        };
        let steps = self.reference.hosts().iter().map(of).collect();
        self.steps.insert((self.epoch, state.change), steps);
    }

    /// Checks every revision, as the reference reads it.
    fn check_registry(&mut self) {
        let registry = self.keys.registry();
        let unread = std::mem::take(&mut self.etcd.unread).into_iter();
        let of_registry = unread.map(|(revision, mut events)| {
            events.retain(|event| event.key.starts_with(&registry));
            (revision, events)
        });
        let later: Vec<_> = of_registry.filter(|(_, events)| !events.is_empty()).collect();
        for (revision, events) in later {
            let before = self.reference.state().map(|(state, _)| state.clone());
            let had_adjuster = self.reference.adjuster().is_some();
            self.reference.follow(revision, &events);
            if had_adjuster && self.reference.adjuster().is_none() {
                self.tally.count("adjuster died");
            }
            let has_left = |it: &Entries| {
                it.wanted == Wanted::Kill && !self.reference.hosts().contains_key(&it.from)
            };
            let killed = self.reference.all_entries().filter(|(_, it)| has_left(it));
            self.killed.extend(killed.map(|(job, _)| job));
            if self.is_spoiled {
                continue;
            }
            let faults: Vec<_> = self.reference.faults().collect();
            assert!(faults.is_empty(), "revision {revision}: {faults:?}");
            let (Some(before), Some((state, _))) = (before, self.reference.state()) else {
                continue;
            };
            let far = (self.now_ns + 60 * SECOND) / SLICE_NS;
            // A clock that lies can make it seem that those of all others do.
            let is_wild = self.hosts.iter().any(|it| it.offset_ns.unsigned_abs() > 50 * SECOND);
            let is_in_order = state.from_slice >= before.from_slice || before.from_slice > far;
            let is_in_order = is_in_order || is_wild;
            assert!(is_in_order, "changes hold in their order");
            assert!(state.next_job >= before.next_job, "numbers of jobs are not used again");
            if state.change == before.change {
                continue;
            }
            let of_jobs = |event: &&Event| event.key.contains("/matrix/jobs/");
            if events.iter().filter(of_jobs).count() > 1 {
                self.tally.count("moved");
            }
            let matrix = self.reference.matrix().unwrap();
            assert_eq!(matrix.frame(), state.frame, "the frame is as long as the matrix has it");
            self.keep_steps();
            let mut fresh = View::new(self.keys.clone());
            fresh.read(&self.etcd.snapshot(&registry));
            if fresh.revision() == revision {
                let of = |view: &View| -> Vec<_> {
                    let jobs = view.matrix().unwrap().jobs();
                    jobs.map(|(job, span, it)| (job, span.clone(), it.clone())).collect()
                };
                assert_eq!(of(&fresh), of(&self.reference), "a reader of all has the same matrix");
                let frames = [&fresh, &self.reference].map(|it| it.matrix().unwrap().frame());
                assert_eq!(frames[0], frames[1]);
            }
        }
    }

    /// The answers and notes of a host.
    fn listen(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let (answers, notes) = (host.member.take_answers(), host.member.take_notes());
        for note in notes {
            match note {
                Note::Late { .. } => self.tally.count("late"),
                Note::Unwilling(Some(_)) => self.tally.count("unwilling"),
                Note::Refused(_) => self.tally.count("own wish refused"),
                Note::Unwilling(None) | Note::Fault { .. } => {}
            }
        }
        for (ticket, answer) in answers {
            let wish = self.hosts[at].asked.remove(&ticket).expect("each wish has one answer");
            self.trace(format_args!("{}: {wish:?}: {answer:?}", self.hosts[at].name));
            self.answered(at, wish, answer);
        }
    }

    fn answered(&mut self, at: usize, wish: Wish, answer: Result<Granted, Refused>) {
        let name = self.hosts[at].name.clone();
        match (wish, answer) {
            (Wish::Register(job), Ok(Granted::Registered { job: id, .. })) => {
                self.tally.count("registered");
                let before = self.granted.insert(job.nonce, id);
                assert!(before.is_none_or(|it| it == id), "{name}: {id} and {before:?} are one");
            }
            // The program that asked ends.
            (Wish::Register(job), Err(why)) => {
                self.end(at, &job.nonce);
                self.tally.count(match why {
                    Refused::Unanswered => "unanswered",
                    Refused::Unreachable => "unreachable",
                    Refused::Store(_) => "full",
                    Refused::Away(_) => "away",
                    Refused::Faulty { .. } => "newer",
                    Refused::Unwilling { .. } => "is unwilling",
                    _ => "refused",
                });
            }
            (Wish::Remove { .. }, Ok(_)) => self.tally.count("removed"),
            (Wish::Want { wanted, .. }, Ok(_)) => self.tally.count(match wanted {
                Wanted::Run => "resumed",
                Wanted::Suspend => "suspended",
                Wanted::Kill => "killed",
                Wanted::Release => "released",
            }),
            (Wish::Set { .. }, Ok(_)) => self.tally.count("weighed"),
            (_, Err(Refused::Unreachable)) => self.tally.count("unreachable"),
            (_, Err(Refused::Store(_))) => self.tally.count("full"),
            (_, Err(Refused::OtherMachine { .. })) => self.tally.count("other machine"),
            (_, Err(Refused::NotOwner { .. })) => self.tally.count("not owner"),
            (_, Err(Refused::NotHere(_))) => self.tally.count("not here"),
            (_, Err(Refused::Faulty { fault, .. })) => {
                assert!(self.is_spoiled_for_all || !self.spoiled.is_empty(), "{fault}");
                self.tally.count("newer");
            }
            _ => {}
        }
    }

    /// A program that was registered at a host has ended there.
    fn end(&mut self, at: usize, nonce: &str) {
        if self.hosts[at].nonces.remove(nonce) {
            self.ended.insert(nonce.to_owned(), self.now_ns);
        }
    }

    fn ask(&mut self, at: usize, wish: Wish) {
        if let Wish::Remove { job } = &wish {
            let nonce = self.reference.job(*job).map(|(_, it)| it.nonce.clone());
            nonce.iter().for_each(|nonce| self.end(at, nonce));
        }
        let host = &mut self.hosts[at];
        if let Wish::Register(job) = &wish {
            host.nonces.insert(job.nonce.clone());
        }
        let ticket = host.member.wish(wish.clone());
        host.asked.insert(ticket, wish);
        self.listen(at);
    }

    fn any_host(&mut self) -> usize {
        self.rng.usize(0..self.hosts.len())
    }

    fn any_job(&mut self) -> Option<(JobId, usize, String)> {
        let jobs: Vec<_> = self
            .reference
            .jobs()
            .map(|(id, host, job)| (id, host.to_owned(), job.owner.name.clone()))
            .collect();
        let (id, host, owner) = jobs.get(self.rng.usize(0..jobs.len().max(1)))?.clone();
        let at = self.hosts.iter().position(|it| it.name == host)?;
        Some((id, at, owner))
    }

    fn job(&mut self) -> Job {
        self.tickets += 1;
        let hosts = self.rng.usize(2..self.hosts.len().min(6));
        let (mut cpus, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for at in self.rng.choose_multiple(0..self.hosts.len(), hosts) {
            let host = &self.hosts[at];
            let count = 1 + self.rng.u32(0..host.cpus);
            cpus.insert(host.name.clone(), count);
            if self.rng.u32(0..8) == 0 {
                let first = self.rng.u32(0..host.cpus - count + 1);
                allowed.insert(host.name.clone(), format!("{first}-{}", first + count - 1));
            }
        }
        let uid = self.rng.u32(1..4);
        let is_awaited = self.rng.u32(0..4) == 0;
        let ranks = cpus.iter().map(|(name, &cpus)| (name.clone(), cpus / 2));
        let ranks = ranks.filter(|_| is_awaited).collect();
        Job {
            name: format!("job {}", self.tickets),
            owner: Owner { uid, name: format!("user{uid}"), by_root: false, payer: None },
            class: "batch".to_owned(),
            weight: [50, 100, 100, 400][self.rng.usize(0..4)],
            cpus,
            allowed,
            ranks,
            launched_as: None,
            on_host_lost: [OnHostLost::Mark, OnHostLost::Suspend, OnHostLost::Release]
                [self.rng.usize(0..3)],
            registered_at_ns: self.now_ns,
            nonce: format!("nonce {}", self.tickets),
        }
    }

    /// Something happens.
    fn happen(&mut self) {
        let at = self.any_host();
        let for_ns = match self.rng.u32(0..6) {
            0 => self.rng.u64(0..200 * SECOND),
            1..3 => self.rng.u64(0..10 * SECOND),
            _ => self.rng.u64(0..SECOND),
        };
        match self.rng.u32(0..36) {
            0..9 => {
                let job = self.job();
                self.ask(at, Wish::Register(job));
            }
            9..13 => {
                let Some((job, _, owner)) = self.any_job() else { return };
                let by = match self.rng.u32(0..8) {
                    0 => By { uid: 77, name: "other".to_owned() },
                    1 => By { uid: 0, name: "root".to_owned() },
                    _ => By { uid: 1, name: owner },
                };
                let all = [
                    Wanted::Run,
                    Wanted::Run,
                    Wanted::Suspend,
                    Wanted::Suspend,
                    Wanted::Release,
                    Wanted::Kill,
                ];
                let wanted = all[self.rng.usize(0..all.len())];
                self.ask(at, Wish::Want { job, wanted, by });
            }
            13..15 => {
                let Some((job, _, name)) = self.any_job() else { return };
                let by = By { uid: 1, name };
                let weight = Some(self.rng.u32(0..500));
                self.ask(at, Wish::Set { job, class: None, weight, by });
            }
            15..19 => {
                let Some((job, registrar, _)) = self.any_job() else { return };
                if self.rng.u32(0..3) == 0 {
                    self.ask(registrar, Wish::Remove { job });
                } else if let Some((_, record)) = self.reference.job(job) {
                    let nonce = record.nonce.clone();
                    self.end(registrar, &nonce);
                    if self.hosts.iter().any(|it| it.said.contains_key(&job)) {
                        self.tally.count("waits for a part");
                    }
                }
            }
            19 => self.hosts[at].paused_until_ns = self.now_ns + for_ns,
            20 => self.hosts[at].cut_until_ns = self.now_ns + for_ns,
            21 => self.down_until_ns = self.now_ns + for_ns,
            22 => {
                let of_ms = if self.rng.u32(0..8) == 0 { 40_000_000 } else { 3_000 };
                let step_ns = self.rng.i64(-of_ms..of_ms) * MS as i64;
                let offset_ns = self.hosts[at].offset_ns + step_ns;
                self.set_clock(at, offset_ns);
            }
            23 => {
                let offset_ns = self.rng.i64(-400_000..400_000);
                self.set_clock(at, offset_ns);
            }
            24 => {
                let bad = self.rng.bool();
                self.hosts[at].bound_ns = self.bound_ns(bad);
            }
            25 => self.hosts[at].lag_ns = [0, MS, 30 * MS, 400 * MS][self.rng.usize(0..4)],
            26 => self.restart(at),
            27 => {
                self.tally.count("booted");
                self.boots += 1;
                let all = if self.is_one_kernel { 0..self.hosts.len() } else { at..at + 1 };
                all.for_each(|at| {
                    self.hosts[at].boot = self.boot(&self.hosts[at].name);
                    self.restart(at);
                });
            }
            28 => self.etcd.is_full = !self.etcd.is_full,
            29 if self.rng.bool() => self.spoil(),
            29 => self.spoil_for_all(),
            30 => {
                let name = self.hosts[at].name.clone();
                let cpus = self.hosts[at].cpus;
                let of_other = self.member(&name, cpus, "another machine", "another kernel");
                let own = std::mem::replace(&mut self.hosts[at].member, of_other);
                drop(own);
                self.forget_asked(at);
                self.hosts[at].is_connected = false;
                self.pass(200 * MS);
                let cpus = self.hosts[at].cpus;
                self.ask(
                    at,
                    Wish::Join {
                        cpus,
                        numbers: numbers(0..cpus),
                        machine: "another machine".to_owned(),
                        boot: "another kernel".to_owned(),
                    },
                );
                self.pass(200 * MS);
                self.restart(at);
            }
            31 if self.rng.bool() => self.leave_together(),
            31 => self.ask(at, Wish::Leave { with: BTreeSet::new() }),
            32 => self.hosts[at].threads = self.rng.u32(0..30),
            33 => {
                let cpus = self.rng.u32(1..9);
                self.hosts[at].cpus = cpus;
                self.restart(at);
            }
            34 => self.backup = self.etcd.clone(),
            _ => self.restore(),
        }
    }

    /// An administrator takes out some hosts that give no sign of life, if all of these can leave.
    fn leave_together(&mut self) {
        if self.now_ns < self.down_until_ns {
            return;
        }
        let hosts = self.reference.hosts().keys().filter(|it| !self.etcd.has(&self.keys.alive(it)));
        let mut away: BTreeSet<String> = hosts.cloned().collect();
        away.retain(|_| self.rng.u32(0..4) > 0);
        // The first one that cannot leave keeps all.
        if away.iter().any(|host| self.leaves(host, &away).is_err()) {
            return;
        }
        let is_theirs =
            |(_, it): &(JobId, &Entries)| it.wanted == Wanted::Kill && away.contains(&it.from);
        let theirs = self.reference.all_entries().filter(is_theirs).map(|(job, _)| job);
        self.killed.extend(theirs);
        for host in &away {
            let drafted = self.leaves(host, &away).expect("none of them keeps another one");
            let outcome = self.etcd.commit(&self.keys, "", &drafted.txn, self.now_ns);
            self.check_registry();
            if away.len() > 1 && matches!(outcome, Outcome::Committed(_)) {
                self.tally.count("left together");
            }
        }
    }

    fn leaves(&self, host: &str, with: &BTreeSet<String>) -> Result<Draft, Refused> {
        let (view, now_ns) = (&self.reference, self.now_ns);
        let (alive, lost) = (&BTreeMap::new(), &BTreeSet::new());
        let machine = view.hosts()[host].machine.as_str();
        let from = Inputs { view, alive, lost, host, machine, now_ns };
        draft(from, &Wish::Leave { with: with.clone() })
    }

    /// A clock is set. Where it is set back, the daemon plans anew from there.
    fn set_clock(&mut self, at: usize, offset_ns: i64) {
        let host = &mut self.hosts[at];
        let is_back = offset_ns < host.offset_ns;
        host.offset_ns = offset_ns;
        if is_back {
            let local_ns = self.now_ns.saturating_add_signed(offset_ns);
            host.first = clock::slice_at(&self.config, local_ns + AHEAD_NS) + 1;
            host.member.clock_was_set_back(host.first);
            host.note_steps(self.epoch);
            let later = self.plans.range_mut(host.first..);
            later.for_each(|(_, plans)| _ = plans.remove(&host.name));
        }
    }

    /// Somebody restores a backup of etcd: all hosts lose their links, and what came after it is
    /// gone.
    fn restore(&mut self) {
        if self.rng.bool() {
            return;
        }
        self.tally.count("restored");
        self.check_registry();
        self.etcd.restore(&self.backup, self.now_ns);
        self.epoch += 1;
        self.reference.read(&self.etcd.snapshot(&self.keys.registry()));
        let jobs = self.reference.jobs().map(|(id, _, job)| (job.nonce.clone(), id));
        self.granted = jobs.collect();
        self.keep_steps();
        for host in &mut self.hosts {
            host.is_connected = false;
            (host.watch, host.mail) = (VecDeque::new(), VecDeque::new());
            host.member.lost();
        }
        for at in 0..self.hosts.len() {
            self.listen(at);
        }
    }

    /// The daemon of a host dies, and another one starts.
    fn restart(&mut self, at: usize) {
        self.forget_asked(at);
        let (name, cpus) = (self.hosts[at].name.clone(), self.hosts[at].cpus);
        let (machine, boot) = (format!("machine of {name}"), self.hosts[at].boot.clone());
        let kept = self.hosts[at].member.timeline().to_text();
        self.hosts[at].member = self.member(&name, cpus, &machine, &boot);
        let is_kept = self.rng.bool();
        let host = &mut self.hosts[at];
        match is_kept {
            true => host.member.remember(Timeline::from_text(&kept, SLICE_NS).unwrap()),
            false => host.steps.clear(),
        }
        host.is_connected = false;
        (host.watch, host.mail) = (VecDeque::new(), VecDeque::new());
    }

    /// Wishes die with their daemon, granted or not; programs that were starting end.
    fn forget_asked(&mut self, at: usize) {
        for wish in std::mem::take(&mut self.hosts[at].asked).into_values() {
            if let Wish::Register(job) = wish {
                self.end(at, &job.nonce);
            }
        }
    }

    /// Somebody writes what cannot be read, and takes it back later.
    fn spoil(&mut self) {
        let Some((job, ..)) = self.any_job() else { return };
        if self.is_spoiled || self.now_ns < self.down_until_ns {
            return;
        }
        let key = self.keys.of(&Key::Entries(job));
        let items = self.etcd.snapshot(&key).items;
        let Some(item) = items.iter().find(|item| item.key == key) else { return };
        self.tally.count("corrupt");
        self.is_spoiled = true;
        self.spoiled.insert(job);
        self.spoil_value(&key, &item.value);
        // Others may have been placed where the job was meanwhile: it is gone for good.
        let host = self
            .hosts
            .iter()
            .find(|host| host.member.view().records(&host.name).any(|(id, _)| id == job));
        let host = host.map(|host| host.name.clone());
        self.etcd.write(&key, None);
        if let Some(host) = host {
            self.etcd.write(&self.keys.of(&Key::Job { host, job }), None);
        }
        self.granted.retain(|_, id| *id != job);
        self.check_registry();
        self.is_spoiled = false;
    }

    /// A value is of a newer version, or cut short, for a while in which a job is wished.
    fn spoil_value(&mut self, key: &str, whole: &str) {
        let bad = match self.rng.bool() {
            true => whole.replace("\"v\":1", "\"v\":9"),
            false => whole[..whole.len() / 2].to_owned(),
        };
        self.etcd.write(key, Some(bad));
        let passes_ns = self.rng.u64(0..3 * SECOND);
        self.pass(passes_ns);
        let asks = self.any_host();
        let wished = self.job();
        self.ask(asks, Wish::Register(wished));
        self.pass(passes_ns);
    }

    /// Somebody writes what cannot be read where all values depend on it. Nothing changes until it
    /// is as it was.
    fn spoil_for_all(&mut self) {
        if self.is_spoiled || self.now_ns < self.down_until_ns {
            return;
        }
        let key = if self.rng.bool() { Key::State } else { Key::Settings };
        let key = self.keys.of(&key);
        let items = self.etcd.snapshot(&key).items;
        let Some(item) = items.iter().find(|item| item.key == key) else { return };
        self.tally.count("corrupt for all");
        (self.is_spoiled, self.is_spoiled_for_all) = (true, true);
        self.spoil_value(&key, &item.value);
        self.etcd.write(&key, Some(item.value.clone()));
        self.check_registry();
        self.is_spoiled = false;
        // Hosts that have not read it yet refuse a while longer.
        self.pass(SECOND);
        self.is_spoiled_for_all = false;
    }

    /// Nothing happens any more: everybody comes to the same matrix, and nothing was lost.
    fn calm_down(&mut self) {
        self.is_calm = true;
        self.etcd.is_full = false;
        self.down_until_ns = 0;
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            (host.cut_until_ns, host.paused_until_ns, host.lag_ns) = (0, 0, MS);
            let offset_ns = host.offset_ns.clamp(-400_000, 400_000);
            self.hosts[at].bound_ns = self.bound_ns(false);
            self.set_clock(at, offset_ns);
        }
        // Clocks that were set back plan on once they are where they were.
        self.pass(CALM_NS);
        let change = |it: &World| it.reference.state().map(|(state, _)| state.change);
        let before = change(self);
        self.hosts.iter_mut().for_each(|host| host.asked_count = 0);
        self.pass(30 * SECOND);
        for host in &self.hosts {
            let most = if host.member.is_adjuster() { 4 } else { 0 };
            let count = host.asked_count;
            assert!(count <= most, "{} reads who is alive {count} times", host.name);
        }
        assert_eq!(change(self), before, "a matrix to which nothing happens stays as it is");
        let all: Vec<u64> = before.into_iter().collect();
        // Where another machine took the name of a host that had left, that host stays away.
        let hosts = self.reference.hosts();
        let is_back = |name: &str| hosts[name].machine == format!("machine of {name}");
        let is_lost = |host| self.reference.name_of(host).is_some_and(is_back);
        let lost: Vec<_> = self
            .reference
            .all_entries()
            .filter(|(_, it)| it.lost().into_iter().any(is_lost))
            .collect();
        assert!(lost.is_empty(), "all hosts are back: {lost:?} of {hosts:?}");
        let is_seen = |it: &Entries| it.booted().is_empty();
        assert!(self.reference.all_entries().all(|(_, it)| is_seen(it)), "boots are seen to");
        assert!(self.reference.is_settled(), "a change names all that was cut or mended");
        for host in &self.hosts {
            assert!(host.asked.is_empty(), "{} waits for {:?}", host.name, host.asked);
            // That of another machine may have another clock.
            let is_alone = hosts.values().all(|it| it.machine != "another machine");
            let is_in_time = host.member.unwilling().is_none_or(|why| why.contains("CPUs"));
            assert!(is_in_time || !is_alone, "{}: {:?}", host.name, host.member.unwilling());
            let last = host.member.timeline().steps().last();
            let Some(last) = last.filter(|_| host.member.host().is_some()) else { continue };
            assert_eq!(vec![last.change], all, "{} follows the last change", host.name);
            let mut wanted = Step::of(&self.reference, host.member.host(), last.from_slice);
            let mut last = last.clone();
            for step in [&mut wanted, &mut last] {
                step.parts.retain(|part| !self.spoiled.contains(&part.job));
            }
            assert!(last.says_as(&wanted), "{}: {last:?}, not {wanted:?}", host.name);
            let seen = host.member.view().state();
            assert_eq!(seen, self.reference.state(), "{}", host.name);
            for job in host.complete() {
                let is_awaited = |it: &Entries| it.awaited().contains(&host.member.host().unwrap());
                let has_come = self.reference.entries(job).is_none_or(|it| !is_awaited(it));
                assert!(has_come, "{} has all that job {job} awaits there", host.name);
            }
        }
        for (slice, plans) in std::mem::take(&mut self.plans) {
            self.check_slice(slice, &plans);
        }
        let records = self.hosts.iter().flat_map(|host| self.reference.records(&host.name));
        let records: Vec<_> = records.collect();
        let there: BTreeMap<&String, JobId> =
            records.iter().map(|(id, job)| (&job.nonce, *id)).collect();
        assert_eq!(there.len(), records.len(), "no job is there twice");
        let nonces = || self.hosts.iter().flat_map(|host| &host.nonces);
        for nonce in nonces() {
            let Some(id) = self.granted.get(nonce) else { continue };
            let is_gone = self.killed.contains(id) || self.spoiled.contains(id);
            assert!(is_gone || there.get(nonce) == Some(id), "job {id} ({nonce}) is lost");
        }
        for (nonce, id) in &there {
            assert!(nonces().any(|it| it == *nonce), "job {id} ({nonce}) is of nobody");
        }
        for host in &self.hosts {
            assert!(host.member.timeline().steps().len() < 50, "steps are forgotten");
        }
    }
}
