//! The cost of looking on: `gang top` in a terminal and `gang web` with a reader, ten pictures a
//! second of 20 jobs each; and whether switches come later for it.
//!
//! Two gangs spin on all CPUs, the other jobs sleep: views that took more than what gangs leave
//! would show in the switches or be late themselves, so both say how many pictures they came to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{Daemon, DaemonOptions, number};
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::onlookers::{Top, Web};
use crate::harness::report::Report;
use crate::harness::samples::{Figures, Sample};
use crate::harness::wait::{TIME_LIMIT, wait_for, wait_until};
use crate::promises::list;
use crate::workload::window::now_ns;

const BOTH: &str = "cpu_percent";
const LATE: &str = "late_us_p99";
const MEDIAN: &str = "late_us_p50";
/// Of the daemon's status.
const LATE_P99: &str = "/switches/late/p99_ns";
const JOBS: usize = 20;
const GANGS: usize = 2;
/// Pictures a second.
const RATE: f64 = 10.0;
const SETTLE: Duration = Duration::from_secs(2);
const LOOKED_AT: &str = "gang top and gang web";
const ALONE: &str = "nobody looks on";

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has nothing to look at")?;
    let conditions = [
        Condition::new(ALONE, |lab| measure(lab, false)),
        Condition::new(LOOKED_AT, |lab| measure(lab, true)),
    ];
    let run = alternate(lab, "views", lab.runs(), &conditions)?;
    let about = "20 jobs, two of them gangs that spin, and views of ten pictures a second";
    let mut report = Report::new(lab, about, run, LATE);
    let cpu = report.mean(LOOKED_AT, BOTH);
    report.promise(&list::VIEWS_CPU, cpu);
    let later = report.ratio(LOOKED_AT, ALONE, MEDIAN);
    report.promise(&list::VIEWS_LATENESS, later);
    Ok(report)
}

fn measure(lab: &Lab, is_looked_at: bool) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let length = lab.length(Duration::from_secs(10));
    // Jobs last longer than the measurement, and are killed when it is over.
    let span = Span::soon(length + 4 * TIME_LIMIT);
    let threads = lab.threads();
    let gang = Launch::gang(threads.min(lab.cpus), &format!("hog --threads {threads}"));
    let sleeps = Launch::gang(1, "sleepers --threads 1");
    let mut running = Vec::new();
    for number in 0..JOBS {
        let copy = if number < GANGS { &gang } else { &sleeps };
        let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
        running.push(lab.start_workload(Some(&daemon), copy.gang, &arguments)?);
    }
    daemon.wait_for_jobs(JOBS)?;
    let figures = if is_looked_at {
        look_on(lab, &daemon, length)?
    } else {
        std::thread::sleep(SETTLE + length);
        Figures::new()
    };
    let sample = daemon.look_at(now_ns());
    let status = wait_for("the gangs take turns", || {
        let status = daemon.status()?;
        Ok(number(&status, LATE_P99).is_ok_and(|late_ns| late_ns > 0.0).then_some(status))
    })?;
    let read = |path: &str| number(&status, path);
    ensure!(
        read("/jobs")? == JOBS as f64,
        "the daemon has {} jobs instead of {JOBS}",
        read("/jobs")?
    );
    Ok(sample.with_all(figures).with([
        (LATE, read(LATE_P99)? / 1e3),
        (MEDIAN, read("/switches/late/p50_ns")? / 1e3),
        ("skew_us_p99", read("/switches/skew/p99_ns")? / 1e3),
    ]))
}

fn look_on(lab: &Lab, daemon: &Daemon, length: Duration) -> Result<Figures> {
    let gang = lab.programs.gang()?;
    let top = Top::start(daemon.program(gang), RATE)?;
    let web = Web::start(daemon.program(gang))?;
    let show_more = |pictures: u64, frames: u64| -> Result<()> {
        wait_until("gang top and gang web show something", || {
            Ok(top.pictures() > pictures && web.frames() > frames)
        })
        .with_context(|| format!("gang top wrote {}", top.said()))
    };
    show_more(0, 0)?;
    std::thread::sleep(SETTLE);
    let look = || -> Result<[f64; 4]> {
        let ns = |ns: u64| ns as f64;
        Ok([ns(top.cpu_ns()?), ns(web.cpu_ns()?), top.pictures() as f64, web.frames() as f64])
    };
    let (before, begun) = (look()?, Instant::now());
    std::thread::sleep(length);
    // A machine that is far too busy may take longer for the next ones.
    show_more(before[2] as u64, before[3] as u64)?;
    let (after, seconds) = (look()?, begun.elapsed().as_secs_f64());
    let [top_ns, web_ns, pictures, frames] = std::array::from_fn(|at| after[at] - before[at]);
    let percent = |ns: f64| ns / (seconds * 1e9) * 100.0;
    Ok(Figures::from([
        (BOTH, percent(top_ns + web_ns)),
        ("top_percent", percent(top_ns)),
        ("web_percent", percent(web_ns)),
        ("pictures_per_s", pictures / seconds),
        ("frames_per_s", frames / seconds),
    ]))
}
