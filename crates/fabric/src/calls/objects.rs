//! Address vectors, queues, counters and endpoints: made, bound and given back.

use std::{
    ffi::{c_char, c_int},
    ptr, slice,
};

use super::with;
use crate::{
    address::{ADDRESS, Address},
    completion::{Counter, Queue, fi},
    domain::Domain,
    state::{Bound, Endpoint, Entry, Vector, place},
};

#[repr(C)]
pub struct EndpointSettings {
    min_shared: usize,
    sends_max: usize,
    is_directed: u8,
    names_source: u8,
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
