//! `gang web`: the daemon as a page in a browser.

use std::io::Write;

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_view::web::{Endpoint, Serving, Token, serve};

use crate::cli::{Listen, Web};

pub fn web(args: &Web, daemon: &Surroundings) -> Result<()> {
    let token = match &args.token_file {
        Some(file) => Token::of_file(file)?,
        None => Token::random()?,
    };
    let place = match &args.listen {
        Listen::Socket(path) => Endpoint::Socket(path.clone()),
        Listen::Port(address) => Endpoint::Port(*address),
    };
    let settings = Serving {
        place,
        token,
        names: args.name.clone(),
        read_only: args.read_only,
        open_metrics: args.metrics,
        daemon: daemon.clone(),
    };
    serve(settings, |address| {
        // A reader that has closed the other end needs no message.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{address}").and_then(|()| out.flush());
        eprintln!(
            "gang web: everybody who has this address has your rights at the daemon; Ctrl-C ends it"
        );
    })?;
    Ok(())
}
