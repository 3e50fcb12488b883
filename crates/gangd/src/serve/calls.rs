//! The calls of the interfaces, each answered with what the method of the same name came to.

use gang_protocol::{
    auto1,
    v1::{self, VarlinkCallError},
};

use crate::{
    error::Error,
    life::auto::Decision,
    serve::session::{AutoSession, Session},
};

fn answer<C: VarlinkCallError + ?Sized, T>(
    call: &mut C,
    outcome: Result<T, Error>,
    reply: impl FnOnce(&mut C, T) -> varlink::Result<()>,
) -> varlink::Result<()> {
    match outcome {
        Ok(value) => reply(call, value),
        Err(error) => error.reply(call),
    }
}

impl v1::VarlinkInterface for Session {
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
        let wanted = v1::Register_Args {
            name,
            cpus,
            min_cpus,
            class,
            policy,
            weight,
            mem_bytes,
            disk_bytes,
            wait,
            signals,
        };
        answer(call, Session::register(self, wanted), |call, job| call.reply(job.0 as i64))
    }

    fn register_spanning(
        &self,
        call: &mut dyn v1::Call_RegisterSpanning,
        name: String,
        cpus: Vec<v1::HostCpus>,
        class: v1::Class,
        weight: i64,
        on_host_lost: v1::OnHostLost,
        owner_uid: Option<i64>,
        launched_as: Option<String>,
    ) -> varlink::Result<()> {
        let wanted = v1::RegisterSpanning_Args {
            name,
            cpus,
            class,
            weight,
            on_host_lost,
            owner_uid,
            launched_as,
        };
        let registered = Session::register_spanning(self, wanted);
        answer(call, registered, |call, (job, from_ns)| call.reply(job.0 as i64, from_ns as i64))
    }

    fn get_host(&self, call: &mut dyn v1::Call_GetHost) -> varlink::Result<()> {
        let (host, cluster) = self.own_host().unzip();
        call.reply(host, cluster)
    }

    fn get_cluster(&self, call: &mut dyn v1::Call_GetCluster) -> varlink::Result<()> {
        answer(call, self.cluster(), |call, cluster| call.reply(cluster))
    }

    fn add_process(
        &self,
        call: &mut dyn v1::Call_AddProcess,
        job: i64,
        pid: i64,
    ) -> varlink::Result<()> {
        answer(call, Session::add_process(self, job, pid), |call, ()| call.reply())
    }

    fn add_caller(&self, call: &mut dyn v1::Call_AddCaller, job: i64) -> varlink::Result<()> {
        answer(call, Session::add_caller(self, job), |call, ()| call.reply())
    }

    fn get_caller(&self, call: &mut dyn v1::Call_GetCaller) -> varlink::Result<()> {
        let job = Session::job_of_caller(self);
        answer(call, job, |call, job| call.reply(job.map(|job| job.0 as i64)))
    }

    fn adopt(
        &self,
        call: &mut dyn v1::Call_Adopt,
        name: String,
        cpus: i64,
        min_cpus: i64,
        class: v1::Class,
        policy: v1::Policy,
        weight: i64,
        pid: Option<i64>,
        cgroup: Option<String>,
        mem_bytes: Option<i64>,
        disk_bytes: Option<i64>,
        signals: Option<bool>,
    ) -> varlink::Result<()> {
        let wanted = v1::Adopt_Args {
            name,
            cpus,
            min_cpus,
            class,
            policy,
            weight,
            pid,
            cgroup,
            mem_bytes,
            disk_bytes,
            signals,
        };
        answer(call, Session::adopt(self, wanted), |call, (job, processes)| {
            call.reply(job.0 as i64, processes as i64)
        })
    }

    fn set_slurm_job(
        &self,
        call: &mut dyn v1::Call_SetSlurmJob,
        pid: i64,
        slurm_job: String,
    ) -> varlink::Result<()> {
        let set = Session::set_slurm_job(self, pid, &slurm_job);
        answer(call, set, |call, job| call.reply(job.0 as i64))
    }

    fn add_thread(
        &self,
        call: &mut dyn v1::Call_AddThread,
        job: i64,
        tid: i64,
    ) -> varlink::Result<()> {
        answer(call, Session::add_thread(self, job, tid), |call, ()| call.reply())
    }

    fn remove_thread(
        &self,
        call: &mut dyn v1::Call_RemoveThread,
        job: i64,
        tid: i64,
    ) -> varlink::Result<()> {
        answer(call, Session::remove_thread(self, job, tid), |call, ()| call.reply())
    }

    fn remove_process(
        &self,
        call: &mut dyn v1::Call_RemoveProcess,
        job: i64,
        pid: i64,
    ) -> varlink::Result<()> {
        answer(call, Session::remove_process(self, job, pid), |call, ()| call.reply())
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
        let asked =
            v1::SetJob_Args { job, class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes };
        answer(call, Session::set_job(self, asked), |call, ()| call.reply())
    }

    fn list_jobs(&self, call: &mut dyn v1::Call_ListJobs) -> varlink::Result<()> {
        answer(call, self.list(), |call, jobs| call.reply(jobs))
    }

    fn show_job(&self, call: &mut dyn v1::Call_ShowJob, job: i64) -> varlink::Result<()> {
        answer(call, self.show(job), |call, (details, processes)| call.reply(details, processes))
    }

    fn get_status(&self, call: &mut dyn v1::Call_GetStatus) -> varlink::Result<()> {
        answer(call, self.status(), |call, status| call.reply(status))
    }

    fn get_frame(
        &self,
        call: &mut dyn v1::Call_GetFrame,
        since_ns: Option<i64>,
    ) -> varlink::Result<()> {
        answer(call, self.frame(since_ns), |call, rows| call.reply(rows))
    }

    fn get_switches(
        &self,
        call: &mut dyn v1::Call_GetSwitches,
        since_ns: i64,
    ) -> varlink::Result<()> {
        let (switchers, switches) = self.switches(since_ns);
        call.reply(switchers, switches)
    }

    fn get_history(
        &self,
        call: &mut dyn v1::Call_GetHistory,
        limit: Option<i64>,
        owner_uid: Option<i64>,
        since_ns: Option<i64>,
    ) -> varlink::Result<()> {
        let ended = self.history(limit, owner_uid, since_ns);
        answer(call, ended, |call, jobs| call.reply(jobs))
    }

    fn get_slot_page(&self, call: &mut dyn v1::Call_GetSlotPage, job: i64) -> varlink::Result<()> {
        answer(call, self.slot_page(job), |call, path| call.reply(path))
    }

    fn get_net_key(&self, call: &mut dyn v1::Call_GetNetKey, job: i64) -> varlink::Result<()> {
        answer(call, self.net_key(job), |call, key| call.reply(key))
    }

    fn add_port(
        &self,
        call: &mut dyn v1::Call_AddPort,
        job: i64,
        page: i64,
    ) -> varlink::Result<()> {
        answer(call, Session::add_port(self, job, page), |call, ()| call.reply())
    }

    fn get_snapshot(
        &self,
        call: &mut dyn v1::Call_GetSnapshot,
        job: i64,
        contents: bool,
    ) -> varlink::Result<()> {
        answer(call, self.snapshot(job, contents), |call, snapshot| call.reply(snapshot))
    }

    fn set_signals(
        &self,
        call: &mut dyn v1::Call_SetSignals,
        job: i64,
        signals: bool,
    ) -> varlink::Result<()> {
        answer(call, Session::set_signals(self, job, signals), |call, ()| call.reply())
    }

    fn set_progress(
        &self,
        call: &mut dyn v1::Call_SetProgress,
        job: i64,
        done: f64,
        total: f64,
    ) -> varlink::Result<()> {
        answer(call, Session::set_progress(self, job, done, total), |call, ()| call.reply())
    }

    fn suspend(&self, call: &mut dyn v1::Call_Suspend, job: i64) -> varlink::Result<()> {
        answer(call, Session::suspend(self, job, true), |call, ()| call.reply())
    }

    fn resume(&self, call: &mut dyn v1::Call_Resume, job: i64) -> varlink::Result<()> {
        answer(call, Session::suspend(self, job, false), |call, ()| call.reply())
    }

    fn kill(&self, call: &mut dyn v1::Call_Kill, job: i64, signal: i64) -> varlink::Result<()> {
        answer(call, Session::kill(self, job, signal), |call, ()| call.reply())
    }

    fn check(&self, call: &mut dyn v1::Call_Check) -> varlink::Result<()> {
        answer(call, Session::check(self), |call, (checked, violations)| {
            call.reply(checked as i64, violations)
        })
    }

    fn shutdown(&self, call: &mut dyn v1::Call_Shutdown) -> varlink::Result<()> {
        answer(call, Session::shutdown(self), |call, ()| call.reply())
    }
}

impl auto1::VarlinkInterface for AutoSession {
    fn decide(
        &self,
        call: &mut dyn auto1::Call_Decide,
        job: i64,
        policy: auto1::Policy,
        decided: bool,
        gain: Option<auto1::Gain>,
        because: String,
    ) -> varlink::Result<()> {
        let decision = Decision::read(policy, decided, gain, because);
        match decision.and_then(|decision| AutoSession::decide(self, job, decision)) {
            Ok(()) => call.reply(),
            Err(error) => error.reply_auto(call),
        }
    }
}
