//! How tests wait, and how they say that this machine cannot run them.
//!
//! A test waits for what happens, never for a time: on a machine that is busy, throttled or
//! emulated everything happens, only later. [`TEST_TIMEOUT`] ends a test that hangs, and judges
//! nothing.
//!
//! Cargo does not show the output of a test that passes. So the reason of a skip also goes into the
//! file that GANG_SKIPS names, and `make test` ends with all of them.

pub mod etcd;

use std::{
    env,
    fmt::Display,
    fs::OpenOptions,
    io::Write,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// After this long a test hangs. Nothing that a test waits for takes a tenth of it on an idle
/// machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// Waits until something holds.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits for a value.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    look_every(Duration::from_millis(5), what, look)
}

/// Like [`wait_until`], without a pause between two looks: for what may last a moment only.
///
/// # Panics
///
/// After [`TEST_TIMEOUT`].
pub fn wait_busily_until(what: &str, mut holds: impl FnMut() -> bool) {
    look_every(Duration::ZERO, what, || holds().then_some(()));
}

fn look_every<T>(pause: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        // The clock is read before the look: a test that had no CPU for long still looks once more.
        let is_last = Instant::now() >= end;
        if let Some(value) = look() {
            return value;
        }
        if is_last {
            // Of a hang that comes back once in a thousand runs, this is all that there is.
            say_processes();
            panic!("not within {TEST_TIMEOUT:?}: {what}");
        }
        thread::sleep(pause);
    }
}

/// Prints what the processes of this machine wait for.
fn say_processes() {
    let columns = "pid,ppid,pgid,stat,psr,wchan:24,args";
    // The output of `ps` itself would not be part of the test's.
    match Command::new("ps").args(["-e", "--forest", "-ww", "-o", columns]).output() {
        Ok(ps) => eprintln!("{}", String::from_utf8_lossy(&ps.stdout)),
        Err(error) => eprintln!("cannot list the processes: {error}"),
    }
}

/// Says that the test under way was not run, or not all of it, and why.
///
/// # Panics
///
/// Where GANG_SKIPS names no file that can be written to: a skip that nobody sees is a test that
/// fails.
pub fn skipped(why: impl Display) {
    // Cargo says whose tests run, and their threads have their names.
    let room = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "tests".into());
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string();
    let why = why.trim().replace('\n', "; ");
    eprintln!("skipped: {why}");
    let Some(path) = env::var_os("GANG_SKIPS").map(PathBuf::from) else { return };
    // Not created: a test that is another user by now may not create it, and `make test` has.
    let line = format!("{room}: {test}: {why}\n");
    let file = OpenOptions::new().append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot note a skip in {}: {error}", path.display()));
}
