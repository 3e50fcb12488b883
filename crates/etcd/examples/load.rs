//! The load that a cluster puts on etcd: hosts that watch the registry and keep their leases, while
//! jobs come and go.
//!
//! `cargo run --release -p gang-etcd --example load -- 1000` starts a real etcd on loopback and
//! prints what it and each host had to do; first with one host, for comparison.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etcd_client::{Client, PutOptions, WatchOptions};
use gang_cluster::change::{Inputs, Wish, draft};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::record::{
    Alive, Clock, ClusterSettings, Host, Job, OnHostLost, Owner, Users, encode, numbers,
};
use gang_cluster::store::Op;
use gang_cluster::view::View;
use gang_etcd::{Address, KEEP_ALIVE, TTL_S, commit, init, read};
use tokio::task::JoinSet;

/// Changes in a second: each places a job or removes one.
const CHANGES_PER_S: u64 = 10;
/// So long is measured.
const LENGTH: Duration = Duration::from_secs(20);
/// Jobs that are there before.
const JOBS: u64 = 100;
const CPUS: u32 = 64;
/// The p99 of the watch lag of all hosts is to be that of one host so many times at most.
const LAG_TIMES_MAX: u32 = 5;

type Any = Box<dyn std::error::Error + Send + Sync>;

struct Etcd(Child, #[expect(dead_code, reason = "it goes with etcd")] tempfile::TempDir);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Etcd {
    fn start() -> Result<(Etcd, Address), Any> {
        let free = || std::net::TcpListener::bind("127.0.0.1:0")?.local_addr();
        let [client, peer] = [free()?, free()?].map(|at| format!("http://{at}"));
        let folder = tempfile::TempDir::new()?;
        let child = Command::new("etcd")
            .args(["--name", "one", "--log-level", "error", "--initial-cluster"])
            .arg(format!("one={peer}"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .arg("--data-dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok((Etcd(child, folder), Address { endpoints: vec![client], ..Address::default() }))
    }

    /// CPU time so far.
    fn used(&self) -> Result<Duration, Any> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after = stat.rsplit(')').next().unwrap_or_default();
        // utime and stime (proc(5)).
        let ticks: u64 =
            after.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum();
        Ok(Duration::from_millis(10 * ticks))
    }
}

/// The bytes and delays that all hosts saw together.
#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    lags: Mutex<Vec<Duration>>,
}

/// One host: it watches, keeps its lease and says that it is alive.
async fn host(
    address: Address,
    keys: Keys,
    name: String,
    sent: Arc<Mutex<BTreeMap<i64, Instant>>>,
    seen: Arc<Seen>,
) -> Result<(), Any> {
    let mut client = address.connect().await?;
    let lease = client.lease_grant(TTL_S, None).await?.id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await?;
    announce(&mut client, &keys, &name, lease).await?;
    let options = WatchOptions::new().with_prefix();
    let mut watch = client.watch(keys.registry(), Some(options)).await?;
    let mut keep = tokio::time::interval(KEEP_ALIVE);
    let mut say = tokio::time::interval(Duration::from_secs(10));
    loop {
        tokio::select! {
            message = watch.message() => {
                let Some(message) = message? else { return Ok(()) };
                let kvs = message.events().iter().filter_map(|event| event.kv());
                let bytes: usize = kvs.clone().map(|kv| kv.key().len() + kv.value().len()).sum();
                seen.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                let last = kvs.map(|kv| kv.mod_revision()).max();
                let at = last.and_then(|last| sent.lock().unwrap().get(&last).copied());
                seen.lags.lock().unwrap().extend(at.map(|at| at.elapsed()));
            }
            _ = kept.message() => {}
            _ = keep.tick() => keeper.keep_alive().await?,
            _ = say.tick() => announce(&mut client, &keys, &name, lease).await?,
        }
    }
}

fn alive() -> Alive {
    Alive {
        clock: Clock { source: "chrony".to_owned(), offset_ns: 0, bound_ns: 100_000 },
        ..Alive::default()
    }
}

async fn announce(client: &mut Client, keys: &Keys, name: &str, lease: i64) -> Result<(), Any> {
    let options = PutOptions::new().with_lease(lease);
    client.put(keys.alive(name), encode(alive()), Some(options)).await?;
    Ok(())
}

fn job(number: u64, hosts: u64) -> Job {
    let (on, first) = ((2 << (number % 5)).min(hosts), number * 7_919 % hosts);
    let cpus = 1 << (number * 5 % 6);
    Job {
        name: format!("job {number}"),
        owner: Owner { uid: 1_000, name: "ada".to_owned(), by_root: false, payer: None },
        class: "batch".to_owned(),
        weight: 100,
        cpus: (0..on).map(|at| (format!("host{}", (first + at) % hosts), cpus)).collect(),
        allowed: BTreeMap::new(),
        ranks: BTreeMap::new(),
        launched_as: None,
        on_host_lost: OnHostLost::Mark,
        registered_at_ns: 0,
        nonce: format!("job {number}"),
    }
}

/// Grants a wish of host 0, and reads what that changed.
async fn grant(
    client: &mut Client,
    view: &mut View,
    alive: &BTreeMap<String, Alive>,
    wish: &Wish,
) -> Result<(i64, Instant, Duration), Any> {
    let began = Instant::now();
    let lost = Default::default();
    let from = Inputs { view, alive, lost: &lost, host: "host0", machine: "m", now_ns: 0 };
    let txn = draft(from, wish)?.txn;
    let drafted = began.elapsed();
    let sent = Instant::now();
    let gang_cluster::store::Outcome::Committed(revision) = commit(client, &txn, 0).await? else {
        return Err("another host was first".into());
    };
    let event = |op: &Op| match op {
        Op::Put { key, value, .. } => (key.clone(), Some(value.clone())),
        Op::Delete { key } => (key.clone(), None),
    };
    let events: Vec<_> = txn.ops.iter().map(event).collect();
    let events = events.into_iter().map(|(key, value)| gang_cluster::store::Event { key, value });
    view.follow(revision, &events.collect::<Vec<_>>());
    Ok((revision as i64, sent, drafted))
}

/// The p99 of the time from a change to a host that hears of it, where so many hosts watch.
async fn measure(hosts: u64, watching: u64) -> Result<Duration, Any> {
    let (etcd, address) = Etcd::start()?;
    let keys = Keys::new("load").ok_or("a name")?;
    let settings = ClusterSettings {
        id: "load".to_owned(),
        slice_ns: 20_000_000,
        rows: 128,
        by_program: true,
        users: Users::Name,
        lost_after_ms: 30_000,
    };
    while init(&address, &keys, &settings).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut client = address.connect().await?;
    for number in 0..hosts {
        let (machine, boot) = ("m".to_owned(), String::new());
        let record =
            Host { number: number as u32, cpus: CPUS, numbers: numbers(0..CPUS), machine, boot };
        let key = keys.of(&Key::Host(format!("host{number}")));
        client.put(key, encode(record), None).await?;
    }
    let all: BTreeMap<String, Alive> =
        (0..hosts).map(|number| (format!("host{number}"), alive())).collect();
    let mut view = View::new(keys.clone());
    view.read(&read(&mut client, &keys, view.bound()).await?);
    for number in 0..JOBS {
        grant(&mut client, &mut view, &all, &Wish::Register(job(number, hosts))).await?;
    }
    let (sent, seen) = (Arc::default(), Arc::new(Seen::default()));
    let mut tasks = JoinSet::new();
    for number in 0..watching {
        let (name, sent, seen) = (format!("host{number}"), Arc::clone(&sent), Arc::clone(&seen));
        tasks.spawn(host(address.clone(), keys.clone(), name, sent, seen));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    seen.bytes.store(0, Ordering::Relaxed);
    seen.lags.lock().unwrap().clear();
    let (began, used) = (Instant::now(), etcd.used()?);
    let mut every = tokio::time::interval(Duration::from_millis(1_000 / CHANGES_PER_S));
    let (mut number, mut drafts) = (JOBS, Vec::new());
    while began.elapsed() < LENGTH {
        every.tick().await;
        let ended = view.jobs().next().map(|(job, _, _)| Wish::Remove { job });
        let is_arrival = number % 2 == 0;
        let arrival = Wish::Register(job(number, hosts));
        let wish = ended.filter(|_| !is_arrival).unwrap_or(arrival);
        let (revision, at, took) = grant(&mut client, &mut view, &all, &wish).await?;
        sent.lock().unwrap().insert(revision, at);
        drafts.push(took);
        number += 1;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (length, used) = (began.elapsed(), etcd.used()? - used);
    let mut lags = std::mem::take(&mut *seen.lags.lock().unwrap());
    lags.sort_unstable();
    drafts.sort_unstable();
    let at = |of: &[Duration], part: f64| {
        let last = of.len().saturating_sub(1);
        of.get((last as f64 * part) as usize).copied().unwrap_or_default()
    };
    let bytes = seen.bytes.load(Ordering::Relaxed) as f64 / watching as f64 / length.as_secs_f64();
    println!(
        "{watching} of {hosts} hosts watch: etcd has {:.2} CPUs; each host reads {bytes:.0} bytes a \
         second; watch lag p50 {:.1?}, p99 {:.1?}; working a change out p50 {:.1?}, p99 {:.1?}",
        used.as_secs_f64() / length.as_secs_f64(),
        at(&lags, 0.5),
        at(&lags, 0.99),
        at(&drafts, 0.5),
        at(&drafts, 0.99),
    );
    tasks.shutdown().await;
    Ok(at(&lags, 0.99))
}

fn main() -> Result<(), Any> {
    let hosts = std::env::args().nth(1).map_or(Ok(1_000), |it| it.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (alone, together) = (measure(hosts, 1).await?, measure(hosts, hosts).await?);
        println!(
            "watch lag p99: {:.1} times that of one host; the bound is {LAG_TIMES_MAX}",
            together.as_secs_f64() / alone.as_secs_f64()
        );
        Ok(())
    })
}
