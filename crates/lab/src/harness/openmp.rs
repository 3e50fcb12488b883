//! Real parallel programs: a Gaussian elimination of our own, numpy on OpenBLAS, scikit-learn and
//! PyTorch where they are installed, which use OpenMP, ranks of Open MPI, and mpi4py's own tests.
//! All run with the default settings of their runtime, and say when they were done.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use gang_picture::python_with;
use serde::Deserialize;

use crate::harness::child::Running;
use crate::harness::compiled::{compile, compile_by};
use crate::harness::daemon::Daemon;
use crate::harness::duration;
use crate::harness::gangs::Scheduled;
use crate::harness::lab::{Gang, Lab, words};
use crate::harness::samples::Sample;
use crate::workload::window::now_ns;

const GAUSS: &str = include_str!("../../../../demo/gauss.c");
const INVERSE: &str = include_str!("../../../../demo/inverse.py");
const EXCHANGE: &str = include_str!("../../../../demo/exchange.c");
const CLUSTERS: &str = include_str!("../../../../demo/clusters.py");
const LAYERS: &str = include_str!("../../../../demo/layers.py");
const TESTS: &str = include_str!("../../../../demo/mpi4py_tests.py");

/// A copy that has not ended by then is killed, and the measurement fails.
pub const LIMIT: Duration = Duration::from_secs(300);
/// How long copies that are to end have for it: mpirun removes the memory that its ranks share.
const GRACE: Duration = Duration::from_secs(30);

/// A program that takes the size of its problem and how many times to solve it.
#[derive(Clone)]
pub struct Program {
    pub name: &'static str,
    command: Vec<String>,
    /// How often it solves its problem.
    pub times: u64,
}

/// How threads of OpenMP wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// As the runtime has it, which for libgomp is to spin for a while
    Default,
    /// OMP_WAIT_POLICY=active: they spin
    Active,
    /// OMP_WAIT_POLICY=passive: they block
    Passive,
}

#[derive(Deserialize)]
struct Finished {
    finished_at_ns: u64,
}

/// The Gaussian elimination, compiled into `dir`.
pub fn gauss(dir: &Path) -> Result<Program> {
    let program = compile(dir, "gauss", GAUSS, &["-lm"])?;
    let command = vec![program.display().to_string(), "500".into()];
    Ok(Program { name: "gauss (libgomp)", command, times: 1 })
}

/// numpy on the OpenMP build of OpenBLAS; an error names the packages where they are missing.
pub fn numpy(dir: &Path) -> Result<Program> {
    let python = python_with("numpy").context("install the package python3-numpy")?;
    let blas = openblas().context("install the package libopenblas0-openmp")?;
    let script = dir.join("inverse.py");
    fs::write(&script, INVERSE).with_context(|| format!("writing {}", script.display()))?;
    // Several builds of OpenBLAS can be installed; the path chooses the one with OpenMP.
    let path = format!("LD_LIBRARY_PATH={}", blas.display());
    let script = script.display().to_string();
    let command = ["env", &path, python, &script, "300"].map(String::from).to_vec();
    Ok(Program { name: "numpy (OpenBLAS)", command, times: 1 })
}

/// scikit-learn's k-means; an error names the package where it is missing.
pub fn scikit_learn(dir: &Path) -> Result<Program> {
    let python = python_with("sklearn").context("install the package python3-sklearn")?;
    let script = dir.join("clusters.py");
    fs::write(&script, CLUSTERS).with_context(|| format!("writing {}", script.display()))?;
    let command = vec![python.into(), script.display().to_string(), "20000".into()];
    Ok(Program { name: "scikit-learn", command, times: 1 })
}

/// Training with PyTorch; an error names the package where it is missing.
pub fn pytorch(dir: &Path) -> Result<Program> {
    let python =
        python_with("torch").context("install torch (pip, or the package python3-torch)")?;
    let script = dir.join("layers.py");
    fs::write(&script, LAYERS).with_context(|| format!("writing {}", script.display()))?;
    let command = vec![python.into(), script.display().to_string(), "512".into()];
    Ok(Program { name: "PyTorch", command, times: 1 })
}

/// A program of Open MPI with a rank for each CPU; an error names the packages where they are
/// missing.
pub fn open_mpi(dir: &Path, ranks: usize) -> Result<Program> {
    let compiler = ("mpicc.openmpi", "the packages openmpi-bin and libopenmpi-dev");
    let program = compile_by(compiler, dir, "exchange", EXCHANGE, &[])?;
    let command = [ranks_of_open_mpi(ranks), vec![program.display().to_string(), "10000".into()]];
    Ok(Program { name: "Open MPI", command: command.concat(), times: 1 })
}

/// mpi4py's own tests that exchange messages, of its unpacked `source`, by a rank for each CPU; an
/// error names the packages where they are missing.
pub fn mpi4py(dir: &Path, ranks: usize, source: &Path) -> Result<Program> {
    let python =
        python_with("mpi4py").context("install the packages python3-mpi4py and openmpi-bin")?;
    let script = dir.join("mpi4py_tests.py");
    fs::write(&script, TESTS).with_context(|| format!("writing {}", script.display()))?;
    let of_python = [python.into(), script.display().to_string(), source.display().to_string()];
    let command = [ranks_of_open_mpi(ranks), of_python.to_vec()].concat();
    Ok(Program { name: "mpi4py's tests", command, times: 1 })
}

/// The command that starts so many ranks. Bound, those of all jobs would have the same CPUs.
fn ranks_of_open_mpi(ranks: usize) -> Vec<String> {
    words(&format!("mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n {ranks}"))
}

/// The directory of the OpenMP build of OpenBLAS, as Debian and Ubuntu lay it out.
fn openblas() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?;
    dirs.flatten()
        .map(|dir| dir.path().join("openblas-openmp"))
        .find(|dir| dir.join("libblas.so.3").exists())
}

/// Copies of a program that run at once.
pub struct Copies {
    running: Vec<Running>,
    pub started_at_ns: u64,
    deadline: Instant,
}

impl Program {
    /// The same program, whose threads wait so, whatever the lab's own environment says.
    pub fn waiting(&self, how: Wait) -> Program {
        let mut command = words("env -u OMP_WAIT_POLICY");
        match how {
            Wait::Default => {}
            Wait::Active => command.push("OMP_WAIT_POLICY=active".into()),
            Wait::Passive => command.push("OMP_WAIT_POLICY=passive".into()),
        }
        command.extend(self.command.iter().cloned());
        Program { command, ..self.clone() }
    }

    /// The same program with so much to do.
    pub fn with_times(self, times: u64) -> Program {
        Program { times, ..self }
    }

    /// Gives the program as much to do as takes about `length` alone on this machine.
    pub fn sized(mut self, lab: &Lab, length: Duration) -> Result<Self> {
        // The difference between two runs leaves out their start; of several, the best was the
        // least disturbed. Of few that take long the start is a small part.
        const FEW: u64 = 2;
        const MORE: u64 = 22;
        const LONG_S: f64 = 2.0;
        let mut program = self.clone();
        let mut alone_s = |times| -> Result<f64> {
            program.times = times;
            let mut best_s = f64::INFINITY;
            for _ in 0..3 {
                best_s = best_s.min(program.start(lab, None, 1)?.finish()?);
            }
            Ok(best_s)
        };
        let what = format!("{} in {}", self.name, duration::show(length));
        self.times = lab.amount(&what, || {
            let few_s = alone_s(FEW)?;
            let once_s = match few_s > LONG_S {
                true => few_s / FEW as f64,
                false => (alone_s(MORE)? - few_s) / (MORE - FEW) as f64,
            };
            Ok(((length.as_secs_f64() / once_s.max(1e-4)) as u64).clamp(FEW, 10_000))
        })?;
        Ok(self)
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = self.command.clone();
        arguments.push(self.times.to_string());
        arguments
    }

    /// Starts copies at once: as gangs of the daemon where there is one.
    pub fn start(&self, lab: &Lab, daemon: Option<&Daemon>, copies: usize) -> Result<Copies> {
        let gang = Gang { cpus: lab.cpus, weight: None };
        let started_at_ns = now_ns();
        let deadline = Instant::now() + LIMIT;
        let mut running = Vec::new();
        for _ in 0..copies {
            running.push(lab.start(daemon, Some(gang), &self.arguments())?);
        }
        Ok(Copies { running, started_at_ns, deadline })
    }
}

impl Copies {
    /// The same, with less time to end.
    pub fn within(mut self, limit: Duration) -> Self {
        self.deadline = self.deadline.min(Instant::now() + limit);
        self
    }

    /// The figures of their gangs while they run.
    pub fn look(&mut self, by: Scheduled) -> Sample {
        by.look_until_done(&mut self.running, self.deadline)
    }

    /// Like [`Copies::finish`]; none where one was not done in its time, and was killed.
    pub fn finish_in_time(self) -> Result<Option<f64>> {
        let times_s: Option<Vec<f64>> = self.finish_each()?.into_iter().collect();
        Ok(times_s.map(latest))
    }

    pub fn first(&mut self) -> &mut Running {
        &mut self.running[0]
    }

    pub fn pids(&self) -> Vec<i32> {
        self.running.iter().map(Running::pid).collect()
    }

    /// The time until the last copy was done, in seconds.
    pub fn finish(self) -> Result<f64> {
        self.finish_in_time()?.context("a copy did not end in its time and was killed")
    }

    /// The time until each copy was done, in seconds; none of those that were not in time, and were
    /// killed.
    pub fn finish_each(mut self) -> Result<Vec<Option<f64>>> {
        let deadline = self.deadline;
        let in_time: Vec<bool> =
            self.running.iter_mut().map(|copy| copy.ends_by(deadline)).collect();
        if in_time.contains(&false) {
            self.running.iter().for_each(Running::ask_to_end);
            let end = Instant::now() + GRACE;
            for copy in &mut self.running {
                copy.ends_by(end);
            }
        }
        let finish = |(copy, in_time): (Running, bool)| -> Result<Option<f64>> {
            if !in_time {
                return Ok(None);
            }
            let finished: Finished = copy.outcome(deadline)?;
            let time_ns = finished.finished_at_ns.saturating_sub(self.started_at_ns);
            Ok(Some(time_ns as f64 / 1e9))
        };
        self.running.into_iter().zip(in_time).map(finish).collect()
    }
}

fn latest(times_s: Vec<f64>) -> f64 {
    times_s.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs one of the programs with a small problem.
    fn small(program: &Program) {
        let program = [&program.command[..program.command.len() - 1], &["40".into()]].concat();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).arg("2");
        let finished: Finished =
            Running::start(&mut command).unwrap().outcome(Instant::now() + LIMIT).unwrap();
        assert!(finished.finished_at_ns > 0);
    }

    #[test]
    fn gauss_solves_its_system_needs_gcc() {
        let dir = tempfile::tempdir().unwrap();
        match gauss(dir.path()) {
            Ok(program) => small(&program),
            Err(error) => gang_harness::skipped(format!("{error:#}")),
        }
    }

    #[test]
    fn ranks_exchange_their_values_needs_open_mpi() {
        let dir = tempfile::tempdir().unwrap();
        match open_mpi(dir.path(), 2) {
            Ok(program) => small(&program),
            Err(error) => gang_harness::skipped(format!("{error:#}")),
        }
    }

    /// The memory that children of a process share as files.
    fn shared(pid: i32) -> Vec<PathBuf> {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let maps = children.unwrap_or_default();
        let maps =
            maps.split_whitespace().map(|pid| fs::read_to_string(format!("/proc/{pid}/maps")));
        let lines = maps.map(Result::unwrap_or_default).collect::<String>();
        let files = lines.lines().filter_map(|line| line.split_whitespace().nth(5));
        files.filter(|file| file.starts_with("/dev/shm/")).map(PathBuf::from).collect()
    }

    #[test]
    fn ranks_that_are_not_done_in_time_leave_nothing_behind_needs_open_mpi() {
        let dir = tempfile::tempdir().unwrap();
        let program = match open_mpi(dir.path(), 2) {
            Ok(program) => program.with_times(1_000_000),
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        let lab = Lab::new(&crate::harness::options::Options::default()).unwrap();
        let copies = program.start(&lab, None, 1).unwrap();
        let end = Instant::now() + LIMIT;
        let mut files = Vec::new();
        while files.is_empty() && Instant::now() < end {
            files = shared(copies.pids()[0]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(copies.within(Duration::ZERO).finish_in_time().unwrap(), None);
        let left: Vec<_> = files.iter().filter(|file| file.exists()).collect();
        assert!(!files.is_empty() && left.is_empty(), "{left:?} of {files:?}");
    }

    #[test]
    fn tests_of_mpi4py_are_run_and_one_that_fails_is_told_needs_mpi4py() {
        let (dir, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tests = source.path().join("test");
        fs::create_dir(&tests).unwrap();
        let test = |name: &str, what: &str| {
            let text = format!(
                "import unittest\nfrom mpi4py import MPI\n\n\nclass Test(unittest.TestCase):\n    \
                 def test_it(self):\n        {what}\n"
            );
            fs::write(tests.join(name), text).unwrap();
        };
        test("test_cco_sum.py", "self.assertEqual(MPI.COMM_WORLD.allreduce(1), 2)");
        test("test_spawn.py", "self.fail('it exchanges no messages')");
        let program = match mpi4py(dir.path(), 2, source.path()) {
            Ok(program) => program.with_times(2),
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        let lab = Lab::new(&crate::harness::options::Options::default()).unwrap();
        let run = || program.start(&lab, None, 1).and_then(Copies::finish);
        assert!(run().unwrap() > 0.0);
        test("test_p2p_rank.py", "self.assertEqual(MPI.COMM_WORLD.rank, 0)");
        let error = format!("{:#}", run().unwrap_err());
        assert!(error.contains("test_p2p_rank"), "{error}");
    }

    #[test]
    fn a_copy_that_fails_is_no_late_one() {
        let copies = |scripts: &[&str]| {
            let start =
                |script: &&str| Running::start(Command::new("sh").args(["-c", script])).unwrap();
            let running = scripts.iter().map(start).collect();
            let deadline = Instant::now() + Duration::from_millis(500);
            Copies { running, started_at_ns: 0, deadline }
        };
        let (done, late) = ("echo '{\"finished_at_ns\": 2000000000}'", "exec sleep 60");
        assert_eq!(copies(&[done, late]).finish_each().unwrap(), [Some(2.0), None]);
        assert_eq!(copies(&[late, done]).finish_in_time().unwrap(), None);
        assert!(copies(&[late, "exit 3"]).finish_in_time().is_err(), "it was not killed");
        let error = format!("{:#}", copies(&[late]).finish().unwrap_err());
        assert!(error.contains("did not end in its time"), "{error}");
    }

    #[test]
    fn scikit_learn_clusters_its_points_needs_sklearn() {
        let dir = tempfile::tempdir().unwrap();
        match scikit_learn(dir.path()) {
            Ok(program) => small(&program),
            Err(error) => gang_harness::skipped(format!("{error:#}")),
        }
    }

    #[test]
    fn pytorch_trains_its_layers_needs_torch() {
        let dir = tempfile::tempdir().unwrap();
        match pytorch(dir.path()) {
            Ok(program) => small(&program),
            Err(error) => gang_harness::skipped(format!("{error:#}")),
        }
    }

    #[test]
    fn numpy_inverts_its_matrix_needs_openblas() {
        let dir = tempfile::tempdir().unwrap();
        match numpy(dir.path()) {
            Ok(program) => small(&program),
            Err(error) => gang_harness::skipped(format!("{error:#}")),
        }
    }
}
