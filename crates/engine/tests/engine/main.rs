//! Timetables carried out, in a kernel that records.

mod copies;
mod guardians;
mod jobs;
mod parked;
mod reading;
mod releases;
mod rivals;
mod switchers;
mod timetables;
