//! Programs of MPI, with a rank for each CPU. Ranks spin for their messages.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gang_picture::python_with;

use super::Program;
use crate::harness::compiled::compile_by;
use crate::harness::lab::words;

const EXCHANGE: &str = include_str!("../../../../../demo/exchange.c");
const TESTS: &str = include_str!("../../../../../demo/mpi4py_tests.py");

/// A program of Open MPI with so many ranks; an error names the packages where they are missing.
pub fn open_mpi(dir: &Path, ranks: usize) -> Result<Program> {
    let compiler = ("mpicc.openmpi", "the packages openmpi-bin and libopenmpi-dev");
    let program = compile_by(compiler, dir, "exchange", EXCHANGE, &[])?;
    let command = [ranks_of_open_mpi(ranks), vec![program.display().to_string(), "10000".into()]];
    Ok(Program::new("Open MPI", command.concat()))
}

/// The same program of MPICH; an error names the packages where they are missing.
pub fn mpich(dir: &Path, ranks: usize) -> Result<Program> {
    let compiler = ("mpicc.mpich", "the packages mpich and libmpich-dev");
    let program = compile_by(compiler, dir, "exchange_mpich", EXCHANGE, &[])?;
    let command = [words(&format!("mpirun.mpich -n {ranks}")), vec![program.display().to_string()]];
    Ok(Program::new("MPICH", [command.concat(), vec!["10000".into()]].concat()))
}

/// mpi4py's own tests that exchange messages, of its unpacked `source`, by so many ranks; an error
/// names the packages where they are missing.
pub fn mpi4py(dir: &Path, ranks: usize, source: &Path) -> Result<Program> {
    let python =
        python_with("mpi4py").context("install the packages python3-mpi4py and openmpi-bin")?;
    let script = dir.join("mpi4py_tests.py");
    fs::write(&script, TESTS).with_context(|| format!("writing {}", script.display()))?;
    let of_python = [python.into(), script.display().to_string(), source.display().to_string()];
    let command = [ranks_of_open_mpi(ranks), of_python.to_vec()].concat();
    Ok(Program::new("mpi4py's tests", command))
}

/// The command that starts so many ranks. Bound, those of all jobs would have the same CPUs.
fn ranks_of_open_mpi(ranks: usize) -> Vec<String> {
    words(&format!("mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -n {ranks}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::harness::lab::Lab;
    use crate::harness::real_programs::Copies;
    use crate::harness::real_programs::copies::LIMIT;
    use crate::harness::real_programs::tests::runs_or_says_why_not;

    #[test]
    fn ranks_exchange_their_values_needs_open_mpi() {
        runs_or_says_why_not(|dir| open_mpi(dir, 2));
    }

    #[test]
    fn ranks_exchange_their_values_needs_mpich() {
        runs_or_says_why_not(|dir| mpich(dir, 2));
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
    fn late_ranks_leave_nothing_behind_needs_open_mpi() {
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
    fn failing_test_of_mpi4py_is_named_needs_mpi4py() {
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
}
