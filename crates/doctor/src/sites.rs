//! Where in its program a thread works, and where it waits.
//!
//! Problem: a thread that spins until its partner comes uses as much CPU as one that works. They
//! only differ in what they execute.
//!
//! Approach: four signs, each sufficient. The code belongs to a runtime that only makes threads
//! meet (OpenMP's, MPI's); the function is named where the runtime has a name for it. The thread is
//! in a system call by which it gives its CPU away or waits for others. It is in a short loop that
//! waits for a change and makes none. Such a loop has a pause instruction; or it reads memory,
//! writes none, and starts each round as the one before. Or it reads the clock, as loops do that
//! wait for a while before they block.
//!
//! Properties: a loop that advances, by a counter, a pointer or a sum, is work. Of loops that call
//! functions to wait, only what they spend in the clock is known: what they wait is underestimated.
//! The loops are read on x86-64 only. Their code comes from the tick, at which it was in memory:
//! reading the memory of a process would wait for whoever serves its files. All that is kept
//! of programs has bounds, and so has the time for which mappings and functions are read. Beyond
//! these its threads count as working, and its runtimes have no names of functions.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::{Duration, Instant},
};

use gang_bpf::CODE_BYTES;
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess};

use crate::{
    files::Files,
    mapped::{Local, MAPPINGS_MAX, Mapping, VDSO, mappings},
};

/// Runtimes that make threads meet, by the beginnings of their files' names.
const RUNTIMES: [&str; 13] = [
    "libgomp",
    "libomp",
    "libiomp",
    "libmpi",
    "libmpich",
    "libopen-pal",
    "libopen-rte",
    "libucp",
    "libuct",
    "libucs",
    "libfabric",
    "libpsm",
    "libgang",
];

/// System calls in which a thread waits for others, or gives its CPU away until they are done.
const FUTEX: u32 = libc_number::FUTEX;
const SCHED_YIELD: u32 = libc_number::SCHED_YIELD;

/// The numbers of system calls, as far as they are used.
pub mod libc_number {
    #[cfg(target_arch = "x86_64")]
    mod numbers {
        pub const FUTEX: u32 = 202;
        pub const FUTEX_WAITV: u32 = 449;
        pub const SCHED_YIELD: u32 = 24;
        /// nanosleep, clock_nanosleep.
        pub const SLEEPS: [u32; 2] = [35, 230];
    }
    #[cfg(not(target_arch = "x86_64"))]
    mod numbers {
        pub const FUTEX: u32 = 98;
        pub const FUTEX_WAITV: u32 = 449;
        pub const SCHED_YIELD: u32 = 124;
        pub const SLEEPS: [u32; 2] = [101, 115];
    }
    pub use numbers::*;
}

/// The activity of a thread at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    Work,
    /// It waits, there.
    Wait(String),
}

/// The code of a thread around the instruction that it is at: [`CODE_BYTES`] before that, and as
/// many from there on.
pub type Code = [u8; 2 * CODE_BYTES];

/// The longest loop that is taken for one of waiting, in bytes.
const LOOP_MAX: u64 = CODE_BYTES as u64;

/// More places are forgotten, and found again.
const KNOWN_MAX: usize = 1 << 16;

/// Mappings of all processes; more are forgotten, and read again.
const ALL_MAPPINGS_MAX: usize = 64 * MAPPINGS_MAX;

/// Lists of mappings and functions are read for so long at first, and for this part of the time in
/// all.
const READING_AT_FIRST: Duration = Duration::from_millis(250);
const READING_OF: u32 = 10;

/// The known places of some processes.
#[derive(Debug)]
pub struct Sites {
    known: HashMap<(u32, u64), Site>,
    /// The code of each process.
    processes: BTreeMap<u32, Vec<Mapping>>,
    mappings: usize,
    /// Of runtimes; read when they are first needed.
    files: Files,
    /// Where the files of runtimes may be; none where no file is opened.
    local: Option<Local>,
    began: Instant,
    reading: Duration,
}

impl Default for Sites {
    fn default() -> Sites {
        Sites {
            known: HashMap::new(),
            processes: BTreeMap::new(),
            mappings: 0,
            files: Files::default(),
            local: None,
            began: Instant::now(),
            reading: Duration::ZERO,
        }
    }
}

impl Sites {
    /// With the names of a runtime's functions. That takes the right to open the files that
    /// processes have mapped.
    pub fn with_names() -> Sites {
        Sites { local: Some(Local::here()), ..Sites::default() }
    }

    /// The activity of a thread in its program.
    pub fn of(
        &mut self,
        proc_root: &Path,
        tgid: u32,
        ip: u64,
        call: Option<u32>,
        code: &Code,
    ) -> Site {
        match call {
            Some(FUTEX | libc_number::FUTEX_WAITV) => return Site::Wait("futex".into()),
            Some(SCHED_YIELD) => return Site::Wait("sched_yield".into()),
            // The kernel works for it.
            Some(_) => return Site::Work,
            None => {}
        }
        if let Some(site) = self.known.get(&(tgid, ip)) {
            return site.clone();
        }
        if !self.knows(tgid, ip) && !self.read(proc_root, tgid) {
            // Its code may be known at its next tick.
            return Site::Work;
        }
        let site = self.look(proc_root, tgid, ip, code);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert((tgid, ip), site.clone());
        site
    }

    fn knows(&self, tgid: u32, ip: u64) -> bool {
        self.processes.get(&tgid).is_some_and(|maps| maps.iter().any(|map| map.holds(ip)))
    }

    fn may_read(&self, now: Instant) -> bool {
        self.reading <= READING_AT_FIRST + (now - self.began) / READING_OF
    }

    /// Reads what a process has mapped: it is new, or has loaded something. False where too much
    /// time has gone into that.
    fn read(&mut self, proc_root: &Path, tgid: u32) -> bool {
        let now = Instant::now();
        if !self.may_read(now) {
            return false;
        }
        let maps = mappings(proc_root, tgid);
        self.mappings += maps.len();
        if self.mappings > ALL_MAPPINGS_MAX {
            self.processes.clear();
            self.mappings = maps.len();
        }
        let before = self.processes.insert(tgid, maps);
        self.mappings -= before.map_or(0, |before| before.len());
        self.reading += now.elapsed();
        true
    }

    fn look(&mut self, proc_root: &Path, pid: u32, ip: u64, code: &Code) -> Site {
        let now = Instant::now();
        let may_read = self.may_read(now);
        let maps = self.processes.get(&pid).map(Vec::as_slice).unwrap_or_default();
        let map = maps.iter().find(|map| map.holds(ip));
        let name = map.map(|map| map.name.as_str()).filter(|name| !name.is_empty());
        if let Some((map, name)) = map.zip(name) {
            if RUNTIMES.iter().any(|runtime| name.starts_with(runtime)) {
                let offset = (ip - map.start).checked_add(map.offset);
                let function = self.local.as_ref().zip(offset).and_then(|(local, offset)| {
                    let seen = local.see(proc_root, pid, map)?;
                    let open = || local.open(&seen).filter(|_| may_read);
                    self.files.symbols(seen.identity, open)?.at(offset)
                });
                self.reading += now.elapsed();
                return Site::Wait(match function {
                    Some(function) => format!("{function} of {name}"),
                    None => name.to_owned(),
                });
            }
            if name == VDSO {
                return Site::Wait("a loop that looks at the clock".into());
            }
        }
        let Some(start) = ip.checked_sub(LOOP_MAX) else { return Site::Work };
        if cfg!(target_arch = "x86_64") && is_waiting_loop(code, start, ip) {
            return Site::Wait(format!("a loop in {}", name.unwrap_or("code without a file")));
        }
        Site::Work
    }
}

/// Whether the instruction at `ip` is in a loop that does nothing but wait; `code` begins at
/// `start`.
fn is_waiting_loop(code: &[u8], start: u64, ip: u64) -> bool {
    let Some(rest) = code.get((ip - start) as usize..) else { return false };
    let mut decoder = Decoder::with_ip(64, rest, ip, DecoderOptions::NONE);
    // From here to the jump back; the loop begins where that leads.
    let back = std::iter::from_fn(|| decoder.can_decode().then(|| decoder.decode()))
        .take_while(|it| !it.is_invalid() && it.ip() < ip + LOOP_MAX)
        .take_while(|it| !matches!(it.flow_control(), FlowControl::Return | FlowControl::Call))
        .find(|it| {
            let jumps = matches!(
                it.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            jumps && (start..=ip).contains(&it.near_branch_target())
        });
    let Some(back) = back else { return false };
    let from = (back.near_branch_target() - start) as usize;
    let until = ((back.next_ip() - start) as usize).min(code.len());
    let Some(body) = code.get(from..until) else { return false };
    let mut decoder = Decoder::with_ip(64, body, back.near_branch_target(), DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    let (mut reads, mut pauses, mut advances) = (false, false, false);
    // Registers that were loaded in this round; the others are as they were before the loop.
    let mut loaded = Vec::new();
    for it in &mut decoder {
        pauses |= it.mnemonic() == Mnemonic::Pause;
        advances |= matches!(it.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        let info = factory.info(&it);
        let mut is_load = false;
        for memory in info.used_memory() {
            is_load |= !matches!(memory.access(), OpAccess::Write | OpAccess::CondWrite);
            reads |= is_load;
            // A lock that is tried again and again is written to as well.
            advances |= !it.has_lock_prefix()
                && it.mnemonic() != Mnemonic::Xchg
                && matches!(memory.access(), OpAccess::Write | OpAccess::ReadWrite);
        }
        for register in info.used_registers() {
            let full = register.register().full_register();
            match register.access() {
                OpAccess::Write | OpAccess::CondWrite => loaded.push(full),
                // Counters, pointers, sums: it is used and written at once, and was not loaded
                // before.
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    advances |= !is_load && !loaded.contains(&full);
                }
                _ => {}
            }
        }
    }
    pauses || (reads && !advances)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a loop is one of waiting, seen from each of its instructions.
    fn waits(code: &[u8]) -> Vec<bool> {
        let start = 0x1000;
        let starts = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        starts.into_iter().map(|it| is_waiting_loop(code, start, it.ip())).collect()
    }

    #[test]
    fn loops_that_wait() {
        // cmp [rdi], eax; je back
        assert_eq!(waits(&[0x39, 0x07, 0x74, 0xfc]), [true; 2]);
        // mov eax, [rdi]; cmp eax, esi; je back
        assert_eq!(waits(&[0x8b, 0x07, 0x39, 0xf0, 0x74, 0xfa]), [true; 3]);
        // pause; dec ecx; jne back: libgomp's, with a counter
        assert_eq!(waits(&[0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa]), [true; 3]);
        // mov eax, 1; xchg [rdi], eax; test eax, eax; jne back: a lock
        let lock = [0xb8, 1, 0, 0, 0, 0x87, 0x07, 0x85, 0xc0, 0x75, 0xf5];
        assert_eq!(waits(&lock), [true; 4]);
    }

    #[test]
    fn loops_that_work() {
        // add eax, [rdi]; add rdi, 4; cmp rdi, rsi; jne back: a sum
        let sum = [0x03, 0x07, 0x48, 0x83, 0xc7, 0x04, 0x48, 0x39, 0xf7, 0x75, 0xf5];
        assert_eq!(waits(&sum), [false; 4]);
        // imul rax, rax; add rax, rcx; dec rdx; jne back
        let chain = [0x48, 0x0f, 0xaf, 0xc0, 0x48, 1, 0xc8, 0x48, 0xff, 0xca, 0x75, 0xf4];
        assert_eq!(waits(&chain), [false; 4]);
        // mov [rdi], rax; add rdi, 8; dec rcx; jne back: fills memory
        let fill = [0x48, 0x89, 0x07, 0x48, 0x83, 0xc7, 0x08, 0x48, 0xff, 0xc9, 0x75, 0xf4];
        assert_eq!(waits(&fill), [false; 4]);
        // No loop at all: ret.
        assert_eq!(waits(&[0x90, 0xc3]), [false; 2]);
    }

    #[test]
    fn system_calls_that_wait() {
        let mut sites = Sites::default();
        let (proc_root, own) = (Path::new("/proc"), std::process::id());
        let mut of = |call| sites.of(proc_root, own, 0, Some(call), &[0; 2 * CODE_BYTES]);
        assert_eq!(of(FUTEX), Site::Wait("futex".into()));
        assert_eq!(of(SCHED_YIELD), Site::Wait("sched_yield".into()));
        assert_eq!(of(0), Site::Work);
    }
}
