//! Waiting for what switchers do: none of them tells a client's thread.

use std::time::{Duration, Instant};

use crate::conduct::at_work;

/// The longest wait: slices may be long.
pub const LONGEST: Duration = Duration::from_secs(5);

/// The time between looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Looks until there is an answer; `None` after [`LONGEST`].
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + LONGEST;
    loop {
        if let Some(answer) = look() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        at_work::leave();
        std::thread::sleep(LOOK_EVERY);
    }
}
