//! How long a client waits for the daemon, where its user says so.
//!
//! Each client has a bound of its own, made for a machine that has CPUs to spare. On one that has
//! not, a daemon that works is slower than that; and a test of a daemon that hangs need not wait so
//! long.

use std::ffi::OsStr;
use std::time::Duration;

/// The variable with the seconds that replace a client's own bound.
const VARIABLE: &str = "GANG_TIMEOUT";

/// More is as good as for ever, and less than the kernel's clocks can count.
const LONGEST: Duration = Duration::from_secs(1_000_000);

/// `$GANG_TIMEOUT` is set, and is no time in seconds.
#[derive(Debug, thiserror::Error)]
#[error("GANG_TIMEOUT is '{0}', and takes seconds, more than 0")]
pub struct NoTime(String);

/// The bound of `$GANG_TIMEOUT` where that is set.
pub fn of_user() -> Result<Option<Duration>, NoTime> {
    std::env::var_os(VARIABLE)
        .map(|text| bound(&text).ok_or_else(|| NoTime(text.to_string_lossy().into_owned())))
        .transpose()
}

/// The bound of `$GANG_TIMEOUT` where that is a time, else the usual one.
pub fn or_usual(usual: Duration) -> Duration {
    of_user().ok().flatten().unwrap_or(usual)
}

/// The time that a text says, in seconds. None is no bound: the kernel would take it for no end.
fn bound(text: &OsStr) -> Option<Duration> {
    let seconds = text.to_str()?.trim().parse().ok()?;
    let bound = Duration::try_from_secs_f64(seconds).ok()?;
    (bound >= Duration::from_micros(1)).then_some(bound.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_seconds_and_never_none() {
        for (text, expected) in [
            ("2", Some(Duration::from_secs(2))),
            (" 0.25 ", Some(Duration::from_millis(250))),
            ("1e300", None),
            ("1e12", Some(LONGEST)),
            ("0", None),
            ("0.0000001", None),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(bound(OsStr::new(text)), expected, "{text:?}");
        }
    }
}
