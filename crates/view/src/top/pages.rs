//! Pages that take the place of the table: help, and the details of a job.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::draw::put;
use super::look::Look;
use super::state::{Mode, State};
use crate::details;
use crate::table::wrapped;

const HELP: &[(&str, &str)] = &[
    ("up, down, PgUp, PgDn, Home, End", "choose a job"),
    ("Enter", "show its details"),
    ("c", "change its class: you may lower it, administrators may set any"),
    ("s, r", "suspend it, let it run again"),
    ("z", "resize it: 4 asks for four CPUs, 2-4 for two at least"),
    ("k", "kill it, after a question"),
    ("o", "sort by the next column"),
    ("/", "show only jobs that have all words in name, owner, class or state"),
    ("+, -", "let a column of the timeline stand for fewer or more slices"),
    ("space", "stand still, and go on"),
    ("Ctrl-L, Ctrl-Z, q", "draw anew, stop, quit"),
    ("", ""),
    (
        "WANT%, HAD%",
        "share of the time in a slot that its weight gives it, and that it had in 10 s",
    ),
    ("COSCH%", "of the time in its slots, as far as it wanted to run: all of its threads ran"),
    ("SKEW99", "from its first thread to its last, at 99 of 100 beginnings and ends of slots"),
    ("LOST, WAITS", "how many of its threads waited for a CPU, in slot and out of slot"),
    ("FILL%", "of its CPU time: used out of its slots, in holes that others left"),
    ("USED, MEM", "CPUs and memory that it uses (memory where it asked for some)"),
    ("", ""),
    ("matrix", "who has which CPU, a line a slice; the mark moves with the clock"),
    ("cells", "letter: that job; dot: no gang, the rest of the machine; +: several by turns"),
];

const TERM: usize = 18;

pub fn draw_help(look: Look, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let mut line = 0;
    for (term, meaning) in HELP {
        // A long term has a line of its own.
        let is_long = term.len() >= TERM;
        if is_long {
            put(buffer, area, line, vec![Span::styled(*term, look.bold())]);
            line += 1;
        }
        for (at, text) in wrapped(meaning, width.saturating_sub(TERM)).into_iter().enumerate() {
            let term = if at == 0 && !is_long { *term } else { "" };
            let term = Span::styled(format!("{term:<TERM$}"), look.bold());
            put(buffer, area, line, vec![term, Span::raw(text)]);
            line += 1;
        }
    }
}

pub fn draw_details(state: &State, look: Look, now_ns: i64, area: Rect, buffer: &mut Buffer) {
    let Mode::Details { job, scroll, found } = &state.mode else { return };
    let text = match found {
        None => format!("asking for job {job}"),
        Some(Err(reason)) => reason.clone(),
        Some(Ok(reply)) => details::text(reply, now_ns, Some(area.width.into())),
    };
    let lines = text.lines().flat_map(|line| {
        // The text is escaped already, line by line.
        let line = look.text(line);
        wrapped(&line, area.width.into())
    });
    let lines: Vec<String> = lines.collect();
    let last = lines.len().saturating_sub(area.height.into());
    let first = usize::from(*scroll).min(last);
    for (at, line) in (0..area.height).zip(&lines[first..]) {
        put(buffer, area, at, vec![Span::raw(line)]);
    }
}
