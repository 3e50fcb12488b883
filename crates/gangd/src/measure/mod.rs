//! Measuring of gangs by BPF programs: what these programs get, and what they report.
//!
//! The conductor sends them groups and slots ([`gangs`]). A thread of its own starts them and looks
//! at the machine for them ([`measuring`]), also at whose threads want to run outside of gangs
//! ([`outside`]). Client threads read the sums ([`description`]).

pub mod description;
pub mod gangs;
pub mod measuring;
pub mod outside;
mod turns;
