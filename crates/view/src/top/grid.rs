//! The CPUs of gangs as cells: the frame as a matrix, and the timeline.
//!
//! Both show the plan and nothing beyond it. A cell in which several gangs took turns is shown as
//! such, not as the gang that had most of it.

use gang_protocol::v1::Row;

use crate::live::Snapshot;

/// The content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// No row says anything of that time.
    Unknown,
    /// No gang has it: the rest of the machine, and fillers.
    Rest,
    Job(i64),
    /// More than one had a considerable part of it.
    Several,
}

/// CPUs that share a column of the matrix or a line of the timeline, where there are more CPUs than
/// space.
pub fn cpus_per_cell(cpus: usize, space: usize) -> usize {
    cpus.div_ceil(space.max(1)).max(1)
}

/// The part of a cell that one must have, so that the cell shows him alone.
const MOST: f64 = 2.0 / 3.0;

/// The shares of jobs in a cell, in CPUs and time.
#[derive(Debug, Clone, Default)]
struct Sum {
    /// The one that came first. It is alone in most cells; then nothing is allocated.
    first: Option<(i64, i64)>,
    others: Vec<(i64, i64)>,
    covered: i64,
}

impl Sum {
    fn add(&mut self, job: i64, amount: i64) {
        let first = self.first.get_or_insert((job, 0));
        if first.0 == job {
            first.1 += amount;
            return;
        }
        match self.others.iter_mut().find(|(id, _)| *id == job) {
            Some((_, sum)) => *sum += amount,
            None => self.others.push((job, amount)),
        }
    }

    fn cell(&self) -> Cell {
        if self.covered == 0 {
            return Cell::Unknown;
        }
        let jobs = || self.first.iter().chain(&self.others);
        let rest = self.covered - jobs().map(|(_, sum)| sum).sum::<i64>();
        let is_most = |sum: i64| sum as f64 >= MOST * self.covered as f64;
        match jobs().max_by_key(|(_, sum)| sum) {
            Some(&(job, sum)) if is_most(sum) => Cell::Job(job),
            _ if is_most(rest) => Cell::Rest,
            _ => Cell::Several,
        }
    }
}

/// Equal times, one after the other.
#[derive(Debug, Clone, Copy)]
struct Columns {
    from_ns: i64,
    each_ns: i64,
    number: usize,
}

/// The cells of these times, line by line: a line for each `per_cell` of `cpus` CPUs.
fn cells<'a>(
    rows: impl Iterator<Item = &'a Row>,
    cpus: usize,
    per_cell: usize,
    Columns { from_ns, each_ns, number }: Columns,
) -> Vec<Cell> {
    let lines = cpus.div_ceil(per_cell);
    let mut sums = vec![Sum::default(); lines * number];
    let in_line = |line: usize| per_cell.min(cpus - line * per_cell) as i64;
    let end_ns = from_ns + each_ns * number as i64;
    for row in rows.filter(|row| row.end_ns > from_ns && row.start_ns < end_ns) {
        let first = (row.start_ns - from_ns).max(0) / each_ns;
        let last = (row.end_ns.min(end_ns) - 1 - from_ns) / each_ns;
        for column in first..=last {
            let begins_ns = from_ns + column * each_ns;
            let part_ns = row.end_ns.min(begins_ns + each_ns) - row.start_ns.max(begins_ns);
            let column = column as usize;
            for line in 0..lines {
                sums[line * number + column].covered += part_ns * in_line(line);
            }
            for slot in &row.slots {
                for &cpu in &slot.cpu_list {
                    // Numbers of CPUs may have gaps; what is beyond is in the last line.
                    let line = (cpu.max(0) as usize / per_cell).min(lines.saturating_sub(1));
                    if let Some(sum) = sums.get_mut(line * number + column) {
                        sum.add(slot.job, part_ns);
                    }
                }
            }
        }
    }
    sums.iter().map(Sum::cell).collect()
}

/// The CPUs of a machine, as known from rows and status.
pub fn cpus(snapshot: &Snapshot) -> usize {
    let known = snapshot.status.as_ref().map_or(0, |status| status.cpus);
    let slots = snapshot.coming.iter().flat_map(|row| &row.slots);
    let highest = slots.flat_map(|slot| &slot.cpu_list).max().map_or(0, |cpu| cpu + 1);
    usize::try_from(known.max(highest)).unwrap_or(0)
}

/// The last time, a column for each `column_ns`, up to the last one that is over.
pub struct Timeline {
    /// A line for each `per_line` CPUs.
    pub lines: Vec<Vec<Cell>>,
    pub per_line: usize,
    pub column_ns: i64,
}

impl Timeline {
    pub fn of(snapshot: &Snapshot, column_ns: i64, columns: usize, lines: usize) -> Timeline {
        let cpus = cpus(snapshot);
        let per_line = cpus_per_cell(cpus, lines);
        // Columns begin at whole multiples, so that what was drawn once stays as it is.
        let end_ns = snapshot.past.end_ns().unwrap_or(snapshot.at_ns) / column_ns * column_ns;
        let from_ns = end_ns - column_ns * columns as i64;
        let rows = snapshot.past.since(from_ns);
        let columns = Columns { from_ns, each_ns: column_ns, number: columns };
        let cells = cells(rows, cpus, per_line, columns);
        let lines = cells.chunks(columns.number.max(1)).map(<[Cell]>::to_vec).collect();
        Timeline { lines, per_line, column_ns }
    }
}

/// A row of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixRow {
    pub slice: i64,
    pub cells: Vec<Cell>,
    pub is_now: bool,
    /// It has ended, and what is shown is final.
    pub is_over: bool,
    pub rest_turn: bool,
}

/// The frame: consecutive slices, the first of which is a multiple of their number. So a row stands
/// still while the slice under way moves down.
pub struct Matrix {
    pub rows: Vec<MatrixRow>,
    pub per_column: usize,
}

impl Matrix {
    /// As it is at a moment (UTC).
    pub fn of(snapshot: &Snapshot, now_ns: i64, rows: usize, columns: usize) -> Matrix {
        let cpus = cpus(snapshot);
        let per_column = cpus_per_cell(cpus, columns);
        let slice_ns = snapshot.status.as_ref().map_or(0, |status| status.slice_ns);
        if slice_ns <= 0 || rows == 0 {
            return Matrix { rows: Vec::new(), per_column };
        }
        let now = now_ns.div_euclid(slice_ns);
        let first = now.div_euclid(rows as i64) * rows as i64;
        let past = snapshot.past.since(first * slice_ns);
        let known: Vec<&Row> = past.chain(&*snapshot.coming).collect();
        let row = |slice: i64| {
            let row = known.iter().find(|row| row.slice == slice);
            let column = Columns { from_ns: slice * slice_ns, each_ns: slice_ns, number: 1 };
            let cells = cells(row.into_iter().copied(), cpus, per_column, column);
            MatrixRow {
                slice,
                cells,
                is_now: slice == now,
                is_over: slice < now,
                rest_turn: row.is_some_and(|row| row.rest_turn),
            }
        };
        Matrix { rows: (first..first + rows as i64).map(row).collect(), per_column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, row};
    use crate::live::{Model, Moment};

    const MS: i64 = 1_000_000;

    fn snapshot(slice_ns: i64, rows: Vec<Row>, now_ns: i64) -> Snapshot {
        let at = Moment { utc_ns: now_ns, ..Moment::now() };
        let mut model = Model::new("host");
        model.status(gang_protocol::v1::Status { slice_ns, ..fixture::status() });
        model.frame(rows, at);
        model.snapshot(at)
    }

    #[test]
    fn column_of_many_turns_shows_that_there_were_more() {
        // Jobs 1 and 2 by turns on both CPUs; then job 3 on one CPU.
        let turns = (0..20).map(|slice| row(slice, MS, &[(1 + slice % 2, &[0, 1])]));
        let single = (20..40).map(|slice| row(slice, MS, &[(3, &[1])]));
        let snapshot = snapshot(MS, turns.chain(single).collect(), 40 * MS);
        let timeline = Timeline::of(&snapshot, 10 * MS, 5, 10);
        use Cell::*;
        assert_eq!(timeline.lines[0], [Unknown, Several, Several, Rest, Rest]);
        assert_eq!(timeline.lines[1], [Unknown, Several, Several, Job(3), Job(3)]);
        let fine = Timeline::of(&snapshot, MS, 40, 10);
        assert_eq!(fine.lines[0][..4], [Job(1), Job(2), Job(1), Job(2)]);
        // Both CPUs in one line.
        let folded = Timeline::of(&snapshot, MS, 40, 1);
        assert_eq!((folded.per_line, folded.lines.len()), (2, 1));
        assert_eq!(folded.lines[0][1..3], [Job(2), Job(1)]);
        assert_eq!(folded.lines[0][25], Several);
    }

    #[test]
    fn the_row_moves_and_the_frame_stands() {
        let rows: Vec<Row> =
            (0..64).map(|slice| row(slice, 10 * MS, &[(1 + slice % 2, &[0, 1])])).collect();
        let at = |now_ns| Matrix::of(&snapshot(10 * MS, rows.clone(), now_ns), now_ns, 8, 2);
        let (early, late) = (at(325 * MS), at(389 * MS));
        let slices = |matrix: &Matrix| matrix.rows.iter().map(|row| row.slice).collect::<Vec<_>>();
        assert_eq!(slices(&early), (32..40).collect::<Vec<_>>());
        assert_eq!(slices(&early), slices(&late));
        let now = |matrix: &Matrix| matrix.rows.iter().position(|row| row.is_now);
        assert_eq!((now(&early), now(&late)), (Some(0), Some(6)));
        for (early, late) in early.rows.iter().zip(&late.rows) {
            assert_eq!(early.cells, late.cells);
        }
        assert_eq!(early.rows[1].cells, [Cell::Job(2), Cell::Job(2)]);
    }

    #[test]
    fn many_cpus_are_folded() {
        assert_eq!(cpus_per_cell(128, 40), 4);
        assert_eq!(cpus_per_cell(2, 40), 1);
        assert_eq!(cpus_per_cell(0, 40), 1);
        assert_eq!(cpus_per_cell(5, 0), 5);
    }
}
