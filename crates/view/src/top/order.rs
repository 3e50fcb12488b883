//! Which jobs the table has, and in which order.

use std::cmp::Ordering;

use gang_protocol::v1;

use crate::live::JobView;
use crate::values::{progress, word};

/// The sort key of jobs; the key `o` takes the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Id,
    Name,
    Owner,
    Class,
    /// The largest first, as all figures.
    Had,
    Used,
    /// The least coscheduled first.
    Together,
    Skew,
    Filling,
    Memory,
    /// The furthest first.
    Done,
}

impl Order {
    const ALL: [Order; 11] = [
        Order::Id,
        Order::Name,
        Order::Owner,
        Order::Class,
        Order::Had,
        Order::Used,
        Order::Together,
        Order::Skew,
        Order::Filling,
        Order::Memory,
        Order::Done,
    ];

    pub fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Order::ALL[(at + 1) % Order::ALL.len()]
    }

    pub fn name(self) -> &'static str {
        match self {
            Order::Id => "id",
            Order::Name => "name",
            Order::Owner => "owner",
            Order::Class => "class",
            Order::Had => "share had",
            Order::Used => "CPUs used",
            Order::Together => "coscheduled",
            Order::Skew => "skew",
            Order::Filling => "filling",
            Order::Memory => "memory",
            Order::Done => "done",
        }
    }

    fn compare(self, a: &JobView, b: &JobView) -> Ordering {
        let largest = |a: Option<f64>, b: Option<f64>| {
            // A figure that was not measured comes last.
            b.unwrap_or(f64::MIN).total_cmp(&a.unwrap_or(f64::MIN))
        };
        let (one, other) = (&a.job, &b.job);
        let by = match self {
            Order::Id => Ordering::Equal,
            Order::Name => one.name.cmp(&other.name),
            Order::Owner => a.owner.cmp(&b.owner),
            Order::Class => rank(&one.class).cmp(&rank(&other.class)),
            Order::Had => largest(Some(one.share_had), Some(other.share_had)),
            Order::Used => largest(a.rates.cpus_used, b.rates.cpus_used),
            Order::Together => largest(
                one.coscheduled().map(|share| -share),
                other.coscheduled().map(|share| -share),
            ),
            Order::Skew => other.skew_ns_p99().cmp(&one.skew_ns_p99()),
            Order::Filling => largest(a.rates.filling, b.rates.filling),
            Order::Memory => other.used_memory().cmp(&one.used_memory()),
            Order::Done => largest(progress(one), progress(other)),
        };
        by.then(one.id.cmp(&other.id))
    }
}

/// Place of a class in order of priority.
pub fn rank(class: &v1::Class) -> usize {
    CLASSES.iter().position(|known| known == class).unwrap_or(CLASSES.len())
}

/// The classes in order of priority.
pub const CLASSES: [v1::Class; 4] =
    [v1::Class::express, v1::Class::interactive, v1::Class::batch, v1::Class::standby];

/// The jobs in which each word of the filter occurs, in name, owner, class, state or as the id.
pub fn arranged<'a>(jobs: &'a [JobView], filter: &str, order: Order) -> Vec<&'a JobView> {
    let words: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let passes = |view: &&JobView| {
        words.iter().all(|wanted| {
            let job = &view.job;
            job.id.to_string() == *wanted
                || job.name.to_lowercase().contains(wanted)
                || view.owner.to_lowercase().contains(wanted)
                || word(&job.class).starts_with(wanted)
                || word(&job.state).starts_with(wanted)
        })
    };
    let mut jobs: Vec<&JobView> = jobs.iter().filter(passes).collect();
    jobs.sort_by(|a, b| order.compare(a, b));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn jobs() -> Vec<JobView> {
        let mut jobs = [(3, "lu"), (4, "sp"), (5, "cg")].map(|(id, name)| JobView {
            job: fixture::job(id, name),
            owner: if id == 4 { "ann".into() } else { "root".into() },
            rates: Default::default(),
        });
        jobs[1].job.measured = None;
        jobs[2].job.measured.as_mut().unwrap().coscheduled = Some(0.5);
        jobs[2].job.class = v1::Class::standby;
        jobs[1].job.progress = Some(v1::Progress { done: 3.0, total: 4.0, at_ns: 0 });
        jobs.into()
    }

    fn ids(filter: &str, order: Order) -> Vec<i64> {
        arranged(&jobs(), filter, order).iter().map(|view| view.job.id).collect()
    }

    #[test]
    fn jobs_are_sorted() {
        assert_eq!(ids("", Order::Id), [3, 4, 5]);
        assert_eq!(ids("", Order::Name), [5, 3, 4]);
        assert_eq!(ids("", Order::Owner), [4, 3, 5]);
        assert_eq!(ids("", Order::Together), [5, 3, 4]);
        assert_eq!(ids("", Order::Done), [4, 3, 5]);
        let mut order = Order::Id;
        Order::ALL.iter().for_each(|_| order = order.next());
        assert_eq!(order, Order::Id);
    }

    #[test]
    fn jobs_are_filtered_by_all_words() {
        assert_eq!(ids("root", Order::Id), [3, 5]);
        assert_eq!(ids("ROOT stand", Order::Id), [5]);
        assert_eq!(ids("4", Order::Id), [4]);
        assert_eq!(ids("nothing", Order::Id), [0; 0]);
    }
}
