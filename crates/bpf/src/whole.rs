//! How much of its turns a gang is whole.
//!
//! Terms. A *turn* is a slot, and the gap that interrupts the slot. In its turn a gang *asks* while
//! as many of its threads want to run as its row has CPUs. It is *whole* while it runs on all of
//! these.

/// Sums over turns, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The time in which the gang asks. All others are parts of it.
    pub asked_ns: u64,
    /// The gang is whole.
    pub whole_ns: u64,
    /// Another gang is, which has left late or runs in the gap.
    pub other_ns: u64,
    /// No gang is whole, and CPUs of the row run different ones. On the rest, some run none.
    pub split_ns: u64,
    /// No gang is whole, in a gap.
    pub gap_ns: u64,
    /// No gang is whole, before the gang was so in its slot, or after it was for the last time.
    pub edge_ns: u64,
    /// Turns at the start of which the host let a CPU wait for more than 200 µs: the time in which
    /// the gang asks, and how much of this a gang is whole.
    pub away_asked_ns: u64,
    pub away_whole_ns: u64,
}

/// Where more than this of the time is left out, the rest says nothing.
const LEFT_OUT_MAX: f64 = 0.1;

impl Whole {
    /// No gang is whole, and some CPUs run none.
    pub fn partly_ns(&self) -> u64 {
        self.missing_ns().saturating_sub(self.split_ns)
    }

    /// No gang is whole in the midst of a slot: something else had a CPU.
    pub fn noise_ns(&self) -> u64 {
        self.missing_ns().saturating_sub(self.gap_ns + self.edge_ns)
    }

    fn missing_ns(&self) -> u64 {
        self.asked_ns.saturating_sub(self.whole_ns + self.other_ns)
    }

    /// The share of the time in which a whole gang had the CPUs; `None` where no gang asked.
    pub fn share(&self) -> Option<f64> {
        share(self.whole_ns + self.other_ns, self.asked_ns)
    }

    /// The share of the time that [`Whole::steady_share`] leaves out.
    pub fn left_out(&self) -> Option<f64> {
        share(self.away_asked_ns, self.asked_ns)
    }

    /// The same as [`Whole::share`], without turns at the start of which the host let a CPU wait.
    /// `None` where more than a tenth of the time is left out.
    pub fn steady_share(&self) -> Option<f64> {
        let whole_ns = (self.whole_ns + self.other_ns).saturating_sub(self.away_whole_ns);
        let is_told = self.left_out()? <= LEFT_OUT_MAX;
        share(whole_ns, self.asked_ns.saturating_sub(self.away_asked_ns)).filter(|_| is_told)
    }

    /// The sums since earlier ones.
    pub fn since(&self, earlier: &Whole) -> Whole {
        self.with(earlier, u64::saturating_sub)
    }

    /// The sums of two gangs.
    pub fn and(&self, other: &Whole) -> Whole {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Whole, of: fn(u64, u64) -> u64) -> Whole {
        Whole {
            asked_ns: of(self.asked_ns, other.asked_ns),
            whole_ns: of(self.whole_ns, other.whole_ns),
            other_ns: of(self.other_ns, other.other_ns),
            split_ns: of(self.split_ns, other.split_ns),
            gap_ns: of(self.gap_ns, other.gap_ns),
            edge_ns: of(self.edge_ns, other.edge_ns),
            away_asked_ns: of(self.away_asked_ns, other.away_asked_ns),
            away_whole_ns: of(self.away_whole_ns, other.away_whole_ns),
        }
    }
}

fn share(part_ns: u64, all_ns: u64) -> Option<f64> {
    (all_ns > 0).then(|| part_ns as f64 / all_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_time_add_up() {
        let one = Whole { asked_ns: 1000, whole_ns: 900, other_ns: 20, ..Whole::default() };
        let whole = Whole { split_ns: 50, gap_ns: 40, edge_ns: 30, ..one };
        assert_eq!((whole.partly_ns(), whole.noise_ns()), (30, 10));
        assert_eq!(whole.share(), Some(0.92));
        assert_eq!(whole.and(&whole).since(&whole), whole);
        assert_eq!(Whole::default().share(), None);
    }

    #[test]
    fn turns_without_a_cpu_are_left_out() {
        let whole = Whole { asked_ns: 1000, whole_ns: 900, ..Whole::default() };
        let few = Whole { away_asked_ns: 100, away_whole_ns: 45, ..whole };
        assert_eq!((few.steady_share(), few.left_out()), (Some(0.95), Some(0.1)));
        let many = Whole { away_asked_ns: 101, ..few };
        assert_eq!((many.steady_share(), many.share()), (None, Some(0.9)));
        assert_eq!(Whole::default().steady_share(), None);
    }
}
