//! Jobs that span both hosts.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    thread,
    time::Duration,
};

use gang_daemon::{Own, stderr, stdout};
use gang_protocol::{client::Change, v1};

use crate::{
    bed::{Bed, cluster, reason, spanning, wanted},
    place::{Place, Program, stands_still, wait_for, wait_until},
};

#[test]
fn needs_root_job_spans_two_hosts() {
    let Some(bed) = Bed::start() else { return };
    let again = bed.init();
    assert!(stderr(&again).contains("has a cluster of this name already"), "{}", stderr(&again));
    let (id, programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    let seen = spanning(&bed.b, id).unwrap();
    assert_eq!((seen.registrar.as_str(), seen.owner.as_str(), &seen.missing), ("a", "root", &None));
    assert!(!seen.rows.is_empty() && seen.columns.len() == 2, "{seen:?}");
    // Both have the same slots: those of a past slice that either has planned.
    let rows = |place: &Place| place.client().frame(None).unwrap().rows;
    wait_until("the same rows", || {
        let (on_a, on_b) = (rows(&bed.a), rows(&bed.b));
        let has = |row: &v1::Row| row.slots.iter().any(|slot| slot.job == id);
        on_a.iter().any(|row| {
            let same = on_b.iter().find(|other| other.slice == row.slice);
            has(row) && same.is_some_and(has)
        })
    });
    // Beside each switch stands how far the clock may be from UTC.
    for place in [&bed.a, &bed.b] {
        wait_until("switches with a bound of the clock", || {
            let switches = place.client().switches(0).unwrap().switches;
            switches.last().is_some_and(|switch| switch.clock_bound_ns.is_some())
        });
    }
    // Any of its hosts takes orders for all.
    bed.b.client().suspend(id).unwrap();
    for program in &programs {
        wait_until("it stands still", || stands_still(program.pid()));
    }
    bed.a.client().resume(id).unwrap();
    bed.wait_for_slots(id, "after it was resumed");
    let change = Change { weight: Some(50), ..Change::default() };
    bed.a.client().set(id, &change).unwrap();
    wait_until("b knows its weight", || bed.b.job(id).unwrap().weight == 50);
    let refused = bed.a.client().kill(id, 10).unwrap_err().to_string();
    assert!(refused.contains("15 (TERM) or 9 (KILL)"), "{refused}");
    bed.b.client().kill(id, 15).unwrap();
    for place in [&bed.a, &bed.b] {
        wait_until("no part is left", || place.job(id).is_none());
    }
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
}

#[test]
fn needs_root_jobs_that_cannot_be_are_refused() {
    let Some(bed) = Bed::start() else { return };
    let mut client = bed.a.client();
    let mut refused = |hosts: &[(&str, i64)]| reason(client.register_spanning(wanted("x", hosts)));
    for (hosts, why) in [
        (&[("a", 1), ("nowhere", 1)][..], "host nowhere is not in the cluster"),
        (&[("a", 1)], "two hosts at least"),
        (&[("a", 2), ("b", 1)], "CPUs"),
        (&[], "at least one host"),
        (&[("a", 1), ("a", 1)], "each host once"),
        (&[("a", 0)], "cpus"),
    ] {
        let said = refused(hosts);
        assert!(said.contains(why), "{hosts:?}: {said}");
    }
    assert!(cluster(&bed.a).jobs.is_empty());
    // One that nobody starts ends with its connection.
    let id = client.register_spanning(wanted("lu", &[("a", 1), ("b", 1)])).unwrap().job;
    wait_until("b has its part", || bed.b.job(id).is_some());
    drop(client);
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
    wait_until("b has no part", || bed.b.job(id).is_none());
    // A host without a cluster says so.
    let alone = Place::new(&[]);
    assert_eq!(alone.client().cluster().unwrap(), None);
    let said = reason(alone.client().register_spanning(wanted("x", &[("a", 1)])));
    assert!(said.contains("gangd.toml has no [cluster]"), "{said}");
}

#[test]
fn needs_root_slots_go_on_without_etcd() {
    let Some(mut bed) = Bed::start() else { return };
    let (id, _programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    bed.etcd.stop();
    wait_until("a knows", || cluster(&bed.a).unreachable.is_some());
    bed.wait_for_slots(id, "without etcd");
    let said = reason(bed.a.client().register_spanning(wanted("x", &[("a", 1)])));
    assert!(said.contains("the registry cannot be reached"), "{said}");
    assert!(bed.a.client().suspend(id).is_err());
    // A daemon that starts meanwhile has its part, and the rows that it followed.
    bed.b.kill();
    bed.b.start();
    wait_until("b has its part", || bed.b.job(id).is_some());
    bed.wait_for_slots(id, "of a daemon that started without etcd");
    bed.etcd.start_again();
    wait_until("a knows", || cluster(&bed.a).unreachable.is_none());
    bed.wait_for_hosts();
    bed.wait_for_slots(id, "after etcd came back");
    assert!(spanning(&bed.a, id).is_some());
}

#[test]
fn needs_root_daemon_of_a_part_may_die() {
    let Some(mut bed) = Bed::start() else { return };
    let (id, programs) = bed.job("lu");
    bed.wait_for_slots(id, "at first");
    bed.a.kill();
    bed.a.start();
    bed.wait_for_slots(id, "after a daemon was killed");
    bed.b.client().suspend(id).unwrap();
    wait_until("it stands still", || programs.iter().all(|it| stands_still(it.pid())));
    bed.b.kill();
    bed.b.start();
    wait_until("b has its part", || bed.b.job(id).is_some());
    bed.a.client().resume(id).unwrap();
    bed.wait_for_slots(id, "after it was resumed");
    // Where its programs end, so does the job.
    drop(programs);
    wait_until("the cluster forgets it", || spanning(&bed.b, id).is_none());
}

#[test]
fn needs_root_job_waits_for_its_ranks() {
    let Some(bed) = Bed::start() else { return };
    let mut wanted = wanted("ranks", &[("a", 1), ("b", 1)]);
    wanted.launched_as = Some("slurm:12.0".to_owned());
    (wanted.cpus[0].ranks, wanted.cpus[1].ranks) = (Some(1), Some(2));
    let (mut on_a, mut on_b) = (bed.a.client(), bed.b.client());
    let id = on_a.register_spanning(wanted.clone()).unwrap().job;
    assert_eq!(on_b.register_spanning(wanted).unwrap().job, id, "a program has one job");
    let programs = [Program::spinner(), Program::spinner(), Program::spinner()];
    let awaited = || spanning(&bed.b, id).unwrap().awaited;
    on_a.add_process(id, programs[0].pid_i64()).unwrap();
    wait_until("a has its rank", || awaited() == ["b"]);
    on_b.add_process(id, programs[1].pid_i64()).unwrap();
    // The same one again is no other.
    on_b.add_process(id, programs[1].pid_i64()).unwrap();
    let slots = || [&bed.a, &bed.b].map(|place| place.job(id).unwrap().slots);
    wait_until("b has another program", || on_b.job_here(id).unwrap().processes == 1);
    assert_eq!((awaited(), slots()), (vec!["b".to_owned()], [0, 0]));
    on_b.add_process(id, programs[2].pid_i64()).unwrap();
    bed.wait_for_slots(id, "once all ranks are there");
    assert!(awaited().is_empty());
    drop(programs);
    // The connections that registered it are open still.
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
}

#[test]
fn needs_root_job_may_start_without_all_ranks() {
    let Some(bed) = Bed::start() else { return };
    let mut client = bed.a.client();
    let mut wanted = wanted("half", &[("a", 1), ("b", 1)]);
    wanted.cpus[1].ranks = Some(2);
    let id = client.register_spanning(wanted).unwrap().job;
    let programs = [Program::spinner(), Program::spinner()];
    client.add_process(id, programs[0].pid_i64()).unwrap();
    let mut on_b = bed.b.client();
    on_b.job_here(id).unwrap();
    on_b.add_process(id, programs[1].pid_i64()).unwrap();
    assert_eq!(spanning(&bed.a, id).unwrap().awaited, ["b"]);
    client.resume(id).unwrap();
    bed.wait_for_slots(id, "without the rank that is missing");
}

#[test]
fn needs_root_gang_run_starts_parts() {
    let Some(bed) = Bed::start() else { return };
    let gang = bed.a.programs.join("gang");
    let mut run = bed.a.command(&gang);
    let program = Program::start(run.args(["run", "--hosts", "a:1,b:1", "sleep", "infinity"]));
    let id = wait_for("the job", || Some(cluster(&bed.a).jobs.first()?.id));
    // As a launcher starts a part on the other host, with its environment.
    let mut join = bed.b.command(&gang);
    join.env("GANG_JOB", id.to_string());
    let part = Program::start(join.args(["run", "--join", "sleep", "infinity"]));
    let is_started = |place: &Place| place.job(id).is_some_and(|job| job.processes > 0);
    wait_until("both parts have processes", || is_started(&bed.a) && is_started(&bed.b));
    let shown = stdout(&bed.b.command(&gang).arg("hosts").output().unwrap());
    assert!(shown.contains(&id.to_string()) && shown.contains("a:1,b:1"), "{shown}");
    drop(program);
    // The part on b goes on, and the job with it.
    wait_until("a has no process", || !is_started(&bed.a));
    assert!(spanning(&bed.a, id).is_some());
    let killed = bed.a.command(&gang).args(["kill", &id.to_string()]).output().unwrap();
    assert!(killed.status.success(), "{}", stderr(&killed));
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
    drop(part);
}

#[test]
fn needs_root_launcher_may_have_no_part() {
    let Some(bed) = Bed::start() else { return };
    let login = Place::of(bed.third("login", Own::default()));
    let gang = login.programs.join("gang");
    let mut run = login.command(&gang);
    let line = ["run", "--hosts", "a:1,b:1", "sh", "-c", "echo $GANG_JOB; read line"];
    let mut launcher = run.args(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let id: i64 = said.next().unwrap().unwrap().parse().unwrap();
    let programs = [Program::spinner(), Program::spinner()];
    for (place, program) in [&bed.a, &bed.b].into_iter().zip(&programs) {
        let mut client = place.client();
        client.job_here(id).unwrap();
        client.add_process(id, program.pid_i64()).unwrap();
    }
    bed.wait_for_slots(id, "of a job that was launched from elsewhere");
    assert!(login.job(id).is_none());
    // The launcher's host looks every 3 s whether any has come: four times, also where it is late.
    thread::sleep(Duration::from_secs(12));
    // It is there as long as its launcher is, and ends with it.
    drop(programs);
    for place in [&bed.a, &bed.b] {
        // A part ends with its last process, and comes again as long as the job is wanted.
        wait_until("no process is left", || place.job(id).is_none_or(|job| job.processes == 0));
    }
    // Beyond the time in which a job without a process lapses.
    thread::sleep(Duration::from_secs(12));
    assert!(spanning(&bed.a, id).is_some());
    drop(launcher.stdin.take());
    wait_until("the launcher ends", || launcher.try_wait().unwrap().is_some());
    wait_until("the cluster forgets it", || spanning(&bed.a, id).is_none());
}
