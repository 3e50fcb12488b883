//! A daemon for tests: answers every call, records it, and schedules nothing.

#![allow(dead_code, unused_imports, reason = "each test program uses its own part")]

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use gang_protocol::v1;
use gang_view::fixture;
use varlink::{ConnectionHandler, VarlinkService};

pub use gang_daemon::{Place, stderr, stdout};
pub use script::{gang_beside, write_script};

/// No thread has this number.
pub const NO_THREAD: i64 = i32::MAX as i64;

/// The answers of a fake daemon, and the requests to it.
#[derive(Clone)]
pub struct Fake {
    pub status: v1::Status,
    pub jobs: Vec<v1::Job>,
    /// Absent: it is in none.
    pub cluster: Option<v1::Cluster>,
    pub violations: Vec<v1::Violation>,
    /// Refuses whatever needs permission.
    pub refuses: bool,
    /// Takes no process into a job.
    pub refuses_processes: bool,
    /// Jobs stop, go on and end on request. Calls that only look on are not recorded.
    pub obeys: bool,
    /// Where it obeys: jobs by what became of them.
    pub fates: Arc<Mutex<BTreeMap<i64, v1::JobState>>>,
    pub ended: Arc<Mutex<BTreeSet<i64>>>,
    /// Seen through [`calls`](Self::calls).
    pub calls: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub fn new() -> Self {
        Self {
            status: status(),
            jobs: Vec::new(),
            cluster: None,
            violations: Vec::new(),
            refuses: false,
            refuses_processes: false,
            obeys: false,
            fates: Arc::default(),
            ended: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub fn with_jobs(jobs: Vec<v1::Job>) -> Self {
        Self { jobs, ..Self::new() }
    }

    /// A daemon of a user without privilege.
    pub fn of_signals() -> Self {
        let mut fake = Self::new();
        fake.status.backend = "signal".into();
        fake.status.guarantee = v1::Guarantee::paused;
        fake.status.backends[0].usable = false;
        fake.status.backends[0].reason = Some("this user has no CAP_SYS_NICE".into());
        fake
    }

    /// The calls that were made, in order, as `Method(arguments)`.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn record(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    /// The jobs that have not ended, as they are now.
    fn present(&self) -> Vec<v1::Job> {
        let (fates, ended) = (self.fates.lock().unwrap(), self.ended.lock().unwrap());
        let as_it_is = |job: &v1::Job| {
            let state = fates.get(&job.id).unwrap_or(&job.state).clone();
            v1::Job { state, ..job.clone() }
        };
        self.jobs.iter().filter(|job| !ended.contains(&job.id)).map(as_it_is).collect()
    }

    /// The rows of the jobs that are not suspended, which take turns.
    fn rows(&self, since_ns: Option<i64>) -> Vec<v1::Row> {
        let jobs = self.present();
        let active = |job: &&v1::Job| job.state != v1::JobState::suspended;
        let jobs: Vec<&v1::Job> = jobs.iter().filter(active).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let slice_ns = self.status.slice_ns;
        let now = now / slice_ns;
        let first = since_ns.map_or(now, |ns| (ns / slice_ns).clamp(now - 2048, now));
        let row = |slice: i64| {
            let job = jobs.get(usize::try_from(slice).unwrap().checked_rem(jobs.len())?)?;
            Some(v1::Row {
                slice,
                start_ns: slice * slice_ns,
                end_ns: (slice + 1) * slice_ns,
                slots: vec![v1::Slot { job: job.id, cpu_list: job.cpu_list.clone() }],
                rest_cpus: self.status.cpus - job.cpu_list.len() as i64,
                rest_turn: false,
                gap: None,
            })
        };
        (first..now + 32).filter_map(row).collect()
    }

    /// A place in which this fake listens.
    pub fn place(&self) -> Place {
        let place = Place::new();
        self.listen(&place.socket());
        place
    }

    /// Listens at `socket` until the test program ends.
    pub fn listen(&self, socket: &Path) {
        std::mem::forget(self.listen_for_now(socket));
    }

    /// Listens at `socket` until what is returned is dropped: then it hangs up on everybody.
    pub fn listen_for_now(&self, socket: &Path) -> Listening {
        let listener = UnixListener::bind(socket).unwrap();
        let streams = Arc::<Mutex<Option<Vec<UnixStream>>>>::new(Mutex::new(Some(Vec::new())));
        let listening = Listening { socket: socket.to_owned(), streams: streams.clone() };
        let fake = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                match &mut *streams.lock().unwrap() {
                    Some(streams) => streams.push(stream.try_clone().unwrap()),
                    None => return,
                }
                let fake = fake.clone();
                std::thread::spawn(move || {
                    let interfaces: Vec<Box<dyn varlink::Interface + Send + Sync>> =
                        vec![Box::new(v1::new(Box::new(fake)))];
                    let service =
                        VarlinkService::new("gangd", "fake", "0", "http://localhost", interfaces);
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let _ = service.handle(&mut reader, &mut &stream, None);
                });
            }
        });
        listening
    }
}

/// A fake that listens until this is dropped.
pub struct Listening {
    socket: PathBuf,
    streams: Arc<Mutex<Option<Vec<UnixStream>>>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let streams = self.streams.lock().unwrap().take().unwrap_or_default();
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        // Its thread wakes, and ends.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl v1::VarlinkInterface for Fake {
    fn register_spanning(
        &self,
        call: &mut dyn v1::Call_RegisterSpanning,
        name: String,
        cpus: Vec<v1::HostCpus>,
        _: v1::Class,
        _: i64,
        _: v1::OnHostLost,
        _: Option<i64>,
        _: Option<String>,
    ) -> varlink::Result<()> {
        self.record(format!("RegisterSpanning({name}, {} hosts)", cpus.len()));
        call.reply_failed("register a job of several hosts".into(), "it is in no cluster".into())
    }

    fn get_host(&self, call: &mut dyn v1::Call_GetHost) -> varlink::Result<()> {
        self.record("GetHost()".into());
        call.reply(None, None)
    }

    fn get_cluster(&self, call: &mut dyn v1::Call_GetCluster) -> varlink::Result<()> {
        if !self.obeys {
            self.record("GetCluster()".into());
        }
        call.reply(self.cluster.clone())
    }

    fn register(
        &self,
        call: &mut dyn v1::Call_Register,
        name: String,
        cpus: i64,
        min_cpus: i64,
        class: v1::Class,
        policy: v1::Policy,
        weight: i64,
        mem_bytes: Option<i64>,
        disk_bytes: Option<i64>,
        wait: Option<bool>,
        signals: Option<bool>,
    ) -> varlink::Result<()> {
        self.record(format!(
            "Register({name}, {cpus}, {min_cpus}, {class:?}, {policy:?}, {weight})"
        ));
        if mem_bytes.is_some() || disk_bytes.is_some() {
            self.record(format!("Needs({mem_bytes:?}, {disk_bytes:?}, {wait:?}, {signals:?})"));
        }
        if mem_bytes.is_some_and(|bytes| bytes >= 1 << 33) && wait != Some(true) {
            let wanted = mem_bytes.unwrap_or(0);
            return call.reply_not_enough("memory".into(), wanted, 1 << 32, 1 << 30, 1 << 34);
        }
        if self.refuses {
            let operation = "putting a job into express".into();
            return call.reply_not_permitted(operation, "you are no administrator".into());
        }
        call.reply(42)
    }

    fn add_process(
        &self,
        call: &mut dyn v1::Call_AddProcess,
        job: i64,
        pid: i64,
    ) -> varlink::Result<()> {
        self.record(format!("AddProcess({job}, {pid})"));
        if self.refuses_processes {
            return call.reply_no_such_process(pid);
        }
        call.reply()
    }

    fn adopt(
        &self,
        call: &mut dyn v1::Call_Adopt,
        name: String,
        cpus: i64,
        min_cpus: i64,
        _: v1::Class,
        _: v1::Policy,
        weight: i64,
        pid: Option<i64>,
        cgroup: Option<String>,
        mem_bytes: Option<i64>,
        disk_bytes: Option<i64>,
        signals: Option<bool>,
    ) -> varlink::Result<()> {
        let of = format!("{pid:?}, {cgroup:?}");
        self.record(format!("Adopt({name}, {cpus}, {min_cpus}, {weight}, {of})"));
        if mem_bytes.is_some() || disk_bytes.is_some() || signals == Some(true) {
            self.record(format!("Needs({mem_bytes:?}, {disk_bytes:?}, {signals:?})"));
        }
        match cgroup {
            Some(cgroup) if cgroup.contains("missing") => call.reply_no_such_cgroup(cgroup),
            _ => call.reply(7, 3),
        }
    }

    fn add_caller(&self, call: &mut dyn v1::Call_AddCaller, job: i64) -> varlink::Result<()> {
        self.record(format!("AddCaller({job})"));
        match self.refuses_processes {
            true => call.reply_no_such_process(1),
            false => call.reply(),
        }
    }

    fn get_caller(&self, call: &mut dyn v1::Call_GetCaller) -> varlink::Result<()> {
        self.record("GetCaller()".into());
        call.reply(None)
    }

    fn add_thread(
        &self,
        call: &mut dyn v1::Call_AddThread,
        job: i64,
        tid: i64,
    ) -> varlink::Result<()> {
        self.record(format!("AddThread({job}, {tid})"));
        match tid == NO_THREAD {
            true => call.reply_no_such_thread(tid),
            false => call.reply(),
        }
    }

    fn remove_thread(
        &self,
        call: &mut dyn v1::Call_RemoveThread,
        job: i64,
        tid: i64,
    ) -> varlink::Result<()> {
        self.record(format!("RemoveThread({job}, {tid})"));
        call.reply()
    }

    fn remove_process(
        &self,
        call: &mut dyn v1::Call_RemoveProcess,
        job: i64,
        pid: i64,
    ) -> varlink::Result<()> {
        self.record(format!("RemoveProcess({job}, {pid})"));
        call.reply()
    }

    fn set_job(
        &self,
        call: &mut dyn v1::Call_SetJob,
        job: i64,
        class: Option<v1::Class>,
        policy: Option<v1::Policy>,
        cpus: Option<i64>,
        min_cpus: Option<i64>,
        weight: Option<i64>,
        mem_bytes: Option<i64>,
        disk_bytes: Option<i64>,
    ) -> varlink::Result<()> {
        let said = [
            class.map(|class| format!(", class {class:?}")),
            policy.map(|policy| format!(", policy {policy:?}")),
            cpus.map(|cpus| format!(", cpus {cpus}")),
            min_cpus.map(|min_cpus| format!(", min_cpus {min_cpus}")),
            weight.map(|weight| format!(", weight {weight}")),
            mem_bytes.map(|bytes| format!(", mem_bytes {bytes}")),
            disk_bytes.map(|bytes| format!(", disk_bytes {bytes}")),
        ];
        self.record(format!("SetJob({job}{})", said.into_iter().flatten().collect::<String>()));
        if mem_bytes == Some(1 << 40) {
            return call.reply_not_enough("memory".into(), 1 << 40, 1 << 32, 1 << 30, 1 << 34);
        }
        call.reply()
    }

    fn list_jobs(&self, call: &mut dyn v1::Call_ListJobs) -> varlink::Result<()> {
        if !self.obeys {
            self.record("ListJobs()".into());
        }
        call.reply(self.present())
    }

    fn show_job(&self, call: &mut dyn v1::Call_ShowJob, job: i64) -> varlink::Result<()> {
        self.record(format!("ShowJob({job})"));
        let process = |pid, command: &str| {
            let command = command.into();
            v1::Process { pid, threads: 2, command, tids: None }
        };
        match self.present().iter().find(|known| known.id == job) {
            Some(known) => call.reply(
                known.clone(),
                Some(vec![process(100, "./lu.C -x"), process(101, "evil\u{1b}[2J\nname")]),
            ),
            None => call.reply_no_such_job(job),
        }
    }

    fn get_status(&self, call: &mut dyn v1::Call_GetStatus) -> varlink::Result<()> {
        if !self.obeys {
            self.record("GetStatus()".into());
        }
        call.reply(self.status.clone())
    }

    fn get_frame(
        &self,
        call: &mut dyn v1::Call_GetFrame,
        since_ns: Option<i64>,
    ) -> varlink::Result<()> {
        call.reply(self.rows(since_ns))
    }

    fn get_history(
        &self,
        call: &mut dyn v1::Call_GetHistory,
        limit: Option<i64>,
        owner_uid: Option<i64>,
        since_ns: Option<i64>,
    ) -> varlink::Result<()> {
        let since = if since_ns.is_some() { "since" } else { "ever" };
        self.record(format!("GetHistory({limit:?}, {owner_uid:?}, {since})"));
        let ended = |job: &v1::Job| v1::EndedJob {
            id: job.id,
            name: job.name.clone(),
            owner_uid: job.owner_uid,
            class: job.class.clone(),
            cpus: job.cpus,
            weight: job.weight,
            registered_at_ns: 1_763_700_000_000_000_000,
            ended_at_ns: 1_763_700_060_000_000_000,
            slots: job.slots,
            in_slot_ns: job.in_slot_ns,
            out_of_slot_ns: 3_000_000_000,
            slurm_job: None,
            cpu_time_ns: job.cpu_time_ns,
        };
        call.reply(self.jobs.iter().map(ended).collect())
    }

    fn set_slurm_job(
        &self,
        call: &mut dyn v1::Call_SetSlurmJob,
        pid: i64,
        slurm_job: String,
    ) -> varlink::Result<()> {
        self.record(format!("SetSlurmJob({pid}, {slurm_job})"));
        call.reply(1)
    }

    fn get_switches(&self, call: &mut dyn v1::Call_GetSwitches, _: i64) -> varlink::Result<()> {
        call.reply(Vec::new(), Vec::new())
    }

    fn get_net_key(&self, call: &mut dyn v1::Call_GetNetKey, _: i64) -> varlink::Result<()> {
        call.reply("00".repeat(16))
    }

    fn add_port(&self, call: &mut dyn v1::Call_AddPort, _: i64, _: i64) -> varlink::Result<()> {
        call.reply()
    }

    /// Job 3 stands still; the program of another one goes on, so that its contents are not there.
    fn get_snapshot(
        &self,
        call: &mut dyn v1::Call_GetSnapshot,
        job: i64,
        contents: bool,
    ) -> varlink::Result<()> {
        let is_still = job == 3;
        let in_channel = v1::InChannel {
            pid: 11,
            medium: "shm".into(),
            from: "12".into(),
            sequence: 7,
            bytes: "00ff".into(),
        };
        call.reply(v1::Snapshot {
            job,
            at_ns: 2_000_000_000,
            state: if is_still { v1::GlobalState::deadlocked } else { v1::GlobalState::running },
            since_ns: is_still.then_some(1_000_000_000),
            is_flushed: is_still,
            ports: Vec::new(),
            flushes: v1::Flushes {
                ports: 0,
                flushes: 4,
                failed: 1,
                flush_ns: 60_000,
                save_ns: 3_000,
                switch_ns: 3_000,
                longest_ns: 40_000,
            },
            contents: (contents && is_still).then(|| vec![in_channel]),
            not_there: (contents && !is_still).then(|| "messages went".into()),
        })
    }

    fn get_slot_page(&self, call: &mut dyn v1::Call_GetSlotPage, _: i64) -> varlink::Result<()> {
        call.reply("/nowhere".into())
    }

    fn set_signals(
        &self,
        call: &mut dyn v1::Call_SetSignals,
        job: i64,
        signals: bool,
    ) -> varlink::Result<()> {
        self.record(format!("SetSignals({job}, {signals})"));
        call.reply()
    }

    fn set_progress(
        &self,
        call: &mut dyn v1::Call_SetProgress,
        job: i64,
        done: f64,
        total: f64,
    ) -> varlink::Result<()> {
        self.record(format!("SetProgress({job}, {done}, {total})"));
        call.reply()
    }

    fn suspend(&self, call: &mut dyn v1::Call_Suspend, job: i64) -> varlink::Result<()> {
        self.record(format!("Suspend({job})"));
        if self.refuses {
            return call.reply_not_permitted("suspending job 3".into(), "it is root's".into());
        }
        if self.obeys {
            self.fates.lock().unwrap().insert(job, v1::JobState::suspended);
        }
        call.reply()
    }

    fn resume(&self, call: &mut dyn v1::Call_Resume, job: i64) -> varlink::Result<()> {
        self.record(format!("Resume({job})"));
        if self.obeys {
            self.fates.lock().unwrap().insert(job, v1::JobState::waiting);
        }
        call.reply()
    }

    fn kill(&self, call: &mut dyn v1::Call_Kill, job: i64, signal: i64) -> varlink::Result<()> {
        self.record(format!("Kill({job}, {signal})"));
        if self.obeys {
            self.ended.lock().unwrap().insert(job);
        }
        call.reply()
    }

    fn check(&self, call: &mut dyn v1::Call_Check) -> varlink::Result<()> {
        self.record("Check()".into());
        call.reply(6, self.violations.clone())
    }

    fn shutdown(&self, call: &mut dyn v1::Call_Shutdown) -> varlink::Result<()> {
        self.record("Shutdown()".into());
        call.reply()
    }

    fn call_upgraded(
        &self,
        _: &mut varlink::Call,
        _: &mut dyn BufRead,
    ) -> varlink::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

/// A job that is suspended, with all that a listing can show of one.
pub fn job(id: i64, name: &str) -> v1::Job {
    v1::Job {
        min_cpus: 1,
        state: v1::JobState::suspended,
        cgroup: Some(format!("/gangd/{id}")),
        processes: 2,
        threads: 4,
        share_had: 0.498,
        slots: 1234,
        in_slot_ns: 12_340_000_000,
        cpu_time_ns: 24_500_000_000,
        memory: Some(v1::Memory {
            promised_bytes: 4 << 30,
            used_bytes: Some(3 << 29),
            enforced: true,
        }),
        measured: Some(v1::Measured {
            coscheduled: Some(0.993),
            skew_ns_p99: Some(120_000),
            lost_ns: 61_000_000,
            filled_ns: 4_000_000,
            waiting_ns: 11_900_000_000,
            gave_way: 40,
            gave_way_ns: 80_000_000,
            slot_ns: 12_340_000_000,
            lost_to: Some(vec![v1::Culprit {
                name: "cc1\u{1b}".to_owned(),
                pid: 77,
                sched_policy: "other".to_owned(),
                ns: 60_000_000,
            }]),
            per_cpu: Some(vec![v1::OnCpu {
                cpu: 3,
                in_slot_ns: 6_170_000_000,
                lost_ns: 61_000_000,
                filled_ns: 4_000_000,
            }]),
        }),
        ..fixture::job(id, name)
    }
}

/// A daemon that cannot use one of its backends, and does not measure.
fn status() -> v1::Status {
    let phase = || v1::Phase { p50_ns: 12_300, p99_ns: 45_600, max_ns: 789_000 };
    let backend = |name: &str, guarantee, reason: Option<&str>| v1::Backend {
        name: name.into(),
        guarantee,
        usable: reason.is_none(),
        reason: reason.map(str::to_owned),
    };
    v1::Status {
        backends: vec![
            backend("rt", v1::Guarantee::exclusive, None),
            backend("weight", v1::Guarantee::preferred, Some("no cpu controller in cgroup v2")),
            backend("signal", v1::Guarantee::paused, None),
        ],
        jobs: 1,
        unregistered_threads: 0,
        switches: v1::Switches {
            count: 5000,
            late: phase(),
            lower: phase(),
            raise: phase(),
            skew: phase(),
            late_plans: 3,
            ran_out: 0,
        },
        measuring: v1::Measuring::no,
        not_measured: Some("it takes root, or CAP_BPF and CAP_PERFMON".into()),
        not_proved: Some("it takes root, or CAP_BPF and CAP_PERFMON".into()),
        working_hours: Some(true),
        ..fixture::status()
    }
}
