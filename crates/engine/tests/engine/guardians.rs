//! A guardian releases the jobs of a daemon that is gone or silent, and only those.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use gang_engine::guardian;
use gang_harness::wait_until;
use gang_linux::Roots;

use crate::releases::{frozen, in_group, read, record, store_of};

/// Waits until a file holds something.
fn wait_for(path: &Path, text: &str) {
    wait_until(&format!("{text:?} in {}", path.display()), || read(path) == text);
}

/// A guardian that watches over one job that stands still; runs a function with the daemon's end of
/// the pipe, the job's freezer and the guardian's thread, and returns when the guardian has.
fn with_guardian(silence: Duration, daemon: impl FnOnce(UnixStream, &Path, u32)) {
    let directory = tempfile::tempdir().unwrap();
    let group = directory.path().join("job");
    let freeze = frozen(&group, &[]);
    let store = store_of(directory.path(), &[record(1, in_group(&group))]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let watching = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        guardian::watch(&Roots::default(), &store, theirs, silence);
    });
    daemon(ours, &freeze, receiver.recv().unwrap());
    watching.join().unwrap();
    assert_eq!(read(&freeze), "0");
}

/// How often a thread of this process has waited.
fn waits(tid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn the_end_of_the_daemon_releases_its_jobs() {
    with_guardian(HOUR, |pipe, _, _| drop(pipe));
}

#[test]
fn a_daemon_that_speaks_keeps_its_jobs() {
    with_guardian(HOUR, |mut pipe, freeze, _| {
        for _ in 0..100 {
            pipe.write_all(&[b'.'; 100]).unwrap();
        }
        assert_eq!(read(freeze), "1");
    });
}

#[test]
fn silence_releases_once_until_the_next_byte() {
    let silence = Duration::from_millis(10);
    with_guardian(silence, |mut pipe, freeze, guardian| {
        wait_for(freeze, "0");
        pipe.read_exact(&mut [0]).expect("the daemon gets a byte");
        fs::write(freeze, "1").unwrap();
        // Each silence is one wait.
        let before = waits(guardian);
        wait_until("it is silent ten times", || waits(guardian) >= before + 10);
        assert_eq!(read(freeze), "1", "the daemon may have woken up: its jobs are its own");
        pipe.write_all(b".").unwrap();
        wait_for(freeze, "0");
    });
}
