//! The conductor, one step at a time.

mod carried_out;
mod confined;
mod cpu_time;
mod crowding;
mod effects;
mod one;
mod out_of_slot;
mod quotas;
mod short_lived;
mod spanning;
mod strays;
mod transitions;
