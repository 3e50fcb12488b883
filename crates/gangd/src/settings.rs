//! The settings of the daemon: defaults, the configuration file, the command line, in that order.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use gang_engine::backend::Backend;
use gang_schedule::{Config, Gap, Refusal};
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, de};

use crate::{
    classes::{self, Terms},
    history::Retention,
    hours::{self, WorkingHours},
};

/// Where the configuration is, unless the command line names another file.
pub const FILE: &str = "/etc/gangd/gangd.toml";

/// What clients may ask of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Jobs at a time, 1 to 10,000.
    pub jobs: usize,
    /// Jobs at a time of one user other than root, 1 to 10,000.
    pub jobs_per_user: usize,
    /// Connections at a time, 1 to 1,000.
    pub clients: usize,
    /// Connections at a time of one user other than root, 1 to 1,000.
    pub clients_per_user: usize,
    /// CPUs that the jobs of one user other than root ask for together, 1 to 1,000,000.
    pub cpus_per_user: usize,
    /// A message must arrive whole, and an answer be taken, within this time; 100 ms to 10 min.
    #[serde(deserialize_with = "time")]
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            jobs: 4096,
            jobs_per_user: 1024,
            clients: 256,
            clients_per_user: 64,
            cpus_per_user: 1_000_000,
            patience: Duration::from_secs(10),
        }
    }
}

/// The file, as written. Absent keys keep their defaults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Length of a slice, such as "10ms"; 200us to 60s.
    slice: Option<String>,
    /// Length and period of the gaps, such as "500us/10ms"; "none" for none. Unless it is set,
    /// [`gap_of_slice`].
    gap: Option<String>,
    /// "rt", "weight", "freeze" or "signal"; the best that can be used unless it is set.
    backend: Option<String>,
    /// Whether gangs out of slot run in the holes of those in slot.
    fill: Option<bool>,
    /// Whether it is measured which gangs run together, and who keeps them from it.
    measure: Option<bool>,
    /// What all gangs together may take of the machine, 0.001 to 1.
    cap: Option<f64>,
    /// What it may cost a job of policy auto to be measured, as a share of its time, 0.001 to 0.5.
    proof_cost: Option<f64>,
    /// Where jobs have their scratch files: its free space is what they are promised of.
    disk: Option<PathBuf>,
    /// A job that used no CPU for this long counts as idle, such as "10min".
    idle_after: Option<String>,
    /// One that used none for this long leaves: its processes run on without gangd.
    leave_after: Option<String>,
    /// Members of this group of users are administrators, as root is.
    admin_group: Option<String>,
    /// Whether the status file is written, beside the socket.
    status_file: Option<bool>,
    classes: classes::File,
    working_hours: Option<Hours>,
    history: HistoryFile,
    limits: Limits,
}

/// Where ended jobs are kept, and how many.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryFile {
    /// The database; "none" for none.
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
    /// `None`: the best that can be used.
    pub backend: Option<Backend>,
    pub measure: bool,
    /// The share of its time that it may cost a job of policy auto to be measured.
    pub proof_cost: f64,
    pub disk: PathBuf,
    pub idle_after: Duration,
    pub leave_after: Duration,
    /// The number of the group whose members are administrators.
    pub admin_gid: Option<u32>,
    pub working_hours: Option<WorkingHours>,
    /// What classes weigh and ask for outside of them; inside it is in `schedule`.
    pub outside: Terms,
    /// `None`: where the daemon is the machine's.
    pub status_file: Option<bool>,
    /// `None`: the usual place, where the daemon is the machine's.
    pub history: Option<PathBuf>,
    pub retention: Retention,
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            schedule: Config::default(),
            backend: None,
            measure: true,
            proof_cost: 0.01,
            disk: "/tmp".into(),
            idle_after: Duration::from_secs(600),
            leave_after: Duration::from_secs(7200),
            admin_gid: None,
            working_hours: None,
            outside: Terms::default(),
            status_file: None,
            history: None,
            retention: Retention::default(),
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// What of `new` differs and takes effect only in another daemon.
    pub fn what_needs_a_restart(&self, new: &Settings) -> Vec<&'static str> {
        let (old, new_plan) = (&self.schedule, &new.schedule);
        let differs = [
            ("slice", old.slice_ns != new_plan.slice_ns),
            ("gap", old.gap != new_plan.gap),
            ("fill", old.fill != new_plan.fill),
            ("cap", old.cap_permille != new_plan.cap_permille),
            ("backend", self.backend != new.backend),
            ("measure", self.measure != new.measure),
            ("status_file", self.status_file != new.status_file),
            ("history", (&self.history, &self.retention) != (&new.history, &new.retention)),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// What the command line says; what it does not say is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    pub slice: Option<Duration>,
    pub gap: Option<Gap>,
    pub backend: Option<Backend>,
    pub fill: Option<bool>,
    pub measure: Option<bool>,
    pub cap: Option<f64>,
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
        // What is wrong with the file is said of the file, and of the command line otherwise.
        Settings::new(&file, &Overrides::default())
            .map_err(|error| match line_of(&text, &format!("{error:#}")) {
                Some(line) => error.context(format!("line {line}")),
                None => error,
            })
            .with_context(of_file)?;
        Settings::new(&file, overrides)
    }

    fn new(file: &File, overrides: &Overrides) -> anyhow::Result<Settings> {
        let mut settings = Settings { limits: file.limits.clone(), ..Settings::default() };
        if let Some(disk) = &file.disk {
            ensure!(disk.is_dir(), "disk: {} is not a directory", disk.display());
            settings.disk.clone_from(disk);
        }
        for (key, text, time) in [
            ("idle_after", &file.idle_after, &mut settings.idle_after),
            ("leave_after", &file.leave_after, &mut settings.leave_after),
        ] {
            if let Some(text) = text {
                *time = duration(text).map_err(anyhow::Error::msg).context(key)?;
            }
        }
        let (idle_after, leave_after) = (settings.idle_after, settings.leave_after);
        if idle_after > leave_after {
            // Of the key that is in the file.
            if file.leave_after.is_none() {
                bail!("idle_after: {idle_after:?} is more than leave_after, {leave_after:?}");
            }
            bail!("leave_after: {leave_after:?} is less than idle_after, {idle_after:?}");
        }
        if let Some(name) = &file.admin_group {
            let group = nix::unistd::Group::from_name(name)
                .with_context(|| format!("admin_group: cannot look up the group {name:?}"))?;
            let group =
                group.with_context(|| format!("admin_group: there is no group {name:?}"))?;
            settings.admin_gid = Some(group.gid.as_raw());
        }
        settings.measure = overrides.measure.or(file.measure).unwrap_or(true);
        settings.status_file = file.status_file;
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
        let gap = overrides.gap.or(of_file);
        config.gap = gap.unwrap_or_else(|| gap_of_slice(config.slice_ns));
        config.fill = overrides.fill.unwrap_or(config.fill);
        settings.backend = overrides.backend.or(settings.backend);
        if let Some(cap) = overrides.cap.or(file.cap) {
            ensure!((0.001..=1.0).contains(&cap), "cap: {cap} is not 0.001 to 1");
            config.cap_permille = (cap * 1000.0).round() as u32;
        }
        if let Some(cost) = file.proof_cost {
            ensure!((0.001..=0.5).contains(&cost), "proof_cost: {cost} is not 0.001 to 0.5");
            settings.proof_cost = cost;
        }
        config.validate()?;
        let has_hours = settings.working_hours.is_some();
        let (inside, outside) = file.classes.read(config.slice_ns, has_hours)?;
        (config.class_weights, config.class_slices) = (inside.weights, inside.slices);
        config.validate().map_err(|refusal| of_class(&refusal, "weight"))?;
        Config { class_weights: outside.weights, ..Config::default() }
            .validate()
            .map_err(|refusal| of_class(&refusal, "weight_outside"))?;
        settings.outside = outside;
        let Limits { jobs, jobs_per_user, clients, clients_per_user, cpus_per_user, patience } =
            settings.limits;
        for (key, value, most) in [
            ("jobs", jobs, 10_000),
            ("jobs_per_user", jobs_per_user, 10_000),
            ("clients", clients, 1_000),
            ("clients_per_user", clients_per_user, 1_000),
            ("cpus_per_user", cpus_per_user, 1_000_000),
        ] {
            if !(1..=most).contains(&value) {
                bail!("limits.{key}: {value} is not 1 to {most}");
            }
        }
        let accepted = Duration::from_millis(100)..=Duration::from_secs(600);
        ensure!(
            accepted.contains(&patience),
            "limits.patience: {patience:?} is not 100ms to 10min"
        );
        Ok(settings)
    }
}

/// What the policy says of a class's weight, with the name that the file has for it.
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

/// A twentieth of the time, at the end of every slice; of short slices, once in 10 ms, which costs
/// less; of long ones, every 20 ms, which is what others then wait at most.
fn gap_of_slice(slice_ns: u64) -> Gap {
    let period_ns = slice_ns.clamp(10_000_000, 20_000_000);
    Gap { period_ns, length_ns: period_ns / 20 }
}

fn parse(text: &str) -> anyhow::Result<File> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        anyhow::anyhow!("line {line}: {}", error.message())
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

/// Reads gaps such as `500us/10ms`: the last 500 µs of every 10 ms of the clock; or `none`.
pub fn gap(text: &str) -> Result<Gap, String> {
    if text == "none" || text == "0" {
        return Ok(Gap::NONE);
    }
    let (length, period) = text
        .split_once('/')
        .ok_or_else(|| format!("{text:?} is not a gap such as 500us/10ms, or none"))?;
    let ns = |text| duration(text).map(|time| time.as_nanos() as u64);
    Ok(Gap { length_ns: ns(length)?, period_ns: ns(period)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual;

    fn settings(text: &str) -> anyhow::Result<Settings> {
        Settings::new(&parse(text)?, &Overrides::default())
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(settings("").unwrap(), Settings::default());
    }

    #[test]
    fn every_key_is_read() {
        let read = settings(
            "slice = '20ms'\ngap = '1ms/20ms'\nbackend = 'weight'\nfill = false\nmeasure = false\ncap = 0.8\n[limits]\njobs = 7\n",
        )
        .unwrap();
        assert_eq!(read.schedule.slice_ns, 20_000_000);
        assert_eq!(read.schedule.gap, Gap { length_ns: 1_000_000, period_ns: 20_000_000 });
        assert_eq!(read.backend, Some(Backend::Weight));
        assert!(!read.schedule.fill && !read.measure);
        assert_eq!(read.schedule.cap_permille, 800);
        assert_eq!(read.limits, Limits { jobs: 7, ..Limits::default() });
    }

    #[test]
    fn the_example_is_what_holds_without_a_file() {
        let example = include_str!("../../../etc/gangd.toml");
        let keys = example.lines().filter_map(|line| {
            manual::setting(line.strip_prefix("# ")?).map(|(setting, _)| setting)
        });
        // Nobody has this group.
        let text = keys.filter(|line| !line.starts_with("admin_group")).collect::<Vec<_>>();
        let read = settings(&text.join("\n")).unwrap();
        assert!(read.working_hours.is_some() && read.history.is_some());
        let usual = Settings {
            working_hours: None,
            history: None,
            status_file: None,
            backend: None,
            ..read
        };
        assert_eq!(usual, Settings::default());
    }

    #[test]
    fn the_example_has_every_key() {
        let example = include_str!("../../../etc/gangd.toml");
        for table in ["", "[limits]", "[history]", "[classes.batch]", "[working_hours]"] {
            // The error names all keys that would be right.
            let wrong = parse(&format!("{table}\nnosuchkey = 1")).unwrap_err().to_string();
            let (_, keys) =
                wrong.split_once("expected one of").or(wrong.split_once("expected")).unwrap();
            for key in keys.split('`').skip(1).step_by(2) {
                let is_there = example.contains(&format!("# {key} = "))
                    || example.contains(&format!("# [{key}"))
                    || example.contains(&format!(".{key}]"));
                assert!(is_there, "{table} {key}");
            }
        }
    }

    #[test]
    fn classes_weigh_something_else_outside_working_hours() {
        let read = settings(
            "idle_after = '3s'\nleave_after = '1h'\n[classes.interactive]\nweight = 400\n\
             weight_outside = 50\n[working_hours]\ndays = ['mon']\nfrom = '08:00'\nto = '18:00'\n\
             time_zone = 'Europe/Berlin'\n",
        )
        .unwrap();
        let inside = read.schedule.class_weights;
        assert_eq!((inside.interactive, inside.batch), (400, 100));
        let outside = read.outside.weights;
        assert_eq!((outside.interactive, outside.batch), (50, 100));
        assert_eq!(read.idle_after, Duration::from_secs(3));
        assert_eq!(read.leave_after, Duration::from_secs(3600));
        assert!(read.working_hours.is_some());
    }

    #[test]
    fn the_command_line_wins() {
        let file = parse("slice = '20ms'\ncap = 0.5").unwrap();
        let slice = Some(Duration::from_millis(5));
        let overrides = Overrides { slice, cap: Some(0.9), ..Overrides::default() };
        let read = Settings::new(&file, &overrides).unwrap();
        assert_eq!((read.schedule.slice_ns, read.schedule.cap_permille), (5_000_000, 900));
    }

    #[test]
    fn mistakes_name_their_key_and_line() {
        for (text, expected) in [
            ("slice = '10'", "slice"),
            ("slice = '1ns'", "slice_ns"),
            ("gap = '9ms/10ms'", "gap.length_ns"),
            ("backend = 'magic'", "none of rt, weight"),
            ("cap = 0", "cap"),
            ("proof_cost = 1", "proof_cost: 1 is not 0.001 to 0.5"),
            ("\n\nslices = 3", "line 3: unknown field"),
            ("[limits]\njobs = 0", "limits.jobs: 0 is not 1 to 10000"),
            ("slice = ", "line 1"),
            ("[history]\nkeep_days = 0", "history.keep_days: 0 is not 1 to 36500"),
            ("leave_after = '1s'", "leave_after: 1s is less than idle_after"),
            ("admin_group = 'nosuchgroup'", "admin_group: there is no group"),
            ("[classes.batch]\nweight = 0", "classes.batch.weight: 0 is not 1 to 10000"),
            ("[classes.batch]\nweight_outside = 5", "there are no [working_hours]"),
            ("slice = '30ms'\n[classes.batch]\nslice = '100ms'", "whole slices of 30ms"),
            ("[classes.royal]\nweight = 1", "line 1: unknown field `royal`"),
            ("[working_hours]\ndays = ['mon']\nfrom = '8'\nto = '9:00'", "working_hours.from"),
            ("[working_hours]\ndays = []\nfrom = '8:00'\nto = '9:00'", "working_hours.days"),
            (
                "[working_hours]\ndays = ['mon']\nfrom = '8:00'\nto = '9:00'\ntime_zone = 'X/Y'",
                "working_hours.time_zone",
            ),
        ] {
            let message = format!("{:#}", settings(text).unwrap_err());
            assert!(message.contains(expected), "{text:?} gave {message:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gangd.toml");
        for (text, expected) in [
            ("\nslice = '10'", "line 2: slice: \"10\" is not a time"),
            ("# gap = 1\n\ngap = '9ms/10ms'", "line 3: gap.length_ns"),
            ("cap = 0.5\n[classes.batch]\n weight = 0", "line 3: classes.batch.weight: 0"),
            ("cap = 0.5\n[limits]\njobs_per_user = 7\njobs = 0", "line 4: limits.jobs"),
            ("fill = true\nslices = 3", "line 2: unknown field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Settings::read(Some(&path), &Overrides::default()).unwrap_err();
            let message = format!("{error:#}");
            let begin = format!("in {}: {expected}", path.display());
            assert!(message.starts_with(&begin), "{text:?} gave {message:?}");
        }
        std::fs::write(&path, "").unwrap();
        let slice = Some(Duration::from_nanos(1));
        let error = Settings::read(Some(&path), &Overrides { slice, ..Overrides::default() });
        assert!(!format!("{:#}", error.unwrap_err()).contains("gangd.toml"));
    }

    #[test]
    fn whichever_key_is_wrong_its_line_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gangd.toml");
        const HOURS: &str = "days = ['mon']\nfrom = '8:00'\nto = '9:00'\n";
        let of_hours = |key: &str, wrong: &str| {
            let lines = HOURS.lines().filter(|line| !line.starts_with(key));
            format!("[working_hours]\n{}\n{key} = {wrong}", lines.collect::<Vec<_>>().join("\n"))
        };
        let mut wrong: Vec<String> = [
            "slice = '1w'",
            "slice = '1ns'",
            "gap = '1ms'",
            "gap = '9ms/10ms'",
            "backend = 'magic'",
            "fill = 3",
            "measure = 'yes'",
            "cap = 2",
            "proof_cost = 0.6",
            "disk = '/nosuchdirectory'",
            "idle_after = '3h'",
            "idle_after = 'soon'",
            "leave_after = '1s'",
            "leave_after = 'late'",
            "admin_group = 'nosuchgroup'",
            "status_file = 'here'",
            "[history]\npath = 7",
            "[history]\nkeep_jobs = 0",
            "[history]\nkeep_days = 36501",
            "[limits]\njobs = 10001",
            "[limits]\njobs_per_user = 0",
            "[limits]\nclients = 1001",
            "[limits]\nclients_per_user = -1",
            "[limits]\ncpus_per_user = 1000001",
            "[limits]\npatience = '1'",
            "[limits]\npatience = '1ms'",
            "[limits]\nnosuchlimit = 1",
            "[classes.express]\nweight = 1",
            "[classes.interactive]\nslice = '10ms'\nweight = 0",
            "[classes.batch]\nweight = 10001",
            "[classes.batch]\nweight_outside = 50",
            "[classes.standby]\nslice = '15ms'",
            "[classes.batch]\nslice_outside = '20ms'",
        ]
        .map(str::to_owned)
        .into();
        for (key, value) in
            [("days", "['someday']"), ("from", "'8'"), ("to", "'25:00'"), ("time_zone", "'X/Y'")]
        {
            wrong.push(of_hours(key, value));
        }
        for outside in ["weight = 50\nweight_outside = 0", "slice_outside = '1s 1'"] {
            wrong.push(format!("[working_hours]\n{HOURS}[classes.interactive]\n{outside}"));
        }
        for text in wrong {
            // What is wrong is last.
            let text = format!("# slice = '10ms'\n\n{text}\n");
            std::fs::write(&path, &text).unwrap();
            let error = Settings::read(Some(&path), &Overrides::default()).unwrap_err();
            let (message, line) = (format!("{error:#}"), text.lines().count());
            let expected = format!("in {}: line {line}: ", path.display());
            assert!(message.starts_with(&expected), "{text:?} gave {message:?}");
        }
    }

    #[test]
    fn gaps_follow_the_slice_unless_they_are_set() {
        let gap = |text| settings(text).unwrap().schedule.gap;
        let ms =
            |period: u64, length: u64| Gap { period_ns: period * 1000, length_ns: length * 1000 };
        assert_eq!(gap("slice = '1ms'"), ms(10_000, 500));
        assert_eq!(gap("slice = '20ms'"), ms(20_000, 1000));
        assert_eq!(gap("slice = '1s'"), ms(20_000, 1000));
        assert_eq!(gap("slice = '1s'\ngap = '500us/10ms'"), ms(10_000, 500));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(gap("none"), Ok(Gap::NONE));
        for wrong in ["", "5", "ms", "-1ms", "1w", "1e400s", "infs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
