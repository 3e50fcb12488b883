//! The experiments, each one file: which conditions it compares, and what it promises.

pub mod arrival;
pub mod barrier;
pub mod barriers;
pub mod calls;
pub mod clients;
pub mod coscheduled;
pub mod fill;
pub mod idle;
pub mod lateness;
pub mod openmp;
pub mod overhead;
pub mod release;
pub mod share;
pub mod spec;
pub mod switch;

use crate::daemon::Settings;
use crate::lab::{Lab, Under};

/// Plain Linux, and gangd as it comes unless only plain Linux was asked for.
fn plain_and_default(lab: &Lab) -> Vec<(&'static str, Under)> {
    let mut all = vec![("plain Linux", Under::Plain)];
    if !lab.options.plain {
        all.push(("gangd", Under::Gangd(lab.settings(Settings::default()))));
    }
    all
}
