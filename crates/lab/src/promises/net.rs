//! Messages within a host by each medium of gangd's libfabric provider, beside those of libfabric's
//! own providers and of UCX: the time of an 8-byte message, and bandwidth of 1 MiB messages.
//!
//! One pair of processes sends the same messages by each of them. The processes are in no gang.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::Lab;
use crate::harness::machine::allowed_cpus;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::verdict::Better;
use crate::promises::list;
use crate::workload::wires::{BANDWIDTH, LATENCY, Library, WRONG, Wire};

const LENGTH: Duration = Duration::from_secs(2);
/// Whether a medium can be had is asked by a pair that ends at once.
const TRIED: Duration = Duration::from_millis(10);
const ROUNDS: usize = 10;

const SHM: &str = "gangd, shared memory";
const SEGMENTS: &str = "gangd, segments";
const UDP: &str = "gangd, UDP";
const THEIR_SHM: &str = "libfabric, shm";
const THEIR_TCP: &str = "libfabric, tcp;ofi_rxm";
const UCX_SHM: &str = "UCX, shared memory";
const UCX_TCP: &str = "UCX, TCP";

/// A way to send messages.
struct Medium {
    name: &'static str,
    library: Library,
    /// A provider of libfabric; UCX is asked by variables alone.
    asked: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

const MEDIA: [Medium; 7] = [
    Medium {
        name: SHM,
        library: Library::Fabric,
        asked: "gang",
        variables: &[("GANG_NET_MEDIUM", "shm")],
    },
    Medium {
        name: SEGMENTS,
        library: Library::Fabric,
        asked: "gang",
        variables: &[("GANG_NET_MEDIUM", "shm"), ("GANG_NET_COPY", "segments")],
    },
    Medium {
        name: UDP,
        library: Library::Fabric,
        asked: "gang",
        variables: &[("GANG_NET_MEDIUM", "udp"), ("GANG_NET_ADDRESS", "127.0.0.1")],
    },
    Medium { name: THEIR_SHM, library: Library::Fabric, asked: "shm", variables: &[] },
    Medium { name: THEIR_TCP, library: Library::Fabric, asked: "tcp;ofi_rxm", variables: &[] },
    Medium {
        name: UCX_SHM,
        library: Library::Ucx,
        asked: "UCX",
        variables: &[("UCX_TLS", "posix,sysv,cma,self")],
    },
    Medium {
        name: UCX_TCP,
        library: Library::Ucx,
        asked: "UCX",
        variables: &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")],
    },
];

impl Medium {
    fn is_own(&self) -> bool {
        self.asked == "gang"
    }

    /// The variables of the pair, with the directory of gangd's provider.
    fn environment(&self, lab: &Lab) -> Result<Vec<(&'static str, String)>> {
        let mut all: Vec<(&str, String)> =
            self.variables.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        if self.is_own() {
            all.push(("FI_PROVIDER_PATH", lab.programs.provider()?.display().to_string()));
        }
        Ok(all)
    }
}

pub fn run(lab: &Lab) -> Result<Report> {
    let dir = tempfile::tempdir().context("making a directory for programs")?;
    let compile = |library: Library| library.compile(dir.path()).map_err(|it| format!("{it:#}"));
    let (fabric, ucx) = (compile(Library::Fabric), compile(Library::Ucx));
    let cpus = allowed_cpus()?;
    let cpus = [0, 1].map(|at| cpus[at.min(cpus.len() - 1)]);
    let measure = |lab: &Lab, medium: &Medium, length: Duration| -> Result<Sample> {
        let program = match medium.library {
            Library::Fabric => &fabric,
            Library::Ucx => &ucx,
        };
        let program = program.as_ref().map_err(|why| anyhow!("{why}"))?;
        let environment = medium.environment(lab)?;
        let wire = Wire { program, cpus, asked: medium.asked, environment: &environment };
        Ok(Sample::default().with_all(wire.run(length)?.figures()?))
    };
    let (measure, mut conditions, mut missing) = (&measure, Vec::new(), Vec::new());
    for medium in &MEDIA {
        match measure(lab, medium, TRIED) {
            Ok(_) => {
                let measure = move |lab: &Lab| measure(lab, medium, lab.length(LENGTH));
                conditions.push(Condition::new(medium.name, measure));
            }
            Err(error) => missing.push(format!("{}: {error:#}.", medium.name)),
        }
    }
    ensure!(!conditions.is_empty(), "no medium can be had: {}", missing.join(" "));
    let run = alternate(lab, "net", lab.rounds(ROUNDS), &conditions)?;
    let mut report = Report::new(lab, "messages between two processes of a host", run, LATENCY);
    report.notes.extend(missing);
    compare(&mut report);
    Ok(report)
}

/// A medium of gangd beside the one that it is for: a medium that cannot be had leaves its promise
/// unproven.
fn compare(report: &mut Report) {
    for (own, other, figure, better, promise) in [
        (SHM, THEIR_SHM, LATENCY, Better::Less, Some(&list::NET_LATENCY_SHM)),
        (UDP, THEIR_TCP, LATENCY, Better::Less, Some(&list::NET_LATENCY_UDP)),
        (SHM, THEIR_SHM, BANDWIDTH, Better::More, Some(&list::NET_BANDWIDTH_SHM)),
        (SEGMENTS, THEIR_SHM, BANDWIDTH, Better::More, None),
        (UDP, THEIR_TCP, BANDWIDTH, Better::More, None),
        (SHM, UCX_SHM, LATENCY, Better::Less, None),
        (UDP, UCX_TCP, LATENCY, Better::Less, None),
    ] {
        let ratio = report.judge(own, other, figure, better);
        if let Some(promise) = promise {
            report.promise(promise, ratio);
        }
    }
    let wrong: f64 = MEDIA.iter().filter_map(|it| report.samples(it.name, WRONG)).flatten().sum();
    if wrong > 0.0 {
        report.verdict.insert(0, format!("{wrong} words came other than they were sent."));
    }
}
