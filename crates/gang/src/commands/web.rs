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
    let outlives_port = args.token_file.is_some() && matches!(args.listen, Listen::Port(_));
    serve(settings, |address| {
        // Pages ask on after the end of a server, with its token. The next one who has the port is
        // the same origin to a browser.
        if outlives_port {
            eprintln!(
                "gang web: a program of another user that has this port after you gets the token of open pages, and \
                 by --token-file it counts again at your next start: close them, or use --listen unix:PATH"
            );
        }
        // A reader that has closed the other end needs no message.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{address}").and_then(|()| out.flush());
        eprintln!(
            "gang web: everybody who has this address has your rights at the daemon; Ctrl-C ends it"
        );
    })?;
    Ok(())
}
