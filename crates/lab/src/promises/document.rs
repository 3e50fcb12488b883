//! SPECIFICATION.md, written from the list of promises.
//!
//! Limits, defaults and exit codes stand in specification.md beside this file.

use std::fmt::Write;

use super::list::GROUPS;
use crate::harness::promise::{Last, Must, Promise};
use crate::harness::table::{NOT_MEASURED, figure};

const TEMPLATE: &str = include_str!("specification.md");
/// Where the promises stand in it.
const MARK: &str = "<!-- promises -->\n";

/// The whole document.
pub fn markdown() -> String {
    TEMPLATE.replace(MARK, &promises())
}

fn promises() -> String {
    let mut text = String::new();
    for group in &GROUPS {
        let _ = writeln!(text, "### {}\n", group.name);
        text += "| id | promise | must | last measured | of | kept | date, machine | command |\n";
        text += "|----|---------|------|---------------|----|------|---------------|---------|\n";
        text.extend(group.promises.iter().map(|promise| row(promise)));
        text += "\n";
    }
    text += "### Missed, and why\n\n";
    text += &lines(|promise| promise.missed);
    text += "\n### Remarks\n\n";
    text += &lines(|promise| promise.remark);
    text
}

fn all() -> impl Iterator<Item = &'static Promise> {
    GROUPS.iter().flat_map(|group| group.promises.iter().copied())
}

fn row(promise: &Promise) -> String {
    let (value, of, kept, when_and_where) = match &promise.last {
        Some(last) => (
            value(last).replace('-', "−"),
            last.of,
            kept(promise.must, last),
            format!("{}, {}", last.date, last.machine),
        ),
        None => (NOT_MEASURED.to_owned(), "", "**unproven**", String::new()),
    };
    format!(
        "| {} | {} | {} | {value} | {of} | {kept} | {when_and_where} | `{}` |\n",
        promise.id,
        promise.sentence,
        promise.bound(),
        promise.command
    )
}

fn value(last: &Last) -> String {
    match last.interval {
        Some([low, high]) => {
            format!("{} [{}, {}]", figure(last.value), figure(low), figure(high))
        }
        None => figure(last.value),
    }
}

/// Where the interval says that other runs may say otherwise, so does the word.
fn kept(must: Must, last: &Last) -> &'static str {
    let (kept, told_apart) = must.judge(last.value, last.interval);
    match (kept, told_apart || last.interval.is_none()) {
        (true, true) => "kept",
        (true, false) => "kept, not told apart",
        (false, true) => "**missed**",
        (false, false) => "**missed**, not told apart",
    }
}

/// A line for each promise of which there is something to say.
fn lines(of: impl Fn(&Promise) -> Option<&'static str>) -> String {
    let line = |promise: &Promise| Some(wrapped(&format!("- {}: {}", promise.id, of(promise)?)));
    all().filter_map(line).collect()
}

/// As long as lines of documents are, and indented below the first.
fn wrapped(item: &str) -> String {
    const COLUMNS: usize = 100;
    let (mut text, mut line) = (String::new(), String::new());
    for word in item.split(' ') {
        let length = line.chars().count() + 1 + word.chars().count();
        if length > COLUMNS {
            text += &line;
            text += "\n";
            line = format!("  {word}");
        } else {
            line += if line.is_empty() { "" } else { " " };
            line += word;
        }
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::promises::list::{COSCHEDULED, MEASURED, WEB_BYTES};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn read(path: &str) -> String {
        let path = root().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn specification_is_what_the_command_writes() {
        let written = read("SPECIFICATION.md");
        let differs = written.lines().zip(markdown().lines()).position(|(is, must)| is != must);
        assert!(
            written == markdown(),
            "SPECIFICATION.md differs from line {} on; write it again: \
             cargo run -p gang-lab -- spec --markdown > SPECIFICATION.md",
            differs.map_or(written.lines().count(), |line| line + 1)
        );
    }

    #[test]
    fn each_promise_is_complete_and_stands_once() {
        let mut ids = BTreeSet::new();
        for promise in all() {
            let id = promise.id;
            assert!(ids.insert(id), "{id} twice");
            assert!(promise.sentence.ends_with('.'), "{id}: {}", promise.sentence);
            assert!(!promise.command.is_empty(), "{id}");
            let is_missed = promise.last.is_some_and(|last| !promise.must.holds(last.value));
            assert_eq!(promise.missed.is_some(), is_missed, "{id} says why, where it is missed");
            let Some(last) = promise.last else { continue };
            assert!(!last.of.is_empty() && last.date.len() == "2026-01-02".len(), "{id}");
            let Some([low, high]) = last.interval else { continue };
            assert!(low <= last.value && last.value <= high, "{id}");
        }
    }

    /// Some bounds are judged by other rooms, which cannot use the list.
    #[test]
    fn bounds_that_other_rooms_judge_by_are_the_same() {
        let Must::Below(kb) = WEB_BYTES.must else { panic!("{WEB_BYTES:?}") };
        let bytes = format!("BYTES_MAX: usize = {}_000;", kb);
        assert!(read("crates/view/src/web/assets.rs").contains(&bytes), "{bytes}");
        let Must::AtMost(points) = MEASURED.must else { panic!("{MEASURED:?}") };
        let share = format!("truth.coscheduled(), {});", points / 100.0);
        assert!(read("crates/gangd/tests/measured.rs").contains(&share), "{share}");
    }

    #[test]
    fn a_row_says_how_sure_it_is() {
        assert!(row(&COSCHEDULED).contains("| ≥ 99 % | 99.3 [99.0, 99.6] | 8 rounds | kept |"));
        let must = Must::AtLeast(99.3);
        let row = row(&Promise { must, ..COSCHEDULED });
        assert!(row.contains("| kept, not told apart |"), "{row}");
        let row = self::row(&Promise { last: None, ..COSCHEDULED });
        assert!(row.contains("| ≥ 99 % | not measured |  | **unproven** |  | `"), "{row}");
    }

    #[test]
    fn lines_are_wrapped() {
        let text = wrapped(&format!("- a: {}", "word ".repeat(40).trim_end()));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }
}
