//! A file that a program has mapped, of which the doctor reads the functions:
//! `cargo +nightly fuzz run symbols`. A test of crates/doctor runs the corpus.

#![no_main]

#[path = "../../crates/doctor/tests/elf/mod.rs"]
mod elf;
#[path = "../../crates/doctor/src/symbols.rs"]
#[allow(dead_code, reason = "only what is given bytes is fuzzed")]
mod symbols;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    elf::named_bytes(data);
});
