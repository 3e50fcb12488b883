//! Shares of CPU: a gang beside hogs that are not registered (L18), and three gangs of
//! weight 1, 1, 2. Taken from the CPU time of both sides inside the window.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Gang, Lab, Launch, Together, Under, words};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::promises::list;

const SHARE: &str = "share_percent";
const DEVIATION: &str = "largest_deviation_percent";
const WEIGHTS: [u32; 3] = [100, 100, 200];
const SHARES: [&str; 3] = ["share_1_percent", "share_2_percent", "share_3_percent"];
const LENGTH: Duration = Duration::from_secs(10);

pub fn run(lab: &Lab) -> Result<Report> {
    let gangd = Under::Gangd(lab.settings(DaemonOptions::default()));
    let mut conditions =
        vec![Condition::new("beside hogs, plain Linux", |lab| beside_hogs(lab, &Under::Plain))];
    if !lab.options.plain {
        conditions.push(Condition::new("beside hogs, gangd", |lab| beside_hogs(lab, &gangd)));
        conditions.push(Condition::new("weights 1, 1, 2, gangd", |lab| weights(lab, &gangd)));
    }
    let threads = lab.threads();
    let about =
        format!("shares of CPU: a gang of {threads} threads beside {threads} hogs, and by weight");
    let run = alternate(lab, "share", lab.runs(), &conditions)?;
    let mut report = Report::new(lab, about, run, SHARE);
    if !lab.options.plain {
        let share = report.mean("beside hogs, gangd", SHARE);
        report.promise_of(&list::SHARE_BESIDE_HOGS, &format!("{threads} threads"), share);
        let deviation = report.mean("weights 1, 1, 2, gangd", DEVIATION);
        report.promise(&list::SHARE_BY_WEIGHT, deviation);
    }
    Ok(report)
}

fn beside_hogs(lab: &Lab, under: &Under) -> Result<Sample> {
    let hog = format!("hog --threads {}", lab.threads());
    let copies = [Launch::gang(lab.threads().min(lab.cpus), &hog), Launch::unregistered(&hog)];
    let daemon = lab.daemon_of(under)?;
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, lab.length(LENGTH))?;
    let shares = percent(&outcomes.iter().map(|outcome| outcome.cpu_ns).collect::<Vec<_>>());
    Ok(sample.with([(SHARE, shares[0])]))
}

fn weights(lab: &Lab, under: &Under) -> Result<Sample> {
    let cpus = lab.threads().min(lab.cpus);
    let copies = WEIGHTS.map(|weight| Launch {
        arguments: words(&format!("hog --threads {}", lab.threads())),
        gang: Some(Gang { cpus, weight: Some(weight) }),
    });
    let daemon = lab.daemon_of(under)?;
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, lab.length(LENGTH))?;
    let had = percent(&outcomes.iter().map(|outcome| outcome.cpu_ns).collect::<Vec<_>>());
    let wanted = percent(&WEIGHTS.map(u64::from));
    let deviations = had.iter().zip(&wanted).map(|(had, wanted)| (had - wanted).abs());
    let sample = sample.with([(DEVIATION, deviations.fold(0.0, f64::max))]);
    Ok(sample.with_all(SHARES.into_iter().zip(had).collect()))
}

/// Each part in percent of the sum.
fn percent(parts: &[u64]) -> Vec<f64> {
    let sum: u64 = parts.iter().sum();
    parts.iter().map(|part| *part as f64 / sum.max(1) as f64 * 100.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_sum() {
        assert_eq!(percent(&[100, 100, 200]), [25.0, 25.0, 50.0]);
        assert_eq!(percent(&[0, 0]), [0.0, 0.0]);
    }
}
