//! The commands, one a file.

mod adopt;
mod check;
mod cluster;
mod companion;
mod completions;
mod exec_gated;
mod history;
mod hosts;
mod kill;
mod ls;
mod manual;
mod metrics;
mod recover;
mod resume;
mod run;
mod set;
mod show;
mod shutdown;
mod snapshot;
mod start_daemon;
mod status;
mod suspend;
mod top;
mod web;
mod why;

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_protocol::timeout;
pub use history::point_in_time;

use crate::cli::{Cli, Command};
use crate::exit::Usage;

/// Does what was asked for.
pub fn run(typed: &Cli) -> Result<()> {
    if let Err(error) = timeout::of_user() {
        return Err(Usage(error.to_string()).into());
    }
    let socket = typed.socket.as_deref();
    let daemon = &Surroundings::with_socket(socket);
    match &typed.command {
        Command::Run(args) => run::run(args, socket),
        Command::Ls(args) => ls::ls(args, daemon),
        Command::Show(args) => show::show(args, daemon),
        Command::Top(args) => top::top(args, daemon),
        Command::Why(args) => why::why(args, daemon),
        Command::Snapshot(args) => snapshot::snapshot(args, daemon),
        Command::Metrics(args) => metrics::metrics(args, daemon),
        Command::History(args) => history::history(args, daemon),
        Command::Status(args) => status::status(args, daemon),
        Command::Hosts(args) => hosts::hosts(args, daemon),
        Command::Cluster(args) => cluster::cluster(args),
        Command::Suspend(args) => suspend::suspend(args, daemon),
        Command::Resume(args) => resume::resume(args, daemon),
        Command::Kill(args) => kill::kill(args, daemon),
        Command::Adopt(args) => adopt::adopt(args, daemon),
        Command::Set(args) => set::set(args, daemon),
        Command::Check(args) => check::check(args, daemon),
        Command::Shutdown => shutdown::shutdown(daemon),
        Command::Recover => recover::recover(daemon),
        Command::Web(args) => web::web(args, daemon),
        Command::Doctor(args) => companion::become_program("gang-doctor", args, socket),
        Command::Trace(args) => companion::become_program("gang-trace", args, socket),
        Command::Lab(_) if socket.is_some() => {
            Err(Usage("gang lab starts daemons of its own: --socket is of no use to it".into())
                .into())
        }
        Command::Lab(args) => companion::become_program("gang-lab", args, None),
        Command::Manual { dir } => manual::manual(dir),
        Command::Completions { shell } => completions::completions(*shell),
        Command::ExecGated(args) => exec_gated::exec_gated(args),
        Command::StartDaemon(args) => start_daemon::start_daemon(args, daemon),
    }
}
