//! Compiles the programs for the kernel, where there is a clang that can.
//!
//! A build without one makes a gangd that does not measure and says why. A program that clang finds
//! fault with fails the build.

use std::{env, path::PathBuf, process::Command};

/// The measuring of gangs, and the threads of one program.
const PROGRAMS: [&str; 2] = ["cosched", "profile"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_program)");
    for program in PROGRAMS {
        println!("cargo::rerun-if-changed=src/{program}.bpf.c");
    }
    for header in ["book.h", "kernel.h", "states.h", "ways.h", "whole.h"] {
        println!("cargo::rerun-if-changed=src/{header}");
    }
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
        other => {
            println!("cargo::warning=no BPF programs for {other:?}: this gangd will not measure");
            return;
        }
    };
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").expect("cargo sets it");
    let target = if endian == "big" { "bpfeb" } else { "bpfel" };
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where libbpf's headers are");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    for program in PROGRAMS {
        let source = format!("src/{program}.bpf.c");
        let status = Command::new(&clang)
            .args(["-g", "-O2", "-Wall", "-Werror", "-mcpu=v3", "-target", target])
            .arg(format!("-D__TARGET_ARCH_{architecture}"))
            .arg(format!("-I{headers}"))
            .args(["-c", &source, "-o"])
            .arg(out.join(format!("{program}.bpf.o")))
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{clang} cannot compile {source}");
    }
    println!("cargo::rustc-cfg=has_program");
}
