//! Jobs, rows and a daemon's status that tests begin with, here and in `gang`.

use gang_protocol::v1;

/// An interactive job of two CPUs that runs together nearly always.
pub fn job(id: i64, name: &str) -> v1::Job {
    v1::Job {
        id,
        name: name.to_owned(),
        owner_uid: 0,
        class: v1::Class::interactive,
        policy: v1::Policy::gang,
        decided: None,
        gain: None,
        because: None,
        weight: 100,
        cpus: 2,
        min_cpus: 2,
        state: v1::JobState::running,
        cgroup: None,
        processes: 1,
        threads: 2,
        single_threads: None,
        alone: Some(false),
        cpu_list: vec![0, 1],
        share_wanted: 0.5,
        share_had: 0.49,
        registered_at_ns: 0,
        slots: 1000,
        in_slot_ns: 10_000_000_000,
        cpu_time_ns: 20_000_000_000,
        mem_bytes: None,
        mem_used_bytes: None,
        mem_enforced: false,
        disk_bytes: None,
        signals: false,
        progress_done: None,
        progress_total: None,
        progress_at_ns: None,
        not_measured: None,
        coscheduled: Some(0.99),
        skew_us_p99: Some(120.0),
        lost_ns: Some(100_000_000),
        filled_ns: Some(500_000_000),
        waiting_ns: Some(9_000_000_000),
        measured_slot_ns: Some(10_000_000_000),
        lost_to: None,
        per_cpu: None,
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
    let phase = || v1::Phase { p50_us: 12.0, p99_us: 45.0, max_us: 789.0 };
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
        cap: 1.0,
        cpus: 2,
        jobs: 2,
        unregistered_threads: 1,
        switches: v1::Switches {
            count: 5000,
            late: phase(),
            lower: phase(),
            raise: phase(),
            skew: phase(),
            late_plans: Some(3),
            ran_out: Some(0),
        },
        measuring: v1::Measuring::yes,
        not_measured: None,
        not_proved: None,
        working_hours: None,
        express_weight: None,
        interactive_weight: 200,
        batch_weight: 100,
        class_slices: vec![v1::ClassSlice { class: v1::Class::batch, slice_ns: 100_000_000 }],
        memory: v1::Supply { total: 16 << 30, free: 10 << 30, promised: 2 << 30 },
        disk: v1::Supply { total: 100 << 30, free: 50 << 30, promised: 0 },
        load_average: 1.5,
    }
}
