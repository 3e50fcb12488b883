//! The policy's own words and those of the interface.
//!
//! The generated enumerations belong to the interface and stay as its version has them; those of
//! `gang-schedule` belong to the policy. A value added to either does not compile until it has
//! its counterpart here.

use gang_schedule::{Class, CpuSet, Policy};

use crate::{auto1, v1};

/// The numbers of a list of CPUs such as `0-3,8`.
///
/// # Errors
/// The text is no such list; it says why.
pub fn cpu_numbers(list: &str) -> Result<Vec<i64>, String> {
    let set = list.parse::<CpuSet>().map_err(|error| error.to_string())?;
    Ok(set.iter().map(i64::from).collect())
}

impl From<Class> for v1::Class {
    fn from(class: Class) -> Self {
        match class {
            Class::Express => Self::express,
            Class::Interactive => Self::interactive,
            Class::Batch => Self::batch,
            Class::Standby => Self::standby,
        }
    }
}

impl From<v1::Class> for Class {
    fn from(class: v1::Class) -> Self {
        match class {
            v1::Class::express => Self::Express,
            v1::Class::interactive => Self::Interactive,
            v1::Class::batch => Self::Batch,
            v1::Class::standby => Self::Standby,
        }
    }
}

impl From<Policy> for v1::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Gang => Self::gang,
            Policy::None => Self::none,
        }
    }
}

impl From<v1::Policy> for Policy {
    fn from(policy: v1::Policy) -> Self {
        match policy {
            // Such a job begins as a gang.
            v1::Policy::gang | v1::Policy::auto => Self::Gang,
            v1::Policy::none => Self::None,
        }
    }
}

impl From<auto1::Policy> for Policy {
    fn from(policy: auto1::Policy) -> Self {
        match policy {
            auto1::Policy::gang => Self::Gang,
            auto1::Policy::none => Self::None,
        }
    }
}

impl From<Policy> for auto1::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Gang => Self::gang,
            Policy::None => Self::none,
        }
    }
}

impl From<v1::Policy> for auto1::Policy {
    fn from(policy: v1::Policy) -> Self {
        Policy::from(policy).into()
    }
}

impl From<v1::Gain> for auto1::Gain {
    fn from(v1::Gain { gain, interval }: v1::Gain) -> Self {
        Self { gain, interval }
    }
}

impl From<auto1::Gain> for v1::Gain {
    fn from(auto1::Gain { gain, interval }: auto1::Gain) -> Self {
        Self { gain, interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_way_there_and_back() {
        for class in Class::ALL {
            let there = v1::Class::from(class);
            assert_eq!(serde_json::to_value(&there).unwrap(), class.name());
            assert_eq!(Class::from(there), class);
        }
        for policy in Policy::ALL {
            let there = v1::Policy::from(policy);
            assert_eq!(serde_json::to_value(&there).unwrap(), policy.name());
            assert_eq!(Policy::from(there), policy);
            let there = auto1::Policy::from(policy);
            assert_eq!(serde_json::to_value(&there).unwrap(), policy.name());
            assert_eq!(Policy::from(there), policy);
        }
    }
}
