//! Values as people read them: durations, shares, lists of CPUs, owners. All views and commands
//! write them alike.

use std::collections::BTreeMap;

use gang_protocol::v1;
use nix::unistd::{Uid, User};

/// A length of time with its unit: `500 µs`, `10 ms`, `12.3 s`, `4 min 5 s`, `3 h 20 min`.
pub fn duration(ns: i64) -> String {
    let ns = ns.max(0);
    let seconds = ns / 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", decimal(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", decimal(ns as f64 / 1e6)),
        1_000_000_000..60_000_000_000 => format!("{:.1} s", ns as f64 / 1e9),
        60_000_000_000..3_600_000_000_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn decimal(value: f64) -> String {
    if value.fract().abs() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A share of 0 to 1 in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The share of its work that a job has done, where its program says so.
pub fn progress(job: &v1::Job) -> Option<f64> {
    let v1::Progress { done, total, .. } = job.progress.as_ref()?;
    // A share is between 0 and 1, whatever a daemon sends.
    let share = done / total;
    (0.0..=1.0).contains(&share).then_some(share)
}

/// A gain as people read it.
pub fn gain(gain: &v1::Gain) -> String {
    let signed = |share: f64| format!("{:+.1} %", share * 100.0);
    match gain.interval.as_deref() {
        Some([low, high]) => {
            format!("gain {} [{}, {}]", signed(gain.gain), signed(*low), signed(*high))
        }
        _ => format!("gain {}", signed(gain.gain)),
    }
}

/// CPUs as the kernel lists them: `0-3,8`. An empty list is `-`.
pub fn cpu_list(cpus: &[i64]) -> String {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    if ranges.is_empty() {
        return "-".to_owned();
    }
    let text = |(first, last): (i64, i64)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// Name of a user, or the number where it has none here.
pub fn owner(uid: i64) -> String {
    u32::try_from(uid)
        .ok()
        .and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok().flatten())
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// Names of users, each looked for once: a directory of users may be slow.
#[derive(Default)]
pub struct Owners(BTreeMap<i64, String>);

impl Owners {
    pub fn name(&mut self, uid: i64) -> String {
        self.0.entry(uid).or_insert_with(|| owner(uid)).clone()
    }
}

/// `1 thread`, `2 threads`.
pub fn count(number: i64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { plural(one) })
}

/// CPUs, or parts of one: `0.5 CPUs`, `1 CPU`.
pub fn cpus(number: f64) -> String {
    format!("{number} CPU{}", if number == 1.0 { "" } else { "s" })
}

fn plural(one: &str) -> &'static str {
    if one.ends_with("ss") { "es" } else { "s" }
}

/// The name that a value has in the interface file, for enumerations of it.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => format!("({error})"),
    }
}

/// Bytes, in units of 1024.
pub fn size(bytes: i64) -> String {
    bytesize::ByteSize::b(u64::try_from(bytes).unwrap_or(0)).display().iec().to_string()
}

/// A moment (UTC), to the second: `2026-12-01 08:12:03 UTC`.
pub fn moment(at_ns: i64) -> String {
    let seconds = at_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin in March, so that a leap day is the last; eras have 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let since_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * since_march + 2) / 5 + 1;
    let month = if since_march < 10 { since_march + 3 } else { since_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// Flushes of ports: how many, and what they took on average, by phases.
pub fn flushes(of: &v1::Flushes) -> String {
    let v1::Flushes { ports, flushes, failed, flush_ns, save_ns, switch_ns, .. } = *of;
    let well = flushes - failed;
    let times = match well {
        1.. => format!(
            "; on average {} to flush, {} to save, {} to switch",
            duration(flush_ns / well),
            duration(save_ns / well),
            duration(switch_ns / well)
        ),
        _ => String::new(),
    };
    let number = if flushes == 1 { "1 flush".to_owned() } else { format!("{flushes} flushes") };
    format!("{number} of {}, {failed} failed{times}", count(ports, "port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (ns, text) in [
            (0, "0 ns"),
            (500_000, "500 µs"),
            (1_500_000, "1.5 ms"),
            (10_000_000, "10 ms"),
            (12_340_000_000, "12.3 s"),
            (245_000_000_000, "4 min 5 s"),
            (12_000_000_000_000, "3 h 20 min"),
            (180_000_000_000_000, "2 d 2 h"),
            (-1, "0 ns"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(cpu_list(&[]), "-");
        assert_eq!(cpu_list(&[3, 0, 1, 2, 8]), "0-3,8");
        assert_eq!(cpu_list(&[5]), "5");
    }

    #[test]
    fn a_share_of_nothing_is_no_progress() {
        let job = || crate::fixture::job(1, "lu");
        let of = |done, total| {
            let report = Some(v1::Progress { done, total, at_ns: 0 });
            progress(&v1::Job { progress: report, ..job() })
        };
        assert_eq!((of(1.0, 4.0), progress(&job())), (Some(0.25), None));
        assert_eq!((of(0.0, 0.0), of(3.0, 2.0), of(-1.0, 2.0)), (None, None, None));
    }

    #[test]
    fn an_owner_without_a_name_is_a_number() {
        assert_eq!(owner(0), "root");
        assert_eq!(owner(4_000_000_000), "4000000000");
        assert_eq!(owner(-5), "-5");
    }

    #[test]
    fn words_and_counts() {
        assert_eq!(word(&v1::Class::standby), "standby");
        assert_eq!(count(1, "process"), "1 process");
        assert_eq!(count(2, "process"), "2 processes");
        assert_eq!(count(0, "job"), "0 jobs");
    }

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_825_600, "2000-02-29 12:00:00 UTC"),
            (1_796_112_723, "2026-12-01 08:12:03 UTC"),
        ] {
            assert_eq!(moment(seconds * 1_000_000_000), date);
        }
    }
}
