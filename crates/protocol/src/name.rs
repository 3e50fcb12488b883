//! Names of jobs: which are accepted, and how a text of unknown origin is shown.

use std::borrow::Cow;

use crate::limits::NAME_MAX;

/// Why a name is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name must not be empty")]
    Empty,
    #[error("a name has at most {NAME_MAX} bytes, this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("a name must not contain control characters, this one has U+{:04X}", *.character as u32)]
    ControlCharacter { character: char },
}

/// Accepts names of 1 to [`NAME_MAX`] bytes without control characters.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    match name.chars().find(|&character| is_unprintable(character)) {
        Some(character) => Err(NameError::ControlCharacter { character }),
        None => Ok(()),
    }
}

/// The nearest acceptable name to any text: unprintable characters become `?`, the end is cut.
/// `fallback` is taken where nothing remains, and must be acceptable itself.
pub fn nearest_name(text: &str, fallback: &str) -> String {
    let mut name = String::new();
    for character in text.chars() {
        let character = if is_unprintable(character) { '?' } else { character };
        if name.len() + character.len_utf8() > NAME_MAX {
            break;
        }
        name.push(character);
    }
    if name.is_empty() { fallback.to_owned() } else { name }
}

/// The text with everything escaped that could move a terminal's cursor, change its state or
/// reorder what stands beside it.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_unprintable(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Control characters (C0, C1, DEL), line and paragraph separators, and the marks that change
/// the direction of the text after them.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_printable() {
        assert_eq!(check_name("lu.C"), Ok(()));
        assert_eq!(check_name("Fluß 流れ"), Ok(()));
        assert_eq!(check_name(&"x".repeat(NAME_MAX)), Ok(()));
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(&"x".repeat(65)), Err(NameError::TooLong { bytes: 65 }));
        for character in ['\0', '\n', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2028}'] {
            let name = format!("a{character}b");
            assert_eq!(check_name(&name), Err(NameError::ControlCharacter { character }));
        }
    }

    #[test]
    fn nearest_name_is_always_acceptable() {
        for text in ["", "\u{1b}[2J", "plain", &"é".repeat(100), "a\nb"] {
            assert_eq!(check_name(&nearest_name(text, "job")), Ok(()), "{text:?}");
        }
        assert_eq!(nearest_name("a\nb", "job"), "a?b");
        assert_eq!(nearest_name("", "job"), "job");
    }

    #[test]
    fn escapes_only_what_a_terminal_would_obey() {
        assert!(matches!(escaped("Fluß"), Cow::Borrowed("Fluß")));
        assert_eq!(escaped("a\u{1b}[2Jb\n\u{202e}"), "a\\u{1b}[2Jb\\n\\u{202e}");
    }
}
