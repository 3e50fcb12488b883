//! The cost of gang scheduling by the length of its slices, for each backend and three programs
//! that have no use for it: one bound by computing, one by the last-level cache, of which it uses
//! half, and one by memory. Two copies of a program as gangs against the same two in batch, which
//! is as fast as it gets.
//!
//! A switch costs more than its system calls: caches are filled anew. So short slices cost, and
//! from some length on nothing is gained by longer ones, in which others only wait longer.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{DEFAULT_SLICE, DaemonOptions};
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::machine::Machine;
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::loss_percent;

const RATE: &str = "iterations_per_s";
const COPIES: u32 = 2;
const BACKENDS: [&str; 4] = ["rt", "weight", "freeze", "signal"];
/// The cache of a machine that does not say.
const CACHE_BYTES: u64 = 16 << 20;
/// Memory of a program that no cache holds: so many times the last-level cache, within these
/// bounds.
const BEYOND: u64 = 4;
const LARGEST_BYTES: u64 = 512 << 20;
/// A cost that is little enough for a slice to be chosen.
const LITTLE_PERCENT: f64 = 1.0;
/// Rounds with `--paper`, though there is none: one takes ten minutes with all backends.
const ROUNDS: usize = 5;

#[derive(Args, Debug, Clone, Default)]
pub struct Slices {
    /// Slices [default: 200us,1ms,5ms,20ms,100ms,1s, with --quick 1ms,20ms,100ms, with --paper 11
    /// to 10s]
    #[arg(long, value_delimiter = ',', value_parser = duration::parse)]
    pub slices: Vec<Duration>,
    /// Backends [default: all that can be used here, with --quick the daemon's own choice]
    #[arg(long, value_delimiter = ',', conflicts_with = "backend")]
    pub backends: Vec<String>,
}

struct Program {
    name: &'static str,
    arguments: String,
}

impl Slices {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        let slices = self.slices(lab);
        let (backends, notes) = self.backends(lab);
        let programs = &programs(lab);
        let mut conditions = Vec::new();
        for program in programs {
            let base = base(lab);
            let batch = move |lab: &Lab| one_after_the_other(lab, program, base);
            conditions.push(Condition::new(format!("{}, batch", program.name), batch));
            for backend in &backends {
                for &slice in &slices {
                    let settings =
                        DaemonOptions { backend: backend.clone(), ..DaemonOptions::slice(slice) };
                    let under = Under::Gangd(lab.settings(settings));
                    let length = whole_frames(base, slice);
                    conditions.push(Condition::new(
                        name(program, backend.as_deref(), slice),
                        move |lab| at_once(lab, &under, program, length),
                    ));
                }
            }
        }
        let run = alternate(lab, "slices", lab.rounds(ROUNDS), &conditions)?;
        let about =
            "what two copies of programs lose as gangs against batch, by the length of slices";
        let mut report = Report::new(lab, about, run, RATE);
        report.notes.extend(notes);
        let mut lines = Vec::new();
        for backend in &backends {
            let mut little = slices.clone();
            for program in programs {
                let mut points = Vec::new();
                for &slice in &slices {
                    let of = name(program, backend.as_deref(), slice);
                    let batch = format!("{}, batch", program.name);
                    let loss = report.ratio(&of, &batch, RATE).map(loss_percent);
                    if !loss.and_then(|loss| loss.interval).is_some_and(|it| it[1] < LITTLE_PERCENT)
                    {
                        little.retain(|other| *other != slice);
                    }
                    let Some(loss) = loss else { continue };
                    let [low, high] = loss.interval.unwrap_or([loss.value; 2]);
                    points.push([slice.as_secs_f64() * 1e3, loss.value, low, high]);
                }
                let name = format!("{}, {}", program.name, shown(backend.as_deref()));
                lines.push(Line::new(name, points));
            }
            if report.compared && report.rounds > 1 {
                let costs_less = |longer, slice| {
                    programs.iter().any(|program| {
                        let [longer, slice] =
                            [longer, slice].map(|it| name(program, backend.as_deref(), it));
                        let more = report.difference(&longer, &slice, RATE);
                        more.and_then(|it| it.interval).is_some_and(|[low, _]| low > 0.0)
                    })
                };
                let enough = long_enough(&slices, costs_less);
                let backend = shown(backend.as_deref());
                report.verdict.extend(enough.map(|slice| verdict_of_longer(backend, slice)));
                report.verdict.push(verdict(backend, &little));
            }
        }
        if report.compared && report.rounds == 1 && !backends.is_empty() {
            report.verdict.push(format!(
                "A single round cannot show which slices cost all three programs less than \
                 {LITTLE_PERCENT} %, nor which cost less than others."
            ));
        }
        let mut picture =
            Picture::lines("slice in ms", "lost against batch in percent", lines).log_x();
        picture.level = Some(0.0);
        report.picture = Some(picture);
        Ok(report)
    }

    fn slices(&self, lab: &Lab) -> Vec<Duration> {
        let us: &[u64] = match (lab.options.quick, lab.options.paper) {
            (true, _) => &[1_000, 20_000, 100_000],
            (_, true) => &[
                200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000,
                10_000_000,
            ],
            _ => &[200, 1_000, 5_000, 20_000, 100_000, 1_000_000],
        };
        if self.slices.is_empty() {
            return us.iter().map(|us| Duration::from_micros(*us)).collect();
        }
        self.slices.clone()
    }

    /// Backends that a daemon starts with here, none for its own choice, and why others are left
    /// out.
    fn backends(&self, lab: &Lab) -> (Vec<Option<String>>, Vec<String>) {
        if lab.options.plain && !self.backends.is_empty() {
            let note = "--backends: they are those of gangd, which --plain leaves out.";
            return (Vec::new(), vec![note.into()]);
        }
        if lab.options.plain {
            return (Vec::new(), Vec::new());
        }
        if let Some(backend) = lab.settings(DaemonOptions::default()).backend {
            return (vec![Some(backend)], Vec::new());
        }
        if self.backends.is_empty() && lab.options.quick {
            return (vec![None], Vec::new());
        }
        let asked = match self.backends.is_empty() {
            true => BACKENDS.map(String::from).to_vec(),
            false => self.backends.clone(),
        };
        let (mut usable, mut notes) = (Vec::new(), Vec::new());
        for backend in asked {
            let settings =
                DaemonOptions { backend: Some(backend.clone()), ..DaemonOptions::default() };
            match lab.daemon(&settings) {
                Ok(_) => usable.push(Some(backend)),
                Err(error) => notes.push(format!("Backend {backend}: {error:#}.")),
            }
        }
        (usable, notes)
    }
}

fn programs(lab: &Lab) -> [Program; 3] {
    let threads = lab.threads();
    let cache = Machine::this(lab.cpus).last_cache.map_or(CACHE_BYTES, |cache| cache.bytes);
    let scan = |bytes: u64| format!("scan --threads {threads} --bytes {bytes}");
    [
        Program { name: "computing", arguments: format!("hog --threads {threads}") },
        Program { name: "cache", arguments: scan((cache / 2).max(1)) },
        Program { name: "memory", arguments: scan((BEYOND * cache).min(LARGEST_BYTES)) },
    ]
}

fn base(lab: &Lab) -> Duration {
    let quick = Duration::from_secs(1);
    if lab.options.quick { lab.seconds_asked().unwrap_or(quick) } else { lab.length(2 * quick) }
}

/// A time in which each copy has the same number of whole slices, so that none has one more.
fn whole_frames(base: Duration, slice: Duration) -> Duration {
    let frame = slice * COPIES;
    let frames = (base.as_secs_f64() / frame.as_secs_f64()).ceil().max(1.0);
    frame.mul_f64(frames)
}

fn shown(backend: Option<&str>) -> &str {
    backend.unwrap_or("gangd")
}

fn name(program: &Program, backend: Option<&str>, slice: Duration) -> String {
    format!("{}, {} {}", program.name, shown(backend), duration::show(slice))
}

/// The shortest slice than which no longer one is shown to cost less; none where that is the
/// longest.
fn long_enough(
    slices: &[Duration],
    costs_less: impl Fn(Duration, Duration) -> bool,
) -> Option<Duration> {
    let mut ascending = slices.to_vec();
    ascending.sort();
    let is_enough =
        |at: &usize| ascending[at + 1..].iter().all(|&longer| !costs_less(longer, ascending[*at]));
    let enough = (0..ascending.len().saturating_sub(1)).find(is_enough)?;
    Some(ascending[enough])
}

fn verdict_of_longer(backend: &str, slice: Duration) -> String {
    format!(
        "With {backend} no slice longer than {} is shown to cost any of the three programs less than that one does.",
        duration::show(slice)
    )
}

fn verdict(backend: &str, little: &[Duration]) -> String {
    let Some(shortest) = little.iter().min() else {
        return format!(
            "With {backend} no slice costs all three programs less than {LITTLE_PERCENT} %, by the whole of its interval."
        );
    };
    let default = if little.contains(&DEFAULT_SLICE) { "does" } else { "does not" };
    format!(
        "With {backend} the shortest slice that costs all three programs less than {LITTLE_PERCENT} %, by the whole \
         of its interval, is {}; the default of {} {default} stay below it.",
        duration::show(*shortest),
        duration::show(DEFAULT_SLICE)
    )
}

fn copy(lab: &Lab, program: &Program) -> Launch {
    Launch::gang(lab.threads().min(lab.cpus), &program.arguments)
}

fn at_once(lab: &Lab, under: &Under, program: &Program, length: Duration) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let copies = vec![copy(lab, program); COPIES as usize];
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, length)?;
    Ok(sample.with([(RATE, outcomes.iter().map(|outcome| outcome.rate()).sum())]))
}

fn one_after_the_other(lab: &Lab, program: &Program, length: Duration) -> Result<Sample> {
    let copies = vec![copy(lab, program); COPIES as usize];
    let Together { outcomes, sample } = lab.run_in_turn(&copies, length)?;
    let rates: f64 = outcomes.iter().map(|outcome| outcome.rate()).sum();
    Ok(sample.with([(RATE, rates / f64::from(COPIES))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_frames() {
        let ms = Duration::from_millis;
        assert_eq!(whole_frames(ms(2_000), ms(10)), ms(2_000));
        assert_eq!(whole_frames(ms(2_000), ms(300)), ms(2_400));
        assert_eq!(whole_frames(ms(2_000), ms(10_000)), ms(20_000));
    }

    #[test]
    fn full_curve_is_from_200_us_to_10_s() {
        use crate::harness::options::Options;
        let slices = |options: Options| Slices::default().slices(&Lab::new(&options).unwrap());
        let ends = |slices: &[Duration]| (slices[0], slices[slices.len() - 1]);
        let us = Duration::from_micros;
        let usual = slices(Options::default());
        assert_eq!(ends(&usual), (us(200), us(1_000_000)));
        let paper = slices(Options { paper: true, ..Options::default() });
        assert_eq!((paper.len(), ends(&paper)), (11, (us(200), us(10_000_000))));
        assert!(usual.iter().all(|slice| paper.contains(slice)) && paper.contains(&DEFAULT_SLICE));
    }

    #[test]
    fn slice_suffices_where_longer_ones_save_nothing() {
        let ms = Duration::from_millis;
        let slices = [ms(50), ms(1), ms(10), ms(20)];
        let cost = |slice: Duration| match slice.as_millis() {
            0..10 => 10.0,
            10..20 => 5.0,
            20..50 => 1.6,
            _ => 0.8,
        };
        // A smaller difference is not shown.
        let costs_less = |longer, slice| cost(longer) + 1.0 < cost(slice);
        assert_eq!(long_enough(&slices, costs_less), Some(ms(20)));
        assert_eq!(long_enough(&slices, |_, _| false), Some(ms(1)));
        assert_eq!(long_enough(&[ms(1)], costs_less), None, "there is no longer one");
        assert_eq!(long_enough(&slices, |_, _| true), None, "the longest costs least");
        assert!(verdict_of_longer("rt", ms(20)).contains("longer than 20ms"));
    }

    #[test]
    fn the_shortest_cheap_slice_is_told() {
        let ms = Duration::from_millis;
        let text = verdict("rt", &[DEFAULT_SLICE, ms(5)]);
        assert!(text.contains("is 5ms") && text.contains("does stay"), "{text}");
        assert!(verdict("rt", &[ms(100)]).contains("does not"));
        assert!(verdict("rt", &[]).contains("no slice"));
    }
}
