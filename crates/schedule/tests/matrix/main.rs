//! The matrix of spanning jobs: compared with a naive version of itself, against its invariants,
//! in scripts, and beside the plans of one host.

mod beside;
mod naive;
mod properties;
mod random;
mod scripts;
