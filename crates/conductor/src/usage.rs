//! The time that a job had and wanted over a while.

use std::collections::VecDeque;

/// Whether a gang has more runnable threads than CPUs for longer than a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oversubscription {
    above: u32,
    below: u32,
    pub is_so: bool,
}

impl Oversubscription {
    /// Looks at which a gang becomes oversubscribed, and is none any more.
    const BECOMES: u32 = 3;
    const ENDS: u32 = 50;

    pub fn saw(&mut self, runnable: u32, cpus: u32) {
        if runnable > cpus {
            (self.above, self.below) = (self.above + 1, 0);
            self.is_so |= self.above >= Oversubscription::BECOMES;
        } else {
            (self.above, self.below) = (0, self.below + 1);
            self.is_so &= self.below < Oversubscription::ENDS;
        }
    }
}

/// A sum over the last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// Second since boot, and what was added in it.
    seconds: VecDeque<(u64, u64)>,
}

impl Window {
    pub const SECONDS: u64 = 10;

    pub fn add(&mut self, now_ns: u64, amount: u64) {
        let second = now_ns / 1_000_000_000;
        match self.seconds.back_mut() {
            Some((last, sum)) if *last == second => *sum += amount,
            _ => self.seconds.push_back((second, amount)),
        }
        while self.seconds.front().is_some_and(|(first, _)| first + Window::SECONDS <= second) {
            self.seconds.pop_front();
        }
    }

    /// The sum of what was added in the last ten seconds, or since `since_ns` where that is later,
    /// over that time.
    pub fn share(&self, now_ns: u64, since_ns: u64) -> f64 {
        let from = (now_ns / 1_000_000_000).saturating_sub(Window::SECONDS - 1);
        let sum: u64 = self.seconds.iter().filter(|(s, _)| *s >= from).map(|(_, sum)| sum).sum();
        let length = now_ns.saturating_sub(since_ns.max(from * 1_000_000_000));
        if length == 0 { 0.0 } else { (sum as f64 / length as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gang_is_oversubscribed_when_it_is_so_repeatedly() {
        let mut oversubscription = Oversubscription::default();
        for runnable in [3, 3, 2, 3, 3] {
            oversubscription.saw(runnable, 2);
        }
        assert!(!oversubscription.is_so);
        oversubscription.saw(3, 2);
        assert!(oversubscription.is_so);
        (0..49).for_each(|_| oversubscription.saw(2, 2));
        assert!(oversubscription.is_so);
        oversubscription.saw(2, 2);
        assert!(!oversubscription.is_so);
    }

    #[test]
    fn a_share_is_of_the_last_ten_seconds() {
        const S: u64 = 1_000_000_000;
        let mut window = Window::default();
        for second in 0..30 {
            window.add(second * S, if second < 20 { S } else { S / 2 });
        }
        let share = window.share(30 * S, 0);
        assert!((share - 0.5).abs() < 0.06, "{share}");
        let mut young = Window::default();
        young.add(100 * S, S / 4);
        assert!((young.share(100 * S + S / 2, 100 * S) - 0.5).abs() < 1e-9);
    }
}
