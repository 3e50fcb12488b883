//! The threads that switch.
//!
//! Problem: at an edge of the clock, some threads have to be taken out of their slot and others put
//! into theirs, all of them at the same instant, whatever else the daemon is doing.
//!
//! Approach: one switcher for each group of CPUs, on those CPUs, above every gang. It gets its
//! timetable through a triple buffer, sleeps until the next edge, makes the calls that the timetable
//! holds, and notes the times. It allocates nothing, frees nothing and takes no lock. Switchers do
//! not talk to each other: the clock makes them act together (X2).
//!
//! Properties: each edge of a timetable is carried out once, in order, late rather than never, and at
//! once where another timetable replaces it before its end, even unread, since that one counts on it; a
//! timetable that is not replaced in time, or whose switcher ends, leaves everybody out of their slots (fail
//! open); a step of the clock loses no edge of a timetable that comes after it.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_linux::{clock, clock::Alarm, error::is_gone, sched};
use triple_buffer::{Input, Output, triple_buffer};

use crate::{
    action::{Action, Kernel},
    priority,
    timetable::Timetable,
    timing::{Switch, Timings},
};

/// Where a switcher stands in its timetable.
#[derive(Debug, Default)]
pub struct Cursor {
    generation: u64,
    /// Edges up to this point of time were carried out.
    done_until_ns: u64,
    expired: bool,
}

impl Cursor {
    /// Carries out what is due at `now`, and says when to come back; `None`: when there is another
    /// timetable. `clock` is asked for the times that are noted.
    pub fn advance(
        &mut self,
        timetable: &Timetable,
        now_ns: u64,
        kernel: &dyn Kernel,
        clock: &dyn Fn() -> u64,
        timings: &Timings,
    ) -> Option<u64> {
        if timetable.generation != self.generation {
            self.generation = timetable.generation;
            self.expired = false;
            // A clock that was set back makes past edges future ones.
            self.done_until_ns = self.done_until_ns.min(timetable.from_ns.saturating_sub(1));
            perform(kernel, &timetable.immediate, timings);
        }
        for edge in &timetable.edges {
            if edge.at_ns <= self.done_until_ns || edge.at_ns > now_ns {
                continue;
            }
            let began_ns = clock();
            let lowers = perform_parts(kernel, timetable, &edge.lower, timings);
            let lowered_ns = clock();
            let raises = perform_parts(kernel, timetable, &edge.raise, timings);
            let raised_ns = clock();
            if lowers + raises > 0 {
                let asked_ns = edge.at_ns;
                timings.record(&Switch {
                    asked_ns,
                    began_ns,
                    lowered_ns,
                    raised_ns,
                    lowers,
                    raises,
                });
            }
        }
        self.done_until_ns = self.done_until_ns.max(now_ns);
        if now_ns >= timetable.deadline_ns && !self.expired {
            self.expired = true;
            perform_parts(kernel, timetable, &timetable.at_deadline, timings);
        }
        let edges = timetable.edges.iter().map(|edge| edge.at_ns);
        let ends = [timetable.until_ns, timetable.deadline_ns];
        edges.chain(ends).find(|&at| at > now_ns)
    }
}

fn perform_parts(
    kernel: &dyn Kernel,
    timetable: &Timetable,
    parts: &[usize],
    timings: &Timings,
) -> u32 {
    parts.iter().map(|&part| perform(kernel, &timetable.parts[part], timings)).sum()
}

fn perform(kernel: &dyn Kernel, actions: &[Action], timings: &Timings) -> u32 {
    for action in actions {
        match kernel.perform(action) {
            Err(error) if !is_gone(&error) => {
                timings.record_failure(error.raw_os_error().unwrap_or(0));
            }
            _ => {}
        }
    }
    actions.len() as u32
}

/// A switcher that runs, as the conductor sees it. It ends when this is dropped, with everybody out
/// of their slots.
pub struct Switcher {
    input: Input<Arc<Timetable>>,
    /// The last one it was handed. Never freed by the switcher's thread, since it is held here.
    published: Arc<Timetable>,
    alarm: Arc<Alarm>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub timings: Arc<Timings>,
}

impl Switcher {
    /// Starts a switcher on some CPUs. `realtime` lifts it above the gangs, which takes the right to
    /// do so.
    pub fn start(cpus: Vec<u32>, realtime: bool, kernel: Arc<dyn Kernel>) -> io::Result<Switcher> {
        let published = Arc::<Timetable>::default();
        let (input, output) = triple_buffer(&published);
        let (alarm, stop, timings) = (Arc::<Alarm>::default(), Arc::default(), Arc::default());
        let body = Body {
            output,
            alarm: Arc::clone(&alarm),
            stop: Arc::clone(&stop),
            timings: Arc::clone(&timings),
            kernel,
        };
        let thread = std::thread::Builder::new().name("switcher".into()).spawn(move || {
            // Both only make switches sharper; where they are refused, status shows the times.
            let _ = sched::set_affinity(0, cpus);
            if realtime && sched::become_fifo(priority::SWITCHER).is_err() {
                tracing::warn!("a switcher runs at ordinary priority: SCHED_FIFO was refused");
            }
            body.run();
        })?;
        Ok(Switcher { input, published, alarm, stop, thread: Some(thread), timings })
    }

    /// Hands the switcher another timetable, which replaces the one it has at the end of its period,
    /// or as soon as the switcher is rung.
    pub fn publish(&mut self, mut timetable: Timetable) {
        // A switcher without privilege may come too late to read the one before.
        if !self.input.consumed() {
            timetable.immediate = instead_of(&self.published, timetable.immediate);
        }
        self.published = Arc::new(timetable);
        *self.input.input_buffer_mut() = Arc::clone(&self.published);
        self.input.publish();
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

/// The calls that bring about what a timetable would have, and then those of `immediate`: the last one
/// for each thread, process or file, since that one decides.
fn instead_of(unread: &Timetable, immediate: Vec<Action>) -> Vec<Action> {
    let parts = unread.edges.iter().flat_map(|edge| edge.lower.iter().chain(&edge.raise));
    let edges = parts.flat_map(|&part| &unread.parts[part]);
    let mut calls: Vec<Action> = unread.immediate.iter().chain(edges).cloned().collect();
    calls.extend(immediate);
    let mut seen = BTreeSet::new();
    calls.reverse();
    calls.retain(|action| {
        seen.insert(match action {
            Action::Attributes { tid, .. } => (0, *tid as usize),
            Action::Affinity { tid, .. } => (1, *tid as usize),
            Action::Write { file, .. } => (2, Arc::as_ptr(file) as usize),
            Action::Signal { process, .. } => (3, Arc::as_ptr(process) as usize),
        })
    });
    calls.reverse();
    calls
}

struct Body {
    output: Output<Arc<Timetable>>,
    alarm: Arc<Alarm>,
    stop: Arc<AtomicBool>,
    timings: Arc<Timings>,
    kernel: Arc<dyn Kernel>,
}

impl Body {
    fn run(mut self) {
        let mut cursor = Cursor::default();
        let mut heard = 0;
        loop {
            let seen = self.alarm.seen();
            let is_rung = std::mem::replace(&mut heard, seen) != seen;
            if self.stop.load(Ordering::Acquire) {
                self.advance(&mut cursor, |timetable| timetable.deadline_ns);
                break;
            }
            let until_ns = self.output.peek_output_buffer().until_ns;
            if self.output.updated() && (is_rung || clock::utc_ns() >= until_ns) {
                self.advance(&mut cursor, |timetable| timetable.until_ns);
                self.output.update();
            }
            let next = self.advance(&mut cursor, |_| clock::utc_ns());
            let wait = next.map(|at| Duration::from_nanos(at.saturating_sub(clock::utc_ns())));
            if wait.is_none_or(|wait| !wait.is_zero()) {
                self.alarm.sleep(seen, wait);
            }
        }
    }

    /// Carries out what is due of the timetable it has, up to a point of time.
    fn advance(&self, cursor: &mut Cursor, to_ns: impl FnOnce(&Timetable) -> u64) -> Option<u64> {
        let timetable = self.output.peek_output_buffer();
        let to_ns = to_ns(timetable);
        cursor.advance(timetable, to_ns, self.kernel.as_ref(), &clock::utc_ns, &self.timings)
    }
}
