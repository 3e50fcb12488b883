//! The list at the end of `make test`, from texts as cargo and libtest print them.

use std::io::Write;
use std::process::{Command, Stdio};

use gang_harness::skipped;

/// The outcomes that tests/tally.awk reads from a text; absent where there is no awk.
fn tally(text: &str) -> Option<Vec<String>> {
    let mut awk = Command::new("awk");
    awk.args(["-f", concat!(env!("CARGO_MANIFEST_DIR"), "/../tally.awk")]);
    let mut awk = match awk.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Ok(awk) => awk,
        Err(error) => {
            skipped(format!("awk cannot be executed: {error}"));
            return None;
        }
    };
    awk.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = awk.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

const PASSES: &str = "
program gang-schedule policy

running 3 tests
test naive::plans_are_the_same ... ok
test figures ... ignored, nightly: needs an idle machine
test later ... ignored

test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.02s
";

const FAILS: &str = "
program gangd killed

running 2 tests
test guardian_waits ... FAILED
test daemon_waits ... ok

failures:

---- guardian_waits stdout ----
thread 'guardian_waits' panicked at crates/gangd/tests/killed.rs:7:5:
failures:
    not_a_test

failures:
    guardian_waits

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s
";

const HANGS: &str = "
program gang top

running 2 tests
test top_prints ... ok
";

const DOCTESTS: &str = "
   Doc-tests gang_schedule

running 1 test
test crates/schedule/src/lib.rs - (line 12) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

#[test]
fn tally_has_each_outcome_once() {
    let Some(lines) = tally(&[PASSES, FAILS, HANGS, DOCTESTS].concat()) else { return };
    let expected = [
        "nightly gang-schedule policy: figures: needs an idle machine",
        "nightly gang-schedule policy: later",
        "failed gangd killed: guardian_waits",
        "failed gang top: it did not come to its end",
        "passed 43",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn tally_names_a_program_cut_off_at_the_end() {
    let Some(lines) = tally(&[PASSES, HANGS].concat()) else { return };
    assert_eq!(lines.last().unwrap(), "passed 41");
    assert!(lines.contains(&"failed gang top: it did not come to its end".to_owned()), "{lines:?}");
}

#[test]
fn tally_of_nothing_is_no_failure() {
    let Some(lines) = tally("") else { return };
    assert_eq!(lines, ["passed 0"]);
}
