//! How much of what is scarce one user may have.
//!
//! Problem: jobs, connections and places in a queue are limited for all together. A limit for each
//! user alone does not keep a few users from having all of them, and then not even root comes in.
//!
//! Approach: no user has more than half of what the others leave (dbus-broker(1) has the same
//! rule). So the next user finds as much again as is left. The limit of all together alone holds
//! root and the user whom the daemon runs as ([`Accounts::is_unlimited`]). One part in sixteen is
//! kept for them, and one place at least where there are two.

use gang_schedule::UserId;

use crate::Accounts;

/// One part of so many is kept for users whom no limit of users holds.
const KEPT: usize = 16;

/// The limits of one kind of thing.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Of all together.
    pub maximum: usize,
    /// Of one user.
    pub of_user: usize,
    /// The names of both limits.
    pub names: [&'static str; 2],
}

/// The limit that keeps one more out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The name of the limit.
    pub limit: &'static str,
    /// As many as there may be of all together, or as the user may have now.
    pub maximum: usize,
}

impl Quota {
    /// Whether a user who has `his` of `all` may have one more.
    pub fn admit(
        self,
        accounts: &Accounts,
        user: UserId,
        his: usize,
        all: usize,
    ) -> Result<(), Full> {
        let [of_all, of_user] = self.names;
        let full = Full { limit: of_all, maximum: self.maximum };
        if all >= self.maximum {
            return Err(full);
        }
        if accounts.is_unlimited(user) {
            return Ok(());
        }
        let of_others = all.saturating_sub(his);
        let left = self.maximum - self.kept();
        let most = left.saturating_sub(of_others).div_ceil(2).min(self.of_user);
        match most {
            0 => Err(full),
            most if his >= most => Err(Full { limit: of_user, maximum: most }),
            _ => Ok(()),
        }
    }

    /// As many as are kept for users without a limit. Of a single one there is none to keep.
    fn kept(self) -> usize {
        (self.maximum / KEPT).max(1).min(self.maximum.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::ROOT;

    fn quota(maximum: usize, of_user: usize) -> Quota {
        Quota { maximum, of_user, names: ["jobs", "jobs of a user"] }
    }

    fn all(maximum: usize) -> Result<(), Full> {
        Err(Full { limit: "jobs", maximum })
    }

    fn of_user(maximum: usize) -> Result<(), Full> {
        Err(Full { limit: "jobs of a user", maximum })
    }

    /// The shares of users who take as many as they may, one after the other.
    fn taken(quota: Quota, users: u32) -> Vec<usize> {
        let (accounts, mut had) = (Accounts::default(), Vec::new());
        for user in 1..=users {
            let before: usize = had.iter().sum();
            let mut his = 0;
            while quota.admit(&accounts, UserId(user), his, before + his).is_ok() {
                his += 1;
            }
            had.push(his);
        }
        had
    }

    #[test]
    fn nobody_has_more_than_half_of_what_others_leave() {
        let (accounts, jobs) = (Accounts::default(), quota(256, 256));
        assert_eq!(taken(jobs, 5), [120, 60, 30, 15, 8]);
        let jobs = quota(256, 64);
        assert_eq!(taken(jobs, 5), [64, 64, 56, 28, 14]);
        assert_eq!(jobs.admit(&accounts, UserId(7), 56, 256 - 16), of_user(28));
    }

    #[test]
    fn some_are_kept_for_root_and_the_daemons_user() {
        let jobs = quota(256, 256);
        let accounts = Accounts::default().of_daemon(1000);
        let had: usize = taken(jobs, 1000).iter().sum();
        assert_eq!(had, 240);
        assert_eq!(jobs.admit(&accounts, UserId(2000), 0, had), all(256));
        assert_eq!(jobs.admit(&accounts, ROOT, 0, had), Ok(()));
        assert_eq!(jobs.admit(&accounts, UserId(1000), 200, 255), Ok(()));
        assert_eq!(jobs.admit(&accounts, ROOT, 16, 256), all(256));
    }

    #[test]
    fn one_is_kept_of_a_small_limit() {
        let accounts = Accounts::default();
        for maximum in 2..40 {
            let jobs = quota(maximum, maximum);
            let had: usize = taken(jobs, 100).iter().sum();
            assert_eq!(had, maximum - (maximum / KEPT).max(1));
            assert_eq!(jobs.admit(&accounts, UserId(200), 0, had), all(maximum));
            assert_eq!(jobs.admit(&accounts, ROOT, 0, maximum - 1), Ok(()));
        }
    }

    #[test]
    fn small_limits_are_reached_too() {
        let (accounts, jobs) = (Accounts::default(), quota(1, 1));
        assert_eq!(jobs.admit(&accounts, UserId(1), 0, 0), Ok(()));
        assert_eq!(jobs.admit(&accounts, UserId(1), 1, 1), all(1));
        assert_eq!(taken(quota(4, 2), 4), [2, 1, 0, 0]);
    }
}
