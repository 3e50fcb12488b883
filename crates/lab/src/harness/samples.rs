//! The results of measurements: the figures of one, and those of a condition by round.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};

use crate::harness::gangs::{APART, COSCHEDULED};

/// Figures of one measurement, by name with the unit last.
pub type Figures = BTreeMap<&'static str, f64>;

/// All that one measurement of a condition gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Sample {
    pub figures: Figures,
    /// Why it is not known how much its gangs were coscheduled; absent where it is, and where it
    /// has no gangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// For how long threads waited in their slots, by who had their CPU; where the experiment is
    /// about that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_to_ns: BTreeMap<String, i64>,
    /// How long its window was in seconds, where that which was asked for was too short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_window_s: Option<f64>,
    /// Sentences for the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Backend and slice of the daemons that were started for it; not known of a sample that is on
    /// file.
    #[serde(skip)]
    pub daemons: BTreeSet<String>,
}

impl Sample {
    /// One of which it is not known how much its gangs were coscheduled, for this reason.
    pub fn not_measured(reason: impl Into<String>) -> Self {
        Self { not_measured: Some(reason.into()), ..Self::default() }
    }

    /// The same, with these figures as well.
    pub fn with<const N: usize>(self, figures: [(&'static str, f64); N]) -> Self {
        self.with_all(Figures::from(figures))
    }

    pub fn with_all(mut self, figures: Figures) -> Self {
        self.figures.extend(figures);
        self
    }

    /// The same, of a window that had to be so long.
    pub fn over(self, longer_window_s: Option<f64>) -> Self {
        Self { longer_window_s, ..self }
    }
}

/// The raw samples of one condition, one for each round in which the figure was there.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub condition: String,
    pub samples: BTreeMap<&'static str, Vec<f64>>,
    /// The rounds that they are of, counted from 0; written, from 1, where a figure is not there in
    /// all of them.
    #[serde(skip_serializing_if = "are_all", serialize_with = "from_one")]
    rounds: BTreeMap<&'static str, Vec<usize>>,
    /// As of a [`Sample`], where it is known of no round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// In how many rounds it is not known, by the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rounds_not_measured: BTreeMap<String, usize>,
    /// How much its programs were coscheduled is of one more round, which has no other figures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub looked_at_apart: bool,
    /// As of a [`Sample`], in all rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_to_ns: BTreeMap<String, i64>,
    /// As of a [`Sample`], of all rounds.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// As of a [`Sample`], of the rounds in which the window was longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub longer_windows_s: Vec<f64>,
}

impl Series {
    /// Of all rounds, from the first one on.
    pub fn new(condition: impl Into<String>, samples: BTreeMap<&'static str, Vec<f64>>) -> Self {
        let rounds = samples.iter().map(|(&name, values)| (name, (0..values.len()).collect()));
        let rounds = rounds.collect();
        let condition = condition.into();
        Self {
            condition,
            samples,
            rounds,
            not_measured: None,
            rounds_not_measured: BTreeMap::new(),
            looked_at_apart: false,
            lost_to_ns: BTreeMap::new(),
            notes: Vec::new(),
            longer_windows_s: Vec::new(),
        }
    }

    /// Takes in the figures of one round.
    pub fn add(&mut self, round: usize, sample: Sample) {
        for (name, value) in sample.figures {
            self.samples.entry(name).or_default().push(value);
            self.rounds.entry(name).or_default().push(round);
        }
        for (who, ns) in sample.lost_to_ns {
            *self.lost_to_ns.entry(who).or_default() += ns;
        }
        self.longer_windows_s.extend(sample.longer_window_s);
        self.notes.extend(sample.notes);
        if let Some(reason) = sample.not_measured {
            *self.rounds_not_measured.entry(reason.clone()).or_default() += 1;
            self.not_measured = Some(reason);
        }
        if self.samples.contains_key(COSCHEDULED) {
            self.not_measured = None;
        }
    }

    /// Whether it is to be looked at apart how much its programs are coscheduled.
    pub(super) fn wants_look(&self) -> bool {
        self.not_measured.as_deref() == Some(APART)
    }

    /// Takes in what was seen then, after so many rounds.
    pub(super) fn add_look(&mut self, rounds: usize, seen: Sample) {
        self.rounds_not_measured.clear();
        self.looked_at_apart = seen.figures.contains_key(COSCHEDULED);
        self.add(rounds, seen);
    }

    /// The samples of a figure, each with its round, counted from 0.
    pub fn by_round(&self, figure: &str) -> impl Iterator<Item = (usize, f64)> + '_ {
        let rounds = self.rounds.get(figure).into_iter().flatten().copied();
        rounds.zip(self.samples.get(figure).into_iter().flatten().copied())
    }

    /// In how many rounds it was measured.
    pub fn measured(&self) -> usize {
        self.rounds.values().map(Vec::len).max().unwrap_or(0)
    }

    /// A figure of two conditions, of the rounds in which both have it.
    pub fn paired(&self, other: &Series, figure: &str) -> (Vec<f64>, Vec<f64>) {
        let others: BTreeMap<usize, f64> = other.by_round(figure).collect();
        let both = |(round, value)| Some((value, *others.get(&round)?));
        self.by_round(figure).filter_map(both).unzip()
    }
}

fn are_all(rounds: &BTreeMap<&'static str, Vec<usize>>) -> bool {
    let most = rounds.values().flatten().max().map_or(0, |last| last + 1);
    rounds.values().all(|of| of.len() == most)
}

fn from_one<S: Serializer>(
    rounds: &BTreeMap<&'static str, Vec<usize>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let from_one = |of: &Vec<usize>| of.iter().map(|round| round + 1).collect::<Vec<_>>();
    serializer.collect_map(rounds.iter().map(|(figure, of)| (figure, from_one(of))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_missing_in_a_round_is_paired_with_none() {
        let series = |missing: usize| {
            let mut series = Series::new("a", BTreeMap::new());
            for round in 0..3 {
                let value = (round * 10 + missing) as f64;
                let figures = (round != missing).then_some(("n", value));
                series.add(
                    round,
                    Sample { figures: figures.into_iter().collect(), ..Sample::default() },
                );
            }
            series
        };
        let (first, second) = (series(0), series(1));
        assert_eq!(first.by_round("n").collect::<Vec<_>>(), [(1, 10.0), (2, 20.0)]);
        assert_eq!(first.paired(&second, "n"), (vec![20.0], vec![21.0]));
        assert_eq!(first.paired(&second, "m"), (vec![], vec![]));
        assert_eq!(
            serde_json::to_value(&second).unwrap()["rounds"]["n"],
            serde_json::json!([1, 3])
        );
        let whole = serde_json::to_value(series(3)).unwrap();
        assert!(whole.get("rounds").is_none(), "{whole}");
    }
}
