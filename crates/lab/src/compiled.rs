//! Programs in C that the lab carries as text and compiles where it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::child::Running;
use crate::programs::Programs;

const HEADER: &str = include_str!("../../libgang/include/gang.h");
const LIMIT: Duration = Duration::from_secs(120);

/// Compiles a program into `dir`; `flags` come after the source.
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
    compile_by("gcc", dir, name, source, flags)
        .with_context(|| format!("{name} needs a compiler: install the package gcc"))
}

/// Like [`compile`], by another compiler that takes gcc's options.
pub fn compile_by(
    compiler: &str,
    dir: &Path,
    name: &str,
    source: &str,
    flags: &[&str],
) -> Result<PathBuf> {
    let text = dir.join(name).with_extension("c");
    let program = dir.join(name);
    fs::write(&text, source).with_context(|| format!("writing {}", text.display()))?;
    let mut compiler = Command::new(compiler);
    compiler.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(&text).args(flags);
    Running::start(&mut compiler)?.finish(Instant::now() + LIMIT)?;
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
