//! Jobs of policy `auto`: scheduled as a gang or by Linux alone, by what was measured.
//!
//! Problem: only the program itself shows, while it runs, which of the two is better for it. A
//! prover reads its instructions and loads programs into the kernel, which is no work for a daemon.
//!
//! Approach: the daemon keeps the decisions, and changes policies by them. A program of its own
//! reports a decision ([`super::prover`]), or any client that may change the policy of the job
//! anyway.
//!
//! Properties: until a decision the job is a gang. No decision overrules a person: the job must be
//! `auto` when the decision comes, and no policy changes meanwhile.

use gang_conductor::{Auto, Gain, Job};
use gang_protocol::{auto1, v1};
use gang_schedule::{JobId, Policy};

use super::peer::Peer;
use crate::{daemon::Daemon, error::Error};

/// The most bytes of a reason; a longer one is refused.
const BECAUSE_MAX: usize = 512;

/// The policy by which a job of policy `auto` is scheduled from now on, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub policy: Policy,
    pub is_final: bool,
    pub gain: Option<Gain>,
    pub because: String,
}

impl Decision {
    /// As it came from a client.
    pub fn read(
        policy: auto1::Policy,
        is_final: bool,
        gain: Option<auto1::Gain>,
        because: String,
    ) -> Result<Decision, Error> {
        let gain = gain.map(v1::Gain::from);
        let figures = gain.iter().flat_map(|it| {
            let interval = it.interval.iter().flatten().copied();
            interval.chain([it.gain])
        });
        let is_interval = |gain: &v1::Gain| gain.interval.as_ref().is_none_or(|it| it.len() == 2);
        if !figures.clone().all(f64::is_finite) || !gain.as_ref().is_none_or(is_interval) {
            let figures: Vec<f64> = figures.collect();
            let accepted = "a number, and two as its interval";
            return Err(Error::invalid("gain", format!("{figures:?}"), accepted));
        }
        if because.len() > BECAUSE_MAX || because.contains(char::is_control) {
            let accepted = format!("up to {BECAUSE_MAX} bytes without control characters");
            return Err(Error::invalid("because", because, accepted));
        }
        let gain = gain.map(|it| Gain {
            gain: it.gain,
            interval: it.interval.and_then(|ends| ends.try_into().ok()),
        });
        Ok(Decision { policy: policy.into(), is_final, gain, because })
    }
}

fn take(auto: &mut Auto, decision: &Decision) {
    if decision.is_final {
        (auto.decided, auto.gain) = (Some(decision.policy), decision.gain.clone());
    }
    auto.because.clone_from(&decision.because);
}

/// Writes what was decided of a job into its description.
pub fn describe(job: &Job, described: &mut v1::Job) {
    let Some(auto) = &job.auto else { return };
    described.policy = v1::Policy::auto;
    let because = match auto.because.as_str() {
        "" => "nobody has looked at it yet",
        because => because,
    };
    let gain = auto.gain.as_ref();
    described.decision = Some(v1::Decision {
        policy: auto.decided.map(Into::into),
        gain: gain.map(|it| v1::Gain { gain: it.gain, interval: it.interval.map(Vec::from) }),
        because: because.to_owned(),
    });
}

impl Daemon {
    /// Schedules a job by a policy from now on, or by what will be measured. The caller holds
    /// the lock of its home.
    pub fn set_policy(&self, job: JobId, policy: &v1::Policy) -> Result<(), Error> {
        let auto = (*policy == v1::Policy::auto).then(Auto::default);
        let is_auto = self.conductor.ask(move |state| state.job(job).map(|job| job.auto.is_some()));
        if is_auto?? && auto.is_some() {
            return Ok(());
        }
        self.reschedule(job, policy.clone().into())?;
        self.change_on_file(move |state| Ok(state.core.set_auto(job, auto)?))
    }

    /// Schedules a job of policy `auto` as was decided.
    pub fn decide(&self, peer: Peer, job: JobId, decision: Decision) -> Result<(), Error> {
        self.permit(peer, job, "decide how a job is scheduled")?;
        let _changing = self.jobs.locks.home(job);
        let is_auto = self.conductor.ask(move |state| state.job(job).map(|job| job.auto.is_some()));
        if !is_auto?? {
            return Err(Error::invalid("job", job, "a job of policy auto"));
        }
        self.reschedule(job, decision.policy)?;
        self.conductor.ask(move |state| {
            if let Some(auto) = state.core.auto_mut(job) {
                take(auto, &decision);
            }
            state.job(job).map(drop)
        })?
    }

    /// Nobody compares any more: jobs go back to what they are usually scheduled by.
    pub fn end_trials(&self, because: &str) {
        let found = self.conductor.ask(|state| {
            let jobs = state.core.jobs().values();
            let auto = jobs.filter_map(|job| Some((job.id, job.spec.policy, job.auto.as_ref()?)));
            auto.map(|(job, policy, auto)| (job, policy, auto.usual())).collect::<Vec<_>>()
        });
        for (job, policy, usual) in found.into_iter().flatten() {
            let _changing = self.jobs.locks.home(job);
            // One that has ended, or is not auto any more, needs nothing.
            let reason = because.to_owned();
            let kept = self.conductor.ask(move |state| {
                state.core.auto_mut(job)?.because = reason;
                Some(())
            });
            if matches!(kept, Ok(Some(()))) && policy != usual {
                if let Err(error) = self.reschedule(job, usual) {
                    tracing::warn!(%job, ?error, "a job stays as it was tried");
                }
            }
        }
    }

    /// Whether any job is of policy `auto`.
    pub fn has_auto(&self) -> bool {
        let any =
            self.conductor.ask(|state| state.core.jobs().values().any(|job| job.auto.is_some()));
        any.unwrap_or(false)
    }

    /// The jobs of policy `auto`; absent where the conductor does not answer.
    pub fn auto_jobs(&self) -> Option<Vec<JobId>> {
        let found = self.conductor.ask(|state| {
            let jobs = state.core.jobs().values().filter(|job| job.auto.is_some());
            jobs.map(|job| job.id).collect()
        });
        found.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(policy: auto1::Policy, gain: f64, interval: &[f64]) -> Result<Decision, Error> {
        let gain = auto1::Gain { gain, interval: Some(interval.to_vec()) };
        Decision::read(policy, true, Some(gain), "measured".into())
    }

    #[test]
    fn decision_without_valid_figures_is_refused() {
        let read = decision(auto1::Policy::none, 0.01, &[-0.01, 0.03]).unwrap();
        assert_eq!((read.policy, read.is_final), (Policy::None, true));
        assert!(decision(auto1::Policy::gang, f64::NAN, &[0.0, 0.0]).is_err());
        assert!(decision(auto1::Policy::gang, 0.0, &[0.0]).is_err());
        assert!(Decision::read(auto1::Policy::none, true, None, "a\nb".into()).is_err());
        assert!(Decision::read(auto1::Policy::none, true, None, "b".repeat(513)).is_err());
    }

    #[test]
    fn a_comparison_changes_nothing_that_was_decided() {
        let mut auto = Auto::default();
        assert_eq!(auto.usual(), Policy::Gang);
        take(&mut auto, &decision(auto1::Policy::none, 0.0, &[0.0, 0.0]).unwrap());
        let tried = Decision::read(auto1::Policy::gang, false, None, "is compared".into()).unwrap();
        take(&mut auto, &tried);
        assert_eq!((auto.usual(), auto.because.as_str()), (Policy::None, "is compared"));
        assert!(auto.gain.is_some());
    }
}
