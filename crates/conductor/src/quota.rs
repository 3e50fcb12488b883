//! How much of what is scarce one user may have.
//!
//! Problem: jobs, connections and places in a queue are limited for all together. A limit for each
//! user alone does not keep a few users from having all of them, and then not even root comes in.
//!
//! Approach: nobody has more than half of what the others leave (dbus-broker(1) has the same rule).
//! So the next user finds as much again as is left. One part in sixteen is kept for root.

use gang_schedule::UserId;

/// Whom no limit of users holds.
pub const ROOT: UserId = UserId(0);

/// One part of so many is kept for root.
const KEPT_FOR_ROOT: usize = 16;

/// The limits of one kind of thing.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Of all together.
    pub maximum: usize,
    /// Of one user other than root.
    pub of_user: usize,
}

/// The limit that keeps one more out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There are as many as there may be.
    All(usize),
    /// The user has as many as he may have now.
    OfUser(usize),
}

impl Quota {
    /// Whether a user who has `his` of `all` may have one more.
    pub fn admit(self, user: UserId, his: usize, all: usize) -> Result<(), Full> {
        if all >= self.maximum {
            return Err(Full::All(self.maximum));
        }
        if user == ROOT {
            return Ok(());
        }
        let of_others = all.saturating_sub(his);
        let left = self.maximum - self.maximum / KEPT_FOR_ROOT;
        let most = left.saturating_sub(of_others).div_ceil(2).min(self.of_user);
        match most {
            0 => Err(Full::All(self.maximum)),
            most if his >= most => Err(Full::OfUser(most)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of users who take as many as they may, one after the other.
    fn taken(quota: Quota, users: u32) -> Vec<usize> {
        let mut had = Vec::new();
        for user in 1..=users {
            let before: usize = had.iter().sum();
            let mut his = 0;
            while quota.admit(UserId(user), his, before + his).is_ok() {
                his += 1;
            }
            had.push(his);
        }
        had
    }

    #[test]
    fn nobody_has_more_than_half_of_what_others_leave() {
        let quota = Quota { maximum: 256, of_user: 256 };
        assert_eq!(taken(quota, 5), [120, 60, 30, 15, 8]);
        let quota = Quota { maximum: 256, of_user: 64 };
        assert_eq!(taken(quota, 5), [64, 64, 56, 28, 14]);
        assert_eq!(quota.admit(UserId(7), 56, 256 - 16), Err(Full::OfUser(28)));
    }

    #[test]
    fn some_are_kept_for_root() {
        let quota = Quota { maximum: 256, of_user: 256 };
        let all: usize = taken(quota, 1000).iter().sum();
        assert_eq!(all, 240);
        assert_eq!(quota.admit(UserId(2000), 0, all), Err(Full::All(256)));
        assert_eq!(quota.admit(ROOT, 0, all), Ok(()));
        assert_eq!(quota.admit(ROOT, 16, 256), Err(Full::All(256)));
    }

    #[test]
    fn small_limits_are_reached_too() {
        let quota = Quota { maximum: 1, of_user: 1 };
        assert_eq!(quota.admit(UserId(1), 0, 0), Ok(()));
        assert_eq!(quota.admit(UserId(1), 1, 1), Err(Full::All(1)));
        assert_eq!(taken(Quota { maximum: 3, of_user: 2 }, 3), [2, 1, 0]);
    }
}
