//! Gangs that arrive while others have all CPUs: how long each waits for its first slot.
//!
//! The watcher has to run at the moment at which a gang gets its slot, so it is to be started above
//! all gangs (`chrt -f`). It learns of the slot from the slot page.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use gang_linux::child::ends_with_its_parent;
use gang_protocol::client::{Client, Registration};
use gang_protocol::v1;
use serde::{Deserialize, Serialize};

/// Where the slot page says that the slot runs (`gang.h`).
const RUNNING_AT: u64 = 8;
const STEP: Duration = Duration::from_micros(50);
/// A gang without a slot by then is never given one.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Args, Debug, Clone)]
pub struct Arrivals {
    /// Socket of the daemon
    #[arg(long)]
    pub socket: PathBuf,
    #[arg(long, default_value_t = 200)]
    pub arrivals: usize,
    /// CPUs of each gang
    #[arg(long)]
    pub cpus: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArrivalsOutcome {
    /// One for each gang that came.
    pub waited: Vec<Wait>,
    pub slice_ns: u64,
}

/// How long a gang waited for its first moment in a slot.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Wait {
    /// From before it was registered.
    pub since_arrival_ns: u64,
    /// The part of it from before it got its process.
    pub since_process_ns: u64,
}

/// A program that uses CPU until it is killed, or its parent has ended.
struct Spinner(Child);

impl Spinner {
    fn start() -> Result<Spinner> {
        let program = std::env::current_exe().context("finding this program")?;
        let child = ends_with_its_parent(&mut Command::new("chrt"))
            .args(["-o", "0"])
            .arg(program)
            .args(["workload", "hog", "--threads", "1", "--seconds", "240"])
            .stdout(Stdio::null())
            .spawn()
            .context("starting a gang's process")?;
        Ok(Spinner(child))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Arrivals {
    pub fn run(&self) -> Result<ArrivalsOutcome> {
        let mut client = Client::connect(&self.socket)?;
        let slice_ns = client.status()?.status.slice_ns as u64;
        let mut random = fastrand::Rng::new();
        let waited = (0..self.arrivals).map(|_| {
            // Anywhere in a slice, as seldom as people start programs.
            std::thread::sleep(Duration::from_micros(random.u64(200_000..400_000)));
            self.arrive(&mut client)
        });
        Ok(ArrivalsOutcome { waited: waited.collect::<Result<_>>()?, slice_ns })
    }

    fn arrive(&self, client: &mut Client) -> Result<Wait> {
        let spinner = Spinner::start()?;
        let wanted = Registration {
            class: v1::Class::interactive,
            min_cpus: 1,
            ..Registration::new("arrival", self.cpus)
        };
        let arrived = Instant::now();
        let job = client.register(&wanted)?;
        let registering_ns = arrived.elapsed().as_nanos() as u64;
        // No part of an arrival: nobody but this watcher needs the page.
        let page = SlotPage::of(client, job)?;
        let began = Instant::now();
        // The slot may come before the answer.
        let watching = std::thread::spawn(move || first_slot(&page, began));
        client.add_process(job, spinner.0.id().into())?;
        let since_process_ns = watching.join().expect("watching a page does not panic")?;
        Ok(Wait { since_arrival_ns: registering_ns + since_process_ns, since_process_ns })
    }
}

/// The page of a job, in which its daemon says whether its slot runs.
pub struct SlotPage(File);

impl SlotPage {
    pub fn of(client: &mut Client, job: i64) -> Result<SlotPage> {
        let path = client.slot_page(job)?;
        let page = File::open(&path).with_context(|| format!("opening the slot page {path}"))?;
        Ok(SlotPage(page))
    }

    pub fn is_running(&self) -> Result<bool> {
        let mut running = [0; 4];
        self.0.read_exact_at(&mut running, RUNNING_AT).context("reading the slot page")?;
        Ok(running != [0; 4])
    }
}

/// How long it takes until a gang has its slot, in nanoseconds.
fn first_slot(page: &SlotPage, began: Instant) -> Result<u64> {
    loop {
        if page.is_running()? {
            return Ok(began.elapsed().as_nanos() as u64);
        }
        ensure!(began.elapsed() < LIMIT, "no slot within {LIMIT:?}");
        std::thread::sleep(STEP);
    }
}
