//! A report as files: JSON with all that follows from its samples, and the samples as CSV.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::Report;
use crate::harness::lab::Lab;
use crate::harness::stats;

/// One figure of one condition, summed up.
#[derive(Clone, Debug, Serialize)]
struct Summed<'a> {
    condition: &'a str,
    figure: &'a str,
    mean: f64,
    sd: f64,
    least: f64,
    most: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<[f64; 2]>,
}

/// A report as it is written: with what follows from its samples.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    report: &'a Report,
    figures: Vec<Summed<'a>>,
    verdict: Vec<String>,
}

impl Report {
    /// The value of a JSON file.
    pub fn value(&self) -> impl Serialize + '_ {
        Written { report: self, figures: self.figures(), verdict: self.verdicts() }
    }

    fn figures(&self) -> Vec<Summed<'_>> {
        let mut figures = Vec::new();
        for series in &self.series {
            for (figure, samples) in &series.samples {
                if let (Some((mean, sd)), Some(estimate)) =
                    (stats::mean_sd(samples), stats::mean(samples))
                {
                    let condition = &series.condition;
                    figures.push(Summed {
                        condition,
                        figure,
                        mean,
                        sd,
                        least: samples.iter().copied().fold(f64::INFINITY, f64::min),
                        most: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                        interval: estimate.interval,
                    });
                }
            }
        }
        figures
    }

    /// Writes what the options ask for.
    pub fn deliver(&self, lab: &Lab) -> Result<()> {
        deliver(lab, &self.value(), &self.text())?;
        if let Some(path) = &lab.options.csv {
            write_csv(path, [self])?;
        }
        if !lab.options.picture.is_empty() {
            let paths: Vec<&Path> = lab.options.picture.iter().map(PathBuf::as_path).collect();
            self.draw(&paths)?;
        }
        Ok(())
    }
}

/// Raw samples, one for each line: for those who count themselves.
pub fn write_csv<'a>(path: &Path, reports: impl IntoIterator<Item = &'a Report>) -> Result<()> {
    let writing = || format!("writing {}", path.display());
    let mut writer = csv::Writer::from_path(path).with_context(writing)?;
    writer
        .write_record(["experiment", "condition", "figure", "round", "value"])
        .with_context(writing)?;
    for report in reports {
        for series in &report.series {
            for figure in series.samples.keys() {
                for (round, value) in series.by_round(figure) {
                    let (round, value) = ((round + 1).to_string(), value.to_string());
                    let record = [report.experiment, &series.condition, figure, &round, &value];
                    writer.write_record(record).with_context(writing)?;
                }
            }
        }
    }
    writer.flush().with_context(writing)
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

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn samples_become_lines_and_sums() {
        let report = report(1.0, false);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.csv");
        write_csv(&path, [&report]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "experiment,condition,figure,round,value");
        assert_eq!(lines[1], "speed,\"plain, 1\",per_s,1,1");
        assert_eq!(lines.len(), 7);
        let json = serde_json::to_value(report.value()).unwrap();
        assert_eq!(json["figures"][1]["mean"], 3.0);
        assert!((json["figures"][1]["sd"].as_f64().unwrap() - 0.1).abs() < 1e-9);
        assert!(report.text().contains("3.00 ± 0.248 (sd 0.100)"), "{}", report.text());
        assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    }
}
