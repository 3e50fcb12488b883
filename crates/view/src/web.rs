//! `gang web`: the daemon as a page in a browser.
//!
//! Problem: a browser also runs pages of others, and every user of the machine can reach the port.
//! And hundreds of readers must cost neither the daemon nor this process much.
//!
//! Approach: an unprivileged client of the daemon, with the rights of the user who runs it. One
//! [`Poller`](crate::live::Poller) asks the daemon for all readers, and each frame is written down
//! once (`feed`). A slow reader misses frames and gets a whole one next, so that no frames pile up.
//! While nobody reads, the daemon is asked once a second, for the last minutes of the jobs
//! (`minutes`).
//!
//! Terms. The *token* is a secret made at the start. It is part of the page's address. A *change*
//! is a request that does something to a job.
//!
//! Properties, each with a test in `crates/gang/tests/web.rs`:
//! - Without the token a reader learns nothing of the daemon, not even a name. The same holds for a
//!   page from elsewhere whose name was made to lead here (DNS rebinding), and for a page within
//!   another page's frame.
//! - A change needs the token and an `Origin` that is ours. There are no cookies, because a browser
//!   sends a cookie to every port of a host. So no other page can make a browser change anything.
//! - Connections, the bytes of a request and calls to the daemon at a time are bounded. A request
//!   beyond a bound is refused with a message.
//! - Answers are JSON, and the page sets them as text: no name becomes markup.

mod actions;
mod answer;
mod assets;
mod door;
mod feed;
mod listen;
mod minutes;
mod routes;
mod stream;
mod token;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use gang_protocol::paths::Surroundings;

pub use listen::CONNECTIONS_MAX;
pub use token::{Token, TokenError};

/// Where the page is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A port of this machine alone: there is no encryption.
    Port(SocketAddr),
    /// A Unix socket behind a proxy that has it.
    Socket(PathBuf),
}

/// How a server is to be.
#[derive(Debug, Clone)]
pub struct Serving {
    pub place: Endpoint,
    pub token: Token,
    /// Names under which a proxy is reached, beside those of this machine.
    pub names: Vec<String>,
    /// Changes are refused.
    pub read_only: bool,
    /// `/metrics` needs no token. It has names of jobs and their owners.
    pub open_metrics: bool,
    /// Where the daemon is looked for.
    pub daemon: Surroundings,
}

/// Why no page is served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error(
        "gang web does not encrypt, so it listens on this machine alone, not at {address}; for others have a \
         proxy with TLS before --listen unix:PATH"
    )]
    NotThisMachine { address: SocketAddr },
    #[error("cannot listen at {at}{hint}")]
    Listen { at: String, hint: &'static str, source: io::Error },
    #[error("something listens at {} already, another gang web perhaps; name another path", .path.display())]
    InUse { path: PathBuf },
    #[error("there is something at {} that is no socket; name another path", .path.display())]
    NoSocket { path: PathBuf },
    #[error("cannot {doing}")]
    Start { doing: &'static str, source: io::Error },
}

/// Serves the page until SIGINT or SIGTERM. `ready` gets the address to open, as soon as the server
/// listens.
///
/// # Errors
/// It cannot listen, or not start.
pub fn serve(settings: Serving, ready: impl FnOnce(&str)) -> Result<(), WebError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(routes::CALLS_MAX)
        .build()
        .map_err(|source| WebError::Start { doing: "start the threads of gang web", source })?;
    let outcome = runtime.block_on(routes::serve(settings, ready));
    // A call to a daemon that hangs is not waited for.
    runtime.shutdown_background();
    outcome
}
