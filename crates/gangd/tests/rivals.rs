//! Gangs give way to rivals: real-time threads of the priority that gangs have in their slots.

mod place;

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gang_harness::skipped;
use gang_linux::{
    clock,
    sched::{self, Attributes, SchedPolicy},
};
use gang_protocol::v1;
use place::{Place, Program, SPIN, has_backend, job_with, machine, wait_until};

/// As a compositor makes itself real-time.
const COMPOSITOR: Attributes =
    Attributes { policy: SchedPolicy::RoundRobin, reset_on_fork: false, ..Attributes::fifo(1) };

/// The end of the slot that a job has at this moment; absent out of slot.
fn slot_end(page: &File) -> Option<u64> {
    let mut bytes = [0; 24];
    page.read_exact_at(&mut bytes, 0).unwrap();
    let running = u32::from_ne_bytes(bytes[8..12].try_into().unwrap());
    let until_ns = u64::from_ne_bytes(bytes[16..24].try_into().unwrap());
    (running == 1 && clock::utc_ns() < until_ns).then_some(until_ns)
}

/// How often a rival began to run in each slot, by the job and the end of the slot.
type Runs = BTreeMap<(usize, u64), u32>;

/// A thread that wants the first CPU for half a millisecond, again and again. It ends when this is
/// dropped.
struct Rival {
    runs: Arc<Mutex<Runs>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Rival {
    /// With the pages of the jobs.
    fn start(attributes: Attributes, pages: Vec<File>) -> Rival {
        let (runs, is_over) = (Arc::<Mutex<Runs>>::default(), Arc::<AtomicBool>::default());
        let mut rival = Rival { runs: runs.clone(), is_over: is_over.clone(), thread: None };
        rival.thread = Some(thread::spawn(move || {
            sched::set_affinity(0, [0]).unwrap();
            sched::set(0, &attributes).unwrap();
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(2));
                let slots = pages.iter().map(slot_end).enumerate();
                for slot in slots.filter_map(|(job, end)| Some((job, end?))) {
                    *runs.lock().unwrap().entry(slot).or_default() += 1;
                }
                let end_ns = clock::thread_cpu_ns() + 500_000;
                while clock::thread_cpu_ns() < end_ns {}
            }
        }));
        rival
    }

    /// In how many slots of a job the rival began to run twice: it slept in between, so that it
    /// wanted the CPU while the gang's thread had it.
    fn slots_with_two_runs(&self, job: usize) -> usize {
        let runs = self.runs.lock().unwrap();
        runs.iter().filter(|((of, _), count)| *of == job && **count > 1).count()
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// One test at a time: gangs give way to the rivals of every test.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A daemon that sees rivals, where this machine lets it.
fn a_place_that_sees() -> Option<Place> {
    if !has_backend("rt") {
        return None;
    }
    let place = Place::new(&["--backend", "rt", "--slice", "20ms"]);
    wait_until("it measures, or not", || place.status().measuring != v1::Measuring::starting);
    let status = place.status();
    if let Some(reason) = status.not_measured {
        skipped(format!("not measured: {reason}"));
        return None;
    }
    Some(place)
}

/// Two gangs that take turns on the first CPU.
fn two_gangs(place: &Place) -> ([Program; 2], [i64; 2]) {
    let programs = [Program::spinner(), Program::spinner()];
    for program in &programs {
        sched::set_affinity(program.pid(), [0]).unwrap();
    }
    let jobs = programs.each_ref().map(|program| job_with(place, program, 1));
    for job in jobs {
        wait_until("slots there", || place.job(job).unwrap().cpu_list == [0]);
        wait_until("slots", || place.job(job).unwrap().slots > 3);
    }
    (programs, jobs)
}

fn pages(place: &Place, jobs: &[i64]) -> Vec<File> {
    jobs.iter().map(|&job| File::open(place.client().slot_page(job).unwrap()).unwrap()).collect()
}

/// How often a job gave way; absent where its group is not measured.
fn gave_way(place: &Place, job: i64) -> Option<i64> {
    let job = place.job(job).unwrap();
    if let Some(reason) = &job.not_measured {
        skipped(format!("not measured: {reason}"));
    }
    job.measured.map(|measured| measured.gave_way)
}

/// A job has so many slots more.
fn have_slots(place: &Place, job: i64, more: i64) {
    let before = place.job(job).unwrap().slots;
    wait_until("slots", || place.job(job).unwrap().slots > before + more);
}

#[test]
fn needs_root_and_bpf_gangs_give_way_in_their_slots() {
    let _alone = alone();
    let Some(place) = a_place_that_sees() else { return };
    let (programs, jobs) = two_gangs(&place);
    let before = jobs.map(|job| gave_way(&place, job));
    if before[0].is_none() {
        return;
    }
    let rival = Rival::start(COMPOSITOR, pages(&place, &jobs));
    for (at, job) in jobs.into_iter().enumerate() {
        let more = before[at].map(|before| before + 20);
        wait_until("it runs where a slot is", || rival.slots_with_two_runs(at) > 20);
        wait_until("which is counted", || gave_way(&place, job) > more);
    }
    // A nice value that an owner sets meanwhile stays.
    sched::set_nice(programs[0].pid(), 7).unwrap();
    have_slots(&place, jobs[0], 20);
    assert_eq!(sched::get(programs[0].pid()).unwrap().nice, 7);
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(rival);
    wait_until("nobody gives way any more", || {
        let before = jobs.map(|job| gave_way(&place, job));
        jobs.iter().for_each(|&job| have_slots(&place, job, 10));
        jobs.map(|job| gave_way(&place, job)) == before
    });
    assert_eq!(place.client().check().unwrap().violations, []);
    for (program, job) in programs.iter().zip(jobs) {
        let for_ns = place.job(job).unwrap().measured.unwrap().gave_way_ns;
        assert!(for_ns > 0, "it gave way for some time");
        place.client().remove_process(job, program.pid_i64()).unwrap();
    }
    let left = programs.each_ref().map(|program| sched::get(program.pid()).unwrap());
    assert_eq!(left, [Attributes::other(7), sched::get(0).unwrap()]);
}

/// A thread whose switcher is that of another CPU gives way as well: Linux moves the threads of
/// these gangs as it likes.
#[test]
fn needs_root_and_bpf_gangs_on_all_cpus_give_way() {
    let _alone = alone();
    let Some(place) = a_place_that_sees() else { return };
    let spinners = format!("for i in $(seq $(nproc)); do {SPIN} & done; wait");
    let script = format!("read go; exec bash -c '{spinners}'");
    let programs = [(); 2].map(|()| Program::shell(&script));
    let jobs = programs.each_ref().map(|program| {
        let job = job_with(&place, program, machine());
        (&mut program.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
        job
    });
    jobs.iter().for_each(|&job| have_slots(&place, job, 3));
    if gave_way(&place, jobs[0]).is_none() {
        return;
    }
    let rival = Rival::start(COMPOSITOR, pages(&place, &jobs));
    for (at, job) in jobs.into_iter().enumerate() {
        wait_until("it runs where a slot is", || rival.slots_with_two_runs(at) > 20);
        wait_until("which is counted", || gave_way(&place, job) > Some(20));
    }
    drop(rival);
    assert_eq!(place.client().check().unwrap().violations, []);
}

/// A rival that wakes much more often than its allowance is for.
#[test]
fn needs_root_and_bpf_slots_not_given_away_for_ever() {
    let _alone = alone();
    let Some(place) = a_place_that_sees() else { return };
    let (programs, jobs) = two_gangs(&place);
    if gave_way(&place, jobs[0]).is_none() {
        return;
    }
    let before = programs.each_ref().map(cpu_time);
    let is_over = Arc::<AtomicBool>::default();
    let had_ns = {
        let is_over = is_over.clone();
        thread::spawn(move || {
            sched::set_affinity(0, [0]).unwrap();
            sched::set(0, &Attributes { reset_on_fork: false, ..Attributes::fifo(1) }).unwrap();
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(Duration::from_micros(100));
                let end_ns = clock::thread_cpu_ns() + 5_000_000;
                while clock::thread_cpu_ns() < end_ns {}
            }
            clock::thread_cpu_ns()
        })
    };
    jobs.iter().for_each(|&job| have_slots(&place, job, 50));
    is_over.store(true, Ordering::Release);
    let had_ns = had_ns.join().unwrap();
    let given_ns: i64 =
        jobs.iter().map(|&job| place.job(job).unwrap().measured.unwrap().gave_way_ns).sum();
    let after = programs.each_ref().map(cpu_time);
    let gangs_had_ns: u64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
    assert!(given_ns > 0 && had_ns > 0);
    println!(
        "the rival had {had_ns} ns, of these {given_ns} ns given; the gangs {gangs_had_ns} ns"
    );
    assert!(gangs_had_ns > given_ns as u64, "more of their slots than they gave away");
}

/// CPU time of a program, in nanoseconds.
fn cpu_time(program: &Program) -> u64 {
    clock::cpu_ns_of(program.pid()).unwrap()
}
