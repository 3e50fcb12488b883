//! On whose account the time of a job is.
//!
//! Every person has an account. The users of services are not persons: all of them have one account
//! together, so that a machine with many services owes them no more than a machine with one. Users
//! of user namespaces have numbers that belong to a person (subuid(5)), and are on his account. The
//! user whom the daemon runs as has his own: limits of users do not hold him.

use std::{collections::BTreeMap, ops::RangeInclusive};

use gang_schedule::UserId;

/// The account of root.
pub const ROOT: UserId = UserId(0);

/// The account of all services.
pub const SERVICES: UserId = UserId(u32::MAX);

/// Which users are on whose account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    services: Vec<RangeInclusive<u32>>,
    /// By the first number: the last one, and whose they are.
    subordinate: BTreeMap<u32, (u32, u32)>,
    /// The user whom the daemon runs as; root unless another one is set.
    daemon_uid: u32,
}

impl Accounts {
    /// `services` are the numbers of users of services; `subordinate` are numbers, each with the
    /// user to whom they belong. Of numbers that belong to several, the last one has them.
    pub fn new(
        services: Vec<RangeInclusive<u32>>,
        subordinate: impl IntoIterator<Item = (RangeInclusive<u32>, u32)>,
    ) -> Accounts {
        let by_first = |(numbers, owner): (RangeInclusive<u32>, u32)| {
            (*numbers.start(), (*numbers.end(), owner))
        };
        let subordinate = subordinate.into_iter().map(by_first).collect();
        Accounts { services, subordinate, daemon_uid: ROOT.0 }
    }

    /// The same for a daemon of a user.
    #[must_use]
    pub fn of_daemon(self, daemon_uid: u32) -> Accounts {
        Accounts { daemon_uid, ..self }
    }

    /// Whether no limit of users holds an account: root's, and that of the daemon's user, who is an
    /// administrator of it and sets its limits.
    pub fn is_unlimited(&self, user: UserId) -> bool {
        user == ROOT || user == UserId(self.daemon_uid)
    }

    /// The jobs of root and of the daemon's user are their own.
    pub fn of(&self, uid: u32) -> UserId {
        if uid == ROOT.0 || uid == self.daemon_uid {
            return UserId(uid);
        }
        let person = self.subordinate.range(..=uid).next_back();
        match person.filter(|(_, (last, _))| uid <= *last) {
            Some((_, (_, owner))) => UserId(*owner),
            None if self.services.iter().any(|numbers| numbers.contains(&uid)) => SERVICES,
            None => UserId(uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_have_accounts_and_services_have_one() {
        let accounts = Accounts::new(vec![1..=999, 61184..=65519], [(100_000..=165_535, 1000)]);
        for (uid, account) in [
            (0, UserId(0)),
            (33, SERVICES),
            (999, SERVICES),
            (1000, UserId(1000)),
            (61184, SERVICES),
            (65534, UserId(65534)),
            (99_999, UserId(99_999)),
            (100_000, UserId(1000)),
            (165_535, UserId(1000)),
            (165_536, UserId(165_536)),
        ] {
            assert_eq!(accounts.of(uid), account, "user {uid}");
        }
        assert_eq!(Accounts::default().of(33), UserId(33));
    }

    #[test]
    fn user_of_the_daemon_is_on_his_own_account() {
        let accounts = Accounts::new(vec![0..=999], [(100_000..=165_535, 1000)]);
        let unlimited = |accounts: &Accounts| {
            let uids = [0, 33, 1000, 100_000];
            uids.map(|uid| accounts.is_unlimited(accounts.of(uid)))
        };
        assert_eq!(unlimited(&accounts), [true, false, false, false]);
        let of_person = accounts.clone().of_daemon(1000);
        assert_eq!(unlimited(&of_person), [true, false, true, true]);
        // Not all services are the daemon's, nor is the person whose number it has.
        let of_service = accounts.clone().of_daemon(33);
        assert_eq!(unlimited(&of_service), [true, true, false, false]);
        assert_eq!(of_service.of(34), SERVICES);
        assert_eq!(unlimited(&accounts.of_daemon(100_000)), [true, false, false, true]);
    }
}
