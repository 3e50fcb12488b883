//! Why a job is as fast or as slow as it is, in plain words.
//!
//! Problem: the figures of a job say what happened, not what it means, nor what to do about it.
//!
//! Approach: a pure function of what the daemon says of the job, of itself and of the other jobs. Each
//! [`Finding`] is one reason with its figures, and, where there is something, what to change. The
//! paragraph is the findings put together, the weightiest first.
//!
//! Properties: what was not measured leads to no finding but that it was not measured. A job that has all
//! it can have is told so.

use gang_protocol::name::escaped;
use gang_protocol::v1::{Class, Culprit, Guarantee, Job, JobState, Policy, Status};
use serde::Serialize;

use crate::values::{count, duration, percent, size, word};

/// What the judgement rests on.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// With the culprits, as `ShowJob` has it.
    pub job: &'a Job,
    pub status: &'a Status,
    /// All jobs of the daemon; this one may be among them.
    pub jobs: &'a [Job],
}

/// The figures that the findings rest on; absent is what was not measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub share_wanted: f64,
    /// Over the last ten seconds.
    pub share_had: f64,
    /// Of the CPUs of its slots: on how many it ran, since it began.
    pub busy: Option<f64>,
    /// Of the CPUs of its slots: for how many it waited.
    pub lost: Option<f64>,
    /// Of its CPU time: what it had out of its slots.
    pub filled: Option<f64>,
    pub coscheduled: Option<f64>,
    pub skew_us_p99: Option<f64>,
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
    Crowded,
    NotGangScheduled,
    TooWide,
    Standby,
    Share,
    LessThanItsShare,
    Lost,
    NotTogether,
    Together,
    Skew,
    Unused,
    Filling,
    MemoryFull,
    MachineMemoryFull,
    WeakGuarantee,
    Capped,
    NotMeasured,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub grade: Grade,
    /// A sentence.
    pub text: String,
    /// What to change, without a full stop.
    pub advice: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    pub job: i64,
    pub name: String,
    pub figures: Figures,
    /// The weightiest first.
    pub findings: Vec<Finding>,
}

/// Parts of the CPUs of its slots that a gang may lose before it is worth a word.
const LOST_MAX: f64 = 0.01;
/// Coscheduled less than this is bad; more than the other is as good as it gets.
const TOGETHER_LEAST: f64 = 0.90;
const TOGETHER_GOOD: f64 = 0.97;
/// Of its slots; with less, others could have the CPUs.
const BUSY_LEAST: f64 = 0.60;
/// By which shares may differ, over ten seconds.
const SHARE_TOLERANCE: f64 = 0.05;
/// Of a slice: what is lost at its edges where threads start and stop at different moments.
const SKEW_MAX: f64 = 0.05;
/// Of what it was promised, from where on the kernel keeps it short.
const MEMORY_FULL: f64 = 0.95;
/// Of the machine's memory that is free.
const MEMORY_LEAST: f64 = 0.03;
/// In slot for at least so long, or the sums say little.
const SLOT_LEAST_NS: i64 = 500_000_000;
/// The daemon switches jobs of at most so many threads.
const THREADS_MAX: i64 = 4096;

/// Why the job is as it is.
pub fn judge(evidence: Evidence<'_>) -> Verdict {
    let Evidence { job, .. } = evidence;
    let figures = Figures::of(evidence);
    let mut findings: Vec<Finding> = match standing(job) {
        // Nothing else explains a job that has no slots.
        Some(finding) => vec![finding],
        None => {
            let looks: [fn(Evidence<'_>, &Figures) -> Option<Finding>; 11] = [
                width,
                share,
                standby,
                less_than_its_share,
                lost,
                together,
                skew,
                unused,
                filling,
                guarantee,
                cap,
            ];
            looks.iter().filter_map(|look| look(evidence, &figures)).collect()
        }
    };
    findings.extend(memory(evidence));
    findings.extend(not_measured(job));
    findings.sort_by_key(|finding| finding.grade);
    Verdict { job: job.id, name: job.name.clone(), figures, findings }
}

impl Figures {
    fn of(Evidence { job, status, jobs }: Evidence<'_>) -> Figures {
        let slot_ns = (job.in_slot_ns * job.cpus) as f64;
        let is_enough = job.in_slot_ns >= SLOT_LEAST_NS && job.cpus > 0;
        let of_slots = |ns: f64| is_enough.then(|| (ns / slot_ns).clamp(0.0, 1.0));
        let in_slot_ns = |filled_ns: i64| (job.cpu_time_ns - filled_ns).max(0) as f64;
        let of_time = |filled_ns: i64| {
            let is_enough = job.cpu_time_ns >= SLOT_LEAST_NS;
            is_enough.then(|| (filled_ns as f64 / job.cpu_time_ns as f64).min(1.0))
        };
        let competes = |other: &&Job| {
            other.id != job.id && matches!(other.state, JobState::running | JobState::waiting)
        };
        Figures {
            share_wanted: job.share_wanted,
            share_had: job.share_had,
            busy: job.filled_ns.and_then(|filled_ns| of_slots(in_slot_ns(filled_ns))),
            lost: job.lost_ns.and_then(|lost_ns| of_slots(lost_ns as f64)),
            filled: job.filled_ns.and_then(of_time),
            coscheduled: job.coscheduled.filter(|_| is_enough),
            skew_us_p99: job.skew_us_p99.filter(|_| is_enough),
            competing_jobs: jobs.iter().filter(competes).count(),
            competing_threads: status.unregistered_threads,
        }
    }
}

fn finding(kind: Kind, grade: Grade, text: String) -> Option<Finding> {
    Some(Finding { kind, grade, text, advice: None })
}

fn advised(kind: Kind, grade: Grade, text: String, advice: String) -> Option<Finding> {
    Some(Finding { kind, grade, text, advice: Some(advice) })
}

/// Why the job has no slots at all.
fn standing(job: &Job) -> Option<Finding> {
    use Grade::{Bad, Note};
    let id = job.id;
    if job.threads >= THREADS_MAX {
        return advised(
            Kind::Crowded,
            Bad,
            format!(
                "It has {} threads or more; a job gets no slots until it has less than {THREADS_MAX}.",
                job.threads
            ),
            "start fewer threads, or make several jobs of it".to_owned(),
        );
    }
    match job.state {
        JobState::starting => finding(
            Kind::Starting,
            Note,
            "It has no process yet, so there is nothing to run.".into(),
        ),
        JobState::suspended => advised(
            Kind::Suspended,
            Bad,
            "It was suspended, and nothing of it runs until it is resumed.".into(),
            format!("gang resume {id}"),
        ),
        JobState::sleeping | JobState::idle => {
            let long = if job.state == JobState::idle { "for long" } else { "at present" };
            advised(
                Kind::Asleep,
                Note,
                format!(
                    "It wants no CPU {long}: it waits for something else, such as input, a disk, \
                    the network or another process. It gets slots again as soon as it wants to run."
                ),
                format!(
                    "nothing here; look at what it waits for (gang show {id} lists its processes)"
                ),
            )
        }
        JobState::running | JobState::waiting if job.policy == Policy::none => finding(
            Kind::NotGangScheduled,
            Note,
            "Its policy is none: Linux alone schedules it, and it has no slots.".into(),
        ),
        JobState::running | JobState::waiting => None,
    }
}

/// More threads than CPUs: then it is never coscheduled as a whole.
fn width(Evidence { job, status, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let (id, threads, cpus) = (job.id, job.threads, job.cpus);
    // Threads that sleep do not count, and only what was measured tells them apart.
    let is_wide = threads > cpus && figures.coscheduled.is_some_and(|share| share < 0.5);
    if cpus > status.cpus {
        let machine = count(status.cpus, "CPU");
        return advised(
            Kind::TooWide,
            Grade::Bad,
            format!(
                "It asks for {cpus} CPUs and the machine has {machine}: its threads never all run."
            ),
            format!(
                "start it with {} (OMP_NUM_THREADS), and gang resize {id} -n {}",
                count(status.cpus, "thread"),
                status.cpus
            ),
        );
    }
    if !is_wide {
        return None;
    }
    let advice = if threads <= status.cpus {
        format!("gang resize {id} -n {threads}, or start it with {}", count(cpus, "thread"))
    } else {
        format!("start it with {} (OMP_NUM_THREADS={cpus})", count(cpus, "thread"))
    };
    advised(
        Kind::TooWide,
        Grade::Bad,
        format!(
            "It has {threads} threads for {}: some of them always wait for a CPU that others of \
            them have, and those wait for them.",
            count(cpus, "CPU")
        ),
        advice,
    )
}

/// What its share is, and whose the rest is.
fn share(Evidence { job, status, jobs }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let wanted = figures.share_wanted;
    if wanted >= 1.0 - SHARE_TOLERANCE {
        return finding(
            Kind::Share,
            Grade::Good,
            format!(
                "It may run all of the time, and was in its slot for {} of the last 10 s.",
                percent(figures.share_had)
            ),
        );
    }
    let mut rivals = Vec::new();
    if figures.competing_jobs > 0 {
        rivals.push(count(figures.competing_jobs as i64, "other job"));
    }
    if figures.competing_threads > 0 {
        rivals.push(format!("{} outside all jobs", count(figures.competing_threads, "thread")));
    }
    let beside = match rivals.is_empty() {
        true => String::new(),
        false => format!(" beside {}", rivals.join(" and ")),
    };
    let heavier = jobs.iter().any(|other| other.id != job.id && other.weight > job.weight);
    let weighs = if heavier { ", some of a greater weight" } else { "" };
    let text = format!(
        "Its share is {} of the time{beside}{weighs}; it was in its slot for {} of the last 10 s. So it \
         takes about {:.1} times as long as alone.",
        percent(wanted),
        percent(figures.share_had),
        1.0 / figures.share_had.max(wanted).max(0.001)
    );
    let advice = match (figures.competing_jobs, job.class == Class::batch) {
        (0, _) => "to have more, make jobs of the programs outside, or end them".to_owned(),
        (_, true) => format!(
            "to have more, give it more weight (gang resize {} --weight); interactive jobs weigh {} %",
            job.id, status.interactive_weight
        ),
        (_, false) => {
            format!("to have more, give it more weight (gang resize {} --weight)", job.id)
        }
    };
    advised(Kind::Share, Grade::Note, text, advice)
}

fn standby(Evidence { job, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let others = figures.competing_jobs > 0 || figures.competing_threads > 0;
    if job.class != Class::standby || !others {
        return None;
    }
    advised(
        Kind::Standby,
        Grade::Bad,
        "Its class is standby: it runs where nobody else wants the CPUs, and somebody does.".into(),
        format!("have an administrator put it into batch (gang class {} batch)", job.id),
    )
}

fn less_than_its_share(Evidence { job, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let missing = figures.share_wanted - figures.share_had;
    if missing <= SHARE_TOLERANCE {
        return None;
    }
    finding(
        Kind::LessThanItsShare,
        Grade::Note,
        format!(
            "That is {:.0} points less than its share: in part of the last 10 s it slept, was suspended \
             or had not begun, or its {} were not free at once.",
            missing * 100.0,
            count(job.cpus, "CPU")
        ),
    )
}

/// Who ran in its place.
fn lost(Evidence { job, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let lost = figures.lost.filter(|lost| *lost > LOST_MAX)?;
    let all: &[Culprit] = job.lost_to.as_deref().unwrap_or_default();
    let known_ns: i64 = all.iter().map(|culprit| culprit.ns).sum();
    let of_all = |culprit: &Culprit| {
        let part = culprit.ns as f64 / known_ns.max(job.lost_ns.unwrap_or(0)).max(1) as f64;
        let name = escaped(&culprit.name);
        format!("{name} ({}, {}) {:.0} %", culprit.pid, culprit.class, part * 100.0)
    };
    let worst: Vec<String> = all.iter().take(3).map(of_all).collect();
    let by_whom = match worst.is_empty() {
        true => String::new(),
        false => format!("; in its place ran {}", worst.join(", ")),
    };
    let text = format!(
        "In its slots it waited for {} of its CPUs' time ({} in all){by_whom}.",
        percent(lost),
        duration(job.lost_ns.unwrap_or(0))
    );
    let grade = if lost > 5.0 * LOST_MAX { Grade::Bad } else { Grade::Note };
    match all.first().and_then(remedy) {
        Some(advice) => advised(Kind::Lost, grade, text, advice),
        None => finding(Kind::Lost, grade, text),
    }
}

/// What to do about somebody who runs in the place of gangs.
fn remedy(culprit: &Culprit) -> Option<String> {
    let name = escaped(&culprit.name);
    match culprit.class.as_str() {
        "fifo" | "rr" | "deadline" => Some(format!(
            "{name} is a real-time program of its own; take its priority away (chrt -o -p 0 {}), or keep \
             it to CPUs that gangs do not have",
            culprit.pid
        )),
        "kernel" => Some(format!(
            "{name} is a thread of the kernel; what makes it busy (interrupts, disks, the network) can \
             often be moved to CPUs that gangs do not have"
        )),
        "idle CPU" => Some(
            "its CPUs fell asleep in its slots and had to wake; let its threads spin longer, or keep \
             CPUs from deep sleep"
                .to_owned(),
        ),
        _ => None,
    }
}

fn together(Evidence { job, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let share = figures.coscheduled?;
    let text =
        format!("All of its runnable threads ran for {} of the time in its slots.", percent(share));
    if share >= TOGETHER_GOOD {
        return finding(Kind::Together, Grade::Good, text);
    }
    let grade = if share < TOGETHER_LEAST { Grade::Bad } else { Grade::Note };
    // Where it has more threads than CPUs that is the reason, and told already.
    if job.threads > job.cpus && share < 0.5 {
        return None;
    }
    finding(Kind::NotTogether, grade, text)
}

fn skew(Evidence { status, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let skew_us = figures.skew_us_p99?;
    if skew_us * 1e3 <= SKEW_MAX * status.slice_ns as f64 {
        return None;
    }
    advised(
        Kind::Skew,
        Grade::Note,
        format!(
            "Its threads begin and end their slots up to {} apart, {} of a slice of {}.",
            duration((skew_us * 1e3) as i64),
            percent(skew_us * 1e3 / status.slice_ns.max(1) as f64),
            duration(status.slice_ns)
        ),
        "longer slices lose less at their edges (gangd --slice, or slice of its class)".to_owned(),
    )
}

/// It does not use the CPUs that it has.
fn unused(Evidence { job, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let busy = figures.busy?;
    // What it waited for in its slots is not its own doing.
    let wanted = busy + figures.lost.unwrap_or(0.0);
    if wanted >= BUSY_LEAST || job.cpus < 2 {
        return None;
    }
    let fits = ((wanted * job.cpus as f64).ceil() as i64).clamp(1, job.cpus - 1);
    advised(
        Kind::Unused,
        Grade::Bad,
        format!(
            "It runs on {:.1} of its {} on average while it is in its slot: its threads wait for each \
             other in turn (uneven work, serial phases) or for disks and networks.",
            busy * job.cpus as f64,
            count(job.cpus, "CPU")
        ),
        format!("ask for fewer CPUs, which come more often (gang resize {} -n {fits})", job.id),
    )
}

fn filling(_: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    let filled = figures.filled.filter(|filled| *filled >= 0.05)?;
    finding(
        Kind::Filling,
        Grade::Note,
        format!(
            "{} of its CPU time it had out of its slots, in holes that others left.",
            percent(filled)
        ),
    )
}

fn guarantee(Evidence { status, .. }: Evidence<'_>, _: &Figures) -> Option<Finding> {
    let what = match status.guarantee {
        Guarantee::exclusive => return None,
        Guarantee::preferred => "other programs can take a little of its place in its slots",
        Guarantee::paused => "other programs can run in its place in its slots",
    };
    let better = status
        .backends
        .iter()
        .find(|backend| backend.guarantee == Guarantee::exclusive && !backend.usable);
    let text = format!("The backend is {} ({}): {what}.", status.backend, word(&status.guarantee));
    match better.and_then(|backend| Some((&backend.name, backend.reason.as_ref()?))) {
        Some((name, reason)) => advised(
            Kind::WeakGuarantee,
            Grade::Note,
            text,
            format!("the backend {name} is stronger, and not used because {}", escaped(reason)),
        ),
        None => finding(Kind::WeakGuarantee, Grade::Note, text),
    }
}

fn cap(Evidence { status, .. }: Evidence<'_>, figures: &Figures) -> Option<Finding> {
    if status.cap >= 1.0 || figures.share_wanted < status.cap - SHARE_TOLERANCE {
        return None;
    }
    advised(
        Kind::Capped,
        Grade::Note,
        format!(
            "All gangs together may take {} of the machine, and it has that.",
            percent(status.cap)
        ),
        "an administrator can raise the cap (gangd --cap)".to_owned(),
    )
}

fn memory(Evidence { job, status, .. }: Evidence<'_>) -> Vec<Finding> {
    let of_job = || {
        let (promised, used) = (job.mem_bytes?, job.mem_used_bytes?);
        if !job.mem_enforced || (used as f64) < MEMORY_FULL * promised as f64 {
            return None;
        }
        advised(
            Kind::MemoryFull,
            Grade::Bad,
            format!(
                "It uses {} of the {} that it was promised, and the kernel lets it have no more: \
                it may spend its time getting pages back.",
                size(used),
                size(promised)
            ),
            format!("gang resize {} --mem", job.id),
        )
    };
    let of_machine = || {
        let memory = &status.memory;
        if memory.total <= 0 || memory.free as f64 >= MEMORY_LEAST * memory.total as f64 {
            return None;
        }
        advised(
            Kind::MachineMemoryFull,
            Grade::Bad,
            format!(
                "The machine has {} of its {} of memory free: programs may wait for pages.",
                size(memory.free),
                size(memory.total)
            ),
            "suspend or end jobs that use much (gang top, sorted by memory)".to_owned(),
        )
    };
    of_job().into_iter().chain(of_machine()).collect()
}

fn not_measured(job: &Job) -> Option<Finding> {
    let reason = escaped(job.not_measured.as_ref()?);
    finding(
        Kind::NotMeasured,
        Grade::Note,
        format!(
            "Whether its threads run together, and who keeps them from it, is not measured: {reason}."
        ),
    )
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
