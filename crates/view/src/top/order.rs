//! Which jobs the table has, and in which order.

use crate::figures::{FIGURES, Figure};
use crate::live::JobView;
use crate::values::word;

/// The figure of the next column, by which jobs are sorted then.
pub fn next(order: &Figure) -> &'static Figure {
    let columns = || FIGURES.iter().filter(|figure| figure.column.is_some());
    let after = columns().skip_while(|figure| figure.name != order.name).nth(1);
    after.or_else(|| columns().next()).unwrap_or(&FIGURES[0])
}

/// The jobs in which each word of the filter occurs, in name, owner, class, state or as the id.
pub fn arranged<'a>(jobs: &'a [JobView], filter: &str, order: &Figure) -> Vec<&'a JobView> {
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
    jobs.sort_by(|one, other| order.compare(one, other).then(one.job.id.cmp(&other.job.id)));
    jobs
}

#[cfg(test)]
mod tests {
    use gang_protocol::v1;

    use super::*;
    use crate::figures::named;
    use crate::fixture;

    fn jobs() -> Vec<JobView> {
        let mut jobs = [(3, "lu"), (4, "sp"), (5, "cg")].map(|(id, name)| JobView {
            job: fixture::job(id, name),
            owner: if id == 4 { "ann".into() } else { "root".into() },
            hosts: (id == 4).then(|| "a:2,b:2".into()),
            rates: Default::default(),
        });
        jobs[1].job.measured = None;
        jobs[2].job.measured.as_mut().unwrap().coscheduled = Some(0.5);
        jobs[2].job.class = v1::Class::standby;
        jobs[1].job.progress = Some(v1::Progress { done: 3.0, total: 4.0, at_ns: 0 });
        jobs.into()
    }

    fn ids(filter: &str, order: &str) -> Vec<i64> {
        arranged(&jobs(), filter, named(order)).iter().map(|view| view.job.id).collect()
    }

    #[test]
    fn jobs_are_sorted() {
        assert_eq!(ids("", "id"), [3, 4, 5]);
        assert_eq!(ids("", "name"), [5, 3, 4]);
        assert_eq!(ids("", "owner"), [4, 3, 5]);
        assert_eq!(ids("", "coscheduled"), [5, 3, 4]);
        assert_eq!(ids("", "progress"), [4, 3, 5]);
        assert_eq!(ids("", "class"), [3, 4, 5]);
        let columns = FIGURES.iter().filter(|figure| figure.column.is_some()).count();
        let orders = std::iter::successors(Some(named("id")), |order| Some(next(order)));
        let orders: Vec<_> = orders.take(columns + 1).map(|order| order.name).collect();
        assert_eq!((orders[1], orders[columns]), ("name", "id"));
    }

    #[test]
    fn jobs_are_filtered_by_all_words() {
        assert_eq!(ids("root", "id"), [3, 5]);
        assert_eq!(ids("ROOT stand", "id"), [5]);
        assert_eq!(ids("4", "id"), [4]);
        assert_eq!(ids("nothing", "id"), [0; 0]);
    }
}
