//! How many threads of a job want to run, where only a part of them is looked at.

/// How many threads of a job want to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runnable {
    pub threads: u32,
    /// They may be more by so many, which is told of large jobs alone.
    pub unseen: u32,
}

impl Runnable {
    /// Of a job with more threads than this, it matters that a part stood for all.
    pub(crate) const LARGE: usize = 512;

    /// What `runnable` of each `step`th thread say of all of them.
    pub(crate) fn of_part(
        runnable: u32,
        looked_at: u32,
        step: u32,
        listed: usize,
        came: u32,
    ) -> Runnable {
        if listed <= Runnable::LARGE || looked_at == 0 {
            return Runnable { threads: runnable * step, unseen: 0 };
        }
        let (found, of) = (f64::from(runnable), f64::from(looked_at));
        let part = found / of;
        // The upper end of Wilson's interval at two standard deviations: where none was found, there may be some,
        // and where all were found, there are no more.
        let most = (found + 2.0 + 2.0 * (found * (1.0 - part) + 1.0).sqrt()) / (of + 4.0);
        let of_all = |part: f64| (part * listed as f64).round() as u32;
        // As many may have come since as came before.
        Runnable { threads: of_all(part), unseen: of_all(most - part) + came }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_part_says_of_a_large_job_is_told_with_its_uncertainty() {
        let of = |runnable, listed, came| Runnable::of_part(runnable, 32, 128, listed, came);
        let exactly = |threads| Runnable { threads, unseen: 0 };
        assert_eq!(of(0, 4200, 0), Runnable { threads: 0, unseen: 467 });
        assert_eq!(of(16, 4200, 0), Runnable { threads: 2100, unseen: 700 });
        assert_eq!(of(32, 4200, 0), exactly(4200));
        assert_eq!(of(32, 4200, 60), Runnable { threads: 4200, unseen: 60 });
        // Of others the part stands for all, as ever.
        assert_eq!(Runnable::of_part(3, 32, 4, 128, 60), exactly(12));
        assert_eq!(Runnable::of_part(0, 0, 1, 4200, 0), exactly(0));
    }
}
