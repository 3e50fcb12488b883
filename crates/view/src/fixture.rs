//! Jobs, rows and a daemon's status that tests begin with, here and in `gang`.

use gang_protocol::v1;

/// An interactive job of two CPUs that is coscheduled nearly always.
pub fn job(id: i64, name: &str) -> v1::Job {
    v1::Job {
        id,
        name: name.to_owned(),
        owner_uid: 0,
        class: v1::Class::interactive,
        policy: v1::Policy::gang,
        decision: None,
        weight: 100,
        cpus: 2,
        min_cpus: 2,
        state: v1::JobState::running,
        cgroup: None,
        processes: 1,
        threads: 2,
        single_threads: None,
        unplaceable: None,
        crowded: None,
        kept_by: None,
        frozen_by: None,
        uncontended: false,
        short_lived: None,
        overhead: 0.0,
        user_cap: None,
        cpu_quota: None,
        cpu_list: vec![0, 1],
        share_wanted: 0.5,
        share_had: 0.49,
        registered_at_ns: 0,
        slots: 1000,
        in_slot_ns: 10_000_000_000,
        cpu_time_ns: 20_000_000_000,
        memory: None,
        disk_bytes: None,
        signals: false,
        progress: None,
        net: None,
        measured: Some(v1::Measured {
            coscheduled: Some(0.99),
            skew_ns_p99: Some(120_000),
            lost_ns: 100_000_000,
            filled_ns: 500_000_000,
            waiting_ns: 9_000_000_000,
            gave_way: 0,
            gave_way_ns: 0,
            slot_ns: 10_000_000_000,
            lost_to: None,
            per_cpu: None,
        }),
        not_measured: None,
    }
}

/// A row that gives CPUs to jobs, of two CPUs in all.
pub fn row(slice: i64, slice_ns: i64, slots: &[(i64, &[i64])]) -> v1::Row {
    let slot = |(job, cpus): &(i64, &[i64])| v1::Slot { job: *job, cpu_list: cpus.to_vec() };
    v1::Row {
        slice,
        start_ns: slice * slice_ns,
        end_ns: (slice + 1) * slice_ns,
        slots: slots.iter().map(slot).collect(),
        rest_cpus: 2 - slots.iter().map(|(_, cpus)| cpus.len() as i64).sum::<i64>(),
        rest_turn: false,
        gap: None,
    }
}

/// The machine's daemon on two CPUs, with slices of 10 ms.
pub fn status() -> v1::Status {
    let phase = || v1::Phase { p50_ns: 12_000, p99_ns: 45_000, max_ns: 789_000 };
    let backend = v1::Backend {
        name: "rt".to_owned(),
        guarantee: v1::Guarantee::exclusive,
        usable: true,
        reason: None,
    };
    v1::Status {
        version: "0.1.0".to_owned(),
        pid: 10,
        guardian_pid: Some(11),
        uptime_ns: 245_000_000_000,
        backend: "rt".to_owned(),
        guarantee: v1::Guarantee::exclusive,
        backends: vec![backend],
        slice_ns: 10_000_000,
        gap_ns: 500_000,
        gap_period_ns: 10_000_000,
        fill: true,
        gang_share_max: 1.0,
        cpus: 2,
        jobs: 2,
        unregistered_threads: 1,
        switches: v1::Switches {
            count: 5000,
            late: phase(),
            lower: phase(),
            raise: phase(),
            skew: phase(),
            late_plans: 3,
            ran_out: 0,
        },
        measuring: v1::Measuring::yes,
        not_measured: None,
        not_proved: None,
        working_hours: None,
        shares: v1::Shares::equal,
        express_weight: None,
        interactive_weight: 200,
        batch_weight: 100,
        class_slices: vec![v1::ClassSlice { class: v1::Class::batch, slice_ns: 100_000_000 }],
        memory: v1::Supply { total: 16 << 30, free: 10 << 30, promised: 2 << 30 },
        disk: v1::Supply { total: 100 << 30, free: 50 << 30, promised: 0 },
        load_average: 1.5,
        flushes: None,
    }
}

/// The first number of a job that spans hosts.
pub const SPANNING: i64 = 1_000_000_000;

/// A cluster as its host `a` has read it. Host `b` is away, `c` takes no part. The first job has
/// half of the rows on `a` and `b`, and has lost `b`; the second is on other hosts.
pub fn cluster() -> v1::Cluster {
    let clock = v1::HostClock { source: "chrony".into(), offset_ns: 1, bound_ns: 50_000 };
    let a = v1::Host {
        name: "a".into(),
        cpus: 4,
        is_this: true,
        shares_kernel: true,
        adjusts: true,
        is_alive: true,
        clock: Some(clock),
        unwilling: None,
        revision: Some(7),
        late_ns: None,
        threads: Some(3),
        parts: Some(vec![SPANNING]),
    };
    let b = v1::Host {
        name: "b".into(),
        is_this: false,
        shares_kernel: false,
        adjusts: false,
        is_alive: false,
        clock: None,
        revision: None,
        threads: None,
        parts: None,
        ..a.clone()
    };
    let c = v1::Host {
        name: "c".into(),
        is_this: false,
        shares_kernel: false,
        adjusts: false,
        unwilling: Some("its clock may be 5000 µs off".into()),
        parts: Some(vec![]),
        ..a.clone()
    };
    let cpus =
        |host: &str, cpus| v1::HostCpus { host: host.into(), cpus, ranks: None, allowed: None };
    let columns = |host: &str| v1::Columns { host: host.into(), columns: vec![0, 1] };
    let here = v1::SpanningJob {
        id: SPANNING,
        name: "lu".into(),
        owner: "ann".into(),
        owner_uid: 1000,
        by_root: false,
        class: v1::Class::batch,
        weight: 100,
        registrar: "a".into(),
        cpus: vec![cpus("a", 2), cpus("b", 2)],
        wanted: v1::Wanted::run,
        rows: (0..8).collect(),
        columns: vec![columns("a"), columns("b")],
        lost: vec!["b".into()],
        awaited: vec![],
        launched_as: None,
        registered_at_ns: 0,
        missing: None,
    };
    let elsewhere = v1::SpanningJob {
        id: SPANNING + 1,
        name: "evil\u{1b}[2J".into(),
        owner: "ben".into(),
        registrar: "c".into(),
        cpus: vec![cpus("c", 4), cpus("gone", 1)],
        rows: vec![],
        columns: vec![],
        lost: vec![],
        ..here.clone()
    };
    v1::Cluster {
        name: "lab".into(),
        host: "a".into(),
        refused: None,
        unreachable: None,
        revision: 9,
        slice_ns: Some(20_000_000),
        frame: Some(16),
        hosts: vec![a, b, c],
        jobs: vec![here, elsewhere],
        faults: vec![],
    }
}
