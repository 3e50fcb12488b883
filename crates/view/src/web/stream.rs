//! The stream of a reader: server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::feed::{Reader, Shot, event};
use super::routes::Rooms;
use super::wire::{Hello, LIMITS};
use crate::figures::FIGURES;
use crate::values;

/// Something is sent at least so often, so that each side notices when the other is gone.
const SILENCE: Duration = Duration::from_secs(5);

struct Following {
    reader: Reader,
    /// The messages to send first.
    first: VecDeque<Bytes>,
    /// The number of the shot that was sent last, where it was one of a daemon.
    had: Option<u64>,
}

impl Following {
    fn of(&mut self, shot: &Shot) -> Bytes {
        let event = shot.event(self.had);
        self.had = shot.is_up().then_some(shot.number);
        event
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.pop_front() {
            return Some(first);
        }
        match tokio::time::timeout(SILENCE, self.reader.next()).await {
            Ok(Some(shot)) => Some(self.of(&shot)),
            Ok(None) => None,
            Err(_) => Some(Bytes::from_static(b":\n\n")),
        }
    }
}

/// The stream begins with the greeting and the state of things.
pub async fn live(State(rooms): State<Arc<Rooms>>) -> Response {
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION"),
        host: &rooms.host,
        user: &values::owner(rooms.uid.into()),
        read_only: rooms.read_only,
        figures: FIGURES,
        limits: LIMITS,
    };
    let mut following = Following {
        reader: rooms.feed.read(),
        first: VecDeque::from([event("hello", &hello)]),
        had: None,
    };
    if let Some(shot) = following.reader.now() {
        let first = following.of(&shot);
        following.first.push_back(first);
    }
    let events = stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // nginx would keep events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
