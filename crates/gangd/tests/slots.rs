//! How programs learn of their slots, on the real kernel: the slot page, and signals.

mod place;

use std::{collections::BTreeSet, fs, io::Write, path::Path};

use gang_linux::clock;
use place::{
    Place, Program, SPIN, has_backend, job_with, machine, wait_busily_until, wait_released,
    wait_until,
};

#[test]
fn needs_root_slot_page_counts_threads_as_planned() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    // One spins, three sleep.
    let sleep = "sleep infinity &";
    let mut program =
        Program::shell(&format!("exec bash -c 'read go; {sleep} {sleep} {sleep} {SPIN}'"));
    let job = job_with(&place, &program, machine());
    let path = place.client().slot_page(job).unwrap();
    program.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    wait_until("all have come", || place.job(job).unwrap().threads == 4);
    let on_cpus = || {
        let page = fs::read(&path).unwrap();
        let number = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
        (number(8) == 1).then(|| i64::from(number(12)))
    };
    wait_until("planned for all, or the CPUs", || on_cpus() == Some(machine().min(4)));
}

#[test]
fn needs_root_slot_page_is_right_and_outlives_daemon() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let (job, _) = (job_with(&place, &one, machine()), job_with(&place, &other, machine()));
    let path = place.client().slot_page(job).unwrap();
    assert_eq!(place.client().slot_page(job).unwrap(), path);
    // Kept open, as a program keeps it mapped.
    let page = fs::File::open(&path).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&page, &mut bytes, at).unwrap();
        u32::from_ne_bytes(bytes)
    };
    let (running, validity) = (8, 36);
    for wanted in [1, 0, 1] {
        wait_until("a slot begins, and ends", || {
            (number(validity), number(running)) == (0, wanted)
        });
    }
    // In its slot or out of it: the page still counts by the earlier plans for a while.
    for _ in 0..10 {
        place.client().suspend(job).unwrap();
        wait_until("not scheduled", || (number(validity), number(running)) == (1, 0));
        place.client().resume(job).unwrap();
        wait_until("a slot again", || (number(validity), number(running)) == (0, 1));
    }
    place.kill();
    wait_until("the daemon is gone", || (number(validity), number(running)) == (2, 0));
    place.start();
    wait_until("another daemon", || (number(validity), number(running)) == (0, 1));
    drop(one);
    wait_until("the job is gone", || number(validity) == 2 && !Path::new(&path).exists());
}

#[test]
fn needs_root_slot_lasts_as_its_page_says() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--slice", "20ms"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let (job, _) = (job_with(&place, &one, machine()), job_with(&place, &other, machine()));
    let page = fs::File::open(place.client().slot_page(job).unwrap()).unwrap();
    // Whether the slot runs, and until when.
    let word = || {
        let mut bytes = [0; 24];
        std::os::unix::fs::FileExt::read_exact_at(&page, &mut bytes, 0).unwrap();
        let running = u32::from_ne_bytes(bytes[8..12].try_into().unwrap());
        (running == 1, u64::from_ne_bytes(bytes[16..24].try_into().unwrap()))
    };
    let mut slots = BTreeSet::new();
    wait_busily_until("fifty slots were seen while they ran", || {
        let (was_running, until_ns) = word();
        let (is_running, _) = word();
        // The page was read before this moment.
        if was_running && clock::utc_ns() < until_ns {
            assert!(is_running, "it was to run until {until_ns}");
            slots.insert(until_ns);
        }
        slots.len() >= 50
    });
    let slots: Vec<u64> = slots.into_iter().collect();
    let counted_twice = slots.windows(2).any(|pair| pair[1] - pair[0] < 1_000_000);
    assert!(!counted_twice, "each ends at an edge of the clock: {slots:?}");
}

#[test]
fn needs_root_signals_announce_slots_to_listeners() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt", "--slice", "20ms"]);
    let log = place.directory.path().join("heard");
    let path = log.display();
    // The first one listens; its child would be killed by either signal.
    let script = format!(
        "trap 'echo pause >> {path}' USR1; trap 'echo continue >> {path}' USR2; \
         read go; sh -c 'while :; do :; done' & child=$!; while kill -0 $child; do :; done"
    );
    let (mut one, other) = (Program::shell(&script), Program::spinner());
    let (job, _) = (job_with(&place, &one, machine()), job_with(&place, &other, machine()));
    one.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let heard = |word: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| *line == word).count()
    };
    // Nobody sees it raised: it has all CPUs then.
    wait_until("slots", || place.job(job).unwrap().slots > 3);
    assert_eq!(heard("pause") + heard("continue"), 0, "nobody asked for signals");
    place.client().set_signals(job, true).unwrap();
    wait_until("pauses and goes on", || heard("pause") > 2 && heard("continue") > 2);
    assert_eq!(place.job(job).unwrap().processes, 2);
    place.kill();
    wait_released(one.pid(), "released");
    let last = || fs::read_to_string(&log).unwrap().lines().last().map(str::to_owned);
    wait_until("the signal to go on", || last().as_deref() == Some("continue"));
    place.start();
    let before = heard("pause");
    wait_until("still signalled", || heard("pause") > before);
    place.client().set_signals(job, false).unwrap();
    let slots_pass = |count: i64| {
        let before = place.job(job).unwrap().slots;
        wait_until("slots", || place.job(job).unwrap().slots > before + count);
    };
    // Signals that were sent before have arrived by then.
    slots_pass(10);
    wait_until("the signal to go on", || last().as_deref() == Some("continue"));
    let words = || heard("pause") + heard("continue");
    // A shell on a busy machine takes longer to print the signals that it got before. Of twenty
    // slots in a row each would be announced, were any.
    wait_until("nobody gets a signal any more", || {
        let before = words();
        slots_pass(20);
        words() == before
    });
}

#[test]
fn needs_root_signals_spare_children_of_listeners() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--slice", "2ms"]);
    let log = place.directory.path().join("said");
    // Between fork and exec each of them has the handlers of the shell.
    let script = format!(
        "trap : USR1; trap : USR2; read go; i=0; \
         while [ $i -lt 300 ]; do sh -c : || echo ended; i=$((i+1)); done >{0}; echo done >>{0}; exec sleep infinity",
        log.display()
    );
    let (mut one, other) = (Program::shell(&script), Program::spinner());
    let (job, _) = (job_with(&place, &one, machine()), job_with(&place, &other, machine()));
    place.client().set_signals(job, true).unwrap();
    one.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let said = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("all have run", || said().ends_with("done\n"));
    assert_eq!(said(), "done\n");
}
