//! When and how figures were measured: without that nobody can have them again, nor know what has
//! changed since.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::harness::duration;

/// More daemons than that are not listed one by one in a line.
const NAMED: usize = 4;

/// Of one report; of several runs in it, when the first began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Origin {
    /// When it began, as RFC 3339 has it, in UTC.
    pub began: String,
    /// The command as it was typed.
    pub command: String,
    /// Backend, slice and gap of each daemon that was started for it.
    pub daemons: BTreeSet<String>,
    /// Some samples are of before, from the file of `--resume`, and so are their daemons.
    pub goes_on: bool,
}

impl Origin {
    pub fn now() -> Origin {
        let began = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        Origin { began, command: command(arguments), ..Origin::default() }
    }

    pub fn line(&self) -> String {
        let daemons: Vec<&str> = self.daemons.iter().map(String::as_str).collect();
        let by = match daemons.len() {
            0 => String::new(),
            1..=NAMED => format!("; gangd with {}", daemons.join("; ")),
            many => format!("; gangd with {many} backends and slices"),
        };
        let before = if self.goes_on { "; some samples are of before, of its file" } else { "" };
        format!("{}: {}{by}{before}", self.began, self.command)
    }
}

/// `gang lab` executes this program with the rest of its line.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let words = ["gang".to_owned(), "lab".to_owned()].into_iter().chain(arguments.skip(1));
    let words: Vec<String> = words.collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// Backend, slice and gap of a daemon, from its status.
pub fn of_daemon(status: &serde_json::Value) -> Option<String> {
    let backend = status["backend"].as_str()?;
    let slice = std::time::Duration::from_nanos(status["slice_ns"].as_u64()?);
    Some(format!("backend {backend}, slices of {}", duration::show(slice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let typed = ["/usr/libexec/gang-lab", "gauss", "--json", "a file"].map(String::from);
        assert_eq!(command(typed.into_iter()), "gang lab gauss --json 'a file'");
    }

    #[test]
    fn a_line_has_when_how_and_by_what() {
        let status = serde_json::json!({ "backend": "rt", "slice_ns": 20_000_000 });
        let daemons: BTreeSet<String> = of_daemon(&status).into_iter().collect();
        let origin = Origin {
            began: "2026-01-02T03:04:05Z".into(),
            command: "gang lab noise".into(),
            daemons,
            ..Origin::default()
        };
        let line = "2026-01-02T03:04:05Z: gang lab noise; gangd with backend rt, slices of 20ms";
        assert_eq!(origin.line(), line);
        let plain = Origin { daemons: BTreeSet::new(), ..origin };
        assert_eq!(plain.line(), "2026-01-02T03:04:05Z: gang lab noise");
        let goes_on = Origin { goes_on: true, ..plain };
        assert!(goes_on.line().ends_with("; some samples are of before, of its file"));
        let daemons = (1..=5).map(|slice| format!("backend rt, slices of {slice}ms")).collect();
        assert!(Origin { daemons, ..goes_on }.line().contains("gangd with 5 backends and slices"));
        assert_eq!(of_daemon(&serde_json::json!({})), None);
        assert!(Origin::now().began.ends_with('Z'));
    }
}
