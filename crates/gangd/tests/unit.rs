//! The daemon does all it can with the capabilities that its systemd unit leaves it.

mod place;

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::Command,
};

use gang_harness::skipped;
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
};
use gang_protocol::{client::Client, v1};
use place::{
    Place, Program, has_backend, is_root, job_with, machine, registration, wait_until, what_is_left,
};

/// Known to every machine, as daemon.
const USER: u32 = 1;

/// The value of a line of the unit.
fn in_unit(name: &str) -> String {
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/systemd/gangd.service.in");
    let unit = fs::read_to_string(unit).unwrap();
    let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the unit has no {name}")).to_owned()
}

/// The words that make a program one with the unit's capabilities, and no others; `None` where
/// there is no setpriv(1) that knows them.
fn with_capabilities_of_the_unit() -> Option<Vec<String>> {
    let set = in_unit("CapabilityBoundingSet");
    let names = set.split(' ').map(|name| {
        let name = name.strip_prefix("CAP_").expect("the name of a capability");
        format!(",+{}", name.to_lowercase())
    });
    let set: String = ["-all".to_owned()].into_iter().chain(names).collect();
    let words = ["setpriv", "--no-new-privs", "--bounding-set", &set].map(str::to_owned);
    let can = Command::new(&words[0]).args(&words[1..]).arg("true").status();
    if !can.is_ok_and(|status| status.success()) {
        skipped("there is no setpriv that knows the capabilities of the unit");
        return None;
    }
    Some(words.to_vec())
}

/// The backends that can be used, and whether it is measured.
fn means(place: &Place) -> (Vec<v1::Backend>, v1::Measuring, Option<String>) {
    wait_until("it is known whether it is measured", || {
        place.status().measuring != v1::Measuring::starting
    });
    let status = place.status();
    (status.backends, status.measuring, status.not_measured)
}

#[test]
fn unit_bounds_memory_and_closes_the_history() {
    assert!(in_unit("MemoryMax").ends_with('G'), "a daemon that takes too much is killed first");
    assert_eq!(in_unit("OOMPolicy"), "continue", "its guardian lives on, and releases");
    let adjust: i32 = in_unit("OOMScoreAdjust").parse().unwrap();
    assert!((-999..0).contains(&adjust), "later than programs, and not never: {adjust}");
    let mode = u32::from_str_radix(&in_unit("StateDirectoryMode"), 8).unwrap();
    assert_eq!(mode & 0o027, 0, "others read no history, and write nothing: {mode:o}");
}

#[test]
fn needs_root_unit_takes_nothing_from_the_daemon() {
    if !is_root() {
        return;
    }
    let Some(launcher) = with_capabilities_of_the_unit() else { return };
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let with_all = means(&Place::new(&[]));
    let place = Place::launched(&launcher, "", &[]);
    assert_eq!(means(&place), with_all);
    let daemon = fs::read_to_string(format!("/proc/{}/status", place.pid())).unwrap();
    let capabilities = daemon.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let capabilities = u64::from_str_radix(capabilities.trim(), 16).unwrap();
    let (chown, admin) = (1, 1 << 21);
    assert_eq!(capabilities & (chown | admin), 0, "{capabilities:x}");

    // A program of a user is raised, paused, ended and left as it was.
    let program = spinner_of(USER);
    let job = job_with(&place, &program, 1);
    wait_until("it has slots", || place.job(job).unwrap().slots > 3);
    assert_eq!(place.client().check().unwrap().violations, []);
    let mut client = place.client();
    client.suspend(job).unwrap();
    client.resume(job).unwrap();
    client.set_policy(job, v1::Policy::none).unwrap();
    client.set_policy(job, v1::Policy::gang).unwrap();
    assert_eq!(client.show_job(job).unwrap().processes.unwrap().len(), 1);
    client.remove_process(job, program.pid_i64()).unwrap();
    wait_until("it is as it was", || what_is_left(program.pid()).is_none());
    let job = job_with(&place, &program, machine());

    // Nor is one ended for its time as a real-time program, beside another gang.
    let mut limited = Command::new("prlimit");
    limited.args(["--rttime=200000:200000", "bash", "-c", place::SPIN]);
    let limited = Program::start(limited.uid(USER).gid(USER));
    let of_limited = job_with(&place, &limited, machine());
    let slots = || place.job(of_limited).expect("it lives on").slots;
    let before = slots();
    wait_until("it has had more than its limit in slots", || slots() > before + 40);
    client.kill(job, 9).unwrap();
    wait_until("it has ended", || place.job(job).is_none());
}

fn spinner_of(uid: u32) -> Program {
    let mut spinner = Command::new("bash");
    Program::start(spinner.args(["-c", place::SPIN]).uid(uid).gid(uid))
}

#[test]
fn needs_root_unit_lets_jobs_be_in_groups_of_users() {
    if !has_backend("freeze") {
        return;
    }
    let Some(launcher) = with_capabilities_of_the_unit() else { return };
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let root = Hierarchies::detect(&Roots::default()).unwrap().v2.unwrap();
    let home = Group::at(root).child(format!("gang-test-{}-delegated", std::process::id()));
    home.create().unwrap();
    for name in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(home.path().join(name), Some(USER), Some(USER)).unwrap();
    }
    let program = spinner_of(USER);
    home.add(program.pid()).unwrap();
    let place = Place::launched(&launcher, "[cgroups]\nleave = 'never'\n", &[]);
    let mut client = Client::connect(&place.socket()).unwrap();
    let job = client.register(&registration("job", 1)).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    wait_until("it has slots", || place.job(job).unwrap().slots > 3);
    let cgroup = place.job(job).unwrap().cgroup.unwrap();
    assert!(cgroup.contains("-delegated/"), "it is below its caller's: {cgroup}");
    client.remove_process(job, program.pid_i64()).unwrap();
    wait_until("it is as it was", || what_is_left(program.pid()).is_none());
    drop((client, program, place));
    wait_until("the test's group can go", || home.remove().is_ok());
}
