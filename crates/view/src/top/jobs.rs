//! The table of jobs.

use gang_protocol::v1;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::draw::put;
use super::look::Look;
use super::state::State;
use crate::live::JobView;
use crate::values::{duration, progress, word};

/// A column: its heading, its width in a narrow terminal and in a wide one, where 0 leaves it out.
struct Column {
    title: &'static str,
    narrow: usize,
    wide: usize,
    /// Figures stand at the right.
    is_figure: bool,
    value: fn(&JobView) -> String,
    /// Replaces a value that is too wide.
    short: fn(&str) -> &str,
}

/// Terminals from this width on have room for all columns.
const WIDE: u16 = 132;

const fn text(
    title: &'static str,
    narrow: usize,
    wide: usize,
    value: fn(&JobView) -> String,
) -> Column {
    Column { title, narrow, wide, is_figure: false, value, short: abbreviated }
}

const fn figure(
    title: &'static str,
    narrow: usize,
    wide: usize,
    value: fn(&JobView) -> String,
) -> Column {
    Column { title, narrow, wide, is_figure: true, value, short: |value| value }
}

/// After letter, id and name; the name has what the others leave.
const COLUMNS: [Column; 16] = [
    text("OWNER", 7, 12, |view| view.owner.to_string()),
    text("CLASS", 5, 11, |view| word(&view.job.class)),
    text("STATE", 5, 9, |view| state(&view.job.state)),
    figure("CPU", 3, 4, |view| view.job.cpus.to_string()),
    figure("WEIGHT", 0, 6, |view| view.job.weight.to_string()),
    figure("WANT%", 5, 6, |view| hundredths(Some(view.job.share_wanted))),
    figure("HAD%", 5, 6, |view| hundredths(Some(view.job.share_had))),
    figure("USED", 0, 5, |view| {
        view.rates.cpus_used.map_or_else(none, |cpus| format!("{cpus:.1}"))
    }),
    figure("COSCH%", 6, 6, |view| hundredths(view.job.coscheduled())),
    figure("SKEW99", 6, 8, |view| {
        view.job.skew_ns_p99().map_or_else(none, |ns| short_time(ns as f64 / 1e3))
    }),
    figure("LOST", 0, 5, |view| view.rates.lost.map_or_else(none, |lost| format!("{lost:.2}"))),
    figure("WAITS", 0, 5, |view| {
        view.rates.waiting.map_or_else(none, |waits| format!("{waits:.1}"))
    }),
    figure("FILL%", 5, 6, |view| hundredths(view.rates.filling)),
    figure(DONE, 5, 6, |view| hundredths(progress(&view.job))),
    figure("MEM", 5, 7, |view| view.job.used_memory().map_or_else(none, short_size)),
    figure("CPU TIME", 0, 11, |view| duration(view.job.cpu_time_ns)),
];

/// Only where a program says how far it is.
const DONE: &str = "DONE%";

/// Narrowest that a name is cut to; columns are left out before, the last first.
const NAME_MIN: usize = 10;

fn none() -> String {
    "-".to_owned()
}

/// Words that are too wide for a narrow terminal.
fn abbreviated(word: &str) -> &str {
    match word {
        "express" => "expr",
        "interactive" => "inter",
        "standby" => "stand",
        "active" => "run",
        "sleeping" => "sleep",
        "suspended" => "susp",
        "starting" => "start",
        other => other,
    }
}

/// In and out of slot alternate faster than anybody can read. A word that fits says why a job has
/// no slots.
fn state(state: &v1::JobState) -> String {
    match state {
        v1::JobState::running | v1::JobState::waiting | v1::JobState::not_scheduled => {
            "active".to_owned()
        }
        v1::JobState::too_many_threads => "threads".to_owned(),
        v1::JobState::too_few_cpus => "cpus".to_owned(),
        other => word(other),
    }
}

fn hundredths(share: Option<f64>) -> String {
    share.map_or_else(none, |share| format!("{:.1}", share * 100.0))
}

fn short_time(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0}µs"),
        1e3..1e5 => format!("{:.1}ms", us / 1e3),
        1e5..1e6 => format!("{:.0}ms", us / 1e3),
        _ => format!("{:.1}s", us / 1e6),
    }
}

fn short_size(bytes: i64) -> String {
    let mut size = bytes.max(0) as f64;
    for unit in ["B", "K", "M", "G", "T"] {
        if size < 999.5 {
            let is_small = size < 9.95 && unit != "B";
            return if is_small { format!("{size:.1}{unit}") } else { format!("{size:.0}{unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.0}P")
}

/// The cells of a line, each cut and padded to its width.
fn line(widths: &[usize], name: usize, first: [&str; 2], cells: &[(String, bool)]) -> String {
    let mut out = format!("{:>5} {} ", cut(first[0], 5), padded(first[1], name, false));
    for ((cell, is_figure), width) in cells.iter().zip(widths).filter(|(_, width)| **width > 0) {
        out.push_str(&padded(cell, *width, *is_figure));
        out.push(' ');
    }
    out.truncate(out.trim_end().len());
    out
}

fn padded(text: &str, width: usize, to_the_right: bool) -> String {
    let text = cut(text, width);
    let padding = width - text.width();
    if to_the_right { format!("{:padding$}{text}", "") } else { format!("{text}{:padding$}", "") }
}

/// Text with a mark at its end where that is cut off.
fn marked(text: &str, width: usize, look: Look) -> String {
    if text.width() <= width || width == 0 {
        return text.to_owned();
    }
    format!("{}{}", cut(text, width - 1), look.sign("…", "~"))
}

fn cut(text: &str, width: usize) -> &str {
    if text.is_ascii() {
        return &text[..width.min(text.len())];
    }
    let mut used = 0;
    let fits = |(_, character): &(usize, char)| {
        used += character.width().unwrap_or(0);
        used <= width
    };
    let end = text.char_indices().take_while(fits).last();
    &text[..end.map_or(0, |(at, character)| at + character.len_utf8())]
}

pub fn draw(state: &mut State, look: Look, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let is_wide = area.width >= WIDE;
    let mut widths: Vec<usize> =
        COLUMNS.iter().map(|column| if is_wide { column.wide } else { column.narrow }).collect();
    if !state.snapshot.jobs.iter().any(|view| progress(&view.job).is_some()) {
        let done = COLUMNS.iter().position(|column| column.title == DONE);
        done.into_iter().for_each(|at| widths[at] = 0);
    }
    // The letter with a space, the id with one, and one before each column.
    let left = |widths: &[usize]| {
        let used: usize = widths.iter().filter(|width| **width > 0).map(|width| width + 1).sum();
        usize::from(area.width).saturating_sub(2 + 6 + used)
    };
    while left(&widths) < NAME_MIN && widths.len() > 1 {
        widths.pop();
    }
    let name = left(&widths);

    let titles: Vec<_> =
        COLUMNS.iter().map(|column| (column.title.to_owned(), column.is_figure)).collect();
    let heading = format!("  {}", line(&widths, name, ["ID", "NAME"], &titles));
    put(buffer, area, 0, vec![Span::styled(heading, look.bold())]);

    let table = Rect { y: area.y + 1, height: area.height - 1, ..area };
    state.page = table.height.into();
    let jobs = state.jobs();
    let chosen = jobs.iter().position(|view| Some(view.job.id) == state.chosen);
    let scroll = scrolled(state.scroll, chosen, jobs.len(), table.height.into());
    let empty = match (state.snapshot.jobs.is_empty(), state.filter.is_empty()) {
        (false, false) => Some(format!("no job passes the filter {}", state.filter)),
        (true, _) => Some("no jobs; gang run -- PROGRAM makes one".to_owned()),
        _ => None,
    };
    if let Some(text) = empty.filter(|_| jobs.is_empty()) {
        put(buffer, table, 0, vec![Span::styled(look.text(&text), look.dim())]);
    }
    for (at, view) in jobs.iter().enumerate().skip(scroll).take(table.height.into()) {
        let letter = state.letters.of(view.job.id);
        let cell = |(column, width): (&Column, &usize)| {
            let value = look.text(&(column.value)(view));
            let is_wide = value.width() > *width;
            let value = if is_wide { (column.short)(&value) } else { &value };
            (marked(value, *width, look), column.is_figure)
        };
        let cells: Vec<_> = COLUMNS.iter().zip(&widths).map(cell).collect();
        let id = view.job.id.to_string();
        let called = marked(&look.text(&view.job.name), name, look);
        let text = line(&widths, name, [&id, &called], &cells);
        let is_chosen = chosen == Some(at);
        let style = match (is_chosen, is_out(&view.job.state)) {
            (true, _) => look.chosen(),
            (false, true) => look.dim(),
            (false, false) => Style::new(),
        };
        let text = padded(&text, usize::from(area.width) - 2, false);
        let label = Span::styled(letter.to_string(), look.label(letter));
        let row = vec![label, Span::raw(" "), Span::styled(text, style)];
        put(buffer, table, (at - scroll) as u16, row);
    }
    state.scroll = scroll;
}

/// It has no slots at present.
fn is_out(state: &v1::JobState) -> bool {
    use v1::JobState::{not_scheduled, running, waiting};
    !matches!(state, running | waiting | not_scheduled)
}

/// The first line that is seen, so that the one that is chosen is among them.
fn scrolled(before: usize, chosen: Option<usize>, lines: usize, page: usize) -> usize {
    let last = lines.saturating_sub(page);
    let scroll = before.min(last);
    match chosen {
        Some(at) if at < scroll => at,
        Some(at) if at >= scroll + page => at + 1 - page.max(1),
        _ => scroll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.4, 45.0, 999.0, 1234.0, 123_456.0, 2e6].map(short_time),
            ["0µs", "45µs", "999µs", "1.2ms", "123ms", "2.0s"]
        );
        assert_eq!(
            [0, 1023, 1 << 20, 1536 << 20, 40 << 30].map(short_size),
            ["0B", "1.0K", "1.0M", "1.5G", "40G"]
        );
        for bytes in (0..62).map(|shift| 1i64 << shift) {
            assert!(short_size(bytes).len() <= 5);
        }
    }

    #[test]
    fn the_chosen_line_is_seen() {
        assert_eq!(scrolled(0, Some(3), 20, 5), 0);
        assert_eq!(scrolled(0, Some(7), 20, 5), 3);
        assert_eq!(scrolled(10, Some(7), 20, 5), 7);
        assert_eq!(scrolled(18, None, 20, 5), 15);
        assert_eq!(scrolled(3, Some(2), 4, 10), 0);
    }

    #[test]
    fn wide_characters_take_their_space() {
        assert_eq!(padded("流れ", 5, false), "流れ ");
        assert_eq!(padded("流れ", 3, true), " 流");
    }
}
