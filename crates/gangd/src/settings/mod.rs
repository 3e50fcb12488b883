//! The settings of the daemon: defaults, the configuration file, the command line, in that order.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gang_conductor::{Accounts, Terms};
use gang_schedule::{Config, Gap, Sharing, Spec};
use gang_timetable::Backend;
use serde::{Deserialize, Deserializer, de};

use self::hours::WorkingHours;
use crate::history::Retention;

pub mod classes;
pub mod cluster;
mod file;
pub mod hours;
pub mod users;

/// Where the configuration is, unless the command line names another file.
pub const FILE: &str = "/etc/gangd/gangd.toml";

/// Whether jobs leave the groups of their first processes where gangs give way only so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leave {
    Never,
    /// Those do that nothing limits.
    #[default]
    Unconfined,
    Always,
}

/// The limits on what clients ask of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Jobs at a time, 1 to 10,000.
    pub jobs: usize,
    /// Jobs at a time of one user, 1 to 10,000. Root and the daemon's user may have more, here and
    /// below.
    pub jobs_per_user: usize,
    /// Connections at a time, 1 to 1,000.
    pub clients: usize,
    /// Connections at a time of one user, 1 to 1,000.
    pub clients_per_user: usize,
    /// CPUs that the jobs of one user ask for together, 1 to 1,000,000.
    pub cpus_per_user: usize,
    /// The weight of a job of one who is no administrator, 1 to 10,000.
    pub weight: u32,
    /// Of a slice, what it may take to switch gangs at its beginning or at a gap, 1 to 50 percent.
    pub switching_percent: u32,
    /// A message must arrive whole, and an answer be taken, within this time; 100 ms to 10 min.
    #[serde(deserialize_with = "time")]
    pub message_timeout: Duration,
}

/// Switching may take that long however short slices are.
const EDGE_NS_MIN: u64 = 200_000;

impl Limits {
    /// The time that a switcher has for the gangs of an edge, in slices of that length.
    fn edge_ns(&self, slice_ns: u64) -> u64 {
        (slice_ns / 100 * u64::from(self.switching_percent)).max(EDGE_NS_MIN)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            jobs: 4096,
            jobs_per_user: 1024,
            clients: 256,
            clients_per_user: 64,
            cpus_per_user: 1_000_000,
            weight: Spec::DEFAULT_WEIGHT,
            switching_percent: 5,
            message_timeout: Duration::from_secs(10),
        }
    }
}

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub schedule: Config,
    /// Gaps come twice as often as that while short tasks do.
    pub adapt_gaps: bool,
    /// `None`: the best that can be used.
    pub backend: Option<Backend>,
    pub measure: bool,
    pub uncontended_passthrough: bool,
    /// The share of its time that it may cost a job of policy auto to be measured.
    pub proof_cost: f64,
    pub scratch_dir: PathBuf,
    pub idle_after: Duration,
    pub forget_after: Duration,
    /// The number of the group whose members are administrators.
    pub admin_gid: Option<u32>,
    pub working_hours: Option<WorkingHours>,
    /// Terms of the classes outside working hours; the terms inside are in `schedule`.
    pub outside: Terms,
    /// Users see their own jobs alone, administrators all.
    pub private: bool,
    /// `None`: where the daemon is the machine's.
    pub status_file: Option<bool>,
    pub history_enabled: bool,
    /// `None`: the usual place, where the daemon is the machine's.
    pub history: Option<PathBuf>,
    pub retention: Retention,
    /// Whether jobs leave the groups in which they were called.
    pub leave: Leave,
    /// The cluster that the host belongs to, if any.
    pub cluster: Option<cluster::Cluster>,
    pub clock: cluster::Clock,
    /// Slurm hears of the time out of slot of its jobs.
    pub slurm_account_time: bool,
    /// A flush of a gang's ports that takes longer has failed.
    pub flush_timeout: Duration,
    /// The accounts that users are on.
    pub accounts: Accounts,
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schedule: Config { sharing: Sharing::ByUser(BTreeMap::new()), ..Config::default() },
            adapt_gaps: true,
            backend: None,
            measure: true,
            uncontended_passthrough: true,
            proof_cost: 0.01,
            scratch_dir: "/tmp".into(),
            idle_after: Duration::from_secs(600),
            forget_after: Duration::from_secs(7200),
            admin_gid: None,
            working_hours: None,
            outside: Terms::default(),
            private: false,
            status_file: None,
            history_enabled: true,
            history: None,
            retention: Retention::default(),
            leave: Leave::default(),
            cluster: None,
            clock: cluster::Clock::default(),
            slurm_account_time: false,
            flush_timeout: Duration::from_micros(200),
            accounts: Accounts::default(),
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// The settings of a conductor with slices of that length.
    pub fn tunables(&self, slice_ns: u64) -> gang_conductor::Tunables {
        let Config { slice_ns: own_ns, class_weights, class_slices, .. } = self.schedule;
        let inside = Terms { weights: class_weights, slices: class_slices };
        let outside = self.outside.in_slices_of(own_ns, slice_ns);
        gang_conductor::Tunables {
            limits: gang_conductor::Limits {
                jobs: self.limits.jobs,
                jobs_per_user: self.limits.jobs_per_user,
                cpus_per_user: self.limits.cpus_per_user,
                edge_ns: self.limits.edge_ns(slice_ns),
            },
            accounts: self.accounts.clone(),
            sharing: self.schedule.sharing.clone(),
            caps: self.schedule.caps.clone(),
            idle_after_ns: self.idle_after.as_nanos() as u64,
            inside: inside.in_slices_of(own_ns, slice_ns),
            outside: self.working_hours.is_some().then_some(outside),
        }
    }

    /// The keys that differ in `new` and take effect only in another daemon.
    pub fn what_needs_a_restart(&self, new: &Settings) -> Vec<&'static str> {
        let (old, new_plan) = (&self.schedule, &new.schedule);
        let differs = [
            ("slice", old.slice_ns != new_plan.slice_ns),
            ("gap", (old.gap, self.adapt_gaps) != (new_plan.gap, new.adapt_gaps)),
            ("fill", old.fill != new_plan.fill),
            ("gang_share_max", old.cap_permille != new_plan.cap_permille),
            ("backend", self.backend != new.backend),
            ("measure", self.measure != new.measure),
            (
                "uncontended_passthrough",
                self.uncontended_passthrough != new.uncontended_passthrough,
            ),
            ("status_file", self.status_file != new.status_file),
            ("history", self.kept() != new.kept()),
            ("cgroups", self.leave != new.leave),
            ("cluster", self.cluster != new.cluster),
            ("clock", self.clock != new.clock),
            ("slurm", self.slurm_account_time != new.slurm_account_time),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// The history of jobs that is kept, and where.
    fn kept(&self) -> (bool, &Option<PathBuf>, &Retention) {
        (self.history_enabled, &self.history, &self.retention)
    }

    /// The settings in force once `new` was read: the rest of it takes effect only in another
    /// daemon.
    pub fn renewed(&self, new: Settings) -> Settings {
        let Config { class_weights, class_slices, ref sharing, ref caps, .. } = new.schedule;
        let (sharing, caps) = (sharing.clone(), caps.clone());
        Settings {
            schedule: Config {
                class_weights,
                class_slices,
                sharing,
                caps,
                ..self.schedule.clone()
            },
            adapt_gaps: self.adapt_gaps,
            backend: self.backend,
            measure: self.measure,
            uncontended_passthrough: self.uncontended_passthrough,
            status_file: self.status_file,
            history_enabled: self.history_enabled,
            history: self.history.clone(),
            retention: self.retention.clone(),
            leave: self.leave,
            cluster: self.cluster.clone(),
            clock: self.clock,
            slurm_account_time: self.slurm_account_time,
            ..new
        }
    }
}

/// The settings that a running daemon follows; each reload replaces them.
#[derive(Debug)]
pub struct InForce(Mutex<Arc<Settings>>);

impl InForce {
    pub fn new(settings: Settings) -> InForce {
        InForce(Mutex::new(Arc::new(settings)))
    }

    pub fn get(&self) -> Arc<Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, settings: Settings) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// The settings that the command line gives; others are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    pub slice: Option<Duration>,
    pub gap: Option<GapSetting>,
    pub backend: Option<Backend>,
    pub fill: Option<bool>,
    pub measure: Option<bool>,
    pub uncontended_passthrough: Option<bool>,
    pub gang_share_max: Option<f64>,
}

/// A twentieth of the time, at the end of every slice; [`gang_conductor::gap`] lengthens it. Gaps
/// of short slices come once in 10 ms, which costs less; those of long ones every 20 ms, which is
/// the longest that others then wait.
fn gap_of_slice(slice_ns: u64) -> Gap {
    let period_ns = slice_ns.clamp(GAP_PERIOD_NS, 2 * GAP_PERIOD_NS);
    Gap { period_ns, length_ns: period_ns / 20 }
}

/// Whether gaps can come twice as often. They come no more often than with any other slice, and
/// each slice must have as much gap as before.
fn can_halve(config: &Config) -> bool {
    let Config { slice_ns, gap, .. } = config;
    gap.period_ns / 2 >= GAP_PERIOD_NS && slice_ns % gap.period_ns == 0
}

/// The least time from one gap to the next, unless it is set.
const GAP_PERIOD_NS: u64 = 10_000_000;

/// Reads a time such as `500us`, `10ms`, `1.5s` or `1m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 500us, 10ms, 1.5s or 1m");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// Reads a time where the file has one.
fn time<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    duration(&String::deserialize(text)?).map_err(de::Error::custom)
}

/// Gaps as they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapSetting {
    /// By the slice ([`gap_of_slice`]), and by the short tasks that wait for gaps.
    Auto,
    Fixed(Gap),
}

/// Reads gaps such as `500us/10ms`: the last 500 µs of every 10 ms of the clock; or `none`, or
/// `auto`.
pub fn gap(text: &str) -> Result<GapSetting, String> {
    match text {
        "auto" => return Ok(GapSetting::Auto),
        "none" | "0" => return Ok(GapSetting::Fixed(Gap::NONE)),
        _ => {}
    }
    let (length, period) = text
        .split_once('/')
        .ok_or_else(|| format!("{text:?} is not a gap such as 500us/10ms, none or auto"))?;
    let ns = |text| duration(text).map(|time| time.as_nanos() as u64);
    Ok(GapSetting::Fixed(Gap { length_ns: ns(length)?, period_ns: ns(period)? }))
}

#[cfg(test)]
mod tests;
