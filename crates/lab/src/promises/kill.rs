//! The time from a kill of the caller's group (`cgroup.kill`), at any moment of the slices, until
//! no thread of its gangs runs: of gangs below that group, and of gangs that have left it, which
//! gangd kills.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
    sched::{self, Attributes},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Lab, Span};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::Estimate;
use crate::harness::wait::TIME_LIMIT;
use crate::promises::list;
use crate::workload::window::sleep_until_ns;

const GONE: &str = "gone_after_ms";
/// The conditions, and whether jobs leave the group in which they were called.
const CONDITIONS: [(&str, bool); 2] = [("below the group", false), ("out of the group", true)];
/// Above every gang, so that the end is seen while they hold the CPUs.
const WATCHER_PRIORITY: u32 = 99;
/// Moves itself into a group, and becomes the program.
const ENTER: &str = r#"echo 0 > "$1/cgroup.procs" && shift && exec "$@""#;

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no gangs to kill")?;
    let conditions = CONDITIONS.map(|(name, leaves)| {
        Condition::new(name, move |lab: &Lab| measure(lab, leaves, fastrand::u64(0..100_000_000)))
    });
    // A kill takes a second, and its worst case matters: more rounds than elsewhere.
    let run = alternate(lab, "kill", lab.runs() * 3, &conditions)?;
    let about = "time until no thread of two gangs runs after a kill of the caller's group";
    let mut report = Report::new(lab, about, run, GONE);
    let of = |(name, _): &(&str, bool)| report.samples(name, GONE).unwrap_or_default();
    let all: Vec<f64> = CONDITIONS.iter().flat_map(of).copied().collect();
    let worst = all.iter().copied().reduce(f64::max);
    let worst = worst.map(|value| Estimate { value, interval: None, samples: all.len() });
    report.promise(&list::KILL, worst);
    Ok(report)
}

/// A group as of a session, which is removed when this is dropped.
struct CallersGroup(Group);

impl CallersGroup {
    fn new() -> Result<CallersGroup> {
        let root = Hierarchies::detect(&Roots::default())?.v2;
        let root =
            root.context("groups are killed in cgroups of version 2, which are not there")?;
        let group = Group::at(root).child(format!("gang-lab-kill-{}", std::process::id()));
        group.create()?;
        Ok(CallersGroup(group))
    }

    /// Starts a program as from a shell in the group.
    fn start(&self, program: &Command) -> Result<Running> {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "sh"]).arg(self.0.path());
        command.arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(&mut command)
    }
}

impl Drop for CallersGroup {
    fn drop(&mut self) {
        // Those that were killed are in it until they have ended, and groups of jobs are below it
        // until gangd has removed them.
        let end = Instant::now() + TIME_LIMIT;
        while self.0.remove().is_err() && self.0.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn measure(lab: &Lab, leaves: bool, moment_ns: u64) -> Result<Sample> {
    let options = DaemonOptions { leaves_groups: leaves, ..DaemonOptions::default() };
    let daemon = lab.daemon(&lab.settings(options))?;
    let caller = CallersGroup::new()?;
    let span = Span::soon(Duration::from_secs(10));
    let hog = format!("hog --threads {}", lab.threads());
    let mut gangs = Vec::new();
    for _ in 0..2 {
        let mut command = daemon.gang_run(lab.threads().min(lab.cpus), None);
        command.arg(&lab.programs.lab).arg("workload").args(hog.split(' ')).args(span.arguments());
        gangs.push(caller.start(&command)?);
    }
    daemon.wait_for_jobs(gangs.len())?;
    let mut handles = Vec::new();
    for gang in &gangs {
        let pid = Pid::from_raw(gang.pid()).context("a pid is above 0")?;
        handles.push(pidfd_open(pid, PidfdFlags::empty()).context("opening a gang")?);
    }
    sleep_until_ns(span.start_ns + moment_ns);
    let watcher = Attributes::fifo(WATCHER_PRIORITY);
    sched::set(0, &watcher).context("watching above the gangs")?;
    let killed = Instant::now();
    let ended = caller.0.write("cgroup.kill", "1").context("killing the group");
    let ended = ended.and_then(|()| wait_for_the_ends(&handles));
    let gone = killed.elapsed();
    sched::set(0, &Attributes::other(0)).context("watching no more")?;
    ended?;
    Ok(daemon.sample().with([(GONE, gone.as_secs_f64() * 1e3)]))
}

/// Until no thread of these processes is left.
fn wait_for_the_ends(handles: &[OwnedFd]) -> Result<()> {
    let end = Instant::now() + TIME_LIMIT;
    for handle in handles {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).context("waiting for a gang")?;
        let ends = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&left));
        ensure!(ends.context("waiting for a gang")? > 0, "a gang was not killed with its group");
    }
    Ok(())
}
