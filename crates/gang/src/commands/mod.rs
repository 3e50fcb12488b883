//! What each command means. One command a file.

mod adopt;
mod check;
mod class;
mod companion;
mod completions;
mod exec_gated;
mod history;
mod kill;
mod ls;
mod manual;
mod metrics;
mod policy;
mod release;
mod resize;
mod resume;
mod run;
mod show;
mod start_daemon;
mod status;
mod stop;
mod suspend;
mod top;
mod web;
mod why;

use anyhow::Result;
use gang_protocol::timeout;
pub use history::point_in_time;

use crate::cli::Command;
use crate::exit::Usage;

/// Does what was asked for.
pub fn run(command: &Command) -> Result<()> {
    if let Err(error) = timeout::of_user() {
        return Err(Usage(error.to_string()).into());
    }
    match command {
        Command::Run(args) => run::run(args),
        Command::Ls(args) => ls::ls(args),
        Command::Show(args) => show::show(args),
        Command::Top(args) => top::top(args),
        Command::Why(args) => why::why(args),
        Command::Metrics(args) => metrics::metrics(args),
        Command::History(args) => history::history(args),
        Command::Status(args) => status::status(args),
        Command::Suspend(args) => suspend::suspend(args),
        Command::Resume(args) => resume::resume(args),
        Command::Kill(args) => kill::kill(args),
        Command::Adopt(args) => adopt::adopt(args),
        Command::Class(args) => class::class(args),
        Command::Policy(args) => policy::policy(args),
        Command::Resize(args) => resize::resize(args),
        Command::Check(args) => check::check(args),
        Command::Stop => stop::stop(),
        Command::Release => release::release(),
        Command::Web(args) => web::web(args),
        Command::Doctor(args) => companion::become_program("gang-doctor", args),
        Command::Trace(args) => companion::become_program("gang-trace", args),
        Command::Lab(args) => companion::become_program("gang-lab", args),
        Command::Manual { dir } => manual::manual(dir),
        Command::Completions { shell } => completions::completions(*shell),
        Command::ExecGated(args) => exec_gated::exec_gated(args),
        Command::StartDaemon(args) => start_daemon::start_daemon(args),
    }
}
