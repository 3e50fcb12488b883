//! The quotas of CPU time that bind jobs.

use gang_conductor::{Conductor, Now, confinement::CHANGES_EVERY_NS, life::State};
use gang_schedule::Quota;

use crate::one::{JOB, NOW, in_state};

fn quota(cpu_permille: u32) -> Option<Quota> {
    Some(Quota { group: 7, cpu_permille, period_us: 100_000 })
}

/// The daemon reads the job's quota, so long after the beginning.
fn reads(core: &mut Conductor, after_ns: u64, quota: Option<Quota>) {
    core.limit_cpu_time(JOB, quota.is_some(), quota).unwrap();
    let now = Now { utc_ns: NOW.utc_ns + after_ns, monotonic_ns: NOW.monotonic_ns + after_ns };
    core.begin_step(now);
}

#[test]
fn quota_changes_enter_plans_but_not_too_often() {
    let mut core = in_state(State::Present);
    assert_eq!(core.jobs()[&JOB].spec.quota, None);
    reads(&mut core, 0, quota(500));
    assert_eq!(core.jobs()[&JOB].spec.quota, quota(500));
    assert_eq!(core.schedule().spec(JOB).and_then(|spec| spec.quota), quota(500));
    assert!(core.schedule().is_changed());
    reads(&mut core, CHANGES_EVERY_NS / 2, quota(100));
    assert_eq!(core.jobs()[&JOB].spec.quota, quota(500), "too soon");
    core.change(JOB, |spec, _| spec.weight = 200).unwrap();
    assert_eq!(core.jobs()[&JOB].spec.quota, quota(500), "a request does not change it");
    reads(&mut core, CHANGES_EVERY_NS, quota(100));
    assert_eq!(core.jobs()[&JOB].spec.quota, quota(100));
    reads(&mut core, 2 * CHANGES_EVERY_NS, None);
    assert_eq!(core.schedule().spec(JOB).and_then(|spec| spec.quota), None);
}

#[test]
fn job_without_processes_has_no_quota() {
    let mut core = in_state(State::Registered);
    reads(&mut core, 0, quota(500));
    assert_eq!(core.jobs()[&JOB].spec.quota, None);
}
