//! Means and ratios with their intervals.
//!
//! Rounds of an experiment alternate between its conditions, so the samples of one round belong
//! together, and what disturbs the machine for a while disturbs all of them. A ratio is therefore
//! taken round by round, and averaged on the logarithmic scale, on which a ratio and its inverse
//! are equally far from one. Intervals are Student's, at 95 %.

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

/// The mean with its interval.
pub fn mean(samples: &[f64]) -> Option<Estimate> {
    let (mean, sd) = mean_sd(samples)?;
    let interval = half_width(samples.len(), sd).map(|half| [mean - half, mean + half]);
    Some(Estimate { value: mean, interval, samples: samples.len() })
}

/// The ratio of two series whose samples belong together in pairs, with its interval.
///
/// None where a pair is missing or a sample is not above 0, which has no ratio.
pub fn ratio(of: &[f64], over: &[f64]) -> Option<Estimate> {
    if of.len() != over.len() || of.iter().chain(over).any(|x| *x <= 0.0 || !x.is_finite()) {
        return None;
    }
    let logs: Vec<f64> = of.iter().zip(over).map(|(a, b)| (a / b).ln()).collect();
    let estimate = mean(&logs)?;
    Some(Estimate {
        value: estimate.value.exp(),
        interval: estimate.interval.map(|[low, high]| [low.exp(), high.exp()]),
        samples: estimate.samples,
    })
}

fn half_width(samples: usize, sd: f64) -> Option<f64> {
    let freedom = samples.checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let t = student.inverse_cdf(1.0 - (1.0 - CONFIDENCE) / 2.0);
    Some(t * sd / (samples as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3 * b.abs().max(1.0)
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
        let inverse = ratio(&[5.0, 10.0, 9.0], &[10.0, 20.0, 10.0]).unwrap().value;
        let there = ratio(&[10.0, 20.0, 10.0], &[5.0, 10.0, 9.0]).unwrap().value;
        assert!(near(inverse * there, 1.0));
    }

    #[test]
    fn ratios_without_meaning_are_none() {
        assert_eq!(ratio(&[1.0], &[0.0]), None);
        assert_eq!(ratio(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(ratio(&[], &[]), None);
        assert_eq!(ratio(&[f64::NAN], &[1.0]), None);
    }
}
