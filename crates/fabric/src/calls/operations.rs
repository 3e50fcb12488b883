//! Sends, receives, and what has come of them.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    time::Duration,
};

use super::with;
use crate::{
    completion::{Completion, fi},
    domain::Domain,
    receiving::{Looks, Receiver},
    sending::Send,
    spans::{Span, Spans},
    state::State,
};

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
        if state.queue(queue as usize)?.is_empty() {
            state.polled();
        }
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
        state.page.happened();
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
