//! The parts of spanning jobs that this host has, kept as the registry wants them.
//!
//! Problem: what is done to a part may take long, and the link to etcd is not to wait for it.
//!
//! Approach: a thread of its own compares the parts that are here with those that the registry
//! wants, whenever these change, and at the moments from which wanted states hold. It does to a
//! part what a client would do to a job. A request that fails is tried again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, Weak},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gang_cluster::record::{Users, Wanted};
use gang_conductor::Part;
use gang_linux::clock;
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

/// A job that is killed has so long to end by itself.
const TERM_FOR: Duration = Duration::from_secs(5);

/// A part that is here.
struct Here {
    part: Part,
    has_processes: bool,
    is_suspended: bool,
    /// Why it can have no slots in its entries: its threads are bound elsewhere, say.
    unplaceable: Option<String>,
}

/// The thread's own knowledge.
struct Keeper {
    daemon: Arc<Daemon>,
    shared: Arc<Shared>,
    /// When jobs began to end, by their nonces.
    ending: BTreeMap<String, Instant>,
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
    let (mut ending, mut uids) = (BTreeMap::new(), BTreeMap::new());
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
        let mut keeper = Keeper { daemon, shared: shared.clone(), ending, uids };
        next_in = keeper.follow(wanted);
        let is_due = looked.is_none_or(|at| at.elapsed() >= LOOK);
        if is_due && shared.state().may_lapse(Instant::now()) {
            looked = Some(Instant::now());
            // The link reads what others say, and notes which jobs have begun.
            keeper.daemon.cluster.get().map(super::Cluster::look);
        }
        Keeper { ending, uids, .. } = keeper;
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
            let due_in_ns = of.from_ns.saturating_sub(clock::utc_ns());
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
        // Jobs that are over everywhere: processes that are left go on without gangd, unless they
        // began to end before.
        let mut ending: BTreeSet<String> = wanted.iter().map(|of| of.part.nonce.clone()).collect();
        for (id, gone) in here {
            let is_held = self.shared.state().is_held(&gone.part.nonce, Instant::now());
            if !gone.has_processes {
                if !is_held {
                    self.daemon.end_unstarted(id);
                }
            } else if self.ending.contains_key(&gone.part.nonce) {
                if let Err(error) = self.kill(id, &gone.part, true) {
                    tracing::warn!(job = %id, why = reason(error), "a part is not killed");
                }
                ending.insert(gone.part.nonce);
            }
        }
        self.ending.retain(|nonce, _| ending.contains(nonce));
        next_in
    }

    /// The parts, and the CPUs that are online.
    fn here(&self) -> Result<(BTreeMap<JobId, Here>, CpuSet), Error> {
        Ok(self.daemon.conductor.ask(|state| {
            let here = |job: &gang_conductor::Job| {
                let part = Part {
                    job: job.id,
                    nonce: job.nonce.clone()?,
                    name: job.name.clone(),
                    owner_uid: job.owner_uid,
                    class: job.spec.class,
                    weight: job.spec.weight,
                    cpus: job.spec.cpus,
                };
                let (has_processes, is_suspended) = (job.home.is_some(), job.suspended);
                let unplaceable = job.unplaceable.as_ref();
                let unplaceable = unplaceable.filter(|why| **why != Unplaceable::NoEntries);
                let unplaceable = unplaceable.map(ToString::to_string);
                Some((job.id, Here { part, has_processes, is_suspended, unplaceable }))
            };
            let online = state.core.schedule().topology().set().clone();
            (state.core.jobs().values().filter_map(here).collect(), online)
        })?)
    }

    /// Brings one part where it is wanted.
    fn bring(&mut self, of: &WantedPart, here: Option<Here>, is_due: bool) -> Result<(), Error> {
        let (id, mut part) = (of.part.job, of.part.clone());
        let here = match here {
            // A registry that was restored gives numbers again.
            Some(other) if other.part.nonce != part.nonce => {
                self.daemon.end(id);
                self.shared.state().ranks.retain(|other| *other != id);
                None
            }
            here => here,
        };
        let Some(here) = here else {
            if of.wanted != Wanted::Kill {
                part.owner_uid = self.uid(of)?;
                self.daemon.conductor.ask(move |state| state.core.enter_part(now(), part))??;
            }
            return Ok(());
        };
        if (here.part.class, here.part.weight) != (part.class, part.weight) {
            let (class, weight) = (part.class, part.weight);
            self.daemon.change_on_file(move |state| {
                let change = |spec: &mut gang_schedule::Spec, _: &mut _| {
                    (spec.class, spec.weight) = (class, weight);
                };
                Ok(state.core.change(id, change)?)
            })?;
        }
        match of.wanted {
            Wanted::Suspend if is_due && !here.is_suspended => self.suspend(id, true),
            Wanted::Run | Wanted::Release if here.is_suspended => self.suspend(id, false),
            Wanted::Kill if is_due => self.kill(id, &here.part, here.has_processes),
            Wanted::Run | Wanted::Release | Wanted::Suspend | Wanted::Kill => Ok(()),
        }
    }

    fn suspend(&self, id: JobId, suspended: bool) -> Result<(), Error> {
        self.daemon.suspend(id, suspended, false)
    }

    /// Tells the processes of a job to end, and ends those that do not.
    fn kill(&mut self, id: JobId, part: &Part, has_processes: bool) -> Result<(), Error> {
        if !has_processes {
            self.daemon.end_unstarted(id);
            return Ok(());
        }
        let since = *self.ending.entry(part.nonce.clone()).or_insert_with(Instant::now);
        let signal = if since.elapsed() < TERM_FOR { Signal::TERM } else { Signal::KILL };
        let power = self.daemon.power_of(part.owner_uid);
        // Programs that stand still do not end.
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
