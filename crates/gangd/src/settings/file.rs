//! The configuration file, as written, and the settings that follow from it and the command line.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use gang_schedule::{Config, Refusal, Spec};
use gang_timetable::Backend;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::{
    FILE, GapSetting, Leave, Limits, Overrides, Settings, can_halve, classes, cluster, duration,
    gap, gap_of_slice,
    hours::{self, WorkingHours},
    users,
};

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
    /// Whether it is measured how far gangs are coscheduled, and what keeps them from it.
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
    net: NetFile,
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

/// Messages within gangs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NetFile {
    /// A flush of a gang's ports that takes longer has failed, such as "200us"; 20us to 5ms.
    flush_timeout: Option<String>,
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

    pub(super) fn new(file: &File, overrides: &Overrides) -> anyhow::Result<Settings> {
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
        if let Some(text) = &file.net.flush_timeout {
            let timeout =
                duration(text).map_err(anyhow::Error::msg).context("net.flush_timeout")?;
            let accepted = Duration::from_micros(20)..=Duration::from_millis(5);
            ensure!(accepted.contains(&timeout), "net.flush_timeout: {text} is not 20us to 5ms");
            settings.flush_timeout = timeout;
        }
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

pub(super) fn parse(text: &str) -> anyhow::Result<File> {
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
