//! Plans carried out, in a kernel that records.

mod backends;
mod jobs;
mod switchers;
mod timetables;
