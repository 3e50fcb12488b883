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
use crate::figures::{Column, FIGURES, Figure};
use crate::live::JobView;

/// Terminals from this width on have wide columns, and those of [`WIDE_ONLY`] as far as there is
/// room.
const WIDE: u16 = 132;

/// In a narrow terminal, columns of this rank are left out.
const WIDE_ONLY: u8 = 3;

/// Narrowest that a name is cut to; columns are left out before.
const NAME_MIN: usize = 9;

/// The width of ids: of jobs of this host, and of jobs that span hosts.
const ID_WIDTHS: (usize, usize) = (5, 10);

/// The letter with a space, and the id with one.
const fn before_name(id: usize) -> usize {
    2 + id + 1
}

/// The least width, in columns of a terminal, at which no figure is left out.
pub const WIDTH_OF_ALL: usize = {
    // The name of a job takes what the others leave.
    let mut width = before_name(ID_WIDTHS.1) + NAME_MIN;
    let mut at = 2;
    while at < FIGURES.len() {
        if let Some(column) = &FIGURES[at].column {
            width += 1 + column.widths.1;
        }
        at += 1;
    }
    width
};

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

/// The cells of a line, each cut and padded to its width; the first are id and name.
fn line(
    widths: &[usize],
    [id, name]: [usize; 2],
    first: [&str; 2],
    cells: &[(String, bool)],
) -> String {
    let mut out = format!("{} {} ", padded(first[0], id, true), padded(first[1], name, false));
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
    let spans_hosts = |view: &JobView| view.hosts.is_some();
    let id = match state.snapshot.jobs.iter().any(spans_hosts) {
        true => ID_WIDTHS.1,
        false => ID_WIDTHS.0,
    };
    let columns = columns(&state.snapshot.jobs);
    let width_of = |column: &Column| match (is_wide, column.rank) {
        (true, _) => column.widths.1,
        (false, WIDE_ONLY) => 0,
        (false, _) => column.widths.0,
    };
    let mut widths: Vec<usize> = columns.iter().map(|(_, column)| width_of(column)).collect();
    // A space is before each column.
    let left = |widths: &[usize]| {
        let used: usize = widths.iter().filter(|width| **width > 0).map(|width| width + 1).sum();
        usize::from(area.width).saturating_sub(before_name(id) + used)
    };
    while left(&widths) < NAME_MIN {
        let shown = (0..widths.len()).filter(|at| widths[*at] > 0);
        let Some(last) = shown.max_by_key(|at| columns[*at].1.rank) else { break };
        widths[last] = 0;
    }
    let first = [id, left(&widths)];

    let heading =
        |(figure, column): &(&Figure, &Column)| (column.heading.to_owned(), figure.is_number());
    let titles: Vec<_> = columns.iter().map(heading).collect();
    let heading = format!("  {}", line(&widths, first, ["ID", "NAME"], &titles));
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
        let cell = |((figure, _), width): (&(&Figure, &Column), &usize)| {
            let value = figure.value(view).map_or_else(|| "-".into(), |value| figure.cell(&value));
            let value = look.text(&value);
            let is_wide = value.width() > *width;
            let value = if is_wide { abbreviated(&value) } else { &value };
            (marked(value, *width, look), figure.is_number())
        };
        let cells: Vec<_> = columns.iter().zip(&widths).map(cell).collect();
        let id = view.job.id.to_string();
        let called = marked(&look.text(&view.job.name), first[1], look);
        let text = line(&widths, first, [&id, &called], &cells);
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

/// The columns after letter, id and name. The name has the width that the others leave.
fn columns(jobs: &[JobView]) -> Vec<(&'static Figure, &'static Column)> {
    let all = FIGURES.iter().filter_map(|figure| Some((figure, figure.column.as_ref()?))).skip(2);
    all.filter(|(figure, _)| figure.is_shown(jobs)).collect()
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
