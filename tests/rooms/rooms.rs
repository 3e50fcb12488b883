//! Rules between the rooms that no compiler checks: which room may use which, where unsafe code may
//! be, and that every dependency has its reason in ARCHITECTURE.md.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use files::{files_of, root};
use gang_harness::skipped;
use serde_json::Value;

/// Each room, and the rooms that it may use.
const ROOMS: [(&str, &[&str]); 24] = [
    ("gang-bpf", &[]),
    ("gang-schedule", &[]),
    ("gang-timetable", &["gang-schedule"]),
    ("gang-conductor", &["gang-schedule", "gang-timetable"]),
    ("gang-cluster", &["gang-schedule"]),
    ("gang-etcd", &["gang-cluster", "gang-schedule"]),
    ("gang-linux", &[]),
    ("gang-engine", &["gang-linux", "gang-schedule", "gang-timetable"]),
    ("gang-protocol", &["gang-schedule"]),
    (
        "gangd",
        &[
            "gang-bpf",
            "gang-cluster",
            "gang-conductor",
            "gang-engine",
            "gang-etcd",
            "gang-linux",
            "gang-net",
            "gang-protocol",
            "gang-schedule",
            "gang-timetable",
        ],
    ),
    ("gang", &["gang-protocol", "gang-view"]),
    ("gang-doctor", &["gang-bpf", "gang-linux", "gang-protocol"]),
    ("gang-lab", &["gang-linux", "gang-picture", "gang-protocol"]),
    ("gang-trace", &["gang-linux", "gang-picture", "gang-protocol"]),
    ("gang-picture", &[]),
    ("gang-net", &[]),
    ("gang-fabric", &["gang-net", "gang-protocol"]),
    ("gang-view", &["gang-protocol"]),
    ("libgang", &["gang-protocol"]),
    ("gang-rooms", &[]),
    ("gang-storm", &["gang-conductor", "gang-schedule", "gang-timetable"]),
    ("gang-surroundings", &[]),
    ("gang-harness", &[]),
    ("gang-daemon", &["gang-harness", "gang-protocol"]),
];

/// Packages that every room may use in its tests besides itself.
const IN_TESTS: &[&str] = &["gang-daemon", "gang-harness"];

/// Rooms that decide, by their directories: without Linux, a clock, a file or a random number.
const PURE: [(&str, &str); 5] = [
    ("gang-schedule", "crates/schedule"),
    ("gang-timetable", "crates/timetable"),
    ("gang-conductor", "crates/conductor"),
    ("gang-cluster", "crates/cluster"),
    ("gang-net", "crates/net"),
];

/// The simulation runs anywhere, too. Its program reads arguments and files.
const SIMULATION: &str = "gang-storm";

/// Packages that ask Linux for something.
const OF_LINUX: [&str; 4] = ["gang-linux", "rustix", "libc", "nix"];

/// All that rooms that decide use besides rooms: data and errors.
const OF_DATA: [&str; 3] = ["serde", "serde_json", "thiserror"];

/// Rooms that may hold unsafe code, by their directories, and a file with a call that no library
/// has which links statically, too.
const UNSAFE: [&str; 4] =
    ["crates/linux", "crates/libgang", "crates/fabric", "crates/protocol/src/caller.rs"];

/// The packages of a workspace, as cargo sees them.
fn packages(manifest: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root().join(manifest))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata of {manifest}: {errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap()
}

fn dependencies(package: &Value) -> &[Value] {
    package["dependencies"].as_array().unwrap()
}

fn is_ours(dependency: &Value) -> bool {
    dependency["path"].is_string()
}

fn may_use(room: &str, whom: &str, in_tests: bool) -> bool {
    ROOMS.iter().any(|(name, others)| *name == room && others.contains(&whom))
        || (in_tests && (room == whom || IN_TESTS.contains(&whom)))
}

#[test]
fn rooms_use_whom_they_may() {
    let mut wrong = Vec::new();
    for package in packages("Cargo.toml") {
        let room = name(&package);
        assert!(
            ROOMS.iter().any(|(known, _)| *known == room),
            "{room} is a new room: say here whom it may use"
        );
        for dependency in dependencies(&package).iter().filter(|d| is_ours(d)) {
            let in_tests = dependency["kind"] == "dev";
            if !may_use(room, name(dependency), in_tests) {
                let why = if in_tests { " in its tests" } else { "" };
                wrong.push(format!("{room} uses {}{why}", name(dependency)));
            }
        }
    }
    assert!(wrong.is_empty(), "rooms may not use each other like this: {}", wrong.join(", "));
}

#[test]
fn rooms_that_decide_are_built_without_linux() {
    for room in PURE.map(|(room, _)| room).into_iter().chain([SIMULATION]) {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--prefix=none", "--edges=normal,build", "--package", room])
            .current_dir(root())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo tree of {room}: {errors}");
        let tree = String::from_utf8(output.stdout).unwrap();
        let used: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(used.contains(room), "cargo tree shows {used:?}");
        let wrong: Vec<_> = OF_LINUX.iter().filter(|name| used.contains(**name)).collect();
        assert!(wrong.is_empty(), "{room} is built with {wrong:?}");
    }
    for package in packages("Cargo.toml") {
        let room = name(&package);
        let used = dependencies(&package).iter().filter(|it| !is_ours(it) && it["kind"].is_null());
        let odd: Vec<&str> = used.map(name).filter(|used| !OF_DATA.contains(used)).collect();
        let decides = PURE.iter().any(|(pure, _)| *pure == room);
        assert!(!decides || odd.is_empty(), "{room} decides, and uses {odd:?}");
    }
    // Clippy refuses the same calls in each room that decides.
    let of = |directory: &str| fs::read_to_string(root().join(directory).join("clippy.toml"));
    for (room, directory) in PURE {
        assert_eq!(of(directory).unwrap(), of("crates/schedule").unwrap(), "of {room}");
    }
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    let root = root();
    let mut wrong = Vec::new();
    for package in packages("Cargo.toml") {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        let room = manifest.parent().unwrap();
        // The workspace denies unsafe code to packages that take its lints.
        let text = fs::read_to_string(&manifest).unwrap();
        let takes_lints = text.lines().skip_while(|line| *line != "[lints]").nth(1);
        assert_eq!(takes_lints, Some("workspace = true"), "the lints of {}", manifest.display());
        if UNSAFE.iter().any(|allowed| root.join(allowed) == room) {
            continue;
        }
        for file in sources(room) {
            if UNSAFE.iter().any(|allowed| root.join(allowed) == file) {
                continue;
            }
            // Not written as one word, so that this file is not found.
            let exceptions =
                ["allow", "expect", "warn"].map(|level| format!("{level}(unsafe_code"));
            let text = fs::read_to_string(&file).unwrap();
            if exceptions.iter().any(|exception| text.contains(exception)) {
                wrong.push(file.display().to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe code is not for {}", wrong.join(", "));
}

/// Where nobody may wait for a program that executes another one.
const FOLLOW_THE_CLOCK: [&str; 2] = ["crates/gangd/src/conduct", "crates/engine/src/roster.rs"];

#[test]
fn the_conductor_reads_no_file_that_makes_it_wait() {
    let waits = ["process::stat(", "thread_stat(", "singles::is_there(", "descendants("];
    let root = root();
    let mut wrong = Vec::new();
    for of in FOLLOW_THE_CLOCK.map(|of| root.join(of)) {
        for file in if of.is_dir() { sources(&of) } else { vec![of] } {
            let text = fs::read_to_string(&file).unwrap();
            let is_reader = file.ends_with("conduct/readers.rs");
            let found = waits.iter().find(|call| !is_reader && text.contains(**call));
            wrong.extend(found.map(|call| format!("{call}…) in {}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "the conductor waits in {}", wrong.join(", "));
}

/// The dependencies of a package in a lock file.
fn locked(lock: &str, package: &str) -> BTreeSet<String> {
    let begin = format!("[[package]]\nname = \"{package}\"\n");
    let (_, after) = lock.split_once(&begin).unwrap_or_else(|| panic!("no {package} in the lock"));
    let one = after.split("[[package]]").next().unwrap();
    let list = one.split_once("dependencies = [").map_or("", |(_, list)| list);
    // Of one of which there are several versions, the version comes after the name.
    let names = list.lines().filter_map(|line| line.trim().strip_prefix('"'));
    names.filter_map(|name| name.split([' ', '"']).next()).map(str::to_owned).collect()
}

#[test]
fn fuzz_lock_names_the_versions_in_use() {
    let lock = fs::read_to_string(root().join("fuzz/Cargo.lock")).unwrap();
    for package in packages("fuzz/Cargo.toml").iter().chain(&packages("Cargo.toml")) {
        // Tests are not built with the fuzz targets.
        let wanted = dependencies(package).iter().filter(|it| it["kind"] != "dev").map(name);
        let fuzzed =
            ["gangd-fuzz", "gang-linux", "gang-protocol", "gang-schedule", "gang-timetable"];
        if !fuzzed.contains(&name(package)) {
            continue;
        }
        let wanted: BTreeSet<String> = wanted.map(str::to_owned).collect();
        assert_eq!(locked(&lock, name(package)), wanted, "fuzz/Cargo.lock of {}", name(package));
    }
}

/// All Rust files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    files_of(directory, &["rs"])
}

#[test]
fn every_dependency_has_its_reason() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let heading = "## Dependencies";
    let section = text.split_once(heading).map(|(_, rest)| rest);
    let section = section.unwrap_or_else(|| panic!("ARCHITECTURE.md has no {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    // | dependency | used by | why |
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let dependency = cells.next()?.trim_end_matches('`');
        let users: BTreeSet<&str> = cells.next()?.split(", ").collect();
        cells.next().filter(|why| why.trim().len() > 2)?;
        Some((dependency, users))
    });
    let mut table = BTreeMap::new();
    for (dependency, users) in rows {
        let before = table.insert(dependency, users);
        assert!(before.is_none(), "ARCHITECTURE.md has two rows for {dependency}");
    }
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in ["Cargo.toml", "fuzz/Cargo.toml"].into_iter().flat_map(packages) {
        for dependency in dependencies(&package).iter().filter(|d| !is_ours(d)) {
            let users = used.entry(name(dependency).to_owned()).or_default();
            let in_tests = if dependency["kind"] == "dev" { " (tests)" } else { "" };
            users.insert(format!("{}{in_tests}", short(name(&package))));
        }
    }
    // A room that uses something anyway does so in its tests, too.
    for users in used.values_mut() {
        *users = users
            .iter()
            .filter(|user| user.strip_suffix(" (tests)").is_none_or(|room| !users.contains(room)))
            .cloned()
            .collect();
    }
    let line = |users: Option<BTreeSet<&str>>| {
        let users: Vec<&str> = users.unwrap_or_default().into_iter().collect();
        if users.is_empty() { "nobody".to_owned() } else { users.join(", ") }
    };
    let names: BTreeSet<&str> = table.keys().copied().chain(used.keys().map(|k| &**k)).collect();
    let mut wrong = Vec::new();
    for name in names {
        let written = line(table.get(name).cloned());
        let true_now = line(used.get(name).map(|users| users.iter().map(|u| &**u).collect()));
        if written != true_now {
            wrong.push(format!("{name}: it says {written}, the manifests say {true_now}"));
        }
    }
    assert!(wrong.is_empty(), "the table in ARCHITECTURE.md is wrong:\n{}", wrong.join("\n"));
}

/// A room as people call it.
fn short(package: &str) -> &str {
    match package {
        "gangd-fuzz" => "fuzz",
        _ => package.strip_prefix("gang-").unwrap_or(package),
    }
}

/// A fault that cannot be planted any more is looked for by nobody.
#[test]
fn faults_of_storms_can_be_planted() {
    let faults = root().join("tests/storm/faults");
    let mut patches: Vec<PathBuf> =
        fs::read_dir(&faults).unwrap().map(|entry| entry.unwrap().path()).collect();
    patches.retain(|path| path.extension().is_some_and(|it| it == "patch"));
    assert!(patches.len() >= 20, "{} faults", patches.len());
    let apply = |patch: &Path| {
        Command::new("git").args(["apply", "--check"]).arg(patch).current_dir(root()).output()
    };
    let mut wrong = Vec::new();
    for patch in patches {
        match apply(&patch) {
            Ok(output) if output.status.success() => {}
            Ok(output) => wrong.push(String::from_utf8_lossy(&output.stderr).into_owned()),
            // A tree of sources alone needs no git.
            Err(error) => return skipped(format!("git cannot be executed: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}
