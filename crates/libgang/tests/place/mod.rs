//! A daemon, the library and programs in C, in a directory of their own.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    ops::Deref,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use gang_daemon::{Daemon, Options, are_built};
use gang_harness::wait_until;
use gang_protocol::v1;

/// The end of programs that hang, in seconds: before the program of tests is killed
/// (tests/bounded.sh).
pub const BOUND: &str = "600";

pub fn here() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// The directory with the shared libraries of this program of tests, which links them once: that
/// takes longer than most tests.
pub fn linked(library: &Path) -> &'static Path {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    LINKED.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.file_name().unwrap());
        fs::create_dir_all(&directory).unwrap();
        for script in ["link-libgang", "link-preload"] {
            let script = here().join("../../scripts").join(script);
            let output = Command::new(script).arg(library).arg(&directory).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        directory
    })
}

/// A daemon beside the library, for programs in C.
pub struct Place(Daemon);

impl Deref for Place {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0
    }
}

impl Place {
    /// Nothing where they were not built.
    pub fn new() -> Option<Place> {
        if !are_built(&["libgang.a", "gangd"]) {
            return None;
        }
        Some(Place::of(Daemon::start_in(gang_daemon::Place::new(), &Options::default())))
    }

    /// The library beside a daemon that runs already.
    pub fn of(daemon: Daemon) -> Place {
        let library = daemon.programs.join("libgang.a");
        fs::copy(&library, daemon.path("libgang.a")).unwrap();
        for name in ["libgang.so", "libgang.so.1"] {
            fs::copy(linked(&library).join(name), daemon.path(name)).unwrap();
        }
        Place(daemon)
    }

    pub fn compile(&self, compiler: &str, source: &Path, flags: &[&str], name: &str) -> PathBuf {
        let program = self.path(name);
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
            .arg(here().join("include"))
            .arg("-I")
            .arg(here().join("tests"))
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

    pub fn end_daemon(&mut self) {
        self.0.end();
    }

    /// A program that finds the library and the daemon, and does not hang.
    pub fn bounded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("timeout");
        command.arg(BOUND).arg(program).env("LD_LIBRARY_PATH", self.directory.path());
        command
    }

    /// The program of LLNL's paper, in whichever language: while its parallel part runs, it is one
    /// job of the class interactive, of two CPUs at best and one at least.
    pub fn is_the_job_of_the_paper(&self, program: &Path) {
        let mut child =
            self.bounded(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(said.next().expect("it ended").unwrap().trim(), "parallel");
        let mut client = self.client();
        let [job] = &client.list_jobs().unwrap().jobs[..] else { panic!("no single job") };
        let found = (job.class.clone(), job.cpus, job.min_cpus, job.processes);
        assert_eq!(found, (v1::Class::interactive, 2, 1, 1), "{}", program.display());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "{}", program.display());
        wait_until("its job has ended", || client.list_jobs().unwrap().jobs.is_empty());
    }

    pub fn run(&self, program: impl AsRef<OsStr>) -> Output {
        let output = self.bounded(program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        output
    }
}
