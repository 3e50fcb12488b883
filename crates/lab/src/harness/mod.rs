//! How anything is measured here: conditions that alternate, the daemons and programs of a
//! condition, statistics, and reports as text, JSON, CSV and pictures.
//!
//! Nothing in this room knows an experiment, nor a figure that gangd promises.

pub mod alternate;
pub mod apart;
pub mod bed;
mod budget;
pub mod child;
pub mod compiled;
pub mod confusion;
pub mod daemon;
pub mod duration;
pub mod finish;
pub mod gangs;
pub mod host;
pub mod journal;
pub mod lab;
pub mod machine;
pub mod network;
pub mod noise;
pub mod onlookers;
pub mod options;
pub mod origin;
pub mod picture;
pub mod proc;
pub mod programs;
pub mod progress;
pub mod promise;
pub mod real_programs;
pub mod report;
pub mod samples;
pub mod stats;
pub mod syscalls;
pub mod table;
pub mod users;
pub mod verdict;
pub mod wait;
