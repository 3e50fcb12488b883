//! Memory bandwidth: how much a program fetches past the last cache, by the processor's own
//! counters.
//!
//! Approach: each thread that is there at first has a counter of its misses, which the threads that
//! it starts share. A miss fetches one line.
//!
//! Properties: what cannot be counted has a reason, and no figure. Many virtual machines have no
//! such counters.

use std::{io, path::Path, time::Instant};

use gang_linux::{cgroup::Group, error::unless_gone};
use perf_event::{Builder, CountAndTime, Counter, events::Hardware};
use rustix::io::Errno;

/// The bytes of a miss: a line of the caches of x86-64, and of nearly all of arm64.
const LINE_BYTES: f64 = 64.0;

/// Bytes in a second, or why they were not counted.
pub type Bandwidth = Result<f64, String>;

/// The counters of a program, since they were opened.
pub struct Memory<C = Counter> {
    counters: Result<Vec<C>, String>,
    since: Instant,
}

/// A counter of the misses of one thread.
pub trait Misses: Sized {
    fn open(tid: u32) -> io::Result<Self>;
    fn read(&mut self) -> io::Result<CountAndTime>;
}

impl Misses for Counter {
    fn open(tid: u32) -> io::Result<Counter> {
        Builder::new(Hardware::CACHE_MISSES)
            .observe_pid(tid as i32)
            .any_cpu()
            .inherit(true)
            .enabled(true)
            .build()
    }

    fn read(&mut self) -> io::Result<CountAndTime> {
        self.read_count_and_time()
    }
}

impl<C: Misses> Memory<C> {
    /// Counts the misses of the threads of a cgroup from now on.
    pub fn count(group: &Path) -> Memory<C> {
        match unless_gone(Group::at(group).threads()) {
            Ok(threads) => Memory::of(threads),
            Err(error) => Memory { counters: Err(error.to_string()), since: Instant::now() },
        }
    }

    fn of(threads: impl IntoIterator<Item = u32>) -> Memory<C> {
        let opened = threads.into_iter().map(C::open);
        // One that has ended meanwhile fetches nothing.
        let there = opened.filter(|it| !it.as_ref().is_err_and(|error| is(error, Errno::SRCH)));
        let counters = there.collect::<io::Result<Vec<C>>>().map_err(|error| reason(&error));
        Memory { counters, since: Instant::now() }
    }

    /// The bytes that were fetched up to now.
    pub fn bandwidth(self) -> Bandwidth {
        let seconds = self.since.elapsed().as_secs_f64();
        let mut counters = self.counters?;
        if counters.is_empty() {
            return Err("it had no threads when counting began".into());
        }
        let read = counters.iter_mut().map(C::read).collect::<io::Result<Vec<_>>>();
        let misses = total(&read.map_err(|error| reason(&error))?);
        let misses = misses.ok_or("others use the processor's counters all of the time")?;
        Ok(misses * LINE_BYTES / seconds.max(1e-9))
    }
}

/// All misses, as if each counter had counted all of the time: where there are too few, they take
/// turns. None where none of those that were wanted ever had one.
fn total(read: &[CountAndTime]) -> Option<f64> {
    let wanted = || read.iter().filter(|it| it.time_enabled > 0);
    if wanted().next().is_some() && wanted().all(|it| it.time_running == 0) {
        return None;
    }
    let had = wanted().filter(|it| it.time_running > 0);
    Some(had.map(|it| it.count as f64 * it.time_enabled as f64 / it.time_running as f64).sum())
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn reason(error: &io::Error) -> String {
    let is_one_of = |errors: &[Errno]| errors.iter().any(|&errno| is(error, errno));
    if is_one_of(&[Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP]) {
        "this machine has no hardware counters of cache misses".into()
    } else if is_one_of(&[Errno::ACCESS, Errno::PERM]) {
        "counting cache misses takes root, or CAP_PERFMON".into()
    } else {
        format!("cannot count cache misses: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread 1 cannot be counted here, 2 has ended, 3 may not be counted; others count as many as
    /// their number.
    struct Fake(u32);

    impl Misses for Fake {
        fn open(tid: u32) -> io::Result<Fake> {
            let error = |errno: Errno| Err(errno.into());
            match tid {
                1 => error(Errno::NOENT),
                2 => error(Errno::SRCH),
                3 => error(Errno::ACCESS),
                _ => Ok(Fake(tid)),
            }
        }

        fn read(&mut self) -> io::Result<CountAndTime> {
            Ok(count(self.0.into(), 10, 10))
        }
    }

    fn count(count: u64, time_enabled: u64, time_running: u64) -> CountAndTime {
        CountAndTime { count, time_enabled, time_running }
    }

    fn of(threads: &[u32]) -> Bandwidth {
        let mut memory = Memory::<Fake>::of(threads.iter().copied());
        memory.since = Instant::now().checked_sub(std::time::Duration::from_secs(64)).unwrap();
        memory.bandwidth()
    }

    #[test]
    fn misses_fetch_lines() {
        let bandwidth = of(&[2, 1_000, 3_000]).unwrap();
        assert!((3_900.0..=4_000.0).contains(&bandwidth), "{bandwidth}");
    }

    #[test]
    fn what_is_not_counted_has_a_reason() {
        assert!(of(&[1_000, 1]).unwrap_err().contains("no hardware counters"));
        assert!(of(&[3]).unwrap_err().contains("CAP_PERFMON"));
        assert!(of(&[2]).unwrap_err().contains("no threads"));
    }

    #[test]
    fn multiplexed_counters_are_scaled_to_all_time() {
        assert_eq!(total(&[count(10, 100, 50), count(5, 100, 100)]), Some(25.0));
        // A thread that slept wanted none.
        assert_eq!(total(&[count(10, 100, 100), count(0, 0, 0)]), Some(10.0));
        assert_eq!(total(&[count(0, 0, 0)]), Some(0.0));
        assert_eq!(total(&[count(0, 100, 0)]), None);
    }
}
