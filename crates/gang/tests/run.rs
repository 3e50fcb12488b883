//! `gang run`: the program is as if it had been started alone.

mod fake;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use fake::{Fake, Place, stderr, stdout, write_script};

/// A daemon of each kind: gang becomes the program, or stays as its parent.
fn places() -> [Place; 2] {
    [Fake::new(), Fake::of_signals()].map(|fake| fake.place())
}

#[test]
fn the_exit_code_is_the_programs() {
    for place in places() {
        for code in [0, 1, 7, 255] {
            let output = place.output(&["run", "-q", "--", "sh", "-c", &format!("exit {code}")]);
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            assert_eq!(stderr(&output), "");
        }
    }
}

#[test]
fn caller_sees_the_signal_that_ended_the_program() {
    for place in places() {
        for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15] {
            let output =
                place.output(&["run", "-q", "--", "sh", "-c", &format!("kill -{signal} $$")]);
            assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
        }
    }
}

#[test]
fn the_program_has_the_pid_that_was_added() {
    let fake = Fake::new();
    let place = fake.place();
    let child = place
        .gang(&["run", "-n", "2", "--min", "1", "--", "sh", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output), format!("{pid}\n"));
    assert_eq!(
        fake.calls(),
        [
            "GetStatus()".to_owned(),
            "Register(sh, 2, 1, batch, gang, 100)".to_owned(),
            "AddCaller(42)".to_owned(),
        ]
    );
}

#[test]
fn options_reach_the_daemon() {
    let fake = Fake::new();
    let place = fake.place();
    let line = "run -n 4 --class standby --policy none --weight 7 --name x -- true";
    assert!(place.output(&line.split(' ').collect::<Vec<_>>()).status.success());
    assert_eq!(fake.calls()[1], "Register(x, 4, 4, standby, none, 7)");
    let line = "run -n 4 --mem 1G --disk 2M --signals -- true";
    assert!(place.output(&line.split(' ').collect::<Vec<_>>()).status.success());
    let needs = "Needs(Some(1073741824), Some(2097152), Some(false), Some(true))";
    assert!(fake.calls().contains(&needs.to_owned()));
}

#[test]
fn nice_value_of_the_caller_is_the_weight_of_the_job() {
    let fake = Fake::new();
    let place = fake.place();
    for (options, expected) in [
        (&[][..], "Register(true, 1, 1, batch, gang, 1)"),
        (&["--weight", "50"], "Register(true, 1, 1, batch, gang, 50)"),
    ] {
        let gang = place.gang(&[&["run", "-n", "1"], options, &["--", "true"]].concat());
        let mut outer = Command::new("nice");
        outer.args(["-n", "19"]).arg(gang.get_program()).args(gang.get_args());
        assert!(outer.env("GANG_SOCKET", place.socket()).status().unwrap().success());
        assert!(fake.calls().contains(&expected.to_owned()), "{:?}", fake.calls());
    }
}

#[test]
fn variables_stand_for_options() {
    let fake = Fake::new();
    let place = fake.place();
    for (signals, expected) in [("1", "Some(true)"), ("0", "Some(false)")] {
        let mut gang = place.gang(&["run", "true"]);
        for (name, value) in [
            ("CPUS", "3"),
            ("MIN_CPUS", "2"),
            ("CLASS", "standby"),
            ("WEIGHT", "7"),
            ("NAME", signals),
            ("MEM", "1G"),
            ("DISK", "2M"),
            ("SIGNALS", signals),
        ] {
            gang.env(format!("GANG_{name}"), value);
        }
        assert!(gang.output().unwrap().status.success());
        let calls = fake.calls();
        let register = format!("Register({signals}, 3, 2, standby, gang, 7)");
        assert!(calls.contains(&register), "{calls:?}");
        let needs = format!("Needs(Some(1073741824), Some(2097152), Some(false), {expected})");
        assert!(calls.contains(&needs), "{calls:?}");
    }
}

#[test]
fn input_and_output_are_the_programs() {
    for place in places() {
        let mut gang = place.gang(&["run", "-q", "cat"]);
        let mut child = gang.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"through\0and through").unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"through\0and through");
    }
}

#[test]
fn a_stream_that_the_program_closes_is_closed() {
    for place in places() {
        let script = "exec >&-; read line; exit 4";
        let mut gang = place.gang(&["run", "-q", "--", "sh", "-c", script]);
        let mut child = gang.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        child.stdin.take().unwrap().write_all(b"so it went on\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4));
    }
}

#[test]
fn environment_fits_gang_unless_user_set_it() {
    for place in places() {
        let script = "echo $OMP_NUM_THREADS $RAYON_NUM_THREADS $GANG_JOB; env | grep -c ^GANG_JOB=";
        let mut gang = place.gang(&["run", "-n", "3", "--env", "--", "sh", "-c", script]);
        gang.env("RAYON_NUM_THREADS", "9").env("GANG_JOB", "of an outer gang run");
        assert_eq!(stdout(&gang.output().unwrap()), "3 9 42\n1\n");
    }
}

#[test]
fn signals_are_blocked_and_ignored_as_before() {
    for place in places() {
        let gang =
            place.gang(&["run", "-q", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
        let mut outer = Command::new("env");
        outer
            .args(["--block-signal=USR1", "--ignore-signal=HUP,CHLD"])
            .arg(gang.get_program())
            .args(gang.get_args());
        outer.env("GANG_SOCKET", place.socket());
        let output = outer.output().unwrap();
        let mask = |name: &str| {
            let text = stdout(&output);
            let line = text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk"), 1 << (10 - 1), "SIGUSR1 stays blocked");
        assert_ne!(mask("SigIgn") & 1, 0, "SIGHUP stays ignored");
        assert_ne!(mask("SigIgn") & (1 << (17 - 1)), 0, "SIGCHLD stays ignored");
        assert_eq!(mask("SigIgn") & (1 << (13 - 1)), 0, "SIGPIPE is not ignored");
    }
}

#[test]
fn sigpipe_is_ignored_where_the_caller_ignores_it() {
    for place in places() {
        let gang = place.gang(&["run", "-q", "--", "grep", "^SigIgn", "/proc/self/status"]);
        let mut outer = Command::new("env");
        outer.arg("--ignore-signal=PIPE").arg(gang.get_program()).args(gang.get_args());
        let output = outer.env("GANG_SOCKET", place.socket()).output().unwrap();
        let mask = stdout(&output).trim_end().replace("SigIgn:\t", "");
        let mask = u64::from_str_radix(&mask, 16).unwrap();
        assert_ne!(mask & (1 << (13 - 1)), 0, "SIGPIPE stays ignored");
    }
}

#[test]
fn variables_are_set_where_a_gang_has_fewer_cpus() {
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    for (options, expected) in [(&["-n", &cpus][..], ""), (&["-n", &cpus, "--env"], &cpus)] {
        let place = Fake::new().place();
        let line = [&["run"], options, &["--", "sh", "-c", "echo $OMP_NUM_THREADS"]].concat();
        let output = place.gang(&line).env_remove("OMP_NUM_THREADS").output().unwrap();
        assert_eq!(stdout(&output), format!("{expected}\n"), "{line:?}");
    }
}

#[test]
fn program_inherits_no_connection_and_no_children() {
    for place in places() {
        let script = "ls -l /proc/$$/fd | grep -c -e socket -e signalfd; \
            cat /proc/$$/task/$$/children | wc -w";
        // The shell's own two children of the second pipe are the only ones that may be there.
        let output = place.output(&["run", "-q", "--", "sh", "-c", script]);
        let lines = stdout(&output);
        assert_eq!(lines.lines().next(), Some("0"), "{lines}");
        let children: u32 = lines.lines().nth(1).unwrap().trim().parse().unwrap();
        assert!(children <= 2, "{lines}");
    }
}

#[test]
fn missing_or_unexecutable_program_leaves_no_job() {
    let fake = Fake::new();
    let place = fake.place();
    let plain = place.path("plain");
    std::fs::write(&plain, "text").unwrap();
    for (command, code, reason) in [
        ("no-such-program-here", 127, "there is no such program"),
        ("./no/such/program", 127, "there is no such program"),
        (plain.to_str().unwrap(), 126, "permission denied"),
        ("/", 126, "it is a directory"),
    ] {
        // A directory on it that this user may not read would be another reason.
        let output =
            place.gang(&["run", "--", command]).env("PATH", "/usr/bin:/bin").output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert_eq!(stderr(&output), format!("gang: cannot execute {command}: {reason}\n"));
    }
    assert_eq!(fake.calls(), [""; 0]);
}

#[test]
fn a_missing_interpreter_is_named() {
    for place in places() {
        let script = place.path("script");
        write_script(&script, "#!/no/such/interpreter\n");
        let output = place.output(&["run", "-q", "--", script.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(127));
        let expected = format!(
            "cannot execute {}: its interpreter /no/such/interpreter is missing\n",
            script.display()
        );
        assert_eq!(stderr(&output), "gang: ".to_owned() + &expected);
    }
}

#[test]
fn failures_of_gang_itself_end_with_125() {
    let fake = Fake { refuses: true, ..Fake::new() };
    let place = fake.place();
    let refused = place.output(&["run", "--class", "express", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert_eq!(
        stderr(&refused),
        "gang: putting a job into express is not permitted: \
         you are no administrator\n"
    );
    for bad in [
        &["run", "-n", "0", "--", "true"][..],
        &["run", "-n", "10000", "--", "true"],
        &["run", "--weight", "x", "--", "true"],
        &["run", "--class", "royal", "--", "true"],
        &["run", "-n", "2", "--min", "3", "--", "true"],
        &["run", "--name", "a\nb", "--", "true"],
        &["run", "--backend", "freeze", "--", "true"],
        &["run"],
    ] {
        let output = place.output(bad);
        assert_eq!(output.status.code(), Some(125), "{bad:?}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty());
    }
}

#[test]
fn net_chooses_the_provider_for_the_program() {
    let fake = Fake::new();
    let mut place = fake.place();
    // A directory of its own, in which this test says whether the library is.
    place.copy_programs(&["gang"]);
    place.programs = place.directory.path().to_owned();
    let print = "echo $FI_PROVIDER_PATH $FI_PROVIDER $OMPI_MCA_mtl";
    let run = |options: &[&str]| {
        let arguments = [&["run", "-q"], options, &["--", "sh", "-c", print]].concat();
        let mut gang = place.gang(&arguments);
        gang.env("FI_PROVIDER_PATH", "/a:/b").env("FI_PROVIDER", "own").output().unwrap()
    };
    let missing = run(&["--net"]);
    assert_eq!(missing.status.code(), Some(125));
    let directory = place.directory.path().canonicalize().unwrap();
    let expected = format!("gang: --net: there is no libgang-fi.so in {}; ", directory.display());
    assert!(stderr(&missing).starts_with(&expected), "{}", stderr(&missing));
    assert_eq!(fake.calls(), [""; 0]);

    std::fs::write(place.path("libgang-fi.so"), "").unwrap();
    let expected = format!("{}:/a:/b own ofi\n", directory.display());
    assert_eq!(stdout(&run(&["--net"])), expected);
    assert_eq!(stdout(&run(&[])), "/a:/b own\n");
}

#[test]
fn wait_for_memory_is_announced_refusal_has_numbers() {
    let fake = Fake::new();
    let place = fake.place();
    let waits = place.output(&["run", "--mem", "8G", "--disk", "1k", "--wait", "--", "true"]);
    assert_eq!(waits.status.code(), Some(0));
    assert_eq!(stderr(&waits), "gang: waiting for 8.0 GiB of memory, 3.0 GiB are to be had now\n");
    let needs = format!("Needs(Some({}), Some(1024), Some(true), Some(false))", 8u64 << 30);
    assert!(fake.calls().contains(&needs), "{:?}", fake.calls());
    let quiet = place.output(&["run", "-q", "--mem", "8G", "--wait", "--", "true"]);
    assert_eq!((quiet.status.code(), stderr(&quiet).as_str()), (Some(0), ""));
    let numbers = "8.0 GiB of memory are not there: 4.0 GiB are free, 1.0 GiB of them are promised";
    let refused = place.output(&["run", "--mem", "8G", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains(numbers), "{refused:?}");
    // The machine never has that much: nobody waits for it.
    let never = place.output(&["run", "--mem", "1T", "--wait", "--", "true"]);
    assert_eq!(never.status.code(), Some(125));
    assert!(stderr(&never).contains("1.0 TiB of memory are not there"), "{never:?}");
    let typo = place.output(&["run", "--mem", "lots", "--", "true"]);
    assert_eq!(typo.status.code(), Some(125));
    assert!(stderr(&typo).contains("\"lots\" is not a size such as 512M or 4G"), "{typo:?}");
}

#[test]
fn missing_privilege_is_said_in_one_line() {
    let place = Fake::of_signals().place();
    let output = place.output(&["run", "--", "true"]);
    assert_eq!(
        stderr(&output),
        "gang: gangs take turns by SIGSTOP and SIGCONT, because rt cannot be used: \
         this user has no CAP_SYS_NICE\n"
    );
    assert_eq!(stderr(&place.output(&["run", "-q", "--", "true"])), "");
}
