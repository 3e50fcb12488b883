//! E17 and E18: four programs that cluster streams of packets share the machine, each with a thread
//! for every second CPU, under plain Linux, on a static partition of the CPUs, and as gangs.
//!
//! Packets come in bursts of growing length, at a mean rate that keeps the machine busy for three
//! fifths. The measure is the time until a stream is done: as long as the packets take to come
//! where the programs keep up, and longer where their barriers wait for threads that do not run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::{Gang, Lab, Span, Under, words};
use crate::harness::machine::allowed_cpus;
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats;
use crate::harness::verdict::Better;
use crate::promises::list;
use crate::workload::stream::{StreamOutcome, points_for};

const TIME: &str = "time_s";
const STREAMS: usize = 4;
/// Computing between two barriers, as measured by E17.
const WORK: Duration = Duration::from_micros(81);
const CANDIDATES: u64 = 10;
const BUSY: f64 = 0.6;
const LENGTH: Duration = Duration::from_secs(5);
const PUBLISHED: usize = 10;
const PLAIN: &str = "plain Linux";
const PARTITION: &str = "partition";
const GANG: &str = "gangd";

#[derive(Args, Debug, Clone, Default)]
pub struct Stream {
    /// Packets that come at once [default: 1,4,16,64, with --quick 1,64]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub bursts: Vec<u64>,
}

/// The common part of all conditions.
struct Load {
    threads: usize,
    points: usize,
    packets: u64,
    /// CPUs of each stream where they are partitioned.
    parts: Vec<Vec<usize>>,
}

impl Stream {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        let mut bursts = match (self.bursts.is_empty(), lab.options.quick) {
            (false, _) => self.bursts.clone(),
            (true, true) => vec![1, 64],
            (true, false) => vec![1, 4, 16, 64],
        };
        bursts.sort();
        bursts.dedup();
        let load = &Load::of(lab, bursts[bursts.len() - 1])?;
        let gangd = &lab.gangd();
        let mut ways = vec![(PLAIN, &Under::Plain, false), (PARTITION, &Under::Plain, true)];
        if !lab.options.plain {
            ways.push((GANG, gangd, false));
        }
        let mut conditions = Vec::new();
        for &burst in &bursts {
            for &(way, under, pinned) in &ways {
                let measure = move |lab: &Lab| load.measure(lab, under, burst, pinned);
                conditions.push(Condition::new(name(burst, way), measure));
            }
        }
        let run = alternate(lab, "stream", lab.rounds(PUBLISHED), &conditions)?;
        let about = format!(
            "{STREAMS} streams of {} packets, {} threads each, by the length of bursts (E18)",
            load.packets, load.threads
        );
        let mut report = Report::new(lab, about, run, TIME);
        let lines = ways.iter().map(|(way, ..)| {
            let names: Vec<String> = bursts.iter().map(|&burst| name(burst, way)).collect();
            let at = bursts.iter().zip(&names).map(|(&burst, name)| (burst as f64, name.as_str()));
            Line::of(&report, *way, TIME, at)
        });
        let lines = lines.collect();
        report.picture = Some(
            Picture::lines("packets that come at once", "s until a stream is done", lines).log_x(),
        );
        let (lightest, heaviest) = (bursts[0], bursts[bursts.len() - 1]);
        if heaviest > lightest {
            report.judge(&name(heaviest, PLAIN), &name(lightest, PLAIN), TIME, Better::Less);
        }
        if !lab.options.plain {
            report.judge(&name(heaviest, GANG), &name(heaviest, PLAIN), TIME, Better::Less);
            report.judge(&name(heaviest, GANG), &name(heaviest, PARTITION), TIME, Better::Less);
            let growth = report.ratio(&name(heaviest, GANG), &name(lightest, GANG), TIME);
            report.promise(&list::STREAM, growth);
        }
        Ok(report)
    }
}

impl Load {
    fn of(lab: &Lab, heaviest: u64) -> Result<Self> {
        let cpus = allowed_cpus()?;
        ensure!(!cpus.is_empty(), "this process may use no CPU");
        let threads = lab.threads_asked().unwrap_or((cpus.len() / 2).max(2));
        let length_s = lab.length(LENGTH).as_secs_f64();
        let packet_cpu_s = WORK.as_secs_f64() * (CANDIDATES * threads as u64) as f64;
        let packets = BUSY * cpus.len() as f64 * length_s / (packet_cpu_s * STREAMS as f64);
        // As many whole bursts as there are, so that each length of bursts is the same load.
        let packets = packets as u64 / heaviest * heaviest;
        ensure!(
            packets > 0,
            "a burst of {heaviest} is more than all packets that come in that time; let it be longer (--seconds), or \
             name shorter bursts (--bursts)"
        );
        let points = lab.amount("points of a candidate", || Ok(points_for(WORK) as u64))?;
        let parts = (0..STREAMS).map(|stream| part(&cpus, stream)).collect();
        Ok(Self { threads, points: points as usize, packets, parts })
    }

    fn measure(&self, lab: &Lab, under: &Under, burst: u64, pinned: bool) -> Result<Sample> {
        let length = lab.length(LENGTH);
        let time_limit = 4 * length;
        let span = Span::soon(length + time_limit);
        let daemon = lab.daemon_of(under)?;
        let gang = Gang { cpus: self.threads.min(lab.cpus), weight: None };
        let mut running = Vec::new();
        for part in &self.parts {
            let mut arguments = words(&format!(
                "stream --threads {} --packets {} --burst {burst} --candidates {CANDIDATES} --points {} \
                 --time-limit {}s --seconds {}s --start-at {}",
                self.threads,
                self.packets,
                self.points,
                time_limit.as_secs_f64(),
                length.as_secs_f64(),
                span.start_ns
            ));
            if pinned {
                let cpus: Vec<String> = part.iter().map(usize::to_string).collect();
                arguments.extend(["--pin".into(), cpus.join(",")]);
            }
            running.push(lab.start_workload(daemon.as_ref(), Some(gang), &arguments)?);
        }
        // When the packets have come, and before anybody can have ended.
        let seen = lab.by(daemon.as_ref()).look(&Span { length, ..span });
        let mut outcomes: Vec<StreamOutcome> = Vec::new();
        for stream in running {
            outcomes.push(stream.outcome(span.deadline)?);
        }
        let of =
            |figure: fn(&StreamOutcome) -> f64| outcomes.iter().map(figure).collect::<Vec<f64>>();
        let times = of(|outcome| outcome.elapsed_ns as f64 / 1e9);
        let (time_s, sd_s) = stats::mean_sd(&times).context("no stream ran")?;
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        Ok(seen.with([
            (TIME, time_s),
            ("time_s_sd_of_streams", sd_s),
            ("packet_ms_mean", mean(of(|outcome| outcome.latency_ms_mean))),
            ("packet_ms_sd", mean(of(|outcome| outcome.latency_ms_sd))),
            ("packet_ms_p99", mean(of(|outcome| outcome.latency_ms_p99))),
            ("streams_not_done", of(|outcome| f64::from(u8::from(!outcome.finished))).iter().sum()),
        ]))
    }
}

/// The CPUs of one stream: a quarter of them. Where four do not divide their number, neighbours
/// share one, so that all are used and each stream has as many.
fn part(cpus: &[usize], stream: usize) -> Vec<usize> {
    let size = cpus.len().div_ceil(STREAMS);
    let last = STREAMS - 1;
    // To the nearest.
    let first = (2 * stream * (cpus.len() - size) + last) / (2 * last);
    cpus[first..first + size].to_vec()
}

fn name(burst: u64, way: &str) -> String {
    format!("bursts of {burst}, {way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_use_all_cpus_and_are_of_the_same_size() {
        for count in 1..=40 {
            let cpus: Vec<usize> = (0..count).collect();
            let parts: Vec<_> = (0..STREAMS).map(|stream| part(&cpus, stream)).collect();
            let is_used = |cpu: &usize| parts.iter().any(|part| part.contains(cpu));
            assert!(cpus.iter().all(is_used), "{count} CPUs: {parts:?}");
            assert!(parts.iter().all(|part| part.len() == count.div_ceil(STREAMS)), "{parts:?}");
        }
    }
}
