//! Orders to a job that one question to the conductor carries out.

use std::path::PathBuf;

use gang_conductor::{Progress, Suspension};
use gang_engine::page::SlotPage;
use gang_schedule::JobId;

use super::peer::Peer;
use crate::{conduct::state::State, daemon::Daemon, error::Error};

/// How a job is suspended, and whether by its caller's group.
fn suspension_of(state: &State, job: JobId) -> Result<(Suspension, bool), Error> {
    let job = state.job(job)?;
    Ok((Suspension::of(job), job.suspended_by_group))
}

fn suspend_again(
    state: &mut State,
    job: JobId,
    suspension: Suspension,
    by_group: bool,
) -> Result<(), Error> {
    let suspended = match by_group {
        true => state.suspend_with_group(job, suspension),
        false => state.suspend(job, suspension),
    };
    suspended.map(drop)
}

impl Daemon {
    /// Suspends a job, or resumes it; with all that are in it, or without members of other users
    /// than its own.
    pub fn suspend(&self, job: JobId, suspended: bool, with_foreign: bool) -> Result<(), Error> {
        self.change_or_undo(move |state| {
            let (before, was_by_group) = suspension_of(state, job)?;
            let record = state.suspend(job, before.after(suspended, with_foreign))?;
            Ok((record, Box::new(move |state| suspend_again(state, job, before, was_by_group))))
        })
    }

    /// Suspends a job, or resumes it, as the group in which it was called stands still or does
    /// not, unless an order says otherwise.
    pub fn follow_group(&self, job: JobId, stands_still: bool) -> Result<(), Error> {
        let differs =
            move |state: &mut State| state.job(job).map(|job| job.differs_from_group(stands_still));
        if !self.conductor.ask(differs)?? {
            return Ok(());
        }
        self.change_or_undo(move |state| {
            let (before, was_by_group) = suspension_of(state, job)?;
            let record = state.suspend_with_group(job, before.after(stands_still, false))?;
            Ok((record, Box::new(move |state| suspend_again(state, job, before, was_by_group))))
        })
    }

    /// Whether signals announce the slots of a job to its processes.
    pub fn set_signals(&self, peer: Peer, job: JobId, signals: bool) -> Result<(), Error> {
        self.permit(peer, job, "set the signals of a job")?;
        self.change_or_undo(move |state| {
            let before = state.job(job)?.signals;
            let record = state.set_signals(job, signals)?;
            Ok((record, Box::new(move |state| state.set_signals(job, before).map(drop))))
        })
    }

    /// The slot page of a job, made where no client has asked for it yet.
    pub fn slot_page(&self, peer: Peer, job: JobId) -> Result<PathBuf, Error> {
        let owner_uid = self.permit(peer, job, "read the slot page")?;
        let path = self.jobs.files.store.page(job.0);
        let _filing = self.jobs.files.lock();
        let is_there =
            self.conductor.ask(move |state| state.job(job).map(|job| job.has_page))??;
        if !is_there {
            let made = SlotPage::open(&path, owner_uid).map_err(Error::from);
            let known =
                made.and_then(|page| self.conductor.ask(move |state| state.page(job, page))?);
            // Half of a page on a full disk, or the page of a job that is over.
            known.inspect_err(|_| self.jobs.files.store.remove_page(job.0))?;
        }
        Ok(path)
    }

    /// A program reports how far its job is. Reports come again and again, so each asks the
    /// conductor only once where the program is in the daemon's user namespace.
    pub fn set_progress(&self, peer: Peer, id: JobId, progress: Progress) -> Result<(), Error> {
        let peer = self.peer_of(peer, id)?;
        let sees = self.seen_by(peer)?;
        self.conductor.ask(move |state| {
            let owner_uid = state.job(id)?.owner_uid;
            peer.permit(id, owner_uid, "report the progress of a job", sees)?;
            Ok(state.core.report_progress(id, progress)?)
        })?
    }
}
