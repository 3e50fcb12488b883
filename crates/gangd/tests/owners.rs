//! Settings of a program's owner stay, in a slot and out of it.

mod place;

use std::{io::Write, path::Path, process::Command};

use gang_daemon::{are_built, is_root, stderr, stdout};
use gang_harness::skipped;
use gang_linux::{
    process,
    sched::{self, Attributes, SchedPolicy},
};
use place::{Place, Program, has_backend, job_with, registration, wait_until, with_each_backend};

/// Two gangs that take turns on all CPUs.
struct Gangs {
    program: Program,
    job: i64,
    _rival: Program,
}

impl Gangs {
    fn start(place: &Place, program: Program) -> Gangs {
        let rival = Program::spinner();
        let cpus = place::machine();
        let job = job_with(place, &program, cpus);
        job_with(place, &rival, cpus);
        Gangs { program, job, _rival: rival }
    }

    /// The program has had its slot so often more, in a slot and out of it.
    fn have_slots(&self, place: &Place, more: i64) {
        let slots = || place.job(self.job).unwrap().slots;
        let before = slots();
        wait_until("it has slots", || slots() >= before + more);
    }
}

fn now(program: &Program) -> Attributes {
    sched::get(program.pid()).unwrap()
}

fn set(program: &Program, policy: SchedPolicy, priority: u32) {
    let nice = now(program).nice;
    let own = Attributes { policy, nice, priority, reset_on_fork: false };
    sched::set_policy(program.pid(), &own).unwrap();
}

#[test]
fn needs_root_nice_value_of_an_owner_stays() {
    with_each_backend(&[], |place| {
        let gangs = Gangs::start(&place, Program::spinner());
        gangs.have_slots(&place, 2);
        for nice in [10, 3, 15] {
            sched::set_nice(gangs.program.pid(), nice).unwrap();
            for _ in 0..4 {
                gangs.have_slots(&place, 1);
                assert_eq!(now(&gangs.program).nice, nice);
            }
        }
        place.client().remove_process(gangs.job, gangs.program.pid_i64()).unwrap();
        assert_eq!(now(&gangs.program), Attributes::other(15));
    });
}

#[test]
fn needs_root_nice_value_of_owner_outlives_daemon() {
    if !is_root() || !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let gangs = Gangs::start(&place, Program::spinner());
    gangs.have_slots(&place, 2);
    sched::set_nice(gangs.program.pid(), 7).unwrap();
    place.kill();
    wait_until("released", || now(&gangs.program).policy == SchedPolicy::Other);
    assert_eq!(now(&gangs.program).nice, 7);
    place.start();
    gangs.have_slots(&place, 2);
    assert_eq!(now(&gangs.program).nice, 7);
}

#[test]
fn needs_root_policy_of_an_owner_stays() {
    with_each_backend(&[], |place| {
        let gangs = Gangs::start(&place, Program::spinner());
        gangs.have_slots(&place, 2);
        let is_lowered_as = |policy| now(&gangs.program).policy == policy;
        // One of these is what gangd gives out of a slot: then nobody can tell.
        let mut own = SchedPolicy::Idle;
        wait_until("it was lowered", || {
            if is_lowered_as(SchedPolicy::Idle) {
                own = SchedPolicy::Batch;
            }
            !is_lowered_as(SchedPolicy::Fifo)
        });
        set(&gangs.program, own, 0);
        // It is read, and takes its turns with the policy that it has without gangd.
        gangs.have_slots(&place, 3);
        place.client().remove_process(gangs.job, gangs.program.pid_i64()).unwrap();
        assert_eq!(now(&gangs.program).policy, own);
    });
}

#[test]
fn needs_root_policy_of_an_owner_outlives_the_daemon() {
    if !is_root() || !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let gangs = Gangs::start(&place, Program::spinner());
    let lowered = || {
        let policy = now(&gangs.program).policy;
        matches!(policy, SchedPolicy::Batch | SchedPolicy::Idle).then_some(policy)
    };
    wait_until("it was lowered", || lowered().is_some());
    let own = match now(&gangs.program).policy {
        SchedPolicy::Idle => SchedPolicy::Batch,
        _ => SchedPolicy::Idle,
    };
    set(&gangs.program, own, 0);
    gangs.have_slots(&place, 3);
    wait_until("it is in a slot", || now(&gangs.program).policy == SchedPolicy::Fifo);
    place.kill();
    wait_until("it has its own policy back", || now(&gangs.program).policy == own);
}

#[test]
fn needs_root_real_time_threads_are_left_alone() {
    if !is_root() || !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    // It hardly runs: it would keep all others from a CPU.
    let gangs = Gangs::start(&place, Program::shell("while :; do sleep 0.01; done"));
    gangs.have_slots(&place, 2);
    set(&gangs.program, SchedPolicy::RoundRobin, 5);
    let cpus = sched::affinity(0).unwrap();
    wait_until("it may run anywhere", || sched::affinity(gangs.program.pid()).unwrap() == cpus);
    for _ in 0..4 {
        gangs.have_slots(&place, 1);
        let found = now(&gangs.program);
        assert_eq!((found.policy, found.priority), (SchedPolicy::RoundRobin, 5));
        assert_eq!(sched::affinity(gangs.program.pid()).unwrap(), cpus);
    }
    // An ordinary one again, it takes its turns.
    set(&gangs.program, SchedPolicy::Other, 0);
    gangs.have_slots(&place, 2);
    place.client().remove_process(gangs.job, gangs.program.pid_i64()).unwrap();
    assert_eq!(now(&gangs.program), Attributes::other(0));
}

#[test]
fn needs_root_children_have_nice_value_of_starter() {
    if !are_built(&["gang"]) || !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let rival = Program::spinner();
    job_with(&place, &rival, place::machine());
    // In a slot it may have another one, where the gang is oversubscribed.
    let script = "for child in 1 2 3 4 5 6; do \
          (while :; do :; done) & pid=$!; tries=0; nice=; \
          until [ \"$nice\" = 15 ] || [ $tries -ge 200 ]; do \
            nice=$(ps -o ni= -p $pid | tr -d ' '); tries=$((tries+1)); sleep 0.02; done; \
          echo \"$nice\"; kill $pid; done";
    let mut command: Command = place.gang(&["run", "-q", "--", "nice", "-n", "15", "sh", "-c"]);
    let output = command.arg(script).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Vec<String> = stdout(&output).lines().map(|line| line.trim().into()).collect();
    assert_eq!(found, ["15"; 6]);
}

#[test]
fn needs_root_children_get_no_priority_of_parent() {
    if !has_backend("rt") {
        return;
    }
    // As rtkit gives them to programs of desktop users.
    let nice = Attributes { reset_on_fork: true, ..Attributes::other(-11) };
    let policy = SchedPolicy::RoundRobin;
    let real_time = Attributes { policy, nice: 0, priority: 20, reset_on_fork: true };
    for own in [nice, real_time] {
        let place = Place::new(&["--backend", "rt"]);
        let child = "sh -c 'while :; do :; done' &";
        let mut program = Program::shell(&format!(
            "read go; {child} {child} {child} read go; {child} {child} {child} wait"
        ));
        sched::set(program.pid(), &own).unwrap();
        let pid = program.pid();
        let mut go = || program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let children = || {
            let all = process::children(Path::new("/proc"), pid).unwrap_or_default().into_iter();
            all.map(|child| sched::get(child).unwrap()).collect::<Vec<_>>()
        };
        let (mut client, rival) = (place.client(), Program::spinner());
        let job = client.register(&registration("job", 1)).unwrap();
        client.add_process(job, pid.into()).unwrap();
        job_with(&place, &rival, place::machine());
        // Of these some are started in a slot, and some are there for many.
        for count in [3, 6] {
            go();
            wait_until("children", || children().len() == count);
            let slots = place.job(job).unwrap().slots;
            wait_until("slots", || place.job(job).unwrap().slots > slots + 5);
        }
        client.remove_process(job, pid.into()).unwrap();
        assert_eq!(sched::get(pid).unwrap(), own, "that is its own");
        client.shutdown().unwrap();
        wait_until("all are released", || {
            children().iter().all(|child| *child == Attributes::other(0))
        });
    }
}

/// The calls of a user's program on itself. Those that are refused are named, with the error.
const CALLS: &str = "
import errno, os, resource, sys, time
refused = set()
def try_(name, call):
    try:
        call()
    except OSError as error:
        refused.add(name + ' ' + errno.errorcode[error.errno])
mine = os.sched_getaffinity(0)
end = time.monotonic() + 60
fifo = 0
while fifo < 200 and time.monotonic() < end:
    # A slot is a time in which it is a real-time thread.
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_FIFO:
        continue
    fifo += 1
    try_('nice', lambda: os.nice(0))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try_('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, 0, own))
    try_('sched_setaffinity', lambda: os.sched_setaffinity(0, mine))
    try_('sched_getparam', lambda: os.sched_getparam(0))
    try_('sched_setparam', lambda: os.sched_setparam(0, os.sched_param(0)))
    try_('setrlimit', lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    try_('fork', lambda: os.fork() or os._exit(0))
    try_('sched_setscheduler', lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0)))
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
print(fifo, *sorted(refused), sep=',')
";

/// The kernel lets nobody without CAP_SYS_NICE clear `SCHED_RESET_ON_FORK`, without which the
/// children of a thread in its slot would be real-time ones. SCHED_FIFO has no priority 0.
#[test]
fn needs_root_two_calls_are_refused_to_user_in_slot() {
    if !is_root() || !are_built(&["gang"]) || !has_backend("rt") {
        return;
    }
    if Command::new("python3").arg("-V").output().is_err() {
        skipped("needs python3");
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    place.open_to_everybody(0o755);
    let rival = Program::spinner();
    job_with(&place, &rival, place::machine());
    let gang = place.gang(&[]);
    let program = place.path("calls.py");
    std::fs::write(&program, CALLS).unwrap();
    let mut command = place.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(gang.get_program()).args(["run", "-q", "--", "python3"]).arg(&program);
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let found = stdout(&output);
    assert_eq!(
        found.trim(),
        "200,sched_setparam EINVAL,sched_setscheduler EPERM",
        "{}",
        stderr(&output)
    );
}
