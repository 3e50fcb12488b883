//! Promises, and what was measured of them.

use serde::Serialize;

use crate::harness::stats::Estimate;
use crate::harness::table::{self, NOT_MEASURED, interval};

/// A figure that is promised, and what was last measured of it.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Stays with the promise, and is given to no other one.
    pub id: &'static str,
    /// The promise in a sentence, of which the bound says how much.
    pub sentence: &'static str,
    pub must: Must,
    /// Of the bound and of what is measured.
    pub unit: &'static str,
    /// None where it was not measured yet: it is unproven.
    pub last: Option<Last>,
    /// Why it is missed, in a sentence.
    pub missed: Option<&'static str>,
    /// More that a reader of the figure should know.
    pub remark: Option<&'static str>,
    /// The command that measures it.
    pub command: &'static str,
}

/// A measured value with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    /// Of how many rounds, or whatever else was counted.
    pub of: &'static str,
    pub date: &'static str,
    pub machine: &'static str,
}

/// A promise, and what was measured of it now.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    pub id: &'static str,
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

    /// Whether a value keeps the promise, and whether all of its interval says the same: the value
    /// decides, the interval is for the reader.
    pub fn judge(self, value: f64, interval: Option<[f64; 2]>) -> (bool, bool) {
        let kept = self.holds(value);
        let told_apart = interval.is_some_and(|interval| {
            // The value of a tolerance may lie between two ends that do not keep it.
            interval.iter().all(|&end| self.holds(end) == kept)
                && (kept || !self.is_within(interval))
        });
        (kept, told_apart)
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

    pub fn show(self) -> String {
        match self {
            Must::AtLeast(bound) => format!("≥ {bound}"),
            Must::AtMost(bound) => format!("≤ {bound}"),
            Must::Below(bound) => format!("< {bound}"),
            Must::Within(center, tolerance) => format!("{center} ± {tolerance}"),
        }
    }
}

impl Promise {
    /// Judges what was measured; `detail` is what the promise leaves open, as of which program.
    pub fn measured_of(&self, detail: &str, measured: Option<Estimate>) -> Measure {
        let measure = match detail {
            "" => self.sentence.to_owned(),
            detail => format!("{} ({detail})", self.sentence),
        };
        let (kept, told_apart) = match &measured {
            Some(estimate) => self.must.judge(estimate.value, estimate.interval),
            None => (false, false),
        };
        let (id, must, unit) = (self.id, self.must, self.unit);
        Measure { id, measure, must, unit, measured, met: kept, told_apart }
    }

    /// The bound with its unit.
    pub fn bound(&self) -> String {
        format!("{} {}", self.must.show(), self.unit).trim().to_owned()
    }
}

impl Measure {
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
        let promise = format!("{}: {}", measure.id, measure.measure);
        vec![promise, must.trim().into(), measured, measure.answer().into()]
    };
    (vec!["promise", "must", "measured [95 %]", "met"], measures.iter().map(row).collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A promise that nothing of gangd makes.
    pub const SPEED: Promise = Promise {
        id: "speed",
        sentence: "It is fast.",
        must: Must::AtLeast(2.0),
        unit: "",
        last: None,
        missed: None,
        remark: None,
        command: "",
    };

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
            Promise { must, ..SPEED }.measured_of("", Some(estimate)).answer()
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
        let promise = Promise { must: Must::AtMost(9.0), unit: "µs", ..SPEED };
        let measure = promise.measured_of("of light", None);
        assert!(!measure.met);
        assert_eq!(measure.answer(), "unproven");
        let table = measure_table(&[measure]);
        assert!(table.contains("speed: It is fast. (of light)"), "{table}");
        assert!(table.contains("≤ 9 µs") && table.contains("not measured"), "{table}");
    }
}
