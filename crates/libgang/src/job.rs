//! The calls of `gang.h` on jobs.

use std::{
    ffi::{CStr, c_char},
    mem::size_of,
};

use gang_protocol::{
    caller::Caller,
    client::{Adopted, Change, Registration},
    name::nearest_name,
    v1,
};

use crate::{
    connection::{ask, has_process, register_apart},
    handle::{self, Blank, Handle},
    result::{Code, Failure, answer, last, text},
    span,
};

/// As `gang_spec` of `gang.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Spec {
    size: usize,
    name: *const c_char,
    cpus: i32,
    min_cpus: i32,
    job_class: u32,
    weight: i32,
    mem_bytes: i64,
    disk_bytes: i64,
    wait: i32,
    signals: i32,
}

/// As `gang_change`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CChange {
    size: usize,
    cpus: i32,
    min_cpus: i32,
    weight: i32,
    mem_bytes: i64,
    disk_bytes: i64,
}

/// As `gang_use`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Use {
    size: usize,
    state: u32,
    processes: i32,
    threads: i32,
    slots: i64,
    in_slot_ns: i64,
    cpu_time_ns: i64,
    share_wanted: f64,
    share_had: f64,
    mem_used_bytes: i64,
}

/// As `gang_load`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Load {
    size: usize,
    cpus: i32,
    jobs: i32,
    load_average: f64,
    mem_total_bytes: i64,
    mem_free_bytes: i64,
    mem_promised_bytes: i64,
    disk_free_bytes: i64,
    disk_promised_bytes: i64,
}

// The tests in C find this, too (tests/abuse.c).
const _: () = assert!(size_of::<Spec>() == 56 && size_of::<CChange>() == 40);
const _: () = assert!(size_of::<Use>() == 72 && size_of::<Load>() == 64);

const NO_NAME: *const c_char = std::ptr::null();

const BATCH: u32 = 3;
const STANDBY: u32 = 4;

pub fn class(number: u32) -> Option<v1::Class> {
    Some(match number {
        1 => v1::Class::express,
        2 => v1::Class::interactive,
        BATCH => v1::Class::batch,
        STANDBY => v1::Class::standby,
        _ => return None,
    })
}

fn class_or_invalid(number: u32) -> Result<v1::Class, Failure> {
    class(number).ok_or_else(|| Failure::invalid(format!("{number} is no class")))
}

/// CPUs that this process may use.
pub fn own_cpus() -> i32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |cpus| cpus.count() as i32)
}

/// The name of this program.
pub fn own_name() -> String {
    // It may hold any byte.
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    nearest_name(String::from_utf8_lossy(&name).trim_end(), "job")
}

/// Reads a struct of C that says its own size; what it does not have is as in `default`.
///
/// # Safety
/// `from` is null, or points to as many bytes as its first member says.
pub unsafe fn read<T: Copy>(from: *const T, default: T, what: &str) -> Result<T, Failure> {
    if from.is_null() {
        return Err(Failure::invalid(format!("the {what} is null")));
    }
    // SAFETY: every struct begins with its size.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    check_size(size, what)?;
    let mut read = default;
    let length = size.min(size_of::<T>());
    // SAFETY: both are at least that long; any bytes make these plain numbers and pointers.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut read).cast::<u8>(), length);
    }
    Ok(read)
}

/// Fills in as much of a struct of C as its own size says.
///
/// # Safety
/// As for [`read`], and it can be written.
unsafe fn write<T: Copy>(to: *mut T, value: T, size: usize) {
    let length = size.min(size_of::<T>()) - size_of::<usize>();
    let skip = size_of::<usize>();
    // SAFETY: the caller's struct is `size` long; its first member stays.
    unsafe {
        let from = (&raw const value).cast::<u8>().add(skip);
        std::ptr::copy_nonoverlapping(from, to.cast::<u8>().add(skip), length);
    }
}

/// The size that the caller's struct says it has.
///
/// # Safety
/// `of` is null, or points to a struct that begins with its size.
unsafe fn size_of_theirs<T>(of: *const T, what: &str) -> Result<usize, Failure> {
    if of.is_null() {
        return Err(Failure::invalid(format!("the {what} is null")));
    }
    // SAFETY: as the caller says.
    let size = unsafe { of.cast::<usize>().read_unaligned() };
    check_size(size, what)?;
    Ok(size)
}

/// A struct that was never filled in has some other size.
fn check_size(size: usize, what: &str) -> Result<(), Failure> {
    const MOST: usize = 4096;
    if (size_of::<usize>() + 4..=MOST).contains(&size) {
        Ok(())
    } else {
        Err(Failure::invalid(format!("{size} is no size of a {what}; initialise it first")))
    }
}

fn default_spec() -> Spec {
    let caller = Caller::of_this_process();
    Spec {
        size: size_of::<Spec>(),
        name: NO_NAME,
        cpus: 0,
        min_cpus: 0,
        job_class: if caller.is_idle { STANDBY } else { BATCH },
        weight: caller.weight() as i32,
        mem_bytes: 0,
        disk_bytes: 0,
        wait: 0,
        signals: 0,
    }
}

fn no_change() -> CChange {
    CChange {
        size: size_of::<CChange>(),
        cpus: -1,
        min_cpus: -1,
        weight: -1,
        mem_bytes: -1,
        disk_bytes: -1,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_result_text(result: u32) -> *const c_char {
    text(result).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_error() -> *const c_char {
    last()
}

/// # Safety
/// As in `gang.h`: `spec` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_spec_init(spec: *mut Spec) -> u32 {
    answer(|| {
        if spec.is_null() {
            return Err(Failure::invalid("the spec is null"));
        }
        // SAFETY: not null, and the caller lets us write it.
        unsafe { spec.write(default_spec()) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: `change` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_change_init(change: *mut CChange) -> u32 {
    answer(|| {
        if change.is_null() {
            return Err(Failure::invalid("the change is null"));
        }
        // SAFETY: not null, and the caller lets us write it.
        unsafe { change.write(no_change()) };
        Ok(())
    })
}

/// Registers a job as C asked for it.
pub fn register(wanted: Registration) -> Result<i64, Failure> {
    if wanted.wait {
        register_apart(|client| client.register(&wanted))
    } else {
        ask(|client| client.register(&wanted))
    }
}

/// The request in a spec of C.
///
/// # Safety
/// It is null or valid, and its name null or ended by a zero byte.
pub unsafe fn registration(spec: *const Spec) -> Result<Registration, Failure> {
    // SAFETY: as the caller says.
    let spec = unsafe { read(spec, default_spec(), "spec") }?;
    let name = if spec.name.is_null() {
        own_name()
    } else {
        // SAFETY: not null, and the caller says that it ends with a zero byte.
        let name = unsafe { CStr::from_ptr(spec.name) };
        name.to_str().map_err(|_| Failure::invalid("the name is not UTF-8"))?.to_owned()
    };
    let cpus = if spec.cpus == 0 { own_cpus() } else { spec.cpus };
    let some = |bytes: i64| (bytes != 0).then_some(bytes);
    Ok(Registration {
        name,
        cpus: cpus.into(),
        min_cpus: if spec.min_cpus == 0 { cpus } else { spec.min_cpus }.into(),
        class: class_or_invalid(spec.job_class)?,
        policy: v1::Policy::gang,
        weight: spec.weight.into(),
        mem_bytes: some(spec.mem_bytes),
        disk_bytes: some(spec.disk_bytes),
        wait: spec.wait != 0,
        signals: spec.signals != 0,
    })
}

/// # Safety
/// As in `gang.h`: both are null or valid, and the name ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_register(spec: *const Spec, out: *mut *mut Handle) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let wanted = unsafe { registration(spec) }?;
        if out.is_null() {
            return Err(Failure::invalid("there is nowhere to put the job"));
        }
        let handle = Blank::new()?;
        let job = register(wanted)?;
        // SAFETY: not null, and the caller lets us write it.
        unsafe { *out = handle.fill(job) };
        Ok(())
    })
}

/// # Safety
/// As for gang_register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_adopt(spec: *const Spec, pid: i32, out: *mut *mut Handle) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let wanted = unsafe { registration(spec) }?;
        if out.is_null() {
            return Err(Failure::invalid("there is nowhere to put the job"));
        }
        let handle = Blank::new()?;
        let adopted = Adopted::Process(pid.into());
        let job = ask(|client| client.adopt(&wanted, &adopted))?.job;
        // SAFETY: not null, and the caller lets us write it.
        unsafe { *out = handle.fill(job) };
        Ok(())
    })
}

fn open(job: i64, out: *mut *mut Handle) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::invalid("there is nowhere to put the job"));
    }
    span::wait_for_part(job)?;
    let handle = handle::open(job)?;
    // SAFETY: not null, and the caller of the function of C lets us write it.
    unsafe { *out = handle };
    Ok(())
}

/// # Safety
/// As in `gang.h`: `out` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_open(id: i64, out: *mut *mut Handle) -> u32 {
    answer(|| open(id, out))
}

/// # Safety
/// As in `gang.h`: `out` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_current(out: *mut *mut Handle) -> u32 {
    answer(|| {
        let named = std::env::var("GANG_JOB").ok().and_then(|id| id.parse().ok());
        let none =
            || Failure::new(Code::NoSuchJob, "GANG_JOB names no job: not started by gang run");
        open(named.ok_or_else(none)?, out)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_close(job: *mut Handle) -> u32 {
    answer(|| handle::close(job))
}

/// # Safety
/// As in `gang.h`: `id` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_id(job: *const Handle, id: *mut i64) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        if id.is_null() {
            return Err(Failure::invalid("there is nowhere to put the id"));
        }
        // SAFETY: not null, and the caller lets us write it.
        unsafe { *id = job };
        Ok(())
    })
}

/// Adds a process by its number; 0 is this one.
pub fn add(job: i64, pid: i32) -> Result<(), Failure> {
    let pid = if pid == 0 { std::process::id().into() } else { i64::from(pid) };
    ask(|client| client.add_process(job, pid))?;
    has_process(job);
    Ok(())
}

pub fn remove(job: i64, pid: i32) -> Result<(), Failure> {
    let pid = if pid == 0 { std::process::id().into() } else { i64::from(pid) };
    ask(|client| client.remove_process(job, pid))
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_add_process(job: *mut Handle, pid: i32) -> u32 {
    answer(|| add(handle::job(job)?, pid))
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_remove_process(job: *mut Handle, pid: i32) -> u32 {
    answer(|| remove(handle::job(job)?, pid))
}

/// # Safety
/// As in `gang.h`: `slurm_job` is null, or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_set_slurm_job(pid: i32, slurm_job: *const c_char) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let name = unsafe { span::text(slurm_job, "the job of Slurm") }?;
        let name = name.ok_or_else(|| Failure::invalid("the job of Slurm is null"))?;
        let pid = if pid == 0 { std::process::id().into() } else { i64::from(pid) };
        ask(|client| client.set_slurm_job(pid, name.clone()).map(drop))
    })
}

/// The number of a thread; 0 is the one that calls.
fn thread_number(tid: i32) -> i64 {
    // SAFETY: gettid(2) takes nothing and always succeeds.
    if tid == 0 { i64::from(unsafe { libc::gettid() }) } else { i64::from(tid) }
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_add_thread(job: *mut Handle, tid: i32) -> u32 {
    answer(|| {
        let (job, tid) = (handle::job(job)?, thread_number(tid));
        ask(|client| client.add_thread(job, tid))?;
        has_process(job);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_remove_thread(job: *mut Handle, tid: i32) -> u32 {
    answer(|| {
        let (job, tid) = (handle::job(job)?, thread_number(tid));
        ask(|client| client.remove_thread(job, tid))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_set_class(job: *mut Handle, job_class: u32) -> u32 {
    answer(|| {
        let (job, class) = (handle::job(job)?, class_or_invalid(job_class)?);
        ask(|client| client.set_class(job, class.clone()))
    })
}

/// # Safety
/// As in `gang.h`: `change` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_resize(job: *mut Handle, change: *const CChange) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        // SAFETY: as the caller says.
        let change = unsafe { read(change, no_change(), "change") }?;
        let said = |value: i64| (value >= 0).then_some(value);
        let change = Change {
            cpus: said(change.cpus.into()),
            min_cpus: said(change.min_cpus.into()),
            weight: said(change.weight.into()),
            mem_bytes: said(change.mem_bytes),
            disk_bytes: said(change.disk_bytes),
            ..Change::default()
        };
        ask(|client| client.set(job, &change))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_set_signals(job: *mut Handle, on: i32) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        ask(|client| client.set_signals(job, on != 0))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_suspend(job: *mut Handle) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        ask(|client| client.suspend(job))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_resume(job: *mut Handle) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        ask(|client| client.resume(job))
    })
}

/// # Safety
/// As in `gang.h`: `out` is null, or a struct of the size that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_get_use(job: *mut Handle, out: *mut Use) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        // SAFETY: as the caller says.
        let size = unsafe { size_of_theirs(out, "use") }?;
        let details = ask(|client| client.show_job(job))?.details;
        let state = match details.state {
            v1::JobState::starting => 1,
            v1::JobState::waiting => 2,
            v1::JobState::running => 3,
            v1::JobState::sleeping => 4,
            v1::JobState::idle => 5,
            v1::JobState::suspended => 6,
            v1::JobState::not_scheduled => 7,
            v1::JobState::too_many_threads => 8,
            v1::JobState::too_few_cpus => 9,
        };
        let value = Use {
            size,
            state,
            processes: details.processes as i32,
            threads: details.threads as i32,
            slots: details.slots,
            in_slot_ns: details.in_slot_ns,
            cpu_time_ns: details.cpu_time_ns,
            share_wanted: details.share_wanted,
            share_had: details.share_had,
            mem_used_bytes: details.used_memory().unwrap_or(-1),
        };
        // SAFETY: as the caller says.
        unsafe { write(out, value, size) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: `out` is null, or a struct of the size that it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_get_load(out: *mut Load) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let size = unsafe { size_of_theirs(out, "load") }?;
        let status = ask(|client| client.status())?.status;
        let value = Load {
            size,
            cpus: status.cpus as i32,
            jobs: status.jobs as i32,
            load_average: status.load_average,
            mem_total_bytes: status.memory.total,
            mem_free_bytes: status.memory.free,
            mem_promised_bytes: status.memory.promised,
            disk_free_bytes: status.disk.free,
            disk_promised_bytes: status.disk.promised,
        };
        // SAFETY: as the caller says.
        unsafe { write(out, value, size) };
        Ok(())
    })
}
