//! The threads that switch.
//!
//! Problem: at an edge of the clock, some threads have to leave their slot and others have to enter
//! theirs. All of that happens at one instant, however busy the daemon is.
//!
//! Approach: one switcher for each group of CPUs, on those CPUs, above every gang. It gets its
//! timetable through a triple buffer, sleeps until the next edge, makes the calls that the
//! timetable holds, and notes the times. It allocates nothing, frees nothing and takes no lock.
//! Switchers do not talk to each other: the clock makes them act at once (X2).
//!
//! A timetable holds until the beginning of the next one, which may lie before its own end. Plans
//! are made far ahead, and replaced when something changes.
//!
//! Between two edges, threads in their slots give way to rivals, where a switcher is asked for that
//! ([`crate::rivals`]).
//!
//! Where a switcher was out of step ([`gang_timetable::follower`]), it counts that, and the
//! conductor has the gangs' attributes set anew.
//!
//! A thread that sleeps until a moment runs some time after it: tens of microseconds on a virtual
//! machine, which every slot would lose. So a switcher sets its timer early by the wake-up latency
//! that it has recently seen (lower quartile), and spins until the edge. No edge is carried out
//! before its time.
//!
//! Properties: each edge of a timetable that lies before the next one is carried out once, in
//! order, late rather than never; a timetable that is not replaced in time, or whose switcher ends,
//! leaves everybody out of their slots (fail open); a step of the clock loses no edge of a
//! timetable that comes after it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_linux::{census::Census, clock, clock::Alarm, error::is_gone, sched};
use gang_timetable::{
    Timetable,
    follower::{Follower, Hands, Switch},
    priority,
};
use triple_buffer::{Input, Output, triple_buffer};

use crate::{
    bound::{Bound, Kernel},
    rivals::{Handle, Wishes},
    timing::Timings,
};

/// Makes calls, and notes when.
pub struct Calls<'a> {
    pub kernel: &'a dyn Kernel,
    /// Asked for the times that are noted.
    pub clock: &'a dyn Fn() -> u64,
    pub timings: &'a Timings,
}

impl Calls<'_> {
    fn note(&self, made: io::Result<()>) {
        if let Some(error) = made.err().filter(|error| !is_gone(error)) {
            self.timings.record_failure(error.raw_os_error().unwrap_or(0));
        }
    }
}

impl Hands<Bound> for Calls<'_> {
    fn perform(&self, action: &Bound) {
        self.note(self.kernel.perform(action));
    }

    fn give_way(&self, action: &Bound) {
        self.note(self.kernel.give_way(action));
    }

    fn lower_if_raised(&self, action: &Bound) {
        self.note(self.kernel.lower_if_raised(action));
    }

    fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    fn switched(&self, switch: &Switch) {
        self.timings.record(switch);
    }

    fn ran_out(&self) {
        self.timings.record_ran_out();
    }

    fn came_late(&self) {
        self.timings.record_late_timetable();
    }

    fn out_of_step(&self) {
        self.timings.record_out_of_step();
    }
}

/// Notices that a thread was started anywhere on the machine, and wakes the conductor. A gang's new
/// threads stand as the threads that started them, and are in no timetable. It looks when a gang
/// leaves its slot.
#[derive(Debug)]
pub struct Lookout {
    census: Census,
    newest: u32,
    /// Set, and the alarm rung, when there was a new one.
    seen: Arc<AtomicBool>,
    alarm: Arc<Alarm>,
}

impl Lookout {
    pub fn new(census: Census, seen: Arc<AtomicBool>, alarm: Arc<Alarm>) -> Lookout {
        Lookout { census, newest: 0, seen, alarm }
    }

    fn look(&mut self) {
        let Some(count) = self.census.count() else { return };
        if std::mem::replace(&mut self.newest, count.newest) != count.newest {
            self.seen.store(true, Ordering::Release);
            self.alarm.ring();
        }
    }
}

/// A switcher that runs, as the conductor sees it. It ends when this is dropped, with everybody out
/// of their slots.
pub struct Switcher {
    input: Input<Arc<Timetable<Bound>>>,
    /// Those it was handed, as long as it may hold them: none is freed by the switcher's thread.
    published: Vec<Arc<Timetable<Bound>>>,
    alarm: Arc<Alarm>,
    wishes: Arc<Wishes>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub timings: Arc<Timings>,
}

impl Switcher {
    /// Starts a switcher on some CPUs. `realtime` raises it above the gangs, which takes the right
    /// to do so.
    pub fn start(
        cpus: Vec<u32>,
        realtime: bool,
        kernel: Arc<dyn Kernel>,
        lookout: Option<Lookout>,
    ) -> io::Result<Switcher> {
        let first = Arc::<Timetable<Bound>>::default();
        let (input, output) = triple_buffer(&first);
        let (alarm, stop, timings) = (Arc::<Alarm>::default(), Arc::default(), Arc::default());
        let wishes = Arc::<Wishes>::default();
        let body = Body {
            follower: Follower::new(Arc::clone(&first)),
            output,
            alarm: Arc::clone(&alarm),
            wishes: Arc::clone(&wishes),
            stop: Arc::clone(&stop),
            timings: Arc::clone(&timings),
            kernel,
            lookout,
        };
        let thread = std::thread::Builder::new().name("switcher".into()).spawn(move || {
            // Both only make switches sharper; where they are refused, status shows the times.
            let _ = sched::set_affinity(0, cpus);
            if realtime && sched::become_fifo(priority::SWITCHER).is_err() {
                tracing::warn!("a switcher runs at ordinary priority: SCHED_FIFO was refused");
            }
            body.run();
        })?;
        let published = vec![first];
        Ok(Switcher { input, published, alarm, wishes, stop, thread: Some(thread), timings })
    }

    /// The way to this switcher for threads that speak for rivals.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.wishes), Arc::clone(&self.alarm))
    }

    /// Hands the switcher another timetable, which holds from its beginning on. The switcher sees
    /// it when it wakes next.
    ///
    /// Where the one before is not in force yet, this one should begin where that one would have:
    /// else its edges may be lost.
    pub fn publish(&mut self, mut timetable: Timetable<Bound>) {
        if let Some(last) = self.published.last().filter(|_| self.is_behind()) {
            timetable.supersede(last);
        }
        timetable.ready_ns = clock::utc_ns();
        let timetable = Arc::new(timetable);
        *self.input.input_buffer_mut() = Arc::clone(&timetable);
        self.published.push(timetable);
        self.input.publish();
        // Those that nobody else holds are freed here.
        self.published.retain(|timetable| Arc::strong_count(timetable) > 1);
    }

    /// The last timetable is not in force yet.
    pub fn is_behind(&self) -> bool {
        let in_force = self.timings.in_force();
        self.published.last().is_some_and(|last| last.generation != in_force)
    }

    /// Whether the switcher wakes by itself in a stretch of time, as far as is known.
    pub fn wakes_between(&self, after_ns: u64, until_ns: u64) -> bool {
        let Some(last) = self.published.last().filter(|_| !self.is_behind()) else { return false };
        let ends = [last.until_ns, last.deadline_ns];
        let mut wakes = last.edges.iter().map(|edge| edge.at_ns).chain(ends);
        wakes.any(|at| at > after_ns && at <= until_ns)
    }

    /// Wakes the switcher.
    pub fn ring(&self) {
        self.alarm.ring();
    }
}

impl Drop for Switcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.alarm.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How late a switcher wakes: what three of four times are later than. With more, it would wait on
/// its CPU for longer.
#[derive(Debug, Default)]
struct Lateness {
    ns: u64,
}

impl Lateness {
    /// How fast it follows.
    const STEP_NS: u64 = 200;

    /// Longer latencies are no property of the machine.
    const NS_MAX: u64 = 100_000;

    fn note(&mut self, late_ns: u64) {
        // It stands where it rises three times as often as it falls.
        self.ns = match late_ns > self.ns {
            true => (self.ns + Self::STEP_NS).min(Self::NS_MAX),
            false => self.ns.saturating_sub(3 * Self::STEP_NS),
        };
    }
}

struct Body {
    follower: Follower<Arc<Timetable<Bound>>>,
    output: Output<Arc<Timetable<Bound>>>,
    alarm: Arc<Alarm>,
    wishes: Arc<Wishes>,
    stop: Arc<AtomicBool>,
    timings: Arc<Timings>,
    kernel: Arc<dyn Kernel>,
    lookout: Option<Lookout>,
}

impl Body {
    fn run(mut self) {
        let mut lateness = Lateness::default();
        loop {
            let seen = self.alarm.seen();
            let calls = Calls {
                kernel: self.kernel.as_ref(),
                clock: &clock::utc_ns,
                timings: &self.timings,
            };
            if self.stop.load(Ordering::Acquire) {
                self.follower.end(&calls);
                break;
            }
            self.output.update();
            let next = self.output.peek_output_buffer();
            let wake_ns = self.follower.follow(next, clock::utc_ns(), &calls);
            self.timings.record_in_force(self.follower.current().generation);
            self.timings.record_due(wake_ns.unwrap_or(u64::MAX));
            if self.follower.take_lowered() {
                self.lookout.iter_mut().for_each(Lookout::look);
            }
            self.wishes.fulfil(&mut self.follower, clock::utc_ns(), &calls);
            match wake_ns {
                None => self.alarm.sleep(seen, None),
                Some(at_ns) => self.sleep_until(at_ns, seen, &mut lateness),
            }
        }
    }

    /// Sleeps until a moment, or until somebody rings.
    fn sleep_until(&self, at_ns: u64, seen: u32, lateness: &mut Lateness) {
        let early_ns = at_ns.saturating_sub(lateness.ns);
        let wait_ns = early_ns.saturating_sub(clock::utc_ns());
        if wait_ns > 0 {
            self.alarm.sleep(seen, Some(Duration::from_nanos(wait_ns)));
            // Before it, somebody rang.
            let late_ns = clock::utc_ns().checked_sub(early_ns);
            late_ns.into_iter().for_each(|late_ns| lateness.note(late_ns));
        }
        while (early_ns..at_ns).contains(&clock::utc_ns()) && self.alarm.seen() == seen {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_latency_is_the_lower_quartile() {
        let mut lateness = Lateness::default();
        // From 20 to 60 µs, now and then a millisecond.
        let late_ns = |at: u64| match at % 100 {
            0 => 1_000_000,
            _ => 20_000 + at * 7_919 % 40_000,
        };
        (0..10_000).for_each(|at| lateness.note(late_ns(at)));
        assert!((28_000..32_000).contains(&lateness.ns), "{lateness:?}");
        (0..10_000).for_each(|_| lateness.note(1_000_000));
        assert_eq!(lateness.ns, Lateness::NS_MAX);
        (0..10_000).for_each(|_| lateness.note(0));
        assert_eq!(lateness.ns, 0);
    }
}
