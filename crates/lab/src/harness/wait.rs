//! Waiting for what happens, however slow or busy the machine is.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// After this long a wait is an error. It takes a second or two where nothing else runs.
pub const TIME_LIMIT: Duration = Duration::from_secs(180);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks again and again until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + TIME_LIMIT;
    loop {
        // The clock is read before the look: who had no CPU for long still looks once more.
        let is_last = Instant::now() >= end;
        if let Some(value) = look()? {
            return Ok(value);
        }
        ensure!(!is_last, "not within {} s: {what}", TIME_LIMIT.as_secs());
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Looks again and again until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, || Ok(is_so()?.then_some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_late_is_waited_for() {
        let mut looks = 0;
        let found = wait_for("the third look", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn a_look_that_fails_is_the_last() {
        let mut looks = 0;
        let failed = wait_until("nothing", || {
            looks += 1;
            anyhow::bail!("smoke")
        });
        assert_eq!((failed.unwrap_err().to_string().as_str(), looks), ("smoke", 1));
    }
}
