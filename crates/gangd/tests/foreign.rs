//! Members of a job that become another user's: nothing is done to them in the name of the job's
//! owner.

mod place;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use gang_daemon::{are_built, stderr, stdout};
use gang_harness::skipped;
use gang_linux::{
    cgroup::Group,
    process,
    sched::{self, SchedPolicy},
};
use gang_protocol::v1::JobState;
use place::{Place, Program, SPIN, has_backend, job_with, machine, wait_busily_until, wait_until};

/// The owner of the job, and the other user, known to every machine.
const OWNER: u32 = 65_534;
const OTHER: u32 = 1;

/// A command of gang, as the owner gives it.
fn as_owner(place: &Place, words: &[&str]) -> Command {
    let gang = place.gang(&[]);
    let mut command = place.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(gang.get_program()).args(words).current_dir("/");
    command
}

/// A job in which a program spins that has become another user's, beside one of the owner's.
struct Mixed {
    place: Place,
    job: i64,
    own: u32,
    foreign: u32,
    /// When it was first seen to be another user's.
    became: Instant,
    _program: Program,
    _rival: Program,
}

impl Mixed {
    fn start(backend: &str) -> Option<Mixed> {
        Mixed::among(backend, 0)
    }

    /// The same in a job with so many processes more that sleep.
    fn among(backend: &str, sleepers: usize) -> Option<Mixed> {
        if !has_backend(backend) || !are_built(&["gang"]) {
            return None;
        }
        let place = Place::new(&["--backend", backend]);
        place.open_to_everybody(0o755);
        let became = place.path("setpriv");
        let found = Command::new("sh").args(["-c", "command -v setpriv"]).output().unwrap();
        let Some(setpriv) = stdout(&found).lines().next().map(PathBuf::from) else {
            skipped("needs setpriv");
            return None;
        };
        gang_daemon::copy(&[setpriv], &became);
        fs::set_permissions(&became, fs::Permissions::from_mode(0o4755)).unwrap();
        let rival = Program::spinner();
        job_with(&place, &rival, machine());
        let spin = format!("bash -c '{SPIN}'");
        let became = format!("{} --reuid {OTHER} --regid {OTHER} --clear-groups", became.display());
        // It is a member of its owner's before, as all others are.
        let sleep = format!("for i in $(seq {sleepers}); do sleep infinity & done");
        let script = format!("{sleep}; (sleep 0.5; exec {became} {spin}) & exec {spin}");
        let mut run =
            as_owner(&place, &["run", "-q", "--name", "mixed", "--", "sh", "-c", &script]);
        let program = Program::start(run.stdin(Stdio::null()));
        let is_of = |uid: u32| {
            let all = process::descendants(Path::new("/proc"), program.pid()).unwrap();
            all.into_iter().find(|&pid| {
                process::owner(Path::new("/proc"), pid).is_ok_and(|owner| owner.real == uid)
                    && process::command(Path::new("/proc"), pid)
                        .is_ok_and(|command| command.starts_with("bash"))
            })
        };
        wait_busily_until("both are there", || is_of(OTHER).is_some() && is_of(OWNER).is_some());
        let became = Instant::now();
        let (own, foreign) = (is_of(OWNER).unwrap(), is_of(OTHER).unwrap());
        let jobs = place.client().list_jobs().unwrap().jobs;
        let job = jobs.iter().find(|job| job.name == "mixed").unwrap().id;
        Some(Mixed { place, job, own, foreign, became, _program: program, _rival: rival })
    }

    fn owner_says(&self, words: &[&str]) -> Output {
        as_owner(&self.place, words).output().unwrap()
    }

    /// A request of the owner is refused for the sake of the other user's process.
    fn is_refused(&self, words: &[&str]) {
        let output = self.owner_says(words);
        let said = stderr(&output);
        let reason = format!("process {} in it belongs to user {OTHER}", self.foreign);
        assert!(!output.status.success() && said.contains(&reason), "{words:?}: {said}");
    }

    fn have_slots(&self, more: i64) {
        let slots = || self.place.job(self.job).unwrap().slots;
        let before = slots();
        wait_until("it has slots", || slots() >= before + more);
    }

    fn all_stand_right(&self) {
        let found = self.place.client().check().unwrap();
        assert_eq!(found.violations, [], "{} checked", found.checked);
    }

    /// The owner's kill reaches his own process alone; the job lives on with the other one.
    fn kill_leaves_the_other(self) {
        let job = self.job.to_string();
        self.is_refused(&["kill", "-s", "KILL", &job]);
        wait_until("the owner's is dead", || !is_alive(self.own));
        assert!(is_alive(self.foreign));
        wait_until("it is alone", || self.place.job(self.job).unwrap().processes == 1);
        self.all_stand_right();
        // An administrator has power over both.
        self.place.client().kill(self.job, 9).unwrap();
        wait_until("the job is over", || self.place.job(self.job).is_none());
    }
}

fn is_alive(pid: u32) -> bool {
    process::stat(Path::new("/proc"), pid).is_ok_and(|stat| stat.state != b'Z')
}

fn policy(pid: u32) -> SchedPolicy {
    sched::get(pid).unwrap().policy
}

#[test]
fn needs_root_foreign_member_is_left_as_it_is() {
    let Some(mixed) = Mixed::start("rt") else { return };
    wait_until("the owner's is raised", || policy(mixed.own) == SchedPolicy::Fifo);
    wait_until("the other's is released", || policy(mixed.foreign) == SchedPolicy::Other);
    let (mut raised, mut lowered) = (false, false);
    wait_until("the owner's has been in a slot and out of it", || {
        let of_own = policy(mixed.own);
        raised |= of_own == SchedPolicy::Fifo;
        lowered |= of_own != SchedPolicy::Fifo;
        assert_eq!(sched::get(mixed.foreign).unwrap(), sched::Attributes::other(0));
        raised && lowered
    });
    assert_eq!(sched::affinity(mixed.foreign).unwrap(), sched::affinity(0).unwrap());
    mixed.all_stand_right();
    let shown = stdout(&mixed.owner_says(&["show", &mixed.job.to_string()]));
    assert!(shown.contains(&format!("[of user {OTHER}: not scheduled, nor signalled]")), "{shown}");
    mixed.kill_leaves_the_other();
}

#[test]
fn needs_root_one_that_becomes_anothers_is_released() {
    let Some(mixed) = Mixed::among("rt", 100) else { return };
    wait_until("the other's is released", || policy(mixed.foreign) == SchedPolicy::Other);
    // No look finds it raised again, in slots of its job and out of them.
    let before = mixed.place.job(mixed.job).unwrap().slots;
    wait_until("its job has slots", || {
        assert_eq!(sched::get(mixed.foreign).unwrap(), sched::Attributes::other(0));
        mixed.place.job(mixed.job).unwrap().slots >= before + 5
    });
    mixed.all_stand_right();
    mixed.kill_leaves_the_other();
}

#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to judge a time"]
fn needs_root_one_that_becomes_anothers_leaves_soon() {
    let mut late = Vec::new();
    for _ in 0..10 {
        let Some(mixed) = Mixed::among("rt", 100) else { return };
        let became = mixed.became;
        wait_until("the other's is released", || policy(mixed.foreign) == SchedPolicy::Other);
        late.extend(Some(became.elapsed()).filter(|took| *took > Duration::from_millis(100)));
        mixed.kill_leaves_the_other();
    }
    assert!(late.len() <= 1, "{late:?}");
}

#[test]
fn needs_root_group_with_foreign_process_not_frozen() {
    let Some(mixed) = Mixed::start("freeze") else { return };
    let job = mixed.place.job(mixed.job).unwrap();
    let Some(group) = job.cgroup.map(Group::at) else { return skipped("no cgroups of version 2") };
    let is_frozen = || group.read("cgroup.freeze").unwrap().trim() == "1";
    mixed.have_slots(3);
    let before = mixed.place.job(mixed.job).unwrap().slots;
    wait_until("it has been in slots and out of them", || {
        assert!(!is_frozen());
        mixed.place.job(mixed.job).unwrap().slots > before + 3
    });
    let id = mixed.job.to_string();
    mixed.is_refused(&["suspend", &id]);
    assert_ne!(mixed.place.job(mixed.job).unwrap().state, JobState::suspended);
    mixed.place.client().suspend(mixed.job).unwrap();
    wait_until("an administrator may", is_frozen);
    mixed.all_stand_right();
    assert!(mixed.owner_says(&["resume", &id]).status.success());
    wait_until("it goes on", || !is_frozen());
    mixed.have_slots(2);
    mixed.kill_leaves_the_other();
}

#[test]
fn needs_root_only_ones_own_groups_are_adopted() {
    let Some(mixed) = Mixed::start("freeze") else { return };
    let Some(root) = gang_linux::cgroup::Hierarchies::detect(&Default::default()).unwrap().v2
    else {
        return skipped("no cgroups of version 2");
    };
    let name = format!("adopted-{}", std::process::id());
    let group = Group::at(root).child(&name);
    group.create().unwrap();
    let mut sleeper = mixed.place.command("setpriv");
    sleeper.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "infinity"]);
    let sleeper = Program::start(&mut sleeper);
    wait_until("it is the owner's", || {
        process::owner(Path::new("/proc"), sleeper.pid()).unwrap().effective == OWNER
    });
    group.add(sleeper.pid()).unwrap();
    let adopt = ["adopt", "--cgroup", &name, "-n", "1", "--name", "adopted"];
    let refused = mixed.owner_says(&adopt);
    let accepted = {
        std::os::unix::fs::chown(group.path(), Some(OWNER), None).unwrap();
        mixed.owner_says(&adopt)
    };
    drop(sleeper);
    wait_until("the group is removed", || group.remove().is_ok());
    let said = stderr(&refused);
    assert!(said.contains("its directory belongs to user 0"), "{said}");
    assert!(accepted.status.success(), "{}", stderr(&accepted));
}
