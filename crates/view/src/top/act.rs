//! Actions of a person on jobs. They have a thread of their own, so that a daemon that hangs does
//! not stop the view.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use gang_protocol::client::{Change, Client};
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;

use crate::live::with_causes;
use crate::values::word;

/// Longest wait for the daemon.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// An action on a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    SetClass { job: i64, class: v1::Class },
    Suspend { job: i64 },
    Resume { job: i64 },
    Resize { job: i64, cpus: i64, min_cpus: Option<i64> },
    Kill { job: i64, signal: i64 },
    Show { job: i64 },
}

/// The result of an action.
#[derive(Debug)]
pub enum Outcome {
    Done(String),
    Refused(String),
    Shown(Box<v1::ShowJob_Reply>),
    /// The details of a job cannot be shown.
    NotShown {
        job: i64,
        reason: String,
    },
}

/// Does one thing after the other.
pub struct Actor {
    acts: Sender<Act>,
}

impl Actor {
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        surroundings: Surroundings,
        mut deliver: impl FnMut(Outcome) + Send + 'static,
    ) -> io::Result<Actor> {
        let (acts, asked) = channel();
        thread::Builder::new().name("act".to_owned()).spawn(move || {
            while let Ok(act) = asked.recv() {
                deliver(outcome(&surroundings, &act));
            }
        })?;
        Ok(Actor { acts })
    }

    pub fn ask(&self, act: Act) {
        let _ = self.acts.send(act);
    }
}

fn outcome(surroundings: &Surroundings, act: &Act) -> Outcome {
    match (carry_out(surroundings, act), act) {
        (Ok(outcome), _) => outcome,
        (Err(error), Act::Show { job }) => {
            Outcome::NotShown { job: *job, reason: with_causes(&error) }
        }
        (Err(error), _) => Outcome::Refused(with_causes(&error)),
    }
}

fn carry_out(surroundings: &Surroundings, act: &Act) -> Result<Outcome, ClientError> {
    let mut client = Client::find_within(surroundings, TIME_LIMIT)?;
    let done = match act {
        Act::SetClass { job, class } => {
            client.set_class(*job, class.clone())?;
            format!("job {job} is {} now", word(class))
        }
        Act::Suspend { job } => {
            client.suspend(*job)?;
            format!("job {job} is suspended")
        }
        Act::Resume { job } => {
            client.resume(*job)?;
            format!("job {job} runs again")
        }
        Act::Resize { job, cpus, min_cpus } => {
            let to = Change { cpus: Some(*cpus), min_cpus: *min_cpus, ..Change::default() };
            client.set(*job, &to)?;
            format!("job {job} asks for {cpus} CPUs now")
        }
        Act::Kill { job, signal } => {
            client.kill(*job, *signal)?;
            format!("signal {signal} was sent to job {job}")
        }
        Act::Show { job } => return Ok(Outcome::Shown(Box::new(client.show_job(*job)?))),
    };
    Ok(Outcome::Done(done))
}
