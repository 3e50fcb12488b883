//! How many threads of a job want to run, where only a part of them is looked at.

/// How many threads of a job want to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runnable {
    pub threads: u32,
    /// They may be more by so many, where a part stood for all.
    pub unseen: u32,
}

impl Runnable {
    /// As is known of all of them.
    pub fn exactly(threads: u32) -> Runnable {
        Runnable { threads, unseen: 0 }
    }

    /// An estimate for all that are listed, from the `runnable` ones of those that were looked at.
    pub fn of_part(runnable: u32, looked_at: u32, listed: usize, came: u32) -> Runnable {
        if looked_at == 0 {
            return Runnable::default();
        }
        let (found, of) = (f64::from(runnable), f64::from(looked_at));
        let part = found / of;
        // The upper end of Wilson's interval at two standard deviations: where none was found,
        // there may be some. Where all were found, there are no more.
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
    fn estimate_from_a_part_has_its_uncertainty() {
        let of = |runnable, listed, came| Runnable::of_part(runnable, 32, listed, came);
        let exactly = Runnable::exactly;
        assert_eq!(of(0, 4200, 0), Runnable { threads: 0, unseen: 467 });
        assert_eq!(of(16, 4200, 0), Runnable { threads: 2100, unseen: 700 });
        assert_eq!(of(32, 4200, 0), exactly(4200));
        assert_eq!(of(32, 4200, 60), Runnable { threads: 4200, unseen: 60 });
        // One that sleeps is not as many as it stands for.
        assert_eq!(of(31, 256, 0), Runnable { threads: 248, unseen: 7 });
        assert_eq!(Runnable::of_part(0, 0, 4200, 0), exactly(0));
    }
}
