//! Tables and text for people, that fit the terminal.

use gang_protocol::name::escaped;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// Left, and shortened where the table is too wide; one column of a table.
    Shrink,
}

/// Narrowest that a column is shortened to.
const SHRUNK_MIN: usize = 8;

/// The table with a heading, two spaces between columns, everything unprintable escaped.
///
/// `width` is that of the terminal in cells; absent, nothing is shortened.
pub fn render(columns: &[(&str, Align)], rows: &[Vec<String>], width: Option<usize>) -> String {
    let heading = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut rows: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.iter().map(|row| row.iter().map(|cell| escaped(cell).into_owned()).collect()))
        .collect();
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0))
        .collect();

    let total = widths.iter().sum::<usize>() + 2 * (columns.len() - 1);
    let shrinking = columns.iter().position(|(_, align)| *align == Align::Shrink);
    if let (Some(column), Some(width)) = (shrinking, width) {
        let less = total.saturating_sub(width);
        let narrowest = SHRUNK_MIN.min(widths[column]);
        widths[column] = widths[column].saturating_sub(less).max(narrowest);
        for row in &mut rows {
            row[column] = shortened(&row[column], widths[column]);
        }
    }

    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (((_, align), cell), width) in columns.iter().zip(row).zip(&widths) {
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            match align {
                Align::Right => line.extend([padding.as_str(), cell, "  "]),
                Align::Left | Align::Shrink => line.extend([cell, padding.as_str(), "  "]),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(character);
    }
    out.push('…');
    out
}

/// Breaks text into lines between words, and within those that are too long.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while word.len() > width {
            lines.push(word.drain(..width).collect());
        }
        used += word.len();
        line.extend(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Align); 3] =
        [("ID", Align::Right), ("NAME", Align::Shrink), ("CLASS", Align::Left)];

    fn rows(names: &[&str]) -> Vec<Vec<String>> {
        let row = |name: &&str| vec!["1".to_owned(), (*name).to_owned(), "batch".to_owned()];
        names.iter().map(row).collect()
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            render(&COLUMNS, &rows(&["a", "流れ"]), None),
            "ID  NAME  CLASS\n 1  a     batch\n 1  流れ  batch\n"
        );
    }

    #[test]
    fn long_name_is_shortened_on_a_terminal_alone() {
        let long = "x".repeat(100);
        let table = render(&COLUMNS, &rows(&[&long, "流れ".repeat(30).as_str()]), Some(30));
        for line in table.lines() {
            assert!(line.width() <= 30, "{line}");
        }
        assert!(table.contains("xxx…"));
        assert!(render(&COLUMNS, &rows(&[&long]), None).contains(&long));
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        let table = render(&COLUMNS, &rows(&["\u{1b}[2Jx\ny"]), None);
        assert!(table.contains("\\u{1b}[2Jx\\ny"), "{table}");
        assert_eq!(table.lines().count(), 2);
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("a abcdefghij b", 4), ["a", "abcd", "efgh", "ij b"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
