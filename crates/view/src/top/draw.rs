//! The whole picture: what stands where, and what gives way where there is little room.

use gang_protocol::v1;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::look::Look;
use super::state::{Mode, State};
use super::{frame, jobs, pages};
use crate::figures::CLASSES;
use crate::live::{Link, Snapshot, Trouble};
use crate::spanning;
use crate::table::wrapped;
use crate::values::{count, duration, percent, size, word};

/// Smaller ones cannot show a job with its figures.
const LEAST: (u16, u16) = (40, 8);

/// Lines of the heading; the last is that of the cluster.
fn header_lines(snapshot: &Snapshot) -> u16 {
    3 + u16::from(snapshot.cluster.is_some())
}

/// Most lines of matrix and timeline, beside the heading, where there are few CPUs.
const FRAME_LINES: (u16, u16) = (8, 16);

/// Terminals from this height on have room for the longer frame.
const TALL: u16 = 40;

/// Draws everything as it is at a moment (UTC).
pub fn draw(state: &mut State, look: Look, now_ns: i64, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("gang top needs {} columns and {} lines", LEAST.0, LEAST.1);
        put(buffer, area, 0, vec![Span::raw(text)]);
        return;
    }
    let (header, rest) = split(area, header_lines(&state.snapshot));
    let (body, footer) = split(rest, rest.height - 1);
    draw_header(state, look, now_ns, header, buffer);
    match &state.mode {
        Mode::Help { scroll } => pages::draw_help(look, *scroll, body, buffer),
        Mode::Details { .. } => pages::draw_details(state, look, now_ns, body, buffer),
        _ => {
            let lines = frame_lines(&state.snapshot, area.height, body.height);
            let (table, frame) = split(body, body.height - lines);
            jobs::draw(state, look, table, buffer);
            frame::draw(state, look, now_ns, frame, buffer);
        }
    }
    draw_footer(state, look, footer, buffer);
}

/// How many lines a picture of all jobs takes that is not bounded by a terminal.
pub fn height(snapshot: &Snapshot) -> u16 {
    let jobs = u16::try_from(snapshot.jobs.len()).unwrap_or(u16::MAX).clamp(1, 10_000);
    // At half of the height, matrix and timeline are as long as they would be.
    let frame = FRAME_LINES.0.max(super::grid::cpus(snapshot).min(64) as u16) + 1;
    header_lines(snapshot) + (jobs + 1).max(frame) + frame + 1
}

/// The lines of matrix and timeline: half of the room at most.
fn frame_lines(snapshot: &Snapshot, height: u16, room: u16) -> u16 {
    let least = if height >= TALL { FRAME_LINES.1 } else { FRAME_LINES.0 };
    let cpus = u16::try_from(super::grid::cpus(snapshot)).unwrap_or(u16::MAX);
    least.max(cpus).saturating_add(1).min(room / 2)
}

/// The first lines, and the others.
fn split(area: Rect, lines: u16) -> (Rect, Rect) {
    let lines = lines.min(area.height);
    let first = Rect { height: lines, ..area };
    (first, Rect { y: area.y + lines, height: area.height - lines, ..area })
}

/// Writes a line of an area; what does not fit is cut off.
pub fn put(buffer: &mut Buffer, area: Rect, line: u16, spans: Vec<Span<'_>>) {
    if line >= area.height {
        return;
    }
    let (mut x, y) = (area.x, area.y + line);
    for span in spans {
        let text = span.content.as_ref();
        if text.chars().all(is_plain) {
            for character in text.chars().take(usize::from(area.right() - x)) {
                buffer[(x, y)].set_char(character).set_style(span.style);
                x += 1;
            }
        } else {
            (x, _) = buffer.set_span(x, y, &span, area.right() - x);
        }
    }
}

/// True for a character one cell wide that is no part of a grapheme, as nearly all are. Looking for
/// graphemes would cost more than everything else in a picture.
fn is_plain(character: char) -> bool {
    matches!(character, ' '..='~' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{24f}' | '…' | '▶')
}

fn draw_header(state: &State, look: Look, now_ns: i64, area: Rect, buffer: &mut Buffer) {
    let snapshot = &state.snapshot;
    match (&snapshot.link, &snapshot.status) {
        (Link::Down { trouble, reason, since_ns }, _) => {
            let age = duration((now_ns - since_ns).max(0));
            let what = match trouble {
                Trouble::Absent => "no gangd",
                Trouble::Silent => "gangd silent",
                Trouble::OtherVersion => "gangd of another version",
                Trouble::Forbidden => "no access to gangd",
                Trouble::Broken => "gangd lost",
            };
            let known = if snapshot.status.is_some() { "; what is shown is older" } else { "" };
            let text = format!("{what} for {age}, looking for it again{known}");
            put(buffer, area, 0, vec![Span::styled(look.text(&text), look.bad())]);
            let reason = wrapped(&look.text(reason), area.width.into());
            for (line, text) in (1..area.height).zip(&reason) {
                put(buffer, area, line, vec![Span::raw(text)]);
            }
        }
        (_, None) => put(buffer, area, 0, vec![Span::raw("looking for gangd")]),
        (_, Some(status)) => {
            let lines = [machine(snapshot, status), supply(status)];
            for (line, parts) in lines.into_iter().enumerate() {
                let text = fitting(&parts, area.width.into());
                put(buffer, area, line as u16, vec![Span::raw(look.text(&text))]);
            }
            let last = last_line(snapshot, status, area.width.into());
            put(buffer, area, 2, vec![Span::raw(look.text(&last))]);
            if let Some(cluster) = &snapshot.cluster {
                let parts = spanning::summary(cluster, |job| snapshot.job(job).is_some());
                let text = look.text(&parts.join("  "));
                let style = if cluster.unreachable.is_some() { look.bad() } else { Style::new() };
                put(buffer, area, 3, vec![Span::styled(text, style)]);
            }
        }
    }
    if state.is_paused {
        let text = " paused ";
        let width = text.len() as u16;
        let at = Rect { x: area.right() - width, width, ..area };
        put(buffer, at, 0, vec![Span::styled(text, look.chosen())]);
    }
}

/// As many parts as fit, two spaces between them.
fn fitting(parts: &[String], width: usize) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() && text.chars().count() + 2 + part.chars().count() > width {
            break;
        }
        text.push_str(if text.is_empty() { "" } else { "  " });
        text.push_str(part);
    }
    text
}

fn machine(snapshot: &Snapshot, status: &v1::Status) -> Vec<String> {
    vec![
        format!(
            "gangd {} on {}: {} ({})",
            status.version,
            snapshot.host,
            status.backend,
            word(&status.guarantee)
        ),
        format!("slice {}", duration(status.slice_ns)),
        count(status.cpus, "CPU"),
        format!("load {:.2}", status.load_average),
        format!("gap {} in {}", duration(status.gap_ns), duration(status.gap_period_ns)),
        format!("gang share {}", percent(status.gang_share_max)),
        format!("up {}", duration(status.uptime_ns)),
        if status.fill { "filling".to_owned() } else { "no filling".to_owned() },
    ]
}

fn supply(status: &v1::Status) -> Vec<String> {
    let late = duration(status.switches.late.p99_ns);
    let skew = duration(status.switches.skew.p99_ns);
    let (memory, disk) = (&status.memory, &status.disk);
    vec![
        format!("switches 99 % late < {late}, skew < {skew}"),
        format!("memory {} free", size(memory.free)),
        format!("{} outside", count(status.unregistered_threads, "thread")),
        format!("memory promised {}", size(memory.promised)),
        format!("disk {} free, promised {}", size(disk.free), size(disk.promised)),
        format!("{} switches", status.switches.count),
    ]
}

/// The classes, and behind them the plans that went wrong. Where there is no room for both, classes
/// without a job give way.
fn last_line(snapshot: &Snapshot, status: &v1::Status, width: usize) -> String {
    let is_wide = width >= 120;
    let hours = match status.working_hours {
        Some(true) if is_wide => Some("in working hours".to_owned()),
        Some(false) if is_wide => Some("outside working hours".to_owned()),
        _ => None,
    };
    let line = |with_empty: bool| {
        let mut parts = classes(snapshot, status, is_wide, with_empty);
        parts.extend(hours.clone());
        parts.extend(plans(&status.switches));
        parts.join("  ")
    };
    let whole = line(true);
    if whole.chars().count() <= width { whole } else { line(false) }
}

/// The plans that came late, and those that no other followed in time. Neither should happen, and
/// nothing is shown until one does.
fn plans(switches: &v1::Switches) -> Option<String> {
    match (switches.late_plans, switches.ran_out) {
        (0, 0) => None,
        (late, 0) => Some(format!("{} late", count(late, "plan"))),
        (0, out) => Some(format!("{} ran out", count(out, "plan"))),
        (late, out) => Some(format!("{} late, {out} ran out", count(late, "plan"))),
    }
}

/// The classes: what they weigh, how many jobs they have, and what those had of all CPUs.
fn classes(
    snapshot: &Snapshot,
    status: &v1::Status,
    is_wide: bool,
    with_empty: bool,
) -> Vec<String> {
    let of_class = |class: &v1::Class| {
        let weight = match class {
            v1::Class::express => status.express_weight,
            v1::Class::interactive => Some(status.interactive_weight),
            v1::Class::batch => Some(status.batch_weight),
            v1::Class::standby => None,
        };
        let weight = weight.filter(|_| is_wide).map_or_else(String::new, |it| format!(" ({it} %)"));
        let jobs = snapshot.jobs.iter().map(|view| &view.job).filter(|job| job.class == *class);
        let (mut number, mut had) = (0, 0.0);
        for job in jobs {
            number += 1;
            had += job.share_had * job.cpus as f64 / status.cpus.max(1) as f64;
        }
        let name = word(class);
        match number {
            0 => with_empty.then(|| format!("{name}{weight} none")),
            _ if is_wide => Some(format!(
                "{name}{weight} {} with {:.0} % of the CPUs",
                count(number, "job"),
                had * 100.0
            )),
            _ => Some(format!("{name} {number} {:.0} %", had * 100.0)),
        }
    };
    CLASSES.iter().filter_map(of_class).collect()
}

/// How the table differs from that of all jobs by id.
fn arrangement(state: &State) -> Option<String> {
    let sorted = (state.order.name != "id").then(|| format!("sorted by {}", state.order.title));
    let filter = (!state.filter.is_empty()).then(|| format!("filter {} (Esc: none)", state.filter));
    let parts: Vec<String> = sorted.into_iter().chain(filter).collect();
    (!parts.is_empty()).then(|| format!("{}  o sort  / filter  ? help  q quit", parts.join(", ")))
}

const KEYS: &str =
    "c class  s suspend  r resume  z resize  k kill  o sort  / filter  ? help  q quit";

fn draw_footer(state: &State, look: Look, area: Rect, buffer: &mut Buffer) {
    let question = |text: String| (look.text(&text), look.bold());
    let (text, style) = match (&state.mode, &state.message) {
        (Mode::AskKill(of), _) => {
            let held = count(of.processes, "process");
            question(format!(
                "kill job {} {} ({held})? y: SIGTERM  9: SIGKILL  other keys: no",
                of.job, of.name
            ))
        }
        (Mode::AskClass(of), _) => question(format!(
            "class of job {} {}? e express  i interactive  b batch  s standby",
            of.job, of.name
        )),
        (Mode::TypeSize { of, typed }, _) => {
            question(format!("CPUs of job {} {} (now {}): {typed}_", of.job, of.name, of.cpus))
        }
        (Mode::TypeFilter { .. }, _) => question(format!("filter: {}_", state.filter)),
        (_, Some(message)) => {
            let style = if message.is_bad { look.bad() } else { Style::new() };
            (look.text(&message.text), style)
        }
        (Mode::Help { .. } | Mode::Details { .. }, None) => {
            ("up, down, PgUp, PgDn move; any other key goes back".to_owned(), look.dim())
        }
        (Mode::Jobs, None) => {
            (arrangement(state).map_or(KEYS.to_owned(), |text| look.text(&text)), look.dim())
        }
    };
    put(buffer, area, 0, vec![Span::styled(text, style)]);
}
