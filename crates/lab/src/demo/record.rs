//! Which process ran on which CPU, from the kernel's own records of its context switches
//! (`perf_event_open(2)`, PERF_RECORD_SWITCH_CPU_WIDE on a dummy event of each CPU).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

use crate::workload::window::now_ns;

/// Room for records of one CPU: some 40,000 switches.
const BUFFER_BYTES: usize = 2 << 20;

const RECORD_LOST: u32 = 2;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;

/// A process comes to a CPU or leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    pub at_ns: u64,
    /// The process that comes or leaves; 0 is idle.
    pub pid: i32,
    pub leaves: bool,
}

/// The switches of each CPU in the order of time.
pub struct Recording {
    pub start_ns: u64,
    pub end_ns: u64,
    pub cpus: Vec<Vec<Switch>>,
}

/// Records all context switches for a while. Needs CAP_PERFMON, or a low
/// `kernel.perf_event_paranoid`.
pub fn switches(cpus: usize, length: Duration) -> Result<Recording> {
    let mut samplers = Vec::new();
    for cpu in 0..cpus {
        samplers.push(sampler(cpu).with_context(|| {
            format!("recording the context switches of CPU {cpu} (perf_event_open; needs root)")
        })?);
    }
    for sampler in &mut samplers {
        sampler.as_counter_mut().enable().context("starting to record context switches")?;
    }
    let start_ns = now_ns();
    std::thread::sleep(length);
    let end_ns = start_ns + length.as_nanos() as u64;
    let mut recording = Recording { start_ns, end_ns, cpus: Vec::new() };
    for sampler in &mut samplers {
        sampler.as_counter_mut().disable().context("ending the record of context switches")?;
    }
    for (cpu, sampler) in samplers.iter_mut().enumerate() {
        let mut switches = Vec::new();
        while let Some(record) = sampler.next_record() {
            ensure!(record.ty() != RECORD_LOST, "CPU {cpu} switches too often to be recorded");
            if record.ty() == RECORD_SWITCH_CPU_WIDE {
                switches.extend(parse(record.misc(), &record.to_contiguous()));
            }
        }
        recording.cpus.push(switches);
    }
    Ok(recording)
}

fn sampler(cpu: usize) -> std::io::Result<Sampler> {
    Builder::new(Software::DUMMY)
        .any_pid()
        .one_cpu(cpu)
        .include_kernel()
        .context_switch(true)
        .sample_id_all(true)
        .sample(SampleFlag::TID | SampleFlag::TIME)
        .clockid(Clock::REALTIME)
        .build()?
        .sampled(BUFFER_BYTES)
}

/// The body of a record: pid and tid of the other side of the switch, then pid, tid and time of
/// the thread that the record is about (perf_event_open(2), `sample_id`).
fn parse(misc: u16, body: &[u8]) -> Option<Switch> {
    let pid = body.get(8..12)?.try_into().ok()?;
    let at_ns = body.get(16..24)?.try_into().ok()?;
    Some(Switch {
        at_ns: u64::from_ne_bytes(at_ns),
        pid: i32::from_ne_bytes(pid),
        leaves: misc & MISC_SWITCH_OUT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let mut body = Vec::new();
        for word in [7u32, 8, 42, 43] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(1_000_000_007u64.to_ne_bytes());
        let switch = Switch { at_ns: 1_000_000_007, pid: 42, leaves: false };
        assert_eq!(parse(0, &body), Some(switch));
        let leaves = Switch { leaves: true, ..switch };
        assert_eq!(parse(MISC_SWITCH_OUT | 1 << 14, &body), Some(leaves));
        assert_eq!(parse(0, &body[..20]), None);
    }

    #[test]
    fn this_machine_is_recorded_where_that_is_permitted() {
        match switches(1, Duration::from_millis(20)) {
            Ok(recording) => {
                assert_eq!(recording.cpus.len(), 1);
                assert!(recording.cpus[0].iter().all(|s| s.at_ns > 1_000_000_000_000_000_000));
            }
            Err(error) => eprintln!("skipped: {error:#}"),
        }
    }
}
