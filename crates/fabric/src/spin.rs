//! How long a thread that waits spins before it blocks.
//!
//! Problem: a thread that blocks is late by a context switch once its message has come, and the
//! switch away from it took time, too. How long both take depends on machine, kernel and load: a
//! virtual CPU that has halted takes ten times as long to run again as one that has not.
//!
//! Approach: a thread spins for as long as blocking would cost it, which costs at most twice the
//! least (Karlin and others, 1991), and for a round trip, within which a peer that runs answers.
//! Each is measured once. A thread that blocks until a moment runs again later by a switch.
//!
//! Two threads that wake each other would not do: the kernel may put both on one CPU, and then a
//! switch seems to take a tenth of what it takes between CPUs.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    ptr,
    time::{Duration, Instant},
};

use crate::settings::Medium;

const LEAST: Duration = Duration::from_micros(5);
const MOST: Duration = Duration::from_micros(200);

/// Rounds that are measured, and the time after which no further one begins.
const ROUNDS: usize = 17;
const WITHIN: Duration = Duration::from_millis(5);
/// How long a thread blocks in a round: for long enough that its CPU halts.
const BLOCKED: Duration = Duration::from_micros(20);
/// After such a time a datagram is lost.
const LOST: Duration = Duration::from_millis(20);

/// The time to spin for a medium, as this machine is now.
pub fn measured(medium: Medium) -> Duration {
    let round_trip = match medium {
        // Two lines of a cache to another CPU and back: a tenth of the least time.
        Medium::Auto | Medium::SharedMemory => Duration::ZERO,
        Medium::Udp => round_trip().unwrap_or_default(),
    };
    (2 * switch() + round_trip).clamp(LEAST, MOST)
}

/// The lower quartile of rounds: others may have the CPU in some of them.
fn typical<E>(mut round: impl FnMut() -> Result<Duration, E>) -> Result<Duration, E> {
    let began = Instant::now();
    let mut times = vec![round()?];
    while times.len() < ROUNDS && began.elapsed() < WITHIN {
        times.push(round()?);
    }
    times.sort_unstable();
    Ok(times[times.len() / 4])
}

/// The time from the moment until which a thread blocks to the one at which it runs.
fn switch() -> Duration {
    // Else the kernel wakes the thread late on purpose, by 50 µs.
    let slack = set_slack(1);
    let time = typical(|| {
        let before = Instant::now();
        block(BLOCKED);
        Ok::<_, ()>(before.elapsed().saturating_sub(BLOCKED))
    });
    if let Some(slack) = slack {
        set_slack(slack);
    }
    time.unwrap_or_default()
}

/// Sets the timer slack of this thread, in nanoseconds; what it was before, if that is known.
fn set_slack(slack: libc::c_ulong) -> Option<libc::c_ulong> {
    // SAFETY: both calls take numbers alone.
    let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    let before = libc::c_ulong::try_from(before).ok()?;
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0) };
    Some(before)
}

/// As `thread::sleep`, which goes on after a signal; a signal ends this one.
fn block(time: Duration) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: the time can be read, and nothing is written.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, ptr::null_mut()) };
}

/// The time that a datagram takes through this host, and its answer back.
fn round_trip() -> io::Result<Duration> {
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(LOST))?;
        Ok(socket)
    };
    let (near, far) = (open()?, open()?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    typical(|| {
        let before = Instant::now();
        near.send(&[0])?;
        far.recv(&mut [0])?;
        far.send(&[0])?;
        near.recv(&mut [0])?;
        Ok(before.elapsed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_time_is_within_bounds() {
        let slack = set_slack(70_000);
        for medium in [Medium::Auto, Medium::SharedMemory, Medium::Udp] {
            assert!((LEAST..=MOST).contains(&measured(medium)), "{medium:?}");
        }
        // The slack of the thread is as it was.
        assert_eq!(set_slack(slack.unwrap()), Some(70_000));
        assert!(round_trip().is_ok());
    }

    #[test]
    fn rounds_end_at_their_number_or_in_time() {
        let mut rounds = 0;
        let count = typical(|| {
            rounds += 1;
            Ok::<_, ()>(Duration::from_millis(100 - rounds))
        });
        assert!((1..=ROUNDS as u64).contains(&rounds));
        assert_eq!(count, Ok(Duration::from_millis(100 - rounds + rounds / 4)));
        let mut rounds = 0;
        let late = typical(|| {
            rounds += 1;
            std::thread::sleep(WITHIN);
            Ok::<_, ()>(Duration::ZERO)
        });
        assert_eq!((rounds, late), (1, Ok(Duration::ZERO)));
        assert_eq!(typical(|| Err("no")), Err("no"));
    }
}
