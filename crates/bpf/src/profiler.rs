//! The threads of one program, in sums and tick by tick: loads `profile.bpf.c` and reads its maps.

use std::{
    cell::RefCell,
    fmt,
    os::fd::IntoRawFd,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};

use crate::{
    Coscheduling, NotMeasured, Sleep, Sum, Tick, Who,
    object::{self, Aligned, map, program, refused},
    shared::{self, Shared},
};

static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o")));

/// Watches the threads of one cgroup (version 2), as long as it is there.
pub struct Profiler {
    // The ring refers to the object's maps: it goes first.
    ring: RingBuffer<'static>,
    _links: Vec<Link>,
    object: Object,
    ticks: Rc<RefCell<Vec<Tick>>>,
    group: u64,
    epoch: u64,
    /// In the groups before this one.
    lost: u64,
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler").finish_non_exhaustive()
    }
}

impl Profiler {
    /// Watches a cgroup by its number; `clocks` are the events that tick, one for each CPU, every
    /// `period`.
    ///
    /// They tick in turn, as far apart as can be. A tick keeps a thread from its work for some
    /// microseconds. A tick of another CPU within these would find there, each time, the threads
    /// that wait for that thread.
    pub fn start(
        group: u64,
        clocks: Vec<impl IntoRawFd>,
        period: Duration,
    ) -> Result<Profiler, NotMeasured> {
        let object = object::load(PROGRAM, &[])?;
        watch(&object, group, 1)?;
        let attach = |name| program(&object, name).attach();
        let mut links = ["on_switch", "on_wakeup", "on_wakeup_new"]
            .map(attach)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused("attach the BPF programs"))?;
        let (began, count) = (Instant::now(), clocks.len() as u32);
        for (number, clock) in (0..).zip(clocks) {
            let turn = began + period * number / count;
            thread::sleep(turn.saturating_duration_since(Instant::now()));
            // It begins to tick with this. The link closes it.
            let link = program(&object, "on_tick").attach_perf_event(clock.into_raw_fd());
            links.push(link.map_err(refused("attach to the clock of a CPU"))?);
        }
        object::look_around(&object)?;
        let ticks = Rc::<RefCell<Vec<Tick>>>::default();
        let heard = ticks.clone();
        let mut builder = RingBufferBuilder::new();
        let of_ring = map(&object, "ticks");
        builder
            .add(&of_ring, move |bytes: &[u8]| {
                heard.borrow_mut().extend(tick(bytes));
                0
            })
            .map_err(refused("read the ticks"))?;
        let ring = builder.build().map_err(refused("read the ticks"))?;
        Ok(Profiler { ring, _links: links, object, ticks, group, epoch: 1, lost: 0 })
    }

    /// Watches another cgroup from now on: the program has moved.
    pub fn follow(&mut self, group: u64) -> Result<(), NotMeasured> {
        if group != self.group {
            self.lost = self.lost()?;
            (self.group, self.epoch) = (group, self.epoch + 1);
            watch(&self.object, self.group, self.epoch)?;
            object::look_around(&self.object)?;
        }
        Ok(())
    }

    /// The ticks since the last call. Some of a second are kept.
    pub fn ticks(&mut self) -> Result<Vec<Tick>, NotMeasured> {
        self.ring.consume().map_err(refused("read the ticks"))?;
        Ok(std::mem::take(&mut *self.ticks.borrow_mut()))
    }

    /// Ticks that were lost since the start, because they were not read in time.
    pub fn lost(&self) -> Result<u64, NotMeasured> {
        let program = map(&self.object, "programs")
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(refused("read how many ticks were lost"))?
            .expect("an array has what it was made for");
        Ok(self.lost + shared::Program::read(&program).lost)
    }

    /// The sums of the threads since the start, up to the last change or tick, on so many CPUs.
    pub fn sums(&self, cpus: u32) -> Result<Vec<(Coscheduling, Sum)>, NotMeasured> {
        let sums = map(&self.object, "sums");
        let read = |number: u32| {
            let sum = sums
                .lookup(&number.to_ne_bytes(), MapFlags::ANY)
                .map_err(refused("read for how long threads ran"))?
                .expect("an array has what it was made for");
            let shared::Sum { ns, ran_ns } = Shared::read(&sum);
            Ok((coscheduling(number), Sum { ns, ran_ns }))
        };
        (0..MET + cpus.min(CPUS_MAX)).map(read).collect()
    }

    /// The sleeps of the threads since the start, as far as they are over.
    pub fn sleeps(&self) -> Result<Vec<Sleep>, NotMeasured> {
        let sleeping = map(&self.object, "sleeping");
        let read = |key: Vec<u8>| {
            let sums = sleeping
                .lookup(&key, MapFlags::ANY)
                .map_err(refused("read what threads slept for"))?
                .expect("nobody takes it away");
            let (cause, sums) = (shared::Cause::read(&key), shared::Sleeps::read(&sums));
            Ok(Sleep {
                tid: cause.tid,
                call: call(cause.call),
                uninterruptible: cause.uninterruptible != 0,
                count: sums.count,
                ns: sums.ns,
                clear_count: sums.clear_count,
                clear_ns: sums.clear_ns,
            })
        };
        sleeping.keys().map(read).collect()
    }
}

fn watch(object: &Object, group: u64, epoch: u64) -> Result<(), NotMeasured> {
    let program = shared::Program { group, epoch, ..shared::Program::zeroed() };
    map(object, "programs")
        .update(&0u32.to_ne_bytes(), &program.to_bytes(), MapFlags::ANY)
        .map_err(refused("say which threads to watch"))
}

// The sums of profile.bpf.c: the first of those of threads that have met, and of how many there are
// at most.
const MET: u32 = 2;
const CPUS_MAX: u32 = 1024;

fn coscheduling(number: u32) -> Coscheduling {
    match number {
        0 => Coscheduling::Apart,
        1 => Coscheduling::Clear,
        number => Coscheduling::Met(number - MET + 1),
    }
}

/// Negative numbers are no system calls.
fn call(number: i32) -> Option<u32> {
    number.try_into().ok()
}

fn tick(bytes: &[u8]) -> Option<Tick> {
    if bytes.len() < shared::Tick::SIZE {
        return None;
    }
    let tick = shared::Tick::read(bytes);
    let who = match tick.who {
        0 => Who::Nobody,
        1 => Who::Others,
        kind => Who::Program {
            tgid: tick.tgid,
            tid: tick.tid,
            ip: tick.ip,
            call: call(tick.call).filter(|_| kind == 3),
            code: tick.code,
        },
    };
    Some(Tick {
        at_ns: tick.at_ns,
        who,
        running: tick.running.into(),
        waiting: tick.waiting.into(),
        coscheduling: coscheduling(tick.sum.into()),
        here: tick.here.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: [u8; 128] = [0x90; 128];

    fn bytes(who: u32, call: i32) -> Vec<u8> {
        let (at_ns, ip, tgid, tid) = (5, 0x1000, 7, 8);
        let (running, waiting, sum, here, code) = (2, 1, 3, 4, CODE);
        shared::Tick { at_ns, ip, tgid, tid, call, running, waiting, who, sum, here, code }
            .to_bytes()
    }

    #[test]
    fn ticks_are_read_as_the_kernel_writes_them() {
        let read = tick(&bytes(3, 202)).unwrap();
        assert_eq!((read.at_ns, read.running, read.waiting), (5, 2, 1));
        assert_eq!((read.coscheduling, read.here), (Coscheduling::Met(2), 4));
        assert_eq!([0, 1].map(coscheduling), [Coscheduling::Apart, Coscheduling::Clear]);
        let program = |call| Who::Program { tgid: 7, tid: 8, ip: 0x1000, call, code: CODE };
        assert_eq!(read.who, program(Some(202)));
        // The last call of a thread says nothing while the thread is in its program.
        assert_eq!(tick(&bytes(2, 202)).unwrap().who, program(None));
        assert_eq!(tick(&bytes(3, -1)).unwrap().who, program(None));
        assert_eq!(tick(&bytes(0, -1)).unwrap().who, Who::Nobody);
        assert_eq!(tick(&bytes(1, -1)).unwrap().who, Who::Others);
        assert_eq!(tick(&[0; 8]), None);
    }
}
