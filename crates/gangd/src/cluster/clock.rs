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
    /// As chronyd said last.
    last: Arc<Mutex<Quality>>,
}

impl Clock {
    /// Begins to ask, where somebody else's word takes a while.
    pub fn start(settings: Settings) -> std::io::Result<Clock> {
        let last = Arc::new(Mutex::new(UNKNOWN));
        if settings.source == Source::Chrony {
            let asked = Arc::downgrade(&last);
            std::thread::Builder::new().name("clock".into()).spawn(move || ask(&asked))?;
        }
        Ok(Clock { settings, last })
    }

    pub fn quality(&self) -> record::Clock {
        let Quality { offset_ns, bound_ns } = match self.settings.source {
            Source::Adjtimex => clock_quality::by_kernel().unwrap_or(UNKNOWN),
            Source::Chrony => *self.last.lock().unwrap_or_else(PoisonError::into_inner),
            Source::Ptp => {
                Quality { offset_ns: 0, bound_ns: self.settings.bound.as_nanos() as u64 }
            }
        };
        record::Clock { source: self.settings.source.name().to_owned(), offset_ns, bound_ns }
    }
}

/// Asks chronyd for as long as somebody wants to know.
fn ask(last: &Weak<Mutex<Quality>>) {
    let mut is_known = true;
    while let Some(last) = last.upgrade() {
        let said = clock_quality::by_chrony();
        if let Err(error) = said.as_ref().map_err(|error| error.to_string()) {
            if std::mem::replace(&mut is_known, false) {
                tracing::warn!(error, "nobody knows how good the clock is");
            }
        } else {
            is_known = true;
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = said.unwrap_or(UNKNOWN);
        drop(last);
        std::thread::sleep(ASK_EVERY);
    }
}
