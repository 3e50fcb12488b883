//! Limits: a client beyond a limit gets its name and maximum, and a gang that runs meanwhile has
//! its slots.

mod place;

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use gang_harness::{TEST_TIMEOUT, skipped};
use gang_linux::process;
use gang_protocol::{client::Client, error::ClientError, limits::MESSAGE_MAX, v1};
use place::{
    Place, Program, SPIN, has_backend, is_root, job_with, machine, registration, wait_released,
    wait_until,
};
use rustix::event::{PollFd, PollFlags, poll};

/// Thousands of threads are load for the daemons of all other tests: tests with so many run by
/// themselves.
static BESIDE_MANY_THREADS: RwLock<()> = RwLock::new(());

/// A daemon with a gang that is to notice nothing.
struct Watched {
    place: Place,
    job: i64,
    _program: Program,
    _few_threads: RwLockReadGuard<'static, ()>,
}

impl Watched {
    /// One that anybody can start.
    fn new(limits: &str) -> Watched {
        let few_threads = BESIDE_MANY_THREADS.read().unwrap_or_else(PoisonError::into_inner);
        let place = Place::configured(&format!("[limits]\n{limits}"), &["--backend", "signal"]);
        let program = Program::spinner();
        let job = job_with(&place, &program, 1);
        let watched = Watched { place, job, _program: program, _few_threads: few_threads };
        watched.goes_on();
        watched
    }

    fn slots(&self, client: &mut Client) -> i64 {
        client.show_job(self.job).unwrap().details.slots
    }

    fn goes_on(&self) {
        let mut client = self.place.client();
        let before = self.slots(&mut client);
        wait_until("more slots", || self.slots(&mut client) > before + 3);
    }

    /// The daemon's threads and sockets for its clients: a thread for each.
    fn is_left_with(&self, clients: usize, sockets: usize) -> bool {
        let (threads, open) = self.holds();
        threads <= clients && open <= sockets
    }

    fn holds(&self) -> (usize, usize) {
        let daemon = self.place.status().pid;
        let all = |what: &str| fs::read_dir(format!("/proc/{daemon}/{what}")).unwrap().flatten();
        // A thread that has gone meanwhile is none.
        let threads = all("task").filter_map(|of| fs::read_to_string(of.path().join("comm")).ok());
        let files = all("fd").filter_map(|of| fs::read_link(of.path()).ok());
        (
            threads.filter(|name| name == "client\n").count(),
            files.filter(|file| file.to_string_lossy().starts_with("socket:")).count(),
        )
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.place.socket()).unwrap()
    }
}

/// The limit that an error names, as it is written for people.
fn limit(error: ClientError) -> String {
    assert!(matches!(error, ClientError::LimitReached { .. }), "{error}");
    error.to_string()
}

#[test]
fn jobs() {
    let watched = Watched::new("jobs = 3\n");
    let mut client = watched.place.client();
    let register = |client: &mut Client| client.register(&registration("job", 1));
    let (second, third) = (register(&mut client).unwrap(), register(&mut client).unwrap());
    for _ in 0..3 {
        let refusal = limit(register(&mut client).unwrap_err());
        assert!(refusal.contains("limit of 3 jobs is reached"), "{refusal}");
    }
    let program = Program::spinner();
    let adopted = gang_protocol::client::Adopted::Process(program.pid_i64());
    let refusal = limit(client.adopt(&registration("adopted", 1), &adopted).unwrap_err());
    assert!(refusal.contains("limit of 3 jobs is reached"), "{refusal}");
    watched.goes_on();
    let jobs = client.list_jobs().unwrap().jobs;
    let numbers: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    assert_eq!(numbers, [watched.job, second, third]);
    // There is room again as soon as one has ended.
    drop(client);
    wait_until("room", || {
        let mut client = watched.place.client();
        register(&mut client).is_ok()
    });
}

#[test]
fn sighup_reads_limits_disk_and_forget_after() {
    let watched = Watched::new("jobs = 2\n");
    let place = &watched.place;
    let configure = |text: &str| {
        fs::write(place.directory.path().join("gangd.toml"), text).unwrap();
        place.signal(rustix::process::Signal::HUP);
    };
    let mut client = place.client();
    let mut register = || client.register(&registration("job", 1));
    let sleeper = Program::sleeper();
    let sleeps = job_with(place, &sleeper, 1);
    let refusal = limit(register().unwrap_err());
    assert!(refusal.contains("limit of 2 jobs is reached"), "{refusal}");
    configure("[limits]\njobs = 4\n");
    let mut more = Vec::new();
    wait_until("there is room", || register().map(|job| more.push(job)).is_ok());
    more.push(register().unwrap());
    let refusal = limit(register().unwrap_err());
    assert!(refusal.contains("limit of 4 jobs is reached"), "{refusal}");
    // A job that is there already stays, and there is no space on /proc.
    configure("scratch_dir = '/proc'\n[limits]\njobs = 1\n");
    wait_until("another directory", || place.status().disk.total == 0);
    let refusal = limit(register().unwrap_err());
    assert!(refusal.contains("limit of 1 jobs is reached"), "{refusal}");
    let there: Vec<i64> =
        place.client().list_jobs().unwrap().jobs.iter().map(|job| job.id).collect();
    assert_eq!(there, [watched.job, sleeps, more[0], more[1]]);
    watched.goes_on();
    // A wrong file changes nothing, and the next one is read all the same.
    configure("scratch_dir = '/nosuchdirectory'\n[limits]\njobs = 9\n");
    configure("idle_after = '1s'\nforget_after = '1s'\n");
    wait_until("the usual directory", || place.status().disk.total > 0);
    wait_until("who sleeps leaves", || place.job(sleeps).is_none());
    assert!(Path::new(&format!("/proc/{}", sleeper.pid())).exists(), "and its process runs on");
    watched.goes_on();
}

#[test]
fn connections() {
    let watched = Watched::new("clients = 5\n");
    let mut one = watched.place.client();
    let mut others = Vec::new();
    let mut refused = None;
    // Connections of the daemon's start may not be gone yet.
    wait_until("all are taken", || {
        let mut next = watched.place.client();
        match next.status() {
            Ok(_) => others.push(next),
            Err(error) => refused = Some(error),
        }
        refused.is_some()
    });
    assert!(others.len() <= 4, "{}", others.len());
    let refusal = limit(refused.unwrap());
    assert!(refusal.contains("limit of 5 clients is reached"), "{refusal}");
    let before = watched.slots(&mut one);
    wait_until("more slots", || watched.slots(&mut one) > before + 3);
    drop(others);
    wait_until("there is room again", || watched.place.client().status().is_ok());
}

#[test]
fn the_length_of_a_message() {
    let watched = Watched::new("");
    let mut longest = format!("{{\"method\":\"org.gangd.v1.{}", "x".repeat(MESSAGE_MAX));
    longest.truncate(MESSAGE_MAX - 2);
    longest.push_str("\"}");
    let fits = watched.place.raw(format!("{longest}\0").as_bytes(), 1);
    assert!(fits.contains("MethodNotFound"), "{fits}");
    longest.insert(30, 'x');
    for message in [format!("{longest}\0"), longest, "x".repeat(1 << 20)] {
        let answer = watched.place.raw(message.as_bytes(), usize::MAX);
        assert!(answer.contains("InvalidValue") && answer.contains("65536 bytes"), "{answer}");
    }
    watched.goes_on();
}

#[test]
fn the_time_that_a_message_takes() {
    let watched = Watched::new("message_timeout = '1s'\n");
    // An old connection may be silent for longer than a message may take.
    let mut client = watched.place.client();
    // Its thread has a name of its own by then, and is counted.
    assert_eq!(client.list_jobs().unwrap().jobs.len(), 1);
    let (clients, sockets) = watched.holds();
    let mut hanging: Vec<UnixStream> = (0..20).map(|_| watched.connect()).collect();
    for stream in &mut hanging {
        stream.write_all(b"{\"method\":\"org.gangd.v1.Li").unwrap();
    }
    watched.goes_on();
    for mut stream in hanging {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        assert_eq!(stream.read(&mut [0]).expect("it is cut off"), 0);
    }
    wait_until("nothing of them is left", || watched.is_left_with(clients, sockets));
    assert_eq!(client.list_jobs().unwrap().jobs.len(), 1);
}

#[test]
fn the_time_until_an_answer_is_taken() {
    let watched = Watched::new("message_timeout = '1s'\n");
    let (clients, sockets) = watched.holds();
    let never_reads: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut stream = watched.connect();
            stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
            let request = b"{\"method\":\"org.gangd.v1.GetStatus\"}\0";
            // Answers are longer than requests: those come to a stop, and then these.
            let cut_off = (0..1_000_000).find_map(|_| stream.write_all(request).err());
            let cut_off = cut_off.expect("the daemon does not buffer without end").kind();
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
            assert!(matches!(cut_off, BrokenPipe | ConnectionReset), "{cut_off}");
            watched.goes_on();
            stream
        })
        .collect();
    // While their ends are still open here.
    wait_until("nothing of them is left", || watched.is_left_with(clients, sockets));
    drop(never_reads);
}

/// Set to their number where this program plays one with very many threads.
const HAS_MANY_THREADS: &str = "GANG_TEST_HAS_MANY_THREADS";

/// More threads than a job may have to be switched.
const MANY: usize = 4_200;

/// The line at which they begin, and some of them spin.
const GO: &[u8] = b"go\n";

/// So many of these spin.
const SPINNERS: usize = 300;

/// Has many threads that wait until it is killed. Some of them spin from the second line to
/// the third.
fn have_many_threads() {
    let line = || std::io::stdin().read_exact(&mut [0; GO.len()]).unwrap();
    line();
    let (spinning, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let waits = |spins: bool| {
        let (spinning, is_over, first) = (spinning.clone(), is_over.clone(), thread::current());
        move || {
            if spins {
                // A writer wakes all of them, whatever of the CPUs this program has.
                let stdin = std::io::stdin();
                let mut line = [PollFd::new(&stdin, PollFlags::IN)];
                while poll(&mut line, None).is_err() {}
                if spinning.fetch_add(1, Ordering::AcqRel) + 1 == SPINNERS {
                    first.unpark();
                }
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
            loop {
                thread::park();
            }
        }
    };
    let count: usize = std::env::var(HAS_MANY_THREADS).unwrap().parse().unwrap();
    let started = (0..count).map_while(|number| {
        let thread = thread::Builder::new().stack_size(16 << 10);
        thread.spawn(waits(number < SPINNERS)).ok()
    });
    println!("threads: {}", started.count());
    // Until all have seen the second line, it is left where it is.
    while spinning.load(Ordering::Acquire) < SPINNERS {
        thread::park();
    }
    (0..2).for_each(|_| line());
    is_over.store(true, Ordering::Relaxed);
    loop {
        thread::park();
    }
}

/// Threads of a process that want to run.
fn runnable(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
        .count()
}

/// Threads that want to run and are of no process below these.
fn runnable_outside(pids: &[u32]) -> usize {
    let root = Path::new("/proc");
    let inside: Vec<u32> =
        pids.iter().flat_map(|&pid| process::descendants(root, pid).unwrap()).collect();
    let names = fs::read_dir(root).unwrap().flatten().map(|entry| entry.file_name());
    let all = names.filter_map(|name| name.to_str()?.parse().ok());
    let outside = all.filter(|pid| !inside.contains(pid));
    outside.map(runnable).sum()
}

/// So many threads, as `test` of this program has them, and how to have some spin; nothing where
/// the machine does not permit them.
fn with_many_threads(test: &str, count: usize) -> Option<(Program, ChildStdin)> {
    let mut program = Program::start(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(HAS_MANY_THREADS, count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    );
    let mut go = program.0.stdin.take().unwrap();
    go.write_all(GO).unwrap();
    let output = std::io::BufReader::new(program.0.stdout.take().unwrap());
    let line = std::io::BufRead::lines(output).map_while(Result::ok);
    let line = line.filter_map(|line| Some(line.rsplit_once("threads: ")?.1.to_owned())).next();
    if line.as_deref() != Some(&count.to_string()) {
        skipped(format!("this machine does not permit {count} threads: {line:?}"));
        return None;
    }
    Some((program, go))
}

#[test]
fn needs_root_threads_that_an_edge_has_no_time_for() {
    const TEST: &str = "needs_root_threads_that_an_edge_has_no_time_for";
    if std::env::var_os(HAS_MANY_THREADS).is_some() {
        return have_many_threads();
    }
    if !has_backend("rt") {
        return;
    }
    let _turn = BESIDE_MANY_THREADS.write().unwrap_or_else(PoisonError::into_inner);
    // Edges have 200 µs: enough for fewer than 500 threads, however fast the machine is.
    let place = Place::configured("[limits]\nswitching_percent = 1\n", &["--backend", "rt"]);
    let Some((program, _go)) = with_many_threads(TEST, 1_000) else { return };
    let neighbour = Program::spinner();
    let beside = job_with(&place, &neighbour, 1);
    let large = job_with(&place, &program, 1);
    let found = |job: i64| place.job(job).unwrap();
    wait_until("it has no slots", || found(large).state == v1::JobState::too_many_threads);
    let job = found(large);
    let crowded = job.crowded.unwrap();
    assert_eq!((crowded.edge_ns, crowded.size), (200_000, job.threads));
    assert!(crowded.takes_ns > crowded.edge_ns && crowded.size_max < 500, "{crowded:?}");
    let before = (job.slots, found(beside).slots);
    wait_until("the other one has", || found(beside).slots > before.1 + 20);
    assert!(found(large).slots <= before.0 + 1, "{}", found(large).slots);
    assert!(found(beside).crowded.is_none());
}

#[test]
fn needs_root_threads_of_a_job() {
    if std::env::var_os(HAS_MANY_THREADS).is_some() {
        return have_many_threads();
    }
    if !has_backend("rt") {
        return;
    }
    let _turn = BESIDE_MANY_THREADS.write().unwrap_or_else(PoisonError::into_inner);
    let mut place = Place::new(&["--backend", "rt"]);
    let neighbour = Program::spinner();
    let beside = job_with(&place, &neighbour, 1);
    let Some((program, mut go)) = with_many_threads("needs_root_threads_of_a_job", MANY) else {
        return;
    };
    let large = job_with(&place, &program, 1);
    let found = |job: i64| place.job(job).unwrap();
    wait_until("it has no slots", || {
        let job = found(large);
        job.threads == 4096 && job.state == v1::JobState::too_many_threads
    });
    let before = (found(large).slots, found(beside).slots);
    wait_until("the other one has", || found(beside).slots > before.1 + 20);
    assert!(found(large).slots <= before.0 + 1, "{}", found(large).slots);
    assert_ne!(found(beside).state, v1::JobState::too_many_threads);
    // Those of its threads that want to run have no slots. Nor are they a load, to which the other
    // gangs would have to leave nearly all of their time.
    wait_until("all have begun to wait", || runnable(program.pid()) == 0);
    go.write_all(GO).unwrap();
    wait_until("they want to run", || runnable(program.pid()) >= SPINNERS);
    let (before, mut load) = (found(beside).slots, 0);
    wait_until("the other one has slots", || {
        load = load.max(place.status().unregistered_threads as usize);
        found(beside).slots > before + 20
    });
    // Not even those of this test's own that want to run for a moment are so many.
    assert!(load < SPINNERS / 10, "{load} threads are taken for nobody's");
    assert!(runnable(program.pid()) >= SPINNERS, "they have wanted to run until now");
    assert_eq!(place.client().check().unwrap().violations, []);
    place.kill();
    // As ordinary threads they would spin beside the test's own.
    go.write_all(GO).unwrap();
    wait_released(program.pid(), "released");
}

/// Many processes that compute, and one that sleeps, which none of the others is like.
#[test]
fn needs_root_and_bpf_many_threads_are_no_load() {
    const THREADS: usize = 256;
    if !has_backend("rt") || !has_room_for(THREADS) {
        return;
    }
    let _turn = BESIDE_MANY_THREADS.write().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new(&["--backend", "rt"]);
    let measuring = || place.status().measuring;
    wait_until("it is measured, or not", || measuring() != v1::Measuring::starting);
    if measuring() != v1::Measuring::yes {
        skipped("without BPF it is not known how many threads want to run");
        return;
    }
    // Each becomes another program when it has its CPU, which may take long: the daemon waits for
    // none of them.
    let spins = format!("bash -c '{SPIN}'");
    let (program, job) = many_processes(&place, THREADS, "", &spins);
    let found = || place.job(job).unwrap();
    for _ in 0..10 {
        let before = found().slots;
        wait_until("it has slots", || found().slots > before + 5);
    }
    // Threads of a job that grows are taken for load at first, and forgotten in a second. A thread
    // that wants to run for a moment is not there each time.
    wait_until("threads are taken for nobody's only where they are nobody's", || {
        let nobodys = runnable_outside(&[program.pid(), place.pid(), std::process::id()]);
        place.status().unregistered_threads <= nobodys as i64
    });
    assert_eq!(place.client().check().unwrap().violations, []);
}

/// A job of a shell and so many more processes that it starts.
fn many_processes(place: &Place, processes: usize, first: &str, each: &str) -> (Program, i64) {
    let start = format!("for i in $(seq 2 {processes}); do {each} & done");
    let script = format!("read go; {first}\n{start}; wait");
    let mut program = Program::shell(&script);
    let job = job_with(place, &program, machine());
    program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    wait_until("all are there", || place.job(job).unwrap().threads == processes as i64);
    (program, job)
}

/// The kernel has the reader of some files of a process wait while the process becomes another
/// program. Here each process waits for its CPU most of the time meanwhile.
#[test]
fn needs_root_slow_reads_delay_no_switch_without_bpf() {
    const PROCESSES: usize = 256;
    if !has_backend("rt") || !has_room_for(PROCESSES) {
        return;
    }
    let _turn = BESIDE_MANY_THREADS.write().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new(&["--backend", "rt", "--no-measure"]);
    let first = "again='exec sh -c \"$0\" \"$0\"'";
    let each = "sh -c \"$again\" \"$again\"";
    let (_program, job) = many_processes(&place, PROCESSES, first, each);
    let slots = || place.job(job).unwrap().slots;
    for _ in 0..20 {
        let before = slots();
        wait_until("it has slots", || slots() > before + 5);
        // A guardian that took the daemon for stuck has released the job, which `check` would see.
        assert_eq!(place.client().check().unwrap().violations, []);
    }
}

/// Whether the machine has room for so many processes more, and as many again for everybody else.
fn has_room_for(processes: usize) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let number = |path: &str| read(path).trim().parse::<usize>().unwrap_or(0);
    let most = number("/proc/sys/kernel/pid_max").min(number("/proc/sys/kernel/threads-max"));
    // The fourth word is `running/all`.
    let load = read("/proc/loadavg");
    let there = load.split([' ', '/']).nth(4).and_then(|all| all.parse().ok()).unwrap_or(most);
    let memory = read("/proc/meminfo");
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free_kib = free.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0);
    // A shell that waits has less than this.
    let has_room = there + 2 * processes < most && processes * 512 < free_kib;
    if !has_room {
        skipped(format!(
            "no room for {processes} processes: {there} of {most}, {free_kib} KiB free"
        ));
    }
    has_room
}

#[test]
fn needs_root_processes_of_a_job() {
    if !is_root() || !has_room_for(MANY) {
        return;
    }
    let _turn = BESIDE_MANY_THREADS.write().unwrap_or_else(PoisonError::into_inner);
    // This backend switches a job as a whole: others take so long for thousands of threads that
    // hardly more are started.
    let any = Place::new(&["--backend", "signal"]);
    let Some(backend) = ["weight", "freeze"].into_iter().find(|it| any.obstacle(it).is_none())
    else {
        skipped("no backend here switches jobs as a whole");
        return;
    };
    drop(any);
    let mut place = Place::new(&["--backend", backend]);
    let neighbour = Program::spinner();
    let beside = job_with(&place, &neighbour, 1);
    // All wait for a line that never comes, and end with this test.
    let mut bomb = Program::shell(&format!(
        "read go; exec 3<&0; i=0; while [ $i -lt {MANY} ]; do (read line <&3) & i=$((i+1)); done; \
         echo $i; read line <&3"
    ));
    let job = job_with(&place, &bomb, 1);
    bomb.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let output = std::io::BufReader::new(bomb.0.stdout.take().unwrap());
    let line = std::io::BufRead::lines(output).map_while(Result::ok).next();
    if line.as_deref() != Some(&MANY.to_string()) {
        skipped(format!("this machine does not permit {MANY} processes: {line:?}"));
        return;
    }
    let found = |job: i64| place.job(job).unwrap();
    wait_until("it has no slots", || {
        let job = found(job);
        job.threads == 4096 && job.state == v1::JobState::too_many_threads
    });
    let shown = place.client().show_job(job).unwrap();
    let processes = shown.processes.unwrap_or_default();
    assert_eq!(shown.details.processes, MANY as i64 + 1);
    assert_eq!(processes.len(), MANY + 1, "all of them are reported");
    let before = (found(job).slots, found(beside).slots);
    wait_until("the other one has", || found(beside).slots > before.1 + 20);
    let now = found(job);
    assert!(now.slots <= before.0 + 1, "{before:?} {now:?}");
    assert_eq!(place.client().check().unwrap().violations, []);
    place.kill();
    // All are in the same groups, and nothing else was done to them.
    let last = processes.iter().map(|process| process.pid).max().unwrap() as u32;
    for pid in [last, neighbour.pid()] {
        wait_released(pid, "released");
    }
}
