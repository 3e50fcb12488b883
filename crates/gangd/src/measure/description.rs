//! The figures measured of a job, in the terms of the interface.

use gang_bpf::{GangSums, NotMeasured, Whole};
use gang_protocol::v1;
use gang_timetable::record::Placement;

use super::measuring::{Measuring, group_number};

/// Nanoseconds of microseconds, as these are measured: with fractions.
pub fn ns(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

/// Writes what was measured of a job into its description, or why nothing was.
pub fn describe(measuring: &Measuring, placement: Option<&Placement>, job: &mut v1::Job) {
    match sums(measuring, placement) {
        Err(reason) => job.not_measured = Some(reason),
        Ok(sums) => {
            job.measured = Some(v1::Measured {
                coscheduled: sums.coscheduled(),
                skew_ns_p99: sums.skew_us_p99().map(ns),
                lost_ns: sums.lost_ns as i64,
                filled_ns: sums.filled_ns as i64,
                waiting_ns: sums.waiting_ns as i64,
                gave_way: sums.gave_way as i64,
                gave_way_ns: sums.gave_way_ns as i64,
                slot_ns: sums.slot_ns as i64,
                whole: whole_time(&sums.whole),
                lost_to: None,
                per_cpu: None,
            });
        }
    }
}

/// How much of its turns a gang was whole; absent where it never asked for its row.
fn whole_time(whole: &Whole) -> Option<v1::WholeTime> {
    Some(v1::WholeTime {
        asked_ns: whole.asked_ns as i64,
        whole_ns: whole.whole_ns as i64,
        other_ns: whole.other_ns as i64,
        split_ns: whole.split_ns as i64,
        partly_ns: whole.partly_ns() as i64,
        gap_ns: whole.gap_ns as i64,
        edge_ns: whole.edge_ns as i64,
        noise_ns: whole.noise_ns() as i64,
        share: whole.share()?,
        steady_share: whole.steady_share(),
        left_out_ns: whole.away_asked_ns as i64,
        left_out: whole.left_out()?,
        left_out_whole_ns: whole.away_whole_ns as i64,
    })
}

/// The same of all gangs together; absent where nothing is measured, too.
pub fn whole_of_all(measuring: &Measuring) -> Option<v1::WholeTime> {
    whole_time(&measuring.meter().ok()?.whole().ok()?)
}

fn sums(measuring: &Measuring, placement: Option<&Placement>) -> Result<GangSums, String> {
    let meter = measuring.meter()?;
    let group = match placement {
        None => return Err("it has no process yet".into()),
        Some(Placement::Tree { .. }) => {
            return Err("it has no cgroup of its own: the kernel tells gangs apart by those".into());
        }
        Some(Placement::Cgroup { group, .. }) => group,
        Some(Placement::Threads { .. }) => {
            let reason = "it is of single threads: the kernel tells gangs apart by their cgroups";
            return Err(reason.into());
        }
    };
    let group = group_number(group).ok_or_else(|| NotMeasured::NotWatched.to_string())?;
    meter.read(group).map_err(|reason| reason.to_string())
}

/// The processes that a job waited for in its slots; absent where that was not measured.
pub fn lost_to(measuring: &Measuring, placement: &Placement) -> Option<Vec<v1::Culprit>> {
    let Placement::Cgroup { group, .. } = placement else { return None };
    let culprits = measuring.meter().ok()?.lost_to(group_number(group)?).ok()?;
    let culprits = culprits.into_iter().map(|culprit| v1::Culprit {
        name: culprit.name,
        pid: culprit.pid.into(),
        sched_policy: culprit.class.name().into(),
        ns: culprit.ns as i64,
    });
    Some(culprits.collect())
}

/// The times of a job on each CPU that it used; absent where they were not measured.
pub fn per_cpu(measuring: &Measuring, placement: &Placement) -> Option<Vec<v1::OnCpu>> {
    let Placement::Cgroup { group, .. } = placement else { return None };
    let of_cpus = measuring.meter().ok()?.per_cpu(group_number(group)?).ok()?;
    let of_cpus = of_cpus.into_iter().map(|it| v1::OnCpu {
        cpu: it.cpu.into(),
        in_slot_ns: it.in_slot_ns as i64,
        lost_ns: it.lost_ns as i64,
        filled_ns: it.filled_ns as i64,
    });
    Some(of_cpus.collect())
}
