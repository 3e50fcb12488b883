//! What an experiment found: its series, the ratios between them, and the promises it checks, as a
//! table, as JSON, and as a picture.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::harness::Series;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::picture;
use crate::stats::{self, Estimate};
use crate::table;

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub experiment: &'static str,
    /// What was measured, in a sentence.
    pub about: String,
    pub machine: Machine,
    pub rounds: usize,
    pub series: Vec<Series>,
    pub ratios: Vec<Ratio>,
    pub measures: Vec<Measure>,
    /// The figure that the picture shows.
    #[serde(skip)]
    pub shown: &'static str,
}

/// One condition's figure over another's.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub of: String,
    pub over: String,
    pub figure: &'static str,
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// A promise, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    pub measure: String,
    pub must: Must,
    pub unit: &'static str,
    /// Absent where it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Estimate>,
    pub met: bool,
}

#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Must {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
    /// A value, and how far from it one may be.
    Within(f64, f64),
}

impl Must {
    pub fn holds(self, value: f64) -> bool {
        match self {
            Must::AtLeast(bound) => value >= bound,
            Must::AtMost(bound) => value <= bound,
            Must::Below(bound) => value < bound,
            Must::Within(center, tolerance) => (value - center).abs() <= tolerance,
        }
    }

    fn show(self) -> String {
        match self {
            Must::AtLeast(bound) => format!("≥ {bound}"),
            Must::AtMost(bound) => format!("≤ {bound}"),
            Must::Below(bound) => format!("< {bound}"),
            Must::Within(center, tolerance) => format!("{center} ± {tolerance}"),
        }
    }
}

impl Measure {
    /// Judged by the value measured; the interval is for the reader.
    pub fn new(
        measure: impl Into<String>,
        must: Must,
        unit: &'static str,
        measured: Option<Estimate>,
    ) -> Self {
        let met = measured.is_some_and(|estimate| must.holds(estimate.value));
        Self { measure: measure.into(), must, unit, measured, met }
    }
}

impl Report {
    pub fn new(
        lab: &Lab,
        experiment: &'static str,
        about: impl Into<String>,
        series: Vec<Series>,
        shown: &'static str,
    ) -> Self {
        Self {
            experiment,
            about: about.into(),
            machine: Machine::this(lab.cpus),
            rounds: lab.runs(),
            series,
            ratios: Vec::new(),
            measures: Vec::new(),
            shown,
        }
    }

    pub fn samples(&self, condition: &str, figure: &str) -> Option<&[f64]> {
        let series = self.series.iter().find(|series| series.condition == condition)?;
        series.samples.get(figure).map(Vec::as_slice)
    }

    pub fn mean(&self, condition: &str, figure: &str) -> Option<Estimate> {
        stats::mean(self.samples(condition, figure)?)
    }

    /// Adds a ratio to the report and returns it; none where a condition was not measured.
    pub fn ratio(&mut self, of: &str, over: &str, figure: &'static str) -> Option<Estimate> {
        let estimate = stats::ratio(self.samples(of, figure)?, self.samples(over, figure)?)?;
        self.ratios.push(Ratio { of: of.into(), over: over.into(), figure, estimate });
        Some(estimate)
    }

    pub fn promise(
        &mut self,
        measure: impl Into<String>,
        must: Must,
        unit: &'static str,
        measured: Option<Estimate>,
    ) {
        self.measures.push(Measure::new(measure, must, unit, measured));
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let rounds =
            if self.rounds == 1 { "1 round".into() } else { format!("{} rounds", self.rounds) };
        let mut text =
            format!("{}\n{}; {rounds}; mean ± 95 % interval\n\n", self.about, self.machine.line());
        text += &self.series_table();
        if !self.ratios.is_empty() {
            text += "\n";
            text += &self.ratio_table();
        }
        if !self.measures.is_empty() {
            text += "\n";
            text += &measure_table(&self.measures);
        }
        text
    }

    fn series_table(&self) -> String {
        let all: BTreeSet<&str> =
            self.series.iter().flat_map(|series| series.samples.keys().copied()).collect();
        // The figure that matters comes first.
        let mut figures: Vec<&str> = all.into_iter().collect();
        figures.sort_by_key(|figure| *figure != self.shown);
        let mut heading = vec![""];
        heading.extend(figures.iter().copied());
        let row = |series: &Series| {
            let cell = |figure: &&str| match series.samples.get(*figure).map(|s| stats::mean(s)) {
                Some(Some(estimate)) => plus_minus(&estimate),
                _ => "–".into(),
            };
            [series.condition.clone()].into_iter().chain(figures.iter().map(cell)).collect()
        };
        table::render(&heading, &self.series.iter().map(row).collect::<Vec<_>>())
    }

    fn ratio_table(&self) -> String {
        let row = |ratio: &Ratio| {
            let what = format!("{} over {}", ratio.of, ratio.over);
            vec![what, ratio.figure.into(), interval(&ratio.estimate)]
        };
        let rows: Vec<_> = self.ratios.iter().map(row).collect();
        table::render(&["ratio", "of", "value [95 %]"], &rows)
    }

    /// Writes what the options ask for. `value` is what goes into the JSON file.
    pub fn deliver(&self, lab: &Lab) -> Result<()> {
        deliver(lab, self, &self.text())?;
        if let Some(path) = &lab.options.picture {
            picture::bars(path, self)?;
        }
        Ok(())
    }
}

/// The table of promises.
pub fn measure_table(measures: &[Measure]) -> String {
    let row = |measure: &Measure| {
        let measured = match &measure.measured {
            Some(estimate) => interval(estimate),
            None => "not measured".into(),
        };
        let met = if measure.met { "yes" } else { "no" };
        let must = format!("{} {}", measure.must.show(), measure.unit);
        vec![measure.measure.clone(), must.trim().into(), measured, met.into()]
    };
    let rows: Vec<_> = measures.iter().map(row).collect();
    table::render(&["measure", "must", "measured [95 %]", "met"], &rows)
}

/// Prints the text, or the JSON in its place where that was asked for.
pub fn deliver(lab: &Lab, value: &impl Serialize, text: &str) -> Result<()> {
    let to_stdout = lab.options.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        print!("{text}");
    }
    if let Some(path) = &lab.options.json {
        let mut json = serde_json::to_string_pretty(value).context("writing figures as JSON")?;
        json.push('\n');
        if to_stdout {
            print!("{json}");
        } else {
            fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

fn plus_minus(estimate: &Estimate) -> String {
    let value = table::figure(estimate.value);
    match estimate.interval {
        Some([low, high]) => format!("{value} ± {}", table::figure((high - low) / 2.0)),
        None => value,
    }
}

fn interval(estimate: &Estimate) -> String {
    let value = table::figure(estimate.value);
    match estimate.interval {
        Some([low, high]) => {
            format!("{value} [{}, {}]", table::figure(low), table::figure(high))
        }
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert!(Must::AtLeast(0.97).holds(0.97) && !Must::AtLeast(0.97).holds(0.969));
        assert!(Must::AtMost(0.5).holds(0.5) && !Must::AtMost(0.5).holds(0.51));
        assert!(!Must::Below(1.0).holds(1.0));
        assert!(Must::Within(50.0, 3.0).holds(47.0) && !Must::Within(50.0, 3.0).holds(53.1));
        assert!(!Must::AtLeast(0.0).holds(f64::NAN));
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let measure = Measure::new("speed", Must::AtMost(9.0), "µs", None);
        assert!(!measure.met);
        let table = measure_table(&[measure]);
        assert!(table.contains("≤ 9 µs") && table.contains("not measured"), "{table}");
    }
}
