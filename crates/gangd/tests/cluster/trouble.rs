//! Hosts that cannot take part, records that cannot be used, users whom a host does not know: each
//! is said where people look.

use gang_cluster::{
    keys::{Key, Keys},
    store::{Bound, Op, Txn},
};
use gang_daemon::{Daemon, Options, Own};
use gang_etcd::{Address, Tls, commit, read};
use gang_harness::etcd::Etcd;
use gang_schedule::JobId;

use crate::{
    bed::{Bed, cluster, gang, reason, spanning, wanted},
    place::{Place, Program, has_backend, stands_still, wait_for, wait_until},
};

/// The registry, as an administrator reads and writes it.
struct Registry {
    address: Address,
    keys: Keys,
}

impl Registry {
    fn of(bed: &Bed) -> Registry {
        let address = Address { endpoints: vec![bed.etcd.url()], ..Address::default() };
        Registry { address, keys: Keys::new("lab").unwrap() }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn value(&self, key: &Key) -> String {
        let key = self.keys.of(key);
        let read = async {
            let mut client = self.address.connect().await?;
            read(&mut client, &self.keys, Bound::default()).await
        };
        let items = Registry::runtime().block_on(read).unwrap().items;
        items.into_iter().find(|item| item.key == key).expect("the key is there").value
    }

    fn write(&self, key: &Key, value: &str) {
        let (key, value) = (self.keys.of(key), value.to_owned());
        self.commit(vec![Op::Put { key, value, leased: false }]);
    }

    fn delete(&self, keys: &[Key]) {
        self.commit(keys.iter().map(|key| Op::Delete { key: self.keys.of(key) }).collect());
    }

    fn commit(&self, ops: Vec<Op>) {
        let txn = Txn { compares: Vec::new(), ops };
        let write = async {
            let mut client = self.address.connect().await?;
            commit(&mut client, &txn, 0).await
        };
        Registry::runtime().block_on(write).unwrap();
    }
}

#[test]
fn needs_root_hosts_that_cannot_take_part_say_why() {
    let Some(bed) = Bed::start() else { return };
    // Another machine of that name.
    let id = "0123456789abcdef0123456789abcdef\n";
    let second =
        Place::of(bed.third("a", Own { files: &[("/etc/machine-id", id)], ..Own::default() }));
    let why = wait_for("it is out", || cluster(&second).refused);
    assert!(why.contains("host a is in the cluster already as another machine"), "{why}");
    let shown = gang(&second, &["hosts"]);
    assert!(shown.contains("this host, a, is not in it: host a is in the cluster"), "{shown}");
    assert!(!shown.contains("this host  "), "the other one is not this host: {shown}");
    let said = reason(second.client().register_spanning(wanted("x", &[("a", 1), ("b", 1)])));
    assert!(said.contains("another machine"), "{said}");
    drop(second);

    // Slices of another length.
    let long = Place::of(bed.third("c", Own { flags: &["--slice", "40ms"], ..Own::default() }));
    let why = wait_for("it is out", || cluster(&long).refused);
    assert_eq!(why, "its slices are 40 ms long, and the cluster's 20 ms");
    let said = reason(bed.a.client().register_spanning(wanted("x", &[("a", 1), ("c", 1)])));
    assert!(said.contains("host c is not in the cluster"), "{said}");
    drop(long);

    // It is in, and takes no part by then.
    let third = Place::of(bed.third("d", Own::default()));
    wait_until("d is in", || cluster(&bed.a).hosts.iter().any(|it| it.name == "d"));
    drop(third);
    let long = Place::of(bed.third("d", Own { flags: &["--slice", "40ms"], ..Own::default() }));
    let unwilling = || cluster(&bed.a).hosts.into_iter().find(|it| it.name == "d")?.unwilling;
    let why = wait_for("a knows", unwilling);
    assert!(why.starts_with("its slices are 40 ms long"), "{why}");
    let said = reason(bed.a.client().register_spanning(wanted("x", &[("a", 1), ("d", 1)])));
    assert!(said.contains("host d takes no spanning jobs: its slices"), "{said}");
    let shown = gang(&bed.b, &["hosts"]);
    assert!(shown.contains("takes no part: its slices"), "{shown}");
    // Gone for good.
    drop(long);
    let leave = || {
        let of = bed.a.path("gangd.toml");
        gang(&bed.a, &["cluster", "leave", "--config", of.to_str().unwrap(), "d"])
    };
    let said = wait_for("its lease ends", || Some(leave()).filter(|it| !it.contains("is alive")));
    assert!(said.contains("host d is in cluster lab no more"), "{said}");
    wait_until("nobody has it", || cluster(&bed.b).hosts.len() == 2);
}

#[test]
fn needs_root_records_that_cannot_be_used_are_said() {
    let Some(bed) = Bed::start() else { return };
    let registry = Registry::of(&bed);
    let (id, _programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    let job = JobId(id.unsigned_abs());
    let key = Key::Entries(job);
    let whole = registry.value(&key);
    for (wrong, why) in [
        (whole.replace("\"v\":1", "\"v\":9"), "it is of version 9, and this gangd reads 1 at most"),
        (whole[..whole.len() / 2].to_owned(), "it cannot be read"),
    ] {
        registry.write(&key, &wrong);
        for place in [&bed.a, &bed.b] {
            wait_until("hosts know", || !cluster(place).faults.is_empty());
            for args in [&["hosts"][..], &["show", &id.to_string()], &["why", &id.to_string()]] {
                let shown = gang(place, args);
                assert!(shown.contains(why) && shown.contains("matrix/jobs"), "{args:?}: {shown}");
            }
        }
        if why.contains("version") {
            let said = reason(bed.a.client().register_spanning(wanted("x", &[("a", 1), ("b", 1)])));
            assert!(said.contains(why), "{said}");
        }
        registry.write(&key, &whole);
        wait_until("it is read again", || cluster(&bed.a).faults.is_empty());
        bed.wait_for_slots(id, "once its entries can be read");
    }
    // Settings and state: nothing is lost meanwhile.
    for key in [Key::Settings, Key::State] {
        let whole = registry.value(&key);
        registry.write(&key, &whole[..whole.len() / 2]);
        wait_until("hosts know", || !cluster(&bed.b).faults.is_empty());
        bed.wait_for_slots(id, "with the matrix that they have");
        let said = reason(bed.a.client().register_spanning(wanted("x", &[("a", 1), ("b", 1)])));
        assert!(said.contains("is not used here, so that nothing is changed"), "{said}");
        registry.write(&key, &whole);
        wait_until("it is read again", || cluster(&bed.b).faults.is_empty());
        bed.wait_for_slots(id, "as before");
    }
}

#[test]
fn needs_root_part_of_a_gone_job_takes_orders_here() {
    let Some(bed) = Bed::start() else { return };
    let registry = Registry::of(&bed);
    let (id, programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    bed.b.client().suspend(id).unwrap();
    wait_until("it stands still", || stands_still(programs[1].pid()));
    let job = JobId(id.unsigned_abs());
    registry.delete(&[Key::Entries(job), Key::Job { host: "a".to_owned(), job }]);
    wait_until("the cluster has it no more", || spanning(&bed.b, id).is_none());
    bed.b.client().resume(id).unwrap();
    wait_until("it runs", || !stands_still(programs[1].pid()));
    bed.b.client().kill(id, 15).unwrap();
    wait_until("b has no part", || bed.b.job(id).is_none());
    assert!(bed.a.job(id).is_some(), "that of a is for a to kill");
    bed.a.client().kill(id, 9).unwrap();
    wait_until("a has no part", || bed.a.job(id).is_none());
}

#[test]
fn needs_root_kill_reaches_a_host_that_was_lost() {
    let Some(mut bed) = Bed::start() else { return };
    let (id, programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    bed.b.kill();
    wait_until("b is lost", || spanning(&bed.a, id).unwrap().lost == ["b"]);
    bed.a.client().kill(id, 15).unwrap();
    wait_until("a has no part", || bed.a.job(id).is_none());
    std::thread::sleep(std::time::Duration::from_secs(8));
    assert!(spanning(&bed.a, id).is_some(), "b has not heard of it");
    bed.b.start();
    let is_dead = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", programs[1].pid()));
        stat.is_ok_and(|stat| stat.contains(") Z"))
    };
    wait_until("b kills its part", is_dead);
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
}

#[test]
fn needs_root_registration_without_a_process_lapses() {
    let Some(bed) = Bed::start() else { return };
    let mut client = bed.a.client();
    let id = client.register_spanning(wanted("lu", &[("a", 1), ("b", 1)])).unwrap().job;
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
    wait_until("no part is left", || bed.a.job(id).is_none() && bed.b.job(id).is_none());
    let program = Program::spinner();
    let refused = client.add_process(id, program.pid_i64()).unwrap_err().to_string();
    assert!(refused.contains("no process of it came within 10 s"), "{refused}");
}

#[test]
fn needs_root_users_of_one_host_are_named_on_all() {
    let Some(bed) = Bed::start() else { return };
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let games = passwd.lines().find(|line| line.starts_with("games:"));
    let Some(uid) = games.and_then(|line| line.split(':').nth(2)?.parse::<i64>().ok()) else {
        return gang_harness::skipped("there is no user games");
    };
    let others: Vec<&str> = passwd.lines().filter(|line| !line.starts_with("games:")).collect();
    let without = others.join("\n") + "\n";
    let with_another = format!("{without}games:x:4242:4242::/:/bin/sh\n");
    let start = |name: &str, passwd: &str| {
        let own = Own { files: &[("/etc/passwd", passwd)], ..Own::default() };
        let place = Place::of(bed.third(name, own));
        wait_until("it is in", || cluster(&bed.b).hosts.iter().any(|it| it.name == name));
        place
    };
    let (c, d) = (start("c", &without), start("d", &with_another));
    let mut wanted = wanted("lu", &[("b", 1), ("c", 1), ("d", 1)]);
    wanted.owner_uid = Some(uid);
    let mut client = bed.b.client();
    let id = client.register_spanning(wanted).unwrap().job;
    // The same user has another number on d.
    wait_until("d has its part", || d.job(id).is_some_and(|job| job.owner_uid == 4242));
    let recorded = spanning(&bed.b, id).unwrap();
    assert!(recorded.by_root, "root registered it for its owner");
    let why = "there is no user \"games\" on this host";
    for place in [&c, &bed.a] {
        wait_until("it is said", || {
            let missing = spanning(place, id).and_then(|job| job.missing);
            missing.is_some_and(|said| said.starts_with("c: ") && said.contains(why))
        });
    }
    let shown = gang(&bed.a, &["show", &id.to_string()]);
    assert!(shown.contains("not as wanted") && shown.contains(why), "{shown}");
}

#[test]
fn needs_root_next_daemon_counts_on_with_ranks() {
    let Some(mut bed) = Bed::start() else { return };
    let mut wanted = wanted("ranks", &[("a", 1), ("b", 1)]);
    wanted.cpus[1].ranks = Some(3);
    let mut client = bed.a.client();
    let id = client.register_spanning(wanted).unwrap().job;
    let programs = [Program::spinner(), Program::spinner(), Program::spinner()];
    let [first, second, third] = &programs;
    client.add_process(id, first.pid_i64()).unwrap();
    bed.b.client().job_here(id).unwrap();
    bed.b.client().add_process(id, second.pid_i64()).unwrap();
    bed.b.kill();
    bed.b.start();
    bed.b.client().job_here(id).unwrap();
    // The same process again is no other, and one of three has not come.
    bed.b.client().add_process(id, second.pid_i64()).unwrap();
    bed.b.client().add_process(id, third.pid_i64()).unwrap();
    wait_until("b has both", || bed.b.job(id).is_some_and(|job| job.processes == 2));
    assert_eq!(spanning(&bed.a, id).unwrap().awaited, ["b"]);
    let last = Program::spinner();
    bed.b.client().add_process(id, last.pid_i64()).unwrap();
    bed.wait_for_slots(id, "once all ranks are there");
}

#[test]
fn needs_root_host_joins_once_certificate_is_there() {
    if !has_backend("rt") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let configuration = |file: &str, url: &str| {
        let [ca, certificate, key] = ["ca.pem", &format!("{file}.pem"), &format!("{file}.key")]
            .map(|name| path(&format!("pki/{name}")));
        format!(
            "[cluster]\nname = \"lab\"\nendpoints = [\"{url}\"]\nhost = \"a\"\nca = \"{ca}\"\n\
             certificate = \"{certificate}\"\nkey = \"{key}\"\n"
        )
    };
    let alone = Place::new(&[]);
    let config = path("gangd.toml");
    let certificates = |hosts: &[&str]| {
        let of = ["cluster", "certificates", "--config", &config, "--etcd", "127.0.0.1"];
        let directory = path("pki");
        gang(&alone, &[&of[..], &["--hosts"], hosts, &["--", &directory]].concat())
    };
    std::fs::write(&config, configuration("root", "https://127.0.0.1:1")).unwrap();
    let said = certificates(&["b"]);
    assert!(said.contains("etcd.pem") && said.contains("b.pem"), "{said}");
    let options = [
        ("--cert-file", "pki/etcd.pem"),
        ("--key-file", "pki/etcd.key"),
        ("--trusted-ca-file", "pki/ca.pem"),
    ];
    let options = options.iter().flat_map(|(option, file)| [(*option).into(), path(file).into()]);
    let Some(etcd) = Etcd::with(options.chain(["--client-cert-auth".into()]).collect()) else {
        return;
    };
    let url = etcd.url();
    std::fs::write(&config, configuration("root", &url)).unwrap();
    let init = ["cluster", "init", "--config", &config, "--permit-host", "a", "b"];
    wait_until("etcd takes the cluster", || {
        let said = gang(&alone, &init);
        said.contains("host a is user gang-a@lab of etcd")
    });
    let read = |file: &str| std::fs::read(path(&format!("pki/{file}"))).unwrap();
    let tls = Tls { ca: read("ca.pem"), certificate: read("root.pem"), key: read("root.key") };
    let root = Address { endpoints: vec![url.clone()], tls: Some(tls), user: None };
    Registry::runtime().block_on(async {
        let mut client = root.connect().await.unwrap();
        client.user_add("root", "secret", None).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
    });
    let options = Options {
        configuration: &configuration("a", &url),
        flags: &["--no-uncontended-passthrough"],
        ..Options::default()
    };
    let a = Place::of(Daemon::start_in(gang_daemon::Place::new(), &options));
    let shown = gang(&a, &["hosts"]);
    assert!(shown.contains("etcd cannot be reached") && shown.contains("a.pem"), "{shown}");
    let said = certificates(&["a", "b"]);
    assert!(said.contains("a.pem") && !said.contains("b.pem"), "{said}");
    wait_until("it joins", || cluster(&a).hosts.iter().any(|host| host.is_this && host.is_alive));
}
