//! The diagnosis of a program: whether gang scheduling would help it, by how much, and why.
//!
//! Approach: a gang runs for its fair share of the time, at the pace that the program has when none
//! of its threads waits for a CPU. That, over the pace that it has now, is what it would gain. The
//! five conditions ([`crate::conditions`]) say why.
//!
//! If more threads of a gang want CPUs than it has, it is not coscheduled in its slots either: no
//! gain follows.

use serde::Serialize;

use crate::conditions::{self, Condition};
use crate::words::{percent, signed};
use crate::{figures::ProgramFigures, observation::Observation};

/// Where more threads than it has CPUs want them for more than this share of its time, no slot
/// holds them all. It is 0.43 of scikit-learn, of which gangs are not faster, and below 0.001 of
/// numpy, libgomp and Open MPI with a thread for each CPU. Three threads that spin for each other
/// on two CPUs made 0.95 [0.66, 1.24] of what they make without gangs.
const CROWDED: f64 = 0.25;

/// It helps where it gains more than this.
pub const HELPS: f64 = 0.05;

/// The assumed pace of threads that wait for each other and are hardly ever all on CPUs: it cannot
/// be seen then. Of the lab's programs that show it, and meet every 100 µs or more seldom, the pace
/// is 0.74 to 1, and this is the median. Programs that meet more often gain so much that the pace
/// hardly matters.
const PACE_UNSEEN: f64 = 0.95;

/// Parts of the time for the jackknife.
const PARTS: usize = 10;

/// Student's t for 9 degrees of freedom, 95 %.
const T_9: f64 = 2.262;

/// A gain, 0.1 for 10 % more done in the same time, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    pub gain: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// A greater gain is not distinguished from this one.
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

/// The result of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    pub gain: Gain,
    pub by: Measure,
    /// The gain is above [`HELPS`] for sure, or is not for sure.
    pub told_apart: bool,
}

/// The diagnosis of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Gang scheduling helps by more than 5 %; absent where that is not known.
    pub helps: Option<bool>,
    /// That is sure (95 %); absent where there is no gain by which it was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told_apart: Option<bool>,
    pub sentence: String,
    pub predicted_gain: Option<Gain>,
    pub measured_gain: Option<Gain>,
    /// By what that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_by: Option<Measure>,
    /// Why it was not measured, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_proved: Option<String>,
    pub conditions: Vec<Condition>,
    pub figures: ProgramFigures,
}

impl Diagnosis {
    pub fn of(observation: &Observation) -> Diagnosis {
        let figures = observation.figures();
        let conditions = conditions::of(&figures);
        let predicted_gain = predict(observation);
        Diagnosis {
            helps: helps(predicted_gain, &figures, &conditions),
            told_apart: predicted_gain
                .map(|gain| gain.interval.is_some_and(|[low, high]| low > HELPS || high < HELPS)),
            sentence: String::new(),
            predicted_gain,
            measured_gain: None,
            measured_by: None,
            not_proved: None,
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
        // Where that is not sure, it is the best guess.
        self.helps = Some(gain.gain > HELPS);
        self.told_apart = Some(proof.told_apart);
        self.spoken()
    }

    /// The same where the experiment came to nothing.
    pub fn not_proven(self, reason: String) -> Diagnosis {
        Diagnosis { not_proved: Some(reason), ..self }.spoken()
    }

    fn spoken(mut self) -> Diagnosis {
        self.sentence = sentence(&self);
        self
    }
}

/// The gain of the program as a gang: jackknife estimate over parts of the time. None where it is
/// not known, and where the gang would not be coscheduled.
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

/// Whether it helps, as far as is known without a proof.
fn helps(
    predicted: Option<Gain>,
    figures: &ProgramFigures,
    conditions: &[Condition],
) -> Option<bool> {
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
            ": more of its threads want CPUs than it may use, {} of the time, and no slot \
             holds them all; give it no more threads than CPUs",
            percent(figures.crowded)
        ),
        Some(it) => format!(": {}", it.finding),
        None => String::new(),
    };
    let likely = match diagnosis.told_apart {
        Some(false) => "likely ",
        _ => "",
    };
    let instead = match fails("E5") {
        Some(_) => ", or give each program CPUs of its own, since what others want does not change",
        None => "",
    };
    let may_prove = match diagnosis.not_proved {
        Some(_) => "",
        None => " --prove measures it.",
    };
    match (diagnosis.helps, diagnosis.measured_gain, diagnosis.predicted_gain) {
        (Some(true), Some(gain), _) if gain.gain >= GAIN_MAX => format!(
            "Gang scheduling helps: under plain Linux it did nothing while that was measured. \
             Start it by gang run{instead}."
        ),
        (Some(true), Some(gain), _) => format!(
            "Gang scheduling {likely}helps: {}{} more work in the same time, measured. Start it by \
             gang run{instead}.",
            percent(gain.gain),
            within(gain)
        ),
        (Some(false), Some(gain), _) => {
            let does_not = if likely.is_empty() { "does not help" } else { "likely does not help" };
            format!(
                "Gang scheduling {does_not} ({}{} measured){because}. Leave it to Linux.",
                signed(gain.gain),
                within(gain)
            )
        }
        (Some(true), None, Some(gain)) => format!(
            "Gang scheduling should help, by about {}.{may_prove} Start it by gang run{instead}.",
            percent(gain.gain)
        ),
        (Some(true), None, None) => format!(
            "Gang scheduling should help, if the work of its threads is balanced: they are hardly \
             ever all on CPUs, and wait {} of their time there.{may_prove} Start it by gang \
             run{instead}.",
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

/// The interval of a gain in percent, after a space.
fn within(gain: Gain) -> String {
    let interval = gain.interval.map(|ends| ends.map(|end| format!("{:.1}", end * 100.0)));
    interval.map_or_else(String::new, |[low, high]| format!(" [{low}, {high}]"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use gang_bpf::Coscheduling;

    use crate::observation::{Doing, Look, Use, tests::as_looked_at};

    /// Two threads on two CPUs. Of ten looks, `clear` see work while no thread waits for a CPU, and
    /// `apart` while one does. Where there are others, one waits for eight tenths of the time.
    fn observation(clear: usize, apart: usize, others: f64) -> Observation {
        let wait = || Doing::Wait { tid: 1, site: "spin".into() };
        let look = |at: usize, doing, waiting| Look {
            at_ns: at as u64 * 1_000_000,
            doing,
            running: 2 - waiting,
            waiting,
            coscheduling: if waiting > 0 { Coscheduling::Apart } else { Coscheduling::Met(2) },
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
        let proven = diagnosis.proven(Proof { gain, by: Measure::Work, told_apart: true });
        assert_eq!(proven.helps, Some(true), "what was measured counts for more");
        let sentence = "Gang scheduling helps: 20 % [10.0, 30.0] more work in the same time, \
                        measured. Start it by gang run.";
        assert_eq!((proven.told_apart, proven.sentence.as_str()), (Some(true), sentence));
    }

    #[test]
    fn what_is_not_sure_is_likely() {
        let proven = |gain, interval, told_apart| {
            let gain = Gain { gain, interval };
            let proof = Proof { gain, by: Measure::Work, told_apart };
            Diagnosis::of(&observation(9, 0, 2.0)).proven(proof)
        };
        let unsure = proven(0.06, Some([0.01, 0.11]), false);
        assert_eq!((unsure.helps, unsure.told_apart), (Some(true), Some(false)));
        assert!(unsure.sentence.contains("likely helps: 6 % [1.0, 11.0]"), "{}", unsure.sentence);
        let unsure = proven(0.04, Some([0.01, 0.07]), false);
        assert_eq!((unsure.helps, unsure.told_apart), (Some(false), Some(false)));
        assert!(unsure.sentence.contains("likely does not help (+4.0 % [1.0, 7.0]"), "{unsure:?}");
        let sure = proven(0.01, Some([-0.01, 0.03]), true);
        assert_eq!((sure.helps, sure.told_apart), (Some(false), Some(true)));
        assert!(sure.sentence.contains("scheduling does not help (+1.0 %"), "{}", sure.sentence);
    }

    #[test]
    fn a_diagnosis_is_not_lost_with_its_proof() {
        let seen = Diagnosis::of(&observation(9, 0, 2.0));
        let left = seen.clone().not_proven("it ended".into());
        assert_eq!((left.helps, left.predicted_gain), (seen.helps, seen.predicted_gain));
        assert!(seen.sentence.contains("--prove measures it"), "{}", seen.sentence);
        assert!(!left.sentence.contains("--prove"), "it was tried: {}", left.sentence);
        let json = serde_json::to_value(&left).unwrap();
        assert_eq!(json["not_proved"], "it ended");
        assert!(json["measured_gain"].is_null() && json["predicted_gain"].is_object(), "{json}");
    }

    #[test]
    fn steady_competitors_get_another_advice() {
        let seen = Observation { length_ns: 40_000_000_000, ..observation(9, 0, 2.0) };
        let sentence = Diagnosis::of(&seen).sentence;
        assert!(sentence.ends_with("since what others want does not change."), "{sentence}");
        let sentence = Diagnosis::of(&observation(9, 0, 2.0)).sentence;
        assert!(sentence.ends_with("Start it by gang run."), "{sentence}");
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

    #[test]
    fn without_competition_there_is_nothing_to_gain() {
        let diagnosis = Diagnosis::of(&observation(9, 0, 0.0));
        assert_eq!(diagnosis.helps, Some(false));
        assert!(diagnosis.predicted_gain.unwrap().gain.abs() < 1e-9);
        assert!(diagnosis.sentence.contains("nobody competes"), "{}", diagnosis.sentence);
    }
}
