//! The work of the host that adjusts: jobs of lost hosts, records of nobody, and loads that
//! changed.

use std::collections::BTreeSet;

use gang_schedule::JobId;
use gang_schedule::matrix::HostId;

use super::{Draft, Drafting, Granted, LEAD_LEAST_NS, Refused, from_slice, is_far};
use crate::keys::Key;
use crate::record::{Entries, OnHostLost, State, Wanted, encode};
use crate::store::{BYTES_MAX, OPS_MAX, Op};

impl Drafting<'_> {
    /// Does the first of these that there is to do: jobs that lost hosts are marked, jobs that
    /// nobody has any more are cleared, entries that contradict others are released, the matrix is
    /// adjusted.
    pub(super) fn tend(mut self) -> Result<Draft, Refused> {
        if self.mark_lost()? || self.clear_abandoned()? || self.release_contradicting()? {
            return Ok(self.done());
        }
        let change = self.fitting(self.loaded().adjust(), None);
        let lead_ns = self.lead();
        // Hosts follow what somebody has cut or mended from the slice of a change, all at once.
        let is_far = is_far(self.matrix, self.from.now_ns, self.state.from_slice);
        let is_settled = self.from.view.is_settled() && !is_far;
        if change.placed.is_empty() && lead_ns == self.state.lead_ns && is_settled {
            return Ok(self.nothing());
        }
        let longer_ns = lead_ns.max(self.state.lead_ns);
        self.from_slice = from_slice(self.matrix, self.from.now_ns, self.state, longer_ns);
        self.place(&change, None);
        let (from_slice, state) = (self.from_slice, State { lead_ns, ..self.state.clone() });
        Ok(self.finish(Granted::Done { from_slice }, state))
    }

    /// Jobs of which a host is lost are marked, suspended or released as their owners chose; those
    /// whose hosts are back are so no longer. A host that was booted is lost for a moment at least:
    /// its processes are. As many jobs as one change can have.
    fn mark_lost(&mut self) -> Result<bool, Refused> {
        let view = self.from.view;
        let numbers = |is: &dyn Fn(&str) -> bool| -> BTreeSet<HostId> {
            let hosts = view.hosts().iter().filter(|(name, _)| is(name));
            hosts.map(|(_, host)| HostId(host.number)).collect()
        };
        let away = numbers(&|name| !self.from.alive.contains_key(name));
        let gone = numbers(&|name| self.from.lost.contains(name));
        let mut matrix = None;
        let before = self.ops.len();
        let mut bytes = 0;
        for (id, _, job) in view.jobs() {
            let Some(entries) = view.entries(id) else { continue };
            let (known, booted) = (entries.lost(), entries.booted());
            if gone.is_empty() && known.is_empty() && booted.is_empty() {
                continue;
            }
            let Ok((span, _)) = entries.decode(view.columns_max()) else { continue };
            // A host that has just gone is not lost yet; one that was lost is so until it is back.
            let is_lost = |host: &HostId| {
                gone.contains(host) || (known.contains(host) && away.contains(host))
            };
            let lost: BTreeSet<HostId> = span.cpus.into_keys().filter(is_lost).collect();
            if lost == known && booted.is_empty() {
                continue;
            }
            let lost_now: BTreeSet<HostId> = lost.union(&booted).copied().collect();
            let is_new = !lost_now.is_subset(&known);
            let is_release = is_new && job.on_host_lost == OnHostLost::Release;
            // A release may move as many as a change can.
            if is_release && self.ops.len() > before {
                break;
            }
            let mut entries = entries.clone();
            entries.lose(&lost);
            entries.boot(&BTreeSet::new());
            // Nothing comes from a host that is lost: the job does without, as it does later.
            let awaited = entries.awaited().difference(&lost_now).copied().collect();
            entries.await_hosts(&awaited);
            let matrix = matrix.get_or_insert_with(|| self.loaded());
            match (is_new, job.on_host_lost, entries.wanted) {
                (true, OnHostLost::Suspend, Wanted::Run) => {
                    self.turn_to(matrix, id, entries, Wanted::Suspend)?;
                }
                (true, OnHostLost::Release, Wanted::Run | Wanted::Suspend) => {
                    self.turn_to(matrix, id, entries, Wanted::Release)?;
                    break;
                }
                _ => self.put(&Key::Entries(id), encode(&entries)),
            }
            if let Some(Op::Put { value, .. }) = self.ops.last() {
                bytes += value.len();
            }
            if self.ops.len() + 2 >= OPS_MAX || bytes > BYTES_MAX / 2 {
                break;
            }
        }
        Ok(self.ops.len() > before)
    }

    /// Entries without the record of a job are nobody's, and so are those of a host that has left.
    fn clear_abandoned(&mut self) -> Result<bool, Refused> {
        let view = self.from.view;
        let is_abandoned = |(id, entries): &(JobId, &Entries)| {
            let key = Key::Job { host: entries.from.clone(), job: *id };
            // A record that cannot be read is there all the same.
            let is_unreadable = view.fault(&view.keys().of(&key)).is_some();
            let has_registrar = view.hosts().contains_key(&entries.from)
                || view.fault_of_host(&entries.from).is_some();
            (view.job(*id).is_none() && !is_unreadable) || !has_registrar
        };
        let Some((id, _)) = view.all_entries().find(is_abandoned) else { return Ok(false) };
        self.clear(id)?;
        Ok(true)
    }

    /// Linux alone schedules a job whose entries cannot be, until its owner resumes it.
    fn release_contradicting(&mut self) -> Result<bool, Refused> {
        let view = self.from.view;
        // Entries that cannot be read stay so without rows: nothing more can be done for them.
        let is_done = |it: &Entries| {
            it.rows.is_empty() && matches!(it.wanted, Wanted::Release | Wanted::Kill)
        };
        let all = view.contradicting().iter().filter_map(|&id| Some((id, view.entries(id)?)));
        let Some((id, entries)) = all.into_iter().find(|(_, it)| !is_done(it)) else {
            return Ok(false);
        };
        let wanted = match entries.wanted {
            Wanted::Kill => Wanted::Kill,
            Wanted::Run | Wanted::Suspend | Wanted::Release => Wanted::Release,
        };
        self.turn_to(&mut self.loaded(), id, entries.clone(), wanted)?;
        Ok(true)
    }

    /// The lead that the slowest host needs.
    fn lead(&self) -> u64 {
        let took_ns = self.from.alive.values().map(|alive| alive.took_ns).max().unwrap_or(0);
        lead_after(self.state.lead_ns, took_ns)
    }
}

/// The lead after one of which a change took so long at the slowest host: twice that, at once, and
/// the least lead at least. It falls where that takes a quarter of it at least, since each change
/// of the lead is measured anew. Where no change was measured, it stays.
fn lead_after(lead_ns: u64, took_ns: u64) -> u64 {
    let needed_ns = took_ns.saturating_mul(2).max(LEAD_LEAST_NS);
    let is_short = took_ns > lead_ns - lead_ns / 8;
    let is_long = took_ns > 0 && needed_ns <= lead_ns - lead_ns / 4;
    let lead_ns = if is_short || is_long { needed_ns } else { lead_ns };
    lead_ns.clamp(*State::LEAD_NS.start(), *State::LEAD_NS.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn lead_falls_at_once_after_one_late_reading() {
        assert_eq!(lead_after(100 * MS, 2_000 * MS), 4_000 * MS);
        assert_eq!(lead_after(4_000 * MS, 60 * MS), 120 * MS);
        assert_eq!(lead_after(120 * MS, 30 * MS), 120 * MS, "it would save a sixth");
        assert_eq!(lead_after(4_000 * MS, 30 * MS), 100 * MS, "the least");
        assert_eq!(lead_after(4_000 * MS, 900 * MS), 1_800 * MS);
    }

    #[test]
    fn lead_stays_where_changes_take_about_as_long() {
        for took_ms in [40, 60, 80, 87] {
            assert_eq!(lead_after(100 * MS, took_ms * MS), 100 * MS, "{took_ms} ms");
        }
        for took_ms in [151, 200, 300, 350] {
            assert_eq!(lead_after(400 * MS, took_ms * MS), 400 * MS, "{took_ms} ms");
        }
        assert_eq!(lead_after(4_000 * MS, 0), 4_000 * MS, "nothing was measured");
        assert_eq!(lead_after(50 * MS, 20 * MS), 50 * MS, "one that is shorter by itself");
    }

    #[test]
    fn lead_has_bounds() {
        assert_eq!(lead_after(100 * MS, u64::MAX), 5_000 * MS);
        assert_eq!(lead_after(5_000 * MS, 5_000 * MS), 5_000 * MS);
    }
}
