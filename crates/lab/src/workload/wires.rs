//! Two processes of one host that send messages to and fro by a library, and what is read from
//! what they print.
//!
//! Each is bound to a CPU. Some round trips are timed together, and so are some long messages. The
//! median of these times counts: a time in which one of both processes had no CPU is seldom.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::harness::child::Running;
use crate::harness::compiled::compile;
use crate::harness::samples::Figures;
use crate::harness::stats::quantile;

/// Of an 8-byte message.
pub const LATENCY: &str = "latency_us";
pub const LATENCY_P99: &str = "latency_us_p99";
/// Of 1 MiB messages in a row, in megabytes of a million bytes.
pub const BANDWIDTH: &str = "mb_per_s";
pub const MESSAGES: &str = "messages";
pub const WRONG: &str = "wrong_words";

const WIRE_C: &str = include_str!("wires/wire.c");
const FABRIC_C: &str = include_str!("wires/fabric.c");
const UCX_C: &str = include_str!("wires/ucx.c");
/// A pair that has not ended by then hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A library that sends messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Fabric,
    Ucx,
}

impl Library {
    /// Compiles the pair of processes into `dir`; where the headers are missing, the error names
    /// their package.
    pub fn compile(self, dir: &Path) -> Result<PathBuf> {
        let (name, source, flags, header, package): (_, _, &[&str], _, _) = match self {
            Library::Fabric => {
                ("wire_fabric", FABRIC_C, &["-lfabric"], "rdma/fabric.h", "libfabric-dev")
            }
            Library::Ucx => ("wire_ucx", UCX_C, &["-lucp", "-lucs"], "ucp/api/ucp.h", "libucx-dev"),
        };
        let source = format!("{WIRE_C}\n{source}");
        compile(dir, name, &source, flags).map_err(|error| match format!("{error:#}") {
            why if why.contains(&format!("{header}: No such file")) => {
                anyhow::anyhow!("there is no {header}: install the package {package}")
            }
            _ => error,
        })
    }
}

/// How a pair is started.
pub struct Wire<'a> {
    pub program: &'a Path,
    /// The CPUs of both processes.
    pub cpus: [usize; 2],
    /// A provider, or a word for messages where the library takes none.
    pub asked: &'a str,
    pub environment: &'a [(&'a str, String)],
}

/// The times that a pair prints.
#[derive(Debug, Deserialize)]
pub struct Times {
    /// Round trips that are timed together.
    trips: u64,
    /// Bytes that are timed together.
    window_bytes: u64,
    trips_ns: Vec<u64>,
    windows_ns: Vec<u64>,
    messages: u64,
    /// Words that are not as they were sent.
    wrong: u64,
}

impl Wire<'_> {
    pub fn run(&self, length: Duration) -> Result<Times> {
        let mut command = Command::new(self.program);
        command.arg(length.as_secs_f64().to_string());
        command.args(self.cpus.map(|cpu| cpu.to_string())).arg(self.asked);
        // As a program that is in no gang.
        command.env_remove("GANG_JOB");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Running::start(&mut command)?.outcome(Instant::now() + LIMIT + length)
    }
}

impl Times {
    pub fn figures(&self) -> Result<Figures> {
        let is_whole = !self.trips_ns.is_empty() && !self.windows_ns.is_empty();
        ensure!(is_whole && self.trips > 0, "too short for a single message");
        let sorted = |times: &[u64]| {
            let mut times: Vec<f64> = times.iter().map(|&ns| ns.max(1) as f64).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let (trips, windows) = (sorted(&self.trips_ns), sorted(&self.windows_ns));
        let one_way_us = |ns: f64| ns / (2 * self.trips) as f64 / 1e3;
        Ok(Figures::from([
            (LATENCY, one_way_us(quantile(&trips, 0.5))),
            (LATENCY_P99, one_way_us(quantile(&trips, 0.99))),
            (BANDWIDTH, self.window_bytes as f64 / quantile(&windows, 0.5) * 1e3),
            (MESSAGES, self.messages as f64),
            (WRONG, self.wrong as f64),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::machine::allowed_cpus;

    #[test]
    fn medians_of_what_is_printed_count() {
        let line = r#"{"trips": 16, "window_bytes": 8000000, "trips_ns": [32000,64000,9000000],
            "windows_ns": [2000000,1000000,1000000,80000000], "messages": 7, "wrong": 1}"#;
        let times: Times = serde_json::from_str(line).unwrap();
        let figures = times.figures().unwrap();
        assert_eq!(figures[LATENCY], 2.0);
        assert_eq!(figures[LATENCY_P99], 281.25);
        assert_eq!(figures[BANDWIDTH], 4_000.0);
        assert_eq!([figures[MESSAGES], figures[WRONG]], [7.0, 1.0]);
    }

    #[test]
    fn pair_without_a_message_has_no_figure() {
        let line = r#"{"trips": 16, "window_bytes": 8, "trips_ns": [], "windows_ns": [1],
            "messages": 0, "wrong": 0}"#;
        let times: Times = serde_json::from_str(line).unwrap();
        assert!(times.figures().unwrap_err().to_string().contains("too short"));
    }

    #[test]
    fn messages_arrive_as_sent_needs_libfabric() {
        let dir = tempfile::tempdir().unwrap();
        let program = match Library::Fabric.compile(dir.path()) {
            Ok(program) => program,
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        let allowed = allowed_cpus().unwrap();
        let cpus = [allowed[0], *allowed.last().unwrap()];
        let wire = |asked| {
            let wire = Wire { program: &program, cpus, asked, environment: &[] };
            wire.run(Duration::from_millis(20))
        };
        let times = match wire("tcp;ofi_rxm") {
            Ok(times) => times,
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        assert_eq!(times.wrong, 0);
        assert!(times.messages > 400 && times.figures().unwrap()[LATENCY] > 0.0, "{times:?}");
        let error = format!("{:#}", wire("no_such_provider").unwrap_err());
        assert!(error.contains("no_such_provider: fi_getinfo"), "{error}");
    }
}
