//! Claims: turns of those that the entries of a slice keep out.
//!
//! Problem. A wide gang does not fit beside the slots of spanning jobs. If it began at the floor
//! after each slice that keeps it out, it would lose its share to narrow ones. If its virtual time
//! stood still without bound, it would keep others out for long once the entries are gone.
//!
//! Approach. It keeps its virtual time, and so leads in the slices that have room for it. It saves
//! up no more than it can use: as much as its rows come later than if they were spread evenly.
//!
//! Terms:
//! - *held*: one that could lead its tier in this slice but for entries.
//! - *rows of a gang*: those with room for it (`entries`). *group*: those with the same rows.
//! - *claim*: how far one is behind the floor.
//!
//! Algorithm. Let a gang have r of F rows. Its share can be met if it is r/F at most. In each
//! stretch of slices its claim grows by no more than its part of an even spread, less the rows of
//! the stretch. The greatest such difference, and a request of the tier, is as far as a group may
//! be behind.
//!
//! Groups are gone through from those with many rows to those with few. A group moves up with those
//! before it that share rows with it. It may be so far behind the least virtual time of the
//! contenders and of those groups. Where all of it is further behind, it moves up, and all of it by
//! as much. The order of gangs that compete for the same rows stays thereby, and so do their
//! shares. A group without rows begins at the floor, as those that do not fit beside a tier.
//!
//! Properties: a gang whose share is no greater than its part of the rows loses no claim; gangs
//! that are due more than their rows have all of them, shared by weight; whoever fits in no row
//! saves up nothing; a claim ends with the entries, and is bounded by the frame meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::CpuSet;
use crate::entries::{List, fits};
use crate::line::{Waiting, Who};
use crate::matrix::Rows;

/// What the rows of a list leave of the CPUs that are online.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub list: &'a List,
    pub online: &'a CpuSet,
}

impl Left<'_> {
    fn rows(&self, waiting: &Waiting) -> Rows {
        self.list.rows_with(self.online, |left| match &waiting.who {
            Who::Gang { job, .. } => fits(job, left),
            Who::Rest(_) => !left.is_empty(),
        })
    }
}

/// A group that was gone through.
struct Moved {
    rows: Rows,
    by: u128,
    /// The least virtual time in it.
    least: u128,
}

/// Bounds the claims of those that are held, where the least virtual time of the contenders is
/// `least` and the longest request is of so many slices.
pub(crate) fn bound(
    held: Vec<&mut Waiting>,
    left: Left,
    (least, floor): (u128, u128),
    longest: u32,
) {
    let mut groups: BTreeMap<(Reverse<u32>, Rows), Vec<&mut Waiting>> = BTreeMap::new();
    for waiting in held {
        let rows = left.rows(waiting);
        groups.entry((Reverse(rows.len()), rows)).or_default().push(waiting);
    }
    let mut before: Vec<Moved> = Vec::new();
    for ((_, rows), mut group) in groups {
        if rows.is_empty() {
            group.iter_mut().for_each(|it| it.raise_to_floor(floor));
            continue;
        }
        let rivals = || before.iter().filter(|it| !it.rows.is_disjoint(&rows));
        let along = rivals().map(|it| it.by).max().unwrap_or(0);
        let least = rivals().map(|it| it.least).fold(least.min(floor), u128::min);
        let slices = u128::from(left.list.unevenness(&rows) + longest);
        let behind = |it: &mut &mut Waiting| {
            let bound = least.saturating_sub(slices * it.turn.stride);
            bound.saturating_sub(*it.vtime())
        };
        let by = along.max(group.iter_mut().map(behind).min().unwrap_or(0));
        let vtimes = group.into_iter().map(|waiting| {
            *waiting.vtime() += by;
            *waiting.vtime()
        });
        let least = vtimes.min().unwrap_or(floor);
        before.push(Moved { rows, by, least });
    }
}
