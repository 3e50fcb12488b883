//! `gang hosts`: the cluster, its hosts, and the jobs that span them.

use std::fmt::Write;

use anyhow::Result;
use gang_protocol::name::escaped;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use gang_view::spanning::{self, Spanning};

use crate::cli::Listing;
use crate::connect::connect;
use crate::show_values::{count, duration, percent, print_json, word};
use crate::table::{Align, render, terminal_width};

pub fn hosts(args: &Listing, daemon: &Surroundings) -> Result<()> {
    let cluster = connect(daemon)?.cluster()?;
    if args.json {
        return print_json(&v1::GetCluster_Reply { cluster });
    }
    match cluster {
        Some(cluster) => print!("{}", text(&cluster, terminal_width())?),
        None => {
            println!("this host is in no cluster: gangd.toml had no [cluster] as gangd started")
        }
    }
    Ok(())
}

fn text(cluster: &v1::Cluster, width: Option<usize>) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let terms = match (cluster.slice_ns, cluster.frame) {
        (Some(slice_ns), Some(frame)) => {
            format!("slices of {}, frame of {}", duration(slice_ns), count(frame, "row"))
        }
        _ => "etcd has none of this name, or it was not read yet: gang cluster init".to_owned(),
    };
    writeln!(out, "cluster {}: {terms}", escaped(&cluster.name))?;
    if let Some(why) = &cluster.unreachable {
        writeln!(out, "etcd cannot be reached: {}; slots go on", escaped(why))?;
    }
    if !cluster.hosts.iter().any(|host| host.is_this) {
        let why = cluster.refused.as_ref().map(|why| format!(": {}", escaped(why)));
        let (host, why) = (escaped(&cluster.host), why.unwrap_or_else(|| " yet".to_owned()));
        writeln!(out, "this host, {host}, is not in it{why}")?;
    }
    if !cluster.hosts.is_empty() {
        let columns = [
            ("HOST", Align::Left),
            ("CPUS", Align::Right),
            ("STATE", Align::Shrink),
            ("CLOCK", Align::Left),
            ("WITHIN", Align::Right),
            ("THREADS", Align::Right),
            ("PARTS", Align::Right),
        ];
        let rows: Vec<Vec<String>> = cluster.hosts.iter().map(host).collect();
        out += &render(&columns, &rows, width);
    }
    if !cluster.jobs.is_empty() {
        writeln!(out)?;
        let columns = [
            ("ID", Align::Right),
            ("NAME", Align::Shrink),
            ("OWNER", Align::Left),
            ("CLASS", Align::Left),
            ("STATE", Align::Left),
            ("SHARE", Align::Right),
            ("HOSTS", Align::Left),
        ];
        let rows: Vec<Vec<String>> = Spanning::all(Some(cluster)).map(job).collect();
        out += &render(&columns, &rows, width);
    }
    for job in &cluster.jobs {
        if let Some(why) = &job.missing {
            writeln!(out, "job {} is not as wanted: {}", job.id, escaped(why))?;
        }
    }
    for fault in &cluster.faults {
        writeln!(out, "{} is not used: {}", escaped(&fault.key), escaped(&fault.reason))?;
    }
    Ok(out)
}

fn host(host: &v1::Host) -> Vec<String> {
    let clock = host.clock.as_ref();
    let none = || "-".to_owned();
    let source = match clock {
        Some(_) if host.shares_kernel && !host.is_this => "as here".to_owned(),
        Some(clock) => clock.source.clone(),
        None => none(),
    };
    vec![
        host.name.clone(),
        host.cpus.to_string(),
        spanning::host_state(host),
        source,
        clock.map_or_else(none, |clock| duration(clock.bound_ns)),
        host.threads.map_or_else(none, |threads| threads.to_string()),
        host.parts.as_ref().map_or_else(none, |parts| parts.len().to_string()),
    ]
}

fn job(of: Spanning<'_>) -> Vec<String> {
    let job = of.job;
    vec![
        job.id.to_string(),
        job.name.clone(),
        job.owner.clone(),
        word(&job.class),
        of.state(),
        of.share().map_or_else(|| "-".to_owned(), percent),
        spanning::places(job),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_why_it_takes_no_part() {
        let clock = v1::HostClock { source: "chrony".into(), offset_ns: 1, bound_ns: 5_000_000 };
        let a = v1::Host {
            name: "a".into(),
            cpus: 4,
            is_this: true,
            shares_kernel: true,
            adjusts: true,
            is_alive: true,
            clock: Some(clock),
            unwilling: Some("its clock may be 5000 µs off".into()),
            revision: Some(7),
            late_ns: None,
            threads: Some(3),
            parts: Some(vec![]),
        };
        let b = v1::Host {
            name: "b".into(),
            is_this: false,
            is_alive: false,
            clock: None,
            unwilling: None,
            revision: None,
            threads: None,
            parts: None,
            ..a.clone()
        };
        let cpus =
            |host: &str| v1::HostCpus { host: host.into(), cpus: 2, ranks: None, allowed: None };
        let job = v1::SpanningJob {
            id: 1_000_000_000,
            name: "lu".into(),
            owner: "ann".into(),
            owner_uid: 1000,
            by_root: false,
            class: v1::Class::batch,
            weight: 100,
            registrar: "a".into(),
            cpus: vec![cpus("a"), cpus("b")],
            wanted: v1::Wanted::run,
            rows: (0..8).collect(),
            columns: vec![],
            lost: vec!["b".into()],
            awaited: vec![],
            launched_as: None,
            registered_at_ns: 0,
            missing: None,
        };
        let fault = v1::Fault { key: "/gang/lab/x".into(), reason: "it cannot be read".into() };
        let cluster = v1::Cluster {
            name: "lab".into(),
            host: "a".into(),
            refused: None,
            unreachable: Some("no answer".into()),
            revision: 9,
            slice_ns: Some(20_000_000),
            frame: Some(16),
            hosts: vec![a, b],
            jobs: vec![job],
            faults: vec![fault],
        };
        let shown = text(&cluster, None).unwrap();
        let expected = "\
cluster lab: slices of 20 ms, frame of 16 rows
etcd cannot be reached: no answer; slots go on
HOST  CPUS  STATE                                        CLOCK   WITHIN  THREADS  PARTS
a        4  takes no part: its clock may be 5000 µs off  chrony    5 ms        3      0
b        4  away                                         -            -        -      -

        ID  NAME  OWNER  CLASS  STATE        SHARE  HOSTS
1000000000  lu    ann    batch  has lost b  50.0 %  a:2,b:2
/gang/lab/x is not used: it cannot be read
";
        assert_eq!(shown, expected);
    }
}
