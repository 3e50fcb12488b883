//! The look of things: letters and colours of jobs, signs, and their substitutes on a terminal
//! without colours or Unicode.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

use gang_protocol::name::escaped;
use ratatui::style::{Color, Modifier, Style};

/// The abilities of the terminal that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub colours: bool,
    pub unicode: bool,
}

impl Look {
    /// That of this process: no colours where `NO_COLOR` says so, and Unicode in a locale of UTF-8.
    pub fn of_this_process(no_colours: bool) -> Look {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        Look {
            colours: !no_colours && set("NO_COLOR").is_none(),
            unicode: locale.is_some_and(|locale| is_utf8(&locale)),
        }
    }

    /// Text of unknown origin: nothing in it moves the cursor, and it fits the locale.
    pub fn text(self, text: &str) -> String {
        let text = escaped(text);
        if self.unicode {
            return text.into_owned();
        }
        // `µs` is the only unit that is not ASCII.
        text.chars()
            .map(|c| {
                if c.is_ascii() {
                    c
                } else if c == 'µ' {
                    'u'
                } else {
                    '?'
                }
            })
            .collect()
    }

    pub fn sign<'a>(self, unicode: &'a str, ascii: &'a str) -> &'a str {
        if self.unicode { unicode } else { ascii }
    }

    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of secondary text.
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn bad(self) -> Style {
        let style = self.bold();
        if self.colours { style.fg(Color::Red) } else { style }
    }

    pub fn doubtful(self) -> Style {
        if self.colours { Style::new().fg(Color::Yellow) } else { self.bold() }
    }

    /// The cell of a job in matrix and timeline.
    pub fn cell(self, letter: char) -> Style {
        match colour(letter).filter(|_| self.colours) {
            Some(colour) => Style::new().fg(Color::Black).bg(colour),
            None => Style::new(),
        }
    }

    /// The letter of a job in the table.
    pub fn label(self, letter: char) -> Style {
        match colour(letter).filter(|_| self.colours) {
            Some(colour) => Style::new().fg(colour).add_modifier(Modifier::BOLD),
            None => self.bold(),
        }
    }
}

fn is_utf8(locale: &OsStr) -> bool {
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Colours that differ visibly beside each other, and from each other's neighbours.
const COLOURS: [Color; 10] = [
    Color::Cyan,
    Color::Yellow,
    Color::Magenta,
    Color::Green,
    Color::LightBlue,
    Color::LightRed,
    Color::LightCyan,
    Color::LightYellow,
    Color::LightMagenta,
    Color::LightGreen,
];

fn colour(letter: char) -> Option<Color> {
    Some(COLOURS[LETTERS.find(letter)? % COLOURS.len()])
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// For jobs beyond the 62nd.
pub const NO_LETTER: char = '#';

/// A letter for each job, which it keeps for as long as it lives.
#[derive(Debug, Default)]
pub struct Letters(BTreeMap<i64, char>);

impl Letters {
    /// Gives those a letter that have none, and takes it from those that are gone.
    pub fn assign(&mut self, jobs: impl Iterator<Item = i64>) {
        let present: BTreeSet<i64> = jobs.collect();
        self.0.retain(|job, _| present.contains(job));
        for job in present {
            if self.0.contains_key(&job) {
                continue;
            }
            let is_free = |letter: &char| !self.0.values().any(|taken| taken == letter);
            let Some(letter) = LETTERS.chars().find(is_free) else { return };
            self.0.insert(job, letter);
        }
    }

    pub fn of(&self, job: i64) -> char {
        self.0.get(&job).copied().unwrap_or(NO_LETTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_keep_their_letters() {
        let mut letters = Letters::default();
        letters.assign([3, 5, 9].into_iter());
        assert_eq!([3, 5, 9].map(|job| letters.of(job)), ['A', 'B', 'C']);
        letters.assign([5, 9, 11, 12].into_iter());
        assert_eq!([5, 9, 11, 12].map(|job| letters.of(job)), ['B', 'C', 'A', 'D']);
        letters.assign(0..70);
        assert_eq!(letters.of(69), NO_LETTER);
    }

    #[test]
    fn text_of_others_is_harmless_and_fits_the_locale() {
        let look = |unicode| Look { colours: false, unicode };
        assert_eq!(look(true).text("Fluß\u{1b}[2J\u{202e}"), "Fluß\\u{1b}[2J\\u{202e}");
        assert_eq!(look(false).text("Fluß 12 µs"), "Flu? 12 us");
        assert!(is_utf8(OsStr::new("de_DE.UTF-8")) && is_utf8(OsStr::new("C.utf8")));
        assert!(!is_utf8(OsStr::new("C")));
    }
}
