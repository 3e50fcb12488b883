//! Jobs of policy `auto`, on the real kernel, with a daemon of their own and real programs.

mod programs;

use std::{
    io::{BufRead, BufReader},
    ops::Deref,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use gang_daemon::{Daemon, Options, Program, are_built, is_root};
use gang_harness::{skipped, wait_for, wait_until};
use gang_protocol::{
    client::{Change, Decision},
    error::ClientError,
    v1::{self, Gain, Policy},
};
use rustix::process::{Pid, Signal, kill_process};

/// A job of policy auto of which that is said was not looked at.
const UNSEEN: &str = "nobody has looked at it yet";

/// The longest that a decision is waited for.
const DECIDED_WITHIN: Duration = Duration::from_secs(240);

/// A daemon with the programs that a test is to find.
struct Place(Daemon);

impl Deref for Place {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0
    }
}

impl Place {
    /// With all programs where they were built, or with copies of those that are named.
    fn new(copied: Option<&[&str]>) -> Option<Place> {
        if !is_root() || !are_built(&["gang", "gangd"]) {
            return None;
        }
        let place = copied.map_or_else(gang_daemon::Place::new, gang_daemon::Place::with_copies);
        // In two minutes nothing would be compared twice.
        let options = Options { configuration: "proof_cost = 0.5\n", ..Options::default() };
        Some(Place(Daemon::start_in(place, &options)))
    }

    fn said(&self, arguments: &[&str]) -> String {
        let Output { stdout, stderr, .. } = self.output(arguments);
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned()
    }

    /// Starts a program as a job; `options` are those of `gang run`.
    fn run(&self, name: &str, options: &[&str], program: &[&str]) -> Program {
        let mut gang = self.gang(&["run", "--name", name]);
        gang.args(options).arg("--").args(program).stdin(Stdio::null()).stderr(Stdio::piped());
        let program = Program::start(&mut gang);
        wait_until("it is a job", || self.job(name).is_some_and(|job| job.processes > 0));
        program
    }

    fn job(&self, name: &str) -> Option<v1::Job> {
        self.client().list_jobs().unwrap().jobs.into_iter().find(|job| job.name == name)
    }

    fn decided(&self, name: &str) -> Option<Policy> {
        self.job(name).unwrap().decided().cloned()
    }

    /// Why jobs of policy auto cannot be measured on this machine. That who measures is slow to
    /// begin is no reason: another one comes.
    fn not_proved(&self) -> Option<String> {
        let reason = self.client().status().unwrap().status.not_proved?;
        (!reason.contains("did not say whether it can measure")).then_some(reason)
    }

    /// Waits until a job was looked at; false where none can be measured here, which is said.
    fn is_looked_at(&self, name: &str) -> bool {
        let reason = wait_for("it is looked at", || match self.not_proved() {
            Some(reason) => Some(Some(reason)),
            None => {
                let because = self.job(name).unwrap().decision?.because;
                (because != UNSEEN).then_some(None)
            }
        });
        if let Some(reason) = &reason {
            skipped(reason);
        }
        reason.is_none()
    }

    /// Waits until a job is decided so; where it never is, says what was decided and sent
    /// meanwhile.
    fn wait_until_decided(&self, name: &str, policy: &Policy) {
        let (mut seen, began) = (Vec::new(), Instant::now());
        loop {
            let job = self.job(name).unwrap();
            if job.decided() == Some(policy) {
                return;
            }
            let news = job.decision;
            if seen.last().is_none_or(|(_, last)| *last != news) {
                seen.push((began.elapsed(), news));
            }
            let is_late = began.elapsed() > DECIDED_WITHIN;
            assert!(!is_late, "{name} not within {DECIDED_WITHIN:?} {policy:?}: {seen:#?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The figures are not judged here, nor the decision that follows from them.
#[test]
fn needs_root_and_bpf_auto_compares_and_says_so() {
    let Some(place) = Place::new(None) else { return };
    let Some(meet) = programs::meet(place.directory.path()) else { return };
    let cpus = thread::available_parallelism().unwrap().get();
    let _rivals: Vec<Program> = (0..2 * cpus).map(|_| Program::spinner()).collect();
    // Of threads that wait for little a glance may see nothing.
    let program = [meet.to_str().unwrap(), "uneven"];
    let _program = place.run("program", &["--policy", "auto"], &program);
    if !place.is_looked_at("program") {
        return;
    }
    let job = wait_for("it is compared", || {
        place.job("program").filter(|job| {
            let is_told = |it: &v1::Decision| it.gain.is_some() || it.policy.is_some();
            job.decision.as_ref().is_some_and(is_told)
        })
    });
    assert_eq!(job.policy, Policy::auto);
    let v1::Decision { gain, because, .. } = job.decision.unwrap();
    assert!(gain.is_none_or(|gain| gain.gain.is_finite()));
    assert!(!because.is_empty());
    let shown = place.said(&["show", "program"]);
    assert!(
        shown.contains("  policy              auto\n") && shown.contains("  decided             "),
        "{shown}"
    );
    assert!(!place.said(&["why", "program"]).is_empty());
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
#[ignore = "nightly: needs an idle machine, by whose figures it is decided"]
fn needs_root_and_bpf_auto_decides_by_gain() {
    let Some(place) = Place::new(None) else { return };
    let Some(meet) = programs::meet(place.directory.path()) else { return };
    let meet = meet.to_str().unwrap();
    // Beside ordinary programs, the more the clearer: beside another gang it would be open what is
    // better.
    let cpus = thread::available_parallelism().unwrap().get();
    let _rivals: Vec<Program> = (0..3 * cpus).map(|_| Program::spinner()).collect();
    // Of threads that wait for little a glance may see nothing.
    let program = place.run("program", &["--policy", "auto"], &[meet, "uneven"]);
    if let Some(reason) = place.client().status().unwrap().status.not_proved {
        skipped(reason);
        return;
    }
    place.wait_until_decided("program", &Policy::gang);
    let job = place.job("program").unwrap();
    assert_eq!(job.policy, Policy::auto);
    let decision = job.decision.unwrap();
    assert!(decision.gain.is_some_and(|gain| gain.gain.is_finite()));
    let shown = place.said(&["show", "program"]);
    assert!(
        shown.contains("  policy              auto\n")
            && shown.contains("  decided             gang"),
        "{shown}"
    );
    let why = place.said(&["why", "program"]);
    assert!(why.contains("decided to be gang"), "{why}");

    // The same program, with nothing to wait for. Its weight counts as a gang only: it makes clear
    // what is better for it, whatever else the machine does.
    let weight = 20;
    let options = ["--policy", "auto", "--weight", &weight.to_string()];
    let apart = place.run("apart", &options, &[meet, "apart"]);
    place.wait_until_decided("apart", &Policy::none);
    drop(apart);

    // One that changes.
    kill_process(Pid::from_child(&program.0), Signal::USR1).unwrap();
    let because = || place.job("program").unwrap().decision.unwrap().because;
    wait_until("it is looked at again", || because() != decision.because);
    place.client().set(job.id, &Change { weight: Some(weight), ..Change::default() }).unwrap();
    place.wait_until_decided("program", &Policy::none);
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_auto_without_measuring_is_a_gang() {
    // No gang-doctor among them.
    let Some(place) = Place::new(Some(&["gang", "gangd"])) else { return };
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let run = ["run", "--policy", "auto", "--", "true"];
    let said = place.said(&run);
    assert!(said.contains("policy auto: ") && said.contains("gang-doctor"), "{said}");
    assert!(!place.said(&[&["run", "--quiet"], &run[1..]].concat()).contains("policy auto"));
    let _program = place.run("program", &["--policy", "auto", "--min", "1"], &spin);
    wait_until("its slots", || place.job("program").unwrap().slots > 0);
    let job = place.job("program").unwrap();
    assert_eq!((&job.policy, job.decided()), (&Policy::auto, None));
    let shown = place.said(&["show", "program"]);
    assert!(shown.contains("  decided             nothing, so gang"), "{shown}");

    // A client that may change its policy may decide, too; a person's word counts for more.
    let mut client = place.client();
    let decision = |policy, decided| Decision {
        policy,
        decided,
        gain: Some(Gain { gain: 0.01, interval: Some(vec![-0.01, 0.03]) }),
        because: "it was tried".into(),
    };
    client.decide(job.id, decision(Policy::none, true)).unwrap();
    let decided = place.job("program").unwrap();
    assert_eq!((&decided.policy, decided.decided()), (&Policy::auto, Some(&Policy::none)));
    let gain = decided.decision.unwrap().gain;
    assert_eq!(gain, Some(Gain { gain: 0.01, interval: Some(vec![-0.01, 0.03]) }));
    let slots = place.job("program").unwrap().slots;
    client.decide(job.id, decision(Policy::gang, false)).unwrap();
    assert_eq!(place.decided("program"), Some(Policy::none), "a trial decides nothing");
    wait_until("slots on trial", || place.job("program").unwrap().slots > slots);
    client.set_policy(job.id, Policy::gang).unwrap();
    let job = place.job("program").unwrap();
    assert_eq!((job.policy, job.decision), (Policy::gang, None));
    let refused = client.decide(job.id, decision(Policy::none, true));
    assert!(matches!(refused, Err(ClientError::InvalidValue { .. })), "{refused:?}");
    assert_eq!(place.job("program").unwrap().policy, Policy::gang);
}

/// Those that prove jobs for a daemon.
fn doctors(daemon: u32) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let all: Vec<i32> = children
        .flat_map(|line| {
            line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    let is_doctor = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|it| it.starts_with("gang-doctor"))
    };
    all.into_iter().filter(is_doctor).filter_map(Pid::from_raw).collect()
}

#[test]
fn needs_root_and_bpf_who_proves_jobs_may_be_killed() {
    let Some(place) = Place::new(None) else { return };
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let program = place.run("program", &["--policy", "auto", "--min", "1"], &spin);
    let doctors = || doctors(place.pid());
    if !place.is_looked_at("program") {
        return;
    }
    let first = wait_for("one proves jobs", || doctors().first().copied());
    kill_process(first, Signal::KILL).unwrap();
    let is_because = |text: &str| {
        place.job("program").unwrap().decision.is_some_and(|it| it.because.contains(text))
    };
    wait_until("the reason is there", || is_because("gang-doctor ended"));
    assert_eq!(place.job("program").unwrap().policy, Policy::auto);
    wait_until("another one comes", || doctors().first().is_some_and(|&it| it != first));
    drop(program);
    wait_until("it goes after the last job", || doctors().is_empty());
}

#[test]
fn needs_root_and_bpf_who_proves_jobs_may_hang() {
    let Some(place) = Place::new(None) else { return };
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let program = place.run("program", &["--policy", "auto", "--min", "1"], &spin);
    let doctors = || doctors(place.pid());
    if !place.is_looked_at("program") {
        return;
    }
    let first = wait_for("one proves jobs", || doctors().first().copied());
    // As it would be left if this were in the middle of a trial.
    let id = place.job("program").unwrap().id;
    let trial =
        Decision { policy: Policy::none, decided: false, gain: None, because: "tried".into() };
    kill_process(first, Signal::STOP).unwrap();
    place.client().decide(id, trial).unwrap();
    let slots = place.job("program").unwrap().slots;
    let is_because = |text: &str| {
        place.job("program").unwrap().decision.is_some_and(|it| it.because.contains(text))
    };
    wait_until("it is ended", || is_because("silent"));
    wait_until("the job has slots again", || place.job("program").unwrap().slots > slots + 10);
    wait_until("another one comes", || doctors().first().is_some_and(|&it| it != first));
    drop(program);
    wait_until("it goes after the last job", || doctors().is_empty());
}

#[test]
fn needs_root_and_bpf_who_proves_jobs_has_few_rights() {
    let Some(place) = Place::new(None) else { return };
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let _program = place.run("program", &["--policy", "auto", "--min", "1"], &spin);
    if !place.is_looked_at("program") {
        return;
    }
    let doctor = wait_for("one proves jobs", || doctors(place.pid()).first().copied());
    let of = |file: &str, key: &str| {
        let path = format!("/proc/{}/{file}", doctor.as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line[key.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Or CAP_SYS_ADMIN, where the first two are not there.
    let few = |sets: &str| {
        let set = u64::from_str_radix(&of("status", sets)[0], 16).unwrap();
        let bit = |capability: u64| 1 << capability;
        [bit(39) | bit(38) | bit(19), bit(21) | bit(19)].contains(&set)
    };
    assert!(few("CapEff:") && few("CapPrm:"), "{:?}", of("status", "CapEff:"));
    assert_eq!((of("status", "CapInh:"), of("status", "CapAmb:")), (none(), none()));
    assert_eq!(of("status", "NoNewPrivs:"), ["1"]);
    assert_ne!(of("limits", "Max address space")[0], "unlimited");
}

/// A user that the machine's databases do not have: the daemon gives the number of its own.
const USER: &str = "61184";

#[test]
fn needs_root_and_bpf_user_of_its_own_proves_jobs() {
    // The daemon finds no gang-doctor, and this test starts one.
    let Some(place) = Place::new(Some(&["gang", "gangd"])) else { return };
    let Some(meet) = programs::meet(place.directory.path()) else { return };
    let cpus = thread::available_parallelism().unwrap().get();
    let _rivals: Vec<Program> = (0..2 * cpus).map(|_| Program::spinner()).collect();
    let program = [meet.to_str().unwrap(), "uneven"];
    let _program = place.run("program", &["--policy", "auto"], &program);
    let mut doctor = place.command(env!("CARGO_BIN_EXE_gang-doctor"));
    doctor.args(["--auto", "--cost", "0.5", "--user", USER, USER]);
    let mut doctor = doctor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(doctor.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line != "ready\n" {
        assert!(line.contains("built without") || line.contains("the kernel refuses"), "{line}");
        doctor.wait().unwrap();
        return skipped(line);
    }
    // It is to be heard, so that it does not wait.
    let heard = thread::spawn(move || said.lines().map_while(Result::ok).collect::<Vec<_>>());
    let status = std::fs::read_to_string(format!("/proc/{}/status", doctor.id())).unwrap();
    assert!(status.contains(&format!("\nUid:\t{0}\t{0}\t{0}\t{0}\n", USER)), "{status}");
    assert!(status.contains("\nGroups:\t \n"), "{status}");
    wait_until("it is compared", || {
        let decision = place.job("program").unwrap().decision.unwrap();
        decision.gain.is_some() || decision.policy.is_some()
    });
    drop(doctor.stdin.take());
    doctor.wait().unwrap();
    let id = place.job("program").unwrap().id;
    assert!(heard.join().unwrap().contains(&format!("job {id}")));
}

fn none() -> Vec<String> {
    vec!["0000000000000000".into()]
}

#[test]
fn needs_root_killed_daemon_decides_auto_anew() {
    let Some(mut place) = Place::new(None) else { return };
    let spin = ["bash", "-c", "while [ $SECONDS -lt 600 ]; do :; done"];
    let _program = place.run("program", &["--policy", "auto", "--min", "1"], &spin);
    let decision = Decision {
        policy: Policy::none,
        decided: true,
        gain: None,
        because: "it was tried".into(),
    };
    let id = place.job("program").unwrap().id;
    place.client().decide(id, decision).unwrap();
    place.0.kill();
    place.0.start();
    let job = place.job("program").unwrap();
    assert_eq!((job.id, &job.policy, job.decided()), (id, &Policy::auto, None));
    wait_until("it is a gang again", || place.job("program").unwrap().slots > 0);
}
