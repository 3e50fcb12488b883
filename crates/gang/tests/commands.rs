//! Requests of the other commands to the daemon, and their output.

mod fake;

use std::{
    path::Path,
    process::{Child, Command},
};

use fake::{Fake, Place, gang_beside, job, stderr, stdout, write_script};
use gang_harness::wait_until;
use gang_protocol::v1;
use gang_view::fixture::{self, SPANNING};

#[test]
fn ls_is_a_table_and_json() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C"), job(12, "evil\u{1b}[2J")]);
    let place = fake.place();
    assert_eq!(
        stdout(&place.output(&["ls"])),
        "\
ID  NAME           OWNER  CLASS        STATE      CPUS  SHARE HAD  SHARE WANTED  COSCHEDULED  CPU TIME
 3  lu.C           root   interactive  suspended     2     49.8 %        50.0 %       99.3 %    24.5 s
12  evil\\u{1b}[2J  root   interactive  suspended     2     49.8 %        50.0 %       99.3 %    24.5 s
"
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&place.output(&["ls", "--json"]))).unwrap();
    assert_eq!(json["jobs"][0]["id"], 3);
    assert_eq!(json["jobs"][0]["in_slot_ns"], 12_340_000_000_i64);
    let measured = &json["jobs"][0]["measured"];
    assert_eq!(measured["coscheduled"], 0.993);
    assert_eq!(measured["skew_ns_p99"], 120_000);
    assert_eq!(measured["lost_ns"], 61_000_000);
    assert_eq!(measured["filled_ns"], 4_000_000);
    assert_eq!(json["jobs"][1]["name"], "evil\u{1b}[2J");

    assert_eq!(stdout(&Fake::new().place().output(&["ls"])), "no jobs\n");
}

#[test]
fn ls_shows_not_measured_and_no_slot_apart() {
    let mut no_slot = job(3, "new");
    no_slot.measured.as_mut().unwrap().coscheduled = None;
    let not_measured = Some("it takes CAP_BPF".to_owned());
    let not_measured = v1::Job { not_measured, measured: None, ..no_slot.clone() };
    let column = |job: v1::Job| {
        let shown = stdout(&Fake::with_jobs(vec![job]).place().output(&["ls"]));
        shown.lines().nth(1).unwrap().contains("50.0 %  not measured    24.5 s")
    };
    assert!(column(not_measured) && !column(no_slot));
}

/// A daemon of host `a` with a job of its own, and a part of the first of two spanning jobs.
fn in_a_cluster() -> Fake {
    let jobs = vec![job(3, "sp"), job(SPANNING, "lu")];
    Fake { cluster: Some(fixture::cluster()), ..Fake::with_jobs(jobs) }
}

#[test]
fn ls_lists_jobs_of_other_hosts_that_span_some() {
    let place = in_a_cluster().place();
    let shown = stdout(&place.output(&["ls"]));
    let rows: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split("  ").filter(|it| !it.is_empty()).collect()).collect();
    let cells = |row: usize| rows[row].iter().map(|cell| cell.trim()).collect::<Vec<_>>();
    assert_eq!(cells(0)[..7], ["ID", "NAME", "OWNER", "CLASS", "STATE", "CPUS", "HOSTS"]);
    assert_eq!(cells(1)[..7], ["3", "sp", "root", "interactive", "suspended", "2", "-"]);
    assert_eq!(cells(2)[..2], ["1000000000", "lu"]);
    assert_eq!(cells(2)[6], "a:2,b:2");
    assert_eq!(
        cells(3),
        [
            "1000000001",
            "evil\\u{1b}[2J",
            "ben",
            "batch",
            "has no entries",
            "-",
            "c:4,gone:1, not here",
            "-",
            "0.0 %",
            "-",
            "-"
        ]
    );
    assert_eq!(rows.len(), 4);
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&place.output(&["ls", "--json"]))).unwrap();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(json["spanning"][1]["cpus"][0]["host"], "c");

    let alone = Fake { cluster: Some(fixture::cluster()), ..Fake::new() }.place();
    assert_eq!(stdout(&alone.output(&["ls"])).lines().count(), 3);
}

#[test]
fn show_and_why_know_jobs_that_span_hosts() {
    let place = in_a_cluster().place();
    // A part of it is here, and it has the name once.
    let here = stdout(&place.output(&["show", "lu"]));
    assert!(here.starts_with("job 1000000000: lu\n  owner               root\n"), "{here}");
    assert!(here.contains("\n  rows of the frame   0-7 of 16 (50.0 %)\n"), "{here}");
    assert!(here.contains("\nb        2  0-1      -          away, lost\n"), "{here}");
    let elsewhere = stdout(&place.output(&["show", "1000000001"]));
    assert!(elsewhere.contains("  spans               2 hosts, none of them this one\n"));
    let json = |command: &[&str]| -> serde_json::Value {
        serde_json::from_str(&stdout(&place.output(command))).unwrap()
    };
    let shown = json(&["show", "--json", "lu"]);
    assert_eq!(
        (shown["details"]["id"].as_i64(), shown["hosts"][1]["name"].as_str()),
        (Some(SPANNING), Some("b"))
    );
    let shown = json(&["show", "--json", "1000000001"]);
    assert!(shown.get("details").is_none());
    assert_eq!(shown["spanning"]["registrar"], "c");

    let text = stdout(&place.output(&["why", "1000000001"]));
    assert!(text.contains("Its host c takes no part in slots of jobs that span hosts"), "{text}");
    let text = stdout(&place.output(&["why", "lu"]));
    assert!(text.contains("It has lost the host b"), "{text}");
    let verdict = json(&["why", "--json", "1000000001"]);
    assert!(verdict["figures"].is_null());
    assert_eq!(verdict["findings"][0]["kind"], "no_entries");
    let missing = place.output(&["show", "1000000002"]);
    assert!(stderr(&missing).contains("there is no job 1000000002"));
}

#[test]
fn show_takes_an_id_or_a_unique_name() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C"), job(4, "sp"), job(5, "sp")]);
    let place = fake.place();
    let shown = stdout(&place.output(&["show", "lu.C"]));
    let without_age: Vec<&str> =
        shown.lines().filter(|line| !line.contains("registered")).collect();
    assert_eq!(
        without_age.join("\n"),
        "\
job 3: lu.C
  owner               root
  class               interactive
  policy              gang
  state               suspended
  CPUs                2
  CPUs at least       1
  on CPUs             0-1
  weight              100 %
  share wanted        50.0 %
  share had           49.8 %
  coscheduled         99.3 %
  skew, p99           120 µs
  memory used         1.5 GiB
  memory promised     4.0 GiB
  memory limit        enforced
  slots               1234
  time in slot        12.3 s
  CPU time            24.5 s
  waited in slot      61 ms
  waited out of slot  11.9 s
  ran out of slot     4 ms
  gave way            40
  gave way for        80 ms
  processes           2
  threads             4
  cgroup              /gangd/3
  lost to             cc1\\u{1b} (77, other): 60 ms

CPU  IN SLOT   LOST  OUT OF SLOT
  3    6.2 s  61 ms         4 ms

PID  THREADS  COMMAND
100        2  ./lu.C -x
101        2  evil\\u{1b}[2J\\nname"
    );
    assert_eq!(stdout(&place.output(&["show", "3"])), shown);

    let ambiguous = place.output(&["show", "sp"]);
    assert_eq!(ambiguous.status.code(), Some(1));
    assert_eq!(stderr(&ambiguous), "gang: the name sp has more than one job, say which: 4, 5\n");
    let missing = place.output(&["show", "9"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(
        stderr(&missing),
        "gang: while looking at job 9: there is no job 9; `gang ls` lists them\n"
    );
}

#[test]
fn status_says_backend_guarantee_and_why_not_another() {
    let place = Fake::new().place();
    let text = stdout(&place.output(&["status"]));
    assert_eq!(
        text,
        format!(
            "\
gangd 0.1.0, pid 10, guardian 11, up 4 min 5 s
socket    {}
backend   rt, exclusive: nothing ordinary runs in the place of a gang
slice     10 ms, gap 500 µs in every 10 ms, filling on, gang share 100.0 %
machine   2 CPUs, 1 job, 0 threads runnable outside all jobs
shares    of users, then of each user's jobs by weight
classes   interactive 200 %, batch 100 %, in working hours
slots     batch up to 100 ms
memory    10.0 GiB of 16.0 GiB free, 2.0 GiB of it promised
disk      50.0 GiB of 100.0 GiB free, 0 B of it promised
measured  nothing of how gangs are coscheduled: it takes root, or CAP_BPF and CAP_PERFMON
switches  5000
plans     3 came late, 0 ran out

µs      p50   p99    max
late   12.3  45.6  789.0
lower  12.3  45.6  789.0
raise  12.3  45.6  789.0
skew   12.3  45.6  789.0

BACKEND  GUARANTEE  USABLE HERE
rt       exclusive  yes
weight   preferred  no: no cpu controller in cgroup v2
signal   paused     yes
",
            place.socket().display()
        )
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&place.output(&["status", "--json"]))).unwrap();
    assert_eq!(json["status"]["slice_ns"], 10_000_000);
    assert_eq!(json["status"]["switches"]["skew"]["p99_ns"], 45_600);
    assert!(json["status"]["express_weight"].is_null(), "it comes before all others");
    let mut fake = Fake::new();
    fake.status.express_weight = Some(900);
    let text = stdout(&fake.place().output(&["status"]));
    let line = "\nclasses   express 900 %, interactive 200 %, batch 100 %, in working hours\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn jobs_are_suspended_resumed_and_signalled() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    for line in
        [&["suspend", "3"][..], &["resume", "lu.C"], &["kill", "3"], &["kill", "3", "-s", "usr1"]]
    {
        let output = place.output(line);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{line:?}");
    }
    assert_eq!(
        fake.calls(),
        ["Suspend(3)", "ListJobs()", "GetCluster()", "Resume(3)", "Kill(3, 15)", "Kill(3, 10)"]
    );
}

#[test]
fn set_changes_a_job_in_one_request() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let all = "--class standby --policy none -n 1 --min 1 --weight 7 --mem 2G --disk 0";
    for line in ["set 3 --policy gang".to_owned(), format!("set 3 {all}")] {
        let line: Vec<&str> = line.split(' ').collect();
        assert_eq!(place.output(&line).status.code(), Some(0), "{line:?}");
    }
    let memory = 2u64 << 30;
    assert_eq!(
        fake.calls(),
        [
            "SetJob(3, policy gang)".to_owned(),
            format!(
                "SetJob(3, class standby, policy none, cpus 1, min_cpus 1, weight 7, \
                 mem_bytes {memory}, disk_bytes 0)"
            ),
        ]
    );
    let refused = place.output(&["set", "3", "--mem", "1T"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        stderr(&refused),
        "gang: while changing job 3: 1.0 TiB of memory are not there: 4.0 GiB are free, 1.0 GiB of \
         them are promised to other jobs, and the machine has 16.0 GiB\n"
    );
    assert_eq!(place.output(&["set", "3", "--class", "royal"]).status.code(), Some(2));
}

#[test]
fn words_that_are_no_commands_lead_to_those_that_are() {
    let place = Fake::new().place();
    for (word, instead) in [
        ("stop", "gang shutdown"),
        ("release", "gang recover"),
        ("class", "gang set JOB --class"),
        ("policy", "gang set JOB --policy"),
        ("resize", "gang set JOB --cpus"),
    ] {
        let output = place.output(&[word, "3"]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let said = stderr(&output);
        let begin = format!("gang: there is no command {word}; ");
        assert!(said.starts_with(&begin) && said.contains(instead), "{said}");
    }
    let unknown = stderr(&place.output(&["dance"]));
    assert!(unknown.contains("unrecognized subcommand 'dance'"), "{unknown}");
    let local = stderr(&place.output(&["set", "3", "--policy", "local"]));
    assert!(local.contains("[possible values: gang, none, auto]"), "{local}");
}

#[test]
fn a_named_socket_comes_before_the_environment() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let (place, elsewhere) = (fake.place(), Place::new());
    let socket = place.socket();
    let socket = socket.to_str().unwrap();
    for line in [&["--socket", socket, "ls"][..], &["ls", "--socket", socket]] {
        assert_eq!(elsewhere.output(line).status.code(), Some(0), "{line:?}");
    }
    assert_eq!(elsewhere.output(&["ls"]).status.code(), Some(3), "nobody listens there");
    // The program asks that daemon about its job.
    let line = ["run", "--socket", socket, "--", "sh", "-c", "echo $GANG_SOCKET"];
    assert_eq!(stdout(&elsewhere.output(&line)), format!("{socket}\n"));
    let lab = elsewhere.output(&["lab", "--socket", socket, "barrier"]);
    assert_eq!(lab.status.code(), Some(2));
    assert_eq!(elsewhere.output(&["--socket", socket, "run"]).status.code(), Some(125));
}

#[test]
fn history_is_a_table_and_json() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let output = place.output(&["history", "-n", "7", "--user", "root", "--since", "2h"]);
    let text = stdout(&output);
    assert!(text.starts_with("ID  NAME  OWNER  CLASS"), "{text}");
    assert!(text.contains("lu.C") && text.contains("1 min") && text.contains("24.5 s"), "{text}");
    assert_eq!(fake.calls(), ["GetHistory(Some(7), Some(0), since)"]);
    let json = stdout(&place.output(&["history", "--json"]));
    assert!(json.contains("\"ended_at_ns\": 1763700060000000000"), "{json}");
    for wrong in [&["history", "-n", "0"][..], &["history", "--since", "soon"]] {
        assert_eq!(place.output(wrong).status.code(), Some(2));
    }
    assert_eq!(place.output(&["history", "--user", "nosuchuser"]).status.code(), Some(1));
}

/// A program that sleeps and has its own name. The kernel sets the name after the parent goes on.
fn sleeper(program: &Path) -> Child {
    const NAME_BYTES: usize = 15;
    let name = program.file_name().unwrap().as_encoded_bytes();
    let child = Command::new(program).arg("600").spawn().unwrap();
    let comm = || std::fs::read(format!("/proc/{}/comm", child.id())).unwrap();
    let cut = &name[..name.len().min(NAME_BYTES)];
    wait_until("it has a name of its own", || comm().trim_ascii_end() == cut);
    child
}

#[test]
fn adopt_takes_process_with_a_name_cut_in_character() {
    let fake = Fake::new();
    let place = fake.place();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("программа");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut sleeper = sleeper(&program);
    let adopted = place.output(&["adopt", &sleeper.id().to_string(), "-n", "1"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(stdout(&adopted), "job 7: програм\u{fffd}, 3 processes\n", "{adopted:?}");
}

#[test]
fn adopt_takes_name_and_cpus_from_what_it_adopts() {
    let fake = Fake::new();
    let place = fake.place();
    let mut sleeper = sleeper(Path::new("/bin/sleep"));
    let pid = sleeper.id().to_string();
    let of_pid = place.output(&["adopt", &pid, "-n", "2", "--mem", "1G", "--signals"]);
    let of_cgroup = place.output(&["adopt", "--cgroup", "/user.slice/a.scope", "-n", "1"]);
    let missing = place.output(&["adopt", "--cgroup", "/missing"]);
    let foreign = place.output(&["adopt", "2147483647"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();

    assert_eq!(stdout(&of_pid), "job 7: sleep, 3 processes\n", "{of_pid:?}");
    assert_eq!(stdout(&of_cgroup), "job 7: a.scope, 3 processes\n");
    assert_eq!(fake.calls()[0], format!("Adopt(sleep, 2, 2, 100, Some({pid}), None)"));
    assert_eq!(fake.calls()[1], "Needs(Some(1073741824), None, Some(true))");
    assert_eq!(fake.calls()[2], "Adopt(a.scope, 1, 1, 100, None, Some(\"/user.slice/a.scope\"))");
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("there is no cgroup /missing"), "{missing:?}");
    assert_eq!(foreign.status.code(), Some(1));
    assert!(stderr(&foreign).contains("cannot adopt process 2147483647"), "{foreign:?}");
}

#[test]
fn adopt_takes_single_threads_all_or_none() {
    let fake = Fake::new();
    let place = fake.place();
    let mut sleeper = sleeper(Path::new("sleep"));
    let tid = sleeper.id().to_string();
    let gone = fake::NO_THREAD.to_string();
    // The sleeper may use as many.
    let most = rustix::thread::sched_getaffinity(None).unwrap().count().min(4);
    let two = place.output(&["adopt", "--thread", &tid, "17", &tid, "-n", "2", "--min", "1"]);
    let one = place.output(&["adopt", "--thread", &tid, "--weight", "7"]);
    let named = place.output(&["adopt", "--name", "server", "--thread", &tid]);
    let missing = place.output(&["adopt", "--thread", &tid, "17", &gone, "18"]);
    let first_missing = place.output(&["adopt", "--thread", &gone]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();

    assert_eq!(stdout(&two), "job 42: sleep, 2 single threads\n", "{two:?}");
    assert_eq!(stdout(&one), "job 42: sleep, 1 single thread\n", "{one:?}");
    assert_eq!(stdout(&named), "job 42: server, 1 single thread\n", "{named:?}");
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains(&format!("no thread {gone}")), "{missing:?}");
    assert_eq!(stdout(&missing), "");
    assert!(stderr(&first_missing).contains(&format!("cannot adopt thread {gone}")));
    let adds = |tid: &str| format!("AddThread(42, {tid})");
    let removes = |tid: &str| format!("RemoveThread(42, {tid})");
    let register = |job: &str| format!("Register({job})");
    assert_eq!(
        fake.calls(),
        [
            register("sleep, 2, 1, batch, gang, 100"),
            adds(&tid),
            adds("17"),
            register("sleep, 1, 1, batch, gang, 7"),
            adds(&tid),
            register("server, 1, 1, batch, gang, 100"),
            adds(&tid),
            register(&format!("sleep, {0}, {0}, batch, gang, 100", most)),
            adds(&tid),
            adds("17"),
            adds(&gone),
            removes(&tid),
            removes("17"),
        ]
    );
}

#[test]
fn check_ends_with_1_when_an_invariant_does_not_hold() {
    let place = Fake::new().place();
    let fine = place.output(&["check"]);
    assert_eq!(
        (fine.status.code(), stdout(&fine).as_str()),
        (Some(0), "6 invariants checked, all hold\n")
    );

    let violation = v1::Violation {
        id: "one_owner".into(),
        invariant: "one gang per CPU".into(),
        found: "CPU 1 is in jobs 3 and 4".into(),
    };
    let fake = Fake { violations: vec![violation], ..Fake::new() };
    let place = fake.place();
    let broken = place.output(&["check"]);
    assert_eq!(broken.status.code(), Some(1));
    assert_eq!(
        stdout(&broken),
        "6 invariants checked, 1 violation\none_owner: one gang per CPU: CPU 1 is in jobs 3 and 4\n"
    );
    assert_eq!(place.output(&["check", "--json"]).status.code(), Some(1));
}

#[test]
fn exit_codes_of_refusals_and_misuse_differ() {
    let place = (Fake { refuses: true, ..Fake::with_jobs(vec![job(3, "lu.C")]) }).place();
    let refused = place.output(&["suspend", "3"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(stderr(&refused), "gang: suspending job 3 is not permitted: it is root's\n");
    for misuse in [
        &["kill", "3", "-s", "NOPE"][..],
        &["adopt"],
        &["adopt", "-1"],
        &["nonsense"],
        &["show"],
        &[],
    ] {
        assert_eq!(place.output(misuse).status.code(), Some(2), "{misuse:?}");
    }
    for help in [&["--help"][..], &["run", "--help"], &["--version"]] {
        assert_eq!(place.output(help).status.code(), Some(0), "{help:?}");
    }
}

#[test]
fn a_bound_that_is_no_time_is_refused() {
    let place = Fake::with_jobs(vec![job(3, "lu.C")]).place();
    for (args, code) in [(&["ls"][..], 2), (&["run", "true"], 125)] {
        let refused = place.gang(args).env("GANG_TIMEOUT", "soon").output().unwrap();
        assert_eq!(refused.status.code(), Some(code), "{args:?}");
        assert_eq!(
            stderr(&refused),
            "gang: GANG_TIMEOUT is 'soon', and takes seconds, more than 0\n"
        );
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_listing_quietly() {
    let jobs = (1..2000).map(|id| job(id, "lu.C")).collect();
    let place = Fake::with_jobs(jobs).place();
    let line = format!("'{}' ls | head -n 1", env!("CARGO_BIN_EXE_gang"));
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &line]).env("GANG_SOCKET", place.socket()).output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(stdout(&output).lines().count(), 1);
}

#[test]
fn lab_is_the_program_beside_gang() {
    let place = Place::new();
    let mut gang = gang_beside(&place, "", &["lab", "barrier", "--json", "-n", "2", "--help"]);
    let lab = place.path("bin/gang-lab");
    write_script(&lab, "#!/bin/sh\necho \"$*\"; exit 9\n");
    let output = gang.output().unwrap();
    assert_eq!(stdout(&output), "barrier --json -n 2 --help\n");
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn top_prints_one_picture_to_a_pipe_else_needs_a_tty() {
    let place = Fake::with_jobs(vec![job(3, "lu.C"), job(12, "evil\u{1b}[2J")]).place();
    let once = place.output(&["top", "--once"]);
    let text = stdout(&once);
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
    assert!(text.starts_with("gangd 0.1.0 on ") && !text.contains('\u{1b}'), "{text}");
    let line = text.lines().find(|line| line.contains("lu.C")).unwrap();
    for word in ["A", "3", "root", "interactive", "suspended", "50.0", "49.8", "99.3", "120"] {
        assert!(line.split_whitespace().any(|found| found.starts_with(word)), "{word}: {line}");
    }
    assert!(text.contains("evil\\u{1b}[2J"), "{text}");
    let refused = place.output(&["top"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("gang top --once prints one picture"));
    assert_eq!(Place::new().output(&["top", "--once"]).status.code(), Some(3));
}

#[test]
fn needs_root_trace_asks_for_processes_only_twice() {
    let fake = Fake::with_jobs(vec![job(3, "lu.C")]);
    let place = fake.place();
    let mut gang = place.gang(&["trace", "--seconds", "1", "--out", "t.json"]);
    let output = gang.current_dir(place.directory.path()).output().unwrap();
    if stderr(&output).contains("cannot find") || stderr(&output).contains("cannot record") {
        gang_harness::skipped(stderr(&output).trim_end());
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let calls = fake.calls();
    let count = |call: &str| calls.iter().filter(|made| *made == call).count();
    // When it is seen first, and at the end.
    assert!((1..=2).contains(&count("ShowJob(3)")), "{calls:?}");
    assert!(count("ListJobs()") >= count("ShowJob(3)"), "{calls:?}");
}

#[test]
fn why_is_a_paragraph_and_json() {
    let mut noisy = job(3, "lu.C");
    noisy.state = v1::JobState::waiting;
    noisy.measured.as_mut().unwrap().lost_ns = 5_000_000_000;
    let place = Fake::with_jobs(vec![noisy, job(4, "sp")]).place();
    let text = stdout(&place.output(&["why", "lu.C"]));
    assert!(text.starts_with("Job 3 (lu.C): In its slots it waited for 20.3 %"), "{text}");
    assert!(text.contains("cc1\\u{1b} (77, other) 1 %"), "{text}");
    assert_eq!(text.lines().count(), 1);
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&place.output(&["why", "3", "--json"]))).unwrap();
    assert_eq!(json["findings"][0]["kind"], "lost");
    assert_eq!(json["findings"][0]["grade"], "bad");
    assert_eq!(json["figures"]["coscheduled"], 0.993);
    let asleep = stdout(&place.output(&["why", "4"]));
    assert!(asleep.contains("suspended") && asleep.contains("gang resume 4"), "{asleep}");
    assert_eq!(place.output(&["why", "9"]).status.code(), Some(1));
}

#[test]
fn snapshot_is_text_json_or_a_file() {
    let place = Fake::with_jobs(vec![job(3, "lu.C"), job(4, "sp")]).place();
    let text = stdout(&place.output(&["snapshot", "lu.C"]));
    let first = "job 3: deadlocked since 1970-01-01 00:00:01 UTC: processes wait for messages";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("4 flushes, 1 failed; on average 20"), "{text}");
    let file = place.path("channels.json");
    let name = file.to_str().unwrap();
    let said = stdout(&place.output(&["snapshot", "3", "--out", name, "--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(said["state"] == "deadlocked" && said["contents"].is_null(), "{said}");
    let written = std::fs::read_to_string(&file).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["contents"][0]["bytes"], "00ff");
    assert_eq!(written["contents"][0]["sequence"], 7);
    // A program that goes on leaves the file as it was.
    let output = place.output(&["snapshot", "sp", "--out", name]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("messages went"), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&file).unwrap().contains("00ff"));
    assert_eq!(place.output(&["snapshot", "cg"]).status.code(), Some(1));
}

#[test]
fn metrics_go_to_standard_output_or_replace_a_file() {
    let place = Fake::with_jobs(vec![job(3, "lu.C")]).place();
    let text = stdout(&place.output(&["metrics"]));
    assert!(text.contains("gangd_up 1.0\n") && text.ends_with("# EOF\n"), "{text}");
    let file = place.path("gangd.prom");
    let path = file.to_str().unwrap();
    assert_eq!(place.output(&["metrics", "--textfile", path]).status.code(), Some(0));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        written.contains("gangd_job_slots_total{id=\"3\",name=\"lu.C\",owner=\"root\"} 1234.0")
    );
    // Without a daemon the file says so, and so does the command.
    let nobody = Place::new();
    let gone = nobody.output(&["metrics", "--textfile", path]);
    assert_eq!(gone.status.code(), Some(3));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.ends_with("gangd_up 0.0\n"), "{written}");
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 2);
    let nowhere = place.output(&["metrics", "--textfile", "/nowhere/gangd.prom"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("cannot write the metrics to /nowhere/gangd.prom: No such"));
}
