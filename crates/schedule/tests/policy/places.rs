//! Placement near each other.

use gang_schedule::*;

/// 2 nodes of 2 caches of 2 cores of 2 CPUs, numbered as Linux does: the
/// second siblings after all first ones.
fn machine() -> Topology {
    let cpu = |id: u32| {
        let core = id % 8;
        Cpu { id, core, cache: core / 2, node: core / 4 }
    };
    Topology::new((0..16).map(cpu).collect()).unwrap()
}

#[track_caller]
fn places(widths: &[u32], expected: &[&str]) {
    let mut schedule = Schedule::new(Config::default(), machine()).unwrap();
    for (id, &cpus) in widths.iter().enumerate() {
        schedule.apply(Event::Arrived { job: JobId(id as u64), spec: Spec::new(cpus) }).unwrap();
    }
    let row = schedule.plan(0).row;
    let places: Vec<String> = row.iter().map(|slot| slot.cpus.to_string()).collect();
    assert_eq!(places, expected);
}

#[test]
fn a_pair_gets_a_core() {
    places(&[2, 2], &["0,8", "1,9"]);
}

#[test]
fn a_gang_gets_a_cache_and_leaves_whole_ones() {
    places(&[4, 3, 1, 8], &["0-1,8-9", "2-3,10", "11", "4-7,12-15"]);
}

#[test]
fn a_gang_wider_than_a_node_takes_a_whole_one() {
    places(&[12, 4], &["0-5,8-13", "6-7,14-15"]);
}

#[test]
fn a_single_thread_splits_the_most_used_core() {
    places(&[1, 2, 1], &["0", "1,9", "8"]);
}
