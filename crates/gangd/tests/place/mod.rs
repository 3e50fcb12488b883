//! A daemon of its own for a test ([`gang_daemon`]), and what tests ask the kernel about its jobs.

#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]

use std::{
    fs,
    io::Write,
    ops::{Deref, DerefMut},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use gang_daemon::{Daemon, Options};
pub use gang_daemon::{Program, SPIN, is_root};
use gang_harness::{TEST_TIMEOUT, skipped};
pub use gang_harness::{wait_busily_until, wait_for, wait_until};
use gang_linux::{Roots, cgroup::Hierarchies, process, sched};
use gang_protocol::{
    client::{Client, Registration},
    v1,
};
use gang_timetable::Backend;
use nix::sys::{
    ptrace,
    wait::{WaitPidFlag, WaitStatus, waitpid},
};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open},
};

/// The backends that can be used here, as a daemon finds them.
static BACKENDS: LazyLock<Vec<v1::Backend>> =
    LazyLock::new(|| Place::new(&["--backend", "signal"]).status().backends);

/// True where a backend can be used and this is root; prints what is skipped where not. A cgroup
/// that a test was started in may deny SCHED_FIFO to root, too.
pub fn has_backend(name: &str) -> bool {
    if !is_root() {
        return false;
    }
    let found = BACKENDS.iter().find(|found| found.name == name).unwrap();
    if let Some(reason) = &found.reason {
        skipped(format!("{name}: {reason}"));
    }
    found.usable
}

/// Runs a test with each backend that this machine permits; the daemon has further flags.
pub fn with_each_backend(flags: &[&str], test: fn(Place)) {
    if !is_root() {
        return;
    }
    for name in Backend::ALL.map(Backend::name) {
        if has_backend(name) {
            test(Place::new(&[&["--backend", name], flags].concat()));
        }
    }
}

/// A daemon, with what tests ask it and the kernel.
pub struct Place(Daemon);

impl Deref for Place {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.0
    }
}

impl Place {
    pub fn new(flags: &[&str]) -> Place {
        Place::configured("", flags)
    }

    /// A daemon that leaves gangs to Linux while nobody else wants a CPU, as it does by default.
    /// Other tests look at gangs that are raised, on a quiet machine as on a busy one.
    pub fn that_passes_through(flags: &[&str]) -> Place {
        let options = Options { flags, ..Options::default() };
        Place(Daemon::start_in(gang_daemon::Place::new(), &options))
    }

    /// A daemon with a configuration file.
    pub fn configured(configuration: &str, flags: &[&str]) -> Place {
        Place::launched(&[], configuration, flags)
    }

    /// A daemon that runs already.
    pub fn of(daemon: Daemon) -> Place {
        Place(daemon)
    }

    /// A daemon that another program becomes, with its arguments: `env TZ=UTC`, say.
    pub fn launched(launcher: &[&str], configuration: &str, flags: &[&str]) -> Place {
        let flags = &[flags, &["--no-uncontended-passthrough"]].concat();
        let options = Options { launcher, configuration, flags };
        Place(Daemon::start_in(gang_daemon::Place::new(), &options))
    }

    pub fn status(&self) -> v1::Status {
        self.client().status().unwrap().status
    }

    /// Why a backend cannot be used here.
    pub fn obstacle(&self, backend: &str) -> Option<String> {
        let found = self.status().backends.into_iter().find(|found| found.name == backend);
        found.and_then(|found| found.reason)
    }

    pub fn job(&self, id: i64) -> Option<v1::Job> {
        self.client().list_jobs().unwrap().jobs.into_iter().find(|job| job.id == id)
    }

    pub fn jobs_on_file(&self) -> usize {
        fs::read_dir(self.jobs_dir()).map_or(0, Iterator::count)
    }

    /// All that is on file of jobs.
    pub fn jobs_text(&self) -> String {
        let files = fs::read_dir(self.jobs_dir()).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
    }

    /// The threads of the daemon that have a name.
    pub fn threads(&self, called: &str) -> Vec<u32> {
        let (root, daemon) = (Path::new("/proc"), self.pid());
        let name = |tid| fs::read_to_string(format!("/proc/{daemon}/task/{tid}/comm"));
        let threads = process::threads(root, daemon).unwrap().into_iter();
        threads.filter(|&tid| name(tid).is_ok_and(|name| name.trim_end() == called)).collect()
    }

    /// The threads of the daemon that switch. The first one writes to groups, too, and all others
    /// are alike.
    pub fn switchers(&self) -> Vec<u32> {
        self.threads("switcher").into_iter().take(2).collect()
    }

    /// Has the thread that looks for waiting threads look from another CPU, where there is one.
    /// Behind a real-time program it would wait itself, until Linux moves it at some time.
    pub fn look_from_elsewhere(&self, taken: u32) {
        let lookers = self.threads("measuring");
        assert!(!lookers.is_empty() || self.status().measuring != v1::Measuring::yes);
        for looker in lookers {
            let anywhere = sched::affinity(looker).unwrap().into_iter();
            let others: Vec<_> = anywhere.filter(|&cpu| cpu != taken).collect();
            if !others.is_empty() {
                sched::set_affinity(looker, others).unwrap();
            }
        }
    }

    /// The file by which the daemon has its place, as opened by the daemon.
    pub fn lock_of_daemon(&self) -> OwnedFd {
        let daemon = Pid::from_raw(self.pid() as i32).unwrap();
        let lock = self.socket().with_extension("lock");
        let mut files = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().map(Result::unwrap);
        let is_lock =
            |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|path| path == lock);
        let number = files.find(is_lock).unwrap().file_name();
        let daemon = pidfd_open(daemon, PidfdFlags::empty()).unwrap();
        pidfd_getfd(daemon, number.to_str().unwrap().parse().unwrap(), PidfdGetfdFlags::empty())
            .unwrap()
    }

    fn guardian(&self) -> Pid {
        Pid::from_raw(self.status().guardian_pid.unwrap() as i32).unwrap()
    }

    /// Kills the guardian; the daemon starts another one.
    pub fn kill_guardian(&self) {
        let guardian = self.guardian();
        kill_process(guardian, Signal::KILL).unwrap();
        wait_until("another guardian", || {
            self.status().guardian_pid.is_some_and(|pid| pid != i64::from(guardian.as_raw_pid()))
        });
    }

    /// Has the guardian do nothing any more; its number.
    pub fn halt_guardian(&self) -> i32 {
        kill_process(self.guardian(), Signal::STOP).unwrap();
        self.guardian().as_raw_pid()
    }

    /// Kills both as if at the same instant: neither can do anything after the other's end.
    pub fn kill_daemon_and_guardian(&mut self) {
        let guardian = self.guardian();
        // Guardian and daemon do not hear of each other's end.
        kill_process(guardian, Signal::STOP).unwrap();
        self.kill();
        // The kernel hangs up a stopped process when the last of its relatives has gone. So the
        // guardian may be gone, too.
        match kill_process(guardian, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a line of the protocol, as it is. Returns what came back until the connection was
    /// closed or `replies` messages had come, one of which must happen.
    pub fn raw(&self, bytes: &[u8], replies: usize) -> String {
        use std::io::{BufRead, BufReader};
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        // The daemon may close the connection while it is written to.
        let _ = stream.write_all(bytes);
        let mut reader = BufReader::new(stream);
        let mut answer = Vec::new();
        for _ in 0..replies {
            match reader.read_until(0, &mut answer) {
                Ok(1..) => {}
                Ok(0) => break,
                // Bytes that the daemon had not read when it closed make the end of the connection
                // a reset.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("neither an answer nor an end: {error}"),
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// A client of a daemon that may be busy.
pub fn patient_client(socket: &Path) -> Client {
    Client::connect_within(socket, TEST_TIMEOUT).unwrap()
}

/// A thread that does nothing, until this is dropped or it is killed. Its process ends only then.
pub struct Held(nix::unistd::Pid);

impl Held {
    pub fn thread(tid: u32) -> Held {
        let tid = nix::unistd::Pid::from_raw(tid as i32);
        ptrace::seize(tid, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(tid).unwrap();
        waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
        Held(tid)
    }

    /// Lets it run until it makes a system call, or has made one, or does neither for some slices.
    pub fn goes_on_to_a_system_call(&self) {
        ptrace::syscall(self.0, None).unwrap();
        let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
        let end = Instant::now() + Duration::from_millis(20);
        while waitpid(self.0, Some(flags)).unwrap() == WaitStatus::StillAlive {
            if Instant::now() >= end {
                ptrace::interrupt(self.0).unwrap();
                waitpid(self.0, Some(WaitPidFlag::__WALL)).unwrap();
                return;
            }
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// A thread that was not killed yet, and stops before it lets go of its files once it is.
    pub fn when_it_ends(tid: u32) -> Held {
        let tid = nix::unistd::Pid::from_raw(tid as i32);
        ptrace::seize(tid, ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
        Held(tid)
    }

    /// Waits until it has stopped there.
    pub fn is_about_to_end(&self) {
        let stopped = waitpid(self.0, Some(WaitPidFlag::__WALL)).unwrap();
        assert!(matches!(stopped, WaitStatus::PtraceEvent(..)), "{stopped:?}");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if ptrace::detach(self.0, None).is_err() {
            // The process was killed, and this one hears of its end.
            let _ = waitpid(self.0, Some(WaitPidFlag::__WALL));
        }
    }
}

/// How many CPUs there are for jobs. A quota of the cgroup that the test is in makes them no fewer.
pub fn machine() -> i64 {
    sched::affinity(0).unwrap().len() as i64
}

pub fn registration(name: &str, cpus: i64) -> Registration {
    Registration { min_cpus: 1, ..Registration::new(name, cpus) }
}

/// Registers a job and puts a program into it.
pub fn job_with(place: &Place, program: &Program, cpus: i64) -> i64 {
    let mut client = place.client();
    let job = client.register(&registration("job", cpus)).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    job
}

/// The policies of all threads below a process.
pub fn policies(pid: u32) -> Vec<sched::SchedPolicy> {
    let root = Path::new("/proc");
    let processes = process::descendants(root, pid).unwrap();
    let threads =
        processes.into_iter().flat_map(|pid| process::threads(root, pid).unwrap_or_default());
    threads.filter_map(|tid| sched::get(tid).ok()).map(|attributes| attributes.policy).collect()
}

/// Waits until nothing is left of gangd with a program, and prints what still is.
pub fn wait_released(pid: u32, when: &str) {
    let mut last = None;
    wait_until(when, || {
        let left = what_is_left(pid);
        if left.is_some() && left != last {
            eprintln!("{when}: {left:?}");
        }
        last = left;
        last.is_none()
    });
}

/// A thread that is not as the test's own threads are, of which gangd knows nothing, and how it
/// differs.
pub fn what_is_left(pid: u32) -> Option<String> {
    let root = Path::new("/proc");
    let (normal, anywhere) = (sched::get(0).unwrap(), sched::affinity(0).unwrap());
    process::descendants(root, pid).unwrap().into_iter().find_map(|pid| {
        let stopped = process::stat(root, pid).is_ok_and(|stat| stat.state == b'T');
        let mut threads = process::threads(root, pid).unwrap_or_default().into_iter();
        let of_thread = threads.find_map(|tid| {
            // One that ended meanwhile has nothing.
            let (now, cpus) = (sched::get(tid).ok()?, sched::affinity(tid).ok()?);
            (now != normal || cpus != anywhere)
                .then(|| format!("thread {tid}: {now:?} on {cpus:?}"))
        });
        let of_process = stopped.then(|| format!("process {pid} is stopped"));
        // Whatever holds the process back comes first.
        of_process.or_else(|| what_its_groups_do(pid)).or(of_thread)
    })
}

/// A process is stopped, or a group of it frozen; nothing else that is done to it hides that.
pub fn stands_still(pid: u32) -> bool {
    let root = Path::new("/proc");
    let stopped = |pid| process::stat(root, pid).is_ok_and(|stat| stat.state == b'T');
    let frozen = |group: PathBuf| FROZEN.iter().any(|state| has(&group, state));
    process::descendants(root, pid).unwrap().into_iter().any(stopped)
        || groups_of(pid).into_iter().any(frozen)
}

/// The line in a group's file where its processes are frozen, in version 2 and 1.
const FROZEN: [(&str, &str); 2] = [("cgroup.events", "frozen 1"), ("freezer.state", "FROZEN")];

/// A file of a group has this line.
fn has(group: &Path, (file, line): &(&str, &str)) -> bool {
    fs::read_to_string(group.join(file)).is_ok_and(|text| text.lines().any(|read| read == *line))
}

/// How the groups that a process is in hold it back, or favour it.
fn what_its_groups_do(pid: u32) -> Option<String> {
    let favours = [("cpu.weight", "10000"), ("cpu.shares", "262144")];
    let of_group = |group: PathBuf| {
        let found = FROZEN.iter().chain(&favours).find(|state| has(&group, state))?;
        Some(format!("{}: {}", group.join(found.0).display(), found.1))
    };
    let of_groups = groups_of(pid).into_iter().find_map(of_group);
    of_groups.or_else(|| gives_way(pid).then(|| format!("process {pid} gives way")))
}

/// The groups of a process that can change when it runs, of both versions.
pub fn groups_of(pid: u32) -> Vec<PathBuf> {
    let mounts = Hierarchies::detect(&Roots::default()).unwrap();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let below = match controllers {
            "" => mounts.v2.as_ref(),
            _ => controllers
                .split(',')
                .filter(|controller| ["cpu", "freezer"].contains(controller))
                .find_map(|controller| mounts.v1.get(controller)),
        };
        Some(below?.join(path.trim_start_matches('/')))
    };
    groups.lines().filter_map(group).collect()
}

/// A group that the process is in is idle as a whole: everything outside comes first.
pub fn gives_way(pid: u32) -> bool {
    groups_of(pid).into_iter().any(|directory| {
        let mut above = directory.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
        above
            .any(|group| fs::read_to_string(group.join("cpu.idle")).is_ok_and(|idle| idle == "1\n"))
    })
}
