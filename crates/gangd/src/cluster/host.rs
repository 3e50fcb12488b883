//! The daemon, as the member of the cluster sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

use gang_cluster::{
    Member,
    change::Refused,
    member::{Note, Now, Observation},
    record::{self, Job, Users},
    timeline::{Step, Timeline},
};
use gang_conductor::{AgreedEntries, Part};
use gang_etcd::Host;
use gang_linux::own_files;
use gang_schedule::{CpuSet, Entry, JobId, UserId, clock as slices};

use super::{Shared, WantedPart, clock::Clock, names::Names};
use crate::{
    conduct::{
        client_priority::{ClientPriority, ThreadPriority},
        requests::Handle,
        state::now,
    },
    daemon::Daemon,
};

/// The most reasons that are logged while etcd is away.
const REASONS_MAX: usize = 16;

/// The daemon's end of the link.
pub struct ThisHost {
    conductor: Handle,
    client_priority: Arc<ClientPriority>,
    /// Of the link's thread, from its first step on.
    priority: Option<ThreadPriority>,
    shared: Arc<Shared>,
    me: String,
    /// The CPU of each column.
    columns: Vec<u32>,
    slice_ns: u64,
    clock: Clock,
    /// The entries that the conductor has.
    given: Vec<AgreedEntries>,
    /// The steps that are followed, on file for the next daemon.
    file: PathBuf,
    filed: String,
    /// The revision whose parts are known.
    revision: u64,
    names: Names,
    /// The rule by which users have their accounts.
    rule: Users,
    /// Why etcd is away, as far as that was logged.
    reasons: BTreeSet<String>,
    /// The load and the parts, as the conductor said last.
    last_seen: Option<(Load, Vec<Seen>)>,
}

/// A part that has processes here.
#[derive(Clone)]
struct Seen {
    job: JobId,
    nonce: String,
}

/// Runnable threads, and of which users.
type Load = (u32, BTreeMap<UserId, u32>);

impl ThisHost {
    pub fn new(
        daemon: &Arc<Daemon>,
        shared: &Arc<Shared>,
        me: String,
        columns: Vec<u32>,
        clock: Clock,
    ) -> ThisHost {
        ThisHost {
            conductor: daemon.conductor.clone(),
            client_priority: daemon.client_priority.of_its_own(),
            priority: None,
            shared: shared.clone(),
            me,
            columns,
            slice_ns: daemon.settings().schedule.slice_ns,
            clock,
            given: Vec::new(),
            file: daemon.jobs.store().entries(),
            filed: String::new(),
            revision: 0,
            names: Names::start(),
            rule: Users::default(),
            reasons: BTreeSet::new(),
            last_seen: None,
        }
    }

    /// The CPUs of columns, where all are of this host.
    fn cpus(&self, columns: &CpuSet) -> Option<CpuSet> {
        columns.iter().map(|column| self.columns.get(column as usize).copied()).collect()
    }

    /// The entries of a step; none where this host does not follow it.
    fn agreed(&self, (step, follows): (&Step, bool)) -> AgreedEntries {
        let runs = step.parts.iter().filter(|part| follows && part.has_slots());
        let entry = |part: &gang_cluster::timeline::Part| {
            let entry =
                Entry { job: part.job, rows: part.rows.clone(), cpus: self.cpus(&part.cpus)? };
            Some((entry, part.nonce.clone()))
        };
        AgreedEntries {
            from_slice: step.from_slice,
            frame: step.frame,
            entries: runs.filter_map(entry).collect(),
        }
    }

    /// Hands the conductor the entries of the slice under way and of those after it.
    fn give(&mut self, member: &Member) {
        let slice = now().utc_ns / self.slice_ns;
        let steps: Vec<_> = member.followed().collect();
        let is_over =
            |at: usize| steps.get(at + 1).is_some_and(|(next, _)| next.from_slice <= slice);
        let first = (0..steps.len()).find(|&at| !is_over(at)).unwrap_or(0);
        let agreed: Vec<AgreedEntries> =
            steps.into_iter().skip(first).map(|step| self.agreed(step)).collect();
        if agreed == self.given {
            return;
        }
        self.file(member.timeline());
        self.given.clone_from(&agreed);
        // Without a conductor there is nobody to have slots.
        let followed = self.conductor.ask(move |state| state.core.follow_entries(agreed));
        if let Ok(Err(refused)) = followed {
            tracing::error!(?refused, "entries of the cluster are not followed");
        }
    }

    /// Writes the steps that are followed for a daemon that starts while etcd is away; none where
    /// no job has a part.
    fn file(&mut self, timeline: &Timeline) {
        let has_parts = timeline.steps().iter().any(|step| !step.parts.is_empty());
        let text = if has_parts { timeline.to_text() } else { String::new() };
        if text == self.filed {
            return;
        }
        let done = match text.is_empty() {
            true => fs::remove_file(&self.file),
            false => {
                let new = self.file.with_extension("new");
                own_files::replace(&self.file, &new, text.as_bytes(), 0o600)
            }
        };
        if let Err(error) = done.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            tracing::warn!(%error, "entries of the cluster are not on file");
        }
        self.filed = text;
    }

    /// The parts that the registry wants here.
    fn wanted(&self, member: &Member) -> Arc<[WantedPart]> {
        let view = member.view();
        let users = view.settings().map(|settings| settings.users).unwrap_or_default();
        let config = view.settings().map(record::ClusterSettings::config).unwrap_or_default();
        let last = member.followed().last().map(|(step, _)| step);
        let wanted = |(job, _, record): (JobId, &str, &Job)| {
            let (&cpus, entries) = (record.cpus.get(&self.me)?, view.entries(job)?);
            let part = Part {
                job,
                nonce: record.nonce.clone(),
                name: record.name.clone(),
                owner_uid: record.owner.uid,
                class: record::class(&entries.class).ok()?,
                weight: entries.weight,
                cpus,
            };
            let from_ns = slices::slice_start(&config, entries.wanted_from);
            let (owner, wanted) = (record.owner.name.clone(), entries.wanted);
            let ranks = record.ranks.get(&self.me).copied().unwrap_or(0);
            let entry = last.and_then(|step| step.parts.iter().find(|part| part.job == job));
            let entries = entry.and_then(|part| self.cpus(&part.cpus)).unwrap_or_default();
            Some(WantedPart { part, owner, users, wanted, from_ns, ranks, entries })
        };
        // Another machine may have the name of this one in the cluster.
        view.jobs().filter(|_| member.host().is_some()).filter_map(wanted).collect()
    }
}

impl ThisHost {
    /// The runnable threads of users, by their accounts in the cluster. Those of users whose names
    /// are not known yet are nobody's.
    fn of_accounts(&self, of_users: &BTreeMap<UserId, u32>) -> BTreeMap<u32, u32> {
        let now = Instant::now();
        let mut of_accounts = BTreeMap::new();
        for (&user, &count) in of_users {
            let name = match self.rule {
                Users::Uid => String::new(),
                Users::Name => match self.names.of(user.0, now) {
                    Some(name) => name,
                    None => continue,
                },
            };
            *of_accounts.entry(self.rule.account(user.0, &name).0).or_default() += count;
        }
        of_accounts
    }

    /// The parts of which all processes have come that are awaited here. Those that have processes
    /// are not held by their clients any more.
    fn complete(&self, here: &[Seen]) -> BTreeSet<JobId> {
        let mut state = self.shared.state();
        for part in here {
            state.held.remove(&part.nonce);
        }
        let wanted = state.wanted.iter().flat_map(|all| all.iter());
        let has_come = |of: &&WantedPart| of.ranks > 0 && state.has_come(of.part.job, of.ranks);
        wanted.filter(has_come).map(|of| of.part.job).collect()
    }
}

impl ThisHost {
    /// Jobs that clients of this host hold, and that have processes elsewhere, as was read last:
    /// they do not lapse any more.
    fn note_started(&self, member: &Member) {
        let mut state = self.shared.state();
        if !state.held.has_unstarted() {
            return;
        }
        let parts = member.alive().values().flat_map(|alive| &alive.parts);
        for &job in parts {
            let nonce = member.view().job(JobId(job)).map(|(_, record)| &record.nonce);
            nonce.into_iter().for_each(|nonce| state.held.has_started(nonce));
        }
    }
}

impl Host for ThisHost {
    fn now(&self) -> Now {
        let gang_conductor::Now { utc_ns, monotonic_ns } = now();
        Now { utc_ns, monotonic_ns }
    }

    fn first_slice(&self) -> u64 {
        let open = self.conductor.ask(|state| state.core.first_open_slice(now()));
        open.unwrap_or_else(|_| now().utc_ns / self.slice_ns + 1)
    }

    fn kept(&mut self) -> Option<Timeline> {
        let lost = |why: String| tracing::warn!(why, "entries of an earlier daemon are lost");
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            text => text.map_err(|error| lost(error.to_string())).ok()?,
        };
        let kept = Timeline::from_text(&text, self.slice_ns);
        kept.map_err(|why| lost(why.to_string())).ok()
    }

    fn seen(&mut self) -> Observation {
        // Before the parts: a job that starts meanwhile is one or the other.
        let held = self.shared.state().held.nonces(now().monotonic_ns);
        let asked = self.conductor.ask(|state| {
            let part = |job: &gang_conductor::Job| {
                job.home.as_ref()?;
                Some(Seen { job: job.id, nonce: job.nonce.clone()? })
            };
            let parts = state.core.jobs().values().filter_map(part);
            (state.core.load_beside_spanning(), parts.collect::<Vec<_>>())
        });
        // A conductor that cannot be asked says nothing of its jobs.
        let ((threads, of_users), here) = match asked {
            Ok(seen) => self.last_seen.insert(seen).clone(),
            Err(_) => self.last_seen.clone().unwrap_or_default(),
        };
        let of_users = self.of_accounts(&of_users);
        let clock = self.clock.quality();
        self.shared.state().clock_bounds.note(gang_linux::clock::utc_ns(), clock.bound_ns);
        Observation {
            clock,
            threads,
            of_users,
            parts: here.iter().map(|part| part.job).collect(),
            complete: self.complete(&here),
            missing: self.shared.state().missing.clone(),
            nonces: here.into_iter().map(|part| part.nonce).chain(held).collect(),
        }
    }

    fn changed(&mut self, member: &Member) {
        match &mut self.priority {
            Some(priority) => priority.renew(),
            None => self.priority = Some(ThreadPriority::of(&self.client_priority, None)),
        }
        self.give(member);
        self.note_started(member);
        self.rule = member.view().settings().map(|settings| settings.users).unwrap_or_default();
        let revision = member.view().revision();
        // While settings or state cannot be used, parts stay as they were wanted.
        let is_usable = member.view().fault_of_all().is_none();
        if self.revision != revision && is_usable {
            self.revision = revision;
            let wanted = Some(self.wanted(member));
            let mut state = self.shared.state();
            if state.wanted != wanted {
                state.wanted = wanted;
                self.shared.changed.notify_all();
            }
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Late { revision, slices } => {
                tracing::info!(revision, slices, "a change of the cluster came late");
            }
            Note::Unwilling(Some(why)) => {
                tracing::warn!(why, "this host takes no part in slots of spanning jobs");
            }
            Note::Unwilling(None) => tracing::info!("this host follows the cluster's slots"),
            Note::Refused(Refused::Unreachable | Refused::Unanswered) => {}
            Note::Refused(why) => tracing::warn!(%why, "the cluster refuses what this host wants"),
            Note::Fault { key, why } => {
                tracing::error!(key, why, "a record of the cluster is not used");
            }
        }
    }

    fn link(&mut self, is_up: Result<(), String>) {
        let before = std::mem::replace(&mut self.shared.state().unreachable, is_up.err());
        let now = self.shared.state().unreachable.clone();
        // Each reason is logged once while etcd is away: they may take turns.
        let is_new = |logged: &mut BTreeSet<String>, why: &String| {
            logged.len() < REASONS_MAX && logged.insert(why.clone())
        };
        match (before, now) {
            (Some(_), None) => {
                self.reasons.clear();
                tracing::info!("etcd is there");
            }
            (None, Some(why)) => {
                is_new(&mut self.reasons, &why);
                tracing::warn!(why, "etcd is away; the slots go on");
            }
            (Some(_), Some(why)) if is_new(&mut self.reasons, &why) => {
                tracing::warn!(why, "etcd cannot be reached");
            }
            _ => {}
        }
    }
}
