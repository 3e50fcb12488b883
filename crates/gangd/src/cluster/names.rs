//! The names of users, looked up beside the link.
//!
//! Problem: names may come from a directory service that does not answer for a minute. The thread
//! of the link keeps the host's lease in etcd: while it waits, the host is taken for lost.
//!
//! Approach: a thread of its own asks. Until it has an answer, a user has no name; one that was
//! known before keeps his name until there is a new answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use super::name_of;

/// Users whose names are remembered, and looked up at once.
const USERS_MAX: usize = 1_000;

/// A name may be given to another number: it is looked up again after so long.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The names that are known.
pub struct Names {
    known: Arc<Mutex<BTreeMap<u32, Name>>>,
    /// Absent where there is no thread that asks.
    asked: Option<SyncSender<u32>>,
}

#[derive(Default)]
struct Name {
    /// Absent until the first answer.
    name: Option<String>,
    /// When it was asked for last.
    asked_at: Option<Instant>,
}

impl Names {
    pub fn start() -> Names {
        Names::start_with(name_of)
    }

    fn start_with(look_up: impl Fn(u32) -> String + Send + 'static) -> Names {
        let known = Arc::<Mutex<BTreeMap<u32, Name>>>::default();
        let (sender, asked) = sync_channel(USERS_MAX);
        let answers = known.clone();
        let run = move || answer(&asked, &answers, look_up);
        let thread = std::thread::Builder::new().name("names".into()).spawn(run);
        if let Err(error) = &thread {
            tracing::warn!(%error, "no thread that looks up the names of users");
        }
        Names { known, asked: thread.ok().map(|_| sender) }
    }

    /// The name of a user, as far as it is known. Never waits for an answer.
    pub fn of(&self, uid: u32, now: Instant) -> Option<String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > USERS_MAX {
            known.retain(|_, of| of.asked_at.is_some_and(|at| now.duration_since(at) < KNOWN_FOR));
        }
        let of = known.entry(uid).or_default();
        if of.asked_at.is_none_or(|at| now.duration_since(at) >= KNOWN_FOR) {
            let is_asked = self.asked.as_ref().is_some_and(|asked| asked.try_send(uid).is_ok());
            of.asked_at = is_asked.then_some(now);
        }
        of.name.clone()
    }
}

/// Looks up names until nobody asks any more.
fn answer(
    asked: &Receiver<u32>,
    known: &Mutex<BTreeMap<u32, Name>>,
    look_up: impl Fn(u32) -> String,
) {
    while let Ok(uid) = asked.recv() {
        let name = look_up(uid);
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(uid).or_default().name = Some(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_until(is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "nobody has answered");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_waits_for_a_directory_that_does_not_answer() {
        let (answers, answered) = sync_channel::<String>(1);
        let answered = Mutex::new(answered);
        let names = Names::start_with(move |_| answered.lock().unwrap().recv().unwrap());
        let now = Instant::now();
        assert_eq!((names.of(7, now), names.of(8, now)), (None, None));
        answers.send("seven".into()).unwrap();
        wait_until(|| names.of(7, now).is_some());
        // A name that is known stays while it is asked for again.
        assert_eq!(names.of(7, now + KNOWN_FOR).as_deref(), Some("seven"));
        assert_eq!(names.of(8, now + KNOWN_FOR), None);
        for name in ["eight", "other"] {
            answers.send(name.into()).unwrap();
        }
        wait_until(|| names.of(7, now + KNOWN_FOR).as_deref() == Some("other"));
    }
}
