//! Ends of jobs that have parts on several hosts, and what a host makes of a registry that was
//! restored: one member, and the registry as a list of keys.

use std::collections::{BTreeMap, BTreeSet};

use gang_cluster::Member;
use gang_cluster::change::{By, Granted, Inputs, Refused, Wish, draft, init};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::member::{Identity, Now, Observation, Request};
use gang_cluster::record::{
    Alive, Clock, ClusterSettings, Host, Job, OnHostLost, Owner, State, Users, Wanted, decode,
    encode, numbers,
};
use gang_cluster::store::{Event, Item, Op, Outcome, Revision, Snapshot};
use gang_cluster::view::View;
use gang_schedule::JobId;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SLICE_NS: u64 = 20 * MS;
const START_NS: u64 = 1_000_000_000 * SECOND;
const LOST_AFTER_NS: u64 = 30 * SECOND;

/// The fate of a transaction that the member asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    Works,
    /// Transactions are done, and not answered.
    Silent,
}

/// A registry, its hosts, and the one of them that is looked at: `h0`.
struct Cluster {
    keys: Keys,
    items: BTreeMap<String, (String, Revision)>,
    revision: Revision,
    member: Member,
    bound_ns: u64,
    now_ns: u64,
    store: Store,
    alive: BTreeMap<String, Alive>,
    nonces: BTreeSet<String>,
    /// Hosts whose keys are as they were: they are cut off, and their leases have not ended.
    silent: BTreeSet<String>,
    /// How often the member has asked who is alive.
    looks: u32,
}

fn host(at: u32) -> String {
    format!("h{at}")
}

fn alive(parts: &[JobId]) -> Alive {
    Alive {
        read: 1,
        clock: Clock { source: "chrony".to_owned(), offset_ns: 0, bound_ns: 1_000 },
        parts: parts.iter().map(|job| job.0).collect(),
        ..Alive::default()
    }
}

fn job(nonce: &str, hosts: [u32; 2]) -> Job {
    Job {
        name: "job".to_owned(),
        owner: Owner { uid: 1000, name: "ada".to_owned(), by_root: false, payer: None },
        class: "batch".to_owned(),
        weight: 100,
        cpus: hosts.into_iter().map(|at| (host(at), 1)).collect(),
        allowed: BTreeMap::new(),
        ranks: BTreeMap::new(),
        launched_as: None,
        on_host_lost: OnHostLost::Mark,
        registered_at_ns: 0,
        nonce: nonce.to_owned(),
    }
}

fn member(keys: &Keys, boot: &str) -> Member {
    let me = Identity {
        name: host(0),
        cpus: 4,
        numbers: numbers(0..4),
        machine: host(0),
        boot: boot.to_owned(),
        slice_ns: SLICE_NS,
        clock_percent: 5,
    };
    Member::new(me, keys.clone())
}

impl Cluster {
    /// So many hosts of one kernel, all of them alive; `h1` adjusts.
    fn new(hosts: u32) -> Cluster {
        let keys = Keys::new("test").unwrap();
        let mut cluster = Cluster {
            member: member(&keys, "kernel"),
            keys,
            items: BTreeMap::new(),
            revision: 0,
            bound_ns: 1_000,
            now_ns: START_NS,
            store: Store::Works,
            alive: BTreeMap::new(),
            nonces: BTreeSet::new(),
            silent: BTreeSet::new(),
            looks: 0,
        };
        let settings = ClusterSettings {
            id: "one".to_owned(),
            slice_ns: SLICE_NS,
            rows: 16,
            by_program: true,
            users: Users::Name,
            lost_after_ms: LOST_AFTER_NS / MS,
        };
        let made = init(&cluster.keys, &settings).unwrap();
        cluster.commit(&made.ops);
        for number in 0..hosts {
            let (name, boot) = (host(number), "kernel".to_owned());
            let record =
                Host { number, cpus: 4, numbers: numbers(0..4), machine: name.clone(), boot };
            cluster.write(&Key::Host(name.clone()), encode(record));
            cluster.alive.insert(name, alive(&[]));
        }
        cluster.write(&Key::Adjuster, host(1));
        cluster.member.is_reachable();
        cluster.pass(SECOND);
        cluster
    }

    fn now(&self) -> Now {
        Now { utc_ns: self.now_ns, monotonic_ns: self.now_ns - START_NS + 3_600 * SECOND }
    }

    fn first(&self) -> u64 {
        self.now_ns / SLICE_NS + 3
    }

    fn commit(&mut self, ops: &[Op]) {
        self.revision += 1;
        let mut events = Vec::new();
        for op in ops {
            let (key, value) = match op {
                Op::Put { key, value, .. } => (key, Some(value.clone())),
                Op::Delete { key } => (key, None),
            };
            match value.clone() {
                Some(value) => _ = self.items.insert(key.clone(), (value, self.revision)),
                None => _ = self.items.remove(key),
            }
            events.push(Event { key: key.clone(), value });
        }
        let (now, first) = (self.now(), self.first());
        self.member.watched(now, first, self.revision, &events);
    }

    fn write(&mut self, key: &Key, value: String) {
        self.commit(&[Op::Put { key: self.keys.of(key), value, leased: false }]);
    }

    fn snapshot(&self) -> Snapshot {
        let of = |(key, (value, modified)): (&String, &(String, Revision))| Item {
            key: key.clone(),
            value: value.clone(),
            modified: *modified,
        };
        Snapshot { revision: self.revision, items: self.items.iter().map(of).collect() }
    }

    fn view(&self) -> View {
        let mut view = View::new(self.keys.clone());
        view.read(&self.snapshot());
        view
    }

    /// A host registers a job by itself.
    fn register(&mut self, at: u32, job: Job) -> JobId {
        let (view, name, nonce) = (self.view(), host(at), job.nonce.clone());
        let (host, machine, lost) = (name.as_str(), name.as_str(), BTreeSet::new());
        let now_ns = self.now_ns;
        let from = Inputs { view: &view, alive: &self.alive, lost: &lost, host, machine, now_ns };
        let draft = draft(from, &Wish::Register(job)).unwrap();
        let Granted::Registered { job, .. } = draft.granted else { panic!("{draft:?}") };
        if at == 0 {
            self.nonces.insert(nonce);
        }
        self.commit(&draft.txn.ops);
        job
    }

    fn has_record(&self, job: JobId) -> bool {
        self.items.contains_key(&self.keys.of(&Key::Job { host: host(0), job }))
    }

    fn look_at_itself(&mut self) {
        let clock = Clock { bound_ns: self.bound_ns, ..alive(&[]).clock };
        self.member.see(Observation {
            clock,
            threads: 0,
            of_users: BTreeMap::new(),
            parts: Vec::new(),
            complete: BTreeSet::new(),
            missing: BTreeMap::new(),
            nonces: self.nonces.clone(),
        });
    }

    /// The member's requests are done, except to answer who is alive: that it asked is returned.
    fn next(&mut self) -> bool {
        loop {
            let (now, first) = (self.now(), self.first());
            match self.member.next(now) {
                None => return false,
                Some(Request::ReadAlive) => {
                    self.looks += 1;
                    return true;
                }
                Some(Request::Read) => self.member.read(now, first, &self.snapshot()),
                Some(Request::Announce { .. }) => self.member.announced(),
                Some(Request::Commit(txn)) => {
                    self.commit(&txn.ops);
                    let outcome = match self.store {
                        Store::Works => Outcome::Committed(self.revision),
                        Store::Silent => Outcome::Unknown,
                    };
                    self.member.committed(now, &outcome);
                    if self.store == Store::Silent {
                        return false;
                    }
                }
            }
        }
    }

    fn pass(&mut self, passes_ns: u64) {
        let until_ns = self.now_ns + passes_ns;
        while self.now_ns < until_ns {
            self.now_ns += 100 * MS;
            self.look_at_itself();
            while self.next() {
                let (now, read) = (self.now(), self.revision);
                let speaks = |name: &String| !self.silent.contains(name);
                let alive = self.alive.iter_mut().filter(|(name, _)| speaks(name));
                alive.for_each(|(_, alive)| alive.read = read);
                self.member.read_alive(now, self.alive.clone());
            }
        }
    }

    /// The registry is as it was then, and the host has a link to it again.
    fn restore(&mut self, items: BTreeMap<String, (String, Revision)>) {
        self.items = items;
        self.member.lost();
        self.member.is_reachable();
    }
}

#[test]
fn job_goes_once_no_host_has_a_part_of_it() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(0, job("one", [0, 1]));
    let other = cluster.register(0, job("other", [0, 1]));
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.pass(5 * SECOND);
    assert_eq!(cluster.looks, 0, "nobody asks while nothing has ended");
    cluster.nonces.remove("one");
    cluster.pass(20 * SECOND);
    assert!(cluster.has_record(id));
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(10 * SECOND);
    assert!(!cluster.has_record(id) && cluster.has_record(other));
    let looks = cluster.looks;
    cluster.pass(60 * SECOND);
    assert_eq!(cluster.looks, looks);
}

#[test]
fn job_of_a_host_that_is_away_goes_once_that_is_lost() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.alive.remove(&host(1));
    // Its time counts from when it was missed first.
    cluster.nonces.remove("one");
    cluster.pass(LOST_AFTER_NS);
    assert!(cluster.has_record(id));
    cluster.pass(LOST_AFTER_NS);
    assert!(!cluster.has_record(id));
}

#[test]
fn ended_job_stays_until_every_host_has_reported() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.pass(SECOND);
    // It has just begun its part, and cannot say so: its key is of before.
    cluster.silent.insert(host(1));
    cluster.nonces.remove("one");
    cluster.pass(20 * SECOND);
    assert!(cluster.has_record(id));
    cluster.silent.clear();
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.pass(20 * SECOND);
    assert!(cluster.has_record(id));
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(20 * SECOND);
    assert!(!cluster.has_record(id));
}

#[test]
fn kill_waits_for_a_host_that_is_lost() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.write(&Key::Adjuster, host(0));
    cluster.alive.remove(&host(1));
    cluster.pass(LOST_AFTER_NS + 20 * SECOND);
    let by = By { uid: 1000, name: "ada".to_owned() };
    cluster.member.wish(Wish::Want { job: id, wanted: Wanted::Kill, by });
    cluster.pass(SECOND);
    cluster.nonces.remove("one");
    cluster.pass(600 * SECOND);
    let entries = cluster.view().entries(id).cloned().unwrap();
    assert_eq!((entries.wanted, entries.rows.as_str()), (Wanted::Kill, ""), "it has no rows");
    // The host is back with its part, kills that, and says so.
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.pass(60 * SECOND);
    assert!(cluster.has_record(id));
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(60 * SECOND);
    assert!(!cluster.has_record(id) && cluster.view().entries(id).is_none());
}

#[test]
fn cut_or_mended_entries_hold_from_next_change() {
    let mut cluster = Cluster::new(2);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.pass(SECOND);
    let key = Key::Entries(id);
    let whole = cluster.items[&cluster.keys.of(&key)].0.clone();
    let slots = |cluster: &Cluster| cluster.member.slots(cluster.first()).len();
    let relink = |cluster: &mut Cluster| {
        cluster.restore(cluster.items.clone());
        cluster.pass(SECOND);
    };
    cluster.write(&key, whole[..whole.len() - 4].to_owned());
    cluster.pass(SECOND);
    assert_eq!(slots(&cluster), 1, "others have their slots, too");
    relink(&mut cluster);
    assert_eq!(slots(&cluster), 1, "one that reads all anew does as the others");
    let other = cluster.register(1, job("other", [0, 1]));
    cluster.pass(SECOND);
    assert_eq!(slots(&cluster), 1, "the other one's");
    cluster.write(&key, whole);
    cluster.pass(SECOND);
    relink(&mut cluster);
    let parts = cluster.member.timeline().steps().last().unwrap().parts.clone();
    let has = |job| parts.iter().any(|part| part.job == job);
    assert!(has(other) && !has(id), "{parts:?}");
    // The host that adjusts names the slice at once.
    let change = |cluster: &Cluster| cluster.view().state().unwrap().0.change;
    let before = change(&cluster);
    cluster.write(&Key::Adjuster, host(0));
    cluster.pass(SECOND);
    assert!(change(&cluster) > before && cluster.member.view().is_settled());
    let after = change(&cluster);
    cluster.pass(60 * SECOND);
    assert_eq!(change(&cluster), after, "once");
}

#[test]
fn host_that_was_away_long_ago_is_not_lost() {
    let mut cluster = Cluster::new(3);
    cluster.alive.remove(&host(1));
    let first = cluster.register(0, job("first", [0, 2]));
    cluster.nonces.remove("first");
    cluster.pass(5 * SECOND);
    assert!(!cluster.has_record(first));
    // It comes back, and is away for a moment an hour later.
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(3_600 * SECOND);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.alive.remove(&host(1));
    cluster.nonces.remove("one");
    cluster.pass(10 * SECOND);
    assert!(cluster.has_record(id));
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.pass(60 * SECOND);
    assert!(cluster.has_record(id));
}

#[test]
fn others_have_the_time_to_say_what_they_have() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.nonces.remove("one");
    cluster.look_at_itself();
    assert!(!cluster.next());
    // A wish asks who is alive, and the answer is slow: host 1 says what it has meanwhile.
    cluster.member.wish(Wish::Register(job("next", [0, 1])));
    assert!(cluster.next());
    let answer = cluster.alive.clone();
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.now_ns += 2 * SECOND;
    let now = cluster.now();
    cluster.member.read_alive(now, answer);
    cluster.pass(10 * SECOND);
    assert!(cluster.has_record(id));
}

#[test]
fn thousand_hosts_are_asked_seldom() {
    let mut cluster = Cluster::new(1_000);
    // Jobs end one after the other.
    for at in 0..100 {
        let nonce = format!("job {at}");
        let id = cluster.register(0, job(&nonce, [0, 1 + at % 3]));
        cluster.nonces.remove(&nonce);
        cluster.pass(300 * MS);
        assert!(at < 30 || !cluster.has_record(JobId(id.0 - 30)), "they go in time");
    }
    assert!(cluster.looks <= 7, "{} in 30 s", cluster.looks);
    // A part goes on for an hour.
    let id = cluster.register(0, job("long", [0, 1]));
    cluster.alive.insert(host(1), alive(&[id]));
    cluster.nonces.remove("long");
    cluster.looks = 0;
    cluster.pass(3_600 * SECOND);
    assert!((100..140).contains(&cluster.looks), "{} in an hour", cluster.looks);
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(31 * SECOND);
    assert!(!cluster.has_record(id));
}

#[test]
fn record_stays_while_its_entries_cannot_be_read() {
    let mut cluster = Cluster::new(2);
    let id = cluster.register(0, job("one", [0, 1]));
    let key = Key::Entries(id);
    let entries = cluster.items[&cluster.keys.of(&key)].0.clone();
    cluster.write(&key, entries[..entries.len() - 4].to_owned());
    cluster.pass(10 * SECOND);
    assert!(cluster.has_record(id));
    // Both go once it has ended.
    cluster.nonces.remove("one");
    cluster.pass(10 * SECOND);
    assert!(!cluster.has_record(id) && !cluster.items.contains_key(&cluster.keys.of(&key)));
}

#[test]
fn hosts_of_one_kernel_come_back_after_a_boot() {
    let mut cluster = Cluster::new(2);
    cluster.bound_ns = 5 * MS;
    cluster.pass(SECOND);
    assert_eq!(cluster.member.unwilling(), None);
    cluster.member = member(&cluster.keys, "next kernel");
    cluster.member.is_reachable();
    cluster.pass(SECOND);
    let record = &cluster.items[&cluster.keys.of(&Key::Host(host(0)))].0;
    assert_eq!(decode::<Host>(record).unwrap().boot, "next kernel");
    // The other one has not come back yet.
    assert!(cluster.member.unwilling().is_some());
    let boot = "next kernel".to_owned();
    let other = Host { number: 1, cpus: 4, numbers: numbers(0..4), machine: host(1), boot };
    cluster.write(&Key::Host(host(1)), encode(other));
    assert_eq!(cluster.member.unwilling(), None);
    // Those that do not know their kernel have no clock in common.
    let unknown =
        Host { number: 1, cpus: 4, numbers: numbers(0..4), machine: host(1), boot: String::new() };
    cluster.write(&Key::Host(host(1)), encode(unknown));
    assert!(cluster.member.unwilling().is_some());
}

#[test]
fn change_repeated_after_restore_keeps_its_slice() {
    let mut cluster = Cluster::new(2);
    let before = cluster.items.clone();
    cluster.register(0, job("one", [0, 1]));
    let key = cluster.keys.of(&Key::State);
    let (early, at) = cluster.items[&key].clone();
    let written: State = decode(&early).unwrap();
    let late = State { from_slice: written.from_slice + 10_000, ..written };
    let mut after = cluster.items.clone();
    cluster.restore(before);
    cluster.pass(SECOND);
    // The same change of two clocks: one after the other, each in a registry of its own.
    for (state, slots) in [(encode(late), 0), (early, 1)] {
        after.insert(key.clone(), (state, at));
        cluster.restore(after.clone());
        cluster.pass(SECOND);
        assert_eq!(cluster.member.slots(cluster.first()).len(), slots);
    }
}

#[test]
fn unanswered_wish_is_not_for_next_job_of_number() {
    let mut cluster = Cluster::new(2);
    let backup = cluster.items.clone();
    let id = cluster.register(1, job("one", [0, 1]));
    cluster.pass(SECOND);
    let by = By { uid: 1000, name: "ada".to_owned() };
    let ticket = cluster.member.wish(Wish::Want { job: id, wanted: Wanted::Kill, by });
    cluster.store = Store::Silent;
    cluster.next();
    cluster.store = Store::Works;
    cluster.items = backup;
    let again = cluster.register(1, job("another", [0, 1]));
    assert_eq!(again, id);
    cluster.restore(cluster.items.clone());
    cluster.pass(SECOND);
    assert_eq!(cluster.member.take_answers(), [(ticket, Err(Refused::Unanswered))]);
    assert_eq!(cluster.view().entries(id).unwrap().wanted, Wanted::Run);
}

#[test]
fn host_returns_once_its_clock_is_clearly_better() {
    let mut cluster = Cluster::new(2);
    let other = Host {
        number: 1,
        cpus: 4,
        numbers: numbers(0..4),
        machine: host(1),
        boot: "other kernel".to_owned(),
    };
    cluster.write(&Key::Host(host(1)), encode(other));
    for (bound_us, is_unwilling) in
        [(900, false), (1_100, true), (900, true), (700, false), (900, false)]
    {
        cluster.bound_ns = bound_us * 1_000;
        cluster.pass(SECOND);
        assert_eq!(cluster.member.unwilling().is_some(), is_unwilling, "{bound_us} µs");
    }
}

/// The slots of this host and the jobs of the registry, which there are to lose.
fn had(cluster: &Cluster) -> (usize, usize) {
    (cluster.member.slots(cluster.first()).len(), cluster.view().all_entries().count())
}

#[test]
fn unreadable_values_cost_no_slot_and_no_job() {
    for key in [Key::Settings, Key::State, Key::Host(host(1)), Key::Host(host(2))] {
        for cut in [1, 7, 30] {
            let mut cluster = Cluster::new(3);
            cluster.register(0, job("one", [0, 1]));
            let away = cluster.register(2, job("two", [0, 2]));
            // The one that adjusts, without the host where a job was registered.
            cluster.write(&Key::Adjuster, host(0));
            cluster.alive.remove(&host(2));
            cluster.pass(LOST_AFTER_NS + 20 * SECOND);
            assert_eq!(had(&cluster), (2, 2));
            let whole = cluster.items[&cluster.keys.of(&key)].0.clone();
            cluster.write(&key, whole[..whole.len() - cut].to_owned());
            cluster.pass(60 * SECOND);
            // Rows that name a host without a record are nobody's meanwhile.
            let slots = if matches!(key, Key::Host(_)) { 1 } else { 2 };
            assert_eq!(had(&cluster), (slots, 2), "{key:?}");
            let told = cluster.member.overview().faults;
            assert!(told.iter().any(|(of, _)| *of == cluster.keys.of(&key)), "{told:?}");
            cluster.write(&key, whole);
            cluster.alive.insert(host(2), alive(&[away]));
            cluster.pass(20 * SECOND);
            let by = By { uid: 1000, name: "ada".to_owned() };
            let released: Vec<JobId> = {
                let view = cluster.view();
                let all = view.all_entries();
                all.filter(|(_, it)| it.wanted == Wanted::Release).map(|(job, _)| job).collect()
            };
            for job in released {
                let by = by.clone();
                cluster.member.wish(Wish::Want { job, wanted: Wanted::Run, by });
            }
            cluster.pass(SECOND);
            assert_eq!(had(&cluster), (2, 2), "{key:?}: {:?}", cluster.member.take_answers());
        }
    }
}

#[test]
fn host_with_unreadable_record_keeps_its_number() {
    let mut cluster = Cluster::new(2);
    cluster.register(1, job("one", [0, 1]));
    let key = Key::Host(host(0));
    let whole = cluster.items[&cluster.keys.of(&key)].0.clone();
    cluster.write(&key, whole.replace("\"cpus\":4", "\"cpus\":\"four\""));
    cluster.pass(5 * SECOND);
    let record = cluster.items[&cluster.keys.of(&key)].0.clone();
    assert_eq!(decode::<Host>(&record), decode::<Host>(&whole));
    // Without a number it is out, and says why.
    cluster.write(&key, "{".to_owned());
    cluster.pass(5 * SECOND);
    let told = cluster.member.overview();
    assert!(!told.is_in && told.unwilling.unwrap().contains("cannot be read"));
}

#[test]
fn released_job_is_placed_by_present_host_numbers() {
    let mut cluster = Cluster::new(3);
    let id = cluster.register(1, job("one", [0, 1]));
    let by = By { uid: 1000, name: "ada".to_owned() };
    let want = |cluster: &mut Cluster, wanted| {
        cluster.member.wish(Wish::Want { job: id, wanted, by: by.clone() });
        cluster.pass(SECOND);
    };
    want(&mut cluster, Wanted::Release);
    assert_eq!(had(&cluster), (0, 1));
    let (machine, boot) = (host(1), "kernel".to_owned());
    let other = Host { number: 7, cpus: 2, numbers: numbers(0..2), machine, boot };
    cluster.write(&Key::Host(host(1)), encode(other));
    want(&mut cluster, Wanted::Run);
    assert_eq!(had(&cluster), (1, 1), "{:?}", cluster.member.take_answers());
}

#[test]
fn host_of_another_version_is_alive_and_not_lost() {
    let mut cluster = Cluster::new(2);
    let id = cluster.register(0, job("one", [0, 1]));
    cluster.write(&Key::Adjuster, host(0));
    let more = encode(alive(&[id])).replace("\"threads\"", "\"more\":[1],\"threads\"");
    for (said, is_read) in [(more.as_str(), true), ("{\"v\":2}", false), ("", false)] {
        cluster.alive.insert(host(1), Alive::read(said));
        cluster.pass(LOST_AFTER_NS + 20 * SECOND);
        assert_eq!(cluster.view().entries(id).unwrap().lost().len(), 0, "{said}");
        let wish = Wish::Register(job(&format!("after {said}"), [0, 1]));
        let ticket = cluster.member.wish(wish);
        cluster.pass(SECOND);
        let answers = cluster.member.take_answers();
        match &answers[..] {
            [(of, Ok(Granted::Registered { .. }))] => assert!(is_read && *of == ticket),
            [(_, Err(why @ Refused::Unwilling { .. }))] => {
                assert!(!is_read && why.to_string().contains("not used here"), "{why}");
            }
            other => panic!("{said}: {other:?}"),
        }
    }
    // It may have a part of the job, which has ended here.
    cluster.nonces.remove("one");
    cluster.pass(60 * SECOND);
    assert!(cluster.has_record(id));
    cluster.alive.insert(host(1), alive(&[]));
    cluster.pass(60 * SECOND);
    assert!(!cluster.has_record(id));
}

#[test]
fn second_machine_of_a_name_is_out_and_says_why() {
    let mut cluster = Cluster::new(2);
    cluster.register(1, job("one", [0, 1]));
    cluster.pass(SECOND);
    assert_eq!(had(&cluster).0, 1);
    let record = |machine: &str, boot: &str| {
        let (machine, boot) = (machine.to_owned(), boot.to_owned());
        encode(Host { number: 0, cpus: 4, numbers: numbers(0..4), machine, boot })
    };
    let key = Key::Host(host(0));
    for (machine, why) in [("other", "as another machine (other)"), ("h0", "machine-id(5)")] {
        cluster.write(&key, record("h0", "kernel"));
        cluster.pass(SECOND);
        cluster.write(&key, record(machine, "kernel of the other"));
        let revision = cluster.revision;
        cluster.pass(60 * SECOND);
        assert_eq!(cluster.revision, revision, "it does not take the name back");
        let told = cluster.member.overview();
        assert!(told.unwilling.as_ref().unwrap().contains(why), "{told:?}");
        assert_eq!(had(&cluster).0, 0);
    }
}
