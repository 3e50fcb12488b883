//! Jobs that span hosts, on two hosts of one CPU each: how far apart their switches are, the share
//! of such a job beside jobs of one host, how soon it has its first slot, what it loses while etcd
//! is away, and what two pairs of ranks that send messages lose to each other.
//!
//! Both hosts are on this machine ([`bed`]), so that they have one clock. Hosts with clocks of
//! their own add how far apart these are.

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use gang_linux::clock::utc_ns;
use gang_protocol::error::ClientError;
use gang_protocol::v1;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::apart::{self, APART_P50, APART_P99};
use crate::harness::bed::{self, Ahead, Bed, Job, fill};
use crate::harness::lab::Lab;
use crate::harness::report::{Promise, Report};
use crate::harness::samples::Sample;
use crate::harness::stats::quantile;
use crate::promises::list;
use crate::workload::arrivals::SlotPage;
use crate::workload::{LONGEST, ranks, seconds};

const SWITCHES: &str = "switches of two spanning jobs";
const SHARE: &str = "a spanning job beside local ones";
const FIRST: &str = "first slots";
const AWAY: &str = "etcd away";
const MESSAGES: &str = "messages between hosts";

/// Slots, jobs, slots that were due, and rounds of messages.
pub const SAMPLES: &str = apart::SAMPLES;
const DEVIATION: &str = "deviation_percent";
const FIRST_MAX: &str = "first_slot_ms_max";
const MISSED: &str = "slots_missed";
const LOST: &str = "jobs_lost";
const UNCLEAR: &str = "unclear_answers";
const AGAIN: &str = "registers_again_s";

const TRIALS: u64 = 20;
/// etcd is away for so long.
const WITHOUT: Duration = Duration::from_secs(60);
/// Of a first answer.
const QUICK_TRIALS: u64 = 5;
const QUICK_WITHOUT: Duration = Duration::from_secs(8);

/// Daemons keep the last 2,048 slices.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// Between two tries to register a job.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Between two looks at slot pages.
const STEP: Duration = Duration::from_micros(100);
/// A job without a common slot by then is never given one.
const SLOT_LIMIT: Duration = Duration::from_secs(60);
/// etcd that is there again has answered by then.
const BACK_LIMIT: Duration = Duration::from_secs(60);
/// Slots are counted on for so long once etcd is there again.
const BACK_FOR: Duration = Duration::from_secs(5);

#[derive(Args, Debug, Clone, Default)]
pub struct Hosts {
    /// Spanning jobs whose first slot is waited for [default: 20, with --quick 5]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub trials: Option<u64>,
    /// For how long etcd is away, in seconds [default: 60, with --quick 8]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub away: Option<Duration>,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub only: Vec<Part>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Switches,
    Share,
    First,
    Away,
    Messages,
}

impl Hosts {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no jobs that span hosts")?;
        bed::needs()?;
        bed::two_hosts()?;
        ranks::needs()?;
        let quick = lab.options.quick;
        let trials = self.trials.unwrap_or(if quick { QUICK_TRIALS } else { TRIALS });
        let away = self.away.unwrap_or(if quick { QUICK_WITHOUT } else { WITHOUT });
        ensure!(away <= LONGEST, "etcd is away for an hour at most");
        let is_wanted = |part: Part| self.only.is_empty() || self.only.contains(&part);
        let mut conditions = vec![
            (Part::Switches, Condition::new(SWITCHES, switches)),
            (Part::Share, Condition::new(SHARE, share)),
            (Part::First, Condition::new(FIRST, |lab| first_slots(lab, trials))),
            (Part::Away, Condition::new(AWAY, |lab| without_etcd(lab, away))),
            (Part::Messages, Condition::new(MESSAGES, pairs)),
        ];
        conditions.retain(|(part, _)| is_wanted(*part));
        let conditions: Vec<Condition> = conditions.into_iter().map(|(_, it)| it).collect();
        // One long round says more than several short ones.
        let run = alternate(lab, "hosts", lab.options.runs.unwrap_or(1), &conditions)?;
        let about = "jobs that span two hosts of one CPU each";
        let mut report = Report::new(lab, about, run, APART_P50);
        let first = format!("the worst of {trials}");
        let without = format!("{} s without etcd", away.as_secs_f64());
        let of_all: [(&Promise, &str, &str, &str); 9] = [
            (&list::HOSTS_APART_P50, SWITCHES, APART_P50, ""),
            (&list::HOSTS_APART_P99, SWITCHES, APART_P99, ""),
            (&list::HOSTS_SHARE, SHARE, DEVIATION, ""),
            (&list::HOSTS_FIRST, FIRST, FIRST_MAX, &first),
            (&list::HOSTS_MISSED, AWAY, MISSED, &without),
            (&list::HOSTS_LOST, AWAY, LOST, &without),
            (&list::HOSTS_REFUSED, AWAY, UNCLEAR, &without),
            (&list::HOSTS_AGAIN, AWAY, AGAIN, &without),
            (&list::HOSTS_MESSAGES, MESSAGES, messages::GANGS, ""),
        ];
        let was_measured = |condition: &str| conditions.iter().any(|it| it.name == condition);
        for (promise, condition, figure, detail) in of_all {
            if !was_measured(condition) {
                continue;
            }
            report.promise_of(promise, detail, report.mean(condition, figure));
        }
        let notes = report.series.iter().flat_map(|series| series.notes.iter().cloned());
        let notes: BTreeSet<String> = notes.collect();
        report.verdict.extend(notes);
        Ok(report)
    }
}

fn length(lab: &Lab, long: Duration, quick: Duration) -> Duration {
    lab.seconds_asked().unwrap_or(if lab.options.quick { quick } else { long })
}

/// Two spanning jobs alternate.
fn switches(lab: &Lab) -> Result<Sample> {
    let length = length(lab, Duration::from_secs(30), Duration::from_secs(8));
    let bed = Bed::start(lab, &bed::BedSettings::two_hosts()?)?;
    let _ahead = Ahead::of_gangs()?;
    let _jobs = [bed.spanning_job("one")?, bed.spanning_job("other")?];
    bed.until_shares(0.5)?;
    let apart = apart::of_hosts(&bed, length, Duration::ZERO)?;
    Ok(bed.sample()?.with_all(apart))
}

/// Two pairs of ranks that send messages.
fn pairs(lab: &Lab) -> Result<Sample> {
    messages::messages(lab, length(lab, Duration::from_secs(20), Duration::from_secs(4)))
}

/// The slots and times of a job, and when they were asked for.
struct Had {
    at: Instant,
    slots: i64,
    in_slot_ns: i64,
    cpu_time_ns: i64,
}

fn had(bed: &Bed, host: usize, job: i64) -> Result<Had> {
    let v1::Job { slots, in_slot_ns, cpu_time_ns, .. } = bed.client(host)?.show_job(job)?.details;
    Ok(Had { at: Instant::now(), slots, in_slot_ns, cpu_time_ns })
}

/// A spanning job beside a job of one host on each, all of the same weight.
fn share(lab: &Lab) -> Result<Sample> {
    const DUE: f64 = 0.5;
    let length = length(lab, Duration::from_secs(60), Duration::from_secs(10));
    let bed = Bed::start(lab, &bed::BedSettings::two_hosts()?)?;
    let _ahead = Ahead::of_gangs()?;
    let local = bed.local_jobs()?;
    let job = bed.spanning_job("spanning")?;
    bed.until_shares(DUE)?;
    let look = |host: usize| -> Result<[Had; 2]> {
        Ok([had(&bed, host, job.id)?, had(&bed, host, local[host].id)?])
    };
    let before = [look(0)?, look(1)?];
    std::thread::sleep(length);
    let (mut worst, mut slots, mut shares) = (0.0_f64, 0, [0.0; 2]);
    // Of the spanning job, and of both jobs.
    let mut cpu_time_ns = [0; 2];
    for (host, (before, share)) in before.iter().zip(&mut shares).enumerate() {
        let after = look(host)?;
        let time_ns = (after[0].at - before[0].at).as_nanos() as f64;
        *share = (after[0].in_slot_ns - before[0].in_slot_ns) as f64 / time_ns;
        worst = worst.max((*share / DUE - 1.0).abs() * 100.0);
        slots += after[0].slots - before[0].slots;
        let spent = [0, 1].map(|job| after[job].cpu_time_ns - before[job].cpu_time_ns);
        cpu_time_ns[0] += spent[0];
        cpu_time_ns[1] += spent[0] + spent[1];
    }
    let of_cpu_time = cpu_time_ns[0] as f64 / cpu_time_ns[1].max(1) as f64;
    Ok(bed.sample()?.with([
        (SAMPLES, slots as f64),
        ("share_a_percent", shares[0] * 100.0),
        ("share_b_percent", shares[1] * 100.0),
        ("cpu_time_percent", of_cpu_time * 100.0),
        (DEVIATION, worst),
    ]))
}

/// Spanning jobs come, one after the other, beside a job of one host on each.
fn first_slots(lab: &Lab, trials: u64) -> Result<Sample> {
    let bed = Bed::start(lab, &bed::BedSettings::two_hosts()?)?;
    let _ahead = Ahead::of_gangs()?;
    let _local = bed.local_jobs()?;
    let [mut waited, mut registering, mut joined, mut agreed] = [const { Vec::new() }; 4];
    let mut failed = 0;
    for _ in 0..trials {
        let loops = bed.compute_on_all()?;
        // Anywhere in a slice, as seldom as people start programs.
        std::thread::sleep(Duration::from_micros(fastrand::u64(400_000..600_000)));
        let began = Instant::now();
        let mut tries = 0;
        let (mut clients, registered, took) = loop {
            // New connections are accepted in gaps alone.
            let mut clients = bed.clients()?;
            let asked = Instant::now();
            match clients[0].register_spanning(bed.spanning("comes", 100)) {
                Ok(registered) => break (clients, registered, asked.elapsed()),
                Err(error) if began.elapsed() < SLOT_LIMIT && may_try_again(&error) => tries += 1,
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(BETWEEN_TRIES);
        };
        let (replied, replied_ns) = (Instant::now(), utc_ns() as i64);
        failed += tries;
        fill(&mut clients, registered.job, &loops)?;
        let pages = clients.iter_mut().map(|client| SlotPage::of(client, registered.job));
        let pages: Vec<SlotPage> = pages.collect::<Result<_>>()?;
        joined.push(replied.elapsed().as_secs_f64() * 1e3);
        // A job that was not taken at once has waited since then.
        let first = first_common_slot(&pages, if tries > 0 { began } else { replied })?;
        waited.push(first.as_secs_f64() * 1e3);
        registering.push(took.as_secs_f64() * 1e3);
        agreed.push((registered.slots_from_ns - replied_ns) as f64 / 1e6);
        drop((clients, loops));
        bed.until_over()?;
    }
    for samples in [&mut waited, &mut registering, &mut joined, &mut agreed] {
        samples.sort_by(f64::total_cmp);
    }
    Ok(bed.sample()?.with([
        (SAMPLES, trials as f64),
        ("first_slot_ms_p50", quantile(&waited, 0.5)),
        (FIRST_MAX, quantile(&waited, 1.0)),
        ("registrations_failed", f64::from(failed)),
        ("registering_ms_p50", quantile(&registering, 0.5)),
        ("joined_after_ms_p50", quantile(&joined, 0.5)),
        ("agreed_after_ms_p50", quantile(&agreed, 0.5)),
    ]))
}

/// The cluster cannot be reached, or did not answer in time.
fn may_try_again(error: &ClientError) -> bool {
    matches!(error, ClientError::Failed { .. } | ClientError::TimedOut { .. })
}

/// How long after a moment all parts are in their slot at once.
fn first_common_slot(pages: &[SlotPage], since: Instant) -> Result<Duration> {
    loop {
        let mut all = true;
        for page in pages {
            all &= page.is_running()?;
        }
        let waited = since.elapsed();
        if all {
            return Ok(waited);
        }
        ensure!(waited < SLOT_LIMIT, "no common slot within {SLOT_LIMIT:?}");
        std::thread::sleep(STEP);
    }
}

/// etcd is killed under load, and started again.
fn without_etcd(lab: &Lab, away: Duration) -> Result<Sample> {
    let beside = length(lab, Duration::from_secs(20), Duration::from_secs(4));
    let mut bed = Bed::start(lab, &bed::BedSettings::two_hosts()?)?;
    let _ahead = Ahead::of_gangs()?;
    let local = bed.local_jobs()?;
    let job = bed.spanning_job("spanning")?;
    bed.until_shares(0.5)?;
    let mut sample = bed.sample()?;
    let frame = Frame::of(&bed.cluster(0)?).context("etcd has no cluster")?;
    let mut slots = Slots { job: job.id, frame, hosts: Default::default() };
    let ran_out = |bed: &Bed| -> Result<i64> {
        let of = |host| Ok(bed.client(host)?.status()?.status.switches.ran_out);
        bed.each().map(of).sum()
    };
    let before = slots.per_s(&bed, beside, |_| Ok(()))?;
    slots.expect_the_same(&bed)?;
    let ran_out_before = ran_out(&bed)?;
    bed.etcd.kill();
    let mut refusal = None;
    let during = slots.per_s(&bed, away, |bed| {
        if refusal.is_none() {
            let asked = Instant::now();
            let answer = bed.client(0)?.register_spanning(bed.spanning("comes", 1));
            refusal = Some((asked.elapsed(), answer));
        }
        Ok(())
    })?;
    bed.etcd.start_again()?;
    let again = until_registered(&bed)?;
    slots.per_s(&bed, BACK_FOR.min(beside), |_| Ok(()))?;
    let (due, missed) = slots.due_and_missed();
    let ran_out = ran_out(&bed)? - ran_out_before;
    let after = slots.per_s(&bed, beside, |_| Ok(()))?;
    let lost = lost(&bed, job, local)?;
    let (refused_after, answer) = refusal.context("nothing was asked while etcd was away")?;
    let (unclear, said) = match answer {
        Err(error @ ClientError::Failed { .. }) => (0.0, format!("{error}")),
        Err(error) => (1.0, format!("{error}")),
        Ok(_) => (1.0, "it is registered".to_owned()),
    };
    sample.notes.push(format!("The answer to a registration while etcd was away: {said}."));
    Ok(sample.with([
        ("slots_per_s_before", before),
        ("slots_per_s_without", during),
        ("slots_per_s_after", after),
        (SAMPLES, due as f64),
        (MISSED, missed as f64),
        ("moves", slots.moves() as f64),
        ("ran_out", ran_out as f64),
        (LOST, lost as f64),
        (UNCLEAR, unclear),
        ("refused_after_s", refused_after.as_secs_f64()),
        (AGAIN, again.as_secs_f64()),
    ]))
}

/// Registers a job as soon as that is possible; returns how long it took. The job ends at once.
fn until_registered(bed: &Bed) -> Result<Duration> {
    let began = Instant::now();
    loop {
        match bed.client(0)?.register_spanning(bed.spanning("comes", 1)) {
            Ok(_) => return Ok(began.elapsed()),
            Err(error) if began.elapsed() < BACK_LIMIT && may_try_again(&error) => {}
            Err(error) => return Err(error).context("registering a job with etcd there again"),
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
}

/// How many parts of jobs have ended, or are jobs no more.
fn lost(bed: &Bed, spanning: Job, local: Vec<Job>) -> Result<usize> {
    let mut lost = 0;
    let parts = spanning.loops.into_iter().map(|of| (spanning.id, of));
    let local = local.into_iter().flat_map(|job| job.loops.into_iter().map(move |of| (job.id, of)));
    for (host, parts) in parts.zip(local).enumerate() {
        let jobs = bed.client(host)?.list_jobs()?.jobs;
        for (id, mut program) in [parts.0, parts.1] {
            let is_job = jobs.iter().any(|job| job.id == id && job.processes > 0);
            lost += usize::from(!(is_job && program.runs()));
        }
    }
    Ok(lost)
}

/// The slots of a spanning job on each host, as the daemons planned them.
struct Slots {
    job: i64,
    frame: Frame,
    hosts: [OfHost; 2],
}

/// The repetition of the plan of a cluster: rows begin anew on the full hour.
#[derive(Clone, Copy)]
struct Frame {
    rows: i64,
    slice_ns: i64,
}

impl Frame {
    fn of(cluster: &v1::Cluster) -> Option<Frame> {
        Some(Frame { rows: cluster.frame?, slice_ns: cluster.slice_ns? })
    }

    /// The place in its frame of a slice.
    fn place(self, start_ns: i64) -> i64 {
        const HOUR_NS: i64 = 3_600_000_000_000;
        start_ns % HOUR_NS / self.slice_ns % self.rows
    }
}

#[derive(Default)]
struct OfHost {
    /// The last slices: each with its place in a frame, and whether the job had a slot.
    had: BTreeMap<i64, (i64, bool)>,
    last_ns: i64,
    /// The rows in which the registry has the job, as the host has read.
    rows: Vec<i64>,
    /// The places of a frame in which the job is to have slots.
    expected: Option<BTreeSet<i64>>,
    /// The first slice that was not counted.
    from: i64,
    due: usize,
    missed: usize,
    moves: usize,
}

/// Changes of the registry hold from so many slices later at most.
const AHEAD: i64 = 100;

impl Slots {
    /// Looks on for so long, and has something done after each look. Returns the slots a second on
    /// the host where there were fewer.
    fn per_s(
        &mut self,
        bed: &Bed,
        length: Duration,
        mut after_look: impl FnMut(&Bed) -> Result<()>,
    ) -> Result<f64> {
        let look =
            |_| -> Result<Vec<Had>> { bed.each().map(|host| had(bed, host, self.job)).collect() };
        let before = look(())?;
        let end = Instant::now() + length;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(BETWEEN_LOOKS));
            self.look(bed)?;
            if left.is_zero() {
                break;
            }
            after_look(bed)?;
        }
        let mut least = f64::INFINITY;
        for (host, before) in before.iter().enumerate() {
            let after = had(bed, host, self.job)?;
            let per_s = (after.slots - before.slots) as f64 / (after.at - before.at).as_secs_f64();
            least = least.min(per_s);
        }
        Ok(least)
    }

    fn look(&mut self, bed: &Bed) -> Result<()> {
        for (host, of) in self.hosts.iter_mut().enumerate() {
            let now_ns = utc_ns() as i64;
            // All that the daemon keeps, at first.
            let rows = bed.client(host)?.frame(Some(of.last_ns))?.rows;
            of.take(self.job, self.frame, rows.iter().filter(|row| row.end_ns <= now_ns));
            let jobs = bed.cluster(host)?.jobs;
            let job = jobs.into_iter().find(|job| job.id == self.job);
            of.count(self.frame, job.map(|job| job.rows).unwrap_or_default());
        }
        Ok(())
    }

    /// Waits until the registry has left the job where it is for so long that each host does so,
    /// too. From then on it is to have slots as it has had.
    fn expect_the_same(&mut self, bed: &Bed) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(60);
        let began = Instant::now();
        while self.hosts.iter().any(|of| of.expected.is_none()) {
            ensure!(began.elapsed() < LIMIT, "the registry moves a job again and again");
            std::thread::sleep(BETWEEN_TRIES);
            self.look(bed)?;
        }
        self.hosts.iter_mut().for_each(|of| (of.due, of.missed, of.moves) = (0, 0, 0));
        Ok(())
    }

    /// How many slots it was to have since then, and how many of them it did not have.
    fn due_and_missed(&self) -> (usize, usize) {
        let of_hosts = self.hosts.iter();
        of_hosts.fold((0, 0), |(due, missed), of| (due + of.due, missed + of.missed))
    }

    /// How often the registry has moved it since then.
    fn moves(&self) -> usize {
        self.hosts.iter().map(|of| of.moves).max().unwrap_or(0)
    }
}

impl OfHost {
    fn take<'a>(&mut self, job: i64, frame: Frame, rows: impl Iterator<Item = &'a v1::Row>) {
        for row in rows {
            let has_slot = row.slots.iter().any(|slot| slot.job == job);
            self.had.insert(row.slice, (frame.place(row.start_ns), has_slot));
            self.last_ns = self.last_ns.max(row.end_ns);
        }
    }

    /// Counts the slices that were taken, unless the registry has moved the job meanwhile.
    fn count(&mut self, frame: Frame, rows: Vec<i64>) {
        let Some((&last, _)) = self.had.last_key_value() else { return };
        if rows != self.rows {
            (self.rows, self.expected) = (rows, None);
            (self.from, self.moves) = (last + 1, self.moves + 1);
        }
        match &self.expected {
            Some(expected) => {
                for (place, has_slot) in self.had.range(self.from..).map(|(_, slice)| slice) {
                    self.due += usize::from(expected.contains(place));
                    self.missed += usize::from(expected.contains(place) && !has_slot);
                }
                self.from = last + 1;
            }
            // The last frame shows its places, once what was changed before holds.
            None if last - self.from >= AHEAD + frame.rows => {
                let of_frame = self.had.range(last - frame.rows + 1..).map(|(_, slice)| slice);
                let places = of_frame.filter(|(_, has_slot)| *has_slot).map(|(place, _)| *place);
                self.expected = Some(places.collect());
                self.from = last + 1;
            }
            None => {}
        }
        let gone = self.from - frame.rows;
        self.had.retain(|&slice, _| slice >= gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_a_frame_before_had_are_due() {
        const HOUR: i64 = 3_600_000_000_000;
        let frame = Frame { rows: 4, slice_ns: 20_000_000 };
        let row = |slice: i64, has_slot: bool| v1::Row {
            slice,
            start_ns: slice * frame.slice_ns,
            end_ns: (slice + 1) * frame.slice_ns,
            slots: vec![v1::Slot { job: if has_slot { 7 } else { 1 }, cpu_list: vec![0] }],
            rest_cpus: 0,
            rest_turn: false,
            gap: None,
        };
        let mut of = OfHost::default();
        let mut take = |slices: std::ops::Range<i64>, places: [i64; 2], without: i64| {
            let rows: Vec<v1::Row> = slices
                .map(|slice| {
                    let is_due = places.contains(&frame.place(slice * frame.slice_ns));
                    row(slice, is_due && slice != without)
                })
                .collect();
            of.take(7, frame, rows.iter());
            of.count(frame, places.to_vec());
            (of.due, of.missed)
        };
        assert_eq!(take(0..50, [1, 2], 0), (0, 0), "nothing is due yet");
        assert_eq!(take(50..160, [1, 2], 0), (0, 0), "now it is known");
        assert_eq!(take(160..180, [1, 2], 169), (10, 1), "169 is missing");
        assert_eq!(take(180..300, [0, 2], 0), (10, 1), "the registry has moved it");
        assert_eq!(take(300..420, [0, 2], 0), (10, 1));
        assert_eq!(take(420..440, [0, 2], 0), (20, 1));
        // 179,998 slices are no whole number of frames.
        let hour = HOUR / 19_999_000;
        let odd = Frame { rows: 4, slice_ns: 19_999_000 };
        assert_eq!(odd.place((hour + 1) * odd.slice_ns), 0, "the first slice of an hour");
        assert_eq!(odd.place(hour * odd.slice_ns), hour % 4);
    }
}
