//! The last minutes of each job, for a reader that opens its page now.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::live::JobView;

/// Looks that are kept of a job, and the least time between two: ten minutes. With as many jobs as
/// a daemon has by default that is 60 MB; with a hundred, 2 MB.
const LOOKS_MAX: usize = 600;
const BETWEEN_NS: i64 = 990_000_000;

/// The figures of one look, as small as pictures need them; NaN was not measured.
#[derive(Debug, Clone, Copy)]
struct Look {
    at_s: u32,
    share_had: f32,
    share_wanted: f32,
    coscheduled: f32,
    skew_us_p99: f32,
    cpus_used: f32,
    filling: f32,
}

/// Columns, a value for each look.
#[derive(Debug, Default, Serialize)]
pub struct Past {
    at_s: Vec<u32>,
    share_had: Vec<Option<f32>>,
    share_wanted: Vec<Option<f32>>,
    coscheduled: Vec<Option<f32>>,
    skew_us_p99: Vec<Option<f32>>,
    cpus_used: Vec<Option<f32>>,
    filling: Vec<Option<f32>>,
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
        let mut past = Past::default();
        let Some((_, looks)) = self.jobs.get(&job) else { return past };
        let known = |value: f32| (!value.is_nan()).then_some(value);
        for look in looks {
            past.at_s.push(look.at_s);
            past.share_had.push(known(look.share_had));
            past.share_wanted.push(known(look.share_wanted));
            past.coscheduled.push(known(look.coscheduled));
            past.skew_us_p99.push(known(look.skew_us_p99));
            past.cpus_used.push(known(look.cpus_used));
            past.filling.push(known(look.filling));
        }
        past
    }
}

fn look(view: &JobView, at_ns: i64) -> Look {
    let measured = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
    let JobView { job, rates, .. } = view;
    Look {
        at_s: u32::try_from(at_ns / 1_000_000_000).unwrap_or(0),
        share_had: job.share_had as f32,
        share_wanted: job.share_wanted as f32,
        coscheduled: measured(job.coscheduled()),
        skew_us_p99: measured(job.skew_ns_p99().map(|ns| ns as f64 / 1e3)),
        cpus_used: measured(rates.cpus_used),
        filling: measured(rates.filling),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::live::Rates;

    const S: i64 = 1_000_000_000;

    fn view(id: i64, registered_at_ns: i64) -> JobView {
        let mut job = fixture::job(id, "x");
        job.registered_at_ns = registered_at_ns;
        JobView { job, owner: "root".into(), rates: Rates::default() }
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
        assert_eq!((past.share_had[0], past.cpus_used[0]), (Some(0.49), None));
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
