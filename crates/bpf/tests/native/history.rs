//! Random events on a machine of a few CPUs, and their results by the definitions.
//!
//! All events are carried out by the [`Machine`], and kept here as the programs see them. A thread
//! of a gang wants to run from a moment on, and runs somewhere. The kernel does not report
//! everything, and its reports are what is measured.

use std::collections::BTreeMap;

use super::{
    machine::{At, CPUS, Kind, Machine, TASKS, name},
    rows::{Piece, Seen, row_truth},
    truth::{Edge, Span, Spell, Thread, Truth, time_within},
};
use crate::{SLOTS_MAX, SlotTime, layout};

/// Small numbers at random (splitmix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }

    /// A time whose power of two is random.
    fn time(&mut self, least_log: u64, most_log: u64) -> u64 {
        let log = least_log + self.below(most_log - least_log);
        (1 << log) + self.below(1 << log)
    }
}

/// The kernel's view of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Sleeps,
    Waits,
    Runs(usize),
}

/// The programs' view of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    Sleeps,
    Waits,
    Runs,
}

/// A group, and which of the gangs that had its number.
type Key = (u64, u64);

#[derive(Debug)]
struct Task {
    kind: Kind,
    /// The kernel reports no switch away from it.
    hides: bool,
    group: u64,
    doing: Doing,
    gang: Option<Key>,
    reported: Reported,
}

#[derive(Debug, Default)]
struct Cpu {
    current: usize,
    clock_ns: u64,
    /// The last switch that was reported.
    switched_ns: u64,
    /// The gang's run that was seen to begin, and whether the gang had slots.
    run: Option<(Key, bool)>,
    taken: bool,
    /// The groups of the gangs with slots that it was seen to run, each from a moment on; 0 is
    /// none.
    ran: Vec<(u64, u64)>,
}

impl Cpu {
    /// The group of the gang with slots that it ran right before a moment.
    fn ran_before(&self, moment_ns: u64) -> u64 {
        let before = self.ran.partition_point(|&(from_ns, _)| from_ns < moment_ns);
        self.ran[..before].last().map_or(0, |&(_, group)| group)
    }

    fn note_place(&mut self, at_ns: u64) {
        let group = self.run.filter(|&(_, has_slots)| has_slots).map_or(0, |(key, _)| key.0);
        self.ran.push((at_ns, group));
    }
}

/// A run on a CPU, or the wait of a thread before it, that were seen.
#[derive(Debug)]
struct OnCpu {
    cpu: usize,
    from_ns: u64,
    to_ns: u64,
    runs: bool,
}

#[derive(Debug)]
struct Gang {
    key: Key,
    since_ns: u64,
    /// It was booked at these moments.
    booked_ns: Vec<u64>,
    /// From when on which slots were known.
    lists: Vec<(u64, Option<Vec<SlotTime>>)>,
    threads: BTreeMap<usize, Thread>,
    on_cpus: Vec<OnCpu>,
    /// By the process that ran before: when a thread had waited, and for how long the other one
    /// ran.
    blamed: Vec<(u32, u64, u64, u64)>,
    is_awaited: bool,
    /// A thread was found that ran before, after a slot had ended: it may be taken for one that ran
    /// at that end.
    has_vague_ends: bool,
}

impl Gang {
    fn at_ns(&self) -> u64 {
        *self.booked_ns.last().unwrap_or(&self.since_ns)
    }

    fn book(&mut self, now_ns: u64) -> u64 {
        let at_ns = self.at_ns().max(now_ns);
        self.booked_ns.push(at_ns);
        at_ns
    }

    fn counts(&self) -> (u32, u32) {
        let open = self.threads.values().filter_map(|thread| thread.spells.last());
        let open = open.filter(|spell| spell.to_ns == u64::MAX);
        open.fold((0, 0), |(running, runnable), it| (running + u32::from(it.runs), runnable + 1))
    }

    fn set_slots(&mut self, slots: Option<Vec<SlotTime>>) {
        let at_ns = self.at_ns();
        // Slots of which no moment passed never were.
        self.lists.retain(|&(from_ns, _)| from_ns < at_ns);
        self.lists.push((at_ns, slots));
    }

    /// The time in slot: each list holds until the next one. A slot that another list has, too,
    /// goes on.
    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut goes_on = false;
        for (number, (from_ns, slots)) in self.lists.iter().enumerate() {
            let until_ns = self.lists.get(number + 1).map_or(u64::MAX, |next| next.0);
            let always = [SlotTime::new(0, u64::MAX)];
            let slots = slots.as_deref();
            let known = slots.unwrap_or(&always);
            let mut in_slot = false;
            for slot in &known[..known.len().min(SLOTS_MAX)] {
                let start_ns = slot.start_ns.max(*from_ns);
                let end_ns = slot.end_ns.min(until_ns);
                if start_ns >= end_ns {
                    continue;
                }
                match spans.last_mut() {
                    Some(last) if goes_on && start_ns == *from_ns => last.end_ns = end_ns,
                    _ => spans.push(Span { start_ns, end_ns, has_edge: slots.is_some() }),
                }
                goes_on = false;
                in_slot = slot.end_ns > until_ns;
            }
            goes_on = in_slot || (slots.is_none() && until_ns < u64::MAX);
        }
        spans
    }

    /// The turns, slots and gaps apart: each list holds until the next one.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (number, (from_ns, slots)) in self.lists.iter().enumerate() {
            let until_ns = self.lists.get(number + 1).map_or(u64::MAX, |next| next.0);
            let slots = slots.as_deref().unwrap_or_default();
            for slot in &slots[..slots.len().min(SLOTS_MAX)] {
                for (start_ns, end_ns, is_gap) in
                    [(slot.start_ns, slot.end_ns, false), (slot.end_ns, slot.until_ns, true)]
                {
                    let (from_ns, to_ns) = (start_ns.max(*from_ns), end_ns.min(until_ns));
                    if from_ns < to_ns {
                        pieces.push(Piece { from_ns, to_ns, cpus: slot.cpus.into(), is_gap });
                    }
                }
            }
        }
        pieces
    }

    /// A thread does something else from now on; false where it is of a gang that is no more.
    fn change(&mut self, task: usize, is: Reported, now_ns: u64) -> u64 {
        let at_ns = self.book(now_ns);
        let spells = &mut self.threads.entry(task).or_default().spells;
        if let Some(last) = spells.last_mut().filter(|last| last.to_ns == u64::MAX) {
            last.to_ns = at_ns;
        }
        if is != Reported::Sleeps {
            spells.push(Spell { from_ns: at_ns, to_ns: u64::MAX, runs: is == Reported::Runs });
        }
        at_ns
    }

    /// How long a thread has waited that comes to a CPU: its last spell but the one that begins.
    fn waited(&self, task: usize) -> (u64, u64) {
        let spells = &self.threads[&task].spells;
        let last = spells.len().checked_sub(2).map(|at| spells[at]);
        last.map_or((0, 0), |spell| (spell.from_ns, spell.to_ns))
    }
}

/// A machine, and all that is known of what happened on it.
pub struct History<'a> {
    machine: &'a mut Machine,
    random: Random,
    /// Clocks of CPUs are behind by this at most when something is carried out.
    lag_ns: u64,
    /// By how much clocks were behind, all in all.
    lagged_ns: u64,
    now_ns: u64,
    cpus: Vec<Cpu>,
    tasks: Vec<Task>,
    gangs: BTreeMap<u64, Gang>,
    slots: BTreeMap<u64, Option<Vec<SlotTime>>>,
    /// The CPUs of the row of each group.
    rows: BTreeMap<u64, Vec<u32>>,
    epochs: u64,
    short_tasks: u64,
    woken: Vec<u64>,
}

const GROUPS: [u64; 3] = [101, 102, 103];
const OUTSIDE: u64 = 1;

const MS: u64 = 1_000_000;

impl<'a> History<'a> {
    pub fn new(machine: &'a mut Machine, mut random: Random, lag_ns: u64) -> History<'a> {
        machine.reset();
        let cpus = 1 + random.below(4) as usize;
        let threads = 3 + random.below(9) as usize;
        let idle = Kind { tgid: 0, policy: 0, is_of_kernel: true };
        let task = |kind, hides, group| Task {
            kind,
            hides,
            group,
            doing: Doing::Sleeps,
            gang: None,
            reported: Reported::Sleeps,
        };
        let mut tasks = vec![task(idle, false, OUTSIDE)];
        machine.task(0, idle);
        for number in 1..=threads.min(TASKS - 1) {
            // SCHED_OTHER, SCHED_FIFO, SCHED_BATCH, SCHED_IDLE
            let policy = [0, 0, 0, 1, 3, 5][random.below(6) as usize];
            let is_of_kernel = random.one_in(6);
            let kind = Kind { tgid: 1 + number as u32 / 2, policy, is_of_kernel };
            let hides = random.one_in(8);
            let inside = !hides && !is_of_kernel && !random.one_in(4);
            let group = if inside { random.of(&GROUPS[..2]).unwrap() } else { OUTSIDE };
            tasks.push(task(kind, hides, group));
            machine.task(number, kind);
            machine.move_to(number, group);
        }
        let mut row = || {
            let mut row: Vec<u32> = (0..cpus as u32).collect();
            row.retain(|_| !random.one_in(3));
            row
        };
        let rows = GROUPS.map(|group| (group, row())).into();
        let mut history = History {
            rows,
            machine,
            random,
            lag_ns,
            lagged_ns: 0,
            // Moments at which something happens are odd, edges of slots are even: they are never
            // the same.
            now_ns: 1_000_000_001,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            tasks,
            gangs: BTreeMap::new(),
            slots: BTreeMap::new(),
            epochs: 1,
            short_tasks: 0,
            woken: Vec::new(),
        };
        for group in GROUPS {
            if !history.random.one_in(4) {
                history.set_slots(group);
                history.watch(group);
            }
        }
        history
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.random.below(100) {
            0..45 => self.switch(),
            45..70 => self.wake(),
            70..80 => self.tick(),
            80..83 => self.look_around(),
            83..87 => self.move_one(),
            87..94 => {
                let group = self.group();
                self.set_slots(group);
            }
            94..96 => {
                let group = self.group();
                self.watch(group);
            }
            96 => self.forget(),
            _ => self.await_waking(),
        }
    }

    fn group(&mut self) -> u64 {
        self.random.of(&GROUPS).unwrap()
    }

    /// Time passes; where something happens next, and what the clock says there.
    fn at(&mut self, cpu: usize) -> At {
        let most_log = if self.random.one_in(20) { 28 } else { 22 };
        self.now_ns += 2 * self.random.time(6, most_log);
        let lag_ns = if self.lag_ns > 0 { 2 * self.random.below(self.lag_ns / 2) } else { 0 };
        let clock_ns = &mut self.cpus[cpu].clock_ns;
        *clock_ns = (*clock_ns).max(self.now_ns - lag_ns);
        self.lagged_ns += self.now_ns - *clock_ns;
        At { cpu, now_ns: *clock_ns }
    }

    fn any_cpu(&mut self) -> usize {
        self.random.below(self.cpus.len() as u64) as usize
    }

    fn those(&self, are: impl Fn(&Task) -> bool) -> Vec<usize> {
        (1..self.tasks.len()).filter(|&task| are(&self.tasks[task])).collect()
    }

    /// Another thread of those that wait comes to a CPU, or none.
    fn switch(&mut self) {
        let cpu = self.any_cpu();
        let waiting = self.those(|task| task.doing == Doing::Waits);
        let next = if self.random.one_in(8) { None } else { self.random.of(&waiting) };
        let (prev, next) = (self.cpus[cpu].current, next.unwrap_or(0));
        if prev == next {
            return;
        }
        let at = self.at(cpu);
        // One that was on its way to sleep is preempted all the same; idle wants to run on.
        let (preempted, state) = match self.random.below(8) {
            _ if prev == 0 => (false, 0),
            0..3 => (true, 0),
            3 => (true, 1),
            4 => (false, 0),
            5..7 => (false, 1),
            _ => (false, 2),
        };
        let leaves = if preempted || state == 0 { Reported::Waits } else { Reported::Sleeps };
        let reported = !self.tasks[prev].hides;
        self.machine.switch(at, next, preempted, state, reported);
        let waits = leaves == Reported::Waits;
        self.tasks[prev].doing = if waits { Doing::Waits } else { Doing::Sleeps };
        self.tasks[next].doing = Doing::Runs(cpu);
        self.cpus[cpu].current = next;
        if !reported {
            return;
        }
        self.see_short_task(cpu, prev, leaves);
        let since_ns = self.cpus[cpu].switched_ns;
        if prev > 0 {
            self.report(prev, leaves, at, None);
        }
        self.cpus[cpu].switched_ns = at.now_ns;
        self.cpus[cpu].run = None;
        if next > 0 {
            self.report(next, Reported::Runs, at, Some((prev, at.now_ns - since_ns)));
        } else {
            self.cpus[cpu].taken = false;
        }
        self.cpus[cpu].note_place(at.now_ns);
    }

    /// An ordinary thread that falls asleep where a gang's thread, the last one of a gang with
    /// slots, wanted to go on.
    fn see_short_task(&mut self, cpu: usize, prev: usize, leaves: Reported) {
        let Kind { policy, is_of_kernel, .. } = self.tasks[prev].kind;
        let is_ordinary = !is_of_kernel && [0, 3].contains(&policy);
        let cpu = &mut self.cpus[cpu];
        if cpu.run.is_some_and(|(_, has_slots)| has_slots) {
            cpu.taken = leaves == Reported::Waits;
        } else if cpu.taken && leaves == Reported::Sleeps && is_ordinary {
            self.short_tasks += 1;
            cpu.taken = false;
        }
    }

    /// A thread wakes; one that does not sleep may be woken, too.
    fn wake(&mut self) {
        let sleeping = self.those(|task| task.doing == Doing::Sleeps);
        let anyone: Vec<usize> = (1..self.tasks.len()).collect();
        let all = if self.random.one_in(10) { &anyone } else { &sleeping };
        let Some(task) = self.random.of(all) else { return };
        let cpu = self.any_cpu();
        let at = self.at(cpu);
        let is_new = self.random.one_in(5);
        self.machine.wake(at, task, is_new);
        if self.tasks[task].doing == Doing::Sleeps {
            self.tasks[task].doing = Doing::Waits;
        }
        if self.tasks[task].reported == Reported::Sleeps {
            self.report(task, Reported::Waits, at, None);
        }
    }

    /// The kernel accounts for the thread of a CPU, or for another one.
    fn tick(&mut self) {
        let cpu = self.any_cpu();
        let current = self.cpus[cpu].current;
        let at = self.at(cpu);
        let other = self.random.below(self.tasks.len() as u64) as usize;
        let task = if self.random.one_in(10) { other } else { current };
        self.machine.tick(at, task);
        let Task { gang, reported, .. } = self.tasks[task];
        if task == current && gang.is_some() && reported == Reported::Waits {
            // It comes now, as far as anybody knows.
            self.cpus[cpu].switched_ns = at.now_ns;
            self.report(task, Reported::Runs, at, None);
            self.cpus[cpu].note_place(at.now_ns);
        }
    }

    /// Those are found that are of a gang and of which nothing is known yet.
    fn look_around(&mut self) {
        let cpu = self.any_cpu();
        for number in 1..self.tasks.len() {
            let at = self.at(cpu);
            self.machine.look_at(at, number);
            let task = &mut self.tasks[number];
            let Some(gang) = self.gangs.get_mut(&task.group) else { continue };
            let is = match task.doing {
                _ if task.gang.is_some() => continue,
                Doing::Sleeps => continue,
                Doing::Waits => Reported::Waits,
                Doing::Runs(_) => Reported::Runs,
            };
            task.gang = Some(gang.key);
            task.reported = is;
            let at_ns = gang.change(number, is, at.now_ns);
            let has_ended = gang.spans().iter().any(|span| span.end_ns <= at_ns);
            gang.has_vague_ends |= is == Reported::Runs && has_ended;
            if std::mem::take(&mut gang.is_awaited) {
                self.woken.push(gang.key.0);
            }
        }
    }

    /// A thread goes to another group, which is seen when something happens to it.
    fn move_one(&mut self) {
        let inside = self.those(|task| !task.hides && !task.kind.is_of_kernel);
        let Some(task) = self.random.of(&inside) else { return };
        let group = self.random.of(&[GROUPS[0], GROUPS[1], GROUPS[2], OUTSIDE]).unwrap();
        self.tasks[task].group = group;
        self.machine.move_to(task, group);
    }

    fn watch(&mut self, group: u64) {
        let at = self.at(0);
        self.machine.watch(group, self.epochs, at.now_ns);
        let mut gang = Gang {
            key: (group, self.epochs),
            since_ns: at.now_ns,
            booked_ns: Vec::new(),
            lists: Vec::new(),
            threads: BTreeMap::new(),
            on_cpus: Vec::new(),
            blamed: Vec::new(),
            is_awaited: false,
            has_vague_ends: false,
        };
        gang.set_slots(self.slots.get(&group).cloned().unwrap_or(Some(Vec::new())));
        self.gangs.insert(group, gang);
        self.epochs += 1;
    }

    fn forget(&mut self) {
        let group = self.group();
        self.machine.forget(group);
        self.gangs.remove(&group);
        self.slots.remove(&group);
    }

    fn book_now(&mut self, group: u64) -> Option<u64> {
        let at = self.at(0);
        let returned = self.machine.book_now(at, group);
        assert_eq!(returned == 0, self.gangs.contains_key(&group));
        Some(self.gangs.get_mut(&group)?.book(at.now_ns))
    }

    /// Slots come ahead of time, late, or while others are under way, which they may replace.
    /// Between two lists something may happen.
    fn set_slots(&mut self, group: u64) {
        self.book_now(group);
        if self.random.one_in(4) {
            self.switch();
        }
        let row = self.rows[&group].clone();
        let slots = if self.random.one_in(6) { None } else { Some(self.some_slots(&row)) };
        self.machine.set_slots(group, slots.as_deref(), &row);
        if let Some(gang) = self.gangs.get_mut(&group) {
            gang.set_slots(slots.clone());
        }
        self.slots.insert(group, slots);
    }

    fn some_slots(&mut self, row: &[u32]) -> Vec<SlotTime> {
        let count = match self.random.below(8) {
            0 => 0,
            1 => 40,
            2 if self.random.one_in(4) => SLOTS_MAX as u64 + 10,
            _ => 1 + self.random.below(10),
        };
        let mut from_ns = (self.now_ns + 1 + 2 * self.random.below(5 * MS)) - 10 * MS;
        let few = (0..count).map(|_| {
            // Some begin where others end.
            let pause_ns = if self.random.one_in(3) { 0 } else { 2 * self.random.time(8, 21) };
            let start_ns = from_ns + pause_ns;
            let is_gap = self.random.one_in(10);
            let end_ns = start_ns + if is_gap { 0 } else { 2 * self.random.time(8, 22) };
            let has_gap = is_gap || self.random.one_in(3);
            from_ns = end_ns + if has_gap { 2 * self.random.time(8, 20) } else { 0 };
            let cpus = if self.random.one_in(8) { 0 } else { row.len() as u32 };
            SlotTime { start_ns, end_ns, until_ns: from_ns, cpus }
        });
        few.collect()
    }

    fn await_waking(&mut self) {
        let (group, at) = (self.group(), self.at(0));
        let returned = self.machine.await_waking(at, group);
        let Some(gang) = self.gangs.get_mut(&group) else {
            assert_eq!(returned, 2, "there is no such gang");
            return;
        };
        let wants = gang.counts().1 > 0;
        assert_eq!(returned, i32::from(wants));
        gang.is_awaited = !wants;
    }

    /// The programs see what a thread does. `before` ran on the CPU that it comes to, for so long.
    fn report(&mut self, number: usize, is: Reported, at: At, before: Option<(usize, u64)>) {
        let task = &mut self.tasks[number];
        let gang = self.gangs.get_mut(&task.group).map(|gang| gang.key);
        if let Some(left) = task.gang.filter(|&left| Some(left) != gang) {
            let was = std::mem::replace(&mut task.reported, Reported::Sleeps);
            task.gang = None;
            self.change(number, left, was, Reported::Sleeps, at, None);
        }
        let Some(gang) = gang else { return };
        let task = &mut self.tasks[number];
        task.gang = Some(gang);
        let was = std::mem::replace(&mut task.reported, is);
        if was != is {
            self.change(number, gang, was, is, at, before);
        }
    }

    fn change(
        &mut self,
        task: usize,
        key: Key,
        was: Reported,
        is: Reported,
        at: At,
        before: Option<(usize, u64)>,
    ) {
        // Another gang may have the number of the group now, or none.
        let Some(gang) = self.gangs.get_mut(&key.0).filter(|gang| gang.key == key) else { return };
        // One of which nobody has said when its slots are has none.
        let has_slots = self.slots.get(&key.0).is_some_and(Option::is_some);
        let at_ns = gang.change(task, is, at.now_ns);
        if gang.is_awaited && gang.counts().1 > 0 {
            gang.is_awaited = false;
            self.woken.push(key.0);
        }
        let cpu = &mut self.cpus[at.cpu];
        if was == Reported::Runs && cpu.run.is_some_and(|(of, _)| of == key) {
            let run = gang.on_cpus.iter_mut().rfind(|run| run.cpu == at.cpu && run.runs);
            run.expect("it was seen to come").to_ns = at_ns;
        }
        if is != Reported::Runs {
            return;
        }
        cpu.run = Some((key, has_slots));
        if was == Reported::Waits {
            let (from_ns, to_ns) = gang.waited(task);
            gang.on_cpus.push(OnCpu { cpu: at.cpu, from_ns, to_ns, runs: false });
            if let Some((before, ran_ns)) = before {
                gang.blamed.push((self.tasks[before].kind.tgid, from_ns, to_ns, ran_ns));
            }
        }
        gang.on_cpus.push(OnCpu { cpu: at.cpu, from_ns: at_ns, to_ns: u64::MAX, runs: true });
    }

    /// All that is measured is what is true, and of the time between clocks that differ no more is
    /// missing.
    pub fn compare(&mut self) {
        for group in GROUPS {
            if let Some(until_ns) = self.book_now(group) {
                self.compare_gang(group, until_ns);
            }
        }
        assert_eq!(self.machine.short_tasks(), self.short_tasks, "short tasks");
        assert_eq!(self.machine.woken(), std::mem::take(&mut self.woken), "who has woken");
    }

    fn compare_gang(&mut self, group: u64, until_ns: u64) {
        let gang = &self.gangs[&group];
        let threads: Vec<Thread> = gang.threads.values().cloned().collect();
        let spans = gang.spans();
        let truth = Truth::of(&threads, &spans, gang.since_ns, until_ns);
        let bytes = self.machine.gang(group);
        let figures = layout::figures(&bytes);
        assert_eq!(layout::runnable(&bytes), gang.counts().1, "runnable");
        for (what, measured_ns, truth_ns) in [
            ("slot", figures.slot_ns, truth.slot_ns),
            ("wanted", figures.wanted_ns, truth.wanted_ns),
            ("coscheduled", figures.coscheduled_ns, truth.coscheduled_ns),
            ("lost", figures.lost_ns, truth.lost_ns),
            ("filled", figures.filled_ns, truth.filled_ns),
            ("waiting", figures.waiting_ns, truth.waiting_ns),
        ] {
            assert_eq!(measured_ns, truth_ns, "{what} of {gang:?}");
        }
        if self.lag_ns == 0 {
            let row = &self.rows[&group];
            let seen_before = |moment_ns| {
                let ran = row.iter().map(|&cpu| self.cpus[cpu as usize].ran_before(moment_ns));
                Seen::of(group, &ran.collect::<Vec<_>>())
            };
            let range = gang.since_ns..until_ns;
            let truth =
                row_truth(&threads, &gang.pieces(), &spans, &gang.booked_ns, range, seen_before);
            assert_eq!(figures.whole, truth, "row {row:?} of {gang:?}");
        }
        if self.lag_ns == 0 && !gang.has_vague_ends {
            compare_skews(&figures.skews, &truth, gang);
        }
        let near = |measured_ns: u64, truth_ns: u64, what: &str| {
            let differ_ns = measured_ns.abs_diff(truth_ns);
            assert!(
                differ_ns <= self.lagged_ns,
                "{what}: measured {measured_ns}, in truth {truth_ns}; {gang:?}"
            );
        };
        for on_cpu in self.machine.per_cpu(group) {
            let there = gang.on_cpus.iter().filter(|it| it.cpu == on_cpu.cpu as usize);
            let (mut in_slot_ns, mut lost_ns, mut filled_ns) = (0, 0, 0);
            for it in there {
                let to_ns = it.to_ns.min(until_ns);
                let slot_ns = time_within(&spans, it.from_ns, to_ns);
                if it.runs {
                    in_slot_ns += slot_ns;
                    filled_ns += to_ns - it.from_ns - slot_ns;
                } else {
                    lost_ns += slot_ns;
                }
            }
            near(on_cpu.in_slot_ns, in_slot_ns, "in slot on a CPU");
            near(on_cpu.filled_ns, filled_ns, "filled on a CPU");
            near(on_cpu.lost_ns, lost_ns, "lost on a CPU");
        }
        let mut blamed: BTreeMap<u32, u64> = BTreeMap::new();
        for &(tgid, from_ns, to_ns, ran_ns) in &gang.blamed {
            let lost_ns = time_within(&spans, from_ns, to_ns).min(ran_ns);
            *blamed.entry(tgid).or_default() += lost_ns;
        }
        let mut lost = 0;
        for culprit in self.machine.lost_to(group) {
            let lost_ns = blamed.get(&culprit.pid).copied().unwrap_or_default();
            near(culprit.ns, lost_ns, "lost to a process");
            assert_eq!(culprit.name, name(culprit.pid));
            lost += culprit.ns;
        }
        near(lost, blamed.values().sum(), "lost to all processes");
    }
}

/// Each skew is counted, but for those of slots that passed at once: of these the last start and
/// the last end are.
fn compare_skews(measured: &[u32], truth: &Truth, gang: &Gang) {
    let mut all = vec![0; measured.len()];
    let mut certain = all.clone();
    let mut last_of_each = BTreeMap::new();
    for skew in &truth.skews {
        let bucket = bucket(skew.ns, measured.len());
        all[bucket] += 1;
        let booked = gang.booked_ns.partition_point(|&at_ns| at_ns < skew.known_ns);
        last_of_each.insert((skew.edge == Edge::Start, booked), bucket);
    }
    last_of_each.values().for_each(|&bucket| certain[bucket] += 1);
    for (bucket, &count) in measured.iter().enumerate() {
        let range = certain[bucket]..=all[bucket];
        assert!(
            range.contains(&count),
            "{count} skews in bucket {bucket}, not {range:?}; {gang:?}"
        );
    }
}

/// Eight for each power of two of microseconds, of one microsecond each up to 16; the last one has
/// all above.
fn bucket(ns: u64, count: usize) -> usize {
    let us = ns / 1000;
    let width = |power: u32| 1 << power.saturating_sub(3);
    let mut end_us = 0;
    for bucket in 0..count - 1 {
        let power = if bucket < 8 { 0 } else { (bucket / 8 + 2) as u32 };
        end_us += width(power);
        if us < end_us {
            return bucket;
        }
    }
    count - 1
}

/// As many CPUs as a history has are there.
const _: () = assert!(CPUS >= 4);
