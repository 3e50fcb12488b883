//! Programs in C that the lab carries as text and compiles where it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::harness::child::Running;
use crate::harness::programs::Programs;

const HEADER: &str = include_str!("../../../libgang/include/gang.h");
const LIMIT: Duration = Duration::from_secs(300);

/// Compiles a program into `dir`; `flags` come after the source.
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
    compile_by(("gcc", "the package gcc"), dir, name, source, flags)
}

/// Like [`compile`], by another compiler that takes gcc's options, and what it comes with.
///
/// Where it does not compile the program, its own words say why.
pub fn compile_by(
    (compiler, comes_with): (&str, &str),
    dir: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> Result<PathBuf> {
    let text = dir.join(name).with_extension("c");
    let program = dir.join(name);
    fs::write(&text, source).with_context(|| format!("writing {}", text.display()))?;
    let mut command = Command::new(compiler);
    command.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(&text).args(flags);
    Running::start(&mut command)
        .with_context(|| format!("{name} needs the compiler {compiler}: install {comes_with}"))?
        .finish(Instant::now() + LIMIT)
        .with_context(|| format!("{compiler} could not make {name}"))?;
    Ok(program)
}

/// Like [`compile`], for a program that uses libgang, which is linked statically.
pub fn compile_with_libgang(
    programs: &Programs,
    dir: &Path,
    name: &str,
    source: &str,
) -> Result<PathBuf> {
    let archive = programs.libgang()?.display().to_string();
    let header = dir.join("gang.h");
    fs::write(&header, HEADER).with_context(|| format!("writing {}", header.display()))?;
    let include = format!("-I{}", dir.display());
    compile(dir, name, source, &[&include, &archive, "-lpthread", "-ldl", "-lm"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_compiler_differs_from_failing_one() {
        let dir = tempfile::tempdir().unwrap();
        let calls = "int missing_function(void); int main(void) { return missing_function(); }";
        let absent = ("gang-test-no-compiler", "nothing");
        let error = compile_by(absent, dir.path(), "calls", calls, &[]).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("needs the compiler gang-test-no-compiler: install nothing"),
            "{error}"
        );
        let error = format!("{:#}", compile(dir.path(), "calls", calls, &[]).unwrap_err());
        if error.contains("install the package gcc") {
            gang_harness::skipped(error);
            return;
        }
        assert!(error.starts_with("gcc could not make calls"), "{error}");
        assert!(error.contains("missing_function") && !error.contains("install"), "{error}");
    }
}
