//! A report as tables and sentences.

use std::collections::BTreeSet;

use super::{Ratio, Report, measure_table};
use crate::harness::confusion::Confusion;
use crate::harness::gangs::{COSCHEDULED, NOT_ON_TERMINALS};
use crate::harness::samples::Series;
use crate::harness::stats::{self, Estimate};
use crate::harness::table::{self, NOT_MEASURED, interval};

impl Report {
    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}; {}\n", self.about, self.machine.line(), self.all_rounds());
        text += &format!("{}\n", self.origin.line());
        if let Some(noise) = &self.noise {
            text += &format!("While nothing was measured {}.\n", noise.line());
        }
        let shown = self.shown;
        text += &format!("Mean ± 95 % interval, of {shown} with the standard deviation (sd):\n\n");
        text += &self.series_table();
        if !self.ratios.is_empty() {
            text += "\n";
            text += &self.ratio_table();
        }
        if let Some((heading, rows)) = self.confusion.as_ref().map(Confusion::rows) {
            text += "\n";
            text += &table::render(&heading, &rows);
        }
        if !self.measures.is_empty() {
            text += "\n";
            text += &measure_table(&self.measures);
        }
        for (heading, lines) in [("Verdict", self.verdicts()), ("Left out", self.left_out())] {
            if !lines.is_empty() {
                text += &format!("\n{heading}:\n");
                text.extend(lines.iter().map(|line| format!("- {line}\n")));
            }
        }
        text
    }

    /// Heading and rows of what was measured: a condition each, mean and interval of each figure
    /// but for some, and the standard deviation of the one that matters.
    pub fn series_rows(&self, leave_out: &[&str]) -> (Vec<&str>, Vec<Vec<String>>) {
        let mut all: BTreeSet<&str> =
            self.series.iter().flat_map(|series| series.samples.keys().copied()).collect();
        // Where nothing of it was measured, the table says so.
        all.extend(self.series.iter().find(|it| it.not_measured.is_some()).map(|_| COSCHEDULED));
        all.retain(|figure| !leave_out.contains(figure));
        // The figure that matters comes first.
        let mut figures: Vec<&str> = all.into_iter().collect();
        figures.sort_by_key(|figure| *figure != self.shown);
        let mut heading = vec![""];
        heading.extend(figures.iter().copied());
        let row = |series: &Series| {
            let cell = |figure: &&str| match series.samples.get(*figure).map(|s| stats::mean(s)) {
                Some(Some(estimate)) if *figure == self.shown => {
                    plus_minus(&estimate) + &with_sd(&series.samples[*figure])
                }
                Some(Some(estimate)) => plus_minus(&estimate),
                _ if *figure == COSCHEDULED && series.not_measured.is_some() => NOT_MEASURED.into(),
                _ => "–".into(),
            };
            [series.condition.clone()].into_iter().chain(figures.iter().map(cell)).collect()
        };
        (heading, self.series.iter().map(row).collect())
    }

    pub fn ratio_rows(&self) -> (Vec<&str>, Vec<Vec<String>>) {
        let row = |ratio: &Ratio| {
            let what = format!("{} over {}", ratio.of, ratio.over);
            vec![what, ratio.figure.into(), interval(&ratio.estimate)]
        };
        (vec!["ratio", "of", "value [95 %]"], self.ratios.iter().map(row).collect())
    }

    fn series_table(&self) -> String {
        let (heading, rows) = self.series_rows(&NOT_ON_TERMINALS);
        table::render(&heading, &rows)
    }

    fn ratio_table(&self) -> String {
        let (heading, rows) = self.ratio_rows();
        table::render(&heading, &rows)
    }
}

fn plus_minus(estimate: &Estimate) -> String {
    let value = table::figure(estimate.value);
    match estimate.interval {
        Some([low, high]) => format!("{value} ± {}", table::figure((high - low) / 2.0)),
        None => value,
    }
}

/// Nothing of a single sample.
fn with_sd(samples: &[f64]) -> String {
    match stats::mean_sd(samples) {
        Some((_, sd)) if samples.len() > 1 => format!(" (sd {})", table::figure(sd)),
        _ => String::new(),
    }
}
