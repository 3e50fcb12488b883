//! The judgement, case by case.

use gang_protocol::v1::{self, ShortLived as ShortLivedGang};
use gang_protocol::v1::{Class, Culprit, Guarantee, Measured, Memory, OnCpu, Policy};

use super::*;
use crate::fixture;

/// A gang that has half of the machine and runs as it should.
fn healthy() -> Job {
    // Ten seconds in slot on two CPUs, and nothing lost.
    let mut job = fixture::job(3, "lu");
    let measured = measured(&mut job);
    (measured.lost_ns, measured.filled_ns) = (0, 0);
    measured.per_cpu = ran(19_900_000_000);
    job
}

fn measured(job: &mut Job) -> &mut Measured {
    job.measured.as_mut().unwrap()
}

/// One that lost time in its slots, to somebody.
fn loser(lost_ns: i64, lost_to: Vec<Culprit>) -> Job {
    let mut job = healthy();
    let measured = measured(&mut job);
    (measured.lost_ns, measured.lost_to) = (lost_ns, Some(lost_to));
    job
}

/// Half of it on each of two CPUs.
fn ran(in_slot_ns: i64) -> Option<Vec<OnCpu>> {
    let on_cpu = |cpu| OnCpu { cpu, in_slot_ns: in_slot_ns / 2, lost_ns: 0, filled_ns: 0 };
    Some(vec![on_cpu(0), on_cpu(1)])
}

fn verdict_of(job: Job, change: impl FnOnce(&mut Status)) -> Verdict {
    let mut status = fixture::status();
    change(&mut status);
    let other = fixture::job(4, "sp");
    let jobs = [&job, &other];
    judge(Evidence { job: &job, status: &status, jobs: &jobs, spanning: None })
}

fn kinds(job: Job, change: impl FnOnce(&mut Status)) -> Vec<(Kind, Grade)> {
    verdict_of(job, change).findings.iter().map(|found| (found.kind, found.grade)).collect()
}

#[test]
fn a_part_has_the_reasons_of_all_hosts() {
    let status = fixture::status();
    let mut cluster = fixture::cluster();
    let found = |job: Job, cluster: &v1::Cluster| {
        let spanning = Spanning::find(Some(cluster), fixture::SPANNING);
        let verdict = judge(Evidence { job: &job, status: &status, jobs: &[&job], spanning });
        verdict.findings.iter().map(|found| found.kind).collect::<Vec<_>>()
    };
    let kinds = found(healthy(), &cluster);
    assert!(kinds.starts_with(&[Kind::HostLost]), "{kinds:?}");
    assert!(kinds.contains(&Kind::Entries) && kinds.contains(&Kind::Coscheduled), "{kinds:?}");
    (cluster.jobs[0].wanted, cluster.jobs[0].rows) = (v1::Wanted::suspend, vec![]);
    let suspended = Job { state: JobState::suspended, ..healthy() };
    assert_eq!(found(suspended, &cluster), [Kind::Suspended, Kind::HostLost]);
    cluster.jobs[0].wanted = v1::Wanted::release;
    assert_eq!(found(healthy(), &cluster), [Kind::Released, Kind::HostLost]);
}

fn net(state: v1::GlobalState) -> v1::Net {
    let flushes = v1::Flushes {
        ports: 4,
        flushes: 10,
        failed: 0,
        flush_ns: 1,
        save_ns: 1,
        switch_ns: 1,
        longest_ns: 1,
    };
    v1::Net { flushes, holding: 0, state, since_ns: Some(0) }
}

#[test]
fn each_reason_is_found() {
    use Grade::*;
    use Kind::*;
    let share = (Share, Note);
    let coscheduled = (Coscheduled, Good);
    let culprit = |class: &str| Culprit {
        name: "x".into(),
        pid: 77,
        sched_policy: class.into(),
        ns: 1_500_000_000,
    };
    type Case = (&'static str, fn(&mut Job), fn(&mut Status), &'static [(Kind, Grade)]);
    let cases: &[Case] = &[
        ("healthy", |_| (), |_| (), &[(Share, Note), (Coscheduled, Good)]),
        (
            "alone",
            |job| job.share_wanted = 1.0,
            |_| (),
            &[(LessThanItsShare, Note), (Share, Good), (Coscheduled, Good)],
        ),
        ("starting", |job| job.state = JobState::starting, |_| (), &[(Starting, Note)]),
        ("suspended", |job| job.state = JobState::suspended, |_| (), &[(Suspended, Bad)]),
        ("sleeping", |job| job.state = JobState::sleeping, |_| (), &[(Asleep, Note)]),
        (
            "deadlocked",
            |job| {
                job.state = JobState::sleeping;
                job.net = Some(net(v1::GlobalState::deadlocked));
            },
            |_| (),
            &[(Deadlocked, Bad), (Asleep, Note)],
        ),
        (
            "stalled",
            |job| job.net = Some(net(v1::GlobalState::stalled)),
            |_| (),
            &[(Stalled, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "messages go",
            |job| job.net = Some(v1::Net { since_ns: None, ..net(v1::GlobalState::running) }),
            |_| (),
            &[(Share, Note), (Coscheduled, Good)],
        ),
        ("idle", |job| job.state = JobState::idle, |_| (), &[(Asleep, Note)]),
        (
            "policy none",
            |job| (job.policy, job.state) = (Policy::none, JobState::not_scheduled),
            |_| (),
            &[(NotGangScheduled, Note)],
        ),
        (
            "fork bomb",
            |job| (job.threads, job.state) = (4096, JobState::too_many_threads),
            |_| (),
            &[(Crowded, Bad)],
        ),
        (
            "threads that take long to switch",
            |job| {
                job.state = JobState::too_many_threads;
                job.crowded = Some(v1::Crowded {
                    size: 3000,
                    size_max: 1748,
                    takes_ns: 750_000,
                    others_ns: 500_000,
                    edge_ns: 1_000_000,
                });
            },
            |_| (),
            &[(Crowded, Bad)],
        ),
        (
            "a user with a cap",
            |job| job.user_cap = Some(0.25),
            |_| (),
            &[(Share, Note), (UserCap, Note), (Coscheduled, Good)],
        ),
        (
            "a quota of CPU time",
            |job| {
                job.cpu_quota = Some(v1::CpuQuota { cpus: 0.5, by: "cpu.max of /pod".into() });
            },
            |_| (),
            &[(Share, Note), (CpuQuota, Note), (Coscheduled, Good)],
        ),
        (
            "threads that it pays for",
            |job| (job.threads, job.overhead) = (1004, 0.2),
            |_| (),
            &[(Share, Note), (Overhead, Note), (Coscheduled, Good)],
        ),
        ("CPUs went", |job| job.state = JobState::too_few_cpus, |_| (), &[(TooFewCpus, Bad)]),
        (
            "threads that may use one CPU",
            |job| {
                job.state = JobState::too_few_cpus;
                job.unplaceable = Some("its threads may use 1 of those online: 0".into());
            },
            |_| (),
            &[(TooFewCpus, Bad)],
        ),
        (
            "a limit of its caller",
            |job| job.kept_by = Some("cpu.max of /user.slice".into()),
            |_| (),
            &[(Share, Note), (KeptInItsGroups, Note), (Coscheduled, Good)],
        ),
        (
            "a group that somebody has frozen",
            |job| {
                job.state = JobState::sleeping;
                job.frozen_by = Some("/sys/fs/cgroup/user.slice".into());
            },
            |_| (),
            &[(Asleep, Bad)],
        ),
        (
            "a group of version 1 that somebody has frozen",
            |job| {
                job.state = JobState::sleeping;
                job.frozen_by = Some("/sys/fs/cgroup/freezer/box/freezer.state".into());
            },
            |_| (),
            &[(Asleep, Bad)],
        ),
        (
            "as many threads as are switched, which sleep",
            |job| (job.threads, job.state) = (4096, JobState::sleeping),
            |_| (),
            &[(Asleep, Note)],
        ),
        (
            "as many threads as are switched",
            |job| (job.threads, job.cpus) = (4096, 4096),
            |status| status.cpus = 4096,
            &[(Unused, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "wider than its CPUs",
            |job| (job.threads, measured(job).coscheduled) = (4, Some(0.1)),
            |_| (),
            &[(TooWide, Bad), (Share, Note)],
        ),
        (
            "a build",
            |job| {
                job.short_lived = Some(ShortLivedGang::weighed);
                (job.threads, measured(job).coscheduled) = (4, Some(0.1));
            },
            |_| (),
            &[(ShortLived, Note), (Share, Note)],
        ),
        (
            "a build without a group of its own",
            |job| job.short_lived = Some(ShortLivedGang::unweighed),
            |_| (),
            &[(ShortLived, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "more threads that sleep",
            |job| job.threads = 9,
            |_| (),
            &[(Share, Note), (Coscheduled, Good)],
        ),
        (
            "wider than the machine",
            |job| job.cpus = 4,
            |_| (),
            &[(TooWide, Bad), (Unused, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "standby",
            |job| job.class = Class::standby,
            |_| (),
            &[(Standby, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "had less",
            |job| job.share_had = 0.3,
            |_| (),
            &[(Share, Note), (LessThanItsShare, Note), (Coscheduled, Good)],
        ),
        (
            "noise",
            |job| measured(job).lost_ns = 2_000_000_000,
            |_| (),
            &[(Lost, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "a little noise",
            |job| measured(job).lost_ns = 400_000_000,
            |_| (),
            &[(Share, Note), (Lost, Note), (Coscheduled, Good)],
        ),
        (
            "beside a compositor",
            |job| (measured(job).gave_way, measured(job).gave_way_ns) = (600, 1_000_000_000),
            |_| (),
            &[(Share, Note), (GaveWay, Note), (Coscheduled, Good)],
        ),
        (
            "apart",
            |job| measured(job).coscheduled = Some(0.7),
            |_| (),
            &[(NotCoscheduled, Bad), (Share, Note)],
        ),
        (
            "a little apart",
            |job| measured(job).coscheduled = Some(0.95),
            |_| (),
            &[(Share, Note), (NotCoscheduled, Note)],
        ),
        (
            "skewed",
            |job| measured(job).skew_ns_p99 = Some(900_000),
            |_| (),
            &[(Share, Note), (Skew, Note), (Coscheduled, Good)],
        ),
        (
            "imbalanced",
            |job| measured(job).per_cpu = ran(9_000_000_000),
            |_| (),
            &[(Unused, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "filling",
            |job| measured(job).filled_ns = 4_000_000_000,
            |_| (),
            &[(Share, Note), (Filling, Note), (Coscheduled, Good)],
        ),
        (
            "out of memory",
            |job| {
                let (promised_bytes, used_bytes) = (1 << 30, Some(1 << 30));
                job.memory = Some(Memory { promised_bytes, used_bytes, enforced: true });
            },
            |_| (),
            &[(MemoryFull, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "machine out of memory",
            |_| (),
            |status| status.memory.free = 1 << 20,
            &[(MachineMemoryFull, Bad), (Share, Note), (Coscheduled, Good)],
        ),
        (
            "weak backend",
            |_| (),
            |status| status.guarantee = Guarantee::paused,
            &[(Share, Note), (WeakGuarantee, Note), (Coscheduled, Good)],
        ),
        (
            "capped",
            |_| (),
            |status| status.gang_share_max = 0.5,
            &[(Share, Note), (GangShareMax, Note), (Coscheduled, Good)],
        ),
        (
            "not measured",
            |job| {
                job.not_measured = Some("it is switched off".into());
                job.measured = None;
            },
            |_| (),
            &[(Share, Note), (NotMeasured, Note)],
        ),
        (
            "too new to tell",
            |job| {
                let measured = measured(job);
                measured.slot_ns = 10_000_000;
                measured.per_cpu = ran(1_000_000);
                measured.coscheduled = Some(0.1);
            },
            |_| (),
            &[(Share, Note)],
        ),
    ];
    for (name, of_job, of_status, expected) in cases {
        let mut job = healthy();
        of_job(&mut job);
        assert_eq!(kinds(job, of_status), *expected, "{name}");
    }
    assert_eq!(kinds(healthy(), |_| ()), [share, coscheduled]);
    for (class, advice) in [
        ("fifo", "chrt -o -p 0 77"),
        ("kernel", "thread of the kernel"),
        ("idle CPU", "fell asleep"),
    ] {
        let job = loser(3_000_000_000, vec![culprit(class)]);
        let found = verdict_of(job, |_| ()).findings.remove(0);
        assert!(found.text.contains("x (77") && found.text.contains("50 %"), "{}", found.text);
        assert!(found.advice.unwrap().contains(advice));
    }
}

#[test]
fn gangd_is_named_as_itself() {
    let culprit =
        |name: &str, pid, ns| Culprit { name: name.into(), pid, sched_policy: "fifo".into(), ns };
    // Those of the daemon and its guardian together are the worst.
    let lost_to = vec![
        culprit("x", 77, 900_000_000),
        culprit("switcher", 10, 600_000_000),
        culprit("guardian", 11, 600_000_000),
    ];
    let job = loser(3_000_000_000, lost_to);
    let found = verdict_of(job, |_| ()).findings.remove(0);
    assert!(found.text.contains("ran gangd itself 40 %, x (77, fifo) 30 %."), "{}", found.text);
    assert!(found.advice.unwrap().contains("longer slices"));
}

#[test]
fn the_paragraph_is_plain() {
    let culprit =
        Culprit { name: "cc1".into(), pid: 77, sched_policy: "other".into(), ns: 900_000_000 };
    let mut job = Job { name: "lu\u{1b}[2J".into(), ..loser(1_000_000_000, vec![culprit]) };
    measured(&mut job).per_cpu = ran(9_000_000_000);
    let text = verdict_of(job, |_| ()).paragraph();
    assert_eq!(
        text,
        "Job 3 (lu\\u{1b}[2J): It runs on 0.9 of its 2 CPUs on average while it is in its slot: its \
         threads wait for each other in turn (uneven work, serial phases) or for disks and networks. \
         Its share is 50.0 % of the time beside 1 other job and 1 thread outside all jobs; it was in \
         its slot for 49.0 % of the last 10 s. So it takes about 2.0 times as long as alone. In its \
         slots it waited for 5.0 % of its CPUs' time (1.0 s in all); in its place ran cc1 (77, other) \
         90 %. All of its runnable threads ran for 99.0 % of the time in its slots. What to change: ask \
         for fewer CPUs, which come more often (gang set 3 -n 1); to have more, give it more weight \
         (gang set 3 --weight)."
    );
    let alone = Job { share_wanted: 1.0, share_had: 0.99, ..healthy() };
    let text = verdict_of(alone, |_| ()).paragraph();
    assert!(text.contains("Nothing keeps it from its speed"), "{text}");
}

#[test]
fn numbers_of_a_crowded_job_are_said() {
    let job = Job {
        state: JobState::too_many_threads,
        crowded: Some(v1::Crowded {
            size: 3000,
            size_max: 1748,
            takes_ns: 750_000,
            others_ns: 500_000,
            edge_ns: 1_000_000,
        }),
        ..healthy()
    };
    let expected = "It has 3000 threads, which take 750 µs to switch; there is 1 ms, of which \
                    other jobs need 500 µs. It gets no slots until it has 1748 threads at most.";
    let text = verdict_of(job, |_| ()).paragraph();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn charge_for_switches_is_said() {
    let text = verdict_of(Job { threads: 1004, overhead: 0.4, ..healthy() }, |_| ()).paragraph();
    let expected = "Switching its 1004 threads takes 40.0 % of a slice, which it is charged: it \
                    weighs 71 instead of 100.";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn what_it_left_to_real_time_threads_is_said() {
    let mut job = healthy();
    (measured(&mut job).gave_way, measured(&mut job).gave_way_ns) = (600, 1_000_000_000);
    let text = verdict_of(job, |_| ()).paragraph();
    let expected = "In its slots it gave way to real-time threads of its priority 600 times, for \
                    5.0 % of its CPUs' time.";
    assert!(text.contains(expected), "{text}");
}
