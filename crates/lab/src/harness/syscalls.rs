//! How often a process makes some system calls, counted by the kernel (perf_event_open(2)), and the
//! time that one of them takes.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use perf_event::{Builder, Counter, events::Tracepoint};

/// The number of the kernel's tracepoint at which a system call begins.
///
/// The number is in a file of tracefs alone, which is mounted for a moment where nobody else sees
/// it.
fn tracepoint(call: &str) -> Result<u64> {
    let script = format!(
        "mount -t tracefs tracefs /sys/kernel/tracing && \
         cat /sys/kernel/tracing/events/syscalls/sys_enter_{call}/id"
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output();
    let output = output.context("running unshare, of the package util-linux")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "finding how {call} is counted: {}", errors.trim());
    let id = String::from_utf8_lossy(&output.stdout);
    id.trim().parse().with_context(|| format!("{call} has the number {id:?}"))
}

/// A count of one system call, by all threads that a process has.
pub struct Count {
    counters: Vec<Counter>,
}

impl Count {
    /// Counts from now on. Threads that come later are not counted.
    pub fn of(call: &str, pid: i32) -> Result<Count> {
        let event = Tracepoint::with_id(tracepoint(call)?);
        let mut counters = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).context("listing threads")? {
            let name = entry.context("listing threads")?.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let counter = Builder::new(event).observe_pid(tid).any_cpu().build();
            // A thread may have ended meanwhile.
            let Ok(mut counter) = counter else { continue };
            counter.enable().context("counting system calls")?;
            counters.push(counter);
        }
        if counters.is_empty() {
            bail!("the kernel lets nobody count the system calls of process {pid}");
        }
        Ok(Count { counters })
    }

    /// Calls until now.
    pub fn read(&mut self) -> Result<u64> {
        let mut all = 0;
        for counter in &mut self.counters {
            all += counter.read().context("reading how often a system call was made")?;
        }
        Ok(all)
    }
}

/// The time that a call takes, where nothing comes between: the shortest of many batches.
pub fn cost<T>(call: impl Fn() -> T) -> Duration {
    const BATCHES: u32 = 200;
    const CALLS: u32 = 100;
    let batch = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        began.elapsed() / CALLS
    };
    (0..BATCHES).map(batch).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_root_calls_are_counted() {
        let mut count = match Count::of("getpriority", std::process::id() as i32) {
            Ok(count) => count,
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        let before = count.read().unwrap();
        for _ in 0..1000 {
            black_box(rustix::process::getpriority_process(None).unwrap());
        }
        // Other threads of the test may make them as well.
        assert!(count.read().unwrap() - before >= 1000);
    }

    #[test]
    fn a_call_takes_some_time() {
        let short = cost(|| ());
        assert!(short < cost(|| std::thread::sleep(Duration::from_micros(1))), "{short:?}");
    }
}
