//! The rows of the last seconds.

use std::collections::VecDeque;
use std::sync::Arc;

use gang_protocol::v1::Row;

/// How long rows are kept.
pub const SPAN_NS: i64 = 10_000_000_000;

/// Most rows that are kept: ten seconds of slices of half a millisecond.
const ROWS_MAX: usize = 20_000;

/// Ended rows, in order. A clone shares them: what one poll has brought is one chunk.
#[derive(Debug, Clone, Default)]
pub struct Past {
    chunks: VecDeque<Arc<[Row]>>,
    rows: usize,
}

impl Past {
    /// Adds rows that come after all others, and forgets the oldest.
    pub fn add(&mut self, rows: Arc<[Row]>) {
        let Some(last) = rows.last() else { return };
        let kept_ns = last.end_ns - SPAN_NS;
        self.rows += rows.len();
        self.chunks.push_back(rows);
        while let Some(oldest) = self.chunks.front() {
            let is_old = oldest.last().is_none_or(|row| row.end_ns <= kept_ns);
            if !is_old && self.rows <= ROWS_MAX || self.chunks.len() == 1 {
                break;
            }
            self.rows -= oldest.len();
            self.chunks.pop_front();
        }
    }

    /// The end of the last row.
    pub fn end_ns(&self) -> Option<i64> {
        self.chunks.back()?.last().map(|row| row.end_ns)
    }

    /// The rows that end after a moment (UTC), in order.
    pub fn since(&self, moment_ns: i64) -> impl Iterator<Item = &Row> {
        let ends_before = |chunk: &Arc<[Row]>| chunk.last().is_none_or(|r| r.end_ns <= moment_ns);
        let first = self.chunks.partition_point(ends_before);
        let rows = self.chunks.range(first..).flat_map(|chunk| chunk.iter());
        rows.skip_while(move |row| row.end_ns <= moment_ns)
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn len(&self) -> usize {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(slices: std::ops::Range<i64>, slice_ns: i64) -> Arc<[Row]> {
        let row = |slice| Row {
            slice,
            start_ns: slice * slice_ns,
            end_ns: (slice + 1) * slice_ns,
            slots: Vec::new(),
            rest_cpus: 0,
            rest_turn: false,
            gap: None,
        };
        slices.map(row).collect()
    }

    #[test]
    fn ten_seconds_are_kept_and_found() {
        let mut past = Past::default();
        for chunk in 0..300 {
            past.add(rows(chunk * 10..chunk * 10 + 10, 10_000_000));
        }
        assert_eq!(past.len(), 1000);
        assert_eq!(past.end_ns(), Some(30_000_000_000));
        let found: Vec<i64> = past.since(29_965_000_000).map(|row| row.slice).collect();
        assert_eq!(found, [2996, 2997, 2998, 2999]);
        assert_eq!(past.since(30_000_000_000).count(), 0);
        assert_eq!(past.since(0).count(), 1000);
    }

    #[test]
    fn short_slices_are_bounded_by_number() {
        let mut past = Past::default();
        for chunk in 0..100 {
            past.add(rows(chunk * 500..chunk * 500 + 500, 200_000));
        }
        assert_eq!(past.len(), ROWS_MAX);
    }
}
