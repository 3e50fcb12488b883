//! Pictures of a terminal are compared with the expected ones: `screens/*.txt`. REWRITE=1 in the
//! environment writes them anew.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use gang_protocol::error::ClientError;
use gang_protocol::v1;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::act::Outcome;
use super::state::State;
use super::{Look, WIDTH_OF_ALL, draw, lines};
use crate::details;
use crate::figures::FIGURES;
use crate::fixture;
use crate::live::{Model, Moment, Snapshot};

const MS: i64 = 1_000_000;
/// Slice 100,000 of 10 ms is half over.
const NOW_NS: i64 = 1_000_005 * MS;

const PLAIN: Look = Look { colours: false, unicode: true };
const ASCII: Look = Look { colours: false, unicode: false };

fn at(utc_ns: i64) -> Moment {
    Moment { utc_ns, instant: Instant::now() }
}

/// The model of a machine with so many CPUs: its jobs take turns, and every fifth slice is the
/// rest's.
fn model(cpus: i64, jobs: Vec<v1::Job>) -> Model {
    let mut model = Model::new("host");
    model.connected(Path::new("/run/gangd/gangd.sock"));
    model.status(v1::Status { cpus, jobs: jobs.len() as i64, ..fixture::status() });
    let ids: Vec<(i64, Vec<i64>)> =
        jobs.iter().map(|job| (job.id, (0..job.cpus.min(cpus)).collect())).collect();
    model.jobs(jobs, at(NOW_NS));
    let row = |slice: i64| {
        let row = fixture::row(slice, 10 * MS, &[]);
        let turn = slice as usize % 5;
        if turn == 4 || ids.is_empty() {
            return v1::Row { rest_turn: true, ..row };
        }
        let (job, cpu_list) = ids[turn % ids.len()].clone();
        v1::Row { slots: vec![v1::Slot { job, cpu_list }], ..row }
    };
    model.frame((99_000..100_020).map(row).collect(), at(NOW_NS));
    model
}

fn two_jobs() -> Snapshot {
    let mut hostile = fixture::job(12, "evil\u{1b}[2J\u{202e}");
    hostile.class = v1::Class::batch;
    hostile.cpus = 1;
    let measured = hostile.measured.as_mut().unwrap();
    (measured.coscheduled, measured.skew_ns_p99) = (None, None);
    let (promised_bytes, used_bytes) = (4 << 30, Some(3 << 29));
    hostile.memory = Some(v1::Memory { promised_bytes, used_bytes, enforced: false });
    model(2, vec![fixture::job(3, "流れ lu.C"), hostile]).snapshot(at(NOW_NS))
}

fn many_jobs() -> Snapshot {
    let job = |id: i64| {
        let mut job = fixture::job(id, &format!("program-{id}"));
        job.share_wanted = 1.0 / id as f64;
        job.share_had = job.share_wanted * 0.97;
        job.class = if id % 3 == 0 { v1::Class::batch } else { v1::Class::interactive };
        job.cpus = 16 * (1 + id % 8);
        if id % 7 == 0 {
            job.state = v1::JobState::suspended;
        }
        job
    };
    model(128, (1..=20).map(job).collect()).snapshot(at(NOW_NS))
}

fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        state.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

/// The picture, line by line.
fn seen(state: &mut State, look: Look, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        draw::draw(state, look, NOW_NS, frame.area(), frame.buffer_mut());
    };
    terminal.draw(draw).unwrap();
    let lines = lines(terminal.backend().buffer());
    assert_eq!(lines.len(), usize::from(height));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn compare(name: &str, found: &str) {
    let file = format!("src/top/screens/{name}.txt");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} looks different; REWRITE=1 accepts it:\n{found}");
}

#[test]
fn jobs_frame_and_timeline_fit_any_terminal() {
    let mut state = State::new(two_jobs());
    compare("80x24", &seen(&mut state, PLAIN, (80, 24)));
    compare("200x60", &seen(&mut State::new(many_jobs()), PLAIN, (200, 60)));
    compare("80x24-128-cpus", &seen(&mut State::new(many_jobs()), PLAIN, (80, 24)));
}

#[test]
fn progress_of_a_program_has_a_column() {
    let mut jobs: Vec<v1::Job> = two_jobs().jobs.iter().map(|view| view.job.clone()).collect();
    let at_ns = NOW_NS - 2000 * MS;
    jobs[0].progress = Some(v1::Progress { done: 420.0, total: 1000.0, at_ns });
    let snapshot = model(2, jobs.clone()).snapshot(at(NOW_NS));
    compare("80x24-done", &seen(&mut State::new(snapshot.clone()), PLAIN, (80, 24)));
    let wide = seen(&mut State::new(snapshot.clone()), PLAIN, (200, 60));
    assert!(wide.contains(" DONE%") && wide.contains(" 42.0"), "{wide}");
    let mut spanning = model(2, Vec::new());
    spanning.cluster(Some(fixture::cluster()));
    jobs[0].id = fixture::SPANNING;
    spanning.jobs(jobs, at(NOW_NS));
    let spanning = spanning.snapshot(at(NOW_NS));
    let all = seen(&mut State::new(spanning), PLAIN, (WIDTH_OF_ALL as u16, 60));
    let headings = FIGURES.iter().filter_map(|figure| Some(figure.column.as_ref()?.heading));
    headings.for_each(|heading| assert!(all.contains(heading), "no {heading}:\n{all}"));
    let details = snapshot.jobs[0].job.clone();
    let text = details::text(&v1::ShowJob_Reply { details, processes: None }, None, NOW_NS, None);
    let lines = [
        "  done                42.0 %\n",
        "  work done           420 of 1000\n",
        "  work reported       2.0 s ago\n",
    ];
    assert!(text.contains(&lines.concat()), "{text}");
}

#[test]
fn jobs_that_span_hosts_are_marked() {
    let mut jobs = two_jobs().jobs.iter().map(|view| view.job.clone()).collect::<Vec<_>>();
    jobs[1].id = fixture::SPANNING;
    let mut model = model(2, Vec::new());
    let mut look = |cluster| {
        model.cluster(Some(cluster));
        model.jobs(jobs.clone(), at(NOW_NS));
        model.snapshot(at(NOW_NS))
    };
    let snapshot = look(fixture::cluster());
    compare("80x24-cluster", &seen(&mut State::new(snapshot), PLAIN, (80, 24)));
    let away = v1::Cluster { unreachable: Some("no\u{1b} answer".into()), ..fixture::cluster() };
    let shown = seen(&mut State::new(look(away)), PLAIN, (80, 24));
    assert!(shown.contains("2 of 3 hosts alive  etcd away: no\\u{1b} answer"), "{shown}");
    assert_eq!(shown.lines().count(), 24);
}

#[test]
fn plans_that_went_wrong_are_shown() {
    let third_line = |late: i64, out: i64, width: u16| {
        let mut model = model(2, vec![fixture::job(3, "lu")]);
        let mut status = v1::Status { working_hours: Some(true), ..fixture::status() };
        (status.switches.late_plans, status.switches.ran_out) = (late, out);
        model.status(status);
        let text = seen(&mut State::new(model.snapshot(at(NOW_NS))), PLAIN, (width, 24));
        text.lines().nth(2).unwrap().to_owned()
    };
    for (late, out, end) in [
        (1, 0, "  1 plan late"),
        (0, 2, "  2 plans ran out"),
        (31_415, 27_182, "  31415 plans late, 27182 ran out"),
    ] {
        for width in [80, 200] {
            let line = third_line(late, out, width);
            assert!(line.contains("interactive ") && line.ends_with(end), "{line:?}");
        }
    }
    let line = third_line(0, 0, 200);
    assert!(line.ends_with("standby none  in working hours"), "{line:?}");
}

#[test]
fn without_unicode_there_is_none() {
    for keys in ["", "?", "c", "k"] {
        let mut state = State::new(two_jobs());
        press(&mut state, keys);
        let text = seen(&mut state, ASCII, (80, 24));
        assert!(text.is_ascii(), "{text}");
    }
    compare("80x24-ascii", &seen(&mut State::new(two_jobs()), ASCII, (80, 24)));
}

#[test]
fn jobs_differ_by_colour_only_where_there_are_some() {
    let styles = |look: Look| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut state = State::new(two_jobs());
        let draw = |frame: &mut ratatui::Frame<'_>| {
            draw::draw(&mut state, look, NOW_NS, frame.area(), frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        let cells = terminal.backend().buffer().content().to_vec();
        cells.into_iter().map(|cell| (cell.symbol().to_owned(), cell.fg, cell.bg))
    };
    use ratatui::style::Color::Reset;
    assert!(styles(PLAIN).all(|(_, fg, bg)| (fg, bg) == (Reset, Reset)));
    let coloured = Look { colours: true, ..PLAIN };
    let ground = |letter: &str| {
        styles(coloured).find(|(symbol, _, bg)| symbol == letter && *bg != Reset).unwrap().2
    };
    assert_ne!(ground("A"), ground("B"));
}

#[test]
fn questions_help_and_details_have_their_place() {
    let mut state = State::new(two_jobs());
    press(&mut state, "k");
    let text = seen(&mut state, PLAIN, (80, 24));
    let question = text.lines().last().unwrap();
    assert_eq!(
        question,
        "kill job 3 流れ lu.C (1 process)? y: SIGTERM  9: SIGKILL  other keys: no"
    );
    press(&mut state, "n?");
    compare("80x24-help", &seen(&mut state, PLAIN, (80, 24)));
    press(&mut state, "?\n");
    let mut details = two_jobs().jobs[1].job.clone();
    details.id = 3;
    let processes =
        vec![v1::Process { pid: 7, threads: 2, command: "a\u{1b}b".into(), tids: None }];
    let reply = v1::ShowJob_Reply { details, processes: Some(processes) };
    state.show_outcome(Outcome::Shown(Box::new(reply)));
    compare("80x24-details", &seen(&mut state, PLAIN, (80, 24)));
}

#[test]
fn gone_daemon_is_reported_above_old_figures() {
    let mut model = model(2, vec![fixture::job(3, "lu")]);
    let socket = PathBuf::from("/run/gangd/gangd.sock");
    let waited = std::time::Duration::from_secs(2);
    let doing = "listing the jobs".to_owned();
    let hangs = ClientError::TimedOut { doing, socket, waited };
    model.lost(&hangs, at(NOW_NS - 12_000 * MS));
    let snapshot = model.snapshot(at(NOW_NS));
    compare("80x24-hangs", &seen(&mut State::new(snapshot), PLAIN, (80, 24)));
}

#[test]
fn no_size_breaks_the_picture() {
    for snapshot in [two_jobs(), many_jobs(), Model::new("host").snapshot(at(NOW_NS))] {
        for width in [1, 5, 39, 40, 41, 60, 79, 81, 131, 132, 133, 300] {
            for height in [1, 7, 8, 9, 10, 12, 39, 40, 100] {
                for keys in ["", "?", "\n", "k", "/x"] {
                    let mut state = State::new(snapshot.clone());
                    press(&mut state, keys);
                    seen(&mut state, PLAIN, (width, height));
                }
            }
        }
    }
}
