//! Scripts: commands with the plans they lead to beside them.
//!
//! Each block of `tests/scripts/*.txt` is `run`, its commands, a line of
//! dashes and what comes out. `REWRITE=1 cargo test -p gang-schedule scripts`
//! writes what comes out into the files; read the difference before you keep
//! it. Commands:
//!
//! ```text
//! machine 16 cores=8 caches=4 nodes=2     a new machine; siblings are numbered as on Linux
//! machine 2 cap=900 fill=no slice_ms=50   with settings
//! arrive a cpus=4 min=2 weight=200 class=interactive policy=none user=3
//! arrive x cpus=4 times=100               a hundred such jobs, x1 to x100
//! arrive p cpus=4 spanning=yes            it has slots by entries alone
//! change a cpus=2                         what is not named stays
//! confine a within=0-3 bound=0:1;2-3:2    what its threads may use; smaller sets, their threads
//! quota a group=1 of=500                  its group has 500 thousandths of a CPU at most
//! quota a                                 no quota binds it
//! depart a | sleep a | wake a | suspend a | resume a
//! classes interactive=200 batch=100       what the classes weigh from now on, in percent
//! slices interactive=1 batch=10           for how many slices they ask at a time
//! load 12 1=4 2=8                         runnable threads outside all jobs, and of which users
//! users 1=200 2=100                       users share the machine, with these shares
//! users no                                programs do
//! caps 1=500                              users have so many ‰ of the CPUs at most
//! online 0-3,8                            the CPUs of the machine that are online
//! entries 0 frame=4 s=0-1:0-3             from slice 0 on, s alone has these rows and CPUs
//! then 8 frame=4 s=0-3:0                  from slice 8 on, after the entries before
//! plan 6                                  the next six slices
//! count 300                               the same, but says only how often
//! count users 300                         of users, whose slots are added up by their CPUs
//! skip 10                                 leaves slices out
//! amend                                   the slice under way, after events
//! share a                                 the share that a's weight gives it
//! ```
//!
//! Every plan is checked.

use gang_schedule::*;
use std::collections::BTreeMap;
use std::fmt::Write;

struct Session {
    all: Vec<Cpu>,
    schedule: Schedule,
    frame: check::Frame,
    names: Vec<String>,
    slice: u64,
    last: Option<Plan>,
}

/// The words of a command after its name: one without a key, the rest with.
struct Words<'a> {
    first: &'a str,
    keys: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(words: impl Iterator<Item = &'a str>) -> Words<'a> {
        let mut this = Words { first: "", keys: BTreeMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => _ = this.keys.insert(key, value),
                None => this.first = word,
            }
        }
        this
    }

    /// Numbers by users.
    fn of_users(&mut self) -> BTreeMap<UserId, u32> {
        let parse = |word: &str| word.parse().expect("a number");
        std::mem::take(&mut self.keys)
            .into_iter()
            .map(|(user, number)| (UserId(parse(user)), parse(number)))
            .collect()
    }

    fn number(&self) -> u32 {
        self.first.parse().expect("a number")
    }

    fn get(&mut self, key: &str) -> Option<u32> {
        self.keys.remove(key).map(|value| value.parse().expect("a number"))
    }

    fn done(self) {
        assert!(self.keys.is_empty(), "unknown keys: {:?}", self.keys);
    }
}

impl Session {
    fn new() -> Session {
        let schedule = Schedule::new(Config::default(), Topology::flat(1)).unwrap();
        let frame = check::Frame::new();
        Session { all: vec![], schedule, frame, names: vec![], slice: 0, last: None }
    }

    fn job(&self, name: &str) -> JobId {
        let index = self.names.iter().position(|other| other == name);
        JobId(index.unwrap_or(self.names.len()) as u64 + 1)
    }

    fn name(&self, job: JobId) -> &str {
        &self.names[job.0 as usize - 1]
    }

    fn list(&self, jobs: &[JobId]) -> String {
        jobs.iter().map(|&job| self.name(job)).collect::<Vec<_>>().join(" ")
    }

    /// The output of a command.
    fn command(&mut self, line: &str) -> String {
        let mut parts = line.split_whitespace();
        let command = parts.next().unwrap();
        let mut words = Words::new(parts);
        let mut said = String::new();
        match command {
            "machine" => self.machine(words),
            "arrive" | "change" => {
                let job = self.job(words.first);
                let new = Spec { min_cpus: 0, ..Spec::new(1) };
                let mut spec = self.schedule.spec(job).cloned().unwrap_or(new);
                if let Some(cpus) = words.get("cpus") {
                    (spec.cpus, spec.min_cpus) = (cpus, cpus);
                }
                spec.user = words.get("user").map_or(spec.user, UserId);
                spec.min_cpus = words.get("min").unwrap_or(spec.min_cpus);
                spec.weight = words.get("weight").unwrap_or(spec.weight);
                spec.spanning =
                    words.keys.remove("spanning").map_or(spec.spanning, |it| it == "yes");
                spec.class = words.keys.remove("class").map_or(spec.class, |c| c.parse().unwrap());
                spec.policy =
                    words.keys.remove("policy").map_or(spec.policy, |p| p.parse().unwrap());
                if command == "arrive" {
                    let times = words.get("times");
                    for number in 1..=times.unwrap_or(1) {
                        let number = times.map_or(String::new(), |_| number.to_string());
                        let name = format!("{}{number}", words.first);
                        let (job, spec) = (self.job(&name), spec.clone());
                        said = self.event(Event::Arrived { job, spec });
                        if said.is_empty() {
                            self.names.push(name);
                        }
                    }
                } else {
                    said = self.event(Event::Changed { job, spec });
                }
                words.done();
            }
            "confine" => {
                let job = self.job(words.first);
                let within = words.keys.remove("within").map(|cpus| cpus.parse().unwrap());
                let bound = words.keys.remove("bound").unwrap_or_default();
                let bound = bound.split(';').filter(|set| !set.is_empty()).map(|set| {
                    let (cpus, threads) = set.split_once(':').expect("CPUs:threads");
                    (cpus.parse().unwrap(), threads.parse().unwrap())
                });
                let to = within.map_or(Allowed::anywhere(), Allowed::within).with_bound(bound);
                said = self.event(Event::Confined { job, to });
                if let Some(why) = self.schedule.unplaceable(job) {
                    writeln!(said, "{}: {why}", words.first).unwrap();
                }
                words.done();
            }
            "quota" => {
                let of = words.get("group").zip(words.get("of"));
                let period_us = words.get("period").map_or(u32::MAX, |ms| ms * 1000);
                let to = of.map(|(group, cpu_permille)| Quota {
                    group: group.into(),
                    cpu_permille,
                    period_us,
                });
                said = self.event(Event::Limited { job: self.job(words.first), to });
                words.done();
            }
            "overhead" => {
                let percent = words.get("percent").expect("percent=NUMBER");
                said = self.event(Event::Overhead { job: self.job(words.first), percent });
                words.done();
            }
            "depart" => said = self.event(Event::Departed { job: self.job(words.first) }),
            "sleep" => said = self.event(Event::Slept { job: self.job(words.first) }),
            "wake" => said = self.event(Event::Woke { job: self.job(words.first) }),
            "suspend" => said = self.event(Event::Suspended { job: self.job(words.first) }),
            "resume" => said = self.event(Event::Resumed { job: self.job(words.first) }),
            "classes" => {
                let weights = self.schedule.config().class_weights;
                let interactive = words.get("interactive").unwrap_or(weights.interactive);
                let batch = words.get("batch").unwrap_or(weights.batch);
                // Of none it is before all others.
                let express = words.keys.remove("express").map_or(weights.express, |weight| {
                    (weight != "none").then(|| weight.parse().unwrap())
                });
                let weights = ClassWeights { express, interactive, batch };
                let slices = self.schedule.config().class_slices;
                said = self.event(Event::Classes { weights, slices });
                words.done();
            }
            "slices" => {
                let ClassSlices { express, interactive, batch, standby } =
                    self.schedule.config().class_slices;
                let slices = ClassSlices {
                    express: words.get("express").unwrap_or(express),
                    interactive: words.get("interactive").unwrap_or(interactive),
                    batch: words.get("batch").unwrap_or(batch),
                    standby: words.get("standby").unwrap_or(standby),
                };
                let weights = self.schedule.config().class_weights;
                said = self.event(Event::Classes { weights, slices });
                words.done();
            }
            "load" => {
                let (threads, of_users) = (words.number(), words.of_users());
                said = self.event(Event::Load { threads, of_users });
            }
            "users" => {
                let sharing = match words.first {
                    "no" => Sharing::ByProgram,
                    _ => Sharing::ByUser(words.of_users()),
                };
                said = self.event(Event::Sharing(sharing));
            }
            "entries" | "then" => {
                let before = match command {
                    "then" => self.schedule.entries().lists().cloned().collect(),
                    _ => vec![],
                };
                let frame = words.get("frame").expect("frame=ROWS");
                let set = |text: &str| text.parse::<CpuSet>().expect("a list");
                let entry = |(job, entry): (&str, &str)| {
                    let (rows, cpus) = entry.split_once(':').expect("rows:CPUs");
                    Entry { job: self.job(job), rows: set(rows).iter().collect(), cpus: set(cpus) }
                };
                let from_slice = words.number().into();
                let entries = words.keys.into_iter().map(entry).collect();
                let list = EntryList { from_slice, frame, entries };
                said = match Entries::new(before.into_iter().chain([list])) {
                    Ok(entries) => self.event(Event::Entries(entries)),
                    Err(refusal) => format!("refused: {refusal}\n"),
                };
            }
            "caps" => said = self.event(Event::Caps(words.of_users())),
            "online" => {
                let online: CpuSet = words.first.parse().unwrap();
                let cpus = self.all.iter().copied().filter(|cpu| online.contains(cpu.id)).collect();
                said = self.event(Event::Topology(Topology::new(cpus).unwrap()));
            }
            "plan" => {
                for _ in 0..words.number() {
                    let plan = self.plan();
                    self.describe(&plan, &mut said);
                }
            }
            "count" if line.contains("users") => {
                let slices: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
                let mut cpus: BTreeMap<UserId, usize> = BTreeMap::new();
                let mut rest = 0;
                for _ in 0..slices {
                    let plan = self.plan();
                    for slot in &plan.row {
                        let user = self.schedule.spec(slot.job).unwrap().user;
                        *cpus.entry(user).or_default() += slot.cpus.len();
                    }
                    rest += plan.rest.len();
                }
                for (user, cpus) in cpus {
                    write!(said, "user {user} {cpus}, ").unwrap();
                }
                writeln!(said, "rest {rest}").unwrap();
            }
            "count" => {
                let mut slots: BTreeMap<JobId, u32> = BTreeMap::new();
                let mut turns = 0;
                for _ in 0..words.number() {
                    let plan = self.plan();
                    turns += u32::from(plan.rest_turn);
                    plan.row.iter().for_each(|slot| *slots.entry(slot.job).or_default() += 1);
                }
                for (job, slots) in slots {
                    write!(said, "{} {slots}, ", self.name(job)).unwrap();
                }
                writeln!(said, "rest {turns}").unwrap();
            }
            "skip" => self.slice += u64::from(words.number()),
            "amend" => match self.schedule.amend(self.last.as_ref().expect("a plan")) {
                Some(plan) => {
                    self.check(&plan);
                    self.describe(&plan, &mut said);
                    self.last = Some(plan);
                }
                None => said = "nothing to amend\n".to_owned(),
            },
            "share" => {
                let share = self.schedule.share_wanted(self.job(words.first));
                let share = share.map_or("none".to_owned(), |s| format!("{:.1} %", s * 100.0));
                writeln!(said, "{} {share}", words.first).unwrap();
            }
            other => panic!("no such command: {other}"),
        }
        said
    }

    fn machine(&mut self, mut words: Words) {
        let cpus = words.number();
        let cores = words.get("cores").unwrap_or(cpus);
        let caches = words.get("caches").unwrap_or(1);
        let nodes = words.get("nodes").unwrap_or(1);
        let mut config = Config::default();
        config.cap_permille = words.get("cap").unwrap_or(config.cap_permille);
        config.fill = words.keys.remove("fill") != Some("no");
        config.slice_ns =
            words.get("slice_ms").map_or(config.slice_ns, |ms| u64::from(ms) * 1_000_000);
        words.done();
        let cpu = |id| {
            let core = id % cores;
            Cpu { id, core, cache: core * caches / cores, node: core * nodes / cores }
        };
        let all: Vec<Cpu> = (0..cpus).map(cpu).collect();
        let schedule = Schedule::new(config, Topology::new(all.clone()).unwrap()).unwrap();
        *self = Session { all, schedule, ..Session::new() };
    }

    fn event(&mut self, event: Event) -> String {
        match self.schedule.apply(event) {
            Ok(()) => String::new(),
            Err(refusal) => format!("refused: {refusal}\n"),
        }
    }

    fn plan(&mut self) -> Plan {
        let plan = self.schedule.plan(self.slice);
        self.slice += 1;
        self.check(&plan);
        assert_eq!(self.frame.observe(&self.schedule, &plan), []);
        self.last = Some(plan.clone());
        plan
    }

    fn check(&self, plan: &Plan) {
        assert_eq!(check::plan(&self.schedule, plan), []);
    }

    fn describe(&self, plan: &Plan, said: &mut String) {
        write!(said, "{}:", plan.slice).unwrap();
        for slot in &plan.row {
            write!(said, " {} {},", self.name(slot.job), slot.cpus).unwrap();
        }
        let rest = if plan.rest.is_empty() { "-".to_owned() } else { plan.rest.to_string() };
        write!(said, " rest {rest}").unwrap();
        if plan.capped {
            write!(said, " by the cap").unwrap();
        } else if plan.rest_turn {
            write!(said, " leads").unwrap();
        }
        if !plan.fillers.is_empty() {
            write!(said, "; {} fill", self.list(&plan.fillers)).unwrap();
        }
        if !plan.paused.is_empty() {
            write!(said, "; {} paused", self.list(&plan.paused)).unwrap();
        }
        writeln!(said).unwrap();
    }
}

#[test]
fn scripts() {
    datadriven::walk("tests/scripts", |file| {
        let mut session = Session::new();
        file.run(|case| -> String {
            assert_eq!(case.directive, "run");
            let commands = case.input.lines().filter(|line| !line.trim().is_empty());
            commands.map(|line| session.command(line)).collect()
        });
    });
}
