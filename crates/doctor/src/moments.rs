//! The time that was watched, by what the threads of the program did at each moment.
//!
//! Problem: looks are dear, and what threads do differs from moment to moment. Few looks say little
//! of a kind of moments that is rare, and by chance they find one kind more often than it is.
//!
//! Approach: for how long each kind lasted, and threads ran meanwhile, is known without looks
//! ([`Span`]). Looks say only what share of that was work, of each kind by itself.

use std::collections::BTreeMap;

use gang_bpf::{Coscheduling, Sum};

use crate::observation::{Doing, Look, Span};

/// All moments of one kind: the time, for how long threads ran in it, and what they were seen to do
/// on CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    ns: u64,
    ran_ns: u64,
    work: usize,
    wait: usize,
}

impl Kind {
    /// The share of the time on CPUs in which they work; absent where they were not seen there.
    fn works(&self) -> Option<f64> {
        let seen = self.work + self.wait;
        (seen > 0).then(|| self.work as f64 / seen as f64)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Moments(BTreeMap<Coscheduling, Kind>);

impl Moments {
    pub fn of(looks: &[Look], spans: &[Span]) -> Moments {
        let mut kinds = BTreeMap::<Coscheduling, Kind>::new();
        for (coscheduling, sum) in spans.iter().flat_map(|span| &span.sums) {
            let Sum { ns, ran_ns } = *sum;
            let kind = kinds.entry(*coscheduling).or_default();
            kind.ns += ns;
            kind.ran_ns += ran_ns;
        }
        for look in looks {
            let kind = kinds.entry(look.coscheduling).or_default();
            match look.doing {
                Doing::Else => {}
                Doing::Work { .. } => kind.work += 1,
                Doing::Wait { .. } => kind.wait += 1,
            }
        }
        Moments(kinds)
    }

    /// Those of some kinds.
    pub fn only(&self, is: impl Fn(Coscheduling) -> bool) -> Moments {
        let kinds = self.0.iter().filter(|(coscheduling, _)| is(**coscheduling));
        Moments(kinds.map(|(&coscheduling, &kind)| (coscheduling, kind)).collect())
    }

    /// How long they were.
    pub fn ns(&self) -> u64 {
        self.0.values().map(|kind| kind.ns).sum()
    }

    /// Looks that found a thread on a CPU: those at work, and those that waited.
    pub fn seen(&self) -> (usize, usize) {
        let add = |(work, wait), kind: &Kind| (work + kind.work, wait + kind.wait);
        self.0.values().fold((0, 0), add)
    }

    /// How many CPUs worked for the program, on average. Kinds without looks are taken to be as the
    /// rest.
    pub fn cpus_at_work(&self) -> f64 {
        let (work, wait) = self.seen();
        let rest = Kind { work, wait, ..Kind::default() }.works();
        let at_work = |kind: &Kind| Some(kind.ran_ns as f64 * kind.works().or(rest)?);
        self.0.values().filter_map(at_work).sum::<f64>() / self.ns().max(1) as f64
    }

    /// The same where so many looks found a thread on a CPU.
    pub fn cpus_at_work_if_seen(&self, enough: usize) -> Option<f64> {
        let (work, wait) = self.seen();
        (work + wait >= enough).then(|| self.cpus_at_work())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::tests::{MS, look};

    #[test]
    fn each_kind_counts_for_as_long_as_it_lasted() {
        // Two of three looks met with chance: half of the time they are apart, and one of them runs
        // and waits.
        let wait = Doing::Wait { tid: 1, site: "here".into() };
        let looks: Vec<Look> = (0..999)
            .flat_map(|at| match at % 3 {
                0 => [look(at, wait.clone(), 1, 1), look(at, Doing::Else, 1, 1)],
                _ => [1, 2].map(|tid| look(at, Doing::Work { tid }, 2, 0)),
            })
            .collect();
        let sum = |ran_ns| Sum { ns: 500 * MS, ran_ns };
        let sums =
            vec![(Coscheduling::Apart, sum(500 * MS)), (Coscheduling::Met(2), sum(1000 * MS))];
        let spans = [Span { at_ns: 999 * MS, sums }];
        let all = Moments::of(&looks, &spans);
        assert_eq!((all.ns(), all.seen(), all.cpus_at_work()), (1000 * MS, (1332, 333), 1.0));
        let apart = all.only(|coscheduling| coscheduling == Coscheduling::Apart);
        assert_eq!((apart.cpus_at_work(), apart.cpus_at_work_if_seen(333)), (0.0, Some(0.0)));
        assert_eq!(apart.cpus_at_work_if_seen(334), None, "half of its looks found nobody");
        // Nobody looked at those who met: they work as the rest does.
        let unseen = Moments::of(&looks[..2], &spans);
        assert_eq!(unseen.only(|it| it != Coscheduling::Apart).cpus_at_work(), 0.0);
        assert_eq!(Moments::of(&looks[2..6], &spans).cpus_at_work(), 1.5);
        assert_eq!(Moments::default().cpus_at_work(), 0.0);
    }
}
