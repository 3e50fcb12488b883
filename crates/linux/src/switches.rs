//! Which thread ran on which CPU, and who started whom. The source is the kernel's own records of
//! its context switches and forks: `perf_event_open(2)`, PERF_RECORD_SWITCH_CPU_WIDE and
//! PERF_RECORD_FORK on a dummy event of each CPU.

use std::{collections::BTreeMap, time::Duration};

use perf_event::{Builder, Clock, SampleFlag, Sampler, events::Software};

use crate::{Error, Result, clock};

/// Room for records of one CPU: some 40,000 switches.
const BUFFER_BYTES: usize = 2 << 20;

const RECORD_LOST: u32 = 2;
const RECORD_FORK: u32 = 7;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;

/// A thread comes to a CPU or leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// UTC.
    pub at_ns: u64,
    /// The process and the thread of it that comes or leaves; 0 is idle.
    pub pid: i32,
    pub tid: i32,
    pub leaves: bool,
}

/// A process starts another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// UTC.
    pub at_ns: u64,
    pub parent: i32,
    pub child: i32,
}

/// The switches of each CPU, by its number, and all forks, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// UTC.
    pub start_ns: u64,
    pub end_ns: u64,
    pub cpus: BTreeMap<usize, Vec<Switch>>,
    pub forks: Vec<Fork>,
}

/// Records all context switches and forks of CPUs, given by their numbers, for a while. Needs
/// CAP_PERFMON, or a low `kernel.perf_event_paranoid`.
///
/// # Errors
/// The kernel refuses, a CPU is not online, or switches too often for the room there is.
pub fn record(cpus: impl IntoIterator<Item = usize>, length: Duration) -> Result<Recording> {
    let failed = |operation: &'static str, cpu: usize| {
        move |error: std::io::Error| Error::new(operation, format!("CPU {cpu}"), error)
    };
    let mut samplers = BTreeMap::new();
    for cpu in cpus {
        let sampler = sampler(cpu).map_err(failed("record the context switches of", cpu))?;
        samplers.insert(cpu, sampler);
    }
    for (&cpu, sampler) in &mut samplers {
        let enabled = sampler.as_counter_mut().enable();
        enabled.map_err(failed("start to record the context switches of", cpu))?;
    }
    let start_ns = clock::utc_ns();
    std::thread::sleep(length);
    let end_ns = start_ns + length.as_nanos() as u64;
    let mut recording = Recording { start_ns, end_ns, cpus: BTreeMap::new(), forks: Vec::new() };
    for (&cpu, sampler) in &mut samplers {
        let disabled = sampler.as_counter_mut().disable();
        disabled.map_err(failed("end the record of the context switches of", cpu))?;
    }
    for (cpu, mut sampler) in samplers {
        let mut switches = Vec::new();
        while let Some(record) = sampler.next_record() {
            if record.ty() == RECORD_LOST {
                let lost = std::io::Error::other("it switches too often for the room there is");
                return Err(failed("record the context switches of", cpu)(lost));
            }
            if record.ty() == RECORD_SWITCH_CPU_WIDE {
                switches.extend(parse_switch(record.misc(), &record.to_contiguous()));
            }
            if record.ty() == RECORD_FORK {
                recording.forks.extend(parse_fork(&record.to_contiguous()));
            }
        }
        recording.cpus.insert(cpu, switches);
    }
    recording.forks.sort_by_key(|fork| fork.at_ns);
    Ok(recording)
}

/// A thread was on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    pub pid: i32,
    pub tid: i32,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Recording {
    /// The thread that was on a CPU, and when; times that are left out were idle. A thread is there
    /// from the switch to it until the switch away. The first switch away names the thread that was
    /// there when the recording began.
    pub fn stays(&self, cpu: usize) -> Vec<Stay> {
        let mut stays = Vec::new();
        let mut add = |switch: &Switch, from_ns: u64, to_ns: u64| {
            let start_ns = from_ns.clamp(self.start_ns, self.end_ns);
            let end_ns = to_ns.clamp(self.start_ns, self.end_ns);
            if switch.pid != 0 && start_ns < end_ns {
                stays.push(Stay { pid: switch.pid, tid: switch.tid, start_ns, end_ns });
            }
        };
        let mut since: Option<&Switch> = None;
        for (number, switch) in self.cpus.get(&cpu).into_iter().flatten().enumerate() {
            match (switch.leaves, since) {
                (true, Some(came)) => add(came, came.at_ns, switch.at_ns),
                (true, None) if number == 0 => add(switch, self.start_ns, switch.at_ns),
                _ => {}
            }
            since = (!switch.leaves).then_some(switch);
        }
        if let Some(came) = since {
            add(came, came.at_ns, self.end_ns);
        }
        stays
    }
}

fn sampler(cpu: usize) -> std::io::Result<Sampler> {
    Builder::new(Software::DUMMY)
        .any_pid()
        .one_cpu(cpu)
        .include_kernel()
        .context_switch(true)
        .task(true)
        .sample_id_all(true)
        .sample(SampleFlag::TID | SampleFlag::TIME)
        .clockid(Clock::REALTIME)
        .build()?
        .sampled(BUFFER_BYTES)
}

/// The body of a record: pid and tid of the other side of the switch, then pid, tid and time of the
/// record's own thread (perf_event_open(2), `sample_id`).
fn parse_switch(misc: u16, body: &[u8]) -> Option<Switch> {
    Some(Switch {
        at_ns: time(body, 16)?,
        pid: number(body, 8)?,
        tid: number(body, 12)?,
        leaves: misc & MISC_SWITCH_OUT != 0,
    })
}

/// The body of a record: pid and parent, tid and that of the parent, time (perf_event_open(2)). A
/// thread that is started in its process is no fork.
fn parse_fork(body: &[u8]) -> Option<Fork> {
    let fork = Fork { at_ns: time(body, 16)?, child: number(body, 0)?, parent: number(body, 4)? };
    (fork.child != fork.parent).then_some(fork)
}

fn number(body: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?))
}

fn time(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: [u32; 4]) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend(1_000_000_007u64.to_ne_bytes());
        body
    }

    #[test]
    fn bodies_of_switches() {
        let body = body([7, 8, 42, 43]);
        let switch = Switch { at_ns: 1_000_000_007, pid: 42, tid: 43, leaves: false };
        assert_eq!(parse_switch(0, &body), Some(switch));
        let leaves = Switch { leaves: true, ..switch };
        assert_eq!(parse_switch(MISC_SWITCH_OUT | 1 << 14, &body), Some(leaves));
        assert_eq!(parse_switch(0, &body[..20]), None);
    }

    #[test]
    fn bodies_of_forks() {
        let fork = Fork { at_ns: 1_000_000_007, parent: 42, child: 77 };
        assert_eq!(parse_fork(&body([77, 42, 77, 43])), Some(fork));
        assert_eq!(parse_fork(&body([42, 42, 78, 43])), None, "a thread");
        assert_eq!(parse_fork(&body([77, 42, 77, 43])[..20]), None);
    }

    #[test]
    fn this_machine_is_recorded_where_that_is_permitted() {
        match record([0], Duration::from_millis(20)) {
            Ok(recording) => {
                assert_eq!(recording.cpus.len(), 1);
                let is_now = |at_ns: u64| at_ns > 1_000_000_000_000_000_000;
                assert!(recording.cpus[&0].iter().all(|switch| is_now(switch.at_ns)));
                assert!(recording.forks.iter().all(|fork| is_now(fork.at_ns)));
            }
            Err(error) => gang_harness::skipped(format!("{error}: {}", error.source)),
        }
    }
}
