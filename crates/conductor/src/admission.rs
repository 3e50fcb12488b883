//! Whether there is memory and disk for a job (L26).
//!
//! The needs that a job declares are held against what is free now, less what others were promised
//! and do not use yet, and less what earlier jobs wait for.
//!
//! Problem: a promise keeps others out, although nothing is used of it. A user who is promised
//! everything, or waits for everything, would keep all others out for ever.
//!
//! Approach: a job that got no process within some seconds has no promise until it gets one. A user
//! who claims more than half of what the claims of others leave is held to that half, every other
//! minute. A gang has a minute to use what it was promised, or to find a machine with enough room;
//! after that, others have a minute in which half of the room is theirs. Root and the user whom the
//! daemon runs as are held to nothing.

use std::collections::BTreeMap;

use gang_schedule::UserId;

use crate::Accounts;

/// A job without a process has its promise for so long.
pub const LAPSES_AFTER_NS: u64 = 10_000_000_000;

/// Time for which more than half of the room is kept for one user; then half of it, for as long.
const HELD_NS: u64 = 60_000_000_000;

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

    pub fn and(self, other: Resources) -> Resources {
        Resources {
            mem_bytes: self.mem_bytes.saturating_add(other.mem_bytes),
            disk_bytes: self.disk_bytes.saturating_add(other.disk_bytes),
        }
    }

    fn at_most(self, other: Resources) -> Resources {
        Resources {
            mem_bytes: self.mem_bytes.min(other.mem_bytes),
            disk_bytes: self.disk_bytes.min(other.disk_bytes),
        }
    }

    fn half(self) -> Resources {
        Resources { mem_bytes: self.mem_bytes / 2, disk_bytes: self.disk_bytes / 2 }
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
    /// Takes account of what is kept for others.
    pub fn promise(&mut self, kept: Resources) {
        self.memory.promised = self.memory.promised.saturating_add(kept.mem_bytes);
        self.disk.promised = self.disk.promised.saturating_add(kept.disk_bytes);
    }

    fn free(&self) -> Resources {
        Resources { mem_bytes: self.memory.free, disk_bytes: self.disk.free }
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

/// The room to be kept for a job that waits, or that was promised it and does not use it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub user: UserId,
    pub unused: Resources,
}

/// The users who claim more than half of what others leave, and since when (CLOCK_MONOTONIC).
#[derive(Debug, Default)]
pub struct Overclaims {
    since_ns: BTreeMap<UserId, u64>,
}

impl Overclaims {
    /// Notes the users who claim too much now. `claims` are all there are: those of all jobs, and
    /// of all that wait.
    pub fn note(&mut self, accounts: &Accounts, now_ns: u64, stock: &Stock, claims: &[Claim]) {
        let too_much = parts(stock, claims)
            .into_iter()
            .filter(|part| part.claimed != part.fair && !accounts.is_unlimited(part.user));
        let since = |user| self.since_ns.get(&user).copied().unwrap_or(now_ns);
        self.since_ns = too_much.map(|part| (part.user, since(part.user))).collect();
    }

    /// The room that claims keep from a user who asks for something now. Not all the claims may
    /// count against him, unlike those for [`Overclaims::note`].
    pub fn kept_from(
        &self,
        user: UserId,
        now_ns: u64,
        stock: &Stock,
        claims: &[Claim],
    ) -> Resources {
        let is_held_to_half = |of: UserId| {
            let since_ns = self.since_ns.get(&of).filter(|_| of != user);
            since_ns.is_some_and(|since_ns| (now_ns.saturating_sub(*since_ns) / HELD_NS) % 2 == 1)
        };
        let counts = |part: Part| if is_held_to_half(part.user) { part.fair } else { part.claimed };
        parts(stock, claims).into_iter().map(counts).fold(Resources::default(), Resources::and)
    }
}

/// The claims of one user.
#[derive(Clone, Copy, Debug)]
struct Part {
    user: UserId,
    claimed: Resources,
    /// As much of them as is no more than half of what the claims of others leave.
    fair: Resources,
}

fn parts(stock: &Stock, claims: &[Claim]) -> Vec<Part> {
    let mut by_user: BTreeMap<UserId, Resources> = BTreeMap::new();
    for claim in claims {
        let sum = by_user.entry(claim.user).or_default();
        *sum = sum.and(claim.unused);
    }
    let all = by_user.values().copied().fold(Resources::default(), Resources::and);
    let part = |(user, claimed): (UserId, Resources)| {
        let half = stock.free().less(all.less(claimed)).half();
        Part { user, claimed, fair: claimed.at_most(half) }
    };
    by_user.into_iter().map(part).collect()
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
    use crate::accounts::ROOT;

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
        stock.promise(memory(50).less(memory(20)));
        assert_eq!(stock.memory.promised, 30);
        assert_eq!(stock.admit(memory(30)), Ok(()));
        let refused = stock.admit(memory(31));
        assert!(matches!(refused, Err(NotEnough { resource: "memory", wanted: 31, .. })));
        // More than was promised is used: that shows in what is free.
        stock.promise(memory(10).less(memory(40)));
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

    const SECOND: u64 = 1_000_000_000;
    const ONE: UserId = UserId(1);
    const OTHER: UserId = UserId(2);

    /// The amount that all claims keep from a user, at a moment in seconds.
    fn kept(overclaims: &mut Overclaims, user: UserId, at: u64, claims: &[Claim]) -> u64 {
        let stock = stock(80, 0);
        overclaims.note(&Accounts::default(), at * SECOND, &stock, claims);
        overclaims.kept_from(user, at * SECOND, &stock, claims).mem_bytes
    }

    #[test]
    fn who_claims_all_is_held_to_half_every_other_minute() {
        let mut overclaims = Overclaims::default();
        let claims = [Claim { user: ONE, unused: memory(70) }];
        let mut kept = |user, at| kept(&mut overclaims, user, at, &claims);
        assert_eq!([1, 30, 60].map(|at| kept(OTHER, at)), [70, 70, 70]);
        assert_eq!([61, 100, 120].map(|at| kept(OTHER, at)), [40, 40, 40]);
        assert_eq!(kept(ONE, 110), 70, "to himself his claims are what they are");
        assert_eq!([121, 180, 181].map(|at| kept(OTHER, at)), [70, 70, 40]);
    }

    #[test]
    fn who_sees_fewer_claims_forgets_nothing() {
        let (mut overclaims, stock) = (Overclaims::default(), stock(80, 0));
        let claims = [30, 40].map(|bytes| Claim { user: ONE, unused: memory(bytes) });
        assert_eq!(kept(&mut overclaims, OTHER, 0, &claims), 70);
        // He asks for more for one of his jobs, and the first one of a queue looks again.
        for at in 1..90 {
            let kept = |claims| overclaims.kept_from(ONE, at * SECOND, &stock, claims).mem_bytes;
            assert_eq!([kept(&claims[..1]), kept(&[])], [30, 0]);
        }
        assert_eq!(kept(&mut overclaims, OTHER, 90, &claims), 40);
    }

    #[test]
    fn claims_of_a_user_add_up_and_renew_once_fair() {
        let mut overclaims = Overclaims::default();
        let many = [Claim { user: ONE, unused: memory(10) }; 7];
        let few = [Claim { user: ONE, unused: memory(10) }; 4];
        let mut kept = |claims: &[Claim], at| kept(&mut overclaims, OTHER, at, claims);
        assert_eq!([kept(&many, 0), kept(&many, 60)], [70, 40]);
        assert_eq!([kept(&few, 61), kept(&many, 62), kept(&many, 100)], [40, 70, 70]);
    }

    #[test]
    fn half_of_what_others_leave_is_no_limit_for_root() {
        let mut overclaims = Overclaims::default();
        let claim = |user, bytes| Claim { user, unused: memory(bytes) };
        let claims = [claim(ONE, 40), claim(OTHER, 30)];
        let mut kept = |claims: &[Claim], at| kept(&mut overclaims, UserId(3), at, claims);
        assert_eq!(kept(&claims, 0), 70);
        assert_eq!(kept(&claims, 70), 25 + 20);
        let of_root = [claim(ROOT, 80)];
        assert_eq!([kept(&of_root, 0), kept(&of_root, 70)], [80, 80]);
    }

    #[test]
    fn needs_beyond_the_machine_are_refused() {
        assert_eq!(stock(0, 50).can_ever(memory(100)), Ok(()));
        assert!(stock(100, 0).can_ever(memory(101)).is_err());
    }
}
