//! Timetables carried out, in a kernel that records.

mod jobs;
mod parked;
mod reading;
mod releases;
mod switchers;
mod timetables;
