//! The structures that the programs share with us, as `cosched.bpf.c` lays them out.

use crate::{Culprit, GangSums, OnCpu, SLOTS_MAX, SchedClass, SlotTime};

const BUCKETS: usize = 144;

/// `struct gang`
pub const GANG_SIZE: usize = 144 + 4 * BUCKETS;
/// `struct slots`
pub const SLOTS_SIZE: usize = 16 + 16 * SLOTS_MAX;
/// `struct damage`
pub const DAMAGE_SIZE: usize = 32;
/// `struct share`
pub const SHARE_SIZE: usize = 32;
/// `struct cpu`
pub const CPU_SIZE: usize = 96;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A gang that nothing is known of up to a moment.
pub fn new_gang(epoch: u64, now_ns: u64) -> [u8; GANG_SIZE] {
    let mut bytes = [0; GANG_SIZE];
    bytes[16..24].copy_from_slice(&epoch.to_ne_bytes());
    bytes[24..32].copy_from_slice(&now_ns.to_ne_bytes());
    bytes
}

pub fn figures(gang: &[u8]) -> GangSums {
    GangSums {
        slot_ns: u64_at(gang, 80),
        wanted_ns: u64_at(gang, 88),
        coscheduled_ns: u64_at(gang, 96),
        lost_ns: u64_at(gang, 104),
        filled_ns: u64_at(gang, 112),
        waiting_ns: u64_at(gang, 120),
        skews: (0..BUCKETS).map(|at| u32_at(gang, 144 + 4 * at)).collect(),
    }
}

/// How many threads of a gang want to run. The kernel may have fewer than none for a while (`book.h`).
pub fn runnable(gang: &[u8]) -> u32 {
    (u32_at(gang, 8) as i32).max(0) as u32
}

/// The slots of a gang; `None` where all of the time is slot.
pub fn slots(generation: u64, slots: Option<&[SlotTime]>) -> Vec<u8> {
    let mut bytes = vec![0; SLOTS_SIZE];
    let known = slots.unwrap_or_default();
    let known = &known[..known.len().min(SLOTS_MAX)];
    bytes[0..8].copy_from_slice(&generation.to_ne_bytes());
    bytes[8..12].copy_from_slice(&(known.len() as u32).to_ne_bytes());
    bytes[12..16].copy_from_slice(&u32::from(slots.is_none()).to_ne_bytes());
    for (slot, room) in known.iter().zip(bytes[16..].chunks_exact_mut(16)) {
        room[..8].copy_from_slice(&slot.start_ns.to_ne_bytes());
        room[8..].copy_from_slice(&slot.end_ns.to_ne_bytes());
    }
    bytes
}

/// The gang whom a culprit harmed, and the last half of its epoch.
pub fn harmed(culprit: &[u8]) -> (u64, u32) {
    (u64_at(culprit, 0), u32_at(culprit, 12))
}

/// The epoch of a gang.
pub fn epoch(gang: &[u8]) -> u64 {
    u64_at(gang, 16)
}

pub fn culprit(culprit: &[u8], damage: &[u8]) -> Culprit {
    let pid = u32_at(culprit, 8);
    let name = damage[16..32].split(|&byte| byte == 0).next().unwrap_or_default();
    Culprit {
        name: String::from_utf8_lossy(name).into_owned(),
        pid,
        class: SchedClass::of(u32_at(damage, 8), u32_at(damage, 12) != 0, pid),
        ns: u64_at(damage, 0),
    }
}

/// What a gang has had of no CPU yet.
pub fn new_share(epoch: u64) -> Vec<u8> {
    let mut bytes = vec![0; SHARE_SIZE];
    bytes[24..].copy_from_slice(&epoch.to_ne_bytes());
    bytes
}

/// What a gang had of a CPU, as far as another has had it since; what it had after that, and its run that is not
/// over.
pub fn on_cpu(number: usize, gang: u64, gang_bytes: &[u8], share: &[u8], cpu: &[u8]) -> OnCpu {
    let run = Run::of(gang, gang_bytes, cpu);
    let had = &cpu[40..72];
    let is_owner = (u64_at(cpu, 32), u64_at(had, 24)) == (gang, epoch(gang_bytes));
    let sum = |at| u64_at(share, at) + if is_owner { u64_at(had, at) } else { 0 };
    OnCpu {
        cpu: number as u32,
        in_slot_ns: sum(0) + run.in_slot_ns,
        filled_ns: sum(8) + run.out_of_slot_ns,
        lost_ns: sum(16),
    }
}

/// How often something was moved from a CPU to its share.
pub fn moved(cpu: &[u8]) -> u64 {
    u64_at(cpu, 72)
}

/// How many short tasks a CPU has had.
pub fn short_tasks(cpu: &[u8]) -> u64 {
    u64_at(cpu, 80)
}

/// A run that is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub in_slot_ns: u64,
    pub out_of_slot_ns: u64,
}

impl Run {
    /// Of a gang, on a CPU, up to a moment at which the gang has been booked.
    pub fn of(gang: u64, gang_bytes: &[u8], cpu: &[u8]) -> Run {
        if (u64_at(cpu, 8), u64_at(cpu, 16)) != (gang, epoch(gang_bytes)) {
            return Run::default();
        }
        // The gang's own clock: it has been booked up to there.
        let ran_ns = u64_at(gang_bytes, 24).saturating_sub(u64_at(cpu, 0));
        let in_slot_ns = u64_at(gang_bytes, 80).saturating_sub(u64_at(cpu, 24)).min(ran_ns);
        Run { in_slot_ns, out_of_slot_ns: ran_ns - in_slot_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which gang 9 of epoch 5 had 1, 2 and 3 ns last.
    fn cpu(at_ns: u64, gang: u64, epoch: u64, slot_ns: u64) -> Vec<u8> {
        let fields = [at_ns, gang, epoch, slot_ns, 9, 1, 2, 3, 5, 0, 0, 0];
        fields.iter().flat_map(|field| field.to_ne_bytes()).collect()
    }

    #[test]
    fn a_run_that_is_not_over_counts_up_to_now() {
        let mut gang = new_gang(5, 1000);
        gang[80..88].copy_from_slice(&300u64.to_ne_bytes());
        let run = Run::of(9, &gang, &cpu(600, 9, 5, 200));
        assert_eq!(run, Run { in_slot_ns: 100, out_of_slot_ns: 300 });
        let share: Vec<u8> = [10u64, 20, 30, 5].iter().flat_map(|sum| sum.to_ne_bytes()).collect();
        let told = on_cpu(3, 9, &gang, &share, &cpu(600, 9, 5, 200));
        assert_eq!((told.cpu, told.in_slot_ns, told.filled_ns, told.lost_ns), (3, 111, 322, 33));
        // Another gang runs there, or has had it since.
        let told = on_cpu(3, 9, &gang, &share, &cpu(600, 8, 5, 200));
        assert_eq!((told.in_slot_ns, told.filled_ns, told.lost_ns), (11, 22, 33));
        let told = on_cpu(3, 8, &gang, &share, &cpu(600, 7, 5, 200));
        assert_eq!((told.in_slot_ns, told.filled_ns, told.lost_ns), (10, 20, 30));
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
