//! Conditions that alternate within one run.
//!
//! A machine drifts: other users come and go, clocks change their frequency. So every round runs
//! each condition once, every second round in the reverse order, and figures are compared within
//! rounds only.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Figures of one measurement, by name with the unit last.
pub type Figures = BTreeMap<&'static str, f64>;

/// One way to run the workload of an experiment.
pub struct Condition<'a> {
    pub name: String,
    measure: Box<dyn Fn() -> Result<Figures> + 'a>,
}

impl<'a> Condition<'a> {
    pub fn new(name: impl Into<String>, measure: impl Fn() -> Result<Figures> + 'a) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// The raw samples of one condition, one for each round.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub condition: String,
    pub samples: BTreeMap<&'static str, Vec<f64>>,
}

/// Runs all conditions `rounds` times, and says on the standard error how far it is.
pub fn alternate(rounds: usize, conditions: &[Condition]) -> Result<Vec<Series>> {
    let mut series: Vec<Series> = conditions
        .iter()
        .map(|c| Series { condition: c.name.clone(), samples: BTreeMap::new() })
        .collect();
    for round in 0..rounds {
        for step in 0..conditions.len() {
            let index = if round % 2 == 0 { step } else { conditions.len() - 1 - step };
            let condition = &conditions[index];
            say(&format!("round {} of {rounds}: {}", round + 1, condition.name));
            let figures = (condition.measure)()
                .with_context(|| format!("round {}, {}", round + 1, condition.name))?;
            for (name, value) in figures {
                series[index].samples.entry(name).or_default().push(value);
            }
        }
    }
    say("");
    Ok(series)
}

/// Shows what is being done, in place; nothing where nobody watches.
pub fn say(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn every_second_round_runs_backwards() {
        let order = RefCell::new(String::new());
        let condition = |name: &'static str| {
            let order = &order;
            Condition::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Figures::from([("rounds", order.borrow().len() as f64)]))
            })
        };
        let series = alternate(3, &[condition("a"), condition("b"), condition("c")]).unwrap();
        assert_eq!(*order.borrow(), "abccbaabc");
        assert_eq!(series[1].condition, "b");
        assert_eq!(series[1].samples["rounds"], [2.0, 5.0, 8.0]);
    }

    #[test]
    fn a_failure_names_its_condition() {
        let fails = Condition::new("on fire", || anyhow::bail!("smoke"));
        let error = format!("{:#}", alternate(1, &[fails]).unwrap_err());
        assert_eq!(error, "round 1, on fire: smoke");
    }
}
