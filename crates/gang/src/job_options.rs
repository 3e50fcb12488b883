//! The meaning of the options of a job.

use gang_protocol::caller::Caller;
use gang_protocol::client::Registration;
use gang_protocol::name::check_name;
use gang_protocol::v1;

use crate::cli::{Class, JobOptions, Policy};
use crate::exit::Usage;

impl JobOptions {
    /// The job that was asked for; `name` and `cpus` are what it gets where nothing was said, and
    /// so are the weight and class of its `caller`.
    pub fn registration(
        &self,
        name: &str,
        cpus: i64,
        caller: Caller,
    ) -> Result<Registration, Usage> {
        let cpus = self.cpus.unwrap_or(cpus);
        let min_cpus = self.min.unwrap_or(cpus);
        if min_cpus > cpus {
            return Err(Usage(format!(
                "--min {min_cpus} is more than the {cpus} CPUs that the job asks for (-n)"
            )));
        }
        let name = self.name.as_deref().unwrap_or(name);
        check_name(name).map_err(|error| Usage(format!("--name: {error}")))?;
        Ok(Registration {
            name: name.to_owned(),
            cpus,
            min_cpus,
            class: self.class.map_or_else(|| caller.class(), Into::into),
            policy: self.policy.into(),
            weight: self.weight.unwrap_or_else(|| caller.weight()),
            mem_bytes: self.mem,
            disk_bytes: self.disk,
            wait: false,
            signals: self.signals,
        })
    }
}

impl From<Class> for v1::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::Express => Self::express,
            Class::Interactive => Self::interactive,
            Class::Batch => Self::batch,
            Class::Standby => Self::standby,
        }
    }
}

impl From<Policy> for v1::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Gang => Self::gang,
            Policy::None => Self::none,
            Policy::Auto => Self::auto,
        }
    }
}

/// CPUs that a process may use (`sched_getaffinity`); `None` is this one.
pub fn allowed_cpus(pid: Option<rustix::process::Pid>) -> rustix::io::Result<i64> {
    Ok(i64::from(rustix::thread::sched_getaffinity(pid)?.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> JobOptions {
        JobOptions {
            cpus: None,
            min: None,
            class: None,
            policy: Policy::Gang,
            weight: None,
            name: None,
            mem: None,
            disk: None,
            signals: false,
        }
    }

    #[test]
    fn all_cpus_are_needed_unless_a_minimum_is_given() {
        let job = options().registration("lu", 8, Caller::default()).unwrap();
        assert_eq!((job.cpus, job.min_cpus, job.name.as_str()), (8, 8, "lu"));
        let job = JobOptions { cpus: Some(4), min: Some(2), ..options() };
        let job = job.registration("lu", 8, Caller::default()).unwrap();
        assert_eq!((job.cpus, job.min_cpus), (4, 2));
    }

    #[test]
    fn minimum_above_wish_and_bad_names_are_refused() {
        let job = JobOptions { cpus: Some(2), min: Some(3), ..options() };
        let message = job.registration("lu", 8, Caller::default()).unwrap_err().to_string();
        assert!(message.contains("--min 3 is more than the 2 CPUs"), "{message}");
        let job = JobOptions { name: Some("a\u{1b}b".into()), ..options() };
        let message = job.registration("lu", 8, Caller::default()).unwrap_err().to_string();
        assert!(message.contains("control characters"), "{message}");
    }

    #[test]
    fn nice_value_of_caller_counts_without_an_option() {
        let caller = Caller { nice: 10, is_idle: true };
        let job = options().registration("lu", 8, caller).unwrap();
        assert_eq!((job.weight, job.class), (11, v1::Class::standby));
        let job = JobOptions { weight: Some(100), class: Some(Class::Batch), ..options() };
        let job = job.registration("lu", 8, caller).unwrap();
        assert_eq!((job.weight, job.class), (100, v1::Class::batch));
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        assert!(allowed_cpus(None).unwrap() >= 1);
    }
}
