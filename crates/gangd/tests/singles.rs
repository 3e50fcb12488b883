//! Single threads as members of a job, on the real kernel: they take turns, and the rest of their
//! process does not.
//!
//! The threads are this program's own. The daemon looks at threads that a member starts, which may
//! be any younger thread of this process. So the tests take turns.

mod place;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gang_harness::TEST_TIMEOUT;
use gang_linux::{
    Roots,
    cgroup::Hierarchies,
    sched::{self, Attributes, SchedPolicy},
};
use gang_protocol::{client::Client, error::ClientError, v1};
use gang_timetable::Backend;
use place::{Place, Program, has_backend, job_with, machine, registration, wait_until};

/// To be taken after the daemon: a daemon takes its time to end, and does not mind the next test.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURNS: Mutex<()> = Mutex::new(());
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of single threads nothing is measured.
fn daemon(backend: &str) -> Place {
    Place::new(&["--backend", backend, "--no-measure"])
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Orders to a worker, apart from its work all the time.
enum Order {
    StartThread(Sender<Worker>),
    StartChild(Sender<Program>),
}

/// A thread that ends when this is dropped.
struct Worker {
    tid: u32,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(work: impl FnOnce(Receiver<Order>) + Send + 'static) -> Worker {
        let (orders, received) = channel();
        let (began, begins) = channel();
        let thread = thread::spawn(move || {
            began.send(own_tid()).unwrap();
            work(received);
        });
        Worker { tid: begins.recv().unwrap(), orders: Some(orders), thread: Some(thread) }
    }

    fn spins() -> Worker {
        Worker::start(|orders| {
            loop {
                match orders.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return,
                    Ok(Order::StartThread(to)) => to.send(Worker::waits()).unwrap(),
                    Ok(Order::StartChild(to)) => to.send(Program::sleeper()).unwrap(),
                }
            }
        })
    }

    fn waits() -> Worker {
        Worker::start(|orders| drop(orders.recv()))
    }

    fn carry_out<T>(&self, order: impl FnOnce(Sender<T>) -> Order) -> T {
        let (to, answer) = channel();
        self.orders.as_ref().unwrap().send(order(to)).unwrap();
        answer.recv().unwrap()
    }

    fn tid_i64(&self) -> i64 {
        self.tid.into()
    }

    fn attributes(&self) -> Attributes {
        sched::get(self.tid).unwrap()
    }

    fn policy(&self) -> SchedPolicy {
        self.attributes().policy
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How this thread is scheduled, which the daemon knows nothing of.
fn untouched() -> (Attributes, Vec<u32>) {
    (sched::get(0).unwrap(), sched::affinity(0).unwrap())
}

fn of(tid: u32) -> (Attributes, Vec<u32>) {
    (sched::get(tid).unwrap(), sched::affinity(tid).unwrap())
}

/// A job of a single thread.
fn job_of(place: &Place, worker: &Worker, cpus: i64) -> i64 {
    let mut client = place.client();
    let job = client.register(&registration("single", cpus)).unwrap();
    client.add_thread(job, worker.tid_i64()).unwrap();
    job
}

fn is_raised_and_fills(worker: &Worker) {
    wait_until("raised", || worker.policy() == SchedPolicy::Fifo);
    wait_until("filling", || worker.policy() == SchedPolicy::Idle);
}

fn not_permitted(outcome: Result<(), ClientError>, why: &str) {
    match outcome {
        Err(ClientError::NotPermitted { reason, .. }) => assert!(reason.contains(why), "{reason}"),
        other => panic!("not refused because {why}: {other:?}"),
    }
}

fn no_such_thread(outcome: Result<(), ClientError>) {
    assert!(matches!(outcome, Err(ClientError::NoSuchThread { .. })), "{outcome:?}");
}

#[test]
fn needs_root_single_threads_take_turns_alone() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    // On two CPUs a third one that spins would keep this thread from seeing any of them raised.
    let workers = [Worker::spins(), Worker::spins(), Worker::waits()];
    let before = untouched();
    let one = job_of(&place, &workers[0], machine());
    let other = job_of(&place, &workers[1], machine());
    place.client().add_thread(other, workers[2].tid_i64()).unwrap();
    place.client().add_thread(other, workers[2].tid_i64()).expect("it is one already");
    workers.iter().for_each(is_raised_and_fills);
    assert_eq!(untouched(), before, "this thread is of the same process");
    let job = place.job(other).unwrap();
    assert_eq!((job.single_threads, job.processes, job.threads), (Some(true), 0, 2));
    assert_eq!(job.cgroup, None);
    assert!(job.measured.is_none() && job.not_measured.is_some());
    let shown = place.client().show_job(other).unwrap().processes.unwrap();
    let tids = vec![workers[1].tid_i64(), workers[2].tid_i64()];
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!((shown[0].pid, &shown[0].tids), (std::process::id().into(), &Some(tids)));
    let check = place.client().check().unwrap();
    assert_eq!(check.violations, []);
    assert!(check.checked > 3, "{}", check.checked);

    place.client().set_policy(other, v1::Policy::none).unwrap();
    for worker in &workers[1..] {
        assert_eq!(of(worker.tid), before, "Linux alone schedules it");
    }
    place.client().set_policy(other, v1::Policy::gang).unwrap();
    is_raised_and_fills(&workers[2]);

    place.client().remove_thread(other, workers[2].tid_i64()).unwrap();
    assert_eq!(of(workers[2].tid), before, "it has back what it had");
    no_such_thread(place.client().remove_thread(other, workers[2].tid_i64()));
    let slots = place.job(other).unwrap().slots;
    wait_until("more slots", || place.job(other).unwrap().slots > slots + 5);
    assert_eq!(of(workers[2].tid), before, "no timetable has it");
    place.client().remove_thread(other, workers[1].tid_i64()).unwrap();
    assert_eq!(of(workers[1].tid), before);
    assert!(place.job(other).is_none(), "it ends with its last thread");
    // A thread that has left its job may come into another one.
    place.client().add_thread(one, workers[2].tid_i64()).unwrap();
    wait_until("raised", || workers[2].policy() == SchedPolicy::Fifo);
}

#[test]
fn needs_root_a_job_ends_with_its_last_single_thread() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let (one, other) = (Worker::spins(), Worker::spins());
    let job = job_of(&place, &one, 1);
    place.client().add_thread(job, other.tid_i64()).unwrap();
    let (first, second) = (one.tid_i64(), other.tid_i64());
    let tid = |of: i64| format!("\"tid\": {of},");
    assert!(place.jobs_text().contains(&tid(first)), "{}", place.jobs_text());
    drop(one);
    wait_until("the first is off file", || !place.jobs_text().contains(&tid(first)));
    assert!(place.jobs_text().contains(&tid(second)));
    no_such_thread(place.client().remove_thread(job, first));
    drop(other);
    wait_until("it has ended", || place.job(job).is_none());
    wait_until("nothing is on file", || place.jobs_on_file() == 0);
    no_such_thread(place.client().add_thread(job_of(&place, &Worker::waits(), 1), second));
}

#[test]
fn needs_root_impossible_threads_are_refused() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let (worker, spinner) = (Worker::spins(), Program::spinner());
    let of_processes = job_with(&place, &spinner, 1);
    let of_threads = job_of(&place, &worker, 1);
    let mut client = place.client();
    let empty = client.register(&registration("empty", 1)).unwrap();
    for wrong in [0, -1, 1 << 40] {
        for outcome in [client.add_thread(empty, wrong), client.remove_thread(empty, wrong)] {
            match outcome {
                Err(ClientError::InvalidValue { parameter, .. }) => assert_eq!(parameter, "tid"),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }
    let gone = {
        let ends = Worker::waits();
        ends.tid_i64()
    };
    no_such_thread(client.add_thread(empty, gone));
    no_such_thread(client.remove_thread(of_threads, gone));
    no_such_thread(client.remove_thread(of_processes, spinner.pid_i64()));
    no_such_thread(client.remove_thread(empty, worker.tid_i64()));
    not_permitted(client.add_thread(empty, 1), "belongs to the system");
    let of_daemon = place.status().pid;
    not_permitted(client.add_thread(empty, of_daemon), "belongs to the system");
    not_permitted(client.add_thread(empty, worker.tid_i64()), &format!("in job {of_threads}"));
    not_permitted(client.add_thread(empty, spinner.pid_i64()), "with all its threads");
    let idle = Worker::waits();
    not_permitted(client.add_thread(of_processes, idle.tid_i64()), "it is of processes");
    let own = i64::from(std::process::id());
    not_permitted(client.add_process(empty, own), &format!("thread {} is in", worker.tid));
    let other = Program::spinner();
    not_permitted(client.add_process(of_threads, other.pid_i64()), "it is of single threads");
    not_permitted(client.suspend(of_threads), "stand still");
    not_permitted(client.kill(of_threads, 15), "whole process");
    not_permitted(client.set_signals(of_threads, true), "whole processes");
    client.set_signals(of_threads, false).expect("they are off");
    client.set_signals(empty, true).unwrap();
    not_permitted(client.add_thread(empty, idle.tid_i64()), "asks for signals");
    client.set_signals(empty, false).unwrap();
    client.suspend(empty).unwrap();
    not_permitted(client.add_thread(empty, idle.tid_i64()), "is suspended");
    // Nothing has changed.
    assert_eq!(of(idle.tid), untouched());
    let threads = |job| place.job(job).map(|job| (job.processes, job.threads));
    wait_until("its thread", || threads(of_threads) == Some((0, 1)));
    assert_eq!(threads(empty), Some((0, 0)));
    assert!(client.add_thread(1 << 40, idle.tid_i64()).is_err());
}

#[test]
fn needs_root_single_threads_are_limited() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let workers: Vec<Worker> = (0..257).map(|_| Worker::waits()).collect();
    let job = job_of(&place, &workers[0], 1);
    let mut client = place.client();
    for worker in &workers[1..256] {
        client.add_thread(job, worker.tid_i64()).unwrap();
    }
    match client.add_thread(job, workers[256].tid_i64()) {
        Err(ClientError::LimitReached { limit, maximum, .. }) => {
            assert_eq!((limit.as_str(), maximum), ("single threads of a job", 256));
        }
        other => panic!("{other:?}"),
    }
    client.remove_thread(job, workers[7].tid_i64()).unwrap();
    client.add_thread(job, workers[256].tid_i64()).unwrap();
}

#[test]
fn process_backends_refuse_single_threads() {
    let worker = Worker::waits();
    let refused = |client: &mut Client| {
        let job = client.register(&registration("single", 1)).unwrap();
        match client.add_thread(job, worker.tid_i64()) {
            Err(ClientError::Failed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let any = daemon("signal");
    for backend in [Backend::Signal, Backend::Freeze, Backend::Weight].map(Backend::name) {
        if let Some(reason) = any.obstacle(backend) {
            gang_harness::skipped(format!("{backend}: {reason}"));
            continue;
        }
        let place = daemon(backend);
        let reason = refused(&mut place.client());
        assert!(reason.contains(backend) && reason.contains("rt"), "{reason}");
        assert!(reason.contains(&format!("add process {}", std::process::id())), "{reason}");
    }
    if any.obstacle("rt").is_none() {
        let place = Place::new(&["--backend", "rt", "--no-fill", "--no-measure"]);
        let reason = refused(&mut place.client());
        assert!(reason.contains("--no-fill"), "{reason}");
    }
    assert_eq!(of(worker.tid), untouched());
}

/// A group of the cpu controller of version 1; it is removed when this is dropped.
struct CpuGroup(PathBuf);

impl CpuGroup {
    /// `None`, and said, where real-time threads are not divided among groups (RT_GROUP_SCHED).
    fn new() -> Option<CpuGroup> {
        let mounts = Hierarchies::detect(&Roots::default()).unwrap();
        let name = format!("gangd-test-{}-barred", std::process::id());
        let group = mounts.v1.get("cpu").map(|mount| CpuGroup(mount.join(name)));
        let group = group.filter(|group| fs::create_dir(&group.0).is_ok());
        let group = group.filter(|group| group.0.join("cpu.rt_runtime_us").exists());
        if group.is_none() {
            gang_harness::skipped("needs version 1 of the cpu controller with cpu.rt_runtime_us");
        }
        group
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Its threads have ended, or do so in a moment.
        let end = Instant::now() + TEST_TIMEOUT;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn needs_root_thread_without_realtime_is_refused() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let Some(group) = CpuGroup::new() else { return };
    let (barred, free) = (Worker::waits(), Worker::waits());
    group.set("cpu.rt_runtime_us", "0");
    group.set("tasks", &barred.tid.to_string());
    let before = of(barred.tid);
    let mut client = place.client();
    let job = client.register(&registration("single", 1)).unwrap();
    match client.add_thread(job, barred.tid_i64()) {
        Err(ClientError::Failed { reason, .. }) => {
            let named = format!("its group {} may have no real-time threads", group.0.display());
            assert!(reason.contains(&named), "{reason}");
            assert!(reason.contains("cpu.rt_runtime_us is 0"), "{reason}");
            assert!(reason.contains(&format!("add process {}", std::process::id())), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(of(barred.tid), before, "nothing was done to it");
    assert_eq!(place.job(job).unwrap().threads, 0);
    assert_eq!(place.jobs_on_file(), 0);
    // Of the same process, and in a group that may.
    client.add_thread(job, free.tid_i64()).expect("it is in another group");
    wait_until("it is there", || place.job(job).is_some_and(|job| job.threads == 1));
    drop(barred);
}

#[test]
fn needs_root_fill_in_force_counts_and_not_as_reread() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let settings = "fill = false\n[classes.batch]\nweight = 70\n";
    fs::write(place.directory.path().join("gangd.toml"), settings).unwrap();
    place.signal(rustix::process::Signal::HUP);
    wait_until("it was read", || place.status().batch_weight == 70);
    assert!(place.status().fill, "that needs a restart");
    let worker = Worker::spins();
    let job = job_of(&place, &worker, 1);
    wait_until("slots", || place.job(job).unwrap().slots > 3);
}

#[test]
fn needs_root_single_threads_survive_kills() {
    if !has_backend("rt") {
        return;
    }
    let mut place = daemon("rt");
    let _turn = take_turn();
    let (worker, rival) = (Worker::spins(), Worker::spins());
    let before = untouched();
    let job = job_of(&place, &worker, machine());
    job_of(&place, &rival, machine());
    is_raised_and_fills(&worker);
    place.kill();
    for worker in [&worker, &rival] {
        wait_until("the guardian has released it", || of(worker.tid) == before);
    }
    place.start();
    is_raised_and_fills(&worker);
    assert_eq!(place.job(job).unwrap().single_threads, Some(true));
    place.kill_daemon_and_guardian();
    place.release(&[]);
    assert_eq!((of(worker.tid), of(rival.tid)), (before.clone(), before.clone()));
    place.start();
    assert!(place.job(job).is_none(), "who releases ends the jobs");
    drop(worker);
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_unswitchable_threads_are_released() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::configured("backend = 'rt'\n", &["--no-measure"]);
    let _turn = take_turn();
    let (worker, before) = (Worker::spins(), untouched());
    let job = job_of(&place, &worker, 1);
    wait_until("it has slots", || place.job(job).unwrap().slots > 3);
    fs::write(place.directory.path().join("gangd.toml"), "backend = 'signal'\n").unwrap();
    place.kill();
    place.start();
    assert!(place.job(job).is_none(), "it says in its log why");
    assert_eq!(of(worker.tid), before);
    assert_eq!(place.jobs_on_file(), 0);
}

#[test]
fn needs_root_children_of_threads_are_ordinary() {
    if !has_backend("rt") {
        return;
    }
    let place = daemon("rt");
    let _turn = take_turn();
    let (worker, rival) = (Worker::spins(), Worker::spins());
    let before = untouched();
    let job = job_of(&place, &worker, 1);
    job_of(&place, &rival, machine());
    let mut children = Vec::new();
    let threads: Vec<Worker> = (0..20)
        .map(|round| {
            // In its slot and out of it.
            let standing = if round % 2 == 0 { SchedPolicy::Idle } else { SchedPolicy::Fifo };
            wait_until("it stands so", || worker.policy() == standing);
            if round < 4 {
                children.push(worker.carry_out(Order::StartChild));
            }
            worker.carry_out(Order::StartThread)
        })
        .collect();
    for thread in &threads {
        wait_until("a thread that it started is ordinary", || of(thread.tid) == before);
    }
    for child in &children {
        wait_until("a child is ordinary", || of(child.pid()) == before);
    }
    assert_eq!(place.job(job).unwrap().threads, 1, "none of them is a member");
    // Threads started at the last moment, too.
    let last = [(); 4].map(|()| worker.carry_out(Order::StartThread));
    place.client().remove_thread(job, worker.tid_i64()).unwrap();
    last.iter().for_each(|thread| assert_eq!(of(thread.tid), before));
    assert!(place.job(job).is_none(), "it has ended");
}
