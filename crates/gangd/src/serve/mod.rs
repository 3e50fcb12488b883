//! The socket: connections, messages and their answers, and the status file.
//!
//! Each connection has a thread. It reads a message, does what the message asks by the methods of
//! [`crate::daemon::Daemon`], and writes the answer in the terms of `org.gangd.v1`.

pub mod calls;
pub mod command_lines;
pub mod connections;
pub mod description;
pub mod io_deadline;
mod parameters;
mod reading;
mod registration;
pub mod session;
pub mod socket;
pub mod status_file;
