//! A virtual machine of QEMU with a virtual CPU for each CPU, which meet at barriers. Its guest
//! needs no operating system, and so nothing to download.
//!
//! QEMU translates the guest (TCG), with a thread for each virtual CPU, also where there is KVM: a
//! kernel that is itself a guest may have none, or one that emulates.

use std::path::Path;

use anyhow::Result;

use super::{Done, Program, needs};
use crate::harness::compiled::compile;

const GUEST: &str = include_str!("../../../../../demo/guest.c");

/// Options of gcc for a kernel of 32 bits, which begins with its Multiboot header.
const OF_A_KERNEL: [&str; 9] = [
    "-m32",
    "-ffreestanding",
    "-fno-openmp",
    "-fno-pic",
    "-fno-stack-protector",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,-e,start,-Ttext=0x100000,--build-id=none,-n",
];

/// The guest, compiled into `dir`, on so many virtual CPUs; an error names the package where it is
/// missing.
pub fn qemu(dir: &Path, cpus: usize) -> Result<Program> {
    needs("qemu-system-x86_64", "--version", "the package qemu-system-x86")?;
    let guest = compile(dir, "guest", GUEST, &OF_A_KERNEL)?;
    let run = format!(
        "exec qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -m 32 \
         -accel tcg,thread=multi -smp {cpus} -device isa-debug-exit -kernel \"$0\" -append \"$*\""
    );
    // The last words are the command line of the guest.
    let (guest, cpus) = (guest.display().to_string(), cpus.to_string());
    let command = ["sh", "-c", &run, &guest, &cpus, "50000"].map(String::from).to_vec();
    Ok(Program { done: Done::Ended, ..Program::new("QEMU", command) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::real_programs::tests::runs_or_says_why_not;

    #[test]
    fn qemu_runs_its_guest_to_its_end_needs_qemu() {
        runs_or_says_why_not(|dir| qemu(dir, 2));
    }
}
