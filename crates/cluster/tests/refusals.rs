//! Wishes that are refused: each with a reason, and without a change.

use std::collections::{BTreeMap, BTreeSet};

use gang_cluster::change::{By, Draft, Granted, Inputs, Refused, Wish, draft, init};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::record::{
    Alive, Clock, ClusterSettings, Entries, Fault, Job, OnHostLost, Owner, Payer, State, Users,
    Wanted, encode, numbers,
};
use gang_cluster::store::{BYTES_MAX, Condition, Event, Item, Op, Snapshot};
use gang_cluster::timeline::Step;
use gang_cluster::view::View;
use gang_schedule::JobId;
use gang_schedule::matrix::HostId;

const NOW_NS: u64 = 1_000_000_000_000_000_000;

/// A registry, and the host that wishes.
struct Registry {
    view: View,
    alive: BTreeMap<String, Alive>,
    lost: BTreeSet<String>,
    now_ns: u64,
}

fn settings() -> ClusterSettings {
    ClusterSettings {
        id: "one".to_owned(),
        slice_ns: 20_000_000,
        rows: 16,
        by_program: true,
        users: Users::Name,
        lost_after_ms: 30_000,
    }
}

fn join(cpus: u32, machine: &str) -> Wish {
    let (machine, boot) = (machine.to_owned(), "kernel".to_owned());
    Wish::Join { cpus, numbers: numbers(0..cpus), machine, boot }
}

fn alive(unwilling: Option<&str>) -> Alive {
    Alive {
        read: 1,
        clock: Clock { source: "chrony".to_owned(), offset_ns: 0, bound_ns: 1_000 },
        unwilling: unwilling.map(str::to_owned),
        ..Alive::default()
    }
}

fn job(hosts: &[(&str, u32)]) -> Job {
    Job {
        name: "job".to_owned(),
        owner: Owner { uid: 1000, name: "ada".to_owned(), by_root: false, payer: None },
        class: "batch".to_owned(),
        weight: 100,
        cpus: hosts.iter().map(|&(host, cpus)| (host.to_owned(), cpus)).collect(),
        allowed: BTreeMap::new(),
        ranks: BTreeMap::new(),
        launched_as: None,
        on_host_lost: OnHostLost::Mark,
        registered_at_ns: 0,
        nonce: "nonce".to_owned(),
    }
}

fn by(name: &str) -> By {
    By { uid: 1000, name: name.to_owned() }
}

impl Registry {
    /// Three hosts of four CPUs that are alive, and one that is away.
    fn new() -> Registry {
        let keys = Keys::new("test").unwrap();
        let mut view = View::new(keys.clone());
        view.read(&Snapshot::default());
        let mut registry =
            Registry { view, alive: BTreeMap::new(), lost: BTreeSet::new(), now_ns: NOW_NS };
        registry.commit(&init(&keys, &settings()).unwrap().ops);
        for host in ["a", "b", "c", "d"] {
            registry.granted(host, &join(4, &format!("of {host}")));
            registry.alive.insert(host.to_owned(), alive(None));
        }
        registry.alive.remove("d");
        registry
    }

    fn commit(&mut self, ops: &[Op]) {
        let event = |op: &Op| match op {
            Op::Put { key, value, .. } => Event { key: key.clone(), value: Some(value.clone()) },
            Op::Delete { key } => Event { key: key.clone(), value: None },
        };
        let events: Vec<Event> = ops.iter().map(event).collect();
        self.view.follow(self.view.revision() + 1, &events);
    }

    fn write(&mut self, key: &Key, value: &str) {
        let key = self.view.keys().of(key);
        self.commit(&[Op::Put { key, value: value.to_owned(), leased: false }]);
    }

    fn draft(&self, host: &str, wish: &Wish) -> Result<Draft, Refused> {
        let machine = format!("of {host}");
        let Registry { view, alive, lost, now_ns } = self;
        draft(Inputs { view, alive, lost, host, machine: &machine, now_ns: *now_ns }, wish)
    }

    fn granted(&mut self, host: &str, wish: &Wish) -> Granted {
        let draft = self.draft(host, wish).unwrap();
        self.commit(&draft.txn.ops);
        draft.granted
    }

    fn refused(&self, host: &str, wish: &Wish) -> String {
        self.draft(host, wish).unwrap_err().to_string()
    }

    fn job(&mut self) -> JobId {
        match self.granted("a", &Wish::Register(job(&[("a", 2), ("b", 2)]))) {
            Granted::Registered { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn job_on_hosts_that_will_not_have_it() {
    let mut registry = Registry::new();
    registry.alive.insert("c".to_owned(), alive(Some("its clock is off")));
    for (hosts, why) in [
        (vec![("a", 1), ("x", 1)], "host x is not in the cluster"),
        (vec![("a", 1), ("d", 1)], "host d is in the cluster, and away"),
        (vec![("a", 1), ("c", 1)], "host c takes no spanning jobs: its clock is off"),
        (vec![("a", 1)], "a spanning job has CPUs on two hosts at least; this one has 1"),
        (vec![("a", 1), ("b", 5)], "the job asks for 5 CPUs on host 1, which has 4"),
        (vec![("a", 1), ("b", 0)], "the job asks for 0 CPUs on host 1, which has 4"),
    ] {
        assert_eq!(registry.refused("a", &Wish::Register(job(&hosts))), why);
    }
    let weightless = Job { weight: 0, ..job(&[("a", 1), ("b", 1)]) };
    let why = registry.refused("a", &Wish::Register(weightless));
    assert_eq!(why, "it cannot be read: a weight is 1 to 10000, not 0");
    let elsewhere = registry.refused("x", &Wish::Register(job(&[("a", 1), ("b", 1)])));
    assert_eq!(elsewhere, "host x is not in the cluster");
}

#[test]
fn two_hosts_of_one_name() {
    let mut registry = Registry::new();
    let other = join(4, "another");
    let why = "host a is in the cluster already as another machine (of a): give this one another \
               name, or have the other one leave (gang cluster leave)";
    assert_eq!(registry.refused("a", &other), why);
    // It comes back, and nothing is to be changed.
    let again = join(4, "of a");
    assert!(registry.draft("a", &again).unwrap().txn.ops.is_empty());
    registry.job();
    assert_eq!(registry.refused("b", &leave(&[])), "host 1 has entries of 1 jobs");
    let more = join(8, "of b");
    assert_eq!(registry.refused("b", &more), "host 1 has entries of 1 jobs");
}

#[test]
fn user_of_another_host() {
    let mut registry = Registry::new();
    let id = registry.job();
    let want = |by| Wish::Want { job: id, wanted: Wanted::Suspend, by };
    let not_owner = format!("job {id} is not yours: it is of user ada");
    assert_eq!(registry.refused("b", &want(by("eve"))), not_owner);
    // A user who exists on one host alone has no name on the other one.
    assert_eq!(registry.refused("b", &want(by(""))), not_owner);
    let why = format!("job {id} has no part on this host: ask a host where it has one");
    assert_eq!(registry.refused("c", &want(by("ada"))), why);
    let root = By { uid: 0, name: "root".to_owned() };
    assert!(registry.draft("c", &want(root)).is_ok());
    let why = registry.refused("b", &Wish::Remove { job: id });
    assert_eq!(why, format!("job {id} was registered at host a, which removes it"));
    assert!(
        registry.draft("b", &Wish::Remove { job: JobId(id.0 + 1) }).unwrap().txn.ops.is_empty()
    );
    registry.granted("b", &Wish::Want { job: id, wanted: Wanted::Kill, by: by("ada") });
    assert_eq!(registry.refused("a", &want(by("ada"))), format!("job {id} is being killed"));
}

#[test]
fn entry_of_a_newer_version_or_cut_short() {
    let mut registry = Registry::new();
    let id = registry.job();
    let entries = encode(registry.view.entries(id).unwrap());
    let key = Key::Entries(id);
    registry.write(&key, &entries.replace("\"v\":1", "\"v\":7"));
    let why = registry.refused("a", &Wish::Register(job(&[("a", 1), ("b", 1)])));
    assert!(why.contains("/matrix/jobs/") && why.contains("version 7"), "{why}");
    registry.write(&key, &entries[..entries.len() - 4]);
    let fault = registry.view.fault(&registry.view.keys().of(&key));
    assert!(matches!(fault, Some(Fault::Unreadable(_))), "{fault:?}");
    // Other jobs go on.
    let next = Job { nonce: "next".to_owned(), ..job(&[("a", 4), ("b", 4)]) };
    assert!(registry.draft("a", &Wish::Register(next)).is_ok());
    registry.write(&key, &entries);
    assert_eq!(registry.view.faults().count(), 0);
}

#[test]
fn entries_that_contradict_others_are_released() {
    let mut registry = Registry::new();
    let id = registry.job();
    // Somebody gives the job other CPUs than it asked for.
    let entries = encode(registry.view.entries(id).unwrap());
    registry.write(&Key::Entries(id), &entries.replace("\"0-1\"", "\"0-2\""));
    assert_eq!(registry.view.matrix().unwrap().placement(id), None);
    registry.granted("a", &Wish::Tend);
    assert_eq!(registry.view.entries(id).unwrap().wanted, Wanted::Release);
    assert_eq!(registry.view.faults().count(), 0);
    // Entries without a job are nobody's.
    let of_nobody = Key::Entries(JobId(id.0 + 7));
    registry.write(&of_nobody, &entries);
    assert_eq!(registry.view.matrix().unwrap().jobs().count(), 0);
    registry.granted("a", &Wish::Tend);
    assert_eq!(registry.view.entries(JobId(id.0 + 7)), None);
}

/// Nobody can put the class of a job right.
#[test]
fn entries_that_stay_unusable_are_released_once() {
    let mut registry = Registry::new();
    let id = registry.job();
    let entries = encode(registry.view.entries(id).unwrap());
    registry.write(&Key::Entries(id), &entries.replace("\"batch\"", "\"odd\""));
    assert_eq!(registry.view.contradicting().len(), 1);
    registry.granted("a", &Wish::Tend);
    let released = registry.view.entries(id).unwrap();
    assert_eq!((released.wanted, released.rows.as_str()), (Wanted::Release, ""));
    assert_eq!(registry.draft("a", &Wish::Tend).unwrap().txn.ops, []);
}

/// Hosts are lost, and marked so in all their jobs.
fn lose(registry: &mut Registry, hosts: &[&str]) {
    for host in hosts {
        registry.alive.remove(*host);
        registry.lost.insert((*host).to_owned());
    }
    registry.granted("c", &Wish::Tend);
}

fn leave(with: &[&str]) -> Wish {
    Wish::Leave { with: with.iter().map(|&host| host.to_owned()).collect() }
}

fn kill_by_root(job: JobId) -> Wish {
    let by = By { uid: 0, name: "root".to_owned() };
    Wish::Want { job, wanted: Wanted::Kill, by }
}

fn kill(job: JobId) -> Wish {
    Wish::Want { job, wanted: Wanted::Kill, by: by("ada") }
}

#[test]
fn killed_job_of_a_lost_home_goes_once_that_has_left() {
    let mut registry = Registry::new();
    let id = registry.job();
    registry.granted("b", &kill(id));
    assert_eq!(registry.refused("a", &leave(&[])), "host 0 has entries of 1 jobs");
    lose(&mut registry, &["a"]);
    registry.now_ns += 3_600_000_000_000;
    // It has to hear of the kill, if it comes back.
    assert_eq!(registry.draft("c", &Wish::Tend).unwrap().txn.ops, []);
    // Another one that is lost has to, too.
    lose(&mut registry, &["b"]);
    let why = registry.refused("a", &leave(&[]));
    assert_eq!(why, "the host has jobs of the cluster, 1 of them: they must end first");
    registry.granted("b", &leave(&[]));
    assert_eq!(registry.view.entries(id).unwrap().wanted, Wanted::Kill);
    // Its number is not given again as long as entries name it.
    registry.granted("e", &join(4, "of e"));
    assert_eq!(registry.view.hosts()["e"].number, 4);
    registry.granted("a", &leave(&[]));
    assert_eq!((registry.view.entries(id), registry.view.records("a").count()), (None, 0));
    assert_eq!(registry.view.faults().count(), 0);
}

/// Each has a killed job on both of them.
#[test]
fn two_lost_homes_leave_together() {
    let mut registry = Registry::new();
    let of_a = registry.job();
    let of = Job { nonce: "of b".to_owned(), ..job(&[("a", 2), ("b", 2)]) };
    let Granted::Registered { job: of_b, .. } = registry.granted("b", &Wish::Register(of)) else {
        panic!("it is registered")
    };
    [of_a, of_b].into_iter().for_each(|id| _ = registry.granted("c", &kill_by_root(id)));
    lose(&mut registry, &["a", "b"]);
    for host in ["a", "b"] {
        assert!(registry.refused(host, &leave(&[])).contains("must end first"), "{host} waits");
        assert!(registry.refused(host, &leave(&["d"])).contains("must end first"), "{host} waits");
    }
    registry.granted("a", &leave(&["a", "b"]));
    assert_eq!((registry.view.entries(of_a), registry.view.records("a").count()), (None, 0));
    assert!(registry.view.entries(of_b).is_some());
    registry.granted("b", &leave(&["a", "b"]));
    assert_eq!(registry.view.all_entries().count(), 0);
    assert_eq!((registry.view.hosts().len(), registry.view.faults().count()), (2, 0));
    // Others stay for jobs that were not killed.
    registry.alive.insert("d".to_owned(), alive(None));
    registry.granted("c", &Wish::Register(job(&[("c", 2), ("d", 2)])));
    assert_eq!(registry.refused("d", &leave(&["c", "d"])), "host 3 has entries of 1 jobs");
}

/// A launcher's host has no CPUs of the job, so that no job has lost it.
#[test]
fn registrar_without_part_leaves_with_killed_job() {
    let mut registry = Registry::new();
    let of = job(&[("a", 2), ("b", 2)]);
    let Granted::Registered { job: id, .. } = registry.granted("c", &Wish::Register(of)) else {
        panic!("it is registered")
    };
    assert!(registry.refused("c", &leave(&[])).contains("must end first"));
    registry.granted("a", &kill(id));
    registry.granted("c", &leave(&[]));
    assert_eq!((registry.view.entries(id), registry.view.records("c").count()), (None, 0));
}

#[test]
fn boot_that_was_short_is_a_loss() {
    for (on_host_lost, wanted) in [
        (OnHostLost::Mark, Wanted::Run),
        (OnHostLost::Suspend, Wanted::Suspend),
        (OnHostLost::Release, Wanted::Release),
    ] {
        let mut registry = Registry::new();
        let ranks = [("b".to_owned(), 1)].into();
        let of = Job { on_host_lost, ranks, ..job(&[("a", 2), ("b", 2)]) };
        let Granted::Registered { job: id, .. } = registry.granted("a", &Wish::Register(of)) else {
            panic!("it is registered")
        };
        let again = |boot: &str| {
            let (machine, boot) = ("of b".to_owned(), boot.to_owned());
            Wish::Join { cpus: 4, numbers: numbers(0..4), machine, boot }
        };
        let entries = |registry: &Registry| registry.view.entries(id).unwrap().clone();
        let change = registry.view.state().unwrap().0.change;
        registry.granted("b", &again("kernel"));
        assert_eq!(entries(&registry).booted, "", "a daemon that starts again");
        registry.granted("b", &again("next kernel"));
        assert_eq!(registry.view.hosts()["b"].boot, "next kernel");
        let written = entries(&registry);
        assert_eq!((written.booted.as_str(), written.wanted), ("1", Wanted::Run));
        // It names no slice: its clock may not be good yet.
        assert_eq!(registry.view.state().unwrap().0.change, change);
        registry.granted("a", &Wish::Tend);
        let written = entries(&registry);
        assert_eq!((written.booted.as_str(), written.awaited.as_str()), ("", ""));
        assert_eq!((written.lost.as_str(), written.wanted), ("", wanted));
        assert_eq!(registry.draft("a", &Wish::Tend).unwrap().txn.ops, []);
    }
}

#[test]
fn boot_of_host_with_many_jobs_takes_some_changes() {
    let mut registry = Registry::new();
    let id = registry.job();
    let entries = registry.view.entries(id).unwrap().clone();
    for at in 1..300 {
        let job = JobId(id.0 + at);
        let of = Job { nonce: format!("nonce {at}"), ..crate::job(&[("a", 2), ("b", 2)]) };
        registry.write(&Key::Job { host: "a".to_owned(), job }, &encode(of));
        let released = Entries { rows: String::new(), ..entries.clone() };
        registry.write(&Key::Entries(job), &encode(released));
    }
    let (machine, boot) = ("of b".to_owned(), "next kernel".to_owned());
    let again = Wish::Join { cpus: 4, numbers: numbers(0..4), machine, boot };
    let mut changes = 0;
    while registry.view.hosts()["b"].boot != "next kernel" {
        registry.granted("b", &again);
        changes += 1;
    }
    assert_eq!(changes, 3);
    assert!(registry.view.all_entries().all(|(_, it)| it.booted == "1"));
}

#[test]
fn adjuster_gives_up_its_own_key_alone() {
    let mut registry = Registry::new();
    assert_eq!(registry.draft("a", &Wish::Resign).unwrap().txn.ops, []);
    registry.granted("a", &Wish::Elect);
    let since = registry.view.revision();
    registry.job();
    let key = registry.view.keys().of(&Key::Adjuster);
    let txn = registry.draft("a", &Wish::Resign).unwrap().txn;
    // Its lease may have ended meanwhile, and another host be the one that adjusts.
    assert_eq!(txn.compares, [(key.clone(), Condition::ModifiedAt(since))]);
    assert_eq!(txn.ops, [Op::Delete { key }]);
}

/// Of six hosts with 1,024 CPUs each, a job has half: each time others, so that its entries are
/// long.
fn wide(registry: &mut Registry, jobs: u32) -> Vec<String> {
    let names: Vec<String> = (0..6).map(|at| format!("w{at}")).collect();
    for name in &names {
        registry.granted(name, &join(1_024, &format!("of {name}")));
        registry.alive.insert(name.clone(), alive(None));
    }
    let numbers: Vec<u32> = names.iter().map(|name| registry.view.hosts()[name].number).collect();
    let columns: Vec<(String, String)> = numbers
        .iter()
        .enumerate()
        .map(|(at, number)| {
            let odd = (0..512).map(|pair| 2 * pair + u32::from((pair >> at) % 2 == 1));
            (number.to_string(), odd.map(|column| column.to_string()).collect::<Vec<_>>().join(","))
        })
        .collect();
    let first = registry.view.state().unwrap().0.next_job;
    for at in 0..jobs {
        let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 512)).collect();
        let of = Job { nonce: format!("wide {at}"), weight: 1, ..job(&hosts) };
        let account = Users::Name.account(1000, "ada").0;
        let entries = Entries {
            from: "w0".to_owned(),
            account,
            class: "batch".to_owned(),
            weight: 1,
            rows: format!("{}-{}", 4 * at, 4 * at + 3),
            cpus: columns.clone(),
            allowed: columns.clone(),
            wanted: Wanted::Run,
            wanted_from: 0,
            lost: String::new(),
            awaited: String::new(),
            booted: String::new(),
        };
        let job = JobId(first + u64::from(at));
        registry.write(&Key::Job { host: "w0".to_owned(), job }, &encode(of));
        registry.write(&Key::Entries(job), &encode(entries));
    }
    let (state, _) = registry.view.state().unwrap();
    let next_job = first + u64::from(jobs);
    let state = State { next_job, frame: 4 * jobs, ..state.clone() };
    registry.write(&Key::State, &encode(state));
    assert_eq!(registry.view.faults().collect::<Vec<_>>(), []);
    names
}

#[test]
fn change_that_would_be_too_large_moves_fewer_jobs() {
    let mut registry = Registry::new();
    let names = wide(&mut registry, 90);
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1_024)).collect();
    let heavy = Job { weight: 10_000, ..job(&hosts) };
    let draft = registry.draft("w0", &Wish::Register(heavy)).unwrap();
    let moved = draft.txn.ops.len() - 3;
    assert!(draft.txn.is_within_limits() && moved > 10 && moved < 60, "{moved}");
    assert!(draft.txn.bytes() > BYTES_MAX / 3, "{}", draft.txn.bytes());
    registry.commit(&draft.txn.ops);
    assert_eq!(registry.view.faults().collect::<Vec<_>>(), []);
    let (state, _) = registry.view.state().unwrap();
    assert_eq!(registry.view.matrix().unwrap().frame(), state.frame);
    // One whose own record is too large stays refused.
    let mut huge = Job { nonce: "huge".to_owned(), ..job(&[("a", 1), ("b", 1)]) };
    huge.owner.name = "x".repeat(BYTES_MAX);
    let why = registry.refused("a", &Wish::Register(huge));
    assert!(why.contains("more than etcd takes"), "{why}");
}

#[test]
fn record_whose_entries_name_another_host_is_removed() {
    let mut registry = Registry::new();
    let id = registry.job();
    let own = Key::Job { host: "b".to_owned(), job: id };
    registry.write(&own, &encode(job(&[("a", 2), ("b", 2)])));
    registry.granted("b", &Wish::Remove { job: id });
    assert_eq!(registry.view.records("b").count(), 0);
    assert_eq!(registry.view.job(id).unwrap().0, "a");
}

#[test]
fn two_readers_of_one_revision_leave_out_the_same() {
    let mut registry = Registry::new();
    let first = registry.job();
    let Granted::Registered { job: second, .. } = registry.granted(
        "b",
        &Wish::Register(Job { nonce: "next".to_owned(), ..job(&[("a", 2), ("b", 2)]) }),
    ) else {
        panic!("it is registered");
    };
    let entries = |registry: &Registry, job| registry.view.entries(job).unwrap().clone();
    let there = entries(&registry, second);
    let mut moved = entries(&registry, first);
    (moved.rows, moved.cpus) = (there.rows, there.cpus);
    registry.write(&Key::Entries(first), &encode(&moved));
    let mut fresh = View::new(registry.view.keys().clone());
    let of =
        |key: Key, value: String| Item { key: registry.view.keys().of(&key), value, modified: 1 };
    let mut items = vec![of(Key::Settings, encode(settings()))];
    let hosts = registry.view.hosts().iter();
    items.extend(hosts.map(|(name, host)| of(Key::Host(name.clone()), encode(host))));
    for (job, host, record) in registry.view.jobs() {
        items.push(of(Key::Job { host: host.to_owned(), job }, encode(record)));
        items.push(of(Key::Entries(job), encode(registry.view.entries(job).unwrap())));
    }
    fresh.read(&Snapshot { revision: registry.view.revision(), items });
    let jobs = |view: &View| -> Vec<_> {
        view.matrix().unwrap().jobs().map(|(job, _, placement)| (job, placement.clone())).collect()
    };
    assert_eq!(jobs(&fresh), jobs(&registry.view));
    assert_eq!(jobs(&fresh).len(), 1);
}

#[test]
fn account_of_a_job_is_that_of_the_one_who_pays() {
    let mut registry = Registry::new();
    let mut of = job(&[("a", 2), ("b", 2)]);
    of.owner = Owner {
        uid: 100_005,
        name: "#100005".to_owned(),
        by_root: false,
        payer: Some(Payer { uid: 1000, name: "ada".to_owned() }),
    };
    let Granted::Registered { job: id, .. } = registry.granted("a", &Wish::Register(of)) else {
        panic!("it is registered")
    };
    let account = Users::Name.account(1000, "ada").0;
    assert_eq!(registry.view.entries(id).unwrap().account, account);
    assert_eq!(registry.view.faults().count(), 0);
    // It stays the job of its owner.
    let want = |wanted, name| Wish::Want { job: id, wanted, by: by(name) };
    assert!(registry.draft("a", &want(Wanted::Suspend, "ada")).is_err());
    registry.granted("a", &want(Wanted::Release, "#100005"));
    registry.granted("a", &want(Wanted::Run, "#100005"));
    assert_eq!(registry.view.entries(id).unwrap().account, account);
}

/// A job that awaits two processes on each of two hosts.
fn awaiting(nonce: &str) -> Job {
    let ranks = ["a", "b"].map(|host| (host.to_owned(), 2)).into();
    let launched_as = Some("slurm:12.0".to_owned());
    Job { nonce: nonce.to_owned(), ranks, launched_as, ..job(&[("a", 2), ("b", 2)]) }
}

fn has_slots(registry: &Registry, job: JobId) -> bool {
    let step = Step::of(&registry.view, Some(HostId(0)), 0);
    step.parts.iter().any(|part| part.job == job && part.has_slots())
}

#[test]
fn job_has_no_slots_until_all_processes_have_come() {
    let mut registry = Registry::new();
    let Granted::Registered { job: id, .. } =
        registry.granted("a", &Wish::Register(awaiting("one")))
    else {
        panic!("it is registered")
    };
    let awaited = |registry: &Registry| registry.view.entries(id).unwrap().awaited.clone();
    assert_eq!((awaited(&registry).as_str(), has_slots(&registry, id)), ("0-1", false));
    registry.granted("b", &Wish::Arrive { job: id });
    // A second time, and from a host that it does not await.
    for host in ["b", "c"] {
        assert_eq!(registry.draft(host, &Wish::Arrive { job: id }).unwrap().txn.ops, []);
    }
    assert_eq!((awaited(&registry).as_str(), has_slots(&registry, id)), ("0", false));
    registry.granted("a", &Wish::Arrive { job: id });
    assert_eq!((awaited(&registry).as_str(), has_slots(&registry, id)), ("", true));
}

#[test]
fn owner_need_not_wait_for_half_of_the_processes() {
    let mut registry = Registry::new();
    let Granted::Registered { job: id, .. } =
        registry.granted("a", &Wish::Register(awaiting("one")))
    else {
        panic!("it is registered")
    };
    registry.granted("b", &Wish::Arrive { job: id });
    registry.now_ns += 3_600_000_000_000;
    registry.granted("a", &Wish::Tend);
    assert!(!has_slots(&registry, id), "an hour changes nothing");
    registry.granted("a", &Wish::Want { job: id, wanted: Wanted::Run, by: by("ada") });
    assert!(has_slots(&registry, id) && registry.view.entries(id).unwrap().awaited.is_empty());
}

#[test]
fn program_of_a_launcher_has_one_job() {
    let mut registry = Registry::new();
    let granted = |registry: &mut Registry, host: &str, job: Job| {
        let Granted::Registered { job, nonce, .. } = registry.granted(host, &Wish::Register(job))
        else {
            panic!("it is registered")
        };
        (job, nonce)
    };
    let first = granted(&mut registry, "a", awaiting("one"));
    assert_eq!(first.1, "one");
    assert_eq!(granted(&mut registry, "b", awaiting("two")), first);
    let other =
        Job { cpus: [("a", 1), ("b", 1)].map(|(a, n)| (a.to_owned(), n)).into(), ..awaiting("x") };
    let why = registry.refused("b", &Wish::Register(other));
    assert!(why.contains("was launched as \"slurm:12.0\" before, on other hosts"), "{why}");
    // Of another user it is another one.
    let owner = Owner { uid: 1001, name: "bob".to_owned(), by_root: true, payer: None };
    assert_ne!(granted(&mut registry, "b", Job { owner, ..awaiting("three") }).0, first.0);
    // One that is being killed is over.
    registry.granted("a", &Wish::Want { job: first.0, wanted: Wanted::Kill, by: by("ada") });
    assert_ne!(granted(&mut registry, "b", awaiting("four")).0, first.0);
    let ranks = [("c".to_owned(), 1)].into();
    let why = registry.refused("a", &Wish::Register(Job { ranks, ..awaiting("five") }));
    assert!(why.contains("awaits processes on host c, where it has no CPUs"), "{why}");
}
