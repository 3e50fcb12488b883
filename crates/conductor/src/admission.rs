//! Whether there is memory and disk for a job (L26).
//!
//! The needs that a job declares are held against what is free now, less what others were promised
//! and do not use yet.

/// The needs of a job; 0 where it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub mem_bytes: u64,
    pub disk_bytes: u64,
}

impl Resources {
    pub fn is_none(&self) -> bool {
        *self == Resources::default()
    }

    /// The rest of it, for a job that has `held` already.
    pub fn less(self, held: Resources) -> Resources {
        Resources {
            mem_bytes: self.mem_bytes.saturating_sub(held.mem_bytes),
            disk_bytes: self.disk_bytes.saturating_sub(held.disk_bytes),
        }
    }

    /// The part of it that is more than it was before; 0 where it is not.
    pub fn where_more_than(self, before: Resources) -> Resources {
        let more = |after: u64, before: u64| if after > before { after } else { 0 };
        Resources {
            mem_bytes: more(self.mem_bytes, before.mem_bytes),
            disk_bytes: more(self.disk_bytes, before.disk_bytes),
        }
    }
}

/// The supply of one resource, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    pub total: u64,
    pub free: u64,
    /// Promised to jobs, and not used by them yet.
    pub promised: u64,
}

/// The supply of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    pub memory: Supply,
    pub disk: Supply,
}

impl Stock {
    /// Takes account of what a job was promised, of which it uses `used` already.
    pub fn promise(&mut self, job: Resources, used: Resources) {
        self.memory.promised += job.mem_bytes.saturating_sub(used.mem_bytes);
        self.disk.promised += job.disk_bytes.saturating_sub(used.disk_bytes);
    }

    /// Refuses what does not fit.
    pub fn admit(&self, wanted: Resources) -> Result<(), NotEnough> {
        let named =
            [("memory", wanted.mem_bytes, self.memory), ("disk", wanted.disk_bytes, self.disk)];
        match named.into_iter().find(|(_, wanted, supply)| {
            *wanted > 0 && *wanted > supply.free.saturating_sub(supply.promised)
        }) {
            None => Ok(()),
            Some((resource, wanted, supply)) => Err(NotEnough { resource, wanted, supply }),
        }
    }

    /// Refuses what would not fit either if the machine were empty.
    pub fn can_ever(&self, wanted: Resources) -> Result<(), NotEnough> {
        let empty = |supply: Supply| Supply { free: supply.total, promised: 0, ..supply };
        Stock { memory: empty(self.memory), disk: empty(self.disk) }.admit(wanted)
    }
}

/// A job does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnough {
    pub resource: &'static str,
    pub wanted: u64,
    pub supply: Supply,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock(free: u64, promised: u64) -> Stock {
        let memory = Supply { total: 100, free, promised };
        Stock { memory, disk: Supply { total: 10, free: 10, promised: 0 } }
    }

    fn memory(mem_bytes: u64) -> Resources {
        Resources { mem_bytes, disk_bytes: 0 }
    }

    #[test]
    fn promised_resources_are_not_given_twice() {
        let mut stock = stock(60, 0);
        assert_eq!(stock.admit(memory(60)), Ok(()));
        stock.promise(memory(50), memory(20));
        assert_eq!(stock.memory.promised, 30);
        assert_eq!(stock.admit(memory(30)), Ok(()));
        let refused = stock.admit(memory(31));
        assert!(matches!(refused, Err(NotEnough { resource: "memory", wanted: 31, .. })));
        // More than was promised is used: that shows in what is free.
        stock.promise(memory(10), memory(40));
        assert_eq!(stock.memory.promised, 30);
        assert_eq!(stock.admit(Resources { mem_bytes: 0, disk_bytes: 10 }), Ok(()));
        let refused = stock.admit(Resources { mem_bytes: 1, disk_bytes: 11 });
        assert!(matches!(refused, Err(NotEnough { resource: "disk", .. })));
    }

    #[test]
    fn job_without_needs_always_fits() {
        assert_eq!(stock(0, 50).admit(Resources::default()), Ok(()));
    }

    #[test]
    fn held_resources_are_not_needed_again() {
        let both = Resources { mem_bytes: 10, disk_bytes: 4 };
        assert_eq!(both.less(memory(12)), Resources { mem_bytes: 0, disk_bytes: 4 });
        assert_eq!(both.where_more_than(memory(9)), both);
        assert_eq!(both.where_more_than(both), Resources::default());
        assert_eq!(both.where_more_than(memory(10)), Resources { mem_bytes: 0, disk_bytes: 4 });
    }

    #[test]
    fn needs_beyond_the_machine_are_refused() {
        assert_eq!(stock(0, 50).can_ever(memory(100)), Ok(()));
        assert!(stock(100, 0).can_ever(memory(101)).is_err());
    }
}
