//! Quotas of users: jobs and promises.

use gang_conductor::{
    Accounts, Candidate, Conductor, Now, Refused,
    admission::{LAPSES_AFTER_NS, Resources},
};
use gang_schedule::JobId;

use crate::one::{JOB, NOW, PID, STARTED, candidate, cgroup, conductor, home, set};

fn of(owner_uid: u32) -> Candidate {
    Candidate { owner_uid, ..candidate(1) }
}

/// A job of one who was promised so much memory.
fn promised(core: &mut Conductor, mem_bytes: u64) -> JobId {
    let resources = Resources { mem_bytes, disk_bytes: 0 };
    core.register(NOW, Candidate { resources, ..candidate(1) }).unwrap()
}

#[test]
fn jobs_are_left_for_the_next_user() {
    let mut core = conductor();
    set(&mut core, |it| (it.limits.jobs, it.limits.jobs_per_user) = (16, 16));
    let mut taken = |uid| (0..16).take_while(|_| core.register(NOW, of(uid)).is_ok()).count();
    assert_eq!([taken(1), taken(2), taken(3), taken(1)], [8, 4, 2, 0]);
    let refused = core.register(NOW, of(1)).unwrap_err();
    assert_eq!(refused, Refused::LimitReached { limit: "jobs of a user", maximum: 5 });
    assert!(core.register(NOW, of(0)).is_ok());
}

#[test]
fn limits_of_users_do_not_hold_the_daemons_user() {
    let mut core = conductor();
    set(&mut core, |it| (it.limits.jobs_per_user, it.limits.cpus_per_user) = (2, 4));
    let taken = |core: &mut Conductor, uid| {
        (0..9).take_while(|_| core.register(NOW, of(uid)).is_ok()).count()
    };
    assert_eq!(taken(&mut core, 1000), 2);
    set(&mut core, |it| it.accounts = it.accounts.clone().of_daemon(1000));
    assert_eq!(taken(&mut core, 1000), 6);
    assert!(core.change(JOB, |spec, _| spec.cpus = 64).is_ok());
}

#[test]
fn numbers_of_one_person_count_together() {
    let mut core = conductor();
    let accounts = Accounts::new(vec![], [(100_000..=165_535, 1000)]);
    set(&mut core, |it| (it.limits.jobs, it.accounts) = (16, accounts));
    let taken = (0..16u32).take_while(|it| core.register(NOW, of(100_000 + it)).is_ok()).count();
    assert_eq!(taken, 8);
    assert!(core.register(NOW, of(1000)).is_err() && core.register(NOW, of(1001)).is_ok());
}

#[test]
fn promise_lapses_until_a_process_comes() {
    let mut core = conductor();
    let job = promised(&mut core, 7);
    assert_eq!(job, JOB);
    // Whatever the clock is set to meanwhile.
    let at = |utc_ns, passed_ns| Now { utc_ns, monotonic_ns: NOW.monotonic_ns + passed_ns };
    let set = [0, NOW.utc_ns - 3600 * LAPSES_AFTER_NS, NOW.utc_ns + 3600 * LAPSES_AFTER_NS];
    let later = at(NOW.utc_ns, LAPSES_AFTER_NS + 1);
    let bytes = |core: &Conductor, now| -> Vec<u64> {
        core.promises(now).map(|(_, claim, _)| claim.unused.mem_bytes).collect()
    };
    for utc_ns in set {
        assert_eq!(bytes(&core, at(utc_ns, LAPSES_AFTER_NS)), [7]);
        assert!(bytes(&core, at(utc_ns, LAPSES_AFTER_NS + 1)).is_empty());
    }
    core.attach(NOW, JOB, home(cgroup()), (PID, STARTED)).unwrap();
    assert_eq!(bytes(&core, later), [7]);
}
