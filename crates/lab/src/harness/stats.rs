//! Means and ratios with their intervals.
//!
//! Rounds of an experiment alternate between its conditions, so the samples of one round belong
//! together, and what disturbs the machine for a while disturbs all of them. A ratio is that of the
//! two means: what was done in all rounds under one condition over what was done under the other.
//! (A mean of the rounds' ratios would let a single round in which plain Linux happens to collapse
//! decide.) Its interval comes from the residuals of the pairs, as for the ratio estimator of
//! survey sampling (Cochran, Sampling Techniques, 6.3), so that what both share cancels out.
//! Intervals are Student's, at 95 %.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

const CONFIDENCE: f64 = 0.95;

/// A figure with its 95 % confidence interval; none from a single sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    pub samples: usize,
}

impl Estimate {
    /// The same in another unit.
    pub fn scaled(self, by: f64) -> Self {
        let interval = self.interval.map(|interval| interval.map(|end| end * by));
        Self { value: self.value * by, interval, ..self }
    }
}

/// Mean and standard deviation of samples; none of no samples.
pub fn mean_sd(samples: &[f64]) -> Option<(f64, f64)> {
    if samples.is_empty() {
        return None;
    }
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    let sd = if samples.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
    Some((mean, sd))
}

/// The sample at a part of samples in order, from 0 to 1. There must be one.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

/// The mean with its interval.
pub fn mean(samples: &[f64]) -> Option<Estimate> {
    let (mean, sd) = mean_sd(samples)?;
    let interval = half_width(samples.len(), sd).map(|half| [mean - half, mean + half]);
    Some(Estimate { value: mean, interval, samples: samples.len() })
}

/// A share in percent, of which nothing was seen in so many independent cases: the rule of three
/// (Hanley and Lippman-Hand, JAMA 249, 1983) has 3 over their number as its bound with 95 %.
pub fn none_of(cases: f64, samples: usize) -> Option<Estimate> {
    let interval = Some([0.0, (300.0 / cases).min(100.0)]);
    (cases > 0.0).then_some(Estimate { value: 0.0, interval, samples })
}

/// The ratio of the means of two series whose samples belong together in pairs, with its interval.
///
/// None where a pair is missing, or where there is nothing to divide by.
pub fn ratio(of: &[f64], over: &[f64]) -> Option<Estimate> {
    let (mean_of, _) = mean_sd(of)?;
    let (mean_over, _) = mean_sd(over)?;
    let has_ratio =
        mean_of >= 0.0 && mean_of.is_finite() && mean_over > 0.0 && mean_over.is_finite();
    if of.len() != over.len() || !has_ratio {
        return None;
    }
    let value = mean_of / mean_over;
    let residuals: Vec<f64> = of.iter().zip(over).map(|(a, b)| a - value * b).collect();
    let (_, sd) = mean_sd(&residuals)?;
    let interval = half_width(of.len(), sd / mean_over).map(|half| [value - half, value + half]);
    Some(Estimate { value, interval, samples: of.len() })
}

/// The mean of the differences of two series whose samples belong together in pairs, with its
/// interval; none where a pair is missing.
pub fn difference(of: &[f64], less: &[f64]) -> Option<Estimate> {
    let differences: Vec<f64> = of.iter().zip(less).map(|(a, b)| a - b).collect();
    mean(&differences).filter(|_| of.len() == less.len())
}

/// How far the mean of some samples is above that of quiet ones, beyond what the spread of the
/// quiet ones explains; 0 where the spread explains all of it. With 95 % none of so many
/// comparisons is beyond the spread by chance (Bonferroni). The standard deviation of quiet samples
/// is taken to be at least `least_sd`: few of them may be alike by chance. The interval is that of
/// the difference, as far as it is above 0.
///
/// None where no sample was taken, or too few quiet ones to have a spread.
pub fn beyond_spread(
    of: &[f64],
    quiet: &[f64],
    least_sd: f64,
    comparisons: usize,
) -> Option<Estimate> {
    let (mean_of, _) = mean_sd(of)?;
    let (mean_quiet, sd) = mean_sd(quiet)?;
    let t = student_t(quiet.len(), (1.0 - CONFIDENCE) / comparisons.max(1) as f64)?;
    let both = 1.0 / of.len() as f64 + 1.0 / quiet.len() as f64;
    let (more, half) = (mean_of - mean_quiet, t * sd.max(least_sd) * both.sqrt());
    let [low, high] = [more - half, more + half].map(|end| end.max(0.0));
    Some(Estimate { value: low, interval: Some([low, high]), samples: of.len() })
}

/// The part that a ratio leaves out, in percent.
pub fn loss_percent(ratio: Estimate) -> Estimate {
    let loss = |ratio: f64| (1.0 - ratio) * 100.0;
    Estimate {
        value: loss(ratio.value),
        interval: ratio.interval.map(|[low, high]| [loss(high), loss(low)]),
        samples: ratio.samples,
    }
}

/// Whether the ratio of the means of two series, in pairs as for [`ratio`], is another one than
/// this, at 95 %: whether the mean of what is left of each pair is another one than nothing
/// (Fieller's theorem, J. R. Stat. Soc. B 16, 1954). It holds where what is divided by varies so
/// much that the interval of the ratio says little.
pub fn is_told_apart(of: &[f64], over: &[f64], from: f64) -> bool {
    let left: Vec<f64> = of.iter().zip(over).map(|(a, b)| a - from * b).collect();
    let interval = mean(&left).and_then(|it| it.interval);
    of.len() == over.len() && interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
}

fn half_width(samples: usize, sd: f64) -> Option<f64> {
    let t = student_t(samples, (1.0 - CONFIDENCE) / 2.0)?;
    Some(t * sd / (samples as f64).sqrt())
}

/// The quantile of Student's distribution that so much lies above; none of a single sample.
fn student_t(samples: usize, above: f64) -> Option<f64> {
    let freedom = samples.checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(student.inverse_cdf(1.0 - above))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3 * b.abs().max(1.0)
    }

    #[test]
    fn parts_of_samples_in_order() {
        let samples: Vec<f64> = (0..=100).map(f64::from).collect();
        let parts = [0.0, 0.5, 0.99, 1.0].map(|it| quantile(&samples, it));
        assert_eq!(parts, [0.0, 50.0, 99.0, 100.0]);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn nothing_of_many_is_bounded_by_the_rule_of_three() {
        assert_eq!(none_of(3_000.0, 8).unwrap().interval, Some([0.0, 0.1]));
        assert_eq!(none_of(1.0, 1).unwrap().interval, Some([0.0, 100.0]));
        assert_eq!(none_of(0.0, 1), None);
    }

    #[test]
    fn mean_of_a_textbook_sample() {
        // Four samples: t(0.975, 3) = 3.1824, sd = 2.5820, half width 4.1085.
        let estimate = mean(&[2.0, 4.0, 6.0, 8.0]).unwrap();
        assert!(near(estimate.value, 5.0));
        let [low, high] = estimate.interval.unwrap();
        assert!(near(low, 5.0 - 4.1085) && near(high, 5.0 + 4.1085), "{low} {high}");
    }

    #[test]
    fn few_samples() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[3.0]), Some(Estimate { value: 3.0, interval: None, samples: 1 }));
        assert_eq!(mean_sd(&[3.0]), Some((3.0, 0.0)));
    }

    #[test]
    fn ratios_are_taken_in_pairs() {
        // The machine is twice as fast in the second round; the ratio does not mind.
        let estimate = ratio(&[10.0, 20.0, 10.0], &[5.0, 10.0, 5.0]).unwrap();
        assert!(near(estimate.value, 2.0));
        let [low, high] = estimate.interval.unwrap();
        assert!(near(low, 2.0) && near(high, 2.0));
    }

    #[test]
    fn differences_are_taken_in_pairs() {
        let estimate = difference(&[3.0, 13.0, 103.0], &[1.0, 11.0, 101.0]).unwrap();
        assert!(near(estimate.value, 2.0), "what both share cancels out");
        assert_eq!(estimate.interval, Some([2.0, 2.0]));
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(difference(&[], &[]), None);
    }

    #[test]
    fn one_collapse_does_not_decide() {
        let estimate = ratio(&[100.0; 4], &[50.0, 50.0, 50.0, 0.01]).unwrap();
        assert!((2.0..3.0).contains(&estimate.value), "{estimate:?}");
        let [low, high] = estimate.interval.unwrap();
        assert!(low < estimate.value && estimate.value < high);
    }

    #[test]
    fn a_ratio_is_told_apart_from_another() {
        let told = is_told_apart;
        assert!(told(&[10.0, 10.1, 9.9], &[5.0, 5.1, 4.9], 1.05));
        assert!(told(&[10.0, 20.1, 9.9], &[10.0, 20.0, 10.0], 1.05), "less, too");
        assert!(!told(&[11.0, 20.1, 9.9], &[10.0, 20.0, 10.0], 1.05));
        // A program that collapses now and then is slower for sure, by an unknown amount.
        let (of, over) = ([100.0, 101.0, 99.0, 100.0], [50.0, 0.5, 51.0, 20.0]);
        assert!(told(&of, &over, 1.05));
        assert!(ratio(&of, &over).unwrap().interval.unwrap()[0] < 1.05);
        assert!(!told(&[2.0], &[1.0], 1.05) && !told(&[], &[], 1.05), "not by one round");
    }

    #[test]
    fn ratios_without_meaning_are_none() {
        assert_eq!(ratio(&[1.0], &[0.0]), None);
        assert_eq!(ratio(&[0.0, 0.0], &[1.0, 2.0]).map(|it| it.value), Some(0.0), "it starved");
        assert_eq!(ratio(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn spread_of_quiet_samples_explains_as_much_again() {
        // t(0.95, 3) = 2.3534, sd = 2.5820, half width of four and four 4.2966.
        let quiet = [2.0, 4.0, 6.0, 8.0];
        let of = |more: f64| beyond_spread(&quiet.map(|it| it + more), &quiet, 0.0, 1).unwrap();
        assert_eq!(of(0.0).value, 0.0);
        assert!(near(of(0.0).interval.unwrap()[1], 4.2966));
        assert_eq!((of(4.2).value, of(-9.0).interval), (0.0, Some([0.0, 0.0])));
        assert!(near(of(10.0).value, 10.0 - 4.2966));
        // With more attacks the worst of them is worse by chance.
        let of_15 = beyond_spread(&quiet, &quiet, 0.0, 15).unwrap();
        assert!(of_15.interval.unwrap()[1] > 2.0 * 4.2966);
        // Where nothing was seen, one event is no proof.
        assert_eq!(beyond_spread(&[0.0, 0.0, 1.0], &[0.0; 45], 0.26, 15).unwrap().value, 0.0);
        assert!(beyond_spread(&[1.0, 1.0, 1.0], &[0.0; 45], 0.26, 15).unwrap().value > 0.0);
        assert_eq!(
            (beyond_spread(&[], &quiet, 0.0, 1), beyond_spread(&quiet, &[1.0], 0.0, 1)),
            (None, None)
        );
    }

    #[test]
    fn loss_turns_the_interval_round() {
        let ratio = Estimate { value: 0.99, interval: Some([0.98, 1.01]), samples: 3 };
        let loss = loss_percent(ratio);
        assert!((loss.value - 1.0).abs() < 1e-9);
        let [low, high] = loss.interval.unwrap();
        assert!((low + 1.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
    }
}
