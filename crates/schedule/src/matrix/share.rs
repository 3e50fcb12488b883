//! The entries that a spanning job is due.
//!
//! Problem: jobs of many hosts share each of them with others, and have the same time on all.
//! Approach: on each host the share that its weight gives it there (`accounts`). The host where
//! that is least, the most loaded one, decides (L15).
//!
//! Algorithm. Let a host have m CPUs, and let its jobs have mₖ CPUs at weight wₖ; a thread outside
//! of spanning jobs is one of them on one CPU. Job i is due
//!
//! ```text
//! m · wᵢ / Σ wₖ·mₖ
//! ```
//!
//! of the rows, and all of them at most. By program and at equal weights, a job of 4 threads on 8
//! CPUs with 12 other threads is due every other row: 25 % of the entries of that host.
//!
//! Classes are weights here: an entry holds until the next adjustment, so that nobody can come
//! before all others at each slice. Without a weight of its class, an express job counts a hundred
//! times as much as a batch one, a standby job a hundredth.
//!
//! Shares are rounded down to rows. Rounded to the nearest, a user of many jobs would have up to
//! half a row more for each of them. The frame is so long that the smallest share is some rows of
//! it ([`frame_needed`]).
//!
//! Properties: on no host are the jobs due more than its CPUs, nor the jobs of a user more than his
//! share, where each share is a row of the longest frame; by user, the number of a user's jobs and
//! their weights change no other user's part.

use crate::accounts::Asking;
use crate::matrix::{HostId, Load, Span};
use crate::turn::SCALE;
use crate::{Class, Config, JobId};

/// The share of a job that is due every row.
pub(crate) const WHOLE: u64 = 1_000_000_000;

/// The rows that the smallest share is of the needed frame. Rounding thus costs a job less than a
/// fifth of its share, and jobs of equal shares nothing.
pub(crate) const FINENESS: u64 = 4;

/// A row lacks so little at most where weights and shares were rounded down: a third of three rows
/// is a row.
const NEARLY: u64 = WHOLE / 1_000;

/// The percentage by which an express job counts where its class has no weight.
const EXPRESS: u32 = 10_000;
/// The percentage by which a standby job counts.
const STANDBY: u32 = 1;

/// The weight that a job asks for, by [`SCALE`].
fn weight(config: &Config, span: &Span) -> u64 {
    let weights = &config.class_weights;
    let percent = match span.class {
        Class::Express => weights.express.unwrap_or(EXPRESS),
        Class::Interactive => weights.interactive,
        Class::Batch => weights.batch,
        Class::Standby => STANDBY,
    };
    u64::from(span.weight) * u64::from(percent) * SCALE
}

/// The request of a job for its CPUs of a host.
pub(crate) fn asking(config: &Config, host: HostId, job: JobId, span: &Span) -> Asking {
    let width = span.cpus.get(&host).copied().unwrap_or(0);
    Asking { job, user: span.user, weight: weight(config, span), width }
}

/// The share of each of these jobs on a host of so many CPUs, in parts of [`WHOLE`].
pub(crate) fn shares(config: &Config, cpus: u32, jobs: &[Asking], load: &Load) -> Vec<u64> {
    let (weights, rest) = config.sharing.weigh(cpus, jobs, load.threads, &load.of_users);
    let by_width = weights.iter().zip(jobs).map(|(&weight, it)| (weight, it.width));
    let by_width = by_width.map(|(weight, width)| u128::from(weight) * u128::from(width));
    let all: u128 = by_width.sum::<u128>() + rest;
    let share = |weight: u64| {
        let due = u128::from(WHOLE) * u128::from(weight) * u128::from(cpus) / all;
        due.min(WHOLE.into()) as u64
    };
    weights.into_iter().map(share).collect()
}

/// The rows that a share of a frame is, rounded down; at least one.
pub(crate) fn rows_due(share: u64, frame: u32) -> u32 {
    let due = (share * u64::from(frame) + NEARLY) / WHOLE;
    due.clamp(1, u64::from(frame.max(1))) as u32
}

/// The rows of a frame in which a share is [`FINENESS`] rows.
pub(crate) fn frame_needed(share: u64) -> u32 {
    (FINENESS * WHOLE - NEARLY).div_ceil(share.max(1)).min(u32::MAX.into()) as u32
}
