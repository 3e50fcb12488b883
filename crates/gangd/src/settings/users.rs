//! How users share the machine, and the accounts that they are on.

use std::{collections::BTreeMap, fs, ops::RangeInclusive, path::Path};

use anyhow::{Context, bail, ensure};
use gang_conductor::Accounts;
use gang_schedule::{Sharing, UserId};
use nix::unistd::{Group, User};
use serde::Deserialize;

/// The users, as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct File {
    /// "equal" or "by-program".
    shares: Option<String>,
    /// Users by their names.
    #[serde(flatten)]
    of: BTreeMap<String, Share>,
}

/// The share and cap of a user, or of each member of a group.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// 1 to 10,000, where others have 100.
    share: Option<u32>,
    /// The most that his gangs have of the CPUs together, also where nobody else wants them: 1 to
    /// 100 percent.
    cap: Option<u32>,
}

impl Share {
    /// His share, and his cap in ‰.
    fn checked(&self, key: &str) -> anyhow::Result<[Option<u32>; 2]> {
        let Share { share, cap } = *self;
        let within = |value: Option<u32>, most| value.is_none_or(|it| (1..=most).contains(&it));
        let most = Sharing::MAX;
        ensure!(within(share, most), "{key}.share: {} is not 1 to {most}", share.unwrap_or(0));
        ensure!(within(cap, 100), "{key}.cap: {} is not 1 to 100", cap.unwrap_or(0));
        ensure!(share.or(cap).is_some(), "{key}: it has neither a share nor a cap");
        Ok([share, cap.map(|percent| percent * 10)])
    }
}

impl File {
    /// The shares of users, and their caps in ‰. A user's own comes before that of his
    /// groups, and of these the greatest counts.
    pub fn read(
        &self,
        groups: &BTreeMap<String, Share>,
    ) -> anyhow::Result<(Sharing, BTreeMap<UserId, u32>)> {
        let by_program = match self.shares.as_deref() {
            None | Some("equal") => false,
            Some("by-program") => true,
            Some(other) => bail!("users.shares: {other:?} is none of equal, by-program"),
        };
        let mut all = self.of.values().chain(groups.values());
        if by_program && all.any(|it| it.share.is_some()) {
            bail!("users.shares: with by-program, users and groups have no shares");
        }
        // Shares, and caps.
        let mut found = [BTreeMap::new(), BTreeMap::new()];
        for (name, of_group) in groups {
            let key = format!("groups.{name}");
            let values = of_group.checked(&key)?;
            let group =
                Group::from_name(name).with_context(|| format!("{key}: cannot look it up"))?;
            let group = group.with_context(|| format!("{key}: there is no such group"))?;
            for member in group.mem {
                // A member that is no user has no jobs.
                if let Ok(Some(user)) = User::from_name(&member) {
                    for (of, value) in found.iter_mut().zip(values) {
                        let Some(value) = value else { continue };
                        let his = of.entry(UserId(user.uid.as_raw())).or_insert(value);
                        *his = value.max(*his);
                    }
                }
            }
        }
        for (name, of_user) in &self.of {
            let key = format!("users.{name}");
            let values = of_user.checked(&key)?;
            let user =
                User::from_name(name).with_context(|| format!("{key}: cannot look it up"))?;
            let user = user.with_context(|| format!("{key}: there is no such user"))?;
            for (of, value) in found.iter_mut().zip(values) {
                of.extend(value.map(|value| (UserId(user.uid.as_raw()), value)));
            }
        }
        let [shares, caps] = found;
        let sharing = if by_program { Sharing::ByProgram } else { Sharing::ByUser(shares) };
        Ok((sharing, caps))
    }
}

/// Where no login.defs says otherwise (login.defs(5)).
const SYSTEM_UID_MAX: u32 = 999;

/// The users that systemd makes for services with DynamicUser= (systemd.exec(5)).
const DYNAMIC_USERS: RangeInclusive<u32> = 61184..=65519;

/// The accounts of this machine's users, by login.defs(5) and subuid(5).
pub fn accounts() -> Accounts {
    let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
    let of_name = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    Accounts::new(
        vec![1..=system_uid_max(&read("/etc/login.defs")), DYNAMIC_USERS],
        subordinate(&read("/etc/subuid"), of_name),
    )
    .of_daemon(rustix::process::geteuid().as_raw())
}

fn system_uid_max(login_defs: &str) -> u32 {
    let value = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("SYS_UID_MAX")).then(|| words.next()?.parse().ok())?
    };
    login_defs.lines().find_map(value).unwrap_or(SYSTEM_UID_MAX)
}

/// Lines of a user, by name or number, the first number that he has, and how many.
fn subordinate(
    subuid: &str,
    of_name: impl Fn(&str) -> Option<u32>,
) -> Vec<(RangeInclusive<u32>, u32)> {
    let read = |line: &str| {
        let [user, first, count] = line.split(':').collect::<Vec<_>>().try_into().ok()?;
        let user = user.parse().ok().or_else(|| of_name(user))?;
        let (first, count): (u32, u32) = (first.parse().ok()?, count.trim().parse().ok()?);
        Some((first..=first.checked_add(count.checked_sub(1)?)?, user))
    };
    subuid.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_services_are_read() {
        assert_eq!(system_uid_max("#SYS_UID_MAX 5\nUID_MIN 1000\nSYS_UID_MAX\t\t499\n"), 499);
        assert_eq!(system_uid_max("SYS_UID_MAX many\n"), SYSTEM_UID_MAX);
        assert_eq!(system_uid_max(""), SYSTEM_UID_MAX);
    }

    #[test]
    fn subordinate_numbers_are_read() {
        let text = "ann:100000:65536\n1001:200000:10\nnobodyhere:1:2\nann:x:1\nann:5:0\n\
                    ann:4294967295:2\n";
        let of_name = |name: &str| (name == "ann").then_some(1000);
        assert_eq!(
            subordinate(text, of_name),
            [(100_000..=165_535, 1000), (200_000..=200_009, 1001)]
        );
    }
}
