//! Why a request is not granted, in the terms of the interface.

use gang_conductor::{
    Refused,
    admission::{NotEnough, Supply},
};
use gang_linux::Error as KernelError;
use gang_protocol::{auto1, v1::VarlinkCallError};
use gang_schedule::{JobId, Refusal};

/// An answer that is not the one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
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

impl Denied {
    pub fn not_permitted(operation: impl Into<String>, reason: impl Into<String>) -> Denied {
        Denied::NotPermitted { operation: operation.into(), reason: reason.into() }
    }

    pub fn invalid(
        parameter: &'static str,
        value: impl ToString,
        accepted: impl Into<String>,
    ) -> Denied {
        Denied::InvalidValue { parameter, value: value.to_string(), accepted: accepted.into() }
    }

    /// A job has processes or single threads, never both; `has_threads` says which it has.
    pub fn mixed(job: JobId, has_threads: bool) -> Denied {
        Refused::mixed(job, has_threads).into()
    }

    /// Answers a call with it.
    pub fn reply<C: VarlinkCallError + ?Sized>(self, call: &mut C) -> varlink::Result<()> {
        match self {
            Denied::NoSuchJob(job) => call.reply_no_such_job(job.0 as i64),
            Denied::NoSuchProcess(pid) => call.reply_no_such_process(pid.into()),
            Denied::NoSuchThread(tid) => call.reply_no_such_thread(tid.into()),
            Denied::NoSuchCgroup(cgroup) => call.reply_no_such_cgroup(cgroup),
            Denied::NotPermitted { operation, reason } => {
                call.reply_not_permitted(operation, reason)
            }
            Denied::InvalidValue { parameter, value, accepted } => {
                call.reply_invalid_value(parameter.to_owned(), value, accepted)
            }
            Denied::LimitReached { limit, maximum } => {
                call.reply_limit_reached(limit.to_owned(), maximum as i64)
            }
            Denied::NotEnough { resource, wanted, supply } => {
                let Supply { total, free, promised } = supply;
                let [wanted, free, promised, total] = [wanted, free, promised, total]
                    .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
                call.reply_not_enough(resource.to_owned(), wanted, free, promised, total)
            }
            Denied::Failed { operation, reason } => call.reply_failed(operation, reason),
        }
    }
}

impl Denied {
    /// The same in the terms of `org.gangd.auto1`, which has fewer: nothing else comes of a decision.
    pub fn reply_auto<C: auto1::VarlinkCallError + ?Sized>(
        self,
        call: &mut C,
    ) -> varlink::Result<()> {
        match self {
            Denied::NoSuchJob(job) => call.reply_no_such_job(job.0 as i64),
            Denied::NotPermitted { operation, reason } => {
                call.reply_not_permitted(operation, reason)
            }
            Denied::InvalidValue { parameter, value, accepted } => {
                call.reply_invalid_value(parameter.to_owned(), value, accepted)
            }
            Denied::Failed { operation, reason } => call.reply_failed(operation, reason),
            other => {
                call.reply_failed("decide how a job is scheduled".into(), format!("{other:?}"))
            }
        }
    }
}

impl From<KernelError> for Denied {
    fn from(error: KernelError) -> Self {
        Denied::Failed {
            operation: format!("{} {}", error.operation, error.subject),
            reason: error.source.to_string(),
        }
    }
}

impl From<NotEnough> for Denied {
    fn from(NotEnough { resource, wanted, supply }: NotEnough) -> Self {
        Denied::NotEnough { resource, wanted, supply }
    }
}

impl From<Refused> for Denied {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSuchJob(job) => Denied::NoSuchJob(job),
            Refused::NoSuchProcess(pid) => Denied::NoSuchProcess(pid),
            Refused::NoSuchThread(tid) => Denied::NoSuchThread(tid),
            Refused::NotPermitted { operation, reason } => {
                Denied::NotPermitted { operation, reason }
            }
            Refused::LimitReached { limit, maximum } => Denied::LimitReached { limit, maximum },
            Refused::Unreadable { job, field } => Denied::Failed {
                operation: format!("restore job {job}"),
                reason: format!("its {field} is unknown here"),
            },
            Refused::Policy(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownJob { job } => Denied::NoSuchJob(job),
            Refusal::TooManyJobs { max } => Denied::LimitReached { limit: "jobs", maximum: max },
            Refusal::TooWide { min_cpus, machine } => {
                Denied::invalid("min_cpus", min_cpus, format!("1 to {machine}, the CPUs online"))
            }
            Refusal::ZeroCpus { cpus: 0, .. } => Denied::invalid("cpus", 0, "at least 1"),
            Refusal::ZeroCpus { min_cpus, .. } => {
                Denied::invalid("min_cpus", min_cpus, "at least 1")
            }
            Refusal::CpusBelowMin { cpus, min_cpus } => {
                Denied::invalid("min_cpus", min_cpus, format!("1 to {cpus}, the CPUs asked for"))
            }
            Refusal::Weight { weight, max } => {
                Denied::invalid("weight", weight, format!("1 to {max}"))
            }
            other => {
                Denied::Failed { operation: "schedule the job".into(), reason: other.to_string() }
            }
        }
    }
}
