//! `gang adopt`: a job of what runs already.

use std::path::Path;

use anyhow::{Context, Result};
use gang_protocol::caller::Caller;
use gang_protocol::client::Adopted;
use gang_protocol::name::nearest_name;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use rustix::process::Pid;

use crate::cli::{Adopt, AdoptWhat};
use crate::commands::run::report_unproved;
use crate::connect::connect_or_start;
use crate::job_options::allowed_cpus;
use crate::show_values::count;

/// Where the hierarchy of cgroup v2 is mounted: beside v1 controllers, and alone.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

pub fn adopt(args: &Adopt, daemon: &Surroundings) -> Result<()> {
    if !args.what.threads.is_empty() {
        return adopt_threads(args, daemon);
    }
    let adopted = meant(&args.what)?;
    let (name, cpus) = defaults(&adopted)?;
    let job = args.job.registration(&name, cpus, owner_of(&adopted))?;
    let mut client = connect_or_start(daemon, None)?;
    let reply = client.adopt(&job, &adopted)?;
    if job.policy == v1::Policy::auto {
        report_unproved(&mut client)?;
    }
    println!("job {}: {}, {}", reply.job, job.name, count(reply.processes, "process"));
    Ok(())
}

/// All of them or none.
fn adopt_threads(args: &Adopt, daemon: &Surroundings) -> Result<()> {
    let tids = each_once(&args.what.threads);
    let (name, cpus) = defaults_of_threads(&tids)?;
    let job = args.job.registration(&name, cpus, how_scheduled(tids[0]))?;
    let mut client = connect_or_start(daemon, None)?;
    let id = client.register(&job)?;
    for (at, &tid) in tids.iter().enumerate() {
        if let Err(error) = client.add_thread(id, tid) {
            // The job ends with the last one. A thread that has ended meanwhile has left it
            // already.
            for &tid in &tids[..at] {
                let _ = client.remove_thread(id, tid);
            }
            return Err(error.into());
        }
    }
    if job.policy == v1::Policy::auto {
        report_unproved(&mut client)?;
    }
    println!("job {id}: {}, {}", job.name, count(tids.len() as i64, "single thread"));
    Ok(())
}

fn each_once(tids: &[i64]) -> Vec<i64> {
    let mut once = Vec::new();
    for tid in tids {
        if !once.contains(tid) {
            once.push(*tid);
        }
    }
    once
}

/// The default name and CPUs of a job of threads: the name of the first thread, and a CPU for each
/// thread, at most as many as the first may use.
fn defaults_of_threads(tids: &[i64]) -> Result<(String, i64)> {
    let (name, most) = defaults_of("thread", tids[0])?;
    Ok((name, most.min(tids.len() as i64)))
}

fn meant(what: &AdoptWhat) -> Result<Adopted> {
    match (what.pid, &what.cgroup) {
        (Some(pid), None) => Ok(Adopted::Process(pid)),
        (None, Some(path)) => Ok(Adopted::Cgroup(from_the_root(path))),
        _ => anyhow::bail!("exactly one of PID, --cgroup and --thread is needed"),
    }
}

/// How its owner has scheduled what is adopted: the process, or of a cgroup nobody in particular.
fn owner_of(adopted: &Adopted) -> Caller {
    match adopted {
        Adopted::Process(pid) => how_scheduled(*pid),
        Adopted::Cgroup(_) => Caller::default(),
    }
}

fn how_scheduled(id: i64) -> Caller {
    u32::try_from(id).map_or_else(|_| Caller::default(), Caller::of_task)
}

/// The path in the hierarchy, also of one given with its mount point.
fn from_the_root(path: &str) -> String {
    let inner = MOUNTS
        .iter()
        .find_map(|mount| path.strip_prefix(mount).filter(|rest| rest.starts_with('/')))
        .unwrap_or(path);
    format!("/{}", inner.trim_matches('/'))
}

/// Name and CPUs of a job for which none were asked: those of the process, or the name of the
/// cgroup and the CPUs of this program.
fn defaults(adopted: &Adopted) -> Result<(String, i64)> {
    match adopted {
        Adopted::Process(pid) => defaults_of("process", *pid),
        Adopted::Cgroup(path) => {
            let cpus = allowed_cpus(None).context("cannot ask which CPUs may be used")?;
            let base = Path::new(path).file_name().unwrap_or_default();
            Ok((nearest_name(&base.to_string_lossy(), "cgroup"), cpus))
        }
    }
}

/// The name of a process or thread, and the CPUs that it may use.
fn defaults_of(what: &str, id: i64) -> Result<(String, i64)> {
    let comm = std::fs::read(format!("/proc/{id}/comm"))
        .with_context(|| format!("cannot adopt {what} {id}: there is none"))?;
    let raw = i32::try_from(id).ok().and_then(Pid::from_raw);
    let cpus =
        allowed_cpus(raw).with_context(|| format!("cannot ask which CPUs {what} {id} may use"))?;
    Ok((nearest_name(String::from_utf8_lossy(&comm).trim_end(), "job"), cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_may_be_given_with_its_mount_point() {
        for given in ["/a/b", "a/b", "/a/b/", "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/unified/a/b"] {
            assert_eq!(from_the_root(given), "/a/b", "{given}");
        }
        assert_eq!(from_the_root("/sys/fs/cgroups"), "/sys/fs/cgroups");
    }

    #[test]
    fn a_process_gives_its_name_and_cpus() {
        let (name, cpus) = defaults(&Adopted::Process(std::process::id().into())).unwrap();
        assert!(!name.is_empty());
        assert!(cpus >= 1);
        let error = defaults(&Adopted::Process(i32::MAX.into())).unwrap_err();
        assert!(error.to_string().contains("there is none"), "{error:#}");
    }

    #[test]
    fn a_thread_gives_its_name_and_each_wants_a_cpu() {
        let own = i64::from(rustix::thread::gettid().as_raw_nonzero().get());
        let (name, cpus) = defaults_of_threads(&[own]).unwrap();
        assert!(!name.is_empty());
        assert_eq!(cpus, 1);
        let most = allowed_cpus(None).unwrap();
        assert_eq!(defaults_of_threads(&[own; 10_000]).unwrap().1, most);
        let error = defaults_of_threads(&[i32::MAX.into()]).unwrap_err();
        assert!(error.to_string().contains("thread 2147483647: there is none"), "{error:#}");
    }

    #[test]
    fn process_with_a_high_nice_value_is_a_light_gang() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let set = rustix::process::setpriority_process(Pid::from_raw(child.id() as i32), 19);
        let found = owner_of(&Adopted::Process(child.id().into()));
        child.kill().and_then(|()| child.wait()).unwrap();
        set.unwrap();
        assert_eq!((found.nice, found.weight()), (19, 1));
        assert_eq!(owner_of(&Adopted::Cgroup("/a".into())), Caller::default());
    }

    #[test]
    fn who_is_named_twice_is_taken_once() {
        assert_eq!(each_once(&[7, 8, 7, 9, 8]), [7, 8, 9]);
    }
}
