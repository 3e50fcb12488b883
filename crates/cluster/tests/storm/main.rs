//! Storms of clusters: from one seed, hosts with clocks of their own change one registry, while
//! watches lag, answers get lost, hosts pause and die, and etcd goes and comes.
//!
//! `cargo test -p gang-cluster --test storm` runs 250 seeds; `SEED=17` runs one and
//! prints what happens, `SEEDS=0..100000` runs many.

// The test itself is run as its caller says; what it runs is not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod etcd;
mod world;

use std::env;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::thread;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = env::var("SEEDS") else { return 0..250 };
    let (first, end) = text.split_once("..").expect("SEEDS=FIRST..END");
    first.parse().expect("a seed")..end.parse().expect("a seed")
}

#[test]
fn no_seed_breaks_the_matrix() {
    if let Ok(seed) = env::var("SEED") {
        world::run(seed.parse().expect("a seed"), true);
        return;
    }
    let next = Mutex::new(seeds());
    let work = || {
        let (mut tally, mut failed) = (world::Tally::default(), Vec::new());
        loop {
            let seed = next.lock().unwrap().next();
            let Some(seed) = seed else { return (tally, failed) };
            match catch_unwind(|| world::run(seed, false)) {
                Ok(of_seed) => tally.add(&of_seed),
                Err(_) => failed.push(seed),
            }
        }
    };
    let (mut tally, mut failed) = (world::Tally::default(), Vec::new());
    thread::scope(|scope| {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let at_work: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        for thread in at_work {
            let (of_thread, failed_there) = thread.join().unwrap();
            tally.add(&of_thread);
            failed.extend(failed_there);
        }
    });
    failed.sort_unstable();
    println!("{tally}");
    assert!(failed.is_empty(), "seeds that failed: {failed:?}; run one again with SEED=");
    tally.covers_all();
}
