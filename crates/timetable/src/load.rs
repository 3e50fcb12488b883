//! The work of a switcher at an edge.
//!
//! Problem: a switcher makes the calls of an edge one after the other, also those about threads
//! that sleep. The gang that is raised last waits for all of them.
//!
//! Approach: [`compose`](crate::compose()) counts the actions of each gang that an edge has each
//! switcher carry out, and reports where they are too many. Not counted is what a timetable states
//! once, whatever comes after it: how a gang stands that has new threads, and the first CPUs to
//! which it is restricted.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::JobId;

use crate::Action;

/// Gangs that have one switcher carry out more actions at an edge than it has time for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub switcher: usize,
    /// The actions of each gang.
    pub actions: BTreeMap<JobId, usize>,
}

/// A part of an edge that comes as often as the edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Recurring {
    pub job: JobId,
    pub part: usize,
    /// The gang moves from slot to slot, and is restricted to other CPUs each time.
    pub has_pins: bool,
}

impl Recurring {
    /// The actions of a share of the part; those that restrict come first.
    fn actions(&self, share: &[Action]) -> usize {
        let is_pin = |action: &&Action| matches!(action, Action::Affinity { .. });
        match self.has_pins {
            true => share.len(),
            false => share.len() - share.iter().take_while(is_pin).count(),
        }
    }
}

/// Where the edges of a stretch ask more of a switcher than so many actions. Of edges that are
/// alike the first one counts. `shares` are the shares of each switcher, by number of the part.
pub(crate) fn excessive(
    edges: impl Iterator<Item = Vec<Recurring>>,
    shares: &[Vec<Vec<Action>>],
    actions_max: usize,
) -> Vec<Load> {
    let totals = |part: usize| shares.iter().map(|share| share[part].len()).sum::<usize>();
    let mut known = BTreeMap::<usize, usize>::new();
    let mut total = |part| *known.entry(part).or_insert_with(|| totals(part));
    let mut alike = BTreeSet::new();
    let mut loads = Vec::new();
    for edge in edges {
        // Few edges have so many for all switchers together.
        let all: usize = edge.iter().map(|it| total(it.part)).sum();
        if all <= actions_max || !alike.insert(edge.clone()) {
            continue;
        }
        for (switcher, share) in shares.iter().enumerate() {
            let mut actions = BTreeMap::new();
            for it in &edge {
                *actions.entry(it.job).or_default() += it.actions(&share[it.part]);
            }
            actions.retain(|_, count| *count > 0);
            if actions.values().sum::<usize>() > actions_max {
                loads.push(Load { switcher, actions });
            }
        }
    }
    loads
}
