//! The sign of life of a doctor that proves jobs for a daemon, on standard output.
//!
//! Each line says at which job the doctor is: `job 7`, or `idle`. A line comes where that changes,
//! and once a second. The daemon ends a doctor that falls silent, and knows which job it was at.

use std::{
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
    time::{Duration, Instant},
};

/// How often, at most, while nothing changes.
const EVERY: Duration = Duration::from_secs(1);

/// Nothing beats by default.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Option<Rc<RefCell<Beat>>>);

#[derive(Debug)]
struct Beat {
    job: Option<i64>,
    next: Instant,
}

impl Pulse {
    pub fn beating() -> Pulse {
        Pulse(Some(Rc::new(RefCell::new(Beat { job: None, next: Instant::now() }))))
    }

    /// The doctor is at this job from now on, or at none.
    pub fn at(&self, job: Option<i64>) -> io::Result<()> {
        let Some(beat) = &self.0 else { return Ok(()) };
        let mut beat = beat.borrow_mut();
        if beat.job != job {
            (beat.job, beat.next) = (job, Instant::now());
        }
        beat.show()
    }

    pub fn beat(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |beat| beat.borrow_mut().show())
    }
}

impl Beat {
    fn show(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + EVERY;
        let mut stdout = io::stdout().lock();
        match self.job {
            Some(job) => writeln!(stdout, "job {job}"),
            None => writeln!(stdout, "idle"),
        }?;
        stdout.flush()
    }
}
