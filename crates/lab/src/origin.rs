//! When and how figures were measured: without that nobody can have them again, nor know what has changed since.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::duration;

/// Of one report; times of several runs are those of the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Origin {
    /// When it began, as RFC 3339 has it, in UTC.
    pub began: String,
    /// What was typed.
    pub command: String,
    /// What samples must have in common that are compared: machine, programs by their contents, options.
    pub settings: String,
    /// What the daemons that were started for it scheduled by.
    pub daemons: BTreeSet<String>,
}

impl Origin {
    pub fn now(settings: String) -> Origin {
        let began = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Origin { began, command: command(std::env::args()), settings, daemons: BTreeSet::new() }
    }

    pub fn line(&self) -> String {
        let daemons: Vec<&str> = self.daemons.iter().map(String::as_str).collect();
        let by = match &daemons[..] {
            [] => String::new(),
            daemons => format!("; gangd with {}", daemons.join("; ")),
        };
        format!("{}: {}{by}", self.began, self.command)
    }
}

/// `gang lab` executes this program with the rest of its line.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let words = ["gang".to_owned(), "lab".to_owned()].into_iter().chain(arguments.skip(1));
    let words: Vec<String> = words.collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// What a daemon schedules by, of its status.
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
        assert_eq!(of_daemon(&serde_json::json!({})), None);
        assert!(Origin::now("settings".into()).began.ends_with('Z'));
    }
}
