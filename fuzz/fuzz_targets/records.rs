//! The record of a job on file: `cargo +nightly fuzz run records`. A test of crates/engine runs the
//! corpus.

#![no_main]

#[path = "../../crates/engine/tests/records/mod.rs"]
mod records;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    records::is_record(data);
});
