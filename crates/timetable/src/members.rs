use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{Allowed, CpuSet, Spec};

use crate::{Action, Attributes, Backend, Known, as_default, before_gangd};

/// A job with more threads than this gets no slots until it has fewer.
pub const THREADS_MAX: usize = Spec::MAX_THREADS;

/// A choice of CPUs that a timetable from before it may overrule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// No timetable is made with it.
    New,
    /// The last one is.
    Planned,
}

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
    /// It can be idle as a whole, and has a weight. With [`Backend::Rt`](crate::Backend::Rt) only a
    /// job has these that lives beside the group of all gangs: below it, no weight would count for
    /// those outside.
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
    /// CPUs to which the job is restricted by the last timetable, and by those before it that a
    /// switcher may still follow.
    recent_pins: [Vec<CpuSet>; 2],
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

/// Whether a thread that chose these CPUs of the machine would run out of a slot.
pub fn is_outside(own: &CpuSet, slot: &CpuSet, machine: &CpuSet) -> bool {
    !own.intersection(machine).is_subset(slot)
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
            recent_pins: [Vec::new(), Vec::new()],
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
        Known { own, first_seen, in_idle_group, has_moved: self.has_moved }
    }

    /// The job lives elsewhere, where it has these controls. Until its threads are [stated
    /// anew](Members::end_move), they may have what they had out of slot before.
    pub fn begin_move(&mut self, controls: Controls) {
        self.has_moved |= controls.in_idle_group != self.controls.in_idle_group;
        self.controls = controls;
    }

    /// All switchers follow a timetable that states how the threads stand where the job lives.
    pub fn end_move(&mut self) {
        self.has_moved = false;
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

    /// Notes whether a thread that is known belongs to another user than the job. `is_new` where it
    /// was read for the first time just now. True where that has changed: the thread is to be left
    /// alone from now on, or to stand as its job.
    pub fn note_owner(&mut self, tid: u32, is_foreign: bool, is_new: bool) -> bool {
        let Ok(at) = self.find(tid) else { return false };
        let thread = &mut self.threads[at];
        if std::mem::replace(&mut thread.is_foreign, is_foreign) == is_foreign {
            return false;
        }
        if is_foreign {
            // It may have what gangd gave to it, or to the thread that started it.
            self.left_alone.push(tid);
            self.became_foreign.extend((!is_new).then_some(tid));
        } else {
            self.pins_are_unknown = true;
            self.became_foreign.remove(&tid);
            // It stands as its job again before it was left alone.
            self.left_alone.retain(|&it| it != tid);
        }
        true
    }

    /// Whether some member belongs to another user than the job, and goes on where the job stands
    /// still. The kernel freezes a group as a whole, so that such a job is not frozen.
    pub fn has_foreign_that_run(&self) -> bool {
        let any = self.foreign_leaves || self.threads.iter().any(|thread| thread.is_foreign);
        any && !self.stops_foreign
    }

    /// All that were let go are out of the job's groups. True where the job can be frozen as a
    /// whole from now on.
    pub fn all_left(&mut self) -> bool {
        std::mem::take(&mut self.foreign_leaves) && !self.has_foreign_that_run()
    }

    /// Whether a thread, such as the first one of a process, belongs to another user than the job.
    pub fn is_foreign(&self, tid: u32) -> bool {
        self.find(tid).is_ok_and(|at| self.threads[at].is_foreign)
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
        self.note_gone(tids);
        self.rt_limited.retain(|tid| tids.binary_search(tid).is_ok());
        self.own_cpus.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.given_back.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.chosen.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.overruled.retain(|tid| tids.binary_search(tid).is_ok());
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
                        let known = Known { in_idle_group, ..Known::of(own) };
                        known.wish(&seen.now).unwrap_or(own)
                    }
                    None => before_gangd(seen.now, default, was_started_here),
                };
                let user_pinned = self.is_user_pinned(&seen);
                let is_of_slot = seen.were_given && seen.cpus != self.everywhere;
                self.pins_are_unknown |= is_of_slot && Some(&seen.cpus) != self.pinned.as_ref();
                let first_seen = if seen.original.is_some() { original } else { seen.now };
                // It has them until it is restricted otherwise, which may take a timetable.
                if is_of_slot && !self.recent_pins[0].contains(&seen.cpus) {
                    self.recent_pins[0].push(seen.cpus.clone());
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

    /// Whether a thread that is seen for the first time chose its CPUs. One that was started by a
    /// thread in a slot has those of that slot, which may be over.
    fn is_user_pinned(&self, seen: &Seen) -> bool {
        let has_gangds = Some(&seen.cpus) == self.pinned.as_ref() || seen.were_given;
        seen.cpus != self.everywhere && !has_gangds
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

    /// Threads of other users, of these, that may have been stopped as processes of the job's
    /// owner, and are to go on.
    pub fn became_foreign(&self, tids: &[u32]) -> Vec<u32> {
        let go_on = |tid: &u32| !self.stops_foreign && self.became_foreign.contains(tid);
        tids.iter().copied().filter(go_on).collect()
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

    /// A thread that is known was seen with these CPUs, those that are offline among them. Where
    /// they are neither the job's nor of a timetable, its program or somebody else has chosen them.
    /// True where those that it chose are others from now on: it may stand otherwise in its slot.
    pub fn see_cpus(&mut self, tid: u32, cpus: CpuSet, were_given: bool, online: &CpuSet) -> bool {
        let before = self.own_cpus.get(&tid).cloned();
        self.note_own_cpus(tid, cpus, were_given, online);
        self.own_cpus.get(&tid) != before.as_ref()
    }

    fn note_own_cpus(&mut self, tid: u32, cpus: CpuSet, were_given: bool, online: &CpuSet) {
        let Ok(at) = self.find(tid) else { return };
        // The kernel lets a thread run anywhere of whose CPUs none is online any more.
        let is_free = online.is_subset(&cpus);
        let is = |set: &CpuSet| *set == cpus || (is_free && set.is_disjoint(online));
        let is_jobs = (is_free && self.may_use_all(online)) || is(&self.everywhere);
        let is_last = self.pinned.as_ref().is_some_and(is);
        // One that is left alone waits to be let go from CPUs that may be those of any slot.
        let may_be_of_any = self.pins_are_unknown || self.threads[at].is_exempt();
        let is_of_slot =
            is_last || self.recent_pins.iter().flatten().any(is) || (may_be_of_any && were_given);
        // It has them until it is restricted otherwise, which may take a timetable.
        if may_be_of_any && were_given && !self.recent_pins[0].contains(&cpus) {
            self.recent_pins[0].push(cpus.clone());
        }
        let Some(own) = self.own_cpus.get(&tid) else {
            if !is_jobs && !is_of_slot {
                self.threads[at].user_pinned = true;
                self.own_cpus.insert(tid, cpus);
                self.chosen.insert(tid, Choice::New);
            }
            // It may use all of its job's CPUs again, and is to go to those of the slot.
            self.pins_are_unknown |= self.pinned.is_some() && !is_of_slot && is_jobs;
            return;
        };
        if is_jobs && *own != cpus {
            self.pins_are_unknown = true;
            self.threads[at].user_pinned = false;
            self.own_cpus.remove(&tid);
            self.chosen.remove(&tid);
            return;
        }
        let is_given_back = self.given_back.contains_key(&tid);
        if *own != cpus && is_of_slot && (is_given_back || self.chosen.contains_key(&tid)) {
            // By a timetable from before the choice was seen. Once is enough.
            self.overruled.extend((!is_given_back).then_some(tid));
        } else if *own != cpus {
            self.own_cpus.insert(tid, cpus);
            // The one before is given back at any moment.
            self.overruled.extend(is_given_back.then_some(tid));
        }
    }

    /// Whether these are CPUs that a thread has from its job, from its slot or by its own choice,
    /// as far as is known: there is no need to look closer.
    pub fn is_usual(&self, tid: u32, cpus: &CpuSet) -> bool {
        let own = self.own_cpus.get(&tid);
        match own {
            Some(own) => own == cpus,
            None => {
                let mut recent = self.recent_pins.iter().flatten().chain(&self.pinned);
                *cpus == self.everywhere || recent.any(|of_slot| of_slot == cpus)
            }
        }
    }

    /// The CPUs that a thread has chosen, as they were last read.
    pub fn own_cpus(&self, tid: u32) -> Option<&CpuSet> {
        self.own_cpus.get(&tid)
    }

    /// The threads that chose CPUs of the machine that are not all of a slot, in order of number:
    /// they would run raised where others have theirs.
    pub fn outside(&self, slot: &CpuSet, machine: &CpuSet) -> Vec<u32> {
        let switched = self.threads.iter().filter(|it| it.user_pinned && !it.is_exempt());
        let own = switched.filter_map(|it| Some((it.tid, self.own_cpus.get(&it.tid)?)));
        own.filter(|(_, own)| is_outside(own, slot, machine)).map(|(tid, _)| tid).collect()
    }

    /// The threads that chose their CPUs themselves, and have them for certain: a release leaves
    /// these as they are.
    pub fn user_pinned(&self) -> impl Iterator<Item = u32> {
        let chose = self.threads.iter().filter(|thread| thread.user_pinned);
        let chose = chose.map(|thread| thread.tid);
        chose.filter(|tid| !self.chosen.contains_key(tid))
    }

    /// The actions that give threads back the CPUs that they chose, of those that had others from a
    /// timetable since.
    pub fn take_overruled(&mut self) -> Vec<Action> {
        let overruled = std::mem::take(&mut self.overruled);
        self.given_back.extend(overruled.iter().map(|&tid| (tid, Choice::New)));
        let overruled = overruled.into_iter();
        let own = overruled.filter_map(|tid| Some((tid, self.own_cpus.get(&tid)?.clone())));
        own.map(|(tid, cpus)| Action::Affinity { tid, cpus }).collect()
    }

    /// The job is restricted to these CPUs in the timetable that begins, one after the other.
    pub fn begin_pins(&mut self, pins: Vec<CpuSet>) {
        let [last, before] = &mut self.recent_pins;
        before.append(last);
        before.sort();
        before.dedup();
        last.extend(self.pinned.iter().cloned().chain(pins));
    }

    /// All switchers follow the last timetable: its threads have no CPUs of one before it any more.
    pub fn end_pins(&mut self) {
        self.recent_pins[1].clear();
        for choices in [&mut self.chosen, &mut self.given_back] {
            choices.retain(|_, choice| *choice == Choice::New);
            choices.values_mut().for_each(|choice| *choice = Choice::Planned);
        }
    }

    fn may_use_all(&mut self, online: &CpuSet) -> bool {
        *self.may_use_all.get_or_insert(online.is_subset(&self.everywhere))
    }

    /// The CPUs that the threads of the job may use, of those that are `online`.
    pub fn allowed(&mut self, online: &CpuSet) -> Allowed {
        let may_use_all = self.may_use_all(online);
        let switched = || self.threads.iter().filter(|thread| !thread.is_exempt());
        let own = switched().filter_map(|thread| self.own_cpus.get(&thread.tid));
        let is_bound = |thread: &Thread| self.own_cpus.contains_key(&thread.tid);
        let own_of_all = || own.clone().fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let are_all_bound = switched().next().is_some() && switched().all(is_bound);
        let all = if are_all_bound { own_of_all() } else { self.everywhere.clone() };
        let allowed = match online.is_subset(&all) || (may_use_all && !are_all_bound) {
            true => Allowed::anywhere(),
            false => Allowed::within(all),
        };
        // A bound thread is restricted no further, so that its slot is to have all of its CPUs.
        let bound = own.clone().filter(|cpus| !online.is_subset(cpus));
        allowed.with_bound(bound.map(|cpus| (cpus.clone(), cpus.len() as u32)))
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

    /// The actions that restrict the threads to some CPUs, of those that have not chosen their own.
    pub fn pinning(&self, cpus: &CpuSet) -> impl Iterator<Item = Action> {
        let threads =
            self.threads.iter().filter(|thread| !thread.is_exempt() && !thread.user_pinned);
        threads.map(move |thread| Action::Affinity { tid: thread.tid, cpus: cpus.clone() })
    }

    /// Appends the actions that let the threads run on every CPU again, where they may be
    /// restricted.
    pub fn unpin(&mut self, out: &mut Vec<Action>) {
        let is_unknown = std::mem::take(&mut self.pins_are_unknown);
        if (self.pinned.take().is_some() || is_unknown) && !self.keeps_cpus {
            out.extend(self.pinning(&self.everywhere));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    fn job() -> Members {
        Members::new(Controls::default(), Attributes::other(5), cpus(&[0, 1]))
    }

    fn seen(tid: u32, now: Attributes, of: &[u32]) -> Option<Seen> {
        let cpus = cpus(of);
        Some(Seen { tid, now, cpus, were_given: false, original: None, started_by: None })
    }

    #[test]
    fn known_threads_stay_remembered_gone_ones_leave() {
        let mut job = job();
        assert_eq!(job.update(&[3, 7], |tid| seen(tid, Attributes::other(1), &[0, 1])), 2);
        job.note_cpus(&[(3, 1), (9, 0)]);
        let look = |tid| if tid == 8 { None } else { seen(tid, Attributes::other(0), &[1]) };
        assert_eq!(job.update(&[3, 5, 8], look), 2);
        let (first, second) = (job.threads()[0], job.threads()[1]);
        assert_eq!(job.threads().len(), 2);
        assert_eq!((first.tid, first.original, first.cpu), (3, Attributes::other(1), Some(1)));
        // Started by a thread in its slot, it is an ordinary one; and it chose its CPU.
        assert_eq!((second.tid, second.original), (5, Attributes::other(5)));
        assert!(second.user_pinned && !first.user_pinned);
    }

    #[test]
    fn nothing_is_on_file_of_some_alone() {
        let (none, normal) = (BTreeMap::new(), Attributes::other(5));
        let mut job = job();
        job.update(&[3, 4], |tid| seen(tid, normal, &[0, 1]));
        assert_eq!(job.own_attributes(&[9], &none, &none), none, "a release gives that to all");
        // The one that leaves may have been started by one that differs.
        let wish = Attributes { nice: 7, ..Attributes::other(0) };
        let expected: BTreeMap<u32, Attributes> = [(6, wish)].into();
        job.update(&[3, 4, 6], |tid| seen(tid, if tid == 6 { wish } else { normal }, &[0, 1]));
        let all: BTreeMap<u32, Attributes> =
            [(3, normal), (4, normal), (6, wish), (9, normal)].into();
        assert_eq!(job.own_attributes(&[9], &none, &none), all);
        assert_eq!(job.own_attributes(&[9], &expected, &expected), all);
        // One that a leaver started meanwhile wants what that one does.
        assert_eq!(job.own_attributes(&[9, 10], &all, &none), all);
        // The one that differs leaves: it may have started those that stay.
        job.update(&[3, 4], |tid| seen(tid, normal, &[0, 1]));
        let left: BTreeMap<u32, Attributes> = [(3, normal), (4, normal), (6, wish)].into();
        assert_eq!(job.own_attributes(&[6], &all, &none), left);
        assert_eq!(job.own_attributes(&[], &left, &none), none);
    }

    #[test]
    fn threads_that_end_soon_are_told_from_those_that_stay() {
        let mut job = job();
        let mut read = |tids: &[u32]| {
            job.update(tids, |tid| seen(tid, Attributes::other(5), &[0, 1]));
            let Turnover { ended_young, staying } = job.take_turnover();
            (ended_young, staying)
        };
        assert_eq!(read(&[1, 2]), (0, 0), "both came");
        assert_eq!(read(&[1, 2, 3]), (0, 0));
        assert_eq!(read(&[1, 2, 3, 4]), (0, 0));
        assert_eq!(read(&[1, 2, 4, 5]), (1, 2), "3 was seen at two looks, 1 and 2 at three");
        assert_eq!(read(&[1, 4, 5]), (0, 1), "2 had been there for long");
        assert_eq!(read(&[5]), (0, 0));
        assert_eq!(read(&[5]), (0, 1));
        job.update(&[5, 6], |tid| seen(tid, Attributes::other(5), &[0, 1]));
        job.update(&[5, 7], |tid| seen(tid, Attributes::other(5), &[0, 1]));
        job.update(&[5], |_| None);
        assert_eq!(job.take_turnover(), Turnover { ended_young: 2, staying: 1 }, "between looks");
    }

    #[test]
    fn cpus_of_gangds_are_nobodys_choice() {
        let mut job = job();
        job.pinned = Some(cpus(&[1]));
        let given = Seen { were_given: true, ..seen(4, Attributes::other(0), &[0]).unwrap() };
        job.update(&[3, 4, 5], |tid| match tid {
            3 => seen(3, Attributes::other(0), &[1]),
            4 => Some(given.clone()),
            _ => seen(5, Attributes::other(0), &[0]),
        });
        let user_pinned: Vec<bool> =
            job.threads().iter().map(|thread| thread.user_pinned).collect();
        assert_eq!(user_pinned, [false, false, true]);
    }

    #[test]
    fn choices_of_cpus_are_seen_and_kept() {
        let online = cpus(&[0, 1, 2]);
        let mut job = Members::new(Controls::default(), Attributes::other(0), online.clone());
        job.update(&[3, 4], |tid| seen(tid, Attributes::other(0), &[0, 1, 2]));
        assert_eq!(job.allowed(&online), Allowed::anywhere());
        // In a slot on CPUs 0 and 1.
        job.begin_pins(vec![cpus(&[0, 1])]);
        job.pinned = Some(cpus(&[0, 1]));
        job.see_cpus(3, cpus(&[0, 1]), true, &online);
        assert_eq!(job.allowed(&online), Allowed::anywhere(), "those of the slot");
        job.see_cpus(3, cpus(&[2]), true, &online);
        let bound = Allowed::anywhere().with_bound([(cpus(&[2]), 1)]);
        assert_eq!(job.allowed(&online), bound);
        assert_eq!(job.user_pinned().count(), 0, "a timetable may overrule it yet");
        job.see_cpus(3, cpus(&[0, 1]), true, &online);
        let own = Action::Affinity { tid: 3, cpus: cpus(&[2]) };
        assert_eq!((job.take_overruled(), job.allowed(&online)), (vec![own], bound));
        job.see_cpus(3, cpus(&[0, 1]), true, &online);
        assert_eq!(job.take_overruled(), [], "it is on its way");
        job.see_cpus(3, cpus(&[2]), true, &online);
        job.end_pins();
        assert_eq!(job.user_pinned().count(), 0, "the timetable in force is from before it");
        job.end_pins();
        assert_eq!(job.user_pinned().collect::<Vec<_>>(), [3]);
        // Now nobody but its owner sets it.
        job.see_cpus(3, cpus(&[0, 1]), true, &online);
        assert_eq!(job.own_cpus(3), Some(&cpus(&[0, 1])));
        job.see_cpus(4, cpus(&[2]), false, &online);
        let both = [(cpus(&[0, 1]), 2), (cpus(&[2]), 1)];
        assert_eq!(job.allowed(&online), Allowed::anywhere().with_bound(both));
        job.see_cpus(3, cpus(&[2]), false, &online);
        assert_eq!(job.allowed(&online), Allowed::within(cpus(&[2])), "all of it");
        for tid in [3, 4] {
            job.see_cpus(tid, online.clone(), false, &online);
        }
        assert_eq!(job.allowed(&online), Allowed::anywhere());
        assert!(job.pins_are_unknown, "the next slot restricts them again");
    }

    #[test]
    fn nobody_chose_the_cpus_of_a_thread_that_lost_its_own() {
        let all = cpus(&[0, 1, 2]);
        let mut job = Members::new(Controls::default(), Attributes::other(0), cpus(&[1, 2]));
        job.update(&[3], |tid| seen(tid, Attributes::other(0), &[1, 2]));
        assert_eq!(job.allowed(&all), Allowed::within(cpus(&[1, 2])));
        job.begin_pins(vec![cpus(&[2])]);
        job.pinned = Some(cpus(&[2]));
        // CPU 2 is offline: the kernel lets the thread run anywhere.
        job.see_cpus(3, all, false, &cpus(&[0, 1]));
        assert_eq!(job.own_cpus(3), None);
        assert_eq!(job.allowed(&cpus(&[0, 1])), Allowed::within(cpus(&[1, 2])));
    }

    #[test]
    fn threads_that_are_lost_get_back_what_gangd_changed() {
        let mut job = job();
        let look = |tid| seen(tid, Attributes::other(2), if tid == 4 { &[0] } else { &[0, 1] });
        job.update(&[3, 4, 5], look);
        job.pinned = Some(cpus(&[1]));
        assert_eq!(job.take_gone(7), []);
        job.let_go(&[5], &mut Vec::new());
        job.update(&[6], look);
        let (attributes, known) = (Attributes::other(2), Known::of(Attributes::other(2)));
        let original = |tid| Action::Attributes { tid, attributes, known };
        let everywhere = Action::Affinity { tid: 3, cpus: cpus(&[0, 1]) };
        let [first, second] = [vec![original(3), everywhere], vec![original(4)]];
        let normal = Some(attributes);
        let gone = |tid, actions| Gone { tid, was_there_ticks: 7, normal, actions };
        let [first, second] = [gone(3, first), gone(4, second)];
        assert_eq!(job.take_gone(7), [first, second], "5 was let go");
        assert_eq!(job.take_gone(7), []);
    }

    #[test]
    fn known_threads_stay_beyond_the_limit() {
        let mut job = job();
        let last = 2 * THREADS_MAX as u32;
        job.update(&[last], |tid| seen(tid, Attributes::other(0), &[0, 1]));
        let mut tids: Vec<u32> = (1..=last).rev().collect();
        assert_eq!(job.admit(&mut tids, 0), last as usize);
        assert!(job.has_too_many_threads());
        assert_eq!(tids.len(), THREADS_MAX);
        assert!(tids.is_sorted() && tids.last() == Some(&last));
        let mut few = vec![7, 3, 7];
        job.admit(&mut few, THREADS_MAX + 1);
        assert_eq!((few, job.has_too_many_threads()), (vec![3, 7], true), "those beside count");
        job.admit(&mut vec![1], 0);
        assert!(!job.has_too_many_threads());
    }

    #[test]
    fn cpus_are_given_back_where_slots_restrict_them_alone() {
        for (backend, are) in [(Backend::Rt, true), (Backend::Freeze, false)] {
            let mut job = job().with_threads(vec![Thread::new(3, Attributes::other(5))]);
            job.keep_what_stays(backend);
            job.pins_are_unknown = true;
            let (mut unpinned, mut let_go) = (Vec::new(), Vec::new());
            job.clone().unpin(&mut unpinned);
            job.let_go(&[3], &mut let_go);
            let everywhere = Action::Affinity { tid: 3, cpus: cpus(&[0, 1]) };
            assert_eq!((unpinned.contains(&everywhere), let_go.contains(&everywhere)), (are, are));
        }
    }

    #[test]
    fn thread_of_another_user_gets_back_what_it_has_and_is_left_alone() {
        let mut job = job();
        job.pinned = Some(cpus(&[1]));
        let mut raised = seen(4, Attributes::fifo(1), &[1]).unwrap();
        raised.were_given = true;
        job.update(&[3, 4], |tid| match tid {
            3 => seen(3, Attributes::other(5), &[0, 1]),
            _ => Some(raised.clone()),
        });
        assert!(!job.note_owner(3, false, true) && job.note_owner(4, true, true));
        assert!(job.has_foreign_that_run() && job.is_foreign(4) && !job.is_foreign(3));
        let restricted: Vec<Action> = job.pinning(&cpus(&[0])).collect();
        assert_eq!(restricted, [Action::Affinity { tid: 3, cpus: cpus(&[0]) }]);
        let tids = job.take_left_alone();
        // Its nice value was lost before anybody looked.
        let (attributes, first_seen) = (Attributes::other(0), Attributes::fifo(1));
        let known = Known { first_seen, ..Known::of(attributes) };
        let back = Action::Attributes { tid: 4, attributes, known };
        let everywhere = Action::Affinity { tid: 4, cpus: cpus(&[0, 1]) };
        assert_eq!(job.unpin_left_alone(&tids), [everywhere, back]);
        assert_eq!(job.became_foreign(&tids), [], "nobody has stopped it");
        // Its slot is not over, and nobody has chosen that.
        assert!(!job.note_attributes(4, &Attributes::fifo(1)));
        assert_eq!(job.threads()[1].original, attributes);
        // Another one becomes foreign as it runs, and is the owner's again.
        assert!(job.note_owner(3, true, false) && !job.note_owner(3, true, false));
        assert_eq!((job.take_left_alone(), job.became_foreign(&[3, 4])), (vec![3], vec![3]));
        job.stops_foreign = true;
        assert!(
            job.became_foreign(&[3, 4]).is_empty(),
            "it stands still by an administrator's order"
        );
        job.stops_foreign = false;
        assert!(job.note_owner(3, false, false) && !job.threads()[0].is_exempt());
        job.stops_foreign = true;
        assert!(!job.has_foreign_that_run());
    }

    #[test]
    fn leaving_threads_get_back_what_gangd_changed() {
        let mut job = job();
        job.pinned = Some(cpus(&[1]));
        job.update(&[3, 4, 5], |tid| match tid {
            3 => seen(3, Attributes::other(2), &[0, 1]),
            4 => seen(4, Attributes::other(2), &[0]),
            _ => seen(5, Attributes::fifo(9), &[0, 1]),
        });
        let mut out = Vec::new();
        assert_eq!(job.let_go(&[3, 4, 5, 6], &mut out), [3, 4, 5]);
        assert!(job.threads().is_empty());
        let (attributes, known) = (Attributes::other(2), Known::of(Attributes::other(2)));
        let original = |tid| Action::Attributes { tid, attributes, known };
        let everywhere = |tid| Action::Affinity { tid, cpus: cpus(&[0, 1]) };
        assert_eq!(out, [original(3), everywhere(3), original(4), everywhere(5)]);
    }
}
