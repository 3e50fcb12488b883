//! How much of their turns gangs are whole, as text.

use gang_protocol::v1::WholeTime;

use crate::values::percent;

/// Without turns whose start the host disturbed; or why that is not told.
pub fn steady(whole: &WholeTime) -> String {
    let left_out = percent(whole.left_out);
    match whole.steady_share {
        Some(share) => format!("{}; {left_out} of the time left out", percent(share)),
        None => format!("not told: {left_out} of the time would be left out"),
    }
}

/// All of it, in a line.
pub fn text(whole: &WholeTime) -> String {
    let of_time = |ns: i64| percent(ns as f64 / whole.asked_ns.max(1) as f64);
    let [split, partly] = [whole.split_ns, whole.partly_ns].map(of_time);
    let [gap, edge, noise] = [whole.gap_ns, whole.edge_ns, whole.noise_ns].map(of_time);
    format!(
        "{} of the time that gangs asked for their row; on a steady host {}\nrest      split \
         {split}, partly {partly}; in gaps {gap}, at edges {edge}, other {noise}",
        percent(whole.share),
        steady(whole)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn share_that_says_nothing_is_not_told() {
        let whole = fixture::whole_time();
        assert_eq!(steady(&whole), "98.0 %; 2.0 % of the time left out");
        let disturbed = WholeTime { steady_share: None, left_out: 0.25, ..whole };
        assert_eq!(steady(&disturbed), "not told: 25.0 % of the time would be left out");
    }
}
