//! How much of their turns gangs are whole, as text.

use gang_protocol::v1::WholeTime;

use crate::values::percent;

/// Without turns whose start the host disturbed; or why that is not told.
fn steady(whole: &WholeTime) -> String {
    let left_out = percent(whole.left_out);
    match whole.steady_share {
        Some(share) => format!("{}, {left_out} left out", percent(share)),
        None => format!("not told, {left_out} left out"),
    }
}

/// How much of the time asked for a complete gang had the CPUs, and on a steady host.
pub fn share(whole: &WholeTime) -> String {
    let share = percent(whole.share);
    format!("{share} of the time asked for; on a steady host {}", steady(whole))
}

/// The rest of the time, by what the CPUs ran, and by cause.
pub fn rest(whole: &WholeTime) -> String {
    let of_time = |ns: i64| percent(ns as f64 / whole.asked_ns.max(1) as f64);
    let [split, partly] = [whole.split_ns, whole.partly_ns].map(of_time);
    let [gap, edge, noise] = [whole.gap_ns, whole.edge_ns, whole.noise_ns].map(of_time);
    format!("split {split}, partly {partly}; in gaps {gap}, at edges {edge}, other {noise}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn share_that_says_nothing_is_not_told() {
        let whole = fixture::whole_time();
        let text = "97.5 % of the time asked for; on a steady host 98.0 %, 2.0 % left out";
        assert_eq!(share(&whole), text);
        let disturbed = WholeTime { steady_share: None, left_out: 0.25, ..whole };
        assert!(share(&disturbed).ends_with("not told, 25.0 % left out"));
    }
}
