//! Programs that know nothing of gangd become gangs: by GANG=1 and the preload library, under `gang
//! run`, with either MPI of the distribution.

mod place;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use gang_daemon::{are_built, is_root};
use gang_harness::{skipped, wait_until};
use gang_protocol::v1;
use place::{BOUND, Place, here, linked};

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// The library, where everybody may read it.
fn preload(place: &Place) -> PathBuf {
    let library = place.path("libgang-preload.so");
    fs::copy(linked(&place.path("libgang.a")).join("libgang-preload.so"), &library).unwrap();
    library
}

fn run(place: &Place, line: &[&str], variables: &[(&str, &str)]) -> Output {
    // The variables are for the program and nothing else: timeout would be a gang by them, too.
    let output = place
        .command("timeout")
        .args([BOUND, "env"])
        .args(variables.iter().map(|(name, value)| format!("{name}={value}")))
        .args(line)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line:?}: {}: {said}", output.status);
    output
}

/// Where the processes said they were, and how many there were.
fn groups(output: &Output) -> (BTreeSet<String>, usize) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let named: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once(" in ").map(|(_, group)| group.to_owned()))
        .collect();
    (named.iter().cloned().collect(), named.len())
}

fn assert_one_job(output: &Output, processes: usize) {
    let (found, count) = groups(output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((found.len(), count), (1, processes), "{found:?}: {said}");
    assert!(found.first().unwrap().contains("/job-"), "{found:?}: {said}");
}

#[test]
fn needs_root_variable_makes_program_a_gang() {
    if !is_root() {
        return;
    }
    let Some(place) = Place::new() else { return };
    let library = preload(&place);
    let library = library.to_str().unwrap();
    for compiler in ["gcc", "clang"] {
        if !has(compiler) {
            skipped(format!("{compiler} is not here"));
            continue;
        }
        let source = here().join("tests/threads.c");
        let links = |flags: &[&str]| {
            Command::new(compiler)
                .args(["-Wno-unknown-pragmas", "-O1"])
                .arg(&source)
                .args(flags)
                .arg("-o")
                .arg(place.path(compiler))
                .output()
                .unwrap()
                .status
                .success()
        };
        if !links(&["-fopenmp", "-lpthread"]) {
            skipped(format!("{compiler} has no OpenMP here: pthreads alone"));
            assert!(links(&["-lpthread"]));
        }
        let program = place.path(compiler);
        let program = program.to_str().unwrap();
        let on = [
            ("LD_PRELOAD", library),
            ("GANG", "1"),
            ("GANG_CPUS", "1"),
            ("GANG_CLASS", "interactive"),
        ];
        assert_one_job(&run(&place, &[program], &on), 2);
        for off in [&[("LD_PRELOAD", library)][..], &[("LD_PRELOAD", library), ("GANG", "0")]] {
            let (found, _) = groups(&run(&place, &[program], off));
            assert!(!found.first().unwrap().contains("/job-"), "nobody asked: {found:?}");
        }
    }
}

/// Variables that ask for a job, and the job that the daemon has then.
const VARIABLES: [(&str, &str); 8] = [
    ("GANG_NAME", "by variables"),
    ("GANG_CPUS", "2"),
    ("GANG_MIN_CPUS", "1"),
    ("GANG_CLASS", "standby"),
    ("GANG_WEIGHT", "7"),
    ("GANG_MEM", "64M"),
    ("GANG_DISK", "1k"),
    ("GANG_SIGNALS", "1"),
];

#[test]
fn the_daemon_is_asked_for_what_the_variables_say() {
    let Some(place) = Place::new() else { return };
    let library = preload(&place);
    if !are_built(&["gang"]) {
        return;
    }
    let preloaded = || {
        let mut sleep = place.command("sleep");
        sleep.env("GANG", "1").env("LD_PRELOAD", &library);
        sleep
    };
    let started = || place.gang(&["run", "-q", "--", "sleep"]);
    for mut line in [preloaded(), started()] {
        let mut child = line.arg("600").envs(VARIABLES).stdin(Stdio::null()).spawn().unwrap();
        let mut client = place.client();
        let mut jobs = Vec::new();
        wait_until("there is a job with a process", || {
            jobs = client.list_jobs().unwrap().jobs;
            jobs.iter().any(|job| job.processes > 0)
        });
        child.kill().and_then(|()| child.wait()).unwrap();
        let [job] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!((job.name.as_str(), job.cpus, job.min_cpus), ("by variables", 2, 1), "{line:?}");
        assert_eq!((&job.class, job.weight), (&v1::Class::standby, 7), "{line:?}");
        assert_eq!(
            (job.promised_memory(), job.disk_bytes),
            (Some(64 << 20), Some(1024)),
            "{line:?}"
        );
        assert!(job.signals, "{line:?}");
        wait_until("it has ended", || client.list_jobs().unwrap().jobs.is_empty());
    }
}

#[test]
fn nice_of_a_program_that_makes_itself_a_gang_counts() {
    let Some(place) = Place::new() else { return };
    // The variables are for the program alone: nice(1) would be the gang.
    let loads = format!("LD_PRELOAD={}", preload(&place).display());
    let mut nice = place.command("nice");
    nice.args(["-n", "19", "env", "GANG=1", &loads, "sleep", "600"]);
    let mut child = nice.env_remove("GANG_WEIGHT").stdin(Stdio::null()).spawn().unwrap();
    let mut client = place.client();
    let mut weight = None;
    wait_until("there is a job with a process", || {
        let jobs = client.list_jobs().unwrap().jobs;
        weight = jobs.iter().find(|job| job.processes > 0).map(|job| job.weight);
        weight.is_some()
    });
    child.kill().and_then(|()| child.wait()).unwrap();
    assert_eq!(weight, Some(1));
}

#[test]
fn library_asks_no_variable_of_privileged_programs() {
    let Some(place) = Place::new() else { return };
    let output = Command::new("nm").args(["-D", "--undefined-only"]).arg(preload(&place)).output();
    let Ok(output) = output else { return skipped("needs nm") };
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |name: &str| {
        symbols.lines().any(|line| {
            line.split_whitespace().last().is_some_and(|it| it.split('@').next() == Some(name))
        })
    };
    // Rust's own library has the other one.
    assert!(has("secure_getenv"), "{symbols}");
}

#[test]
fn needs_root_variable_keeps_job_of_gang_run() {
    if !is_root() {
        return;
    }
    let Some(place) = Place::new() else { return };
    let library = preload(&place);
    if !are_built(&["gang"]) {
        return;
    }
    let gang = place.programs.join("gang");
    let file = place.path("jobs");
    let (gang_is, jobs_to) = (gang.display(), file.display());
    let script = format!("cat /proc/self/cgroup; '{gang_is}' ls --json > '{jobs_to}'");
    let on = [("GANG", "1"), ("LD_PRELOAD", library.to_str().unwrap()), ("GANG_CPUS", "1")];
    let line = [gang.to_str().unwrap(), "run", "-q", "--name", "outer", "--", "sh", "-c", &script];
    let output = run(&place, &line, &on);
    let groups = String::from_utf8_lossy(&output.stdout);
    assert!(
        groups.lines().any(|line| line.starts_with("0::") && line.contains("/job-")),
        "{groups}"
    );
    let jobs = fs::read_to_string(&file).unwrap();
    let is_outer = jobs.contains("\"outer\"");
    assert!(is_outer && jobs.matches("\"name\":").count() == 1, "one job, and no other: {jobs}");
}

/// A group of version 2; it is removed when this is dropped.
struct CallersGroup(PathBuf);

impl CallersGroup {
    fn new() -> Option<CallersGroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let Some(of_v2) = fields.find(|fields| fields.get(2) == Some(&"cgroup2")) else {
            skipped("no cgroups of version 2");
            return None;
        };
        let path = Path::new(of_v2[1]).join(format!("caller-preload-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Some(CallersGroup(path))
    }
}

impl Drop for CallersGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn needs_root_program_is_gang_below_callers_group() {
    if !is_root() {
        return;
    }
    let Some(place) = Place::new() else { return };
    let Some(caller) = CallersGroup::new() else { return };
    let library = preload(&place);
    let (group, library) = (caller.0.display(), library.display());
    let script = format!(
        "echo $$ > '{group}/cgroup.procs' && \
         exec env GANG=1 GANG_CPUS=1 LD_PRELOAD='{library}' cat /proc/self/cgroup"
    );
    let output = run(&place, &["sh", "-c", &script], &[]);
    let groups = String::from_utf8_lossy(&output.stdout);
    let name = caller.0.file_name().unwrap().to_str().unwrap();
    let of_v2 = groups.lines().find(|line| line.starts_with("0::")).unwrap();
    let (above, job) = of_v2.rsplit_once('/').unwrap();
    assert!(above.ends_with(name) && job.contains("job-"), "{groups}");
    wait_until("its group is removed", || {
        let mut below = fs::read_dir(&caller.0).unwrap();
        !below.any(|entry| entry.unwrap().path().is_dir())
    });
}

#[test]
fn only_the_profiling_interface_of_mpi_is_used() {
    let Some(place) = Place::new() else { return };
    let names = |which: &str| -> BTreeSet<String> {
        let mut nm = Command::new("nm");
        let output =
            nm.args(["-D", which, "--format=posix"]).arg(preload(&place)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().filter_map(|line| line.split([' ', '@']).next());
        names.map(str::to_owned).collect()
    };
    let map = fs::read_to_string(here().join("../../integrations/preload/preload.map"));
    let map = map.unwrap();
    let exported = map.lines().map(|line| line.trim().trim_end_matches(';'));
    let exported: BTreeSet<_> =
        exported.filter(|name| name.to_lowercase().starts_with("mpi_init")).collect();
    assert_eq!(
        names("--defined-only").iter().map(String::as_str).collect::<BTreeSet<_>>(),
        exported
    );
    let of_mpi = |name: &&String| name.to_lowercase().contains("mpi_");
    assert_eq!(
        names("--undefined-only").iter().find(of_mpi),
        None,
        "they are looked up as it runs"
    );
}

#[test]
fn bad_variable_gives_one_line_program_runs_on() {
    let Some(place) = Place::new() else { return };
    let library = preload(&place);
    let library = library.to_str().unwrap();
    for (name, value, expected) in [
        ("GANG_CPUS", "abc", "gang: GANG_CPUS: abc is not 1 to 8192; the program runs on without"),
        ("GANG_CLASS", "royal", "gang: GANG_CLASS: not one of express"),
        ("GANG_MEM", "much", "gang: GANG_MEM: not a size"),
        ("GANG_MIN_CPUS", "8000", "gang: this program is no gang: while registering"),
        ("GANG_SOCKET", "/nowhere/g.sock", "is no gang: no gangd listens at /nowhere/g.sock; "),
    ] {
        let on = [("LD_PRELOAD", library), ("GANG", "1"), ("GANG_CPUS", "8000"), (name, value)];
        let output = run(&place, &["echo", "done"], &on);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"done\n", "{name}: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("gang:")).collect();
        assert!(lines.len() <= 2 && said.contains(expected), "{name}: {said}");
    }
}

/// An MPI, with what lets it start more ranks than there are CPUs.
const MPIS: [(&str, &[&str]); 2] =
    [("openmpi", &["--oversubscribe", "--allow-run-as-root"]), ("mpich", &[])];

/// How many ranks there are. They spin where they meet: with more than CPUs, each meeting would
/// take until somebody else's turn, which on a busy machine is long.
const RANKS: &str = "2";

/// Calls with the place of a daemon, the MPI's name and the beginning of the line that starts
/// ranks.
fn with_each_mpi(check: impl Fn(&Place, &str, &[&str])) {
    if !is_root() {
        return;
    }
    let Some(place) = Place::new() else { return };
    for (mpi, flags) in MPIS {
        let (launcher, compiler) = (format!("mpirun.{mpi}"), format!("mpicc.{mpi}"));
        if !has(&launcher) || !has(&compiler) {
            skipped(format!("{launcher} or {compiler} is not here"));
            continue;
        }
        let line = [&[launcher.as_str()], flags, &["-n", RANKS]].concat();
        check(&place, mpi, &line);
    }
}

/// Compiles a program of the tests by an MPI's compiler; where the program is.
fn compile(place: &Place, compiler: &str, source: &str, flags: &[&str], name: &str) -> String {
    let program = place.path(name);
    let mut line = Command::new(compiler);
    line.arg(here().join("tests").join(source)).args(flags).arg("-o").arg(&program);
    let output = line.output().unwrap();
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    program.to_str().unwrap().to_owned()
}

fn compile_ranks(place: &Place, mpi: &str, flags: &[&str]) -> String {
    compile(place, &format!("mpicc.{mpi}"), "ranks.c", flags, mpi)
}

/// Ranks are one gang by one variable.
fn assert_one_gang(place: &Place, library: &Path, line: &[&str]) {
    let variables = [("LD_PRELOAD", library.to_str().unwrap()), ("GANG", "1")];
    assert_one_job(&run(place, line, &variables), RANKS.parse().unwrap());
}

/// And none without it.
fn assert_no_gang(place: &Place, library: &Path, line: &[&str]) {
    let (found, _) = groups(&run(place, line, &[("LD_PRELOAD", library.to_str().unwrap())]));
    assert!(!found.first().unwrap().contains("/job-"), "nobody asked: {found:?}");
}

#[test]
fn needs_root_variable_makes_ranks_one_gang() {
    with_each_mpi(|place, mpi, line| {
        let library = preload(place);
        let program = compile_ranks(place, mpi, &["-DMEETINGS=30"]);
        let ranks = [line, &[&program]].concat();
        assert_one_gang(place, &library, &ranks);
        assert_no_gang(place, &library, &ranks);
        let program = compile_ranks(place, mpi, &["-DMEETINGS=1", "-DTHREADED"]);
        assert_one_gang(place, &library, &[line, &[&program]].concat());
    });
}

#[test]
fn needs_root_ranks_with_loaded_mpi_are_one_gang() {
    with_each_mpi(|place, mpi, line| {
        let library = preload(place);
        let flags = ["-DMEETINGS=1", "-shared", "-fPIC", "-Dmain=ranks"];
        let module = compile_ranks(place, mpi, &flags);
        let program = compile(place, "cc", "loads.c", &["-ldl"], "loads");
        let ranks = [line, &[&program, &module]].concat();
        assert_one_gang(place, &library, &ranks);
        assert_no_gang(place, &library, &ranks);
    });
}

#[test]
fn needs_root_fortran_ranks_are_one_gang() {
    with_each_mpi(|place, mpi, line| {
        let library = preload(place);
        let compiler = format!("mpifort.{mpi}");
        if !has(&compiler) || !has("gfortran") {
            skipped(format!("{compiler} or gfortran is not here"));
            return;
        }
        for flags in [&[][..], &["-DF08"]] {
            let program = compile(place, &compiler, "ranks.F90", flags, &compiler);
            for how in ["alone", "threads"] {
                assert_one_gang(place, &library, &[line, &[&program, how]].concat());
            }
        }
    });
}

#[test]
fn needs_root_gang_run_makes_ranks_one_gang() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_mpi(|place, mpi, line| {
        let gang = place.programs.join("gang");
        let program = compile_ranks(place, mpi, &["-DMEETINGS=30"]);
        let line = [&[gang.to_str().unwrap(), "run", "--"], line, &[&program]].concat();
        assert_one_job(&run(place, &line, &[]), RANKS.parse().unwrap());
    });
}
