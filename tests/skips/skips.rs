//! Tests that cannot be run on this machine say so, where somebody sees it.
//!
//! What a test prints that passes is not shown. So its reason also goes into the file that GANG_SKIPS names,
//! and `make test` ends with all of them.

use std::{env, fmt::Display, fs::OpenOptions, io::Write, path::PathBuf, thread};

/// Says that the test under way was not run, or not all of it, and why.
///
/// # Panics
///
/// Where GANG_SKIPS names no file that can be written to: a skip that nobody sees is a test that fails.
pub fn skipped(why: impl Display) {
    // Cargo says whose tests run, and their threads have their names.
    let room = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "tests".into());
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string();
    let why = why.trim().replace('\n', "; ");
    eprintln!("skipped: {why}");
    let Some(path) = env::var_os("GANG_SKIPS").map(PathBuf::from) else { return };
    // Not created: who is somebody else by now may not create it, and whoever sets GANG_SKIPS has.
    let line = format!("{room}: {test}: {why}\n");
    let file = OpenOptions::new().append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot note a skip in {}: {error}", path.display()));
}
