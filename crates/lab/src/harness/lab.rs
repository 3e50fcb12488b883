//! What every experiment has at hand: the options, the programs, and a way to run several copies
//! over one window, under plain Linux or under a daemon.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, Settings};
use crate::harness::duration;
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
    /// What the experiment may look at of them.
    takes: &'static [Takes],
    /// What was given, and the experiment has no use for.
    pub unused: Vec<Takes>,
    /// CPUs this process may use.
    pub cpus: usize,
    pub journal: Option<Rc<Journal>>,
    /// What the experiment was asked for by options of its own.
    pub parameters: String,
    /// When the experiment began.
    pub began: Instant,
    /// What the daemon measured of the gangs of the condition that runs; the harness adds it to the
    /// condition's figures.
    pub measured: RefCell<Sample>,
    /// What daemons scheduled by that were started since the harness has asked.
    pub daemons: RefCell<BTreeSet<String>>,
    /// What runs is looked at and not compared.
    pub only_looks: Cell<bool>,
}

/// How the copies of an experiment share the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Under {
    Plain,
    Gangd(Settings),
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
        let (unused, parameters, measured, daemons, only_looks) = Default::default();
        let (takes, began) = (Takes::ALL.as_slice(), Instant::now());
        Ok(Self {
            programs,
            options,
            takes,
            unused,
            cpus,
            journal,
            parameters,
            began,
            measured,
            daemons,
            only_looks,
        })
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

    /// What samples must have in common with others that they are compared with.
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
    /// on has the same as before. `what` tells it from others.
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

    /// What [`Lab::thread_counts`] leaves out.
    pub fn thread_counts_left_out(&self) -> Option<String> {
        let is_all = self.options.threads.is_some() || self.thread_counts().len() == self.cpus;
        let measured = "powers of two and the number of CPUs are measured, all with --paper";
        (!is_all).then(|| format!("Other numbers of threads: {measured}."))
    }

    /// gangd with its defaults, and the backend that was asked for.
    pub fn gangd(&self) -> Under {
        Under::Gangd(self.settings(Settings::default()))
    }

    /// Settings of a daemon with the backend that was asked for, or else that of the condition.
    pub fn settings(&self, settings: Settings) -> Settings {
        self.looks_at(Takes::Backend);
        let backend = self.options.backend.clone().or(settings.backend);
        Settings { backend, ..settings }
    }

    pub fn daemon(&self, settings: &Settings) -> Result<Daemon> {
        let daemon = Daemon::start(&self.programs, settings)?;
        if !settings.only_watch {
            self.daemons.borrow_mut().extend(daemon.schedules_by.clone());
        }
        Ok(daemon)
    }

    /// A daemon where the condition has one.
    pub fn daemon_of(&self, under: &Under) -> Result<Option<Daemon>> {
        match under {
            Under::Plain if self.watches_plain() || self.only_looks.get() => {
                self.daemon(&Settings { only_watch: true, ..Settings::default() }).map(Some)
            }
            Under::Plain => {
                // Where only plain Linux is measured nobody compares it with gangs.
                if !self.options.plain {
                    self.note_plain();
                }
                Ok(None)
            }
            Under::Gangd(settings) => self.daemon(settings).map(Some),
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
    /// completed has no rate. The last window counts, and the report tells of it. One of
    /// `long_enough` or more is the last in any case.
    pub fn over_window<T>(
        &self,
        length: Duration,
        long_enough: Duration,
        mut measure: impl FnMut(&Span) -> Result<T>,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let (mut lead, mut span) = (LEAD, Span::soon(length));
        loop {
            let seen = measure(&span)?;
            if is_enough(&seen) || span.length >= long_enough {
                if span.length > length {
                    let length_s = span.length.as_secs_f64();
                    let longest_s = &mut self.measured.borrow_mut().longer_window_s;
                    *longest_s = Some(longest_s.map_or(length_s, |it| it.max(length_s)));
                }
                return Ok(seen);
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

    /// Runs copies over one window that all of them share, and in which each completes something;
    /// returns their outcomes in order.
    pub fn run_together(
        &self,
        daemon: Option<&Daemon>,
        copies: &[Launch],
        length: Duration,
    ) -> Result<Vec<Outcome>> {
        let measure = |span: &Span| self.run_in(span, daemon, copies);
        self.over_window(length, LONG_ENOUGH, measure, |outcomes| {
            all_completed(outcomes) && !self.looks_in_vain()
        })
    }

    /// Whether it is only looked at how much programs run as a whole, and none was seen to run.
    fn looks_in_vain(&self) -> bool {
        let only_looks = self.only_looks.get() || self.options.watch_plain;
        only_looks && self.saw_no_gang_run()
    }

    /// Like [`Lab::run_together`], over a window that others share as well.
    pub fn run_in(
        &self,
        span: &Span,
        daemon: Option<&Daemon>,
        copies: &[Launch],
    ) -> Result<Vec<Outcome>> {
        let mut running = Vec::new();
        for copy in copies {
            let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
            running.push(self.start_workload(daemon, copy.gang, &arguments)?);
        }
        self.look_at_gangs(daemon, span);
        let mut outcomes: Vec<Outcome> = Vec::new();
        for copy in running {
            outcomes.push(copy.outcome(span.deadline)?);
        }
        // Time to start was enough, so what a copy could not do in the window counts against
        // whoever scheduled it; but the reader should know.
        for outcome in &outcomes {
            let late_ns = outcome.ready_at_ns.saturating_sub(outcome.started_at_ns);
            if late_ns > span.length.as_nanos() as u64 / 10 {
                let (name, late_ms) = (&outcome.workload, late_ns / 1_000_000);
                eprintln!("gang lab: a copy of {name} began {late_ms} ms into its measurement");
            }
        }
        Ok(outcomes)
    }
}

/// Plain Linux, and gangd as it comes unless only plain Linux was asked for.
pub fn plain_and_default(lab: &Lab) -> Vec<(&'static str, Under)> {
    let mut all = vec![("plain Linux", Under::Plain)];
    if !lab.options.plain {
        all.push(("gangd", lab.gangd()));
    }
    all
}

/// Whether there is something to tell of each copy.
pub fn all_completed(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.iterations > 0)
}

impl Launch {
    /// One that is a gang of `cpus` CPUs where a daemon runs.
    pub fn gang(cpus: usize, arguments: &str) -> Self {
        Self { arguments: words(arguments), gang: Some(Gang { cpus, weight: None }) }
    }

    /// One that the daemon is not told of.
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

    fn after(lead: Duration, length: Duration) -> Self {
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
    use super::*;

    fn lab(options: Options) -> Lab {
        Lab::new(&options).unwrap()
    }

    #[test]
    fn a_condition_has_its_backend_unless_one_was_asked_for() {
        let of = |asked: Option<&str>, own: Option<&str>| {
            let lab = lab(Options { backend: asked.map(String::from), ..Options::default() });
            lab.settings(Settings { backend: own.map(String::from), ..Settings::default() }).backend
        };
        assert_eq!(of(None, Some("signal")).as_deref(), Some("signal"));
        assert_eq!(of(Some("rt"), Some("signal")).as_deref(), Some("rt"));
        assert_eq!(of(Some("rt"), None).as_deref(), Some("rt"));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn rounds_are_those_of_the_paper_where_they_are_asked_for() {
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
            let seen = lab.over_window(ms(10), limit, measure, |seen| *seen >= needed).unwrap();
            assert_eq!(Some(&seen), tried.borrow().last(), "the last one counts");
            (tried.into_inner(), lab.measured.take().longer_window_s)
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
