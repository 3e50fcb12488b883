//! The frame: which row runs in a slice.
//!
//! Problem: every host must run the same row at the same moment, from its clock alone. The rows of
//! a job should be spread evenly over time, however long the frame becomes. Approach: the first
//! slice of each hour (UTC) is the first of a frame, and frames follow each other until the next
//! hour (L11). Within a frame rows run in the order of their numbers with the bits reversed. Any
//! first half of the rows is thus every other slice, and a range of rows comes back about evenly.
//!
//! A frame that does not divide the slices of an hour is cut short by the next hour. The rows that
//! were still to come have one turn fewer in this hour. A frame is never longer than an hour, so
//! that each row has a turn in every hour.
//!
//! A slice belongs to the hour in which it begins. Where slices do not divide the hour, the slice
//! that is under way on the hour is the last one of the hour before.
//!
//! Properties: a pure function of the slice, the length of a slice and that of the frame; each row
//! runs once in a whole frame; in an hour the turns of two rows differ by one at most.

use crate::{Config, clock};

/// An hour, ns.
const HOUR_NS: u64 = 3_600_000_000_000;

/// The slices that begin in each hour, rounded down; one more in some hours.
pub fn slices_per_hour(config: &Config) -> u64 {
    HOUR_NS / config.slice_ns
}

/// The number of slices of the same hour (UTC) before this one.
pub fn slice_of_hour(config: &Config, slice: u64) -> u64 {
    let hour = clock::slice_start(config, slice) / HOUR_NS;
    slice.saturating_sub((hour * HOUR_NS).div_ceil(config.slice_ns))
}

/// The row that runs in a slice where a frame has so many rows, at least one.
pub fn row_at(config: &Config, frame: u32, slice: u64) -> u32 {
    let place = slice_of_hour(config, slice) % u64::from(frame.max(1));
    nth(frame.max(1), place as u32)
}

/// The rows of a frame in the order in which they run.
pub fn order(frame: u32) -> Vec<u32> {
    (0..frame.max(1)).map(|place| nth(frame.max(1), place)).collect()
}

/// The row at a place of the order. Even rows come before odd ones, and both are in this order
/// themselves: as halves of their numbers, rounded down.
fn nth(frame: u32, place: u32) -> u32 {
    let (mut rows, mut place, mut row) = (frame, place, 0);
    let mut bit = 1;
    while rows > 1 {
        let even = rows.div_ceil(2);
        if place < even {
            rows = even;
        } else {
            (rows, place, row) = (rows - even, place - even, row + bit);
        }
        bit <<= 1;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slices_of(slice_ms: u64) -> Config {
        Config { slice_ns: slice_ms * 1_000_000, ..Config::default() }
    }

    #[test]
    fn a_frame_begins_on_the_hour() {
        // 14 slices of 250 s and one of 100 s more: the hour has 14.4 of them.
        let config = slices_of(250_000);
        let first: Vec<u64> = (0..32).map(|slice| slice_of_hour(&config, slice)).collect();
        assert_eq!(first[..15], (0..15).collect::<Vec<_>>());
        assert_eq!(first[15..29], (0..14).collect::<Vec<_>>());
        assert_eq!(first[29..], [0, 1, 2]);
        let rows: Vec<u32> = (12..18).map(|slice| row_at(&config, 4, slice)).collect();
        assert_eq!(rows, [0, 2, 1, 0, 2, 1], "the fourth row is cut off");
    }

    #[test]
    fn first_half_of_the_rows_is_every_other_slice() {
        assert_eq!(order(8), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(order(5), [0, 4, 2, 1, 3]);
        let is_first = |row: &u32| *row < 64;
        assert!(order(128).chunks(2).all(|two| is_first(&two[0]) && !is_first(&two[1])));
    }

    #[test]
    fn order_is_that_of_reversed_bits() {
        for frame in 0..300 {
            let mut rows: Vec<u32> = (0..frame.max(1)).collect();
            rows.sort_by_key(|row| row.reverse_bits());
            assert_eq!(order(frame), rows);
        }
        assert_eq!((nth(u32::MAX, 0), nth(u32::MAX, 1 << 31)), (0, 1));
    }

    proptest! {
        #[test]
        fn turns_of_an_hour_differ_by_one(slice_ms in 5_000u64..60_000, frame in 1u32..60, at: u32) {
            let config = slices_of(slice_ms);
            let hour = u64::from(at % 100_000);
            let mut turns: BTreeMap<u32, u32> = (0..frame).map(|row| (row, 0)).collect();
            let first = (hour * HOUR_NS).div_ceil(config.slice_ns);
            let next = ((hour + 1) * HOUR_NS).div_ceil(config.slice_ns);
            prop_assert!(next - first >= slices_per_hour(&config));
            for slice in first..next {
                *turns.get_mut(&row_at(&config, frame, slice)).unwrap() += 1;
            }
            let (least, most) = (turns.values().min().unwrap(), turns.values().max().unwrap());
            prop_assert!(*least >= 1 && most - least <= 1, "{:?}", turns);
        }

        /// A range of rows waits for no more than a few times its mean distance.
        #[test]
        fn a_range_of_rows_is_spread(frame in 1u32..400, first: u32, rows: u32) {
            let first = first % frame;
            let rows = 1 + rows % (frame - first);
            let places: Vec<usize> = order(frame).iter().enumerate()
                .filter(|(_, row)| (first..first + rows).contains(row)).map(|(at, _)| at).collect();
            let around = places.iter().copied().chain([places[0] + frame as usize]);
            let gap = around.clone().zip(around.skip(1)).map(|(a, b)| b - a).max().unwrap();
            prop_assert!(gap as u32 <= 4 * frame.div_ceil(rows), "{gap} of {frame} / {rows}");
        }
    }
}
