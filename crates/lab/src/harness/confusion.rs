//! Verdicts on programs against the truth, counted.

use serde::Serialize;

/// How often each was true of those of which the same was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct True {
    pub helps: usize,
    pub does_not_help: usize,
}

/// A confusion matrix: a row for each thing that can be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    pub said_to_help: True,
    pub said_not_to_help: True,
    pub undecided: True,
}

impl Confusion {
    /// Counts programs by the verdict on them, none where it is undecided, and by whether
    /// it helps.
    pub fn of(programs: impl IntoIterator<Item = (Option<bool>, bool)>) -> Confusion {
        let mut confusion = Confusion::default();
        for (said, helps) in programs {
            let row = match said {
                Some(true) => &mut confusion.said_to_help,
                Some(false) => &mut confusion.said_not_to_help,
                None => &mut confusion.undecided,
            };
            *(if helps { &mut row.helps } else { &mut row.does_not_help }) += 1;
        }
        confusion
    }

    /// How many verdicts are right; none is not right.
    pub fn right(&self) -> usize {
        self.said_to_help.helps + self.said_not_to_help.does_not_help
    }

    /// Heading and rows, for a table.
    pub fn rows(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let row = |said: &str, row: True| {
            vec![said.into(), row.helps.to_string(), row.does_not_help.to_string()]
        };
        let rows = vec![
            row("said to help", self.said_to_help),
            row("said not to help", self.said_not_to_help),
            row("undecided", self.undecided),
        ];
        (vec!["programs", "it helps", "it does not"], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_counted_by_verdict_and_truth() {
        let (yes, no) = (Some(true), Some(false));
        let programs =
            [(yes, true), (yes, true), (yes, false), (no, true), (no, false), (None, true)];
        let confusion = Confusion::of(programs);
        assert_eq!(confusion.right(), 3);
        let (_, rows) = confusion.rows();
        assert_eq!(
            rows,
            [["said to help", "2", "1"], ["said not to help", "1", "1"], ["undecided", "1", "0"]]
        );
        let json = serde_json::to_value(confusion).unwrap();
        assert_eq!(json["said_to_help"]["does_not_help"], 1);
    }
}
