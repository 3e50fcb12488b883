//! The entries of this host, by the slices from which they hold.
//!
//! Problem. A change of the matrix names the slice from which it holds, so that all hosts follow it
//! from the same moment on. Until then the entries before it hold. A host that reads a change too
//! late must not mix the two.
//!
//! Approach. A [`Timeline`] is a list of [`Step`]s, each with all entries of this host from one
//! slice on. A change adds a step; one that came too late begins at the first slice that the host
//! can still plan, and the host keeps to what it has until then. Where the clock is set back, the
//! step of that time holds again, and those after it wait for their slices.
//!
//! Properties: steps follow each other in time; within a step no CPU has two jobs in one row; a
//! slice whose plan was made keeps its step.

use std::collections::BTreeMap;

use gang_schedule::matrix::{HostId, MAX_ROWS, Rows, frame};
use gang_schedule::{Config, CpuSet, JobId, MAX_CPUS, Slot};
use serde::{Deserialize, Serialize};

use crate::record::{ClusterSettings, Fault, Job, Wanted, decode, encode, list};
use crate::view::View;

/// A spanning job on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub job: JobId,
    /// That of the job's record ([`crate::record::Job::nonce`]): a local job of another nonce is
    /// another job.
    pub nonce: String,
    pub wanted: Wanted,
    /// Processes of it are awaited on some host: it has no slots yet.
    pub is_awaiting: bool,
    /// Empty for a job that was released, or whose entries cannot be.
    pub rows: Rows,
    /// Columns of this host, from 0.
    pub cpus: CpuSet,
}

/// The entries of this host from one slice on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The change of the matrix that the step follows.
    pub change: u64,
    /// The slice that the change names.
    pub named_slice: u64,
    /// The slice from which the host follows it: a later one where it was late.
    pub from_slice: u64,
    pub slice_ns: u64,
    /// The columns of this host.
    pub columns: u32,
    /// The rows of a frame.
    pub frame: u32,
    /// By job.
    pub parts: Vec<Part>,
}

impl Part {
    /// Whether it has slots in its rows.
    pub fn has_slots(&self) -> bool {
        self.wanted == Wanted::Run && !self.is_awaiting
    }
}

/// The steps that hold, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    steps: Vec<Step>,
    /// The last steps that are over: the clock may be set back to where they held.
    past: Vec<Step>,
}

/// The most steps that are over and kept.
const PAST_MAX: usize = 8;

impl Step {
    /// The entries of a host in the matrix as it was read; none of one that is not in it.
    pub fn of(view: &View, host: Option<HostId>, from_slice: u64) -> Step {
        let state = view.state().map(|(state, _)| state);
        let (change, frame) = state.map_or((0, 1), |state| (state.change, state.frame));
        let config = view.settings().map_or_else(Config::default, ClusterSettings::config);
        let none = BTreeMap::new();
        let matrix = view.matrix();
        let of_host = |host| matrix.into_iter().flat_map(move |matrix| matrix.entries(host));
        let placed: BTreeMap<JobId, (&Rows, &CpuSet)> = host.map_or(none, |host| {
            of_host(host).map(|(job, rows, cpus)| (job, (rows, cpus))).collect()
        });
        let of_me = host.and_then(|host| view.name_of(host));
        // Entries alone make no job. One without a place here has its wanted state all the same.
        let part = |(job, name, record): (JobId, &str, &Job)| {
            let (entries, nonce) = (view.entries(job)?, record.nonce.clone());
            let (wanted, is_awaiting) = (entries.wanted, !entries.awaited.is_empty());
            let is_here = of_me.is_some_and(|me| me == name || record.cpus.contains_key(me));
            let (rows, cpus) = match placed.get(&job) {
                Some((rows, cpus)) => ((*rows).clone(), (*cpus).clone()),
                None if is_here => (Rows::new(), CpuSet::new()),
                None => return None,
            };
            Some(Part { job, nonce, wanted, is_awaiting, rows, cpus })
        };
        let parts = view.jobs().filter_map(part).collect();
        let columns = of_me.and_then(|me| view.hosts().get(me)).map_or(0, |host| host.cpus);
        let (named_slice, slice_ns) = (from_slice, config.slice_ns);
        Step { change, named_slice, from_slice, slice_ns, columns, frame, parts }
    }

    /// Whether both say the same, from whichever slices on.
    pub fn says_as(&self, other: &Step) -> bool {
        let of = |it: &Step| (it.change, it.slice_ns, it.columns, it.frame);
        of(self) == of(other) && self.parts == other.parts
    }

    /// The slots of this host in a slice of the step: columns, by job. Jobs that stand still on all
    /// hosts have none, nor have those that await processes.
    pub fn slots(&self, slice: u64) -> Vec<Slot> {
        let config = Config { slice_ns: self.slice_ns, ..Config::default() };
        let row = frame::row_at(&config, self.frame, slice);
        let runs = |part: &&Part| part.has_slots() && part.rows.contains(row);
        let slot = |part: &Part| Slot { job: part.job, cpus: part.cpus.clone() };
        self.parts.iter().filter(runs).map(slot).collect()
    }
}

/// A timeline on file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    steps: Vec<KeptStep>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptStep {
    change: u64,
    #[serde(default)]
    named_slice: u64,
    from_slice: u64,
    slice_ns: u64,
    columns: u32,
    frame: u32,
    parts: Vec<KeptPart>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptPart {
    job: u64,
    nonce: String,
    wanted: Wanted,
    is_awaiting: bool,
    rows: String,
    columns: String,
}

impl Timeline {
    /// The timeline as text, for a daemon that starts while nobody reaches the registry.
    pub fn to_text(&self) -> String {
        let part = |part: &Part| KeptPart {
            job: part.job.0,
            nonce: part.nonce.clone(),
            wanted: part.wanted,
            is_awaiting: part.is_awaiting,
            rows: part.rows.to_string(),
            columns: part.cpus.to_string(),
        };
        let step = |step: &Step| KeptStep {
            change: step.change,
            named_slice: step.named_slice,
            from_slice: step.from_slice,
            slice_ns: step.slice_ns,
            columns: step.columns,
            frame: step.frame,
            parts: step.parts.iter().map(part).collect(),
        };
        encode(Kept { steps: self.steps.iter().map(step).collect() })
    }

    /// The timeline of a text, as far as its slices are so long.
    ///
    /// # Errors
    /// It is of a newer version, or was not written by [`Timeline::to_text`].
    pub fn from_text(text: &str, slice_ns: u64) -> Result<Timeline, Fault> {
        let part = |kept: KeptPart| {
            let rows = list(&kept.rows, MAX_ROWS)?.iter().collect();
            Ok(Part {
                job: JobId(kept.job),
                nonce: kept.nonce,
                wanted: kept.wanted,
                is_awaiting: kept.is_awaiting,
                rows,
                cpus: list(&kept.columns, MAX_CPUS)?,
            })
        };
        let step = |kept: KeptStep| {
            let KeptStep { change, named_slice, from_slice, slice_ns, columns, frame, parts } =
                kept;
            if !(1..=MAX_ROWS).contains(&frame) {
                return Err(Fault::Unreadable(format!("a frame of {frame} rows")));
            }
            let parts = parts.into_iter().map(part).collect::<Result<_, Fault>>()?;
            Ok(Step { change, named_slice, from_slice, slice_ns, columns, frame, parts })
        };
        let kept = decode::<Kept>(text)?.steps.into_iter();
        let steps = kept.filter(|kept| kept.slice_ns == slice_ns).map(step);
        Ok(Timeline { steps: steps.collect::<Result<_, Fault>>()?, past: Vec::new() })
    }

    /// A change holds from its slice on, or from `first` where that is later: the first slice that
    /// is not planned yet.
    pub fn push(&mut self, mut step: Step, first: u64) {
        step.from_slice = step.from_slice.max(first);
        // One that has not begun is replaced by a later change from the same slice on.
        self.steps.retain(|before| before.from_slice < step.from_slice);
        self.steps.push(step);
    }

    /// Drops the steps that no slice from `first` on uses.
    pub fn forget(&mut self, first: u64) {
        let over = self.steps.iter().rposition(|step| step.from_slice <= first).unwrap_or(0);
        self.past.extend(self.steps.drain(..over));
        self.past.drain(..self.past.len().saturating_sub(PAST_MAX));
    }

    /// The clock was set back: `first` is the first slice that is planned now. The step of that
    /// slice holds again, and those after it wait for their slices. Where none of that time is
    /// known, the host has no slots until the next one begins. A last step that is more than `far`
    /// slices ahead is of a clock that was wrong: it goes on.
    pub fn set_back(&mut self, first: u64, far: u64) {
        let mut all = std::mem::take(&mut self.past);
        all.append(&mut self.steps);
        match all.last() {
            Some(last) if last.named_slice > first.saturating_add(far) => {
                let from_slice = first;
                self.steps.extend(all.pop().map(|last| Step { from_slice, ..last }));
            }
            _ => {
                for step in all {
                    self.push(Step { from_slice: step.named_slice, ..step }, 0);
                }
                self.forget(first);
            }
        }
    }

    /// The step of a slice; None before the first one.
    pub fn at(&self, slice: u64) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.from_slice <= slice)
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from_slice: u64, job: u64) -> Step {
        let rows = [0].into_iter().collect();
        let cpus = [0].into_iter().collect();
        let (nonce, wanted) = (String::new(), Wanted::Run);
        let part = Part { job: JobId(job), nonce, wanted, is_awaiting: false, rows, cpus };
        let (change, named_slice, parts) = (job, from_slice, vec![part]);
        Step { change, named_slice, from_slice, slice_ns: 1, columns: 1, frame: 1, parts }
    }

    fn jobs(timeline: &Timeline, slices: std::ops::Range<u64>) -> Vec<Option<u64>> {
        slices.map(|slice| Some(timeline.at(slice)?.parts[0].job.0)).collect()
    }

    #[test]
    fn changes_hold_from_their_slices_on() {
        let mut timeline = Timeline::default();
        timeline.push(step(5, 1), 2);
        timeline.push(step(7, 2), 3);
        timeline.push(step(7, 3), 4);
        assert_eq!(jobs(&timeline, 4..9), [None, Some(1), Some(1), Some(3), Some(3)]);
        timeline.forget(8);
        assert_eq!(jobs(&timeline, 6..9), [None, Some(3), Some(3)]);
    }

    #[test]
    fn a_timeline_is_read_as_it_was_written() {
        let mut timeline = Timeline::default();
        timeline.push(step(5, 1), 2);
        timeline.push(step(7, 2), 3);
        let text = timeline.to_text();
        assert_eq!(Timeline::from_text(&text, 1), Ok(timeline));
        assert_eq!(Timeline::from_text(&text, 2), Ok(Timeline::default()), "other slices");
        for wrong in ["", "{}", &text[..text.len() - 1], &text.replace("\"v\":1", "\"v\":9")] {
            assert!(Timeline::from_text(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clock_set_back_makes_steps_wait_for_slices() {
        let mut timeline = Timeline::default();
        timeline.push(step(5, 1), 2);
        timeline.push(step(50, 2), 40);
        timeline.push(step(60, 3), 52);
        timeline.forget(55);
        // To where the first one held, which is over.
        let mut back = timeline.clone();
        back.set_back(45, 1_000);
        assert_eq!(jobs(&back, 45..52)[4..7], [Some(1), Some(2), Some(2)]);
        assert_eq!(jobs(&back, 58..62), [Some(2), Some(2), Some(3), Some(3)]);
        // To where the second one holds.
        timeline.set_back(53, 1_000);
        assert_eq!(jobs(&timeline, 53..62), [[Some(2); 7].as_slice(), &[Some(3); 2]].concat());
        // One that came late, since the clock was ahead, holds by its own slice.
        let mut ahead = Timeline::default();
        ahead.push(step(5, 1), 500);
        ahead.set_back(8, 1_000);
        assert_eq!(jobs(&ahead, 8..10), [Some(1), Some(1)]);
        // One that only a clock that was wrong can have named.
        let mut wrong = Timeline::default();
        wrong.push(step(5, 1), 2);
        wrong.push(step(5_000, 2), 4_000);
        wrong.set_back(8, 1_000);
        assert_eq!(jobs(&wrong, 7..9), [None, Some(2)]);
        // Of that time nothing is known.
        let mut new = Timeline::default();
        new.push(step(50, 1), 40);
        new.set_back(8, 1_000);
        assert_eq!(jobs(&new, 49..51), [None, Some(1)]);
    }

    #[test]
    fn a_late_change_leaves_planned_slices_alone() {
        let mut timeline = Timeline::default();
        timeline.push(step(5, 1), 2);
        timeline.push(step(6, 2), 9);
        assert_eq!(jobs(&timeline, 7..10), [Some(1), Some(1), Some(2)]);
        timeline.forget(9);
        assert_eq!(timeline.steps().len(), 1, "{timeline:?}");
    }
}
