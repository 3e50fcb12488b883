//! How a case runs, and what is compared.

use std::{
    fmt::Write,
    fs::{self, File},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use gang_daemon::{Daemon, Options, Place, Program, SPIN, are_built};
use gang_harness::{TEST_TIMEOUT, skipped, wait_for, wait_until};

/// A way in which programs are started.
pub struct Case {
    pub name: &'static str,
    /// Programs that the script needs. `root` is the user; what has a blank is a command that must
    /// succeed.
    pub needs: &'static [&'static str],
    /// Text for bash. `$RUN` is `gang run` or nothing, `$LOOK` the program look.sh. The working
    /// directory, `$WORK`, is empty.
    pub script: &'static str,
    /// Where it is not the same.
    pub unlike: Option<Unlike>,
}

/// A difference that is documented.
#[derive(Clone, Copy)]
pub struct Unlike {
    /// All where there are none.
    pub backends: &'static [&'static str],
    /// A line of the output that gangd brings about.
    pub line: &'static str,
}

impl Unlike {
    fn is_of(self, backend: &str) -> bool {
        self.backends.is_empty() || self.backends.contains(&backend)
    }
}

/// The backend with which gang stays as the parent of the program.
const SIGNAL: &str = "signal";

/// The backends that can be used here, the best one first. A backend that cannot is said once.
pub static BACKENDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let daemon = daemon(SIGNAL);
    let backends = daemon.client().status().unwrap().status.backends.into_iter();
    backends.filter(|backend| backend.usable).map(|backend| backend.name).collect()
});

/// The backends of a case: all; or the best one, and for every other case another one.
fn backends(case: &Case) -> Vec<&'static str> {
    let all: Vec<&str> = BACKENDS.iter().map(String::as_str).collect();
    let others = all.len().saturating_sub(1);
    if others == 0 || std::env::var_os("GANG_SURROUNDINGS").is_some_and(|which| which == "all") {
        return all;
    }
    let sum: usize = case.name.bytes().map(usize::from).sum();
    let other = (sum % 2 == 0).then(|| all[1 + sum / 2 % others]);
    [all[0]].into_iter().chain(other).collect()
}

fn daemon(backend: &str) -> Daemon {
    let flags = &["--backend", backend, "--no-uncontended-passthrough"];
    Daemon::start_in(Place::new(), &Options { flags, ..Options::default() })
}

/// All that is seen of a run.
#[derive(PartialEq)]
struct Seen {
    output: String,
    errors: String,
    status: ExitStatus,
    files: Vec<String>,
    /// Names of the processes that stay.
    left: Vec<String>,
}

impl Seen {
    /// The differences, line by line.
    fn against(&self, other: &Seen) -> String {
        let mut text = String::new();
        let sides = [("without", self), ("with", other)];
        if self.status != other.status {
            for (side, seen) in sides {
                let _ = writeln!(text, "{side}: {}", seen.status);
            }
        }
        for (what, part) in [
            ("output", (|seen| &seen.output) as fn(&Seen) -> &String),
            ("errors", |seen| &seen.errors),
        ] {
            let lines = [self, other].map(|seen| part(seen).lines().collect::<Vec<_>>());
            for (side, [own, others]) in [("without", [0, 1]), ("with", [1, 0])] {
                for line in lines[own].iter().filter(|line| !lines[others].contains(line)) {
                    let _ = writeln!(text, "{what}, only {side}: {line}");
                }
            }
            if part(self) != part(other) && text.is_empty() {
                let _ = writeln!(text, "{what}: the same lines in another order or number");
            }
        }
        for (what, part) in [
            ("files", (|seen| &seen.files) as fn(&Seen) -> &Vec<String>),
            ("processes left", |seen| &seen.left),
        ] {
            if part(self) != part(other) {
                for (side, seen) in sides {
                    let _ = writeln!(text, "{what} {side}: {:?}", part(seen));
                }
            }
        }
        text
    }
}

/// Why a case cannot run here.
fn obstacle(case: &Case) -> Option<String> {
    let missing = case.needs.iter().find(|need| {
        let script = match **need {
            "root" => "test $(id -u) = 0".to_owned(),
            command if command.contains(' ') => command.to_owned(),
            program => format!("command -v {program}"),
        };
        let mut shell = shell(&script);
        let found = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        !found.unwrap().success()
    });
    missing.map(|need| format!("needs {need}"))
}

/// A shell that finds the programs of administrators, too.
fn shell(script: &str) -> Command {
    let mut shell = Command::new("bash");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.args(["-c", script]).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    shell
}

/// Runs a case without and with gangd, and compares.
///
/// # Panics
///
/// Where something differs, and not as it is documented.
pub fn check(case: &Case) {
    if !are_built(&["gang", "gangd"]) {
        return;
    }
    if let Some(why) = obstacle(case) {
        return skipped(why);
    }
    let place = Place::new();
    let without = Bench::in_place(&place).run(case, "", None);
    for backend in backends(case) {
        let daemon = daemon(backend);
        let with = with_gangd(case, backend, daemon, &without);
        let differs = match case.unlike.filter(|unlike| unlike.is_of(backend)) {
            None => without_own(&without, backend).against(&without_own(&with, backend)),
            Some(Unlike { line, .. }) => {
                let said = with.output.lines().chain(with.errors.lines()).any(|it| it == line);
                let was = without.output.lines().any(|it| it == line);
                // The effect of a stop depends on where it hits.
                let as_documented = said && !was;
                match as_documented {
                    true => String::new(),
                    false => without_own(&without, backend).against(&without_own(&with, backend)),
                }
            }
        };
        assert!(differs.is_empty(), "{} with the backend {backend}:\n{differs}", case.name);
    }
}

/// Without what is gang's own doing where it stays as the program's parent.
fn without_own(seen: &Seen, backend: &str) -> Seen {
    let is_meant = |line: &&str| backend != SIGNAL || !line.starts_with("own ");
    let own = |text: &str| text.lines().filter(is_meant).map(|line| format!("{line}\n")).collect();
    let left = seen.left.iter().filter(|name| backend != SIGNAL || *name != "gang").cloned();
    Seen {
        output: own(&seen.output),
        errors: own(&seen.errors),
        status: seen.status,
        files: seen.files.clone(),
        left: left.collect(),
    }
}

fn with_gangd(case: &Case, backend: &str, mut daemon: Daemon, without: &Seen) -> Seen {
    let spin = ["run", "-q", "-n", "1", "--name", "beside", "--", "sh", "-c", SPIN];
    let beside = Program::start(daemon.gang(&spin).stdin(Stdio::null()));
    wait_until("a gang is beside", || daemon.jobs().iter().any(|job| job.processes > 0));
    let job = daemon.jobs()[0].id;
    let group = daemon.client().show_job(job).unwrap().details.cgroup;
    let bench = Bench::in_place(&daemon);
    let run = format!(
        "{} run -q --class batch --weight 100 --socket {} --",
        bench.gang.display(),
        daemon.socket().display()
    );
    let seen = bench.run(case, &run, Some(&without_own(without, backend).left));
    wait_until("no job stays", || daemon.jobs().len() == 1);
    drop(beside);
    wait_until("the gang beside has ended", || daemon.jobs().is_empty());
    daemon.end();
    wait_until("nothing stays on file", || !daemon.jobs_dir().exists());
    if let Some(group) = group {
        let of_daemon = Path::new(&group).parent().unwrap();
        wait_until("no cgroup stays", || !of_daemon.exists());
    }
    seen
}

/// Where a case runs: a directory that everybody can reach.
struct Bench {
    gang: PathBuf,
    look: PathBuf,
    work: PathBuf,
    /// Of output, and of what is in nobody's way.
    out: PathBuf,
}

impl Bench {
    fn in_place(place: &Place) -> Bench {
        place.open_to_everybody(0o755);
        let [gang, look, work, out] =
            ["bin/gang", "bin/look", "work", "out"].map(|it| place.path(it));
        fs::create_dir(place.path("bin")).unwrap();
        for directory in [&work, &out] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        }
        // Another user may not reach the directory of the build.
        gang_daemon::copy(&[place.programs.join("gang")], &gang);
        gang_daemon::copy(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("look.sh")], &look);
        fs::set_permissions(&look, fs::Permissions::from_mode(0o755)).unwrap();
        Bench { gang, look, work, out }
    }

    /// Runs the script, with `run` in front of its programs. Waits until as many processes are left
    /// as are expected.
    fn run(&self, case: &Case, run: &str, expected: Option<&[String]>) -> Seen {
        let stream = |name: &str| File::create(self.out.join(name)).unwrap();
        let mut shell = shell(case.script);
        shell.env("RUN", run).env("LOOK", &self.look).env("WORK", &self.work);
        shell.env("HOME", &self.work).env("LC_ALL", "C").current_dir(&self.work);
        for (name, _) in std::env::vars_os() {
            // Of the test, or of cargo.
            if ["GANG", "CARGO", "RUST", "LD_LIBRARY"].iter().any(|it| begins(&name, it)) {
                shell.env_remove(name);
            }
        }
        shell.stdin(Stdio::null()).stdout(stream("output")).stderr(stream("errors"));
        let mut program = Program::start(&mut shell);
        let status = wait_for(case.name, || program.0.try_wait().unwrap());
        let left = self.left(expected);
        let text = |name| {
            let text = fs::read(self.out.join(name)).unwrap();
            // Each place has a directory of its own.
            let place = self.work.parent().unwrap().to_str().unwrap();
            String::from_utf8_lossy(&text).replace(place, "PLACE")
        };
        // Bash names the process that died by a signal by its number.
        let errors: String = text("errors").lines().map(|line| without_pid(line) + "\n").collect();
        let mut files = Vec::new();
        list(&self.work, &self.work, &mut files);
        files.sort();
        Seen { output: text("output"), errors, status, files, left }
    }

    /// Names of the processes that the script has left, which are ended.
    fn left(&self, expected: Option<&[String]>) -> Vec<String> {
        // Nobody knows how long it takes until all that ends has ended. Without gangd that is soon.
        let bound = if expected.is_some() { TEST_TIMEOUT / 6 } else { Duration::from_secs(1) };
        let end = Instant::now() + bound;
        loop {
            let processes = self.processes();
            let mut names: Vec<String> = processes.iter().map(|(_, name)| name.clone()).collect();
            names.sort();
            let is_as_expected = expected.map_or(names.is_empty(), |expected| {
                let mut own = names.clone();
                own.retain(|name| name != "gang" || expected.contains(name));
                own == expected
            });
            if is_as_expected || Instant::now() >= end {
                for (pid, _) in processes {
                    let _ =
                        Command::new("kill").args(["-KILL", &pid]).stderr(Stdio::null()).status();
                }
                return names;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Processes that have this directory in their environment, as their own, or a file of it open.
    fn processes(&self) -> Vec<(String, String)> {
        let mark = format!("WORK={}\0", self.work.display());
        let is_here = |path: PathBuf| {
            let to = fs::read_link(path).unwrap_or_default();
            to.starts_with(&self.work) || to.starts_with(&self.out)
        };
        let own = std::process::id().to_string();
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let (pid, path) = (process.file_name().to_string_lossy().into_owned(), process.path());
            if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let mut files = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
            let is_marked = environment.windows(mark.len()).any(|part| part == mark.as_bytes());
            if is_marked || is_here(path.join("cwd")) || files.any(|file| is_here(file.path())) {
                let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
                found.push((pid, name.trim_end().to_owned()));
            }
        }
        found
    }
}

/// A line of an error, `bash: line 3: 4711 Killed`, without the number of the process.
fn without_pid(line: &str) -> String {
    let is_pid = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_digit());
    match line.starts_with("bash: line ") {
        true => line.split_whitespace().filter(|word| !is_pid(word)).collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    }
}

fn begins(name: &std::ffi::OsStr, with: &str) -> bool {
    name.as_encoded_bytes().starts_with(with.as_bytes())
}

/// The files below a directory, with their modes and owners. Numbers of processes are in no name.
fn list(root: &Path, directory: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, found) = (entry.path(), entry.metadata().unwrap());
        let name = path.strip_prefix(root).unwrap().display();
        files.push(format!("{name} {:o} {}:{}", found.mode(), found.uid(), found.gid()));
        if found.is_dir() {
            list(root, &path, files);
        }
    }
}
