//! The conductor, one step at a time.

mod effects;
mod one;
mod transitions;
