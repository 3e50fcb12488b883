//! The structures that the programs share with us, as `cosched.bpf.c` lays them out.

use crate::{Culprit, Figures, SLOTS_MAX, SchedClass, Slot};

const BUCKETS: usize = 144;

/// `struct gang`
pub const GANG_SIZE: usize = 120 + 4 * BUCKETS;
/// `struct slots`
pub const SLOTS_SIZE: usize = 16 + 16 * SLOTS_MAX;
/// `struct damage`
pub const DAMAGE_SIZE: usize = 32;

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

pub fn figures(gang: &[u8]) -> Figures {
    Figures {
        slot_ns: u64_at(gang, 72),
        wanted_ns: u64_at(gang, 80),
        together_ns: u64_at(gang, 88),
        lost_ns: u64_at(gang, 96),
        filled_ns: u64_at(gang, 104),
        waiting_ns: u64_at(gang, 112),
        skews: (0..BUCKETS).map(|at| u32_at(gang, 120 + 4 * at)).collect(),
    }
}

/// The slots of a gang; `None` where all of the time is slot.
pub fn slots(generation: u64, slots: Option<&[Slot]>) -> Vec<u8> {
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
