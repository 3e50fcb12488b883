//! The reasons, one by one. Each function looks at the evidence by itself.

use gang_protocol::limits::THREADS_MAX;
use gang_protocol::name::escaped;
use gang_protocol::v1::{
    Class, CpuQuota, Crowded, Culprit, Decision, GlobalState, Guarantee, Job, JobState, Policy,
    ShortLived, Status,
};

use super::{Derived, Evidence, Finding, Grade, Kind, competes};
use crate::figures::COSCHEDULED_LEAST;
use crate::values::{count, cpus, duration, gain, moment, percent, size, word};

/// Parts of the CPUs of its slots that a gang may lose before it is worth a word.
const LOST_MAX: f64 = 0.01;
/// More than this is as good as it gets.
const COSCHEDULED_GOOD: f64 = 0.97;
/// Of its slots; with less, others could have the CPUs.
const BUSY_LEAST: f64 = 0.60;
/// By which shares may differ, over ten seconds.
const SHARE_TOLERANCE: f64 = 0.05;
/// Of a slice: what is lost at its edges where threads start and stop at different moments.
const SKEW_MAX: f64 = 0.05;
/// Of what it was promised, from where on the kernel keeps it short.
const MEMORY_FULL: f64 = 0.95;
/// The policy charges no more of a slice.
const OVERHEAD_MAX: f64 = 9.0;
/// Of the machine's memory that is free.
const MEMORY_LEAST: f64 = 0.03;

/// The threads of which a job has too many.
pub fn crowd(job: &Job) -> String {
    if let Some(Crowded { size, takes_ns, edge_ns, others_ns, .. }) = &job.crowded {
        let others = match others_ns {
            0 => String::new(),
            _ => format!(", of which other jobs need {}", duration(*others_ns)),
        };
        let (takes, edge) = (duration(*takes_ns), duration(*edge_ns));
        return format!("{size} threads, which take {takes} to switch; there is {edge}{others}");
    }
    let whose = if job.single_threads == Some(true) { " in its processes" } else { "" };
    format!("more than {THREADS_MAX} threads{whose}")
}

/// Why the CPUs do not do for a job.
fn too_few(job: &Job) -> String {
    match &job.unplaceable {
        Some(reason) => format!(
            "No slot can be made for it: {reason}. Linux alone schedules it until one can be made."
        ),
        None => format!("It needs {} CPUs at least, which is more than are online.", job.min_cpus),
    }
}

pub fn finding(kind: Kind, grade: Grade, text: String) -> Option<Finding> {
    Some(Finding { kind, grade, text, advice: None })
}

pub fn advised(kind: Kind, grade: Grade, text: String, advice: String) -> Option<Finding> {
    Some(Finding { kind, grade, text, advice: Some(advice) })
}

/// Its processes wait for messages that do not come.
pub fn messages(job: &Job) -> Option<Finding> {
    let net = job.net.as_ref()?;
    let since = moment(net.since_ns?);
    let advice = format!("gang snapshot {} says who waits for whom", job.id);
    match net.state {
        GlobalState::deadlocked => advised(
            Kind::Deadlocked,
            Grade::Bad,
            format!(
                "It is deadlocked since {since}: processes wait for messages that nobody can send \
                 any more."
            ),
            advice,
        ),
        GlobalState::stalled => advised(
            Kind::Stalled,
            Grade::Bad,
            format!(
                "It is stalled since {since}: all of its processes wait or poll for messages, and \
                 none goes."
            ),
            advice,
        ),
        GlobalState::running | GlobalState::terminated => None,
    }
}

/// Why the job has no slots at all.
pub fn standing(job: &Job) -> Option<Finding> {
    use Grade::{Bad, Note};
    let id = job.id;
    match job.state {
        JobState::too_many_threads => advised(
            Kind::Crowded,
            Bad,
            match &job.crowded {
                Some(Crowded { size_max, .. }) => format!(
                    "It has {}. It gets no slots until it has {size_max} threads at most.",
                    crowd(job)
                ),
                None => format!("It has {}; a job gets no slots until it has fewer.", crowd(job)),
            },
            "start fewer threads, or make several jobs of it".to_owned(),
        ),
        JobState::too_few_cpus => advised(
            Kind::TooFewCpus,
            Bad,
            too_few(job),
            format!(
                "gang set {id} --min N with fewer of them, let its threads run on more CPUs \
                 (taskset -p), or bring CPUs online"
            ),
        ),
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
        JobState::sleeping | JobState::idle if job.frozen_by.is_some() => {
            let by = escaped(job.frozen_by.as_deref().unwrap_or_default());
            let (group, advice) = match by.strip_suffix("/freezer.state") {
                Some(group) => (group, format!("write THAWED to {by}")),
                None => (&*by, format!("write 0 to {by}/cgroup.freeze")),
            };
            let said = format!("Somebody has frozen the cgroup {group}: nothing of it runs.");
            advised(Kind::Asleep, Bad, said, advice)
        }
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
        JobState::not_scheduled if job.decided() == Some(&Policy::none) => finding(
            Kind::NotGangScheduled,
            Note,
            "Its policy is auto, which was decided to be none: Linux alone schedules it, and it has no slots."
                .into(),
        ),
        JobState::not_scheduled => finding(
            Kind::NotGangScheduled,
            Note,
            "Its policy is none: Linux alone schedules it, and it has no slots.".into(),
        ),
        JobState::running | JobState::waiting => None,
    }
}

/// The decision on a job of policy auto, and its figures.
pub fn decided(job: &Job) -> Option<Finding> {
    let Decision { policy, gain: of, because } = job.decision.as_ref()?;
    let because = escaped(because);
    let gain = of.as_ref().map_or_else(String::new, |it| format!(" ({})", gain(it)));
    let text = match policy {
        None => format!("Its policy is auto, and it is a gang, as nothing is decided: {because}."),
        Some(policy) => {
            format!("Its policy is auto, decided to be {}{gain}: {because}.", word(policy))
        }
    };
    finding(Kind::Decided, Grade::Note, text)
}

/// It stays in the cgroups of its caller.
pub fn kept(job: &Job) -> Option<Finding> {
    let by = escaped(job.kept_by.as_ref()?);
    advised(
        Kind::KeptInItsGroups,
        Grade::Note,
        format!(
            "It stays in the cgroups of its caller, because of {by}: out of its slots it gives way \
             to others of these groups alone, and where that is a quota of CPU time it is preferred \
             in its slots, and not real-time."
        ),
        "[cgroups] leave = \"always\" in gangd.toml, where no such limit needs to hold".to_owned(),
    )
}

/// More threads than CPUs: then it is never coscheduled as a whole.
pub fn width(Evidence { job, status, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let (id, threads, cpus) = (job.id, job.threads, job.cpus);
    // Threads that sleep do not count, and only a measurement distinguishes them.
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
                "start it with {} (OMP_NUM_THREADS), and gang set {id} -n {}",
                count(status.cpus, "thread"),
                status.cpus
            ),
        );
    }
    // Threads that come and go are not there to wait for each other.
    if !is_wide || job.short_lived.is_some() {
        return None;
    }
    let advice = if threads <= status.cpus {
        format!("gang set {id} -n {threads}, or start it with {}", count(cpus, "thread"))
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

/// Its threads live too short to be switched one by one.
pub fn short_lived(Evidence { job, .. }: Evidence<'_>, _: &Derived) -> Option<Finding> {
    let text = "Its threads or processes live too short to be switched one by one";
    match job.short_lived.as_ref()? {
        ShortLived::weighed => finding(
            Kind::ShortLived,
            Grade::Note,
            format!(
                "{text}, so that it is weighed as a whole: in its slots it has the highest weight of \
                 all, and out of them it gives way."
            ),
        ),
        ShortLived::unweighed => advised(
            Kind::ShortLived,
            Grade::Bad,
            format!(
                "{text}, and it cannot have a group of the cpu controller that weighs it as a whole: \
                 what it starts gives way to others, also in its slots."
            ),
            format!("let Linux alone schedule it (gang set {} --policy none)", job.id),
        ),
    }
}

/// An administrator has set what its owner's jobs have at most.
pub fn user_cap(Evidence { job, .. }: Evidence<'_>, _: &Derived) -> Option<Finding> {
    let cap = job.user_cap?;
    advised(
        Kind::UserCap,
        Grade::Note,
        format!(
            "The jobs of its owner have no more than {} of the CPUs together, also where nobody else \
             wants them.",
            percent(cap)
        ),
        "have an administrator raise the cap ([users] or [groups] in gangd.toml)".to_owned(),
    )
}

/// A quota of CPU time binds it. One that its gangs cannot use up takes nothing from them.
pub fn cpu_quota(Evidence { job, .. }: Evidence<'_>, _: &Derived) -> Option<Finding> {
    let CpuQuota { cpus: quota, by } = job.cpu_quota.as_ref()?;
    advised(
        Kind::CpuQuota,
        Grade::Note,
        format!(
            "Its cgroup may use {} at most, because of {}: the gangs of that group have no more in \
             their slots together, also where nobody else wants CPUs, and out of them Linux \
             throttles it.",
            cpus(*quota),
            escaped(by)
        ),
        "raise that quota, or start it where there is none".to_owned(),
    )
}

/// It pays for the switches of its threads.
pub fn overhead(Evidence { job, .. }: Evidence<'_>, _: &Derived) -> Option<Finding> {
    if job.overhead <= 0.0 {
        return None;
    }
    advised(
        Kind::Overhead,
        Grade::Note,
        format!(
            "Switching its {} takes {} of a slice, which it is charged: it weighs {:.0} instead of {}.",
            count(job.threads, "thread"),
            percent(job.overhead),
            job.weight as f64 / (1.0 + job.overhead.min(OVERHEAD_MAX)),
            job.weight
        ),
        "start fewer threads, also of those that only wait".to_owned(),
    )
}

/// The share of the job, and the owners of the rest.
pub fn share(evidence: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let Evidence { job, status, jobs, .. } = evidence;
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
    let by_user = status.shares == gang_protocol::v1::Shares::equal;
    let shares =
        |other: &&&Job| other.id != job.id && !(by_user && other.owner_uid != job.owner_uid);
    let heavier = jobs.iter().filter(shares).any(|other| other.weight > job.weight);
    let weighs = if heavier { ", some of a greater weight" } else { "" };
    let text = format!(
        "Its share is {} of the time{beside}{weighs}; it was in its slot for {} of the last 10 s. So it \
         takes about {:.1} times as long as alone.",
        percent(wanted),
        percent(figures.share_had),
        1.0 / figures.share_had.max(wanted).max(0.001)
    );
    let is_alone = by_user && !jobs.iter().filter(shares).any(|other| competes(other));
    let advice = match (figures.competing_jobs, job.class == Class::batch) {
        (1.., _) if is_alone => {
            "the others are other users', who have as much; an administrator gives shares ([users] \
             in gangd.toml)"
                .to_owned()
        }
        (0, _) => "to have more, make jobs of the programs outside, or end them".to_owned(),
        (_, true) => format!(
            "to have more, give it more weight (gang set {} --weight); interactive jobs weigh {} %",
            job.id, status.interactive_weight
        ),
        (_, false) => {
            format!("to have more, give it more weight (gang set {} --weight)", job.id)
        }
    };
    advised(Kind::Share, Grade::Note, text, advice)
}

pub fn standby(Evidence { job, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let others = figures.competing_jobs > 0 || figures.competing_threads > 0;
    if job.class != Class::standby || !others {
        return None;
    }
    advised(
        Kind::Standby,
        Grade::Bad,
        "Its class is standby: it runs where nobody else wants the CPUs, and somebody does.".into(),
        format!("have an administrator put it into batch (gang set {} --class batch)", job.id),
    )
}

pub fn less_than_its_share(
    Evidence { job, .. }: Evidence<'_>,
    figures: &Derived,
) -> Option<Finding> {
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

/// The processes that ran in its place.
pub fn lost(Evidence { job, status, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let lost = figures.lost.filter(|lost| *lost > LOST_MAX)?;
    let lost_ns = job.measured.as_ref()?.lost_ns;
    let all = culprits(job, status);
    let known_ns: i64 = all.iter().map(|culprit| culprit.ns).sum();
    let of_all = |culprit: &Culprit| {
        let part = culprit.ns as f64 / known_ns.max(lost_ns).max(1) as f64;
        let who = match culprit.sched_policy.as_str() {
            GANGD => "gangd itself".to_owned(),
            // Its number is hidden, or is another one here.
            policy if culprit.pid == 0 => format!("{} ({policy})", escaped(&culprit.name)),
            policy => format!("{} ({}, {policy})", escaped(&culprit.name), culprit.pid),
        };
        format!("{who} {:.0} %", part * 100.0)
    };
    let worst: Vec<String> = all.iter().take(3).map(of_all).collect();
    let by_whom = match worst.is_empty() {
        true => String::new(),
        false => format!("; in its place ran {}", worst.join(", ")),
    };
    let text = format!(
        "In its slots it waited for {} of its CPUs' time ({} in all){by_whom}.",
        percent(lost),
        duration(lost_ns)
    );
    let grade = if lost > 5.0 * LOST_MAX { Grade::Bad } else { Grade::Note };
    match all.first().and_then(remedy) {
        Some(advice) => advised(Kind::Lost, grade, text, advice),
        None => finding(Kind::Lost, grade, text),
    }
}

/// The time that it left to others in its slots.
pub fn gave_way(Evidence { job, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let times = job.measured.as_ref()?.gave_way;
    let share = figures.gave_way.filter(|_| times > 0)?;
    let text = format!(
        "In its slots it gave way to real-time threads of its priority {}, for {} of its CPUs' time.",
        count(times, "time"),
        percent(share)
    );
    finding(Kind::GaveWay, Grade::Note, text)
}

/// The word here for the scheduling policy of gangd's own threads.
const GANGD: &str = "gangd";

/// The processes that ran in the place of the job, the worst first. The threads of the daemon count
/// as one.
fn culprits(job: &Job, status: &Status) -> Vec<Culprit> {
    let all = job.measured.as_ref().and_then(|it| it.lost_to.as_deref()).unwrap_or_default();
    let is_own =
        |culprit: &&Culprit| culprit.pid == status.pid || Some(culprit.pid) == status.guardian_pid;
    let own_ns: i64 = all.iter().filter(is_own).map(|culprit| culprit.ns).sum();
    let mut found: Vec<Culprit> = all.iter().filter(|of| !is_own(of)).cloned().collect();
    if own_ns > 0 {
        let (name, sched_policy) = ("gangd".to_owned(), GANGD.to_owned());
        found.push(Culprit { name, pid: status.pid, sched_policy, ns: own_ns });
    }
    found.sort_by_key(|culprit| -culprit.ns);
    found
}

/// The remedy for a process that runs in the place of gangs.
fn remedy(culprit: &Culprit) -> Option<String> {
    let name = escaped(&culprit.name);
    match culprit.sched_policy.as_str() {
        "fifo" | "rr" | "deadline" => Some(format!(
            "{name} is a real-time program of its own; take its priority away (chrt -o -p 0 {}), or keep \
             it to CPUs that gangs do not have",
            culprit.pid
        )),
        "kernel" => Some(format!(
            "{name} is a thread of the kernel; what makes it busy (interrupts, disks, the network) can \
             often be moved to CPUs that gangs do not have"
        )),
        GANGD => Some(
            "what gangd takes is that of its switches: longer slices have fewer of them (gangd --slice, or \
             slice of its class)"
                .to_owned(),
        ),
        "idle CPU" => Some(
            "its CPUs fell asleep in its slots and had to wake; let its threads spin longer, or keep \
             CPUs from deep sleep"
                .to_owned(),
        ),
        _ => None,
    }
}

pub fn coscheduled(Evidence { job, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let share = figures.coscheduled?;
    let text =
        format!("All of its runnable threads ran for {} of the time in its slots.", percent(share));
    if share >= COSCHEDULED_GOOD {
        return finding(Kind::Coscheduled, Grade::Good, text);
    }
    let grade = if share < COSCHEDULED_LEAST { Grade::Bad } else { Grade::Note };
    // If it has more threads than CPUs, or short-lived ones, that is the reason, and another
    // finding says so.
    if (job.threads > job.cpus && share < 0.5) || job.short_lived.is_some() {
        return None;
    }
    finding(Kind::NotCoscheduled, grade, text)
}

pub fn skew(Evidence { status, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let skew_ns = figures.skew_ns_p99?;
    if skew_ns as f64 <= SKEW_MAX * status.slice_ns as f64 {
        return None;
    }
    advised(
        Kind::Skew,
        Grade::Note,
        format!(
            "Its threads begin and end their slots up to {} apart, {} of a slice of {}.",
            duration(skew_ns),
            percent(skew_ns as f64 / status.slice_ns.max(1) as f64),
            duration(status.slice_ns)
        ),
        "longer slices lose less at their edges (gangd --slice, or slice of its class)".to_owned(),
    )
}

/// It does not use the CPUs that it has.
pub fn unused(Evidence { job, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    let busy = figures.busy?;
    // Its waits in its slots are not its own doing.
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
        format!("ask for fewer CPUs, which come more often (gang set {} -n {fits})", job.id),
    )
}

pub fn filling(_: Evidence<'_>, figures: &Derived) -> Option<Finding> {
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

pub fn guarantee(Evidence { status, .. }: Evidence<'_>, _: &Derived) -> Option<Finding> {
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

pub fn gang_share_max(Evidence { status, .. }: Evidence<'_>, figures: &Derived) -> Option<Finding> {
    if status.gang_share_max >= 1.0
        || figures.share_wanted < status.gang_share_max - SHARE_TOLERANCE
    {
        return None;
    }
    advised(
        Kind::GangShareMax,
        Grade::Note,
        format!(
            "All gangs together may take {} of the machine, and it has that.",
            percent(status.gang_share_max)
        ),
        "an administrator can let gangs take more (gangd --gang-share-max)".to_owned(),
    )
}

pub fn memory(Evidence { job, status, .. }: Evidence<'_>) -> Vec<Finding> {
    let of_job = || {
        let (promised, used) = (job.promised_memory()?, job.used_memory()?);
        if !job.is_memory_enforced() || (used as f64) < MEMORY_FULL * promised as f64 {
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
            format!("gang set {} --mem", job.id),
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

pub fn not_measured(job: &Job) -> Option<Finding> {
    let reason = escaped(job.not_measured.as_ref()?);
    finding(
        Kind::NotMeasured,
        Grade::Note,
        format!(
            "Whether its threads are coscheduled, and by whom they are delayed, is not measured: {reason}."
        ),
    )
}
