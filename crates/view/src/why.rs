//! Why a job is as fast or as slow as it is, in plain words.
//!
//! Problem: the figures of a job say what happened. They say neither what that means nor what to do
//! about it.
//!
//! Approach: a pure function of what the daemon says of the job, of itself and of the other jobs.
//! Each [`Finding`] is one reason with its figures, and with a change to make where there is one.
//! The paragraph is the findings put together, the weightiest first.
//!
//! Properties: a figure that was not measured leads to no finding but that it was not measured. A
//! job that has all it can have gets a finding that says so.

mod findings;
mod hosts;

pub use findings::crowd;
use gang_protocol::name::escaped;
use gang_protocol::v1::{Job, JobState, Status};
use serde::Serialize;

use crate::spanning::Spanning;

/// The evidence for a judgement.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// With the culprits and what it had of each CPU, as `ShowJob` has it.
    pub job: &'a Job,
    pub status: &'a Status,
    /// All jobs of the daemon; this one may be among them.
    pub jobs: &'a [&'a Job],
    /// The job on all of its hosts, where it spans some.
    pub spanning: Option<Spanning<'a>>,
}

/// The figures that the findings rest on; absent is what was not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Derived {
    pub share_wanted: f64,
    /// Over the last ten seconds.
    pub share_had: f64,
    /// Of the CPUs of its slots: on how many it ran, as long as it is measured.
    pub busy: Option<f64>,
    /// Of the CPUs of its slots: for how many it waited.
    pub lost: Option<f64>,
    /// Of the CPUs of its slots: how much it left to real-time threads of its priority.
    pub gave_way: Option<f64>,
    /// Of its CPU time: what it had out of its slots.
    pub filled: Option<f64>,
    pub coscheduled: Option<f64>,
    pub skew_ns_p99: Option<i64>,
    /// Other jobs that want CPUs, and threads outside all jobs that do.
    pub competing_jobs: usize,
    pub competing_threads: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It makes the job slow, and can be changed.
    Bad,
    /// It explains the figures.
    Note,
    /// As it should be.
    Good,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Starting,
    Suspended,
    Asleep,
    Deadlocked,
    Stalled,
    Crowded,
    TooFewCpus,
    KeptInItsGroups,
    NotGangScheduled,
    Decided,
    TooWide,
    ShortLived,
    UserCap,
    CpuQuota,
    Overhead,
    Standby,
    Share,
    LessThanItsShare,
    Lost,
    GaveWay,
    NotCoscheduled,
    Coscheduled,
    Skew,
    Unused,
    Filling,
    MemoryFull,
    MachineMemoryFull,
    WeakGuarantee,
    GangShareMax,
    NotMeasured,
    Entries,
    NoEntries,
    RanksAwaited,
    Released,
    Killed,
    HostLost,
    HostAway,
    HostUnwilling,
    NoProcesses,
    PartMissing,
    EtcdAway,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub grade: Grade,
    /// A sentence.
    pub text: String,
    /// The change to make, without a full stop.
    pub advice: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub job: i64,
    pub name: String,
    /// Absent for a job that has no part on this host.
    pub figures: Option<Derived>,
    /// The weightiest first.
    pub findings: Vec<Finding>,
}

/// In slot for at least so long, or the sums say little.
const SLOT_LEAST_NS: i64 = 500_000_000;

/// Why the job is as it is.
pub fn judge(evidence: Evidence<'_>) -> Verdict {
    let Evidence { job, spanning, .. } = evidence;
    let figures = Derived::of(evidence);
    let mut found: Vec<Finding> = match findings::standing(job) {
        // Nothing else explains a job that has no slots.
        Some(finding) => vec![finding],
        None if spanning.is_some_and(|of| of.job.rows.is_empty()) => Vec::new(),
        None => {
            let looks: [fn(Evidence<'_>, &Derived) -> Option<Finding>; 16] = [
                findings::width,
                findings::short_lived,
                findings::share,
                findings::user_cap,
                findings::cpu_quota,
                findings::overhead,
                findings::standby,
                findings::less_than_its_share,
                findings::lost,
                findings::gave_way,
                findings::coscheduled,
                findings::skew,
                findings::unused,
                findings::filling,
                findings::guarantee,
                findings::gang_share_max,
            ];
            looks.iter().filter_map(|look| look(evidence, &figures)).collect()
        }
    };
    found.extend(findings::messages(job));
    found.extend(findings::memory(evidence));
    found.extend(findings::decided(job));
    found.extend(findings::kept(job));
    found.extend(findings::not_measured(job));
    // A part that is suspended says so itself.
    let is_said = found.iter().any(|finding| finding.kind == Kind::Suspended);
    let on_hosts = spanning.into_iter().flat_map(hosts::findings);
    found.extend(on_hosts.filter(|finding| !is_said || finding.kind != Kind::Suspended));
    found.sort_by_key(|finding| finding.grade);
    Verdict { job: job.id, name: job.name.clone(), figures: Some(figures), findings: found }
}

/// Why a job that spans hosts, and has no part on this one, is as it is: by the registry alone.
pub fn judge_elsewhere(spanning: Spanning<'_>) -> Verdict {
    let mut found = hosts::findings(spanning);
    found.sort_by_key(|finding| finding.grade);
    let job = spanning.job;
    Verdict { job: job.id, name: job.name.clone(), figures: None, findings: found }
}

/// Whether a job wants CPUs.
fn competes(job: &Job) -> bool {
    use JobState::{not_scheduled, running, waiting};
    matches!(job.state, running | waiting | not_scheduled)
}

impl Derived {
    fn of(Evidence { job, status, jobs, .. }: Evidence<'_>) -> Derived {
        let measured = job.measured.as_ref();
        let measured_slot_ns = measured.map_or(0, |it| it.slot_ns);
        let slot_ns = (measured_slot_ns * job.cpus) as f64;
        let is_enough = measured_slot_ns >= SLOT_LEAST_NS && job.cpus > 0;
        let of_slots = |ns: i64| is_enough.then(|| (ns as f64 / slot_ns).clamp(0.0, 1.0));
        let of_cpus = measured.and_then(|it| it.per_cpu.as_ref());
        let ran_ns: Option<i64> =
            of_cpus.map(|of_cpus| of_cpus.iter().map(|it| it.in_slot_ns).sum());
        let of_time = |filled_ns: i64| {
            let all_ns = ran_ns? + filled_ns;
            (all_ns >= SLOT_LEAST_NS).then(|| filled_ns as f64 / all_ns as f64)
        };
        let is_rival = |other: &&&Job| other.id != job.id && competes(other);
        Derived {
            share_wanted: job.share_wanted,
            share_had: job.share_had,
            busy: ran_ns.and_then(of_slots),
            lost: measured.and_then(|it| of_slots(it.lost_ns)),
            gave_way: measured.and_then(|it| of_slots(it.gave_way_ns)),
            filled: measured.and_then(|it| of_time(it.filled_ns)),
            coscheduled: job.coscheduled().filter(|_| is_enough),
            skew_ns_p99: job.skew_ns_p99().filter(|_| is_enough),
            competing_jobs: jobs.iter().filter(is_rival).count(),
            competing_threads: status.unregistered_threads,
        }
    }
}

impl Verdict {
    /// The findings as one paragraph, and what to change.
    pub fn paragraph(&self) -> String {
        let mut text = format!("Job {} ({}): ", self.job, escaped(&self.name));
        if self.findings.iter().all(|finding| finding.grade == Grade::Good) {
            text.push_str("Nothing keeps it from its speed that can be seen from here. ");
        }
        let sentences: Vec<&str> = self.findings.iter().map(|f| f.text.as_str()).collect();
        text.push_str(&sentences.join(" "));
        let advice: Vec<&str> =
            self.findings.iter().filter_map(|finding| finding.advice.as_deref()).collect();
        if !advice.is_empty() {
            text.push_str(&format!(" What to change: {}.", advice.join("; ")));
        }
        text
    }
}

#[cfg(test)]
mod tests;
