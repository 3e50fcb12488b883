//! The promises of SPECIFICATION.md, each with what was last measured of it.
//!
//! This is the only place of their bounds: the experiments judge by them, and
//! `gang lab spec --markdown` writes the document from them.

use crate::harness::promise::Must::{AtLeast, AtMost, Below, Within};
use crate::harness::promise::{Last, Promise};

const EPYC: &str = "AMD EPYC";
const XEON: &str = "Intel Xeon";
/// The processor was not noted.
const NOT_NOTED: &str = "2 CPUs";

/// The fields that most promises leave out.
const PLAIN: Promise = Promise {
    id: "",
    sentence: "",
    must: AtMost(0.0),
    unit: "",
    last: None,
    missed: None,
    remark: None,
    command: "",
};

const fn last(
    machine: &'static str,
    date: &'static str,
    of: &'static str,
    value: f64,
    interval: Option<[f64; 2]>,
) -> Option<Last> {
    Some(Last { value, interval, of, date, machine })
}

/// Promises that stand together in the document, in its order.
pub struct Group {
    pub name: &'static str,
    pub promises: &'static [&'static Promise],
}

pub const GROUPS: [Group; 11] = [
    Group {
        name: "Programs that share the machine",
        promises: &[
            &WHOLE_20MS,
            &WHOLE_5MS,
            &WHOLE_1MS,
            &BARRIER_OVER_LINUX,
            &BARRIER_OVER_LINUX_HOGS,
            &OVERHEAD,
            &FILL_OVER_LINUX,
            &FILL_OVER_BATCH,
            &SHARE_BESIDE_HOGS,
            &SHARE_BY_WEIGHT,
            &SHARE_OF_USER,
            &SHORT_TASK,
            &SHORT_TASK_COST,
            &FRAMES,
            &FRAMES_COST,
            &BUILD,
            &OPENMP_GAUSS,
            &OPENMP_NUMPY,
            &PROGRAMS_OVER_LINUX,
            &PROGRAMS_OVER_ALONE,
            &ARRIVAL,
            &COSCHEDULED,
            &COSCHEDULED_HOGS,
        ],
    },
    Group {
        name: "Published experiments",
        promises: &[
            &GAUSS_SD,
            &GAUSS_MEAN,
            &DEADLINES,
            &HOLES_OVER_LINUX,
            &HOLES_OVER_BATCH,
            &DEADLINES_BESIDE_COEVP,
            &DEADLINES_BESIDE_COHMM,
            &STREAM,
        ],
    },
    Group {
        name: "Switches",
        promises: &[
            &SWITCH_COST_ASLEEP,
            &SWITCH_COST_COMPUTING,
            &SWITCH_SKEW_ASLEEP,
            &SWITCH_SKEW_COMPUTING,
            &READING_2,
            &READING_64,
            &PLAN,
            &PLAN_OF_USERS,
        ],
    },
    Group {
        name: "The daemon",
        promises: &[
            &IDLE,
            &RELEASE,
            &KILL,
            &CLIENTS_LOST,
            &CLIENTS_LEFT,
            &CLIENTS_DESCRIPTORS,
            &CLIENTS_MEMORY,
            &LIST,
            &HISTORY,
        ],
    },
    Group {
        name: "Beside a hostile user",
        promises: &[&HOSTILE_LATE, &HOSTILE_RAN_OUT, &HOSTILE_SHARE, &HOSTILE_COSCHEDULED],
    },
    Group {
        name: "Jobs that span hosts",
        promises: &[
            &HOSTS_APART_P50,
            &HOSTS_APART_P99,
            &HOSTS_SHARE,
            &HOSTS_FIRST,
            &HOSTS_MISSED,
            &HOSTS_LOST,
            &HOSTS_REFUSED,
            &HOSTS_AGAIN,
            &HOSTS_MESSAGES,
        ],
    },
    Group {
        name: "Messages within gangs",
        promises: &[
            &NET_LATENCY_SHM,
            &NET_LATENCY_UDP,
            &NET_BANDWIDTH_SHM,
            &NETPREEMPT_LOST,
            &NETPREEMPT_OVER_SHM,
            &NETPREEMPT_PHASES_20MS,
            &NETPREEMPT_PHASES_100MS,
            &NETPREEMPT_SLOWDOWN,
        ],
    },
    Group {
        name: "libgang",
        promises: &[
            &OWN_BARRIER_GANGD,
            &OWN_BARRIER_LINUX,
            &OWN_BARRIER_LIBGOMP,
            &OWN_BARRIER_PTHREAD,
            &REGISTER,
            &ADD_FIRST,
            &ADD_ANOTHER,
            &PAGE_READ,
            &PROGRESS,
        ],
    },
    Group {
        name: "What is measured of gangs",
        promises: &[&MEASURED, &MEASURING_CPU, &MEASURING_BARRIER],
    },
    Group {
        name: "gang doctor and policy auto",
        promises: &[
            &DOCTOR,
            &WATCHING_MEDIAN,
            &WATCHING_MEDIAN_STEADY,
            &WATCHING_WORST,
            &WATCHING_WORST_STEADY,
            &WATCHING_APART,
            &WATCHING_BLOCK_1MS,
            &WATCHING_SPIN_1MS,
            &WATCHING_SPIN_5MS,
            &AUTO,
        ],
    },
    Group {
        name: "Views",
        promises: &[
            &VIEWS_CPU,
            &VIEWS_LATENESS,
            &TOP_CPU,
            &WEB_CPU,
            &WEB_FRAMES,
            &WEB_PAINT,
            &WEB_BYTES,
        ],
    },
];

pub const WHOLE_20MS: Promise = Promise {
    id: "whole-20ms",
    sentence: "With slices of 20 ms a complete gang has the CPUs while two gangs spin on all of them, \
               on a steady host.",
    must: AtLeast(98.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds", 94.2, Some([93.3, 95.1])),
    missed: Some(
        "In gaps, 6 % of the time, all gangs fill what ordinary threads leave. A nice value of −20 \
         for the gang whose slot a gap interrupts changed nothing (94.5 [92.6, 96.4]).",
    ),
    command: "gang lab whole",
    ..PLAIN
};

pub const WHOLE_5MS: Promise = Promise {
    id: "whole-5ms",
    sentence: "With slices of 5 ms a complete gang has the CPUs while two gangs spin on all of them, \
               on a steady host.",
    must: AtLeast(97.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds", 95.3, Some([94.6, 96.1])),
    missed: Some("As with slices of 20 ms, and 1 % at edges."),
    command: "gang lab whole",
    ..PLAIN
};

pub const WHOLE_1MS: Promise = Promise {
    id: "whole-1ms",
    sentence: "With slices of 1 ms a complete gang has the CPUs while two gangs spin on all of them, \
               on a steady host.",
    must: AtLeast(94.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds", 91.7, Some([90.1, 93.2])),
    missed: Some(
        "Gaps take 4 % of the time, and so do edges, of which there are twenty times as many.",
    ),
    command: "gang lab whole",
    ..PLAIN
};

pub const BARRIER_OVER_LINUX: Promise = Promise {
    id: "barrier-over-linux",
    sentence: "With slices of 20 ms two copies of BARRIER do several times what they do under plain \
               Linux.",
    must: AtLeast(4.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 18.5, Some([-32.0, 69.0])),
    remark: Some(
        "In four rounds plain Linux did 500 barriers a second, and gangs 850,000; the fifth \
         governs a ratio of means.",
    ),
    command: "gang lab barrier",
    ..PLAIN
};

pub const BARRIER_OVER_LINUX_HOGS: Promise = Promise {
    id: "barrier-over-linux-hogs",
    sentence: "Beside a CPU hog for each CPU two copies of BARRIER do several times what they do \
               under plain Linux.",
    must: AtLeast(8.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 18.3, Some([-15.0, 52.0])),
    remark: Some("The hogs rightly have a third of the CPU time (L18)."),
    command: "gang lab barrier",
    ..PLAIN
};

pub const OVERHEAD: Promise = Promise {
    id: "overhead",
    sentence: "Two tight loops that have no use for gangs lose little as gangs (E11).",
    must: Below(1.0),
    unit: "%",
    last: last(EPYC, "2026-11-25", "10 rounds", 0.585, Some([0.009, 1.16])),
    command: "gang lab overhead --runs 10",
    ..PLAIN
};

pub const FILL_OVER_LINUX: Promise = Promise {
    id: "fill-over-linux",
    sentence: "Four copies of a program with serial phases take less time as gangs than under plain \
               Linux.",
    must: AtMost(0.5),
    unit: "of it",
    last: last(EPYC, "2026-11-25", "3 rounds", 0.057, Some([0.056, 0.058])),
    command: "gang lab fill",
    ..PLAIN
};

pub const FILL_OVER_BATCH: Promise = Promise {
    id: "fill-over-batch",
    sentence: "Four copies of a program with serial phases take less time as gangs than one after \
               the other.",
    must: AtMost(0.5),
    unit: "of it",
    last: last(EPYC, "2026-11-25", "3 rounds", 0.991, Some([0.966, 1.02])),
    missed: Some(
        "One copy alone uses 60 % of two CPUs, so four at once cannot take less than 0.6 of \
             the time.",
    ),
    command: "gang lab fill",
    ..PLAIN
};

pub const SHARE_BESIDE_HOGS: Promise = Promise {
    id: "share-beside-hogs",
    sentence: "A gang beside as many unregistered hogs as it has threads has half of the CPU time \
               of 10 s.",
    must: Within(50.0, 3.0),
    unit: "%",
    last: last(EPYC, "2026-11-25", "3 rounds", 47.1, Some([46.1, 48.0])),
    command: "gang lab share",
    ..PLAIN
};

pub const SHARE_BY_WEIGHT: Promise = Promise {
    id: "share-by-weight",
    sentence: "None of three gangs of weight 1, 1 and 2 is far from its share of 10 s.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-25", "3 rounds", 0.74, Some([0.57, 0.91])),
    command: "gang lab share",
    ..PLAIN
};

pub const SHORT_TASK: Promise = Promise {
    id: "short-task",
    sentence: "While two gangs spin, a task that wakes every 10 ms and runs 0.2 ms is done soon \
               (p99).",
    must: AtMost(10.0),
    unit: "ms",
    last: last(EPYC, "2026-11-25", "4 rounds", 19.2, Some([18.6, 19.9])),
    missed: Some(
        "A short task waits for the next gap, and shares it with kernel threads and with what \
             else waited.",
    ),
    remark: Some("The median is 4.9 ms."),
    command: "gang lab lateness",
};

pub const SHORT_TASK_COST: Promise = Promise {
    id: "short-task-cost",
    sentence: "The two gangs lose little to that short task.",
    must: AtMost(3.0),
    unit: "%",
    last: last(EPYC, "2026-11-25", "4 rounds", -0.8, Some([-12.0, 11.0])),
    command: "gang lab lateness",
    ..PLAIN
};

pub const FRAMES: Promise = Promise {
    id: "frames",
    sentence: "While two gangs spin, a compositor (SCHED_RR, priority 1) that works 2 ms in each \
               16.7 ms is done in time (p99).",
    must: AtMost(2.0),
    unit: "ms",
    last: last(EPYC, "2026-11-28", "5 rounds", 0.392, Some([0.289, 0.495])),
    remark: Some("Where nobody gives way (--no-measure), it is 12.0 ms."),
    command: "gang lab frames",
    ..PLAIN
};

pub const FRAMES_COST: Promise = Promise {
    id: "frames-cost",
    sentence: "The two gangs lose little more to those frames than these take of the machine.",
    must: AtMost(15.0),
    unit: "%",
    last: last(EPYC, "2026-11-28", "5 rounds", 14.9, Some([12.7, 17.2])),
    command: "gang lab frames",
    ..PLAIN
};

pub const OPENMP_GAUSS: Promise = Promise {
    id: "openmp-gauss",
    sentence: "Two copies of gauss (libgomp, default settings) take no longer than twice one alone.",
    must: AtMost(1.05),
    last: last(EPYC, "2026-11-25", "5 rounds", 1.07, Some([0.89, 1.24])),
    missed: Some(
        "The host ran the program at two speeds, 1.3 apart; while it had both CPUs alike, the \
             ratio was 1.03 to 1.05.",
    ),
    command: "gang lab openmp",
    ..PLAIN
};

pub const OPENMP_NUMPY: Promise = Promise {
    id: "openmp-numpy",
    sentence: "Two copies of numpy (OpenBLAS with OpenMP, default settings) take no longer than \
               twice one alone.",
    must: AtMost(1.05),
    last: last(EPYC, "2026-11-25", "5 rounds", 1.12, Some([0.94, 1.3])),
    missed: Some("The host ran the program at two speeds, 1.3 apart."),
    command: "gang lab openmp",
    ..PLAIN
};

pub const PROGRAMS_OVER_LINUX: Promise = Promise {
    id: "programs-over-linux",
    sentence: "Two copies of a real program do as much work as gangs as under plain Linux, the \
               worst of nine kinds.",
    must: AtLeast(0.95),
    unit: "of it",
    last: last(EPYC, "2026-11-30", "3 rounds, PyTorch", 0.868, Some([0.581, 1.16])),
    missed: Some(
        "No kind is told apart from 0.95: PyTorch took 6.4 s alone, and 4.7 s as one of two under \
         plain Linux.",
    ),
    command: "gang lab programs",
    ..PLAIN
};

pub const PROGRAMS_OVER_ALONE: Promise = Promise {
    id: "programs-over-alone",
    sentence: "Two copies of a real program whose threads spin do together as gangs nearly what \
               one does alone, the worst of seven kinds.",
    must: AtLeast(0.85),
    unit: "of it",
    last: last(EPYC, "2026-11-30", "3 rounds, numpy", 0.770, Some([0.402, 1.14])),
    missed: Some(
        "The CPUs of the virtual machine were nearer to each other at some times than at others, \
         and numpy varied by 15 %.",
    ),
    command: "gang lab programs",
    ..PLAIN
};

pub const ARRIVAL: Promise = Promise {
    id: "arrival",
    sentence: "An interactive gang that arrives while four batch gangs spin has its first slot soon \
               (p99).",
    must: Below(2.0),
    unit: "slices",
    last: last(EPYC, "2026-11-25", "3 rounds", 1.06, Some([1.04, 1.08])),
    remark: Some("The median is 0.72 slices."),
    command: "gang lab arrival",
    ..PLAIN
};

pub const COSCHEDULED: Promise = Promise {
    id: "coscheduled",
    sentence: "Two gangs that spin on all CPUs are coscheduled in their slots, with slices of 20 ms \
               and rt.",
    must: AtLeast(99.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", 99.3, Some([99.0, 99.6])),
    remark: Some("A slot is the time that was planned, so its switches count as lost."),
    command: "gang lab coscheduled --runs 8",
    ..PLAIN
};

pub const COSCHEDULED_HOGS: Promise = Promise {
    id: "coscheduled-hogs",
    sentence: "Two gangs that spin on all CPUs are coscheduled beside a hog for each CPU.",
    must: AtLeast(95.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "6 rounds", 98.7, Some([98.5, 98.9])),
    command: "gang lab coscheduled --runs 8",
    ..PLAIN
};

pub const GAUSS_SD: Promise = Promise {
    id: "gauss-sd",
    sentence: "As a gang beside as many competitors as CPUs, gauss varies little at the worst \
               number of threads (sd over mean).",
    must: AtMost(3.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "20 runs", 6.88, None),
    missed: Some(
        "One thread needs half of the last-level cache, which the host supposedly gives to \
             others meanwhile ([gauss](docs/lab/gauss.md)).",
    ),
    remark: Some("The worst number of threads is 1; under plain Linux it varied by 8.9 %."),
    command: "gang lab gauss --paper",
};

pub const GAUSS_MEAN: Promise = Promise {
    id: "gauss-mean",
    sentence: "As a gang beside competitors, gauss makes nearly what it makes alone, at the worst \
               number of threads.",
    must: AtLeast(0.95),
    unit: "of it",
    last: last(EPYC, "2026-11-26", "20 runs", 0.944, Some([0.914, 0.975])),
    missed: Some("The cause is the cache, as of gauss-sd."),
    command: "gang lab gauss --paper",
    ..PLAIN
};

pub const DEADLINES: Promise = Promise {
    id: "deadlines",
    sentence: "Eight domains as gangs miss next to no deadlines (X5).",
    must: AtMost(0.1),
    unit: "%",
    last: last(EPYC, "2026-11-26", "16 rounds", 0.0, Some([0.0, 0.095])),
    remark: Some("Slices are of 10 ms ([deadlines](docs/lab/deadlines.md))."),
    command: "gang lab deadlines --runs 16",
    ..PLAIN
};

pub const HOLES_OVER_LINUX: Promise = Promise {
    id: "holes-over-linux",
    sentence: "Programs with holes take no longer as gangs that fill than under plain Linux, at the \
               worst number (X6, X7).",
    must: AtMost(1.0),
    // Rounded it is the bound; the samples tell it apart.
    last: last(EPYC, "2026-11-26", "8 rounds", 1.01, Some([1.0 + f64::EPSILON, 1.02])),
    missed: Some(
        "One program alone has no other to gain from; with two or more, gangs are faster \
             ([holes](docs/lab/holes.md)).",
    ),
    command: "gang lab holes --runs 8",
    ..PLAIN
};

pub const HOLES_OVER_BATCH: Promise = Promise {
    id: "holes-over-batch",
    sentence: "Programs with holes take no longer as gangs that fill than one after the other, at \
               the worst number.",
    must: AtMost(1.0),
    last: last(EPYC, "2026-11-26", "8 rounds", 1.01, Some([0.989, 1.02])),
    missed: Some("One program alone has no other to gain from."),
    command: "gang lab holes --runs 8",
    ..PLAIN
};

pub const DEADLINES_BESIDE_COEVP: Promise = Promise {
    id: "deadlines-beside-coevp",
    sentence: "A program with steps of two slices misses few deadlines beside two of CoEVP.",
    must: AtMost(1.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "764 steps", 0.0, Some([0.0, 0.785])),
    remark: Some("Steps of one slice are too short ([holes](docs/lab/holes.md))."),
    command: "gang lab holes --runs 8",
    ..PLAIN
};

pub const DEADLINES_BESIDE_COHMM: Promise = Promise {
    id: "deadlines-beside-cohmm",
    sentence: "A program with steps of two slices misses few deadlines beside two of CoHMM.",
    must: AtMost(1.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "630 steps", 0.0, Some([0.0, 0.952])),
    command: "gang lab holes --runs 8",
    ..PLAIN
};

pub const STREAM: Promise = Promise {
    id: "stream",
    sentence: "As gangs four streams take no longer under the heaviest bursts than under the \
               lightest (E18).",
    must: AtMost(1.1),
    last: last(EPYC, "2026-11-26", "3 rounds", 1.04, Some([1.04, 1.04])),
    remark: Some("Plain Linux has 1.05 [1.04, 1.07] ([stream](docs/lab/stream.md))."),
    command: "gang lab stream --paper --runs 3",
    ..PLAIN
};

pub const SWITCH_COST_ASLEEP: Promise = Promise {
    id: "switch-cost-asleep",
    sentence: "A switch of 64 threads that sleep takes little for each thread, all switchers \
               together (median).",
    must: AtMost(2.0),
    unit: "µs",
    last: last(EPYC, "2026-11-25", "4 rounds", 0.796, Some([0.738, 0.855])),
    command: "gang lab switch",
    ..PLAIN
};

pub const SWITCH_COST_COMPUTING: Promise = Promise {
    id: "switch-cost-computing",
    sentence: "A switch of 64 threads that compute takes little for each thread, all switchers \
               together (median).",
    must: AtMost(2.0),
    unit: "µs",
    last: last(EPYC, "2026-11-25", "4 rounds", 1.46, Some([1.41, 1.51])),
    command: "gang lab switch",
    ..PLAIN
};

pub const SWITCH_SKEW_ASLEEP: Promise = Promise {
    id: "switch-skew-asleep",
    sentence: "The first and the last of 64 threads that sleep are switched close together \
               (median).",
    must: AtMost(200.0),
    unit: "µs",
    last: last(EPYC, "2026-11-25", "4 rounds", 43.2, Some([38.5, 48.0])),
    command: "gang lab switch",
    ..PLAIN
};

pub const SWITCH_SKEW_COMPUTING: Promise = Promise {
    id: "switch-skew-computing",
    sentence: "The first and the last of 64 threads that compute are switched close together \
               (median).",
    must: AtMost(200.0),
    unit: "µs",
    last: last(EPYC, "2026-11-25", "4 rounds", 82.3, Some([81.6, 83.1])),
    command: "gang lab switch",
    ..PLAIN
};

pub const PLAN: Promise = Promise {
    id: "plan",
    sentence: "A plan for 1,024 CPUs and 1,000 jobs is made in time.",
    must: Below(1.0),
    unit: "ms",
    last: last(NOT_NOTED, "2026-11-22", "one run", 0.065, None),
    command: "cargo bench -p gang-schedule",
    ..PLAIN
};

pub const PLAN_OF_USERS: Promise = Promise {
    id: "plan-users",
    sentence: "A plan for 1,000 jobs of 100 users takes about as long as one for jobs that share \
               as programs.",
    must: AtMost(1.1),
    unit: "times",
    command: "cargo bench -p gang-schedule",
    ..PLAIN
};

pub const SHARE_OF_USER: Promise = Promise {
    id: "share-of-user",
    sentence: "A user with one gang has half of the CPU time beside a user with 100 gangs.",
    must: Within(50.0, 1.0),
    unit: "%",
    last: last(EPYC, "2026-11-30", "one round", 47.0, None),
    missed: Some(
        "In gaps all gangs are ordinary threads, of which the user with 100 gangs has 200 of 202.",
    ),
    command: "gang lab accounts",
    ..PLAIN
};

pub const IDLE: Promise = Promise {
    id: "idle",
    sentence: "Daemon and guardian use little of one CPU with 100 idle jobs of 16 threads and two \
               gangs, slices of 20 ms.",
    must: Below(1.0),
    unit: "%",
    last: last(EPYC, "2026-11-25", "3 rounds", 0.769, Some([0.71, 0.829])),
    command: "gang lab idle",
    ..PLAIN
};

pub const RELEASE: Promise = Promise {
    id: "release",
    sentence: "After `kill -9` of the daemon every thread is released soon, at worst.",
    must: Below(100.0),
    unit: "ms",
    last: last(EPYC, "2026-11-25", "9 kills", 0.67, None),
    command: "gang lab release",
    ..PLAIN
};

pub const KILL: Promise = Promise {
    id: "kill",
    sentence: "After a kill of the caller's group no thread of its gangs runs soon, at worst.",
    must: Below(100.0),
    unit: "ms",
    last: last(EPYC, "2026-11-30", "12 kills", 3.8, None),
    command: "gang lab kill",
    ..PLAIN
};

pub const READING_2: Promise = Promise {
    id: "reading-2",
    sentence: "To read attributes and CPUs back costs little, with two gangs of 2 threads.",
    must: AtMost(0.1),
    unit: "% of the CPUs",
    last: last(EPYC, "2026-11-30", "3 rounds", 0.018, Some([0.007, 0.029])),
    command: "gang lab reading",
    ..PLAIN
};

pub const READING_64: Promise = Promise {
    id: "reading-64",
    sentence: "To read attributes and CPUs back costs little, with two gangs of 64 threads.",
    must: AtMost(0.1),
    unit: "% of the CPUs",
    last: last(EPYC, "2026-11-30", "3 rounds", 0.291, Some([0.265, 0.32])),
    missed: Some(
        "Each thread is read before each of its changes, and a call takes 0.3 µs on this virtual \
         machine.",
    ),
    command: "gang lab reading",
    ..PLAIN
};

pub const BUILD: Promise = Promise {
    id: "build",
    sentence: "A build as a gang gets as much done beside a gang as an ordinary build does there.",
    must: AtLeast(1.0),
    last: last(EPYC, "2026-11-30", "8 rounds of 10 s", 0.933, Some([0.868, 0.997])),
    missed: Some(
        "An ordinary build has the gaps to itself and a gang half of them, which supposedly is \
         the cause (not measured apart).",
    ),
    command: "gang lab build",
    ..PLAIN
};

pub const CLIENTS_LOST: Promise = Promise {
    id: "clients-lost",
    sentence: "No job is lost of 1,000 at a time that 50 clients register and end at once.",
    must: AtMost(0.0),
    unit: "jobs",
    last: last(NOT_NOTED, "2026-11-22", "8,021 jobs", 0.0, None),
    command: "gang lab clients",
    ..PLAIN
};

pub const CLIENTS_LEFT: Promise = Promise {
    id: "clients-left",
    sentence: "No job is left over of those.",
    must: AtMost(0.0),
    unit: "jobs",
    last: last(NOT_NOTED, "2026-11-22", "8,021 jobs", 0.0, None),
    command: "gang lab clients",
    ..PLAIN
};

pub const CLIENTS_DESCRIPTORS: Promise = Promise {
    id: "clients-descriptors",
    sentence: "The daemon has no more descriptors after those jobs than before.",
    must: AtMost(0.0),
    unit: "more",
    last: last(NOT_NOTED, "2026-11-22", "8,021 jobs", 0.0, None),
    command: "gang lab clients",
    ..PLAIN
};

pub const CLIENTS_MEMORY: Promise = Promise {
    id: "clients-memory",
    sentence: "The daemon grows little by those jobs, after as long a warm-up.",
    must: AtMost(8.0),
    unit: "MiB",
    last: last(NOT_NOTED, "2026-11-22", "one minute", 7.1, None),
    remark: Some("The growth levels off."),
    command: "gang lab clients",
    ..PLAIN
};

pub const LIST: Promise = Promise {
    id: "list",
    sentence: "`gang ls` lists 1,000 jobs at rest fast, with 10,000 that ended.",
    must: Below(100.0),
    unit: "ms",
    last: last(NOT_NOTED, "2026-11-22", "one run", 80.0, None),
    remark: Some("It takes 108 ms while 50 clients register and end jobs."),
    command: "gang lab clients",
    ..PLAIN
};

pub const HISTORY: Promise = Promise {
    id: "history",
    sentence: "`gang history` shows the last 50 of 10,000 jobs that ended fast, with 1,000 live.",
    must: Below(100.0),
    unit: "ms",
    last: last(NOT_NOTED, "2026-11-22", "one run", 6.5, None),
    remark: Some("All 10,000 take 98 ms."),
    command: "gang lab clients",
    ..PLAIN
};

pub const HOSTILE_LATE: Promise = Promise {
    id: "hostile-late",
    sentence: "No more plans are late beside the worst attack of another user than the spread of \
               minutes without one explains.",
    must: AtMost(0.0),
    unit: "a minute",
    last: last(XEON, "2026-11-29", "one round", 287.0, Some([287.0, 295.0])),
    missed: Some(
        "Plans wait until the threads of the attacker's jobs are read; the worst attack is \
         `forks`.",
    ),
    command: "gang lab hostile",
    ..PLAIN
};

pub const HOSTILE_RAN_OUT: Promise = Promise {
    id: "hostile-ran-out",
    sentence: "No more timetables run out beside the worst attack of another user than the spread \
               of minutes without one explains.",
    must: AtMost(0.0),
    unit: "a minute",
    last: last(XEON, "2026-11-29", "one round", 0.0, Some([0.0, 4.41])),
    command: "gang lab hostile",
    ..PLAIN
};

pub const HOSTILE_SHARE: Promise = Promise {
    id: "hostile-share",
    sentence: "The worst attack of another user takes next to nothing of a gang's share, beyond the \
               spread of minutes without one.",
    must: AtMost(1.0),
    unit: "%",
    last: last(XEON, "2026-11-29", "one round", 0.0, Some([0.0, 121.0])),
    remark: Some("One round of 20 s hides up to 121 %."),
    command: "gang lab hostile",
    ..PLAIN
};

pub const HOSTILE_COSCHEDULED: Promise = Promise {
    id: "hostile-coscheduled",
    sentence: "The worst attack of another user takes next to nothing of the time in which a gang \
               is coscheduled, beyond the spread of minutes without one.",
    must: AtMost(1.0),
    unit: "%",
    last: last(XEON, "2026-11-29", "one round", 7.84, Some([7.84, 9.66])),
    missed: Some("Edges are late where plans are; the worst attack is `threads`."),
    command: "gang lab hostile",
    ..PLAIN
};

pub const HOSTS_APART_P50: Promise = Promise {
    id: "hosts-apart-p50",
    sentence: "Hosts of one clock have switched to the same slice at nearly the same moment \
               (median).",
    must: AtMost(100.0),
    unit: "µs",
    last: last(XEON, "2026-11-30", "one round", 11.4, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_APART_P99: Promise = Promise {
    id: "hosts-apart-p99",
    sentence: "Hosts of one clock have switched to the same slice at nearly the same moment (p99).",
    must: AtMost(1000.0),
    unit: "µs",
    last: last(XEON, "2026-11-30", "one round", 795.0, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_SHARE: Promise = Promise {
    id: "hosts-share",
    sentence: "On each host a spanning job has the share that its weight gives it beside a job of \
               that host (the largest deviation, as a part of the share).",
    must: AtMost(3.0),
    unit: "%",
    last: last(XEON, "2026-11-30", "one round", 0.031, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_FIRST: Promise = Promise {
    id: "hosts-first-slot",
    sentence: "A spanning job has its first slot on all of its hosts within three slices and 200 ms \
               of its registration.",
    must: Below(260.0),
    unit: "ms",
    last: last(XEON, "2026-11-30", "one round", 801.0, None),
    missed: Some(
        "A client whose allowance is used waits for a gap of the gangs; the median is 162 ms.",
    ),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_MISSED: Promise = Promise {
    id: "hosts-etcd-slots",
    sentence: "No host misses a slot of a spanning job while etcd is away, nor once etcd is back.",
    must: AtMost(0.0),
    unit: "slots",
    last: last(XEON, "2026-11-30", "one round", 0.0, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_LOST: Promise = Promise {
    id: "hosts-etcd-jobs",
    sentence: "No job is lost while etcd is away, nor once etcd is back.",
    must: AtMost(0.0),
    unit: "parts of jobs",
    last: last(XEON, "2026-11-30", "one round", 0.0, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_REFUSED: Promise = Promise {
    id: "hosts-etcd-refusal",
    sentence: "While etcd is away, a job that would span hosts is refused with the reason.",
    must: AtMost(0.0),
    unit: "other answers",
    last: last(XEON, "2026-11-30", "one round", 0.0, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_AGAIN: Promise = Promise {
    id: "hosts-etcd-back",
    sentence: "Soon after etcd is started again, jobs that span hosts can be registered.",
    must: Below(10.0),
    unit: "s",
    last: last(XEON, "2026-11-30", "one round", 1.34, None),
    command: "gang lab hosts",
    ..PLAIN
};

pub const HOSTS_MESSAGES: Promise = Promise {
    id: "hosts-messages",
    sentence: "Two pairs of ranks that send messages between two hosts send together, as gangs, \
               nearly what one pair alone sends.",
    must: AtLeast(0.9),
    unit: "times",
    last: last(XEON, "2026-11-30", "one round", 1.04, None),
    remark: Some("By Linux alone the two pairs send 0.585 of it together."),
    command: "gang lab hosts",
    ..PLAIN
};

pub const NET_LATENCY_SHM: Promise = Promise {
    id: "net-latency-shm",
    sentence: "By shared memory a message of 8 bytes takes no longer than by libfabric's shm.",
    must: AtMost(1.1),
    unit: "of it",
    last: last(EPYC, "2026-12-01", "20 rounds", 0.719, Some([0.642, 0.796])),
    remark: Some(
        "Other work took half of the machine. The time is 0.23 or 0.52 µs, and that of libfabric \
         0.25 or 0.74 µs, by where the host has the two CPUs.",
    ),
    command: "gang lab net --runs 20 --seconds 0.5",
    ..PLAIN
};

pub const NET_LATENCY_UDP: Promise = Promise {
    id: "net-latency-udp",
    sentence: "By UDP over loopback a message of 8 bytes takes less time than by libfabric's \
               tcp;ofi_rxm.",
    must: AtMost(0.8),
    unit: "of it",
    last: last(EPYC, "2026-12-01", "20 rounds", 1.22, Some([1.14, 1.3])),
    missed: Some(
        "A message takes 10.0 µs, and by tcp;ofi_rxm 8.1 µs. The cause was not looked into.",
    ),
    command: "gang lab net --runs 20 --seconds 0.5",
    ..PLAIN
};

pub const NET_BANDWIDTH_SHM: Promise = Promise {
    id: "net-bandwidth-shm",
    sentence: "By shared memory messages of 1 MiB have the bandwidth of libfabric's shm.",
    must: AtLeast(0.9),
    unit: "of it",
    last: last(EPYC, "2026-12-01", "20 rounds", 0.731, Some([0.373, 1.09])),
    missed: Some(
        "Either library has 1.0 to 1.9 or 3.7 to 7.2 GB/s, by where the host has the two CPUs. It had \
         them near each other in 5 rounds of one, in 10 of the other.",
    ),
    command: "gang lab net --runs 20 --seconds 0.5",
    ..PLAIN
};

pub const NETPREEMPT_LOST: Promise = Promise {
    id: "netpreempt-lost",
    sentence: "Of two gangs whose ports are flushed at each switch no message is lost, doubled or \
               wrong.",
    must: AtMost(0.0),
    unit: "messages",
    last: last(EPYC, "2026-12-01", "36 measurements", 0.0, None),
    remark: Some(
        "Of 715,456 messages; of 1,304 flushes 48 failed, after which a gang keeps its context.",
    ),
    command: "gang lab netpreempt --slices 20ms,100ms",
    ..PLAIN
};

pub const NETPREEMPT_OVER_SHM: Promise = Promise {
    id: "netpreempt-over-shm",
    sentence: "Two gangs whose ports are flushed take no longer than on MPI's own shared memory, \
               slices of 100 ms, the worst of six programs.",
    must: AtMost(1.03),
    unit: "of it",
    last: last(EPYC, "2026-12-01", "3 rounds, mg", 1.32, Some([-0.06, 2.71])),
    missed: Some(
        "Other work had most of the machine. In some windows with slices of 100 ms gangs were \
         coscheduled for 65 % of their slots and did half as much, on either medium.",
    ),
    command: "gang lab netpreempt --slices 20ms,100ms",
    ..PLAIN
};

pub const NETPREEMPT_PHASES_20MS: Promise = Promise {
    id: "netpreempt-phases-20ms",
    sentence: "With slices of 20 ms flushes take little of the time, the worst of six programs.",
    must: Below(4.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds, mg", 0.156, Some([-0.07, 0.383])),
    remark: Some("Other work took two thirds of the machine."),
    command: "gang lab netpreempt --slices 20ms,100ms",
    ..PLAIN
};

pub const NETPREEMPT_PHASES_100MS: Promise = Promise {
    id: "netpreempt-phases-100ms",
    sentence: "With slices of 100 ms flushes take little of the time, the worst of six programs.",
    must: Below(1.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds, lu", 0.044, Some([-0.001, 0.089])),
    remark: Some("Other work took two thirds of the machine."),
    command: "gang lab netpreempt --slices 20ms,100ms",
    ..PLAIN
};

pub const NETPREEMPT_SLOWDOWN: Promise = Promise {
    id: "netpreempt-slowdown",
    sentence: "Two gangs lose little of what one does alone, slices of 100 ms, the worst of six \
               programs (S10).",
    must: Below(9.0),
    unit: "%",
    last: last(EPYC, "2026-12-01", "3 rounds, mg", 25.1, Some([-1.46, 51.8])),
    missed: Some(
        "As netpreempt-over-shm. Other work took more from one gang than from two, so that the other \
         programs did more as two.",
    ),
    command: "gang lab netpreempt --slices 20ms,100ms",
    ..PLAIN
};

pub const OWN_BARRIER_GANGD: Promise = Promise {
    id: "own-barrier-gangd",
    sentence: "Alone under gangd the barrier of libgang with the slot page is as fast as libgomp's \
               with active wait.",
    must: AtLeast(1.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 1.15, Some([0.85, 1.46])),
    command: "gang lab barriers",
    ..PLAIN
};

pub const OWN_BARRIER_LINUX: Promise = Promise {
    id: "own-barrier-linux",
    sentence: "Alone without gangd the barrier of libgang is as fast as libgomp's with active wait.",
    must: AtLeast(1.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 1.23, Some([1.01, 1.45])),
    command: "gang lab barriers",
    ..PLAIN
};

pub const OWN_BARRIER_LIBGOMP: Promise = Promise {
    id: "own-barrier-libgomp",
    sentence: "Two copies without gangd meet as fast at the barrier of libgang as at libgomp's \
               default, which blocks.",
    must: AtLeast(1.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 1.3, Some([0.4, 2.2])),
    command: "gang lab barriers",
    ..PLAIN
};

pub const OWN_BARRIER_PTHREAD: Promise = Promise {
    id: "own-barrier-pthread",
    sentence: "Two copies without gangd meet as fast at the barrier of libgang as at that of \
               pthread, which blocks.",
    must: AtLeast(1.0),
    unit: "times",
    last: last(EPYC, "2026-11-25", "5 rounds", 1.1, Some([0.6, 1.6])),
    command: "gang lab barriers",
    ..PLAIN
};

pub const REGISTER: Promise = Promise {
    id: "register",
    sentence: "To register a job beside 100 jobs takes little time (p99).",
    must: Below(2.0),
    unit: "ms",
    last: last(EPYC, "2026-11-25", "5 rounds", 0.49, Some([0.23, 0.74])),
    remark: Some("The median is 0.14 ms."),
    command: "gang lab calls",
    ..PLAIN
};

pub const ADD_FIRST: Promise = Promise {
    id: "add-first",
    sentence: "To add the first process of a job beside 100 jobs takes little time (p99).",
    must: Below(0.2),
    unit: "ms",
    last: last(EPYC, "2026-11-25", "5 rounds", 1.35, Some([1.09, 1.62])),
    missed: Some(
        "The kernel moves a process between cgroups within a grace period of RCU, which takes \
             1 to 10 ms.",
    ),
    remark: Some(
        "The median is 0.68 ms; a hierarchy mounted with `favordynmods` has no such wait.",
    ),
    command: "gang lab calls",
};

pub const ADD_ANOTHER: Promise = Promise {
    id: "add-another",
    sentence: "To add another process beside 100 jobs takes little time (p99).",
    must: Below(0.2),
    unit: "ms",
    last: last(EPYC, "2026-11-25", "5 rounds", 0.88, Some([0.36, 1.4])),
    missed: Some("The grace period is that of add-first."),
    remark: Some("The median is 0.31 ms."),
    command: "gang lab calls",
};

pub const PAGE_READ: Promise = Promise {
    id: "page-read",
    sentence: "To read the slot page takes next to nothing, one read of many in a row.",
    must: Below(5.0),
    unit: "ns",
    last: last(EPYC, "2026-11-25", "5 rounds", 0.25, Some([0.24, 0.27])),
    command: "gang lab calls",
    ..PLAIN
};

pub const PROGRESS: Promise = Promise {
    id: "progress",
    sentence: "To report progress takes next to nothing, one report of many in a row.",
    must: Below(100.0),
    unit: "ns",
    last: last(EPYC, "2026-11-25", "5 rounds", 29.6, Some([29.1, 30.0])),
    command: "gang lab calls",
    ..PLAIN
};

pub const MEASURED: Promise = Promise {
    id: "measured",
    sentence: "The coscheduled share agrees with a program that logs when its threads run.",
    must: AtMost(1.0),
    unit: "point",
    last: last(EPYC, "2026-11-25", "two runs", 0.04, None),
    remark: Some("The test tries up to eight times for a run that the machine does not disturb."),
    command: "cargo test -p gangd --test measured",
    ..PLAIN
};

pub const MEASURING_CPU: Promise = Promise {
    id: "measuring-cpu",
    sentence: "Measuring takes little of the CPUs beside two copies of BARRIER, by the kernel's \
               count and the daemon's use.",
    must: Below(0.5),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", 0.02, Some([-0.008, 0.049])),
    command: "gang lab coscheduled --runs 8",
    ..PLAIN
};

pub const MEASURING_BARRIER: Promise = Promise {
    id: "measuring-barrier",
    sentence: "Measuring costs BARRIER little, by what BARRIER completes.",
    must: Below(0.5),
    unit: "%",
    last: last(EPYC, "2026-11-26", "6 rounds", 0.764, Some([-0.534, 2.06])),
    missed: Some(
        "The rate of BARRIER differs by 15 % from one minute to the next, which hides so \
             small a cost.",
    ),
    command: "gang lab coscheduled --runs 8",
    ..PLAIN
};

pub const DOCTOR: Promise = Promise {
    id: "doctor",
    sentence: "`gang doctor` is right whether gang scheduling helps a program by more than 5 %.",
    must: AtLeast(90.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "29 programs", 96.6, None),
    remark: Some(
        "Threads over memory gain by longer slices. Two bounds were set by the same programs \
         ([doctor](docs/lab/doctor.md)).",
    ),
    command: "gang lab doctor",
    ..PLAIN
};

pub const WATCHING_MEDIAN: Promise = Promise {
    id: "watching-median",
    sentence: "Watching costs a program little while it is watched (median).",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "29 programs", 0.677, None),
    command: "gang lab doctor",
    ..PLAIN
};

pub const WATCHING_MEDIAN_STEADY: Promise = Promise {
    id: "watching-median-steady",
    sentence: "Watching costs a program that plain Linux treats alike in all rounds little \
               (median).",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "14 programs", 0.677, None),
    command: "gang lab doctor",
    ..PLAIN
};

pub const WATCHING_WORST: Promise = Promise {
    id: "watching-worst",
    sentence: "Watching costs no program much.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "29 programs", 67.0, Some([-91.0, 226.0])),
    missed: Some(
        "Plain Linux places threads differently from one start to the next, which changes \
             more than watching costs.",
    ),
    remark: Some("A barrier every 10 µs that spins loses most."),
    command: "gang lab doctor",
};

pub const WATCHING_WORST_STEADY: Promise = Promise {
    id: "watching-worst-steady",
    sentence: "Watching costs no program much that plain Linux treats alike in all rounds.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "14 programs", 2.32, Some([0.01, 4.63])),
    missed: Some("The cause is that of watching-worst."),
    remark: Some("Gauss that blocks loses most."),
    command: "gang lab doctor",
};

pub const WATCHING_APART: Promise = Promise {
    id: "watching-apart",
    sentence: "Watching costs threads that do not meet little.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", 0.56, Some([0.395, 0.726])),
    command: "gang lab watching --runs 8",
    ..PLAIN
};

pub const WATCHING_BLOCK_1MS: Promise = Promise {
    id: "watching-block-1ms",
    sentence: "Watching costs threads that meet every 1 ms and block little.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", 0.698, Some([0.426, 0.97])),
    command: "gang lab watching --runs 8",
    ..PLAIN
};

pub const WATCHING_SPIN_1MS: Promise = Promise {
    id: "watching-spin-1ms",
    sentence: "Watching costs threads that meet every 1 ms and spin little.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", -1.32, Some([-7.35, 4.72])),
    command: "gang lab watching --runs 8",
    ..PLAIN
};

pub const WATCHING_SPIN_5MS: Promise = Promise {
    id: "watching-spin-5ms",
    sentence: "Watching costs threads that meet every 5 ms and spin little.",
    must: AtMost(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "8 rounds", 1.15, Some([0.184, 2.12])),
    command: "gang lab watching --runs 8",
    ..PLAIN
};

pub const AUTO: Promise = Promise {
    id: "auto",
    sentence: "Policy `auto` costs a program that runs for five minutes little.",
    must: AtMost(1.0),
    unit: "%",
    last: last(EPYC, "2026-11-26", "3 rounds", 0.363, Some([-0.608, 1.33])),
    remark: Some("The job stayed undecided in two rounds."),
    command: "gang lab auto --runs 3",
    ..PLAIN
};

pub const VIEWS_CPU: Promise = Promise {
    id: "views-cpu",
    sentence: "`gang top` and `gang web` together use little of one CPU, at 10 updates a second of \
               20 jobs.",
    must: Below(2.0),
    unit: "%",
    last: last(EPYC, "2026-11-21", "3 rounds", 0.69, Some([0.62, 0.77])),
    command: "gang lab views",
    ..PLAIN
};

pub const VIEWS_LATENESS: Promise = Promise {
    id: "views-lateness",
    sentence: "Switches come no later with `gang top` and `gang web` than without (median).",
    must: AtMost(1.05),
    unit: "times",
    last: last(EPYC, "2026-11-21", "3 rounds", 1.05, Some([0.993, 1.11])),
    command: "gang lab views",
    ..PLAIN
};

pub const TOP_CPU: Promise = Promise {
    id: "top-cpu",
    sentence: "`gang top` uses little of one CPU at 10 pictures a second of 20 jobs, on 200 by 60 \
               characters.",
    must: Below(1.0),
    unit: "%",
    last: last(NOT_NOTED, "2026-11-21", "one run", 0.99, None),
    command: "cargo test --release -p gang --test top -- --ignored --nocapture",
    ..PLAIN
};

pub const WEB_CPU: Promise = Promise {
    id: "web-cpu",
    sentence: "`gang web` uses little of one CPU at 10 updates a second of 20 jobs, with one \
               browser.",
    must: Below(1.0),
    unit: "%",
    last: last(NOT_NOTED, "2026-11-21", "one run", 0.4, None),
    command: "tests/web.sh --figures",
    ..PLAIN
};

pub const WEB_FRAMES: Promise = Promise {
    id: "web-frames",
    sentence: "The page of `gang web` shows 128 CPUs and 200 jobs without dropping frames.",
    must: AtLeast(60.0),
    unit: "a second",
    last: last(NOT_NOTED, "2026-11-21", "600 frames", 60.0, None),
    command: "tests/web.sh --figures",
    ..PLAIN
};

pub const WEB_PAINT: Promise = Promise {
    id: "web-paint",
    sentence: "The page of `gang web` shows 20 jobs soon, on the same machine (median).",
    must: Below(200.0),
    unit: "ms",
    last: last(NOT_NOTED, "2026-11-21", "7 loads", 156.0, None),
    remark: Some("Chromium is headless, without a graphics card."),
    command: "tests/web.sh --figures",
    ..PLAIN
};

pub const WEB_BYTES: Promise = Promise {
    id: "web-bytes",
    sentence: "All that a browser loads of `gang web` is small.",
    must: Below(300.0),
    unit: "kB",
    last: last(NOT_NOTED, "2026-11-21", "the page", 94.0, None),
    command: "tests/web.sh --figures",
    ..PLAIN
};
