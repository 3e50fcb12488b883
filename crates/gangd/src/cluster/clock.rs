//! How good the clock is, as often as somebody asks.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use gang_cluster::record;
use gang_linux::clock_quality::{self, Quality};

use crate::settings::cluster::{Clock as Settings, Source};

/// chronyd is asked this often.
const ASK_EVERY: Duration = Duration::from_secs(8);

/// A clock of which nothing is known.
const UNKNOWN: Quality = Quality { offset_ns: 0, bound_ns: 16_000_000_000 };

/// The quality of the clock.
pub struct Clock {
    settings: Settings,
    /// As chronyd said last; None where it does not answer.
    last: Arc<Mutex<Option<Quality>>>,
}

impl Clock {
    /// Begins to ask, where somebody else's word takes a while.
    pub fn start(settings: Settings) -> std::io::Result<Clock> {
        let last = Arc::default();
        if matches!(settings.source, Source::Chrony | Source::Auto) {
            let asked = Arc::downgrade(&last);
            let is_needed = settings.source == Source::Chrony;
            let thread = std::thread::Builder::new().name("clock".into());
            thread.spawn(move || ask(&asked, is_needed))?;
        }
        Ok(Clock { settings, last })
    }

    pub fn quality(&self) -> record::Clock {
        let by_chrony = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let by_kernel = || ("adjtimex", clock_quality::by_kernel().unwrap_or(UNKNOWN));
        let (source, Quality { offset_ns, bound_ns }) = match (self.settings.source, by_chrony) {
            (Source::Chrony, said) => ("chrony", said.unwrap_or(UNKNOWN)),
            (Source::Auto, Some(said)) => ("chrony", said),
            (Source::Adjtimex, _) | (Source::Auto, None) => by_kernel(),
            (Source::Ptp, _) => {
                let bound_ns = self.settings.bound.as_nanos() as u64;
                ("ptp", Quality { offset_ns: 0, bound_ns })
            }
        };
        record::Clock { source: source.to_owned(), offset_ns, bound_ns }
    }
}

/// Asks chronyd for as long as somebody wants to know. A silence of one who is needed is logged.
fn ask(last: &Weak<Mutex<Option<Quality>>>, is_needed: bool) {
    let mut is_known = true;
    while let Some(last) = last.upgrade() {
        let said = clock_quality::by_chrony();
        if let Err(error) = said.as_ref().map_err(|error| error.to_string()) {
            if std::mem::replace(&mut is_known, false) && is_needed {
                tracing::warn!(error, "nobody knows how good the clock is");
            }
        } else {
            is_known = true;
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = said.ok();
        drop(last);
        std::thread::sleep(ASK_EVERY);
    }
}
