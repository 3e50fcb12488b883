//! The interface for C, as `integrations/fabric/gang_fabric.h` declares it.
//!
//! Numbers below 0 are errors of libfabric. No call panics into C: one that would ends with EIO.

use std::{
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    time::Duration,
};

use crate::{
    address::{ADDRESS, Address},
    completion::{Completion, Counter, Queue, fi},
    domain::Domain,
    receiving::{Looks, Receiver},
    sending::Send,
    settings::Settings,
    spans::{Span, Spans},
    state::{Bound, Endpoint, Entry, State, Vector, place},
};

/// Writes a line to the log: not 0 for a warning.
type LogCall = extern "C" fn(c_int, *const c_char);

// Flags of sends and receives, as in the header.
const TAGGED: u32 = 1;
const DATA: u32 = 2;
const INJECT: u32 = 4;
const REPORT: u32 = 8;
const DELIVERY: u32 = 16;
const MULTI: u32 = 32;
const PEEK: u32 = 64;
const CLAIM: u32 = 128;
const DISCARD: u32 = 256;
const SILENT: u32 = 512;

#[repr(C)]
pub struct Operation {
    spans: *const Span,
    count: usize,
    peer: u64,
    tag: u64,
    ignore: u64,
    data: u64,
    context: usize,
    flags: u32,
}

#[repr(C)]
pub struct EndpointSettings {
    min_shared: usize,
    sends_max: usize,
    is_directed: u8,
    names_source: u8,
}

/// Runs a call with the state locked.
fn with(domain: *const Domain, call: impl FnOnce(&mut State) -> Result<i64, i32>) -> i64 {
    let run = || {
        // SAFETY: C has it from `gang_fabric_open`, and has not closed it.
        let domain = unsafe { &*domain };
        call(&mut domain.lock())
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => -i64::from(error),
        Err(_) => -i64::from(fi::EIO),
    }
}

/// Opens a port. Returns 0, or an error.
///
/// # Safety
/// `domain` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_open(log: LogCall, domain: *mut *mut Domain) -> c_int {
    let say = move |is_warning: bool, text: &str| {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        log(is_warning.into(), text.as_ptr());
    };
    let opened = catch_unwind(|| {
        let settings = Settings::from_environment().map_err(|odd| {
            say(true, &odd.to_string());
            fi::EINVAL
        })?;
        Domain::new(settings, Box::new(say)).map_err(|error| {
            say(true, &format!("no port: {error}"));
            error.raw_os_error().unwrap_or(fi::EIO)
        })
    });
    match opened {
        Ok(Ok(opened)) => {
            // SAFETY: the caller vouches for the place.
            unsafe { *domain = Box::into_raw(Box::new(opened)) };
            0
        }
        Ok(Err(error)) => -error,
        Err(_) => -fi::EIO,
    }
}

/// Closes a port once all that it has sent has come.
///
/// # Safety
/// `domain` is from [`gang_fabric_open`]; nobody uses it during or after the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_close(domain: *mut Domain) {
    // SAFETY: the caller vouches for it.
    let domain = unsafe { Box::from_raw(domain) };
    let _ = catch_unwind(AssertUnwindSafe(|| domain.close()));
}

/// A new address vector; its number.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_vector(domain: *const Domain) -> i64 {
    with(domain, |state| Ok(place(&mut state.vectors, Vector::default()) as i64))
}

/// Inserts one address; its place in the vector.
///
/// # Safety
/// `address` has as many bytes as addresses have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_insert(
    domain: *const Domain,
    vector: u32,
    address: *const u8,
) -> i64 {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { slice::from_raw_parts(address, ADDRESS) };
    with(domain, |state| {
        let address = Address::from_bytes(bytes).ok_or(fi::EINVAL)?;
        let of = state.vector(vector as usize)?;
        let entry = Entry { address, peer: None };
        let at = match of.entries.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                of.entries.push(None);
                of.entries.len() - 1
            }
        };
        of.entries[at] = Some(entry);
        of.places.entry(entry.source()).or_insert(at as u64);
        Ok(at as i64)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_remove(domain: *const Domain, vector: u32, at: u64) -> i64 {
    with(domain, |state| {
        let of = state.vector(vector as usize)?;
        let entry = of.entries.get_mut(at as usize).and_then(Option::take).ok_or(fi::EINVAL)?;
        if of.places.get(&entry.source()) == Some(&at) {
            of.places.remove(&entry.source());
        }
        Ok(0)
    })
}

/// Writes the address at a place.
///
/// # Safety
/// `address` has room for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_lookup(
    domain: *const Domain,
    vector: u32,
    at: u64,
    address: *mut u8,
) -> i64 {
    with(domain, |state| {
        let of = state.vector(vector as usize)?;
        let entry = of.entries.get(at as usize).copied().flatten().ok_or(fi::EINVAL)?;
        let bytes = entry.address.to_bytes();
        // SAFETY: the caller vouches for the room.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address, ADDRESS) };
        Ok(0)
    })
}

/// Writes an address as text, cut where there is no room; the bytes of the whole text with its 0.
///
/// # Safety
/// `address` has as many bytes as addresses have, and `text` has room for `room`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_text(
    address: *const u8,
    text: *mut c_char,
    room: usize,
) -> usize {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { slice::from_raw_parts(address, ADDRESS) };
    let said = match Address::from_bytes(bytes) {
        Some(Address { endpoint, pid, port, socket: Some(socket), .. }) => {
            format!("gang://{socket}/{pid}/{port:016x}/{endpoint}")
        }
        Some(Address { endpoint, pid, port, .. }) => {
            format!("gang:///{pid}/{port:016x}/{endpoint}")
        }
        None => "gang://?".to_owned(),
    };
    let length = said.len().min(room.saturating_sub(1));
    if room > 0 {
        // SAFETY: the caller vouches for the room.
        unsafe {
            ptr::copy_nonoverlapping(said.as_ptr(), text.cast(), length);
            text.add(length).write(0);
        }
    }
    said.len() + 1
}

/// A new completion queue; its number.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_queue(domain: *const Domain, capacity: usize) -> i64 {
    with(domain, |state| Ok(place(&mut state.queues, Queue::new(capacity)) as i64))
}

/// A new counter; its number.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_counter(domain: *const Domain) -> i64 {
    with(domain, |state| Ok(place(&mut state.counters, Counter::default()) as i64))
}

/// A new endpoint; its number.
///
/// # Safety
/// `settings` can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_endpoint(
    domain: *const Domain,
    settings: *const EndpointSettings,
) -> i64 {
    // SAFETY: the caller vouches for it.
    let settings = unsafe { &*settings };
    with(domain, |state| {
        let endpoint = Endpoint {
            min_shared: settings.min_shared,
            sends_max: settings.sends_max,
            is_directed: settings.is_directed != 0,
            names_source: settings.names_source != 0,
            ..Endpoint::default()
        };
        // A number is not used again: packets may be on their way to who had it.
        if state.endpoints.len() >= usize::from(u16::MAX) {
            return Err(fi::ENOMEM);
        }
        state.endpoints.push(Some(endpoint));
        Ok(state.endpoints.len() as i64 - 1)
    })
}

/// Binds a vector (`kind` 0), or the queue (1) or counter (2) for sends (`flags` 1), receives (2)
/// or both (3), where only operations that ask for it have a completion (4).
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_bind(
    domain: *const Domain,
    endpoint: u32,
    kind: c_int,
    number: u32,
    flags: u32,
) -> i64 {
    with(domain, |state| {
        let of = state.endpoint(endpoint as usize)?;
        let number = number as usize;
        if kind == 0 {
            of.vector = Some(number);
            return Ok(0);
        }
        let bind = |bound: &mut Bound| {
            if kind == 1 {
                (bound.queue, bound.is_selective) = (Some(number), flags & 4 != 0);
            } else {
                bound.counter = Some(number);
            }
        };
        if flags & 1 != 0 {
            bind(&mut of.sent);
        }
        if flags & 2 != 0 {
            bind(&mut of.received);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_enable(domain: *const Domain, endpoint: u32) -> i64 {
    with(domain, |state| {
        state.endpoint(endpoint as usize)?.is_enabled = true;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_set_min_shared(
    domain: *const Domain,
    endpoint: u32,
    bytes: usize,
) -> i64 {
    with(domain, |state| {
        state.endpoint(endpoint as usize)?.min_shared = bytes;
        Ok(0)
    })
}

/// Writes an endpoint's address.
///
/// # Safety
/// `address` has room for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_address(
    domain: *const Domain,
    endpoint: u32,
    address: *mut u8,
) -> i64 {
    with(domain, |state| {
        state.endpoint(endpoint as usize)?;
        let own = Address { endpoint: endpoint as u16, ..state.own };
        // SAFETY: the caller vouches for the room.
        unsafe { ptr::copy_nonoverlapping(own.to_bytes().as_ptr(), address, ADDRESS) };
        Ok(0)
    })
}

/// Gives an object back: an endpoint (`kind` 3), or as in [`gang_fabric_bind`].
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_release(domain: *const Domain, kind: c_int, number: u32) -> i64 {
    with(domain, |state| {
        let number = number as usize;
        match kind {
            0 => state.vectors.get_mut(number).and_then(Option::take).map(drop),
            1 => state.queues.get_mut(number).and_then(Option::take).map(drop),
            2 => state.counters.get_mut(number).and_then(Option::take).map(drop),
            _ => state.close_endpoint(number),
        }
        .ok_or(fi::EINVAL)?;
        Ok(0)
    })
}

/// # Safety
/// `operation` and its parts can be read, and the message's memory as long as libfabric says.
unsafe fn parts(operation: *const Operation) -> Option<(&'static Operation, Spans)> {
    // SAFETY: the caller vouches for it; nothing keeps the reference beyond the call.
    let operation = unsafe { &*operation };
    let parts = match operation.count {
        0 => &[],
        // SAFETY: as above.
        count => unsafe { slice::from_raw_parts(operation.spans, count) },
    };
    Some((operation, Spans::new(parts)?))
}

/// Sends a message.
///
/// # Safety
/// As for fi_tsendmsg.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_send(
    domain: *const Domain,
    endpoint: u32,
    operation: *const Operation,
) -> i64 {
    // SAFETY: the caller vouches for it.
    let Some((operation, spans)) = (unsafe { parts(operation) }) else {
        return -i64::from(fi::EINVAL);
    };
    let has = |flag| operation.flags & flag != 0;
    let send = Send {
        spans,
        to: operation.peer,
        tag: has(TAGGED).then_some(operation.tag),
        data: has(DATA).then_some(operation.data),
        context: operation.context,
        is_injected: has(INJECT),
        asks_report: has(REPORT),
        is_silent: has(SILENT),
        is_delivered: has(DELIVERY),
    };
    // SAFETY: the caller vouches for the memory.
    with(domain, |state| unsafe { state.send(endpoint as usize, &send) }.map(|()| 0))
}

/// Posts a receive, or looks for a message.
///
/// # Safety
/// As for fi_trecvmsg.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_receive(
    domain: *const Domain,
    endpoint: u32,
    operation: *const Operation,
) -> i64 {
    // SAFETY: the caller vouches for it.
    let Some((operation, spans)) = (unsafe { parts(operation) }) else {
        return -i64::from(fi::EINVAL);
    };
    let has = |flag| operation.flags & flag != 0;
    let looks = match (has(PEEK), has(CLAIM), has(DISCARD)) {
        (false, false, false) => Looks::Takes,
        (true, false, false) => Looks::Peeks,
        (true, true, false) => Looks::PeeksAndClaims,
        (true, false, true) => Looks::PeeksAndDiscards,
        (false, true, false) => Looks::TakesClaimed,
        (false, true, true) => Looks::DiscardsClaimed,
        _ => return -i64::from(fi::EINVAL),
    };
    let receiver = Receiver {
        spans,
        from: operation.peer,
        tag: has(TAGGED).then_some((operation.tag, operation.ignore)),
        context: operation.context,
        asks_report: has(REPORT),
        is_shared: has(MULTI),
        looks,
    };
    // SAFETY: the caller vouches for the memory.
    with(domain, |state| unsafe { state.receive(endpoint as usize, &receiver) }.map(|()| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_cancel(domain: *const Domain, endpoint: u32, context: usize) -> i64 {
    with(domain, |state| state.cancel(endpoint as usize, context).map(|()| 0))
}

/// Makes progress, and reads up to `count` completions; how many.
///
/// # Safety
/// `to` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_read(
    domain: *const Domain,
    queue: u32,
    to: *mut Completion,
    count: usize,
) -> i64 {
    with(domain, |state| {
        state.progress();
        let queue = state.queue(queue as usize)?;
        for at in 0..count {
            match queue.read() {
                // SAFETY: the caller vouches for the room.
                Ok(completion) => unsafe { to.add(at).write(completion) },
                Err(_) if at > 0 => return Ok(at as i64),
                Err(error) => return Err(error),
            }
        }
        Ok(count as i64)
    })
}

/// Reads the error that is next.
///
/// # Safety
/// `to` has room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_read_error(
    domain: *const Domain,
    queue: u32,
    to: *mut Completion,
) -> i64 {
    with(domain, |state| {
        let completion = state.queue(queue as usize)?.read_error()?;
        // SAFETY: the caller vouches for the room.
        unsafe { to.write(completion) };
        Ok(1)
    })
}

fn wait(domain: *const Domain, timeout_ms: c_int, is_there: impl FnMut(&mut State) -> bool) -> i64 {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: C has it from `gang_fabric_open`, and has not closed it.
    let run = || unsafe { &*domain }.wait(timeout, is_there);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => -i64::from(error),
        Err(_) => -i64::from(fi::EIO),
    }
}

/// Waits until a queue has something or is signalled; below 0 there is no timeout.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_wait(domain: *const Domain, queue: u32, timeout_ms: c_int) -> i64 {
    wait(domain, timeout_ms, |state| {
        let Ok(queue) = state.queue(queue as usize) else { return true };
        !queue.is_empty() || std::mem::take(&mut queue.is_signalled)
    })
}

/// A thread that waits for a queue returns.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_signal(domain: *const Domain, queue: u32) -> i64 {
    let signalled = with(domain, |state| {
        state.queue(queue as usize)?.is_signalled = true;
        Ok(0)
    });
    // SAFETY: C has it from `gang_fabric_open`, and has not closed it.
    unsafe { &*domain }.wake();
    signalled
}

/// Makes progress, and reads a counter.
///
/// # Safety
/// Both may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_fabric_count(
    domain: *const Domain,
    counter: u32,
    value: *mut u64,
    errors: *mut u64,
) -> i64 {
    with(domain, |state| {
        state.progress();
        let found = *state.counter(counter as usize)?;
        // SAFETY: the caller vouches for both.
        unsafe { (*value, *errors) = (found.value, found.errors) };
        Ok(0)
    })
}

/// Sets a counter, or adds to it; its errors where `of_errors` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_set_count(
    domain: *const Domain,
    counter: u32,
    of_errors: c_int,
    adds: c_int,
    value: u64,
) -> i64 {
    with(domain, |state| {
        let found = state.counter(counter as usize)?;
        let it = if of_errors != 0 { &mut found.errors } else { &mut found.value };
        *it = if adds != 0 { it.wrapping_add(value) } else { value };
        Ok(0)
    })
}

/// Waits until a counter has reached `value`; EAVAIL where errors were counted before.
#[unsafe(no_mangle)]
pub extern "C" fn gang_fabric_wait_count(
    domain: *const Domain,
    counter: u32,
    value: u64,
    timeout_ms: c_int,
) -> i64 {
    let (mut before, mut has_failed) = (None, false);
    let waited = wait(domain, timeout_ms, |state| {
        let Ok(found) = state.counter(counter as usize) else { return true };
        has_failed = *before.get_or_insert(found.errors) != found.errors;
        found.value >= value || has_failed
    });
    if has_failed { -i64::from(fi::EAVAIL) } else { waited }
}
