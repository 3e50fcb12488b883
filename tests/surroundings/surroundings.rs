//! `gang run` shall feel like `nice`: a program does not see that gangd is there, nor do those who
//! start it.
//!
//! Problem: gangd stands between a program and its surroundings: the shell, make, a debugger, a
//! container. Each of these relies on other things: pids, signals, descriptors, limits, how a
//! process ends.
//!
//! Approach: one table of cases ([`table`]). A case is a script in which `$RUN` stands where
//! `gang run` goes. The script runs once without gangd, where `$RUN` is empty, and once with each
//! backend. Output, code, signal, files and processes that stay must be the same, and gangd must
//! leave neither jobs nor cgroups. Each backend has a daemon of its own for each case. A gang that
//! spins takes turns with the program ([`case`]).
//!
//! Each case has the backend `rt`, every other case also another one. With `GANG_SURROUNDINGS=all`
//! each has all backends (`make test-nightly PARTS=surroundings`). Where `rt` is
//! not permitted, the first backend that is takes its place.

mod case;
mod table;
