//! `gang top`: machine, classes, jobs, the frame and a timeline, in a terminal.
//!
//! Problem: a terminal may be small, slow, far away, without colours and without Unicode. Names of
//! jobs may hold anything. Keys are pressed while the daemon hangs. And the terminal must be given
//! back as it was, whatever happens.
//!
//! Approach: one loop takes events (snapshots, keys, signals, results of actions) from one channel,
//! and draws when it has taken all that are there. Everything that may wait has a thread of its
//! own. `state` and `draw` know no terminal, so that tests press keys and read pictures.
//!
//! Properties: nothing is polled; without news nothing is drawn. Text that comes from others is
//! escaped.

mod act;
mod draw;
mod frame;
mod grid;
mod jobs;
mod look;
mod order;
mod pages;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::os::raw::c_int;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event as Input};
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::live::{self, Model, Moment, Pace, Poller, Snapshot};
use act::{Act, Actor, Outcome};
pub use jobs::WIDTH_OF_ALL;
pub use look::Look;
use screen::Screen;
use state::{Mode, State, Wish};

/// From one look at a job whose details are shown to the next.
const DETAILS_EVERY: Duration = Duration::from_secs(1);

/// Between the two looks of [`once`], so that there are rates.
const BETWEEN: Duration = Duration::from_secs(1);

enum Event {
    Seen(Box<Snapshot>),
    Input(Input),
    /// The terminal cannot be read any more.
    InputLost,
    Signal(c_int),
    Came(Outcome),
}

/// Shows the view until the person has seen enough, or until a signal ends it.
///
/// # Errors
/// Those of the terminal.
pub fn run(surroundings: &Surroundings, look: Look, every: Duration) -> io::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(io::Error::other(
            "gang top needs a terminal; gang top --once prints one picture",
        ));
    }
    let (sender, events) = channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGTSTP, SIGCONT])?;
    let to = sender.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let _ = to.send(Event::Signal(signal));
        }
    })?;
    let deliver = |to: Sender<Event>| move |outcome| drop(to.send(Event::Came(outcome)));
    let actor = Actor::start(surroundings.clone(), deliver(sender.clone()))?;
    let mut screen = Screen::take()?;
    let to = sender.clone();
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let event = event::read().map_or(Event::InputLost, Event::Input);
            let is_lost = matches!(event, Event::InputLost);
            if to.send(event).is_err() || is_lost {
                return;
            }
        }
    })?;
    let seen = move |snapshot| drop(sender.send(Event::Seen(Box::new(snapshot))));
    let poller = Poller::start(surroundings.clone(), Pace::every(every), seen)?;
    let before = Model::new(&live::host()).snapshot(Moment::now());
    let mut top = Top { actor, poller, look, state: State::new(before), asked: None };
    let ended_by = top.run(&events, &mut screen)?;
    drop(screen);
    match ended_by {
        Some(signal) => emulate_default_handler(signal),
        None => Ok(()),
    }
}

/// Everything but the terminal.
struct Top {
    actor: Actor,
    poller: Poller,
    look: Look,
    state: State,
    /// When the job was looked at whose details are shown; the answer may not be there yet.
    asked: Option<(Instant, Answer)>,
}

#[derive(PartialEq)]
enum Answer {
    Awaited,
    There,
}

impl Top {
    /// The signal that ended it, if one did.
    fn run(&mut self, events: &Receiver<Event>, screen: &mut Screen) -> io::Result<Option<c_int>> {
        loop {
            let now_ns = Moment::now().utc_ns;
            screen.draw(|frame| {
                let area = frame.area();
                draw::draw(&mut self.state, self.look, now_ns, area, frame.buffer_mut());
            })?;
            let Ok(event) = events.recv() else { return Ok(None) };
            // All that is there is one picture.
            let waiting: Vec<Event> = std::iter::once(event).chain(events.try_iter()).collect();
            for event in waiting {
                match self.take(event, screen)? {
                    End::Not => {}
                    End::Quit => return Ok(None),
                    End::Signal(signal) => return Ok(Some(signal)),
                }
            }
        }
    }

    fn take(&mut self, event: Event, screen: &mut Screen) -> io::Result<End> {
        match event {
            Event::Seen(snapshot) => {
                self.state.take(*snapshot);
                if let Mode::Details { job, .. } = self.state.mode {
                    self.look_again(job);
                }
            }
            Event::Input(Input::Key(key)) => match self.state.key(key) {
                Some(Wish::Quit) => return Ok(End::Quit),
                Some(Wish::Stop) => stop()?,
                Some(Wish::Redraw) => screen.terminal.clear()?,
                Some(Wish::Do(act)) => self.actor.ask(act),
                None => {}
            },
            // A change of size shows in the next picture.
            Event::Input(_) => {}
            Event::InputLost => return Ok(End::Quit),
            Event::Signal(SIGTSTP) => stop()?,
            Event::Signal(SIGCONT) => screen.take_again()?,
            Event::Signal(signal) => return Ok(End::Signal(signal)),
            Event::Came(outcome) => {
                match &outcome {
                    Outcome::Done(_) => self.poller.refresh(),
                    Outcome::Refused(_) => {}
                    Outcome::Shown(_) | Outcome::NotShown { .. } => {
                        self.asked = Some((Instant::now(), Answer::There));
                    }
                }
                self.state.show_outcome(outcome);
            }
        }
        Ok(End::Not)
    }

    /// Details are asked for again a second after they came.
    fn look_again(&mut self, job: i64) {
        let is_due = self
            .asked
            .as_ref()
            .is_some_and(|(at, answer)| *answer == Answer::There && at.elapsed() >= DETAILS_EVERY);
        if is_due {
            self.asked = Some((Instant::now(), Answer::Awaited));
            self.actor.ask(Act::Show { job });
        }
    }
}

enum End {
    Not,
    Quit,
    Signal(c_int),
}

/// Stops, as a program does that leaves Ctrl-Z to the terminal. SIGCONT takes the terminal again.
fn stop() -> io::Result<()> {
    screen::give_back();
    emulate_default_handler(SIGTSTP)
}

/// One picture as text, as wide as `width` and as long as it takes.
///
/// # Errors
/// Those of the daemon.
pub fn once(surroundings: Surroundings, look: Look, width: u16) -> Result<String, ClientError> {
    let snapshot = live::once(surroundings, Some(BETWEEN))?;
    let area = Rect::new(0, 0, width, draw::height(&snapshot));
    let now_ns = snapshot.at_ns;
    let mut buffer = Buffer::empty(area);
    let mut state = State::new(snapshot);
    state.chosen = None;
    draw::draw(&mut state, Look { colours: false, ..look }, now_ns, area, &mut buffer);
    let mut lines = lines(&buffer);
    // The keys.
    lines.pop();
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The text of a picture.
fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let line = |y| {
        let mut text = String::new();
        let mut hidden = 0;
        for x in area.left()..area.right() {
            let symbol = buffer[(x, y)].symbol();
            // The cells behind a wide character.
            if hidden == 0 {
                text.push_str(symbol);
            }
            hidden = (unicode_width::UnicodeWidthStr::width(symbol)).max(hidden).max(1) - 1;
        }
        text.truncate(text.trim_end().len());
        text
    };
    (area.top()..area.bottom()).map(line).collect()
}

#[cfg(test)]
mod tests;
