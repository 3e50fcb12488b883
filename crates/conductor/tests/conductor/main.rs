//! The conductor, one step at a time.

mod confined;
mod effects;
mod one;
mod short_lived;
mod transitions;
