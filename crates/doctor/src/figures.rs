//! The figures of a program, from what was seen of it.
//!
//! Terms. After a moment that is *apart*, one thread makes up for what it missed, and the others
//! wait until it has. So a clear moment is *undisturbed* only some time after all of its CPUs were
//! in use at once. The *pace* is the time in which CPUs work for the program, over the time of all
//! the CPUs that it can use at once. It is 1 where all of them work all of the time, and none
//! waits.
//!
//! For how long its threads ran is known of each kind of moments without looks. So looks may be
//! few: they only say how much of that time was work.

use std::collections::BTreeMap;

use gang_bpf::Coscheduling;
use serde::Serialize;

use crate::{
    competitors::Competitor,
    moments::Moments,
    observation::{Cause, Doing, Look, Observation, Sleeps},
};

/// So many that found threads on CPUs say what the pace is while some wait for one.
const APART_ENOUGH: usize = 100;

/// And so many what it would be undisturbed, to some percent: such moments are rare where others
/// compete.
const UNDISTURBED_ENOUGH: usize = 25;

/// By how many parts of the time it is judged whether the others' demand differs, which are no
/// longer than a second.
const PARTS: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;

/// Below this share of its time no thread waits for a CPU but for what it takes to wake.
const NEVER: f64 = 0.001;

/// The figures that conditions and predictions follow from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgramFigures {
    pub seconds: f64,
    /// Threads that compute, and the CPUs that they can use at once.
    pub threads: usize,
    pub cpus: usize,
    /// The pace (see the module), over all of the time, while it is undisturbed, and while a thread
    /// waits for a CPU.
    pub pace: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_clear: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_apart: Option<f64>,
    /// The pace while threads wait for CPUs, if the others did not mind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace_apart_if_independent: Option<f64>,
    /// Share of the time in which a thread waits for a CPU.
    pub apart: f64,
    /// Share of the time in which it wants CPUs and more of its threads do than it may use: no slot
    /// holds all of them.
    pub crowded: f64,
    /// Looks that found one of its threads on a CPU, and the share of them that found it waiting
    /// for others.
    pub looks_on_cpu: usize,
    pub spinning: f64,
    /// Where, as shares of that time, the most first.
    pub waits_at: Vec<(String, f64)>,
    /// Of the threads that compute.
    pub sleeps: BTreeMap<Cause, Sleeps>,
    /// Time between two waits of a thread for its partners; absent where it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<f64>,
    /// It is that or less: the clock is too coarse for more.
    pub interval_is_bound: bool,
    /// How long a thread that sleeps until its partners have arrived sleeps at a time, while none
    /// of them waits for a CPU; absent where they hardly ever do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_us: Option<f64>,
    /// Runnable threads of others on average, and how much that varied: standard deviation over
    /// seconds.
    pub others: f64,
    pub others_sd: f64,
    /// The processes of others that used the most CPU.
    pub competitors: Vec<Competitor>,
    /// The bytes that it fetched past the last cache, or why they are not known; both absent where
    /// nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_not_measured: Option<String>,
    /// The share of the machine's time that a gang would have.
    pub fair_share: f64,
    /// Share of the ticks that were lost; all else is of the others.
    pub lost: f64,
}

impl Observation {
    pub fn figures(&self) -> ProgramFigures {
        let busy = self.busy();
        // Those that come and go are as many as there are at once.
        let threads = busy.len().min(self.threads_at_once.unwrap_or(busy.len()));
        let cpus = threads.min(self.allowed).max(1);
        let sleeps = self.sleeps_of(&busy);
        let moments = Moments::of(&self.looks, &self.spans);
        let apart = moments.only(|coscheduling| coscheduling == Coscheduling::Apart);
        let apart_share = apart.ns() as f64 / moments.ns().max(1) as f64;
        let clear = moments.only(|coscheduling| match coscheduling {
            Coscheduling::Apart => false,
            Coscheduling::Met(coscheduling) if coscheduling as usize >= cpus => true,
            _ => apart_share < NEVER,
        });
        let pace = |cpus_at_work: f64| cpus_at_work / cpus as f64;
        let pace_clear = clear.cpus_at_work_if_seen(UNDISTURBED_ENOUGH).map(pace);
        let pace_apart = apart.cpus_at_work_if_seen(APART_ENOUGH).map(pace);
        let (works, waits) = moments.seen();
        let waiting = self.mean_waiting();
        let left = ((threads as f64 - waiting) / cpus as f64).clamp(0.0, 1.0);
        let own = (works + waits).max(1) as f64;
        let partner = sleeps.get(&Cause::Partner).copied().unwrap_or_default();
        let (interval_us, interval_is_bound) = self.interval(threads, partner);
        let (others, others_sd) = self.others();
        let wanted = cpus as f64 + self.wanted_by_others(cpus, others);
        ProgramFigures {
            seconds: self.length_ns as f64 / 1e9,
            threads,
            cpus,
            pace: pace(moments.cpus_at_work()),
            pace_clear,
            pace_apart,
            pace_apart_if_independent: pace_apart.and(pace_clear).map(|pace| pace * left),
            apart: apart_share,
            crowded: self.crowded(),
            looks_on_cpu: works + waits,
            spinning: waits as f64 / own,
            waits_at: self.waits_at(own),
            interval_us,
            interval_is_bound,
            spread_us: self.spread_us(threads, partner, (interval_us, interval_is_bound)),
            sleeps,
            others,
            others_sd,
            competitors: self.competitors.clone(),
            memory_bytes_per_s: self.memory.as_ref().and_then(|it| it.as_ref().ok()).copied(),
            memory_not_measured: self.memory.as_ref().and_then(|it| it.as_ref().err()).cloned(),
            lost: self.lost as f64 / (self.lost + self.looks.len() as u64).max(1) as f64,
            fair_share: if wanted > self.machine as f64 { cpus as f64 / wanted } else { 1.0 },
        }
    }

    /// The sleeps of the threads that compute, by their causes.
    fn sleeps_of(&self, busy: &[u32]) -> BTreeMap<Cause, Sleeps> {
        let mut sums = BTreeMap::<Cause, Sleeps>::new();
        for (&(tid, cause), sleeps) in &self.sleeps {
            if busy.binary_search(&tid).is_ok() {
                *sums.entry(cause).or_default() += *sleeps;
            }
        }
        sums
    }

    fn crowded(&self) -> f64 {
        let wanted = self.looks.iter().map(|look| (look.running + look.waiting) as usize);
        let (more, any) = wanted.fold((0usize, 0usize), |(more, any), wanted| {
            (more + usize::from(wanted > self.allowed), any + usize::from(wanted > 0))
        });
        more as f64 / any.max(1) as f64
    }

    /// How many threads wait for a CPU on average, while one does.
    fn mean_waiting(&self) -> f64 {
        let waiting: Vec<f64> = self.looks.iter().map(|look| f64::from(look.waiting)).collect();
        mean(waiting.into_iter().filter(|&waiting| waiting > 0.0))
    }

    fn waits_at(&self, own: f64) -> Vec<(String, f64)> {
        let mut sites: BTreeMap<&str, usize> = BTreeMap::new();
        for look in &self.looks {
            if let Doing::Wait { site, .. } = &look.doing {
                *sites.entry(site).or_default() += 1;
            }
        }
        let share = |(site, count): (&str, usize)| (site.to_owned(), count as f64 / own);
        let mut sites: Vec<_> = sites.into_iter().map(share).collect();
        sites.sort_by(|a, b| b.1.total_cmp(&a.1));
        sites.truncate(3);
        sites
    }

    /// How many threads of others want CPUs: their mean, and how much it differs between parts of
    /// the time. A part is a tenth, or a second where that is less. Differences of looks among
    /// themselves do not count.
    fn others(&self) -> (f64, f64) {
        let machine = self.machine as f64;
        let of =
            |look: &Look| machine * f64::from(look.here) - f64::from(look.running + look.waiting);
        let first_ns = self.looks.first().map_or(0, |look| look.at_ns);
        let part_ns = (self.length_ns / PARTS).clamp(1, SECOND_NS);
        let mut parts: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for look in &self.looks {
            let part = look.at_ns.saturating_sub(first_ns) / part_ns;
            parts.entry(part).or_default().push(of(look));
        }
        let average = mean(self.looks.iter().map(of));
        // The analysis of variance: squares between parts, and within them.
        let (looks, count) = (self.looks.len() as f64, parts.len() as f64);
        let (mut between, mut within) = (0.0, 0.0);
        for part in parts.into_values() {
            let of_part = mean(part.iter().copied());
            between += part.len() as f64 * (of_part - average).powi(2);
            within += part.iter().map(|value| (value - of_part).powi(2)).sum::<f64>();
        }
        let by_chance = within / (looks - count).max(1.0) * (count - 1.0).max(0.0);
        let variance = ((between - by_chance) / looks.max(1.0)).max(0.0);
        (average.max(0.0), variance.sqrt())
    }

    /// How many CPUs others would use that wait for each other as its own threads do, if those they
    /// wait for ran. Of those that want one half of the time there is another half that they do
    /// not; one that wants one all of the time wants no other.
    fn wanted_by_others(&self, cpus: usize, others: f64) -> f64 {
        let own = mean(self.looks.iter().map(|look| f64::from(look.running + look.waiting)));
        let if_alike = if own > 0.0 { others * cpus as f64 / own } else { others };
        let most = others.floor() + (2.0 * others.fract()).min(1.0);
        if_alike.min(most).max(others)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{
        Use,
        tests::{MS, look, two_threads},
    };

    #[test]
    fn threads_that_hardly_run_do_not_count() {
        let figures = two_threads(Vec::new()).figures();
        assert_eq!((figures.threads, figures.cpus), (2, 2));
        assert_eq!((figures.pace, figures.pace_clear), (0.0, None));
    }

    #[test]
    fn passing_threads_count_as_many_as_at_once() {
        let used = Use { run_ns: 900 * MS, wait_ns: 0 };
        let threads = (1..=100).map(|tid| (tid, used)).collect();
        let passing = Observation { threads, allowed: 16, ..two_threads(Vec::new()) };
        assert_eq!((passing.figures().threads, passing.figures().cpus), (100, 16));
        let passing = Observation { threads_at_once: Some(3), ..passing };
        assert_eq!((passing.figures().threads, passing.figures().cpus), (3, 3));
    }

    #[test]
    fn what_went_before_the_first_look_is_not_known() {
        // It reads its input, which is no measure of its pace, before it competes.
        let before = |at| Look { coscheduling: Coscheduling::Clear, ..look(at, Doing::Else, 0, 0) };
        let looks = (0..1000).flat_map(|at| match at {
            0..500 => [before(at), before(at)],
            _ => [look(at, Doing::Work { tid: 1 }, 1, 1), look(at, Doing::Else, 1, 1)],
        });
        assert_eq!(two_threads(looks.collect()).figures().pace_clear, None);
    }

    #[test]
    fn more_threads_than_cpus_are_a_crowd() {
        // In a quarter of the time nobody wants a CPU; in a third of the rest three do.
        let looks = (0..400).map(|at| match at % 4 {
            0 => look(at, Doing::Else, 0, 0),
            1 => look(at, Doing::Work { tid: 1 }, 2, 1),
            _ => look(at, Doing::Work { tid: 1 }, 1, 1),
        });
        let crowded = two_threads(looks.collect()).figures().crowded;
        assert!((crowded - 1.0 / 3.0).abs() < 1e-9, "{crowded}");
        assert_eq!(two_threads(Vec::new()).figures().crowded, 0.0);
    }

    #[test]
    fn the_pace_is_work_over_all_cpus() {
        // Clear: both work. Apart: one waits on its CPU, the other CPU is somebody else's.
        let looks = (0..1000).flat_map(|at| match at % 2 {
            0 => [1, 2].map(|tid| look(at, Doing::Work { tid }, 2, 0)),
            _ => [
                look(at, Doing::Wait { tid: 1, site: "here".into() }, 1, 1),
                look(at, Doing::Else, 1, 1),
            ],
        });
        let figures = two_threads(looks.collect()).figures();
        assert_eq!(figures.pace, 0.5);
        assert_eq!((figures.pace_clear, figures.pace_apart), (Some(1.0), Some(0.0)));
        assert_eq!(figures.pace_apart_if_independent, Some(0.5));
        assert_eq!(figures.apart, 0.5);
        assert!((figures.spinning - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(figures.waits_at[0].0, "here");
    }

    #[test]
    fn catching_up_is_no_measure_of_the_pace() {
        // Every ten milliseconds one thread waits for a CPU for three; for three more the other one
        // sleeps until it has come, and then both work.
        let looks = (0..1000).flat_map(|at| match at % 10 {
            0..3 => [look(at, Doing::Work { tid: 1 }, 1, 1), look(at, Doing::Else, 1, 1)],
            3..6 => [look(at, Doing::Work { tid: 2 }, 1, 0), look(at, Doing::Else, 1, 0)],
            _ => [1, 2].map(|tid| look(at, Doing::Work { tid }, 2, 0)),
        });
        let figures = two_threads(looks.collect()).figures();
        assert_eq!((figures.pace, figures.pace_clear), (0.7, Some(1.0)));
        assert_eq!(figures.pace_apart, Some(0.5));
        // Nobody competes, and one thread always sleeps.
        let serial = |at| [look(at, Doing::Work { tid: 2 }, 1, 0), look(at, Doing::Else, 1, 0)];
        let figures = two_threads((0..1000).flat_map(serial).collect()).figures();
        assert_eq!(figures.pace_clear, Some(0.5));
    }

    #[test]
    fn time_before_meeting_is_no_measure_of_the_pace() {
        // Every ten milliseconds one thread waits for a CPU for three; then both run, and meet a
        // while later.
        let looks = (0..10_000u64).flat_map(|tenth_ms| {
            let (in_turn, at_ns) = (tenth_ms % 100, tenth_ms * MS / 10);
            let doing = |tid| match in_turn {
                0..30 if tid == 2 => Doing::Else,
                0..39 if tid == 1 => Doing::Wait { tid, site: "here".into() },
                _ => Doing::Work { tid },
            };
            let (waiting, coscheduling) = match in_turn {
                0..30 => (1, Coscheduling::Apart),
                30..40 => (0, Coscheduling::Clear),
                _ => (0, Coscheduling::Met(2)),
            };
            [1, 2].map(|tid| Look {
                at_ns,
                coscheduling,
                ..look(0, doing(tid), 2 - waiting, waiting)
            })
        });
        let figures = two_threads(looks.collect()).figures();
        assert_eq!((figures.pace, figures.pace_clear), (0.655, Some(1.0)));
    }

    #[test]
    fn others_take_their_share() {
        // Of the four threads that want two CPUs two are its own.
        let wanted = |at, here| Look { here, ..look(at, Doing::Work { tid: 1 }, 1, 1) };
        let mut observation = two_threads((0..4000).map(|at| wanted(at, 2)).collect());
        let figures = observation.figures();
        assert_eq!((figures.others, figures.others_sd, figures.fair_share), (2.0, 0.0, 0.5));
        observation.looks = (0..4000).map(|at| wanted(at, 1 + u32::from(at >= 2000) * 2)).collect();
        let figures = observation.figures();
        assert_eq!((figures.others, figures.others_sd), (2.0, 2.0));
        // Three of four times both want to run, and the two others would, too, if none of them
        // slept.
        let alike = |at: u64| match at % 4 {
            0 => Look { here: 1, ..look(at, Doing::Work { tid: 1 }, 1, 0) },
            _ => Look { here: 2, ..wanted(at, 2) },
        };
        observation.looks = (0..4000).map(alike).collect();
        let figures = observation.figures();
        assert_eq!((figures.others, figures.fair_share), (1.75, 0.5));
        // On one of the CPUs there is nobody else.
        observation.looks = (0..4000).map(|at| wanted(at, 1 + (at % 2) as u32)).collect();
        let figures = observation.figures();
        assert_eq!(
            (figures.others, figures.others_sd),
            (1.0, 0.0),
            "looks differ, and no part of the time"
        );
        // One that wants a CPU all of the time, and a little of somebody else, want no more than
        // that.
        let hog = |at: u64| Look {
            here: 1,
            ..look(at, Doing::Work { tid: 1 }, 1, u32::from(at % 20 > 0))
        };
        observation.looks = (0..4000).map(hog).collect();
        assert_eq!(observation.wanted_by_others(2, 1.0), 1.0);
        assert!((observation.wanted_by_others(2, 1.01) - 1.02).abs() < 1e-9);
    }

    #[test]
    fn memory_is_shown_or_its_reason() {
        let of = |memory| {
            let figures = Observation { memory, ..two_threads(Vec::new()) }.figures();
            (figures.memory_bytes_per_s, figures.memory_not_measured)
        };
        assert_eq!(of(Some(Ok(5e9))), (Some(5e9), None));
        assert_eq!(of(Some(Err("none here".into()))), (None, Some("none here".into())));
        assert_eq!(of(None), (None, None));
    }

    #[test]
    fn what_was_lost_is_a_share_of_all_ticks() {
        let mut observation = two_threads((0..30).map(|at| look(at, Doing::Else, 0, 0)).collect());
        assert_eq!(observation.figures().lost, 0.0);
        observation.lost = 10;
        assert_eq!(observation.figures().lost, 0.25);
        observation.looks.clear();
        assert_eq!(observation.figures().lost, 1.0);
    }
}
