//! Figures in words, as people read them.

use crate::observation::Cause;

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A time given in microseconds.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// The thing that is waited for, in words.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Partner => "each other (futex)",
        Cause::Device => "devices and memory",
        Cause::Time => "time to pass",
        Cause::Elsewhere => "input and other programs",
    }
}
