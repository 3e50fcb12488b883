//! All that is known of a job, as text.

use std::fmt::Write;

use gang_protocol::name::escaped;
use gang_protocol::v1;

use crate::figures::{FIGURES, Figure};
use crate::live::JobView;
use crate::spanning::Spanning;
use crate::table::{Align, render};
use crate::values::{cpus, duration, flushes, gain, moment, word};
use crate::why::crowd;

/// The share of a job on each CPU.
fn by_cpu(out: &mut String, of_cpus: &[v1::OnCpu], width: Option<usize>) -> std::fmt::Result {
    if of_cpus.is_empty() {
        return Ok(());
    }
    let columns = [
        ("CPU", Align::Right),
        ("IN SLOT", Align::Right),
        ("LOST", Align::Right),
        ("OUT OF SLOT", Align::Right),
    ];
    let row = |it: &v1::OnCpu| {
        let times = [it.in_slot_ns, it.lost_ns, it.filled_ns].map(duration);
        std::iter::once(it.cpu.to_string()).chain(times).collect()
    };
    let rows: Vec<Vec<String>> = of_cpus.iter().map(row).collect();
    write!(out, "\n{}", render(&columns, &rows, width))
}

/// The decision on a job of policy auto.
fn decision(job: &v1::Job) -> Option<String> {
    let v1::Decision { policy, gain: of, because } = job.decision.as_ref()?;
    let policy = policy.as_ref().map_or_else(|| "nothing, so gang".into(), word);
    let gain = of.as_ref().map_or_else(String::new, |it| format!(", {}", gain(it)));
    Some(format!("{policy}{gain}: {because}"))
}

/// The guarantee of a job that stays in the cgroups of its caller.
fn guarantee_left(job: &v1::Job) -> Option<&'static str> {
    let kept_by = job.kept_by.as_deref()?;
    // These bind ordinary threads alone, or let nobody be real-time.
    let is_of_cpu_time = ["cpu.max ", "cpu.cfs_quota_us ", "cpu.rt_runtime_us "]
        .iter()
        .any(|file| kept_by.starts_with(file));
    Some(if is_of_cpu_time {
        "preferred in its slots, not real-time; gives way to others of these groups alone"
    } else {
        "all its slots; out of them it gives way to others of these groups alone"
    })
}

/// A remark that follows the value of a figure.
fn remark(figure: &Figure, job: &v1::Job) -> String {
    use v1::JobState::{running, too_many_threads, waiting};
    match (figure.name, &job.state) {
        ("state", too_many_threads) => format!(": no slots with {}", crowd(job)),
        ("state", running | waiting) if job.uncontended => {
            ", left to Linux as long as nobody else wants a CPU".to_owned()
        }
        ("threads", _) if job.single_threads == Some(true) => {
            ", without their processes".to_owned()
        }
        ("threads", _) if job.short_lived == Some(v1::ShortLived::weighed) => {
            ", which live too short to be switched: it is weighed as a whole".to_owned()
        }
        _ => String::new(),
    }
}

/// Why a figure has no value; nothing where it does not apply to the job.
fn absence(figure: &Figure, job: &v1::Job) -> Option<&'static str> {
    match figure.name {
        "coscheduled" if job.not_measured.is_some() => None,
        "coscheduled" if job.slots > 0 => Some("wanted no CPU in its slots yet"),
        "coscheduled" => Some("had no slot yet"),
        _ => None,
    }
}

/// A job and its processes, and its hosts where it spans some, at a moment (UTC), as wide as a
/// terminal is. Everything unprintable is
/// escaped.
pub fn text(
    reply: &v1::ShowJob_Reply,
    spanning: Option<Spanning<'_>>,
    now_ns: i64,
    width: Option<usize>,
) -> String {
    let mut out = String::new();
    // Nothing fails that is written to a string.
    let _ = write(&mut out, reply, spanning, now_ns, width);
    out
}

fn write(
    out: &mut String,
    reply: &v1::ShowJob_Reply,
    spanning: Option<Spanning<'_>>,
    now_ns: i64,
    width: Option<usize>,
) -> std::fmt::Result {
    let view = JobView::alone(reply.details.clone());
    let job = &view.job;
    writeln!(out, "job {}: {}", job.id, escaped(&job.name))?;
    let mut line = |title: &str, text: &str| writeln!(out, "  {title:<18}  {}", escaped(text));
    let shown = FIGURES.iter().filter(|figure| !["id", "name"].contains(&figure.name));
    for figure in shown {
        let value = figure.value(&view).map(|value| figure.text(&value, now_ns));
        if let Some(text) = value.or_else(|| absence(figure, job).map(str::to_owned)) {
            line(figure.title, &(text + &remark(figure, job)))?;
        }
    }
    let decided = decision(job);
    let quota = job.cpu_quota.as_ref().map(|it| format!("{}, by {}", cpus(it.cpus), it.by));
    let signals = job.signals.then_some("SIGUSR1 before a slot ends, SIGUSR2 after one has begun");
    let flushed = job.net.as_ref().map(|net| flushes(&net.flushes));
    let program = job.net.as_ref().map(|net| {
        let since = net.since_ns.map_or_else(String::new, |ns| format!(" since {}", moment(ns)));
        word(&net.state) + &since
    });
    for (title, text) in [
        ("decided", decided.as_deref()),
        ("signals", signals),
        ("CPU quota", quota.as_deref()),
        ("kept in its groups", job.kept_by.as_deref()),
        ("guarantee left", guarantee_left(job)),
        ("frozen by", job.frozen_by.as_deref()),
        ("not measured", job.not_measured.as_deref()),
        ("flushes", flushed.as_deref()),
        ("program", program.as_deref()),
    ] {
        text.map_or(Ok(()), |text| line(title, text))?;
    }
    let measured = job.measured.as_ref();
    for culprit in measured.and_then(|it| it.lost_to.as_ref()).into_iter().flatten() {
        let v1::Culprit { name, pid, sched_policy, ns } = culprit;
        line("lost to", &format!("{name} ({pid}, {sched_policy}): {}", duration(*ns)))?;
    }
    if let Some(spanning) = spanning {
        out.push_str(&spanning.text(width));
    }
    let of_cpus = measured.and_then(|measured| measured.per_cpu.as_deref());
    by_cpu(&mut *out, of_cpus.unwrap_or_default(), width)?;
    if let Some(processes) = reply.processes.as_ref().filter(|list| !list.is_empty()) {
        // Of single threads their numbers, of the others how many there are.
        let heading = if job.single_threads == Some(true) { "TIDS" } else { "THREADS" };
        let columns = [("PID", Align::Right), (heading, Align::Right), ("COMMAND", Align::Shrink)];
        let row = |process: &v1::Process| {
            vec![process.pid.to_string(), threads(process), process.command.clone()]
        };
        let rows: Vec<_> = processes.iter().map(row).collect();
        write!(out, "\n{}", render(&columns, &rows, width))?;
    }
    Ok(())
}

/// Numbers of threads that are listed one by one.
const TIDS_SHOWN: usize = 8;

fn threads(process: &v1::Process) -> String {
    let Some(tids) = &process.tids else { return process.threads.to_string() };
    let shown: Vec<String> = tids.iter().take(TIDS_SHOWN).map(i64::to_string).collect();
    match tids.len().saturating_sub(TIDS_SHOWN) {
        0 => shown.join(","),
        more => format!("{} and {more} more", shown.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_part_is_shown_with_the_hosts_of_its_job() {
        let cluster = fixture::cluster();
        let spanning = Spanning::find(Some(&cluster), fixture::SPANNING);
        let details = fixture::job(fixture::SPANNING, "lu");
        let shown = text(&v1::ShowJob_Reply { details, processes: None }, spanning, 0, None);
        assert!(shown.contains("  threads             2\n"), "{shown}");
        assert!(shown.ends_with(&spanning.unwrap().text(None)), "{shown}");
    }

    #[test]
    fn too_many_threads_are_shown_with_their_limit() {
        let of = |threads, single_threads| {
            let state = v1::JobState::too_many_threads;
            let details = v1::Job { threads, state, single_threads, ..fixture::job(1, "bomb") };
            text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None)
        };
        let state =
            "  state               too many threads: no slots with more than 4096 threads\n";
        assert!(of(4096, Some(false)).contains(state), "{}", of(4096, None));
        let state = "too many threads: no slots with more than 4096 threads in its processes\n";
        assert!(of(2, Some(true)).contains(state), "{}", of(2, Some(true)));
    }

    #[test]
    fn what_lowers_the_share_of_a_job_is_shown() {
        let job = v1::Job { overhead: 0.013, user_cap: Some(0.5), ..fixture::job(1, "pool") };
        let shown = |details| text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None);
        let capped = shown(job);
        for line in ["pays for switches   1.3 %", "owner's cap         50.0 %"] {
            assert!(capped.contains(line), "{capped}");
        }
        let other = shown(fixture::job(1, "pool"));
        assert!(!other.contains("owner's cap") && !other.contains("switches"), "{other}");
    }

    #[test]
    fn quota_of_cpu_time_is_shown_with_its_file() {
        let of = |cpus: f64| {
            let quota = v1::CpuQuota { cpus, by: "cpu.max of /pod".into() };
            let details = v1::Job { cpu_quota: Some(quota), ..fixture::job(1, "pool") };
            text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None)
        };
        for (cpus, shown) in [(0.5, "0.5 CPUs"), (1.0, "1 CPU"), (2.0, "2 CPUs")] {
            let line = format!("  CPU quota           {shown}, by cpu.max of /pod\n");
            assert!(of(cpus).contains(&line), "{}", of(cpus));
        }
    }

    #[test]
    fn job_kept_in_its_groups_is_shown_with_what_is_left() {
        let of = |kept_by: Option<&str>| {
            let kept_by = kept_by.map(str::to_owned);
            let details = v1::Job { kept_by, ..fixture::job(1, "lodged") };
            text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None)
        };
        let left = "  guarantee left      ";
        for by in ["cpu.max of /user.slice", "cpu.rt_runtime_us of /cpu/step"] {
            let shown = of(Some(by));
            assert!(shown.contains(&format!("  kept in its groups  {by}\n")), "{shown}");
            assert!(shown.contains(&format!("{left}preferred in its slots, not real")), "{shown}");
        }
        for by in ["pids.max of /user.slice", "the setting [cgroups] leave"] {
            let shown = of(Some(by));
            assert!(shown.contains(&format!("{left}all its slots; out of them it gi")), "{shown}");
        }
        assert!(!of(None).contains(left));
    }

    #[test]
    fn crowded_job_is_shown_with_its_times() {
        let (takes_ns, others_ns, edge_ns) = (1_500_000, 0, 1_000_000);
        let crowded = v1::Crowded { size: 1500, size_max: 875, takes_ns, others_ns, edge_ns };
        let state = v1::JobState::too_many_threads;
        let details = v1::Job { state, crowded: Some(crowded), ..fixture::job(1, "pool") };
        let text = text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None);
        let state = "no slots with 1500 threads, which take 1.5 ms to switch; there is 1 ms\n";
        assert!(text.contains(state), "{text}");
    }

    #[test]
    fn a_job_that_is_left_to_linux_is_shown_so() {
        let of = |uncontended| {
            let details = v1::Job { uncontended, ..fixture::job(1, "lu") };
            text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None)
        };
        let state =
            "  state               running, left to Linux as long as nobody else wants a CPU\n";
        assert!(of(true).contains(state), "{}", of(true));
        assert!(of(false).contains("  state               running\n"));
    }

    #[test]
    fn a_gang_that_wanted_no_cpu_in_its_slots_had_them() {
        let of = |slots| {
            let mut details = v1::Job { slots, ..fixture::job(1, "sleeps") };
            details.measured.as_mut().unwrap().coscheduled = None;
            text(&v1::ShowJob_Reply { details, processes: None }, None, 0, None)
        };
        assert!(of(0).contains("had no slot yet"), "{}", of(0));
        assert!(of(7).contains("wanted no CPU in its slots yet"), "{}", of(7));
    }

    #[test]
    fn single_threads_are_shown_by_their_numbers() {
        let of = |tids: std::ops::Range<i64>| {
            let threads = tids.end - tids.start;
            let details =
                v1::Job { threads, single_threads: Some(true), ..fixture::job(1, "server") };
            let tids = Some(tids.collect());
            let process = v1::Process { pid: 7, threads, command: "serve".into(), tids };
            text(&v1::ShowJob_Reply { details, processes: Some(vec![process]) }, None, 0, None)
        };
        assert!(of(8..9).contains("  threads             1, without their processes\n"));
        let two = of(8..10);
        assert!(two.contains("  threads             2, without their processes\n"), "{two}");
        assert!(two.contains("8,9"), "{two}");
        assert!(of(10..22).contains("10,11,12,13,14,15,16,17 and 4 more"));
    }
}
