//! Signals by name or number.

use std::str::FromStr;

use nix::libc::{SIGRTMAX, SIGRTMIN};
use nix::sys::signal::Signal;

/// The number of a signal given as `TERM`, `SIGTERM`, `15`, `RTMIN+1` or `RTMAX-1`, in any case.
pub fn parse(text: &str) -> Result<i64, String> {
    number(text).ok_or_else(|| {
        format!(
            "not a signal; there are names such as TERM, INT, KILL, USR1 and RTMIN+1, and \
             numbers from 1 to {}",
            SIGRTMAX()
        )
    })
}

fn number(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return (1..=i64::from(SIGRTMAX())).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Ok(signal) = Signal::from_str(&format!("SIG{name}")) {
        return Some(signal as i64);
    }
    let (base, offset) = match name.split_at_checked(5)? {
        ("RTMIN", offset) => (SIGRTMIN(), offset),
        ("RTMAX", offset) => (SIGRTMAX(), offset),
        _ => return None,
    };
    let number = base + if offset.is_empty() { 0 } else { signed(offset)? };
    (SIGRTMIN()..=SIGRTMAX()).contains(&number).then_some(number.into())
}

/// A number that says its sign: `+1`, `-1`.
fn signed(text: &str) -> Option<i32> {
    let has_sign = text.starts_with(['+', '-']);
    text.parse().ok().filter(|number: &i32| has_sign && number.abs() < 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, expected) in
            [("TERM", 15), ("SIGTERM", 15), ("sigint", 2), ("kill", 9), ("1", 1), ("64", 64)]
        {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        assert_eq!(parse("RTMIN"), Ok(SIGRTMIN().into()));
        assert_eq!(parse("sigrtmin+2"), Ok((SIGRTMIN() + 2).into()));
        assert_eq!(parse("RTMAX-1"), Ok((SIGRTMAX() - 1).into()));
    }

    #[test]
    fn others_are_refused_with_what_is_accepted() {
        for text in [
            "",
            "0",
            "65",
            "-9",
            "NOPE",
            "SIG",
            "RTMIN-1",
            "RTMAX+1",
            "RTMIN2",
            "RTMIN+999999999999",
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains("RTMIN+1"), "{text:?}: {message}");
        }
    }
}
