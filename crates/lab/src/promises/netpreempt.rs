//! The measure of SCore-D's paper (S8 to S10): what parallel programs lose where the context of
//! their network changes hands with the CPUs.
//!
//! Two copies of a program of MPI with two ranks run as gangs, whose messages go by gangd's
//! provider, so that their ports are flushed at each switch. They are compared with one such gang
//! alone, and with the same gangs on MPI's own shared memory, which nobody flushes. Two copies
//! under plain Linux send by TCP. Programs have the communication patterns of six of the NAS
//! Parallel Benchmarks, or are these themselves (`--npb`).

mod phases;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use gang_protocol::client::Client;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{DEFAULT_SLICE, Daemon, DaemonOptions, runtime_dir};
use crate::harness::duration;
use crate::harness::lab::Lab;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::{Estimate, loss_percent};
use crate::harness::table::figure;
use crate::harness::users::needs_root;
use crate::harness::verdict::Better;
use crate::promises::list;
use crate::workload::npb;
use crate::workload::patterns::{self, Counts, Medium, Program};
use crate::workload::window::now_ns;
use phases::Switched;

/// Of all copies together: steps of a pattern, whole runs of NPB.
const RATE: &str = "steps_per_s";
/// The same, of the time that gangs were in slots: what others took of the machine has gone.
const SLOT_RATE: &str = "steps_per_slot_s";
const SENT: &str = "messages";
const LOST: &str = "lost";
const DOUBLED: &str = "doubled";
const WRONG: &str = "wrong_words";

const RANKS: usize = 2;
const COPIES: usize = 2;
const LENGTH: Duration = Duration::from_secs(3);
/// A round of all programs and slices takes ten minutes.
const ROUNDS: usize = 3;
/// A run of NPB that has not ended by then hangs. Under plain Linux copies keep each other waiting.
const NPB_LIMIT: Duration = Duration::from_secs(900);
const SLICES_MS: [u64; 5] = [20, 50, 100, 200, 500];
const SHORT: Duration = Duration::from_millis(20);
/// The slice of the paper's figure.
const PAPERS: Duration = Duration::from_millis(100);
/// Of an Ethernet, for the arithmetic.
const ROUND_TRIP_US: f64 = 50.0;
const HOSTS: [u32; 2] = [64, 1_024];

#[derive(Args, Debug, Clone, Default)]
pub struct NetPreempt {
    /// Slices [default: 20ms,50ms,100ms,200ms,500ms, with --quick 20ms,100ms]
    #[arg(long, value_delimiter = ',', value_parser = duration::parse)]
    pub slices: Vec<Duration>,
    /// Programs, by their communication patterns [default: all, with --quick lu,ft]
    #[arg(long, value_delimiter = ',')]
    pub patterns: Vec<Pattern>,
    /// The NAS Parallel Benchmarks in this directory, built for Open MPI, in place of the lab's own
    /// programs of these patterns
    #[arg(long, value_name = "DIR")]
    pub npb: Option<PathBuf>,
    /// The class of NPB
    #[arg(long, default_value = "W", requires = "npb")]
    pub class: String,
}

/// The communication of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// A pipeline of short messages
    Lu,
    /// A sparse exchange, and sums
    Cg,
    /// Halos of a multigrid
    Mg,
    /// Larger halos
    Sp,
    /// Keys, from all to all
    Is,
    /// Blocks, from all to all
    Ft,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::Lu => "lu",
            Pattern::Cg => "cg",
            Pattern::Mg => "mg",
            Pattern::Sp => "sp",
            Pattern::Is => "is",
            Pattern::Ft => "ft",
        }
    }
}

/// A program, and whether it runs to its own end.
struct Subject {
    name: &'static str,
    path: PathBuf,
    is_npb: bool,
}

/// How copies run.
#[derive(Clone, Copy)]
struct Way {
    copies: usize,
    /// As gangs with such slices; by Linux alone without.
    slice: Option<Duration>,
    medium: Medium,
}

impl Way {
    const ALONE: Way = Way { copies: 1, slice: Some(DEFAULT_SLICE), medium: Medium::Gang };
    const LINUX: Way = Way { copies: COPIES, slice: None, medium: Medium::Tcp };

    fn gangs(medium: Medium, slice: Duration) -> Way {
        Way { copies: COPIES, slice: Some(slice), medium }
    }

    fn name(&self, subject: &Subject) -> String {
        let of = match (self.copies, self.slice, self.medium) {
            (1, ..) => "alone".into(),
            (_, None, _) => "TCP, plain Linux".into(),
            (_, Some(slice), Medium::Gang) => format!("net, {}", duration::show(slice)),
            (_, Some(slice), _) => format!("shared memory, {}", duration::show(slice)),
        };
        format!("{}, {of}", subject.name)
    }
}

impl NetPreempt {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        needs_root("gangs run as real-time threads")?;
        lab.programs.provider()?;
        let dir = runtime_dir().context("making a directory for programs")?;
        let (subjects, missing) = self.subjects(lab, dir.path())?;
        let slices = self.slices(lab);
        let mut conditions = Vec::new();
        for subject in &subjects {
            let both = |slice: &Duration| [Medium::Gang, Medium::Shared].map(|it| (it, *slice));
            let gangs = slices.iter().flat_map(both);
            let gangs = gangs.map(|(medium, slice)| Way::gangs(medium, slice));
            for way in std::iter::once(Way::ALONE).chain(gangs).chain([Way::LINUX]) {
                let dir = dir.path();
                let measure = move |lab: &Lab| measure(lab, subject, way, dir);
                conditions.push(Condition::new(way.name(subject), measure));
            }
        }
        let run = alternate(lab, "netpreempt", lab.options.runs.unwrap_or(ROUNDS), &conditions)?;
        let about = "what two gangs lose whose network contexts change hands (SCore-D, S8 to S10)";
        let mut report = Report::new(lab, about, run, RATE);
        report.notes.extend(missing);
        compare(&mut report, &subjects, &slices);
        Ok(report)
    }

    fn slices(&self, lab: &Lab) -> Vec<Duration> {
        match (self.slices.is_empty(), lab.options.quick) {
            (false, _) => self.slices.clone(),
            (true, true) => vec![SHORT, PAPERS],
            (true, false) => SLICES_MS.map(Duration::from_millis).to_vec(),
        }
    }

    /// The programs, and why others are left out.
    fn subjects(&self, lab: &Lab, dir: &Path) -> Result<(Vec<Subject>, Vec<String>)> {
        let patterns = match (self.patterns.as_slice(), lab.options.quick) {
            ([], true) => &[Pattern::Lu, Pattern::Ft],
            ([], false) => Pattern::value_variants(),
            (asked, _) => asked,
        };
        let names = patterns.iter().map(|it| it.name());
        let Some(npb) = &self.npb else {
            let path = patterns::compile(dir)?;
            let subject = |name| Subject { name, path: path.clone(), is_npb: false };
            return Ok((names.map(subject).collect(), Vec::new()));
        };
        let (mut subjects, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match npb::find(npb, name, &self.class, RANKS) {
                Ok(path) => subjects.push(Subject { name, path, is_npb: true }),
                Err(error) => missing.push(format!("{name}: {error:#}.")),
            }
        }
        ensure!(!subjects.is_empty(), "nothing to run: {}", missing.join(" "));
        Ok((subjects, missing))
    }
}

fn measure(lab: &Lab, subject: &Subject, way: Way, dir: &Path) -> Result<Sample> {
    // One alone is raised in its slots as each of two is, beside whatever else runs.
    let no_uncontended_passthrough = way.copies == 1;
    let settings =
        |slice| DaemonOptions { no_uncontended_passthrough, ..DaemonOptions::slice(slice) };
    let daemon = way.slice.map(|slice| lab.daemon(&lab.settings(settings(slice))));
    let daemon = daemon.transpose()?;
    match subject.is_npb {
        true => whole_runs(subject, way, daemon.as_ref()),
        false => window(lab, subject, way, daemon.as_ref(), dir),
    }
}

/// The counts of all gangs by now.
fn counted_by(daemon: Option<&Daemon>) -> Result<Switched> {
    let Some(daemon) = daemon else { return Ok(Switched::default()) };
    let mut client = Client::connect(daemon.socket())?;
    let jobs = client.list_jobs()?.jobs;
    Ok(Switched {
        slots: jobs.iter().map(|job| job.slots).sum(),
        in_slot_ns: jobs.iter().map(|job| job.in_slot_ns).sum(),
        flushes: client.status()?.status.flushes,
    })
}

/// Copies that run until they are told to end, over a window of whole frames.
fn window(
    lab: &Lab,
    subject: &Subject,
    way: Way,
    daemon: Option<&Daemon>,
    dir: &Path,
) -> Result<Sample> {
    let mut programs = Vec::new();
    for copy in 0..way.copies {
        let (program, page) = ((subject.path.as_path(), subject.name), format!("page{copy}"));
        programs.push(Program::start(daemon, way.medium, RANKS, program, (dir, &page))?);
    }
    programs.iter_mut().try_for_each(Program::until_it_steps)?;
    let slice = way.slice.unwrap_or(DEFAULT_SLICE);
    // The first flushes are part of the start.
    std::thread::sleep(2 * COPIES as u32 * slice);
    let steps = || programs.iter().map(Program::steps).sum::<Result<i64>>();
    let (counted_then, steps_then, began) = (counted_by(daemon)?, steps()?, Instant::now());
    std::thread::sleep(whole_frames(lab.length(LENGTH), slice));
    let (made, length, counted) = (steps()? - steps_then, began.elapsed(), counted_by(daemon)?);
    let phases = phases::between(&counted_then, &counted, length);
    let in_slots_s = (counted.in_slot_ns - counted_then.in_slot_ns) as f64 / 1e9;
    let seen = daemon.map_or_else(Sample::default, |daemon| daemon.look_at(now_ns()));
    programs.iter().try_for_each(Program::tell_to_end)?;
    let counts = programs.into_iter().map(Program::finish).collect::<Result<Vec<_>>>()?;
    let counts = Counts::of_all(counts.into_iter());
    let sample = seen.with([
        (RATE, made as f64 / length.as_secs_f64()),
        (SENT, counts.sent as f64),
        (LOST, counts.lost() as f64),
        (DOUBLED, counts.doubled as f64),
        (WRONG, counts.wrong as f64),
    ]);
    let of_slots = (in_slots_s > 0.0).then(|| (SLOT_RATE, made as f64 / in_slots_s));
    Ok(sample.with_all(of_slots.into_iter().collect()).with_all(phases))
}

/// Copies of NPB, which verify their results, from their start to the end of the last one.
fn whole_runs(subject: &Subject, way: Way, daemon: Option<&Daemon>) -> Result<Sample> {
    let program = [subject.path.display().to_string()];
    let (counted_then, began) = (counted_by(daemon)?, Instant::now());
    let start = |_| Running::start(&mut patterns::command(daemon, way.medium, RANKS, &program));
    let mut running = (0..way.copies).map(start).collect::<Result<Vec<_>>>()?;
    let deadline = began + NPB_LIMIT;
    let seen = match daemon {
        Some(daemon) => daemon.look_until_done(&mut running, deadline),
        None => Sample::default(),
    };
    let mut longest_s: f64 = 0.0;
    for copy in running {
        longest_s = longest_s.max(npb::time_s(&copy.finish(deadline)?)?);
    }
    ensure!(longest_s > 0.0, "{} takes no time: take a larger class", subject.name);
    // Jobs that have ended are in no list any more: their slots are not known.
    let counted = Switched { flushes: counted_by(daemon)?.flushes, ..Switched::default() };
    let mut phases = phases::between(&counted_then, &counted, began.elapsed());
    phases.remove(phases::SLOTS);
    Ok(seen.with([(RATE, way.copies as f64 / longest_s)]).with_all(phases))
}

/// A time in which each gang has the same number of whole slices.
fn whole_frames(base: Duration, slice: Duration) -> Duration {
    let frame = slice * COPIES as u32;
    frame.mul_f64((base.as_secs_f64() / frame.as_secs_f64()).ceil().max(1.0))
}

/// The worst of several programs.
#[derive(Default)]
struct Worst {
    name: &'static str,
    most: Option<Estimate>,
}

impl Worst {
    fn add(&mut self, name: &'static str, estimate: Option<Estimate>) {
        let Some(estimate) = estimate else { return };
        if self.most.is_none_or(|most| estimate.value > most.value) {
            *self = Worst { name, most: Some(estimate) };
        }
    }
}

fn compare(report: &mut Report, subjects: &[Subject], slices: &[Duration]) {
    let lost = counted(report, subjects, slices);
    let (mut over_shared, mut slowdown) = (Worst::default(), Worst::default());
    let (mut short, mut long) = (Worst::default(), Worst::default());
    for subject in subjects {
        let (alone, linux) = (Way::ALONE.name(subject), Way::LINUX.name(subject));
        for &slice in slices {
            let net = Way::gangs(Medium::Gang, slice).name(subject);
            let shared = Way::gangs(Medium::Shared, slice).name(subject);
            let lost = report.ratio(&net, &alone, RATE).map(loss_percent);
            // The time of one is the rate of the other.
            let longer = report.ratio(&shared, &net, RATE);
            report.ratio(&net, &alone, SLOT_RATE);
            report.ratio(&shared, &net, SLOT_RATE);
            let part = report.mean(&net, phases::PART);
            if slice == PAPERS {
                report.judge(&net, &linux, RATE, Better::More);
                over_shared.add(subject.name, longer);
                slowdown.add(subject.name, lost);
                long.add(subject.name, part);
            }
            if slice == SHORT {
                short.add(subject.name, part);
            }
        }
    }
    let all = slices.contains(&PAPERS);
    if let Some(lost) = lost {
        report.promise(&list::NETPREEMPT_LOST, Some(lost));
    }
    for (is_there, promise, worst) in [
        (all, &list::NETPREEMPT_OVER_SHM, over_shared),
        (slices.contains(&SHORT), &list::NETPREEMPT_PHASES_20MS, short),
        (all, &list::NETPREEMPT_PHASES_100MS, long),
        (all, &list::NETPREEMPT_SLOWDOWN, slowdown),
    ] {
        if is_there {
            report.promise_of(promise, worst.name, worst.most);
        }
    }
    let arithmetic: Vec<String> = subjects.iter().filter_map(|it| projected(report, it)).collect();
    report.verdict.extend(arithmetic);
}

/// Messages of all gangs whose ports are flushed: how many were sent, and what became of them; none
/// of programs that do not count.
fn counted(report: &mut Report, subjects: &[Subject], slices: &[Duration]) -> Option<Estimate> {
    let names: Vec<String> = subjects
        .iter()
        .flat_map(|subject| {
            slices.iter().map(|&slice| Way::gangs(Medium::Gang, slice).name(subject))
        })
        .collect();
    let sum = |report: &Report, figure: &str| -> f64 {
        names.iter().filter_map(|it| report.samples(it, figure)).flatten().sum()
    };
    let [sent, lost, doubled, wrong] = [SENT, LOST, DOUBLED, WRONG].map(|it| sum(report, it));
    let [slots, flushes, failed] =
        [phases::SLOTS, phases::FLUSHES, phases::FAILED].map(|it| sum(report, it));
    let samples = names.iter().filter_map(|it| report.samples(it, SENT)).flatten().count();
    if samples == 0 {
        return None;
    }
    report.verdict.push(format!(
        "Of {sent} messages that were sent, {lost} were lost and {doubled} came twice; {wrong} words \
         were wrong. At the ends of {slots} slots ports were flushed {flushes} times, of which \
         {failed} failed."
    ));
    Some(Estimate { value: lost + doubled + wrong, interval: None, samples })
}

/// The time of this program's flushes on clusters, by arithmetic.
fn projected(report: &Report, subject: &Subject) -> Option<String> {
    let net = Way::gangs(Medium::Gang, PAPERS).name(subject);
    let flush_us = report.mean(&net, phases::FLUSH)?.value;
    let part = |hosts: u32| {
        let peers = phases::peers(subject.name, hosts);
        let percent = phases::projected_percent(flush_us, peers, ROUND_TRIP_US, PAPERS);
        format!("{} % on {hosts} hosts ({peers} peers)", figure(percent))
    };
    Some(format!(
        "By arithmetic, not measured: a flush of {} would take {} of a slice of 100 ms.",
        subject.name,
        HOSTS.map(part).join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::alternate::Run;
    use crate::harness::options::Options;
    use crate::harness::samples::{Figures, Series};

    #[test]
    fn windows_are_whole_frames() {
        let ms = Duration::from_millis;
        assert_eq!(whole_frames(ms(3_000), ms(20)), ms(3_000));
        assert_eq!(whole_frames(ms(3_000), ms(200)), ms(3_200));
        assert_eq!(whole_frames(ms(100), ms(500)), ms(1_000));
    }

    fn subject(name: &'static str) -> Subject {
        Subject { name, path: PathBuf::new(), is_npb: false }
    }

    /// A report of two rounds, by condition and figure.
    fn report_of(figures: &[(&str, Figures)]) -> Report {
        let series = figures.iter().map(|(condition, figures)| {
            let samples = figures.iter().map(|(&name, &value)| (name, vec![value; 2])).collect();
            Series::new(*condition, samples)
        });
        let run = Run::made_up("netpreempt", 2, series.collect(), Vec::new());
        let lab = Lab::new(&Options { noisy: true, ..Options::default() }).unwrap();
        Report::new(&lab, "", run, RATE)
    }

    #[test]
    fn worst_program_is_judged() {
        let rate = |rate: f64| Figures::from([(RATE, rate)]);
        let net = |rate: f64, part: f64, lost: f64| {
            Figures::from([
                (RATE, rate),
                (phases::PART, part),
                (phases::FLUSH, 40.0),
                (phases::SLOTS, 100.0),
                (phases::FLUSHES, 100.0),
                (phases::FAILED, 1.0),
                (SENT, 1_000.0),
                (LOST, lost),
                (DOUBLED, 0.0),
                (WRONG, 0.0),
            ])
        };
        let mut report = report_of(&[
            ("lu, alone", rate(100.0)),
            ("lu, net, 100ms", net(95.0, 0.2, 0.0)),
            ("lu, shared memory, 100ms", rate(96.0)),
            ("lu, TCP, plain Linux", rate(10.0)),
            ("ft, alone", rate(50.0)),
            ("ft, net, 100ms", net(40.0, 0.5, 1.0)),
            ("ft, shared memory, 100ms", rate(44.0)),
            ("ft, TCP, plain Linux", rate(5.0)),
        ]);
        compare(&mut report, &[subject("lu"), subject("ft")], &[PAPERS]);
        let of = |id: &str| {
            let measure = report.measures.iter().find(|it| it.id == id).unwrap();
            (measure.measured.unwrap().value, measure.measure.contains("(ft)"))
        };
        assert_eq!(of("netpreempt-lost"), (2.0, false), "one in each round");
        assert_eq!(of("netpreempt-phases-100ms"), (0.5, true));
        let (slowdown, is_ft) = of("netpreempt-slowdown");
        assert!((slowdown - 20.0).abs() < 1e-9 && is_ft);
        assert!((of("netpreempt-over-shm").0 - 1.1).abs() < 1e-9);
        assert!(report.measures.iter().all(|it| it.id != "netpreempt-phases-20ms"));
        let first = &report.verdict[0];
        assert!(first.starts_with("Of 4000 messages that were sent, 2 were lost"), "{first}");
        let last = report.verdict.last().unwrap();
        assert!(last.contains("By arithmetic") && last.contains("63 peers"), "{last}");
    }

    #[test]
    fn programs_that_do_not_count_promise_nothing() {
        let mut report = report_of(&[("lu, net, 100ms", Figures::from([(RATE, 1.0)]))]);
        assert_eq!(counted(&mut report, &[subject("lu")], &[PAPERS]), None);
        assert!(report.verdict.is_empty());
    }
}
