//! How good the clock is, as often as somebody asks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use gang_cluster::record;
use gang_conductor::Now;
use gang_linux::{
    clock,
    clock_quality::{self, Quality},
};

use crate::settings::cluster::{Clock as ClockSettings, Source};

/// chronyd is asked this often.
const ASK_EVERY: Duration = Duration::from_secs(8);

/// A clock that phc2sys steers is measured by it within this time.
const PTP_WITHIN_NS: u64 = 8_000_000_000;

/// Tries to read both clocks without an interruption between.
const READS: usize = 4;

/// A clock of which nothing is known.
const UNKNOWN: Quality = Quality { offset_ns: 0, bound_ns: 16_000_000_000 };

/// The quality of the clock.
pub struct Clock {
    settings: ClockSettings,
    /// As chronyd said last; None where it does not answer.
    last: Arc<Mutex<Option<Said>>>,
    /// The steps of a clock whose quality is the administrator's word.
    steps: Mutex<Steps>,
}

/// The word of a source. It holds until the clock is stepped, forwards or back: what was measured
/// before says nothing of the clock after that. UTC and the monotonic clock run at one rate, so
/// that only a step changes how far they are apart.
#[derive(Clone, Copy, Debug)]
struct Said {
    quality: Quality,
    apart_ns: i128,
}

impl Said {
    fn at(self, apart_ns: i128) -> Quality {
        let is_stepped = apart_ns.abs_diff(self.apart_ns) > u128::from(self.quality.bound_ns);
        if is_stepped { UNKNOWN } else { self.quality }
    }
}

/// The steps of a clock that nobody can be asked about.
#[derive(Debug, Default)]
struct Steps {
    apart_ns: Option<i128>,
    /// The monotonic time of the last step.
    last_ns: Option<u64>,
}

impl Steps {
    /// Whether the clock was stepped by more than its bound within the last seconds.
    fn is_stepped(&mut self, now: Now, bound_ns: u64) -> bool {
        let apart_ns = apart_ns(now);
        let before_ns = self.apart_ns.replace(apart_ns).unwrap_or(apart_ns);
        if apart_ns.abs_diff(before_ns) > u128::from(bound_ns) {
            self.last_ns = Some(now.monotonic_ns);
        }
        let is_new = |at_ns: u64| now.monotonic_ns.saturating_sub(at_ns) < PTP_WITHIN_NS;
        self.last_ns.is_some_and(is_new)
    }
}

/// Both clocks, read within the shortest time of some tries: an interruption between two reads is
/// no step.
fn moment() -> Now {
    let read = |_| {
        let before_ns = clock::monotonic_ns();
        let utc_ns = clock::utc_ns();
        let after_ns = clock::monotonic_ns();
        (after_ns - before_ns, Now { utc_ns, monotonic_ns: before_ns.midpoint(after_ns) })
    };
    let best = (0..READS).map(read).min_by_key(|(took_ns, _)| *took_ns);
    best.map_or_else(Now::default, |(_, now)| now)
}

/// How far UTC is ahead of the monotonic clock.
fn apart_ns(now: Now) -> i128 {
    i128::from(now.utc_ns) - i128::from(now.monotonic_ns)
}

impl Clock {
    /// Begins to ask, where somebody else's word takes a while.
    pub fn start(settings: ClockSettings) -> std::io::Result<Clock> {
        let last = Arc::default();
        if matches!(settings.source, Source::Chrony | Source::Auto) {
            let asked = Arc::downgrade(&last);
            let is_needed = settings.source == Source::Chrony;
            let thread = std::thread::Builder::new().name("clock".into());
            thread.spawn(move || ask(&asked, is_needed))?;
        }
        Ok(Clock { settings, last, steps: Mutex::default() })
    }

    pub fn quality(&self) -> record::Clock {
        let now = moment();
        let by_chrony = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let by_chrony = by_chrony.map(|said| said.at(apart_ns(now)));
        // The kernel itself knows nothing after a step.
        let by_kernel = || ("adjtimex", clock_quality::by_kernel().unwrap_or(UNKNOWN));
        let (source, Quality { offset_ns, bound_ns }) = match (self.settings.source, by_chrony) {
            (Source::Chrony, said) => ("chrony", said.unwrap_or(UNKNOWN)),
            (Source::Auto, Some(said)) => ("chrony", said),
            (Source::Adjtimex, _) | (Source::Auto, None) => by_kernel(),
            (Source::Ptp, _) => {
                let bound_ns = self.settings.bound.as_nanos() as u64;
                let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
                let is_stepped = steps.is_stepped(now, bound_ns);
                ("ptp", if is_stepped { UNKNOWN } else { Quality { offset_ns: 0, bound_ns } })
            }
        };
        record::Clock { source: source.to_owned(), offset_ns, bound_ns }
    }
}

/// How near to UTC the clock was, lately.
#[derive(Clone, Debug, Default)]
pub struct Bounds(VecDeque<(u64, u64)>);

impl Bounds {
    /// The timings of switches reach less far back.
    const MOST: usize = 1_024;

    /// The clock is nearer than `bound_ns` from now on.
    pub fn note(&mut self, utc_ns: u64, bound_ns: u64) {
        // The bounds of later moments are of a clock that was set back.
        while self.0.back().is_some_and(|&(from_ns, _)| from_ns >= utc_ns) {
            self.0.pop_back();
        }
        if self.0.back().is_none_or(|&(_, last_ns)| last_ns != bound_ns) {
            self.0.push_back((utc_ns, bound_ns));
        }
        if self.0.len() > Bounds::MOST {
            self.0.pop_front();
        }
    }

    /// As it was said last before a moment.
    pub fn at(&self, utc_ns: u64) -> Option<u64> {
        let said = self.0.iter().rev().find(|(from_ns, _)| *from_ns <= utc_ns);
        said.map(|&(_, bound_ns)| bound_ns)
    }
}

/// Asks chronyd for as long as somebody wants to know. A silence of one who is needed is logged.
fn ask(last: &Weak<Mutex<Option<Said>>>, is_needed: bool) {
    let mut is_known = true;
    while let Some(last) = last.upgrade() {
        // Before the question: a step while it is answered makes the answer unusable.
        let apart_ns = apart_ns(moment());
        let said = clock_quality::by_chrony();
        if let Err(error) = said.as_ref().map_err(|error| error.to_string()) {
            if std::mem::replace(&mut is_known, false) && is_needed {
                tracing::warn!(error, "nobody knows how good the clock is");
            }
        } else {
            is_known = true;
        }
        let said = said.ok().map(|quality| Said { quality, apart_ns });
        *last.lock().unwrap_or_else(PoisonError::into_inner) = said;
        drop(last);
        std::thread::sleep(ASK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i128 = 1_000_000;
    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn quality_is_unknown_between_step_and_measurement() {
        let quality = Quality { offset_ns: 20_000, bound_ns: 400_000 };
        let said = Said { quality, apart_ns: 1_000 * MS };
        let bound = |ns: i128| said.at(1_000 * MS + ns).bound_ns;
        // Slewing stays within the bound.
        assert_eq!([bound(0), bound(300_000), bound(-300_000)], [400_000; 3]);
        for step in [MS, -MS, 3_600_000 * MS] {
            assert_eq!(bound(step), UNKNOWN.bound_ns, "{step}");
            let next = Said { apart_ns: 1_000 * MS + step, ..said };
            assert_eq!(next.at(1_000 * MS + step).bound_ns, 400_000, "measured since");
        }
    }

    #[test]
    fn each_moment_has_what_was_said_before_it() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.at(5), None);
        for (utc_ns, bound_ns) in [(10, 7), (20, 7), (30, 9)] {
            bounds.note(utc_ns, bound_ns);
        }
        assert_eq!(
            [5, 10, 29, 30, 99].map(|at| bounds.at(at)),
            [None, Some(7), Some(7), Some(9), Some(9)]
        );
        bounds.note(15, 100);
        assert_eq!(
            [14, 15, 30].map(|at| bounds.at(at)),
            [Some(7), Some(100), Some(100)],
            "set back"
        );
        (0..5_000).for_each(|at| bounds.note(100 + at, at));
        assert_eq!((bounds.0.len(), bounds.at(5_099)), (Bounds::MOST, Some(4_999)));
    }

    #[test]
    fn clock_of_ptp_is_unknown_for_a_while_after_a_step() {
        let mut steps = Steps::default();
        let mut after = |s: u64, stepped_ns: u64| {
            let monotonic_ns = s * SECOND_NS;
            let utc_ns = 1_000_000 * SECOND_NS + monotonic_ns + stepped_ns;
            steps.is_stepped(Now { utc_ns, monotonic_ns }, 400_000)
        };
        assert_eq!([after(1, 0), after(2, 300_000)], [false, false]);
        assert_eq!([after(3, SECOND_NS), after(9, SECOND_NS)], [true, true]);
        assert!(!after(12, SECOND_NS));
        assert!(after(13, 0), "back");
    }
}
