//! The meaning of figures, in a sentence that is computed from them.
//!
//! A difference is stated only where the 95 % interval of the ratio leaves out 1; otherwise the
//! sentence says that none is shown, whatever the means are.

use crate::harness::stats::Estimate;
use crate::harness::table::figure;

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    More,
    Less,
}

/// Beyond this a ratio reads better as "times" than in percent.
const MANY: f64 = 2.0;

/// One condition against another, by the ratio of a figure of theirs.
pub fn sentence(of: &str, over: &str, name: &str, better: Better, ratio: &Estimate) -> String {
    let name = name.replace('_', " ");
    let Some([low, high]) = ratio.interval else {
        let value = figure(ratio.value);
        return format!(
            "{of} has {value} times {name} of {over} in a single round, which proves nothing."
        );
    };
    let range = format!("[{}, {}]", figure(low), figure(high));
    if low <= 1.0 && high >= 1.0 {
        let value = figure(ratio.value);
        return format!(
            "No difference between {of} and {over} is shown: {name} {value} {range} times."
        );
    }
    let more = ratio.value > 1.0;
    let word = if more == (better == Better::More) { "better" } else { "worse" };
    format!("{of} is {word} than {over} in {name}: {} {range}.", amount(ratio.value))
}

/// `3.90 times`, `12 % more` and `5.0 % less`.
fn amount(ratio: f64) -> String {
    let percent = |part: f64| {
        let part = part * 100.0;
        if part < 9.95 { format!("{part:.1} %") } else { format!("{part:.0} %") }
    };
    match ratio {
        x if !(1.0 / MANY..=MANY).contains(&x) => format!("{} times", figure(x)),
        x if x >= 1.0 => format!("{} more", percent(x - 1.0)),
        x => format!("{} less", percent(1.0 - x)),
    }
}

/// How many of the promises are kept, and which are not.
pub fn promises<'a>(measures: impl Iterator<Item = (&'a str, bool, bool)>) -> Option<String> {
    let (mut kept, mut missed, mut unmeasured) = (0, Vec::new(), Vec::new());
    for (name, measured, met) in measures {
        match (measured, met) {
            (false, _) => unmeasured.push(name),
            (true, true) => kept += 1,
            (true, false) => missed.push(name),
        }
    }
    let all = kept + missed.len() + unmeasured.len();
    if all == 0 {
        return None;
    }
    let mut text = format!("{kept} of {all} promises kept");
    for (what, names) in [("missed", missed), ("not measured", unmeasured)] {
        if !names.is_empty() {
            text += &format!("; {what}: {}", names.join("; "));
        }
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64, interval: Option<[f64; 2]>) -> Estimate {
        Estimate { value, interval, samples: 5 }
    }

    #[test]
    fn a_difference_is_told_only_where_it_is_shown() {
        let say = |better, ratio| sentence("gangd", "plain Linux", "time_s", better, &ratio);
        assert_eq!(
            say(Better::Less, ratio(0.9, Some([0.85, 0.95]))),
            "gangd is better than plain Linux in time s: 10 % less [0.850, 0.950]."
        );
        assert!(say(Better::More, ratio(0.9, Some([0.85, 0.95]))).contains("worse"));
        assert!(say(Better::More, ratio(3.9, Some([2.0, 5.0]))).contains("better"));
        let none = say(Better::More, ratio(3.9, Some([-3.0, 11.0])));
        assert!(none.starts_with("No difference"), "{none}");
        assert!(say(Better::More, ratio(3.9, None)).contains("proves nothing"));
    }

    #[test]
    fn amounts() {
        let shown = [3.9, 1.12, 1.015, 0.95, 0.01].map(amount);
        assert_eq!(shown, ["3.90 times", "12 % more", "1.5 % more", "5.0 % less", "0.010 times"]);
    }

    #[test]
    fn promises_are_counted_and_those_not_kept_named() {
        let all = [("a", true, true), ("b", true, false), ("c", false, false)];
        let text = promises(all.into_iter()).unwrap();
        assert_eq!(text, "1 of 3 promises kept; missed: b; not measured: c.");
        assert_eq!(promises([].into_iter()), None);
    }
}
