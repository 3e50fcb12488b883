//! What is measured of a job, against a program that knows its own truth.

mod place;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use gang_linux::clock;
use gang_protocol::{client::Registration, v1};
use gang_skips::skipped;
use nix::sys::resource::{UsageWho, getrusage};
use place::{Place, Program, is_root, job_with, registration, wait_until};

/// Set for the process that is the program.
const TRUTH: &str = "GANG_TEST_TRUTH";
const LASTS: Duration = Duration::from_secs(4);
/// A pause between two looks at the clock that is longer than this may be a switch.
const PAUSE_NS: u64 = 10_000;
const THREADS: usize = 2;

/// Not a test of its own: the program, which a test runs in another process. Its threads do nothing but
/// read the clock. Where it jumps and the kernel has switched the thread, the thread did not run.
///
/// Nobody else of it is runnable meanwhile: each thread reads for itself when it was started, and the last
/// to end tells the truth.
#[test]
fn the_program_that_knows() {
    if std::env::var_os(TRUTH).is_none() {
        return;
    }
    let ended = Arc::<Mutex<Vec<Ended>>>::default();
    for _ in 0..THREADS {
        let ended = Arc::clone(&ended);
        thread::spawn(move || {
            let mut start = [0; 8];
            assert_eq!(rustix::io::read(std::io::stdin(), &mut start), Ok(start.len()));
            let start_ns = u64::from_ne_bytes(start);
            let this = not_running(start_ns);
            let mut ended = ended.lock().unwrap();
            ended.push(this);
            if ended.len() == THREADS {
                tell(start_ns, &ended);
            }
        });
    }
    loop {
        thread::park();
    }
}

/// When a thread did not run, and when it ended (CLOCK_MONOTONIC).
struct Ended {
    off_ns: Vec<(u64, u64)>,
    at_ns: u64,
}

fn tell(start_ns: u64, threads: &[Ended]) {
    let end_ns = threads.iter().map(|thread| thread.at_ns).max().unwrap();
    let mut off_ns: Vec<(u64, u64)> =
        threads.iter().flat_map(|thread| &thread.off_ns).copied().collect();
    let lost_ns: u64 = off_ns.iter().map(|(from, to)| to - from).sum();
    off_ns.sort_unstable();
    let (mut apart_ns, mut until_ns) = (0, start_ns);
    for (from, to) in off_ns {
        apart_ns += to.saturating_sub(from.max(until_ns));
        until_ns = until_ns.max(to);
    }
    let length_ns = (end_ns - start_ns) as f64;
    let together = 1.0 - apart_ns as f64 / length_ns;
    println!("truth {together} {}", lost_ns as f64 / THREADS as f64 / length_ns);
}

fn not_running(start_ns: u64) -> Ended {
    let mut off_ns = Vec::new();
    let mut switches = times_switched();
    let mut last_ns = clock::monotonic_ns();
    off_ns.push((start_ns, last_ns));
    let lasts_ns = LASTS.as_nanos() as u64;
    while last_ns < start_ns + lasts_ns {
        let now_ns = clock::monotonic_ns();
        if now_ns - last_ns > PAUSE_NS {
            let switched = times_switched();
            if switched != switches {
                off_ns.push((last_ns, now_ns));
                switches = switched;
            }
        }
        last_ns = now_ns;
    }
    Ended { off_ns, at_ns: last_ns }
}

fn times_switched() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    usage.voluntary_context_switches() + usage.involuntary_context_switches()
}

/// The program, which waits to be started.
struct Knowing(Child);

impl Knowing {
    fn start() -> Knowing {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_program_that_knows", "--nocapture"])
            .env(TRUTH, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Knowing(child)
    }

    /// Lets it run: the share of the time in which both threads ran, and in which one did not.
    fn truth(&mut self) -> (f64, f64) {
        use std::io::Write;
        let now = clock::monotonic_ns().to_ne_bytes();
        self.0.stdin.as_mut().unwrap().write_all(&[now; THREADS].concat()).unwrap();
        let lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let told = lines.map(|line| line.split_once("truth ").map(|(_, told)| told.to_owned()));
        let told = told.flatten().next().expect("the program tells its truth");
        let (together, lost) = told.split_once(' ').unwrap();
        (together.parse().unwrap(), lost.parse().unwrap())
    }
}

impl Drop for Knowing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the daemon measures, or knows why it cannot.
fn settled(place: Place) -> Place {
    wait_until("it is measured, or not", || place.status().measuring != v1::Measuring::starting);
    place
}

/// False where the kernel or the build does not let gangd measure; says so.
fn measures(job: &v1::Job) -> bool {
    if let Some(reason) = &job.not_measured {
        skipped(format!("not measured: {reason}"));
    }
    job.not_measured.is_none()
}

#[test]
fn needs_root_and_bpf_a_program_that_knows_agrees_with_what_is_measured() {
    if !is_root() {
        return;
    }
    let place = settled(Place::new(&["--backend", "rt"]));
    // Under plain Linux all of the time is slot.
    let mut client = place.client();
    let mut none = Registration { policy: v1::Policy::none, ..registration("truth", 2) };
    none.min_cpus = 1;
    let job = client.register(&none).unwrap();
    let mut program = Knowing::start();
    client.add_process(job, program.0.id().into()).unwrap();
    let before = client.show_job(job).unwrap().details;
    if !measures(&before) {
        return;
    }
    // Somebody must be in its way.
    let _other = Program::spinner();
    let (together, lost) = program.truth();
    let job = client.show_job(job).unwrap().details;
    let measured = job.coscheduled.unwrap();
    assert!((measured - together).abs() <= 0.01, "measured {measured}, in truth {together}");
    let length_s = LASTS.as_secs_f64();
    let lost_ns = job.lost_ns.unwrap() - before.lost_ns.unwrap();
    let measured = lost_ns as f64 / 1e9 / 2.0 / length_s;
    assert!((measured - lost).abs() <= 0.01, "lost {measured} of the time, in truth {lost}");
    let culprits = job.lost_to.unwrap();
    let told: i64 = culprits.iter().map(|culprit| culprit.ns).sum();
    assert!(!culprits.is_empty() && told <= job.lost_ns.unwrap(), "{culprits:?}");
    println!("together: measured {:?}, in truth {together}", job.coscheduled);
}

#[test]
fn needs_root_and_bpf_a_gang_is_measured_in_its_slots_and_out_of_them() {
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let cpus = thread::available_parallelism().unwrap().get() as i64;
    // They may be there before it is measured.
    let (one, _) = (job_with(&place, &one, cpus), job_with(&place, &other, cpus));
    let place = settled(place);
    if !measures(&place.job(one).unwrap()) {
        return;
    }
    wait_until("the gang is measured", || {
        let job = place.job(one).unwrap();
        job.coscheduled.is_some() && job.skew_us_p99.is_some() && job.slots > 20
    });
    let job = place.job(one).unwrap();
    let share = job.coscheduled.unwrap();
    assert!((0.0..=1.0).contains(&share), "{share}");
    assert!(job.lost_to.is_none(), "only who asks for one job hears whom it waited for");
    assert!(place.client().show_job(one).unwrap().details.lost_to.is_some());
}

#[test]
fn needs_root_what_is_not_measured_has_a_reason_and_no_figure() {
    if !is_root() {
        return;
    }
    let place = settled(Place::new(&["--no-measure"]));
    let program = Program::spinner();
    let job = place.job(job_with(&place, &program, 1)).unwrap();
    assert!(job.not_measured.unwrap().contains("--no-measure"));
    assert_eq!((job.coscheduled, job.lost_ns, job.filled_ns), (None, None, None));
}
