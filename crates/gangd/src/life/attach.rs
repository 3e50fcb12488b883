//! Processes that come into a job: the first one, further ones, and those that are adopted.
//!
//! A process is named by its number, which may be another's by the time it is used. So a handle is
//! taken first. The process that is checked and moved then is the one that the handle names. Every
//! step that has to be undone is on file before it is done.

use std::{collections::BTreeMap, sync::Arc};

use gang_conductor::Home;
use gang_engine::{bound::ProcessHandle, pins::Pins, release, singles, thread};
use gang_linux::{cgroup::Group, error::unless_gone, namespaces, process};
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::{
    Attributes, Controls, Members, Seen, before_gangd, is_raised,
    record::{Placement, Single},
    released,
};

use super::{founding::Founding, peer::Peer, single_threads::of_process};
use crate::{daemon::Daemon, error::Error};

/// The attributes and CPUs that the first thread of a job had.
type First = (Attributes, CpuSet);

/// A cgroup, with its processes and a handle on one of them.
pub struct Claimed {
    group: Group,
    pub processes: Vec<u32>,
    first: Arc<ProcessHandle>,
}

impl Daemon {
    /// Takes a process into a job, as its first one or as a further one.
    pub fn add_process(&self, peer: Peer, job: JobId, pid: u32) -> Result<(), Error> {
        let owner_uid = self.permit(peer, job, "add a process")?;
        let process = self.claim(peer, owner_uid, pid)?;
        // Read after the handle was taken: where the number is another's by now, the handle names
        // nobody.
        let stat = process::stat(&self.roots.proc, pid);
        let stat = stat.map_err(|error| Error::of_process(pid, error))?;
        peer.permit_process(pid, stat.parent, "add a process", &self.roots)?;
        let _lock = self.jobs.locks.process(pid);
        if let Some(other) = self.job_of(pid)? {
            return match other == job {
                true => Ok(()),
                false => Err(Error::not_permitted(
                    format!("add process {pid} to job {job}"),
                    format!("it is in job {other}; a process is in one job at a time"),
                )),
            };
        }
        let found = self.home_for(job, pid)?;
        // Of two processes that find a job empty, the second one is a further one.
        let empty = found.1.is_none().then(|| self.jobs.locks.empty_job(job));
        let (policy, home) = if empty.is_some() { self.home_for(job, pid)? } else { found };
        match home {
            Some((Placement::Tree { .. }, first)) => self.attach_to_tree(job, &first, process),
            Some((Placement::Threads { .. }, _)) => Err(Error::mixed(job, true)),
            Some((placement, first)) => self.attach_further(job, &placement, &first, &process),
            None => {
                let placement = self.jobs.cgroups.placement_for(job, policy, &process)?;
                self.attach_first(job, placement, &process)
            }
        }
    }

    /// The policy of a job, and where the job lives if it has processes: for a process that no job
    /// has a thread of.
    fn home_for(
        &self,
        job: JobId,
        pid: u32,
    ) -> Result<(Policy, Option<(Placement, First)>), Error> {
        self.conductor.ask(move |state| {
            let single = of_process(state, pid);
            let job = state.job(job)?;
            if let Some((other, tid)) = single {
                let reason =
                    format!("its thread {tid} is in job {other} by itself; take that out first");
                let operation = format!("add process {pid} to job {}", job.id);
                return Err(Error::not_permitted(operation, reason));
            }
            let home = job.home.as_ref();
            let home = home.map(|home| {
                let first = (home.normal, home.members.everywhere.clone());
                (home.placement.clone(), first)
            });
            Ok::<_, Error>((job.spec.policy, home))
        })?
    }

    /// A further process moves in. Its attributes and groups are noted where the first process had
    /// others.
    fn attach_further(
        &self,
        job: JobId,
        placement: &Placement,
        first: &First,
        process: &Arc<ProcessHandle>,
    ) -> Result<(), Error> {
        if let Some(limit) = self.jobs.cgroups.left_by(placement, process.pid)? {
            let reason = format!("it would leave {limit}, and [cgroups] leave forbids that");
            let operation = format!("add process {} to job {job}", process.pid);
            return Err(Error::not_permitted(operation, reason));
        }
        if let Some(joined) = self.jobs.cgroups.joined(placement, process.pid)? {
            let members = self.processes(job)?.into_iter().collect();
            self.change_on_file(move |state| Ok(state.core.expect(job, joined, &members)?))?;
        }
        let (own, before) = (self.own(first, process.pid), self.unlike(first, process.pid));
        let own_cpus = before.iter().filter(|seen| seen.cpus != first.1).map(|seen| seen.tid);
        let own_cpus: Vec<u32> = own_cpus.collect();
        self.conductor.ask(move |state| {
            // Numbers of threads that have ended may be those of this process.
            state.read(job);
            // On file before a slot may give them others.
            state.expect_user_pinned(job, own_cpus);
            state.expect_own(job, own);
        })?;
        let moved = self.jobs.cgroups.move_in(placement, process).map_err(Error::from);
        let came = moved.and_then(|()| self.remember(job, before));
        self.unless_came(job, process, came)
    }

    /// Takes a further process that could not come out of the job again.
    fn unless_came(
        &self,
        job: JobId,
        process: &Arc<ProcessHandle>,
        came: Result<(), Error>,
    ) -> Result<(), Error> {
        came.inspect_err(|_| {
            if let Err(error) = self.take_out(job, process) {
                tracing::debug!(%job, ?error, "a process that could not come is not out of its job");
            }
        })
    }

    fn attach_to_tree(
        &self,
        job: JobId,
        first: &First,
        process: Arc<ProcessHandle>,
    ) -> Result<(), Error> {
        let started = process::stat(&self.roots.proc, process.pid)?.start_ticks;
        let (own, before) = (self.own(first, process.pid), self.unlike(first, process.pid));
        self.conductor.ask(move |state| {
            state.read(job);
            state.expect_own(job, own);
        })?;
        let follower = process.clone();
        let came = self
            .change_on_file(move |state| state.follow_in_tree(job, follower, started))
            .and_then(|()| self.remember(job, before));
        self.unless_came(job, &process, came)
    }

    /// The attributes that owners want of the threads of a process.
    fn own(&self, (normal, _): &First, pid: u32) -> BTreeMap<u32, Attributes> {
        let tids = process::threads(&self.roots.proc, pid).unwrap_or_default();
        let own = |tid| Some((tid, before_gangd(thread::attributes(tid).ok()?, *normal, false)));
        tids.into_iter().filter_map(own).collect()
    }

    /// The threads of a process that have other attributes or CPUs than the job's first thread had.
    fn unlike(&self, first: &First, pid: u32) -> Vec<Seen> {
        let (normal, everywhere) = first;
        let tids = process::threads(&self.roots.proc, pid).unwrap_or_default();
        let seen = |tid| {
            let (now, cpus) =
                (thread::attributes(tid).ok()?, thread::cpus_allowed(&self.roots.proc, tid).ok()?);
            let original = Some(before_gangd(now, *normal, false));
            Some(Seen { tid, now, cpus, were_given: false, original, started_by: None })
        };
        let all = tids.into_iter().filter_map(seen);
        all.filter(|it| it.original != Some(*normal) || it.cpus != *everywhere).collect()
    }

    fn remember(&self, job: JobId, before: Vec<Seen>) -> Result<(), Error> {
        self.conductor.ask(move |state| state.members_came(job, &before))?
    }

    /// The first process of a job moves in, and the schedule learns of it. The caller holds the
    /// lock of the empty job.
    fn attach_first(
        &self,
        job: JobId,
        mut placement: Placement,
        process: &Arc<ProcessHandle>,
    ) -> Result<(), Error> {
        let gone = |e: std::io::Error| Error::Failed {
            operation: format!("read the scheduling attributes of process {}", process.pid),
            reason: e.to_string(),
        };
        let mut normal = thread::attributes(process.pid).map_err(gone)?;
        // Nobody's own choice: an earlier daemon left it so.
        if is_raised(&normal) {
            normal = Attributes::other(normal.nice);
        }
        let everywhere = thread::cpus_allowed(&self.roots.proc, process.pid).map_err(gone)?;
        let affinity: Vec<u32> = everywhere.iter().collect();
        let started = process::stat(&self.roots.proc, process.pid)?.start_ticks;
        let mem_bytes = self
            .conductor
            .ask(move |state| state.job(job).map(|job| job.resources.mem_bytes))??;
        let at = self.jobs.cgroups.confinement(job, &placement, process.pid, mem_bytes)?;
        placement.set_confinement(at.clone());
        let first = (process.pid, started);
        let own = self.own(&(normal, CpuSet::new()), process.pid);
        let nobody = Members::new(Controls::default(), normal, everywhere);
        let mut home = Home::new(placement.clone(), nobody, normal, affinity.clone());
        home.coming = Some(first);
        let record =
            self.conductor.ask(move |state| state.job(job).map(|job| job.record_at(&home)))??;
        let mut founding = Founding::new(self, record, Some(process.clone()));
        // On file before anything is made, or done to the process: guardian and next daemon must
        // find it, to undo it.
        if self.backend.can_fill() {
            let path = self.jobs.files.store.pins(job.0);
            let error = |e| gang_linux::Error::new("write", path.display(), e);
            Pins::create(&path)?.set_own(own.clone()).map_err(error)?;
        }
        founding.file()?;
        self.jobs.cgroups.make(&placement)?;
        let is_confined = match at.map(|at| (self.jobs.cgroups.limit(&at, mem_bytes), at)) {
            None => false,
            Some((Ok(()), _)) => true,
            Some((Err(error), at)) => {
                let source = &error.source;
                tracing::warn!(%job, %error, %source, "the memory of a job is not limited");
                release::unconfine(&at);
                placement.set_confinement(None);
                founding.change(|record| record.placement = placement.clone())?;
                false
            }
        };
        let since = singles::read(&self.roots.proc, process.pid, process.pid).ok();
        // The process has its first slot while it moves: the kernel may take longer than a slot.
        let (mut roster, members) = self.members(job, &placement, normal, &affinity)?;
        roster.expect_own(own);
        let home = Home::new(placement.clone(), members, normal, affinity);
        self.conductor.ask(move |state| state.attach(job, home, roster, first))??;
        self.jobs.cgroups.move_in(&placement, process)?;
        self.release_strays(job, since, &placement);
        self.change_on_file(move |state| state.arrive(job))?;
        self.jobs.watch.add_job(job, &placement)?;
        self.deputize(job, &placement);
        if is_confined {
            let at = placement.confinement().cloned();
            self.change_on_file(move |state| Ok(state.core.confine(job, at, mem_bytes > 0)?))?;
        }
        founding.complete();
        // The job may have ended before it was watched.
        if self.jobs.watch.is_over(job) {
            self.end(job);
        }
        Ok(())
    }

    /// Releases threads outside the job that a process started on its way in. They may have what
    /// the process had in the job, and get back what they would have had. `first` is the process's
    /// first thread, as it was before.
    fn release_strays(&self, job: JobId, first: Option<Single>, placement: &Placement) {
        let (Some(mut first), Placement::Cgroup { group, .. }) = (first, placement) else { return };
        let pins = Pins::read(&self.jobs.files.store.pins(job.0)).ok().flatten();
        let of_job = self.conductor.ask(move |state| {
            let members = &state.job(job).ok()?.home.as_ref()?.members;
            Some((members.everywhere.clone(), members.default_of(first.pid), state.others_of(job)))
        });
        let Ok(Some((everywhere, default, others))) = of_job else { return };
        // Its owner may have given it something else meanwhile.
        first.normal = default.map_or(first.normal, Into::into);
        let inside = unless_gone(Group::at(group).threads()).unwrap_or_default();
        let started = singles::inheritors(&self.roots.proc, &[first], &others);
        for (tid, first) in started.into_iter().filter(|(tid, _)| !inside.contains(tid)) {
            singles::release_inheritor(tid, &first, &everywhere, pins.as_ref());
            // In a group that is idle as a whole, out of its slot.
            let had = thread::attributes(tid).ok();
            let had = had.and_then(|now| released(&now, &first.normal.into()));
            had.into_iter().for_each(|had| drop(thread::set_attributes(tid, &had)));
        }
    }

    /// A handle on a process that the peer may put into a job of that owner. The handle is taken
    /// first: so the process that is checked is the one that the handle names.
    pub fn claim(&self, peer: Peer, owner_uid: u32, pid: u32) -> Result<Arc<ProcessHandle>, Error> {
        self.claim_as(peer, owner_uid, pid, || format!("take process {pid} into a job"))
    }

    /// The same, for what the operation says.
    pub fn claim_as(
        &self,
        peer: Peer,
        owner_uid: u32,
        pid: u32,
        operation: impl Fn() -> String,
    ) -> Result<Arc<ProcessHandle>, Error> {
        let process = ProcessHandle::open(pid).map_err(|error| Error::of_process(pid, error))?;
        self.permit_owner(peer, owner_uid, pid, &operation)?;
        let guardian = self.instance.guardian_pid().unwrap_or(0);
        let proc_root = &self.roots.proc;
        let is_own = [std::process::id(), guardian].contains(&pid);
        // In a container process 1 is a program, and `gang run` may be that one.
        let is_init = || pid == 1 && namespaces::is_in_first_pid_namespace(proc_root);
        let is_kernel = || process::stat(proc_root, pid).is_ok_and(|stat| stat.is_kernel_thread);
        if is_own || is_init() || is_kernel() {
            let reason = "it belongs to the system, which runs the gangs";
            return Err(Error::not_permitted(operation(), reason));
        }
        Ok(process)
    }

    /// Whether the peer may put a process, or a thread by its own number, into a job of that owner.
    pub fn permit_owner(
        &self,
        peer: Peer,
        owner_uid: u32,
        pid: u32,
        operation: impl Fn() -> String,
    ) -> Result<(), Error> {
        let owner = process::owner(&self.roots.proc, pid);
        let owner = owner.map_err(|error| Error::of_process(pid, error))?;
        let (real, effective) = (owner.real, owner.effective);
        // A program that acts as another user at the moment may be signalled, and not put into
        // jobs.
        if !peer.is_administrator() && (real != peer.uid || effective != peer.uid) {
            let reason = format!("it belongs to user {effective}, not to user {}", peer.uid);
            return Err(Error::not_permitted(operation(), reason));
        }
        // Root gives nobody power over another's processes either.
        if owner.is_foreign_to(owner_uid) {
            let reason = format!("it belongs to user {real}, the job to user {owner_uid}");
            return Err(Error::not_permitted(operation(), reason));
        }
        Ok(())
    }

    /// Makes a job of a process and its descendants; returns how many there were.
    pub fn adopt_tree(&self, peer: Peer, job: JobId, pid: u32) -> Result<usize, Error> {
        let owner_uid = self.permit(peer, job, "adopt processes")?;
        let mut adopted = Vec::new();
        // Children may be started while their parents are moved; those of moved ones follow.
        for _ in 0..100 {
            let all = process::descendants(&self.roots.proc, pid)?;
            let new: Vec<u32> = all.into_iter().filter(|pid| !adopted.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            for &member in &new {
                match self.claim(peer, owner_uid, member) {
                    Ok(_) => self.add_process(peer, job, member)?,
                    // A descendant may end meanwhile; the process that was named may not.
                    Err(Error::NoSuchProcess(_)) if member != pid => {}
                    Err(error) => return Err(error),
                }
            }
            adopted.extend(new);
        }
        Ok(adopted.len())
    }

    /// A cgroup whose processes the peer may put into a job of that owner, by the path that the
    /// peer gave.
    pub fn claim_group(&self, peer: Peer, owner_uid: u32, path: &str) -> Result<Claimed, Error> {
        let no_such = || Error::NoSuchCgroup(path.to_owned());
        let root = self.means.groups.as_ref().ok_or_else(|| Error::Failed {
            operation: "adopt a cgroup".into(),
            reason: "this daemon cannot use cgroups; gang status says why".into(),
        })?;
        let group = Group::named(root, path).map_err(|error| match error.source.kind() {
            std::io::ErrorKind::InvalidInput => {
                Error::invalid("cgroup", path, "a path below the root of the hierarchy")
            }
            _ => no_such(),
        })?;
        let keeper = group.owner_uid().map_err(|_| no_such())?;
        if !peer.may_act_for(keeper) {
            let reason = format!("its directory belongs to user {keeper}");
            return Err(Error::not_permitted(format!("adopt cgroup {path}"), reason));
        }
        let below =
            group.children()?.into_iter().filter(|child| child.is_populated().unwrap_or(false));
        if let Some(child) = below.into_iter().next() {
            let accepted = format!(
                "a cgroup without populated ones below it, such as {}",
                child.path().display()
            );
            return Err(Error::invalid("cgroup", path, accepted));
        }
        let processes = group.processes()?;
        let mut first = None;
        for &pid in &processes {
            match self.claim(peer, owner_uid, pid) {
                Ok(process) => first = first.or(Some(process)),
                Err(Error::NoSuchProcess(_)) => {}
                Err(error) => return Err(error),
            }
            let single = self.conductor.ask(move |state| of_process(state, pid))?;
            if let Some(other) = self.job_of(pid)?.or(single.map(|(other, _)| other)) {
                let reason = format!("process {pid} in it is in job {other}");
                return Err(Error::not_permitted(format!("adopt cgroup {path}"), reason));
            }
        }
        let first = first.ok_or_else(no_such)?;
        Ok(Claimed { group, processes, first })
    }

    /// Makes a job of all processes of a cgroup; returns how many there were.
    pub fn adopt_group(&self, peer: Peer, job: JobId, path: &str) -> Result<usize, Error> {
        let owner_uid = self.permit(peer, job, "adopt a cgroup")?;
        let Claimed { group, processes, first } = self.claim_group(peer, owner_uid, path)?;
        let policy =
            self.conductor.ask(move |state| state.job(job).map(|job| job.spec.policy))??;
        let _empty = self.jobs.locks.empty_job(job);
        let placement = self.jobs.cgroups.adopt(job, policy, &group, first.pid)?;
        self.attach_first(job, placement.clone(), &first)?;
        for &pid in processes.iter().filter(|&&pid| pid != first.pid) {
            if let Ok(process) = ProcessHandle::open(pid) {
                unless_gone(self.jobs.cgroups.move_in(&placement, &process))?;
            }
        }
        Ok(processes.len())
    }
}
