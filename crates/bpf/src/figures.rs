//! The figures of a gang.

use crate::Whole;

/// Sums since the gang is watched, or started over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GangSums {
    /// Time in slot.
    pub slot_ns: u64,
    /// Of it, the time in which at least one thread wanted to run.
    pub wanted_ns: u64,
    /// Of that, the time in which all threads that wanted to run did.
    pub coscheduled_ns: u64,
    /// Summed over threads: waiting for a CPU in slot.
    pub lost_ns: u64,
    /// Running out of slot.
    pub filled_ns: u64,
    /// Waiting for a CPU out of slot.
    pub waiting_ns: u64,
    /// How often a thread gave way to a rival in slot, and for how long.
    pub gave_way: u64,
    pub gave_way_ns: u64,
    pub whole: Whole,
    /// How many edges of slots had which skew (`skew_us` of the index).
    pub skews: Vec<u32>,
}

/// A rival that waits behind a gang's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub cpu: u32,
    /// The gang's thread that has the CPU.
    pub raised: u32,
    /// The same was reported a moment ago, and the gang's thread is still there.
    pub was_asked: bool,
    /// The time of slots on the CPU, ever, and what rivals had of it because gangs gave way.
    pub slots_ns: u64,
    pub used_ns: u64,
}

/// A thread that runs or waits for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnableThread {
    /// The number of its cgroup (version 2).
    pub group: u64,
    /// Its number, and its user's, are those of the machine's first namespaces.
    pub tid: u32,
    pub uid: u32,
}

/// A gang's time on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    pub cpu: u32,
    /// Running there in slot.
    pub in_slot_ns: u64,
    /// Waiting in slot, of threads that ran there next.
    pub lost_ns: u64,
    /// Running there out of slot.
    pub filled_ns: u64,
}

impl OnCpu {
    /// The time since those of all CPUs were these.
    pub fn since(self, earlier: &[OnCpu]) -> OnCpu {
        let Some(then) = earlier.iter().find(|then| then.cpu == self.cpu) else { return self };
        OnCpu {
            cpu: self.cpu,
            in_slot_ns: self.in_slot_ns.saturating_sub(then.in_slot_ns),
            lost_ns: self.lost_ns.saturating_sub(then.lost_ns),
            filled_ns: self.filled_ns.saturating_sub(then.filled_ns),
        }
    }

    /// It was there, or waited to be.
    pub fn is_used(&self) -> bool {
        self.in_slot_ns + self.lost_ns + self.filled_ns > 0
    }
}

/// A process that ran in the place of a thread of the gang, in its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// Of the thread that was seen first.
    pub name: String,
    pub pid: u32,
    pub class: SchedClass,
    pub ns: u64,
}

impl Culprit {
    /// The time that it took since all were these; `None` where it took nothing. One that made room
    /// for another may have begun anew.
    pub fn since(mut self, earlier: &[Culprit]) -> Option<Culprit> {
        let then = earlier.iter().find(|then| then.pid == self.pid && then.ns <= self.ns);
        self.ns -= then.map_or(0, |then| then.ns);
        (self.ns > 0).then_some(self)
    }
}

/// How a thread was scheduled that others waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedClass {
    /// The CPU was idle and had to wake.
    IdleCpu,
    KernelThread,
    Deadline,
    Fifo,
    RoundRobin,
    Other,
    Batch,
    Idle,
    Ext,
}

impl SchedClass {
    /// Of the numbers of sched.h.
    pub fn of(policy: u32, is_kernel: bool, pid: u32) -> SchedClass {
        match (pid, is_kernel, policy) {
            (0, ..) => SchedClass::IdleCpu,
            (_, true, _) => SchedClass::KernelThread,
            (.., 1) => SchedClass::Fifo,
            (.., 2) => SchedClass::RoundRobin,
            (.., 3) => SchedClass::Batch,
            (.., 5) => SchedClass::Idle,
            (.., 6) => SchedClass::Deadline,
            (.., 7) => SchedClass::Ext,
            _ => SchedClass::Other,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            SchedClass::IdleCpu => "idle CPU",
            SchedClass::KernelThread => "kernel",
            SchedClass::Deadline => "deadline",
            SchedClass::Fifo => "fifo",
            SchedClass::RoundRobin => "rr",
            SchedClass::Other => "other",
            SchedClass::Batch => "batch",
            SchedClass::Idle => "idle",
            SchedClass::Ext => "ext",
        }
    }
}

impl GangSums {
    /// The sums since earlier ones of the same gang.
    pub fn since(&self, earlier: &GangSums) -> GangSums {
        let skews_then = earlier.skews.iter().copied().chain(std::iter::repeat(0));
        let skews = self.skews.iter().zip(skews_then).map(|(now, then)| now.saturating_sub(then));
        GangSums {
            slot_ns: self.slot_ns.saturating_sub(earlier.slot_ns),
            wanted_ns: self.wanted_ns.saturating_sub(earlier.wanted_ns),
            coscheduled_ns: self.coscheduled_ns.saturating_sub(earlier.coscheduled_ns),
            lost_ns: self.lost_ns.saturating_sub(earlier.lost_ns),
            filled_ns: self.filled_ns.saturating_sub(earlier.filled_ns),
            waiting_ns: self.waiting_ns.saturating_sub(earlier.waiting_ns),
            gave_way: self.gave_way.saturating_sub(earlier.gave_way),
            gave_way_ns: self.gave_way_ns.saturating_sub(earlier.gave_way_ns),
            whole: self.whole.since(&earlier.whole),
            skews: skews.collect(),
        }
    }

    /// The share of the time in slot, as far as the gang wanted to run, in which all of its
    /// runnable threads were on CPUs; `None` where it never wanted to.
    pub fn coscheduled(&self) -> Option<f64> {
        (self.wanted_ns > 0).then(|| self.coscheduled_ns as f64 / self.wanted_ns as f64)
    }

    /// The time between the first and the last thread at the edges of slots, in microseconds, which
    /// 99 of 100 do not exceed; `None` where no slot has begun.
    pub fn skew_us_p99(&self) -> Option<f64> {
        let all: u64 = self.skews.iter().map(|&count| u64::from(count)).sum();
        let mut left = (all as f64 * 0.99).ceil() as u64;
        let at = self.skews.iter().position(|&count| {
            left = left.saturating_sub(count.into());
            left == 0
        })?;
        (all > 0).then(|| skew_us(at))
    }
}

/// The end of a bucket of the skews: eight of them for each power of two.
fn skew_us(bucket: usize) -> f64 {
    match bucket {
        0..8 => (bucket + 1) as f64,
        _ => ((8 + bucket % 8 + 1) as u64).wrapping_shl((bucket / 8 - 1) as u32) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_where_the_next_begins() {
        let ends: Vec<f64> = (0..24).map(skew_us).collect();
        assert_eq!(ends[..9], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!(ends[15..18], [16.0, 18.0, 20.0]);
        assert_eq!(ends[23], 32.0);
        assert_eq!(skew_us(143), f64::from(1 << 20));
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let none = GangSums { skews: vec![0; 144], ..GangSums::default() };
        assert_eq!((none.coscheduled(), none.skew_us_p99()), (None, None));
    }

    #[test]
    fn what_was_measured_before_is_left_out() {
        let of = |slot_ns, skew| GangSums { slot_ns, skews: vec![1, skew], ..GangSums::default() };
        assert_eq!(of(7, 5).since(&GangSums::default()), of(7, 5));
        assert_eq!(of(7, 5).since(&of(3, 2)).skews, [0, 3]);
        assert_eq!(of(7, 5).since(&of(3, 2)).slot_ns, 4);
        let on_cpu = |cpu, lost_ns| OnCpu { cpu, lost_ns, in_slot_ns: 0, filled_ns: 0 };
        assert_eq!(on_cpu(1, 9).since(&[on_cpu(0, 5), on_cpu(1, 2)]), on_cpu(1, 7));
        assert_eq!(on_cpu(2, 9).since(&[on_cpu(0, 5)]), on_cpu(2, 9));
        let culprit = |pid, ns| Culprit { name: "it".into(), pid, class: SchedClass::Other, ns };
        let before = [culprit(4, 3), culprit(5, 8)];
        assert_eq!(culprit(4, 9).since(&before), Some(culprit(4, 6)));
        assert_eq!(culprit(4, 3).since(&before), None);
        assert_eq!(culprit(5, 2).since(&before), Some(culprit(5, 2)));
    }

    #[test]
    fn of_a_hundred_skews_one_may_be_larger() {
        let mut figures = GangSums { skews: vec![0; 144], ..GangSums::default() };
        (figures.skews[3], figures.skews[90]) = (99, 1);
        assert_eq!(figures.skew_us_p99(), Some(4.0));
        figures.skews[90] = 2;
        assert!(figures.skew_us_p99().unwrap() > 1000.0);
    }
}
