//! `gang snapshot`: how the program of a job stands, and what is in its channels.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use gang_protocol::job_ref::resolve;
use gang_protocol::name::escaped;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use serde_json::to_vec;

use crate::cli::Snapshot;
use crate::connect::connect;
use crate::show_values::{duration, moment, print_json, word};
use crate::table::{Align, render, terminal_width};

pub fn snapshot(args: &Snapshot, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let mut snapshot = client.snapshot(id, args.out.is_some())?;
    if let Some(path) = &args.out {
        if let Some(reason) = &snapshot.not_there {
            anyhow::bail!("the contents of the channels of job {id} are not there: {reason}");
        }
        write_to(path, &snapshot)?;
        snapshot.contents = None;
    }
    if args.listing.json {
        return print_json(&snapshot);
    }
    print!("{}", text(&snapshot, terminal_width())?);
    Ok(())
}

/// The file is there whole, or as it was.
fn write_to(path: &Path, snapshot: &v1::Snapshot) -> Result<()> {
    let doing = || format!("cannot write {}", path.display());
    let mut bytes = to_vec(snapshot).with_context(doing)?;
    bytes.push(b'\n');
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let written = File::create_new(&new)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(doing)
}

fn text(snapshot: &v1::Snapshot, width: Option<usize>) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let since = snapshot.since_ns.map_or_else(String::new, |ns| format!(" since {}", moment(ns)));
    let state = word(&snapshot.state);
    writeln!(out, "job {}: {state}{since}{}", snapshot.job, says(&snapshot.state))?;
    let v1::Flushes { flushes, failed, flush_ns, save_ns, switch_ns, longest_ns, .. } =
        snapshot.flushes;
    let well = flushes - failed;
    let number = if flushes == 1 { "1 flush".to_owned() } else { format!("{flushes} flushes") };
    write!(out, "{number}, {failed} failed")?;
    if well > 0 {
        let mean = |sum: i64| duration(sum / well);
        write!(
            out,
            "; on average {} to flush, {} to save and restore, {} to switch; the longest flush {}",
            mean(flush_ns),
            mean(save_ns),
            mean(switch_ns),
            duration(longest_ns)
        )?;
    }
    writeln!(out)?;
    if !snapshot.is_flushed {
        writeln!(out, "frames were under way when the flush had to end")?;
    }
    let columns = [
        ("RANK", Align::Right),
        ("PID", Align::Right),
        ("STATE", Align::Left),
        ("WAITS FOR", Align::Shrink),
        ("SENT", Align::Right),
        ("TAKEN", Align::Right),
        ("UNDER WAY", Align::Right),
        ("HELD", Align::Right),
    ];
    let rank = |pid: i64| {
        let of = snapshot.ports.iter().find(|port| port.pid == pid).and_then(|port| port.rank);
        of.map_or_else(|| format!("process {pid}"), |rank| format!("rank {rank}"))
    };
    let row = |port: &v1::Port| {
        let waits = match (&port.waits_for, &port.state) {
            (Some(whom), _) => whom.iter().map(|&pid| rank(pid)).collect::<Vec<_>>().join(", "),
            (None, v1::PortState::waits | v1::PortState::polls) => "any".to_owned(),
            (None, _) => String::new(),
        };
        vec![
            port.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
            port.pid.to_string(),
            word(&port.state),
            escaped(&waits).to_string(),
            port.sent.to_string(),
            port.taken.to_string(),
            port.under_way.to_string(),
            port.held.to_string(),
        ]
    };
    let rows: Vec<_> = snapshot.ports.iter().map(row).collect();
    write!(out, "\n{}", render(&columns, &rows, width))?;
    Ok(out)
}

fn says(state: &v1::GlobalState) -> &'static str {
    match state {
        v1::GlobalState::running => "",
        v1::GlobalState::terminated => ": all ports are closed, and nothing is under way",
        v1::GlobalState::deadlocked => {
            ": processes wait for messages that nobody can send any more"
        }
        v1::GlobalState::stalled => ": all processes wait or poll, and no message goes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushes() -> v1::Flushes {
        v1::Flushes {
            ports: 2,
            flushes: 3,
            failed: 1,
            flush_ns: 40_000,
            save_ns: 2_000,
            switch_ns: 1_000,
            longest_ns: 30_000,
        }
    }

    fn port(pid: i64, rank: Option<i64>, waits_for: Option<Vec<i64>>) -> v1::Port {
        let state = v1::PortState::waits;
        v1::Port { pid, rank, state, waits_for, sent: 1, taken: 2, under_way: 0, held: 0 }
    }

    #[test]
    fn deadlock_is_shown_with_who_waits_for_whom() {
        let snapshot = v1::Snapshot {
            job: 7,
            at_ns: 0,
            state: v1::GlobalState::deadlocked,
            since_ns: Some(0),
            is_flushed: true,
            ports: vec![port(11, Some(0), Some(vec![12])), port(12, Some(1), None)],
            flushes: flushes(),
            contents: None,
            not_there: None,
        };
        let shown = text(&snapshot, None).unwrap();
        let first = "job 7: deadlocked since 1970-01-01 00:00:00 UTC: processes wait for messages";
        assert!(shown.starts_with(first), "{shown}");
        assert!(shown.contains("3 flushes, 1 failed; on average 20"), "{shown}");
        assert!(shown.contains("rank 1") && shown.contains("any"), "{shown}");
    }
}
