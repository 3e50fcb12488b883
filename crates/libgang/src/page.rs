//! Mapping the slot page.

use std::{
    ffi::c_void,
    fs::File,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{
    connection::ask,
    handle::{self, Handle},
    result::{Code, Failure, answer},
};

const LENGTH: usize = 4096;
const MAGIC: u32 = 0x474e_4147;
const VERSION: u32 = 1;

/// Pages that a process has mapped at a time.
const OPEN_MAX: usize = 1024;

/// The pages that are mapped: nothing else is unmapped, and that once. Without a lock, so that a
/// fork finds it whole.
static OPEN: [AtomicPtr<Page>; OPEN_MAX] = [const { AtomicPtr::new(ptr::null_mut()) }; OPEN_MAX];

/// Puts `to` where `from` is; false where it is nowhere.
fn exchange(from: *const Page, to: *const Page) -> bool {
    let (from, to) = (from.cast_mut(), to.cast_mut());
    OPEN.iter().any(|entry| {
        entry.load(Ordering::Relaxed) == from
            && entry.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// As in `gang.h`; the readers of programs are there.
#[repr(C)]
pub struct Page {
    magic: u32,
    version: u32,
    running: AtomicU32,
    _on_cpus: AtomicU32,
    _until_ns: [AtomicU32; 2],
    _slice_ns: [AtomicU32; 2],
    cpus: AtomicU32,
    validity: AtomicU32,
}

/// The other threads of a gang, as its page has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partners {
    Run,
    Stand,
    NotKnown,
}

impl Page {
    /// Whether `threads` of the gang run at this moment.
    #[inline]
    pub fn partners(&self, threads: u32) -> Partners {
        if self.validity.load(Ordering::Relaxed) != 0 {
            Partners::NotKnown
        } else if self.running.load(Ordering::Relaxed) == 0 {
            Partners::Stand
        } else if self.cpus.load(Ordering::Relaxed) < threads {
            Partners::NotKnown
        } else {
            Partners::Run
        }
    }

    #[cfg(test)]
    pub fn made_up(running: u32, cpus: u32, validity: u32) -> Page {
        Page {
            magic: MAGIC,
            version: VERSION,
            running: running.into(),
            _on_cpus: AtomicU32::default(),
            _until_ns: Default::default(),
            _slice_ns: Default::default(),
            cpus: cpus.into(),
            validity: validity.into(),
        }
    }
}

/// The slot page that C hands over: null, or one of ours as far as that can be seen.
///
/// # Safety
/// Where it could be the address of a page, it is one that is mapped.
pub unsafe fn check(page: *const Page) -> Result<(), Failure> {
    if page.is_null() {
        return Ok(());
    }
    if page.addr() % LENGTH != 0 {
        return Err(Failure::invalid("that is no slot page"));
    }
    // SAFETY: as the caller says.
    let (magic, version) = unsafe { ((*page).magic, (*page).version) };
    if (magic, version) == (MAGIC, VERSION) {
        Ok(())
    } else {
        Err(Failure::invalid("that is no slot page of this version"))
    }
}

/// # Safety
/// As in `gang.h`: `out` is null, or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_page_open(job: *mut Handle, out: *mut *const Page) -> u32 {
    answer(|| {
        let job = handle::job(job)?;
        if out.is_null() {
            return Err(Failure::invalid("the page is null"));
        }
        let path = ask(|client| client.slot_page(job))?;
        let page = map(&path)?;
        // SAFETY: it is not null, and the caller lets us write it.
        unsafe { *out = page };
        Ok(())
    })
}

fn map(path: &str) -> Result<*const Page, Failure> {
    let failed = |e: std::io::Error| {
        Failure::new(Code::Failed, format!("cannot map the slot page {path}: {e}"))
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() < LENGTH as u64 {
        return Err(Failure::new(Code::Unsupported, format!("{path} is no slot page")));
    }
    // SAFETY: a new mapping, nowhere in particular, that nothing of ours refers to. Only the daemon
    // can shorten the file, and does not.
    let mapped =
        unsafe { mmap(ptr::null_mut(), LENGTH, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
    let page = mapped.map_err(|e| failed(e.into()))?.cast::<Page>();
    // SAFETY: mapped, aligned to a page, and at least that long.
    let (magic, version) = unsafe { ((*page).magic, (*page).version) };
    let failure = if (magic, version) != (MAGIC, VERSION) {
        Failure::new(Code::Unsupported, format!("{path} is a slot page of another version"))
    } else if exchange(ptr::null(), page) {
        return Ok(page);
    } else {
        Failure::new(Code::Limit, format!("{OPEN_MAX} slot pages are open; close those not in use"))
    };
    // SAFETY: what was just mapped, and handed to nobody.
    let _ = unsafe { munmap(page.cast::<c_void>(), LENGTH) };
    Err(failure)
}

/// # Safety
/// As in `gang.h`: null, or what gang_page_open gave and nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_page_close(page: *const Page) -> u32 {
    answer(|| {
        if page.is_null() || !exchange(page, ptr::null()) {
            return Err(Failure::invalid("that is no slot page, or it was closed before"));
        }
        // SAFETY: it was mapped here and is unmapped once; the caller says that it is done with.
        unsafe { munmap(page.cast::<c_void>().cast_mut(), LENGTH) }
            .map_err(|e| Failure::new(Code::Failed, format!("cannot unmap the slot page: {e}")))
    })
}
