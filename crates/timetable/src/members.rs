//! The threads of a job: what each had before, what it has, and what follows from both.
//!
//! Problem: the owners of threads change what gangd gives to these, at any moment, and what a
//! thread has is read some time later. A release gives each thread what its owner wants.
//!
//! Approach: of each thread there is what its owner gave it. An attribute that it has now and that
//! gangd did not give is its owner's new wish. Threads that are seen for the first time have
//! inherited from their starters, what gangd gave to these included. CPUs are in [`cpus`], and
//! threads that belong to other users in [`foreign`].

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{CpuSet, Quota, Spec};

use crate::{Action, Attributes, Backend, InSlot, Known, as_default, before_gangd};

mod cpus;
mod foreign;
#[cfg(test)]
mod tests;

use cpus::Choice;
pub use cpus::is_outside;

/// A job with more threads than this gets no slots until it has fewer.
pub const THREADS_MAX: usize = Spec::MAX_THREADS;

/// One thread of a job.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub tid: u32,
    /// As its owner wants it, to be given back.
    pub original: Attributes,
    /// As it was when it was first seen, as long as it may be so.
    pub first_seen: Attributes,
    /// The program chose its CPUs itself, and knows why.
    pub user_pinned: bool,
    /// It belongs to another user than the job: nothing is done to it in the name of the job's.
    pub is_foreign: bool,
    /// The CPU it was last seen on.
    pub cpu: Option<u32>,
}

impl Thread {
    /// One that is seen as its owner has it.
    pub fn new(tid: u32, original: Attributes) -> Thread {
        let first_seen = original;
        Thread { tid, original, first_seen, user_pinned: false, is_foreign: false, cpu: None }
    }

    /// It is not touched: the program made it a real-time thread itself, and knows why, or it
    /// belongs to another user.
    pub fn is_exempt(&self) -> bool {
        self.is_realtime() || self.is_foreign
    }

    fn is_realtime(&self) -> bool {
        self.original.policy.is_realtime()
    }
}

/// The look at a thread that was not known.
#[derive(Clone, Debug)]
pub struct Seen {
    pub tid: u32,
    pub now: Attributes,
    pub cpus: CpuSet,
    /// gangd gave these CPUs to threads of the job lately.
    pub were_given: bool,
    /// The attributes that it had before, where they are on file.
    pub original: Option<Attributes>,
    /// Absent where all threads are wanted as the job's first thread had it.
    pub started_by: Option<Starter>,
}

/// A thread of the process that started another one.
#[derive(Clone, Copy, Debug)]
pub struct Starter {
    pub tid: u32,
    /// The attributes that its owner wants of it, where they are on file: also of one that leaves
    /// the job.
    pub on_file: Option<Attributes>,
}

/// Controls that a job has in cgroups of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controls {
    /// It can be frozen as a whole.
    pub freezer: bool,
    /// It can be idle as a whole, and has a weight. With [`Backend::Rt`] only a job has these that
    /// lives beside the group of all gangs: below it, no weight would count for those outside.
    pub idle: bool,
    pub weight: bool,
    /// The group of its own weighs what others weigh, in its slots and out of them: its processes
    /// are to leave the group.
    pub weighs_as_others: bool,
    /// Its group, or one above, is idle as a whole.
    pub in_idle_group: bool,
    /// Its threads are never real-time ones: the kernel refuses, or a quota of its group would not
    /// bind them.
    pub kept_from_realtime: bool,
    /// The quota of CPU time of its group, or of one above: the least of them.
    pub quota: Option<Quota>,
}

impl Controls {
    /// They weigh the job as a whole.
    pub fn weigh(&self) -> bool {
        self.idle && self.weight && !self.weighs_as_others
    }
}

/// A thread that its job lost without letting it go: it has ended, or it left by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub tid: u32,
    /// It was a member at that moment, in ticks since boot: a younger one may have its number.
    pub was_there_ticks: u64,
    /// The attributes that it had; absent where nothing is done to those.
    pub normal: Option<Attributes>,
    /// Gives back to it what it had.
    pub actions: Vec<Action>,
}

/// How many of a job's threads ended soon, and how many stay, from one look at them to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Threads that ended, and had been seen at two looks at most.
    pub ended_young: u32,
    /// Threads that are there, and were seen at more looks.
    pub staying: u32,
}

/// The members of a job, as far as it matters for how they stand.
#[derive(Clone, Debug)]
pub struct Members {
    /// In order of number.
    threads: Vec<Thread>,
    /// Of a job without a cgroup: those that are stopped one by one.
    pub processes: Vec<u32>,
    pub controls: Controls,
    /// An administrator has the whole job stand still, those of other users among its members.
    pub stops_foreign: bool,
    /// Threads of other users that were the owner's own: one of them may have been stopped.
    became_foreign: BTreeSet<u32>,
    /// Some that were let go may be in the job's groups yet.
    foreign_leaves: bool,
    /// Its threads may have what they had out of slot where it lived before.
    has_moved: bool,
    /// Its threads may have what an oversubscribed gang has, or what its owner chose in its slot.
    was_oversubscribed: bool,
    /// Its threads keep their attributes in and out of slot: what they are seen with is their own.
    pub keeps_attributes: bool,
    /// The same of its CPUs: no slot restricts them.
    keeps_cpus: bool,
    /// Its threads are members by themselves: a release gives each what that one had as it came.
    pub are_single: bool,
    /// The attributes that a thread of unknown past gets: an ordinary one's.
    pub default: Attributes,
    /// The CPUs that the first process of the job might run on.
    pub everywhere: CpuSet,
    /// CPUs its threads were last restricted to; absent where they run anywhere.
    pub pinned: Option<CpuSet>,
    /// They may be restricted otherwise: a switcher may have carried out what was taken back, and
    /// threads inherit the CPUs of a slot that is over.
    pub pins_are_unknown: bool,
    /// Threads that the kernel would end for their time as real-time threads (`RLIMIT_RTTIME`).
    rt_limited: BTreeSet<u32>,
    /// Threads that are left alone from now on, and may be restricted to CPUs of a slot.
    left_alone: Vec<u32>,
    /// Threads that the job lost since this was last taken.
    gone: Vec<Gone>,
    /// The CPUs of threads that chose them themselves, as they were last read.
    own_cpus: BTreeMap<u32, CpuSet>,
    /// `everywhere` was every CPU online as it was first looked at: more of them may come.
    may_use_all: Option<bool>,
    /// Threads that chose their CPUs lately: a timetable from before may overrule them yet.
    chosen: BTreeMap<u32, Choice>,
    /// Threads to which the CPUs that they chose are given back, by a timetable that is not in
    /// force yet.
    given_back: BTreeMap<u32, Choice>,
    /// Threads that were overruled.
    overruled: BTreeSet<u32>,
    /// Threads that had CPUs of a slot when they were last seen, in place of those that they chose.
    restricted: BTreeSet<u32>,
    /// CPUs to which the job is restricted by the last timetable, and by those before it that a
    /// switcher may still follow.
    recent_pins: [Vec<CpuSet>; 2],
    /// The CPUs of other slots that its threads were seen on since the last timetable began.
    inherited_pins: Vec<CpuSet>,
    /// Threads were read before.
    had_threads: bool,
    /// It had more than [`THREADS_MAX`] threads when they were last read.
    has_too_many_threads: bool,
    /// Threads that came since the last [look](Members::take_turnover), between that and the look
    /// before, and between the two before these.
    young: [BTreeSet<u32>; 3],
    /// So many of these have ended since the last look.
    ended_young: u32,
}

/// Where a thread is among those in order of number, or belongs.
fn find(threads: &[Thread], tid: u32) -> Result<usize, usize> {
    threads.binary_search_by_key(&tid, |thread| thread.tid)
}

impl Members {
    /// Those of a job whose first thread had `normal`, and might run `everywhere`.
    pub fn new(controls: Controls, normal: Attributes, everywhere: CpuSet) -> Members {
        Members {
            threads: Vec::new(),
            processes: Vec::new(),
            controls,
            stops_foreign: false,
            became_foreign: BTreeSet::new(),
            foreign_leaves: false,
            has_moved: false,
            was_oversubscribed: false,
            keeps_attributes: false,
            keeps_cpus: false,
            are_single: false,
            default: as_default(normal),
            everywhere,
            pinned: None,
            pins_are_unknown: false,
            rt_limited: BTreeSet::new(),
            left_alone: Vec::new(),
            gone: Vec::new(),
            own_cpus: BTreeMap::new(),
            may_use_all: None,
            chosen: BTreeMap::new(),
            given_back: BTreeMap::new(),
            overruled: BTreeSet::new(),
            restricted: BTreeSet::new(),
            recent_pins: [Vec::new(), Vec::new()],
            inherited_pins: Vec::new(),
            had_threads: false,
            has_too_many_threads: false,
            young: Default::default(),
            ended_young: 0,
        }
    }

    /// Its threads keep what a backend does not switch.
    pub fn keep_what_stays(&mut self, backend: Backend) {
        self.keeps_attributes = backend != Backend::Rt;
        self.keeps_cpus = !backend.can_fill();
    }

    /// With these threads, in order of number.
    #[must_use]
    pub fn with_threads(mut self, threads: Vec<Thread>) -> Members {
        self.had_threads |= !threads.is_empty();
        self.threads = threads;
        self
    }

    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// The attributes that a thread may have although its owner has chosen none.
    pub fn known(&self, thread: &Thread) -> Known {
        let Thread { original: own, first_seen, .. } = *thread;
        let in_idle_group = self.controls.in_idle_group;
        let Members { has_moved, was_oversubscribed, .. } = *self;
        Known { own, first_seen, in_idle_group, has_moved, was_oversubscribed }
    }

    /// The job lives elsewhere, where it has these controls. Until its threads are [stated
    /// anew](Members::end_move), they may have what they had out of slot before.
    pub fn begin_move(&mut self, controls: Controls) {
        self.has_moved |= controls.in_idle_group != self.controls.in_idle_group;
        self.controls = controls;
    }

    /// Its threads are going to have what an oversubscribed gang has.
    pub fn begin_oversubscribed(&mut self) {
        self.was_oversubscribed = true;
    }

    /// All switchers follow a timetable that states how the threads stand where the job lives, and
    /// with what they have in their slots.
    pub fn end_move(&mut self, in_slot: InSlot) {
        self.has_moved = false;
        self.was_oversubscribed &= in_slot == InSlot::Oversubscribed;
    }

    /// Whether its threads may have what they had out of slot where it lived before.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    pub fn has_too_many_threads(&self) -> bool {
        self.has_too_many_threads
    }

    /// Whether some thread may not be made a real-time one.
    pub fn is_rt_limited(&self) -> bool {
        self.controls.kept_from_realtime
            || self.threads.iter().any(|thread| self.rt_limited.contains(&thread.tid))
    }

    /// Notes whether the kernel would end a thread for its time as a real-time thread.
    pub fn note_rt_limit(&mut self, tid: u32, is_limited: bool) {
        if is_limited {
            self.rt_limited.insert(tid);
        } else {
            self.rt_limited.remove(&tid);
        }
    }

    fn find(&self, tid: u32) -> Result<usize, usize> {
        find(&self.threads, tid)
    }

    pub fn knows(&self, tid: u32) -> bool {
        self.find(tid).is_ok()
    }

    /// Admits the threads of the job, given in any order; so many others are `beside` them in the
    /// same processes. Leaves those that are looked at, in order of number, for
    /// [`Members::update`]. Returns how many the job has.
    ///
    /// Of too many threads those stay that were known: they may be raised, and must be lowered. The
    /// order in which the kernel lists them is not the same each time.
    pub fn admit(&mut self, tids: &mut Vec<u32>, beside: usize) -> usize {
        self.has_too_many_threads = tids.len().max(beside) > THREADS_MAX;
        tids.sort_unstable();
        tids.dedup();
        let listed = tids.len();
        if !self.has_too_many_threads {
            return listed;
        }
        let known = tids.iter().filter(|&&tid| self.knows(tid)).count();
        let mut room = THREADS_MAX.saturating_sub(known);
        tids.retain(|&tid| {
            let is_known = self.knows(tid);
            let stays = is_known || room > 0;
            room -= usize::from(stays && !is_known);
            stays
        });
        listed
    }

    /// The threads of the job are these, in order of number. Known threads keep what is remembered
    /// of them; the others are looked at, unless they are gone. Returns how many came.
    pub fn update(&mut self, tids: &[u32], mut look: impl FnMut(u32) -> Option<Seen>) -> usize {
        if self.threads.iter().map(|thread| thread.tid).eq(tids.iter().copied()) {
            return 0;
        }
        // Also where those that started it have left.
        let was_started_here = std::mem::replace(&mut self.had_threads, true);
        let (is_own, in_idle_group) = (self.keeps_attributes, self.controls.in_idle_group);
        let was_oversubscribed = self.was_oversubscribed;
        self.note_gone(tids);
        self.rt_limited.retain(|tid| tids.binary_search(tid).is_ok());
        self.own_cpus.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.given_back.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.chosen.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.overruled.retain(|tid| tids.binary_search(tid).is_ok());
        self.restricted.retain(|tid| tids.binary_search(tid).is_ok());
        self.became_foreign.retain(|tid| tids.binary_search(tid).is_ok());
        for young in &mut self.young {
            let were = young.len();
            young.retain(|tid| tids.binary_search(tid).is_ok());
            self.ended_young = self.ended_young.saturating_add((were - young.len()) as u32);
        }
        let before = std::mem::take(&mut self.threads);
        let mut known = before.iter().copied().peekable();
        let mut came = 0;
        for &tid in tids {
            while known.peek().is_some_and(|thread| thread.tid < tid) {
                known.next();
            }
            if let Some(thread) = known.next_if(|thread| thread.tid == tid) {
                self.threads.push(thread);
                continue;
            }
            came += 1;
            if let Some(seen) = look(tid) {
                let starter = seen.started_by.and_then(|Starter { tid, on_file }| {
                    let of = |all: &[Thread]| Some(all[find(all, tid).ok()?].original);
                    of(&before).or_else(|| of(&self.threads)).or(on_file)
                });
                // Children of a thread that is real-time of its own are so, too, or are ordinary.
                let starter = starter.filter(|own| !own.policy.is_realtime());
                let default = starter.unwrap_or(self.default);
                let original = match seen.original {
                    _ if is_own => seen.now,
                    Some(own) => {
                        let known = Known { in_idle_group, was_oversubscribed, ..Known::of(own) };
                        known.wish(&seen.now).unwrap_or(own)
                    }
                    None => before_gangd(seen.now, default, was_started_here),
                };
                let user_pinned = self.is_user_pinned(&seen);
                let is_of_slot = seen.were_given && seen.cpus != self.everywhere;
                self.pins_are_unknown |= is_of_slot && Some(&seen.cpus) != self.pinned.as_ref();
                let first_seen = if seen.original.is_some() { original } else { seen.now };
                // It has them until it is restricted otherwise, which may take a timetable.
                if is_of_slot {
                    self.note_inherited(seen.cpus.clone());
                }
                // Its owner made it a real-time one before it was seen.
                let has_gangds = is_of_slot && !user_pinned && original.policy.is_realtime();
                self.left_alone.extend(has_gangds.then_some(tid));
                if user_pinned {
                    self.own_cpus.insert(tid, seen.cpus);
                }
                let thread = Thread::new(tid, original);
                self.threads.push(Thread { first_seen, user_pinned, ..thread });
                self.young[0].insert(tid);
            }
        }
        came
    }

    /// Notes the threads that are not among these any more, with what gives back what they had.
    fn note_gone(&mut self, tids: &[u32]) {
        for thread in self.threads.iter().filter(|it| tids.binary_search(&it.tid).is_err()) {
            let mut actions = Vec::new();
            self.give_back(thread, &mut actions);
            let normal = (!self.keeps_attributes).then_some(thread.original);
            self.gone.push(Gone { tid: thread.tid, was_there_ticks: 0, normal, actions });
        }
    }

    /// The threads that the job lost since the last call, and had at a moment. Where one lives on,
    /// nobody else lowers it.
    pub fn take_gone(&mut self, was_there_ticks: u64) -> Vec<Gone> {
        let gone = std::mem::take(&mut self.gone);
        gone.into_iter().map(|gone| Gone { was_there_ticks, ..gone }).collect()
    }

    /// A look at the threads, as they were last read: which came and went since the look before.
    pub fn take_turnover(&mut self) -> Turnover {
        let ended_young = std::mem::take(&mut self.ended_young);
        let young: usize = self.young.iter().map(BTreeSet::len).sum();
        let staying = self.threads.len().saturating_sub(young);
        self.young.rotate_right(1);
        self.young[0].clear();
        Turnover { ended_young, staying: staying as u32 }
    }

    /// Remembers what a thread had before it joined. Where that is not what the job's first thread
    /// had, it cannot be found out any more once the thread is switched.
    pub fn remember(&mut self, seen: &Seen) {
        let original = seen.original.unwrap_or(seen.now);
        let user_pinned = seen.cpus != self.everywhere && !seen.were_given;
        if user_pinned {
            self.own_cpus.insert(seen.tid, seen.cpus.clone());
            // It may have been in a slot by now.
            self.overruled.extend(self.pinned.is_some().then_some(seen.tid));
        }
        match self.find(seen.tid) {
            // It was read meanwhile, and what it had is on file.
            Ok(at) => self.threads[at].user_pinned |= user_pinned,
            Err(at) => {
                let first_seen = seen.now;
                let thread = Thread { first_seen, user_pinned, ..Thread::new(seen.tid, original) };
                self.threads.insert(at, thread);
            }
        }
    }

    /// Notes what a thread has. Where it is not what gangd may have given, it is what its owner
    /// wants from now on. True where it stands otherwise than planned because of that.
    pub fn note_attributes(&mut self, tid: u32, now: &Attributes) -> bool {
        let Ok(at) = self.find(tid) else { return false };
        let known = self.known(&self.threads[at]);
        let thread = &mut self.threads[at];
        // It is left alone until its owner makes it an ordinary one again.
        let is_left_alone = self.keeps_attributes || thread.is_realtime();
        let wish = match is_left_alone {
            true => Some(*now).filter(|now| *now != thread.original),
            false => known.wish(now),
        };
        let was_realtime = thread.is_realtime();
        thread.original = wish.unwrap_or(thread.original);
        if *now != thread.first_seen {
            thread.first_seen = thread.original;
        }
        match (was_realtime, thread.is_realtime()) {
            (false, true) if !thread.user_pinned => self.left_alone.push(tid),
            (true, false) => self.pins_are_unknown = true,
            _ => {}
        }
        wish.is_some() && !self.keeps_attributes && !thread.is_foreign
    }

    pub fn has_left_alone(&self) -> bool {
        !self.left_alone.is_empty()
    }

    /// The threads that are left alone from now on, and may be restricted to CPUs of a slot.
    pub fn take_left_alone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left_alone)
    }

    /// The actions that let threads run anywhere which are left alone. Those of other users get
    /// back what they had, too.
    pub fn unpin_left_alone(&self, tids: &[u32]) -> Vec<Action> {
        let tids: BTreeSet<u32> = tids.iter().copied().collect();
        let is_left = |thread: &&Thread| thread.is_exempt() && tids.contains(&thread.tid);
        let mut actions = Vec::new();
        for thread in self.threads.iter().filter(is_left) {
            let tid = thread.tid;
            if !thread.user_pinned && !self.keeps_cpus {
                actions.push(Action::Affinity { tid, cpus: self.everywhere.clone() });
            }
            if !self.keeps_attributes && !thread.is_realtime() {
                let (attributes, known) = (thread.original, self.known(thread));
                actions.push(Action::Attributes { tid, attributes, known });
            }
        }
        actions
    }

    /// Whether some thread may have inherited attributes or CPUs that gangd gave to the thread that
    /// started it.
    pub fn has_inheritors(&self) -> bool {
        let inherited = |it: &Thread| !it.is_realtime() && it.first_seen != it.original;
        self.pinned.is_some() || self.pins_are_unknown || self.threads.iter().any(inherited)
    }

    /// Whether the owner of some thread may want other attributes than a release would give it
    /// without [that](Members::own_attributes) on file.
    pub fn has_own_attributes(&self) -> bool {
        let is_own = |thread: &Thread| self.are_single || thread.original != self.default;
        !self.keeps_attributes && self.threads.iter().any(is_own)
    }

    /// The attributes that owners want, to be put on file instead of `on_file`: none while a
    /// release would give to all threads what they want, else those of all threads, and of the
    /// `leavers`. The latter are threads that are members no more, and may have something of
    /// gangd's yet. Those `expected` are on file before they are members.
    pub fn own_attributes(
        &self,
        leavers: &[u32],
        on_file: &BTreeMap<u32, Attributes>,
        expected: &BTreeMap<u32, Attributes>,
    ) -> BTreeMap<u32, Attributes> {
        // One of which nothing is on file gets what one on file wants that started it.
        let has_own =
            self.has_own_attributes() || leavers.iter().any(|tid| on_file.contains_key(tid));
        let are_first = has_own && on_file.keys().all(|tid| expected.contains_key(tid));
        let of_leaver = |&tid| {
            let own = on_file.get(&tid).copied();
            Some((tid, own.or_else(|| are_first.then_some(self.default))?))
        };
        let members = self.threads.iter().filter(|_| has_own).map(|it| (it.tid, it.original));
        leavers.iter().filter_map(of_leaver).chain(members).collect()
    }

    /// Notes on which CPUs threads were last.
    pub fn note_cpus(&mut self, cpus: &[(u32, u32)]) {
        for &(tid, cpu) in cpus {
            if let Ok(at) = self.find(tid) {
                self.threads[at].cpu = Some(cpu);
            }
        }
    }

    /// The attributes of threads that a process has besides those that are known: as its first one.
    /// Absent where nothing is done to the attributes of threads.
    pub fn default_of(&self, pid: u32) -> Option<Attributes> {
        let first = self.find(pid).ok().map(|at| self.threads[at].original);
        let first = first.filter(|own| !own.policy.is_realtime());
        (!self.keeps_attributes).then(|| first.map_or(self.default, as_default))
    }

    /// Lets threads go: appends the actions that give them back what they had. Returns those that
    /// were known, in order of number.
    pub fn let_go(&mut self, tids: &[u32], out: &mut Vec<Action>) -> Vec<u32> {
        let tids: BTreeSet<u32> = tids.iter().copied().collect();
        let leave = |thread: &&Thread| tids.contains(&thread.tid);
        let leavers: Vec<Thread> = self.threads.iter().filter(leave).copied().collect();
        self.threads.retain(|thread| !tids.contains(&thread.tid));
        self.foreign_leaves |= leavers.iter().any(|thread| thread.is_foreign);
        leavers.iter().for_each(|thread| self.give_back(thread, out));
        leavers.iter().map(|thread| thread.tid).collect()
    }

    /// Appends the actions that give a thread back what it had.
    fn give_back(&self, thread: &Thread, out: &mut Vec<Action>) {
        let tid = thread.tid;
        let known = self.known(thread);
        let give_back = Action::Attributes { tid, attributes: thread.original, known };
        let is_given = !self.keeps_attributes && !thread.is_realtime();
        out.extend(is_given.then_some(give_back));
        // Also one that became a real-time one in its slot, at any time.
        let may_be_restricted =
            self.pinned.is_some() || self.pins_are_unknown || thread.is_exempt();
        if may_be_restricted && !thread.user_pinned && !self.keeps_cpus {
            out.push(Action::Affinity { tid, cpus: self.everywhere.clone() });
        }
        // A timetable from before may overrule it, and nobody looks any more.
        let own = self.own_cpus.get(&tid).filter(|_| self.chosen.contains_key(&tid));
        out.extend(own.map(|cpus| Action::Affinity { tid, cpus: cpus.clone() }));
    }
}
