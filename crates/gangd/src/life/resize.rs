//! Changes of jobs while they run.
//!
//! Problem: the change that a client asks for has several parts, in the schedule, in the kernel and
//! on file, and any of them may be refused.
//!
//! Approach: the parts that may be refused are asked first, so that a refusal leaves everything as
//! it was. The kernel's part is on file before it is done, and off file after it is undone.

use std::sync::Arc;

use gang_conductor::admission::{Claim, Resources};
use gang_protocol::v1;
use gang_schedule::{Class, JobId, Spec};

use super::{peer::Peer, prover::Prover};
use crate::{conduct::state::State, daemon::Daemon, error::Error};

/// The parts of a running job that are to change, with values that are within bounds; absent parts
/// stay.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub class: Option<Class>,
    pub policy: Option<v1::Policy>,
    pub cpus: Option<u32>,
    pub min_cpus: Option<u32>,
    pub weight: Option<u32>,
    /// 0 asks for nothing.
    pub mem_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

/// The state to which a change that fails goes back.
#[derive(Clone, Debug)]
struct Before {
    spec: Spec,
    policy: v1::Policy,
    resources: Resources,
}

impl Change {
    /// Returns what the job is now. Refused where the class may not be raised, or the job could not
    /// be what it would become.
    fn permitted(&self, state: &State, id: JobId, may_raise: bool) -> Result<Before, Error> {
        let job = state.job(id)?;
        let now = job.spec.class;
        if let Some(class) = self.class.filter(|&class| class > now && !may_raise) {
            let reason = format!("it is in {now} now; only administrators may raise it");
            return Err(Error::not_permitted(format!("put job {id} into {class}"), reason));
        }
        let stays = self.policy == Some(v1::Policy::auto) && job.auto.is_some();
        let policy = self.policy.clone().filter(|_| !stays);
        state.core.changed(id, |spec, _| {
            self.put_terms(spec);
            spec.policy = policy.map_or(spec.policy, Into::into);
        })?;
        let policy = if job.auto.is_some() { v1::Policy::auto } else { job.spec.policy.into() };
        Ok(Before { spec: job.spec.clone(), policy, resources: job.resources })
    }

    /// Nothing but class and weight changes.
    pub fn is_of_class_or_weight(&self) -> bool {
        let has_size = self.cpus.is_some() || self.min_cpus.is_some();
        self.policy.is_none() && !has_size && !self.has_resources()
    }

    fn has_resources(&self) -> bool {
        self.mem_bytes.is_some() || self.disk_bytes.is_some()
    }

    /// Everything but the policy, which takes more than a change of the schedule.
    fn put_terms(&self, spec: &mut Spec) {
        spec.class = self.class.unwrap_or(spec.class);
        spec.cpus = self.cpus.unwrap_or(spec.cpus);
        // A job that asks for fewer CPUs than it needed so far needs fewer.
        spec.min_cpus = self.min_cpus.unwrap_or(spec.min_cpus.min(spec.cpus));
        spec.weight = self.weight.unwrap_or(spec.weight);
    }

    fn resources(&self, now: Resources) -> Resources {
        Resources {
            mem_bytes: self.mem_bytes.unwrap_or(now.mem_bytes),
            disk_bytes: self.disk_bytes.unwrap_or(now.disk_bytes),
        }
    }

    /// The change that undoes this one, but for the policy. It touches the same parts and no
    /// others, which another client may have changed meanwhile.
    fn back(&self, Before { spec, resources, .. }: &Before) -> Change {
        Change {
            class: self.class.map(|_| spec.class),
            policy: None,
            cpus: self.cpus.map(|_| spec.cpus),
            min_cpus: self.cpus.or(self.min_cpus).map(|_| spec.min_cpus),
            weight: self.weight.map(|_| spec.weight),
            mem_bytes: self.mem_bytes.map(|_| resources.mem_bytes),
            disk_bytes: self.disk_bytes.map(|_| resources.disk_bytes),
        }
    }
}

impl Daemon {
    /// Changes a job while it runs: all that is asked, or nothing of it.
    ///
    /// The order of the steps: resources, which other jobs wait for; then policy and the rest.
    /// Policy `none` comes before the rest and policy `gang` after it: in between, the schedule may
    /// refuse what a gang asks for.
    pub fn set_job(self: &Arc<Self>, peer: Peer, job: JobId, change: Change) -> Result<(), Error> {
        self.permit(peer, job, "change a job")?;
        if let Some(weight) = change.weight {
            let now =
                self.conductor.ask(move |state| state.job(job).map(|job| job.spec.weight))??;
            if weight > now {
                self.permit_weight(peer, weight, "change a job")?;
            }
        }
        let moves = change.policy.is_some() || change.mem_bytes.is_some();
        let _changing = moves.then(|| self.jobs.locks.home(job));
        let (may_raise, asked) = (peer.is_administrator(), change.clone());
        let before = self.conductor.ask(move |state| asked.permitted(state, job, may_raise))??;
        let back = change.back(&before);
        self.set_resources(job, &change)?;
        let outcome = match &change.policy {
            None => self.set_terms(job, &change, may_raise),
            Some(v1::Policy::none) => self.set_policy(job, &v1::Policy::none).and_then(|()| {
                let outcome = self.set_terms(job, &change, may_raise);
                if outcome.is_err() {
                    self.put_back(job, self.set_policy(job, &before.policy));
                }
                outcome
            }),
            Some(policy) => self.set_terms(job, &change, may_raise).and_then(|()| {
                let outcome = self.set_policy(job, policy);
                if outcome.is_err() {
                    self.put_back(job, self.set_terms(job, &back, true));
                }
                outcome
            }),
        };
        if outcome.is_err() && back.has_resources() {
            let granted = change.resources(before.resources).mem_bytes;
            self.put_back(job, self.grant(job, &back, granted));
        }
        if change.policy == Some(v1::Policy::auto) && outcome.is_ok() {
            Prover::ensure(self);
        }
        outcome
    }

    /// Refuses weights that only administrators may give.
    pub fn permit_weight(&self, peer: Peer, weight: u32, what: &str) -> Result<(), Error> {
        let most = self.settings().limits.weight;
        if weight <= most || peer.is_administrator() {
            return Ok(());
        }
        let reason = format!(
            "only administrators give weights above {most}; in gangd.toml it is weight in [limits]"
        );
        Err(Error::not_permitted(format!("{what} of weight {weight}"), reason))
    }

    /// A step was undone, or could not be.
    fn put_back(&self, job: JobId, undone: Result<(), Error>) {
        if let Err(error) = undone {
            tracing::warn!(%job, ?error, "a change that failed is not undone whole");
        }
    }

    /// Changes everything but policy and resources.
    fn set_terms(&self, job: JobId, change: &Change, may_raise: bool) -> Result<(), Error> {
        let change = change.clone();
        self.change_or_undo(move |state| {
            let back = change.back(&change.permitted(state, job, may_raise)?);
            let record = state.core.change(job, |spec, _| change.put_terms(spec))?;
            let undo = move |state: &mut State| {
                Ok(state.core.change(job, |spec, _| back.put_terms(spec)).map(drop)?)
            };
            Ok((record, Box::new(undo)))
        })
    }

    /// Promises a running job other memory or disk, without waiting for either.
    fn set_resources(&self, job: JobId, change: &Change) -> Result<(), Error> {
        if !change.has_resources() {
            return Ok(());
        }
        let user = self.conductor.ask(move |state| state.job(job).map(|job| job.spec.user))??;
        let nothing = Claim { user, unused: Resources::default() };
        self.jobs.admission.queue.pass(&self.settings().accounts, nothing, None, |ahead| {
            let before =
                self.conductor.ask(move |state| state.job(job).map(|job| job.resources))??;
            let after = change.resources(before);
            let more = after.where_more_than(before);
            if !more.is_none() {
                // Memory that the job uses already is not free, and counts for it.
                let held = Resources { mem_bytes: self.memory_used(job)?, disk_bytes: 0 };
                let stock = self.stock_for(user, Some(job), ahead)?;
                stock.can_ever(more)?;
                stock.admit(more.less(held))?;
            }
            self.grant(job, change, before.mem_bytes)
        })?;
        self.jobs.admission.queue.look_again();
        Ok(())
    }

    /// Limits and promises a job's memory and disk anew; `mem_before` is the memory to which the
    /// kernel keeps the job now.
    fn grant(&self, job: JobId, change: &Change, mem_before: u64) -> Result<(), Error> {
        let mem_after = change.mem_bytes.unwrap_or(mem_before);
        if mem_after != mem_before {
            self.confine(job, mem_after)?;
        }
        let to = change.clone();
        let changed = self.change_or_undo(move |state| {
            let before = state.job(job)?.resources;
            let after = to.resources(before);
            let record = state.core.change(job, |_, resources| *resources = after)?;
            let undo = move |state: &mut State| {
                Ok(state.core.change(job, |_, resources| *resources = before).map(drop)?)
            };
            Ok((record, Box::new(undo)))
        });
        if changed.is_err() && mem_after != mem_before {
            self.confine(job, mem_before)?;
        }
        changed
    }
}
