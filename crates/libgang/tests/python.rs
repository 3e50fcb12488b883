//! The Python package against a daemon: as its wheel brings it, and as it is here.

mod place;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gang_harness::skipped;
use place::{Place, here};

fn bindings() -> PathBuf {
    here().join("../../bindings/python")
}

/// The system's Python first: its packages are those that scripts/deps installs.
fn python_with(modules: &str) -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

fn done(line: &mut Command) -> Output {
    let output = line.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line:?}: {}: {said}", output.status);
    output
}

/// Runs Python with the package that is in a directory.
fn run(place: &Place, python: &str, package: &Path, arguments: &[&Path]) -> Output {
    let mut line = place.bounded(python);
    line.args(arguments)
        .current_dir(place.directory.path())
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let gang = place.programs.join("gang");
    if gang.exists() {
        line.env("GANG_PROGRAM", gang);
    }
    done(&mut line)
}

#[test]
fn the_wheel_brings_what_the_package_promises() {
    let Some(python) = python_with("setuptools, wheel, pip") else {
        skipped("it takes Python 3 with pip, setuptools and wheel");
        return;
    };
    let Some(place) = Place::new() else { return };
    let (wheels, site) = (place.path("wheels"), place.path("site"));
    done(Command::new(here().join("../../scripts/build-wheel")).arg(python).arg(&wheels));
    let wheel = fs::read_dir(&wheels).unwrap().next().unwrap().unwrap().path();
    let expected = concat!("gang-", env!("CARGO_PKG_VERSION"), "-py3-none-any.whl");
    assert_eq!(wheel.file_name().unwrap(), expected, "the version of pyproject.toml");
    done(
        Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"])
            .args([&site, &wheel]),
    );
    let tests = bindings().join("tests");
    let arguments = ["-m", "unittest", "discover", "-v", "-s"].map(Path::new);
    let output = run(&place, python, &site, &[&arguments[..], &[&tests]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    said.lines().filter(|line| line.contains(" ... skipped ")).for_each(skipped);
}

#[test]
fn the_example_in_python_runs_a_pool_as_one_job() {
    let Some(python) = python_with("ctypes") else {
        skipped("it takes Python 3");
        return;
    };
    let Some(place) = Place::new() else { return };
    let output = run(&place, python, &bindings(), &[&bindings().join("examples/pool.py")]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("8 sums by ") && said.contains(" in one job"), "{said}");
}

#[test]
fn structs_and_numbers_in_python_are_those_of_c() {
    let Some(python) = python_with("ctypes") else {
        skipped("it takes Python 3");
        return;
    };
    let Some(place) = Place::new() else { return };
    let of_c = place.run(place.compile("cc", &here().join("tests/layout.c"), &[], "layout"));
    let of_python = run(&place, python, &bindings(), &[&bindings().join("tests/layout.py")]);
    assert_eq!(String::from_utf8_lossy(&of_python.stdout), String::from_utf8_lossy(&of_c.stdout));
}
