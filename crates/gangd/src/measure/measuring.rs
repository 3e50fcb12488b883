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
};

use gang_bpf::{Meter, NotMeasured, Wait};
use gang_protocol::v1;
use gang_timetable::record::Placement;

/// The meter, once there is one.
#[derive(Debug, Default)]
pub struct Measuring {
    meter: OnceLock<Result<Arc<Meter>, String>>,
    /// The thread that looks at the threads of the machine, once there is one.
    looker: OnceLock<Thread>,
    /// A look is asked for.
    is_asked: AtomicBool,
}

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
                tracing::info!(%reason, "whether gangs run together is not measured");
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

    /// Asks for a look, because processes have come or have changed their group. The look counts
    /// those of their threads that run or wait for a CPU. The caller does not wait for the look:
    /// with many threads it takes the kernel milliseconds.
    pub fn look_around(&self) {
        self.is_asked.store(true, Ordering::Release);
        if let Some(looker) = self.looker.get() {
            looker.unpark();
        }
    }

    /// Looks at the threads that are there, and again on each request. Returns where nothing is
    /// measured.
    pub fn look_when_asked(&self) {
        let Ok(meter) = self.meter() else { return };
        let _ = self.looker.set(thread::current());
        loop {
            if let Err(reason) = meter.look_around() {
                tracing::warn!(%reason, "threads are not measured before they are switched");
            }
            while !self.is_asked.swap(false, Ordering::Acquire) {
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
            Some(Ok(())) => self.look_around(),
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
