//! The published experiments, one file each: which conditions it compares, and what the paper
//! found. docs/lab has a page of each.

pub mod batch;
pub mod deadlines;
pub mod holes;
pub mod hydro;
pub mod noise;
pub mod overhead;
pub mod priority;
pub mod skew;
pub mod slices;
pub mod slow_network;
pub mod solvers;
pub mod speedup;
pub mod stream;
pub mod sweep;
pub mod users;
