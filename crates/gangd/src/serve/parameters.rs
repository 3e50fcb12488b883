//! Numbers as clients write them, checked.

use gang_schedule::JobId;

use crate::error::Error;

pub fn number(parameter: &'static str, value: i64, most: i64) -> Result<u32, Error> {
    let fits = (1..=most).contains(&value).then_some(value as u32);
    fits.ok_or_else(|| Error::invalid(parameter, value, format!("1 to {most}")))
}

pub fn bytes(parameter: &'static str, value: Option<i64>) -> Result<Option<u64>, Error> {
    let of =
        |value| u64::try_from(value).map_err(|_| Error::invalid(parameter, value, "0 or more"));
    value.map(of).transpose()
}

pub fn job_id(job: i64) -> Result<JobId, Error> {
    u64::try_from(job).map(JobId).map_err(|_| Error::invalid("job", job, "the number of a job"))
}

pub fn process_number(pid: i64) -> Result<u32, Error> {
    pid_number(pid).ok_or_else(|| Error::invalid("pid", pid, "the number of a process"))
}

pub fn thread_number(tid: i64) -> Result<u32, Error> {
    pid_number(tid).ok_or_else(|| Error::invalid("tid", tid, "the number of a thread"))
}

/// As the kernel numbers processes and threads.
fn pid_number(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0 && i32::try_from(number).is_ok())
}
