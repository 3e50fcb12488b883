//! The library as C sees it: examples and misuse, compiled by the system's compilers, against a
//! daemon.

mod place;
mod rows;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use gang_daemon::is_root;
use gang_harness::{skipped, wait_until};
use gang_protocol::v1;
use place::{Place, here};

const SHARED: [&str; 1] = ["-lgang"];

#[test]
fn misuse_has_its_documented_results_in_c_and_in_cpp() {
    let Some(place) = Place::new() else { return };
    let source = here().join("tests/abuse.c");
    place.run(place.compile("cc", &source, &SHARED, "abuse-c"));
    // Each counts the jobs that there are.
    let mut client = place.client();
    wait_until("its jobs have ended", || client.list_jobs().unwrap().jobs.is_empty());
    let cpp = place.path("abuse.cc");
    fs::copy(&source, &cpp).unwrap();
    place.run(place.compile("c++", &cpp, &SHARED, "abuse-cc"));
}

#[test]
fn needs_root_foreign_jobs_are_refused_unchanged() {
    if !is_root() {
        return;
    }
    let Some(place) = Place::new() else { return };
    place.open_to_everybody(0o755);
    let program = place.compile("cc", &here().join("tests/user.c"), &SHARED, "user");
    let seen = rows::of(&place.run(program));
    let needed = rows::needed(|what| if what.is_ours() { &["anothers"] } else { &[] });
    assert_eq!(rows::missing(&needed, &seen), [""; 0], "what is done to others' jobs");
}

#[test]
fn wrong_arguments_have_documented_results() {
    let Some(place) = Place::new() else { return };
    let tests = here().join("tests");
    let source = place.path("arguments.cc");
    fs::copy(tests.join("arguments.c"), &source).unwrap();
    let in_c = place.compile("cc", &tests.join("arguments.c"), &SHARED, "arguments-c");
    let in_cpp = place.compile("c++", &source, &SHARED, "arguments-cc");
    for program in [in_c, in_cpp] {
        let seen = rows::of(&place.run(program));
        let needed = rows::needed(rows::Parameter::kinds);
        assert_eq!(rows::missing(&needed, &seen), [""; 0]);
        assert_eq!(rows::undocumented(&seen), [""; 0], "the headers do not name these results");
    }
}

#[test]
fn a_program_makes_itself_a_gang_and_sees_its_slots() {
    let Some(place) = Place::new() else { return };
    let output =
        place.run(place.compile("cc", &here().join("examples/gang.c"), &SHARED, "example"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("1 processes") && said.ends_with("3 slots seen\n"), "{said}");
}

#[test]
fn threads_of_a_gang_meet_by_its_slot_page() {
    let Some(place) = Place::new() else { return };
    let source = here().join("examples/barrier.c");
    let output = place.run(place.compile("cc", &source, &["-lgang", "-lpthread"], "barrier"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "2 threads met 4000 times, 0 sums were wrong\n");
}

#[test]
fn llnl_program_runs_as_c_and_cpp() {
    let Some(place) = Place::new() else { return };
    let (source, cpp) = (here().join("examples/llnl.c"), place.path("llnl.cc"));
    fs::copy(&source, &cpp).unwrap();
    let archive = place.path("libgang.a");
    let archive = [archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    let shared = &SHARED[..];
    for (compiler, source, flags, name) in [
        ("cc", &source, shared, "shared"),
        ("cc", &source, &archive, "static"),
        ("c++", &cpp, shared, "of-cpp"),
    ] {
        let output = place.run(place.compile(compiler, source, flags, name));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("3 processes") && said.contains("load "), "{said}");
    }
}

/// Standards of C and C++.
const STANDARDS: [(&str, &str); 14] = [
    ("cc", "c89"),
    ("cc", "gnu89"),
    ("cc", "iso9899:199409"),
    ("cc", "c99"),
    ("cc", "gnu99"),
    ("cc", "c11"),
    ("cc", "c17"),
    ("cc", "gnu17"),
    ("c++", "c++98"),
    ("c++", "gnu++98"),
    ("c++", "c++11"),
    ("c++", "c++14"),
    ("c++", "c++17"),
    ("c++", "c++20"),
];

/// Compiles sources of the tests to the letter of a standard.
fn compile_by(
    place: &Place,
    (compiler, standard): (&str, &str),
    names: &[&str],
    flags: &[&str],
) -> PathBuf {
    let extension = if compiler == "c++" { "cc" } else { "c" };
    let copy = |name: &&str| {
        let source = place.path(&format!("{name}.{extension}"));
        fs::copy(here().join(format!("tests/{name}.c")), &source).unwrap();
        source.to_str().unwrap().to_owned()
    };
    let sources: Vec<String> = names.iter().map(copy).collect();
    let standard_flag = format!("-std={standard}");
    let mut all = vec![standard_flag.as_str(), "-pedantic"];
    all.extend(sources[1..].iter().map(String::as_str).chain(flags.iter().copied()).chain(SHARED));
    let name = format!("{}-{standard}", names[0]);
    place.compile(compiler, Path::new(&sources[0]), &all, &name)
}

#[test]
fn program_of_llnl_paper_runs_as_it_stands() {
    let Some(place) = Place::new() else { return };
    let paper = fs::read_to_string(here().join("tests/paper.c")).unwrap();
    assert_eq!(paper.matches("#include").count(), 1, "one header brings all that it uses");
    let supplied = here().join("tests/supplied.h");
    let supplied = ["-include", supplied.to_str().unwrap()];
    for by in STANDARDS {
        // A function without a type is one of int, in C until 1999.
        let of_main = match by.1 {
            "c89" | "gnu89" | "iso9899:199409" => &["-Wno-implicit-int", "-Wno-return-type"][..],
            _ => &["-DTYPE_OF_MAIN=int"],
        };
        let flags = [&supplied[..], of_main].concat();
        let program = compile_by(&place, by, &["paper", "parallel"], &flags);
        place.is_the_job_of_the_paper(&program);
    }
}

#[test]
fn llnl_interface_takes_styles_of_its_time() {
    let Some(place) = Place::new() else { return };
    for by in STANDARDS {
        let output = place.run(compile_by(&place, by, &["styles"], &[]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{by:?}");
    }
}

#[test]
fn llnl_ids_serve_parents_and_children_at_once() {
    let Some(place) = Place::new() else { return };
    for by in [("cc", "gnu89"), ("c++", "c++98")] {
        let output = place.run(compile_by(&place, by, &["forked"], &[]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "8 rounds\n", "{by:?}");
    }
}

#[test]
fn calls_survive_signals_and_forks() {
    let Some(place) = Place::new() else { return };
    let source = here().join("tests/signals.c");
    place.run(place.compile("cc", &source, &["-lgang", "-lpthread"], "signals"));
}

#[test]
fn llnl_job_changes_wholly_or_not_at_all() {
    let Some(place) = Place::new() else { return };
    let (mib, gib) = (1 << 20, 1 << 30);
    // LLNL's unit of disk is the GiB, and there is less on some machines.
    if place.client().status().unwrap().status.disk.free < 2 * gib {
        return skipped("needs 2 GiB of free disk, of which a job is promised one");
    }
    let program = place.compile("cc", &here().join("tests/changed.c"), &SHARED, "changed");
    let mut child =
        place.bounded(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut client = place.client();
    use v1::Class::{batch, interactive, standby};
    for (step, class, cpus, mem_bytes, disk_bytes) in [
        ("registered", interactive, 2, 16 * mib, None),
        ("too much", interactive, 2, 16 * mib, None),
        ("by its id", standby, 1, 32 * mib, None),
        ("its resources", standby, 3, 32 * mib, Some(gib)),
        ("its class", batch, 3, 32 * mib, Some(gib)),
    ] {
        assert_eq!(said.next().expect("it ended").unwrap(), step);
        let [job] = &client.list_jobs().unwrap().jobs[..] else { panic!("{step}") };
        let now = (job.class.clone(), job.cpus, job.promised_memory(), job.disk_bytes);
        assert_eq!(now, (class, cpus, Some(mem_bytes), disk_bytes), "{step}");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
}

/// Calls that ask nobody, and so do not mind who is there.
const ASK_NOBODY: [&str; 15] = [
    "gang_result_text",
    "gang_error",
    "gang_spec_init",
    "gang_span_init",
    "gang_change_init",
    "gang_close",
    "gang_id",
    "gang_page_close",
    "gang_barrier_init",
    "gang_barrier_wait",
    "gang_barrier_destroy",
    "gang_mutex_init",
    "gang_mutex_lock",
    "gang_mutex_unlock",
    "gang_mutex_destroy",
];

/// Another program in the place of the daemon.
#[derive(Clone, Copy)]
enum Instead {
    Nobody,
    /// It takes connections, and closes them.
    HangsUp,
    /// It answers everything so.
    Says(&'static str),
}

impl Instead {
    fn listen(self, socket: &Path) {
        let says = match self {
            Instead::Nobody => return,
            Instead::HangsUp => None,
            Instead::Says(text) => Some(text),
        };
        // Not there any more, where the daemon has tidied up.
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(says) = says else { continue };
                thread::spawn(move || {
                    let (mut requests, mut answers) = (BufReader::new(&stream), &stream);
                    while requests.read_until(0, &mut Vec::new()).is_ok_and(|length| length > 0) {
                        if answers.write_all(says.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn missing_daemon_gives_each_call_its_result() {
    const UNKNOWN: &str = "{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":\
        {\"method\":\"org.gangd.v1.Any\"}}\0";
    const FAILED: &str = "{\"error\":\"org.gangd.v1.Failed\",\"parameters\":\
        {\"operation\":\"do that\",\"reason\":\"it is broken\"}}\0";
    const FULL: &str = "{\"error\":\"org.gangd.v1.LimitReached\",\"parameters\":\
        {\"limit\":\"clients\",\"maximum\":1}}\0";
    for (instead, modern, llnl) in [
        (Instead::Nobody, ("GANG_NO_DAEMON", "2"), ("gsNoDaemon", "2")),
        (Instead::HangsUp, ("GANG_NO_ANSWER", "8"), ("gsNoAnswer", "8")),
        (Instead::Says(UNKNOWN), ("GANG_UNSUPPORTED", "10"), ("gsUnsupported", "10")),
        (Instead::Says(FAILED), ("GANG_FAILED", "9"), ("gsFailed", "9")),
        (Instead::Says(FULL), ("GANG_LIMIT", "6"), ("gsLimit", "6")),
    ] {
        let Some(mut place) = Place::new() else { return };
        let program = place.compile("cc", &here().join("tests/nobody.c"), &SHARED, "nobody");
        let mut child = place
            .bounded(program)
            .args([modern.0, modern.1, llnl.0, llnl.1])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "daemon\n", "{}", modern.0);
        place.end_daemon();
        instead.listen(&place.socket());
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success(), "{}: {said}", modern.0);
        let seen = rows::named(&said);
        let missing: Vec<String> = rows::functions()
            .into_iter()
            .map(|function| function.name)
            .filter(|name| name != "GangErrMsg" && !ASK_NOBODY.contains(&name.as_str()))
            .filter(|name| !seen.contains(&name.as_str()))
            .collect();
        assert_eq!(missing, [""; 0], "{}", modern.0);
        // For all calls that ask, as the headers begin.
        for (header, name) in [("gang.h", modern.0), ("GangUserAPI.h", llnl.0)] {
            let text = fs::read_to_string(here().join("include").join(header)).unwrap();
            let (before, _) = text.split_once("typedef enum").unwrap();
            let of_all = before.rsplit_once("/* Of all ").unwrap().1;
            assert!(of_all.contains(name), "{header} does not say {name} of all calls");
        }
    }
}

#[test]
fn listening_gangs_get_signals_of_their_slots() {
    let Some(place) = Place::new() else { return };
    place.run(place.compile("cc", &here().join("tests/heard.c"), &SHARED, "heard"));
}

#[test]
fn the_library_needs_the_c_library_and_nothing_else() {
    let Some(place) = Place::new() else { return };
    let output =
        Command::new("readelf").args(["-dW"]).arg(place.path("libgang.so.1")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    // The last two are parts of it.
    let of_libc =
        |name: &&str| ["libc.so", "ld-linux", "libm.so"].iter().any(|of| name.starts_with(of));
    assert!(needed.iter().all(of_libc) && !needed.is_empty(), "{needed:?}");
}

#[test]
fn library_exports_exactly_the_headers() {
    let Some(place) = Place::new() else { return };
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(place.path("libgang.so.1"))
        .output()
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = names
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .filter(|name| *name != "GANG_1")
        .collect();
    let functions = rows::functions();
    let mut declared: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    exported.sort_unstable();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}

#[test]
fn the_headers_say_of_every_number_what_it_means() {
    for name in ["gang.h", "GangUserAPI.h"] {
        let text = fs::read_to_string(here().join("include").join(name)).unwrap();
        let (mut in_enum, mut before, mut seen) = (false, "", 0);
        for line in text.lines() {
            in_enum |= line.starts_with("typedef enum");
            let is_number = in_enum && line.contains(" = ");
            if is_number {
                let is_explained_before = before.ends_with("*/") && !before.contains(" = ");
                assert!(line.contains("/*") || is_explained_before, "{name}: {line}");
                seen += 1;
            }
            in_enum &= !line.starts_with('}');
            before = line;
        }
        assert!(seen > 15, "{name}: {seen}");
    }
}
