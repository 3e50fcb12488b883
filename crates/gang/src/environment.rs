//! The variables that `gang run` sets in the environment of a program. They make it start as many
//! threads as its gang has CPUs, and wait in a way that fits a gang.
//!
//! A variable that the user has set stays.
//!
//! Set where the gang has fewer CPUs than its program may use, or the user asks for it. Else the
//! program finds the number of CPUs by itself; and a program that divides CPUs among processes of
//! its own, such as `mpirun`, joblib or torchrun, would be told to divide none:
//!
//! - `OMP_NUM_THREADS` (OpenMP 5.2, 21.1.2). OpenBLAS, MKL, BLIS and NumExpr take it too where
//!   their own variable (`OPENBLAS_NUM_THREADS` and so on) is absent, so theirs are not set: they
//!   would win over an `OMP_NUM_THREADS` of the user's.
//! - `RAYON_NUM_THREADS` (rayon, `ThreadPoolBuilder::num_threads`) and `GOMAXPROCS` (Go, package
//!   runtime). Both default to the CPUs that the process may use and know nothing of OpenMP's
//!   variable. They follow a user's `OMP_NUM_THREADS` in nothing.
//!
//! Set in any case:
//!
//! - `KMP_BLOCKTIME` (libomp of LLVM and Intel), to 1 ms. Its default of 200 ms of spinning spans
//!   many slices, in which nobody can fill the CPUs of a gang that computes serially; 1 ms is many
//!   times what waking a thread costs. Not set where the user says by `OMP_WAIT_POLICY` or
//!   `KMP_LIBRARY` how to wait.
//!
//! Not set, on purpose:
//!
//! - `OMP_WAIT_POLICY`. `active` makes libgomp spin without end, so that holes are never filled,
//!   and gains nothing: two copies of LULESH as gangs took 5.3 s with it and 4.9 s without.
//!   `passive` blocks at every barrier, which is what gang scheduling makes unnecessary. Left
//!   alone, libgomp spins for some 300,000 rounds and then blocks; and because a gang has a CPU for
//!   every thread, it does not take itself for oversubscribed.
//!   `gang lab openmp --wait default,active,passive` compares the three.
//! - `OMP_PROC_BIND`, `OMP_PLACES`, `GOMP_CPU_AFFINITY`: which CPUs a gang has is the daemon's to
//!   say, and may change from slice to slice.

use std::ffi::OsString;

/// Milliseconds for which a thread of libomp spins before it blocks.
const KMP_BLOCKTIME_MS: u32 = 1;

/// The variables to add; `threads` is how many threads the program is to be told to start, if it
/// is.
/// `existing` are the names already set.
pub fn environment(threads: Option<i64>, existing: &[OsString]) -> Vec<(String, String)> {
    let is_set = |name: &str| existing.iter().any(|set| set == name);
    let mut added = Vec::new();
    for name in ["OMP_NUM_THREADS", "RAYON_NUM_THREADS", "GOMAXPROCS"] {
        if let Some(threads) = threads.filter(|_| !is_set(name)) {
            added.push((name.to_owned(), threads.to_string()));
        }
    }
    if !["KMP_BLOCKTIME", "KMP_LIBRARY", "OMP_WAIT_POLICY"].into_iter().any(is_set) {
        added.push(("KMP_BLOCKTIME".to_owned(), KMP_BLOCKTIME_MS.to_string()));
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(threads: impl Into<Option<i64>>, existing: &[&str]) -> Vec<String> {
        let existing: Vec<OsString> = existing.iter().map(OsString::from).collect();
        environment(threads.into(), &existing)
            .into_iter()
            .map(|(name, value)| name + "=" + &value)
            .collect()
    }

    #[test]
    fn a_gang_gets_a_thread_for_each_cpu() {
        assert_eq!(
            added(6, &["PATH", "HOME"]),
            ["OMP_NUM_THREADS=6", "RAYON_NUM_THREADS=6", "GOMAXPROCS=6", "KMP_BLOCKTIME=1"]
        );
    }

    #[test]
    fn who_has_all_cpus_finds_their_number_itself() {
        assert_eq!(added(None, &["PATH"]), ["KMP_BLOCKTIME=1"]);
    }

    #[test]
    fn what_the_user_has_set_stays() {
        assert_eq!(
            added(6, &["OMP_NUM_THREADS", "GOMAXPROCS"]),
            ["RAYON_NUM_THREADS=6", "KMP_BLOCKTIME=1"]
        );
        for way_to_wait in ["OMP_WAIT_POLICY", "KMP_LIBRARY", "KMP_BLOCKTIME"] {
            assert!(!added(6, &[way_to_wait]).iter().any(|v| v.starts_with("KMP_")));
        }
    }

    #[test]
    fn libraries_that_follow_openmp_are_left_alone() {
        for name in ["OPENBLAS", "MKL", "BLIS", "NUMEXPR"] {
            assert!(!added(6, &[]).iter().any(|variable| variable.starts_with(name)));
        }
    }
}
