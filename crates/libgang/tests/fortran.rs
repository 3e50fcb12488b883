//! The Fortran module against a daemon: compiled as for installation, and programs with it.

mod place;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use gang_harness::skipped;
use place::{Place, here};

fn bindings() -> PathBuf {
    here().join("../../bindings/fortran")
}

/// A place with the module, where there is a compiler.
fn place() -> Option<Place> {
    if Command::new("gfortran").arg("--version").output().is_err() {
        skipped("it takes gfortran");
        return None;
    }
    let place = Place::new()?;
    let script = here().join("../../scripts/build-fortran");
    done(Command::new(script).arg(place.directory.path()));
    Some(place)
}

fn done(line: &mut Command) -> Output {
    let output = line.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line:?}: {}: {said}", output.status);
    output
}

/// A program in Fortran 2008, unless the flags name another standard.
fn compiled(place: &Place, sources: &[PathBuf], flags: &[&str]) -> PathBuf {
    let program = place.path("program");
    let directory = place.directory.path();
    done(
        Command::new("gfortran")
            .args(["-std=f2008", "-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args(flags)
            .arg("-I")
            .arg(directory)
            .args(sources)
            .arg("-L")
            .arg(directory)
            .args(["-lgang_fortran", "-lgang", "-o"])
            .arg(&program),
    );
    program
}

/// The output of a program in Fortran.
fn run(place: &Place, source: &Path, flags: &[&str]) -> String {
    let program = compiled(place, &[source.into()], flags);
    String::from_utf8(place.run(&program).stdout).unwrap()
}

#[test]
fn program_of_llnl_paper_runs_in_fortran() {
    let Some(place) = place() else { return };
    let sources = ["paper.f", "parallel.f"].map(|name| bindings().join("tests").join(name));
    // No standard of Fortran has getpid, and later ones call its own style obsolescent.
    for standard in ["-std=gnu", "-std=legacy"] {
        place.is_the_job_of_the_paper(&compiled(&place, &sources, &[standard, "-Wno-pedantic"]));
    }
}

#[test]
fn llnl_calls_from_fortran_have_documented_results() {
    let Some(place) = place() else { return };
    for flags in [["-std=gnu", "-O0", "-fcheck=all"], ["-std=gnu", "-O2", "-flto"]] {
        assert_eq!(run(&place, &bindings().join("tests/llnl.f90"), &flags), "all calls\n");
    }
}

#[test]
fn fortran_program_becomes_gang_and_sees_slots() {
    let Some(place) = place() else { return };
    let said = run(&place, &bindings().join("examples/gang.f90"), &["-O2"]);
    assert_eq!(said, "1 processes, 3 slots seen\n");
}

#[test]
fn calls_from_fortran_have_their_documented_results() {
    let Some(place) = place() else { return };
    for flags in [["-O0", "-fopenmp", "-fcheck=all"], ["-O2", "-fopenmp", "-flto"]] {
        assert_eq!(run(&place, &bindings().join("tests/calls.f90"), &flags), "all calls\n");
    }
}

#[test]
fn structs_and_numbers_in_fortran_are_those_of_c() {
    let Some(place) = place() else { return };
    let of_c =
        place.run(place.compile("cc", &here().join("tests/layout.c"), &["-DBARRIERS"], "layout"));
    let of_fortran = run(&place, &bindings().join("tests/layout.f90"), &[]);
    assert_eq!(of_fortran, String::from_utf8_lossy(&of_c.stdout));
}
