//! Judges a program by the five conditions (E1 to E5) under which gang scheduling helps, and predicts how
//! much it would.
//!
//! Approach: a gang runs for its fair share of the time, at the pace that the program has when none of its
//! threads waits for a CPU. That, over the pace that it has now, is what it would gain. The conditions say
//! why.
//!
//! A gang of which more threads want CPUs than it has does not run as a whole in its slots either: no gain follows.
//!
//! The bounds: waits every 15 ms or less (E13: from there on there was nothing to gain on Linux), and an
//! imbalance below 3 ms (E14: a few milliseconds end it).

use serde::Serialize;

use crate::competitors::Competitor;
use crate::observation::{Cause, Figures, Observation};

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

/// Where more threads than it has CPUs want them for more than this share of its time, no slot holds them all. It is
/// 0.43 of scikit-learn, of which gangs are not faster, and below 0.001 of numpy, libgomp and Open MPI with a thread for
/// each CPU. Three threads that spin for each other on two CPUs made 0.95 [0.66, 1.24] of what they make without gangs.
const CROWDED: f64 = 0.25;

/// It helps where it gains more than this.
pub const HELPS: f64 = 0.05;

/// The pace that threads which wait for each other have, taken where they are hardly ever all on CPUs: it
/// cannot be seen then. Of the lab's programs of which it can be, and which meet every 100 µs or more seldom, it is
/// 0.74 to 1, and this at the median. Those that meet more often gain far more than it matters.
const PACE_UNSEEN: f64 = 0.95;

/// Parts of the time for the jackknife.
const PARTS: usize = 10;

/// Student's t for 9 degrees of freedom, 95 %.
const T_9: f64 = 2.262;

/// One of the five conditions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    /// `E1` to `E5`.
    pub id: &'static str,
    pub name: &'static str,
    /// Absent where it could not be seen.
    pub holds: Option<bool>,
    /// What was seen, in words.
    pub finding: String,
}

/// A gain, 0.1 for 10 % more done in the same time, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    pub gain: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// A gain that is greater is not told apart from it.
pub const GAIN_MAX: f64 = 1000.0;

/// By what it was measured how much a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The program's own count, as it reports it through libgang.
    Progress,
    /// The time in which it works on CPUs.
    Work,
}

/// What an experiment has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    pub gain: Gain,
    pub by: Measure,
}

/// What is to be said of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Gang scheduling helps by more than 5 %; absent where nobody can tell.
    pub helps: Option<bool>,
    pub sentence: String,
    pub predicted_gain: Option<Gain>,
    pub measured_gain: Option<Gain>,
    /// By what that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<Measure>,
    pub conditions: Vec<Condition>,
    pub figures: Figures,
}

impl Diagnosis {
    pub fn of(observation: &Observation) -> Diagnosis {
        let figures = observation.figures();
        let conditions = conditions(&figures);
        let predicted_gain = predict(observation);
        Diagnosis {
            helps: helps(predicted_gain, &figures, &conditions),
            sentence: String::new(),
            predicted_gain,
            measured_gain: None,
            measured_by: None,
            conditions,
            figures,
        }
        .spoken()
    }

    /// The same with what an experiment has shown, which counts for more than a prediction.
    pub fn proven(mut self, proof: Proof) -> Diagnosis {
        let gain = proof.gain;
        self.measured_gain = Some(gain);
        self.measured_by = Some(proof.by);
        self.helps = match gain.interval {
            Some([low, _]) if low > HELPS => Some(true),
            Some([_, high]) if high < HELPS => Some(false),
            // It is not sure; the best guess is the measured one.
            _ => Some(gain.gain > HELPS),
        };
        self.spoken()
    }

    fn spoken(mut self) -> Diagnosis {
        self.sentence = sentence(&self);
        self
    }
}

/// What the program would gain as a gang: jackknife estimate over parts of the time. None where that cannot be told,
/// and where it would not run as a whole.
pub fn predict(observation: &Observation) -> Option<Gain> {
    if observation.figures().crowded > CROWDED {
        return None;
    }
    let of = |observation: &Observation| {
        let figures = observation.figures();
        let clear = figures.pace_clear.filter(|&clear| clear > 0.0)?;
        (figures.pace > 0.0).then(|| (figures.fair_share * clear / figures.pace).ln())
    };
    let whole = of(observation)?;
    let parts: Option<Vec<f64>> =
        (0..PARTS).map(|part| of(&observation.without(part, PARTS))).collect();
    let interval = parts.map(|parts| {
        let n = PARTS as f64;
        let mean = parts.iter().sum::<f64>() / n;
        let variance = parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() * (n - 1.0) / n;
        let half = T_9 * variance.sqrt();
        [(whole - half).exp() - 1.0, (whole + half).exp() - 1.0]
    });
    Some(Gain { gain: whole.exp() - 1.0, interval })
}

/// Whether it helps, as far as can be told without a proof.
fn helps(predicted: Option<Gain>, figures: &Figures, conditions: &[Condition]) -> Option<bool> {
    let fails = |id| conditions.iter().any(|it| it.id == id && it.holds == Some(false));
    match predicted {
        Some(gain) => Some(gain.gain > HELPS),
        None if figures.pace <= 0.0 && figures.spinning <= 0.0 => None,
        None if figures.crowded > CROWDED => Some(false),
        // Threads that do not wait for each other do not mind, however seldom all of them run.
        None if fails("E1") || fails("E4") => Some(false),
        None => Some(figures.fair_share * PACE_UNSEEN > figures.pace * (1.0 + HELPS)),
    }
}

fn conditions(figures: &Figures) -> Vec<Condition> {
    let waits = figures.spinning >= NOTABLE || figures.interval_us.is_some();
    vec![
        fine_grained(figures, waits),
        balanced(figures, waits),
        sensitive(figures),
        contended(figures),
        changing(figures),
    ]
}

fn fine_grained(figures: &Figures, waits: bool) -> Condition {
    let (holds, finding) = match figures.interval_us.filter(|_| waits) {
        _ if figures.threads < 2 => (Some(false), "it has a single thread that computes".into()),
        None if waits => {
            let spinning = percent(figures.spinning);
            (
                None,
                format!(
                    "its threads wait for each other {spinning} of their time on CPUs; how often could not be seen"
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

fn balanced(figures: &Figures, waits: bool) -> Condition {
    let name = "well-balanced work";
    let condition = |holds, finding: String| Condition { id: "E2", name, holds, finding };
    let Some(clear) = figures.pace_clear else {
        return condition(None, "its threads were hardly ever all on CPUs".into());
    };
    let idle = (1.0 - clear).clamp(0.0, 1.0);
    if let Some(us) = figures.spread_us {
        let finding = format!(
            "with all threads on CPUs, {} of the time is waited; who sleeps until the others are there sleeps {} at a time",
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

fn sensitive(figures: &Figures) -> Condition {
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
        _ => (None, "too few moments to tell".into()),
    };
    Condition { id: "E3", name, holds, finding }
}

fn contended(figures: &Figures) -> Condition {
    let name = |it: &Competitor| format!("{} ({}) has {:.1} CPUs", it.name, it.pid, it.cpus);
    let names: Vec<String> = figures.competitors.iter().map(name).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    let finding = format!(
        "{:.1} threads of others want to run{names}; one of its threads waits for a CPU {} of the time",
        figures.others,
        percent(figures.apart)
    );
    let holds = Some(figures.apart > COMPETES && figures.others > 0.2);
    Condition { id: "E4", name: "other programs that matter", holds, finding }
}

fn changing(figures: &Figures) -> Condition {
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
            "it did not change in {:.1} s; if it does not in {STEADY_S:.0} s (--seconds), fixed CPUs for each do as well",
            figures.seconds
        );
        (None, finding)
    };
    Condition { id: "E5", name: "demand that changes", holds, finding }
}

fn sentence(diagnosis: &Diagnosis) -> String {
    let figures = &diagnosis.figures;
    let fails = |id| {
        diagnosis
            .conditions
            .iter()
            .find(|condition| condition.id == id && condition.holds == Some(false))
    };
    let reason = ["E4", "E1", "E2", "E3"].into_iter().find_map(fails);
    let because = match reason {
        Some(it) if it.id == "E4" => ": nobody competes for its CPUs now".to_owned(),
        // Threads that do not wait for each other need not run at the same time.
        Some(it) if it.id == "E1" => format!(": {}", it.finding),
        _ if figures.crowded > CROWDED => format!(
            ": more of its threads want CPUs than it may use, {} of the time, and no slot holds them all; give it no \
             more threads than CPUs",
            percent(figures.crowded)
        ),
        Some(it) => format!(": {}", it.finding),
        None => String::new(),
    };
    match (diagnosis.helps, diagnosis.measured_gain, diagnosis.predicted_gain) {
        (Some(true), Some(gain), _) if gain.gain >= GAIN_MAX => {
            "Gang scheduling helps: by Linux alone it did nothing while that was measured. Start it by gang run.".into()
        }
        (Some(true), Some(gain), _) => {
            format!(
                "Gang scheduling helps: {} more work in the same time, measured. Start it by gang run.",
                percent(gain.gain)
            )
        }
        (Some(false), Some(gain), _) => format!(
            "Gang scheduling does not help ({} measured){because}. Leave it to Linux.",
            signed(gain.gain)
        ),
        (Some(true), None, Some(gain)) => format!(
            "Gang scheduling should help, by about {}; --prove measures it. Start it by gang run.",
            percent(gain.gain)
        ),
        (Some(true), None, None) => format!(
            "Gang scheduling should help, if the work of its threads is balanced: they are hardly ever all on \
             CPUs, and wait {} of their time there. --prove measures it. Start it by gang run.",
            percent(figures.spinning)
        ),
        (Some(false), None, None) => {
            format!("Gang scheduling would not help{because}. Leave it to Linux.")
        }
        (Some(false), None, Some(gain)) => format!(
            "Gang scheduling would not help ({} predicted){because}. Leave it to Linux.",
            signed(gain.gain)
        ),
        _ => "It did not compute while it was watched, so there is nothing to say.".into(),
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A time given in microseconds.
fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// What is waited for, in words.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Partner => "each other (futex)",
        Cause::Device => "devices and memory",
        Cause::Time => "time to pass",
        Cause::Elsewhere => "input and other programs",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use gang_bpf::Together;

    use crate::observation::{Doing, Look, Use, tests::as_looked_at};

    /// Two threads on two CPUs; of ten looks, so many see work while no thread waits for a CPU, and while one
    /// does, which is the case for eight tenths of the time where there are others.
    fn observation(clear: usize, apart: usize, others: f64) -> Observation {
        let wait = || Doing::Wait { tid: 1, site: "spin".into() };
        let look = |at: usize, doing, waiting| Look {
            at_ns: at as u64 * 1_000_000,
            doing,
            running: 2 - waiting,
            waiting,
            together: if waiting > 0 { Together::Apart } else { Together::Met(2) },
            here: if others > 0.0 { 2 } else { 1 },
        };
        let looks = (0..10_000).map(|at| {
            let is_clear = others == 0.0 || at / 10 % 10 < 2;
            let works = at * 7 % 10 < if is_clear { clear } else { apart };
            let doing = match (works, is_clear) {
                (true, _) => Doing::Work { tid: 1 + (at % 2) as u32 },
                (false, true) => wait(),
                (false, false) if at % 2 == 0 => wait(),
                (false, false) => Doing::Else,
            };
            look(at, doing, u32::from(!is_clear))
        });
        let used = Use { run_ns: 1_000_000_000, wait_ns: 0 };
        as_looked_at(Observation {
            length_ns: 10_000_000_000,
            machine: 2,
            allowed: 2,
            looks: looks.collect(),
            threads: BTreeMap::from([(1, used), (2, used)]),
            ..Observation::default()
        })
    }

    fn holds(diagnosis: &Diagnosis) -> Vec<Option<bool>> {
        diagnosis.conditions.iter().map(|condition| condition.holds).collect()
    }

    #[test]
    fn a_program_that_stalls_gains() {
        let diagnosis = Diagnosis::of(&observation(9, 0, 2.0));
        assert_eq!(diagnosis.helps, Some(true), "{diagnosis:#?}");
        // Half of the time at a pace of 0.9, in place of two tenths of the time.
        let gain = diagnosis.predicted_gain.unwrap();
        assert!((gain.gain - 1.5).abs() < 0.05, "{gain:?}");
        let [low, high] = gain.interval.unwrap();
        assert!(low <= gain.gain && gain.gain <= high);
        assert_eq!(holds(&diagnosis)[..4], [Some(true); 4], "{diagnosis:#?}");
    }

    #[test]
    fn threads_that_no_slot_holds_gain_nothing() {
        let mut seen = observation(9, 0, 2.0);
        for (at, look) in seen.looks.iter_mut().enumerate() {
            look.waiting += if at % 10 < 2 { 1 } else { 0 };
        }
        assert_eq!(Diagnosis::of(&seen).helps, Some(true), "a fifth of the time is little");
        for (at, look) in seen.looks.iter_mut().enumerate() {
            look.waiting += if (2..4).contains(&(at % 10)) { 1 } else { 0 };
        }
        let diagnosis = Diagnosis::of(&seen);
        assert_eq!(
            (diagnosis.helps, diagnosis.predicted_gain),
            (Some(false), None),
            "{diagnosis:#?}"
        );
        assert!(diagnosis.sentence.contains("40 % of the time"), "{}", diagnosis.sentence);
        // Those that do not wait for each other do not mind.
        for look in &mut seen.looks {
            look.doing = Doing::Work { tid: 1 };
        }
        let independent = Diagnosis::of(&seen);
        assert_eq!(independent.helps, Some(false), "{independent:#?}");
        assert!(independent.sentence.contains("not seen to wait"), "{}", independent.sentence);
    }

    #[test]
    fn independent_threads_gain_nothing() {
        // While one waits for a CPU the other works on.
        let diagnosis = Diagnosis::of(&observation(10, 4, 2.0));
        assert_eq!(diagnosis.helps, Some(false), "{diagnosis:#?}");
        let gain = Gain { gain: 0.2, interval: Some([0.1, 0.3]) };
        let proven = diagnosis.proven(Proof { gain, by: Measure::Work });
        assert_eq!(proven.helps, Some(true), "what was measured counts for more");
        assert!(proven.sentence.contains("measured"), "{}", proven.sentence);
    }

    #[test]
    fn threads_that_are_never_all_there() {
        let never_clear = |works: usize| {
            let mut seen = observation(10, works, 2.0);
            seen.looks.retain(|look| look.waiting > 0);
            Diagnosis::of(&as_looked_at(seen))
        };
        // They wait for each other and get nowhere.
        let stalls = never_clear(0);
        assert_eq!((stalls.helps, stalls.predicted_gain), (Some(true), None), "{stalls:#?}");
        // Half of them runs at all times, and works.
        let mut independent = observation(10, 5, 2.0);
        independent.looks.retain(|look| look.waiting > 0);
        for look in &mut independent.looks {
            if matches!(look.doing, Doing::Wait { .. }) {
                look.doing = Doing::Else;
            }
        }
        assert_eq!(Diagnosis::of(&as_looked_at(independent)).helps, Some(false));
    }

    /// A program that meets all conditions but for the last.
    fn figures() -> Figures {
        Figures {
            threads: 2,
            cpus: 2,
            pace_clear: Some(0.9),
            pace_apart: Some(0.1),
            pace_apart_if_independent: Some(0.45),
            apart: 0.8,
            spinning: 0.3,
            interval_us: Some(100.0),
            others: 2.0,
            ..Figures::default()
        }
    }

    /// What is judged of a condition, and why.
    fn judged(id: &str, figures: Figures) -> (Option<bool>, String) {
        let found = conditions(&figures).into_iter().find(|condition| condition.id == id).unwrap();
        (found.holds, found.finding)
    }

    #[test]
    fn each_condition_has_its_name_and_one_verdict() {
        let all = conditions(&figures());
        let ids: Vec<_> = all.iter().map(|condition| condition.id).collect();
        assert_eq!(ids, ["E1", "E2", "E3", "E4", "E5"]);
        let holds: Vec<_> = all.iter().map(|condition| condition.holds).collect();
        assert_eq!(holds, [Some(true), Some(true), Some(true), Some(true), None]);
        assert!(all.iter().all(|it| !it.name.is_empty() && !it.finding.is_empty()), "{all:?}");
    }

    #[test]
    fn fine_grained_is_judged_by_the_interval() {
        let every = |us| Figures { interval_us: Some(us), ..figures() };
        assert_eq!(judged("E1", every(INTERVAL_MAX_US)).0, Some(true));
        let (holds, finding) = judged("E1", every(20_000.0));
        assert_eq!((holds, finding.contains("every 20.0 ms")), (Some(false), true), "{finding}");
        let bound = Figures { interval_is_bound: true, ..every(1_000.0) };
        assert!(judged("E1", bound).1.ends_with("1.0 ms or less"));
        let coarse = Figures { interval_is_bound: true, ..every(20_000.0) };
        assert_eq!(judged("E1", coarse).0, None, "20 ms or less may be a microsecond");
        let unseen = Figures { interval_us: None, ..figures() };
        assert_eq!(judged("E1", unseen).0, None, "they wait, nobody knows how often");
        let never = Figures { interval_us: None, spinning: 0.0, ..figures() };
        assert_eq!(judged("E1", never).0, Some(false));
        assert_eq!(judged("E1", Figures { threads: 1, ..figures() }).0, Some(false));
    }

    #[test]
    fn balance_is_judged_by_what_is_waited_at_a_time() {
        let of = |pace, us| Figures { pace_clear: Some(pace), interval_us: Some(us), ..figures() };
        let (holds, finding) = judged("E2", of(0.5, 10_000.0));
        assert_eq!((holds, finding.contains("5.0 ms at a time")), (Some(false), true), "{finding}");
        assert_eq!(judged("E2", of(0.5, 6_000.0)).0, Some(true), "3 ms are the bound");
        assert_eq!(judged("E2", of(0.95, 10_000.0)).0, Some(true));
        let bound = |pace| Figures { interval_is_bound: true, ..of(pace, 8_000.0) };
        assert_eq!((judged("E2", bound(0.5)).0, judged("E2", bound(0.7)).0), (None, Some(true)));
        assert!(judged("E2", bound(0.5)).1.ends_with("4.0 ms or less at a time"));
        let spread = |us| judged("E2", Figures { spread_us: Some(us), ..of(0.5, 10_000.0) });
        let (holds, finding) = spread(2_500.0);
        assert_eq!(
            (holds, finding.contains("sleeps 2.5 ms at a time")),
            (Some(true), true),
            "{finding}"
        );
        assert_eq!(spread(3_500.0).0, Some(false));
        assert_eq!(judged("E2", Figures { pace_clear: None, ..figures() }).0, None);
        let never = Figures { interval_us: None, spinning: 0.0, ..figures() };
        assert_eq!(judged("E2", never).0, None);
    }

    #[test]
    fn latency_matters_where_the_others_stop() {
        let does = |pace| Figures { pace_apart: Some(pace), ..figures() };
        assert_eq!(judged("E3", does(0.45)).0, Some(false), "all that they could");
        assert_eq!(judged("E3", does(0.4)).0, Some(true));
        let few = Figures { pace_apart: None, ..figures() };
        assert_eq!(judged("E3", few).0, None);
    }

    #[test]
    fn who_competes_is_told_by_name() {
        let competitors =
            ["make", "cc1"].map(|name| Competitor { pid: 7, name: name.into(), cpus: 0.94 });
        let (holds, finding) =
            judged("E4", Figures { competitors: competitors.into(), ..figures() });
        assert_eq!(holds, Some(true));
        assert!(finding.contains("run: make (7) has 0.9 CPUs, cc1 (7) has 0.9 CPUs;"), "{finding}");
        assert!(judged("E4", figures()).1.contains("want to run; one"), "nobody is named");
        assert_eq!(judged("E4", Figures { apart: 0.01, ..figures() }).0, Some(false));
        assert_eq!(judged("E4", Figures { others: 0.1, ..figures() }).0, Some(false));
    }

    #[test]
    fn demand_changes_where_that_of_others_varies() {
        let (holds, finding) = judged("E5", Figures { others_sd: 0.5, ..figures() });
        assert_eq!((holds, finding.contains("0.5 threads")), (Some(true), true), "{finding}");
        assert_eq!(judged("E5", Figures { others_sd: 0.3, ..figures() }).0, None);
        let watched =
            |seconds, others_sd| judged("E5", Figures { seconds, others_sd, ..figures() }).0;
        assert_eq!((watched(29.9, 0.1), watched(30.0, 0.1)), (None, Some(false)));
        assert_eq!(watched(60.0, 0.5), Some(true), "it changes, however long that took");
    }

    #[test]
    fn without_competition_there_is_nothing_to_gain() {
        let diagnosis = Diagnosis::of(&observation(9, 0, 0.0));
        assert_eq!(diagnosis.helps, Some(false));
        assert!(diagnosis.predicted_gain.unwrap().gain.abs() < 1e-9);
        assert!(diagnosis.sentence.contains("nobody competes"), "{}", diagnosis.sentence);
    }
}
