//! Compiles the programs for the kernel, where there is a clang that can.
//!
//! Who builds without one gets a gangd that does not measure and says why. A program that clang finds
//! fault with fails the build.

use std::{env, path::PathBuf, process::Command};

const SOURCE: &str = "src/cosched.bpf.c";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_program)");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=src/kernel.h");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    if env::var_os("CARGO_FEATURE_LIBBPF").is_none() {
        return;
    }
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let targets = Command::new(&clang).arg("-print-targets").output();
    let can = targets.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("bpf"));
    if !can {
        println!("cargo::warning=no {clang} that compiles for BPF: this gangd will not measure");
        return;
    }
    let architecture = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        Ok("riscv64") => "riscv",
        Ok("s390x") => "s390",
        Ok("powerpc64") => "powerpc",
        other => {
            println!("cargo::warning=no BPF programs for {other:?}: this gangd will not measure");
            return;
        }
    };
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").expect("cargo sets it");
    let target = if endian == "big" { "bpfeb" } else { "bpfel" };
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where libbpf's headers are");
    let object = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("cosched.bpf.o");
    let status = Command::new(&clang)
        .args(["-g", "-O2", "-Wall", "-Werror", "-mcpu=v3", "-target", target])
        .arg(format!("-D__TARGET_ARCH_{architecture}"))
        .arg(format!("-I{headers}"))
        .args(["-c", SOURCE, "-o"])
        .arg(object)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{clang} cannot compile {SOURCE}");
    println!("cargo::rustc-cfg=has_program");
}
