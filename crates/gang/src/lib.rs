//! The command line, as a library, so that the program, its man pages and its completions come
//! from one definition.
//!
//! Two stages: [`cli`] says what can be typed; each of [`commands`] says what it means. Commands
//! talk to the daemon through [`connect`] only, which also cleans up after a dead one.

pub mod cli;
pub mod commands;
pub mod connect;
pub mod environment;
pub mod executable;
pub mod execute;
pub mod exit;
pub mod inherited;
pub mod job_options;
pub mod leftovers;
pub mod net;
pub mod programs;
pub mod show_values;
pub mod signals;
pub mod stand_in;
pub mod start;
pub mod table;
