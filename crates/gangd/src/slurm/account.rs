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
    /// What was counted of its gangs here, until it was heard that they have ended.
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
    /// Takes note of the gangs that the job has now, and of those that have just ended. What each
    /// gained since the last call is at the same time as what the others did.
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
mod tests {
    use super::*;

    fn own() -> Vec<String> {
        vec!["n1".to_owned()]
    }

    fn gang(job: u64, out_s: u64) -> Gang {
        Gang { job: JobId(job), out_of_slot_ns: out_s * SECOND }
    }

    fn answer(limit_min: u64, used_s: u64, comment: &str) -> Answer {
        Answer {
            running: Some(Running { limit_min: Some(limit_min), used_s }),
            first_host: Some("n1".into()),
            comment: Some(comment.into()),
        }
    }

    fn over(comment: &str) -> Answer {
        Answer { running: None, ..answer(0, 0, comment) }
    }

    /// Slurm, with a job of that limit whose one gang is out of slot for a part of the time (in
    /// percent). Returns when the job was cut, its limit then, and how many calls there were.
    fn play(limit_min: u64, out_percent: u64, fails: impl Fn(u64) -> bool) -> (u64, u64, u64) {
        let mut account = Account::default();
        let (mut limit, mut calls) = (limit_min, 0);
        for second in 0.. {
            if second >= limit * 60 {
                return (second, limit, calls);
            }
            if second % 5 != 0 {
                continue;
            }
            let now_ns = (1000 + second) * SECOND;
            let out_of_slot_ns = second * SECOND * out_percent / 100;
            account.saw(now_ns, &[Gang { job: JobId(1), out_of_slot_ns }], None);
            if !account.is_due(now_ns) {
                continue;
            }
            calls += 1;
            if fails(second) {
                account.failed(now_ns + 10 * SECOND);
                continue;
            }
            match account.hear(now_ns, Some(&answer(limit, second, "")), &own(), false) {
                Outcome::Change(change) => {
                    calls += 1;
                    limit = change.limit_min.unwrap_or(limit);
                    account.changed(&change);
                }
                other => assert_eq!(other, Outcome::Nothing),
            }
        }
        unreachable!()
    }

    #[test]
    fn job_has_its_minutes_in_slot_and_few_more() {
        for limit_min in [1, 2, 7, 60, 1440] {
            for out_percent in [0, 1, 10, 50, 67, 75, 90] {
                let (cut_s, limit, calls) = play(limit_min, out_percent, |_| false);
                let out_s = cut_s * out_percent / 100;
                let at = format!("{limit_min} min, {out_percent} %: cut after {cut_s} s");
                assert!(cut_s - out_s >= limit_min * 60, "{at}");
                assert!((limit - limit_min) * 60 <= out_s + 90, "{at}");
                assert!(out_percent > 0 || limit == limit_min, "{at}");
                assert!(calls <= 2 * cut_s.div_ceil(60) + 2, "{at}: {calls} calls");
                assert!(limit_min < 1440 || calls < cut_s / 1000, "{at}: {calls} calls");
            }
        }
    }

    #[test]
    fn silence_of_slurm_is_made_up_for() {
        // Silent for half an hour in the middle, and for one look in four.
        let fails = |second: u64| (600..2400).contains(&second) || second % 4 == 0;
        let (cut_s, limit, _) = play(60, 50, fails);
        assert!(cut_s / 2 >= 3600, "{cut_s}");
        assert!((limit - 60) * 60 <= cut_s / 2 + 90, "{limit}");
    }

    #[test]
    fn change_that_was_made_unheard_is_not_made_twice() {
        let mut account = Account::default();
        account.saw(SECOND, &[gang(1, 45)], None);
        let change = account.hear(SECOND, Some(&answer(1, 50, "")), &own(), false);
        let Outcome::Change(Change { limit_min: Some(3), .. }) = change else {
            panic!("{change:?}")
        };
        account.failed(11 * SECOND);
        assert!(!account.is_due(10 * SECOND) && account.is_due(11 * SECOND));
        let mut unmade = account.clone();
        let outcome = account.hear(11 * SECOND, Some(&answer(3, 60, "")), &own(), false);
        assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
        let outcome = unmade.hear(11 * SECOND, Some(&answer(1, 60, "")), &own(), false);
        assert!(matches!(outcome, Outcome::Change(Change { limit_min: Some(3), .. })));
    }

    #[test]
    fn limit_that_others_set_is_the_one_that_is_stretched() {
        let mut account = Account::default();
        account.saw(SECOND, &[gang(1, 10)], None);
        let Outcome::Change(change) = account.hear(SECOND, Some(&answer(1, 5, "")), &own(), false)
        else {
            panic!()
        };
        account.changed(&change);
        assert_eq!(change.limit_min, Some(2));
        // An administrator gives it an hour, then ten minutes.
        account.saw(100 * SECOND, &[gang(1, 100)], None);
        let far = account.hear(100 * SECOND, Some(&answer(60, 100, "")), &own(), false);
        assert_eq!(far, Outcome::Nothing);
        let near = account.hear(600 * SECOND, Some(&answer(10, 590, "")), &own(), false);
        assert!(matches!(near, Outcome::Change(Change { limit_min: Some(12), .. })), "{near:?}");
    }

    #[test]
    fn job_without_a_limit_gets_none() {
        let mut account = Account::default();
        account.saw(SECOND, &[gang(1, 3000)], None);
        let running = Some(Running { limit_min: None, used_s: 5 });
        let unlimited = Answer { running, ..answer(0, 0, "") };
        assert_eq!(account.hear(SECOND, Some(&unlimited), &own(), false), Outcome::Nothing);
        assert!(!account.is_due(60 * SECOND));
    }

    #[test]
    fn steps_at_once_count_once_and_one_after_the_other_each() {
        let mut account = Account::default();
        account.saw(0, &[gang(1, 4), gang(2, 3)], None);
        account.saw(0, &[gang(1, 9), gang(2, 8)], None);
        assert_eq!(account.out_of_slot_ns, 9 * SECOND);
        account.saw(0, &[gang(2, 8)], Some(gang(1, 10)));
        account.saw(0, &[], Some(gang(2, 12)));
        assert_eq!(account.out_of_slot_ns, 14 * SECOND);
        account.saw(0, &[], Some(gang(3, 2)));
        assert_eq!(account.out_of_slot_ns, 16 * SECOND);
    }

    #[test]
    fn gang_that_is_handed_over_late_counts_once() {
        let mut account = Account::default();
        account.saw(0, &[gang(1, 80)], None);
        account.saw(0, &[], None);
        account.saw(0, &[], Some(gang(1, 83)));
        assert_eq!(account.out_of_slot_ns, 83 * SECOND);
        assert!(account.counted.is_empty());
    }

    #[test]
    fn comment_of_others_is_kept() {
        let comment = |before: &str| {
            let mut account = Account::default();
            account.saw(0, &[], Some(gang(1, 83)));
            match account.hear(0, Some(&answer(60, 0, before)), &own(), false) {
                Outcome::Change(change) => change.comment,
                other => panic!("{other:?}"),
            }
        };
        let own_words = "gangd: 83 s out of slot, 0 min added to the limit";
        assert_eq!(comment("").as_deref(), Some(own_words));
        let both = format!("paid by physics; {own_words}");
        assert_eq!(comment("paid by physics").as_deref(), Some(both.as_str()));
        let old = "paid by physics; gangd: 3 s out of slot, 0 min added to the limit";
        assert_eq!(comment(old).as_deref(), Some(both.as_str()));
    }

    #[test]
    fn comment_that_cannot_be_kept_is_left_alone() {
        let mut account = Account::default();
        account.saw(0, &[], Some(gang(1, 83)));
        let json = answer(60, 0, "{\"cpu\": 1}");
        assert_eq!(account.hear(0, Some(&json), &own(), false), Outcome::Nothing);
        account.saw(0, &[], Some(gang(2, 83)));
        let too_long = Answer { comment: None, ..answer(60, 0, "") };
        assert_eq!(account.hear(0, Some(&too_long), &own(), false), Outcome::Nothing);
        assert_eq!(account.hear(0, Some(&over("[1]")), &own(), false), Outcome::Forget);
    }

    #[test]
    fn record_of_a_job_that_is_over_is_written_twice() {
        let mut account = Account::default();
        account.saw(0, &[], Some(gang(1, 83)));
        assert!(account.is_due(0));
        let text = "gangd: 83 s out of slot, 0 min added to the limit";
        assert_eq!(account.hear(0, Some(&over("")), &own(), false), Outcome::File(text.into()));
        assert!(!account.filed());
        assert!(!account.is_due(9 * SECOND) && account.is_due(10 * SECOND));
        // Slurm has forgotten the job.
        assert_eq!(account.hear(10 * SECOND, None, &own(), false), Outcome::File(text.into()));
        assert!(account.filed());
    }

    #[test]
    fn job_of_another_host_is_that_hosts() {
        let mut account = Account::default();
        account.saw(0, &[gang(1, 83)], None);
        let elsewhere = Answer { first_host: Some("n2".into()), ..answer(1, 0, "") };
        assert_eq!(account.hear(0, Some(&elsewhere), &own(), false), Outcome::Nothing);
        assert!(!account.is_due(5000 * SECOND));
        account.saw(0, &[], Some(gang(1, 90)));
        assert!(account.is_due(0));
        assert_eq!(account.hear(0, None, &own(), false), Outcome::Forget);
    }

    #[test]
    fn job_that_is_ending_stays_the_hosts_that_it_was() {
        let ending = Answer { first_host: None, ..over("") };
        let mut account = Account::default();
        account.saw(0, &[gang(1, 83)], None);
        account.hear(0, Some(&answer(60, 0, "")), &own(), false);
        account.saw(0, &[], Some(gang(1, 83)));
        assert!(matches!(account.hear(0, Some(&ending), &own(), false), Outcome::File(_)));
        // It was not asked for before it began to end.
        let mut account = Account::default();
        account.saw(0, &[], Some(gang(1, 83)));
        assert_eq!(account.hear(0, Some(&ending), &own(), false), Outcome::Nothing);
        assert!(account.is_due(10 * SECOND));
        let outcome = account.hear(10 * SECOND, Some(&over("")), &own(), false);
        assert!(matches!(outcome, Outcome::File(_)), "{outcome:?}");
    }

    #[test]
    fn daemon_that_ends_gives_what_is_owed() {
        let mut account = Account::default();
        account.saw(0, &[gang(1, 83)], None);
        assert_eq!(account.hear(0, Some(&answer(600, 9, "")), &own(), false), Outcome::Nothing);
        let last = account.hear(0, Some(&answer(600, 9, "")), &own(), true);
        assert!(matches!(last, Outcome::Change(Change { limit_min: Some(602), comment: Some(_) })));
    }

    #[test]
    fn ends_of_many_steps_are_reported_once_a_minute() {
        let mut account = Account::default();
        let mut reports = 0;
        for second in 0..600 {
            let now_ns = second * SECOND;
            account.saw(now_ns, &[gang(second + 1, 0)], Some(gang(second, 1)));
            if account.is_due(now_ns) {
                reports += 1;
                let heard = account.hear(now_ns, Some(&answer(6000, second, "")), &own(), false);
                if let Outcome::Change(change) = heard {
                    account.changed(&change);
                }
            }
        }
        assert!((9..=12).contains(&reports), "{reports}");
    }
}
