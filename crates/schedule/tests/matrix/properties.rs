//! The invariants of every matrix, after any history.

use crate::naive::{self, Naive};
use crate::random::{self, Step};
use gang_schedule::matrix::{HostId, Load, MAX_MOVES, Matrix, Span};
use gang_schedule::{Config, JobId, Sharing, UserId};
use proptest::prelude::*;

fn hosts(rows: u32, hosts: u32, cpus: u32) -> Matrix {
    let mut matrix = Matrix::new(Config::default(), rows).unwrap();
    (0..hosts).for_each(|host| matrix.add_host(HostId(host), cpus).unwrap());
    matrix
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
    }

    /// After a job went, somebody needs the last row of a frame that is longer than the least.
    #[test]
    fn a_frame_is_no_longer_than_needed(matrix in random::empty(), steps in random::history()) {
        let mut naive = Naive::of(&matrix);
        let least = matrix.frame();
        let mut matrix = matrix;
        for step in steps {
            let Ok(change) = step.apply(&mut matrix) else { continue };
            naive.apply(&step);
            naive.take_over(&change);
            if matches!(step, Step::Remove(_)) {
                prop_assert!(matrix.frame() == least || naive.needs_last_row());
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
