//! A kernel that makes no calls, and remembers what they would have done.
//!
//! Tests build it with the feature `recording`; no program does.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gang_timetable::{
    Action,
    follower::OfThread,
    model::{Model, Refused},
};
use rustix::io::Errno;

use crate::bound::{Bound, Kernel};

type Refusal = Box<dyn Fn(&Action) -> Option<Errno> + Send>;

#[derive(Default)]
struct Book {
    model: Model,
    actions: Vec<Action>,
    gave_way: Vec<u32>,
    refusal: Option<Refusal>,
}

/// The kernel of the tests.
#[derive(Default)]
pub struct Recording(Mutex<Book>);

impl Recording {
    /// One that finds things as a model says.
    pub fn from_model(model: Model) -> Recording {
        Recording(Mutex::new(Book { model, ..Book::default() }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state that the actions so far have left behind.
    pub fn model(&self) -> Model {
        self.book().model.clone()
    }

    /// Looks at the model without copying it.
    pub fn with_model<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.book().model)
    }

    /// The actions since this was last asked, those that were refused too.
    pub fn take_actions(&self) -> Vec<Action> {
        std::mem::take(&mut self.book().actions)
    }

    /// The threads that gave way since this was last asked.
    pub fn take_gave_way(&self) -> Vec<u32> {
        std::mem::take(&mut self.book().gave_way)
    }

    /// From now on refuses the actions for which a function gives an error; they change nothing.
    pub fn refuse(&self, refusal: impl Fn(&Action) -> Option<Errno> + Send + 'static) {
        self.book().refusal = Some(Box::new(refusal));
    }
}

impl Kernel for Recording {
    fn perform(&self, bound: &Bound) -> io::Result<()> {
        let action = &bound.action;
        let mut book = self.book();
        let refused = book.refusal.as_ref().and_then(|refusal| refusal(action));
        let result = match refused {
            Some(errno) => Err(errno.into()),
            None => book.model.perform(action).map_err(|refused| match refused {
                Refused::NoCpu | Refused::Idle => Errno::INVAL.into(),
            }),
        };
        book.actions.push(action.clone());
        result
    }

    fn give_way(&self, bound: &Bound) -> io::Result<()> {
        self.book().gave_way.extend(bound.action.of_thread().map(|(tid, _)| tid));
        Ok(())
    }

    fn lower_if_raised(&self, bound: &Bound) -> io::Result<()> {
        self.perform(bound)
    }
}
