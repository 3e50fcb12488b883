//! How much of its turns a gang is whole: the truth from the definitions (`whole.rs`), and turns
//! that are worked out by hand.

use std::ops::Range;

use super::{
    machine::{At, Kind, Machine},
    truth::{Span, Thread, counts},
};
use crate::{Lane, SlotTime, Turn, Whole};

/// A part of a turn: of its slot, or of its gap.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Of the row; 0 where that is not known.
    pub cpus: u64,
    pub is_gap: bool,
}

/// The doings of the CPUs of a row while the gang does not have all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    OfOther,
    Split,
    Partly,
}

impl Seen {
    /// By the gang that each CPU runs; 0 is none.
    pub fn of(gang: u64, row: &[u64]) -> Seen {
        let mut gangs: Vec<u64> = row.iter().copied().filter(|&it| it > 0).collect();
        let run_one = gangs.len();
        gangs.sort_unstable();
        gangs.dedup();
        match gangs.as_slice() {
            [only] if run_one == row.len() && *only != gang => Seen::OfOther,
            [] | [_] => Seen::Partly,
            _ => Seen::Split,
        }
    }
}

/// The truth about a gang. All time up to a moment at which the gang was booked, and from the one
/// before, counts as what its CPUs ran right before that moment.
pub fn row_truth(
    threads: &[Thread],
    pieces: &[Piece],
    spans: &[Span],
    booked_ns: &[u64],
    range: Range<u64>,
    seen_before: impl Fn(u64) -> Seen,
) -> Whole {
    let of_pieces = pieces.iter().flat_map(|piece| [piece.from_ns, piece.to_ns]);
    let of_spans = spans.iter().flat_map(|span| [span.start_ns, span.end_ns]);
    let spells = threads.iter().flat_map(|thread| &thread.spells);
    let mut moments: Vec<u64> = of_pieces
        .chain(of_spans)
        .chain(spells.flat_map(|spell| [spell.from_ns, spell.to_ns]))
        .chain(booked_ns.iter().copied())
        .chain([range.start, range.end])
        .filter(|moment| (range.start..=range.end).contains(moment))
        .collect();
    moments.sort_unstable();
    moments.dedup();
    let mut truth = Whole::default();
    let (mut was_whole, mut tail_ns) = (false, 0);
    for step in moments.windows(2) {
        let (at_ns, length_ns) = (step[0], step[1] - step[0]);
        // Whatever is known of a slot's end is known after it.
        if spans.iter().any(|span| span.end_ns == at_ns) {
            truth.edge_ns += std::mem::take(&mut tail_ns);
        }
        was_whole &= !spans.iter().any(|span| span.start_ns == at_ns && span.has_edge);
        let piece = pieces.iter().find(|piece| (piece.from_ns..piece.to_ns).contains(&at_ns));
        let Some(piece) = piece else { continue };
        let (running, runnable) = counts(threads, at_ns);
        if piece.cpus == 0 || runnable < piece.cpus {
            continue;
        }
        truth.asked_ns += length_ns;
        if running >= piece.cpus {
            truth.whole_ns += length_ns;
            (was_whole, tail_ns) = (was_whole || !piece.is_gap, 0);
            continue;
        }
        let booked = booked_ns[booked_ns.partition_point(|&booked_ns| booked_ns < step[1])];
        match seen_before(booked) {
            Seen::OfOther => {
                truth.other_ns += length_ns;
                continue;
            }
            Seen::Split => truth.split_ns += length_ns,
            Seen::Partly => {}
        }
        match (piece.is_gap, was_whole) {
            (true, _) => truth.gap_ns += length_ns,
            (false, false) => truth.edge_ns += length_ns,
            (false, true) => tail_ns += length_ns,
        }
    }
    truth
}

const OWN: u64 = 7;
const OTHER: u64 = 8;

fn us(us: u64) -> u64 {
    1_000_000_000 + us * 1000
}

fn at(cpu: usize, now_us: u64) -> At {
    At { cpu, now_ns: us(now_us) }
}

/// Slots of [`OWN`] from 100 to 400 us, with a gap up to 500, and from 900 to 1300 us; between them
/// one of [`OTHER`]. Threads 1 and 2 are of the first gang, 3 and 4 of the other one, 5 of none.
fn two_gangs(row: &[u32]) -> Machine {
    let mut machine = Machine::start();
    let cpus = row.len() as u32;
    let turn = |start, end, until| SlotTime {
        start_ns: us(start),
        end_ns: us(end),
        until_ns: us(until),
        cpus,
    };
    for (task, group) in [(1, OWN), (2, OWN), (3, OTHER), (4, OTHER), (5, 1)] {
        machine.task(task, Kind { tgid: task as u32, policy: 1, is_of_kernel: false });
        machine.move_to(task, group);
    }
    let own = [turn(100, 400, 500), turn(900, 1300, 1300)];
    let other = [turn(500, 900, 900)];
    machine.set_slots(OWN, Some(&own), row);
    machine.set_slots(OTHER, Some(&other), row);
    let turns = |gang, slots: &[SlotTime]| {
        let turn = |slot: &SlotTime| Turn { start_ns: slot.start_ns, end_ns: slot.until_ns, gang };
        slots.iter().map(turn).collect::<Vec<_>>()
    };
    let turns = [turns(OWN, &own[..1]), turns(OTHER, &other), turns(OWN, &own[1..])].concat();
    machine.set_lanes(&[Lane { cpus: row.to_vec(), turns }]);
    machine.watch(OWN, 1, us(0));
    machine.watch(OTHER, 2, us(0));
    machine
}

/// Both threads of a gang come, the first one by this moment.
fn come(machine: &mut Machine, cpus: [usize; 2], tasks: [usize; 2], now_us: u64) {
    for (more, (cpu, task)) in cpus.into_iter().zip(tasks).enumerate() {
        machine.switch(at(cpu, now_us + 10 * more as u64), task, true, 0, true);
    }
}

fn whole(machine: &mut Machine, gang: u64, now_us: u64) -> Whole {
    assert_eq!(machine.book_now(at(0, now_us), gang), 0);
    machine.figures(gang).whole
}

#[test]
fn turns_of_two_gangs_are_booked_by_hand() {
    let mut machine = two_gangs(&[0, 1]);
    (1..5).for_each(|task| machine.wake(at(0, 10), task, false));
    // The other gang is whole for 20 us more, then the CPUs run different gangs for 10.
    come(&mut machine, [0, 1], [3, 4], 20);
    come(&mut machine, [0, 1], [1, 2], 120);
    // Something else has a CPU from 200 to 230.
    machine.switch(at(1, 200), 5, true, 0, true);
    machine.switch(at(1, 230), 2, true, 0, true);
    // In the gap a thread of the other gang comes to a CPU, and a short task from 450 to 460.
    machine.switch(at(1, 420), 4, true, 0, true);
    machine.switch(at(1, 450), 5, true, 0, true);
    machine.switch(at(1, 460), 4, true, 0, true);
    // The slot of the other gang begins late on one CPU, and it leaves this one early.
    machine.switch(at(0, 530), 3, true, 0, true);
    machine.switch(at(0, 880), 5, true, 0, true);
    come(&mut machine, [0, 1], [1, 2], 910);
    machine.switch(at(0, 1400), 3, true, 0, true);
    let own = whole(&mut machine, OWN, 1500);
    // Of 400 + 400 us it is whole from 130 to 200, from 230 to 420, and from 920 on.
    let expected = Whole {
        asked_ns: 800_000,
        whole_ns: 640_000,
        other_ns: 20_000,
        split_ns: (10 + 70 + 10) * 1000,
        gap_ns: 80_000,
        edge_ns: (10 + 20) * 1000,
        ..Whole::default()
    };
    assert_eq!(own, expected);
    assert_eq!((own.noise_ns(), own.partly_ns()), (30_000, 50_000));
    let other = whole(&mut machine, OTHER, 1500);
    let expected = Whole {
        asked_ns: 400_000,
        whole_ns: 350_000,
        split_ns: 30_000,
        edge_ns: 50_000,
        ..Whole::default()
    };
    assert_eq!(other, expected);
}

#[test]
fn gang_is_whole_on_fewer_cpus_than_there_are() {
    let mut machine = two_gangs(&[1]);
    machine.wake(at(0, 10), 1, false);
    machine.wake(at(0, 10), 3, false);
    // Elsewhere nobody cares who runs.
    machine.switch(at(0, 20), 3, true, 0, true);
    machine.switch(at(1, 110), 1, true, 0, true);
    machine.switch(at(0, 200), 0, false, 1, true);
    let own = whole(&mut machine, OWN, 1400);
    assert_eq!((own.asked_ns, own.whole_ns, own.edge_ns), (800_000, 790_000, 10_000));
    assert_eq!((own.other_ns, own.split_ns, own.gap_ns), (0, 0, 0));
    // A gang with fewer threads than CPUs asks for none.
    assert_eq!(whole(&mut machine, OTHER, 1400), Whole::default());
}

#[test]
fn turn_of_a_cpu_that_was_away_is_apart() {
    let mut machine = two_gangs(&[0, 1]);
    let late_us = 250;
    machine.wake(at(0, 10), 1, false);
    machine.wake(at(0, 10), 2, false);
    machine.steal(1, 1000);
    machine.switch(at(1, 20), 5, true, 0, true);
    machine.switch(at(0, 100), 1, true, 0, true);
    // The host has taken the CPU away as the slot began.
    machine.steal(1, 1000 + late_us * 1000);
    machine.switch(at(1, 100 + late_us), 2, true, 0, true);
    // Away in the midst of a slot: the gang was whole before, and no edge is late.
    machine.steal(1, 1000 + 2 * late_us * 1000);
    machine.switch(at(1, 1200), 5, true, 0, true);
    machine.switch(at(1, 1210), 2, true, 0, true);
    let own = whole(&mut machine, OWN, 1400);
    assert_eq!((own.asked_ns, own.away_asked_ns), (800_000, 400_000));
    assert_eq!((own.whole_ns, own.away_whole_ns), (540_000, 150_000));
    assert_eq!(own.left_out(), Some(0.5));
}
