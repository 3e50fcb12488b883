//! Why something is not done. Nothing was changed then.

use gang_schedule::{JobId, Refusal};

use crate::quota::Full;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    NoSuchJob(JobId),
    NoSuchProcess(u32),
    NoSuchThread(u32),
    /// The state of the job, or the rights of the client, forbid it.
    NotPermitted {
        operation: String,
        reason: String,
    },
    LimitReached {
        limit: &'static str,
        maximum: usize,
    },
    /// A record on file says something that is unknown here.
    Unreadable {
        job: JobId,
        field: &'static str,
    },
    /// The policy refuses it.
    Policy(Refusal),
}

impl Refused {
    pub fn not_permitted(operation: impl Into<String>, reason: impl Into<String>) -> Refused {
        Refused::NotPermitted { operation: operation.into(), reason: reason.into() }
    }

    /// A job has processes or single threads, never both; `has_threads` says which it has.
    pub fn mixed(job: JobId, has_threads: bool) -> Refused {
        let (wanted, has) = match has_threads {
            true => ("a process", "single threads"),
            false => ("a single thread", "processes"),
        };
        let reason = format!("it is of {has}, and a job has either; register another one");
        Refused::not_permitted(format!("add {wanted} to job {job}"), reason)
    }
}

impl From<Full> for Refused {
    fn from(Full { limit, maximum }: Full) -> Refused {
        Refused::LimitReached { limit, maximum }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        match refusal {
            Refusal::UnknownJob { job } => Refused::NoSuchJob(job),
            Refusal::TooManyJobs { max } => Refused::LimitReached { limit: "jobs", maximum: max },
            other => Refused::Policy(other),
        }
    }
}
