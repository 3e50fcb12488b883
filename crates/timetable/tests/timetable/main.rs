//! Actions, carried out by a kernel that only remembers.

mod attributes;
mod backends;
mod jobs;
mod load;
mod outside;
mod weighed;
