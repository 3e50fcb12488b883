//! Jobs that an earlier daemon left on file.

use std::collections::BTreeMap;

use gang_engine::{bound::ProcessHandle, page::SlotPage, release, store::Unreadable};
use gang_linux::{cgroup::Group, error::unless_gone};
use gang_schedule::JobId;
use gang_timetable::record::{Placement, Record};

use crate::{daemon::Daemon, error::Error};

impl Daemon {
    /// Finds the jobs of an earlier daemon again. Those whose records cannot be read are released,
    /// and no jobs any more.
    pub fn restore(&self) {
        let first = self.jobs.admission.ids.next();
        // Without a conductor there are no jobs to number.
        let _ = self.conductor.ask(move |state| state.core.number_from(first));
        let (records, unreadable) = self.jobs.files.store.records();
        // A process is in one job, also while the others are not restored yet.
        let placements = records.iter().map(|it| (JobId(it.id), it.placement.clone())).collect();
        let _ = self.conductor.ask(move |state| state.expect(placements));
        for record in records {
            release::job(&self.roots, &self.jobs.files.store, &record);
            if let Err(reason) = self.restore_job(&record) {
                tracing::info!(job = record.id, ?reason, "a job of an earlier daemon is over");
                let id = JobId(record.id);
                match self.conductor.ask(move |state| state.job(id).is_ok()) {
                    Ok(true) => self.end(id),
                    _ => self.clear_away(record),
                }
            }
        }
        let _ = self.conductor.ask(|state| state.expect(BTreeMap::new()));
        // After the others, whose members are not theirs to release.
        unreadable.iter().for_each(|file| self.let_go(file));
        self.jobs.files.store.remove_leftovers();
        // A decision on a job of policy auto, and its reason, are not on file.
        self.end_trials("");
    }

    /// Releases a job whose record cannot be read, moves its processes back to where they came
    /// from, and forgets it. Where the file does not say which job that is, the file stays.
    fn let_go(&self, file: &Unreadable) {
        let (path, reason) = (file.error.path.display(), &file.error.source);
        let Some(record) = file.salvage(&self.roots, &self.jobs.files.store) else {
            tracing::error!(%path, %reason, "a job is lost: its file does not say where it is");
            return;
        };
        tracing::error!(%path, %reason, job = record.id, "a job is released and not scheduled");
        // One that could not be read now may be whole: it is there for the next daemon.
        if !file.is_broken() {
            release::job(&self.roots, &self.jobs.files.store, &record);
            return;
        }
        self.clear_away(record);
    }

    fn restore_job(&self, on_file: &Record) -> Result<(), Error> {
        let (job, mut record) = (JobId(on_file.id), on_file.clone());
        self.can_go_on(&record.placement)?;
        if let Placement::Cgroup { group, other, .. } = &record.placement {
            let group = Group::at(group);
            // An earlier daemon may have been moving its processes from one to the other.
            let other = other.as_ref().map(Group::at).filter(|at| at.has("cgroup.threads"));
            let in_other = other.map_or(Ok(Vec::new()), |other| unless_gone(other.processes()))?;
            if !group.is_populated()? && in_other.is_empty() {
                return Err(Error::NoSuchJob(job));
            }
            // The guardian may have been asked to dissolve the group that limits their memory.
            let confinement = record.placement.confinement();
            if confinement.is_some_and(|at| self.jobs.cgroups.limit(at, 0).is_err()) {
                record.placement.set_confinement(None);
            }
            let processes = group.processes()?.into_iter().chain(in_other);
            for process in processes.filter_map(|pid| ProcessHandle::open(pid).ok()) {
                let moved = self.jobs.cgroups.move_in(&record.placement, &process);
                // One that has ended since they were listed keeps no other out.
                if process.is_alive() {
                    moved?;
                }
            }
        }
        self.jobs.cgroups.remove_other(&record.placement);
        record.placement = record.placement.with_other(None);
        let normal = record.normal.into();
        let (roster, members) = self.members(job, &record.placement, normal, &record.affinity)?;
        let kept = record.clone();
        // On file before anything is done to its threads: another backend may do other things.
        record.keeps_attributes = members.keeps_attributes;
        if record != *on_file {
            self.jobs.files.put(Some(record.clone()))?;
        }
        self.conductor.ask(move |state| state.restore(&kept, roster, members))??;
        if let Err(error) = self.confine(job, record.mem_bytes) {
            tracing::warn!(%job, ?error, "the memory of a job is not limited any more");
        }
        // Programs that mapped the slot page go on with it.
        let page = self.jobs.files.store.page(record.id);
        if page.exists() {
            let page = SlotPage::open(page, record.owner_uid)?;
            self.conductor.ask(move |state| state.page(job, page))??;
        }
        self.jobs.watch.add_job(job, &record.placement)?;
        self.deputize(job, &record.placement);
        tracing::info!(job = record.id, name = record.name, "found a job of an earlier daemon");
        Ok(())
    }
}
