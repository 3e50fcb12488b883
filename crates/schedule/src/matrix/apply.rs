//! Changes of the matrix that were made elsewhere.
//!
//! A host reads from the registry what another one changed, and goes on from there. Nothing is
//! decided here.

use crate::JobId;
use crate::matrix::{Matrix, Placement, Refused, Span};
use std::collections::BTreeMap;

impl Matrix {
    /// Takes over a change: these jobs have other entries, or are gone. All others stay as they
    /// are. Returns the jobs whose entries cannot be: they are gone, too.
    pub fn apply(
        &mut self,
        changed: BTreeMap<JobId, Option<(Span, Placement)>>,
    ) -> BTreeMap<JobId, Refused> {
        // Jobs may have changed places with each other.
        for (job, new) in &changed {
            let Some(known) = self.jobs.get(job) else { continue };
            let is_same = new.as_ref().is_some_and(|(span, _)| *span == known.span);
            self.release(*job);
            if !is_same {
                self.leave(*job);
            }
        }
        let mut refused = BTreeMap::new();
        for (job, new) in changed {
            let Some((span, placement)) = new else { continue };
            let done = match self.jobs.contains_key(&job) {
                false => self.restore(job, span, placement),
                true => {
                    let fits = self.check_fit(job, &span, &placement);
                    fits.map(|()| _ = self.hold(job, placement))
                }
            };
            if let Err(why) = done {
                self.leave(job);
                refused.insert(job, why);
            }
        }
        self.fit_frame();
        refused
    }
}
