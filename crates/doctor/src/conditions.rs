//! The five conditions (E1 to E5) under which gang scheduling helps.
//!
//! The bounds. Waits every 15 ms or less (E13: with longer intervals there was nothing to gain on
//! Linux); and an imbalance below 3 ms (E14: a few milliseconds end it).

use serde::Serialize;

use crate::competitors::Competitor;
use crate::figures::ProgramFigures;
use crate::words::{percent, time};

/// Synchronisation that is rarer does not suffer (E13).
const INTERVAL_MAX_US: f64 = 15_000.0;

/// Threads that differ by more wait for each other however they are scheduled (E14).
const IMBALANCE_MAX_US: f64 = 3_000.0;

/// Watched for so long without a change, the demand of others does not change.
const STEADY_S: f64 = 30.0;

/// Below this share of its time, waiting does not matter.
const NOTABLE: f64 = 0.01;

/// Below this share of the time nobody competes.
const COMPETES: f64 = 0.02;

/// One of the five conditions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    /// `E1` to `E5`.
    pub id: &'static str,
    pub name: &'static str,
    /// Absent where it could not be seen.
    pub holds: Option<bool>,
    /// The observation, in words.
    pub finding: String,
}

/// Judges a program by each of them, in order.
pub fn of(figures: &ProgramFigures) -> Vec<Condition> {
    let waits = figures.spinning >= NOTABLE || figures.interval_us.is_some();
    vec![
        fine_grained(figures, waits),
        balanced(figures, waits),
        sensitive(figures),
        contended(figures),
        changing(figures),
    ]
}

fn fine_grained(figures: &ProgramFigures, waits: bool) -> Condition {
    let (holds, finding) = match figures.interval_us.filter(|_| waits) {
        _ if figures.threads < 2 => (Some(false), "it has a single thread that computes".into()),
        None if waits => {
            let spinning = percent(figures.spinning);
            (
                None,
                format!(
                    "its threads wait for each other {spinning} of their time on CPUs; how \
                         often could not be seen"
                ),
            )
        }
        None => (Some(false), "its threads were not seen to wait for each other".into()),
        Some(us) => {
            let is_bound = figures.interval_is_bound;
            let or_less = or_less(is_bound);
            (
                within(us, INTERVAL_MAX_US, is_bound),
                format!("a thread waits for the others every {}{or_less}", time(us)),
            )
        }
    };
    Condition { id: "E1", name: "fine-grained synchronisation", holds, finding }
}

/// Whether a figure is at most that. One that is itself only a bound may be less than it is.
fn within(figure: f64, most: f64, is_bound: bool) -> Option<bool> {
    (figure <= most || !is_bound).then_some(figure <= most)
}

fn or_less(is_bound: bool) -> &'static str {
    if is_bound { " or less" } else { "" }
}

fn balanced(figures: &ProgramFigures, waits: bool) -> Condition {
    let name = "well-balanced work";
    let condition = |holds, finding: String| Condition { id: "E2", name, holds, finding };
    let Some(clear) = figures.pace_clear else {
        return condition(None, "its threads were hardly ever all on CPUs".into());
    };
    let idle = (1.0 - clear).clamp(0.0, 1.0);
    if let Some(us) = figures.spread_us {
        let finding = format!(
            "with all threads on CPUs, {} of the time is waited; a thread that sleeps until the \
                     others are there sleeps {} at a time",
            percent(idle),
            time(us)
        );
        return condition(Some(us <= IMBALANCE_MAX_US), finding);
    }
    let Some(us) = figures.interval_us.filter(|_| waits) else {
        let finding = format!("{} of its CPUs' time is not worked in", percent(idle));
        return condition(None, finding);
    };
    let imbalance_us = us * idle;
    condition(
        within(imbalance_us, IMBALANCE_MAX_US, figures.interval_is_bound),
        format!(
            "with all threads on CPUs, {} of the time is waited: {}{} at a time",
            percent(idle),
            time(imbalance_us),
            or_less(figures.interval_is_bound)
        ),
    )
}

fn sensitive(figures: &ProgramFigures) -> Condition {
    let name = "sensitivity to latency";
    let (holds, finding) = match (figures.pace_apart, figures.pace_apart_if_independent) {
        (Some(pace), Some(independent)) if independent > 0.0 => {
            let kept = pace / independent;
            let finding = format!(
                "while one of its threads waits for a CPU, the others do {} of what they could",
                percent(kept.min(1.0))
            );
            (Some(kept < 0.9), finding)
        }
        _ if figures.apart < COMPETES => {
            (None, "it had all CPUs that it wanted; without competition this cannot be seen".into())
        }
        _ => (None, "too few moments to judge".into()),
    };
    Condition { id: "E3", name, holds, finding }
}

fn contended(figures: &ProgramFigures) -> Condition {
    let name = |it: &Competitor| format!("{} ({}) has {:.1} CPUs", it.name, it.pid, it.cpus);
    let names: Vec<String> = figures.competitors.iter().map(name).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let finding = format!(
        "{:.1} threads of others want to run{names}; one of its threads waits for a CPU {} of \
                     the time",
        figures.others,
        percent(figures.apart)
    );
    let holds = Some(figures.apart > COMPETES && figures.others > 0.2);
    Condition { id: "E4", name: "other programs that matter", holds, finding }
}

fn changing(figures: &ProgramFigures) -> Condition {
    let (holds, finding) = if figures.others_sd > 0.3 {
        (Some(true), format!("the others' demand varies by {:.1} threads", figures.others_sd))
    } else if figures.seconds >= STEADY_S {
        let seconds = figures.seconds;
        (
            Some(false),
            format!("it did not change in {seconds:.0} s: fixed CPUs for each do as well"),
        )
    } else {
        let finding = format!(
            "it did not change in {:.1} s; if it does not in {STEADY_S:.0} s (--seconds), fixed \
                     CPUs for each do as well",
            figures.seconds
        );
        (None, finding)
    };
    Condition { id: "E5", name: "demand that changes", holds, finding }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that meets all conditions but for the last.
    fn figures() -> ProgramFigures {
        ProgramFigures {
            threads: 2,
            cpus: 2,
            pace_clear: Some(0.9),
            pace_apart: Some(0.1),
            pace_apart_if_independent: Some(0.45),
            apart: 0.8,
            spinning: 0.3,
            interval_us: Some(100.0),
            others: 2.0,
            ..ProgramFigures::default()
        }
    }

    /// The judgement of a condition, and its reason.
    fn judged(id: &str, figures: ProgramFigures) -> (Option<bool>, String) {
        let found = of(&figures).into_iter().find(|condition| condition.id == id).unwrap();
        (found.holds, found.finding)
    }

    #[test]
    fn each_condition_has_its_name_and_one_verdict() {
        let all = of(&figures());
        let ids: Vec<_> = all.iter().map(|condition| condition.id).collect();
        assert_eq!(ids, ["E1", "E2", "E3", "E4", "E5"]);
        let holds: Vec<_> = all.iter().map(|condition| condition.holds).collect();
        assert_eq!(holds, [Some(true), Some(true), Some(true), Some(true), None]);
        assert!(all.iter().all(|it| !it.name.is_empty() && !it.finding.is_empty()), "{all:?}");
    }

    #[test]
    fn fine_grained_is_judged_by_the_interval() {
        let every = |us| ProgramFigures { interval_us: Some(us), ..figures() };
        assert_eq!(judged("E1", every(INTERVAL_MAX_US)).0, Some(true));
        let (holds, finding) = judged("E1", every(20_000.0));
        assert_eq!((holds, finding.contains("every 20.0 ms")), (Some(false), true), "{finding}");
        let bound = ProgramFigures { interval_is_bound: true, ..every(1_000.0) };
        assert!(judged("E1", bound).1.ends_with("1.0 ms or less"));
        let coarse = ProgramFigures { interval_is_bound: true, ..every(20_000.0) };
        assert_eq!(judged("E1", coarse).0, None, "20 ms or less may be a microsecond");
        let unseen = ProgramFigures { interval_us: None, ..figures() };
        assert_eq!(judged("E1", unseen).0, None, "they wait, nobody knows how often");
        let never = ProgramFigures { interval_us: None, spinning: 0.0, ..figures() };
        assert_eq!(judged("E1", never).0, Some(false));
        assert_eq!(judged("E1", ProgramFigures { threads: 1, ..figures() }).0, Some(false));
    }

    #[test]
    fn balance_is_judged_by_what_is_waited_at_a_time() {
        let of = |pace, us| ProgramFigures {
            pace_clear: Some(pace),
            interval_us: Some(us),
            ..figures()
        };
        let (holds, finding) = judged("E2", of(0.5, 10_000.0));
        assert_eq!((holds, finding.contains("5.0 ms at a time")), (Some(false), true), "{finding}");
        assert_eq!(judged("E2", of(0.5, 6_000.0)).0, Some(true), "3 ms are the bound");
        assert_eq!(judged("E2", of(0.95, 10_000.0)).0, Some(true));
        let bound = |pace| ProgramFigures { interval_is_bound: true, ..of(pace, 8_000.0) };
        assert_eq!((judged("E2", bound(0.5)).0, judged("E2", bound(0.7)).0), (None, Some(true)));
        assert!(judged("E2", bound(0.5)).1.ends_with("4.0 ms or less at a time"));
        let spread = |us| judged("E2", ProgramFigures { spread_us: Some(us), ..of(0.5, 10_000.0) });
        let (holds, finding) = spread(2_500.0);
        assert_eq!(
            (holds, finding.contains("sleeps 2.5 ms at a time")),
            (Some(true), true),
            "{finding}"
        );
        assert_eq!(spread(3_500.0).0, Some(false));
        assert_eq!(judged("E2", ProgramFigures { pace_clear: None, ..figures() }).0, None);
        let never = ProgramFigures { interval_us: None, spinning: 0.0, ..figures() };
        assert_eq!(judged("E2", never).0, None);
    }

    #[test]
    fn latency_matters_where_the_others_stop() {
        let does = |pace| ProgramFigures { pace_apart: Some(pace), ..figures() };
        assert_eq!(judged("E3", does(0.45)).0, Some(false), "all that they could");
        assert_eq!(judged("E3", does(0.4)).0, Some(true));
        let few = ProgramFigures { pace_apart: None, ..figures() };
        assert_eq!(judged("E3", few).0, None);
    }

    #[test]
    fn competitors_have_names() {
        let competitors =
            ["make", "cc1"].map(|name| Competitor { pid: 7, name: name.into(), cpus: 0.94 });
        let (holds, finding) =
            judged("E4", ProgramFigures { competitors: competitors.into(), ..figures() });
        assert_eq!(holds, Some(true));
        assert!(finding.contains("run: make (7) has 0.9 CPUs, cc1 (7) has 0.9 CPUs;"), "{finding}");
        assert!(judged("E4", figures()).1.contains("want to run; one"), "nobody is named");
        assert_eq!(judged("E4", ProgramFigures { apart: 0.01, ..figures() }).0, Some(false));
        assert_eq!(judged("E4", ProgramFigures { others: 0.1, ..figures() }).0, Some(false));
    }

    #[test]
    fn demand_changes_where_that_of_others_varies() {
        let (holds, finding) = judged("E5", ProgramFigures { others_sd: 0.5, ..figures() });
        assert_eq!((holds, finding.contains("0.5 threads")), (Some(true), true), "{finding}");
        assert_eq!(judged("E5", ProgramFigures { others_sd: 0.3, ..figures() }).0, None);
        let watched =
            |seconds, others_sd| judged("E5", ProgramFigures { seconds, others_sd, ..figures() }).0;
        assert_eq!((watched(29.9, 0.1), watched(30.0, 0.1)), (None, Some(false)));
        assert_eq!(watched(60.0, 0.5), Some(true), "it changes, however long that took");
    }
}
