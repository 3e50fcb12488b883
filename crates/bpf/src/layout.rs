//! The values in the maps of `cosched.bpf.c`.

use crate::{
    Culprit, GangSums, OnCpu, RunnableThread, SLOTS_MAX, SchedClass, SlotTime, Turn, Wait, Whole,
    shared::{self, Closing, Cpu, Damage, Gang, Lane, ROW_WORDS, Runnable, Share, Shared, Slots},
};

/// A gang that nothing is known of up to a moment.
pub fn new_gang(epoch: u64, now_ns: u64) -> Vec<u8> {
    Gang { epoch, at_ns: now_ns, ..Gang::zeroed() }.to_bytes()
}

pub fn figures(gang: &[u8]) -> GangSums {
    let gang = Gang::read(gang);
    GangSums {
        slot_ns: gang.slot_ns,
        wanted_ns: gang.wanted_ns,
        coscheduled_ns: gang.coscheduled_ns,
        lost_ns: gang.lost_ns,
        filled_ns: gang.filled_ns,
        waiting_ns: gang.waiting_ns,
        gave_way: gang.gave_way,
        gave_way_ns: gang.gave_way_ns,
        whole: Whole {
            asked_ns: gang.asked_ns,
            whole_ns: gang.whole_ns,
            other_ns: gang.other_ns,
            split_ns: gang.split_ns,
            gap_ns: gang.gap_ns,
            edge_ns: gang.edge_ns,
            away_asked_ns: gang.away_asked_ns,
            away_whole_ns: gang.away_whole_ns,
        },
        skews: gang.skew.to_vec(),
    }
}

/// How many threads of a gang want to run. The kernel may have fewer than none for a while
/// (`book.h`).
pub fn runnable(gang: &[u8]) -> u32 {
    Gang::read(gang).runnable.max(0) as u32
}

/// The slots of a gang, and the CPUs of its row; `None` where all of the time is slot. Of a row
/// with CPUs beyond those for which there is room, no CPU is known.
pub fn slots(generation: u64, slots: Option<&[SlotTime]>, row: &[u32]) -> Vec<u8> {
    let known = slots.unwrap_or_default();
    let known = &known[..known.len().min(SLOTS_MAX)];
    let (count, always) = (known.len() as u32, u32::from(slots.is_none()));
    let row_end = row.iter().max().map_or(0, |last| last + 1);
    let has_room = row_end as usize <= ROW_WORDS * 64;
    let row = if has_room { row } else { &[] };
    let row_end = if has_room { row_end } else { 0 };
    let row_cpus = row.len() as u32;
    let mut list = Slots { generation, count, always, row_cpus, row_end, ..Slots::zeroed() };
    row.iter().for_each(|cpu| list.row[*cpu as usize / 64] |= 1 << (cpu % 64));
    for (slot, room) in known.iter().zip(&mut list.slot) {
        let &SlotTime { start_ns, end_ns, until_ns, cpus } = slot;
        let cpus = if has_room { cpus } else { 0 };
        *room = shared::SlotTime { start_ns, end_ns, until_ns, cpus, unused: 0 };
    }
    list.to_bytes()
}

/// The turns on a lane.
pub fn lane(turns: &[Turn]) -> Vec<u8> {
    let turns = &turns[..turns.len().min(SLOTS_MAX)];
    let mut lane = Lane { count: turns.len() as u32, ..Lane::zeroed() };
    for (turn, room) in turns.iter().zip(&mut lane.turn) {
        let &Turn { start_ns, end_ns, gang } = turn;
        *room = shared::Turn { start_ns, end_ns, gang };
    }
    lane.to_bytes()
}

/// The gang that a culprit harmed, and the last half of its epoch.
pub fn harmed(culprit: &[u8]) -> (u64, u32) {
    let culprit = shared::Culprit::read(culprit);
    (culprit.gang, culprit.epoch)
}

/// The epoch of a gang.
pub fn epoch(gang: &[u8]) -> u64 {
    Gang::read(gang).epoch
}

pub fn culprit(culprit: &[u8], damage: &[u8]) -> Culprit {
    let (pid, damage) = (shared::Culprit::read(culprit).tgid, Damage::read(damage));
    let name = damage.name.split(|&byte| byte == 0).next().unwrap_or_default();
    Culprit {
        name: String::from_utf8_lossy(name).into_owned(),
        pid,
        class: SchedClass::of(damage.policy, damage.is_kernel != 0, pid),
        ns: damage.ns,
    }
}

/// The share of a CPU of which a gang has had nothing yet.
pub fn new_share(epoch: u64) -> Vec<u8> {
    Share { epoch, ..Share::zeroed() }.to_bytes()
}

/// A gang's time on a CPU: until another gang had it, since then, and its run that is not over.
pub fn on_cpu(number: usize, gang: u64, gang_bytes: &[u8], share: &[u8], cpu: &[u8]) -> OnCpu {
    let run = Run::of(gang, gang_bytes, cpu);
    let (share, cpu) = (Share::read(share), Cpu::read(cpu));
    let is_owner = (cpu.owner, cpu.had.epoch) == (gang, epoch(gang_bytes));
    let had = if is_owner { cpu.had } else { Share::zeroed() };
    OnCpu {
        cpu: number as u32,
        in_slot_ns: share.in_slot_ns + had.in_slot_ns + run.in_slot_ns,
        filled_ns: share.out_of_slot_ns + had.out_of_slot_ns + run.out_of_slot_ns,
        lost_ns: share.lost_ns + had.lost_ns,
    }
}

/// How often something was moved from a CPU to its share.
pub fn moved(cpu: &[u8]) -> u64 {
    Cpu::read(cpu).moved
}

/// How many short tasks a CPU has had.
pub fn short_tasks(cpu: &[u8]) -> u64 {
    Cpu::read(cpu).short_tasks
}

/// A rival that waits.
pub fn wait(wait: &[u8]) -> Wait {
    let shared::Wait { slots_ns, used_ns, cpu, tid, before, .. } = Shared::read(wait);
    Wait { cpu, raised: tid, was_asked: before > 0, slots_ns, used_ns }
}

/// The threads that were listed.
pub fn runnable_threads(written: &[u8]) -> Vec<RunnableThread> {
    let all = written.chunks_exact(Runnable::SIZE).map(|thread| {
        let Runnable { group, tid, uid } = Shared::read(thread);
        RunnableThread { group, tid, uid }
    });
    all.collect()
}

/// A CPU that is closed for a time.
pub fn closing(cpu: u32, until_ns: u64) -> Vec<u8> {
    Closing { until_ns, cpu, unused: 0 }.to_bytes()
}

/// A run that is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub in_slot_ns: u64,
    pub out_of_slot_ns: u64,
}

impl Run {
    /// Of a gang, on a CPU, up to the moment to which the gang has been booked.
    pub fn of(gang: u64, gang_bytes: &[u8], cpu: &[u8]) -> Run {
        let (of_gang, cpu) = (Gang::read(gang_bytes), Cpu::read(cpu));
        if (cpu.gang, cpu.epoch) != (gang, of_gang.epoch) {
            return Run::default();
        }
        // The gang's own clock: the gang has been booked up to there.
        let ran_ns = of_gang.at_ns.saturating_sub(cpu.at_ns);
        let in_slot_ns = of_gang.slot_ns.saturating_sub(cpu.slot_ns).min(ran_ns);
        Run { in_slot_ns, out_of_slot_ns: ran_ns - in_slot_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which gang 9 of epoch 5 had 1, 2 and 3 ns last.
    fn cpu(at_ns: u64, gang: u64, epoch: u64, slot_ns: u64) -> Vec<u8> {
        let had = Share { in_slot_ns: 1, out_of_slot_ns: 2, lost_ns: 3, epoch: 5 };
        Cpu { at_ns, gang, epoch, slot_ns, owner: 9, had, ..Cpu::zeroed() }.to_bytes()
    }

    #[test]
    fn a_run_that_is_not_over_counts_up_to_now() {
        let gang = Gang { slot_ns: 300, ..Gang::read(&new_gang(5, 1000)) }.to_bytes();
        let run = Run::of(9, &gang, &cpu(600, 9, 5, 200));
        assert_eq!(run, Run { in_slot_ns: 100, out_of_slot_ns: 300 });
        let share = Share { in_slot_ns: 10, out_of_slot_ns: 20, lost_ns: 30, epoch: 5 }.to_bytes();
        let had = on_cpu(3, 9, &gang, &share, &cpu(600, 9, 5, 200));
        assert_eq!((had.cpu, had.in_slot_ns, had.filled_ns, had.lost_ns), (3, 111, 322, 33));
        // Another gang runs there, or has had it since.
        let had = on_cpu(3, 9, &gang, &share, &cpu(600, 8, 5, 200));
        assert_eq!((had.in_slot_ns, had.filled_ns, had.lost_ns), (11, 22, 33));
        let had = on_cpu(3, 8, &gang, &share, &cpu(600, 7, 5, 200));
        assert_eq!((had.in_slot_ns, had.filled_ns, had.lost_ns), (10, 20, 30));
    }

    #[test]
    fn of_another_gang_nothing_counts() {
        let gang = new_gang(5, 1000);
        assert_eq!(Run::of(9, &gang, &cpu(600, 8, 5, 0)), Run::default());
        assert_eq!(Run::of(9, &gang, &cpu(600, 9, 4, 0)), Run::default());
        // It has been switched since the gang was booked.
        assert_eq!(Run::of(9, &gang, &cpu(1001, 9, 5, 1)), Run::default());
    }
}
