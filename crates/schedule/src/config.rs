//! The settings of the policy, with units, defaults and bounds.

use std::collections::BTreeMap;

use crate::turn::{SCALE, Tier};
use crate::{Class, Refusal, Sharing, Spec, UserId};

const MS: u64 = 1_000_000;

/// The end of every period of the clock, in which no gang is raised. Short tasks of the rest of the
/// machine run there at once, on all CPUs. It belongs to the clock (UTC), not to the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// From the end of one gap to the end of the next, ns. 1 ms to 60 s where
    /// there are gaps.
    pub period_ns: u64,
    /// Length of a gap, ns; at most half of the period. 0 means no gaps.
    pub length_ns: u64,
}

impl Gap {
    /// No gaps.
    pub const NONE: Gap = Gap { period_ns: 20 * MS, length_ns: 0 };
}

/// 1 ms in every 20 ms.
impl Default for Gap {
    fn default() -> Gap {
        Gap { period_ns: 20 * MS, length_ns: MS }
    }
}

/// The factors of the weights of jobs, in percent, for the classes that share by weight. A thread
/// of the rest of the machine counts like a thread of a gang of default weight at 100 %. Standby
/// has none: it has what nobody else wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassWeights {
    /// 1 to 10,000 %. Without one, which is the default, express comes before
    /// all others.
    pub express: Option<u32>,
    /// 1 to 10,000 %, default 200 %.
    pub interactive: u32,
    /// 1 to 10,000 %, default 100 %.
    pub batch: u32,
}

impl Default for ClassWeights {
    fn default() -> ClassWeights {
        ClassWeights { express: None, interactive: 200, batch: 100 }
    }
}

/// For how many slices a gang of a class keeps its slot once it leads, unless
/// somebody comes who is to be served sooner. It says nothing of how much the
/// gang gets: that is its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassSlices {
    /// 1 to 1,000 slices, default 1.
    pub express: u32,
    /// 1 to 1,000 slices, default 1. With more, who arrives may wait longer.
    pub interactive: u32,
    /// 1 to 1,000 slices, default 1.
    pub batch: u32,
    /// 1 to 1,000 slices, default 1.
    pub standby: u32,
}

impl Default for ClassSlices {
    fn default() -> ClassSlices {
        ClassSlices { express: 1, interactive: 1, batch: 1, standby: 1 }
    }
}

impl ClassSlices {
    /// The most slices.
    pub const MAX: u32 = 1000;

    pub fn of(&self, class: Class) -> u32 {
        match class {
            Class::Express => self.express,
            Class::Interactive => self.interactive,
            Class::Batch => self.batch,
            Class::Standby => self.standby,
        }
    }
}

/// The settings of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Length of a slice, ns: 0.2 ms to 60 s, default 20 ms.
    pub slice_ns: u64,
    /// Default 1 ms in every 20 ms.
    pub gap: Gap,
    /// Whether gangs out of slot stay runnable and fill holes (the default),
    /// or are paused (L4).
    pub fill: bool,
    /// The share of the slices that all gangs may take (L8), 1 to 1,000 ‰, default 1,000 ‰.
    pub cap_permille: u32,
    /// Interactive 200 %, batch 100 %, express before both.
    pub class_weights: ClassWeights,
    /// One slice each.
    pub class_slices: ClassSlices,
    /// By program.
    pub sharing: Sharing,
    /// The share of all CPUs that the gangs of a user get together at most, 1 to 1,000 ‰. Default:
    /// nobody has one.
    pub caps: BTreeMap<UserId, u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            slice_ns: 20 * MS,
            gap: Gap::default(),
            fill: true,
            cap_permille: 1000,
            class_weights: ClassWeights::default(),
            class_slices: ClassSlices::default(),
            sharing: Sharing::ByProgram,
            caps: BTreeMap::new(),
        }
    }
}

/// More is not held against a job: ten slices a slot.
const OVERHEAD_MAX: u32 = 900;

impl Config {
    /// The bounds of `slice_ns`.
    pub const SLICE_NS: std::ops::RangeInclusive<u64> = 200_000..=60_000 * MS;

    /// Refuses settings outside their bounds.
    pub fn validate(&self) -> Result<(), Refusal> {
        let Config { slice_ns, gap, cap_permille, class_weights, class_slices, .. } = *self;
        within("slice_ns", slice_ns, *Config::SLICE_NS.start(), *Config::SLICE_NS.end())?;
        if gap.length_ns > 0 {
            within("gap.period_ns", gap.period_ns, MS, 60_000 * MS)?;
            within("gap.length_ns", gap.length_ns, 0, gap.period_ns / 2)?;
        }
        within("cap_permille", cap_permille.into(), 1, 1000)?;
        if let Some(express) = class_weights.express {
            within("class_weights.express", express.into(), 1, 10_000)?;
        }
        within("class_weights.interactive", class_weights.interactive.into(), 1, 10_000)?;
        within("class_weights.batch", class_weights.batch.into(), 1, 10_000)?;
        let ClassSlices { express, interactive, batch, standby } = class_slices;
        for (key, slices) in [
            ("class_slices.express", express),
            ("class_slices.interactive", interactive),
            ("class_slices.batch", batch),
            ("class_slices.standby", standby),
        ] {
            within(key, slices.into(), 1, ClassSlices::MAX.into())?;
        }
        for &cap in self.caps.values() {
            within("cap", cap.into(), 1, 1000)?;
        }
        if let Sharing::ByUser(shares) = &self.sharing {
            for &share in shares.values() {
                within("share", share.into(), 1, Sharing::MAX.into())?;
            }
        }
        Ok(())
    }

    /// With whom a job shares.
    pub(crate) fn tier(&self, spec: &Spec) -> Tier {
        match spec.class {
            Class::Express if self.class_weights.express.is_none() => Tier::Express,
            Class::Express | Class::Interactive | Class::Batch => Tier::Shared,
            Class::Standby => Tier::Standby,
        }
    }

    /// The weight that a job asks for, at most 10⁸ by [`SCALE`], and less where its slots cost more
    /// than a slice.
    pub(crate) fn weight(&self, spec: &Spec) -> u64 {
        let percent = match spec.class {
            Class::Interactive => self.class_weights.interactive,
            Class::Batch => self.class_weights.batch,
            Class::Express => self.class_weights.express.unwrap_or(100),
            Class::Standby => 100,
        };
        let asked = u64::from(spec.weight) * u64::from(percent) * SCALE;
        asked * 100 / (100 + u64::from(spec.overhead.min(OVERHEAD_MAX)))
    }
}

fn within(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Refusal::Config { key, value, least, most })
    }
}
