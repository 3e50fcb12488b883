//! The program, on the real kernel, with a daemon of its own.

mod programs;
mod sums;
mod watching;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use gang_daemon::{Place, Program, stderr};
use gang_doctor::sites::{Site, Sites};
use gang_harness::{skipped, wait_for, wait_until};
use gang_protocol::v1::Policy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use watching::{cannot_watch, command, diagnosis, doctor, seen_enough, sole_watcher};

fn holds(diagnosis: &Value, id: &str) -> Value {
    let conditions = diagnosis["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["id"] == id).unwrap()["holds"].clone()
}

/// The promise of `--json` for every diagnosis.
fn is_whole(diagnosis: &Value) {
    let conditions = diagnosis["conditions"].as_array().unwrap();
    let ids: Vec<_> = conditions.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["E1", "E2", "E3", "E4", "E5"]);
    for condition in conditions {
        assert!(condition["holds"].is_boolean() || condition["holds"].is_null(), "{condition}");
        let is_text = |key: &str| condition[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("name") && is_text("finding"), "{condition}");
    }
    assert!(!diagnosis["sentence"].as_str().unwrap().is_empty(), "{diagnosis:#}");
    let helps = diagnosis.get("helps").unwrap();
    assert!(helps.is_boolean() || helps.is_null(), "{helps}");
    for name in ["predicted_gain", "measured_gain"] {
        let gain = diagnosis.get(name).unwrap();
        assert!(gain.is_null() || gain["gain"].is_f64(), "{gain}");
        if let Some(interval) = gain["interval"].as_array() {
            let [low, high] = [0, 1].map(|at| interval[at].as_f64().unwrap());
            let gain = gain["gain"].as_f64().unwrap();
            assert!(low <= gain && gain <= high, "{diagnosis:#}");
        }
    }
}

#[test]
fn needs_root_and_bpf_barrier_differs_from_spinning() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let has_threads = |threads: u64| move |seen: &Value| seen["figures"]["threads"] == threads;
    let spins = ["sh", "-c", "while :; do :; done"];
    let Some(single) = seen_enough(&place, &spins, has_threads(1)) else { return };
    is_whole(&single);
    assert_eq!(single["figures"]["threads"], 1, "{single:#}");
    // Many machines have no hardware counters.
    let [bytes, reason] =
        ["memory_bytes_per_s", "memory_not_measured"].map(|name| &single["figures"][name]);
    let (is_measured, is_shown) =
        (bytes.is_f64(), reason.as_str().is_some_and(|it| !it.is_empty()));
    assert!(is_measured != is_shown, "either one or the other: {single:#}");
    if is_shown {
        skipped(format!("memory is not measured: {reason}"));
    }
    assert!(single["measured_gain"].is_null(), "nothing was proved: {single:#}");
    // Of CPUs that nobody uses it is seen as well that they are not: each would count as one that
    // works for it.
    let pace = single["figures"]["pace"].as_f64().unwrap();
    assert!(pace < 1.5, "{single:#}");
    assert_eq!(holds(&single, "E1"), false, "{single:#}");
    let Some(program) = programs::meet(place.directory.path()) else { return };
    // Few ticks do not show how often they meet. With more work between, they would wait as often
    // as their CPUs differ.
    let are_seen_to_meet = |seen: &Value| {
        let spins = seen["figures"]["spinning"].as_f64() > Some(0.0);
        has_threads(2)(seen) && spins && holds(seen, "E1") == true
    };
    let meets = [program.to_str().unwrap(), "often"];
    let Some(meeting) = seen_enough(&place, &meets, are_seen_to_meet) else { return };
    is_whole(&meeting);
    // Without a gain predicted it is judged by the bounds, and shown all the same.
    assert!(meeting["helps"].is_boolean(), "{meeting:#}");
}

#[test]
fn needs_root_and_bpf_kernel_waits_are_seen() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let Some(program) = programs::meet(place.directory.path()) else { return };
    let yields = [program.to_str().unwrap(), "yield"];
    seen_enough(&place, &yields, |seen| {
        let waits_at = seen["figures"]["waits_at"].as_array().unwrap();
        waits_at.iter().any(|site| site[0] == "sched_yield")
    });
}

#[test]
fn needs_root_and_bpf_proof_restores_program() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let program = Program::spinner();
    let pid = program.pid().to_string();
    let groups = || std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let before = groups();
    let output = doctor(&place, &["--json", "--seconds", "1", "--prove", "--pid", &pid]);
    let after = groups();
    drop(program);
    let Some(diagnosis) = diagnosis(&output) else { return };
    is_whole(&diagnosis);
    assert!(diagnosis["measured_gain"]["gain"].is_number(), "{diagnosis:#}");
    assert_eq!(diagnosis["measured_gain"]["interval"].as_array().unwrap().len(), 2);
    assert!(diagnosis["helps"].is_boolean(), "{diagnosis:#}");
    assert_eq!(diagnosis["measured_by"], "work", "{diagnosis:#}");
    assert!(diagnosis["told_apart"].is_boolean() && diagnosis["not_proved"].is_null());
    assert_eq!(after, before);
}

#[test]
fn needs_root_and_bpf_early_end_is_still_diagnosed() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let pid = place.path("pid");
    let script = format!("echo $$ >{}; while [ $SECONDS -lt 600 ]; do :; done", pid.display());
    let options = ["--json", "--seconds", "1", "--after", "0.3", "--prove"];
    let mut doctor = command(&place, &options);
    doctor.args(["--", "bash", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut doctor = doctor.spawn().unwrap();
    // It is a gang for the first time when it was watched and its proof begins, which takes six
    // seconds more.
    let mut has_ended = false;
    wait_until("it is a gang, or the doctor has ended", || {
        has_ended = !matches!(doctor.try_wait(), Ok(None));
        has_ended || place.jobs().iter().any(|job| job.policy == Policy::gang)
    });
    if !has_ended {
        let pid = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
    let output = doctor.wait_with_output().unwrap();
    let said = stderr(&output);
    if cannot_watch(&said) {
        return skipped(said);
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    let reason = "cannot prove what the program gains: the program ended before it was measured";
    assert!(said.contains(reason), "{said}");
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    is_whole(&diagnosis);
    assert!(diagnosis["measured_gain"].is_null(), "{diagnosis:#}");
    assert!(diagnosis["not_proved"].as_str().unwrap().contains("6 s or more"), "{diagnosis:#}");
}

#[test]
#[ignore = "nightly: needs an idle machine, whose figures it judges"]
fn needs_root_and_bpf_waiting_threads_gain_more() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let Some(program) = programs::meet(place.directory.path()) else { return };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let _competitors: Vec<Program> = (0..3 * cpus).map(|_| Program::spinner()).collect();
    let gain = |arguments: &[&str]| {
        let options = ["--json", "--seconds", "1", "--after", "0.5", "--prove", "--"];
        let command = [&options[..], &[program.to_str().unwrap()], arguments].concat();
        let diagnosis = diagnosis(&doctor(&place, &command))?;
        is_whole(&diagnosis);
        let gain = diagnosis["measured_gain"]["gain"].as_f64().unwrap();
        eprintln!("{arguments:?}: {}", diagnosis["measured_gain"]);
        Some((gain, diagnosis["helps"].as_bool()))
    };
    let Some((meet, helps)) = gain(&[]) else { return };
    let Some((apart, _)) = gain(&["apart"]) else { return };
    assert!(meet > 0.05 && helps == Some(true), "{meet}, {helps:?}");
    assert!(apart < meet, "{apart} of threads that work apart, {meet} of those that meet");
}

#[test]
fn needs_root_and_bpf_a_program_it_starts_is_proved() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let Some(program) = programs::meet(place.directory.path()) else { return };
    let _rival = Program::spinner();
    let options = ["--json", "--seconds", "1", "--after", "0.5", "--prove", "--"];
    let output = doctor(&place, &[&options[..], &[program.to_str().unwrap()]].concat());
    let Some(diagnosis) = diagnosis(&output) else { return };
    is_whole(&diagnosis);
    assert!(diagnosis["measured_gain"]["gain"].is_number(), "{diagnosis:#}");
    assert!(diagnosis["helps"].is_boolean() && diagnosis["told_apart"].is_boolean());
    assert_eq!(diagnosis["measured_by"], "work", "{diagnosis:#}");
}

#[test]
fn needs_root_and_bpf_reported_progress_is_proof() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let run = ["run", "--policy", "none", "--min", "1", "--"];
    let mut program = Program::start(place.gang(&run).args(spin));
    let job = wait_for("it is a job", || {
        assert!(matches!(program.0.try_wait(), Ok(None)), "gang run ended");
        place.jobs().into_iter().find(|job| job.processes > 0).map(|job| job.id)
    });
    let reported = {
        let mut client = place.client();
        move || client.show_job(job).unwrap().details.progress.is_some()
    };
    let (stop, stopped) = mpsc::channel::<()>();
    let mut client = place.client();
    let report = std::thread::spawn(move || {
        let began = Instant::now();
        while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            client.set_progress(job, began.elapsed().as_secs_f64(), 1e6).unwrap();
        }
    });
    wait_until("its first report is there", reported);
    let output = doctor(&place, &["--json", "--seconds", "1", "--prove", &job.to_string()]);
    drop(stop);
    report.join().unwrap();
    drop(program);
    let Some(diagnosis) = diagnosis(&output) else { return };
    assert_eq!(diagnosis["measured_by"], "progress", "{diagnosis:#}");
    assert!(diagnosis["measured_gain"]["gain"].is_number(), "{diagnosis:#}");
}

#[test]
fn needs_root_and_bpf_competitors_have_names() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let _rivals: Vec<Program> = (0..2 * cpus).map(|_| Program::spinner()).collect();
    let spins = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let has_rivals = |seen: &Value| !seen["figures"]["competitors"].as_array().unwrap().is_empty();
    let Some(diagnosis) = seen_enough(&place, &spins, has_rivals) else { return };
    let competitors = diagnosis["figures"]["competitors"].as_array().unwrap();
    // Others may use more of a busy machine, but not the program itself, which is a bash as well.
    assert!(competitors.iter().all(|it| it["cpus"].as_f64().unwrap() > 0.0 && it["pid"].is_u64()));
    let first = competitors[0]["name"].as_str().unwrap();
    let conditions = diagnosis["conditions"].as_array().unwrap();
    assert!(conditions[3]["finding"].as_str().unwrap().contains(first), "{diagnosis:#}");
}

#[test]
fn needs_root_and_bpf_disk_waits_are_seen() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    // Beside what was built: a directory for temporary files may be in memory, where nobody waits.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(file.path()).output().unwrap();
    let kind = String::from_utf8_lossy(&kind.stdout).trim().to_owned();
    if ["tmpfs", "ramfs"].contains(&kind.as_str()) {
        skipped(format!("{} is on a {kind}", file.path().display()));
        return;
    }
    // As long as it is watched: a fast disk is soon done with any number of blocks.
    let writes = r#"while dd if=/dev/zero of="$0" bs=4096 count=20000 oflag=dsync; do :; done"#;
    let command = ["bash", "-c", writes, file.path().to_str().unwrap()];
    let waits = |seen: &Value| {
        let device = &seen["figures"]["sleeps"]["device"];
        device["count"].as_u64() > Some(0) && device["ns"].as_u64() > Some(0)
    };
    let Some(diagnosis) = seen_enough(&place, &command, waits) else { return };
    is_whole(&diagnosis);
}

/// The site of a thread whose next instruction is the first of this function; none where no program
/// with it can be made.
fn said_of(function: &str, compiler: &str, flags: &[&str]) -> Option<Site> {
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["barrier.c", "barrier"].map(|name| directory.path().join(name));
    let text = format!(
        "#include <stdio.h>\nvoid {function}(void);\nint main(void) {{\n\
         printf(\"%p\\n\", (void *){function}); fflush(stdout); return getchar() == 0; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    let made =
        command.args(["-fPIE", "-pie", "-o"]).arg(&program).arg(&source).args(flags).output();
    if !made.as_ref().is_ok_and(|output| output.status.success()) {
        skipped(format!("{compiler} makes no program with {function}: {made:?}"));
        return None;
    }
    let mut waiting = Command::new(&program);
    waiting.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut waiting = waiting.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap();
    let site = Sites::with_names().of(Path::new("/proc"), waiting.id(), address, None, &[0; 128]);
    waiting.stdin.take().unwrap().write_all(b"\n").unwrap();
    waiting.wait().unwrap();
    Some(site)
}

/// A thread that waits in a runtime is said to be in its barrier.
fn is_shown(site: Option<Site>, barrier: &str) {
    match site {
        Some(Site::Wait(site)) => assert!(site.contains(barrier), "{site} is not {barrier}"),
        Some(Site::Work) => panic!("it works in {barrier}"),
        None => {}
    }
}

#[test]
fn address_in_libgomp_is_its_barrier_needs_gcc() {
    is_shown(said_of("GOMP_barrier", "gcc", &["-fopenmp"]), "GOMP_barrier of libgomp.so");
}

#[test]
fn address_in_libomp_is_its_barrier_needs_clang() {
    is_shown(said_of("__kmpc_barrier", "clang", &["-fopenmp"]), "__kmpc_barrier of libomp");
}

#[test]
fn address_in_mpi_is_its_barrier_needs_open_mpi() {
    // It has a second name, for profilers.
    is_shown(said_of("MPI_Barrier", "mpicc.openmpi", &[]), "MPI_Barrier of libmpi.so");
}

#[test]
fn what_is_not_there_cannot_be_watched() {
    let place = Place::new();
    let gone = doctor(&place, &["--pid", "2147483647"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).starts_with("gang doctor: "), "{}", stderr(&gone));
    let no_daemon = doctor(&place, &["7"]);
    assert_eq!(no_daemon.status.code(), Some(3), "{}", stderr(&no_daemon));
    assert_eq!(doctor(&place, &[]).status.code(), Some(2));
}
