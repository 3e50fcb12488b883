//! A frame, and what ports and daemon share: `cargo +nightly fuzz run frames`. A test of crates/net
//! runs the corpus.

#![no_main]

#[path = "../../crates/net/tests/frames/mod.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    frames::read_as_all(data);
});
