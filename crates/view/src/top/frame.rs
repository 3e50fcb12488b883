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
/// CPUs of a line of the timeline.
const LINE_LABEL: u16 = 8;
/// The width of the note at the end of a row.
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
        // All thirteen digits of a number would be of no use.
        let label = format!("{sign} {:04}  ", row.slice.rem_euclid(10_000));
        let style = match (row.is_now, row.is_over) {
            (true, _) => look.bold(),
            (false, true) => look.dim(),
            (false, false) => Style::new(),
        };
        put(buffer, area, line, vec![Span::styled(label, style)]);
        let cells = Rect { x: area.x + ROW_LABEL, width: area.width - ROW_LABEL, ..area };
        let end = put_cells(state, look, &row.cells, cell, row.is_over, cells, line, buffer);
        if row.rest_turn {
            let note = Rect { x: end, width: area.right() - end, ..area };
            put(buffer, note, line, vec![Span::styled(" rest", style)]);
        }
    }
}

fn draw_timeline(state: &State, look: Look, area: Rect, buffer: &mut Buffer) {
    if area.width <= LINE_LABEL {
        return;
    }
    let columns = usize::from(area.width - LINE_LABEL);
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
        let line = at as u16 + 1;
        put(buffer, area, line, vec![Span::styled(label, look.dim())]);
        let at = Rect { x: area.x + LINE_LABEL, width: area.width - LINE_LABEL, ..area };
        put_cells(state, look, cells, 1, false, at, line, buffer);
    }
}

/// Cells beside each other, each `width` wide; returns where they end. Not as text: there are
/// thousands.
#[expect(clippy::too_many_arguments, reason = "what is drawn, how, and where")]
fn put_cells(
    state: &State,
    look: Look,
    cells: &[Cell],
    width: u16,
    is_over: bool,
    area: Rect,
    line: u16,
    buffer: &mut Buffer,
) -> u16 {
    let mut x = area.x;
    for cell in cells {
        if line >= area.height || x + width > area.right() {
            break;
        }
        let (sign, style) = sign(state, look, *cell, is_over);
        for at in 0..width {
            let shown = if at == width / 2 { sign } else { ' ' };
            buffer[(x + at, area.y + line)].set_char(shown).set_style(style);
        }
        x += width;
    }
    x
}

fn sign(state: &State, look: Look, cell: Cell, is_over: bool) -> (char, Style) {
    match cell {
        Cell::Unknown => (' ', Style::new()),
        Cell::Rest => (if look.unicode { '·' } else { '.' }, look.dim()),
        Cell::Several => ('+', look.dim()),
        Cell::Job(job) => {
            let letter = state.letters.of(job);
            let style = look.cell(letter);
            (letter, if is_over { style.add_modifier(Modifier::DIM) } else { style })
        }
    }
}
