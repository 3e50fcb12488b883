//! Slots and context switches of the same time.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use gang_linux::{
    process,
    switches::{self, Stay},
};
use gang_protocol::{client::Client, paths::Surroundings, v1};

use crate::{
    members::Members,
    origin::{self, Clock, Host},
};

/// The daemon is asked so often meanwhile, at least. It keeps 2,048 slices, and 1,024 switches of
/// each CPU. A slice may have four switches: two at its own edges, and two at those of a gap.
const ASK_EVERY: Duration = Duration::from_millis(200);
const SLICES_AT_A_TIME: i64 = 200;

/// A switch is on record when it is over, and may be asked for so much earlier.
const LATEST: Duration = Duration::from_secs(1);

/// The threads that ran, and the plan.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub host: Host,
    /// Absent where nobody knows how good it is.
    pub clock: Option<Clock>,
    /// UTC, by that clock.
    pub start_ns: u64,
    pub end_ns: u64,
    pub slice_ns: i64,
    pub backend: String,
    /// Their distribution over a longer time, as the status has it.
    pub summary: Option<v1::Switches>,
    pub switchers: Vec<v1::Switcher>,
    /// The single ones, in order.
    pub switches: Vec<v1::Switch>,
    /// Those of which the daemon had lost the record before it was asked.
    pub switches_lost: i64,
    pub members: Members,
    pub rows: Vec<v1::Row>,
    /// The threads that were on each CPU, by its number.
    pub cpus: BTreeMap<usize, Vec<Stay>>,
    /// Names by the numbers of threads.
    pub names: BTreeMap<i32, String>,
}

/// Records for some time what the daemon plans that is found from there.
pub fn record(daemon: &Surroundings, length: Duration) -> Result<Recorded> {
    let mut client = Client::find_from(daemon)?;
    let status = client.status()?.status;
    let (host, begin) = origin::look(&mut client)?;
    // A host may be without its first CPUs.
    let switchers = client.switches(utc_ns())?.switchers;
    let cpus: Vec<usize> =
        switchers.iter().flat_map(|it| &it.cpu_list).map(|&cpu| cpu as usize).collect();
    let recording = std::thread::spawn(move || switches::record(cpus, length));
    let (slice_ns, backend) = (status.slice_ns, status.backend);
    let mut recorded = Recorded { host, slice_ns, backend, ..Recorded::default() };
    let end = Instant::now() + length;
    let slices_ns = u64::try_from(status.slice_ns.saturating_mul(SLICES_AT_A_TIME)).unwrap_or(0);
    let every = ASK_EVERY.min(Duration::from_nanos(slices_ns));
    let mut since_ns = None;
    let mut switches: BTreeMap<(i64, i64), v1::Switch> = BTreeMap::new();
    let mut asked_ns = utc_ns();
    let mut rows: BTreeMap<i64, v1::Row> = BTreeMap::new();
    let mut look_at = Instant::now();
    loop {
        // A person who may not record learns of it at once.
        let is_over = recording.is_finished() || Instant::now() >= end;
        for row in client.frame(since_ns)?.rows {
            since_ns = since_ns.max(Some(row.start_ns));
            // Asked again, a slice that was planned is what became of it.
            rows.insert(row.slice, row);
        }
        // Ended slices are asked for from the first one on that may still change.
        since_ns = since_ns
            .map(|ns: i64| ns.min(utc_ns().saturating_sub(recorded.slice_ns.saturating_mul(2))));
        let from_ns = std::mem::replace(&mut asked_ns, utc_ns()) - LATEST.as_nanos() as i64;
        let answer = client.switches(from_ns)?;
        switches.extend(answer.switches.into_iter().map(|it| ((it.switcher, it.number), it)));
        recorded.switchers = answer.switchers;
        // Short slices are asked for more often than jobs come.
        if is_over || Instant::now() >= look_at {
            recorded.members.look(&mut client, is_over)?;
            look_at = Instant::now() + ASK_EVERY;
        }
        if is_over {
            break;
        }
        std::thread::sleep(every.min(end.saturating_duration_since(Instant::now())));
    }
    recorded.summary = Some(client.status()?.status.switches);
    let recording = recording.join().expect("recording does not panic").map_err(|error| {
        let cause = error.source.to_string();
        anyhow::Error::from(error).context(format!("recording takes root ({cause})"))
    });
    let recording = recording.context("cannot record what runs")?;
    (recorded.start_ns, recorded.end_ns) = (recording.start_ns, recording.end_ns);
    let (start_ns, end_ns) = (recorded.start_ns as i64, recorded.end_ns as i64);
    let is_in = |row: &v1::Row| row.end_ns > start_ns && row.start_ns < end_ns;
    recorded.rows = rows.into_values().filter(is_in).collect();
    recorded.switches_lost = lost(switches.keys());
    let is_whole = |switch: &v1::Switch| switch.asked_ns >= start_ns && switch.raised_ns <= end_ns;
    recorded.switches = switches.into_values().filter(is_whole).collect();
    recorded.members.add_children(&recording.forks);
    recorded.cpus = recording.cpus.keys().map(|&cpu| (cpu, recording.stays(cpu))).collect();
    recorded.name_threads();
    let (_, end) = origin::look(&mut client)?;
    recorded.clock = begin.zip(end).map(|(begin, end)| Clock { begin, end });
    Ok(recorded)
}

/// How many numbers are left out, by switcher and number.
fn lost<'a>(switches: impl Iterator<Item = &'a (i64, i64)> + Clone) -> i64 {
    let pairs = switches.clone().zip(switches.skip(1));
    pairs.filter(|(a, b)| a.0 == b.0).map(|(a, b)| b.1 - a.1 - 1).sum()
}

fn utc_ns() -> i64 {
    gang_linux::clock::utc_ns() as i64
}

impl Recorded {
    /// Those that have ended by now keep their numbers.
    fn name_threads(&mut self) {
        for stay in self.cpus.values().flatten() {
            self.names.entry(stay.tid).or_insert_with(|| {
                let path = format!("/proc/{}/task/{}/comm", stay.pid, stay.tid);
                let name = fs::read_to_string(path).ok().map(|name| name.trim_end().to_owned());
                let command = || process::command(Path::new("/proc"), stay.pid as u32).ok();
                name.or_else(command).unwrap_or_else(|| format!("thread {}", stay.tid))
            });
        }
    }

    /// The job whose slot it is on a CPU at a moment (UTC): nobody's in a gap.
    pub fn slot_at(&self, cpu: usize, at_ns: u64) -> Option<i64> {
        let at_ns = at_ns as i64;
        let after = self.rows.partition_point(|row| row.end_ns <= at_ns);
        let row = self.rows.get(after).filter(|row| row.start_ns <= at_ns)?;
        if row.gap.as_ref().is_some_and(|gap| is_in(gap, at_ns)) {
            return None;
        }
        let has = |slot: &&v1::Slot| slot.cpu_list.contains(&(cpu as i64));
        row.slots.iter().find(has).map(|slot| slot.job)
    }
}

/// In the last part of each period nobody is raised.
fn is_in(gap: &v1::Gap, at_ns: i64) -> bool {
    gap.period_ns > 0 && at_ns.rem_euclid(gap.period_ns) >= gap.period_ns - gap.length_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_that_were_missed_are_counted() {
        let numbers = [(0, 7), (0, 8), (0, 11), (1, 100), (1, 101)];
        assert_eq!(lost(numbers.iter()), 2);
        assert_eq!(lost([].iter()), 0);
    }

    #[test]
    fn whose_slot_it_is() {
        let row = |slice: i64, job, period_ns| v1::Row {
            slice,
            start_ns: slice * 100,
            end_ns: slice * 100 + 100,
            slots: vec![v1::Slot { job, cpu_list: vec![1] }],
            rest_cpus: 0,
            rest_turn: false,
            gap: Some(v1::Gap { period_ns, length_ns: 10 }),
        };
        let recorded =
            Recorded { rows: vec![row(5, 7, 100), row(7, 8, 50)], ..Recorded::default() };
        assert_eq!(recorded.slot_at(1, 500), Some(7));
        assert_eq!(recorded.slot_at(1, 589), Some(7));
        assert_eq!(recorded.slot_at(1, 590), None, "a gap");
        assert_eq!(recorded.slot_at(0, 500), None, "another CPU");
        assert_eq!(recorded.slot_at(1, 650), None, "a slice without a job");
        assert_eq!(recorded.slot_at(1, 700), Some(8));
        assert_eq!(recorded.slot_at(1, 745), None, "gaps come more often then");
    }
}
