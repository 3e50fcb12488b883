//! The command line. Help, man pages and completions come from here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use gang_protocol::limits::{CPUS_MAX, WEIGHT_MAX, WEIGHT_MIN};

/// Run parallel programs as gangs
///
/// All threads of a gang run at the same moment, so that its barriers, locks and messages stay
/// cheap while the machine is shared. gang talks to the daemon gangd, which shares the CPUs among
/// gangs slice by slice.
#[derive(Debug, Parser)]
#[command(name = "gang", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// Socket of the daemon to talk to, and the only one that is tried [env: GANG_SOCKET]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    /// List the jobs
    Ls(Listing),
    Show(Show),
    Top(Top),
    /// Say in plain words why a job is as fast or as slow as it is, and what to change
    ///
    /// Judges by the figures of gang show and gang status: its share, the processes that it waited
    /// for in its slots, whether it is coscheduled, whether it uses the CPUs that it has, and its
    /// memory.
    Why(Show),
    Snapshot(Snapshot),
    Metrics(Metrics),
    History(History),
    /// Show the daemon: backend and guarantee, slice, times of its switches
    Status(Listing),
    /// Show the cluster: its hosts, how good their clocks are, and the jobs that span them
    Hosts(Listing),
    /// Make a cluster, or take hosts out of it
    Cluster(Cluster),
    /// Stop a job until it is resumed; its memory stays
    Suspend(OneJob),
    /// Let a suspended job run again
    Resume(OneJob),
    /// Send a signal to every process of a job
    Kill(Kill),
    Adopt(Adopt),
    Set(Set),
    /// Say whether gang scheduling helps a program (gang doctor --help has the options)
    ///
    /// Watches a job (gang doctor JOB), a process (gang doctor --pid PID), or a program that it
    /// starts (gang doctor -- CMD), for some seconds; judges the five conditions under which gang
    /// scheduling helps, predicts the gain, and with --prove measures it, by scheduling the program
    /// as a gang and by Linux alone in turn. --json has all figures.
    #[command(disable_help_flag = true)]
    Doctor(PassedOn),
    /// Check the invariants of the schedule on the daemon's state and the kernel's
    ///
    /// Ends with 1 when an invariant does not hold, and says which and what was found.
    Check(Listing),
    /// End the daemon; the programs run on at normal priority (administrators only)
    Shutdown,
    /// Recover from a daemon that died: release what it left raised, paused or frozen
    ///
    /// Any other command does this first where it finds no daemon; this one does only this, and
    /// says where there was nothing to do.
    Recover,
    Web(Web),
    /// Record slots and what really ran, for Perfetto or Chrome (gang trace --help has the options)
    ///
    /// Writes what was planned and what ran on each CPU, for some seconds, as a trace that Perfetto
    /// and Chrome open; --picture draws it for a paper or a report. gang trace merge FILE... puts
    /// the traces of several hosts on one clock, and says how far their clocks may still differ.
    #[command(disable_help_flag = true)]
    Trace(PassedOn),
    /// Repeat the measurements of gangd (gang lab --help lists them)
    #[command(disable_help_flag = true)]
    Lab(PassedOn),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Manual {
        dir: PathBuf,
    },
    /// Write the completions of a shell to standard output
    #[command(hide = true)]
    Completions {
        shell: clap_complete::Shell,
    },
    /// Start gangd in the background and wait until it listens (used by gang run)
    #[command(hide = true)]
    StartDaemon(StartDaemon),
    /// Become a program when a byte comes (used by gang run)
    #[command(hide = true)]
    ExecGated(ExecGated),
}

impl Command {
    /// Whether this process becomes another program, or stands for it.
    pub fn executes(&self) -> bool {
        matches!(self, Command::Run(_) | Command::ExecGated(_))
    }
}

/// Run a program as a gang
///
/// Registers a job, puts itself into it and executes the program in its own place, as nice and
/// taskset do: signals, terminal and exit code are the program's own. Starts a daemon where none
/// listens, which ends after its last job. Called within a job, it executes the program in that
/// job, whatever the options of the job are. Sets GANG_JOB for the program to the job's id; and,
/// where it is not set already, KMP_BLOCKTIME to what fits a gang. Where the gang has fewer CPUs
/// than gang run may use, it sets OMP_NUM_THREADS, RAYON_NUM_THREADS and GOMAXPROCS to their
/// number, unless they are set already.
///
/// The variables GANG_CPUS, GANG_MIN_CPUS, GANG_CLASS, GANG_WEIGHT, GANG_NAME, GANG_MEM, GANG_DISK
/// and GANG_SIGNALS (1, or 0 for none) stand for the options of these names. With the library
/// libgang-preload.so in LD_PRELOAD and GANG=1 they make a gang of a program that is not started by
/// gang run, and one of all ranks of an MPI program: mpirun -x GANG=1 -x
/// LD_PRELOAD=libgang-preload.so.
///
/// Without privilege gangs take turns by SIGSTOP and SIGCONT (gang status: backend signal). Then
/// gang run stays as the parent of the program, so that the shell does not see it stop with every
/// slice. It passes signals on, and ends as the program ends. Ctrl-Z and kill -TSTP suspend the
/// job until it is continued; kill -STOP of the program does not, its next slot continues it. kill
/// -9 of gang run ends the program too, though not what the program has started.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub job: JobOptions,
    /// Hosts that the job spans, each with its CPUs there, such as a:4,b:4: it has its slots at
    /// the same moments on all of them. The program runs here, and starts its own parts elsewhere,
    /// which join by gang run --join
    #[arg(long, value_name = "HOST:CPUS,...", value_delimiter = ',', value_parser = host_cpus,
        conflicts_with_all = ["policy", "wait", "backend"])]
    pub hosts: Vec<HostCpus>,
    /// Fate of a job that spans hosts when it loses one
    #[arg(long, value_enum, default_value_t = OnHostLost::Mark, requires = "hosts")]
    pub on_host_lost: OnHostLost,
    /// Run the program in a job that is there already, which GANG_JOB names where the option has no
    /// number
    #[arg(long, value_name = "JOB", num_args = 0..=1, require_equals = true,
        default_missing_value = "", conflicts_with_all = ["hosts", "policy", "wait", "backend"])]
    pub join: Option<String>,
    /// Backend of a daemon that this command starts; one that listens already must have it
    #[arg(long)]
    pub backend: Option<String>,
    /// Wait until there is as much memory and disk as --mem and --disk ask for
    #[arg(long)]
    pub wait: bool,
    /// Set OMP_NUM_THREADS and its kin also where the gang has all CPUs that it may use
    #[arg(long)]
    pub env: bool,
    /// Have MPI send its messages by gangd's libfabric provider, libgang-fi.so: for Open MPI, and
    /// MPICH with ch4:ofi. Variables by which the user chooses something else stay
    #[arg(long)]
    pub net: bool,
    /// Do not say when the guarantee is weak because privilege is missing, or which job it runs in
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Make a cluster, or take hosts out of it
#[derive(Debug, Args)]
pub struct Cluster {
    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Write the first records of a cluster to etcd
    ///
    /// Name, etcd and the length of slices are those of gangd.toml, which the hosts have, too.
    /// Where etcd has users, this needs its root.
    Init(ClusterInit),
    /// Write certificates for etcd and the hosts, where nobody else signs them
    ///
    /// They are PEM files: ca, etcd, root (the administrator of etcd) and one for each host, with
    /// their keys. Files that are there stay: hosts can be added later. The key of ca is to be kept
    /// where no host reads it.
    Certificates(ClusterCertificates),
    /// Take hosts out of the cluster for good
    ///
    /// Their jobs and their gangd must have ended. Jobs that were killed do not keep hosts that are
    /// lost: where there are several of these, one call names all of them. Where etcd has users, a
    /// host that is not this one needs its root.
    Leave(ClusterLeave),
}

#[derive(Debug, Args)]
pub struct ClusterCertificates {
    /// Configuration file of gangd [default: /etc/gangd/gangd.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Names and addresses by which hosts reach etcd
    #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
    pub etcd: Vec<String>,
    /// The days for which certificates are in force
    #[arg(long, default_value_t = 1095, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// The hosts, by their names in the cluster
    #[arg(long, value_name = "HOST", num_args = 1..)]
    pub hosts: Vec<String>,
    /// The directory for the files
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct ClusterLeave {
    /// Configuration file of gangd [default: /etc/gangd/gangd.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The hosts, by their names in the cluster [default: this one]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ClusterInit {
    /// Configuration file of gangd [default: /etc/gangd/gangd.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Rows of the shortest frame, after which the matrix repeats
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub rows: u32,
    /// Jobs share with all others by their weights, whoever owns them; else users share first
    #[arg(long)]
    pub by_program: bool,
    /// Users are the same on all hosts by their numbers, and not by their names
    #[arg(long)]
    pub users_by_number: bool,
    /// A host that is away for this long is lost to its jobs
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub lost_after: String,
    /// Hosts that get a user and a role of etcd, which permits what a host has to write
    #[arg(long, value_name = "HOST", num_args = 1..)]
    pub permit_host: Vec<String>,
}

/// CPUs of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCpus {
    pub host: String,
    pub cpus: i64,
}

/// Reads a host with its CPUs.
fn host_cpus(text: &str) -> Result<HostCpus, String> {
    let wrong = || format!("{text:?} is not a host with its CPUs, such as a:4");
    let (host, cpus) = text.rsplit_once(':').ok_or_else(wrong)?;
    let cpus = cpus.parse().ok().filter(|cpus| (1..=CPUS_MAX).contains(cpus)).ok_or_else(wrong)?;
    if host.is_empty() { Err(wrong()) } else { Ok(HostCpus { host: host.to_owned(), cpus }) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnHostLost {
    /// It goes on, and says which host is lost
    Mark,
    /// It stands still on all hosts until it is resumed
    Suspend,
    /// Linux alone schedules it from then on
    Release,
}

/// The requests of a job
#[derive(Debug, Clone, Args)]
pub struct JobOptions {
    /// CPUs that the gang gets at once [default: as many as it may use]
    #[arg(short = 'n', long, env = "GANG_CPUS", hide_env_values = true,
        value_parser = clap::value_parser!(i64).range(1..=CPUS_MAX))]
    pub cpus: Option<i64>,
    /// CPUs below which it does not run [default: CPUS]
    #[arg(long, value_name = "N", env = "GANG_MIN_CPUS", hide_env_values = true,
        value_parser = clap::value_parser!(i64).range(1..=CPUS_MAX))]
    pub min: Option<i64>,
    /// Class of the job [default: batch; standby for a caller of SCHED_IDLE
    /// or of the I/O class idle]
    #[arg(long, value_enum, env = "GANG_CLASS", hide_env_values = true)]
    pub class: Option<Class>,
    /// How the gang is placed
    #[arg(long, value_enum, default_value_t = Policy::Gang)]
    pub policy: Policy,
    /// Share of the time relative to your other jobs of the class, 1 to 10000; above 100 takes an
    /// administrator [default: 100; less for a caller, or a process that is adopted, of a nice
    /// value above 0, as the kernel has it: 11 for 10, 1 for 19]
    #[arg(long, env = "GANG_WEIGHT", hide_env_values = true,
        value_parser = clap::value_parser!(i64).range(WEIGHT_MIN..=WEIGHT_MAX))]
    pub weight: Option<i64>,
    /// Name of the job, at most 64 bytes [default: that of the program]
    #[arg(long, env = "GANG_NAME", hide_env_values = true)]
    pub name: Option<String>,
    /// Memory it needs, such as 4G: refused where there is less, and enforced where the kernel can
    #[arg(long, value_name = "SIZE", env = "GANG_MEM", hide_env_values = true, value_parser = size)]
    pub mem: Option<i64>,
    /// Disk it needs for scratch files, such as 10G: refused where there is less
    #[arg(long, value_name = "SIZE", env = "GANG_DISK", hide_env_values = true, value_parser = size)]
    pub disk: Option<i64>,
    /// Send SIGUSR1 before each slot ends and SIGUSR2 after it begins, to processes that handle
    /// both, from half a second after gangd sees that they do
    #[arg(long, env = "GANG_SIGNALS", hide_env_values = true,
        value_parser = clap::builder::FalseyValueParser::new())]
    pub signals: bool,
}

/// Reads a size such as `512M` or `4GiB`; the units are powers of 1024.
fn size(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a size such as 512M or 4G");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => "B".to_owned(),
        short if short.len() == 1 => format!("{short}iB"),
        other => other.replace("IB", "iB"),
    };
    let unit = if unit.len() == 2 { unit.replace('B', "iB") } else { unit };
    let size: bytesize::ByteSize = format!("{number}{unit}").parse().map_err(|_| wrong())?;
    i64::try_from(size.as_u64()).map_err(|_| wrong())
}

/// Change a job while it runs
///
/// Everything that is said is changed, or nothing where any of it is refused. All else stays.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Set {
    #[command(flatten)]
    pub job: OneJob,
    #[command(flatten)]
    pub to: SetTo,
}

#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = true)]
pub struct SetTo {
    /// Class of the job; its owner may lower it, administrators may set any
    #[arg(long, value_enum)]
    pub class: Option<Class>,
    /// How the job is scheduled from now on
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,
    /// CPUs that the gang gets at once
    #[arg(short = 'n', long, value_parser = clap::value_parser!(i64).range(1..=CPUS_MAX))]
    pub cpus: Option<i64>,
    /// CPUs below which it does not run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=CPUS_MAX))]
    pub min: Option<i64>,
    /// Share of the time relative to your other jobs of the class, 1 to 10000; above 100 takes an
    /// administrator
    #[arg(long, value_parser = clap::value_parser!(i64).range(WEIGHT_MIN..=WEIGHT_MAX))]
    pub weight: Option<i64>,
    /// Memory it needs; 0 asks for none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub mem: Option<i64>,
    /// Disk it needs for scratch files; 0 asks for none
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub disk: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// Before all others, unless the class was given a weight (administrators only)
    Express,
    /// Shares with batch, at a greater weight
    Interactive,
    /// The ordinary class
    Batch,
    /// Runs where nobody else wants the CPUs
    Standby,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// All threads at once, placed afresh at each slice
    Gang,
    /// Accounted for, scheduled by Linux alone
    None,
    /// One of the two, by what the program is measured to gain while it runs
    Auto,
}

#[derive(Debug, Args)]
pub struct Listing {
    /// Print JSON, as the interface org.gangd.v1 describes it
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct OneJob {
    /// Id of the job, or its name where only one job has it
    pub job: String,
}

/// Say how the program of a job stands: running, terminated, deadlocked or stalled
///
/// Flushes the ports of the job twice: senders stop for a moment, and what was sent is held by
/// hosts. Where no message went between the two, threads that wait for messages that nobody can
/// send any more are deadlocked, and processes that have waited or polled for 10 s are stalled.
/// Lists the ports, and who waits for whom. It takes a program that sends its messages by
/// libgang-fi.so (gang run --net).
#[derive(Debug, Args)]
pub struct Snapshot {
    #[command(flatten)]
    pub job: OneJob,
    /// File for what is in the channels of the program, with sequence numbers, as JSON. Written
    /// where no message went meanwhile; gang suspend sees to that
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub listing: Listing,
}

/// Show one job, and its processes where they are yours to see
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    pub job: OneJob,
    #[command(flatten)]
    pub listing: Listing,
}

/// Watch machine, jobs and frame in the terminal, and act on jobs
///
/// Shows the jobs with their shares and how far they are coscheduled, the frame as a matrix of
/// slices and CPUs in which the row under way moves, and a timeline of each CPU. Keys change the
/// class of a job, suspend, resume, resize and kill it, as far as you may; ? lists them. If the
/// daemon goes, it waits for one and goes on. With NO_COLOR in the environment there are no
/// colours, and with a locale without UTF-8 no signs beyond ASCII.
#[derive(Debug, Args)]
pub struct Top {
    /// Pictures a second, 0.1 to 60; figures change twice a second at most
    #[arg(short, long, default_value = "10", value_parser = rate)]
    pub rate: f64,
    /// Use no colours
    #[arg(long)]
    pub no_color: bool,
    /// Print one picture as text and end; it takes a second, over which rates are taken
    #[arg(long)]
    pub once: bool,
}

/// Reads a number of pictures a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.1..=60.0).contains(&rate) { Ok(rate) } else { Err(format!("{text} is not in 0.1..=60")) }
}

/// Write the metrics of daemon and jobs for Prometheus
///
/// Writes OpenMetrics text to standard output, or into a file for the textfile collector of
/// node_exporter. docs/metrics.md explains each metric. Where no daemon answers, gangd_up is 0, and
/// the command fails all the same.
#[derive(Debug, Args)]
pub struct Metrics {
    /// Replace this file as a whole instead; node_exporter reads those that end in .prom
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,
}

/// List jobs that have ended, with what they used
///
/// The machine's daemon keeps them; one that gang run has started keeps none.
#[derive(Debug, Args)]
pub struct History {
    /// How many, the latest first
    #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub number: i64,
    /// Of one user
    #[arg(short, long)]
    pub user: Option<String>,
    /// Ended since then: a date, a time, or how long ago, such as 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = crate::commands::point_in_time)]
    pub since: Option<i64>,
    #[command(flatten)]
    pub listing: Listing,
}

#[derive(Debug, Args)]
pub struct Kill {
    #[command(flatten)]
    pub job: OneJob,
    /// Signal by name or number
    #[arg(short, long, default_value = "TERM", value_parser = crate::signals::parse)]
    pub signal: i64,
}

/// Make a job of what runs already
///
/// Takes a process with its descendants, all processes of a cgroup, or single threads without the
/// rest of their processes. A process that the first one has started must still be its descendant
/// to be taken. Single threads are all taken or none. They need the backend rt (gang status), and
/// want a CPU each unless -n says otherwise.
#[derive(Debug, Args)]
pub struct Adopt {
    #[command(flatten)]
    pub what: AdoptWhat,
    #[command(flatten)]
    pub job: JobOptions,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct AdoptWhat {
    /// A process
    #[arg(value_parser = clap::value_parser!(i64).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<i64>,
    /// A cgroup, from the root of the hierarchy as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Single threads, by the numbers that ps -L shows as LWP
    #[arg(long = "thread", value_name = "TID", num_args = 1..,
        value_parser = clap::value_parser!(i64).range(1..=i64::from(i32::MAX)))]
    pub threads: Vec<i64>,
}

/// Show the daemon as a page in a browser
///
/// Prints the address of the page, which ends with a secret: everybody who has it acts with your
/// rights at the daemon. It serves this machine alone; from another one, use ssh -L
/// 7878:127.0.0.1:7878 MACHINE gang web, or a proxy with TLS before --listen unix:PATH. Ends with
/// Ctrl-C or SIGTERM.
#[derive(Debug, Args)]
pub struct Web {
    /// Where to listen: an address of this machine, whose port 0 is any that is free, or a Unix
    /// socket for a proxy that has TLS, to which its owner and group may connect
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:7878",
        value_parser = listen)]
    pub listen: Listen,
    /// Only show, and refuse every change
    #[arg(long)]
    pub read_only: bool,
    /// Serve Prometheus at /metrics without the secret; names of jobs and owners are in it
    #[arg(long)]
    pub metrics: bool,
    /// A name under which the proxy is reached; other names are refused
    #[arg(long, value_name = "HOST")]
    pub name: Vec<String>,
    /// Keep the secret in a file, so that the address stays; made where there is none. Otherwise
    /// each start has another one, and no earlier one counts
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Where a page is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Port(SocketAddr),
    Socket(PathBuf),
}

/// Reads a socket, or an address with its port; whether it is one of this machine, is found out
/// later.
fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let socket = (!path.is_empty()).then(|| Listen::Socket(path.into()));
        return socket.ok_or_else(|| "no path after unix:".to_owned());
    }
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    let accepted = "not an address with a port, such as 127.0.0.1:7878, nor unix: with a path";
    numeric.parse().map(Listen::Port).map_err(|_| accepted.to_owned())
}

#[derive(Debug, Args)]
pub struct PassedOn {
    /// Passed on to the program that does it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct StartDaemon {
    #[arg(long)]
    pub backend: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExecGated {
    /// A pipe in which one byte says to go on
    #[arg(long)]
    pub gate: PathBuf,
    /// The file to execute
    #[arg(long)]
    pub file: PathBuf,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// The commands that people type: without those that are hidden, for manuals and completions.
pub fn documented() -> clap::Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let shown: Vec<clap::Command> = shown.collect();
    clap::Command::new("gang")
        .version(env!("CARGO_PKG_VERSION"))
        .about(all.get_about().cloned().unwrap_or_default())
        .long_about(all.get_long_about().cloned().unwrap_or_default())
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    fn run(line: &[&str]) -> Result<Run, clap::Error> {
        Cli::try_parse_from([&["gang", "run"], line].concat()).map(|cli| match cli.command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn options_after_the_program_are_its_own() {
        for line in [&["-n", "2", "--", "prog", "-n", "5"][..], &["-n", "2", "prog", "-n", "5"]] {
            let run = run(line).unwrap();
            assert_eq!(run.job.cpus, Some(2));
            assert_eq!(run.command, ["prog", "-n", "5"]);
        }
        let inner = run(&["--", "env", "--", "-x"]).unwrap();
        assert_eq!(inner.command, ["env", "--", "-x"]);
    }

    #[test]
    fn refusals_name_what_is_accepted() {
        let refused = |line: &[&str], expected: &str| {
            let text = run(line).unwrap_err().to_string();
            assert!(text.contains(expected), "{line:?}: {text}");
        };
        refused(&["-n", "0", "x"], "0 is not in 1..=8192");
        refused(&["-n", "10000", "x"], "10000 is not in 1..=8192");
        refused(&["-n", "two", "x"], "'two'");
        refused(&["--weight", "0", "x"], "0 is not in 1..=10000");
        refused(&["--weight", "10001", "x"], "10001 is not in 1..=10000");
        refused(
            &["--class", "royal", "x"],
            "[possible values: express, interactive, batch, standby]",
        );
        refused(&["--policy", "matrix", "x"], "[possible values: gang, none, auto]");
        refused(&["-n", "2"], "<CMD>...");
        refused(&["--bogus", "x"], "'--bogus'");
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("7B", 7),
            ("4k", 4096),
            ("1.5G", 3 << 29),
            ("2MiB", 2 << 20),
            ("1GB", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "G", "-1", "1X", "9999999E"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn set_changes_something() {
        let set = |line: &[&str]| Cli::try_parse_from([&["gang", "set"], line].concat());
        assert!(set(&["3", "-n", "2", "--mem", "1G", "--class", "standby"]).is_ok());
        assert!(set(&["--policy", "none", "lu"]).is_ok());
        assert!(set(&["3"]).is_err());
        assert!(set(&["-n", "2"]).is_err());
    }

    #[test]
    fn socket_is_an_option_of_every_command() {
        for line in
            ["--socket /s ls", "ls --socket /s", "run --socket /s -- x", "doctor --socket=/s 3"]
        {
            let cli = Cli::try_parse_from(["gang"].into_iter().chain(line.split(' '))).unwrap();
            assert_eq!(cli.socket.as_deref(), Some("/s".as_ref()), "{line}");
        }
        let program = run(&["x", "--socket", "/s"]).unwrap();
        assert_eq!(program.command, ["x", "--socket", "/s"], "this one is the program's");
        assert!(Cli::try_parse_from(["gang", "ls", "--socket", ""]).is_err());
    }

    #[test]
    fn a_page_is_served_at_a_port_or_a_socket() {
        assert_eq!(listen("localhost:0"), Ok(Listen::Port("127.0.0.1:0".parse().unwrap())));
        assert_eq!(listen("unix:/run/x"), Ok(Listen::Socket("/run/x".into())));
        for wrong in ["", "7878", "unix:", "/run/x", "host:80"] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn adopt_takes_a_process_a_cgroup_or_threads() {
        let adopt = |line: &[&str]| Cli::try_parse_from([&["gang", "adopt"], line].concat());
        assert!(adopt(&["42"]).is_ok());
        assert!(adopt(&["--cgroup", "/a/b", "-n", "2"]).is_ok());
        assert!(adopt(&[]).is_err());
        assert!(adopt(&["42", "--cgroup", "/a"]).is_err());
        assert!(adopt(&["0"]).is_err());
        assert!(adopt(&["4294967297"]).is_err());
        for right in ["--thread 7", "--thread 7 8 -n 1", "--thread 7 --name x --thread 8"] {
            let line: Vec<&str> = right.split(' ').collect();
            let Command::Adopt(adopt) = adopt(&line).unwrap().command else { panic!("{right}") };
            assert!(adopt.what.threads.starts_with(&[7]), "{right}: {:?}", adopt.what);
        }
        for wrong in
            ["--thread", "--thread 0", "--thread x", "7 --thread 8", "--cgroup /a --thread 8"]
        {
            let line: Vec<&str> = wrong.split(' ').collect();
            assert!(adopt(&line).is_err(), "{wrong}");
        }
    }

    #[test]
    fn top_takes_a_rate() {
        let top = |line: &[&str]| Cli::try_parse_from([&["gang", "top"], line].concat());
        for right in [&[][..], &["-r", "0.1"], &["--rate=60"], &["--once", "--no-color"]] {
            assert!(top(right).is_ok(), "{right:?}");
        }
        for wrong in ["0", "-1", "61", "nan", "inf", "fast"] {
            assert!(top(&[&format!("--rate={wrong}")]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lab_passes_everything_on() {
        for line in [&["--help"][..], &["barrier", "--json", "-n", "2"]] {
            let cli = Cli::try_parse_from([&["gang", "lab"], line].concat()).unwrap();
            assert!(matches!(cli.command, Command::Lab(lab) if lab.args == line));
        }
    }
}
