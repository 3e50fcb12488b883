//! The state of the view, and the effect of keys on it. It knows no terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use gang_protocol::limits::CPUS_MAX;
use gang_protocol::v1;

use super::act::{Act, Outcome};
use super::look::Letters;
use super::order::{self, arranged};
use crate::figures::{CLASSES, Figure, named};
use crate::live::{JobView, Snapshot};

/// Slices that a column of the timeline stands for; the keys + and - take another.
const ZOOMS: [i64; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// Longest text that can be typed.
const TYPED_MAX: usize = 64;

/// SIGTERM and SIGKILL, everywhere on Linux.
const TERM: i64 = 15;
const KILL: i64 = 9;

/// The meaning of keys now.
#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    Jobs,
    Help {
        scroll: u16,
    },
    /// Details of a job; absent until they have come.
    Details {
        job: i64,
        scroll: u16,
        found: Option<Result<Box<v1::ShowJob_Reply>, String>>,
    },
    AskKill(Target),
    AskClass(Target),
    TypeSize {
        of: Target,
        typed: String,
    },
    TypeFilter {
        before: String,
    },
}

/// The job that a question is about: it stays the same whatever happens in the table meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub job: i64,
    pub name: String,
    pub cpus: i64,
    pub processes: i64,
}

/// A message that stands until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub text: String,
    pub is_bad: bool,
}

/// A request of a key to the rest of the program.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Quit,
    /// Ctrl-Z.
    Stop,
    Redraw,
    Do(Act),
}

pub struct State {
    pub snapshot: Snapshot,
    pub letters: Letters,
    pub mode: Mode,
    /// Jobs are sorted by it.
    pub order: &'static Figure,
    pub filter: String,
    /// The job that keys are about. It stays chosen wherever it is sorted to.
    pub chosen: Option<i64>,
    /// First line of the table that is seen.
    pub scroll: usize,
    /// Lines of the table that were seen last.
    pub page: usize,
    pub message: Option<Message>,
    zoom: usize,
    /// The picture stands still.
    pub is_paused: bool,
}

impl State {
    pub fn new(snapshot: Snapshot) -> State {
        let mut state = State {
            snapshot: snapshot.clone(),
            letters: Letters::default(),
            mode: Mode::Jobs,
            order: named("id"),
            filter: String::new(),
            chosen: None,
            scroll: 0,
            page: 10,
            message: None,
            zoom: 0,
            is_paused: false,
        };
        state.take(snapshot);
        state
    }

    /// Shows another snapshot from now on, unless what is seen stands still.
    pub fn take(&mut self, snapshot: Snapshot) {
        if self.is_paused {
            return;
        }
        self.snapshot = snapshot;
        self.letters.assign(self.snapshot.jobs.iter().map(|view| view.job.id));
        let jobs = self.jobs();
        let is_there = |id: i64| jobs.iter().any(|view| view.job.id == id);
        if !self.chosen.is_some_and(is_there) {
            self.chosen = jobs.first().map(|view| view.job.id);
        }
    }

    /// Shows the result of an action.
    pub fn show_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(text) => self.message = Some(Message { text, is_bad: false }),
            Outcome::Refused(text) => self.message = Some(Message { text, is_bad: true }),
            Outcome::Shown(reply) => self.show(reply.details.id, Ok(reply)),
            Outcome::NotShown { job, reason } => self.show(job, Err(reason)),
        }
    }

    fn show(&mut self, of: i64, reply: Result<Box<v1::ShowJob_Reply>, String>) {
        if let Mode::Details { job, found, .. } = &mut self.mode {
            if *job == of {
                *found = Some(reply);
            }
        }
    }

    /// The jobs of the table, in its order.
    pub fn jobs(&self) -> Vec<&JobView> {
        arranged(&self.snapshot.jobs, &self.filter, self.order)
    }

    /// Time that a column of the timeline stands for.
    pub fn column_ns(&self) -> i64 {
        self.slices_per_column() * self.slice_ns()
    }

    pub fn slices_per_column(&self) -> i64 {
        ZOOMS[self.zoom]
    }

    fn slice_ns(&self) -> i64 {
        self.snapshot.status.as_ref().map_or(1, |status| status.slice_ns.max(1))
    }

    pub fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Wish::Quit),
                KeyCode::Char('z') => Some(Wish::Stop),
                KeyCode::Char('l') => Some(Wish::Redraw),
                _ => None,
            };
        }
        match std::mem::replace(&mut self.mode, Mode::Jobs) {
            Mode::Jobs => self.key_in_jobs(key.code),
            Mode::Help { scroll } => {
                self.mode =
                    scrolled(key.code, scroll).map_or(Mode::Jobs, |scroll| Mode::Help { scroll });
                None
            }
            Mode::Details { job, scroll, found } => {
                self.key_in_details(key.code, job, scroll, found)
            }
            Mode::AskKill(target) => self.key_to_kill(key.code, target),
            Mode::AskClass(target) => self.key_for_class(key.code, target),
            Mode::TypeSize { of, typed } => self.key_of_size(key.code, of, typed),
            Mode::TypeFilter { before } => self.key_of_filter(key.code, before),
        }
    }

    fn key_in_jobs(&mut self, key: KeyCode) -> Option<Wish> {
        let page = self.page.max(1) as isize;
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Up => self.choose(-1),
            KeyCode::Down => self.choose(1),
            KeyCode::PageUp => self.choose(-page),
            KeyCode::PageDown => self.choose(page),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            KeyCode::Char('o') => self.order = order::next(self.order),
            KeyCode::Char('+') => self.zoom = self.zoom.saturating_sub(1),
            KeyCode::Char('-') => self.zoom = (self.zoom + 1).min(ZOOMS.len() - 1),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.mode = Mode::TypeFilter { before: self.filter.clone() },
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help { scroll: 0 },
            // So that a filter that is forgotten can be got rid of.
            KeyCode::Esc => self.filter.clear(),
            _ => return self.key_about_a_job(key),
        }
        None
    }

    fn key_about_a_job(&mut self, key: KeyCode) -> Option<Wish> {
        if !matches!(key, KeyCode::Char('c' | 's' | 'r' | 'z' | 'k') | KeyCode::Enter) {
            return None;
        }
        let Some(target) = self.target() else {
            let text = "there is no job to do that to".to_owned();
            self.message = Some(Message { text, is_bad: true });
            return None;
        };
        let job = target.job;
        match key {
            KeyCode::Char('c') => self.mode = Mode::AskClass(target),
            KeyCode::Char('z') => self.mode = Mode::TypeSize { of: target, typed: String::new() },
            KeyCode::Char('k') => self.mode = Mode::AskKill(target),
            KeyCode::Char('s') => return Some(Wish::Do(Act::Suspend { job })),
            KeyCode::Char('r') => return Some(Wish::Do(Act::Resume { job })),
            _ => {
                self.mode = Mode::Details { job, scroll: 0, found: None };
                return Some(Wish::Do(Act::Show { job }));
            }
        }
        None
    }

    fn target(&self) -> Option<Target> {
        let job = &self.snapshot.job(self.chosen?)?.job;
        Some(Target {
            job: job.id,
            name: job.name.clone(),
            cpus: job.cpus,
            processes: job.processes,
        })
    }

    fn choose(&mut self, by: isize) {
        let jobs = self.jobs();
        let at = jobs.iter().position(|view| Some(view.job.id) == self.chosen).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(jobs.len().saturating_sub(1));
        self.chosen = jobs.get(to).map(|view| view.job.id);
    }

    fn key_in_details(
        &mut self,
        key: KeyCode,
        job: i64,
        scroll: u16,
        found: Option<Result<Box<v1::ShowJob_Reply>, String>>,
    ) -> Option<Wish> {
        let scroll = scrolled(key, scroll)?;
        self.mode = Mode::Details { job, scroll, found };
        None
    }

    fn key_to_kill(&mut self, key: KeyCode, target: Target) -> Option<Wish> {
        let signal = match key {
            KeyCode::Char('y') => TERM,
            KeyCode::Char('9') => KILL,
            _ => return None,
        };
        Some(Wish::Do(Act::Kill { job: target.job, signal }))
    }

    fn key_for_class(&mut self, key: KeyCode, target: Target) -> Option<Wish> {
        let class = match key {
            KeyCode::Char('e') => 0,
            KeyCode::Char('i') => 1,
            KeyCode::Char('b') => 2,
            KeyCode::Char('s') => 3,
            _ => return None,
        };
        Some(Wish::Do(Act::SetClass { job: target.job, class: CLASSES[class].clone() }))
    }

    fn key_of_size(&mut self, key: KeyCode, of: Target, mut typed: String) -> Option<Wish> {
        match key {
            KeyCode::Enter if typed.is_empty() => return None,
            KeyCode::Enter => match size(&typed) {
                Some((min_cpus, cpus)) => {
                    return Some(Wish::Do(Act::Resize { job: of.job, cpus, min_cpus }));
                }
                None => {
                    let text = format!("{typed} is no number of CPUs: 1 to {CPUS_MAX}, or 2-4");
                    self.message = Some(Message { text, is_bad: true });
                    return None;
                }
            },
            KeyCode::Esc => return None,
            _ => edit(&mut typed, key),
        }
        self.mode = Mode::TypeSize { of, typed };
        None
    }

    fn key_of_filter(&mut self, key: KeyCode, before: String) -> Option<Wish> {
        match key {
            KeyCode::Enter => {}
            KeyCode::Esc => self.filter = before,
            _ => {
                edit(&mut self.filter, key);
                self.mode = Mode::TypeFilter { before };
            }
        }
        if !self.is_paused {
            // Another job is chosen where this one is not seen any more.
            self.take(self.snapshot.clone());
        }
        None
    }
}

/// How far a page is scrolled after a key; other keys leave the page.
fn scrolled(key: KeyCode, scroll: u16) -> Option<u16> {
    match key {
        KeyCode::Up => Some(scroll.saturating_sub(1)),
        KeyCode::Down => Some(scroll.saturating_add(1)),
        KeyCode::PageUp => Some(scroll.saturating_sub(10)),
        KeyCode::PageDown => Some(scroll.saturating_add(10)),
        _ => None,
    }
}

fn edit(typed: &mut String, key: KeyCode) {
    match key {
        KeyCode::Backspace => drop(typed.pop()),
        KeyCode::Char(c) if !c.is_control() && typed.len() < TYPED_MAX => typed.push(c),
        _ => {}
    }
}

/// `4`: so many CPUs, and as many at least as before where that is less. `2-4`: from 2 to 4.
fn size(typed: &str) -> Option<(Option<i64>, i64)> {
    let number =
        |text: &str| text.trim().parse().ok().filter(|number| (1..=CPUS_MAX).contains(number));
    match typed.split_once('-') {
        Some((min, cpus)) => {
            let (min, cpus) = (number(min)?, number(cpus)?);
            (min <= cpus).then_some((Some(min), cpus))
        }
        None => Some((None, number(typed)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::live::{Model, Moment};

    fn state(names: &[&str]) -> State {
        let mut model = Model::new("host");
        let jobs = names.iter().enumerate();
        let jobs = jobs.map(|(i, name)| fixture::job(i as i64 + 3, name)).collect();
        let at = Moment::now();
        model.status(fixture::status());
        model.jobs(jobs, at);
        State::new(model.snapshot(at))
    }

    fn keys(state: &mut State, keys: &str) -> Option<Wish> {
        let mut wish = None;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\x08' => KeyCode::Backspace,
                'v' => KeyCode::Down,
                c => KeyCode::Char(c),
            };
            wish = state.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        wish
    }

    #[test]
    fn jobs_are_killed_after_a_question_only() {
        let mut state = state(&["lu", "sp"]);
        assert_eq!(keys(&mut state, "k"), None);
        assert!(matches!(&state.mode, Mode::AskKill(target) if target.name == "lu"));
        assert_eq!(keys(&mut state, "n"), None);
        assert_eq!(state.mode, Mode::Jobs);
        assert_eq!(keys(&mut state, "k\n"), None);
        assert_eq!(keys(&mut state, "ky"), Some(Wish::Do(Act::Kill { job: 3, signal: 15 })));
        assert_eq!(keys(&mut state, "vk9"), Some(Wish::Do(Act::Kill { job: 4, signal: 9 })));
    }

    #[test]
    fn a_question_stays_about_its_job() {
        let mut state = state(&["lu", "sp"]);
        keys(&mut state, "k");
        let mut model = Model::new("host");
        model.jobs(vec![fixture::job(4, "sp")], Moment::now());
        state.take(model.snapshot(Moment::now()));
        assert_eq!(state.chosen, Some(4));
        assert_eq!(keys(&mut state, "y"), Some(Wish::Do(Act::Kill { job: 3, signal: 15 })));
    }

    #[test]
    fn class_size_and_state_are_changed() {
        let mut state = state(&["lu"]);
        let class = v1::Class::standby;
        assert_eq!(keys(&mut state, "cs"), Some(Wish::Do(Act::SetClass { job: 3, class })));
        assert_eq!(keys(&mut state, "cx"), None);
        assert_eq!(keys(&mut state, "s"), Some(Wish::Do(Act::Suspend { job: 3 })));
        assert_eq!(keys(&mut state, "r"), Some(Wish::Do(Act::Resume { job: 3 })));
        let resize = |cpus, min_cpus| Some(Wish::Do(Act::Resize { job: 3, cpus, min_cpus }));
        assert_eq!(keys(&mut state, "z4\n"), resize(4, None));
        assert_eq!(keys(&mut state, "z29\x08-4\n"), resize(4, Some(2)));
        assert_eq!(keys(&mut state, "z\n"), None);
        for wrong in ["z0\n", "z4-2\n", "zmany\n", "z99999999999999999999\n"] {
            assert_eq!(keys(&mut state, wrong), None);
            assert!(state.message.take().unwrap().is_bad);
            assert_eq!(state.mode, Mode::Jobs);
        }
    }

    #[test]
    fn without_a_job_nothing_is_done() {
        let mut state = state(&[]);
        for key in ["c", "s", "r", "z", "k", "\n"] {
            assert_eq!(keys(&mut state, key), None);
            assert!(state.message.take().is_some());
            assert_eq!(state.mode, Mode::Jobs);
        }
        assert_eq!(keys(&mut state, "q"), Some(Wish::Quit));
    }

    #[test]
    fn a_filter_is_typed_kept_and_given_up() {
        let mut state = state(&["lu", "sp", "spx"]);
        let names = |state: &State| -> Vec<String> {
            state.jobs().iter().map(|view| view.job.name.clone()).collect()
        };
        keys(&mut state, "/sp");
        assert_eq!(names(&state), ["sp", "spx"]);
        assert_eq!(state.chosen, Some(4));
        keys(&mut state, "x\x1b");
        assert_eq!(names(&state).len(), 3);
        keys(&mut state, "/sp\n");
        assert_eq!((state.mode.clone(), names(&state).len()), (Mode::Jobs, 2));
        keys(&mut state, "\x1b");
        assert_eq!(names(&state).len(), 3);
    }

    #[test]
    fn details_are_those_that_were_asked_for() {
        let mut state = state(&["lu", "sp"]);
        assert_eq!(keys(&mut state, "\n"), Some(Wish::Do(Act::Show { job: 3 })));
        let reply = |id| {
            let details = fixture::job(id, "x");
            Box::new(v1::ShowJob_Reply { details, processes: None })
        };
        state.show_outcome(Outcome::Shown(reply(4)));
        assert!(matches!(&state.mode, Mode::Details { found: None, .. }));
        state.show_outcome(Outcome::Shown(reply(3)));
        assert!(matches!(&state.mode, Mode::Details { found: Some(Ok(_)), .. }));
        keys(&mut state, "x");
        assert_eq!(state.mode, Mode::Jobs);
        // It comes too late.
        state.show_outcome(Outcome::NotShown { job: 3, reason: "gone".into() });
        assert_eq!(state.mode, Mode::Jobs);
    }

    #[test]
    fn what_stands_still_stands_still() {
        let mut state = state(&["lu"]);
        keys(&mut state, " ");
        state.take(Model::new("host").snapshot(Moment::now()));
        assert_eq!(state.snapshot.jobs.len(), 1);
        keys(&mut state, " ");
        state.take(Model::new("host").snapshot(Moment::now()));
        assert_eq!(state.snapshot.jobs.len(), 0);
    }
}
