//! The next thing that the driver is to do: read, announce, or work a wish out.

use gang_schedule::JobId;
use gang_schedule::matrix::HostId;

use super::{Ended, Flight, Identity, Link, Member, Now, Request, WAIT_NS, Waiting};
use crate::change::{self, Draft, Inputs, Refused, Wish};
use crate::keys::Key;
use crate::record::{Alive, Entries, Host, Wanted, encode};
use crate::store::Revision;

/// The knowledge of hosts that are alive is read anew when it is older.
const ALIVE_NS: u64 = 5_000_000_000;
/// The shortest and the longest time between two announcements.
const ANNOUNCE_NS: (u64, u64) = (500_000_000, 10_000_000_000);
/// An announcement waits so long for changes that somebody waits for: others rely on it within
/// [`SAID_NS`].
const ANNOUNCE_WAITS_NS: u64 = 250_000_000;
/// The time between two looks of the host that adjusts.
const TEND_NS: u64 = 10_000_000_000;
/// A host says within this time that it has a part of a job, or has none any more.
const SAID_NS: u64 = 1_000_000_000;
/// A job that has ended here and goes on elsewhere is looked at each time that it has gone on for
/// longer by this part, and after the longest time at last.
const LOOK_PART: u64 = 4;
const LOOK_MAX_NS: u64 = 30_000_000_000;
/// One key of a host in so much time is read for jobs that have ended: all of them are many bytes
/// where there are many hosts.
const KEY_NS: u64 = 5_000_000;
/// A registration waits so long for a host that is away, and looks for it so often.
const AWAY_NS: u64 = 3_000_000_000;
const AWAY_LOOK_NS: u64 = 200_000_000;
/// No more registrations than these wait for hosts at a time.
const AWAY_MAX: usize = 32;
/// A wish of the host itself that was refused comes again after this time.
const RETRY_NS: u64 = 2_000_000_000;

impl Member {
    /// The next thing to do, if any.
    pub fn next(&mut self, now: Now) -> Option<Request> {
        let now_ns = now.monotonic_ns;
        self.give_up(now_ns);
        if self.is_busy || self.flight.as_ref().is_some_and(|it| !it.is_unanswered) {
            return None;
        }
        match self.link {
            Link::Away => None,
            Link::Reading => {
                self.is_busy = true;
                Some(Request::Read)
            }
            Link::Up => {
                let first = self.announce(now_ns, ANNOUNCE_WAITS_NS);
                let first =
                    first.or_else(|| self.is_looked_at.then(|| self.read_who_lives(now_ns)));
                let is_awaited = self.wishes.iter().any(|of| of.ticket.is_some());
                let is_first = is_awaited || self.arrived().is_some();
                let first = first.or_else(|| if is_first { self.change(now) } else { None });
                let first = first.or_else(|| self.announce(now_ns, 0));
                first.or_else(|| self.change(now))
            }
        }
    }

    /// Answers `Unanswered` to a wish whose outcome has not come within [`WAIT_NS`].
    fn give_up(&mut self, now_ns: u64) {
        let is_over = |flight: &Flight| flight.is_unanswered && flight.since_ns + WAIT_NS <= now_ns;
        if let Some(flight) = self.flight.take_if(|flight| is_over(flight)) {
            self.answer(flight.of.ticket, Err(Refused::Unanswered));
        }
    }

    /// The key that says that this host is alive, where it was to be written so long ago at least,
    /// or was not written yet.
    fn announce(&mut self, now_ns: u64, late_ns: u64) -> Option<Request> {
        let (seen, host) = (self.seen.as_ref()?, self.host());
        let read = self.view.revision();
        let alive = Alive {
            read,
            clock: seen.clock.clone(),
            threads: seen.threads,
            of_users: seen.of_users.clone(),
            took_ns: self.took_ns,
            unwilling: self.unwilling.clone(),
            parts: seen.parts.iter().map(|job| job.0).collect(),
            missing: Alive::missing_of(&seen.missing),
            fault: None,
        };
        host.filter(|_| !self.is_another)?;
        let is_due = match &self.announced {
            None => true,
            Some((at_ns, before)) => {
                let (least_ns, most_ns) = ANNOUNCE_NS;
                let is_other = before.unwilling != alive.unwilling
                    || before.read < self.view.asked(&self.me.name)
                    || (&before.parts, &before.missing) != (&alive.parts, &alive.missing)
                    || before.took_ns < alive.took_ns;
                now_ns >= at_ns + late_ns + if is_other { least_ns } else { most_ns }
            }
        };
        if !is_due {
            return None;
        }
        let key = self.view.keys().alive(&self.me.name);
        let value = encode(&alive);
        (self.announced, self.took_ns, self.is_busy) = (Some((now_ns, alive)), 0, true);
        Some(Request::Announce { key, value })
    }

    /// The next wish as a transaction.
    fn change(&mut self, now: Now) -> Option<Request> {
        let now_ns = now.monotonic_ns;
        if self.view.revision() < self.read_first || self.flight.is_some() {
            return None;
        }
        self.note_ended(now_ns);
        if self.has_to_look(now_ns) {
            return Some(self.read_who_lives(now_ns));
        }
        self.wish_for_itself(now_ns);
        if now_ns < self.waits_until_ns {
            return None;
        }
        for _ in 0..self.wishes.len() {
            let Some(mut of) = self.wishes.pop_front() else { break };
            if now_ns < of.not_before_ns {
                self.wishes.push_back(of);
                continue;
            }
            let is_new = self.alive_ns.is_some_and(|at_ns| now_ns < at_ns + ALIVE_NS);
            let is_known = is_new && !self.alive_is_old;
            let needs_alive = matches!(of.wish, Wish::Register(_) | Wish::Tend);
            if needs_alive && !is_known {
                self.wishes.push_front(of);
                return Some(self.read_who_lives(now_ns));
            }
            let removes = |of: &Waiting| match of.wish {
                Wish::Remove { job } if of.ticket.is_none() => Some(job),
                _ => None,
            };
            // It has waited meanwhile, and comes again once the others were asked again.
            if removes(&of).is_some_and(|job| !self.is_over(job, now_ns)) {
                continue;
            }
            let nonce = of.wish.job().and_then(|id| Some(self.view.job(id)?.1.nonce.clone()));
            let is_another = of.nonce.as_ref().zip(nonce.as_ref()).is_some_and(|(a, b)| a != b);
            if let Some(id) = of.wish.job().filter(|_| is_another) {
                self.refuse(now, of, Refused::NoJob(id));
                continue;
            }
            of.nonce = of.nonce.or(nonce);
            let known = self.view.hosts().get(&self.me.name);
            if let Some(other) = known.filter(|it| it.machine != self.me.machine) {
                let (name, machine) = (self.me.name.clone(), other.machine.clone());
                self.refuse(now, of, Refused::OtherMachine { name, machine });
                continue;
            }
            let needs_none = of.wish.needs_no_clock(known) && !self.is_another;
            let has_to_know = (self.is_out_of_time || self.is_another) && !needs_none;
            if let Some(why) = self.unwilling.clone().filter(|_| has_to_know) {
                let host = self.me.name.clone();
                self.refuse(now, of, Refused::Unwilling { host, why });
                continue;
            }
            let lost = self.missing.keys().filter(|name| self.is_lost(name, now_ns));
            let lost = lost.cloned().collect();
            let from = Inputs {
                view: &self.view,
                alive: &self.alive,
                lost: &lost,
                host: &self.me.name,
                machine: &self.me.machine,
                now_ns: now.utc_ns,
            };
            match change::draft(from, &of.wish) {
                Ok(Draft { txn, granted }) if txn.ops.is_empty() => {
                    if of.wish == Wish::Tend {
                        self.tended_ns = Some(now_ns);
                    }
                    self.answer(of.ticket, Ok(granted));
                }
                Ok(Draft { txn, granted }) => {
                    let (since_ns, is_unanswered) = (now_ns, false);
                    self.flight = Some(Flight { of, granted, since_ns, is_unanswered });
                    return Some(Request::Commit(txn));
                }
                Err(Refused::Away(_)) if self.waits_for_host(&mut of, now_ns) => {
                    self.wishes.push_back(of);
                }
                Err(why) => self.refuse(now, of, why),
            }
        }
        None
    }

    /// Whether a wish waits for a host that is away: it may have been seen a moment too early.
    fn waits_for_host(&mut self, of: &mut Waiting, now_ns: u64) -> bool {
        let until_ns = *of.waits_for_host_until_ns.get_or_insert(now_ns + AWAY_NS);
        let waiting = self.wishes.iter().filter(|it| it.waits_for_host_until_ns.is_some()).count();
        let waits = of.ticket.is_some() && now_ns < until_ns && waiting < AWAY_MAX;
        if waits {
            (self.alive_is_old, of.not_before_ns) = (true, now_ns + AWAY_LOOK_NS);
        }
        waits
    }

    /// The wishes that nobody asked for. They come first: users' wishes must not keep the matrix
    /// from being tended.
    fn wish_for_itself(&mut self, now_ns: u64) {
        let has_to_wait = self.refused_ns.is_some_and(|at_ns| now_ns < at_ns + RETRY_NS);
        let can = self.view.settings().is_some() && !has_to_wait && !self.is_another;
        if !can || self.wishes.front().is_some_and(|of| of.ticket.is_none()) {
            return;
        }
        let is_willing = !self.is_out_of_time
            && self.view.newer().is_none()
            && self.view.fault_of_all().is_none();
        let of_me = self.view.hosts().get(&self.me.name);
        let is_in = self.host().is_some();
        let join = |cpus: u32| {
            let Identity { numbers, machine, boot, .. } = self.me.clone();
            // Columns stay those that they were while there are others of them.
            let of_columns = of_me.filter(|it| cpus != self.me.cpus && it.cpus == cpus);
            let numbers = of_columns.map_or(numbers, |it| it.numbers.clone());
            Some(Wish::Join { cpus, numbers, machine, boot })
        };
        let own = of_me.filter(|_| is_in && self.wants_in);
        // Jobs may have to end before its CPUs can be others, and by a wrong clock none is removed.
        let of_other_boot = own.filter(|it| it.boot != self.me.boot);
        let wish = if self.is_adjuster() && !(is_willing && self.wants_in) {
            Some(Wish::Resign)
        } else if let Some(known) = of_other_boot {
            join(known.cpus)
        } else if let Some(job) = self.arrived().filter(|_| !self.is_out_of_time) {
            // A program waits for it.
            Some(Wish::Arrive { job })
        } else if let Some(job) = self.forgotten(now_ns).filter(|_| !self.is_out_of_time) {
            Some(Wish::Remove { job })
        } else if let Some(job) = self.unasked().filter(|_| !self.is_out_of_time) {
            Some(Wish::Ask { job })
        } else if !self.wants_in {
            None
        } else if of_me.is_none() {
            join(self.me.cpus)
        } else if self.view.adjuster().is_none() && is_in && is_willing {
            Some(Wish::Elect)
        } else if self.is_adjuster()
            && (!self.view.is_settled() || self.tended_ns.is_none_or(|at| now_ns >= at + TEND_NS))
        {
            Some(Wish::Tend)
        } else if own.is_some_and(|it| (it.cpus, &it.numbers) != (self.me.cpus, &self.me.numbers)) {
            join(self.me.cpus)
        } else {
            None
        };
        if let Some(wish) = wish {
            self.wishes.push_front(Waiting::own(wish));
        }
    }

    /// Notes which jobs that were registered here have ended here.
    fn note_ended(&mut self, now_ns: u64) {
        let Some(seen) = &self.seen else { return };
        // Another machine of this name has jobs of its own.
        let records = self.view.records(&self.me.name).filter(|_| self.is_mine());
        let ended = records.filter(|(_, record)| !seen.nonces.contains(&record.nonce));
        let read = self.view.revision();
        let since =
            |id: &JobId| self.ended.get(id).copied().unwrap_or(Ended { since_ns: now_ns, read });
        self.ended = ended.map(|(id, _)| (id, since(&id))).collect();
    }

    /// Other hosts may have parts of a job that has ended here: what they say of it has to be read
    /// once they have had the time to say it, and now and then as long as there is one.
    fn has_to_look(&self, now_ns: u64) -> bool {
        let least_ns = KEY_NS.saturating_mul(self.alive.len() as u64);
        let least_ns = least_ns.clamp(SAID_NS, LOOK_MAX_NS);
        let is_new = self.alive_ns.is_some_and(|at_ns| now_ns < at_ns + least_ns);
        // A host whose clock is wrong cannot remove it.
        if is_new || self.is_out_of_time {
            return false;
        }
        let is_due = |&Ended { since_ns, .. }: &Ended| {
            let after_ns = (now_ns.saturating_sub(since_ns) / LOOK_PART).min(LOOK_MAX_NS);
            let is_old = self.alive_ns.is_none_or(|at_ns| now_ns >= at_ns + after_ns);
            now_ns >= since_ns + SAID_NS && (is_old || !self.is_said(since_ns))
        };
        self.ended.values().any(is_due)
    }

    /// Asks for the hosts that are alive.
    fn read_who_lives(&mut self, now_ns: u64) -> Request {
        (self.asks_ns, self.is_busy) = (now_ns, true);
        Request::ReadAlive
    }

    /// Whether other hosts had the time to say what they have of a job that has ended since then,
    /// when they were asked.
    fn is_said(&self, since_ns: u64) -> bool {
        self.asked_ns.is_some_and(|asked_ns| asked_ns >= since_ns + SAID_NS)
    }

    /// The revision that asked who has a part of a job, once it has ended here.
    fn asked_at(&self, id: JobId) -> Option<Revision> {
        let ended = self.ended.get(&id)?;
        self.view.written(&self.me.name, id).filter(|&at| at > ended.read)
    }

    /// A job that has ended here, and of which others were not asked since.
    fn unasked(&self) -> Option<JobId> {
        let has_entries = |id: &JobId| self.view.entries(*id).is_some();
        let mut ended = self.ended.keys().copied();
        ended.find(|id| self.asked_at(*id).is_none() && has_entries(id))
    }

    /// A job whose processes on this host have all come, and are awaited as far as was read.
    fn arrived(&self) -> Option<JobId> {
        let (seen, me) = (self.seen.as_ref()?, self.host()?);
        let is_awaited = |id: &&JobId| {
            self.view.entries(**id).is_some_and(|entries| entries.awaited().contains(&me))
        };
        seen.complete.iter().find(is_awaited).copied()
    }

    /// A record of this host that is over.
    fn forgotten(&self, now_ns: u64) -> Option<JobId> {
        let mut records = self.view.records(&self.me.name).map(|(id, _)| id);
        let is_asked = |id: JobId| self.wishes.iter().any(|of| of.wish == Wish::Remove { job: id });
        records.find(|&id| self.is_over(id, now_ns) && !is_asked(id))
    }

    /// Whether a job that was registered here has ended here, and has no part elsewhere as far as
    /// others have said lately.
    fn is_over(&self, id: JobId, now_ns: u64) -> bool {
        let (view, me) = (&self.view, &self.me.name);
        let Some(record) = view.record(me, id) else { return false };
        // A job that was killed while this host was lost has no entries any more. Those that cannot
        // be read are there all the same.
        let is_unreadable = || view.fault(&view.keys().of(&Key::Entries(id))).is_some();
        let has_entries = view.entries(id).map_or_else(is_unreadable, |it| it.from == *me);
        if !has_entries {
            return self.is_mine();
        }
        let is_new = self.alive_ns.is_some_and(|at_ns| now_ns < at_ns + ALIVE_NS);
        if !is_new || !self.ended.get(&id).is_some_and(|ended| self.is_said(ended.since_ns)) {
            return false;
        }
        // Those of entries that cannot be read cannot be asked.
        let asked_at = self.asked_at(id).or_else(|| is_unreadable().then_some(0));
        let Some(asked_at) = asked_at else { return false };
        // One that has left says nothing any more.
        let has_part = |(name, alive): (&String, &Alive)| {
            name != me && view.hosts().contains_key(name) && alive.may_have(id)
        };
        // One that is away may have a part. Those that are lost go on with theirs, except that they
        // have to hear of a kill.
        let known_lost = view.entries(id).map(Entries::lost).unwrap_or_default();
        let is_killed = view.entries(id).is_some_and(|it| it.wanted == Wanted::Kill);
        let is_given_up = |name: &str, host: &Host| {
            let is_lost = known_lost.contains(&HostId(host.number)) || self.is_lost(name, now_ns);
            is_lost && !is_killed
        };
        // One whose key is older than the question may have begun a part since.
        let may_have = |name: &String| match (view.hosts().get(name), self.alive.get(name)) {
            (None, _) => false,
            (Some(_), Some(alive)) => alive.read < asked_at,
            (Some(host), None) => !is_given_up(name, host),
        };
        let mut others = record.cpus.keys().filter(|name| *name != me);
        !self.alive.iter().any(has_part) && !others.any(may_have)
    }

    /// Whether a host was away for so long that its jobs are to know.
    fn is_lost(&self, name: &str, now_ns: u64) -> bool {
        let after_ms = self.view.settings().map_or(u64::MAX, |it| it.lost_after_ms);
        let after_ns = after_ms.saturating_mul(1_000_000);
        self.missing.get(name).is_some_and(|since_ns| now_ns.saturating_sub(*since_ns) >= after_ns)
    }

    /// Whether the records of this name are this machine's.
    fn is_mine(&self) -> bool {
        self.view.hosts().get(&self.me.name).is_none_or(|_| self.host().is_some())
    }
}
