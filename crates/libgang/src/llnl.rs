//! The calls of `GangUserAPI.h`: LLNL's gang scheduler (L26 to L28).

use std::{
    ffi::{CStr, c_char, c_int},
    sync::OnceLock,
};

use gang_protocol::{
    client::{Change, Registration},
    hash::fnv1a,
    limits::{FIRST_SPANNING, WEIGHT_DEFAULT},
    v1,
};

use crate::{
    connection::ask,
    job,
    result::{Code, Failure, answer, text},
    span,
};

const PROC_ID: u32 = 1;

/// As in `GangUserAPI.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GangJobId {
    computer: u64,
    job: u64,
}

/// The room for the name of a computer in `GangResources`.
const MACHINE_LENGTH: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GangResources {
    machine: [u8; MACHINE_LENGTH],
    cpu_count: c_int,
    cpu_min: c_int,
    mega_mem: c_int,
    giga_disk: c_int,
}

#[repr(C)]
pub struct GangUse {
    cpu_seconds: f64,
    slot_seconds: f64,
    slots: i64,
    processes: c_int,
    threads: c_int,
    mega_mem: f64,
}

#[repr(C)]
pub struct GangLoad {
    cpu_count: c_int,
    jobs: c_int,
    load_average: f64,
    mega_mem_free: f64,
    giga_disk_free: f64,
}

const MEGA: f64 = 1024.0 * 1024.0;
const GIGA: f64 = 1024.0 * MEGA;

/// A list has one entry for each computer, and there are not that many.
const LIST_MAX: usize = 1024;

/// Whether this computer has that name.
fn is_here(name: &[u8]) -> bool {
    let system = rustix::system::uname();
    let own = system.nodename().to_bytes();
    let short = own.split(|&byte| byte == b'.').next().unwrap_or(own);
    [&b""[..], b"localhost", own, short].contains(&name)
}

/// The resources of a job.
enum Wanted {
    /// On this computer alone.
    Here(Box<GangResources>),
    /// On computers of the cluster.
    Hosts(Vec<v1::HostCpus>),
}

/// # Safety
/// `list` is null, or ends with a null pointer, and what it points to is valid.
unsafe fn resources(list: *const *const GangResources) -> Result<Wanted, Failure> {
    if list.is_null() {
        return Err(Failure::invalid("the list of resources is null"));
    }
    let mut entries: Vec<GangResources> = Vec::new();
    for index in 0..LIST_MAX {
        // SAFETY: the list goes on until its null pointer, as the caller says.
        let entry = unsafe { *list.add(index) };
        if entry.is_null() {
            return wanted(&entries);
        }
        // SAFETY: as the caller says.
        entries.push(unsafe { entry.read() });
    }
    Err(Failure::invalid("the list of resources has no end"))
}

fn wanted(entries: &[GangResources]) -> Result<Wanted, Failure> {
    let foreign = || Failure::new(Code::BadMachine, "gangd looks after this computer alone");
    // A name that fills all of its room is none of a computer.
    let name = |of: &GangResources| {
        let name = CStr::from_bytes_until_nul(&of.machine).ok()?;
        name.to_str().ok().map(str::to_owned)
    };
    let names: Option<Vec<String>> = entries.iter().map(name).collect();
    let names = names.ok_or_else(foreign)?;
    let here = names.iter().filter(|name| is_here(name.as_bytes())).count();
    match entries {
        [] => return Err(Failure::invalid("the list of resources is empty")),
        [entry] if here == 1 => return Ok(Wanted::Here(Box::new(*entry))),
        _ if here > 1 => return Err(Failure::invalid("this computer is in the list twice")),
        _ => {}
    }
    let (own, _) = span::own_host()?.ok_or_else(foreign)?;
    let host = |(name, of): (String, &GangResources)| {
        let host = if is_here(name.as_bytes()) { own.clone() } else { name };
        if of.cpu_count == 0 {
            return Err(Failure::invalid(format!("the job wants no CPUs on {host}")));
        }
        if of.cpu_min != 0 && of.cpu_min != of.cpu_count {
            let why =
                "a job on several computers has all of its CPUs or none: cpu_min is cpu_count";
            return Err(Failure::invalid(why));
        }
        if (of.mega_mem, of.giga_disk) != (0, 0) {
            let why = "memory and disk are promised to jobs on one computer alone";
            return Err(Failure::invalid(why));
        }
        Ok(v1::HostCpus { host, cpus: of.cpu_count.into(), ranks: None, allowed: None })
    };
    names.into_iter().zip(entries).map(host).collect::<Result<_, _>>().map(Wanted::Hosts)
}

fn bytes(amount: c_int, unit: f64) -> i64 {
    i64::from(amount) * unit as i64
}

fn class(number: u32) -> Result<v1::Class, Failure> {
    let none = || Failure::new(Code::BadClass, format!("{number} is no class"));
    job::class(number).ok_or_else(none)
}

/// The job of an id that is set.
///
/// # Safety
/// `id` is null or valid.
unsafe fn job_of(id: *const GangJobId) -> Result<i64, Failure> {
    if id.is_null() {
        return Err(Failure::invalid("the id of the job is null"));
    }
    // SAFETY: as the caller says.
    let GangJobId { computer, job } = unsafe { id.read() };
    match i64::try_from(job) {
        Ok(job) if job > 0 && computer == own_computer() => Ok(job),
        Ok(job) if job >= FIRST_SPANNING && Some(computer) == own_cluster()? => {
            // The part of this computer comes a moment after the job was registered.
            span::wait_for_part(job)?;
            Ok(job)
        }
        _ => Err(Failure::new(Code::NoSuchJob, "the id is of no job on this computer")),
    }
}

/// The beginning of the ids of jobs on this computer. Read once: no call with an id touches a file
/// or asks for a name.
fn own_computer() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| {
        // A container may have no number of its own; no job outlives a boot.
        let files = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];
        let read = files.iter().filter_map(|file| std::fs::read(file).ok());
        let own = read.map(|text| text.trim_ascii().to_vec()).find(|text| !text.is_empty());
        computer(&own.unwrap_or_else(|| rustix::system::uname().nodename().to_bytes().to_vec()))
    })
}

/// The beginning of the ids of jobs of the cluster.
fn own_cluster() -> Result<Option<u64>, Failure> {
    let own = span::own_host()?;
    Ok(own.map(|(_, cluster)| computer(format!("cluster {cluster}").as_bytes())))
}

/// The number of a computer by a text that only it has: never 0. Not the text itself, which
/// machine-id(5) wants kept from others.
fn computer(text: &[u8]) -> u64 {
    fnv1a(text).max(1)
}

/// # Safety
/// As in the header: pointers are null or valid, and the list ends with a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangJobRegister(
    id: *mut GangJobId,
    job_class: u32,
    list: *const *const GangResources,
) -> u32 {
    answer(|| {
        if id.is_null() {
            return Err(Failure::invalid("the id of the job is null"));
        }
        // SAFETY: as the caller says.
        let (GangJobId { computer, job }, wanted) = unsafe { (id.read(), resources(list)?) };
        let class = class(job_class)?;
        if (computer, job) != (0, 0) {
            // SAFETY: not null.
            let job = unsafe { job_of(id) }?;
            return change_all(job, &class, &wanted);
        }
        let wanted = match wanted {
            Wanted::Here(wanted) => wanted,
            Wanted::Hosts(hosts) => {
                let computer = own_cluster()?.unwrap_or(0);
                let job = register_on(hosts, class)?;
                // SAFETY: not null, and the caller lets us write it.
                unsafe { *id = GangJobId { computer, job: job as u64 } };
                return Ok(());
            }
        };
        let cpus = if wanted.cpu_count == 0 { job::own_cpus() } else { wanted.cpu_count };
        let some = |bytes: i64| (bytes != 0).then_some(bytes);
        let job = job::register(Registration {
            name: job::own_name(),
            min_cpus: if wanted.cpu_min == 0 { cpus } else { wanted.cpu_min }.into(),
            class,
            mem_bytes: some(bytes(wanted.mega_mem, MEGA)),
            disk_bytes: some(bytes(wanted.giga_disk, GIGA)),
            ..Registration::new("", cpus.into())
        })?;
        // SAFETY: not null, and the caller lets us write it.
        unsafe { *id = GangJobId { computer: own_computer(), job: job as u64 } };
        Ok(())
    })
}

/// Registers a job on computers of the cluster.
fn register_on(cpus: Vec<v1::HostCpus>, class: v1::Class) -> Result<i64, Failure> {
    span::register(&v1::RegisterSpanning_Args {
        name: job::own_name(),
        cpus,
        class,
        weight: WEIGHT_DEFAULT,
        on_host_lost: v1::OnHostLost::mark,
        owner_uid: None,
        launched_as: None,
    })
}

/// Changes class and resources, or neither. Of the two, the last one is that which is not refused
/// or can be taken back. A caller that may raise a class may lower it again, and an owner may lower
/// it in any case (L25).
fn change_all(job: i64, class: &v1::Class, wanted: &Wanted) -> Result<(), Failure> {
    let before = ask(|client| client.show_job(job))?.details.class;
    let set = |class: &v1::Class| ask(|client| client.set_class(job, class.clone()));
    if is_above(class, &before) {
        set(class)?;
        return change(job, wanted).inspect_err(|_| {
            // The refusal is what the caller has to hear of.
            let _ = set(&before);
        });
    }
    change(job, wanted)?;
    if *class == before { Ok(()) } else { set(class) }
}

fn is_above(class: &v1::Class, other: &v1::Class) -> bool {
    let number = |class: &v1::Class| (1..).map_while(job::class).position(|known| known == *class);
    number(class) < number(other)
}

fn change(job: i64, wanted: &Wanted) -> Result<(), Failure> {
    let wanted = match wanted {
        Wanted::Here(wanted) => wanted,
        Wanted::Hosts(hosts) => return keep(job, hosts),
    };
    let said = |value: i64| (value != 0).then_some(value);
    let change = Change {
        cpus: said(wanted.cpu_count.into()),
        min_cpus: said(wanted.cpu_min.into()),
        mem_bytes: said(bytes(wanted.mega_mem, MEGA)),
        disk_bytes: said(bytes(wanted.giga_disk, GIGA)),
        ..Change::default()
    };
    ask(|client| client.set(job, &change))
}

/// A job on several computers keeps the CPUs that it has.
fn keep(job: i64, hosts: &[v1::HostCpus]) -> Result<(), Failure> {
    let known = ask(|client| client.cluster())?;
    let known = known.and_then(|it| it.jobs.into_iter().find(|known| known.id == job));
    let sorted = |hosts: &[v1::HostCpus]| {
        let mut hosts: Vec<_> = hosts.iter().map(|of| (of.host.clone(), of.cpus)).collect();
        hosts.sort_unstable();
        hosts
    };
    match known {
        Some(known) if sorted(&known.cpus) == sorted(hosts) => Ok(()),
        Some(_) => {
            let why = "a job on several computers keeps its CPUs while it runs: its class changes";
            Err(Failure::invalid(why))
        }
        None => Err(Failure::new(Code::NoSuchJob, format!("job {job} is on one computer"))),
    }
}

fn process(kind: u32, pid: i32) -> Result<i32, Failure> {
    match (kind, pid) {
        (PROC_ID, 1..) => Ok(pid),
        (PROC_ID, _) => Err(Failure::invalid(format!("{pid} is no process"))),
        _ => Err(Failure::new(Code::BadIdType, format!("{kind} is no type of id"))),
    }
}

/// # Safety
/// As in the header: `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangProcAdd(id: *mut GangJobId, kind: u32, pid: i32) -> u32 {
    // SAFETY: as the caller says.
    answer(|| job::add(unsafe { job_of(id) }?, process(kind, pid)?))
}

/// # Safety
/// As in the header: `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangProcRemove(id: *mut GangJobId, kind: u32, pid: i32) -> u32 {
    // SAFETY: as the caller says.
    answer(|| job::remove(unsafe { job_of(id) }?, process(kind, pid)?))
}

/// # Safety
/// As in the header: `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangJobClass(id: *mut GangJobId, job_class: u32) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let (job, class) = (unsafe { job_of(id) }?, class(job_class)?);
        ask(|client| client.set_class(job, class.clone()))
    })
}

/// # Safety
/// As in the header: `id` is null or valid, and the list ends with a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangJobResources(
    id: *mut GangJobId,
    list: *const *const GangResources,
) -> u32 {
    // SAFETY: as the caller says.
    answer(|| unsafe { change(job_of(id)?, &resources(list)?) })
}

/// # Safety
/// As in the header: both are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangJobUse(id: *mut GangJobId, out: *mut GangUse) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let job = unsafe { job_of(id) }?;
        if out.is_null() {
            return Err(Failure::invalid("there is nowhere to put the use"));
        }
        let details = ask(|client| client.show_job(job))?.details;
        let value = GangUse {
            cpu_seconds: details.cpu_time_ns as f64 / 1e9,
            slot_seconds: details.in_slot_ns as f64 / 1e9,
            slots: details.slots,
            processes: details.processes as c_int,
            threads: details.threads as c_int,
            mega_mem: details.used_memory().map_or(-1.0, |used| used as f64 / MEGA),
        };
        // SAFETY: not null, and the caller lets us write it.
        unsafe { out.write(value) };
        Ok(())
    })
}

/// # Safety
/// As in the header: both are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangMachineLoad(machine: *const c_char, out: *mut GangLoad) -> u32 {
    answer(|| {
        // SAFETY: null, or a text with its zero byte, as the caller says.
        if !machine.is_null() && !is_here(unsafe { CStr::from_ptr(machine) }.to_bytes()) {
            return Err(Failure::new(Code::BadMachine, "gangd looks after this computer alone"));
        }
        if out.is_null() {
            return Err(Failure::invalid("there is nowhere to put the load"));
        }
        let status = ask(|client| client.status())?.status;
        let value = GangLoad {
            cpu_count: status.cpus as c_int,
            jobs: status.jobs as c_int,
            load_average: status.load_average,
            mega_mem_free: (status.memory.free - status.memory.promised).max(0) as f64 / MEGA,
            giga_disk_free: (status.disk.free - status.disk.promised).max(0) as f64 / GIGA,
        };
        // SAFETY: not null, and the caller lets us write it.
        unsafe { out.write(value) };
        Ok(())
    })
}

/// # Safety
/// As in the header: `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangSignalsDisable(id: *mut GangJobId) -> u32 {
    // SAFETY: as the caller says.
    answer(|| set_signals(unsafe { job_of(id) }?, false))
}

/// # Safety
/// As in the header: `id` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GangSignalsEnable(id: *mut GangJobId) -> u32 {
    // SAFETY: as the caller says.
    answer(|| set_signals(unsafe { job_of(id) }?, true))
}

fn set_signals(job: i64, on: bool) -> Result<(), Failure> {
    ask(|client| client.set_signals(job, on))
}

#[unsafe(no_mangle)]
pub extern "C" fn GangErrMsg(result: u32) -> *mut c_char {
    text(result).as_ptr().cast_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computers_have_numbers_of_their_own() {
        assert_eq!(own_computer(), own_computer());
        assert_ne!(own_computer(), 0);
        let text = std::fs::read("/etc/machine-id").unwrap_or_default();
        if !text.trim_ascii().is_empty() {
            assert_eq!(own_computer(), computer(text.trim_ascii()));
        }
        let one = computer(b"4d1f0c2ab0564f6c8f4b6d2fd9a0e6b1");
        assert_ne!(one, computer(b"4d1f0c2ab0564f6c8f4b6d2fd9a0e6b2"));
        assert!(one > u64::from(u32::MAX), "more than the address of a host's name");
    }

    #[test]
    fn classes_are_in_order() {
        assert!(is_above(&v1::Class::express, &v1::Class::interactive));
        assert!(is_above(&v1::Class::batch, &v1::Class::standby));
        assert!(!is_above(&v1::Class::batch, &v1::Class::batch));
    }
}
