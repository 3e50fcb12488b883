//! Attacks of a local user on the daemon, and on those with whom he shares the machine.
//!
//! Each attack is a function that does its worst over and over, on several threads of a process
//! without privilege, until that process ends. Its helpers end with it: the kernel kills a helper
//! when the thread that started it ends. Processes and memory of an attack are bounded, so that it
//! harms others by nothing but what the daemon does for it.

mod jobs;
mod programs;
mod requests;

use std::io::Write;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use gang_linux::child::ends_with_its_parent;
use gang_protocol::client::{Client, Registration};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{Uid, set_thread_res_uid};
use serde::{Deserialize, Serialize};

use super::When;
use super::window::{Phase, Window, now_ns, sleep_until_ns};

/// One way to attack.
pub struct Attack {
    pub name: &'static str,
    /// In a sentence.
    pub about: &'static str,
    /// Victims have all CPUs, or half of them: then one of the attacker's jobs shares rows with
    /// them.
    pub all_cpus: bool,
    /// Threads that do it.
    at_once: usize,
    /// They act as all numbers of the attacker in turn, for which its process is root's.
    pub as_many: bool,
    /// Done by each of them; after a refusal it begins again.
    act: fn(&Arc<Ground>) -> Result<()>,
}

const MANY: Attack =
    Attack { name: "", about: "", all_cpus: true, at_once: 64, as_many: false, act: |_| Ok(()) };

pub const ATTACKS: [Attack; 16] = [
    Attack {
        name: "connections",
        about: "It takes all connections that it gets, and tries for more.",
        at_once: 8,
        act: requests::connections,
        ..MANY
    },
    Attack {
        name: "lists",
        about: "It has as many empty jobs as it gets, and asks for the list of jobs all the time.",
        at_once: 32,
        act: requests::lists,
        ..MANY
    },
    Attack {
        name: "statuses",
        about: "It asks for the status all the time.",
        act: requests::statuses,
        ..MANY
    },
    Attack {
        name: "frames",
        about: "It asks for all rows that the daemon keeps, all the time.",
        act: requests::frames,
        ..MANY
    },
    Attack {
        name: "checks",
        about: "It has as many empty jobs as it gets, and invariants checked all the time.",
        at_once: 32,
        act: requests::checks,
        ..MANY
    },
    Attack {
        name: "deaf",
        about: "It asks for long answers and takes none of them.",
        at_once: 32,
        act: requests::deaf,
        ..MANY
    },
    Attack {
        name: "slow",
        about: "It sends its requests byte by byte.",
        act: requests::slow,
        ..MANY
    },
    Attack {
        name: "jobs",
        about: "It registers and ends jobs all the time, up to the limit.",
        at_once: 16,
        act: jobs::jobs,
        ..MANY
    },
    Attack {
        name: "numbers",
        about: "It has connections and jobs, each as another of its 65,536 numbers of a user.",
        at_once: 16,
        as_many: true,
        act: jobs::numbers,
        ..MANY
    },
    Attack {
        name: "memory",
        about: "It claims nearly all memory for jobs without processes, and waits for more.",
        act: jobs::memory,
        ..MANY
    },
    Attack {
        name: "signals",
        about: "It sends signals to jobs of many processes all the time.",
        at_once: 8,
        act: jobs::signals,
        ..MANY
    },
    Attack {
        name: "suspensions",
        about: "It suspends and resumes jobs, and has signals around their slots and has not, all \
                the time.",
        at_once: 8,
        act: jobs::suspensions,
        ..MANY
    },
    Attack {
        name: "policies",
        about: "It changes jobs that fork all the time from gang to none and back.",
        at_once: 8,
        act: jobs::policies,
        ..MANY
    },
    Attack {
        name: "threads",
        about: "It has a job of 4,000 threads that sleep, and one that computes.",
        at_once: 1,
        act: programs::threads,
        ..MANY
    },
    Attack {
        name: "forks",
        about: "It has jobs that fork all the time.",
        at_once: 4,
        act: programs::forks,
        ..MANY
    },
    Attack {
        name: "cpus",
        about: "Its threads, once in their slot, move to other CPUs than those of the slot.",
        all_cpus: false,
        at_once: 1,
        act: programs::cpus,
        ..MANY
    },
];

impl Attack {
    pub fn named(name: &str) -> Option<&'static Attack> {
        ATTACKS.iter().find(|attack| attack.name == name)
    }
}

/// The names of attacks as values of an option.
pub fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(ATTACKS.map(|it| PossibleValue::new(it.name).help(it.about)))
}

#[derive(Args, Debug, Clone)]
pub struct Attacker {
    /// The attack
    #[arg(value_parser = names())]
    pub name: String,
    /// Socket of the daemon
    #[arg(long)]
    pub socket: PathBuf,
    /// Processes and threads of its user in all
    #[arg(long, default_value_t = 6_000)]
    pub processes: u64,
    /// The first of the numbers of the attacker, where it acts as all of them
    #[arg(long, requires = "numbers")]
    pub first_number: Option<u32>,
    /// How many there are
    #[arg(long, requires = "first_number", value_parser = clap::value_parser!(u32).range(1..))]
    pub numbers: Option<u32>,
    #[command(flatten)]
    pub when: When,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttackOutcome {
    pub attack: String,
    /// Acts inside the window: answers that it got, jobs that it made.
    pub acts: u64,
    pub refused: u64,
}

/// Shared by the threads of an attack.
struct Ground {
    socket: PathBuf,
    cpus: usize,
    window: Window,
    acts: AtomicU64,
    refused: AtomicU64,
    numbers: Range<u32>,
    /// Of these, in turn.
    next_number: AtomicU32,
}

/// Memory that one process of the attacker may have.
const MEMORY_BYTES: u64 = 512 << 20;
const STACK_BYTES: usize = 256 << 10;
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(1);

impl Attacker {
    /// Attacks from now on, until the window is over.
    pub fn run(&self) -> Result<AttackOutcome> {
        let attack = Attack::named(&self.name).context("there is no such attack")?;
        for (resource, most) in
            [(Resource::Nproc, self.processes), (Resource::Data, MEMORY_BYTES), (Resource::Core, 0)]
        {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            setrlimit(resource, limit).with_context(|| format!("limiting {resource:?}"))?;
        }
        let window = self.when.window()?;
        let cpus = std::thread::available_parallelism().context("counting CPUs")?.get();
        let socket = self.socket.clone();
        let first = self.first_number.unwrap_or_default();
        let numbers = first..first.saturating_add(self.numbers.unwrap_or_default());
        let (acts, refused, next_number) = Default::default();
        let ground = Ground { socket, cpus, window, acts, refused, numbers, next_number };
        let ground = Arc::new(ground);
        for _ in 0..attack.at_once {
            let ground = Arc::clone(&ground);
            let act = move || {
                loop {
                    if (attack.act)(&ground).is_err() {
                        ground.count(&ground.refused, 1);
                        std::thread::sleep(PAUSE);
                    }
                }
            };
            on_a_thread(act)?;
        }
        // Threads that wait for answers, and their helpers, end with this process.
        sleep_until_ns(window.end_ns);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (acts, refused) = (read(&ground.acts), read(&ground.refused));
        Ok(AttackOutcome { attack: self.name.clone(), acts, refused })
    }
}

/// It lives for as long as the process: with a thread that started them end its helpers.
fn on_a_thread(act: impl FnOnce() + Send + 'static) -> Result<()> {
    let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
    builder.spawn(act).context("starting a thread of the attack")?;
    Ok(())
}

impl Ground {
    fn count(&self, which: &AtomicU64, acts: u64) {
        if self.window.phase(now_ns()) == Phase::Inside {
            which.fetch_add(acts, Ordering::Relaxed);
        }
    }

    fn did(&self, acts: u64) {
        self.count(&self.acts, acts);
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.socket)?)
    }

    /// A client as the next number of the attacker: the kernel names the effective one of the
    /// thread that connects.
    fn client_as_next(&self) -> Result<Client> {
        let turn = self.next_number.fetch_add(1, Ordering::Relaxed);
        let turn = turn.checked_rem(self.numbers.len() as u32).context("it has no numbers")?;
        set_effective(self.numbers.start + turn)?;
        let client = self.client();
        set_effective(0)?;
        client
    }

    /// A connection that keeps to none of a client's manners.
    fn connect(&self) -> Result<UnixStream> {
        let connection = UnixStream::connect(&self.socket).context("connecting to gangd")?;
        connection.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(connection)
    }

    fn send(&self, connection: &mut UnixStream, request: &[u8]) -> Result<()> {
        connection.write_all(request).context("writing to gangd")
    }

    /// A job of this helper, for as long as it lives.
    fn job(&self, client: &mut Client, cpus: usize, helper: &Helper) -> Result<i64> {
        let job = client.register(&Registration::new("attack", cpus as i64))?;
        client.add_process(job, helper.0.id().into())?;
        Ok(job)
    }
}

/// The effective user of this thread alone.
fn set_effective(uid: u32) -> Result<()> {
    set_thread_res_uid(None, Uid::from_raw(uid), None).context("acting as another user")
}

/// A program that ends with the thread that started it.
struct Helper(Child);

impl Helper {
    fn start(command: &mut Command) -> Result<Helper> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = ends_with_its_parent(command).spawn();
        child.map(Helper).with_context(|| format!("starting {command:?}"))
    }

    /// A workload of the lab, which runs until it is killed.
    fn workload(arguments: &[&str]) -> Result<Helper> {
        let lab = std::env::current_exe().context("finding this program's own path")?;
        let mut command = Command::new(lab);
        command.arg("workload").args(arguments).args(["--seconds", "3000"]);
        Helper::start(&mut command)
    }

    /// A shell that forks all the time. Its children end by themselves, each at once.
    fn forking() -> Result<Helper> {
        let forks = "while :; do (: & : & :) & (: & : & :) & (: & : & :) & wait; done";
        Helper::start(Command::new("sh").args(["-c", forks]))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_attack_has_a_name_and_a_sentence() {
        let names: BTreeSet<&str> = ATTACKS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        for attack in &ATTACKS {
            assert!(attack.about.ends_with('.') && attack.at_once > 0, "{}", attack.name);
            assert!(Attack::named(attack.name).is_some());
        }
    }
}
