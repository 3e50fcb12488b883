//! `gang run` before a daemon, as what it stands for: a program that was started without it.

mod place;

use std::process::Output;

use gang_daemon::{are_built, stderr, stdout};
use place::{Place, Program, has_backend, job_with, wait_until, with_each_backend};

/// The output of a shell line that has `gang run` as `$gang`.
fn shell(place: &Place, script: &str) -> Output {
    let gang = place.gang(&[]);
    place.command("sh").arg("-c").arg(script).env("gang", gang.get_program()).output().unwrap()
}

#[test]
fn needs_root_gang_run_within_a_job_runs_in_that_job() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_backend(&[], |place| {
        // Variables do not come along everywhere, as below sudo.
        for (outer, without) in [(1, ""), (2, "env -u GANG_JOB ")] {
            let inner = format!(
                "exec {without}\"$gang\" run -n 1 -- \
                 sh -c 'echo inner $GANG_JOB; \"$gang\" ls --json'"
            );
            let output = shell(
                &place,
                &format!("\"$gang\" run -q -n 2 -- sh -c '{}'", inner.replace('\'', "'\\''")),
            );
            let text = stdout(&output);
            assert!(output.status.success(), "{}", stderr(&output));
            let (first, listed) = text.split_once('\n').unwrap();
            assert_eq!(first, if outer == 1 { "inner 1" } else { "inner" });
            let listed: serde_json::Value = serde_json::from_str(listed).unwrap();
            let jobs = listed["jobs"].as_array().unwrap();
            // The inner one has registered a job, which is gone soon.
            let jobs = jobs.iter().filter(|job| job["processes"] != 0);
            assert_eq!(jobs.map(|job| &job["id"]).collect::<Vec<_>>(), [outer], "{text}");
            let expected =
                format!("gang: the program runs in job {outer}, in which gang run was called\n");
            assert!(stderr(&output).ends_with(&expected), "{}", stderr(&output));
        }
    });
}

#[test]
fn needs_root_streams_closed_by_caller_stay_closed() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_backend(&[], |place| {
        for (line, code) in [
            ("\"$gang\" run -q -- sh -c 'test ! -e /proc/$$/fd/0' <&-", 0),
            ("\"$gang\" run -q -- sh -c 'test ! -e /proc/$$/fd/1 && test -e /proc/$$/fd/0' >&-", 0),
            ("\"$gang\" run -q -- sh -c 'test ! -e /proc/$$/fd/2' 2>&-", 0),
            // Output that cannot be written is an error, as without gang run.
            ("\"$gang\" run -q -- sh -c 'echo lost' >&-", 1),
        ] {
            let output = shell(&place, line);
            assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        }
    });
}

#[test]
fn needs_root_bursts_of_starts_wait_for_their_turn() {
    if !are_built(&["gang"]) || !has_backend("rt") {
        return;
    }
    let place = Place::configured("[limits]\nclients = 2\n", &["--backend", "rt"]);
    let output = shell(&place, "seq 40 | xargs -P 20 -I{} \"$gang\" run -q -n 1 -- echo ran");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), 40);
}

#[test]
fn needs_root_daemon_of_run_adopts_jobs_of_dead_one() {
    if !are_built(&["gang"]) || !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let programs = [Program::spinner(), Program::spinner()];
    let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
    place.kill();
    let output = place.output(&["run", "-q", "-n", "1", "--", "true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    for job in jobs {
        let before = place.job(job).expect("it was taken over").slots;
        wait_until("slots", || place.job(job).unwrap().slots > before + 3);
    }
    drop(programs);
    wait_until("the daemon has ended", || place.jobs().is_empty());
}

#[test]
fn needs_root_limit_of_real_time_kills_no_gang() {
    if !are_built(&["gang"]) || !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let other = Program::spinner();
    job_with(&place, &other, 2);
    let works = "bash -c 'while ((SECONDS < 3)); do :; done; echo ended'";
    let limit = "prlimit --rttime=200000:200000";
    for line in [
        format!("{limit} \"$gang\" run -q -n 2 -- {works}"),
        format!("\"$gang\" run -q -n 2 -- {limit} {works}"),
        // A child inherits it.
        format!("\"$gang\" run -q -n 2 -- {limit} sh -c \"{}; exit\"", works.replace('$', "\\$")),
    ] {
        let output = shell(&place, &line);
        assert_eq!(stdout(&output), "ended\n", "{line}: {:?} {}", output.status, stderr(&output));
    }
}
