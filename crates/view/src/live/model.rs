//! Makes snapshots of the answers of a daemon. It has no clock and no socket.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gang_protocol::error::ClientError;
use gang_protocol::v1;

use super::past::{Past, SPAN_NS};
use super::rates::Looks;
use super::snapshot::{JobView, Link, Snapshot, Trouble, with_causes};
use crate::spanning::{self, Spanning};
use crate::values;

/// A clock that slices are counted by, and one that never goes back.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub utc_ns: i64,
    pub instant: Instant,
}

impl Moment {
    pub fn now() -> Moment {
        let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let utc_ns = i64::try_from(utc.as_nanos()).unwrap_or(i64::MAX);
        Moment { utc_ns, instant: Instant::now() }
    }
}

/// All that is known of a daemon.
#[derive(Debug)]
pub struct Model {
    host: Arc<str>,
    link: Link,
    /// Where the rows of `past` come from.
    socket: Option<String>,
    status: Option<Arc<v1::Status>>,
    jobs: Arc<[JobView]>,
    cluster: Option<Arc<v1::Cluster>>,
    /// Not in a snapshot yet.
    ended: Vec<v1::Row>,
    coming: Arc<[v1::Row]>,
    past: Past,
    looks: Looks,
    owners: BTreeMap<i64, Arc<str>>,
}

impl Model {
    /// Of a daemon on the machine of this name, before anything was heard.
    pub fn new(host: &str) -> Model {
        Model {
            host: host.into(),
            link: Link::Connecting,
            socket: None,
            status: None,
            jobs: Arc::default(),
            cluster: None,
            ended: Vec::new(),
            coming: Arc::default(),
            past: Past::default(),
            looks: Looks::default(),
            owners: BTreeMap::new(),
        }
    }

    /// A daemon has answered at a socket.
    pub fn connected(&mut self, socket: &Path) {
        let socket = socket.display().to_string();
        if self.socket.as_ref() != Some(&socket) {
            self.past = Past::default();
            self.socket = Some(socket.clone());
        }
        if !self.link.is_up() {
            self.link = Link::Up { socket };
        }
    }

    pub fn status(&mut self, status: v1::Status) {
        self.status = Some(Arc::new(status));
    }

    /// The cluster that the daemon is in. One that did not change stays the same value, so that it
    /// need not be sent again.
    pub fn cluster(&mut self, cluster: Option<v1::Cluster>) {
        if self.cluster.as_deref() != cluster.as_ref() {
            self.cluster = cluster.map(Arc::new);
        }
    }

    /// The jobs of the daemon. Where they are, the cluster says that was heard last.
    pub fn jobs(&mut self, mut jobs: Vec<v1::Job>, at: Moment) {
        jobs.sort_by_key(|job| job.id);
        self.looks.add(&jobs, at.instant);
        let all = Spanning::all(self.cluster.as_deref());
        let places: BTreeMap<i64, String> =
            all.map(|of| (of.job.id, spanning::places(of.job))).collect();
        let view = |job: v1::Job| {
            let named = || values::owner(job.owner_uid).into();
            let owner = self.owners.entry(job.owner_uid).or_insert_with(named).clone();
            let hosts = places.get(&job.id).map(|places| places.as_str().into());
            JobView { rates: self.looks.rates(job.id), owner, hosts, job }
        };
        self.jobs = jobs.into_iter().map(view).collect();
    }

    /// From when on rows are to be asked for.
    pub fn since_ns(&self, now: Moment) -> i64 {
        self.past.end_ns().map_or(now.utc_ns - SPAN_NS, |end_ns| end_ns.max(now.utc_ns - SPAN_NS))
    }

    /// Takes the rows of a frame that was asked for at a moment: what had ended by then is final.
    pub fn frame(&mut self, rows: Vec<v1::Row>, asked: Moment) {
        let end_ns = self.past.end_ns().unwrap_or(i64::MIN);
        if asked.utc_ns < end_ns {
            // The clock was set back.
            self.past = Past::default();
        }
        let from_ns = self.past.end_ns().unwrap_or(i64::MIN);
        let (ended, coming): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.end_ns <= asked.utc_ns);
        let ended = ended.into_iter().filter(|row| row.start_ns >= from_ns);
        let ended: Arc<[v1::Row]> = ended.collect();
        self.ended.extend_from_slice(&ended);
        self.past.add(ended);
        self.coming = coming.into();
    }

    /// Whether a row names a job that is not known yet.
    pub fn has_unknown_jobs(&self) -> bool {
        let is_known = |id| self.jobs.binary_search_by_key(&id, |view| view.job.id).is_ok();
        self.coming.iter().flat_map(|row| &row.slots).any(|slot| !is_known(slot.job))
    }

    /// There is no daemon any more, or not yet.
    pub fn lost(&mut self, error: &ClientError, at: Moment) {
        self.looks.clear();
        self.coming = Arc::default();
        let trouble = Trouble::of(error);
        let since_ns = match &self.link {
            Link::Down { since_ns, .. } => *since_ns,
            _ => at.utc_ns,
        };
        self.link = Link::Down { trouble, reason: with_causes(error), since_ns };
    }

    pub fn snapshot(&mut self, at: Moment) -> Snapshot {
        Snapshot {
            at_ns: at.utc_ns,
            host: self.host.clone(),
            link: self.link.clone(),
            status: self.status.clone(),
            jobs: self.jobs.clone(),
            cluster: self.cluster.clone(),
            ended: std::mem::take(&mut self.ended).into(),
            coming: self.coming.clone(),
            past: self.past.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::rates::Rates;
    use super::*;
    use crate::fixture;

    const MS: i64 = 1_000_000;

    fn at(instant: Instant, ms: i64) -> Moment {
        Moment { utc_ns: ms * MS, instant: instant + Duration::from_millis(ms as u64) }
    }

    fn rows(slices: std::ops::Range<i64>) -> Vec<v1::Row> {
        slices.map(|slice| fixture::row(slice, MS, &[(1 + slice % 2, &[0, 1])])).collect()
    }

    #[test]
    fn each_ended_row_is_published_once_and_in_order() {
        let start = Instant::now();
        let mut model = Model::new("host");
        let mut published = Vec::new();
        let mut asked_ms = 0;
        // Looks at odd moments; each answer has what was asked for, and what is planned.
        for look_ms in [5, 17, 17, 100, 133, 999] {
            let asked = at(start, look_ms);
            let since = model.since_ns(asked) / MS;
            assert!(since <= asked_ms, "{since} at {look_ms}");
            model.frame(rows(since.max(0)..look_ms + 32), asked);
            let snapshot = model.snapshot(asked);
            published.extend(snapshot.ended.iter().map(|row| row.slice));
            assert_eq!(snapshot.coming[0].slice, look_ms);
            assert_eq!(snapshot.row_at(look_ms * MS).unwrap().slice, look_ms);
            asked_ms = look_ms;
        }
        assert_eq!(published, (0..999).collect::<Vec<_>>());
        assert_eq!(model.past.len(), 999);
    }

    #[test]
    fn clock_set_back_does_not_stop_the_timeline() {
        let start = Instant::now();
        let mut model = Model::new("host");
        model.frame(rows(4_000..5_040), at(start, 5_000));
        model.frame(rows(2_000..3_040), at(start, 3_000));
        assert_eq!(model.past.end_ns(), Some(3_000 * MS));
        assert_eq!(model.past.since(0).next().unwrap().slice, 2_000);
    }

    #[test]
    fn rates_are_of_the_last_seconds_and_of_one_daemon() {
        let start = Instant::now();
        let mut model = Model::new("host");
        let look = |model: &mut Model, ms: i64, cpu_ms: i64, filled_ms: Option<i64>| {
            let mut job = fixture::job(3, "lu");
            job.cpu_time_ns = cpu_ms * MS;
            let measured = job.measured.take();
            job.measured =
                filled_ms.map(|ms| v1::Measured { filled_ns: ms * MS, ..measured.unwrap() });
            model.jobs(vec![job], at(start, ms));
            model.snapshot(at(start, ms)).jobs[0].rates
        };
        assert_eq!(look(&mut model, 0, 0, Some(0)), Rates::default());
        let rates = look(&mut model, 1_000, 2_000, Some(500));
        assert_eq!((rates.cpus_used, rates.filling), (Some(2.0), Some(0.25)));
        for second in 2..10 {
            look(&mut model, second * 1_000, 2_000, None);
        }
        let rates = look(&mut model, 10_000, 3_000, None);
        assert_eq!((rates.cpus_used, rates.filling), (Some(0.5), None));
        // Another daemon counts from nothing.
        let gone = ClientError::NoDaemon { tried: vec![PathBuf::from("/x")] };
        model.lost(&gone, at(start, 10_500));
        assert_eq!(look(&mut model, 11_000, 9_000, None), Rates::default());
    }

    #[test]
    fn who_is_gone_is_remembered_with_a_reason() {
        let start = Instant::now();
        let mut model = Model::new("host");
        model.connected(Path::new("/run/a.sock"));
        model.status(fixture::status());
        model.jobs(vec![fixture::job(5, "b"), fixture::job(3, "a")], at(start, 0));
        model.frame(vec![fixture::row(0, 10 * MS, &[(7, &[0])])], at(start, 1));
        assert!(model.has_unknown_jobs());
        let gone = ClientError::NoDaemon { tried: vec![PathBuf::from("/run/a.sock")] };
        model.lost(&gone, at(start, 100));
        model.lost(&gone, at(start, 900));
        let snapshot = model.snapshot(at(start, 900));
        let Link::Down { trouble, reason, since_ns } = &snapshot.link else { panic!() };
        assert_eq!((*trouble, *since_ns), (Trouble::Absent, 100 * MS));
        assert!(reason.contains("no gangd listens at /run/a.sock"), "{reason}");
        assert_eq!(snapshot.jobs.iter().map(|view| view.job.id).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(snapshot.job(5).unwrap().job.name, "b");
        assert!(snapshot.job(4).is_none() && snapshot.coming.is_empty());
        model.connected(Path::new("/run/a.sock"));
        assert!(model.snapshot(at(start, 1_000)).link.is_up());
    }

    #[test]
    fn jobs_that_span_hosts_say_where_they_are() {
        let start = Instant::now();
        let mut model = Model::new("host");
        let look = |model: &mut Model, cluster| {
            model.cluster(cluster);
            model.jobs(
                vec![fixture::job(3, "sp"), fixture::job(fixture::SPANNING, "lu")],
                at(start, 0),
            );
            model.snapshot(at(start, 0))
        };
        let first = look(&mut model, Some(fixture::cluster()));
        let hosts: Vec<_> = first.jobs.iter().map(|view| view.hosts.as_deref()).collect();
        assert_eq!(hosts, [None, Some("a:2,b:2")]);
        let again = look(&mut model, Some(fixture::cluster()));
        assert!(Arc::ptr_eq(&first.cluster.unwrap(), &again.cluster.unwrap()));
        assert!(look(&mut model, None).jobs[1].hosts.is_none());
    }

    #[test]
    fn a_snapshot_is_json_as_the_interface_has_it() {
        let start = Instant::now();
        let mut model = Model::new("host");
        model.connected(Path::new("/run/a.sock"));
        model.jobs(vec![fixture::job(3, "lu")], at(start, 0));
        model.frame(rows(0..20), at(start, 10));
        let json = serde_json::to_value(model.snapshot(at(start, 10))).unwrap();
        assert_eq!(json["link"]["state"], "up");
        assert_eq!(json["jobs"][0]["id"], 3);
        assert_eq!(json["jobs"][0]["class"], "interactive");
        assert_eq!(json["jobs"][0]["rates"]["cpus_used"], serde_json::Value::Null);
        assert_eq!(json["ended"].as_array().unwrap().len(), 10);
        assert_eq!(json["coming"][0]["slots"][0]["cpu_list"][1], 1);
    }
}
