//! A path by which a client names a cgroup: `cargo +nightly fuzz run paths`. A test of crates/linux
//! runs the corpus.

#![no_main]

#[path = "../../crates/linux/tests/paths/mod.rs"]
mod paths;

use std::path::Path;

/// Of the build, which git ignores.
const TRAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/traps");

libfuzzer_sys::fuzz_target!(
    init: paths::make_traps(Path::new(TRAPS)),
    |data: &[u8]| {
        paths::is_name(data, Path::new(TRAPS));
    }
);
