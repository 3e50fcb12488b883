//! A job of policy `auto`, as its prover knows it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Result;
use gang_linux::Roots;
use gang_protocol::{
    client::{Client, Decision},
    name::escaped,
    v1::{self, Policy},
};

use super::{
    behaviour::{Behaviour, Competition},
    glances::Glances,
    ledger::Ledger,
    verdict::{Nature, PAIRS_MAX, Verdict, outdated, verdict},
};
use crate::{
    diagnosis::Diagnosis,
    observation::Observation,
    proof::{self, Pair, Seen, Subject, WARM_UP},
    pulse::Pulse,
    sampler::{Sampler, Ticks},
};

/// A job that has just begun reads its input, or waits for its threads.
const BEGINS: Duration = Duration::from_secs(1);

/// How long a glance is.
const GLANCE: Duration = Duration::from_millis(500);

/// When one that could not be measured is tried again.
const LATER: Duration = Duration::from_secs(10);

/// The surroundings of a job at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    /// It wants to run.
    pub is_awake: bool,
    pub gangs: usize,
    /// The length of a slice.
    pub slice: Duration,
    pub competition: Competition,
}

pub struct AutoJob {
    id: i64,
    pulse: Pulse,
    cpus: usize,
    cgroup: Option<PathBuf>,
    around: Around,
    stage: Stage,
    ledger: Ledger,
    lived: Duration,
    seen_at: Instant,
    /// Nothing is done before.
    not_before: Instant,
    /// The reason why nothing is decided: as last sent to the daemon, and as it is to be sent.
    sent_because: String,
    because: String,
}

enum Stage {
    /// It is compared, as far as this.
    Open {
        pairs: Vec<Pair>,
        usual: Policy,
    },
    Decided {
        policy: Policy,
        glances: Glances,
    },
}

impl AutoJob {
    pub fn new(job: &v1::Job, cost: f64, pulse: Pulse, now: Instant) -> AutoJob {
        AutoJob {
            id: job.id,
            pulse,
            cpus: usize::try_from(job.cpus).unwrap_or(1),
            cgroup: None,
            around: Around::default(),
            stage: Stage::Open {
                pairs: Vec::new(),
                usual: job.decided().cloned().unwrap_or(Policy::gang),
            },
            ledger: Ledger::new(cost),
            lived: Duration::ZERO,
            seen_at: now,
            not_before: now + BEGINS,
            sent_because: String::new(),
            because: String::new(),
        }
    }

    /// Takes note of it as it was listed.
    pub fn note(&mut self, job: &v1::Job, around: Around, now: Instant) {
        if self.around.is_awake && around.is_awake {
            self.lived += now.saturating_duration_since(self.seen_at);
        }
        if !around.is_awake {
            self.not_before = self.not_before.max(now + BEGINS);
        }
        self.seen_at = now;
        self.around = around;
        self.cgroup = job.cgroup.as_ref().map(PathBuf::from);
        self.cpus = usize::try_from(job.cpus).unwrap_or(1);
        if !matches!(self.stage, Stage::Open { .. }) || now < self.not_before {
            return;
        }
        if self.cgroup.is_none() {
            self.because =
                "it cannot be measured: it has no cgroup of its own, by which its threads are known"
                    .into();
        } else if !around.competition.is_tight {
            self.because = "nobody competes for its CPUs, so that there is nothing to gain".into();
        } else if !self.affords_a_pair() {
            self.because =
                "it is measured on when it has run for longer, so that this costs it little".into();
        }
    }

    pub fn pairs(&self) -> usize {
        match &self.stage {
            Stage::Open { pairs, .. } => pairs.len(),
            Stage::Decided { .. } => 0,
        }
    }

    fn is_there(&self) -> bool {
        let can_run = self.around.is_awake && self.cgroup.is_some();
        can_run && self.around.competition.is_tight && Instant::now() >= self.not_before
    }

    pub fn is_to_be_proved(&self) -> bool {
        matches!(self.stage, Stage::Open { .. }) && self.is_there() && self.affords_a_pair()
    }

    fn affords_a_pair(&self) -> bool {
        let Stage::Open { pairs, .. } = &self.stage else { return false };
        let cost_s = Ledger::BEGINNING_S + cost_s(pairs, self.period());
        self.ledger.affords(self.lived.as_secs_f64(), cost_s)
    }

    pub fn is_to_be_glanced_at(&self) -> bool {
        let Stage::Decided { glances, .. } = &self.stage else { return false };
        let cost_s = Ledger::watching_once(GLANCE.as_secs_f64());
        glances.is_due(&self.around.competition, Instant::now())
            && self.is_there()
            && self.ledger.affords(self.lived.as_secs_f64(), cost_s)
    }

    pub fn glanced_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Decided { glances, .. } => Some(glances.last()),
            Stage::Open { .. } => None,
        }
    }

    /// Reports to the daemon why nothing is decided, where the reason is another than before.
    pub fn send_because(&mut self, client: &mut Client) {
        let Stage::Open { usual, .. } = &self.stage else { return };
        if self.because == self.sent_because {
            return;
        }
        let policy = usual.clone();
        let because = self.because.clone();
        // Nothing is sent of a job that is gone; the listing says so.
        if client.decide(self.id, Decision { policy, decided: false, gain: None, because }).is_ok()
        {
            self.sent_because.clone_from(&self.because);
        }
    }

    /// The job could not be measured, or looked at: tried again later. The decision remains.
    pub fn put_off(&mut self, because: String) {
        self.not_before = Instant::now() + LATER;
        if let Stage::Decided { .. } = &self.stage {
            // Where the daemon's own messages go.
            eprintln!("gang doctor: job {} is not glanced at: {}", self.id, escaped(&because));
            return;
        }
        // The daemon takes no more of it.
        self.because = because.chars().filter(|it| !it.is_control()).take(200).collect();
    }

    fn period(&self) -> Duration {
        proof::shortest_period(self.around.slice, self.around.gangs)
    }

    /// Compares as long as it can be paid for and nothing is decided.
    pub fn prove(&mut self, roots: &Roots, client: &mut Client) -> Result<()> {
        let Stage::Open { usual, .. } = &self.stage else { return Ok(()) };
        let usual = usual.clone();
        self.pulse.at(Some(self.id))?;
        let mut tried = Tried { client: &mut *client, job: self.id, is_at: usual.clone() };
        let found = self.compare(roots, &mut tried);
        let decided = match found {
            Ok(Some(found)) => self.decide(tried.client, found).map(|()| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        if let Ok(true) = decided {
            // The job as it is now, for any outcome; its cgroup may be another one by the decision.
            std::thread::sleep(WARM_UP);
            self.cgroup = client.show_job(self.id)?.details.cgroup.map(PathBuf::from);
            return self.glance(roots);
        }
        // One that has ended needs it not.
        let restored = tried.back_to(usual);
        // The daemon has another policy for it meanwhile.
        self.sent_because.clear();
        decided?;
        restored
    }

    fn compare(&mut self, roots: &Roots, tried: &mut Tried<'_>) -> Result<Option<Verdict>> {
        let period = self.period();
        let Stage::Open { pairs, .. } = &mut self.stage else { return Ok(None) };
        let Some(cgroup) = &self.cgroup else { return Ok(None) };
        let sampler = Sampler::begin(roots, cgroup, self.cpus, Ticks::Many)?;
        let mut sampler = sampler.with_pulse(&self.pulse);
        self.ledger.began();
        let began = Instant::now();
        while self
            .ledger
            .affords((self.lived + began.elapsed()).as_secs_f64(), cost_s(pairs, period))
        {
            let pair_began = Instant::now();
            // Its own count is too coarse for periods as short as these.
            let Some(Seen { works: pair, .. }) =
                proof::pair(tried, &mut sampler, pairs.len(), period)?
            else {
                return Ok(None);
            };
            self.ledger.watched(pair_began.elapsed().as_secs_f64());
            let (better, worse) = (pair.gang.max(pair.linux), pair.gang.min(pair.linux));
            self.ledger.lost((period + WARM_UP).as_secs_f64(), better, worse);
            pairs.push(pair);
            let nature = nature(&sampler.observation()?, self.around.competition);
            if let Some(found) = verdict(pairs, nature) {
                match outdated(pairs) {
                    0 => return Ok(Some(found)),
                    first => drop(pairs.drain(..first)),
                }
            }
            if pairs.len() >= PAIRS_MAX {
                pairs.clear();
                self.because = "it did not compute while it was measured".into();
                self.not_before = Instant::now() + LATER;
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn decide(&mut self, client: &mut Client, found: Verdict) -> Result<()> {
        let gain = &found.gain;
        let gain =
            v1::Gain { gain: gain.gain, interval: gain.interval.map(|interval| interval.to_vec()) };
        let decision = Decision {
            policy: found.policy.clone(),
            decided: true,
            gain: Some(gain),
            because: found.because,
        };
        client.decide(self.id, decision)?;
        let glances = Glances::new(Instant::now());
        self.stage = Stage::Decided { policy: found.policy, glances };
        self.not_before = Instant::now() + BEGINS;
        Ok(())
    }

    /// Looks whether it behaves as it did when it was decided.
    pub fn glance(&mut self, roots: &Roots) -> Result<()> {
        let Some(cgroup) = &self.cgroup else { return Ok(()) };
        self.pulse.at(Some(self.id))?;
        let now = glance(roots, cgroup, self.cpus, self.around.competition)?;
        self.ledger.began();
        self.ledger.watched(GLANCE.as_secs_f64());
        let Stage::Decided { policy, glances } = &mut self.stage else { return Ok(()) };
        if let Some(what) = glances.saw(now, Instant::now()) {
            self.because = format!("it is measured again: {what}");
            self.stage = Stage::Open { pairs: Vec::new(), usual: policy.clone() };
        }
        Ok(())
    }
}

/// The cost of the next pair, at most.
fn cost_s(pairs: &[Pair], period: Duration) -> f64 {
    let each_s = (period + WARM_UP).as_secs_f64();
    let watching_s = Ledger::watching(2.0 * each_s);
    let lost = |pair: &Pair| {
        let better = pair.gang.max(pair.linux);
        if better > 0.0 { 1.0 - pair.gang.min(pair.linux) / better } else { 0.0 }
    };
    // Nothing is known yet: under plain Linux it may do nothing at all.
    let share = if pairs.len() < 2 { 1.0 } else { pairs.iter().map(lost).fold(0.0, f64::max) };
    each_s * share + watching_s
}

fn nature(seen: &Observation, competition: Competition) -> Nature {
    let diagnosis = Diagnosis::of(seen);
    let holds = |id| diagnosis.conditions.iter().find(|it| it.id == id).and_then(|it| it.holds);
    Nature {
        waits: holds("E1") == Some(true) && holds("E2") != Some(false),
        beside_gangs: competition.has_gangs,
    }
}

fn glance(
    roots: &Roots,
    cgroup: &Path,
    cpus: usize,
    competition: Competition,
) -> Result<Behaviour> {
    let mut sampler = Sampler::begin(roots, cgroup, cpus, Ticks::over(GLANCE))?;
    sampler.until(Instant::now() + GLANCE)?;
    Ok(Behaviour::of(&sampler.end()?.figures(), competition))
}

/// A job while it is compared.
struct Tried<'a> {
    client: &'a mut Client,
    job: i64,
    is_at: Policy,
}

impl Tried<'_> {
    fn back_to(&mut self, policy: Policy) -> Result<()> {
        if self.is_at != policy {
            let because = "it is being measured".to_owned();
            let decision = Decision { policy: policy.clone(), decided: false, gain: None, because };
            self.client.decide(self.job, decision)?;
            self.is_at = policy;
        }
        Ok(())
    }
}

impl Subject for Tried<'_> {
    fn schedule(&mut self, policy: Policy, sampler: &mut Sampler) -> Result<()> {
        self.back_to(policy)?;
        if let Some(cgroup) = self.client.show_job(self.job)?.details.cgroup {
            sampler.follow(Path::new(&cgroup))?;
        }
        Ok(())
    }
}
