//! The programs in the kernel, and what they share with us.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, ProgramInput, RingBufferBuilder};

use crate::{
    Culprit, GangSums, Lane, NotMeasured, OnCpu, RunnableThread, SlotTime, Wait, Whole, layout,
    object::{self, Aligned, map, program, refused},
};

/// The culprits that are listed of a gang, at most.
const CULPRITS_LISTED: usize = 5;

/// Shares that were moved while they were read are read again, so often.
const READ_AGAIN: usize = 10;

/// The programs that are called, and not attached to the scheduler.
const CALLED: [&str; 5] = ["book_now", "await", "close_way", "look_around", "list_runnable"];

/// The arrays with a value for each CPU.
const OF_CPUS: [&str; 3] = ["ways", "places", "lane_of"];

/// The lanes that there is room for.
const LANES_MAX: usize = 1024;

static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/cosched.bpf.o")));

/// Measures the gangs that it is to watch, as long as it is there.
///
/// Its functions may be called from several threads at once.
pub struct Meter {
    object: Object,
    /// The programs run as long as these are there.
    _links: Vec<Link>,
    generation: AtomicU64,
    /// The next epoch. Another gang may have the number of the same group before or later.
    epoch: AtomicU64,
    /// The values that gangs had when they started over.
    before: Mutex<HashMap<u64, Measured>>,
    /// The lane of each CPU that has one, as the kernel has it, and how many lanes there are.
    lanes: Mutex<(BTreeMap<u32, u32>, usize)>,
    /// Of gangs that are measured no more.
    whole_of_gone: Mutex<Whole>,
}

/// All that is measured of a gang.
#[derive(Clone, Default)]
struct Measured {
    figures: GangSums,
    per_cpu: Vec<OnCpu>,
    lost_to: Vec<Culprit>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// Loads the programs into the kernel and starts them.
    pub fn start() -> Result<Meter, NotMeasured> {
        let object = object::load(PROGRAM, &OF_CPUS)?;
        let links = object
            .progs_mut()
            .filter(|program| !CALLED.iter().any(|name| program.name() == *name))
            .map(|program| program.attach())
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused("attach the BPF programs"))?;
        let [generation, epoch] = [1, 1].map(AtomicU64::new);
        Ok(Meter {
            object,
            _links: links,
            generation,
            epoch,
            before: Mutex::default(),
            lanes: Mutex::default(),
            whole_of_gone: Mutex::default(),
        })
    }

    /// Measures a gang from now on: the threads in the cgroup (version 2) of this number. Earlier
    /// values of this cgroup are those of another gang.
    ///
    /// None of the time is slot unless [`Meter::set_slots`] says so, before or after. Threads that
    /// run or wait for a CPU at this moment count once they are switched, or with the next
    /// [`Meter::look_around`].
    pub fn watch(&self, gang: u64) -> Result<(), NotMeasured> {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed);
        let cpus = libbpf_rs::num_possible_cpus().map_err(refused("count the CPUs"))?;
        map(&self.object, "shares")
            .update_percpu(
                &gang.to_ne_bytes(),
                &vec![layout::new_share(epoch); cpus],
                MapFlags::ANY,
            )
            .map_err(refused("watch a gang"))?;
        let gang_bytes = layout::new_gang(epoch, monotonic_ns());
        map(&self.object, "gangs")
            .update(&gang.to_ne_bytes(), &gang_bytes, MapFlags::ANY)
            .map_err(refused("watch a gang"))?;
        self.before().remove(&gang);
        Ok(())
    }

    /// Looks at all threads of the machine, for those of gangs that run or wait for a CPU and have
    /// not been switched since. Takes the longer, the more threads there are.
    pub fn look_around(&self) -> Result<(), NotMeasured> {
        object::look_around(&self.object)
    }

    /// The threads that run or wait for a CPU, but for those of the kernel and of this process.
    /// Takes the longer, the more threads there are.
    pub fn runnable_threads(&self) -> Result<Vec<RunnableThread>, NotMeasured> {
        let mut written = Vec::new();
        let doing = "list the threads that want to run";
        object::run_through(&self.object, "list_runnable", doing, &mut written)?;
        Ok(layout::runnable_threads(&written))
    }

    /// The values of a gang begin at 0 from now on.
    pub fn start_over(&self, gang: u64) -> Result<(), NotMeasured> {
        let measured = Measured {
            figures: layout::figures(&self.booked(gang)?),
            per_cpu: self.of_cpus(gang)?,
            lost_to: self.culprits(gang)?,
        };
        self.before().insert(gang, measured);
        Ok(())
    }

    fn before(&self) -> MutexGuard<'_, HashMap<u64, Measured>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values that a gang had when it started over.
    fn before_of(&self, gang: u64) -> Measured {
        self.before().get(&gang).cloned().unwrap_or_default()
    }

    /// The slots of a gang, in order, without overlap, with the CPUs of its row; `None`: all of the
    /// time is slot. Time that has passed is booked by the slots that were known before.
    pub fn set_slots(
        &self,
        gang: u64,
        slots: Option<&[SlotTime]>,
        row: &[u32],
    ) -> Result<(), NotMeasured> {
        // Of a gang that is not watched yet there is nothing to book.
        let _ = self.book_now(gang);
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        map(&self.object, "slots")
            .update(&gang.to_ne_bytes(), &layout::slots(generation, slots, row), MapFlags::ANY)
            .map_err(refused("set the slots of a gang"))
    }

    /// Sets whose turns there are on which CPUs, of no CPU twice. One without a lane has no turns.
    pub fn set_lanes(&self, lanes: &[Lane]) -> Result<(), NotMeasured> {
        let refused = refused("set whose turns there are");
        let lanes = &lanes[..lanes.len().min(LANES_MAX)];
        let mut known = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_cpus, count) = &mut *known;
        let mut of_cpus_now = BTreeMap::new();
        for (number, lane) in (1u32..).zip(lanes) {
            map(&self.object, "lanes")
                .update(&number.to_ne_bytes(), &layout::lane(&lane.turns), MapFlags::ANY)
                .map_err(&refused)?;
            of_cpus_now.extend(lane.cpus.iter().map(|&cpu| (cpu, number)));
        }
        let gone = of_cpus.keys().filter(|cpu| !of_cpus_now.contains_key(cpu));
        let without: Vec<(u32, u32)> = gone.map(|&cpu| (cpu, 0)).collect();
        for (cpu, number) in of_cpus_now.iter().map(|(&cpu, &number)| (cpu, number)).chain(without)
        {
            if of_cpus.get(&cpu).copied().unwrap_or_default() != number {
                map(&self.object, "lane_of")
                    .update(&cpu.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)
                    .map_err(&refused)?;
            }
        }
        for number in lanes.len() + 1..=*count {
            let _ = map(&self.object, "lanes").delete(&(number as u32).to_ne_bytes());
        }
        (*of_cpus, *count) = (of_cpus_now, lanes.len());
        Ok(())
    }

    /// Measures a gang no more. One that is not watched is none: that is all that can fail.
    pub fn forget(&self, gang: u64) {
        if let Ok(gone) = self.booked(gang) {
            let mut all = self.whole_of_gone.lock().unwrap_or_else(PoisonError::into_inner);
            *all = all.and(&layout::figures(&gone).whole);
        }
        let _ = map(&self.object, "gangs").delete(&gang.to_ne_bytes());
        let _ = map(&self.object, "slots").delete(&gang.to_ne_bytes());
        let _ = map(&self.object, "shares").delete(&gang.to_ne_bytes());
        self.before().remove(&gang);
    }

    /// Awaits, once, that a thread of a gang wants to run: see [`Meter::hear_who_wakes`]. False
    /// where one does already.
    pub fn await_waking(&self, gang: u64) -> Result<bool, NotMeasured> {
        match self.call("await", gang).map_err(refused("wait for a gang to wake"))? {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(NotMeasured::NotWatched),
        }
    }

    /// Waits until gangs that were awaited have woken, and hands their numbers over; then again.
    /// Where many wake at once, some numbers may be lost.
    pub fn hear_who_wakes(
        &self,
        mut heed: impl FnMut(Vec<u64>),
    ) -> Result<Infallible, NotMeasured> {
        let hearing = refused("hear which gangs wake");
        self.hear("woken", hearing, |gangs| {
            let gang = |gang: Vec<u8>| Some(u64::from_ne_bytes(gang.try_into().ok()?));
            heed(gangs.into_iter().filter_map(gang).collect());
        })
    }

    /// Waits until rivals want CPUs that gangs have, and hands over what is known of that; then
    /// again. Where many rivals want a CPU at once, some may be lost.
    ///
    /// Rivals are real-time threads of the priority that gangs have in their slots, and of no gang.
    pub fn hear_who_waits(
        &self,
        mut heed: impl FnMut(Vec<Wait>),
    ) -> Result<Infallible, NotMeasured> {
        let hearing = refused("hear which real-time threads wait");
        self.hear("waits", hearing, |waits| heed(waits.iter().map(|it| layout::wait(it)).collect()))
    }

    /// Nothing is heard of rivals on a CPU until the time of slots there is so long.
    pub fn close_way(&self, cpu: u32, until_ns: u64) -> Result<(), NotMeasured> {
        let called = self.call_with("close_way", &mut layout::closing(cpu, until_ns));
        match called.map_err(refused("close a CPU to real-time threads"))? {
            0 => Ok(()),
            _ => Err(NotMeasured::NotWatched),
        }
    }

    /// Waits for messages in a ring, and hands them over; then again.
    fn hear(
        &self,
        ring: &str,
        hearing: impl Fn(libbpf_rs::Error) -> NotMeasured,
        mut heed: impl FnMut(Vec<Vec<u8>>),
    ) -> Result<Infallible, NotMeasured> {
        let ring = map(&self.object, ring);
        let heard = RefCell::new(Vec::new());
        let mut messages = RingBufferBuilder::new();
        let hear = |message: &[u8]| {
            heard.borrow_mut().push(message.to_vec());
            0
        };
        messages.add(&ring, hear).map_err(&hearing)?;
        let messages = messages.build().map_err(&hearing)?;
        loop {
            match messages.poll(Duration::MAX) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(hearing(error)),
                _ => heed(heard.take()),
            }
        }
    }

    /// The sums of a gang up to now.
    pub fn read(&self, gang: u64) -> Result<GangSums, NotMeasured> {
        Ok(layout::figures(&self.booked(gang)?).since(&self.before_of(gang).figures))
    }

    /// How much of their turns all gangs were whole that are or were measured, however often they
    /// started over.
    pub fn whole(&self) -> Result<Whole, NotMeasured> {
        let mut all = *self.whole_of_gone.lock().unwrap_or_else(PoisonError::into_inner);
        for gang in map(&self.object, "gangs").keys() {
            let Ok(gang) = gang.try_into().map(u64::from_ne_bytes) else { continue };
            match self.booked(gang) {
                Ok(bytes) => all = all.and(&layout::figures(&bytes).whole),
                Err(NotMeasured::NotWatched) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// How many threads of a gang run or wait for a CPU. Threads that did so when they came to the
    /// gang count once they are switched, or with the next [`Meter::look_around`].
    pub fn runnable(&self, gang: u64) -> Result<u32, NotMeasured> {
        Ok(layout::runnable(&self.kept(gang)?))
    }

    /// A gang's time on each CPU that it used, up to now. The last run of a thread that is switched
    /// at this moment may be missing.
    pub fn per_cpu(&self, gang: u64) -> Result<Vec<OnCpu>, NotMeasured> {
        let before = self.before_of(gang).per_cpu;
        let since = self.of_cpus(gang)?.into_iter().map(|on_cpu| on_cpu.since(&before));
        Ok(since.filter(OnCpu::is_used).collect())
    }

    fn of_cpus(&self, gang: u64) -> Result<Vec<OnCpu>, NotMeasured> {
        let reading = refused("read what a gang had of each CPU");
        let of_cpus = |name, key: &[u8]| {
            map(&self.object, name)
                .lookup_percpu(key, MapFlags::ANY)
                .map_err(&reading)?
                .ok_or(NotMeasured::NotWatched)
        };
        let moved = |cpus: &[Vec<u8>]| cpus.iter().map(|cpu| layout::moved(cpu)).sum::<u64>();
        let mut tries = 0..READ_AGAIN;
        let (gang_bytes, shares, cpus) = loop {
            // First: who is switched meanwhile is not counted twice.
            let gang_bytes = self.booked(gang)?;
            let before = of_cpus("cpus", &0u32.to_ne_bytes())?;
            let shares = of_cpus("shares", &gang.to_ne_bytes())?;
            let cpus = of_cpus("cpus", &0u32.to_ne_bytes())?;
            if moved(&before) == moved(&cpus) || tries.next().is_none() {
                break (gang_bytes, shares, cpus);
            }
        };
        let on_cpu = |(number, (share, cpu)): (usize, (&Vec<u8>, &Vec<u8>))| {
            layout::on_cpu(number, gang, &gang_bytes, share, cpu)
        };
        Ok(shares.iter().zip(&cpus).enumerate().map(on_cpu).collect())
    }

    /// How many short tasks there have been. An ordinary thread of no gang is one when it falls
    /// asleep, or ends, on a CPU on which a gang's thread wanted to run on. The CPU counts one
    /// until such a thread is back. Threads of the kernel do not count.
    pub fn short_tasks(&self) -> Result<u64, NotMeasured> {
        let cpus = map(&self.object, "cpus")
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(refused("read how many short tasks there were"))?;
        Ok(cpus.iter().flatten().map(|cpu| layout::short_tasks(cpu)).sum())
    }

    /// The processes that a gang waited for in its slots, the worst first. Looks through those of
    /// all gangs.
    pub fn lost_to(&self, gang: u64) -> Result<Vec<Culprit>, NotMeasured> {
        let before = self.before_of(gang).lost_to;
        let all = self.culprits(gang)?.into_iter();
        let mut lost_to: Vec<_> = all.filter_map(|culprit| culprit.since(&before)).collect();
        lost_to.sort_by_key(|culprit| std::cmp::Reverse(culprit.ns));
        lost_to.truncate(CULPRITS_LISTED);
        Ok(lost_to)
    }

    fn culprits(&self, gang: u64) -> Result<Vec<Culprit>, NotMeasured> {
        let harmed = (gang, layout::epoch(&self.kept(gang)?) as u32);
        let damages = map(&self.object, "damages");
        let of_gang = damages.keys().filter(|key| layout::harmed(key) == harmed);
        let culprit = |key: Vec<u8>| {
            // It may have made room for another one since its key was read.
            let damage = damages.lookup(&key, MapFlags::ANY).ok()??;
            Some(layout::culprit(&key, &damage))
        };
        Ok(of_gang.filter_map(culprit).collect())
    }

    /// A gang as the kernel has it, its time booked up to now.
    fn booked(&self, gang: u64) -> Result<Vec<u8>, NotMeasured> {
        self.book_now(gang)?;
        self.kept(gang)
    }

    /// A gang as the kernel has it, its time booked up to the last event.
    fn kept(&self, gang: u64) -> Result<Vec<u8>, NotMeasured> {
        map(&self.object, "gangs")
            .lookup(&gang.to_ne_bytes(), MapFlags::LOCK)
            .map_err(refused("read what was measured"))?
            .ok_or(NotMeasured::NotWatched)
    }

    /// Has the time of a gang booked up to now.
    fn book_now(&self, gang: u64) -> Result<(), NotMeasured> {
        let returned = self.call("book_now", gang).map_err(refused("read what was measured"))?;
        if returned == 0 { Ok(()) } else { Err(NotMeasured::NotWatched) }
    }

    /// Has a program called for a gang, and returns what it returns.
    fn call(&self, name: &str, gang: u64) -> libbpf_rs::Result<u32> {
        self.call_with(name, &mut gang.to_ne_bytes())
    }

    fn call_with(&self, name: &str, context: &mut [u8]) -> libbpf_rs::Result<u32> {
        let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
        Ok(program(&self.object, name).test_run(input)?.return_value)
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
