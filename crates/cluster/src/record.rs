//! The values of the registry's keys: JSON, each with its version.
//!
//! A value is read whole or not at all. One of a newer version, one that is cut short, and one that
//! contradicts another are a [`Fault`], which names what is wrong; nothing else of the registry is
//! lost by it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use gang_schedule::matrix::{HostId, MAX_ROWS, Placement, Rows, Span};
use gang_schedule::{Class, Config, CpuSet, JobId, Sharing, Spec, UserId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::keys::FIRST_JOB;

/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// The kernel's number of a CPU is below it.
pub const NUMBER_MAX: u32 = 65_536;

/// A host's number is below it.
pub const HOSTS_MAX: u32 = 16_384;

/// Why a value is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(
        "it is of version {version}, and this gangd reads {VERSION} at most: update gangd here"
    )]
    Newer { version: u64 },
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it contradicts others: {0}")]
    Contradicts(String),
    #[error("it has {bytes} bytes, more than the {max} that are read")]
    TooLong { bytes: usize, max: usize },
}

/// The rule by which a host recognises the processes of a job's owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Users {
    /// By the name of the login.
    #[default]
    Name,
    /// By the number: all hosts have the same ones.
    Uid,
}

impl Users {
    /// The account that a user has in the matrix: the same on all hosts. Where hosts know users by
    /// their names, it is a hash (FNV-1a) of the name; two whose hashes are the same share.
    pub fn account(self, uid: u32, name: &str) -> UserId {
        let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        match self {
            Users::Uid => UserId(uid),
            Users::Name => UserId(name.bytes().fold(0x811c_9dc5, mix)),
        }
    }

    /// The account that pays for a job.
    pub fn account_of(self, owner: &Owner) -> UserId {
        match &owner.payer {
            Some(payer) => self.account(payer.uid, &payer.name),
            None => self.account(owner.uid, &owner.name),
        }
    }
}

/// The settings of a cluster, the same for all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// Random, made with the cluster: another cluster of the same name has another one.
    pub id: String,
    pub slice_ns: u64,
    /// Rows of the least frame.
    pub rows: u32,
    /// Jobs share by program, or else users share and then the jobs of each.
    pub by_program: bool,
    pub users: Users,
    /// A host that was away for this long without a break is lost: a daemon that starts again, or
    /// an etcd that was away, takes less.
    pub lost_after_ms: u64,
}

impl ClusterSettings {
    /// The settings of the policy that these are.
    pub fn config(&self) -> Config {
        let sharing = match self.by_program {
            true => Sharing::ByProgram,
            false => Sharing::ByUser(BTreeMap::new()),
        };
        Config { slice_ns: self.slice_ns, sharing, ..Config::default() }
    }
}

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its place among the columns.
    pub number: u32,
    pub cpus: u32,
    /// The numbers that its kernel gives the CPUs of its columns, in their order: `0,2,1,3`.
    pub numbers: String,
    /// Its machine id: two hosts of one name differ in it.
    pub machine: String,
    /// The same for hosts that share one kernel, and so one clock.
    pub boot: String,
}

/// Numbers of CPUs, as [`Host::numbers`] has them.
pub fn numbers(cpus: impl IntoIterator<Item = u32>) -> String {
    cpus.into_iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
}

impl Host {
    /// The columns of some CPUs, by the numbers of the host's kernel.
    pub fn columns(&self, cpus: &CpuSet) -> CpuSet {
        let numbers = self.numbers.split(',').map(|number| number.parse().ok());
        let is_one = |(_, number): &(u32, Option<u32>)| number.is_some_and(|it| cpus.contains(it));
        (0..self.cpus).zip(numbers).filter(is_one).map(|(column, _)| column).collect()
    }
}

/// The quality of a host's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// `chrony`, `adjtimex` or `ptp`.
    pub source: String,
    pub offset_ns: i64,
    /// The clock is nearer to UTC than this.
    pub bound_ns: u64,
}

/// A host that is alive; the key goes with its lease. Only the host itself writes it, so that more
/// fields of another version are no fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The revision up to which the host has read the registry.
    pub read: u64,
    pub clock: Clock,
    /// Runnable threads beside spanning jobs, and of which accounts ([`Users::account`]).
    pub threads: u32,
    pub of_users: BTreeMap<u32, u32>,
    /// The longest that a change took lately, from its commit until this host could follow it.
    pub took_ns: u64,
    /// Why the host follows no spanning rows, if so.
    pub unwilling: Option<String>,
    /// The spanning jobs that have processes there.
    pub parts: BTreeSet<u64>,
    /// Why spanning jobs are not there as they are wanted: some of them ([`Alive::missing_of`]).
    #[serde(default)]
    pub missing: BTreeMap<u64, String>,
    /// Why nothing else is known of the host: its daemon is of another version, say.
    #[serde(skip)]
    pub fault: Option<Fault>,
}

/// The most reasons that a host tells others, the most characters of each, and the most bytes of
/// all.
const MISSING_MAX: usize = 64;
const REASON_MAX: usize = 200;
const REASONS_BYTES_MAX: usize = 24 << 10;
/// The most bytes of what a host says of itself.
const ALIVE_BYTES_MAX: usize = 256 << 10;

impl Alive {
    /// The value of a host's key. One that cannot be read says that the host is alive, and no more:
    /// it takes no part in new jobs, and may have a part of any that is there.
    pub fn read(text: &str) -> Alive {
        let (bytes, max) = (text.len(), ALIVE_BYTES_MAX);
        let read = if bytes > max { Err(Fault::TooLong { bytes, max }) } else { decode(text) };
        read.unwrap_or_else(|fault| Alive {
            unwilling: Some(format!("what it says of itself is not used here: {fault}")),
            fault: Some(fault),
            ..Alive::default()
        })
    }

    /// Whether the host has processes of a job, or may have some.
    pub fn may_have(&self, job: JobId) -> bool {
        self.parts.contains(&job.0) || self.fault.is_some()
    }

    /// Reasons for others to read, within bounds.
    pub fn missing_of(reasons: &BTreeMap<JobId, String>) -> BTreeMap<u64, String> {
        let short = |(job, why): (&JobId, &String)| (job.0, why.chars().take(REASON_MAX).collect());
        let mut bytes = 0;
        let fits = |(_, why): &(u64, String)| {
            // As JSON: a character may take six bytes.
            bytes += serde_json::to_string(why).map_or(0, |it| it.len());
            bytes <= REASONS_BYTES_MAX
        };
        reasons.iter().take(MISSING_MAX).map(short).take_while(fits).collect()
    }
}

/// The fate of a job that loses a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnHostLost {
    /// It goes on as it is, and says which host is lost.
    #[default]
    Mark,
    /// It stands still on all hosts until its owner resumes it.
    Suspend,
    /// It loses its entries, and Linux alone schedules it.
    Release,
}

/// The owner of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    pub uid: u32,
    pub name: String,
    /// Root registered the job for its owner.
    pub by_root: bool,
    /// The user on whose account it is, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payer: Option<Payer>,
}

/// The user on whose account jobs of another one are: of a number of a user namespace, the person
/// to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payer {
    pub uid: u32,
    pub name: String,
}

/// A job, as it was registered. Hosts believe it because only the host where it was registered can
/// write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub name: String,
    pub owner: Owner,
    pub class: String,
    pub weight: u32,
    /// CPUs by name of host.
    pub cpus: BTreeMap<String, u32>,
    /// Lists of the CPUs among which it has these, on hosts where its processes are bound: by the
    /// numbers of the host's kernel.
    pub allowed: BTreeMap<String, String>,
    /// Processes that come on each host before the first slot, by name of host. The job waits for
    /// none on a host that is not listed.
    pub ranks: BTreeMap<String, u32>,
    /// The launcher's name of the program: its owner has one job of that name at a time.
    pub launched_as: Option<String>,
    pub on_host_lost: OnHostLost,
    pub registered_at_ns: u64,
    /// Given by the host, and never again: the host knows its own job by it, also after an answer
    /// that did not come, and after a registry was restored that gives numbers again.
    pub nonce: String,
}

/// The state of the matrix as a whole. Each change compares it and writes it anew, so that changes
/// come one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The count of changes.
    pub change: u64,
    /// The slice from which the last change holds; never less than that of the change before.
    pub from_slice: u64,
    /// The rows of a frame from then on. It is written, and not worked out from the entries: one
    /// host that cannot read an entry would run other rows than all others.
    pub frame: u32,
    /// The last change was committed so long before that slice at least.
    pub lead_ns: u64,
    /// The number of the next job.
    pub next_job: u64,
}

/// The state that the owner of a job wants on all hosts (L33).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    #[default]
    Run,
    Suspend,
    /// Its processes are killed everywhere, and the job is removed when none is left.
    Kill,
    /// It has no entries: Linux alone schedules it.
    Release,
}

/// The entries of a job. Together with the hosts' records they are all that the matrix consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entries {
    /// The host at which the job was registered.
    pub from: String,
    /// The account of its owner ([`Users::account`]).
    pub account: u32,
    pub class: String,
    pub weight: u32,
    /// A list such as `0-3,8`.
    pub rows: String,
    /// Lists of hosts' numbers, each with the list of columns that the job has on each of them.
    pub cpus: Vec<(String, String)>,
    /// The same of the columns among which it has these, of hosts where its processes are bound.
    pub allowed: Vec<(String, String)>,
    pub wanted: Wanted,
    /// The slice from which the wanted state holds.
    pub wanted_from: u64,
    /// A list of the hosts' numbers that were lost.
    pub lost: String,
    /// A list of the hosts' numbers of which processes are awaited. The job has no slots until it
    /// is empty.
    pub awaited: String,
    /// A list of the hosts' numbers that were booted, so that their processes of the job are gone.
    /// The host that adjusts treats them as lost, and empties the list.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub booted: String,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// A value as text.
pub fn encode<T: Serialize>(value: T) -> String {
    let versioned = Versioned { v: VERSION, value };
    serde_json::to_string(&versioned).expect("records are of strings, numbers and lists")
}

/// The value of a text.
///
/// # Errors
/// A [`Fault`].
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    let unreadable = |err: serde_json::Error| Fault::Unreadable(err.to_string());
    let version = serde_json::from_str::<Version>(text).map_err(unreadable)?.v;
    if version > u64::from(VERSION) {
        return Err(Fault::Newer { version });
    }
    let mut value: serde_json::Value = serde_json::from_str(text).map_err(unreadable)?;
    // Records refuse fields that they do not know, so that none is lost by writing them anew.
    let fields = value.as_object_mut();
    fields.map(|it| it.remove("v"));
    serde_json::from_value(value).map_err(unreadable)
}

/// A list of numbers such as `0-3,8`.
pub(crate) fn list(text: &str, limit: u32) -> Result<CpuSet, Fault> {
    let set = CpuSet::from_str(text).map_err(|err| Fault::Unreadable(err.to_string()))?;
    match set.last() {
        Some(last) if last >= limit => {
            Err(Fault::Unreadable(format!("{last} in the list {text:?} is beyond {}", limit - 1)))
        }
        _ => Ok(set),
    }
}

/// Columns by host, as lists of hosts with the same ones.
fn listed(columns: &BTreeMap<HostId, CpuSet>) -> Vec<(String, String)> {
    let mut by_columns: BTreeMap<&CpuSet, CpuSet> = BTreeMap::new();
    for (host, columns) in columns {
        by_columns.entry(columns).or_default().insert(host.0);
    }
    let mut listed: Vec<(CpuSet, String)> =
        by_columns.into_iter().map(|(columns, hosts)| (hosts, columns.to_string())).collect();
    listed.sort_unstable_by_key(|(hosts, _)| hosts.first());
    listed.into_iter().map(|(hosts, columns)| (hosts.to_string(), columns)).collect()
}

/// The columns of each host of such lists.
fn unlisted(
    lists: &[(String, String)],
    columns_max: u32,
) -> Result<BTreeMap<HostId, CpuSet>, Fault> {
    let mut by_host = BTreeMap::new();
    for (hosts, columns) in lists {
        let columns = list(columns, columns_max)?;
        for host in list(hosts, HOSTS_MAX)?.iter() {
            if by_host.insert(HostId(host), columns.clone()).is_some() {
                return Err(Fault::Contradicts(format!("host {host} is listed twice")));
            }
        }
    }
    Ok(by_host)
}

/// A class by its name.
pub fn class(name: &str) -> Result<Class, Fault> {
    name.parse().map_err(|err: gang_schedule::UnknownName| Fault::Unreadable(err.to_string()))
}

/// The most characters of a job's name.
const NAME_MAX: usize = 255;

impl Job {
    /// Whether its fields are within bounds, as far as the job alone tells.
    pub fn validate(&self) -> Result<(), Fault> {
        class(&self.class)?;
        if !(1..=Spec::MAX_WEIGHT).contains(&self.weight) {
            let max = Spec::MAX_WEIGHT;
            return Err(Fault::Unreadable(format!("a weight is 1 to {max}, not {}", self.weight)));
        }
        if self.owner.name.is_empty() {
            return Err(Fault::Unreadable("its owner has no name".to_owned()));
        }
        let launched_as = self.launched_as.as_deref().unwrap_or_default();
        if self.name.len().max(launched_as.len()) > NAME_MAX {
            return Err(Fault::Unreadable(format!("a name has {NAME_MAX} bytes at most")));
        }
        for cpus in self.allowed.values() {
            list(cpus, NUMBER_MAX)?;
        }
        if let Some(host) = self.ranks.keys().find(|host| !self.cpus.contains_key(*host)) {
            let why = format!("it awaits processes on host {host}, where it has no CPUs");
            return Err(Fault::Unreadable(why));
        }
        Ok(())
    }
}

impl State {
    /// Bounds of [`State::lead_ns`].
    pub const LEAD_NS: std::ops::RangeInclusive<u64> = 20_000_000..=5_000_000_000;

    /// Whether its numbers can be worked with.
    pub fn validate(&self) -> Result<(), Fault> {
        let within = |what: &str, value: u64, least: u64, most: u64| {
            let wrong = || Fault::Unreadable(format!("{what} is {least} to {most}, not {value}"));
            if (least..=most).contains(&value) { Ok(()) } else { Err(wrong()) }
        };
        let (least_ns, most_ns) = State::LEAD_NS.into_inner();
        within("frame", self.frame.into(), 1, MAX_ROWS.into())?;
        within("lead_ns", self.lead_ns, least_ns, most_ns)?;
        within("next_job", self.next_job, FIRST_JOB, i64::MAX as u64)?;
        within("from_slice", self.from_slice, 0, i64::MAX as u64)?;
        within("change", self.change, 0, i64::MAX as u64)
    }
}

impl Entries {
    /// The entries that the planner gave a job.
    pub fn new(span: &Span, placement: &Placement, from: &str) -> Entries {
        let mut entries = Entries {
            from: from.to_owned(),
            account: span.user.0,
            class: span.class.to_string(),
            weight: span.weight,
            rows: String::new(),
            cpus: Vec::new(),
            allowed: listed(&span.allowed),
            wanted: Wanted::Run,
            wanted_from: 0,
            lost: String::new(),
            awaited: String::new(),
            booted: String::new(),
        };
        entries.place(placement);
        entries
    }

    /// The job is placed so from now on.
    pub fn place(&mut self, placement: &Placement) {
        self.rows = placement.rows.to_string();
        self.cpus = listed(&placement.cpus);
    }

    /// The job in the matrix, and where it is.
    ///
    /// # Errors
    /// [`Fault::Unreadable`] and [`Fault::Contradicts`] of lists. No host has more columns than
    /// `columns_max`.
    pub fn decode(&self, columns_max: u32) -> Result<(Span, Placement), Fault> {
        for hosts in [&self.lost, &self.awaited, &self.booted] {
            list(hosts, HOSTS_MAX)?;
        }
        let cpus = unlisted(&self.cpus, columns_max)?;
        let allowed = unlisted(&self.allowed, columns_max)?;
        let rows: Rows = list(&self.rows, MAX_ROWS)?.iter().collect();
        let span = Span {
            user: UserId(self.account),
            class: class(&self.class)?,
            weight: self.weight,
            cpus: cpus.iter().map(|(&host, cpus)| (host, cpus.len() as u32)).collect(),
            allowed,
        };
        Ok((span, Placement { cpus, rows }))
    }

    /// The hosts that were lost.
    pub fn lost(&self) -> BTreeSet<HostId> {
        hosts_of(&self.lost)
    }

    /// These hosts are lost from now on.
    pub fn lose(&mut self, lost: &BTreeSet<HostId>) {
        self.lost = list_of(lost);
    }

    /// The hosts of which processes are awaited.
    pub fn awaited(&self) -> BTreeSet<HostId> {
        hosts_of(&self.awaited)
    }

    /// The hosts that were booted, which the host that adjusts has not seen to yet.
    pub fn booted(&self) -> BTreeSet<HostId> {
        hosts_of(&self.booted)
    }

    /// These hosts were booted, as the host that adjusts is to see.
    pub fn boot(&mut self, booted: &BTreeSet<HostId>) {
        self.booted = list_of(booted);
    }

    /// All that hosts follow.
    pub(crate) fn without_booted(&self) -> Entries {
        Entries { booted: String::new(), ..self.clone() }
    }

    /// Processes of these hosts are awaited from now on.
    pub fn await_hosts(&mut self, awaited: &BTreeSet<HostId>) {
        self.awaited = list_of(awaited);
    }
}

/// The hosts of a list; none of one that cannot be read.
fn hosts_of(text: &str) -> BTreeSet<HostId> {
    let set = list(text, HOSTS_MAX);
    set.map_or_else(|_| BTreeSet::new(), |numbers| numbers.iter().map(HostId).collect())
}

fn list_of(hosts: &BTreeSet<HostId>) -> String {
    hosts.iter().map(|host| host.0).collect::<CpuSet>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Entries {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let cpus = [(0, "0-3"), (1, "0-3"), (2, "4-5"), (7, "0-3")];
        let cpus: BTreeMap<_, _> =
            cpus.iter().map(|&(host, cpus)| (HostId(host), set(cpus))).collect();
        let widths = cpus.iter().map(|(&host, cpus)| (host, cpus.len() as u32));
        let allowed = [(HostId(2), set("4-7"))].into();
        let span = Span { user: UserId(1000), allowed, ..Span::new(widths) };
        let placement = Placement { cpus, rows: [0, 1, 5].into_iter().collect() };
        let entries = Entries::new(&span, &placement, "a");
        assert_eq!(entries.decode(8), Ok((span, placement)));
        entries
    }

    #[test]
    fn entries_group_hosts_with_the_same_columns() {
        let text = encode(entries());
        assert_eq!(
            text,
            "{\"v\":1,\"from\":\"a\",\"account\":1000,\"class\":\"batch\",\"weight\":100,\
             \"rows\":\"0-1,5\",\"cpus\":[[\"0-1,7\",\"0-3\"],[\"2\",\"4-5\"]],\"allowed\":[[\"2\",\"4-7\"]],\
             \"wanted\":\"run\",\"wanted_from\":0,\"lost\":\"\",\"awaited\":\"\"}"
        );
        assert_eq!(decode::<Entries>(&text), Ok(entries()));
    }

    #[test]
    fn a_value_is_read_whole_or_not_at_all() {
        let text = encode(entries());
        let newer = text.replace("\"v\":1", "\"v\":2");
        assert_eq!(decode::<Entries>(&newer), Err(Fault::Newer { version: 2 }));
        for wrong in [
            &text[..text.len() - 1],
            "",
            "7",
            "{}",
            &text.replace("\"v\":1,", ""),
            &text.replace("\"rows\"", "\"lines\""),
            &text.replace("\"lost\":\"\"", "\"lost\":\"\",\"more\":1"),
        ] {
            let read = decode::<Entries>(wrong);
            assert!(matches!(read, Err(Fault::Unreadable(_))), "{wrong}: {read:?}");
        }
    }

    #[test]
    fn columns_are_of_the_kernels_numbers() {
        let (machine, boot) = (String::new(), String::new());
        let host = Host { number: 7, cpus: 4, numbers: "0,2,5,7".to_owned(), machine, boot };
        let columns = |cpus: &str| host.columns(&cpus.parse().unwrap()).to_string();
        assert_eq!([columns("2-5"), columns("1,3"), columns("0-7")], ["1-2", "", "0-3"]);
    }

    #[test]
    fn accounts_are_those_of_names_or_of_numbers() {
        let by_name = |uid, name| Users::Name.account(uid, name);
        assert_eq!(by_name(1000, "ada"), by_name(1001, "ada"));
        assert_ne!(by_name(1000, "ada"), by_name(1000, "bob"));
        // As published: fnv.c of Landon Curt Noll.
        assert_eq!(by_name(0, "a"), UserId(0xe40c_292c));
        assert_eq!(Users::Uid.account(1000, "ada"), UserId(1000));
    }

    #[test]
    fn lists_out_of_bounds_are_faults() {
        let with = |cpus: &[(&str, &str)], rows: &str| {
            let cpus = cpus.iter().map(|&(hosts, cpus)| (hosts.to_owned(), cpus.to_owned()));
            Entries { cpus: cpus.collect(), rows: rows.to_owned(), ..entries() }.decode(8)
        };
        assert!(matches!(with(&[("0-99999999", "0")], "0"), Err(Fault::Unreadable(_))));
        assert!(matches!(with(&[("0-16384", "0")], "0"), Err(Fault::Unreadable(_))));
        assert!(matches!(with(&[("0", "0")], "4096"), Err(Fault::Unreadable(_))));
        assert!(matches!(with(&[("0", "7-8")], "0"), Err(Fault::Unreadable(_))));
        assert!(matches!(with(&[("0-1", "0"), ("1", "2")], "0"), Err(Fault::Contradicts(_))));
        // A job that awaits nobody knows whom would never have a slot, and nobody would say why.
        let (far, none) = ("16384".to_owned(), "x".to_owned());
        let awaiting = Entries { awaited: none, ..entries() }.decode(8);
        assert!(matches!(awaiting, Err(Fault::Unreadable(_))));
        let lost = Entries { lost: far, ..entries() }.decode(8);
        assert!(matches!(lost, Err(Fault::Unreadable(_))));
    }
}
