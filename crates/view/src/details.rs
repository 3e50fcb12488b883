//! All that is known of a job, as text.

use std::fmt::Write;

use gang_protocol::name::escaped;
use gang_protocol::v1;

use crate::table::{Align, render};
use crate::values::{count, cpu_list, duration, gain, owner, percent, progress, size, word, words};
use crate::why::crowd;

/// The figures measured of a job, or why there are none.
fn measured(out: &mut String, job: &v1::Job) -> std::fmt::Result {
    if let Some(reason) = &job.not_measured {
        return writeln!(out, "  together    not measured: {}", escaped(reason));
    }
    let Some(measured) = &job.measured else { return Ok(()) };
    match (measured.coscheduled, measured.skew_ns_p99) {
        (None, _) if job.slots > 0 => {
            writeln!(out, "  together    wanted no CPU in its slots yet")?;
        }
        (None, _) => writeln!(out, "  together    had no slot yet")?,
        (Some(share), None) => writeln!(out, "  together    {} of its slots", percent(share))?,
        (Some(share), Some(skew_ns)) => writeln!(
            out,
            "  together    {} of its slots; 99 % of them begin and end within {}",
            percent(share),
            duration(skew_ns)
        )?,
    }
    writeln!(
        out,
        "  waited      {} in slot, {} out of slot; ran {} out of slot",
        duration(measured.lost_ns),
        duration(measured.waiting_ns),
        duration(measured.filled_ns)
    )?;
    for culprit in measured.lost_to.iter().flatten() {
        let (name, ns) = (escaped(&culprit.name), duration(culprit.ns));
        writeln!(out, "  lost to     {name} ({}, {}): {ns}", culprit.pid, culprit.sched_policy)?;
    }
    Ok(())
}

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
fn decided(out: &mut String, job: &v1::Job) -> std::fmt::Result {
    let Some(v1::Decision { policy, gain: of, because }) = &job.decision else { return Ok(()) };
    let policy = policy.as_ref().map_or_else(|| "nothing, so gang".into(), word);
    let gain = of.as_ref().map_or_else(String::new, |it| format!(", {}", gain(it)));
    writeln!(out, "  decided     {policy}{gain}: {}", escaped(because))
}

/// A job and its processes, at a moment (UTC), as wide as a terminal is. Everything unprintable is
/// escaped.
pub fn text(reply: &v1::ShowJob_Reply, now_ns: i64, width: Option<usize>) -> String {
    let mut out = String::new();
    // Nothing fails that is written to a string.
    let _ = write(&mut out, reply, now_ns, width);
    out
}

fn write(
    out: &mut String,
    reply: &v1::ShowJob_Reply,
    now_ns: i64,
    width: Option<usize>,
) -> std::fmt::Result {
    let job = &reply.details;
    writeln!(out, "job {}: {}", job.id, escaped(&job.name))?;
    writeln!(out, "  owner       {}", escaped(&owner(job.owner_uid)))?;
    writeln!(
        out,
        "  class       {}, weight {}, policy {}",
        word(&job.class),
        job.weight,
        word(&job.policy)
    )?;
    decided(out, job)?;
    let state = words(&job.state);
    match (&job.state, job.uncontended) {
        (v1::JobState::too_many_threads, _) => {
            writeln!(out, "  state       {state}: no slots with {}", crowd(job))?;
        }
        (v1::JobState::running | v1::JobState::waiting, true) => {
            writeln!(
                out,
                "  state       {state}, left to Linux as long as nobody else wants a CPU"
            )?;
        }
        _ => writeln!(out, "  state       {state}")?,
    }
    writeln!(
        out,
        "  cpus        {} (at least {}), on {}",
        job.cpus,
        job.min_cpus,
        cpu_list(&job.cpu_list)
    )?;
    writeln!(
        out,
        "  share       {} over the last 10 s, {} wanted",
        percent(job.share_had),
        percent(job.share_wanted)
    )?;
    writeln!(out, "  slots       {}, {} in slot", job.slots, duration(job.in_slot_ns))?;
    writeln!(out, "  CPU time    {}", duration(job.cpu_time_ns))?;
    if let Some((share, v1::Progress { done, total, at_ns })) =
        progress(job).zip(job.progress.as_ref())
    {
        let age = duration(now_ns.saturating_sub(*at_ns));
        writeln!(out, "  progress    {}, {done} of {total}, told {age} ago", percent(share))?;
    }
    let age = now_ns.saturating_sub(job.registered_at_ns);
    writeln!(out, "  registered  {} ago", duration(age))?;
    measured(out, job)?;
    if let Some(v1::Memory { promised_bytes, used_bytes, enforced }) = &job.memory {
        let kept = if *enforced { "enforced" } else { "not enforced" };
        let used =
            used_bytes.map_or_else(|| "use unknown".into(), |used| format!("{} used", size(used)));
        writeln!(out, "  memory      {} promised, {kept}, {used}", size(*promised_bytes))?;
    }
    if let Some(disk) = job.disk_bytes {
        writeln!(out, "  disk        {} promised", size(disk))?;
    }
    if job.signals {
        writeln!(out, "  signals     SIGUSR1 before a slot ends, SIGUSR2 after one has begun")?;
    }
    if let Some(cgroup) = &job.cgroup {
        writeln!(out, "  cgroup      {}", escaped(cgroup))?;
    }
    match job.single_threads {
        Some(true) => writeln!(out, "  holds       {}", count(job.threads, "single thread"))?,
        _ => writeln!(
            out,
            "  holds       {}, {}",
            count(job.processes, "process"),
            count(job.threads, "thread")
        )?,
    }
    let of_cpus = job.measured.as_ref().and_then(|measured| measured.per_cpu.as_deref());
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
    fn whoever_has_too_many_threads_is_told_why_it_has_no_slots() {
        let of = |threads, single_threads| {
            let state = v1::JobState::too_many_threads;
            let details = v1::Job { threads, state, single_threads, ..fixture::job(1, "bomb") };
            text(&v1::ShowJob_Reply { details, processes: None }, 0, None)
        };
        let told = "  state       too many threads: no slots with more than 4096 threads\n";
        assert!(of(4096, Some(false)).contains(told), "{}", of(4096, None));
        let told = "too many threads: no slots with more than 4096 threads in its processes\n";
        assert!(of(2, Some(true)).contains(told), "{}", of(2, Some(true)));
    }

    #[test]
    fn whoever_is_left_to_linux_is_told() {
        let of = |uncontended| {
            let details = v1::Job { uncontended, ..fixture::job(1, "lu") };
            text(&v1::ShowJob_Reply { details, processes: None }, 0, None)
        };
        let told = "  state       running, left to Linux as long as nobody else wants a CPU\n";
        assert!(of(true).contains(told), "{}", of(true));
        assert!(of(false).contains("  state       running\n"));
    }

    #[test]
    fn a_gang_that_wanted_no_cpu_in_its_slots_had_them() {
        let of = |slots| {
            let mut details = v1::Job { slots, ..fixture::job(1, "sleeps") };
            details.measured.as_mut().unwrap().coscheduled = None;
            text(&v1::ShowJob_Reply { details, processes: None }, 0, None)
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
            text(&v1::ShowJob_Reply { details, processes: Some(vec![process]) }, 0, None)
        };
        assert!(of(8..9).contains("  holds       1 single thread\n"));
        let two = of(8..10);
        assert!(two.contains("  holds       2 single threads\n"), "{two}");
        assert!(two.contains("8,9"), "{two}");
        assert!(of(10..22).contains("10,11,12,13,14,15,16,17 and 4 more"));
    }
}
