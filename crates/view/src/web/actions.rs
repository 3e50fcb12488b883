//! Actions on a job. The daemon decides whether they are permitted.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use gang_protocol::client::Change;
use gang_protocol::v1;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use super::routes::{Rooms, number};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToClass {
    class: v1::Class,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WithSignal {
    signal: i64,
}

/// An absent field stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToSize {
    cpus: Option<i64>,
    min_cpus: Option<i64>,
    weight: Option<i64>,
    mem_bytes: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Does it, and answers without a body.
pub async fn act(
    State(rooms): State<Arc<Rooms>>,
    Path((job, action)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<StatusCode, Refusal> {
    let job = number(&job)?;
    // A page of another origin cannot send this type without asking the server first.
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    if kind != Some(b"application/json") {
        let message = "changes are sent as JSON: Content-Type: application/json";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "NotJson", message));
    }
    let body =
        body.map_err(|error| Refusal::new(error.status(), "InvalidBody", error.body_text()))?;
    match action.as_str() {
        "class" => {
            let ToClass { class } = read(&body)?;
            rooms.call(move |client| client.set_class(job, class)).await?;
        }
        "suspend" => {
            let Nothing {} = read(&body)?;
            rooms.call(move |client| client.suspend(job)).await?;
        }
        "resume" => {
            let Nothing {} = read(&body)?;
            rooms.call(move |client| client.resume(job)).await?;
        }
        "kill" => {
            let WithSignal { signal } = read(&body)?;
            rooms.call(move |client| client.kill(job, signal)).await?;
        }
        "resize" => {
            let ToSize { cpus, min_cpus, weight, mem_bytes } = read(&body)?;
            let change = Change { cpus, min_cpus, weight, mem_bytes, ..Change::default() };
            if change == Change::default() {
                return Err(Refusal::bad_request(
                    "a change of size says at least one of its parts",
                ));
            }
            rooms.call(move |client| client.set(job, &change)).await?;
        }
        _ => {
            let message = "what can be done is class, suspend, resume, kill and resize";
            return Err(Refusal::new(StatusCode::NOT_FOUND, "NotFound", message));
        }
    }
    rooms.feed.refresh();
    Ok(StatusCode::NO_CONTENT)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        Refusal::bad_request(format!("what is to be done cannot be read: {error}"))
    })
}
