//! The parts of spanning jobs that this host has, kept as the registry wants them.
//!
//! Problem: what is done to a part may take long, and the link to etcd is not to wait for it.
//!
//! Approach: a thread of its own compares the parts that are here with those that the registry
//! wants, whenever these change, and at the moments from which wanted states hold. It does what
//! [`gang_cluster::upkeep`] says, as a client would do it to a job. A step that fails is tried
//! again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gang_cluster::{
    record::{Users, Wanted},
    upkeep::{self, Step, ToBe, Upkeep},
};
use gang_conductor::Part;
use gang_schedule::{CpuSet, JobId, Unplaceable};
use rustix::process::Signal;

use super::{Shared, WantedPart};
use crate::{
    conduct::{client_priority::ThreadPriority, state::now},
    daemon::Daemon,
    error::Error,
};

/// A part that is not as it is to be is looked at again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// The time between two looks for processes of a job on other hosts, while it may lapse.
const LOOK: Duration = Duration::from_secs(3);

/// A part that is here.
struct Here {
    owner_uid: u32,
    of: upkeep::Here,
    /// Why it can have no slots in its entries: its threads are bound elsewhere, say.
    unplaceable: Option<String>,
}

/// The thread's own knowledge.
struct Keeper {
    daemon: Arc<Daemon>,
    shared: Arc<Shared>,
    upkeep: Upkeep,
    /// The uids of names.
    uids: BTreeMap<String, (Instant, Option<u32>)>,
}

/// Starts the thread.
pub fn start(daemon: &Arc<Daemon>, shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let (daemon, shared) = (Arc::downgrade(daemon), shared.clone());
    let thread = std::thread::Builder::new().name("parts".into());
    thread.spawn(move || keep(&daemon, &shared))
}

fn keep(daemon: &Weak<Daemon>, shared: &Arc<Shared>) {
    let (mut upkeep, mut uids) = (Upkeep::default(), BTreeMap::new());
    let mut priority = None;
    let mut next_in = AGAIN;
    let mut looked: Option<Instant> = None;
    let mut seen: Option<Arc<[WantedPart]>> = None;
    loop {
        let state = shared.state();
        let is_known = |state: &mut super::State| {
            let is_same = match (&state.wanted, &seen) {
                (Some(now), Some(seen)) => Arc::ptr_eq(now, seen),
                (now, seen) => now.is_none() && seen.is_none(),
            };
            is_same && !state.is_closed
        };
        let waited = shared.changed.wait_timeout_while(state, next_in, is_known);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_closed {
            return;
        }
        seen.clone_from(&state.wanted);
        drop(state);
        let (Some(wanted), Some(daemon)) = (&seen, daemon.upgrade()) else { continue };
        let own = || ThreadPriority::of(&daemon.client_priority.of_its_own(), None);
        priority.get_or_insert_with(own).renew();
        let mut keeper = Keeper { daemon, shared: shared.clone(), upkeep, uids };
        next_in = keeper.follow(wanted);
        let is_due = looked.is_none_or(|at| at.elapsed() >= LOOK);
        if is_due && shared.state().held.may_lapse(now().monotonic_ns) {
            looked = Some(Instant::now());
            // The link reads what others say, and notes which jobs have begun.
            keeper.daemon.cluster.get().map(super::Cluster::look);
        }
        Keeper { upkeep, uids, .. } = keeper;
    }
}

impl Keeper {
    /// Brings the parts of this host where they are wanted; returns when to look again at the
    /// latest.
    fn follow(&mut self, wanted: &[WantedPart]) -> Duration {
        let Ok((mut here, online)) = self.here() else { return AGAIN };
        let known: BTreeSet<JobId> = here.keys().copied().collect();
        let (mut next_in, mut missing) = (AGAIN, BTreeMap::new());
        for of in wanted {
            if self.shared.state().is_closed {
                return AGAIN;
            }
            let id = of.part.job;
            let due_in_ns = of.from_ns.saturating_sub(now().utc_ns);
            if due_in_ns > 0 {
                next_in = next_in.min(Duration::from_nanos(due_in_ns));
            }
            let known = here.remove(&id);
            let unplaceable = known.as_ref().and_then(|here| here.unplaceable.clone());
            let brought = self.bring(of, known, due_in_ns == 0).map_err(reason);
            let offline: CpuSet = of.entries.iter().filter(|&cpu| !online.contains(cpu)).collect();
            let has_all = if offline.is_empty() { Ok(()) } else { Err(missing_cpus(&offline)) };
            let can_be = unplaceable.filter(|_| of.wanted == Wanted::Run).map_or(Ok(()), Err);
            if let Err(why) = brought.and(has_all).and(can_be) {
                if self.shared.state().missing.get(&id) != Some(&why) {
                    tracing::warn!(job = %id, why, "a part of a job is not as the cluster wants it");
                }
                missing.insert(id, why);
            }
        }
        {
            let mut state = self.shared.state();
            state.missing = missing;
            // A part may be here before the registry's word of it is.
            let is_left =
                |id: &JobId| known.contains(id) || wanted.iter().any(|of| of.part.job == *id);
            state.ranks.retain(is_left);
        }
        // Jobs that are over everywhere.
        for (&id, gone) in &here {
            let now_ns = now().monotonic_ns;
            let is_held = self.shared.state().held.is_held(&gone.of.nonce, now_ns);
            let step = self.upkeep.of_gone(&gone.of, is_held, now_ns);
            let done = step.map_or(Ok(()), |step| self.end(id, gone.owner_uid, step));
            if let Err(error) = done {
                tracing::warn!(job = %id, why = reason(error), "a part is not killed");
            }
        }
        let nonces = wanted.iter().map(|of| &of.part.nonce);
        let nonces = nonces.chain(here.values().map(|gone| &gone.of.nonce)).map(String::as_str);
        self.upkeep.retain(&nonces.collect());
        next_in
    }

    /// The parts, and the CPUs that are online.
    fn here(&self) -> Result<(BTreeMap<JobId, Here>, CpuSet), Error> {
        Ok(self.daemon.conductor.ask(|state| {
            let here = |job: &gang_conductor::Job| {
                let of = upkeep::Here {
                    nonce: job.nonce.clone()?,
                    class: job.spec.class,
                    weight: job.spec.weight,
                    has_processes: job.home.is_some(),
                    is_suspended: job.suspended,
                };
                let unplaceable = job.unplaceable.as_ref();
                let unplaceable = unplaceable.filter(|why| **why != Unplaceable::NoEntries);
                let unplaceable = unplaceable.map(ToString::to_string);
                Some((job.id, Here { owner_uid: job.owner_uid, of, unplaceable }))
            };
            let online = state.core.schedule().topology().set().clone();
            (state.core.jobs().values().filter_map(here).collect(), online)
        })?)
    }

    /// Brings one part where it is wanted.
    fn bring(&mut self, of: &WantedPart, here: Option<Here>, is_due: bool) -> Result<(), Error> {
        let Part { nonce, class, weight, .. } = &of.part;
        let (nonce, class, weight) = (nonce.clone(), *class, *weight);
        let to_be = ToBe { nonce, class, weight, wanted: of.wanted, is_due };
        let found = here.as_ref().map(|here| &here.of);
        for step in self.upkeep.steps(&to_be, found, now().monotonic_ns) {
            self.take(of, here.as_ref().map(|here| here.owner_uid), step)?;
        }
        Ok(())
    }

    fn take(&mut self, of: &WantedPart, owner: Option<u32>, step: Step) -> Result<(), Error> {
        let id = of.part.job;
        match step {
            Step::Release => {
                self.daemon.end(id);
                self.shared.state().ranks.retain(|other| *other != id);
            }
            Step::Enter => {
                let part = Part { owner_uid: self.uid(of)?, ..of.part.clone() };
                self.daemon.conductor.ask(move |state| state.core.enter_part(now(), part))??;
            }
            Step::Change => {
                let (class, weight) = (of.part.class, of.part.weight);
                self.daemon.change_on_file(move |state| {
                    let change = |spec: &mut gang_schedule::Spec, _: &mut _| {
                        (spec.class, spec.weight) = (class, weight);
                    };
                    Ok(state.core.change(id, change)?)
                })?;
            }
            Step::Suspend => self.suspend(id, true)?,
            Step::Resume => self.suspend(id, false)?,
            Step::Term | Step::Kill | Step::Remove => {
                self.end(id, owner.unwrap_or(of.part.owner_uid), step)?;
            }
        }
        Ok(())
    }

    fn suspend(&self, id: JobId, suspended: bool) -> Result<(), Error> {
        self.daemon.suspend(id, suspended, false)
    }

    /// Takes a step by which a part ends.
    fn end(&self, id: JobId, owner_uid: u32, step: Step) -> Result<(), Error> {
        let signal = match step {
            Step::Term => Signal::TERM,
            Step::Kill => Signal::KILL,
            _ => {
                self.daemon.end_unstarted(id);
                return Ok(());
            }
        };
        let power = self.daemon.power_of(owner_uid);
        self.suspend(id, false)?;
        self.daemon.each_process(id, |process| {
            if power.over(process, String::new).is_ok() {
                // One that has ended meanwhile needs no signal.
                let _ = process.signal(signal);
            }
        })
    }

    /// The number of a job's owner on this host.
    fn uid(&mut self, of: &WantedPart) -> Result<u32, Error> {
        if of.users == Users::Uid {
            return Ok(of.part.owner_uid);
        }
        let known = self.uids.get(&of.owner).filter(|(at, _)| at.elapsed() < 60 * AGAIN);
        let uid = match known {
            Some((_, uid)) => *uid,
            None => {
                let user = nix::unistd::User::from_name(&of.owner);
                let user = user.map_err(|error| Error::Failed {
                    operation: format!("look up user {:?}", of.owner),
                    reason: error.to_string(),
                })?;
                let uid = user.map(|user| user.uid.as_raw());
                self.uids.insert(of.owner.clone(), (Instant::now(), uid));
                uid
            }
        };
        uid.ok_or_else(|| Error::Failed {
            operation: format!("have a part of job {}", of.part.job),
            reason: format!("there is no user {:?} on this host", of.owner),
        })
    }
}

/// The reason why a part has no slots in some of its entries.
fn missing_cpus(offline: &CpuSet) -> String {
    format!("CPU {offline} of its entries is offline: it has no slots until it is back")
}

/// The reason of an error, for people.
fn reason(error: Error) -> String {
    match error {
        Error::Failed { operation, reason } | Error::NotPermitted { operation, reason } => {
            format!("{operation}: {reason}")
        }
        Error::LimitReached { limit, maximum } => format!("{limit}: {maximum} at most"),
        Error::InvalidValue { parameter, value, accepted } => {
            format!("{parameter} is {value}, and may be {accepted}")
        }
        other => format!("{other:?}"),
    }
}
