//! The reports and sums of rivals that `ways.h` makes.

use super::machine::{At, Kind, Machine};
use crate::{SlotTime, Wait};

const FIFO: u32 = 1;
const ROUND_ROBIN: u32 = 2;

/// The gang's thread, a rival, and the switcher; the gang's group.
const RAISED: usize = 1;
const RIVAL: usize = 2;
const SWITCHER: usize = 3;
const GROUP: u64 = 7;

fn us(us: u64) -> u64 {
    1_000_000_000 + us * 1000
}

fn at(now_us: u64) -> At {
    At { cpu: 1, now_ns: us(now_us) }
}

/// A raised thread has the CPU, in a slot from 0 to 1000 us.
fn in_slot() -> Machine {
    let mut machine = Machine::start();
    for (task, policy, priority, is_reset) in
        [(RAISED, FIFO, 1, true), (RIVAL, ROUND_ROBIN, 1, false), (SWITCHER, FIFO, 4, true)]
    {
        machine.task(task, Kind { tgid: task as u32 * 10, policy, is_of_kernel: false });
        machine.make_realtime(task, priority, is_reset, 1);
    }
    machine.move_to(RAISED, GROUP);
    machine.set_slots(GROUP, Some(&[SlotTime::new(us(0), us(1000))]), &[]);
    machine.watch(GROUP, 1, us(0));
    machine.wake(at(0), RAISED, false);
    machine.queue(at(0), 1);
    machine.switch(at(0), RAISED, false, 0, true);
    machine
}

/// The rival wakes, and the switcher comes for that.
fn rival_wakes(machine: &mut Machine, now_us: u64) {
    machine.wake(at(now_us), RIVAL, false);
    machine.queue(at(now_us), 3);
    machine.switch(at(now_us + 10), SWITCHER, true, 0, true);
    machine.queue(at(now_us + 10), 2);
}

/// A report, with the time of slots and that of rivals.
fn asked(raised: usize, was_asked: bool, slots_us: u64, used_us: u64) -> Wait {
    let (slots_ns, used_ns) = (slots_us * 1000, used_us * 1000);
    Wait { cpu: 1, raised: raised as u32, was_asked, slots_ns, used_ns }
}

fn gave_way(machine: &mut Machine) -> (u64, u64) {
    let figures = machine.figures(GROUP);
    (figures.gave_way, figures.gave_way_ns / 1000)
}

#[test]
fn gang_gives_way_until_the_rival_sleeps() {
    let mut machine = in_slot();
    rival_wakes(&mut machine, 100);
    assert_eq!(machine.waits(), [asked(RAISED, false, 100, 0)]);
    machine.switch(at(120), RIVAL, false, 1, true);
    assert_eq!(gave_way(&mut machine), (1, 0));
    // An interrupt's thread comes in between, and takes nothing from anybody here.
    machine.switch(at(200), SWITCHER, true, 0, true);
    machine.switch(at(210), RIVAL, false, 1, true);
    machine.queue(at(320), 1);
    machine.switch(at(320), RAISED, false, 1, true);
    assert_eq!(gave_way(&mut machine), (1, 200));
    // The next time is another one.
    rival_wakes(&mut machine, 400);
    assert_eq!(machine.waits(), [asked(RAISED, false, 390, 200)]);
    machine.switch(at(420), RIVAL, false, 1, true);
    machine.switch(at(430), RAISED, false, 1, true);
    assert_eq!(gave_way(&mut machine), (2, 210));
}

#[test]
fn request_without_effect_is_made_once_more() {
    let mut machine = in_slot();
    rival_wakes(&mut machine, 100);
    machine.switch(at(120), RAISED, false, 1, true);
    assert_eq!(machine.waits(), [asked(RAISED, false, 100, 0), asked(RAISED, true, 110, 0)]);
    for now_us in [200, 300] {
        machine.switch(at(now_us), SWITCHER, true, 0, true);
        machine.switch(at(now_us + 10), RAISED, false, 1, true);
    }
    assert_eq!(machine.waits(), []);
    // Of another thread of the gang it was not asked yet.
    machine.task(4, Kind { tgid: 10, policy: FIFO, is_of_kernel: false });
    machine.make_realtime(4, 1, true, 1);
    machine.move_to(4, GROUP);
    machine.switch(at(400), 4, true, 0, true);
    assert_eq!(machine.waits(), [asked(4, false, 370, 0)]);
    // The rival has gone to another CPU.
    machine.queue(at(500), 1);
    machine.switch(at(500), RAISED, false, 1, true);
    machine.switch(at(510), 4, true, 0, true);
    assert_eq!(machine.waits(), []);
    assert_eq!(gave_way(&mut machine), (0, 0));
}

#[test]
fn rival_whose_turn_is_over_asks_again() {
    let mut machine = in_slot();
    rival_wakes(&mut machine, 100);
    machine.switch(at(120), RIVAL, false, 1, true);
    machine.waits();
    machine.switch(at(300), RAISED, true, 0, true);
    assert_eq!(machine.waits(), [asked(RAISED, false, 290, 180)]);
}

#[test]
fn second_rival_passes_after_the_first() {
    let mut machine = in_slot();
    machine.task(4, Kind { tgid: 40, policy: FIFO, is_of_kernel: true });
    machine.make_realtime(4, 1, false, 1);
    rival_wakes(&mut machine, 100);
    machine.switch(at(120), RIVAL, false, 1, true);
    machine.wake(at(150), 4, false);
    machine.waits();
    // The gang's thread went behind the first one alone.
    machine.switch(at(200), RAISED, false, 1, true);
    assert_eq!(machine.waits(), [asked(RAISED, false, 190, 80)]);
    machine.switch(at(210), 4, true, 0, true);
    machine.switch(at(250), RAISED, false, 1, true);
    assert_eq!(machine.waits(), []);
    assert_eq!(gave_way(&mut machine), (2, 120));
}

#[test]
fn a_closed_cpu_asks_for_nothing() {
    let mut machine = in_slot();
    machine.close_way(1, 110_000);
    rival_wakes(&mut machine, 100);
    assert_eq!(machine.waits(), []);
    // It opens while the rival waits.
    machine.switch(at(120), RAISED, false, 1, true);
    assert_eq!(machine.waits(), [asked(RAISED, false, 110, 0)]);
}

#[test]
fn gang_gives_way_within_its_slot() {
    let mut machine = in_slot();
    // The rival comes when the slot is over.
    rival_wakes(&mut machine, 990);
    machine.switch(at(1010), RIVAL, false, 1, true);
    machine.switch(at(1500), RAISED, false, 1, true);
    assert_eq!(gave_way(&mut machine), (0, 0));
    // The slot ends while the rival has the CPU.
    let mut machine = in_slot();
    rival_wakes(&mut machine, 900);
    machine.switch(at(920), RIVAL, false, 1, true);
    machine.switch(at(1500), 0, false, 1, true);
    assert_eq!(gave_way(&mut machine), (1, 80));
}

#[test]
fn rivals_pass_a_gang_that_is_not_measured() {
    let mut machine = in_slot();
    machine.forget(GROUP);
    rival_wakes(&mut machine, 100);
    machine.switch(at(120), RIVAL, false, 1, true);
    machine.switch(at(200), RAISED, false, 1, true);
    machine.waits();
    rival_wakes(&mut machine, 300);
    assert_eq!(machine.waits(), [asked(RAISED, false, 290, 80)]);
}

#[test]
fn threads_of_gangs_are_no_rivals() {
    let mut machine = in_slot();
    // One that another daemon has raised, and one that this gang's program has made real-time.
    machine.task(4, Kind { tgid: 40, policy: FIFO, is_of_kernel: false });
    machine.make_realtime(4, 1, true, 1);
    machine.task(5, Kind { tgid: 10, policy: ROUND_ROBIN, is_of_kernel: false });
    machine.make_realtime(5, 1, false, 1);
    machine.move_to(5, GROUP);
    machine.queue(at(100), 2);
    machine.wake(at(100), 4, false);
    machine.wake(at(110), 5, false);
    // A higher one, and an ordinary one.
    machine.wake(at(120), SWITCHER, false);
    machine.task(6, Kind { tgid: 60, policy: 0, is_of_kernel: false });
    machine.wake(at(130), 6, false);
    assert_eq!(machine.waits(), []);
    // In a job that is never out of slot, it is one.
    machine.set_slots(GROUP + 1, None, &[]);
    machine.move_to(5, GROUP + 1);
    machine.wake(at(140), 5, false);
    assert_eq!(machine.waits(), [asked(RAISED, false, 140, 0)]);
}
