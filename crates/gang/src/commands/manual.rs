//! `gang manual`: the man pages, one for gang and one for each of its commands.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli;

/// A section of a man page that the definition of the command line does not hold: paragraphs, or
/// terms with what they mean.
enum Section {
    Terms(&'static str, &'static [(&'static str, &'static str)]),
    Text(&'static str, &'static str),
}

const EXIT_STATUS: Section = Section::Terms(
    "EXIT STATUS",
    &[
        ("0", "What was asked for is done."),
        ("1", "It failed or was refused; standard error says why."),
        ("2", "What was typed makes no sense."),
        ("3", "No daemon listens."),
    ],
);

const EXIT_STATUS_RUN: Section = Section::Terms(
    "EXIT STATUS",
    &[
        (
            "that of CMD",
            "The program was executed. If a signal ended it, the caller sees that signal.",
        ),
        ("125", "gang itself failed or was refused, and CMD was not executed."),
        ("126", "CMD was found and cannot be executed."),
        ("127", "CMD was not found."),
    ],
);

const ENVIRONMENT: Section = Section::Terms(
    "ENVIRONMENT",
    &[
        (
            "GANG_SOCKET",
            "Socket of the daemon to talk to, and the only one that is tried, unless --socket \
             names one. A daemon that gang run starts listens there.",
        ),
        (
            "GANG_TIMEOUT",
            "Seconds to wait for the daemon at most: to start, to take a connection, and for each \
             answer. Unless it is set, commands wait for 1 to 10 s, each by its kind.",
        ),
        ("XDG_RUNTIME_DIR", "Directory of the user's own daemon (see FILES)."),
    ],
);

const ENVIRONMENT_RUN: Section = Section::Terms(
    "ENVIRONMENT",
    &[
        ("GANG_SOCKET", "Socket of the daemon; see gang(1). Set for CMD where --socket names one."),
        ("GANG_JOB", "Set for CMD to the id of its job."),
        (
            "OMP_NUM_THREADS, RAYON_NUM_THREADS, GOMAXPROCS",
            "Set for CMD to CPUS, each unless it is set, where CPUS is less than gang run may use, \
             or with --env. OpenBLAS, MKL, BLIS and NumExpr follow the first. A program that \
             starts several processes with threads of their own, such as mpirun, then needs \
             OMP_NUM_THREADS set to what one of them shall have.",
        ),
        (
            "KMP_BLOCKTIME",
            "Set for CMD to 1 (ms), so that threads of libomp that wait long leave their CPU to \
             others; not where it, KMP_LIBRARY or OMP_WAIT_POLICY is set.",
        ),
        (
            "FI_PROVIDER_PATH",
            "With --net, the directory of libgang-fi.so comes before those that the variable has: \
             that of gang itself, or lib, lib/TRIPLET or lib64 of its prefix. Where the library is \
             in none of them, CMD is not executed.",
        ),
        (
            "FI_PROVIDER, OMPI_MCA_pml, OMPI_MCA_mtl, OMPI_MCA_mtl_ofi_provider_include, \
             MPIR_CVAR_CH4_NETMOD",
            "With --net, set for CMD to gang, cm, ofi, gang and ofi, each unless it is set. \
             libfabric, Open MPI and MPICH read them.",
        ),
    ],
);

const SIGNALS_RUN: Section = Section::Text(
    "NOTES",
    "CMD replaces gang, so it has the process id, the terminal, the streams, open or closed, and \
     the ignored and blocked signals that gang was started with. A program with a limit of \
     real-time CPU time (RLIMIT_RTTIME) is never made a real-time one: its gang is preferred in \
     its slots, as one with more threads than CPUs is.",
);

const SCHEDULING_RUN: Section = Section::Terms(
    "SCHEDULING",
    &[
        (
            "What stays",
            "The nice value and the policy that CMD or its owner sets, for a program or a thread, \
             by nice(1), renice(1), chrt(1) or the calls, at any moment: a thread has them back as \
             soon as its job is released. A thread that is made real-time (SCHED_FIFO, SCHED_RR, \
             SCHED_DEADLINE) is left alone from then on.",
        ),
        (
            "CPUs",
            "A gang has its slots on the CPUs that its threads may use, as set by taskset(1), \
             numactl(8), mpirun --bind-to or a cpuset, before or while it runs. Gangs within the \
             same CPUs take turns. A thread that is bound to CPUs of its own stays there. Where \
             the CPUs do not do for the gang, it has no slots, Linux alone schedules it (with the \
             backend rt in the group of all gangs, which gives way to others), and gang why says \
             so.",
        ),
        (
            "Cgroups",
            "The cgroup of a job lies below the one in which its first process was, so that \
             whoever limits, freezes or kills that one reaches the job. Where gangs give way to \
             the rest of the machine by their place in the unified hierarchy, a job leaves its \
             caller's group and keeps its limits of memory and processes; a process of gangd \
             stays in the group, and passes on a kill, a freeze, a stop, and a signal that ends \
             it. Weights of the group do not count for such a job; its own does (gang set \
             --weight). It stays where something else limits the group: a quota, a cpuset, and \
             filters of devices or packets that are BPF programs of the group, as systemd has \
             them. Then it gives way to others of that group alone. Rules of a packet filter that \
             name the group (nftables: socket cgroupv2) are not seen. Under a quota of CPU time, \
             of either version, it stays and is not real-time in its slots, which the quota would \
             not bind. The gangs of a group with a quota have slots for as much CPU time \
             together, and the least quota of the group and those above it counts; other gangs \
             have the slots that are left. Limits that come or go while a job runs count within \
             seconds: the job moves to its caller's group, or leaves it. gang show tells what \
             keeps a job; gangd.toml(5), [cgroups] leave.",
        ),
        (
            "What differs in a slot",
            "There, a thread is SCHED_FIFO, or has the nice value -20 where the gang has more \
             threads than CPUs. Both have SCHED_RESET_ON_FORK, without which the children of such \
             a thread would be as it is. A thread that is SCHED_FIFO in its slots has that flag out \
             of them, too: the kernel copies a thread that starts another one piece by piece, also \
             while a slot ends. sched_setscheduler(2) and sched_setattr(2) fail with EPERM for who \
             may not clear the flag (without CAP_SYS_NICE). A gang that has no competitors is as \
             its owner has it. sched_setparam(2) and pthread_setschedprio(3) with priority 0 fail \
             with EINVAL in a slot of SCHED_FIFO, which has none. Out of its slot, a thread is \
             SCHED_IDLE where its cgroup cannot be idle: then sched_setscheduler(2) and \
             sched_setattr(2) refuse the other policies with EPERM, unless RLIMIT_NICE permits \
             them. Where gangd stops processes (gang status: backend signal), calls that signal(7) \
             names as interrupted \
             by a stop fail with EINTR. Where the kernel groups real-time threads \
             (CONFIG_RT_GROUP_SCHED), a thread in its slot cannot move to a group of the cpu \
             controller of version 1 whose cpu.rt_runtime_us is 0 (EINVAL). No other call fails. \
             I/O of a thread without a class of its own (ionice(1)) has the class that Linux \
             gives to its policy: real-time in its slot, idle where it is SCHED_IDLE.",
        ),
        (
            "Programs that start many others",
            "What a thread starts in its slot is an ordinary process until the next look. Where \
             many processes end before that, as in a build, the gang moves to a cpu group of its \
             own: that has the highest weight in its slots and is idle out of them, and its \
             threads keep the attributes that they have. A gang that is kept in its caller's group \
             cannot. gang show and gang why say which.",
        ),
        (
            "Real-time programs of others",
            "Those of priority 2 or above come before gangs. Those of priority 1, such as \
             compositors, are equals: a gang gives way to one that wakes on a CPU of its slot \
             until that one sleeps, for up to a fifth of its slots. gang show and gang why say how \
             often. Where gangd does not measure (gang status says so), they wait for the end of \
             the slot.",
        ),
        (
            "What nobody can tell",
            "The policy SCHED_BATCH or SCHED_IDLE, whichever gangd gives to threads out of their \
             slots, and the nice value -20, where they are set while gangd gives others; and CPUs \
             that are exactly those of the slot. In the slot of a gang with more threads than \
             CPUs, a nice value below the thread's own is nobody's wish: the kernel permits it \
             there to everybody. So it is everywhere with SCHED_RESET_ON_FORK, as rtkit sets it. A \
             policy that is set shortly before the daemon is killed may be lost. The kernel sets \
             the timer slack of a thread that was real-time back to its default (prctl(2), \
             PR_SET_TIMERSLACK).",
        ),
    ],
);

const DAEMON_RUN: Section = Section::Terms(
    "DAEMON",
    &[
        (
            "What it keeps",
            "Where no daemon listens, gang run starts one. It serves everybody until the last job \
             has ended, so it is as a service manager would start it, and keeps nothing of its \
             first caller but the right to start it: no descriptors, limits, blocked or ignored \
             signals, priorities or CPUs, and of the environment PATH and GANGD_LOG. As root it \
             leaves the caller's cgroups, and its guardian has one of its own.",
        ),
        (
            "What nobody can give back",
            "The kernel keeps no_new_privs (prctl(2)), seccomp filters, Landlock rules, \
             capabilities that were dropped, namespaces and the root directory for the daemon, \
             too. A daemon that is not root's also keeps its caller's hard limits, nice above 0, \
             and cgroups. A tracer such as strace -f traces it. Where any of this matters, have a \
             service manager start the daemon first.",
        ),
        (
            "Containers",
            "In a container, gang run starts a daemon of the container's own, which takes a /proc \
             of the same PID namespace; or it uses the machine's, where the container has that \
             one's socket (docker run -v /run/gangd:/run/gangd). Then the container's limits hold, \
             and gang show has the machine's numbers of processes. Where the daemon takes gangs in \
             turn by signals, and for gang adopt, a client has to share the daemon's PID \
             namespace. Nor does a daemon in a container take processes from outside of it.",
        ),
    ],
);

const PROXY_WEB: Section = Section::Text(
    "NOTES",
    "gang web does not encrypt. Behind a proxy it listens at a Unix socket (--listen unix:PATH), \
     whose directory has the proxy's group and the set-group-ID bit, and gets the name that \
     people type by --name. The proxy passes that name on as Host, does not buffer answers, and \
     waits for them for long. An example for nginx is in docs/web.md of the sources.",
);

const FILES: Section = Section::Terms(
    "FILES",
    &[
        ("/run/gangd/gangd.sock", "Socket of the machine's daemon, tried first."),
        (
            "$XDG_RUNTIME_DIR/gangd/gangd.sock, else /tmp/gangd-UID/gangd.sock",
            "Socket of a daemon of the user's own, tried next, and where gang run starts one. \
             Root has none beside the machine's.",
        ),
    ],
);

pub fn manual(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut gang = cli::documented();
    gang.build();
    let pages = gang.get_subcommands().filter(|command| !command.is_hide_set());
    for command in pages {
        write_page(dir, command, false)?;
    }
    write_page(dir, &gang, true)
}

fn write_page(dir: &Path, command: &Command, is_top: bool) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, page(command, &name, is_top)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn page(command: &Command, name: &str, is_top: bool) -> Result<Vec<u8>> {
    let sections: &[Section] = match name {
        "gang-run" => &[EXIT_STATUS_RUN, ENVIRONMENT_RUN, SCHEDULING_RUN, DAEMON_RUN, SIGNALS_RUN],
        "gang-web" => &[EXIT_STATUS, PROXY_WEB],
        "gang" => &[EXIT_STATUS, ENVIRONMENT, FILES],
        _ => &[EXIT_STATUS],
    };
    let version = concat!("gangd ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).manual("gangd").section("1").source(version);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    // Its own synopsis leaves out which options take a value.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    Roff::new().control("SH", ["SYNOPSIS"]).text([roman(usage)]).to_writer(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if is_top || command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut roff = Roff::new();
    for section in sections {
        match section {
            Section::Text(title, text) => {
                roff.control("SH", [*title]).text([roman(*text)]);
            }
            Section::Terms(title, terms) => {
                roff.control("SH", [*title]);
                for (term, meaning) in *terms {
                    roff.control("TP", []).text([roman(*term)]).text([roman(*meaning)]);
                }
            }
        }
    }
    let also = if is_top { "gang-run(1), gangd(8)" } else { "gang(1), gangd(8)" };
    roff.control("SH", ["SEE ALSO"]).text([roman(also)]);
    roff.to_writer(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_says_how_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        manual(dir.path()).unwrap();
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "gang-adopt.1",
                "gang-check.1",
                "gang-cluster.1",
                "gang-doctor.1",
                "gang-history.1",
                "gang-hosts.1",
                "gang-kill.1",
                "gang-lab.1",
                "gang-ls.1",
                "gang-metrics.1",
                "gang-recover.1",
                "gang-resume.1",
                "gang-run.1",
                "gang-set.1",
                "gang-show.1",
                "gang-shutdown.1",
                "gang-snapshot.1",
                "gang-status.1",
                "gang-suspend.1",
                "gang-top.1",
                "gang-trace.1",
                "gang-web.1",
                "gang-why.1",
                "gang.1",
            ]
        );
        for name in names {
            let page = fs::read_to_string(dir.path().join(&name)).unwrap();
            assert!(page.contains("EXIT STATUS"), "{name}");
            assert!(!page.contains("start-daemon") && !page.contains("manual DIR"), "{name}");
        }
        let run = fs::read_to_string(dir.path().join("gang-run.1")).unwrap();
        let words = ["125", "126", "127", "OMP_NUM_THREADS", "GANG_JOB", "no_new_privs"];
        for word in words {
            assert!(run.contains(word), "{word}");
        }
    }
}
