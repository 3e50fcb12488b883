//! The reasons of a job that spans hosts, one by one, as the registry has them.

use gang_protocol::name::escaped;
use gang_protocol::v1::{Host, HostCpus, Wanted};

use super::findings::{advised, finding};
use super::{Finding, Grade, Kind};
use crate::spanning::Spanning;
use crate::values::percent;

/// All reasons, in no order.
pub fn findings(of: Spanning<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        [slots(of), lost(of), missing(of), etcd(of)].into_iter().flatten().collect();
    found.extend(of.hosts().filter_map(|(cpus, host)| host_state(of, cpus, host)));
    found
}

/// Its slots in the matrix, or why it has none on any host.
fn slots(of: Spanning<'_>) -> Option<Finding> {
    let Spanning { cluster, job } = of;
    let id = job.id;
    match job.wanted {
        Wanted::kill => {
            finding(Kind::Killed, Grade::Note, "It is being killed on all of its hosts.".to_owned())
        }
        Wanted::release => finding(
            Kind::Released,
            Grade::Bad,
            "It was released: it has no entries in the matrix any more, and Linux alone schedules \
             its processes on all hosts."
                .to_owned(),
        ),
        Wanted::suspend => advised(
            Kind::Suspended,
            Grade::Bad,
            "It was suspended on all of its hosts, and nothing of it runs until it is resumed."
                .to_owned(),
            format!("gang resume {id}"),
        ),
        Wanted::run if cluster.frame.is_none() => finding(
            Kind::NoEntries,
            Grade::Bad,
            "The matrix was not read from etcd yet, so it has no slots here.".to_owned(),
        ),
        Wanted::run if !job.awaited.is_empty() => advised(
            Kind::RanksAwaited,
            Grade::Bad,
            format!(
                "Not all of its ranks have come on {}: it has no slots until they have, and Linux \
                 alone schedules those that are there.",
                escaped(&job.awaited.join(", "))
            ),
            format!("gang resume {id}, where the others are not to be waited for"),
        ),
        Wanted::run if job.rows.is_empty() => finding(
            Kind::NoEntries,
            Grade::Bad,
            "It has no entries in the matrix, so it has no slots on any host, and Linux alone \
             schedules its processes."
                .to_owned(),
        ),
        Wanted::run => {
            let share = of.share().map_or_else(String::new, |it| format!(" ({})", percent(it)));
            let (rows, frame) = (job.rows.len(), cluster.frame.unwrap_or(0));
            finding(
                Kind::Entries,
                Grade::Note,
                format!(
                    "It spans {} hosts, and has {rows} of {frame} rows of the matrix on all of \
                     them{share}.",
                    job.cpus.len()
                ),
            )
        }
    }
}

/// The hosts that it lost.
fn lost(of: Spanning<'_>) -> Option<Finding> {
    let lost = &of.job.lost;
    let names = escaped(&lost.join(", ")).into_owned();
    let follows = match of.job.wanted {
        Wanted::run => " It goes on without.",
        Wanted::suspend => " It may have been suspended for that (--on-host-lost).",
        Wanted::release => " It may have been released for that (--on-host-lost).",
        Wanted::kill => "",
    };
    let gone = match lost.len() {
        0 => return None,
        1 => format!("It has lost the host {names}: its part of the job is gone."),
        _ => format!("It has lost the hosts {names}: their parts of the job are gone."),
    };
    finding(Kind::HostLost, Grade::Bad, gone + follows)
}

/// Why hosts do not have it as it is wanted.
fn missing(of: Spanning<'_>) -> Option<Finding> {
    let why = of.job.missing.as_ref()?;
    let text = format!("Its parts are not as wanted: {}.", escaped(why));
    finding(Kind::PartMissing, Grade::Bad, text)
}

/// That etcd is away.
fn etcd(of: Spanning<'_>) -> Option<Finding> {
    let why = of.cluster.unreachable.as_ref()?;
    let text = format!(
        "etcd cannot be reached: {}. Slots go on as they are, what is said of other hosts may be \
         out of date, and changes are refused.",
        escaped(why)
    );
    finding(Kind::EtcdAway, Grade::Bad, text)
}

/// The reason that keeps the job on one of its hosts.
fn host_state(of: Spanning<'_>, cpus: &HostCpus, host: Option<&Host>) -> Option<Finding> {
    let name = escaped(&cpus.host);
    // That is said of it already.
    if of.job.lost.contains(&cpus.host) {
        return None;
    }
    let Some(host) = host else {
        let text = format!("Its host {name} is not in the cluster.");
        return finding(Kind::HostAway, Grade::Bad, text);
    };
    if !host.is_alive {
        let text = format!("Its host {name} is away: the daemon there gives no sign of life.");
        return finding(Kind::HostAway, Grade::Bad, text);
    }
    if let Some(why) = &host.unwilling {
        let text = format!(
            "Its host {name} takes no part in slots of jobs that span hosts: {}.",
            escaped(why)
        );
        return finding(Kind::HostUnwilling, Grade::Bad, text);
    }
    let has_processes = host.parts.as_ref()?.contains(&of.job.id);
    if has_processes || of.job.wanted != Wanted::run {
        return None;
    }
    finding(Kind::NoProcesses, Grade::Note, format!("It has no process on host {name}."))
}

#[cfg(test)]
mod tests {
    use gang_protocol::v1::{Cluster, SpanningJob};

    use super::*;
    use crate::fixture::{SPANNING, cluster};
    use crate::why::judge_elsewhere;

    fn paragraph(id: i64, change: impl FnOnce(&mut Cluster)) -> String {
        let mut cluster = cluster();
        change(&mut cluster);
        judge_elsewhere(Spanning::find(Some(&cluster), id).unwrap()).paragraph()
    }

    #[test]
    fn a_lost_host_and_rows_are_said() {
        assert_eq!(
            paragraph(SPANNING, |_| ()),
            "Job 1000000000 (lu): It has lost the host b: its part of the job is gone. It goes on \
             without. It spans 2 hosts, and has 8 of 16 rows of the matrix on all of them (50.0 %)."
        );
    }

    #[test]
    fn a_host_that_takes_no_part_says_why() {
        let text = paragraph(SPANNING + 1, |_| ());
        for sentence in [
            "It has no entries in the matrix, so it has no slots on any host",
            "Its host c takes no part in slots of jobs that span hosts: its clock may be 5000 µs off.",
            "Its host gone is not in the cluster.",
        ] {
            assert!(text.contains(sentence), "{text}");
        }
        assert!(text.starts_with("Job 1000000001 (evil\\u{1b}[2J): "), "{text}");
    }

    #[test]
    fn each_reason_is_found() {
        use Grade::{Bad, Note};
        type Case = (fn(&mut SpanningJob), &'static [(Kind, Grade)]);
        let cases: &[Case] = &[
            (|_| (), &[(Kind::HostLost, Bad), (Kind::Entries, Note)]),
            (|job| job.lost.clear(), &[(Kind::HostAway, Bad), (Kind::Entries, Note)]),
            (|job| job.wanted = Wanted::suspend, &[(Kind::Suspended, Bad), (Kind::HostLost, Bad)]),
            (
                |job| (job.wanted, job.rows) = (Wanted::release, vec![]),
                &[(Kind::Released, Bad), (Kind::HostLost, Bad)],
            ),
            (|job| job.wanted = Wanted::kill, &[(Kind::HostLost, Bad), (Kind::Killed, Note)]),
            (
                |job| (job.lost, job.awaited, job.rows) = (vec![], vec!["a".into()], vec![]),
                &[(Kind::RanksAwaited, Bad), (Kind::HostAway, Bad)],
            ),
            (
                |job| job.missing = Some("no user".into()),
                &[(Kind::HostLost, Bad), (Kind::PartMissing, Bad), (Kind::Entries, Note)],
            ),
        ];
        for (change, expected) in cases {
            let mut cluster = cluster();
            change(&mut cluster.jobs[0]);
            let verdict = judge_elsewhere(Spanning::find(Some(&cluster), SPANNING).unwrap());
            let found: Vec<_> = verdict.findings.iter().map(|it| (it.kind, it.grade)).collect();
            assert_eq!(found, *expected);
        }
    }

    #[test]
    fn a_host_without_processes_and_etcd_away_are_said() {
        let text = paragraph(SPANNING, |cluster| {
            cluster.hosts[0].parts = Some(vec![]);
            cluster.unreachable = Some("no answer".into());
        });
        assert!(text.contains("It has no process on host a."), "{text}");
        assert!(text.contains("etcd cannot be reached: no answer. Slots go on"), "{text}");
        let text = paragraph(SPANNING, |cluster| cluster.frame = None);
        assert!(text.contains("The matrix was not read from etcd yet"), "{text}");
    }
}
