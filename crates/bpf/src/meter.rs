//! The programs in the kernel, and what they share with us.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramInput};

use crate::{
    Culprit, Figures, NotMeasured, OnCpu, Slot, layout,
    object::{self, Aligned, map, program, refused},
};

/// Of those whom a gang waited for, so many are told.
const CULPRITS_TOLD: usize = 5;

/// What was moved while it was read is read again, so often.
const READ_AGAIN: usize = 10;

static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/cosched.bpf.o")));

/// Measures the gangs that it is told of, as long as it is there.
///
/// Its functions may be called from several threads at once, and wait for none of them.
pub struct Meter {
    object: Object,
    /// The programs run as long as these are there.
    _links: Vec<Link>,
    generation: AtomicU64,
    /// What tells a gang from whoever has the number of its group before or later.
    epoch: AtomicU64,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// Loads the programs into the kernel and starts them.
    pub fn start() -> Result<Meter, NotMeasured> {
        let object = object::load(PROGRAM)?;
        let sizes = [
            ("gangs", layout::GANG_SIZE),
            ("slots", layout::SLOTS_SIZE),
            ("damages", layout::DAMAGE_SIZE),
            ("shares", layout::SHARE_SIZE),
            ("cpus", layout::CPU_SIZE),
        ];
        for (name, size) in sizes {
            let found = map(&object, name).value_size() as usize;
            assert_eq!(found, size, "layout.rs and cosched.bpf.c differ about {name}");
        }
        let links = object
            .progs_mut()
            .filter(|program| program.name() != "settle")
            .map(|program| program.attach())
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused("attach the BPF programs"))?;
        let [generation, epoch] = [1, 1].map(AtomicU64::new);
        Ok(Meter { object, _links: links, generation, epoch })
    }

    /// Measures a gang from now on: the threads in the cgroup (version 2) of this number. What was measured there
    /// before is that of another gang.
    ///
    /// None of the time is slot unless [`Meter::set_slots`] says so, before or after.
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
            .map_err(refused("watch a gang"))
    }

    /// The slots of a gang, in order, without overlap; `None`: all of the time is slot. Time that has
    /// passed is booked by the slots that were known before.
    pub fn set_slots(&self, gang: u64, slots: Option<&[Slot]>) -> Result<(), NotMeasured> {
        // Of a gang that is not watched yet there is nothing to book.
        let _ = self.settle(gang);
        let generation = self.generation.fetch_add(1, Ordering::Relaxed);
        map(&self.object, "slots")
            .update(&gang.to_ne_bytes(), &layout::slots(generation, slots), MapFlags::ANY)
            .map_err(refused("tell the slots of a gang"))
    }

    /// Measures a gang no more. One that is not watched is none: that is all that can fail.
    pub fn forget(&self, gang: u64) {
        let _ = map(&self.object, "gangs").delete(&gang.to_ne_bytes());
        let _ = map(&self.object, "slots").delete(&gang.to_ne_bytes());
        let _ = map(&self.object, "shares").delete(&gang.to_ne_bytes());
    }

    /// What was measured of a gang up to now.
    pub fn read(&self, gang: u64) -> Result<Figures, NotMeasured> {
        Ok(layout::figures(&self.settled(gang)?))
    }

    /// What a gang had of each CPU that it used, up to now. A thread that is switched at this moment may be
    /// missing by its last run.
    pub fn per_cpu(&self, gang: u64) -> Result<Vec<OnCpu>, NotMeasured> {
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
            let gang_bytes = self.settled(gang)?;
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
        let of_gang = shares.iter().zip(&cpus).enumerate().map(on_cpu);
        Ok(of_gang.filter(OnCpu::is_used).collect())
    }

    /// Whom a gang waited for in its slots, the worst first. Looks through those of all gangs.
    pub fn lost_to(&self, gang: u64) -> Result<Vec<Culprit>, NotMeasured> {
        let known = map(&self.object, "gangs")
            .lookup(&gang.to_ne_bytes(), MapFlags::LOCK)
            .map_err(refused("read whom a gang waited for"))?
            .ok_or(NotMeasured::NotWatched)?;
        let harmed = (gang, layout::epoch(&known) as u32);
        let damages = map(&self.object, "damages");
        let of_gang = damages.keys().filter(|key| layout::harmed(key) == harmed);
        let mut lost_to: Vec<_> = of_gang
            .filter_map(|key| {
                // It may have made room for another one since its key was read.
                let damage = damages.lookup(&key, MapFlags::ANY).ok()??;
                Some(layout::culprit(&key, &damage))
            })
            .collect();
        lost_to.sort_by_key(|culprit| std::cmp::Reverse(culprit.ns));
        lost_to.truncate(CULPRITS_TOLD);
        Ok(lost_to)
    }

    /// A gang as the kernel has it, its time booked up to now.
    fn settled(&self, gang: u64) -> Result<Vec<u8>, NotMeasured> {
        self.settle(gang)?;
        map(&self.object, "gangs")
            .lookup(&gang.to_ne_bytes(), MapFlags::LOCK)
            .map_err(refused("read what was measured"))?
            .ok_or(NotMeasured::NotWatched)
    }

    /// Has the time of a gang booked up to now.
    fn settle(&self, gang: u64) -> Result<(), NotMeasured> {
        let mut context = gang.to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
        let program = program(&self.object, "settle");
        let output = program.test_run(input).map_err(refused("read what was measured"))?;
        if output.return_value == 0 { Ok(()) } else { Err(NotMeasured::NotWatched) }
    }
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
