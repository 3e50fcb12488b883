//! The events of a storm, as lines of text.
//!
//! A line is the name of an event and two numbers. The numbers choose by what is there then,
//! so that a script stays one when lines are taken out of it.

use std::fmt::Write;

use fastrand::Rng;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    pub kind: Kind,
    pub a: u16,
    pub b: u16,
}

macro_rules! kinds {
    ($($kind:ident $name:literal $often:literal,)*) => {
        /// Kinds of events, each with its name in scripts, and how often it comes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($kind,)* }

        impl Kind {
            pub const ALL: &'static [(Kind, &'static str, u32)] = &[$((Kind::$kind, $name, $often),)*];
        }
    };
}

kinds! {
    // Time and the machine.
    Pass "pass" 60,
    Stall "stall" 8,
    Hang "hang" 2,
    StepClock "step-clock" 2,
    TakeCpu "take-cpu" 4,
    BringCpu "bring-cpu" 5,
    Load "load" 4,
    Rival "rival" 16,
    // Programs.
    Spawn "spawn" 12,
    StartThread "start-thread" 12,
    Fork "fork" 6,
    EndThread "end-thread" 5,
    Exit "exit" 6,
    Leave "leave" 5,
    Reuse "reuse" 3,
    SetNice "set-nice" 3,
    SetPolicy "set-policy" 3,
    SetAffinity "set-affinity" 10,
    Bind "bind" 5,
    Crowd "crowd" 2,
    Become "become" 3,
    // The survey's findings.
    Use "use" 8,
    Idle "idle" 8,
    Oversubscribe "oversubscribe" 3,
    Bustle "bustle" 4,
    // Requests.
    Register "register" 10,
    Attach "attach" 14,
    Arrive "arrive" 14,
    Join "join" 1,
    Follow "follow" 6,
    AddThread "add-thread" 3,
    Detach "detach" 4,
    DetachThread "detach-thread" 2,
    Suspend "suspend" 4,
    Resume "resume" 5,
    Signals "signals" 3,
    Change "change" 3,
    Policy "policy" 4,
    Confine "confine" 2,
    Limit "limit" 5,
    Page "page" 3,
    End "end" 3,
    Flood "flood" 2,
    // Parts of jobs that span hosts.
    EnterPart "enter-part" 4,
    GiveEntries "give-entries" 7,
    EndEntries "end-entries" 1,
    // The daemon.
    Kill "kill" 1,
    Guard "guard" 2,
    Restart "restart" 3,
}

impl Kind {
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _, _)| *kind == self).map_or("", |(_, name, _)| name)
    }
}

/// The least number of events of a seed, of deaths of the daemon in it, and of users with jobs.
pub const EVENTS: usize = 200;
pub const DEATHS: usize = 2;
pub const USERS: usize = 3;

/// The second number of a death that waits for no effect.
pub const AT_ONCE: u16 = 0;

/// The script of a seed.
pub fn of_seed(seed: u64) -> Vec<Event> {
    let mut random = Rng::with_seed(seed);
    let all: u32 = Kind::ALL.iter().map(|(_, _, often)| often).sum();
    let mut events: Vec<Event> = (0..EVENTS)
        .map(|_| {
            let mut at = random.u32(..all);
            let kind = Kind::ALL.iter().find(|(_, _, often)| {
                let is_it = at < *often;
                at = at.saturating_sub(*often);
                is_it
            });
            let kind = kind.map_or(Kind::Pass, |(kind, _, _)| *kind);
            Event { kind, a: random.u16(..), b: random.u16(..) }
        })
        .collect();
    // Each seed has a hostile user.
    let (at, a, b) = (random.usize(..EVENTS / 2), random.u16(..), random.u16(..));
    events.insert(at, Event { kind: Kind::Flood, a, b });
    // The daemon dies between two effects, or at the latest before it is restarted.
    let mut ends: Vec<usize> = Vec::new();
    for _ in 0..DEATHS {
        let at = random.usize(EVENTS / 4..events.len());
        let (a, b) = (random.u16(..), random.u16(..));
        events.insert(at, Event { kind: Kind::Kill, a, b });
        ends.push(at + random.usize(1..12));
    }
    ends.sort_unstable();
    // From the last one on, so that each restart comes at once.
    let length = events.len();
    for at in ends.into_iter().rev().map(|at| at.min(length)) {
        let (a, b) = (random.u16(..), random.u16(..));
        events.insert(at, Event { kind: Kind::Restart, a, b });
        events.insert(at, Event { kind: Kind::Kill, a, b: AT_ONCE });
    }
    // Users come while the first daemon lives, and has all CPUs.
    let takes = |event: &Event| matches!(event.kind, Kind::Kill | Kind::TakeCpu);
    let first_loss = events.iter().position(takes);
    let (until, first) = (first_loss.unwrap_or(EVENTS), random.u16(..));
    for user in 0..USERS as u16 {
        let (at, b) = (random.usize(..=until), random.u16(..));
        let a = first.wrapping_add(user);
        events.insert(at, Event { kind: Kind::Register, a, b });
    }
    events
}

/// As text.
pub fn write(events: &[Event]) -> String {
    let mut text = String::new();
    for Event { kind, a, b } in events {
        let _ = writeln!(text, "{} {a} {b}", kind.name());
    }
    text
}

/// From text, in which lines that begin with # are comments.
///
/// # Errors
/// The line that is no event.
pub fn read(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().map(str::trim);
    let events = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let event = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let (kind, _, _) = Kind::ALL.iter().find(|(_, known, _)| *known == name)?;
        let mut number = || words.next()?.parse().ok();
        let event = Event { kind: *kind, a: number()?, b: number()? };
        words.next().is_none().then_some(event)
    };
    events.map(|line| event(line).ok_or_else(|| format!("no event: {line}"))).collect()
}

/// The shortest script found that still fails: parts are taken out as long as it does (Zeller and
/// Hildebrandt, Simplifying and isolating failure-inducing input, 2002).
pub fn shrink(mut events: Vec<Event>, fails: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let mut length = events.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at < events.len() {
            let mut fewer = events.clone();
            fewer.drain(at..(at + length).min(events.len()));
            if fails(&fewer) {
                events = fewer;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_as_it_was_written() {
        let events = of_seed(7);
        assert!(events.len() >= EVENTS + 2 * DEATHS);
        assert_eq!(read(&write(&events)), Ok(events));
        assert!(read("attach 1").is_err() && read("attach 1 2 3").is_err());
        assert_eq!(read("# nothing\n\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_needed_is_taken_out() {
        let events = of_seed(3);
        let is_kill = |event: &Event| event.kind == Kind::Kill;
        let fails = |events: &[Event]| events.iter().filter(|event| is_kill(event)).count() >= 2;
        assert_eq!(shrink(events, fails).len(), 2);
    }
}
