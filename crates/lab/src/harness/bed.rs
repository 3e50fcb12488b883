//! Hosts of a cluster on this machine, each with CPUs and a daemon of its own, and etcd on
//! loopback.
//!
//! etcd stands for other machines. So it runs before the gangs, as the lab does while it measures,
//! and behind all that switches them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gang_linux::child::ends_with_its_parent;
use gang_linux::sched::{self, Attributes};
use gang_protocol::client::{Client, Registration};
use gang_protocol::error::ClientError;
use gang_protocol::v1;
use tempfile::TempDir;

use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions, runtime_dir};
use crate::harness::host::{Host, HostSpec};
use crate::harness::lab::Lab;
use crate::harness::machine::allowed_cpus;
use crate::harness::samples::Sample;
use crate::harness::users::needs_root;
use crate::harness::wait;

const CLUSTER: &str = "lab";
/// Above gangs, below the daemons' own threads.
const PRIORITY: u32 = 2;
/// etcd takes a second to start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for shares to become what weights give. Loads are looked at every 10 s.
const SHARES_LIMIT: Duration = Duration::from_secs(30);
/// Daemons answer within an allowance, from which looks take.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// A program that computes on one thread, and ends by itself once it has had so much CPU time.
const LOOP: &str = "ulimit -t 900; while :; do :; done";

/// Says what the experiment needs and this machine does not have.
pub fn needs() -> Result<()> {
    needs_root("it runs daemons in mount namespaces, and gangs as real-time threads")?;
    let version = Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    let has_etcd = version.is_ok_and(|status| status.success());
    ensure!(has_etcd, "there is no etcd, in which hosts agree: install etcd-server");
    for program in ["unshare", "taskset", "chrt"] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        ensure!(version.is_ok(), "there is no {program}: install util-linux");
    }
    Ok(())
}

/// Two hosts of one CPU each.
pub fn two_hosts() -> Result<Vec<HostSpec>> {
    let cpus = allowed_cpus()?;
    let specs = HostSpec::several(2, 1, &cpus);
    specs.with_context(|| format!("each of two hosts needs a CPU, and there is {}", cpus.len()))
}

/// The hosts of a bed, and how their daemons are started.
#[derive(Default)]
pub struct BedSettings {
    pub specs: Vec<HostSpec>,
    /// Of each of them, but for the host.
    pub daemon: DaemonOptions,
    /// How far the last host reads the clock ahead.
    pub clock_error: Duration,
}

impl BedSettings {
    pub fn two_hosts() -> Result<BedSettings> {
        Ok(BedSettings { specs: two_hosts()?, ..BedSettings::default() })
    }
}

/// etcd, with a directory of its own. It ends when this is dropped, and with the lab.
pub struct Etcd {
    child: Child,
    dir: PathBuf,
    /// For clients, and for other members, of which there are none.
    ports: [u16; 2],
}

impl Etcd {
    fn start(dir: PathBuf) -> Result<Etcd> {
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let ports = [free_port()?, free_port()?];
        Ok(Etcd { child: spawn(&dir, ports)?, dir, ports })
    }

    fn url(&self) -> String {
        url(self.ports[0])
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again after that, with what it has on file.
    pub fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&self.dir, self.ports)?;
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(dir: &Path, [client, peer]: [u16; 2]) -> Result<Child> {
    let log = File::options().create(true).append(true).open(dir.join("log"));
    let log = log.context("making a log for etcd")?;
    let (client, peer) = (url(client), url(peer));
    let mut command = Command::new("chrt");
    command.args(["-f", &PRIORITY.to_string(), "etcd", "--name", "one", "--log-level", "error"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}")]);
    command.arg("--data-dir").arg(dir.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    ends_with_its_parent(&mut command).spawn().context("starting etcd")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}

/// As long as it is there, the lab's main thread comes before gangs, and what it starts does not.
pub struct Ahead(Attributes);

impl Ahead {
    pub fn of_gangs() -> Result<Ahead> {
        let before = sched::get(0).context("asking how the lab is scheduled")?;
        sched::become_fifo(PRIORITY)?;
        Ok(Ahead(before))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // It may lower itself in any case.
        let _ = sched::set(0, &self.0);
    }
}

/// A program that computes; it is killed when this is dropped.
pub struct Loop(Child);

impl Loop {
    fn pid(&self) -> i64 {
        self.0.id().into()
    }

    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A job with a process on each of its hosts.
pub struct Job {
    pub id: i64,
    pub loops: Vec<Loop>,
}

/// The cluster. Its fields end in their order: daemons release jobs before etcd ends.
pub struct Bed {
    pub daemons: Vec<Daemon>,
    hosts: Vec<Host>,
    pub etcd: Etcd,
    dir: TempDir,
}

impl Bed {
    /// Starts etcd and the daemons, and waits until each follows the cluster.
    pub fn start(lab: &Lab, settings: &BedSettings) -> Result<Bed> {
        let dir = runtime_dir().context("making a directory for etcd")?;
        let etcd = Etcd::start(dir.path().join("etcd"))?;
        let last = settings.specs.len().saturating_sub(1);
        let host = |(number, spec): (usize, &HostSpec)| Host {
            cluster: CLUSTER.into(),
            spec: spec.clone(),
            etcd: etcd.url(),
            clock_error: if number == last { settings.clock_error } else { Duration::ZERO },
        };
        let hosts: Vec<Host> = settings.specs.iter().enumerate().map(host).collect();
        let config = dir.path().join("gangd.toml");
        fs::write(&config, hosts[0].configuration()).context("writing a configuration")?;
        let end = Instant::now() + START_LIMIT;
        loop {
            let mut command = Command::new(lab.programs.gang()?);
            command.args(["cluster", "init", "--config"]).arg(&config);
            match Running::start(&mut command)?.finish(end) {
                Ok(_) => break,
                Err(error) if Instant::now() >= end => {
                    return Err(error).with_context(|| format!("etcd: {}", etcd.log()));
                }
                Err(_) => std::thread::sleep(BETWEEN_LOOKS),
            }
        }
        let options = |host: &Host| {
            lab.settings(DaemonOptions { host: Some(host.clone()), ..settings.daemon.clone() })
        };
        let daemons: Vec<Daemon> =
            hosts.iter().map(|host| lab.daemon(&options(host))).collect::<Result<_>>()?;
        let bed = Bed { daemons, hosts, etcd, dir };
        wait_until("each host follows the cluster", || {
            let follows = |host: &v1::Host| host.is_alive && host.unwilling.is_none();
            let all = bed.each().map(|host| bed.cluster(host));
            let all: Vec<v1::Cluster> = all.collect::<Result<_>>()?;
            let hosts = bed.hosts.len();
            Ok(all.iter().all(|it| it.hosts.len() == hosts && it.hosts.iter().all(follows)))
        })?;
        Ok(bed)
    }

    /// A directory that ends with this.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn specs(&self) -> impl Iterator<Item = &HostSpec> {
        self.hosts.iter().map(|host| &host.spec)
    }

    /// The hosts by their numbers.
    pub fn each(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    pub fn client(&self, host: usize) -> Result<Client> {
        Ok(Client::connect(self.daemons[host].socket())?)
    }

    pub fn cluster(&self, host: usize) -> Result<v1::Cluster> {
        self.client(host)?.cluster()?.context("gangd says that it is in no cluster")
    }

    /// Starts a program on the CPUs of a host.
    fn compute(&self, host: usize) -> Result<Loop> {
        let mut command = self.hosts[host].spec.program("sh");
        command.args(["-c", LOOP]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Loop(ends_with_its_parent(&mut command).spawn().context("starting a program")?))
    }

    pub fn compute_on_all(&self) -> Result<Vec<Loop>> {
        self.each().map(|host| self.compute(host)).collect()
    }

    /// A job of one host, for each host.
    pub fn local_jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for (host, of) in self.compute_on_all()?.into_iter().enumerate() {
            let mut client = self.client(host)?;
            let id = client.register(&Registration::new("local", 1))?;
            client.add_process(id, of.pid())?;
            jobs.push(Job { id, loops: vec![of] });
        }
        wait_until("each host has a job of its own", || {
            let cluster = self.cluster(0)?;
            Ok(cluster.hosts.iter().all(|host| host.threads >= Some(1)))
        })?;
        Ok(jobs)
    }

    /// A job of all hosts, once it has had slots on each of them.
    pub fn spanning_job(&self, name: &str) -> Result<Job> {
        let loops = self.compute_on_all()?;
        let mut clients = self.clients()?;
        let id = clients[0].register_spanning(self.spanning(name, 100))?.job;
        fill(&mut clients, id, &loops)?;
        wait_until("a spanning job has slots on each host", || {
            let slots = self.each().map(|host| Ok(self.client(host)?.show_job(id)?));
            let slots: Vec<v1::ShowJob_Reply> = slots.collect::<Result<_>>()?;
            Ok(slots.iter().all(|it| it.details.slots > 0))
        })?;
        Ok(Job { id, loops })
    }

    /// The registration of a job with all CPUs of all hosts.
    pub fn spanning(&self, name: &str, weight: i64) -> v1::RegisterSpanning_Args {
        let cpus = self.specs().map(|spec| {
            let (host, cpus) = (spec.name.clone(), spec.cpus.len() as i64);
            v1::HostCpus { host, cpus, ranks: None, allowed: None }
        });
        v1::RegisterSpanning_Args {
            name: name.into(),
            cpus: cpus.collect(),
            class: v1::Class::batch,
            weight,
            on_host_lost: v1::OnHostLost::mark,
            owner_uid: None,
            launched_as: None,
        }
    }

    /// A connection to each host, which has accepted it.
    pub fn clients(&self) -> Result<Vec<Client>> {
        let client = |host: usize| {
            let mut client = self.client(host)?;
            client.get_caller()?;
            Ok(client)
        };
        self.each().map(client).collect()
    }

    /// Waits until spanning jobs have these parts of the frame; goes on where they do not come to
    /// that.
    pub fn until_shares(&self, share: f64) -> Result<()> {
        let end = Instant::now() + SHARES_LIMIT;
        loop {
            let cluster = self.cluster(0)?;
            let due = share * cluster.frame.context("etcd has no cluster")? as f64;
            let has = |job: &v1::SpanningJob| (job.rows.len() as f64 - due).abs() < 1.0;
            if cluster.jobs.iter().all(has) || Instant::now() >= end {
                // The last change holds within a second.
                std::thread::sleep(Duration::from_secs(1));
                return Ok(());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Waits until no host has a spanning job.
    pub fn until_over(&self) -> Result<()> {
        wait_until("the spanning job is over", || {
            let jobs = self.each().map(|host| Ok(self.client(host)?.list_jobs()?.jobs));
            let jobs: Vec<Vec<v1::Job>> = jobs.collect::<Result<_>>()?;
            let spans = |job: &v1::Job| job.name != "local";
            Ok(!jobs.iter().flatten().any(spans) && self.cluster(0)?.jobs.is_empty())
        })
    }

    /// A sample of all daemons, with what they know of their clock.
    pub fn sample(&self) -> Result<Sample> {
        let cluster = self.cluster(0)?;
        let clock = cluster.hosts.iter().find_map(|host| host.clock.as_ref());
        let clock = clock.context("no host knows how good its clock is")?;
        let (source, bound) = (&clock.source, Duration::from_nanos(clock.bound_ns as u64));
        let sentence = format!(
            "The hosts have one kernel and one clock, which {source} says is nearer to UTC than \
             {bound:?}."
        );
        let notes = vec![sentence];
        let daemons = self.daemons.iter().filter_map(Daemon::schedules_by).collect();
        Ok(Sample { daemons, notes, ..Sample::default() })
    }
}

/// Looks now and then until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait::wait_until(what, || {
        let is = is_so()?;
        if !is {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(is)
    })
}

/// Adds a program to each part of a job, on all hosts at once, as launchers do. A host that has not
/// read of the job is asked again.
pub fn fill(clients: &mut [Client], id: i64, loops: &[Loop]) -> Result<()> {
    let end = Instant::now() + START_LIMIT;
    let add = |client: &mut Client, pid: i64| loop {
        match client.add_process(id, pid) {
            Err(ClientError::NoSuchJob { .. }) if Instant::now() < end => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            added => break added,
        }
    };
    let add = &add;
    std::thread::scope(|scope| {
        let pairs = clients.iter_mut().zip(loops.iter().map(Loop::pid));
        let adding: Vec<_> =
            pairs.map(|(client, pid)| scope.spawn(move || add(client, pid))).collect();
        for added in adding {
            added.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(())
    })
}
