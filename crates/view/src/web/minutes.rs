//! The last minutes of each job, for a reader that opens its page now.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::figures::named;
use crate::live::JobView;

/// Looks that are kept of a job, and the least time between two: ten minutes. With as many jobs as
/// a daemon has by default that is 60 MB; with a hundred, 2 MB.
const LOOKS_MAX: usize = 600;
const BETWEEN_NS: i64 = 990_000_000;

/// The figures that are kept.
const KEPT: [&str; 6] =
    ["share_had", "share_wanted", "coscheduled", "skew_ns_p99", "cpus_used", "filling"];

/// The figures of one look, as small as pictures need them; NaN was not measured.
#[derive(Debug, Clone, Copy)]
struct Look {
    at_s: u32,
    values: [f32; KEPT.len()],
}

/// Columns, a value for each look; those of figures by their names.
#[derive(Debug, Default, Serialize)]
pub struct Past {
    at_s: Vec<u32>,
    #[serde(flatten)]
    figures: BTreeMap<&'static str, Vec<Option<f32>>>,
}

/// The looks of the jobs that live.
#[derive(Debug, Default)]
pub struct Minutes {
    looked_ns: i64,
    /// By id and the time of registration: another daemon may give a number anew.
    jobs: BTreeMap<i64, (i64, VecDeque<Look>)>,
}

impl Minutes {
    /// Takes note of how jobs stand, where that is due.
    pub fn note(&mut self, jobs: &[JobView], at_ns: i64) {
        let since_ns = at_ns - self.looked_ns;
        // A clock that was set back is followed.
        if (0..BETWEEN_NS).contains(&since_ns) {
            return;
        }
        self.looked_ns = at_ns;
        let has = |id: &i64| jobs.binary_search_by_key(id, |view| view.job.id).is_ok();
        self.jobs.retain(|id, _| has(id));
        for view in jobs {
            let began_ns = view.job.registered_at_ns;
            let (of_ns, looks) =
                self.jobs.entry(view.job.id).or_insert_with(|| (began_ns, VecDeque::new()));
            if *of_ns != began_ns
                || looks.back().is_some_and(|look| i64::from(look.at_s) > at_ns / 1_000_000_000)
            {
                looks.clear();
                *of_ns = began_ns;
            }
            if looks.len() == LOOKS_MAX {
                looks.pop_front();
            }
            looks.push_back(look(view, at_ns));
        }
    }

    /// Those of one job; nothing where there is no such job.
    pub fn of(&self, job: i64) -> Past {
        let looks = || self.jobs.get(&job).into_iter().flat_map(|(_, looks)| looks);
        let column = |(at, name): (usize, &'static str)| {
            let known = |look: &Look| Some(look.values[at]).filter(|value| !value.is_nan());
            (name, looks().map(known).collect())
        };
        Past {
            at_s: looks().map(|look| look.at_s).collect(),
            figures: KEPT.into_iter().enumerate().map(column).collect(),
        }
    }
}

fn look(view: &JobView, at_ns: i64) -> Look {
    let value = |name| named(name).value(view).map_or(f32::NAN, |value| value.number() as f32);
    Look { at_s: u32::try_from(at_ns / 1_000_000_000).unwrap_or(0), values: KEPT.map(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const S: i64 = 1_000_000_000;

    fn view(id: i64, registered_at_ns: i64) -> JobView {
        let mut job = fixture::job(id, "x");
        job.registered_at_ns = registered_at_ns;
        JobView::alone(job)
    }

    #[test]
    fn ten_minutes_are_kept_at_a_look_a_second() {
        let mut minutes = Minutes::default();
        for tenth in 0..10_000 {
            minutes.note(&[view(3, 0)], tenth * S / 10);
        }
        let past = minutes.of(3);
        assert_eq!(past.at_s.len(), LOOKS_MAX);
        assert_eq!((past.at_s[0], past.at_s[LOOKS_MAX - 1]), (400, 999));
        assert_eq!(
            (past.figures["share_had"][0], past.figures["cpus_used"][0]),
            (Some(0.49), None)
        );
    }

    #[test]
    fn what_is_kept_is_of_one_job() {
        let mut minutes = Minutes::default();
        minutes.note(&[view(3, 0), view(4, 0)], S);
        minutes.note(&[view(3, 7)], 2 * S);
        assert_eq!(minutes.of(3).at_s, [2]);
        assert!(minutes.of(4).at_s.is_empty() && minutes.of(5).at_s.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut minutes = Minutes::default();
        minutes.note(&[view(3, 0)], 100 * S);
        minutes.note(&[view(3, 0)], 50 * S);
        assert_eq!(minutes.of(3).at_s, [50]);
    }
}
