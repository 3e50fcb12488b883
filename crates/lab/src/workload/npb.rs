//! The NAS Parallel Benchmarks themselves, where somebody has built them for MPI.
//!
//! Versions before 3.4 name a program after its number of ranks, as bin/lu.W.2; later ones take any
//! number, as bin/lu.W.x.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The program of a benchmark below the directory of NPB; an error names what was looked for.
pub fn find(directory: &Path, benchmark: &str, class: &str, ranks: usize) -> Result<PathBuf> {
    let named = |end: &str| directory.join("bin").join(format!("{benchmark}.{class}.{end}"));
    let places = [named("x"), named(&ranks.to_string())];
    let found = places.iter().find(|path| path.is_file()).cloned();
    found.with_context(|| {
        let places = places.each_ref().map(|path| path.display().to_string());
        format!("there is no {}", places.join(" and no "))
    })
}

/// The time of a benchmark in seconds, by its output, which has to say that it is verified.
pub fn time_s(output: &str) -> Result<f64> {
    let value = |key: &str| {
        let line = output.lines().find(|line| line.trim_start().starts_with(key));
        line.and_then(|line| line.split_once('=')).map(|(_, value)| value.trim())
    };
    let verified = value("Verification").context("it says nothing of its results")?;
    ensure!(verified == "SUCCESSFUL", "its results are wrong: {verified}");
    let time = value("Time in seconds").context("it does not say its time")?;
    time.parse().with_context(|| format!("its time is no number: {time}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const OUTPUT: &str = "\n LU Benchmark Completed.\n Class           =                        W
 Iterations      =                      300\n Time in seconds =                     3.25
 Total processes =                        2\n Mop/s total     =                  5012.34
 Operation type  =           floating point\n Verification    =               SUCCESSFUL\n";

    #[test]
    fn time_of_verified_run_is_read() {
        assert_eq!(time_s(OUTPUT).unwrap(), 3.25);
        let wrong = OUTPUT.replace("SUCCESSFUL", "UNSUCCESSFUL");
        assert!(time_s(&wrong).unwrap_err().to_string().contains("UNSUCCESSFUL"));
        assert!(time_s("killed\n").unwrap_err().to_string().contains("nothing of its results"));
        let without = OUTPUT.replace("Time in", "Times");
        assert!(time_s(&without).unwrap_err().to_string().contains("its time"));
    }

    #[test]
    fn program_is_found_by_either_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        let error = find(dir.path(), "sp", "W", 2).unwrap_err().to_string();
        assert!(error.contains("bin/sp.W.x") && error.contains("bin/sp.W.2"), "{error}");
        for name in ["lu.W.2", "cg.W.x"] {
            fs::write(dir.path().join("bin").join(name), "").unwrap();
        }
        assert!(find(dir.path(), "lu", "W", 2).unwrap().ends_with("lu.W.2"));
        assert!(find(dir.path(), "cg", "W", 2).unwrap().ends_with("cg.W.x"));
    }
}
