//! `gang web`: the daemon as a page in a browser.

use std::io::Write;

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_view::web::{Place, Settings, Token, serve};

use crate::cli::Web;

pub fn web(args: &Web) -> Result<()> {
    let token = match &args.token_file {
        Some(file) => Token::of_file(file)?,
        None => Token::random()?,
    };
    let place = match &args.socket {
        Some(path) => Place::Socket(path.clone()),
        None => Place::Port(args.listen),
    };
    let settings = Settings {
        place,
        token,
        names: args.name.clone(),
        read_only: args.read_only,
        open_metrics: args.metrics,
        daemon: Surroundings::of_this_process(),
    };
    serve(settings, |address| {
        // A reader that has closed the other end needs no message.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{address}").and_then(|()| out.flush());
        eprintln!(
            "gang web: whoever has this address has your rights at the daemon; Ctrl-C ends it"
        );
    })?;
    Ok(())
}
