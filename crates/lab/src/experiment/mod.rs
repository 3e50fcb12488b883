//! The experiments, each one file: which conditions it compares, and what it promises.

pub mod all;
pub mod arrival;
pub mod auto;
pub mod barrier;
pub mod barriers;
pub mod batch;
pub mod calls;
pub mod clients;
pub mod coscheduled;
pub mod deadlines;
pub mod doctor;
pub mod fill;
pub mod holes;
pub mod idle;
pub mod lateness;
pub mod noise;
pub mod openmp;
pub mod overhead;
pub mod priority;
pub mod release;
pub mod share;
pub mod slices;
pub mod solvers;
pub mod spec;
pub mod speedup;
pub mod stream;
pub mod sweep;
pub mod switch;
pub mod users;
pub mod views;
pub mod watching;

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
