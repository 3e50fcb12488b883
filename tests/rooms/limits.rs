//! The limits and defaults that SPECIFICATION.md states, beside the constants that set them.
//!
//! A change of one of them fails here until the other follows. The settings of the configuration
//! file are compared in gangd, the bounds of promises in the lab.

use std::{fs, path::Path};

/// The beginning of a row, what it says, and the constant, with its file below `crates`.
const ROWS: [(&str, &str, &str, &str); 21] = [
    ("a request |", "64 KiB", "protocol/src/limits.rs", "MESSAGE_MAX: usize = 64 * 1024;"),
    ("a reply |", "16 MiB", "protocol/src/limits.rs", "REPLY_MAX: usize = 16 * 1024 * 1024;"),
    ("name of a job |", "1 to 64 bytes", "protocol/src/limits.rs", "NAME_MAX: usize = 64;"),
    ("CPUs that a job can ask for", "8,192", "protocol/src/limits.rs", "CPUS_MAX: i64 = 8192;"),
    ("weight of a job |", "100", "schedule/src/job.rs", "DEFAULT_WEIGHT: u32 = 100;"),
    ("weight of a job |", "1 to 10,000", "schedule/src/job.rs", "MAX_WEIGHT: u32 = 10_000;"),
    ("threads of a job that are", "4,096", "schedule/src/job.rs", "MAX_THREADS: usize = 4096;"),
    ("single threads of a job", "256", "conductor/src/life.rs", "SINGLES_MAX: usize = 256;"),
    (
        "a job that uses no CPU",
        "250 ms",
        "conductor/src/activity.rs",
        "IDLE_AFTER_NS: u64 = 250_000_000;",
    ),
    ("requests that wait", "1,024", "gangd/src/conduct/requests.rs", "REQUESTS_MAX: usize = 1024;"),
    ("jobs that wait", "256", "gangd/src/life/admission.rs", "WAITING_MAX: usize = 256;"),
    ("why a job was decided", "512 bytes", "gangd/src/life/auto.rs", "BECAUSE_MAX: usize = 512;"),
    (
        "a connection without a message",
        "10 min",
        "gangd/src/serve/connections.rs",
        "SILENCE: Duration = Duration::from_secs(600);",
    ),
    (
        "single switches",
        "32,768 in all",
        "gangd/src/serve/description.rs",
        "SWITCHES_MAX: usize = 32_768;",
    ),
    (
        "the daemon counts as stuck",
        "2 s",
        "engine/src/guardian.rs",
        "SILENCE: Duration = Duration::from_secs(2);",
    ),
    (
        "rows that have ended",
        "2,048",
        "conductor/src/forecast.rs",
        "PAST_KEPT: usize = 2048 - PLANS_KEPT;",
    ),
    ("what `gang top` keeps", "20,000", "view/src/live/past.rs", "ROWS_MAX: usize = 20_000;"),
    (
        "pages of `gang web`",
        "768 connections",
        "view/src/web/listen.rs",
        "CONNECTIONS_MAX: usize = 768;",
    ),
    ("a request to `gang web`", "16 KiB", "view/src/web/listen.rs", "HEAD_MAX: usize = 16 * 1024;"),
    ("the last minutes of a job", "600", "view/src/web/minutes.rs", "LOOKS_MAX: usize = 600;"),
    ("slot pages that a program", "1,024", "libgang/src/page.rs", "OPEN_MAX: usize = 1024;"),
];

#[test]
fn stated_limits_are_those_of_the_code() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(top.join("SPECIFICATION.md")).unwrap();
    for (row, stated, file, constant) in ROWS {
        let begins = |line: &&str| line.starts_with(&format!("| {row}"));
        let line = text.lines().find(begins).unwrap_or_else(|| panic!("there is no row {row:?}"));
        assert!(line.contains(stated), "{row:?} does not say {stated:?}: {line}");
        let code = fs::read_to_string(top.join("crates").join(file)).unwrap();
        assert!(code.contains(constant), "{file} has no {constant:?}, and {row:?} says {stated}");
    }
}
