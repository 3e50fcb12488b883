//! How long a thread that waits spins before it blocks.
//!
//! A thread that blocks costs two context switches more than one that spins: away from the thread,
//! and back. To spin for as long, and for a round trip that an answer takes, costs at most twice
//! the least (Karlin and others, 1991). Two threads that block in turn until the other one answers
//! take just that in each round: two context switches and a round trip. So one round is measured.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::settings::Medium;

const LEAST: Duration = Duration::from_micros(5);
const MOST: Duration = Duration::from_micros(200);
/// Where nothing can be measured.
const USUAL: Duration = Duration::from_micros(50);

/// Rounds that are measured, and the time after which no further one begins.
const ROUNDS: u32 = 33;
const WITHIN: Duration = Duration::from_millis(5);
/// After such a time a datagram is lost.
const LOST: Duration = Duration::from_millis(20);

/// The time to spin for a medium, as this machine is now.
pub fn measured(medium: Medium) -> Duration {
    let round = match medium {
        Medium::Auto | Medium::SharedMemory => by_memory(),
        Medium::Udp => by_socket(),
    };
    round.map_or(USUAL, |round| round.clamp(LEAST, MOST))
}

/// The median of rounds: others may have the CPUs in some of them.
fn median(mut round: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let began = Instant::now();
    let mut times = Vec::with_capacity(ROUNDS as usize);
    for _ in 0..ROUNDS {
        let before = Instant::now();
        round()?;
        times.push(before.elapsed());
        if began.elapsed() > WITHIN {
            break;
        }
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Two threads that hand a word to and fro.
fn by_memory() -> io::Result<Duration> {
    const OVER: u32 = u32::MAX;
    let turn = AtomicU32::new(0);
    let await_change = |from: u32| {
        while turn.load(Ordering::Acquire) == from {
            thread::park();
        }
    };
    let own = thread::current();
    thread::scope(|scope| {
        let other =
            thread::Builder::new().name("gang-net".to_owned()).spawn_scoped(scope, || {
                loop {
                    await_change(0);
                    if turn.load(Ordering::Acquire) == OVER {
                        return;
                    }
                    turn.store(0, Ordering::Release);
                    own.unpark();
                }
            })?;
        let time = median(|| {
            turn.store(1, Ordering::Release);
            other.thread().unpark();
            await_change(1);
            Ok(())
        });
        turn.store(OVER, Ordering::Release);
        other.thread().unpark();
        time
    })
}

/// Two threads that send each other datagrams.
fn by_socket() -> io::Result<Duration> {
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(LOST))?;
        Ok(socket)
    };
    let (own, others) = (open()?, open()?);
    own.connect(others.local_addr()?)?;
    others.connect(own.local_addr()?)?;
    thread::scope(|scope| {
        // The other thread ends by an empty datagram, or where one is lost.
        thread::Builder::new().name("gang-net".to_owned()).spawn_scoped(scope, || {
            let mut byte = [0];
            while matches!(others.recv(&mut byte), Ok(1)) && others.send(&byte).is_ok() {}
        })?;
        let time = median(|| {
            own.send(&[1])?;
            own.recv(&mut [0])?;
            Ok(())
        });
        let _ = own.send(&[]);
        time
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_time_is_within_bounds() {
        for medium in [Medium::Auto, Medium::SharedMemory, Medium::Udp] {
            assert!((LEAST..=MOST).contains(&measured(medium)), "{medium:?}");
        }
    }

    #[test]
    fn median_of_rounds_ignores_a_late_one() {
        let mut rounds = 0;
        let time = median(|| {
            rounds += 1;
            if rounds == 2 {
                thread::sleep(WITHIN * 2);
            }
            Ok(())
        });
        assert_eq!(rounds, 2);
        assert!(time.is_ok());
        assert!(median(|| Err(io::Error::other("no"))).is_err());
    }
}
