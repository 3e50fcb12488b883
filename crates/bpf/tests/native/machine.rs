//! `machine.c`, compiled and run: the programs of `cosched.bpf.c` on a machine that a test moves.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio, id},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    Culprit, GangSums, Lane, OnCpu, SlotTime, Wait, layout,
    shared::{Cpu, Share, Shared},
};

/// As many CPUs as machine.c has, and as many threads, of which 0 is idle.
pub const CPUS: usize = 8;
pub const TASKS: usize = 64;

/// How a thread of a machine is scheduled, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub tgid: u32,
    pub policy: u32,
    pub is_of_kernel: bool,
}

/// The machine. Its clock and what happens on it are what the functions say.
pub struct Machine {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Those that have not been carried out.
    said: String,
    generation: u64,
}

impl Machine {
    pub fn start() -> Machine {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let program = PathBuf::from(env!("OUT_DIR")).join(format!("machine-{}-{number}", id()));
        let room = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let native = room.join("tests/native");
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(&compiler)
            .args(["-std=gnu11", "-O1", "-w", "-I"])
            .arg(&native)
            .arg("-I")
            .arg(room.join("src"))
            .arg(native.join("machine.c"))
            .arg("-o")
            .arg(&program)
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "{compiler:?} compiles machine.c");
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        fs::remove_file(&program).unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Machine { child, commands, answers, said: String::new(), generation: 1 }
    }

    fn say(&mut self, command: std::fmt::Arguments<'_>) {
        self.said.write_fmt(format_args!("{command}\n")).unwrap();
    }

    /// These events happen on other CPUs when the next program that takes a lock is about to.
    pub fn meanwhile(&mut self, others: impl FnOnce(&mut Machine)) {
        let said = std::mem::take(&mut self.said);
        others(self);
        let of_others = std::mem::replace(&mut self.said, said);
        for command in of_others.lines() {
            self.say(format_args!("meanwhile {command}"));
        }
    }

    fn ask(&mut self, command: std::fmt::Arguments<'_>) -> String {
        self.say(command);
        self.commands.write_all(self.said.as_bytes()).unwrap();
        self.said.clear();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "machine.c ended, and says why above");
        answer.trim_end().to_owned()
    }

    /// Everything is as at first.
    pub fn reset(&mut self) {
        self.say(format_args!("reset"));
    }

    /// Another thread, which sleeps and is in no gang's group.
    pub fn task(&mut self, task: usize, kind: Kind) {
        const PF_KTHREAD: u32 = 0x0020_0000;
        let Kind { tgid, policy, is_of_kernel } = kind;
        let flags = if is_of_kernel { PF_KTHREAD } else { 0 };
        self.say(format_args!("task {task} {tgid} {policy} {flags} {}", name(tgid)));
    }

    pub fn move_to(&mut self, task: usize, group: u64) {
        self.say(format_args!("group {task} {group}"));
    }

    /// A real-time thread from now on, of this priority; it wakes on this CPU.
    pub fn make_realtime(&mut self, task: usize, priority: u32, is_reset: bool, cpu: usize) {
        self.say(format_args!("rt {task} {priority} {} {cpu}", u32::from(is_reset)));
    }

    /// So many real-time threads run on a CPU, or wait there.
    pub fn queue(&mut self, at: At, realtime: u32) {
        self.say(format_args!("queue {at} {realtime}"));
    }

    /// `next` follows on a CPU, after any thread. Of the kernel's state: 0 wants to run on.
    pub fn switch(&mut self, at: At, next: usize, preempted: bool, state: u32, reported: bool) {
        let (preempted, reported) = (u32::from(preempted), u32::from(reported));
        self.say(format_args!("switch {at} {next} {preempted} {state} {reported}"));
    }

    pub fn wake(&mut self, at: At, task: usize, is_new: bool) {
        self.say(format_args!("wake {at} {task} {}", u32::from(is_new)));
    }

    /// The kernel accounts for a thread.
    pub fn tick(&mut self, at: At, task: usize) {
        self.say(format_args!("runtime {at} {task}"));
    }

    /// One who looks around comes to a thread.
    pub fn look_at(&mut self, at: At, task: usize) {
        self.say(format_args!("look {at} {task}"));
    }

    /// As `Meter::watch`.
    pub fn watch(&mut self, group: u64, epoch: u64, now_ns: u64) {
        let shares = layout::new_share(epoch).repeat(CPUS);
        self.say(format_args!("update shares {} {}", hex(&group.to_ne_bytes()), hex(&shares)));
        let gang = layout::new_gang(epoch, now_ns);
        self.say(format_args!("update gangs {} {}", hex(&group.to_ne_bytes()), hex(&gang)));
    }

    /// As `Meter::forget`.
    pub fn forget(&mut self, group: u64) {
        for map in ["gangs", "slots", "shares"] {
            self.say(format_args!("delete {map} {}", hex(&group.to_ne_bytes())));
        }
    }

    /// As the last half of `Meter::set_slots`.
    pub fn set_slots(&mut self, group: u64, slots: Option<&[SlotTime]>, row: &[u32]) {
        let bytes = layout::slots(self.generation, slots, row);
        self.generation += 1;
        self.say(format_args!("update slots {} {}", hex(&group.to_ne_bytes()), hex(&bytes)));
    }

    /// As `Meter::set_lanes`, where there were none.
    pub fn set_lanes(&mut self, lanes: &[Lane]) {
        for (number, lane) in (1u32..).zip(lanes) {
            let number = hex(&number.to_ne_bytes());
            self.say(format_args!("update lanes {number} {}", hex(&layout::lane(&lane.turns))));
            for cpu in &lane.cpus {
                self.say(format_args!("update lane_of {} {number}", hex(&cpu.to_ne_bytes())));
            }
        }
    }

    /// The host has let a CPU wait for so long in all.
    pub fn steal(&mut self, cpu: usize, steal_ns: u64) {
        self.say(format_args!("steal {cpu} {steal_ns}"));
    }

    pub fn book_now(&mut self, at: At, group: u64) -> i32 {
        self.ask(format_args!("book_now {at} {group}")).parse().unwrap()
    }

    pub fn await_waking(&mut self, at: At, group: u64) -> i32 {
        self.ask(format_args!("await {at} {group}")).parse().unwrap()
    }

    /// The groups that were reported to have woken since the last call.
    pub fn woken(&mut self) -> Vec<u64> {
        let woken = self.ask(format_args!("woken"));
        woken.split_whitespace().map(|group| group.parse().unwrap()).collect()
    }

    fn lookup(&mut self, map: &str, key: &[u8]) -> Vec<u8> {
        bytes(&self.ask(format_args!("lookup {map} {}", hex(key))))
    }

    /// A gang as the kernel has it.
    pub fn gang(&mut self, group: u64) -> Vec<u8> {
        self.lookup("gangs", &group.to_ne_bytes())
    }

    pub fn figures(&mut self, group: u64) -> GangSums {
        layout::figures(&self.gang(group))
    }

    /// As `Meter::per_cpu`, with those that were not used.
    pub fn per_cpu(&mut self, group: u64) -> Vec<OnCpu> {
        let gang = self.gang(group);
        let shares = self.lookup("shares", &group.to_ne_bytes());
        let cpus = self.lookup("cpus", &0u32.to_ne_bytes());
        let each = shares.chunks_exact(Share::SIZE).zip(cpus.chunks_exact(Cpu::SIZE));
        let on_cpu = |(number, (share, cpu))| layout::on_cpu(number, group, &gang, share, cpu);
        each.enumerate().map(on_cpu).collect()
    }

    /// As `Meter::lost_to`, of all who are known.
    pub fn lost_to(&mut self, group: u64) -> Vec<Culprit> {
        let epoch = layout::epoch(&self.gang(group));
        let all = self.ask(format_args!("all damages"));
        let all: Vec<Vec<u8>> = all.split_whitespace().map(bytes).collect();
        let of_gang = all.chunks_exact(2);
        let of_gang = of_gang.filter(|it| layout::harmed(&it[0]) == (group, epoch as u32));
        of_gang.map(|it| layout::culprit(&it[0], &it[1])).collect()
    }

    /// The rivals that were reported since the last call.
    pub fn waits(&mut self) -> Vec<Wait> {
        let waits = self.ask(format_args!("waits"));
        waits.split_whitespace().map(|wait| layout::wait(&bytes(wait))).collect()
    }

    /// As `Meter::close_way`.
    pub fn close_way(&mut self, cpu: u32, until_ns: u64) {
        self.say(format_args!("close_way {cpu} {until_ns}"));
    }

    pub fn short_tasks(&mut self) -> u64 {
        let cpus = self.lookup("cpus", &0u32.to_ne_bytes());
        cpus.chunks_exact(Cpu::SIZE).map(layout::short_tasks).sum()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where something happens, and what the clock says there.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub cpu: usize,
    pub now_ns: u64,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.cpu, self.now_ns)
    }
}

/// The name of all threads of a process.
pub fn name(tgid: u32) -> String {
    format!("process-{tgid}")
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    let digit = |of: u8| if of <= b'9' { of - b'0' } else { of - b'a' + 10 };
    text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
