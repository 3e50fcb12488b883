//! The interface for C, as `integrations/fabric/gang_fabric.h` declares it.
//!
//! Numbers below 0 are errors of libfabric. No call panics into C: one that would ends with EIO.

mod objects;
mod operations;

use std::{
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{completion::fi, domain::Domain, settings::Settings, state::State};

/// Writes a line to the log: not 0 for a warning.
type LogCall = extern "C" fn(c_int, *const c_char);

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
