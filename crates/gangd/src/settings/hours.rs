//! Working hours, inside which classes weigh something else (L22, L23).
//!
//! Interactive gangs are to answer at once while people are at work, and batch gangs to get through
//! at other times. The policy has no clock; the conductor reports to it when hours begin and end.

use jiff::{
    Timestamp,
    civil::{Time, Weekday},
    tz::TimeZone,
};

/// Hours of the week, in a time zone. `to` before `from` is on the next morning.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkingHours {
    pub days: Vec<Weekday>,
    pub from: Time,
    pub to: Time,
    pub zone: TimeZone,
}

impl WorkingHours {
    /// Whether a moment (UTC, nanoseconds) is in them.
    pub fn contain(&self, utc_ns: u64) -> bool {
        let Ok(moment) = Timestamp::from_nanosecond(utc_ns.into()) else { return false };
        let local = moment.to_zoned(self.zone.clone());
        let (day, time) = (local.weekday(), local.time());
        let today = self.days.contains(&day);
        if self.from <= self.to {
            today && self.from <= time && time < self.to
        } else {
            let yesterday = self.days.contains(&day.previous());
            (today && self.from <= time) || (yesterday && time < self.to)
        }
    }
}

/// Reads a day such as `mon` or `Monday`.
pub fn day(text: &str) -> Result<Weekday, String> {
    const DAYS: [(&str, Weekday); 7] = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    let lower = text.to_lowercase();
    let named = DAYS.iter().find(|(name, _)| *name == lower || name[..3] == lower);
    let wrong = || format!("{text:?} is not a day such as mon or Monday");
    named.map(|&(_, day)| day).ok_or_else(wrong)
}

/// Reads a time of the day such as `08:00`; `24:00` is its end.
pub fn time(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is not a time of the day such as 08:00");
    if text == "24:00" {
        return Ok(Time::MAX);
    }
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<i8>().map_err(|_| wrong());
    Time::new(number(hour)?, number(minute)?, 0, 0).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(days: &[&str], from: &str, to: &str, zone: &str) -> WorkingHours {
        WorkingHours {
            days: days.iter().map(|text| day(text).unwrap()).collect(),
            from: time(from).unwrap(),
            to: time(to).unwrap(),
            zone: TimeZone::get(zone).unwrap(),
        }
    }

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as u64
    }

    #[test]
    fn hours_are_those_of_the_zone_in_summer_and_winter() {
        let week = ["mon", "Tuesday", "wed", "thu", "FRI"];
        let office = hours(&week, "08:00", "18:00", "Europe/Berlin");
        // Berlin is an hour ahead of UTC in winter, two in summer.
        for (text, expected) in [
            ("2026-01-05T06:59:59Z", false),
            ("2026-01-05T07:00:00Z", true),
            ("2026-01-05T16:59:59Z", true),
            ("2026-01-05T17:00:00Z", false),
            ("2026-07-06T06:00:00Z", true),
            ("2026-07-06T16:00:00Z", false),
            // A Saturday, and the Sunday on which clocks are set forward.
            ("2026-07-04T10:00:00Z", false),
            ("2026-03-29T10:00:00Z", false),
            ("2026-03-30T06:00:00Z", true),
        ] {
            assert_eq!(office.contain(at(text)), expected, "{text}");
        }
    }

    #[test]
    fn hours_may_go_over_midnight() {
        let night = hours(&["fri"], "22:00", "06:00", "UTC");
        assert!(night.contain(at("2026-11-20T23:00:00Z")));
        assert!(night.contain(at("2026-11-21T05:59:00Z")));
        assert!(!night.contain(at("2026-11-21T06:00:00Z")));
        assert!(!night.contain(at("2026-11-20T05:00:00Z")));
        let all_day = hours(&["fri"], "00:00", "24:00", "UTC");
        assert!(all_day.contain(at("2026-11-20T23:59:59.5Z")));
    }

    #[test]
    fn invalid_days_and_times_are_refused() {
        for wrong in ["", "mo", "noday"] {
            assert!(day(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "8", "25:00", "08:60", "-1:00", "08:00:00"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
