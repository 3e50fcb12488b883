//! Everything that the daemon does with bytes before it knows what they ask for:
//! `cargo +nightly fuzz run decode`. The tests of crates/protocol run the corpus.

#![no_main]

#[path = "../../crates/protocol/tests/decoder/mod.rs"]
mod decoder;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    decoder::decode_all(data);
});
