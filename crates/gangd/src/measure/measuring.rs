//! The BPF programs' own side: they are loaded, asked to look around, and report jobs that wake.
//!
//! The kernel takes longer to check the programs than the daemon takes to start, and no client is
//! to wait for that. So the thread `measuring` loads them; until then there is no meter.

use std::{
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use gang_bpf::{Meter, NotMeasured, RunnableThread, Wait};
use gang_linux::clock;
use gang_protocol::v1;
use gang_timetable::record::Placement;

/// The meter, once there is one.
#[derive(Debug, Default)]
pub struct Measuring {
    meter: OnceLock<Result<Arc<Meter>, String>>,
    /// The requests to the thread that looks at the threads of the machine.
    pub looks: Arc<Looks>,
}

/// Looks at the threads of the machine, which another thread makes: with many threads, a look takes
/// the kernel milliseconds.
#[derive(Debug, Default)]
pub struct Looks {
    /// The thread that looks, once there is one.
    looker: OnceLock<Thread>,
    is_asked: AtomicBool,
    is_list_asked: AtomicBool,
}

impl Looks {
    /// Asks for a look, because processes have come or have changed their group. The look counts
    /// those of their threads that run or wait for a CPU.
    pub fn look_around(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.wake();
    }

    /// Asks for a list of the threads that run or wait for a CPU.
    pub fn list(&self) {
        // One look answers all that ask before it.
        if !self.is_list_asked.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(looker) = self.looker.get() {
            looker.unpark();
        }
    }
}

/// Lists of threads take so small a part of the time of a CPU.
const LISTS_ONE_IN: u32 = 1000;

impl Measuring {
    /// The meter, or why there is none.
    pub(super) fn meter(&self) -> Result<&Arc<Meter>, String> {
        match self.meter.get() {
            None => Err("measuring has not begun yet; ask again in a second".into()),
            Some(meter) => meter.as_ref().map_err(String::clone),
        }
    }

    /// Loads the programs, where they are wanted and permitted; `hand_over` gives the meter to the
    /// conductor.
    pub fn begin(&self, is_wanted: bool, hand_over: impl FnOnce(Arc<Meter>)) {
        let meter = if is_wanted {
            Meter::start().map(Arc::new).map_err(|reason| {
                tracing::info!(%reason, "how far gangs are coscheduled is not measured");
                reason.to_string()
            })
        } else {
            Err("it is switched off (--no-measure, measure = false)".into())
        };
        if let Ok(meter) = &meter {
            hand_over(meter.clone());
        }
        let _ = self.meter.set(meter);
    }

    /// Looks at the threads that are there, and again on each request. `report` gets the lists that
    /// were asked for, where it can use them. Returns where nothing is measured.
    pub fn look_when_asked(&self, can_list: bool, mut report: impl FnMut(Vec<RunnableThread>)) {
        let Ok(meter) = self.meter() else { return };
        let _ = self.looks.looker.set(thread::current());
        self.looks.is_asked.store(true, Ordering::Release);
        let (mut list_at, mut is_unknown) = (Instant::now(), false);
        if !can_list {
            let reason = "the daemon is in a PID or user namespace below the machine's first";
            tracing::info!(reason, "threads outside of jobs weigh by program");
        }
        loop {
            if self.looks.is_asked.swap(false, Ordering::AcqRel)
                && let Err(reason) = meter.look_around()
            {
                tracing::warn!(%reason, "threads are not measured before they are switched");
            }
            let now = Instant::now();
            let is_list_asked = can_list && self.looks.is_list_asked.load(Ordering::Acquire);
            if is_list_asked && now >= list_at {
                self.looks.is_list_asked.store(false, Ordering::Release);
                let before_ns = clock::thread_cpu_ns();
                match meter.runnable_threads() {
                    Ok(threads) => report(threads),
                    // It says so once: the next look is soon.
                    Err(reason) if !std::mem::replace(&mut is_unknown, true) => {
                        tracing::warn!(%reason, "threads outside of jobs weigh by program");
                    }
                    Err(_) => {}
                }
                let took = Duration::from_nanos(clock::thread_cpu_ns() - before_ns);
                list_at = now + took * LISTS_ONE_IN;
            } else if is_list_asked {
                thread::park_timeout(list_at - now);
            } else if !self.looks.is_asked.load(Ordering::Acquire) {
                thread::park();
            }
        }
    }

    /// Reports the groups of jobs that slept and want to run. Returns where nothing is measured.
    pub fn hear_who_wakes(&self, report: impl FnMut(Vec<u64>)) {
        let Ok(meter) = self.meter() else { return };
        let Err(reason) = meter.hear_who_wakes(report);
        tracing::warn!(%reason, "jobs that wake are seen later");
    }

    /// Reports rivals that wait, as [`Meter::hear_who_waits`]. Returns where nothing is measured.
    pub fn hear_who_waits(&self, mut heed: impl FnMut(&Meter, Vec<Wait>)) {
        let Ok(meter) = self.meter() else { return };
        let Err(reason) = meter.hear_who_waits(|waits| heed(meter, waits));
        tracing::warn!(%reason, "gangs give way to nobody");
    }

    /// Forgets the sums of a job whose policy changed: they are of another schedule.
    pub fn start_over(&self, placement: &Placement) {
        let (Ok(meter), Placement::Cgroup { group, .. }) = (self.meter(), placement) else {
            return;
        };
        match group_number(group).map(|group| meter.start_over(group)) {
            Some(Ok(())) => self.looks.look_around(),
            // The job has ended.
            None | Some(Err(NotMeasured::NotWatched)) => {}
            Some(Err(reason)) => {
                tracing::warn!(%reason, "what was measured before counts with a job's new policy");
            }
        }
    }

    /// Whether anything is measured, and if not, why.
    pub fn state(&self) -> (v1::Measuring, Option<String>) {
        let is_known = self.meter.get().is_some();
        match self.meter() {
            Ok(_) => (v1::Measuring::yes, None),
            Err(reason) if is_known => (v1::Measuring::no, Some(reason)),
            Err(reason) => (v1::Measuring::starting, Some(reason)),
        }
    }
}

/// The number by which the kernel knows a group: the inode of its directory.
pub(super) fn group_number(group: &Path) -> Option<u64> {
    std::fs::metadata(group).ok().map(|directory| directory.ino())
}
