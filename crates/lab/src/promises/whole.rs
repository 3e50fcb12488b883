//! The part of the time in which a complete gang has the CPUs, while two gangs spin on all of them,
//! by the length of slices; and who has the rest.
//!
//! The figures are the daemon's own (`type WholeTime` of its interface), of a window after both
//! gangs have begun. They do not depend on how fast the host is. A host that takes virtual CPUs
//! away at edges lowers them; so there is one without the turns that it disturbed.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gang_protocol::client::Client;
use gang_protocol::v1::{self, WholeTime};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::promise::Promise;
use crate::harness::report::Report;
use crate::harness::samples::{Figures, Sample};
use crate::harness::wait::{TIME_LIMIT, wait_for};
use crate::promises::list;
use crate::published::noise::who_ran_instead;
use crate::workload::window::{now_ns, sleep_until_ns};

const WHOLE: &str = "whole_percent";
const STEADY: &str = "steady_whole_percent";
const LEFT_OUT: &str = "left_out_percent";
const COPIES: usize = 2;
const SLICES: [(Duration, &Promise); 3] = [
    (Duration::from_millis(20), &list::WHOLE_20MS),
    (Duration::from_millis(5), &list::WHOLE_5MS),
    (Duration::from_millis(1), &list::WHOLE_1MS),
];
/// Where more than this is left out, the figure of a steady host is not told.
const LEFT_OUT_MAX: f64 = 0.1;

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no turns")?;
    let of = |slice| Condition::new(duration::show(slice), move |lab| measure(lab, slice));
    let conditions = SLICES.map(|(slice, _)| of(slice));
    let run = alternate(lab, "whole", lab.runs(), &conditions)?;
    let about = "how much of the time a complete gang has the CPUs, by the length of slices";
    let mut report = Report::new(lab, about, run, STEADY);
    for (slice, promise) in SLICES {
        let slice = duration::show(slice);
        let rounds = report.rounds;
        let told = report.samples(&slice, STEADY).map_or(0, <[f64]>::len);
        if told < rounds {
            let untold = rounds - told;
            report.notes.push(format!(
                "With slices of {slice} the figure of a steady host is not told in {untold} of \
                 {rounds} rounds: more than a tenth of the time would be left out."
            ));
        }
        let of = |name| report.mean(&slice, name).map(|it| format!("{:.1}", it.value));
        if let (Some(whole), Some(split), Some(partly), Some(left_out)) =
            (of(WHOLE), of("split_percent"), of("partly_percent"), of(LEFT_OUT))
        {
            let steady = of(STEADY).map_or("not told".into(), |steady| format!("{steady} %"));
            report.verdict.push(format!(
                "With slices of {slice} a complete gang has the CPUs for {whole} % of the time, on \
                 a steady host {steady} ({left_out} % left out); they run different gangs for \
                 {split} %, and some run none for {partly} %."
            ));
        }
        report.promise(promise, report.mean(&slice, STEADY));
    }
    Ok(report)
}

fn measure(lab: &Lab, slice: Duration) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::slice(slice)))?;
    let length = lab.length(Duration::from_secs(4));
    // Gangs last longer than they are looked at, and are killed when that is over.
    let span = Span::soon(length + 2 * TIME_LIMIT);
    let gang =
        Launch::gang(lab.threads().min(lab.cpus), &format!("hog --threads {}", lab.threads()));
    let arguments = [gang.arguments.as_slice(), &span.arguments()].concat();
    let mut running = Vec::new();
    for _ in 0..COPIES {
        running.push(lab.start_workload(Some(&daemon), gang.gang, &arguments)?);
    }
    sleep_until_ns(span.start_ns);
    // However busy the machine is, both have slots at last.
    let before = wait_for("gangs ask for all CPUs of their rows", || whole(&daemon))?;
    sleep_until_ns(now_ns() + length.as_nanos() as u64);
    let after = whole(&daemon)?.context("gangd measures no more")?;
    let mut sample = daemon.sample().with_all(figures(&before, &after)?);
    sample.lost_to_ns = who_ran_instead(&daemon)?;
    Ok(sample)
}

/// The sums that the daemon has so far; nothing where no gang has asked for its row yet.
fn whole(daemon: &Daemon) -> Result<Option<WholeTime>> {
    let status = Client::connect(daemon.socket())?.status()?.status;
    if let (v1::Measuring::no, Some(reason)) = (&status.measuring, &status.not_measured) {
        bail!("gangd does not measure how whole gangs are: {reason}");
    }
    Ok(status.whole)
}

/// Of the time between two looks.
fn figures(before: &WholeTime, after: &WholeTime) -> Result<Figures> {
    let ns = |of: fn(&WholeTime) -> i64| (of(after) - of(before)) as f64;
    let asked_ns = ns(|it| it.asked_ns);
    ensure!(asked_ns > 0.0, "no gang asked for its row");
    let percent = |of: fn(&WholeTime) -> i64| ns(of) / asked_ns * 100.0;
    let mut figures = Figures::from([
        (WHOLE, percent(|it| it.whole_ns + it.other_ns)),
        ("split_percent", percent(|it| it.split_ns)),
        ("partly_percent", percent(|it| it.partly_ns)),
        ("gap_percent", percent(|it| it.gap_ns)),
        ("edge_percent", percent(|it| it.edge_ns)),
        ("noise_percent", percent(|it| it.noise_ns)),
        (LEFT_OUT, percent(|it| it.left_out_ns)),
    ]);
    let left_ns = asked_ns - ns(|it| it.left_out_ns);
    if left_ns >= asked_ns * (1.0 - LEFT_OUT_MAX) {
        let whole_ns = ns(|it| it.whole_ns + it.other_ns - it.left_out_whole_ns);
        figures.insert(STEADY, whole_ns / left_ns * 100.0);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(parts_ms: i64) -> WholeTime {
        WholeTime {
            asked_ns: 100 * parts_ms,
            whole_ns: 90 * parts_ms,
            other_ns: parts_ms,
            split_ns: 6 * parts_ms,
            partly_ns: 3 * parts_ms,
            gap_ns: 5 * parts_ms,
            edge_ns: 3 * parts_ms,
            noise_ns: parts_ms,
            share: 0.91,
            steady_share: None,
            left_out_ns: 10 * parts_ms,
            left_out: 0.1,
            left_out_whole_ns: parts_ms,
        }
    }

    #[test]
    fn figures_are_of_the_window_alone() {
        let all = figures(&time(1000), &time(3000)).unwrap();
        assert_eq!((all[WHOLE], all[STEADY], all[LEFT_OUT]), (91.0, 100.0, 10.0));
        assert!(figures(&time(1000), &time(1000)).is_err());
    }

    #[test]
    fn too_much_left_out_is_not_told() {
        let after = WholeTime { left_out_ns: 100_001, ..time(2000) };
        let all = figures(&WholeTime { left_out_ns: 0, ..time(1000) }, &after).unwrap();
        assert!(!all.contains_key(STEADY) && all[WHOLE] == 91.0);
    }
}
