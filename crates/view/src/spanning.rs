//! Jobs that span hosts, as one daemon of the cluster knows them, in words.
//!
//! A daemon knows all jobs that span hosts from the registry, and its own part of them as it knows
//! any job. Jobs of other hosts that span none are in no registry, and no view here has them.

use std::fmt::{self, Write};

use gang_protocol::name::escaped;
use gang_protocol::v1::{Cluster, Fault, Host, HostCpus, SpanningJob, Wanted};

use crate::table::{Align, render};
use crate::values::{count, cpu_list, duration, percent, word};

/// A job that spans hosts, in its cluster.
#[derive(Debug, Clone, Copy)]
pub struct Spanning<'a> {
    pub cluster: &'a Cluster,
    pub job: &'a SpanningJob,
}

/// CPUs by host, such as `a:4,b:4`.
pub fn places(job: &SpanningJob) -> String {
    let place = |of: &HostCpus| format!("{}:{}", of.host, of.cpus);
    job.cpus.iter().map(place).collect::<Vec<_>>().join(",")
}

/// Why records of a job in the registry are not used, where some are not: its hosts leave it to
/// Linux, or do not know it.
pub fn faults(cluster: Option<&Cluster>, job: i64) -> Vec<String> {
    let of_job = format!("/jobs/{job}");
    let all = cluster.into_iter().flat_map(|cluster| &cluster.faults);
    let all = all.filter(|fault| fault.key.ends_with(&of_job));
    let text = |fault: &Fault| format!("{} is not used: {}", fault.key, fault.reason);
    all.map(|fault| escaped(&text(fault)).to_string()).collect()
}

/// The state of a host, in a few words.
pub fn host_state(host: &Host) -> String {
    let state = match (&host.unwilling, host.is_alive) {
        (_, false) => return "away".to_owned(),
        (Some(why), true) => format!("takes no part: {why}"),
        (None, true) if host.is_this => "this host".to_owned(),
        (None, true) => "alive".to_owned(),
    };
    match host.late_ns {
        Some(late_ns) => format!("{state}, late: follows changes after {}", duration(late_ns)),
        None => state,
    }
}

impl<'a> Spanning<'a> {
    /// The job of that number; `None` where it spans no hosts, or the daemon is in no cluster.
    pub fn find(cluster: Option<&'a Cluster>, id: i64) -> Option<Spanning<'a>> {
        let cluster = cluster?;
        let job = cluster.jobs.iter().find(|job| job.id == id)?;
        Some(Spanning { cluster, job })
    }

    /// All jobs of the cluster that span hosts.
    pub fn all(cluster: Option<&'a Cluster>) -> impl Iterator<Item = Spanning<'a>> {
        let of =
            |cluster: &'a Cluster| cluster.jobs.iter().map(move |job| Spanning { cluster, job });
        cluster.into_iter().flat_map(of)
    }

    /// The state of the job as the registry has it, in a few words.
    pub fn state(self) -> String {
        match self.job.wanted {
            Wanted::kill => "is killed".to_owned(),
            Wanted::release => "released".to_owned(),
            Wanted::suspend => "suspended".to_owned(),
            Wanted::run if !self.job.lost.is_empty() => {
                format!("has lost {}", self.job.lost.join(", "))
            }
            Wanted::run if !self.job.awaited.is_empty() => {
                format!("awaits ranks on {}", self.job.awaited.join(", "))
            }
            Wanted::run if self.job.rows.is_empty() => "has no entries".to_owned(),
            Wanted::run => "runs".to_owned(),
        }
    }

    /// The part of the frame's rows that it has, from 0 to 1; `None` where the frame is not known.
    pub fn share(self) -> Option<f64> {
        let frame = self.cluster.frame.filter(|frame| *frame > 0)?;
        Some(self.job.rows.len() as f64 / frame as f64)
    }

    /// Its hosts; absent where the registry has none of that name.
    pub fn hosts(self) -> impl Iterator<Item = (&'a HostCpus, Option<&'a Host>)> {
        let host = |name: &str| self.cluster.hosts.iter().find(|host| host.name == name);
        self.job.cpus.iter().map(move |of| (of, host(&of.host)))
    }

    /// Whether the host whose daemon answers is to have a part of it.
    pub fn is_here(self) -> bool {
        self.job.cpus.iter().any(|of| of.host == self.cluster.host)
    }

    /// The rows of the frame that it has: `0-7 of 16 (50.0 %)`.
    fn rows(self) -> String {
        match (self.cluster.frame, self.share()) {
            _ if self.job.rows.is_empty() => "none: it has no entries".to_owned(),
            (Some(frame), Some(share)) => {
                format!("{} of {frame} ({})", cpu_list(&self.job.rows), percent(share))
            }
            _ => cpu_list(&self.job.rows),
        }
    }

    /// The job on all of its hosts, as far as is known: lines of terms, and a table of the hosts,
    /// as wide as a terminal is. Everything unprintable is escaped.
    pub fn text(self, width: Option<usize>) -> String {
        let mut out = String::new();
        // Nothing fails that is written to a string.
        let _ = self.write(&mut out, width);
        out
    }

    /// The same of a job that has no part on this host, with its name and owner, at a moment (UTC).
    pub fn text_elsewhere(self, now_ns: i64, width: Option<usize>) -> String {
        let mut out = String::new();
        let _ = self.write_elsewhere(&mut out, now_ns, width);
        out
    }

    fn write_elsewhere(self, out: &mut String, now_ns: i64, width: Option<usize>) -> fmt::Result {
        let SpanningJob { id, name, owner, class, weight, registered_at_ns, .. } = self.job;
        writeln!(out, "job {id}: {}", escaped(name))?;
        let age = duration(now_ns.saturating_sub(*registered_at_ns));
        line(out, "owner", owner)?;
        line(out, "class", &word(class))?;
        line(out, "state", &self.state())?;
        line(out, "weight", &format!("{weight} %"))?;
        line(out, "registered", &format!("{age} ago"))?;
        self.write(out, width)
    }

    fn write(self, out: &mut String, width: Option<usize>) -> fmt::Result {
        let Spanning { cluster, job } = self;
        let here = match self.is_here() {
            true => "",
            false => ", none of them this one",
        };
        line(out, "spans", &format!("{}{here}", count(job.cpus.len() as i64, "host")))?;
        let by = if job.by_root { ", by root" } else { "" };
        line(out, "registered at", &format!("{}{by}", job.registrar))?;
        line(out, "wanted", &word(&job.wanted))?;
        line(out, "rows of the frame", &self.rows())?;
        if !job.lost.is_empty() {
            line(out, "lost hosts", &job.lost.join(", "))?;
        }
        if !job.awaited.is_empty() {
            line(out, "awaits ranks on", &job.awaited.join(", "))?;
        }
        if let Some(why) = &job.missing {
            line(out, "not as wanted", why)?;
        }
        if let Some(why) = &cluster.unreachable {
            line(out, "etcd", &format!("cannot be reached: {why}; slots go on"))?;
        }
        let columns = [
            ("HOST", Align::Left),
            ("CPUS", Align::Right),
            ("COLUMNS", Align::Left),
            ("PROCESSES", Align::Left),
            ("STATE", Align::Shrink),
        ];
        let rows: Vec<_> = self.hosts().map(|(of, host)| self.cells(of, host)).collect();
        write!(out, "\n{}", render(&columns, &rows, width))
    }

    fn cells(self, of: &HostCpus, host: Option<&Host>) -> Vec<String> {
        let columns = self.job.columns.iter().find(|it| it.host == of.host);
        let parts = host.and_then(|host| host.parts.as_ref());
        let has_processes = match parts.map(|parts| parts.contains(&self.job.id)) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let is_lost = self.job.lost.contains(&of.host);
        let mut state = host.map_or_else(|| "not in the cluster".to_owned(), host_state);
        if is_lost {
            state.push_str(", lost");
        }
        vec![
            of.host.clone(),
            of.cpus.to_string(),
            columns.map_or_else(|| "-".to_owned(), |it| cpu_list(&it.columns)),
            has_processes.to_owned(),
            state,
        ]
    }
}

fn line(out: &mut String, title: &str, text: &str) -> fmt::Result {
    writeln!(out, "  {title:<18}  {}", escaped(text))
}

/// The cluster in a few words each: its hosts that are alive, the jobs that span hosts, and why
/// etcd cannot be reached where it cannot.
pub fn summary(cluster: &Cluster, is_here: impl Fn(i64) -> bool) -> Vec<String> {
    let alive = cluster.hosts.iter().filter(|host| host.is_alive).count();
    let mut parts =
        vec![format!("cluster {}: {alive} of {} alive", cluster.name, hosts(cluster.hosts.len()))];
    let elsewhere = cluster.jobs.iter().filter(|job| !is_here(job.id)).count();
    let jobs = match cluster.jobs.len() {
        1 => "1 job spans hosts".to_owned(),
        jobs => format!("{jobs} jobs span hosts"),
    };
    let of_them = match elsewhere {
        0 => String::new(),
        _ => format!(", {elsewhere} not here"),
    };
    let etcd = cluster.unreachable.as_ref().map(|why| format!("etcd away: {why}"));
    // The trouble first: what does not fit is cut off.
    parts.extend(etcd);
    parts.push(jobs + &of_them);
    parts
}

fn hosts(number: usize) -> String {
    count(number as i64, "host")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn job_shows_its_hosts_and_why_one_is_not_as_wanted() {
        let mut cluster = fixture::cluster();
        cluster.jobs[0].missing = Some("a: there is no user ann\u{1b}".into());
        cluster.unreachable = Some("no answer".into());
        let shown = Spanning::find(Some(&cluster), fixture::SPANNING).unwrap().text(None);
        let expected = "  spans               2 hosts
  registered at       a
  wanted              run
  rows of the frame   0-7 of 16 (50.0 %)
  lost hosts          b
  not as wanted       a: there is no user ann\\u{1b}
  etcd                cannot be reached: no answer; slots go on

HOST  CPUS  COLUMNS  PROCESSES  STATE
a        2  0-1      yes        this host
b        2  0-1      -          away, lost
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_job_of_other_hosts_has_its_owner_too() {
        let mut cluster = fixture::cluster();
        cluster.jobs[1].by_root = true;
        let spanning = Spanning::find(Some(&cluster), fixture::SPANNING + 1).unwrap();
        assert!(!spanning.is_here());
        let shown = spanning.text_elsewhere(60_000_000_000, None);
        let expected = "job 1000000001: evil\\u{1b}[2J
  owner               ben
  class               batch
  state               has no entries
  weight              100 %
  registered          1 min 0 s ago
  spans               2 hosts, none of them this one
  registered at       c, by root
  wanted              run
  rows of the frame   none: it has no entries

HOST  CPUS  COLUMNS  PROCESSES  STATE
c        4  -        no         takes no part: its clock may be 5000 µs off
gone     1  -        -          not in the cluster
";
        assert_eq!(shown, expected);
        assert!(Spanning::find(Some(&cluster), 3).is_none() && Spanning::find(None, 3).is_none());
    }

    #[test]
    fn a_host_that_is_late_says_so() {
        let mut hosts = fixture::cluster().hosts;
        let states = |hosts: &[Host]| hosts.iter().map(host_state).collect::<Vec<_>>();
        let takes_no_part = "takes no part: its clock may be 5000 µs off";
        assert_eq!(states(&hosts), ["this host", "away", takes_no_part]);
        hosts.iter_mut().for_each(|host| host.late_ns = Some(1_300_000_000));
        let late = ", late: follows changes after 1.3 s";
        let takes_no_part = format!("{takes_no_part}{late}");
        assert_eq!(states(&hosts), [&*format!("this host{late}"), "away", &takes_no_part]);
    }

    #[test]
    fn a_state_says_what_keeps_the_job() {
        let state = |change: fn(&mut SpanningJob)| {
            let mut cluster = fixture::cluster();
            change(&mut cluster.jobs[0]);
            Spanning::find(Some(&cluster), fixture::SPANNING).unwrap().state()
        };
        assert_eq!(state(|_| ()), "has lost b");
        assert_eq!(state(|job| job.lost.clear()), "runs");
        let awaits = |job: &mut SpanningJob| {
            (job.lost, job.awaited) = (vec![], vec!["a".into(), "b".into()]);
        };
        assert_eq!(state(awaits), "awaits ranks on a, b");
        assert_eq!(state(|job| job.wanted = Wanted::suspend), "suspended");
        assert_eq!(state(|job| job.wanted = Wanted::release), "released");
        assert_eq!(state(|job| job.wanted = Wanted::kill), "is killed");
    }

    #[test]
    fn hosts_alive_are_counted_and_etcd_away_is_said() {
        let mut cluster = fixture::cluster();
        let line =
            |cluster: &Cluster, is_here: fn(i64) -> bool| summary(cluster, is_here).join("  ");
        assert_eq!(
            line(&cluster, |id| id == fixture::SPANNING),
            "cluster lab: 2 of 3 hosts alive  2 jobs span hosts, 1 not here"
        );
        cluster.jobs.truncate(1);
        cluster.unreachable = Some("no answer".into());
        assert_eq!(
            line(&cluster, |_| true),
            "cluster lab: 2 of 3 hosts alive  etcd away: no answer  1 job spans hosts"
        );
    }
}
