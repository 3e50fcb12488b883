//! Gangs with more threads than CPUs: the threads that a program has beside those that compute have their part of
//! its slot (L7).

mod place;

use std::fs;

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
    let of_the_next = |ticks: u64| {
        let before = both();
        let since = || [both()[0] - before[0], both()[1] - before[1]];
        wait_until("some CPU time", || since().into_iter().sum::<u64>() >= ticks);
        since()
    };
    // Until it was seen for some time that there are two, the first has it all but the gaps; and before the second
    // has come, it runs wherever it likes.
    wait_until("the second has its part", || of_the_next(50)[1] >= 10);
    let slots = place.job(job).unwrap().slots;
    let since = of_the_next(50);
    // About half each; a twentieth is what is left to ordinary threads where others are raised.
    assert!(since.iter().all(|ticks| *ticks >= 10), "{since:?} ticks");
    assert!(place.job(job).unwrap().slots > slots, "it has its slots all the same");
    assert_eq!(place.client().check().unwrap().violations, []);
}
