//! All that every experiment has at hand: the options, the programs, and a way to run several
//! copies over one window, under plain Linux or under a daemon.

use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::duration;
use crate::harness::gangs::Scheduled;
use crate::harness::journal::Journal;
use crate::harness::machine::Machine;
use crate::harness::options::{Options, Takes};
use crate::harness::programs::Programs;
use crate::harness::samples::Sample;
use crate::workload::Outcome;
use crate::workload::window::now_ns;

#[derive(Clone)]
pub struct Lab {
    pub programs: Programs,
    pub options: Options,
    /// Those of them that the experiment takes.
    takes: &'static [Takes],
    /// Options that were given, and that the experiment has no use for.
    pub unused: Vec<Takes>,
    /// CPUs this process may use.
    pub cpus: usize,
    pub journal: Option<Rc<Journal>>,
    /// The options of its own that the experiment was given.
    pub parameters: String,
    /// When the experiment began.
    pub began: Instant,
    /// Programs are looked at, and not compared.
    pub only_looks: bool,
}

/// How the copies of an experiment share the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Under {
    Plain,
    Gangd(DaemonOptions),
}

/// One program to start: a workload of the lab with its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    pub arguments: Vec<String>,
    /// A gang of as many CPUs and this weight; an unregistered program otherwise.
    pub gang: Option<Gang>,
}

#[derive(Clone, Copy, Debug)]
pub struct Gang {
    pub cpus: usize,
    pub weight: Option<u32>,
}

/// Time that copies have to start, register and warm up before the window opens.
const LEAD: Duration = Duration::from_millis(800);
/// Time that copies have to end after the window has closed, whatever the load.
const GRACE: Duration = Duration::from_secs(180);
/// A window that was too short is followed by one of so many times its length.
const LONGER: u32 = 4;
/// A window as long as this is not followed by a longer one because a copy completed nothing in it.
pub const LONG_ENOUGH: Duration = Duration::from_secs(10);

impl Lab {
    pub fn new(options: &Options) -> Result<Self> {
        let programs = Programs::find(options.gang.clone(), options.gangd.clone())?;
        let cpus = std::thread::available_parallelism().context("counting CPUs")?.get();
        ensure!(options.runs != Some(0), "an experiment has at least one round");
        let journal = options.resume.as_deref().map(Journal::open).transpose()?.map(Rc::new);
        let options = options.clone();
        let (unused, parameters, only_looks) = Default::default();
        let (takes, began) = (Takes::ALL.as_slice(), Instant::now());
        Ok(Self { programs, options, takes, unused, cpus, journal, parameters, began, only_looks })
    }

    /// For an experiment that begins now and takes these options.
    pub fn for_experiment(&self, takes: &'static [Takes]) -> Self {
        let (options, unused) = self.options.of_those(takes);
        Self { options, takes, unused, began: Instant::now(), ..self.clone() }
    }

    /// For an experiment with options of its own.
    pub fn asked_for(&self, parameters: String) -> Self {
        Self { parameters, ..self.clone() }
    }

    /// For a condition that is looked at and not compared.
    pub fn looking(&self) -> Self {
        Self { only_looks: true, ..self.clone() }
    }

    /// An experiment looks at an option: one that it does not take was refused or left out before.
    fn looks_at(&self, option: Takes) {
        debug_assert!(self.takes.contains(&option), "the experiment does not take {option:?}");
    }

    /// Refuses to go without gangd, which has no sense for the reason given.
    pub fn needs_gangd(&self, reason: &str) -> Result<()> {
        ensure!(!self.options.plain, "{reason}: leave out --plain");
        Ok(())
    }

    /// Rounds of an experiment that nobody has published.
    pub fn runs(&self) -> usize {
        self.rounds(10)
    }

    /// Rounds of an experiment that was published with so many.
    pub fn rounds(&self, published: usize) -> usize {
        let rounds = match (self.options.quick, self.options.paper) {
            (true, _) => 3,
            (_, true) => published,
            _ => 5,
        };
        self.options.runs.unwrap_or(rounds)
    }

    /// All that samples must have in common to be compared.
    pub fn describe(&self, machine: &Machine) -> Result<String> {
        let options = &self.options;
        let mut text = machine.identity();
        let of = [
            ("version", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("programs", Some(self.programs.identity()?)),
            ("threads", options.threads.map(|threads| threads.to_string())),
            ("seconds", options.seconds.map(duration::show)),
            ("backend", options.backend.clone()),
            ("quick", options.quick.then(|| "yes".into())),
            ("paper", options.paper.then(|| "yes".into())),
            ("plain", options.plain.then(|| "yes".into())),
            ("watch-plain", options.watch_plain.then(|| "yes".into())),
            ("own", Some(self.parameters.clone()).filter(|own| !own.is_empty())),
        ];
        for (name, value) in of {
            if let Some(value) = value {
                text += &format!(", {name} {value}");
            }
        }
        Ok(text)
    }

    /// An amount of work that is measured on this machine when an experiment begins; one that goes
    /// on has the same as before. `what` distinguishes it from others.
    pub fn amount(&self, what: &str, measure: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let Some(journal) = &self.journal else { return measure() };
        if let Some(amount) = journal.amount(what) {
            return Ok(amount);
        }
        let amount = measure()?;
        journal.add_amount(what, amount)?;
        Ok(amount)
    }

    /// Length of one measurement; `long` is the default of an experiment that needs more than two
    /// seconds.
    pub fn length(&self, long: Duration) -> Duration {
        let quick = Duration::from_secs(1).max(long / 2);
        self.seconds_asked().unwrap_or(if self.options.quick { quick } else { long })
    }

    pub fn seconds_asked(&self) -> Option<Duration> {
        self.looks_at(Takes::Seconds);
        self.options.seconds
    }

    pub fn threads(&self) -> usize {
        self.threads_asked().unwrap_or(self.cpus)
    }

    pub fn threads_asked(&self) -> Option<usize> {
        self.looks_at(Takes::Threads);
        self.options.threads
    }

    pub fn watches_plain(&self) -> bool {
        self.looks_at(Takes::WatchPlain);
        self.options.watch_plain
    }

    /// Numbers of threads that are compared: all from 1 to the number of CPUs; where those are
    /// many, or for a first answer, powers of two and the number of CPUs, unless the paper's are
    /// asked for; with `--threads` that number alone.
    pub fn thread_counts(&self) -> Vec<usize> {
        if let Some(threads) = self.threads_asked() {
            return vec![threads];
        }
        const MANY: usize = 17;
        if self.options.paper || self.cpus < MANY && !self.options.quick {
            return (1..=self.cpus).collect();
        }
        let powers = (0..).map(|power| 1 << power).take_while(|threads| *threads < self.cpus);
        powers.chain([self.cpus]).collect()
    }

    /// The numbers that [`Lab::thread_counts`] leaves out.
    pub fn thread_counts_left_out(&self) -> Option<String> {
        let is_all = self.options.threads.is_some() || self.thread_counts().len() == self.cpus;
        let measured = "powers of two and the number of CPUs are measured, all with --paper";
        (!is_all).then(|| format!("Other numbers of threads: {measured}."))
    }

    /// gangd with its defaults, and the backend that was asked for.
    pub fn gangd(&self) -> Under {
        Under::Gangd(self.settings(DaemonOptions::default()))
    }

    /// Options of a daemon with the backend that was asked for, or else that of the condition.
    pub fn settings(&self, settings: DaemonOptions) -> DaemonOptions {
        self.looks_at(Takes::Backend);
        let backend = self.options.backend.clone().or(settings.backend);
        DaemonOptions { backend, ..settings }
    }

    pub fn daemon(&self, settings: &DaemonOptions) -> Result<Daemon> {
        Daemon::start(&self.programs, settings)
    }

    /// A daemon where the condition has one.
    pub fn daemon_of(&self, under: &Under) -> Result<Option<Daemon>> {
        match under {
            Under::Plain if self.watches_plain() || self.only_looks => self
                .daemon(&DaemonOptions { only_watch: true, ..DaemonOptions::default() })
                .map(Some),
            Under::Plain => Ok(None),
            Under::Gangd(settings) => self.daemon(settings).map(Some),
        }
    }

    /// By whom programs are scheduled of a condition that has this daemon, or none.
    pub fn by<'a>(&self, daemon: Option<&'a Daemon>) -> Scheduled<'a> {
        match daemon {
            Some(daemon) => Scheduled::By(daemon),
            // Where only plain Linux is measured nobody compares it with gangs.
            None if self.options.plain => Scheduled::Unseen,
            None => Scheduled::SeenApart,
        }
    }

    /// Starts one program: as a gang of the daemon, or unregistered.
    pub fn start(
        &self,
        daemon: Option<&Daemon>,
        gang: Option<Gang>,
        program: &[String],
    ) -> Result<Running> {
        let mut command = match (daemon, gang) {
            (Some(daemon), Some(gang)) => {
                let mut command = daemon.gang_run(gang.cpus, gang.weight);
                command.args(program);
                command
            }
            _ => {
                let mut command = Command::new(&program[0]);
                command.args(&program[1..]);
                command
            }
        };
        Running::start(&mut command)
    }

    /// Starts one workload of the lab.
    pub fn start_workload(
        &self,
        daemon: Option<&Daemon>,
        gang: Option<Gang>,
        arguments: &[String],
    ) -> Result<Running> {
        let mut program = vec![self.programs.lab.display().to_string(), "workload".into()];
        program.extend_from_slice(arguments);
        self.start(daemon, gang, &program)
    }

    /// Measures over a window of this length. Where that was too short for what is measured to
    /// happen, as it can be on a slow machine, measures once more over a longer one: what was not
    /// completed has no rate. The last window counts; its length comes with what was seen where it
    /// was longer than asked for. One of `long_enough` or more is the last in any case.
    pub fn over_window<T>(
        &self,
        length: Duration,
        long_enough: Duration,
        mut measure: impl FnMut(&Span) -> Result<T>,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<(T, Option<f64>)> {
        let (mut lead, mut span) = (LEAD, Span::soon(length));
        loop {
            let seen = measure(&span)?;
            if is_enough(&seen) || span.length >= long_enough {
                let longer_s = (span.length > length).then_some(span.length.as_secs_f64());
                return Ok((seen, longer_s));
            }
            let longer = span.length * LONGER;
            eprintln!(
                "gang lab: {} was too short to measure anything here; it is measured over {}",
                duration::show(span.length),
                duration::show(longer)
            );
            // Where so little gets done programs take longer to start as well.
            lead *= 2;
            span = Span::after(lead, longer);
        }
    }

    /// Runs copies over one window that all of them share, and in which each completes something.
    pub fn run_together(
        &self,
        by: Scheduled,
        copies: &[Launch],
        length: Duration,
    ) -> Result<Together> {
        let only_looks = self.only_looks || self.options.watch_plain;
        let measure = |span: &Span| self.run_in(span, by, copies);
        let is_enough = |seen: &Together| {
            all_completed(&seen.outcomes) && !(only_looks && seen.sample.saw_no_gang_run())
        };
        let (Together { outcomes, sample }, longer_s) =
            self.over_window(length, LONG_ENOUGH, measure, is_enough)?;
        Ok(Together { outcomes, sample: sample.over(longer_s) })
    }

    /// Runs copies under plain Linux one after the other, each over its part of the window.
    pub fn run_in_turn(&self, copies: &[Launch], length: Duration) -> Result<Together> {
        let part = length / copies.len() as u32;
        let (mut outcomes, mut longest_s) = (Vec::new(), None::<f64>);
        for copy in copies {
            let alone = self.run_together(Scheduled::Unseen, std::slice::from_ref(copy), part)?;
            outcomes.extend(alone.outcomes);
            let longer_s = alone.sample.longer_window_s;
            longest_s = longest_s.into_iter().chain(longer_s).reduce(f64::max);
        }
        Ok(Together { outcomes, sample: Sample::default().over(longest_s) })
    }

    /// Like [`Lab::run_together`], over a window that others share as well.
    pub fn run_in(&self, span: &Span, by: Scheduled, copies: &[Launch]) -> Result<Together> {
        let mut running = Vec::new();
        for copy in copies {
            let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
            running.push(self.start_workload(by.daemon(), copy.gang, &arguments)?);
        }
        let sample = by.look(span);
        let mut outcomes: Vec<Outcome> = Vec::new();
        for copy in running {
            outcomes.push(copy.outcome(span.deadline)?);
        }
        // Time to start was enough, so what a copy could not do in the window counts against
        // its scheduler; but the reader should know.
        for outcome in &outcomes {
            let late_ns = outcome.ready_at_ns.saturating_sub(outcome.started_at_ns);
            if late_ns > span.length.as_nanos() as u64 / 10 {
                let (name, late_ms) = (&outcome.workload, late_ns / 1_000_000);
                eprintln!("gang lab: a copy of {name} began {late_ms} ms into its measurement");
            }
        }
        Ok(Together { outcomes, sample })
    }
}

/// The outcomes of copies over one window.
pub struct Together {
    /// In the order in which they were started.
    pub outcomes: Vec<Outcome>,
    /// The look at their gangs, without figures of the programs.
    pub sample: Sample,
}

/// Plain Linux, and gangd as it comes unless only plain Linux was asked for.
pub fn plain_and_default(lab: &Lab) -> Vec<(&'static str, Under)> {
    let mut all = vec![("plain Linux", Under::Plain)];
    if !lab.options.plain {
        all.push(("gangd", lab.gangd()));
    }
    all
}

/// Whether each copy completed something.
pub fn all_completed(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.iterations > 0)
}

impl Launch {
    /// One that is a gang of `cpus` CPUs where a daemon runs.
    pub fn gang(cpus: usize, arguments: &str) -> Self {
        Self { arguments: words(arguments), gang: Some(Gang { cpus, weight: None }) }
    }

    /// One that is not registered at the daemon.
    pub fn unregistered(arguments: &str) -> Self {
        Self { arguments: words(arguments), gang: None }
    }
}

/// The window of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start_ns: u64,
    pub length: Duration,
    /// When programs that have not ended are killed.
    pub deadline: Instant,
}

impl Span {
    /// A window that opens once copies had the time to start, register and warm up.
    pub fn soon(length: Duration) -> Self {
        Self::after(LEAD, length)
    }

    pub fn after(lead: Duration, length: Duration) -> Self {
        Self {
            start_ns: now_ns() + lead.as_nanos() as u64,
            length,
            deadline: Instant::now() + lead + length + GRACE,
        }
    }

    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.length.as_nanos() as u64
    }

    /// `--start-at` and `--seconds` of a workload.
    pub fn arguments(&self) -> Vec<String> {
        let seconds = format!("{}s", self.length.as_secs_f64());
        vec!["--start-at".into(), self.start_ns.to_string(), "--seconds".into(), seconds]
    }
}

/// Words of a command line.
pub fn words(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn lab(options: Options) -> Lab {
        Lab::new(&options).unwrap()
    }

    #[test]
    fn condition_has_its_backend_unless_one_is_given() {
        let of = |asked: Option<&str>, own: Option<&str>| {
            let lab = lab(Options { backend: asked.map(String::from), ..Options::default() });
            lab.settings(DaemonOptions {
                backend: own.map(String::from),
                ..DaemonOptions::default()
            })
            .backend
        };
        assert_eq!(of(None, Some("signal")).as_deref(), Some("signal"));
        assert_eq!(of(Some("rt"), Some("signal")).as_deref(), Some("rt"));
        assert_eq!(of(Some("rt"), None).as_deref(), Some("rt"));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn rounds_are_those_of_the_paper_where_asked_for() {
        let rounds = |options: Options| lab(options).rounds(20);
        assert_eq!(rounds(Options::default()), 5);
        assert_eq!(rounds(Options { quick: true, ..Options::default() }), 3);
        assert_eq!(rounds(Options { paper: true, ..Options::default() }), 20);
        assert_eq!(rounds(Options { paper: true, runs: Some(2), ..Options::default() }), 2);
    }

    #[test]
    fn a_window_grows_until_it_is_long_enough() {
        let ms = Duration::from_millis;
        let lengths = |needed: Duration, limit: Duration| {
            let lab = lab(Options::default());
            let tried = RefCell::new(Vec::new());
            let measure = |span: &Span| {
                assert!(span.deadline - Instant::now() > span.length);
                tried.borrow_mut().push(span.length);
                Ok(span.length)
            };
            let (seen, longer_s) =
                lab.over_window(ms(10), limit, measure, |seen| *seen >= needed).unwrap();
            assert_eq!(Some(&seen), tried.borrow().last(), "the last one counts");
            (tried.into_inner(), longer_s)
        };
        assert_eq!(lengths(ms(1), ms(1000)), (vec![ms(10)], None));
        assert_eq!(lengths(ms(100), ms(1000)), (vec![ms(10), ms(40), ms(160)], Some(0.16)));
        assert_eq!(lengths(ms(100), ms(40)), (vec![ms(10), ms(40)], Some(0.04)), "given up");
        assert_eq!(lengths(ms(100), ms(10)), (vec![ms(10)], None), "as was asked for");
    }

    #[test]
    fn a_failure_is_not_measured_again() {
        let lab = lab(Options::default());
        let tried = Cell::new(0);
        let measure = |_: &Span| -> Result<()> {
            tried.set(tried.get() + 1);
            anyhow::bail!("smoke")
        };
        let length = Duration::from_millis(1);
        assert!(lab.over_window(length, LONG_ENOUGH, measure, |()| false).is_err());
        assert_eq!(tried.get(), 1);
    }

    #[test]
    fn numbers_of_threads_by_that_of_cpus() {
        let counts = |cpus, options| Lab { cpus, ..lab(options) }.thread_counts();
        assert_eq!(counts(1, Options::default()), [1]);
        assert_eq!(counts(4, Options::default()), [1, 2, 3, 4]);
        assert_eq!(counts(16, Options::default()), (1..=16).collect::<Vec<_>>());
        assert_eq!(counts(24, Options::default()), [1, 2, 4, 8, 16, 24]);
        let quick = || Options { quick: true, ..Options::default() };
        assert_eq!(counts(2, quick()), [1, 2]);
        assert_eq!(counts(12, quick()), [1, 2, 4, 8, 12]);
        assert_eq!(counts(16, quick()), [1, 2, 4, 8, 16]);
        let paper = || Options { paper: true, ..Options::default() };
        assert_eq!(counts(24, paper()), (1..=24).collect::<Vec<_>>());
        assert_eq!(counts(16, Options { threads: Some(6), ..paper() }), [6]);
        let left_out = |cpus, options| Lab { cpus, ..lab(options) }.thread_counts_left_out();
        assert_eq!(left_out(16, Options::default()), None);
        assert_eq!(left_out(2, quick()), None);
        assert!(left_out(16, quick()).unwrap().contains("--paper"));
        assert_eq!(left_out(24, Options { threads: Some(6), ..quick() }), None);
    }
}
