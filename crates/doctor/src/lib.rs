//! `gang doctor`: says whether gang scheduling helps a program, and why.
//!
//! Problem: on today's Linux most programs gain nothing from gang scheduling, and some gain a
//! factor of ten. Which, depends on five conditions at once (E1 to E5), which people cannot see.
//!
//! Approach: a program is made a job that Linux schedules, while it is watched, so that its threads
//! are in a cgroup. For how long its threads run while all of them have CPUs, or do not, the
//! kernel's programs sum up ([`sampler`], `moments`); at ticks of each CPU it is seen whether they
//! work there or wait ([`sites`]). Figures follow from that ([`observation`], `waits`), and what
//! they say of a program ([`conditions`], [`diagnosis`]), without the kernel. With `--prove` the
//! program is a gang in one half of the time and Linux's in the other, in turn, and what it works
//! is compared ([`proof`]). The same is done for the jobs of policy `auto`, at the daemon's behest
//! ([`auto`]).

pub mod auto;
pub mod cli;
pub mod competitors;
pub mod conditions;
mod confinement;
pub mod diagnosis;
pub mod figures;
pub mod files;
pub mod interruption;
pub mod mapped;
pub mod memory;
mod moments;
pub mod observation;
pub mod program;
pub mod proof;
mod pulse;
pub mod report;
pub mod sampler;
pub mod sites;
pub mod symbols;
mod waits;
mod words;

use std::time::Instant;

use anyhow::Result;
use gang_linux::Roots;
use gang_protocol::v1::Policy;

use cli::Cli;
use diagnosis::Diagnosis;
use interruption::Interruption;
use observation::Observation;
use program::{Meant, Program};
use sampler::{Sampler, Ticks};

/// Examines the program that is meant, unless it is interrupted, and leaves it as it was in any
/// case.
pub fn examine(cli: &Cli, interruption: &Interruption) -> Result<Diagnosis> {
    let roots = Roots::default();
    let meant = cli.meant();
    let mut program = Program::find(&meant, cli.socket.as_deref(), cli.json)?;
    if matches!(meant, Meant::Command(_)) {
        interruption.sleep(cli.after)?;
    }
    // A gang is coscheduled even where it gains nothing by it: the program is to be seen without.
    program.set_policy(Policy::none)?;
    let before = competitors::Before::now(&roots.proc)?;
    let ticks = Ticks::over(cli.seconds);
    let sampler = Sampler::begin(&roots, &program.cgroup, program.cpus, ticks)?;
    let mut sampler = sampler.unless(interruption).with_names();
    let memory = memory::Memory::<perf_event::Counter>::count(&program.cgroup);
    sampler.until(Instant::now() + cli.seconds)?;
    let competitors = before.competitors(&roots.proc, &program.cgroup)?;
    let memory = Some(memory.bandwidth());
    let seen = Observation { competitors, memory, ..sampler.end()? };
    let mut diagnosis = Diagnosis::of(&seen);
    if cli.prove {
        diagnosis = match proof::prove(&roots, &mut program, cli.seconds, interruption) {
            Ok(proof) => diagnosis.proven(proof),
            Err(error) => {
                // A program that the doctor started may have got the signal as well, and ended
                // before.
                interruption.check()?;
                diagnosis.not_proven(match program.has_ended() {
                    true => proof::ended_too_soon(cli.seconds),
                    false => format!("{error:#}"),
                })
            }
        };
    }
    program.restore()?;
    Ok(diagnosis)
}
