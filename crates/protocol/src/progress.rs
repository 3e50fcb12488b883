//! How far a job is, as its program counts.

/// The values that [`is_accepted`] accepts, in words.
pub const ACCEPTED: &str = "done from 0 to total, and a total above 0, both finite";

/// Whether `done` of `total` says how far something is.
pub fn is_accepted(done: f64, total: f64) -> bool {
    // No comparison holds for what is not a number.
    done >= 0.0 && total > 0.0 && done <= total && total.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_further_than_the_end() {
        for (done, total) in [(0.0, 1.0), (3.5, 3.5), (-0.0, 1e300)] {
            assert!(is_accepted(done, total), "{done} of {total}");
        }
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (done, total) in [
            (nan, 1.0),
            (0.0, nan),
            (nan, nan),
            (-1.0, 1.0),
            (2.0, 1.0),
            (0.0, 0.0),
            (0.0, -1.0),
            (0.0, inf),
            (inf, inf),
        ] {
            assert!(!is_accepted(done, total), "{done} of {total}");
        }
    }
}
