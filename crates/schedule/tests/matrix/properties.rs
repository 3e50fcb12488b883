//! The invariants of every matrix, after any history.

use crate::naive::{self, Naive};
use crate::random::{self, Step};
use gang_schedule::matrix::{HostId, Load, MAX_MOVES, MAX_ROWS, Matrix, Refused, Span};
use gang_schedule::{Config, JobId, Sharing, UserId};
use proptest::prelude::*;

fn hosts(rows: u32, hosts: u32, cpus: u32) -> Matrix {
    let mut matrix = Matrix::new(Config::default(), rows).unwrap();
    (0..hosts).for_each(|host| matrix.add_host(HostId(host), cpus).unwrap());
    matrix
}

/// Two hosts that users share.
fn by_user(rows: u32, sharing: Sharing, cpus: u32) -> Matrix {
    let mut matrix = Matrix::new(Config { sharing, ..Config::default() }, rows).unwrap();
    (0..2).for_each(|host| matrix.add_host(HostId(host), cpus).unwrap());
    matrix
}

/// A job that is as wide as both of them.
fn whole(cpus: u32) -> Span {
    Span::new([(HostId(0), cpus), (HostId(1), cpus)])
}

/// The rows of all jobs of a user.
fn rows_of(matrix: &Matrix, user: UserId) -> u32 {
    let jobs = matrix.jobs().filter(|(_, span, _)| span.user == user);
    jobs.map(|(_, _, placement)| placement.rows.len()).sum()
}

/// Adjusts until nothing changes any more.
fn adjust(matrix: &mut Matrix) {
    for _ in 0..1000 {
        if matrix.adjust().placed.is_empty() {
            return;
        }
    }
    panic!("it still changes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Each job has the rows that it is due, within 3 % or a row, or its columns are full; none has
    /// more.
    #[test]
    fn adjusted_shares_are_within_the_bound(
        matrix in random::empty(), steps in random::history(),
    ) {
        let mut naive = Naive::of(&matrix);
        let mut matrix = matrix;
        for step in steps {
            if let Ok(change) = step.apply(&mut matrix) {
                naive.apply(&step);
                naive.take_over(&change);
            }
        }
        let before = matrix.clone();
        adjust(&mut matrix);
        let all = matrix.jobs().map(|(job, _, placement)| (job, placement.clone())).collect();
        let change = gang_schedule::matrix::Change { frame: matrix.frame(), placed: all };
        naive.take_over(&change);
        for (job, _, _) in before.jobs() {
            let (has, due, free) = naive.rows(job);
            let bound = due * 3 / 100;
            prop_assert!(has <= due + bound, "job {} has {} rows of {}", job, has, due);
            prop_assert!(has + bound >= due || free == 0, "job {} has {} of {}", job, has, due);
        }
        if naive.is_fine() {
            for (host, cpus) in matrix.hosts() {
                for user in (0..3).map(UserId) {
                    let (has, share) = naive.account(host, user);
                    let most = (1.03 * share * f64::from(matrix.frame()) + 0.1) * f64::from(cpus);
                    prop_assert!(has <= most, "user {user} has {has} entries of {most} on {host}");
                }
            }
        }
    }

    /// After a job went, somebody needs the last row of a frame that is longer than the least.
    #[test]
    fn a_frame_is_no_longer_than_needed(matrix in random::empty(), steps in random::history()) {
        let mut naive = Naive::of(&matrix);
        let mut matrix = matrix;
        for step in steps {
            let Ok(change) = step.apply(&mut matrix) else { continue };
            naive.apply(&step);
            naive.take_over(&change);
            if matches!(step, Step::Remove(_)) {
                prop_assert!(naive.needs_last_row());
            }
        }
    }

    /// The same history gives the same matrix, and so does the registry: a host that reads only
    /// placements goes on as one that was there all the time.
    #[test]
    fn matrix_depends_on_what_the_registry_keeps(
        matrix in random::empty(), steps in random::history(), last in random::span(),
    ) {
        let (mut one, mut loads) = (matrix.clone(), Vec::new());
        for step in &steps {
            if step.apply(&mut one).is_ok() {
                loads.extend(matches!(step, Step::Load(..)).then_some(step));
            }
        }
        let mut other = matrix;
        for (job, span, placement) in one.jobs() {
            other.restore(job, span.clone(), placement.clone()).unwrap();
        }
        loads.into_iter().for_each(|load| _ = load.apply(&mut other));
        for step in [Step::Place(99, last), Step::Adjust, Step::Remove(3), Step::Adjust] {
            prop_assert_eq!(step.apply(&mut one), step.apply(&mut other));
        }
        prop_assert_eq!(format!("{:?}", one), format!("{:?}", other));
    }

    /// The share of a user depends on no other one's number of jobs or their weights.
    #[test]
    fn a_users_share_depends_on_no_other_ones_jobs(
        weights in proptest::collection::vec(100u32..10_000, 1..20),
    ) {
        let sharing = Sharing::ByUser([(UserId(1), 100)].into());
        let mut matrix = Matrix::new(Config { sharing, ..Config::default() }, 128).unwrap();
        (0..2).for_each(|host| matrix.add_host(HostId(host), 4).unwrap());
        let both = || Span::new([(HostId(0), 4), (HostId(1), 4)]);
        matrix.place(JobId(0), Span { user: UserId(1), ..both() }).unwrap();
        for (job, weight) in (1..).zip(weights) {
            matrix.place(JobId(job), Span { user: UserId(2), weight, ..both() }).unwrap();
        }
        let share = matrix.share_due(JobId(0)).unwrap();
        prop_assert!((0.5..0.501).contains(&share), "{share}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// On each host the jobs of a user have no more rows than his share of the frame, and one for
    /// rounding, and not much less, however many jobs he has; and what is left is the part of the
    /// local load.
    #[test]
    fn rows_of_an_account_are_its_share(
        weights in proptest::collection::vec(prop_oneof![Just(100u32), 10u32..1000], 1..101),
        others in proptest::collection::vec(100u32..1000, 0..4),
        share in prop_oneof![Just(100u32), 50u32..300],
        has_load: bool,
        first in 0usize..101,
    ) {
        let sharing = Sharing::ByUser([(UserId(1), share)].into());
        let mut matrix = by_user(16, sharing, 4);
        if has_load {
            let load = Load { threads: 9, of_users: [(UserId(3), 9)].into() };
            matrix.set_load(HostId(1), load).unwrap();
        }
        // One job of his weighs as much as usual, so that he is due his whole share.
        let weights = [100].into_iter().chain(weights).map(|weight| (UserId(1), weight));
        let mut jobs: Vec<(UserId, u32)> = weights.collect();
        let at = first.min(jobs.len());
        jobs.splice(at..at, others.iter().map(|&weight| (UserId(2), weight)));
        for (job, &(user, weight)) in (0..).zip(&jobs) {
            // Of jobs whose weights are too different some are refused.
            let placed = matrix.place(JobId(job), Span { user, weight, ..whole(4) });
            prop_assert!(matches!(placed, Ok(_) | Err(Refused::Full { .. })), "{:?}", placed);
        }
        adjust(&mut matrix);
        let is_longest = matrix.frame() == MAX_ROWS;
        let share_of_others = if others.is_empty() { 0 } else { 100 };
        let of_load = if has_load { 100 } else { 0 };
        let all = f64::from(share + share_of_others + of_load);
        let frame = f64::from(matrix.frame());
        let mut left = frame;
        for (user, share) in [(UserId(1), share), (UserId(2), share_of_others)] {
            let has = f64::from(rows_of(&matrix, user));
            let due = f64::from(share) / all * frame;
            prop_assert!(has <= 1.03 * due + 1.0, "user {user} has {has} rows of {due}");
            let least = if is_longest { 0.5 } else { 0.8 };
            prop_assert!(has >= least * due, "user {user} has {has} rows of {due}");
            left -= has;
        }
        let due = f64::from(of_load) / all * frame;
        prop_assert!(left >= 0.97 * due - 1.0, "{left} rows are left of {due}");
    }
}

/// One change moves few jobs, however many would have to.
#[test]
fn movement_is_bounded() {
    let mut matrix = hosts(128, 600, 2);
    let pair = |first: u32| Span::new([(HostId(first), 2), (HostId(first + 1), 2)]);
    for job in 0..300 {
        let change = matrix.place(JobId(job), pair(2 * job as u32)).unwrap();
        assert_eq!(change.placed.len(), 1);
    }
    // One job on all hosts: each of the others has rows that this one is due. They are too many to
    // move at once, so that the frame gets longer.
    let all = Span::new((0..600).map(|host| (HostId(host), 2)));
    let before = matrix.clone();
    let change = matrix.place(JobId(1000), all).unwrap();
    naive::check_change(&before, &matrix, &change);
    assert_eq!((change.frame, change.placed.len()), (192, 1));
    let mut changes = 0;
    loop {
        let before = matrix.clone();
        let change = matrix.adjust();
        naive::check_change(&before, &matrix, &change);
        assert!(change.placed.len() <= MAX_MOVES);
        if change.placed.is_empty() {
            break;
        }
        changes += 1;
    }
    let has = matrix.placement(JobId(1000)).unwrap().rows.len();
    assert!(matrix.frame() <= 132 && has >= 64, "{has} of {}", matrix.frame());
    assert!(changes <= 30, "{changes}");
}

/// Loads come and go; entries follow (L16).
#[test]
fn entries_follow_loads() {
    let mut matrix = hosts(128, 2, 8);
    let rows = |matrix: &Matrix| matrix.placement(JobId(1)).unwrap().rows.len();
    matrix.place(JobId(1), Span::new([(HostId(0), 4), (HostId(1), 4)])).unwrap();
    assert_eq!(rows(&matrix), 128);
    for (threads, due) in [(12, 64), (28, 32), (12, 64), (0, 128)] {
        matrix.set_load(HostId(1), Load::of(threads)).unwrap();
        adjust(&mut matrix);
        assert_eq!(rows(&matrix), due, "{threads} threads");
    }
}

/// Two users have half of the rows each, however many jobs one of them has, and in whichever order
/// they come.
#[test]
fn one_job_has_as_much_as_a_hundred_of_another() {
    for first in [0, 3, 50, 100] {
        let mut matrix = by_user(16, Sharing::ByUser([].into()), 4);
        for job in 0..=100 {
            let user = UserId(if job == first { 1 } else { 2 });
            let before = matrix.clone();
            let change = matrix.place(JobId(job), Span { user, ..whole(4) }).unwrap();
            naive::check_change(&before, &matrix, &change);
        }
        adjust(&mut matrix);
        for user in [1, 2] {
            let part = f64::from(rows_of(&matrix, UserId(user))) / f64::from(matrix.frame());
            assert!((0.49..=0.51).contains(&part), "user {user} has {part}, {first} came first");
        }
    }
}

/// One change cannot move all jobs of a large matrix. The frame doubles at most, and no job waits
/// for the last adjustment with less than half of its rows.
#[test]
fn a_large_matrix_gets_longer_step_by_step() {
    let mut matrix =
        Matrix::new(Config { sharing: Sharing::ByUser([].into()), ..Config::default() }, 16)
            .unwrap();
    (0..602).for_each(|host| matrix.add_host(HostId(host), 2).unwrap());
    let pair = |first: u32| Span::new([(HostId(first), 2), (HostId(first + 1), 2)]);
    for job in 0..300 {
        matrix.place(JobId(job), pair(2 * job as u32)).unwrap();
    }
    let few = Span { user: UserId(1), weight: 1, ..pair(600) };
    matrix.place(JobId(1000), Span { user: UserId(1), ..pair(600) }).unwrap();
    matrix.place(JobId(1001), few).unwrap();
    let least = |matrix: &Matrix| {
        let has = |job| f64::from(matrix.placement(JobId(job)).unwrap().rows.len());
        (0..300).map(|job| has(job) / f64::from(matrix.frame())).reduce(f64::min).unwrap()
    };
    let mut changes = 0;
    loop {
        assert!(least(&matrix) >= 0.49, "{} at {changes}", least(&matrix));
        if matrix.adjust().placed.is_empty() {
            break;
        }
        changes += 1;
    }
    assert!(matrix.frame() >= 404 && least(&matrix) >= 0.97 && changes <= 30, "{changes}");
}

/// Each job has a row at least. Jobs of a user that would thus have rows of users who come later
/// are refused.
#[test]
fn jobs_too_small_for_the_longest_frame_are_refused() {
    let sharing = Sharing::ByUser([].into());
    let config = Config { sharing, slice_ns: 60_000_000_000, ..Config::default() };
    let mut matrix = Matrix::new(config, 16).unwrap();
    (0..2).for_each(|host| matrix.add_host(HostId(host), 4).unwrap());
    matrix.place(JobId(0), Span { user: UserId(1), ..whole(4) }).unwrap();
    let mut refused = 0;
    for job in 1..100 {
        let before = format!("{matrix:?}");
        match matrix.place(JobId(job), Span { user: UserId(2), ..whole(4) }) {
            Ok(_) => {}
            Err(Refused::Full { max: 60 }) => {
                assert_eq!(format!("{matrix:?}"), before);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    adjust(&mut matrix);
    let rows = |matrix: &Matrix| [1, 2, 3].map(|user| rows_of(matrix, UserId(user)));
    assert_eq!((refused, rows(&matrix)), (90, [30, 27, 0]));
    matrix.place(JobId(100), Span { user: UserId(3), ..whole(4) }).unwrap();
    adjust(&mut matrix);
    assert_eq!(rows(&matrix), [20, 18, 20]);
}

/// By program, too, what is left is the part of the local load.
#[test]
fn a_local_load_keeps_its_rows() {
    for (jobs, threads) in [(1, 300), (3, 4), (7, 15), (40, 40), (90, 400)] {
        let mut matrix = hosts(16, 2, 4);
        matrix.set_load(HostId(0), Load::of(threads)).unwrap();
        (0..jobs).for_each(|job| _ = matrix.place(JobId(job), whole(4)).unwrap());
        adjust(&mut matrix);
        let left = matrix.frame() - rows_of(&matrix, UserId::default());
        let part = f64::from(left) / f64::from(matrix.frame());
        let due = f64::from(threads) / (f64::from(threads) + 4.0 * jobs as f64);
        assert!(part >= due - 1e-9 && part <= due + 0.1, "{part} of {due}");
    }
}
