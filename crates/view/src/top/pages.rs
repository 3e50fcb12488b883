//! Pages that take the place of the table: help, and the details of a job.

use gang_protocol::v1;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::draw::put;
use super::look::Look;
use super::state::{Mode, State};
use crate::details;
use crate::figures::FIGURES;
use crate::table::wrapped;
use crate::why::{Evidence, judge};

const KEYS: &[(&str, &str)] = &[
    ("arrows, Home, End", "choose a job"),
    ("Enter", "show its details"),
    ("c", "change its class: you may lower it, administrators set any"),
    ("s, r", "suspend it, let it run again"),
    ("z", "resize it: 4 asks for four CPUs, 2-4 for two at least"),
    ("k", "kill it, after a question"),
    ("o", "sort by the next column"),
    ("/", "show only jobs with these words in name, owner, class, state"),
    ("+, -", "columns of the timeline stand for fewer or more slices"),
    ("space", "stand still, and go on"),
    ("Ctrl-L, Ctrl-Z, q", "draw anew, stop, quit"),
];

const PICTURES: &[(&str, &str)] = &[
    ("matrix", "who has which CPU, a line a slice; the mark moves with the clock"),
    ("cells", "letter: that job; dot: no gang, the rest of the machine; +: several by turns"),
];

const TERM: usize = 18;

pub fn draw_help(look: Look, scroll: u16, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width).saturating_sub(TERM);
    let mut lines = Vec::new();
    let figures = FIGURES.iter().filter(|figure| figure.is_number() && figure.name != "id");
    let headings = figures.filter_map(|it| Some((it.column.as_ref()?.heading, it.help)));
    let gap = || std::iter::once(("", ""));
    let keys = KEYS.iter().copied().chain(gap());
    for (term, meaning) in keys.chain(headings).chain(gap()).chain(PICTURES.iter().copied()) {
        for (at, text) in wrapped(meaning, width).into_iter().enumerate() {
            let term = if at == 0 { term } else { "" };
            let term = Span::styled(format!("{term:<TERM$}"), look.bold());
            lines.push(vec![term, Span::raw(text)]);
        }
    }
    draw_lines(lines, scroll, area, buffer);
}

/// Draws all that is known of a job, and why it is as fast or slow as it is.
pub fn draw_details(state: &State, look: Look, now_ns: i64, area: Rect, buffer: &mut Buffer) {
    let Mode::Details { job, scroll, found } = &state.mode else { return };
    let width = usize::from(area.width);
    let text = match found {
        None => format!("asking for job {job}"),
        Some(Err(reason)) => reason.clone(),
        Some(Ok(reply)) => {
            let snapshot = &state.snapshot;
            let spanning = snapshot.spanning(*job);
            let jobs: Vec<&v1::Job> = snapshot.jobs.iter().map(|view| &view.job).collect();
            let verdict = snapshot.status.as_ref().map_or_else(String::new, |status| {
                let verdict =
                    judge(Evidence { job: &reply.details, status, jobs: &jobs, spanning });
                format!("{}\n\n", verdict.paragraph())
            });
            verdict + &details::text(reply, spanning, now_ns, Some(width))
        }
    };
    // The text is escaped already, line by line.
    let lines = text.lines().flat_map(|line| {
        let line = look.text(line);
        if line.width() <= width { vec![line] } else { wrapped(&line, width) }
    });
    draw_lines(lines.map(|line| vec![Span::raw(line)]).collect(), *scroll, area, buffer);
}

/// As many lines as there is room for, from one on; not beyond the last.
fn draw_lines(lines: Vec<Vec<Span<'_>>>, from: u16, area: Rect, buffer: &mut Buffer) {
    let last = lines.len().saturating_sub(area.height.into());
    let lines = lines.into_iter().skip(last.min(from.into()));
    for (at, line) in (0..area.height).zip(lines) {
        put(buffer, area, at, line);
    }
}
