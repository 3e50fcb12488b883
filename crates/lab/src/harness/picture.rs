//! The pictures of the lab, drawn from one script.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::harness::report::Report;
use crate::harness::stats;

const SCRIPT: &str = include_str!("picture.py");

/// Points that belong together: x, y, and from where to where the line through y goes.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<[f64; 4]>,
    /// Single samples behind the points, each x and y: what a mean hides.
    pub samples: Vec<[f64; 2]>,
}

/// A figure over a quantity that was varied.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    pub kind: &'static str,
    pub x: String,
    pub y: String,
    pub log_x: bool,
    pub lines: Vec<Line>,
    /// Values of y and x worth a line through the whole picture.
    pub level: Option<f64>,
    pub mark: Option<f64>,
}

impl Picture {
    pub fn lines(x: impl Into<String>, y: impl Into<String>, lines: Vec<Line>) -> Self {
        let (x, y) = (x.into(), y.into());
        Self { kind: "lines", x, y, log_x: false, lines, level: None, mark: None }
    }

    pub fn log_x(self) -> Self {
        Self { log_x: true, ..self }
    }

    pub fn draw(&self, title: &str, paths: &[&Path]) -> Result<()> {
        let mut value = serde_json::to_value(self).context("writing a picture's data")?;
        value["title"] = json!(title);
        draw(paths, &value)
    }
}

impl Line {
    pub fn new(name: impl Into<String>, points: Vec<[f64; 4]>) -> Self {
        Self { name: name.into(), points, samples: Vec::new() }
    }

    /// Means of a figure with their intervals, one for each condition at its x; conditions that
    /// were not measured are left out.
    pub fn of<'a>(
        report: &Report,
        name: impl Into<String>,
        figure: &str,
        at: impl IntoIterator<Item = (f64, &'a str)>,
    ) -> Self {
        let mut line = Self::new(name, Vec::new());
        for (x, condition) in at {
            let Some(estimate) = report.mean(condition, figure) else { continue };
            let [low, high] = estimate.interval.unwrap_or([estimate.value; 2]);
            line.points.push([x, estimate.value, low, high]);
            let samples = report.samples(condition, figure).unwrap_or_default();
            line.samples.extend(samples.iter().map(|sample| [x, *sample]));
        }
        line
    }
}

/// Bars of the figure that a report shows, with intervals.
pub fn bars(paths: &[&Path], report: &Report) -> Result<()> {
    let bars: Vec<Value> = report
        .series
        .iter()
        .filter_map(|series| {
            let estimate = stats::mean(series.samples.get(report.shown)?)?;
            let [low, high] = estimate.interval.unwrap_or([estimate.value; 2]);
            Some(json!({ "name": series.condition, "value": estimate.value, "low": low, "high": high }))
        })
        .collect();
    let label = report.shown.replace('_', " ");
    draw(paths, &json!({ "kind": "bars", "title": report.about, "label": label, "bars": bars }))
}

/// Draws one picture into files whose endings say the format.
pub fn draw(paths: &[&Path], picture: &Value) -> Result<()> {
    gang_picture::draw(SCRIPT, picture, paths)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gang_picture::python_with;

    use super::*;

    #[test]
    fn all_kinds_are_drawn_where_matplotlib_is_there() {
        if python_with("matplotlib").is_none() {
            gang_harness::skipped("python3-matplotlib is not installed");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (svg, png) = (dir.path().join("a.svg"), dir.path().join("a.png"));
        let bar = json!({ "name": "a", "value": 2.0, "low": 1.5, "high": 2.5 });
        let bars = json!({ "kind": "bars", "title": "t", "label": "l", "bars": [bar] });
        draw(&[&svg, &png], &bars).unwrap();
        assert!(fs::read_to_string(&svg).unwrap().contains("<svg"));
        assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
        let panel = json!({ "name": "plain", "cpus": [[[0.0, 2.5, 0], [2.5, 1.0, 1]], []] });
        let timeline = json!({
            "kind": "timeline", "title": "t", "copies": ["a", "b"], "length_ms": 5.0,
            "panels": [panel],
        });
        draw(&[&svg], &timeline).unwrap();
        assert!(fs::read_to_string(&svg).unwrap().contains("<svg"));
        let mut line = Line::new("n", vec![[1.0, 2.0, 1.5, 2.5], [10.0, 1.0, 1.0, 1.0]]);
        line.samples.push([1.0, 2.2]);
        let mut lines = Picture::lines("x", "y", vec![line]).log_x();
        (lines.level, lines.mark) = (Some(1.0), Some(5.0));
        fs::remove_file(&svg).unwrap();
        lines.draw("t", &[&svg]).unwrap();
        assert!(fs::read_to_string(&svg).unwrap().contains("<svg"));
    }
}
