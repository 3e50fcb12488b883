//! The diagnosis as people read it.

use std::fmt::{Result, Write};

use crate::diagnosis::{Diagnosis, Gain, Measure};
use crate::words::{cause, percent};

pub fn text(diagnosis: &Diagnosis) -> std::result::Result<String, std::fmt::Error> {
    let mut out = String::new();
    let figures = &diagnosis.figures;
    writeln!(
        out,
        "Watched for {:.1} s: {} {}, on up to {} {}",
        figures.seconds,
        figures.threads,
        plural(figures.threads, "thread that computes", "threads that compute"),
        figures.cpus,
        plural(figures.cpus, "CPU", "CPUs"),
    )?;
    if figures.lost > 0.0 {
        writeln!(
            out,
            "Incomplete: {:.1} % of the ticks were lost, because the machine was too busy to read \
             them in time; the figures are of the others.",
            figures.lost * 100.0
        )?;
    }
    writeln!(out)?;
    for condition in &diagnosis.conditions {
        let holds = match condition.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        writeln!(
            out,
            "  {} {:<30} {holds:<4} {}",
            condition.id, condition.name, condition.finding
        )?;
    }
    writeln!(out)?;
    waits(&mut out, diagnosis)?;
    let by = match diagnosis.measured_by {
        Some(Measure::Progress) => ", by its own count of its progress",
        Some(Measure::Work) | None => "",
    };
    for (what, gain, by) in
        [("predicted", diagnosis.predicted_gain, ""), ("measured", diagnosis.measured_gain, by)]
    {
        if let Some(gain) = gain {
            writeln!(out, "  {:<12} {}{by}", format!("{what} gain"), shown(gain))?;
        }
    }
    writeln!(out, "\n{}", diagnosis.sentence)?;
    Ok(out)
}

fn waits(out: &mut String, diagnosis: &Diagnosis) -> Result {
    let figures = &diagnosis.figures;
    if figures.spinning > 0.0 {
        let sites = figures.waits_at.iter();
        let sites: Vec<String> =
            sites.map(|(site, share)| format!("{} in {site}", percent(*share))).collect();
        writeln!(
            out,
            "  on CPUs      {} of its time it waits: {}",
            percent(figures.spinning),
            sites.join(", ")
        )?;
    }
    if let Some(bytes) = figures.memory_bytes_per_s {
        writeln!(out, "  memory       {:.2} GB/s past the last cache", bytes / 1e9)?;
    }
    if let Some(reason) = &figures.memory_not_measured {
        writeln!(out, "  memory       not measured: {reason}")?;
    }
    for (&why, sleeps) in &figures.sleeps {
        writeln!(
            out,
            "  sleeps       {:.1} times a second for {}, {:.2} s in all",
            sleeps.count as f64 / figures.seconds.max(0.001),
            cause(why),
            sleeps.ns as f64 / 1e9
        )?;
    }
    Ok(())
}

fn shown(gain: Gain) -> String {
    let share = |value: f64| format!("{:+.1} %", value * 100.0);
    match gain.interval {
        None => share(gain.gain),
        Some([low, high]) => {
            format!("{} [{}, {}]", share(gain.gain), share(low), share(high))
        }
    }
}

fn plural<'a>(number: usize, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Doing, Observation, tests::look};

    #[test]
    fn memory_is_shown_or_its_reason() {
        let of = |memory| {
            let seen = Observation { memory, ..Observation::default() };
            text(&Diagnosis::of(&seen)).unwrap()
        };
        assert!(of(Some(Ok(12.3e9))).contains("  memory       12.30 GB/s past the last cache\n"));
        assert!(of(Some(Err("here".into()))).contains("  memory       not measured: here\n"));
        assert!(!of(None).contains("memory"), "nobody asked");
    }

    #[test]
    fn lost_ticks_make_a_diagnosis_incomplete() {
        let look = look(0, Doing::Else, 0, 0);
        let mut seen = Observation { looks: vec![look; 999], ..Observation::default() };
        assert!(!text(&Diagnosis::of(&seen)).unwrap().contains("Incomplete"));
        seen.lost = 1;
        let text = text(&Diagnosis::of(&seen)).unwrap();
        assert!(text.contains("Incomplete: 0.1 % of the ticks"), "{text}");
    }
}
