//! The whole policy: compared with a naive version of itself, against its invariants, and in
//! scripts.

mod naive;
mod places;
mod properties;
mod random;
mod scripts;
mod shares;
