//! Why a request is not granted, in the terms of the interface.

use gang_conductor::{
    Refused,
    admission::{NotEnough, Supply},
    quota::Full,
};
use gang_linux::Error as KernelError;
use gang_protocol::{auto1, v1::VarlinkCallError};
use gang_schedule::{JobId, Refusal};

/// An answer that is not the one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    NoSuchJob(JobId),
    NoSuchProcess(u32),
    NoSuchThread(u32),
    NoSuchCgroup(String),
    NotPermitted { operation: String, reason: String },
    InvalidValue { parameter: &'static str, value: String, accepted: String },
    LimitReached { limit: &'static str, maximum: usize },
    NotEnough { resource: &'static str, wanted: u64, supply: Supply },
    Failed { operation: String, reason: String },
}

impl Error {
    pub fn not_permitted(operation: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::NotPermitted { operation: operation.into(), reason: reason.into() }
    }

    pub fn invalid(
        parameter: &'static str,
        value: impl ToString,
        accepted: impl Into<String>,
    ) -> Error {
        Error::InvalidValue { parameter, value: value.to_string(), accepted: accepted.into() }
    }

    /// A job has processes or single threads, never both; `has_threads` says which it has.
    pub fn mixed(job: JobId, has_threads: bool) -> Error {
        Refused::mixed(job, has_threads).into()
    }

    /// A process could not be looked at: there is none, or the daemon lacked what it takes.
    pub fn of_process(pid: u32, error: KernelError) -> Error {
        if error.is_shortage() { error.into() } else { Error::NoSuchProcess(pid) }
    }

    /// Answers a call with it.
    pub fn reply<C: VarlinkCallError + ?Sized>(self, call: &mut C) -> varlink::Result<()> {
        match self {
            Error::NoSuchJob(job) => call.reply_no_such_job(job.0 as i64),
            Error::NoSuchProcess(pid) => call.reply_no_such_process(pid.into()),
            Error::NoSuchThread(tid) => call.reply_no_such_thread(tid.into()),
            Error::NoSuchCgroup(cgroup) => call.reply_no_such_cgroup(cgroup),
            Error::NotPermitted { operation, reason } => {
                call.reply_not_permitted(operation, reason)
            }
            Error::InvalidValue { parameter, value, accepted } => {
                call.reply_invalid_value(parameter.to_owned(), value, accepted)
            }
            Error::LimitReached { limit, maximum } => {
                call.reply_limit_reached(limit.to_owned(), maximum as i64)
            }
            Error::NotEnough { resource, wanted, supply } => {
                let Supply { total, free, promised } = supply;
                let [wanted, free, promised, total] = [wanted, free, promised, total]
                    .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
                call.reply_not_enough(resource.to_owned(), wanted, free, promised, total)
            }
            Error::Failed { operation, reason } => call.reply_failed(operation, reason),
        }
    }
}

impl Error {
    /// The same in the terms of `org.gangd.auto1`, which has fewer: a decision fails in no other
    /// way.
    pub fn reply_auto<C: auto1::VarlinkCallError + ?Sized>(
        self,
        call: &mut C,
    ) -> varlink::Result<()> {
        match self {
            Error::NoSuchJob(job) => call.reply_no_such_job(job.0 as i64),
            Error::NotPermitted { operation, reason } => {
                call.reply_not_permitted(operation, reason)
            }
            Error::InvalidValue { parameter, value, accepted } => {
                call.reply_invalid_value(parameter.to_owned(), value, accepted)
            }
            Error::Failed { operation, reason } => call.reply_failed(operation, reason),
            other => {
                call.reply_failed("decide how a job is scheduled".into(), format!("{other:?}"))
            }
        }
    }
}

impl From<KernelError> for Error {
    fn from(error: KernelError) -> Self {
        Error::Failed {
            operation: format!("{} {}", error.operation, error.subject),
            reason: error.source.to_string(),
        }
    }
}

impl From<Full> for Error {
    fn from(Full { limit, maximum }: Full) -> Self {
        Error::LimitReached { limit, maximum }
    }
}

impl From<NotEnough> for Error {
    fn from(NotEnough { resource, wanted, supply }: NotEnough) -> Self {
        Error::NotEnough { resource, wanted, supply }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSuchJob(job) => Error::NoSuchJob(job),
            Refused::NoSuchProcess(pid) => Error::NoSuchProcess(pid),
            Refused::NoSuchThread(tid) => Error::NoSuchThread(tid),
            Refused::NotPermitted { operation, reason } => {
                Error::NotPermitted { operation, reason }
            }
            Refused::LimitReached { limit, maximum } => Error::LimitReached { limit, maximum },
            Refused::Unreadable { job, field } => Error::Failed {
                operation: format!("restore job {job}"),
                reason: format!("its {field} is unknown here"),
            },
            Refused::Policy(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownJob { job } => Error::NoSuchJob(job),
            Refusal::TooManyJobs { max } => Error::LimitReached { limit: "jobs", maximum: max },
            Refusal::TooWide { min_cpus, machine } => {
                Error::invalid("min_cpus", min_cpus, format!("1 to {machine}, the CPUs online"))
            }
            Refusal::ZeroCpus { cpus: 0, .. } => Error::invalid("cpus", 0, "at least 1"),
            Refusal::ZeroCpus { min_cpus, .. } => {
                Error::invalid("min_cpus", min_cpus, "at least 1")
            }
            Refusal::CpusBelowMin { cpus, min_cpus } => {
                Error::invalid("min_cpus", min_cpus, format!("1 to {cpus}, the CPUs asked for"))
            }
            Refusal::Weight { weight, max } => {
                Error::invalid("weight", weight, format!("1 to {max}"))
            }
            other => {
                Error::Failed { operation: "schedule the job".into(), reason: other.to_string() }
            }
        }
    }
}
