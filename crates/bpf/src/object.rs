//! The common part of the readers of BPF objects.

use std::ffi::OsStr;

use libbpf_rs::{Iter, Map, MapCore, Object, ObjectBuilder, ProgramMut};
use rustix::thread::{CapabilitySet, capabilities};

use crate::NotMeasured;

/// Aligned as ELF files must be.
#[repr(align(8))]
pub struct Aligned<Bytes: ?Sized>(pub Bytes);

/// Loads programs into the kernel. The arrays of these names get a value for each CPU that there
/// may be.
pub fn load(object: &'static Aligned<[u8]>, of_cpus: &[&str]) -> Result<Object, NotMeasured> {
    // It writes to standard error by itself; what it says is in its errors as well.
    libbpf_rs::set_print(None);
    let open = || {
        let mut object = ObjectBuilder::default().open_memory(&object.0)?;
        let cpus = libbpf_rs::num_possible_cpus()? as u32;
        for mut map in
            object.maps_mut().filter(|map| of_cpus.iter().any(|name| map.name() == *name))
        {
            map.set_max_entries(cpus)?;
        }
        object.load()
    };
    open().map_err(refused("load the BPF programs"))
}

/// Why the kernel did not do it. It denies permission also where it finds fault with a program, or
/// is locked down: with the rights, the error has the cause.
pub fn refused(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> NotMeasured {
    move |error| match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied if !has_rights() => NotMeasured::NotPermitted,
        _ => NotMeasured::Refused { operation, cause: format!("{error:#}") },
    }
}

fn has_rights() -> bool {
    let Ok(own) = capabilities(None) else { return false };
    let all = CapabilitySet::BPF | CapabilitySet::PERFMON;
    own.effective.contains(all) || own.effective.contains(CapabilitySet::SYS_ADMIN)
}

/// Has the programs look at the threads that are there already.
pub fn look_around(object: &Object) -> Result<(), NotMeasured> {
    let doing = "look at the threads that are there already";
    run_through(object, "look_around", doing, &mut std::io::sink())
}

/// Runs a program for each thread of the machine, and passes on what it writes.
pub fn run_through(
    object: &Object,
    name: &str,
    doing: &'static str,
    written: &mut impl std::io::Write,
) -> Result<(), NotMeasured> {
    let link = program(object, name).attach().map_err(refused(doing))?;
    let mut threads = Iter::new(&link).map_err(refused(doing))?;
    let read = std::io::copy(&mut threads, written);
    read.map(drop)
        .map_err(|error| NotMeasured::Refused { operation: doing, cause: error.to_string() })
}

pub fn map<'a>(object: &'a Object, name: &str) -> Map<'a> {
    let found = object.maps().find(|map| map.name() == OsStr::new(name));
    found.unwrap_or_else(|| panic!("the BPF object has a map {name}"))
}

pub fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    let found = object.progs_mut().find(|program| program.name() == OsStr::new(name));
    found.unwrap_or_else(|| panic!("the BPF object has a program {name}"))
}
