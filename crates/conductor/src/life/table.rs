//! The table of a job's life: each moment in each state.

use crate::{Job, Refused};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There is no job of that number, or none any more. A job that waits for memory or disk has no
    /// number yet.
    Absent,
    /// The job has no process yet.
    Registered,
    /// Its first process is on its way into the job's groups.
    Arriving,
    Present,
    /// Its user has suspended it.
    Stopped,
}

impl State {
    pub const ALL: [State; 5] =
        [State::Absent, State::Registered, State::Arriving, State::Present, State::Stopped];

    /// Of a job that is there.
    pub fn of(job: &Job) -> State {
        match &job.home {
            None => State::Registered,
            Some(_) if job.suspended => State::Stopped,
            Some(home) if home.coming.is_some() => State::Arriving,
            Some(_) => State::Present,
        }
    }

    /// The state as a refusal names it, after the job.
    pub fn phrase(self) -> &'static str {
        match self {
            State::Absent => "is not there",
            State::Registered => "has no process yet",
            State::Arriving => "awaits its first process",
            State::Present => "has its processes",
            State::Stopped => "is suspended",
        }
    }

    /// Why something is refused in this state.
    pub(crate) fn refusal(self, reason: &str) -> String {
        format!("it {}, and {reason}", self.phrase())
    }
}

/// Why a job that is suspended takes no single threads.
pub(crate) const STANDS_STILL: &str = "a single thread cannot stand still: resume it first";

/// The moments in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// It gets its number. A further one has another.
    Register,
    /// It is found on file by a daemon that begins.
    Restore,
    /// Its first process is going to move into its groups, and takes part meanwhile.
    Attach,
    /// The first process is there.
    Arrive,
    /// Processes or threads that are there become its members, as after a restart.
    Join,
    /// A further process comes.
    Follow,
    /// A process leaves.
    Detach,
    /// The process is out of the job's groups, or could not be moved.
    Left,
    /// A further single thread comes.
    AddThread,
    /// A single thread leaves.
    DetachThread,
    /// The job wants to run.
    Wake,
    /// The job has stopped wanting to run.
    Sleep,
    Suspend,
    Resume,
    /// Its processes hear of its slots by signals, or do so no more.
    SetSignals,
    /// Class, weight, CPUs, memory or disk.
    Change,
    /// Its processes are going to move to other groups, for another policy.
    Move,
    /// They have.
    Moved,
    /// Its memory is limited somewhere.
    Confine,
    /// Its programs read of its slots on a page.
    OpenPage,
    /// The guardian has released all jobs: each is stated anew.
    Release,
    End,
}

impl Moment {
    pub const ALL: [Moment; 22] = [
        Moment::Register,
        Moment::Restore,
        Moment::Attach,
        Moment::Arrive,
        Moment::Join,
        Moment::Follow,
        Moment::Detach,
        Moment::Left,
        Moment::AddThread,
        Moment::DetachThread,
        Moment::Wake,
        Moment::Sleep,
        Moment::Suspend,
        Moment::Resume,
        Moment::SetSignals,
        Moment::Change,
        Moment::Move,
        Moment::Moved,
        Moment::Confine,
        Moment::OpenPage,
        Moment::Release,
        Moment::End,
    ];
}

/// The outcome of a moment in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    To(State),
    /// Something changes, and the state does not.
    Stays,
    /// There is nothing to change.
    Nothing,
    /// There is no such job, or it does not have the process or thread.
    Nobody,
    /// The job is there already.
    Twice,
    /// It is refused in this state, for this reason.
    Refused(&'static str),
    /// The job is over.
    Over,
}

/// The table.
pub fn cell(state: State, moment: Moment) -> Cell {
    use Cell::{Nobody, Nothing, Over, Stays, To, Twice};
    use State::{Absent, Arriving, Present, Registered, Stopped};
    const REFUSED_THREAD: Cell = Cell::Refused(STANDS_STILL);
    #[rustfmt::skip]
    let cells = match moment {
        //                      Absent          Registered     Arriving      Present        Stopped
        Moment::Register =>     [To(Registered), Nothing,      Nothing,      Nothing,       Nothing],
        // One that was suspended is so at once.
        Moment::Restore =>      [To(Present),   Twice,         Twice,        Twice,         Twice],
        Moment::Attach =>       [Nobody,        To(Arriving),  Stays,        To(Arriving),  Stays],
        Moment::Arrive =>       [Nobody,        Nothing,       To(Present),  Stays,         Stays],
        Moment::Join =>         [Nobody,        To(Present),   Nothing,      Nothing,       Nothing],
        Moment::Follow =>       [Nobody,        Nothing,       Stays,        Stays,         Stays],
        Moment::Detach =>       [Nobody,        Nobody,        Stays,        Stays,         Stays],
        Moment::Left =>         [Nobody,        Nothing,       Stays,        Stays,         Stays],
        Moment::AddThread =>    [Nobody,        Nothing,       Stays,        Stays,         REFUSED_THREAD],
        Moment::DetachThread => [Nobody,        Nobody,        Stays,        Stays,         Stays],
        Moment::Wake =>         [Nobody,        Nothing,       Stays,        Stays,         Stays],
        Moment::Sleep =>        [Nobody,        Stays,         Stays,        Stays,         Stays],
        // Of one without processes the word is kept for the first that comes.
        Moment::Suspend =>      [Nobody,        Stays,         To(Stopped),  To(Stopped),   Stays],
        Moment::Resume =>       [Nobody,        Stays,         Stays,        Stays,         To(Present)],
        Moment::SetSignals =>   [Nobody,        Stays,         Stays,        Stays,         Stays],
        Moment::Change =>       [Nobody,        Stays,         Stays,        Stays,         Stays],
        Moment::Move =>         [Nobody,        Nothing,       Stays,        Stays,         Stays],
        Moment::Moved =>        [Nobody,        Nothing,       Stays,        Stays,         Stays],
        Moment::Confine =>      [Nobody,        Stays,         Stays,        Stays,         Stays],
        Moment::OpenPage =>     [Nobody,        Stays,         Stays,        Stays,         Stays],
        Moment::Release =>      [Nothing,       Stays,         Stays,        Stays,         Stays],
        Moment::End =>          [Nothing,       Over,          Over,         Over,          Over],
    };
    match state {
        Absent => cells[0],
        Registered => cells[1],
        Arriving => cells[2],
        Present => cells[3],
        Stopped => cells[4],
    }
}

/// Whether a moment changes anything of a job.
///
/// # Errors
/// The table refuses it; the reason names the state of the job.
pub fn permit(job: &Job, moment: Moment) -> Result<bool, Refused> {
    let state = State::of(job);
    match cell(state, moment) {
        Cell::To(_) | Cell::Stays | Cell::Over => Ok(true),
        Cell::Nothing => Ok(false),
        Cell::Nobody => Err(Refused::NoSuchJob(job.id)),
        Cell::Twice => Err(gang_schedule::Refusal::DuplicateJob { job: job.id }.into()),
        Cell::Refused(reason) => {
            let operation = match moment {
                Moment::AddThread => format!("add a thread to job {}", job.id),
                _ => format!("change job {}", job.id),
            };
            Err(Refused::not_permitted(operation, state.refusal(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_leads_to_a_state_of_the_table() {
        for state in State::ALL {
            for moment in Moment::ALL {
                let is_over = cell(state, moment) == Cell::Over;
                let ends = moment == Moment::End && state != State::Absent;
                assert_eq!(is_over, ends, "{state:?} {moment:?}");
            }
        }
    }
}
