//! Lengths of time as people type them: a number with its unit, `20ms`, `0.5ms`, `50us`, `2s`.

use std::time::Duration;

/// Parses a number with one of the units ns, us, ms and s. A bare number has no meaning here and
/// is refused, so that nobody takes milliseconds for seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(|| format!("{text:?} has no unit; write for example 20ms or 50us"))?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 =
        number.trim().parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("{unit:?} is no unit of time; ns, us, ms and s are")),
    };
    let ns = number * unit_ns;
    if !(0.0..=1e15).contains(&ns) {
        return Err(format!("{text:?} is not between 0 and 1,000,000 s"));
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

/// Shows a length of time in the largest unit that needs no more than its own decimals.
pub fn show(duration: Duration) -> String {
    let ns = duration.as_nanos();
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{}ms", ns as f64 / 1e6),
        _ => format!("{}s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_shows() {
        for text in ["7ns", "50us", "0.5us", "0.5ms", "20ms", "1.5s", "100s"] {
            let once = parse(text).unwrap();
            assert_eq!(parse(&show(once)).unwrap(), once, "{text}");
        }
        assert_eq!(parse("0.5ms").unwrap(), Duration::from_micros(500));
        assert_eq!(show(Duration::from_millis(20)), "20ms");
    }

    #[test]
    fn refuses_what_it_cannot_mean() {
        for text in ["", "20", "ms", "-1ms", "3 weeks", "1e30s", "NaNs"] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
