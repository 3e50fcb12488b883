//! The facts about threads of a job that a release needs and cannot see on them, on file.
//!
//! Problem: a thread carries its CPUs with it, and nothing about them says who chose them. A
//! release that knows nothing else would leave threads on the CPUs of their last slot for ever, or
//! take from a program what it chose itself. Nor does a thread in its slot show which policy its
//! owner wants, where that is not the one that the job's first thread had.
//!
//! Approach: a file of binary words beside that of the job. A set of CPUs is in it before a
//! switcher may hear of it, and a thread that had chosen its own when it was first seen; and the
//! attributes that owners want. Each is written by one call, so that a reader finds nothing half
//! done after the daemon died.
//!
//! A member may leave the group of its job by itself, while a timetable raises it. So the members
//! are on file, too, with when they were there: a younger thread has the number of one that ended.
//! A stray, which has left already, is on file with when that one was there.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
};

use gang_linux::{Error, Result, own_files};
use gang_schedule::CpuSet;
use gang_timetable::{Attributes, SchedPolicy, THREADS_MAX};

use crate::thread;

/// Sets that are remembered; gangs keep their CPUs from slot to slot, so that there are few.
const SETS_MAX: usize = 64;
/// CPUs of higher numbers are none that a thread can be restricted to.
const CPUS_MAX: u32 = 1024;
const SET_LENGTH: usize = CPUS_MAX as usize / 8;
const USER_PINNED_AT: u64 = (SETS_MAX * SET_LENGTH) as u64;
const OWN_AT: u64 = USER_PINNED_AT + 4 * THREADS_MAX as u64;
/// Of a thread with attributes of its own, the number and the attributes.
const OWN_LENGTH: usize = 8;
/// Those of members, and of as many threads that leave or are going to come.
const OWN_MAX: usize = 2 * THREADS_MAX;
const MEMBERS_AT: u64 = OWN_AT + (OWN_LENGTH * OWN_MAX) as u64;
/// Members, and as many threads that leave.
const MEMBERS_MAX: usize = 2 * THREADS_MAX;
/// A moment, the numbers of threads, and a zero behind the last one.
const MEMBERS_LENGTH: usize = 8 + 4 * (MEMBERS_MAX + 1);
const STRAYS_AT: u64 = MEMBERS_AT + MEMBERS_LENGTH as u64;
/// Of a stray, a moment and the number.
const STRAY_LENGTH: usize = 8 + 4;
const STRAYS_MAX: usize = 2 * THREADS_MAX;

/// The CPUs that gangd gave to the threads of one job, and what they have of their own.
#[derive(Debug, Default)]
pub struct Pins {
    file: Option<File>,
    /// The last [`SETS_MAX`] ones, in a ring.
    sets: Vec<CpuSet>,
    next: usize,
    /// Threads that chose their CPUs themselves.
    user_pinned: Vec<u32>,
    /// The attributes that owners want of all threads, where some differ from the job's first one.
    own: BTreeMap<u32, Attributes>,
    /// The threads of a job with a cgroup, and when they were there, in ticks since boot.
    members: (u64, Vec<u32>),
    /// Threads that left the job by themselves, each with when it was there yet.
    strays: BTreeMap<u32, u64>,
}

impl Pins {
    /// Begins anew, with nothing given yet. The wishes of owners stay as an earlier daemon filed
    /// them.
    pub fn create(path: &Path) -> Result<Pins> {
        let error = |e| Error::new("create", path.display(), e);
        let own = Pins::read(path)?.unwrap_or_default().own;
        let file = own_files::open_or_create(path, 0o600).map_err(error)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(error)?;
        file.set_len(0).map_err(error)?;
        let mut pins = Pins { file: Some(file), ..Pins::default() };
        pins.set_own(own).map_err(error)?;
        Ok(pins)
    }

    /// The file of an earlier daemon; absent where it gave no thread any CPUs, or kept no file.
    pub fn read(path: &Path) -> Result<Option<Pins>> {
        let error = |e| Error::new("read", path.display(), e);
        let bytes = match OpenOptions::new().read(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.and_then(|mut file| {
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut file, &mut bytes).map(|_| bytes)
            }),
        };
        let bytes = bytes.map_err(error)?;
        let (bytes, own) = bytes.split_at(bytes.len().min(OWN_AT as usize));
        let (own, members) = own.split_at(own.len().min(OWN_LENGTH * OWN_MAX));
        let (members, strays) = members.split_at(members.len().min(MEMBERS_LENGTH));
        let (sets, user_pinned) = bytes.split_at(bytes.len().min(USER_PINNED_AT as usize));
        let own = own.chunks_exact(OWN_LENGTH).filter_map(decode_own).collect();
        let sets = sets.chunks_exact(SET_LENGTH).map(decode).filter(|set| !set.is_empty());
        let user_pinned =
            user_pinned.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let (sets, user_pinned) = (sets.collect(), user_pinned.filter(|&tid| tid > 0).collect());
        let members = members.split_at_checked(8).map(|(at, tids)| {
            let tids =
                tids.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
            let at = u64::from_ne_bytes(at.try_into().unwrap());
            (at, tids.take_while(|&tid| tid > 0).collect())
        });
        let members = members.unwrap_or_default();
        let strays = strays.chunks_exact(STRAY_LENGTH).map(decode_stray);
        let strays = strays.take_while(|&(tid, _)| tid > 0).collect();
        Ok(Some(Pins { sets, user_pinned, own, members, strays, ..Pins::default() }))
    }

    /// Threads are going to be restricted to these CPUs.
    pub fn give(&mut self, cpus: &CpuSet) -> io::Result<()> {
        if self.sets.contains(cpus) {
            return Ok(());
        }
        let at = self.next;
        match self.sets.get_mut(at) {
            Some(oldest) => oldest.clone_from(cpus),
            None => self.sets.push(cpus.clone()),
        }
        self.next = (at + 1) % SETS_MAX;
        self.write(&encode(cpus), (at * SET_LENGTH) as u64)
    }

    /// These threads, and no others, have chosen their CPUs themselves.
    pub fn set_user_pinned(&mut self, tids: impl Iterator<Item = u32>) -> io::Result<()> {
        let mut user_pinned: Vec<u32> = tids.take(THREADS_MAX).collect();
        if user_pinned == self.user_pinned {
            return Ok(());
        }
        std::mem::swap(&mut self.user_pinned, &mut user_pinned);
        let words = self.user_pinned.iter().copied().chain(std::iter::repeat(0));
        let length = self.user_pinned.len().max(user_pinned.len());
        let bytes: Vec<u8> = words.take(length).flat_map(u32::to_ne_bytes).collect();
        self.write(&bytes, USER_PINNED_AT)
    }

    /// Whether a thread has chosen its CPUs itself.
    pub fn is_user_pinned(&self, tid: u32) -> bool {
        self.user_pinned.contains(&tid)
    }

    /// These threads have chosen their CPUs, too.
    pub fn add_user_pinned(&mut self, tids: Vec<u32>) -> io::Result<()> {
        let all: Vec<u32> = self.user_pinned.iter().copied().chain(tids).collect();
        self.set_user_pinned(all.into_iter())
    }

    /// The owners of these threads want these attributes; those of others want what the job's first
    /// thread had, or the thread that started them. Of too many, those with the lowest numbers are
    /// on file, and it is an error.
    pub fn set_own(&mut self, own: BTreeMap<u32, Attributes>) -> io::Result<()> {
        if own == self.own {
            return Ok(());
        }
        let length = own.len().max(self.own.len());
        self.own = own;
        let words = self.own.iter().map(encode_own).chain(std::iter::repeat([0; OWN_LENGTH]));
        let bytes: Vec<u8> = words.take(length.min(OWN_MAX)).flatten().collect();
        self.write(&bytes, OWN_AT)?;
        let too_many = || {
            let all = self.own.len();
            io::Error::other(format!("{all} threads want attributes of their own, not {OWN_MAX}"))
        };
        if self.own.len() > OWN_MAX { Err(too_many()) } else { Ok(()) }
    }

    pub fn all_own(&self) -> &BTreeMap<u32, Attributes> {
        &self.own
    }

    /// Those of a thread that has its own.
    pub fn own(&self, tid: u32) -> Option<Attributes> {
        self.own.get(&tid).copied()
    }

    /// The job has these threads at a moment, in ticks since boot.
    pub fn set_members(
        &mut self,
        at_ticks: u64,
        tids: impl Iterator<Item = u32> + Clone,
    ) -> io::Result<()> {
        let tids = tids.take(MEMBERS_MAX);
        if self.members.1.iter().copied().eq(tids.clone()) {
            return Ok(());
        }
        self.members = (at_ticks, tids.collect());
        let tids = self.members.1.iter().copied().chain([0]).flat_map(u32::to_ne_bytes);
        let bytes: Vec<u8> = at_ticks.to_ne_bytes().into_iter().chain(tids).collect();
        self.write(&bytes, MEMBERS_AT)
    }

    /// These threads, and no others, left the job by themselves; each was a member at a moment, in
    /// ticks since boot.
    pub fn set_strays(&mut self, strays: &BTreeMap<u32, u64>) -> io::Result<()> {
        if *strays == self.strays {
            return Ok(());
        }
        self.strays.clone_from(strays);
        let strays = self.strays.iter().take(STRAYS_MAX).map(|(&tid, &at)| (tid, at));
        let bytes: Vec<u8> = strays.chain([(0, 0)]).flat_map(encode_stray).collect();
        self.write(&bytes, STRAYS_AT)
    }

    /// The threads that the job had last and those that left it by themselves, each with when it
    /// was a member.
    pub fn members(&self) -> impl Iterator<Item = (u32, u64)> {
        let (at, members) = &self.members;
        let members = members.iter().filter(|tid| !self.strays.contains_key(tid));
        let strays = self.strays.iter().map(|(&tid, &at)| (tid, at));
        members.map(|&tid| (tid, *at)).chain(strays)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(bytes, at))
    }

    /// Whether gangd gave these CPUs to threads of the job lately.
    pub fn were_given(&self, cpus: &CpuSet) -> bool {
        self.sets.contains(cpus)
    }

    /// Whether a thread has its CPUs from gangd, as far as one can know.
    pub fn has_pinned(&self, tid: u32, cpus: &CpuSet) -> bool {
        self.were_given(cpus) && !self.user_pinned.contains(&tid)
    }
}

/// Gives a thread back the CPUs that it could have without gangd, where it has those of a slot and
/// did not choose them; true where it was restricted.
pub fn unpin(tid: u32, everywhere: &CpuSet, pins: Option<&Pins>) -> bool {
    let Ok(now) = thread::affinity(tid) else { return false };
    now != *everywhere
        && pins.is_some_and(|pins| pins.has_pinned(tid, &now))
        && thread::set_affinity(tid, everywhere).is_ok()
        // CPUs of it may be offline: then it has got what there is of them.
        && thread::affinity(tid).is_ok_and(|after| after != now)
}

fn encode_own((tid, own): (&u32, &Attributes)) -> [u8; OWN_LENGTH] {
    let [a, b, c, d] = tid.to_ne_bytes();
    [
        a,
        b,
        c,
        d,
        own.policy.number() as u8,
        own.reset_on_fork.into(),
        own.nice as u8,
        own.priority as u8,
    ]
}

fn decode_own(bytes: &[u8]) -> Option<(u32, Attributes)> {
    let &[a, b, c, d, policy, reset, nice, priority] = bytes else { return None };
    let own = Attributes {
        policy: SchedPolicy::from_number(policy.into())?,
        nice: (nice as i8).into(),
        priority: priority.into(),
        reset_on_fork: reset != 0,
    };
    Some((u32::from_ne_bytes([a, b, c, d]), own)).filter(|(tid, _)| *tid > 0)
}

fn encode_stray((tid, at): (u32, u64)) -> [u8; STRAY_LENGTH] {
    let mut bytes = [0; STRAY_LENGTH];
    bytes[..8].copy_from_slice(&at.to_ne_bytes());
    bytes[8..].copy_from_slice(&tid.to_ne_bytes());
    bytes
}

fn decode_stray(bytes: &[u8]) -> (u32, u64) {
    let (at, tid) = bytes.split_at(8);
    let at = u64::from_ne_bytes(at.try_into().unwrap());
    (u32::from_ne_bytes(tid.try_into().unwrap()), at)
}

fn encode(cpus: &CpuSet) -> [u8; SET_LENGTH] {
    let mut bytes = [0; SET_LENGTH];
    for cpu in cpus.iter().take_while(|&cpu| cpu < CPUS_MAX).map(|cpu| cpu as usize) {
        bytes[cpu / 8] |= 1 << (cpu % 8);
    }
    bytes
}

fn decode(bytes: &[u8]) -> CpuSet {
    let is_in = |&cpu: &u32| bytes[cpu as usize / 8] & (1 << (cpu % 8)) != 0;
    (0..CPUS_MAX).take(bytes.len() * 8).filter(is_in).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn pins_and_user_pinned_threads_are_on_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.pins");
        assert!(Pins::read(&path).unwrap().is_none());
        let mut pins = Pins::create(&path).unwrap();
        assert!(!Pins::read(&path).unwrap().unwrap().were_given(&set(&[])));
        for cpus in [set(&[0]), set(&[3, 1023]), set(&[0])] {
            pins.give(&cpus).unwrap();
        }
        pins.set_user_pinned([7, 8, 9].into_iter()).unwrap();
        pins.set_user_pinned([8].into_iter()).unwrap();
        let found = Pins::read(&path).unwrap().unwrap();
        assert_eq!(found.sets, [set(&[0]), set(&[3, 1023])]);
        assert_eq!(found.user_pinned, [8], "who ended has chosen nothing");
        assert_eq!(found.own(7), None);
        let own = [(3, Attributes::idle(-20)), (7, Attributes::batch(19))];
        pins.set_own(own.into()).unwrap();
        pins.set_own(own[1..].iter().copied().collect()).unwrap();
        let found = Pins::read(&path).unwrap().unwrap();
        assert_eq!((found.own(3), found.own(7)), (None, Some(own[1].1)));
        assert_eq!(found.user_pinned, [8]);
        assert!(found.has_pinned(7, &set(&[0])) && !found.has_pinned(8, &set(&[0])));
        assert!(!found.has_pinned(7, &set(&[1])));
        for tids in [&[3, 4, 5][..], &[4]] {
            pins.set_members(70 + u64::from(tids[0]), tids.iter().copied()).unwrap();
        }
        let found = Pins::read(&path).unwrap().unwrap();
        assert_eq!(found.members().collect::<Vec<_>>(), [(4, 74)]);
        assert_eq!(found.own(7), Some(own[1].1));
        // Each stray was there at a moment of its own, and is no member any more.
        for strays in [&[(3, 73), (4, 70), (5, 71)][..], &[(4, 70)]] {
            pins.set_strays(&strays.iter().copied().collect()).unwrap();
            let found = Pins::read(&path).unwrap().unwrap();
            assert_eq!(found.members().collect::<Vec<_>>(), strays);
        }
        pins.set_members(90, 1..).unwrap();
        pins.set_strays(&BTreeMap::new()).unwrap();
        let found = Pins::read(&path).unwrap().unwrap();
        assert!(found.members().eq((1..=MEMBERS_MAX as u32).map(|tid| (tid, 90))));
        drop(Pins::create(&path).unwrap());
        assert_eq!(Pins::read(&path).unwrap().unwrap().sets, []);
    }

    #[test]
    fn attributes_of_too_many_threads_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.pins");
        let mut pins = Pins::create(&path).unwrap();
        pins.set_members(70, [7].into_iter()).unwrap();
        let of = |count: usize| (1..=count as u32).map(|tid| (tid, Attributes::batch(19)));
        pins.set_own(of(OWN_MAX).collect()).unwrap();
        let error = pins.set_own(of(OWN_MAX + 1).collect()).unwrap_err();
        assert!(error.to_string().starts_with("8193 threads "), "{error}");
        let found = Pins::read(&path).unwrap().unwrap();
        assert!(found.own.into_iter().eq(of(OWN_MAX)), "as many as fit");
        assert_eq!(found.members, (70, vec![7]), "nothing else is overwritten");
        pins.set_own(of(1).collect()).unwrap();
        assert!(Pins::read(&path).unwrap().unwrap().own.into_iter().eq(of(1)));
    }

    #[test]
    fn thread_is_unpinned_once_even_with_cpus_offline() {
        let online = thread::affinity(0).unwrap();
        let slot: CpuSet = online.iter().take(1).collect();
        let offline = CPUS_MAX - 1;
        let everywhere: CpuSet = online.iter().chain([offline]).collect();
        let mut pins = Pins::default();
        for cpus in [&online, &slot] {
            pins.give(cpus).unwrap();
        }
        // This thread is the only one that it is done to.
        assert!(!unpin(0, &everywhere, Some(&pins)), "it has what there is of them");
        assert!(!unpin(0, &everywhere, None));
        if slot != online {
            thread::set_affinity(0, &slot).unwrap();
            assert!(unpin(0, &everywhere, Some(&pins)) && !unpin(0, &everywhere, Some(&pins)));
            assert_eq!(thread::affinity(0).unwrap(), online);
        }
    }

    #[test]
    fn pins_are_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, dear) = (directory.path().join("1.pins"), directory.path().join("dear"));
        std::fs::write(&dear, "dear").unwrap();
        std::os::unix::fs::symlink(&dear, &path).unwrap();
        Pins::create(&path).unwrap().give(&set(&[0])).unwrap();
        assert_eq!(std::fs::read_to_string(&dear).unwrap(), "dear");
        assert!(Pins::read(&path).unwrap().unwrap().were_given(&set(&[0])));
    }

    #[test]
    fn the_last_sets_are_remembered_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.pins");
        let mut pins = Pins::create(&path).unwrap();
        for cpu in 0..SETS_MAX as u32 + 3 {
            pins.give(&set(&[cpu])).unwrap();
        }
        for pins in [&pins, &Pins::read(&path).unwrap().unwrap()] {
            assert_eq!(pins.sets.len(), SETS_MAX);
            assert!(!pins.were_given(&set(&[2])) && pins.were_given(&set(&[3])));
            assert!(pins.were_given(&set(&[SETS_MAX as u32 + 2])));
        }
    }
}
