//! The paths of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;
use gang_protocol::timeout::or_usual;
use gang_protocol::v1;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::answer::Refusal;
use super::door::{self, Door};
use super::feed::Feed;
use super::listen::Listener;
use super::minutes::Past;
use super::wire::{Details, EndedJob};
use super::{Endpoint, Serving, WebError, actions, assets, stream};
use crate::live::Snapshot;
use crate::metrics;
use crate::spanning::Spanning;
use crate::values::Owners;
use crate::why::{Evidence, judge, judge_elsewhere};

/// Calls to the daemon at a time, beside the one that looks on; it gives one user 64 connections.
pub const CALLS_MAX: usize = 8;

/// Longest wait for a call's turn, and of a call for the daemon.
const TURN_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a request's body.
const BODY_MAX: usize = 4096;

/// The number of ended jobs in an answer.
const ENDED_MAX: i64 = 200;

/// Shared by all requests.
pub struct Rooms {
    pub feed: Arc<Feed>,
    pub host: String,
    pub uid: u32,
    pub read_only: bool,
    daemon: Surroundings,
    calls: Arc<Semaphore>,
}

impl Rooms {
    /// Asks the daemon, in a thread that may wait for it.
    pub async fn call<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let busy = || {
            let message = "too many ask the daemon at once, or it hangs; try again";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message)
        };
        let turn =
            tokio::time::timeout(or_usual(TURN_WITHIN), self.calls.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or_else(busy)?;
        let daemon = self.daemon.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            question(&mut Client::find_within(&daemon, ANSWER_WITHIN)?)
        });
        Ok(answer.await.map_err(|_| busy())??)
    }
}

/// The number of a job in a path.
pub fn number(text: &str) -> Result<i64, Refusal> {
    let number = text.parse().ok().filter(|number: &i64| *number > 0);
    number.ok_or_else(|| Refusal::bad_request("a job is named by its number, as gang ls has it"))
}

pub async fn serve(settings: Serving, ready: impl FnOnce(&str)) -> Result<(), WebError> {
    let Serving { place, token, names, read_only, open_metrics, daemon } = settings;
    let start = |doing| move |source| WebError::Start { doing, source };
    // The parent may have left SIGPIPE at its default, which ends the process when a connection
    // closes.
    let _closed = signal(SignalKind::pipe()).map_err(start("take note of signals"))?;
    let mut ended = signal(SignalKind::terminate()).map_err(start("take note of signals"))?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(start("take note of signals"))?;

    let listener = Listener::open(&place).await?;
    let feed =
        Feed::start(daemon.clone()).map_err(start("start the thread that asks the daemon"))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let uid = rustix::process::geteuid().as_raw();
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let rooms = Arc::new(Rooms { feed, host, uid, read_only, daemon, calls });
    let address = listener.address().unwrap_or_default();
    let address = format!("{address}#token={}", token.text());
    // Names lead to a port. A proxy looks after its own names, unless some are given.
    let names = (matches!(place, Endpoint::Port(_)) || !names.is_empty()).then_some(names);
    let door = Arc::new(Door { token, names, read_only, open_metrics });
    let routes = routes(rooms, door);
    ready(&address);
    tokio::select! {
        () = listener.serve(routes) => {}
        _ = ended.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

fn routes(rooms: Arc<Rooms>, door: Arc<Door>) -> Router {
    assets::routes()
        .route("/api/live", get(stream::live))
        .route("/metrics", get(metrics_page))
        .route("/api/history", get(history))
        .route("/api/jobs/{job}", get(details))
        .route("/api/jobs/{job}/past", get(past))
        .route("/api/jobs/{job}/{action}", post(actions::act))
        .fallback(nowhere)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(rooms)
        .layer(middleware::from_fn_with_state(door, door::pass))
}

async fn nowhere() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "NotFound", "there is nothing at that address")
}

async fn no_method() -> Refusal {
    let message = "that address does not take requests of this method";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

async fn details(
    State(rooms): State<Arc<Rooms>>,
    Path(job): Path<String>,
) -> Result<impl IntoResponse, Refusal> {
    let job = number(&job)?;
    let shot = rooms.feed.now();
    let details = rooms.call(move |client| {
        let shown = match client.show_job(job) {
            Err(error @ ClientError::NoSuchJob { .. }) => {
                let cluster = client.cluster()?;
                let elsewhere = Spanning::find(cluster.as_ref(), job).ok_or(error)?;
                let why = judge_elsewhere(elsewhere).paragraph();
                return Ok(Details { why, processes: None, lost_to: None });
            }
            shown => shown?,
        };
        let seen = shot.as_deref().and_then(|shot| why_in(&shown.details, &shot.snapshot));
        // Nothing was seen of the daemon yet, or it was late with its last answer.
        let why = match seen {
            Some(why) => why,
            None => {
                let (status, jobs) = (client.status()?.status, client.list_jobs()?.jobs);
                let (jobs, cluster) = (jobs.iter().collect::<Vec<_>>(), client.cluster()?);
                let spanning = Spanning::find(cluster.as_ref(), job);
                judge(Evidence { job: &shown.details, status: &status, jobs: &jobs, spanning })
                    .paragraph()
            }
        };
        let lost_to = shown.details.measured.and_then(|measured| measured.lost_to);
        Ok(Details { why, processes: shown.processes, lost_to })
    });
    Ok(Json(details.await?))
}

/// The judgement of `gang why`, by the last snapshot; absent where that says nothing of the daemon.
fn why_in(job: &v1::Job, snapshot: &Snapshot) -> Option<String> {
    let status = snapshot.status.as_deref()?;
    let jobs: Vec<&v1::Job> = snapshot.jobs.iter().map(|view| &view.job).collect();
    let spanning = snapshot.spanning(job.id);
    Some(judge(Evidence { job, status, jobs: &jobs, spanning }).paragraph())
}

async fn past(
    State(rooms): State<Arc<Rooms>>,
    Path(job): Path<String>,
) -> Result<Json<Past>, Refusal> {
    Ok(Json(rooms.feed.minutes(number(&job)?)))
}

/// Answers Prometheus. It waits a moment for the first snapshot.
async fn metrics_page(State(rooms): State<Arc<Rooms>>) -> Result<impl IntoResponse, Refusal> {
    let shot =
        tokio::time::timeout(or_usual(ANSWER_WITHIN), rooms.feed.latest()).await.ok().flatten();
    let shot = shot.ok_or_else(|| {
        let message = "nothing was heard of a daemon yet; try again";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "NoDaemon", message)
    })?;
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    Ok((kind, metrics::render(&shot.snapshot)))
}

async fn history(State(rooms): State<Arc<Rooms>>) -> Result<impl IntoResponse, Refusal> {
    let ended = rooms.call(|client| {
        let jobs = client.history(ENDED_MAX, None, None)?.jobs;
        let mut owners = Owners::default();
        let named = |job: v1::EndedJob| {
            let owner = owners.name(job.owner_uid);
            EndedJob { job, owner }
        };
        Ok(jobs.into_iter().map(named).collect::<Vec<_>>())
    });
    Ok(Json(ended.await?))
}
