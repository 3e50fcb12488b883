//! Connections: how many there are, and how long one may say nothing.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::answer::Refusal;
use super::{Endpoint, WebError};

/// Connections at a time. Each is an open file, of which a process has 1,024 unless set otherwise.
pub const CONNECTIONS_MAX: usize = 768;

/// The head of a request must come within this time. The same holds for the next request on the
/// connection.
const HEAD_WITHIN: Duration = Duration::from_secs(15);

/// Bytes of a connection's buffer, and so of a request's head.
const HEAD_MAX: usize = 16 * 1024;

/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections. Its socket is removed when it is dropped.
pub enum Listener {
    Port(TcpListener),
    Socket(UnixListener, PathBuf),
}

enum Stream {
    Port(TcpStream),
    Socket(UnixStream),
}

impl Listener {
    pub async fn open(place: &Endpoint) -> Result<Listener, WebError> {
        match place {
            Endpoint::Port(address) if !address.ip().is_loopback() => {
                Err(WebError::NotThisMachine { address: *address })
            }
            Endpoint::Port(address) => {
                TcpListener::bind(address).await.map(Listener::Port).map_err(|source| {
                    let is_taken = source.kind() == io::ErrorKind::AddrInUse;
                    let hint =
                        if is_taken { "; --listen 127.0.0.1:0 takes any free port" } else { "" };
                    WebError::Listen { at: address.to_string(), hint, source }
                })
            }
            Endpoint::Socket(path) => open_socket(path),
        }
    }

    /// The address for a browser, up to the path; none where a proxy has an address of its own.
    pub fn address(&self) -> Option<String> {
        match self {
            Listener::Port(listener) => Some(format!("http://{}/", listener.local_addr().ok()?)),
            Listener::Socket(..) => None,
        }
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Port(listener) => {
                let (stream, _) = listener.accept().await?;
                // Frames are small, and are wanted at once.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Port(stream))
            }
            Listener::Socket(listener, _) => Ok(Stream::Socket(listener.accept().await?.0)),
        }
    }

    /// Answers those who connect, for ever.
    pub async fn serve(&self, routes: Router) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(stream) = self.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                turn_away(stream);
                continue;
            };
            let routes = routes.clone();
            tokio::spawn(async move {
                match stream {
                    Stream::Port(stream) => converse(stream, routes).await,
                    Stream::Socket(stream) => converse(stream, routes).await,
                }
                drop(place);
            });
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Socket(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Replaces a socket that nobody serves any more, and nothing else. The proxy has a group in common
/// with the directory, or with the user who runs this.
fn open_socket(path: &Path) -> Result<Listener, WebError> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(WebError::NoSocket { path: path.to_owned() });
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(WebError::InUse { path: path.to_owned() });
        }
        let _ = std::fs::remove_file(path);
    }
    let fail = |source| WebError::Listen { at: path.display().to_string(), hint: "", source };
    let listener = UnixListener::bind(path).map_err(fail)?;
    let listener = Listener::Socket(listener, path.to_owned());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(fail)?;
    Ok(listener)
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, routes: Router) {
    let service = TowerToHyperService::new(routes);
    // A reader that goes away is no failure of ours. Its own mistakes are in the answer to it.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Says that there is no place, as far as that can be said without waiting.
fn turn_away(stream: Stream) {
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    let message = format!("{CONNECTIONS_MAX} connections are open; close some pages and try again");
    let body = Refusal::new(status, "TooManyConnections", message).json();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        let _ = tokio::time::timeout(Duration::from_millis(500), async {
            match stream {
                Stream::Port(mut stream) => finish(&mut stream, answer.as_bytes()).await,
                Stream::Socket(mut stream) => finish(&mut stream, answer.as_bytes()).await,
            }
        })
        .await;
    });
}

async fn finish(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), answer: &[u8]) {
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    // The request is read first. Else the kernel resets the connection, and the answer is lost.
    let _ = tokio::io::copy(
        &mut tokio::io::AsyncReadExt::take(stream, 64 * 1024),
        &mut tokio::io::sink(),
    )
    .await;
}
