//! Programs that know when they ran, and the figures that follow from that by the definitions that
//! `gang-bpf` is tested by.
//!
//! They are this test program once more, in another process.

#[path = "../../../bpf/tests/native/truth.rs"]
mod definitions;

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

pub use definitions::Truth;
use definitions::{Span, Spell, Thread};
use gang_linux::{clock, sched};
use nix::sys::resource::{UsageWho, getrusage};

/// Set for a process that is such a program: the name of its part.
const TRUTH: &str = "GANG_TEST_TRUTH";

/// The test that is none, but the program.
const ITSELF: &str = "the_program_that_knows";

pub const LASTS: Duration = Duration::from_secs(4);
pub const THREADS: usize = 2;

/// The time from the line that sets a beginning to the beginning.
const AHEAD: Duration = Duration::from_millis(300);

/// The line of each thread that waits to be started.
const READY: &str = "waits to be started";

/// A pause between two looks at the clock that is longer than this may be a switch.
const PAUSE_NS: u64 = 10_000;

/// The rival runs for this long, then sleeps for so long.
const RIVAL_RUNS: Duration = Duration::from_millis(1);
const RIVAL_SLEEPS: Duration = Duration::from_millis(6);

/// The slots of a program that fills: when they come, and how long they are.
const FILLED_EVERY_NS: u64 = 10_000_000;
const FILLED_NS: u64 = 2_000_000;

/// When each of its threads leaves its CPU, from the beginning of each slot, and for how long. The
/// first leaves just after the slot, as a thread that a switcher interrupts; the second
/// milliseconds later, as a thread that gives way.
const FILLER_LEAVES_NS: [[(u64, u64); 2]; THREADS] =
    [[(2_200_000, 100_000), (6_000_000, 2_500_000)], [(2_500_000, 100_000), (8_000_000, 500_000)]];

/// The slots of a program that fills and was started at a moment.
pub fn filled_slots(start_ns: u64) -> Vec<(u64, u64)> {
    let starts = (0..LASTS.as_nanos() as u64 / FILLED_EVERY_NS).map(|it| it * FILLED_EVERY_NS);
    starts
        .map(|from_ns| (start_ns + from_ns, start_ns + from_ns + FILLED_NS))
        .skip(1)
        .take(300)
        .collect()
}

/// The CPUs that the programs' threads are kept to, one each.
pub fn cpus() -> Vec<u32> {
    let all = sched::affinity(0).unwrap();
    (0..THREADS).map(|thread| all[thread % all.len()]).collect()
}

/// Plays the part, in a process that is such a program; does nothing in any other.
pub fn be_what_is_asked_for() {
    match std::env::var(TRUTH).as_deref() {
        Ok("gang") => be_gang(),
        Ok("rival") => be_rival(),
        Ok("filler") => be_filler(),
        _ => {}
    }
}

/// Its threads run all the time.
///
/// No other thread of it is runnable meanwhile: each thread reads for itself when it was started,
/// and the last to end prints the truth.
fn be_gang() {
    let ended = Arc::<Mutex<Vec<Ended>>>::default();
    let threads = cpus().into_iter().map(|cpu| {
        let ended = Arc::clone(&ended);
        thread::spawn(move || {
            sched::set_affinity(0, [cpu]).unwrap();
            let start_ns = read_start();
            let mut reader = Reader::started(start_ns);
            reader.read_until(start_ns + LASTS.as_nanos() as u64);
            let this = reader.end(cpu, start_ns);
            let mut ended = ended.lock().unwrap();
            ended.push(this);
            if ended.len() == THREADS {
                ended.iter().for_each(Ended::print);
                println!("truth is printed");
            }
        })
    });
    stay(threads.collect());
}

/// One thread that fails ends the process.
fn stay(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    loop {
        thread::park();
    }
}

/// Takes its CPU from any thread that has it, again and again.
fn be_rival() {
    let rival = thread::Builder::new().name("rival".into()).spawn(|| {
        let cpu = cpus()[0];
        sched::set_affinity(0, [cpu]).unwrap();
        // Above gangs, and below their switchers.
        sched::become_fifo(2).unwrap();
        let start_ns = read_start();
        let lasts_ns = LASTS.as_nanos() as u64;
        let mut off_ns = Vec::new();
        let mut since_ns = start_ns;
        while since_ns < start_ns + lasts_ns {
            let from_ns = clock::monotonic_ns();
            off_ns.push((since_ns, from_ns));
            while clock::monotonic_ns() < from_ns + RIVAL_RUNS.as_nanos() as u64 {}
            since_ns = clock::monotonic_ns();
            thread::sleep(RIVAL_SLEEPS);
        }
        Ended { cpu, start_ns, off_ns, at_ns: since_ns }.print();
        println!("truth is printed");
    });
    stay(vec![rival.unwrap()]);
}

/// Its threads run but for the moments at which they leave, or are made to.
fn be_filler() {
    let threads = cpus().into_iter().zip(FILLER_LEAVES_NS).map(|(cpu, leaves)| {
        thread::spawn(move || {
            sched::set_affinity(0, [cpu]).unwrap();
            let start_ns = read_start();
            let mut reader = Reader::started(start_ns);
            for (slot_ns, _) in filled_slots(start_ns) {
                for (after_ns, length_ns) in leaves {
                    reader.read_until(slot_ns + after_ns);
                    reader.sleep(Duration::from_nanos(length_ns));
                }
            }
            reader.end(cpu, start_ns)
        })
    });
    let threads: Vec<_> = threads.collect();
    let ended: Vec<Ended> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    ended.iter().for_each(Ended::print);
    println!("truth is printed");
    stay(Vec::new());
}

/// Waits to be started; from then on no other thread of the process has anything to do.
fn read_start() -> u64 {
    println!("{READY}");
    let mut start = [0; 8];
    assert_eq!(rustix::io::read(std::io::stdin(), &mut start), Ok(start.len()));
    let start_ns = u64::from_ne_bytes(start);
    // Woken by the clock, and not by the process that reads before, which may have no CPU.
    let ahead_ns = start_ns.saturating_sub(clock::monotonic_ns());
    thread::sleep(Duration::from_nanos(ahead_ns));
    start_ns
}

/// A thread that does nothing but read the clock. Where the clock jumps and the kernel has switched
/// the thread, the thread did not run.
struct Reader {
    off_ns: Vec<(u64, u64)>,
    last_ns: u64,
    /// When it ran last for certain, and what the kernel had counted of it.
    since: (u64, u64),
    switches: i64,
}

impl Reader {
    fn started(start_ns: u64) -> Reader {
        let switches = times_switched();
        let last_ns = clock::monotonic_ns();
        let since = (last_ns, clock::thread_cpu_ns());
        Reader { off_ns: vec![(start_ns, last_ns)], last_ns, since, switches }
    }

    fn read_until(&mut self, until_ns: u64) {
        while self.last_ns < until_ns {
            let mut now_ns = clock::monotonic_ns();
            if now_ns - self.last_ns > PAUSE_NS {
                now_ns = self.jumped(now_ns);
            }
            self.last_ns = now_ns;
        }
    }

    /// When it runs for certain.
    fn jumped(&mut self, mut now_ns: u64) -> u64 {
        let switched = times_switched();
        if switched == self.switches {
            return now_ns;
        }
        // The thread may have been switched during these calls, too.
        let (cpu_ns, after_ns) = (clock::thread_cpu_ns(), clock::monotonic_ns());
        now_ns = if after_ns - now_ns > PAUSE_NS { after_ns } else { now_ns };
        // Of a CPU that its host took away the kernel knows nothing: to it, the thread ran.
        let (since_ns, since_cpu_ns) = self.since;
        let ran_ns = cpu_ns.saturating_sub(since_cpu_ns);
        let ran_ns = ran_ns.saturating_sub(self.last_ns.saturating_sub(since_ns));
        let ran_ns = ran_ns.saturating_sub(after_ns - now_ns);
        self.off_ns.push((now_ns.min(self.last_ns + ran_ns), now_ns));
        self.switches = switched;
        self.since = (after_ns, cpu_ns);
        now_ns
    }

    fn sleep(&mut self, length: Duration) {
        let from_ns = clock::monotonic_ns();
        thread::sleep(length);
        self.last_ns = clock::monotonic_ns();
        self.off_ns.push((from_ns, self.last_ns));
        self.switches = times_switched();
        self.since = (self.last_ns, clock::thread_cpu_ns());
    }

    fn end(self, cpu: u32, start_ns: u64) -> Ended {
        Ended { cpu, start_ns, off_ns: self.off_ns, at_ns: self.last_ns }
    }
}

fn times_switched() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    usage.voluntary_context_switches() + usage.involuntary_context_switches()
}

/// When a thread did not run, and when it ended (CLOCK_MONOTONIC).
#[derive(Debug)]
pub struct Ended {
    pub cpu: u32,
    pub start_ns: u64,
    pub off_ns: Vec<(u64, u64)>,
    pub at_ns: u64,
}

impl Ended {
    fn print(&self) {
        let Ended { cpu, start_ns, off_ns, at_ns } = self;
        let off: Vec<String> = off_ns.iter().map(|(from, to)| format!("{from} {to}")).collect();
        println!("truth {cpu} {start_ns} {at_ns} {}", off.join(" "));
    }

    fn read(text: &str) -> Option<Ended> {
        let numbers: Vec<u64> = text.split(' ').map_while(|word| word.parse().ok()).collect();
        let (&[cpu, start_ns, at_ns], off) = numbers.split_first_chunk()?;
        let off_ns = off.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Some(Ended { cpu: cpu as u32, start_ns, off_ns, at_ns })
    }

    /// It wants to run from its start to its end.
    fn thread(&self) -> Thread {
        let spell = |from_ns, to_ns, runs| Spell { from_ns, to_ns, runs };
        let mut spells = Vec::new();
        let mut since_ns = self.start_ns;
        for &(from_ns, to_ns) in &self.off_ns {
            spells.extend([spell(since_ns, from_ns, true), spell(from_ns, to_ns, false)]);
            since_ns = to_ns;
        }
        spells.push(spell(since_ns, self.at_ns, true));
        spells.retain(|spell| spell.from_ns < spell.to_ns);
        Thread { spells }
    }
}

/// The figures of threads whose slots are these, in order and without overlap.
pub fn truth_of(threads: &[Ended], slots: &[(u64, u64)]) -> Truth {
    let threads: Vec<Thread> = threads.iter().map(Ended::thread).collect();
    let span = |&(start_ns, end_ns): &(u64, u64)| Span { start_ns, end_ns, has_edge: true };
    let spans: Vec<Span> = slots.iter().map(span).collect();
    let of_spells = || threads.iter().flat_map(|thread| &thread.spells);
    let from_ns = of_spells().map(|spell| spell.from_ns).min().unwrap_or_default();
    let until_ns = of_spells().map(|spell| spell.to_ns).max().unwrap_or_default();
    Truth::of(&threads, &spans, from_ns, until_ns)
}

/// Such a program, which waits to be started. The program is killed when this is dropped.
pub struct Knowing {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Knowing {
    pub fn gang() -> Knowing {
        Knowing::start("gang", THREADS)
    }

    pub fn filler() -> Knowing {
        Knowing::start("filler", THREADS)
    }

    pub fn rival() -> Knowing {
        Knowing::start("rival", 1)
    }

    fn start(what: &str, threads: usize) -> Knowing {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", ITSELF, "--nocapture"])
            .env(TRUTH, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..threads {
            assert!(lines.any(|line| line.unwrap().ends_with(READY)), "it waits to be started");
        }
        Knowing { child, lines }
    }

    pub fn pid(&self) -> i64 {
        self.child.id().into()
    }

    /// Lets it run, from a moment on.
    pub fn go(&mut self) -> u64 {
        let start_ns = clock::monotonic_ns() + AHEAD.as_nanos() as u64;
        let all = [start_ns.to_ne_bytes(); THREADS].concat();
        self.child.stdin.as_mut().unwrap().write_all(&all).unwrap();
        start_ns
    }

    /// Waits for the program's lines on its threads, in the order of its CPUs.
    pub fn truth(&mut self) -> Vec<Ended> {
        let lines = self.lines.by_ref().map(Result::unwrap);
        let ends = lines.filter_map(|line| Some(line.split_once("truth ")?.1.to_owned()));
        let mut threads: Vec<Ended> = ends.map_while(|text| Ended::read(&text)).collect();
        assert!(!threads.is_empty(), "the program prints its truth");
        threads.sort_by_key(|thread| thread.cpu);
        threads
    }
}

impl Drop for Knowing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
