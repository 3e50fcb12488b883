//! Observations of a program's threads.

/// So many bytes of code are known before an instruction, and as many from there on.
pub const CODE_BYTES: usize = 64;

/// The owner of a CPU at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Nobody,
    Others,
    /// A thread of the program, and where it is in its program. If the kernel works for it, `call`
    /// is the system call that it is in. `code` begins [`CODE_BYTES`] before `ip`; code that was
    /// not in memory is zero.
    Program {
        tgid: u32,
        tid: u32,
        ip: u64,
        call: Option<u32>,
        code: [u8; 2 * CODE_BYTES],
    },
}

/// A tick of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub who: Who,
    /// How many threads of the program run at that moment, and how many wait for a CPU.
    pub running: u32,
    pub waiting: u32,
    /// The kind of that moment.
    pub coscheduling: Coscheduling,
    /// How many threads want this CPU, whosever they are.
    pub here: u32,
}

/// The kind of a moment, by what the threads of a program do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coscheduling {
    /// One of them waits for a CPU.
    Apart,
    /// None does.
    Clear,
    /// None did for longer than it takes to wake since so many ran at once, long enough ago for
    /// them to have met.
    Met(u32),
}

/// Time, and for how long threads of the program ran in it: a sum over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub ns: u64,
    pub ran_ns: u64,
}

/// The cause of a thread's sleeps, and how long they were in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    pub tid: u32,
    /// Absent where it was in no system call: the kernel fetched memory for it.
    pub call: Option<u32>,
    /// No signal could have ended it: it waited for a device.
    pub uninterruptible: bool,
    pub count: u64,
    pub ns: u64,
    /// Of those at whose beginning and end no thread of the program waited for a CPU.
    pub clear_count: u64,
    pub clear_ns: u64,
}
