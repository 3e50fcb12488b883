//! A hostile user: the attacks of a local user, one after the other, and what two victims lose to
//! each of them.
//!
//! Two victims, each a user of his own, have a gang that spins on all CPUs. The attacker's user has
//! one, too, at all times: he is owed a share, however he uses it. Minutes in which he attacks as
//! well alternate with minutes in which he does not. The victims are owed the same in both.
//!
//! The worst of many attacks looks bad by chance alone. So each attack is judged by how far it is
//! beyond the spread of all minutes without an attack ([`beyond_spread`]).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use gang_linux::clock;
use gang_protocol::client::Client;
use gang_protocol::v1::{Job, Switches};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::gangs::COSCHEDULED;
use crate::harness::lab::{Lab, Span, words};
use crate::harness::proc;
use crate::harness::programs::Programs;
use crate::harness::report::{Promise, Report};
use crate::harness::samples::{Figures, Sample};
use crate::harness::stats::{Estimate, beyond_spread, loss_percent, mean_sd};
use crate::harness::table::interval;
use crate::harness::users::{ForEverybody, ORDINARY, as_user, needs_root, numbers_of_one};
use crate::harness::wait::{TIME_LIMIT, wait_for};
use crate::promises::list;
use crate::workload::attack::{ATTACKS, Attack, AttackOutcome, names};
use crate::workload::own::OwnOutcome;
use crate::workload::window::{now_ns, sleep_until_ns};

const WORK: &str = "steps_per_s";
const SHARE: &str = "share_percent";
const LATE: &str = "late_plans_per_min";
const RAN_OUT: &str = "ran_out_per_min";
const MEMORY: &str = "memory_more_mib";
const CONDUCTOR: &str = "conductor_percent";

const LENGTH: Duration = Duration::from_secs(60);
const QUICK_LENGTH: Duration = Duration::from_secs(2);
/// Attacks of a first answer, one of each kind.
const QUICK: [&str; 3] = ["lists", "forks", "cpus"];
/// A round of all attacks takes half an hour.
const ROUNDS: usize = 3;
/// Subordinate numbers that the attacker uses in most attacks.
const NUMBERS: u32 = 3;
/// All that adduser(8) gives to a user.
const ALL_NUMBERS: u32 = 65_536;
/// Time before a measurement, and the part of it in which an attack comes into its own; the victims
/// become gangs before.
const LEAD: Duration = Duration::from_secs(4);
const COMING: Duration = Duration::from_secs(2);
/// Victims and attack go on for so long after the second look at them, which may come late.
const TAIL: Duration = Duration::from_secs(3);
/// Starts of which all but the last may come too late, each with twice the time of the one before,
/// before the measurement and after it.
const STARTS: u32 = 4;
const STEP: &str = "100us";

#[derive(Args, Debug, Clone, Default)]
pub struct Hostile {
    /// Only these attacks
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = names())]
    pub attack: Vec<String>,
}

impl Hostile {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no daemon to attack")?;
        needs_root("it runs programs as three other users")?;
        let is_wanted = |attack: &&Attack| match self.attack.as_slice() {
            [] => !lab.options.quick || QUICK.contains(&attack.name),
            names => names.iter().any(|name| name == attack.name),
        };
        let attacks: Vec<&Attack> = ATTACKS.iter().filter(is_wanted).collect();
        run(lab, &attacks)
    }
}

fn run(lab: &Lab, attacks: &[&'static Attack]) -> Result<Report> {
    let for_everybody = ForEverybody::find(&lab.programs)?;
    let cast = Cast { programs: &for_everybody.programs, attacker: numbers_of_one(NUMBERS) };
    let cast = &cast;
    let mut conditions = Vec::new();
    for &attack in attacks {
        for attacks in [false, true] {
            let measure = move |lab: &Lab| cast.measure(lab, attack, attacks);
            conditions.push(Condition::new(name(attack, attacks), measure));
        }
    }
    let rounds = lab.options.runs.unwrap_or(ROUNDS);
    let run = alternate(lab, "hostile", rounds, &conditions)?;
    let about = "what two victims lose to the attacks of a third user";
    let mut report = Report::new(lab, about, run, SHARE);
    if let [number] = cast.attacker[..] {
        report.notes.push(format!(
            "More numbers of the attacker than {number}: /etc/subuid gives {NUMBERS} to no user of \
             this machine."
        ));
    }
    let (all, as_many) = (numbers_of_one(ALL_NUMBERS).len(), attacks.iter().find(|it| it.as_many));
    if let Some(attack) = as_many.filter(|_| all < ALL_NUMBERS as usize) {
        report.notes.push(format!(
            "More numbers than {all} in {}: /etc/subuid gives {ALL_NUMBERS} to no user of this \
             machine.",
            attack.name
        ));
    }
    let left_out = ATTACKS.len() - attacks.len();
    if left_out > 0 {
        report.notes.push(format!("{left_out} of {} attacks.", ATTACKS.len()));
    }
    for attack in attacks {
        let lost = Lost::of(&mut report, attack);
        report.verdict.extend(lost.sentence(attack));
    }
    let minutes = length(lab).as_secs_f64() / 60.0;
    let of_all: [(&Promise, &str, Harm); 4] = [
        (&list::HOSTILE_LATE, LATE, Harm::More { minutes }),
        (&list::HOSTILE_RAN_OUT, RAN_OUT, Harm::More { minutes }),
        (&list::HOSTILE_SHARE, SHARE, Harm::LessPercent),
        (&list::HOSTILE_COSCHEDULED, COSCHEDULED, Harm::LessPercent),
    ];
    for (promise, figure, harm) in of_all {
        let worst = worst(&report, attacks, figure, harm);
        let (detail, worst) = worst.unzip();
        report.promise_of(promise, detail.unwrap_or_default(), worst);
    }
    Ok(report)
}

/// How a figure shows that an attack does harm.
#[derive(Clone, Copy)]
enum Harm {
    /// There is more of what is counted, in so many minutes.
    More { minutes: f64 },
    /// There is less, in percent of what there is without an attack.
    LessPercent,
}

impl Harm {
    /// The harm that the samples of an attack show beyond the spread of quiet ones.
    fn beyond(self, of: &[f64], quiet: &[f64], attacks: usize) -> Option<Estimate> {
        match self {
            Harm::More { minutes } => {
                // Where nothing was counted, there are three at most (the rule of three).
                let least_sd = (3.0 / quiet.len() as f64).sqrt() / minutes;
                beyond_spread(of, quiet, least_sd, attacks)
            }
            Harm::LessPercent => {
                let (mean, _) = mean_sd(quiet).filter(|(mean, _)| *mean > 0.0)?;
                let [of, quiet] = [of, quiet].map(|samples| samples.iter().map(|it| -it));
                let (of, quiet): (Vec<f64>, Vec<f64>) = (of.collect(), quiet.collect());
                let more = beyond_spread(&of, &quiet, 0.0, attacks)?;
                Some(more.scaled(100.0 / mean))
            }
        }
    }
}

/// The attack that does most harm beyond the spread of all minutes without an attack. Where one of
/// the attacks was not measured, nothing is known of the worst.
fn worst(
    report: &Report,
    attacks: &[&'static Attack],
    figure: &str,
    harm: Harm,
) -> Option<(&'static str, Estimate)> {
    let of = |attack: &Attack, attacks| report.samples(&name(attack, attacks), figure);
    let quiet: Vec<&[f64]> = attacks.iter().map(|it| of(it, false)).collect::<Option<_>>()?;
    let quiet = quiet.concat();
    let harms = attacks.iter().map(|attack| {
        let beyond = harm.beyond(of(attack, true)?, &quiet, attacks.len())?;
        Some((attack.name, beyond))
    });
    let harms: Vec<(&str, Estimate)> = harms.collect::<Option<_>>()?;
    let ends = |it: &Estimate| it.interval.unwrap_or([it.value; 2]);
    harms.into_iter().max_by(|(_, a), (_, b)| {
        let ([a_low, a_high], [b_low, b_high]) = (ends(a), ends(b));
        a_low.total_cmp(&b_low).then(a_high.total_cmp(&b_high))
    })
}

fn length(lab: &Lab) -> Duration {
    let long = if lab.options.quick { QUICK_LENGTH } else { LENGTH };
    lab.seconds_asked().unwrap_or(long)
}

fn name(attack: &Attack, attacks: bool) -> String {
    format!("{}, {}", attack.name, if attacks { "with" } else { "without" })
}

/// Losses of the victims to an attack, in percent and by the minute.
struct Lost {
    work: Option<Estimate>,
    share: Option<Estimate>,
    coscheduled: Option<Estimate>,
    late_plans: Option<Estimate>,
    ran_out: Option<Estimate>,
    conductor_percent: Option<Estimate>,
    memory_mib: Option<Estimate>,
}

impl Lost {
    fn of(report: &mut Report, attack: &Attack) -> Lost {
        let [with, without] = [true, false].map(|attacks| name(attack, attacks));
        let mut lost = |figure| report.ratio(&with, &without, figure).map(loss_percent);
        let (work, share, coscheduled) = (lost(WORK), lost(SHARE), lost(COSCHEDULED));
        let more = |figure| report.difference(&with, &without, figure);
        let (late_plans, ran_out) = (more(LATE), more(RAN_OUT));
        let (conductor_percent, memory_mib) = (more(CONDUCTOR), more(MEMORY));
        Lost { work, share, coscheduled, late_plans, ran_out, conductor_percent, memory_mib }
    }

    fn sentence(&self, attack: &Attack) -> Option<String> {
        let show = |estimate: &Option<Estimate>| {
            estimate.as_ref().map_or("an unknown part".into(), |it| format!("{} %", interval(it)))
        };
        let more = |estimate: &Option<Estimate>| {
            estimate.as_ref().map_or("an unknown number of".into(), interval)
        };
        // Nothing is compared.
        self.share?;
        Some(format!(
            "{} ({}) The victims lost {} of their work, {} of their share and {} of the time in \
             which they were coscheduled. More a minute: {} late plans, {} timetables that ran \
             out. The conductor took {} % more of a CPU, and the daemon grew by {} MiB more.",
            attack.name,
            attack.about,
            show(&self.work),
            show(&self.share),
            show(&self.coscheduled),
            more(&self.late_plans),
            more(&self.ran_out),
            more(&self.conductor_percent),
            more(&self.memory_mib),
        ))
    }
}

/// Whether what was looked at was there when it was looked at.
enum InTime {
    Yes(Sample),
    /// The look that came too late, or found that the victims had ended.
    No(String),
}

/// Programs, and the numbers of the user who attacks.
struct Cast<'a> {
    programs: &'a Programs,
    attacker: Vec<u32>,
}

impl Cast<'_> {
    fn measure(&self, lab: &Lab, attack: &Attack, attacks: bool) -> Result<Sample> {
        let mut late = String::new();
        for times in (0..STARTS).map(|start| 1 << start) {
            let tail = TAIL * times;
            let span = Span::after(LEAD * times, length(lab) + tail);
            match self.measure_in(lab, &span, tail, attack, attacks)? {
                InTime::Yes(sample) => return Ok(sample),
                InTime::No(what) => late = what,
            }
        }
        bail!("too late {STARTS} times, at last: {late}")
    }

    /// Victims and attack run for `span`, of which the `tail` is not measured.
    fn measure_in(
        &self,
        lab: &Lab,
        span: &Span,
        tail: Duration,
        attack: &Attack,
        attacks: bool,
    ) -> Result<InTime> {
        let settings = lab.settings(DaemonOptions::default());
        let daemon = Daemon::start(self.programs, &settings)?;
        daemon.let_everybody_in()?;
        let mut observer = Observer::of(&daemon)?;
        let cpus = if attack.all_cpus { lab.cpus } else { lab.cpus.div_ceil(2) };
        let own = format!("own --threads {cpus} --step {STEP} --wait spin");
        let mut victims = Vec::new();
        for uid in ORDINARY {
            victims.push(self.gang(&daemon, uid, cpus, &own, span)?);
        }
        let his = self.attacker.first().context("the attacker is nobody")?;
        let honest = self.gang(&daemon, *his, cpus, &format!("hog --threads {cpus}"), span)?;
        let ids = wait_for("three gangs", || observer.victims())?;
        if span.start_ns.saturating_sub(now_ns()) < COMING.as_nanos() as u64 {
            return Ok(InTime::No("three gangs".into()));
        }
        let mut attackers = Vec::new();
        for &uid in self.attacker.iter().filter(|_| attacks) {
            let mut command = Command::new(&self.programs.lab);
            command.args(["workload", "attack", attack.name, "--socket"]).arg(daemon.socket());
            command.args(span.arguments());
            if !attack.as_many {
                attackers.push(Running::start(as_user(&mut command, uid))?);
                continue;
            }
            let all = numbers_of_one(ALL_NUMBERS);
            let first = all.first().context("the attacker is nobody")?;
            command.args(["--first-number", &first.to_string()]);
            command.args(["--numbers", &all.len().to_string()]);
            attackers.push(Running::start(&mut command)?);
            break;
        }
        sleep_until_ns(span.start_ns);
        let measured_until_ns = span.end_ns() - tail.as_nanos() as u64;
        let mut looks = || {
            let before = observer.look(&ids)?;
            let answer = answer_time(&daemon, span.start_ns.midpoint(measured_until_ns))?;
            sleep_until_ns(measured_until_ns);
            anyhow::Ok((before, answer, observer.look(&ids)?))
        };
        let looks = looks();
        let is_late = now_ns() > span.end_ns();
        let mut steps = 0;
        for victim in victims {
            let outcome: OwnOutcome = victim.outcome(span.deadline)?;
            steps += outcome.parts.iter().sum::<u64>();
        }
        let (before, answer, after) = match looks {
            Err(error) if is_late => return Ok(InTime::No(format!("{error:#}"))),
            looks => looks?,
        };
        honest.finish(span.deadline)?;
        let mut sample = after.since(&before, daemon.sample())?;
        sample.figures.extend([
            (WORK, steps as f64 / span.length.as_secs_f64()),
            ("answer_ms", answer.as_secs_f64() * 1e3),
        ]);
        let (mut acts, mut refused) = (0, 0);
        for attacker in attackers {
            let outcome: AttackOutcome = attacker.outcome(span.deadline)?;
            acts += outcome.acts;
            refused += outcome.refused;
        }
        if attacks {
            let each_s = |count: u64| count as f64 / span.length.as_secs_f64();
            let acts = [("acts_per_s", each_s(acts)), ("refused_per_s", each_s(refused))];
            sample.figures.extend(acts);
        }
        Ok(InTime::Yes(sample))
    }

    /// A gang of a user.
    fn gang(
        &self,
        daemon: &Daemon,
        uid: u32,
        cpus: usize,
        workload: &str,
        span: &Span,
    ) -> Result<Running> {
        let mut command = daemon.gang_run(cpus, None);
        command.arg(&self.programs.lab).arg("workload").args(words(workload));
        command.args(span.arguments());
        Running::start(as_user(&mut command, uid))
    }
}

/// How long root waits for an answer at a moment, with a connection of its own.
fn answer_time(daemon: &Daemon, at_ns: u64) -> Result<Duration> {
    sleep_until_ns(at_ns);
    let begun = Instant::now();
    let mut client = Client::connect_within(daemon.socket(), TIME_LIMIT)?;
    client.status().context("asking for the status beside the attack")?;
    Ok(begun.elapsed())
}

/// Looks at victims and daemon, by a connection that was there before the attack.
struct Observer {
    client: Client,
    pid: i32,
    /// Of the daemon, before it has a job.
    memory_mib: f64,
}

/// One look.
struct Seen {
    at: Instant,
    victims: Vec<Job>,
    switches: Switches,
    memory_mib: f64,
    memory_more_mib: f64,
    daemon_ns: u64,
    conductor_ns: Option<u64>,
}

impl Observer {
    fn of(daemon: &Daemon) -> Result<Observer> {
        let client = Client::connect_within(daemon.socket(), TIME_LIMIT)?;
        let memory_mib = proc::memory_mib(Path::new("/proc"), daemon.pid())?;
        Ok(Observer { client, pid: daemon.pid(), memory_mib })
    }

    /// The jobs of the victims, once these and that of the attacker have a process each.
    fn victims(&mut self) -> Result<Option<Vec<i64>>> {
        let mut jobs = self.client.list_jobs()?.jobs;
        jobs.retain(|job| job.processes > 0);
        let are_all = jobs.len() > ORDINARY.len();
        jobs.retain(|job| ORDINARY.map(i64::from).contains(&job.owner_uid));
        Ok(are_all.then(|| jobs.into_iter().map(|job| job.id).collect()))
    }

    fn look(&mut self, victims: &[i64]) -> Result<Seen> {
        let proc = Path::new("/proc");
        let show = |id: &i64| anyhow::Ok(self.client.show_job(*id)?.details);
        let victims = victims.iter().map(show).collect::<Result<_>>()?;
        let memory_mib = proc::memory_mib(proc, self.pid)?;
        Ok(Seen {
            at: Instant::now(),
            victims,
            switches: self.client.status()?.status.switches,
            memory_mib,
            memory_more_mib: memory_mib - self.memory_mib,
            daemon_ns: clock::cpu_ns_of(self.pid as u32)?,
            conductor_ns: proc::cpu_ns_of_thread(proc, self.pid, "conductor"),
        })
    }
}

impl Seen {
    /// The figures between two looks. Of the victims the one counts that had less.
    fn since(&self, before: &Seen, sample: Sample) -> Result<Sample> {
        let elapsed_s = (self.at - before.at).as_secs_f64();
        ensure!(elapsed_s > 0.0, "two looks at the same moment");
        let percent = |ns: u64| ns as f64 / (elapsed_s * 1e9) * 100.0;
        let a_minute = |count: i64| count as f64 / elapsed_s * 60.0;
        let (mut share, mut coscheduled, mut reason) = (f64::INFINITY, Some(f64::INFINITY), None);
        for victim in &self.victims {
            let then = before.victims.iter().find(|then| then.id == victim.id);
            let then = then.context("a victim is another job than before")?;
            let in_slot_ns = victim.in_slot_ns - then.in_slot_ns;
            share = share.min(percent(u64::try_from(in_slot_ns)?));
            let part = coscheduled_between(then, victim);
            coscheduled = coscheduled.zip(part).map(|(a, b)| a.min(b * 100.0));
            reason = reason.or(victim.not_measured.clone());
        }
        let mut figures = Figures::from([
            (SHARE, share),
            (LATE, a_minute(self.switches.late_plans - before.switches.late_plans)),
            (RAN_OUT, a_minute(self.switches.ran_out - before.switches.ran_out)),
            ("memory_mib", self.memory_mib),
            (MEMORY, self.memory_more_mib),
            ("daemon_percent", percent(self.daemon_ns.saturating_sub(before.daemon_ns))),
        ]);
        let conductor = self.conductor_ns.zip(before.conductor_ns);
        let conductor = conductor.map(|(now, then)| percent(now.saturating_sub(then)));
        figures.extend(conductor.map(|percent| (CONDUCTOR, percent)));
        figures.extend(coscheduled.map(|percent| (COSCHEDULED, percent)));
        let not_measured = match coscheduled {
            Some(_) => None,
            None => Some(reason.unwrap_or_else(|| "a victim had no slot".into())),
        };
        Ok(Sample { not_measured, ..sample.with_all(figures) })
    }
}

/// The part of its time in slots between two looks in which a job was coscheduled.
fn coscheduled_between(before: &Job, after: &Job) -> Option<f64> {
    let of = |job: &Job| {
        let measured = job.measured.as_ref()?;
        Some((measured.coscheduled.unwrap_or(0.0) * measured.slot_ns as f64, measured.slot_ns))
    };
    // Before its first slot nothing is measured.
    let (then, then_ns) = of(before).unwrap_or((0.0, 0));
    let (now, now_ns) = of(after)?;
    let slot_ns = now_ns - then_ns;
    (slot_ns > 0).then(|| ((now - then) / slot_ns as f64).clamp(0.0, 1.0))
}
