//! Jobs that use no CPU, on the real kernel: they have no slots, and leave after a while.

mod place;

use std::{
    fs,
    io::Write,
    path::Path,
    process::ChildStdin,
    time::{Duration, Instant},
};

use gang_harness::skipped;
use gang_linux::{process, sched::SchedPolicy};
use gang_protocol::{client::Registration, v1};
use place::{
    Place, Program, SPIN, has_backend, is_root, job_with, machine, policies, registration,
    wait_busily_until, wait_released, wait_until,
};

#[test]
fn needs_root_idle_job_is_ordinary_until_it_uses_cpu() {
    if !has_backend("rt") {
        return;
    }
    let settings = "idle_after = '1s'\nforget_after = '1h'\n";
    let place = Place::configured(settings, &["--backend", "rt"]);
    let mut program = Program::shell(&format!("read go; exec bash -c '{SPIN}'"));
    let job = job_with(&place, &program, machine());
    let shown = || place.job(job).unwrap();
    wait_until("idle", || shown().state == v1::JobState::idle);
    wait_until("an ordinary thread", || policies(program.pid()) == [SchedPolicy::Other]);
    let (slots, cpu_time_ns) = (shown().slots, shown().cpu_time_ns);
    let rival = Program::spinner();
    let other = job_with(&place, &rival, machine());
    wait_until("the other has slots", || place.job(other).unwrap().slots > 20);
    assert_eq!((shown().slots, shown().cpu_time_ns), (slots, cpu_time_ns));
    assert_eq!(policies(program.pid()), [SchedPolicy::Other]);
    assert_eq!(place.client().check().unwrap().violations, []);
    program.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    wait_until("slots again", || shown().slots > slots + 3);
    wait_until("raised again", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    assert_ne!(shown().state, v1::JobState::idle);
    wait_until("CPU time", || shown().cpu_time_ns > cpu_time_ns);
}

#[test]
fn needs_root_idle_job_wakes_beside_hogs() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let others: Vec<Program> = (0..24).map(|_| Program::sleeper()).collect();
    for other in &others {
        job_with(&place, other, 1);
    }
    let mut program = Program::shell(&format!("read go; exec bash -c '{SPIN}'"));
    let job = job_with(&place, &program, machine());
    let _hogs: Vec<Program> = (0..machine()).map(|_| Program::spinner()).collect();
    let state = || place.job(job).unwrap().state;
    wait_until("it sleeps", || state() == v1::JobState::sleeping);
    let slots = place.job(job).unwrap().slots;
    let begun = Instant::now();
    program.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    wait_until("slots", || place.job(job).unwrap().slots > slots);
    println!("its first slot was planned within {:?}", begun.elapsed());
    wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
}

/// A job that sleeps, and computes for a while each time that it hears a line.
struct Sleeping {
    place: Place,
    program: Program,
    go: ChildStdin,
    job: i64,
}

impl Sleeping {
    /// Prints what is skipped where the kernel should report wakings, and does not.
    fn new(flags: &[&str]) -> Option<Sleeping> {
        let place = Place::new(flags);
        wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
        if place.status().measuring == v1::Measuring::no && !flags.contains(&"--no-measure") {
            skipped(place.status().not_measured.unwrap_or_default());
            return None;
        }
        let busy = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        let mut program = Program::shell(&format!("while read go; do {busy}; done"));
        let go = program.0.stdin.take().unwrap();
        let job = job_with(&place, &program, machine());
        Some(Sleeping { place, program, go, job })
    }

    /// Wakes it once it sleeps, and waits until it is raised; how long that took.
    fn wakes(&mut self) -> Duration {
        let Sleeping { place, program, job, .. } = &*self;
        wait_until("it sleeps", || place.job(*job).unwrap().state == v1::JobState::sleeping);
        wait_until("an ordinary one", || policies(program.pid()) == [SchedPolicy::Other]);
        let begun = Instant::now();
        self.go.write_all(b"go\n").unwrap();
        wait_busily_until("raised", || policies(self.program.pid()) == [SchedPolicy::Fifo]);
        begun.elapsed()
    }
}

/// How often a thread has slept.
fn sleeps(tid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// The daemon has a thread that runs only when the kernel reports a waking.
#[test]
fn needs_root_and_bpf_waking_job_is_raised() {
    if !has_backend("rt") {
        return;
    }
    let Some(mut sleeping) = Sleeping::new(&["--backend", "rt"]) else { return };
    let mut hearing = Vec::new();
    wait_until("somebody hears who wakes", || {
        hearing = sleeping.place.threads("waking");
        !hearing.is_empty()
    });
    for _ in 0..3 {
        let before = sleeps(hearing[0]);
        sleeping.wakes();
        wait_until("it was heard", || sleeps(hearing[0]) > before);
    }
}

/// Without the kernel's word a look sees it, ten times a second.
#[test]
fn needs_root_waking_job_is_seen_and_raised() {
    if !has_backend("rt") {
        return;
    }
    let mut sleeping = Sleeping::new(&["--backend", "rt", "--no-measure"]).unwrap();
    wait_until("nobody hears who wakes", || sleeping.place.threads("waking").is_empty());
    (0..3).for_each(|_| _ = sleeping.wakes());
}

/// The kernel reports wakings where it is measured which gangs run; else a look ten times a second
/// sees them.
#[test]
#[ignore = "nightly: needs an otherwise idle machine"]
fn needs_root_and_bpf_job_is_raised_before_a_look() {
    if !has_backend("rt") {
        return;
    }
    // At the median of several times.
    let until_raised = |mut sleeping: Sleeping| {
        let mut times: Vec<Duration> = (0..9).map(|_| sleeping.wakes()).collect();
        times.sort();
        times[times.len() / 2]
    };
    let Some(reported) = Sleeping::new(&["--backend", "rt"]).map(until_raised) else { return };
    let seen = Sleeping::new(&["--backend", "rt", "--no-measure"]).map(until_raised).unwrap();
    println!("raised {reported:?} after they woke, {seen:?} where nobody reports");
    assert!(reported < seen / 2, "{reported:?}, {seen:?}");
}

/// No thread of a process runs, or wants to.
fn is_asleep(pid: u32) -> bool {
    let root = Path::new("/proc");
    let threads = process::threads(root, pid).unwrap();
    // One that ended meanwhile runs no more.
    threads.iter().all(|&tid| process::stat(root, tid).map_or(true, |stat| stat.state == b'S'))
}

#[test]
fn needs_root_a_daemon_without_jobs_sleeps() {
    /// A daemon that uses a fifth of a CPU is never found asleep so often in a row.
    const LOOKS: u32 = 60;
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--slice", "2ms"]);
    // The last job ends while threads of its were started that nobody has looked for yet.
    for _ in 0..4 {
        let program = Program::shell("read go; while :; do /bin/true; done");
        let job = job_with(&place, &program, 1);
        (&mut program.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
        wait_until("slots", || place.job(job).unwrap().slots > 50);
        drop(program);
        wait_until("its end", || place.job(job).is_none());
    }
    let mut in_a_row = 0;
    wait_until("it sleeps", || {
        in_a_row = if is_asleep(place.pid()) { in_a_row + 1 } else { 0 };
        in_a_row == LOOKS
    });
}

#[test]
fn needs_root_unused_job_is_forgotten_and_restored() {
    if !has_backend("rt") {
        return;
    }
    let settings = "idle_after = '1s'\nforget_after = '6s'\n";
    let place = Place::configured(settings, &["--backend", "rt"]);
    let home = |program: &Program| fs::read_to_string(format!("/proc/{}/cgroup", program.pid()));
    // The first wakes now and then, the second never does.
    let one = Program::shell(
        "while :; do sleep 0.1; i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; done",
    );
    let other = Program::sleeper();
    let before = home(&other).unwrap();
    let (first, second) = (job_with(&place, &one, 1), job_with(&place, &other, 1));
    let state = |job| place.job(job).map(|job| job.state);
    wait_until("sleeping", || state(second) == Some(v1::JobState::sleeping));
    wait_until("idle", || state(second) == Some(v1::JobState::idle));
    wait_until("it leaves", || place.job(second).is_none());
    wait_until("its process is where it was", || home(&other).unwrap() == before);
    wait_released(other.pid(), "released");
    let slots = place.job(first).expect("who wakes now and then stays").slots;
    wait_until("slots", || place.job(first).is_some_and(|job| job.slots > slots));
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_job_that_awaits_a_slot_is_not_idle() {
    if !is_root() {
        return;
    }
    let settings = "idle_after = '1s'\nforget_after = '1s'\n";
    // A thread out of its slot stands still.
    for backend in ["freeze", "signal"] {
        if !has_backend(backend) {
            continue;
        }
        let place = Place::configured(settings, &["--backend", backend]);
        let (busy, waits) = (Program::spinner(), Program::spinner());
        let idle = Program::sleeper();
        job_with(&place, &busy, machine());
        let standby =
            Registration { class: v1::Class::standby, ..registration("waits", machine()) };
        let mut client = place.client();
        let waiting = client.register(&standby).unwrap();
        client.add_process(waiting, waits.pid_i64()).unwrap();
        let state = |job| place.job(job).map(|job| job.state);
        wait_until("it waits", || state(waiting) == Some(v1::JobState::waiting));
        // The other one came later, and so has been without CPU for less long.
        let leaves = job_with(&place, &idle, 1);
        wait_until("the idle one leaves", || state(leaves).is_none());
        assert_eq!(state(waiting), Some(v1::JobState::waiting), "{backend}");
    }
}
