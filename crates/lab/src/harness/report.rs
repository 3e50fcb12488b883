//! The result of an experiment: its series, the ratios between them, the promises it checks, a
//! verdict and a picture.

mod files;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::harness::alternate::Run;
use crate::harness::confusion::Confusion;
use crate::harness::gangs::COSCHEDULED;
use crate::harness::lab::Lab;
use crate::harness::machine::Machine;
use crate::harness::noise::{Noise, Summary};
use crate::harness::options::Takes;
use crate::harness::origin::Origin;
use crate::harness::picture::{self, Picture};
pub use crate::harness::promise::{Measure, Promise, measure_rows, measure_table};
use crate::harness::samples::Series;
use crate::harness::stats::{self, Estimate};
use crate::harness::table::figure;
use crate::harness::verdict::{self, Better};
pub use files::{deliver, write_csv};

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub experiment: &'static str,
    /// Of gangd.
    version: &'static str,
    #[serde(flatten)]
    pub origin: Origin,
    /// The subject of the measurement, in a sentence.
    pub about: String,
    pub machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Summary>,
    /// The samples of `noise`, in order.
    pub noise_samples: Vec<Noise>,
    /// Whether conditions are compared: not on a machine that was too noisy, unless that was asked
    /// for.
    pub compared: bool,
    #[serde(skip)]
    asked: bool,
    /// Of all conditions.
    pub rounds: usize,
    /// Rounds after those, of some conditions.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_rounds: usize,
    /// Rounds for which a first answer had no time.
    #[serde(skip_serializing_if = "is_zero")]
    pub rounds_left_out: usize,
    pub series: Vec<Series>,
    pub ratios: Vec<Ratio>,
    pub measures: Vec<Measure>,
    /// Where programs were judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
    /// The meaning of the figures, in sentences; [`Report::verdicts`] has all of them.
    #[serde(skip)]
    pub verdict: Vec<String>,
    /// Each thing that was left out, and why.
    pub notes: Vec<String>,
    /// Options that were given, and have no part in it.
    #[serde(skip)]
    unused: Vec<Takes>,
    /// The figure that the picture shows.
    #[serde(skip)]
    pub shown: &'static str,
    /// Drawn in place of the bars of that figure.
    #[serde(skip)]
    pub picture: Option<Picture>,
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

impl Report {
    pub fn new(lab: &Lab, about: impl Into<String>, run: Run, shown: &'static str) -> Self {
        let noise = Summary::of(&run.noise);
        let quiet = !noise.is_some_and(|noise| noise.too_noisy());
        Self {
            experiment: run.experiment,
            version: env!("CARGO_PKG_VERSION"),
            origin: run.origin,
            about: about.into(),
            machine: run.machine,
            noise,
            noise_samples: run.noise,
            compared: quiet || lab.options.noisy,
            asked: lab.options.noisy,
            rounds: run.rounds,
            more_rounds: run.more_rounds,
            rounds_left_out: run.rounds_left_out,
            series: run.series,
            ratios: Vec::new(),
            measures: Vec::new(),
            confusion: None,
            verdict: Vec::new(),
            notes: Vec::new(),
            unused: lab.unused.clone(),
            shown,
            picture: None,
        }
    }

    /// Takes in a run of the same experiment with other conditions.
    pub fn add(&mut self, run: Run) {
        self.series.extend(run.series);
        self.origin.daemons.extend(run.origin.daemons);
        self.origin.goes_on |= run.origin.goes_on;
        self.more_rounds = self.more_rounds.max(run.more_rounds);
        self.rounds_left_out = self.rounds_left_out.max(run.rounds_left_out);
        // Either part can be too noisy to compare.
        self.noise = match (self.noise, Summary::of(&run.noise)) {
            (Some(before), Some(now)) => Some(before.worse(now)),
            (before, now) => before.or(now),
        };
        // Those of the file it has already.
        self.noise_samples.extend(run.noise.into_iter().skip(run.noise_on_file));
        self.compared &= self.asked || !self.noise.is_some_and(|noise| noise.too_noisy());
        self.machine.load_after = run.machine.load_after;
    }

    pub fn samples(&self, condition: &str, figure: &str) -> Option<&[f64]> {
        self.of(condition)?.samples.get(figure).map(Vec::as_slice)
    }

    fn of(&self, condition: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.condition == condition)
    }

    pub fn mean(&self, condition: &str, figure: &str) -> Option<Estimate> {
        stats::mean(self.samples(condition, figure)?)
    }

    /// Standard deviation in percent of the mean; a single sample has none.
    pub fn sd_percent(&self, condition: &str, figure: &str) -> Option<f64> {
        let samples = self.samples(condition, figure)?;
        let (mean, sd) = stats::mean_sd(samples)?;
        (samples.len() > 1 && mean > 0.0).then_some(sd / mean * 100.0)
    }

    /// The same of the ratio of two conditions in each round, from which what befell a whole round
    /// has gone.
    pub fn sd_percent_by_round(&self, of: &str, over: &str, figure: &str) -> Option<f64> {
        let (samples, bases) = self.of(of)?.paired(self.of(over)?, figure);
        let ratios: Vec<f64> = samples.iter().zip(&bases).map(|(a, b)| a / b).collect();
        let (mean, sd) = stats::mean_sd(&ratios)?;
        (ratios.len() > 1 && mean.is_normal()).then_some(sd / mean * 100.0)
    }

    /// Adds a ratio to the report and returns it; none where a condition was not measured, or where
    /// nothing is compared.
    pub fn ratio(&mut self, of: &str, over: &str, figure: &'static str) -> Option<Estimate> {
        if !self.compared {
            return None;
        }
        let (samples, bases) = self.of(of)?.paired(self.of(over)?, figure);
        let estimate = stats::ratio(&samples, &bases)?;
        self.ratios.push(Ratio { of: of.into(), over: over.into(), figure, estimate });
        Some(estimate)
    }

    /// By how much one condition's figure is more than another's, in its unit; none where either
    /// was not measured, or where nothing is compared.
    pub fn difference(&self, of: &str, less: &str, figure: &str) -> Option<Estimate> {
        let (samples, others) = self.of(of)?.paired(self.of(less)?, figure);
        stats::difference(&samples, &others).filter(|_| self.compared)
    }

    /// Like [`Report::ratio`], and adds the sentence that it is good for to the verdict.
    pub fn judge(
        &mut self,
        of: &str,
        over: &str,
        figure: &'static str,
        better: Better,
    ) -> Option<Estimate> {
        let estimate = self.ratio(of, over, figure)?;
        self.verdict.push(verdict::sentence(of, over, figure, better, &estimate));
        Some(estimate)
    }

    /// The whole verdict, with how many promises were kept.
    pub fn verdicts(&self) -> Vec<String> {
        if !self.compared {
            let why = "Nothing is compared, since the machine was too noisy";
            return vec![format!("{why}; --noisy compares all the same.")];
        }
        let mut all = self.verdict.clone();
        if self.noise.is_some_and(|noise| noise.too_noisy()) {
            all.insert(0, "The machine was too noisy for what follows to prove much.".into());
        }
        if self.noise.is_some_and(|noise| noise.is_uneven()) {
            all.push(
                "Its CPUs were nearer to each other at some times than at others, by which what meets at barriers \
                 varies under any scheduler."
                    .into(),
            );
        }
        let measures = self.measures.iter();
        all.extend(verdict::promises(measures.map(|m| (m.id, m.measured.is_some(), m.met))));
        all
    }

    /// All that was left out, with what is not known of gangs.
    pub fn left_out(&self) -> Vec<String> {
        let mut all = self.notes.clone();
        all.extend(
            self.unused
                .iter()
                .map(|it| format!("{}: it has no part in this experiment.", it.flag())),
        );
        if self.rounds_left_out > 0 {
            let rounds = self.rounds_left_out;
            all.push(format!("{rounds} more rounds: --quick is to answer within a minute."));
        }
        let longer: Vec<f64> =
            self.series.iter().flat_map(|series| series.longer_windows_s.iter().copied()).collect();
        if let Some(longest_s) = longer.iter().copied().reduce(f64::max) {
            let of: usize = self.series.iter().map(Series::measured).sum();
            all.push(format!(
                "{} of {of} measurements are over longer windows than was asked for, of up to {} s: in shorter ones \
                 not every copy completed something.",
                longer.len(),
                figure(longest_s)
            ));
        }
        if self.series.iter().any(|series| series.looked_at_apart) {
            all.push(format!(
                "{COSCHEDULED} under plain Linux is of one more round, beside a daemon that does nothing else."
            ));
        }
        // A condition of which one round lacks it has it of the others.
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (reason, rounds) in self.series.iter().flat_map(|series| &series.rounds_not_measured) {
            *reasons.entry(reason).or_default() += rounds;
        }
        all.extend(reasons.into_iter().map(|(reason, count)| {
            let of: usize = self.series.iter().map(Series::measured).sum();
            format!(
                "How much programs were coscheduled, in {count} of {of} measurements: {reason}."
            )
        }));
        all
    }

    pub fn promise(&mut self, promise: &Promise, measured: Option<Estimate>) {
        self.promise_of(promise, "", measured);
    }

    /// The same, with what the promise leaves open.
    pub fn promise_of(&mut self, promise: &Promise, detail: &str, measured: Option<Estimate>) {
        let measured = measured.filter(|_| self.compared);
        self.measures.push(promise.measured_of(detail, measured));
    }

    /// How many rounds there were.
    pub fn all_rounds(&self) -> String {
        let rounds = match self.rounds {
            1 => "1 round".into(),
            rounds => format!("{rounds} rounds"),
        };
        match self.more_rounds {
            0 => rounds,
            more => format!("{rounds}, and up to {more} more where they did not decide"),
        }
    }

    pub fn draw(&self, paths: &[&Path]) -> Result<()> {
        match &self.picture {
            Some(picture) => picture.draw(&self.about, paths),
            None => picture::bars(paths, self),
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::options::Options;
    use crate::harness::promise::tests::SPEED;
    use crate::harness::samples::Sample;

    pub(super) fn report(lost_percent: f64, noisy: bool) -> Report {
        let lab = Lab::new(&Options { noisy, ..Options::default() }).unwrap();
        let series = |condition: &str, samples: [f64; 3]| {
            Series::new(condition, BTreeMap::from([("per_s", samples.to_vec())]))
        };
        let series = vec![series("plain, 1", [1.0, 1.0, 1.1]), series("gangd, 1", [2.9, 3.0, 3.1])];
        let noise = vec![Noise { lost_percent, longest_ms: 1.0, handover_ns: None }];
        let run = Run::made_up("speed", 3, series, noise);
        let mut report = Report::new(&lab, "about speed", run, "per_s");
        let ratio = report.judge("gangd, 1", "plain, 1", "per_s", Better::More);
        report.promise(&SPEED, ratio);
        report
    }

    #[test]
    fn a_verdict_follows_from_the_figures() {
        let verdicts = report(1.0, false).verdicts();
        assert!(verdicts[0].contains("better"), "{verdicts:?}");
        assert_eq!(verdicts[1], "1 of 1 promises kept.");
    }

    #[test]
    fn a_report_of_two_runs_has_what_both_had() {
        let mut report = report(1.0, false);
        let quiet = |lost_percent| Noise { lost_percent, longest_ms: 0.0, handover_ns: None };
        let noise = vec![quiet(1.0), quiet(2.0)];
        let mut run = Run::made_up("speed", 1, Vec::new(), noise);
        run.noise_on_file = 1;
        run.origin.daemons.insert("backend rt, slices of 1ms".into());
        report.add(run);
        let lost: Vec<f64> = report.noise_samples.iter().map(|it| it.lost_percent).collect();
        assert_eq!(lost, [1.0, 2.0]);
        assert_eq!(report.origin.daemons.len(), 1);
    }

    #[test]
    fn noisy_machine_compares_nothing_unless_asked() {
        let refused = report(30.0, false);
        assert!(refused.ratios.is_empty() && refused.measures[0].measured.is_none());
        assert!(refused.text().contains("--noisy"), "{}", refused.text());
        assert!(refused.text().contains("plain, 1"), "what was measured is shown");
        let asked = report(30.0, true);
        assert!(asked.measures[0].met && asked.verdicts()[0].contains("too noisy"));
    }

    #[test]
    fn rounds_that_were_left_out_are_told() {
        let mut report = report(1.0, false);
        assert!(!report.text().contains("more rounds"));
        report.rounds_left_out = 2;
        assert!(report.text().contains("- 2 more rounds: --quick"), "{}", report.text());
        assert!(report.text().contains("; 3 rounds\n"), "{}", report.text());
        report.more_rounds = 4;
        assert!(report.text().contains("; 3 rounds, and up to 4 more "), "{}", report.text());
    }

    #[test]
    fn windows_that_had_to_be_longer_are_told() {
        let mut report = report(1.0, false);
        assert!(!report.text().contains("longer windows"));
        for (round, longer_window_s) in [(3, Some(0.8)), (4, None), (5, Some(3.2))] {
            let figures = [("per_s", 1.0)].into();
            report.series[0].add(round, Sample { figures, longer_window_s, ..Sample::default() });
        }
        let note = "- 2 of 9 measurements are over longer windows than was asked for, of up to 3.2";
        assert!(report.text().contains(note), "{}", report.text());
        let json = serde_json::to_value(report.value()).unwrap();
        assert_eq!(json["series"][0]["longer_windows_s"], serde_json::json!([0.8, 3.2]));
        assert!(json["series"][1].get("longer_windows_s").is_none());
    }

    #[test]
    fn unknown_figures_of_gangs_have_their_reason() {
        let mut report = report(1.0, false);
        assert!(!report.text().contains(COSCHEDULED), "a run without gangs has none");
        for round in 3..6 {
            let not_measured = Some("it takes CAP_BPF".into());
            report.series[1].add(round, Sample { not_measured, ..Sample::default() });
        }
        let text = report.text();
        let row = text.lines().find(|line| line.contains("gangd, 1 ")).unwrap();
        assert!(text.contains(COSCHEDULED) && row.contains("not measured"), "{text}");
        assert!(text.contains("in 3 of 6 measurements: it takes CAP_BPF."), "{text}");
        let json = serde_json::to_value(report.value()).unwrap();
        assert_eq!(json["series"][1]["not_measured"], "it takes CAP_BPF");
        assert!(json["series"][0].get("not_measured").is_none());
    }

    #[test]
    fn figure_missing_in_one_round_is_of_the_others() {
        let mut report = report(1.0, false);
        let not_measured = Some("no gang was there".into());
        report.series[1].add(0, Sample { not_measured, ..Sample::default() });
        for (round, percent) in [(1, 98.0), (2, 99.0)] {
            let figures = [(COSCHEDULED, percent)].into();
            report.series[1].add(round, Sample { figures, ..Sample::default() });
        }
        let text = report.text();
        let row = text.lines().find(|line| line.contains("gangd, 1 ")).unwrap();
        assert!(row.contains("98.5") && !row.contains("not measured"), "{text}");
        assert!(text.contains("in 1 of 6 measurements: no gang was there."), "{text}");
        let json = serde_json::to_value(report.value()).unwrap();
        assert_eq!(json["series"][1]["rounds_not_measured"]["no gang was there"], 1);
        assert!(json["series"][1].get("not_measured").is_none(), "it is known of two rounds");
        assert!(json["series"][0].get("rounds_not_measured").is_none());
    }
}
