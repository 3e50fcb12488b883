//! The library as C sees it: examples and misuse, compiled by the system's compilers, against a daemon.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

fn here() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Where cargo puts what it has built.
fn built(name: &str) -> Option<PathBuf> {
    let directory = std::env::current_exe().unwrap();
    let path = directory.ancestors().nth(2).unwrap().join(name);
    path.exists().then_some(path)
}

/// A directory with the shared library and a daemon, or nothing where they were not built.
struct Place {
    directory: tempfile::TempDir,
    daemon: Child,
}

impl Place {
    fn new(test: &str) -> Option<Place> {
        let (Some(library), Some(gangd)) = (built("libgang.a"), built("gangd")) else {
            eprintln!("{test} skipped: it takes `cargo build --workspace --lib --bins`");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        fs::copy(&library, directory.path().join("libgang.a")).unwrap();
        let script = here().join("../../scripts/link-libgang");
        let linked = Command::new(script).arg(library).arg(directory.path()).output().unwrap();
        assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
        fs::write(directory.path().join("gangd.toml"), "").unwrap();
        let daemon = Command::new(gangd)
            .arg("--socket")
            .arg(directory.path().join("gangd.sock"))
            .arg("--config")
            .arg(directory.path().join("gangd.toml"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let place = Place { directory, daemon };
        wait_until("the daemon listens", || place.path("gangd.sock").exists());
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn compile(&self, compiler: &str, source: &Path, flags: &[&str], name: &str) -> PathBuf {
        let program = self.path(name);
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(here().join("include"))
            .arg(source)
            .arg("-L")
            .arg(self.directory.path())
            .args(flags)
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    fn run(&self, program: impl AsRef<OsStr>) -> Output {
        let output = Command::new("timeout")
            .arg("60")
            .arg(program)
            .env("GANG_SOCKET", self.path("gangd.sock"))
            .env("LD_LIBRARY_PATH", self.directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        output
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SHARED: [&str; 1] = ["-lgang"];

#[test]
fn misuse_has_its_documented_results_in_c_and_in_cpp() {
    let Some(place) = Place::new("misuse") else { return };
    let source = here().join("tests/abuse.c");
    place.run(place.compile("cc", &source, &SHARED, "abuse-c"));
    let cpp = place.path("abuse.cc");
    fs::copy(&source, &cpp).unwrap();
    place.run(place.compile("c++", &cpp, &SHARED, "abuse-cc"));
}

#[test]
fn a_program_makes_itself_a_gang_and_sees_its_slots() {
    let Some(place) = Place::new("a_program_makes_itself") else { return };
    let output =
        place.run(place.compile("cc", &here().join("examples/gang.c"), &SHARED, "example"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("1 processes") && said.ends_with("3 slots seen\n"), "{said}");
}

#[test]
fn a_program_for_llnls_interface_runs_linked_statically_too() {
    let Some(place) = Place::new("a_program_for_llnls") else { return };
    let source = here().join("examples/llnl.c");
    let archive = place.path("libgang.a");
    let archive = [archive.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    for (flags, name) in [(&SHARED[..], "shared"), (&archive[..], "static")] {
        let output = place.run(place.compile("cc", &source, flags, name));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("3 processes") && said.contains("load "), "{said}");
    }
}

#[test]
fn the_library_has_what_the_headers_declare_and_nothing_else() {
    let Some(place) = Place::new("the_library_has") else { return };
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
    let headers = ["gang.h", "GangUserAPI.h"]
        .map(|name| fs::read_to_string(here().join("include").join(name)).unwrap())
        .concat();
    let mut declared: Vec<&str> = headers
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '*', '/']))
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    (exported.sort_unstable(), declared.sort_unstable());
    assert_eq!(exported, declared);
}
