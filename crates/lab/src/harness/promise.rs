//! Promises, and what was measured of them.

use serde::Serialize;

use crate::harness::stats::Estimate;
use crate::harness::table::{self, NOT_MEASURED, interval};

/// A promise, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    pub measure: String,
    pub must: Must,
    pub unit: &'static str,
    /// Absent where it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Estimate>,
    /// The value measured keeps the promise.
    pub met: bool,
    /// So does, or does not, all of its interval: other runs would say the same.
    pub told_apart: bool,
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

    /// Some of what would keep the promise lies in an interval.
    fn is_within(self, [low, high]: [f64; 2]) -> bool {
        match self {
            Must::AtLeast(bound) => high >= bound,
            Must::AtMost(bound) => low <= bound,
            Must::Below(bound) => low < bound,
            Must::Within(center, tolerance) => {
                low <= center + tolerance && high >= center - tolerance
            }
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
        let told_apart = measured.and_then(|estimate| estimate.interval).is_some_and(|interval| {
            // A promise of a value and how far from it: the value may lie between two ends that do not keep it.
            interval.iter().all(|&end| must.holds(end) == met) && (met || !must.is_within(interval))
        });
        Self { measure: measure.into(), must, unit, measured, met, told_apart }
    }

    /// Whether the promise was kept, in a word: where the interval says that other runs may say
    /// otherwise, so does the word, and where nothing was measured.
    fn answer(&self) -> &'static str {
        let Some(measured) = self.measured else { return "unproven" };
        match (self.met, self.told_apart || measured.interval.is_none()) {
            (true, true) => "yes",
            (true, false) => "likely",
            (false, true) => "no",
            (false, false) => "unlikely",
        }
    }
}

/// The table of promises.
pub fn measure_table(measures: &[Measure]) -> String {
    let (heading, rows) = measure_rows(measures);
    table::render(&heading, &rows)
}

pub fn measure_rows(measures: &[Measure]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |measure: &Measure| {
        let measured = match &measure.measured {
            Some(estimate) => interval(estimate),
            None => NOT_MEASURED.into(),
        };
        let must = format!("{} {}", measure.must.show(), measure.unit);
        vec![measure.measure.clone(), must.trim().into(), measured, measure.answer().into()]
    };
    (vec!["measure", "must", "measured [95 %]", "met"], measures.iter().map(row).collect())
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
    fn an_interval_that_crosses_the_bound_is_told() {
        let answer = |must: Must, value: f64, interval: Option<[f64; 2]>| {
            let estimate = Estimate { value, interval, samples: 3 };
            Measure::new("speed", must, "", Some(estimate)).answer()
        };
        assert_eq!(answer(Must::AtLeast(1.0), 1.2, Some([1.1, 1.3])), "yes");
        assert_eq!(answer(Must::AtLeast(1.0), 1.2, Some([0.9, 1.5])), "likely");
        assert_eq!(answer(Must::AtLeast(1.0), 0.9, Some([0.7, 1.1])), "unlikely");
        assert_eq!(answer(Must::AtLeast(1.0), 0.8, Some([0.7, 0.9])), "no");
        assert_eq!(answer(Must::Within(50.0, 3.0), 50.0, Some([49.0, 51.0])), "yes");
        assert_eq!(answer(Must::Within(50.0, 3.0), 50.0, Some([40.0, 60.0])), "likely");
        assert_eq!(answer(Must::Within(50.0, 3.0), 54.0, Some([44.0, 64.0])), "unlikely");
        assert_eq!(answer(Must::AtMost(1.0), 0.5, None), "yes", "of one sample there is none");
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let measure = Measure::new("speed", Must::AtMost(9.0), "µs", None);
        assert!(!measure.met);
        assert_eq!(measure.answer(), "unproven");
        let table = measure_table(&[measure]);
        assert!(table.contains("≤ 9 µs") && table.contains("not measured"), "{table}");
    }
}
