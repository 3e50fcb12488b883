//! Watches a program: from the kernel's ticks and counters to an [`Observation`].

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use gang_bpf::{Profiler, Sum, Tick, Who};
use gang_linux::{Roots, cgroup::Group, clock, error::unless_gone};
use perf_event::{Builder, Counter, events::Software};

use crate::{
    interruption::Interruption,
    moments::Moments,
    observation::{Cause, Doing, Look, Observation, Sleeps, Span, Use},
    pulse::Pulse,
    sites::{Site, Sites},
};

/// How often the clock of each CPU ticks: not a divisor of what programs do every millisecond. A
/// virtual machine pays some 20 µs for each tick, and threads that meet also pay for each other's.
/// So there are as few as it takes to judge by. For how long threads ran is known without ticks;
/// they only say what share of that was work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticks {
    Many,
    Few,
}

impl Ticks {
    /// The ticks that it takes to judge a program that is watched for so long: a thousand of each
    /// CPU, where there is time for so many.
    pub fn over(length: Duration) -> Ticks {
        if length < Duration::from_secs(10) { Ticks::Many } else { Ticks::Few }
    }

    fn per_second(self) -> u32 {
        match self {
            Ticks::Many => 251,
            Ticks::Few => 127,
        }
    }

    fn period(self) -> Duration {
        Duration::from_secs(1) / self.per_second()
    }
}

/// How often the kernel's sums are read: each read takes a CPU from some thread, and its partners
/// wait.
const ROUND: Duration = Duration::from_millis(100);

/// How often the threads are looked at, which are many files.
const ROUNDS_OF_THREADS: u64 = 3;

/// A clock that ticks while its CPU is online, with any thread on it, once it is switched on.
fn clock_of(cpu: u32, ticks: Ticks) -> Result<Counter> {
    Builder::new(Software::CPU_CLOCK)
        .one_cpu(cpu as usize)
        .any_pid()
        // Also while the kernel works for a thread, or nobody runs: else shares of ticks are no
        // shares of time.
        .include_kernel()
        .sample_frequency(ticks.per_second().into())
        .enabled(false)
        .build()
        .with_context(|| format!("cannot open a clock of CPU {cpu} (it takes root)"))
}

/// Where a part of the time begins, among the looks and spans.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    looks: usize,
    spans: usize,
}

/// A program that is watched.
pub struct Sampler {
    roots: Roots,
    group: PathBuf,
    profiler: Profiler,
    sites: Sites,
    seen: Observation,
    before: BTreeMap<u32, Use>,
    /// As they were when the last span ended.
    sums: Vec<Sum>,
    began: Instant,
    began_ns: u64,
    rounds: u64,
    interruption: Interruption,
    pulse: Pulse,
}

impl Sampler {
    /// Begins to watch the threads of a cgroup, which may use `allowed` CPUs.
    pub fn begin(roots: &Roots, group: &Path, allowed: usize, ticks: Ticks) -> Result<Sampler> {
        let id = fs::metadata(group)
            .with_context(|| format!("cannot find the cgroup {}", group.display()))?
            .ino();
        let cpus = gang_linux::topology::online(roots)?;
        let clocks = cpus.iter().map(|cpu| clock_of(cpu.id, ticks)).collect::<Result<_>>()?;
        let profiler = Profiler::start(id, clocks, ticks.period())
            .context("cannot watch the threads of the program")?;
        let mut sampler = Sampler {
            roots: roots.clone(),
            group: group.to_owned(),
            profiler,
            sites: Sites::default(),
            seen: Observation { machine: cpus.len(), allowed, ..Observation::default() },
            before: BTreeMap::new(),
            sums: Vec::new(),
            began: Instant::now(),
            began_ns: clock::monotonic_ns(),
            rounds: 0,
            interruption: Interruption::default(),
            pulse: Pulse::default(),
        };
        sampler.before = sampler.uses()?;
        sampler.end_span()?;
        sampler.seen.spans.clear();
        (sampler.began, sampler.began_ns) = (Instant::now(), clock::monotonic_ns());
        Ok(sampler)
    }

    /// The same, which fails once it is interrupted.
    pub fn unless(self, interruption: &Interruption) -> Sampler {
        Sampler { interruption: interruption.clone(), ..self }
    }

    /// The same, which says where in a runtime threads wait.
    pub fn with_names(self) -> Sampler {
        Sampler { sites: Sites::with_names(), ..self }
    }

    /// The same, which shows at each look that it goes on.
    pub fn with_pulse(self, pulse: &Pulse) -> Sampler {
        Sampler { pulse: pulse.clone(), ..self }
    }

    /// The program lives in another cgroup now, or in the same.
    pub fn follow(&mut self, group: &Path) -> Result<()> {
        let directory = fs::metadata(group)
            .with_context(|| format!("cannot find the cgroup {}", group.display()))?;
        self.profiler.follow(directory.ino())?;
        self.group = group.to_owned();
        Ok(())
    }

    /// Watches on until then, or until the program has ended; false when it has.
    pub fn until(&mut self, end: Instant) -> Result<bool> {
        loop {
            self.interruption.check()?;
            self.pulse.beat()?;
            self.look()?;
            if Instant::now() >= end {
                return Ok(true);
            }
            if !unless_gone(Group::at(&self.group).is_populated())? {
                return Ok(false);
            }
            std::thread::sleep(ROUND.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Begins a part of the time that is to be seen by itself.
    pub fn begin_part(&mut self) -> Result<Part> {
        self.look()?;
        Ok(Part { looks: self.seen.looks.len(), spans: self.seen.spans.len() })
    }

    /// How many CPUs worked for the program since then, on average.
    pub fn cpus_at_work(&mut self, since: &Part) -> Result<f64> {
        self.begin_part()?;
        let Observation { looks, spans, .. } = &self.seen;
        Ok(Moments::of(&looks[since.looks..], &spans[since.spans..]).cpus_at_work())
    }

    fn look(&mut self) -> Result<()> {
        let ticks = self.profiler.ticks()?;
        for tick in &ticks {
            let look = self.understand(tick);
            self.seen.looks.push(look);
        }
        self.end_span()?;
        if self.rounds % ROUNDS_OF_THREADS == 0 {
            self.look_at_threads()?;
        }
        self.rounds += 1;
        Ok(())
    }

    fn understand(&mut self, tick: &Tick) -> Look {
        let doing = match &tick.who {
            Who::Nobody | Who::Others => Doing::Else,
            &Who::Program { tgid, tid, ip, call, ref code } => {
                match self.sites.of(&self.roots.proc, tgid, ip, call, code) {
                    Site::Work => Doing::Work { tid },
                    Site::Wait(site) => Doing::Wait { tid, site },
                }
            }
        };
        let Tick { at_ns, running, waiting, coscheduling, here, .. } = *tick;
        Look { at_ns, doing, running, waiting, coscheduling, here }
    }

    fn end_span(&mut self) -> Result<()> {
        let sums = self.profiler.sums(self.seen.machine as u32)?;
        self.sums.resize(sums.len(), Sum::default());
        let since = |(&(coscheduling, now), before): (&(_, Sum), &Sum)| {
            (coscheduling, Sum { ns: now.ns - before.ns, ran_ns: now.ran_ns - before.ran_ns })
        };
        let of_span =
            sums.iter().zip(&self.sums).map(since).filter(|(_, sum)| sum.ns > 0).collect();
        self.seen.spans.push(Span { at_ns: clock::monotonic_ns(), sums: of_span });
        self.sums = sums.into_iter().map(|(_, sum)| sum).collect();
        Ok(())
    }

    fn look_at_threads(&mut self) -> Result<()> {
        let uses = self.uses()?;
        for (&tid, now) in &uses {
            let before = self.before.get(&tid).copied().unwrap_or_default();
            let used = Use {
                run_ns: now.run_ns.saturating_sub(before.run_ns),
                wait_ns: now.wait_ns.saturating_sub(before.wait_ns),
            };
            self.seen.threads.insert(tid, used);
        }
        let at_once = self.seen.busy().iter().filter(|tid| uses.contains_key(tid)).count();
        self.seen.threads_at_once = self.seen.threads_at_once.max(Some(at_once));
        Ok(())
    }

    /// The kernel's sums of each thread; threads that end meanwhile are left out.
    fn uses(&self) -> Result<BTreeMap<u32, Use>> {
        let threads = unless_gone(Group::at(&self.group).threads())?;
        let used = |tid: u32| {
            let path = self.roots.proc.join(tid.to_string()).join("schedstat");
            let text = fs::read_to_string(path).ok()?;
            let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
            Some((tid, Use { run_ns: fields.next()?, wait_ns: fields.next()? }))
        };
        Ok(threads.into_iter().filter_map(used).collect())
    }

    /// The whole observation.
    pub fn end(mut self) -> Result<Observation> {
        self.sum_up()?;
        Ok(self.seen)
    }

    /// The observation so far.
    pub fn observation(&mut self) -> Result<Observation> {
        self.sum_up()?;
        Ok(self.seen.clone())
    }

    fn sum_up(&mut self) -> Result<()> {
        self.look()?;
        self.look_at_threads()?;
        self.seen.length_ns = self.began.elapsed().as_nanos() as u64;
        let began_ns = self.began_ns;
        self.seen.looks.retain(|look| look.at_ns >= began_ns);
        self.seen.lost = self.profiler.lost()?;
        self.seen.sleeps.clear();
        for sleep in self.profiler.sleeps()? {
            let cause = Cause::of(sleep.call, sleep.uninterruptible);
            *self.seen.sleeps.entry((sleep.tid, cause)).or_default() += Sleeps {
                count: sleep.count,
                ns: sleep.ns,
                clear_count: sleep.clear_count,
                clear_ns: sleep.clear_ns,
            };
        }
        Ok(())
    }
}
