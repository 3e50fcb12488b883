//! The calls of `gang.h` on jobs that span hosts.

use std::{
    ffi::{CStr, c_char},
    mem::size_of,
    time::{Duration, Instant},
};

use gang_protocol::{client::Registration, cpu_numbers, limits::FIRST_SPANNING, v1};

use crate::{
    connection::ask,
    handle::{Blank, Handle},
    job::{Spec, read, registration},
    result::{Code, Failure, answer},
};

/// As `gang_span` of `gang.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    size: usize,
    hosts: usize,
    names: *const *const c_char,
    cpus: *const i32,
    ranks: *const i32,
    launched_as: *const c_char,
    owner_uid: i64,
    on_host_lost: u32,
    allowed: *const *const c_char,
}

const _: () = assert!(size_of::<Span>() == 72);

/// A job that was just registered elsewhere is not known here for a moment.
const NEW: Duration = Duration::from_millis(500);
/// A part that is to come is waited for this long, and looked for this often.
const PART_WITHIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// More hosts than any cluster has.
const HOSTS_MAX: usize = 16_384;

const MARK: u32 = 1;
const SUSPEND_ALL: u32 = 2;
const RELEASE: u32 = 3;

fn default_span() -> Span {
    Span {
        size: size_of::<Span>(),
        hosts: 0,
        names: std::ptr::null(),
        cpus: std::ptr::null(),
        ranks: std::ptr::null(),
        launched_as: std::ptr::null(),
        owner_uid: -1,
        on_host_lost: MARK,
        allowed: std::ptr::null(),
    }
}

/// The names of this host and of its cluster.
pub fn own_host() -> Result<Option<(String, String)>, Failure> {
    ask(|client| client.host())
}

/// Returns once a job is on this host. The part of one that spans hosts comes a moment after it was
/// registered on another one, and is waited for where this host is to have one. Others may ask
/// meanwhile, and processes fork.
pub fn wait_for_part(job: i64) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let failure = match ask(|client| client.show_job(job)) {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        let is_new = began.elapsed() < NEW;
        let waits = failure.code == Code::NoSuchJob
            && job >= FIRST_SPANNING
            && began.elapsed() < PART_WITHIN
            && (is_new || comes_here(job)?);
        if !waits {
            return Err(failure);
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a job has CPUs on this host.
fn comes_here(job: i64) -> Result<bool, Failure> {
    let Some(cluster) = ask(|client| client.cluster())? else { return Ok(false) };
    let job = cluster.jobs.iter().find(|known| known.id == job);
    Ok(job.is_some_and(|job| job.cpus.iter().any(|of| of.host == cluster.host)))
}

/// Registers a job on several hosts.
pub fn register(wanted: &v1::RegisterSpanning_Args) -> Result<i64, Failure> {
    ask(|client| client.register_spanning(wanted.clone())).map(|reply| reply.job)
}

/// A text of C.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub unsafe fn text(text: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, and the caller says that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))?;
    Ok(Some(text.to_owned()))
}

/// The CPUs of a list such as 0-3,8.
fn cpus_of(list: &str) -> Result<Vec<i64>, Failure> {
    cpu_numbers(list).map_err(Failure::invalid)
}

/// The hosts of a span.
///
/// # Safety
/// Its lists are null or as long as it says, and its names end with zero bytes.
unsafe fn hosts(span: &Span) -> Result<Vec<v1::HostCpus>, Failure> {
    if span.hosts == 0 || span.hosts > HOSTS_MAX {
        return Err(Failure::invalid(format!("{} is no number of hosts", span.hosts)));
    }
    if span.names.is_null() || span.cpus.is_null() {
        return Err(Failure::invalid("the names or the CPUs of the hosts are null"));
    }
    let host = |at: usize| {
        // SAFETY: the lists are that long, as the caller says.
        let (name, cpus) =
            unsafe { (text(*span.names.add(at), "the name of a host")?, *span.cpus.add(at)) };
        // SAFETY: as the caller says.
        let ranks = (!span.ranks.is_null()).then(|| unsafe { *span.ranks.add(at) });
        let allowed = match span.allowed.is_null() {
            true => None,
            // SAFETY: as the caller says.
            false => unsafe { text(*span.allowed.add(at), "the list of CPUs") }?,
        };
        let allowed = allowed.map(|list| cpus_of(&list)).transpose()?;
        Ok(v1::HostCpus {
            host: name.ok_or_else(|| Failure::invalid("the name of a host is null"))?,
            cpus: cpus.into(),
            ranks: ranks.filter(|&ranks| ranks != 0).map(i64::from),
            allowed,
        })
    };
    (0..span.hosts).map(host).collect()
}

/// # Safety
/// As in `gang.h`: `span` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_span_init(span: *mut Span) -> u32 {
    answer(|| {
        if span.is_null() {
            return Err(Failure::invalid("the span is null"));
        }
        // SAFETY: not null, and the caller lets us write it.
        unsafe { span.write(default_span()) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: all are null or valid, lists are as long as the span says, and texts end with a
/// zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_register_span(
    spec: *const Spec,
    span: *const Span,
    out: *mut *mut Handle,
) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let Registration { name, class, weight, mem_bytes, disk_bytes, signals, .. } =
            unsafe { registration(spec) }?;
        // SAFETY: as the caller says.
        let span = unsafe { read(span, default_span(), "span") }?;
        if out.is_null() {
            return Err(Failure::invalid("there is nowhere to put the job"));
        }
        if mem_bytes.is_some() || disk_bytes.is_some() || signals {
            let why = "memory, disk and signals are of jobs on one host alone";
            return Err(Failure::invalid(why));
        }
        let on_host_lost = match span.on_host_lost {
            MARK => v1::OnHostLost::mark,
            SUSPEND_ALL => v1::OnHostLost::suspend,
            RELEASE => v1::OnHostLost::release,
            other => return Err(Failure::invalid(format!("{other} says not what a job does"))),
        };
        let wanted = v1::RegisterSpanning_Args {
            name,
            // SAFETY: as the caller says.
            cpus: unsafe { hosts(&span) }?,
            class,
            weight,
            on_host_lost,
            owner_uid: (span.owner_uid >= 0).then_some(span.owner_uid),
            // SAFETY: as the caller says.
            launched_as: unsafe { text(span.launched_as, "the launcher's name") }?,
        };
        let handle = Blank::new()?;
        let job = register(&wanted)?;
        // SAFETY: not null, and the caller lets us write it.
        unsafe { *out = handle.fill(job) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: `name` is null, or `size` bytes of it can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_host_name(name: *mut c_char, size: usize) -> u32 {
    answer(|| {
        if name.is_null() {
            return Err(Failure::invalid("there is nowhere to put the name"));
        }
        if size == 0 {
            return Err(Failure::invalid("a name needs one byte at least"));
        }
        let none = || Failure::new(Code::Failed, "this host is in no cluster");
        let (host, _) = own_host()?.ok_or_else(none)?;
        if host.len() >= size {
            let length = host.len() + 1;
            return Err(Failure::invalid(format!("the name takes {length} bytes, not {size}")));
        }
        // SAFETY: it is not null, and that long, as the caller says; there is room for the zero
        // byte.
        unsafe {
            std::ptr::copy_nonoverlapping(host.as_ptr(), name.cast(), host.len());
            name.add(host.len()).write(0);
        }
        Ok(())
    })
}
