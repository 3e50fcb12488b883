//! The frames of a compositor beside two gangs that spin on all CPUs: each 16.7 ms it works for
//! 2 ms, as a real-time thread of the priority that gangs have in their slots. So compositors make
//! themselves (SCHED_RR, priority 1).
//!
//! Without the BPF programs gangs give way to nobody; the daemon that does not measure shows what
//! that is worth.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{LONG_ENOUGH, Lab, Launch, Span, Together, Under, all_completed, words};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::loss_percent;
use crate::promises::list;
use crate::workload::tick::TickOutcome;

const RATE: &str = "iterations_per_s";
const P99: &str = "completion_ms_p99";
const LENGTH: Duration = Duration::from_secs(10);
const COMPOSITOR: &str = "tick --every 16700us --run 2ms --compositor";

/// The conditions, and whether the compositor is there.
const CONDITIONS: [(&str, bool); 3] =
    [("gangs only", false), ("frames", true), ("frames, nobody gives way", true)];

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("gangs give way under gangd alone")?;
    let unders = [false, false, true].map(|no_measure| {
        Under::Gangd(lab.settings(DaemonOptions { no_measure, ..DaemonOptions::default() }))
    });
    let mut conditions = Vec::new();
    for ((name, has_frames), under) in CONDITIONS.iter().zip(&unders) {
        let measure = move |lab: &Lab| measure(lab, under, *has_frames);
        conditions.push(Condition::new((*name).to_owned(), measure));
    }
    let run = alternate(lab, "frames", lab.runs(), &conditions)?;
    let about = "lateness of a compositor's frames beside two gangs that spin";
    let mut report = Report::new(lab, about, run, P99);
    let [gangs_only, frames, _] = CONDITIONS.map(|(name, _)| name);
    let lost = report.ratio(frames, gangs_only, RATE).map(loss_percent);
    let p99 = report.mean(frames, P99);
    report.promise(&list::FRAMES, p99);
    report.promise(&list::FRAMES_COST, lost);
    Ok(report)
}

fn measure(lab: &Lab, under: &Under, has_frames: bool) -> Result<Sample> {
    let barrier = format!("barrier --threads {}", lab.threads());
    let copies = vec![Launch::gang(lab.threads().min(lab.cpus), &barrier); 2];
    let daemon = lab.daemon_of(under)?;
    let run = |span: &Span| -> Result<_> {
        let compositor = match has_frames {
            true => {
                let arguments = [words(COMPOSITOR), span.arguments()].concat();
                Some(lab.start_workload(None, None, &arguments)?)
            }
            false => None,
        };
        let gangs = lab.run_in(span, lab.by(daemon.as_ref()), &copies)?;
        let frames = compositor.map(|it| it.outcome::<TickOutcome>(span.deadline)).transpose()?;
        Ok((gangs, frames))
    };
    let is_enough = |(gangs, _): &(Together, _)| all_completed(&gangs.outcomes);
    let ((Together { outcomes, sample }, frames), longer_s) =
        lab.over_window(lab.length(LENGTH), LONG_ENOUGH, run, is_enough)?;
    let rate = outcomes.iter().map(|outcome| outcome.rate()).sum();
    let mut sample = sample.over(longer_s).with([(RATE, rate)]);
    if let Some(frames) = frames {
        sample.figures.extend([
            ("completion_ms_p50", frames.completion.p50_ms),
            (P99, frames.completion.p99_ms),
            ("completion_ms_max", frames.completion.max_ms),
            ("wake_ms_p99", frames.wake.p99_ms),
        ]);
    }
    Ok(sample)
}
