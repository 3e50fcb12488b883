//! The settings of the daemon: defaults, the configuration file, the command line, in that order.

pub mod classes;
pub mod cluster;
pub mod hours;
pub mod users;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use gang_conductor::{Accounts, Terms};
use gang_schedule::{Config, Gap, Refusal, Sharing, Spec};
use gang_timetable::Backend;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, de};

use self::hours::WorkingHours;
use crate::{groups::location::Leave, history::Retention};

/// Where the configuration is, unless the command line names another file.
pub const FILE: &str = "/etc/gangd/gangd.toml";

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

/// The file, as written. Absent keys keep their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Length of a slice, such as "20ms"; 200us to 60s.
    slice: Option<String>,
    /// Length and period of the gaps, such as "500us/10ms"; "none" for none, "auto" for those that
    /// hold unless this is set.
    gap: Option<String>,
    /// "rt", "weight", "freeze" or "signal"; the best that can be used unless it is set.
    backend: Option<String>,
    /// Whether gangs out of slot run in the holes of those in slot.
    fill: Option<bool>,
    /// Whether it is measured which gangs run together, and what keeps them from it.
    measure: Option<bool>,
    /// Whether gangs are left to Linux in their slots while nobody else wants a CPU.
    uncontended_passthrough: Option<bool>,
    /// The share of the machine that all gangs together may take, 0.001 to 1.
    gang_share_max: Option<f64>,
    /// The share of its time that measuring may cost a job of policy auto, 0.001 to 0.5.
    proof_cost: Option<f64>,
    /// Where jobs have their scratch files: its free space is what they are promised of.
    scratch_dir: Option<PathBuf>,
    /// A job that used no CPU for this long counts as idle, such as "10min".
    idle_after: Option<String>,
    /// One that used none for this long is forgotten: its processes run on without gangd.
    forget_after: Option<String>,
    /// Members of this group of users are administrators, as root is.
    admin_group: Option<String>,
    /// Whether users see their own jobs alone.
    private: Option<bool>,
    /// Whether the status file is written, beside the socket.
    status_file: Option<bool>,
    classes: classes::File,
    working_hours: Option<Hours>,
    history: HistoryFile,
    cgroups: CgroupsFile,
    cluster: cluster::File,
    clock: cluster::ClockFile,
    slurm: SlurmFile,
    users: users::File,
    groups: BTreeMap<String, users::Share>,
    limits: Limits,
}

/// The use that is made of the cgroups of programs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CgroupsFile {
    /// Whether jobs leave the groups in which they were called: "never", "unconfined", "always".
    leave: Leave,
}

/// The jobs of Slurm, as they are accounted for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SlurmFile {
    /// Whether Slurm hears of time out of slot, and limits on wall-clock time are stretched by it.
    account_time: bool,
}

/// Where ended jobs are kept, and how many.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryFile {
    enabled: Option<bool>,
    /// The database.
    path: Option<PathBuf>,
    keep_jobs: Option<u64>,
    keep_days: Option<u64>,
}

/// Working hours, as written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hours {
    days: Vec<String>,
    from: String,
    to: String,
    /// Such as "Europe/Berlin"; that of the machine unless it is set.
    time_zone: Option<String>,
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

impl Settings {
    /// Reads the file, where there is one, and lets the command line win over it.
    ///
    /// The default file may be absent; one that was named may not.
    pub fn read(named: Option<&Path>, overrides: &Overrides) -> anyhow::Result<Settings> {
        let path = named.map_or_else(|| PathBuf::from(FILE), Path::to_owned);
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => String::new(),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let of_file = || format!("in {}", path.display());
        let file = parse(&text).with_context(of_file)?;
        // A mistake in the file is reported of the file, any other one of the command line.
        Settings::new(&file, &Overrides::default())
            .map_err(|error| match line_of(&text, &format!("{error:#}")) {
                Some(line) => error.context(format!("line {line}")),
                None => error,
            })
            .with_context(of_file)?;
        let settings = Settings::new(&file, overrides)?;
        Ok(Settings { accounts: users::accounts(), ..settings })
    }

    fn new(file: &File, overrides: &Overrides) -> anyhow::Result<Settings> {
        let limits = file.limits.clone();
        let mut settings = Settings { limits, ..Settings::default() };
        if let Some(dir) = &file.scratch_dir {
            ensure!(dir.is_dir(), "scratch_dir: {} is not a directory", dir.display());
            settings.scratch_dir.clone_from(dir);
        }
        for (key, text, time) in [
            ("idle_after", &file.idle_after, &mut settings.idle_after),
            ("forget_after", &file.forget_after, &mut settings.forget_after),
        ] {
            if let Some(text) = text {
                *time = duration(text).map_err(anyhow::Error::msg).context(key)?;
            }
        }
        let (idle_after, forget_after) = (settings.idle_after, settings.forget_after);
        if idle_after > forget_after {
            // Of the key that is in the file.
            if file.forget_after.is_none() {
                bail!("idle_after: {idle_after:?} is more than forget_after, {forget_after:?}");
            }
            bail!("forget_after: {forget_after:?} is less than idle_after, {idle_after:?}");
        }
        if let Some(name) = &file.admin_group {
            let group = nix::unistd::Group::from_name(name)
                .with_context(|| format!("admin_group: cannot look up the group {name:?}"))?;
            let group =
                group.with_context(|| format!("admin_group: there is no group {name:?}"))?;
            settings.admin_gid = Some(group.gid.as_raw());
        }
        settings.measure = overrides.measure.or(file.measure).unwrap_or(true);
        settings.uncontended_passthrough =
            overrides.uncontended_passthrough.or(file.uncontended_passthrough).unwrap_or(true);
        settings.private = file.private.unwrap_or(false);
        settings.status_file = file.status_file;
        settings.leave = file.cgroups.leave;
        settings.cluster = file.cluster.read()?;
        settings.clock = file.clock.read()?;
        settings.slurm_account_time = file.slurm.account_time;
        settings.history_enabled = file.history.enabled.unwrap_or(true);
        if file.history.path.as_deref() == Some(Path::new("none")) {
            bail!("history.path: \"none\" is not a file; enabled = false keeps no history");
        }
        settings.history.clone_from(&file.history.path);
        let kept = &mut settings.retention;
        kept.jobs = file.history.keep_jobs.unwrap_or(kept.jobs);
        kept.days = file.history.keep_days.unwrap_or(kept.days);
        for (key, value, most) in
            [("keep_jobs", kept.jobs, 1_000_000_000), ("keep_days", kept.days, 36_500)]
        {
            ensure!((1..=most).contains(&value), "history.{key}: {value} is not 1 to {most}");
        }
        settings.working_hours = file.working_hours.as_ref().map(working_hours).transpose()?;
        let config = &mut settings.schedule;
        if let Some(slice) = &file.slice {
            config.slice_ns =
                duration(slice).map_err(anyhow::Error::msg).context("slice")?.as_nanos() as u64;
        }
        if let Some(fill) = file.fill {
            config.fill = fill;
        }
        if let Some(name) = &file.backend {
            settings.backend = Some(Backend::from_name(name).with_context(|| {
                format!("backend: {name:?} is none of rt, weight, freeze, signal")
            })?);
        }
        if let Some(slice) = overrides.slice {
            config.slice_ns = slice.as_nanos() as u64;
        }
        let of_file = file.gap.as_deref().map(gap).transpose();
        let of_file = of_file.map_err(anyhow::Error::msg).context("gap")?;
        match overrides.gap.or(of_file).unwrap_or(GapSetting::Auto) {
            GapSetting::Fixed(gap) => (config.gap, settings.adapt_gaps) = (gap, false),
            GapSetting::Auto => {
                config.gap = gap_of_slice(config.slice_ns);
                settings.adapt_gaps = can_halve(config);
            }
        }
        config.fill = overrides.fill.unwrap_or(config.fill);
        settings.backend = overrides.backend.or(settings.backend);
        if let Some(share) = overrides.gang_share_max.or(file.gang_share_max) {
            ensure!((0.001..=1.0).contains(&share), "gang_share_max: {share} is not 0.001 to 1");
            config.cap_permille = (share * 1000.0).round() as u32;
        }
        if let Some(cost) = file.proof_cost {
            ensure!((0.001..=0.5).contains(&cost), "proof_cost: {cost} is not 0.001 to 0.5");
            settings.proof_cost = cost;
        }
        (config.sharing, config.caps) = file.users.read(&file.groups)?;
        config.validate()?;
        let has_hours = settings.working_hours.is_some();
        let (inside, outside) = file.classes.read(config.slice_ns, has_hours)?;
        (config.class_weights, config.class_slices) = (inside.weights, inside.slices);
        config.validate().map_err(|refusal| of_class(&refusal, "weight"))?;
        Config { class_weights: outside.weights, ..Config::default() }
            .validate()
            .map_err(|refusal| of_class(&refusal, "weight_outside"))?;
        settings.outside = outside;
        let Limits {
            jobs,
            jobs_per_user,
            clients,
            clients_per_user,
            cpus_per_user,
            weight,
            switching_percent,
            message_timeout,
        } = settings.limits;
        for (key, value, most) in [
            ("jobs", jobs, 10_000),
            ("jobs_per_user", jobs_per_user, 10_000),
            ("clients", clients, 1_000),
            ("clients_per_user", clients_per_user, 1_000),
            ("cpus_per_user", cpus_per_user, 1_000_000),
            ("weight", weight as usize, Spec::MAX_WEIGHT as usize),
            ("switching_percent", switching_percent as usize, 50),
        ] {
            if !(1..=most).contains(&value) {
                bail!("limits.{key}: {value} is not 1 to {most}");
            }
        }
        let accepted = Duration::from_millis(100)..=Duration::from_secs(600);
        ensure!(
            accepted.contains(&message_timeout),
            "limits.message_timeout: {message_timeout:?} is not 100ms to 10min"
        );
        Ok(settings)
    }
}

/// The policy's error on a class's weight, with the name that the file has for it.
fn of_class(refusal: &Refusal, key: &str) -> anyhow::Error {
    let Refusal::Config { key: name, value, least, most } = refusal else {
        return anyhow::anyhow!("{refusal}");
    };
    let Some(class) = name.strip_prefix("class_weights.") else {
        return anyhow::anyhow!("{refusal}");
    };
    anyhow::anyhow!("classes.{class}.{key}: {value} is not {least} to {most}")
}

fn working_hours(hours: &Hours) -> anyhow::Result<WorkingHours> {
    let key = |name: &'static str| move |e| anyhow::anyhow!("working_hours.{name}: {e}");
    let days = hours.days.iter().map(|text| hours::day(text)).collect::<Result<Vec<_>, _>>();
    let zone = match &hours.time_zone {
        Some(name) => {
            TimeZone::get(name).map_err(|e| anyhow::anyhow!("working_hours.time_zone: {e}"))?
        }
        None => TimeZone::system(),
    };
    let (from, to) = (hours::time(&hours.from), hours::time(&hours.to));
    let days = days.map_err(key("days"))?;
    let (from, to) = (from.map_err(key("from"))?, to.map_err(key("to"))?);
    ensure!(!days.is_empty(), "working_hours.days: name at least one");
    ensure!(from != to, "working_hours: from and to are the same");
    Ok(WorkingHours { days, from, to, zone })
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

fn parse(text: &str) -> anyhow::Result<File> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        let message = error.message();
        anyhow::anyhow!("line {line}: {message}")
    })
}

/// The line of the key that a message begins with; the policy names some keys with their units.
fn line_of(text: &str, message: &str) -> Option<usize> {
    let name = message.split([':', ' ']).next()?.trim_end_matches("_ns");
    let mut table = String::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            table = format!("{}.", head.0.trim());
        } else if let Some((key, _)) = line.split_once('=') {
            let key = format!("{table}{}", key.trim());
            let is_below = |of: &str, name: &str| {
                name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if is_below(name, &key) || is_below(&key, name) {
                return Some(number + 1);
            }
        }
    }
    None
}

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
