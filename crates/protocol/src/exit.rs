//! Exit codes that the programs of `gang` have in common: itself, and those that it executes.

use std::error::Error;

use crate::error::ClientError;

/// The request failed or was refused.
pub const FAILED: u8 = 1;
/// No daemon listens.
pub const NO_DAEMON: u8 = 3;

/// The code for an error, whatever is said around its cause.
pub fn code(error: &(dyn Error + 'static)) -> u8 {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(ClientError::is_no_daemon) {
            return NO_DAEMON;
        }
        cause = error.source();
    }
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("looking")]
    struct Looking(#[source] ClientError);

    #[test]
    fn code_without_a_daemon_is_the_same_for_all_actions() {
        let none = || ClientError::NoDaemon { tried: Vec::new() };
        assert_eq!((code(&none()), code(&Looking(none()))), (NO_DAEMON, NO_DAEMON));
        let no_job = ClientError::NoSuchJob { doing: "showing a job".into(), job: 7 };
        assert_eq!((code(&no_job), code(&std::fmt::Error)), (FAILED, FAILED));
    }
}
