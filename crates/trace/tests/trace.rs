//! The program, with a daemon of its own and two gangs.

use std::{collections::BTreeSet, fs, os::unix::process::CommandExt, path::Path, process::Output};

use gang_daemon::{Daemon, Options, Place, Program, are_built, is_root, stderr, stdout};
use gang_harness::{skipped, wait_for, wait_until};
use serde_json::{Value, json};

fn trace(place: &Place, arguments: &[&str]) -> Output {
    let mut trace = place.command(env!("CARGO_BIN_EXE_gang-trace"));
    trace.args(arguments).current_dir(place.directory.path()).output().unwrap()
}

/// Two gangs for ten minutes at most: one spins, the other one has short processes do it.
fn gangs(place: &Place) -> [Program; 2] {
    let start = |name: &str, what: &str| {
        let spins = format!("while [ $SECONDS -lt 600 ]; do {what}; done");
        Program::start(&mut place.gang(&["run", "--name", name, "--", "bash", "-c", &spins]))
    };
    let gangs = [start("one", ":"), start("\"other\"", "(:)")];
    wait_until("two gangs take turns", || {
        let jobs = place.jobs();
        jobs.len() == 2 && jobs.iter().all(|job| job.slots > 0)
    });
    gangs
}

/// How many processes of a job ran.
fn processes(events: &[Value], job: &str) -> usize {
    let is_slot = |event: &&Value| event["cat"] == "slot" && event["name"] == job;
    let Some(slot) = events.iter().find(is_slot) else { return 0 };
    let arguments = events.iter().map(|event| &event["args"]);
    let its = arguments.filter(|of| of["job"] == slot["args"]["job"]);
    its.filter_map(|of| of["pid"].as_i64()).collect::<BTreeSet<i64>>().len()
}

#[test]
fn needs_root_a_trace_has_slots_and_who_ran_in_them() {
    if !is_root() || !are_built(&["gang", "gangd"]) {
        return;
    }
    let place = Place::new();
    let _gangs = gangs(&place);
    let is_drawn = gang_picture::python_with("matplotlib").is_some();
    let path = place.path("t.json");
    // Where many others want the CPUs, half a second may be none of theirs.
    let mut seconds = 0.5;
    let trace = wait_for("both have slots, and the other some processes", || {
        let length = seconds.to_string();
        let mut arguments = vec!["--seconds", length.as_str(), "--out", "t.json"];
        if is_drawn {
            arguments.extend(["--picture", "t.svg"]);
        }
        let output = trace(&place, &arguments);
        if stderr(&output).contains("cannot record what runs") {
            skipped(stderr(&output));
            return Some(None);
        }
        assert!(output.status.success(), "{}", stderr(&output));
        let trace: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let has_slot = |name: &&str| {
            events.iter().any(|event| event["cat"] == "slot" && event["name"] == **name)
        };
        // Processes of the other one come and go in a millisecond, and each is of its job.
        let (ones, others) = (processes(events, "one"), processes(events, "\"other\""));
        assert!(ones <= 1, "{ones}");
        let is_enough = ["one", "\"other\""].iter().all(has_slot) && others > 4;
        if !is_enough {
            seconds = f64::min(2.0 * seconds, 8.0);
        }
        is_enough.then_some(Some((trace, seconds)))
    });
    let Some((trace, seconds)) = trace else { return };
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &'static str| events.iter().filter(move |event| event["cat"] == cat);
    assert!(of("in slot").count() > 0 && of("in slot").all(|event| event["args"]["job"].is_i64()));
    let phases = ["late", "lower", "raise"];
    let (switches, parts): (Vec<&Value>, Vec<&Value>) =
        of("switch").partition(|event| event["name"] == "switch");
    assert!(!switches.is_empty(), "the gangs took turns");
    let span = |event: &Value| {
        let ts = event["ts"].as_f64().unwrap();
        (event["tid"].clone(), ts, ts + event["dur"].as_f64().unwrap())
    };
    for part in parts {
        assert!(phases.iter().any(|phase| part["name"] == *phase), "{part}");
        let (tid, begin, end) = span(part);
        // Nanoseconds of two sums.
        let is_of = |(of, from, to): (Value, f64, f64)| {
            of == tid && from <= begin + 0.001 && end <= to + 0.001
        };
        assert!(switches.iter().any(|switch| is_of(span(switch))), "{part} is of no switch");
    }
    assert!(phases.iter().all(|phase| of("switch").any(|event| event["name"] == *phase)));
    if is_drawn {
        let svg = fs::read_to_string(place.path("t.svg")).unwrap();
        // Quotes need no escape in what is between tags.
        for drawn in [">one</text>", ">\"other\"</text>", "<g id=\"late\">", "<g id=\"raise\">"] {
            assert!(svg.contains(drawn), "{drawn} is not drawn");
        }
    } else {
        skipped("the picture needs matplotlib (on Debian: the package python3-matplotlib)");
    }
    let metadata = &trace["metadata"];
    assert_eq!(metadata["switches_lost"], 0);
    let of_kernel =
        |name: &str| fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).unwrap();
    assert_eq!(metadata["host"], of_kernel("hostname").trim_end());
    assert_eq!(metadata["boot_id"], of_kernel("random/boot_id").trim_end());
    let at = |pointer: &str| metadata.pointer(pointer).unwrap().as_u64().unwrap();
    assert!(
        at("/clock/begin/utc_ns") <= at("/start_ns") && at("/end_ns") <= at("/clock/end/utc_ns")
    );
    assert!(at("/clock/end/bound_ns") < 17_000_000_000);
    let within = |event: &&Value| {
        let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        ts >= 0.0 && dur >= 0.0 && ts + dur <= seconds * 1e6 + 1.0
    };
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(complete.iter().all(within));
}

#[test]
fn without_a_daemon_there_is_nothing_to_record() {
    let place = Place::new();
    let output = trace(&place, &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).starts_with("gang trace: "), "{}", stderr(&output));
    assert!(!place.path("gang-trace.json").exists());
    for wrong in [["--seconds", "0"], ["--picture", "a.gif"]] {
        assert_eq!(trace(&place, &wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn needs_root_refused_recording_says_what_it_takes() {
    if !is_root() || !are_built(&["gangd"]) {
        return;
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse().unwrap_or(2) < 1 {
        skipped("everybody may record here (kernel.perf_event_paranoid)");
        return;
    }
    let daemon = Daemon::start_in(Place::new(), &Options::default());
    // Where another user can execute it.
    daemon.open_to_everybody(0o755);
    daemon.copy_programs(&["gang-trace"]);
    let out = daemon.path("t.json");
    let output = daemon
        .command(daemon.path("gang-trace"))
        .args(["--seconds", "60", "--out"])
        .arg(&out)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("cannot record what runs: recording takes root"), "{said}");
    assert!(!out.exists());
}

/// Writes a record of half a second without events, by a clock of a boot that is 100 µs late.
fn write_record(place: &Place, host: &str, boot: &str) {
    let reading = |utc_ns: u64| {
        json!({ "utc_ns": utc_ns, "monotonic_ns": utc_ns - 7, "source": "chrony",
                "offset_ns": 100_000, "bound_ns": 120_000 })
    };
    let (start_ns, end_ns) = (1_000_000_000, 1_500_000_000);
    let record = json!({
        "traceEvents": [],
        "metadata": {
            "gang_trace": 1, "host": host, "boot_id": boot, "start_ns": start_ns, "end_ns": end_ns,
            "clock": { "begin": reading(start_ns), "end": reading(end_ns) },
        },
    });
    fs::write(place.path(&format!("{host}.json")), record.to_string()).unwrap();
}

#[test]
fn merge_says_how_far_hosts_may_differ() {
    let place = Place::new();
    for (host, boot) in [("a", "1"), ("b", "2"), ("c", "1")] {
        write_record(&place, host, boot);
    }
    let of_two_clocks = trace(&place, &["merge", "a.json", "b.json", "-o", "both.json"]);
    assert_eq!(of_two_clocks.status.code(), Some(0), "{}", stderr(&of_two_clocks));
    assert_eq!(stdout(&of_two_clocks), "both.json: 0 events of 2 hosts\n");
    let said = "gang trace: hosts may differ by 240µs (a and b)\n";
    assert_eq!(stderr(&of_two_clocks), said);
    let both: Value = serde_json::from_slice(&fs::read(place.path("both.json")).unwrap()).unwrap();
    assert_eq!(both["metadata"]["start_ns"], 1_000_100_000);

    let of_one_clock = trace(&place, &["merge", "a.json", "c.json", "-o", "-"]);
    assert_eq!(of_one_clock.status.code(), Some(0), "{}", stderr(&of_one_clock));
    let trace: Value = serde_json::from_slice(&of_one_clock.stdout).unwrap();
    assert_eq!(trace["metadata"]["between"], json!([{ "hosts": ["a", "c"], "bound_ns": 0 }]));
    let said = "gang trace: 0 events of 2 hosts\ngang trace: all of it is by one clock\n";
    assert_eq!(stderr(&of_one_clock), said);
}

#[test]
fn merge_refuses_in_one_line_and_writes_nothing() {
    let place = Place::new();
    write_record(&place, "a", "1");
    write_record(&place, "b", "2");
    fs::write(place.path("odd\u{1b}.json"), "{").unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["a.json", "odd\u{1b}.json"], 1, "odd\\u{1b}.json is no trace: it is no JSON: "),
        (&["a.json", "none.json"], 1, "cannot read none.json: No such file"),
        (&["a.json", "a.json"], 1, "a.json and a.json are of one host, a, at the same time"),
        (&["a.json", "b.json", "--out", "./b.json"], 1, "./b.json is to be merged"),
        (&["a.json", "b.json", "--out", "/nowhere/x"], 1, "cannot write /nowhere/x: No such"),
    ];
    let before = fs::read(place.path("b.json")).unwrap();
    for (arguments, code, expected) in cases {
        let output = trace(&place, &[&["merge"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.starts_with(&format!("gang trace: {expected}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(fs::read(place.path("b.json")).unwrap(), before);
    assert!(!place.path("merged-trace.json").exists());
    for typed in [&["merge", "a.json"][..], &["merge"], &["--seconds", "1", "merge", "a.json"]] {
        assert_eq!(trace(&place, typed).status.code(), Some(2), "{typed:?}");
    }
}
