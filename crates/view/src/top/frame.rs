//! The frame as a matrix with the row under way, and the timeline beside it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::draw::put;
use super::grid::{Cell, Matrix, Timeline, cpus, cpus_per_cell};
use super::look::Look;
use super::state::State;
use crate::values::{count, duration};

/// Sign and number of a row.
const ROW_LABEL: u16 = 8;
/// What is said of a row at its end.
const ROW_NOTE: u16 = 6;

pub fn draw(state: &State, look: Look, now_ns: i64, area: Rect, buffer: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    // Where it is paused, so is the row.
    let now_ns = if state.is_paused { state.snapshot.at_ns } else { now_ns };
    let cpus = cpus(&state.snapshot);
    let room = (area.width * 2 / 5).saturating_sub(ROW_LABEL + ROW_NOTE).max(1);
    let columns = cpus.div_ceil(cpus_per_cell(cpus, room.into())).max(1) as u16;
    let cell = if columns * 3 <= room { 3 } else { 1 };
    let width = (ROW_LABEL + columns * cell + ROW_NOTE).min(area.width);
    let left = Rect { width, ..area };
    draw_matrix(state, look, now_ns, cell, left, buffer);
    let right = Rect { x: area.x + width, width: area.width - width, ..area };
    draw_timeline(state, look, right, buffer);
}

fn draw_matrix(state: &State, look: Look, now_ns: i64, cell: u16, area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(area.height - 1);
    let columns = usize::from((area.width - ROW_LABEL - ROW_NOTE) / cell);
    let matrix = Matrix::of(&state.snapshot, now_ns, rows, columns);
    let heading = match (matrix.per_column, cell) {
        (1, 3) => {
            let cpus = matrix.rows.first().map_or(0, |row| row.cells.len());
            let numbers: String = (0..cpus).map(|cpu| format!("{cpu:^3}")).collect();
            format!("{:<1$}{numbers}", "slice", usize::from(ROW_LABEL))
        }
        (1, _) => "slice by CPU".to_owned(),
        (many, _) => format!("slice by {many} CPUs"),
    };
    put(buffer, area, 0, vec![Span::styled(heading, look.bold())]);
    for (line, row) in (1..).zip(&matrix.rows) {
        let sign = if row.is_now { look.sign("▶", ">") } else { " " };
        // All of a number of thirteen digits tells nobody more.
        let label = format!("{sign} {:04}  ", row.slice.rem_euclid(10_000));
        let style = match (row.is_now, row.is_over) {
            (true, _) => look.bold(),
            (false, true) => look.dim(),
            (false, false) => Style::new(),
        };
        let mut spans = vec![Span::styled(label, style)];
        spans.extend(row.cells.iter().map(|of| span(state, look, *of, cell, row.is_over)));
        if row.rest_turn {
            spans.push(Span::styled(" rest", style));
        }
        put(buffer, area, line, spans);
    }
}

fn draw_timeline(state: &State, look: Look, area: Rect, buffer: &mut Buffer) {
    let label = 8;
    if area.width <= label {
        return;
    }
    let columns = usize::from(area.width - label);
    let lines = usize::from(area.height - 1);
    let timeline = Timeline::of(&state.snapshot, state.column_ns(), columns, lines);
    let slices = count(state.slices_per_column(), "slice");
    let time = duration(timeline.column_ns);
    let all = duration(timeline.column_ns * columns as i64);
    let heading = format!("the last {all}: a column is {slices}, {time} (+ -)");
    put(buffer, area, 0, vec![Span::styled(look.text(&heading), look.bold())]);
    let last = cpus(&state.snapshot).saturating_sub(1);
    for (at, cells) in timeline.lines.iter().enumerate() {
        let first = at * timeline.per_line;
        let label = match timeline.per_line {
            1 => format!("CPU {first:<4}"),
            many => format!("{first:>3}-{:<4}", last.min(first + many - 1)),
        };
        let mut spans = vec![Span::styled(label, look.dim())];
        spans.extend(cells.iter().map(|cell| span(state, look, *cell, 1, false)));
        put(buffer, area, at as u16 + 1, spans);
    }
}

fn span(state: &State, look: Look, cell: Cell, width: u16, is_over: bool) -> Span<'static> {
    let (sign, style) = match cell {
        Cell::Unknown => (' ', Style::new()),
        Cell::Rest => (if look.unicode { '·' } else { '.' }, look.dim()),
        Cell::Several => ('+', look.dim()),
        Cell::Job(job) => {
            let letter = state.letters.of(job);
            let style = look.cell(letter);
            (letter, if is_over { style.add_modifier(Modifier::DIM) } else { style })
        }
    };
    let text = if width == 3 { format!(" {sign} ") } else { sign.to_string() };
    Span::styled(text, style)
}
