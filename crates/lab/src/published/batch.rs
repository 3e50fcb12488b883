//! E15: two BARRIERs back to back against both at once as gangs. Batch does a little more, and the
//! second one waits until the first is done.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::figure;
use crate::harness::verdict::Better;
use crate::workload::barrier::DEFAULT_INTERVAL;

const RATE: &str = "iterations_per_s";
const SECOND: &str = "second_starts_s";
const COPIES: usize = 2;
/// Runs of the paper, and the length of both programs together there and elsewhere.
const PUBLISHED: usize = 10;
const PUBLISHED_LENGTH: Duration = Duration::from_secs(10);
const LENGTH: Duration = Duration::from_secs(4);

pub fn run(lab: &Lab) -> Result<Report> {
    let slices = [None, Some(Duration::from_millis(100))];
    let ways = slices.map(|slice| {
        let name = slice.map_or("gangd".into(), |slice| format!("gangd {}", duration::show(slice)));
        (name, Under::Gangd(lab.settings(DaemonOptions { slice, ..DaemonOptions::default() })))
    });
    let mut conditions = vec![
        Condition::new("batch", one_after_the_other),
        Condition::new("plain Linux", |lab| at_once(lab, &Under::Plain)),
    ];
    if !lab.options.plain {
        for (name, under) in &ways {
            conditions.push(Condition::new(name, move |lab| at_once(lab, under)));
        }
    }
    let run = alternate(lab, "batch", lab.rounds(PUBLISHED), &conditions)?;
    let mut report = Report::new(lab, "two BARRIERs, back to back and at once (E15)", run, RATE);
    report.ratio("batch", "plain Linux", RATE);
    for (name, _) in &ways {
        if report.judge("batch", name, RATE, Better::More).is_none() {
            continue;
        }
        if let (Some(batch), Some(gang)) = (report.mean("batch", SECOND), report.mean(name, SECOND))
        {
            report.verdict.push(format!(
                "The second program begins after {} s in batch, after {} s under {name} (ETH: batch \
                 does 1.5 % more, and its second program begins 5 s late).",
                figure(batch.value),
                figure(gang.value)
            ));
        }
    }
    Ok(report)
}

fn length(lab: &Lab) -> Duration {
    lab.length(if lab.options.paper { PUBLISHED_LENGTH } else { LENGTH })
}

fn copy(lab: &Lab) -> Launch {
    let threads = lab.threads();
    let arguments =
        format!("barrier --threads {threads} --interval {DEFAULT_INTERVAL} --wait spin");
    Launch::gang(threads.min(lab.cpus), &arguments)
}

fn one_after_the_other(lab: &Lab) -> Result<Sample> {
    let Together { outcomes, sample } = lab.run_in_turn(&vec![copy(lab); COPIES], length(lab))?;
    let rates: f64 = outcomes.iter().map(|outcome| outcome.rate()).sum();
    let second_s = outcomes[0].elapsed_ns as f64 / 1e9;
    Ok(sample.with([(RATE, rates / COPIES as f64), (SECOND, second_s)]))
}

fn at_once(lab: &Lab, under: &Under) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let copies = vec![copy(lab); COPIES];
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, length(lab))?;
    // A copy that did nothing begins no sooner than the end.
    let begins_ns = outcomes.iter().map(|outcome| {
        let end_ns = outcome.started_at_ns + outcome.elapsed_ns;
        outcome.first_at_ns.unwrap_or(end_ns) - outcome.started_at_ns
    });
    let second_s = begins_ns.max().unwrap_or(0) as f64 / 1e9;
    let rate = outcomes.iter().map(|outcome| outcome.rate()).sum();
    Ok(sample.with([(RATE, rate), (SECOND, second_s)]))
}
