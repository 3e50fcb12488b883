//! The time that a job of Slurm was out of slot, and what Slurm is owed of it.
//!
//! Problem: Slurm's limit on wall-clock time runs on while a gang waits for its turn. A limit that
//! is stretched too late cuts the job; one call for each turn would load slurmctld.
//!
//! Approach: time out of slot is added up here, and Slurm is asked and told only where it matters.
//! An account knows from the last answer when the limit is reached. Shortly before, the job gets
//! all the minutes that it is owed by then in one change, so a job of a day has some ten changes.
//!
//! Terms: *out of slot* is the time in which some gang of the job took turns and had none, on the
//! first host of the job. Where several steps run at once, the one that waited longest counts.
//!
//! Properties: a job is not cut before it had its limit beside the time out of slot, as long as
//! Slurm answers. It gets no more than the time out of slot and half a minute, rounded up to whole
//! minutes. A change that may or may not have been made is not made twice.
//!
//! Moments are CLOCK_MONOTONIC, in nanoseconds.

use std::collections::BTreeMap;

use gang_schedule::JobId;

use super::job::{Answer, Running};

pub const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// A limit that is reached within this time is stretched by what is owed.
const NEAR_NS: u64 = 90 * SECOND;

/// The job is owed this much more than it has waited, unless it has not waited at all: it may wait
/// on while Slurm is asked.
const AHEAD_NS: u64 = 30 * SECOND;

/// The times after which Slurm is asked again for the limit, which others may change.
const LOOK_AGAIN_NS: [u64; 2] = [5 * MINUTE, 60 * MINUTE];

/// The wait until a job is looked at again that has no step here at the moment, at first. Each
/// further wait is twice as long, up to ten minutes.
const WITHOUT_STEPS_NS: u64 = 10 * SECOND;
const WITHOUT_STEPS_MAX_NS: u64 = 600 * SECOND;

/// The wait after Slurm did not make a change.
const REFUSED_NS: u64 = 20 * SECOND;

/// Ends of steps are reported so often at most.
const REPORT_EVERY_NS: u64 = MINUTE;

/// A gang of a job of Slurm, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gang {
    pub job: JobId,
    /// So far.
    pub out_of_slot_ns: u64,
}

/// One change of a job, made by one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new limit, in minutes.
    pub limit_min: Option<u64>,
    /// The new comment of administrators.
    pub comment: Option<String>,
}

/// The outcome of a look at a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Nothing,
    Change(Change),
    /// The job is over, and its record in the accounts gets this text.
    File(String),
    /// The job is over, or is another host's to account for: no account is kept of it.
    Forget,
}

/// A limit as it was last heard of.
#[derive(Clone, Copy, Debug)]
struct Limit {
    min: u64,
    /// When it is reached.
    reached_ns: u64,
}

/// The account of one job of Slurm.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// The time counted of its gangs here, until it was heard that they have ended.
    counted: BTreeMap<JobId, u64>,
    has_gangs: bool,
    out_of_slot_ns: u64,
    granted_min: u64,
    limit: Option<Limit>,
    /// A change of the limit whose outcome is not known: from, to.
    attempt: Option<(u64, u64)>,
    /// The comment as it was last heard of.
    comment: Option<String>,
    look_at_ns: u64,
    /// After a call that failed.
    not_before_ns: u64,
    refusals: u32,
    report_at_ns: u64,
    /// A step has ended, and Slurm has not heard of its time yet.
    has_news: bool,
    /// Looks since the job was last seen with a step.
    looks_without: u32,
    /// The record in the accounts was written once.
    is_filed: bool,
    /// Whether this host is the job's first one, once that is known.
    is_own: bool,
    is_anothers: bool,
}

impl Account {
    /// Takes note of the gangs that the job has now, and of those that have just ended. The gains
    /// of all since the last call were at the same time.
    pub fn saw(&mut self, now_ns: u64, running: &[Gang], ended: Option<Gang>) {
        let gained = |gang: &Gang| {
            let counted = self.counted.get(&gang.job).copied().unwrap_or(0);
            gang.out_of_slot_ns.saturating_sub(counted)
        };
        self.out_of_slot_ns += running.iter().chain(&ended).map(gained).max().unwrap_or(0);
        if !running.is_empty() && self.looks_without > 0 {
            (self.looks_without, self.is_filed) = (0, false);
            self.look_at_ns = self.look_at_ns.min(now_ns);
        }
        // A gang that has just ended runs no more, and is handed over a moment later.
        self.counted.extend(running.iter().map(|gang| (gang.job, gang.out_of_slot_ns)));
        if let Some(gang) = ended {
            self.counted.remove(&gang.job);
            self.has_news = true;
        }
        self.has_gangs = !running.is_empty();
    }

    /// The minutes that the limit is short of.
    fn owed_min(&self) -> u64 {
        if self.out_of_slot_ns == 0 {
            return 0;
        }
        (self.out_of_slot_ns + AHEAD_NS).div_ceil(MINUTE).saturating_sub(self.granted_min)
    }

    fn is_near(&self, now_ns: u64) -> bool {
        self.limit.is_some_and(|limit| limit.reached_ns < now_ns + NEAR_NS)
    }

    /// Whether Slurm is to be asked now.
    pub fn is_due(&self, now_ns: u64) -> bool {
        if self.is_anothers {
            return !self.has_gangs;
        }
        let is_short = self.owed_min() > 0 && self.is_near(now_ns);
        let has_report = self.has_news && now_ns >= self.report_at_ns;
        now_ns >= self.not_before_ns && (now_ns >= self.look_at_ns || has_report || is_short)
    }

    /// Decides by Slurm's answer; none of a job that Slurm has forgotten. `own` are the names of
    /// this host. With `is_last` the daemon ends, and what is owed is given now.
    pub fn hear(
        &mut self,
        now_ns: u64,
        answer: Option<&Answer>,
        own: &[String],
        is_last: bool,
    ) -> Outcome {
        if self.is_anothers {
            return Outcome::Forget;
        }
        let Some(answer) = answer else { return self.is_over(now_ns) };
        match &answer.first_host {
            Some(first) if own.contains(first) => self.is_own = true,
            _ if self.is_own => {}
            None => {
                self.look_later(now_ns);
                return Outcome::Nothing;
            }
            Some(_) => {
                self.is_anothers = true;
                return if self.has_gangs { Outcome::Nothing } else { Outcome::Forget };
            }
        }
        self.comment.clone_from(&answer.comment);
        let Some(running) = answer.running else { return self.is_over(now_ns) };
        self.hear_limit(now_ns, running);
        let mut change = Change::default();
        let owed_min = self.owed_min();
        let is_short = owed_min > 0 && (is_last || self.is_near(now_ns));
        if let Some(limit) = self.limit.filter(|_| is_short) {
            change.limit_min = Some(limit.min + owed_min);
            self.attempt = Some((limit.min, limit.min + owed_min));
        }
        if self.has_news || is_last || change.limit_min.is_some() {
            let granted_min = self.granted_min + change.limit_min.map_or(0, |_| owed_min);
            let is_new = |it: &String| Some(it) != self.comment.as_ref();
            change.comment = self.comment_of(granted_min).filter(is_new);
        }
        self.look_later(now_ns);
        self.report_at_ns = now_ns + REPORT_EVERY_NS;
        if change == Change::default() {
            self.has_news = false;
            return Outcome::Nothing;
        }
        Outcome::Change(change)
    }

    fn hear_limit(&mut self, now_ns: u64, running: Running) {
        // Whether the change was made that nobody confirmed.
        if let Some((from, to)) = self.attempt.take() {
            if running.limit_min == Some(to) {
                self.granted_min += to - from;
            }
        }
        self.limit = running.limit_min.map(|min| {
            let left_s = (min * 60).saturating_sub(running.used_s);
            Limit { min, reached_ns: now_ns + left_s * SECOND }
        });
    }

    /// Half the time until the limit is near: others may change it meanwhile.
    fn look_later(&mut self, now_ns: u64) {
        let wait_ns = if !self.has_gangs {
            self.looks_without += 1;
            (WITHOUT_STEPS_NS << (self.looks_without - 1).min(6)).min(WITHOUT_STEPS_MAX_NS)
        } else {
            let near_ns = self.limit.map_or(u64::MAX, |it| it.reached_ns.saturating_sub(NEAR_NS));
            let [least_ns, most_ns] = LOOK_AGAIN_NS;
            (near_ns.saturating_sub(now_ns) / 2).clamp(least_ns, most_ns)
        };
        self.look_at_ns = now_ns + wait_ns;
    }

    /// A change was made.
    pub fn changed(&mut self, change: &Change) {
        (self.has_news, self.refusals) = (false, 0);
        if let (Some(min), Some(limit)) = (change.limit_min, &mut self.limit) {
            let more_min = min - limit.min;
            self.granted_min += more_min;
            self.attempt = None;
            *limit = Limit { min, reached_ns: limit.reached_ns + more_min * MINUTE };
        }
        if change.comment.is_some() {
            self.comment.clone_from(&change.comment);
        }
    }

    /// Slurm cannot be asked until then.
    pub fn failed(&mut self, again_at_ns: u64) {
        (self.look_at_ns, self.not_before_ns) = (again_at_ns, again_at_ns);
    }

    /// Slurm did not make a change; its next answer shows whether it did all the same. Returns how
    /// often that happened since the last change: once where the job has ended meanwhile.
    pub fn refused(&mut self, now_ns: u64) -> u32 {
        self.failed(now_ns + REFUSED_NS);
        self.refusals += 1;
        self.refusals
    }

    /// The record is written twice: Slurm's own word of the end may arrive after the first time.
    fn is_over(&mut self, now_ns: u64) -> Outcome {
        self.look_later(now_ns);
        self.has_news = false;
        if self.has_gangs {
            self.look_at_ns = now_ns + MINUTE;
            return Outcome::Nothing;
        }
        match self.comment_of(self.granted_min) {
            Some(comment) => Outcome::File(comment),
            None => Outcome::Forget,
        }
    }

    /// The record of a job that is over was written; true where nothing is left to do.
    pub fn filed(&mut self) -> bool {
        std::mem::replace(&mut self.is_filed, true)
    }

    /// The comment with this account in it. Absent where what administrators have written there
    /// would not stay as it is.
    fn comment_of(&self, granted_min: u64) -> Option<String> {
        let others = self.comment.as_deref()?;
        // Programs keep records there.
        if others.starts_with(['{', '[']) {
            return None;
        }
        let own = format!(
            "{MARK}{} s out of slot, {granted_min} min added to the limit",
            self.out_of_slot_ns / SECOND
        );
        let kept = others.split(SEPARATOR).filter(|part| !part.starts_with(MARK));
        let kept = kept.filter(|part| !part.is_empty()).map(str::to_owned);
        Some(kept.chain([own]).collect::<Vec<_>>().join(SEPARATOR))
    }
}

/// The beginning of what gangd writes into a comment, and what parts it from the rest.
const MARK: &str = "gangd: ";
const SEPARATOR: &str = "; ";

#[cfg(test)]
mod tests;
