//! Gangs with more threads than CPUs: the threads that a program has beside those that compute have their part of
//! its slot (L7).

mod place;

use std::{
    fs,
    time::{Duration, Instant},
};

use place::{Place, Program, is_root, job_with, wait_until};

/// What a process has used, in ticks of the kernel.
fn used(program: &Program) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
    // After the name, which may be anything: user and system time are the 14th and 15th of all.
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn needs_root_auxiliary_threads_have_their_part_of_a_slot() {
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    // Both want the one CPU of their slots, and neither ever leaves it by itself.
    let (main, auxiliary) = (Program::spinner(), Program::spinner());
    let job = job_with(&place, &main, 1);
    wait_until("slots", || place.job(job).unwrap().slots > 3);
    place.client().add_process(job, auxiliary.pid_i64()).unwrap();
    let both = || [used(&main), used(&auxiliary)];
    // What each has of half a second of CPU, whether that was of one, and the slots in it.
    let half_a_second = || {
        let (began, before, slots) = (Instant::now(), both(), place.job(job).unwrap().slots);
        let since = || [both()[0] - before[0], both()[1] - before[1]];
        wait_until("half a second of CPU", || since().into_iter().sum::<u64>() >= 50);
        let (elapsed, since) = (began.elapsed(), since());
        let one_cpu = elapsed > Duration::from_millis(9 * since.iter().sum::<u64>());
        (since, one_cpu, place.job(job).unwrap().slots - slots)
    };
    // About half each; in gaps alone it would be less than a tenth.
    let both_have_a_part = |since: [u64; 2]| since.iter().all(|ticks| *ticks >= 10);
    // Until it was seen for some time that there are two, the first has it all but the gaps; and before the second
    // has come, it runs on a CPU of its own.
    wait_until("it is seen that there are two", || {
        let (since, one_cpu, _) = half_a_second();
        one_cpu && both_have_a_part(since)
    });
    let (since, one_cpu, slots) = half_a_second();
    assert!(both_have_a_part(since) && one_cpu && slots > 0, "{since:?}, {one_cpu}, {slots} slots");
    assert_eq!(place.client().check().unwrap().violations, []);
}
