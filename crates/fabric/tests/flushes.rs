//! Ports of programs in jobs of a daemon: flushed while the program computes, and looked at.
//!
//! A job is this test program again: a launcher, which starts ranks and passes lines on to them and
//! from them.
#![allow(unsafe_code)]

mod port;

use std::{
    cell::RefCell,
    env,
    io::{BufRead, BufReader, Write, stdin, stdout},
    os::{fd::AsRawFd, unix::net::UnixStream},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
};

use gang_daemon::{Daemon, Options, Place, are_built};
use gang_fabric::{
    address::{ADDRESS, Address},
    completion::fi,
    settings::{Medium, Settings},
};
use gang_harness::{TEST_TIMEOUT, wait_until};
use gang_net::port as layout;
use gang_protocol::{error::ClientError, v1};
use port::{Port, bytes, settings};

/// Messages that are sent to a rank that computes.
const SENT: u64 = 40;

fn to_text(address: &Address) -> String {
    address.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_text(text: &str) -> Option<Address> {
    let digits = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..ADDRESS).map(digits).collect();
    Address::from_bytes(&bytes?)
}

fn number(variable: &str) -> usize {
    env::var(variable).unwrap().parse().unwrap()
}

/// Says a line to the test.
fn say(text: &str) {
    let mut out = stdout().lock();
    writeln!(out, "\n{text}").unwrap();
    out.flush().unwrap();
}

fn rank_command() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "rank", "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Not a test: what starts the ranks.
#[test]
#[ignore = "a role of the other tests"]
fn launcher() {
    let Ok(count) = env::var("RANKS") else { return };
    let start = |rank: usize| {
        let mut command = rank_command();
        command.env("PMI_RANK", rank.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut ranks: Vec<Child> = (0..count.parse().unwrap()).map(start).collect();
    let mut outs: Vec<_> = ranks
        .iter_mut()
        .map(|rank| BufReader::new(rank.stdout.take().unwrap()).lines().map_while(Result::ok))
        .collect();
    let all: Vec<String> = outs
        .iter_mut()
        .map(|lines| {
            lines.find_map(|line| Some(line.strip_prefix("address ")?.to_owned())).unwrap()
        })
        .collect();
    let mut ins: Vec<ChildStdin> =
        ranks.iter_mut().map(|rank| rank.stdin.take().unwrap()).collect();
    ins.iter_mut().for_each(|to| writeln!(to, "{}", all.join(" ")).unwrap());
    for lines in outs {
        thread::spawn(move || {
            lines.filter(|line| line.starts_with("rank ")).for_each(|line| say(&line))
        });
    }
    for line in stdin().lines().map_while(Result::ok) {
        ins.iter_mut().for_each(|to| drop(writeln!(to, "{line}")));
    }
    ranks.iter_mut().for_each(|rank| {
        let _ = rank.kill();
        let _ = rank.wait();
    });
}

/// Waits for a receive without a timeout, as fi_cq_sread does.
fn wait(port: &Port) -> gang_fabric::completion::Completion {
    loop {
        let is_there = |state: &mut gang_fabric::state::State| {
            !state.queue(0).is_ok_and(|queue| queue.is_empty())
        };
        port.0.wait(None, is_there).unwrap();
        let end = port.completed().unwrap();
        assert_eq!(end.error, 0, "{end:?}");
        if end.flags & fi::RECV != 0 {
            return end;
        }
    }
}

/// Not a test: what a rank does.
#[test]
#[ignore = "a role of the other tests"]
fn rank() {
    let Ok(role) = env::var("ROLE") else { return };
    let (rank, count) = (number("PMI_RANK"), number("RANKS"));
    let medium = match env::var("MEDIUM").as_deref() {
        Ok("udp") => Medium::Udp,
        _ => Medium::Auto,
    };
    let said = Arc::new(Mutex::new(String::new()));
    let log = said.clone();
    let of_variables = Settings::from_environment().unwrap();
    let settings =
        Settings { medium, job: of_variables.job, rank: of_variables.rank, ..settings() };
    let port = Port::open_with(settings, move |text| {
        log.lock().unwrap().push_str(text);
    });
    let is_flushed = said.lock().unwrap().contains("is flushed by the daemon, in job");
    println!("\naddress {}", to_text(&port.address()));
    let mut line = String::new();
    stdin().lock().read_line(&mut line).unwrap();
    let all: Vec<u64> =
        line.split_whitespace().map(|text| port.insert(from_text(text).unwrap())).collect();
    say(&format!("rank {rank} {is_flushed}"));
    let mut buffer = vec![0; 100];
    let receive = |from: usize, buffer: &mut [u8]| {
        port.receive_with(buffer, |it| it.from = all[from]).unwrap();
    };
    match role.as_str() {
        // Each waits for the next one.
        "ring" => {
            receive((rank + 1) % count, &mut buffer);
            wait(&port);
        }
        // As an MPI does, by fi_cq_read.
        "poll" => {
            receive((rank + 1) % count, &mut buffer);
            loop {
                port.with(|state| {
                    state.progress();
                    state.polled();
                });
            }
        }
        // Messages go round, one by one, until somebody says so.
        "live" => {
            let mut turn = 0_u64;
            loop {
                if rank == 0 {
                    port.send(all[1], turn, &bytes(turn, 64)).unwrap();
                }
                receive((rank + count - 1) % count, &mut buffer);
                let end = wait(&port);
                assert!(buffer[..end.length] == bytes(turn, 64), "message {turn} is another");
                if rank != 0 {
                    port.send(all[(rank + 1) % count], turn, &buffer[..end.length]).unwrap();
                }
                turn += 1;
                if turn % 1_000 == 0 {
                    say(&format!("rank {rank} has {turn}"));
                }
            }
        }
        // The first one sends, and the second one computes until it is to receive.
        "computes" if rank == 0 => {
            // The peers know each other before.
            port.send(all[1], 0, b"here").unwrap();
            receive(1, &mut buffer);
            wait(&port);
            wait_for_line();
            (0..SENT).for_each(|turn| port.send(all[1], turn, &bytes(turn, 50)).unwrap());
            say("rank 0 has sent");
            wait_for_line();
            loop {
                port.progress();
            }
        }
        "computes" => {
            receive(0, &mut buffer);
            wait(&port);
            port.send(all[0], 0, b"here").unwrap();
            (0..100).for_each(|_| port.progress());
            say("rank 1 computes");
            wait_for_line();
            wait_for_line();
            for turn in 0..SENT {
                port.receive(turn, &mut buffer).unwrap();
                let end = wait(&port);
                assert!(buffer[..end.length] == bytes(turn, 50), "message {turn} is another");
            }
            say("rank 1 has received");
            loop {
                port.progress();
            }
        }
        // A page that says anything.
        "lies" => {
            let descriptor = port.with(|state| state.page.descriptor());
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/self/fd/{descriptor}"))
                .unwrap();
            let mut rng = fastrand::Rng::with_seed(rank as u64);
            loop {
                // All but what says that it is a page.
                let at = rng.u64(8..layout::LENGTH as u64 / 8) * 8;
                let value = if rng.bool() { rng.u64(..) } else { rng.u64(..5_000) };
                let at = if rng.bool() { 64 + at % 128 } else { at };
                std::os::unix::fs::FileExt::write_all_at(&file, &value.to_le_bytes(), at).unwrap();
            }
        }
        // The page of a port with a key of its own, and files that are none.
        "other-key" => {
            let other = Port::open(Settings { job: None, ..settings });
            let mut member = gang_fabric::member::Member::of(settings.job.unwrap()).unwrap();
            let of_socket = UnixStream::pair().unwrap();
            let all = [other.with(|state| state.page.descriptor()), of_socket.0.as_raw_fd(), 999];
            for descriptor in all {
                say(&format!("rank 0 {}", member.add_port(descriptor).unwrap_err()));
            }
            wait_for_line();
        }
        _ => panic!("no such role"),
    }
}

/// Computes until there is a line to read.
fn wait_for_line() {
    let is_there = Arc::new(AtomicBool::new(false));
    let said = is_there.clone();
    thread::spawn(move || {
        stdin().lock().read_line(&mut String::new()).unwrap();
        said.store(true, Ordering::Relaxed);
    });
    while !is_there.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// A job of ranks.
struct Job {
    child: Child,
    id: i64,
    lines: Receiver<String>,
    /// Lines that nobody has asked for yet.
    others: RefCell<Vec<String>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        // The launcher ends its ranks when it can read no more.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Job {
    fn start(daemon: &Daemon, name: &str, role: &str, medium: &str, ranks: usize) -> Job {
        let exe = env::current_exe().unwrap();
        let mut command = daemon.gang(&["run", "-q", "--cpus", "2", "--name", name, "--"]);
        command.arg(exe).args(["--exact", "launcher", "--ignored", "--nocapture"]);
        command.env("RANKS", ranks.to_string()).env("ROLE", role).env("MEDIUM", medium);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| to.send(line).ok())
        });
        let mut job = Job { child, id: 0, lines, others: RefCell::default() };
        for _ in 0..ranks {
            let line = job.line(|line| line.ends_with(" true") || line.ends_with(" false"));
            assert!(line.ends_with("true"), "{line}: the daemon does not flush it");
        }
        let jobs = daemon.client().list_jobs().unwrap().jobs;
        job.id = jobs.iter().find(|job| job.name == name).unwrap().id;
        job
    }

    /// The next line of a rank of which that is true.
    fn line(&self, is_it: impl Fn(&str) -> bool) -> String {
        let mut others = self.others.borrow_mut();
        if let Some(at) = others.iter().position(|line| is_it(line)) {
            return others.remove(at);
        }
        loop {
            let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("a rank says something");
            if !line.starts_with("rank ") {
                continue;
            }
            if is_it(&line) {
                return line;
            }
            others.push(line);
        }
    }

    fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "go on").unwrap();
    }

    fn snapshot(&self, daemon: &Daemon) -> v1::Snapshot {
        daemon.client().snapshot(self.id, false).unwrap()
    }
}

fn daemon() -> Option<Daemon> {
    // Flushes have failed late in these tests: they share CPUs with others.
    let configuration = "[net]\nflush_timeout = '5ms'\n";
    let options = Options { configuration, ..Options::default() };
    are_built(&["gang", "gangd"]).then(|| Daemon::start_in(Place::new(), &options))
}

fn names(state: &v1::GlobalState) -> &'static str {
    match state {
        v1::GlobalState::running => "running",
        v1::GlobalState::terminated => "terminated",
        v1::GlobalState::deadlocked => "deadlocked",
        v1::GlobalState::stalled => "stalled",
    }
}

#[test]
fn rank_that_computes_is_flushed_and_loses_nothing() {
    let Some(daemon) = daemon() else { return };
    for medium in ["shm", "udp"] {
        let mut job = Job::start(&daemon, &format!("computes-{medium}"), "computes", medium, 2);
        job.line(|line| line == "rank 1 computes");
        job.tell();
        job.line(|line| line == "rank 0 has sent");
        // The host holds all, though the rank never calls.
        wait_until("a flush ends well", || {
            let snapshot = job.snapshot(&daemon);
            assert_eq!(names(&snapshot.state), "running", "{snapshot:?}");
            let receiver = snapshot.ports.iter().find(|port| port.rank == Some(1)).unwrap();
            let sender = snapshot.ports.iter().find(|port| port.rank == Some(0)).unwrap();
            assert_eq!(receiver.state, v1::PortState::computes);
            snapshot.is_flushed && sender.under_way == 0 && receiver.held >= SENT as i64
        });
        let snapshot = daemon.client().snapshot(job.id, true).unwrap();
        let contents = snapshot.contents.unwrap();
        assert!(contents.iter().all(|it| it.medium == medium), "{contents:?}");
        let eager = contents.iter().filter(|it| it.bytes.len() > 2 * 50).count();
        assert!(eager >= SENT as usize, "{eager} of {SENT}");
        let of_one: Vec<i64> = contents.iter().map(|it| it.sequence).collect();
        assert!(of_one.windows(2).all(|pair| pair[0] < pair[1]), "{of_one:?}");
        job.tell();
        job.line(|line| line == "rank 1 has received");
    }
}

#[test]
fn four_ranks_that_wait_for_each_other_are_seen() {
    let Some(daemon) = daemon() else { return };
    for medium in ["shm", "udp"] {
        let job = Job::start(&daemon, &format!("ring-{medium}"), "ring", medium, 4);
        let mut last = None;
        wait_until("the deadlock is seen", || {
            let snapshot = job.snapshot(&daemon);
            let is_it = snapshot.state == v1::GlobalState::deadlocked;
            last = Some(snapshot);
            is_it
        });
        let snapshot = last.unwrap();
        let pid = |rank: i64| snapshot.ports.iter().find(|it| it.rank == Some(rank)).unwrap().pid;
        for rank in 0..4 {
            let port = snapshot.ports.iter().find(|it| it.rank == Some(rank)).unwrap();
            assert_eq!(port.state, v1::PortState::waits);
            assert_eq!(port.waits_for, Some(vec![pid((rank + 1) % 4)]), "{medium} {rank}");
        }
        // The daemon sees it by itself, too.
        wait_until("gang why says so", || {
            let text = gang_daemon::stdout(&daemon.output(&["why", &job.id.to_string()]));
            text.contains("deadlocked since ")
        });
        let text = gang_daemon::stdout(&daemon.output(&["snapshot", &job.id.to_string()]));
        assert!(text.contains("deadlocked since ") && text.contains("rank 1"), "{text}");
        assert!(text.contains("to save and restore"), "{text}");
    }
}

#[test]
fn thousand_flushes_of_live_ranks_raise_no_alarm() {
    let Some(daemon) = daemon() else { return };
    for medium in ["shm", "udp"] {
        let job = Job::start(&daemon, &format!("live-{medium}"), "live", medium, 3);
        let mut client = daemon.client();
        let mut flushed = 0;
        // Two flushes each.
        for _ in 0..500 {
            let snapshot = client.snapshot(job.id, false).unwrap();
            assert_eq!(names(&snapshot.state), "running", "{medium}: {snapshot:?}");
            flushed += u32::from(snapshot.is_flushed);
        }
        assert!(flushed > 0, "{medium}: no flush ended well");
        // Messages went on all the while, and each was right.
        job.line(|line| line.starts_with("rank 2 has "));
        let details = client.show_job(job.id).unwrap().details;
        let net = details.net.unwrap();
        assert!(net.flushes.flushes >= 1_000 && net.flushes.ports == 3, "{net:?}");
        println!("{medium}: {:?}", net.flushes);
    }
}

#[test]
fn ranks_that_poll_are_no_deadlock() {
    let Some(daemon) = daemon() else { return };
    let job = Job::start(&daemon, "poll", "poll", "shm", 2);
    for _ in 0..100 {
        let snapshot = job.snapshot(&daemon);
        let state = names(&snapshot.state);
        assert!(["running", "stalled"].contains(&state), "{snapshot:?}");
    }
}

#[test]
fn killed_rank_is_no_deadlock_until_it_is_missed() {
    let Some(daemon) = daemon() else { return };
    let job = Job::start(&daemon, "killed", "live", "udp", 3);
    job.line(|line| line.starts_with("rank 2 has "));
    let snapshot = job.snapshot(&daemon);
    let victim = snapshot.ports.iter().find(|port| port.rank == Some(1)).unwrap().pid;
    assert!(Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap().success());
    for _ in 0..50 {
        // The others end, once they have missed it.
        let state = daemon.client().snapshot(job.id, false).map(|it| names(&it.state));
        assert!(
            ["running", "terminated"].contains(&state.as_ref().map_or("terminated", |it| it)),
            "{state:?}"
        );
    }
}

#[test]
fn page_that_lies_harms_its_own_job_alone() {
    let Some(mut daemon) = daemon() else { return };
    let liar = Job::start(&daemon, "liar", "lies", "udp", 2);
    let honest = Job::start(&daemon, "honest", "live", "udp", 2);
    for turn in 0..40 {
        // There is an answer to everything that it says.
        let _ = daemon.client().snapshot(liar.id, turn % 20 == 0).unwrap();
        let snapshot = honest.snapshot(&daemon);
        assert_eq!(names(&snapshot.state), "running", "{snapshot:?}");
    }
    honest.line(|line| line.starts_with("rank 1 has "));
    assert!(daemon.pid() > 0);
    drop((liar, honest));
    daemon.end();
}

#[test]
fn key_and_port_are_for_members_alone() {
    let Some(daemon) = daemon() else { return };
    let mut job = Job::start(&daemon, "keys", "other-key", "udp", 1);
    let said = [
        "a page with the key of the job",
        "a port's page, and not",
        "copy the page of a port of process",
    ];
    for expected in said {
        let line = job.line(|_| true);
        assert!(line.contains(expected), "{line}");
    }
    // This process is in no job.
    for refused in [daemon.client().net_key(job.id).map(drop), daemon.client().add_port(job.id, 0)]
    {
        let Err(ClientError::NotPermitted { .. }) = &refused else { panic!("{refused:?}") };
    }
    job.tell();
    // A job without ports says so.
    let sleeper = gang_daemon::Program::start(
        &mut daemon.gang(&["run", "-q", "--name", "quiet", "--", "sleep", "1000"]),
    );
    wait_until("it is a job", || daemon.jobs().iter().any(|job| job.name == "quiet"));
    let output = daemon.output(&["snapshot", "quiet"]);
    let said = gang_daemon::stderr(&output);
    assert!(output.status.code() == Some(1) && said.contains("it has opened no port"), "{said}");
    drop(sleeper);
}

#[test]
fn ends_of_slots_are_flushed_and_timed() {
    let Some(daemon) = daemon() else { return };
    let job = Job::start(&daemon, "first", "live", "udp", 2);
    let spin = ["run", "-q", "--cpus", "2", "--name", "other", "--", "sh", "-c"];
    let rival = gang_daemon::Program::start(
        daemon.gang(&spin).arg("while :; do :; done & while :; do :; done"),
    );
    wait_until("slots end, and are flushed", || {
        let net = daemon.client().show_job(job.id).unwrap().details.net.unwrap();
        net.flushes.flushes - net.flushes.failed >= 20 && net.flushes.flush_ns > 0
    });
    let status = daemon.client().status().unwrap().status;
    assert!(status.flushes.unwrap().flushes >= 20);
    let shown = gang_daemon::stdout(&daemon.output(&["show", "first"]));
    assert!(shown.contains("  flushes ") && shown.contains("to switch"), "{shown}");
    println!("{shown}");
    job.line(|line| line.starts_with("rank 1 has "));
    drop(rival);
}
