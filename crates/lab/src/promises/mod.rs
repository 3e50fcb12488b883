//! The promises of SPECIFICATION.md, and the experiments that measure it, one file each.

pub mod arrival;
pub mod auto;
pub mod barrier;
pub mod barriers;
pub mod calls;
pub mod clients;
pub mod coscheduled;
pub mod doctor;
pub mod document;
pub mod fill;
pub mod frames;
pub mod hostile;
pub mod hosts;
pub mod idle;
pub mod lateness;
pub mod list;
pub mod openmp;
pub mod programs;
pub mod release;
pub mod share;
pub mod spec;
pub mod switch;
pub mod views;
pub mod watching;
