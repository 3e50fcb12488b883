//! The connection to the daemon: one for each process, for all of its threads.
//!
//! A child of a fork must not speak on its parent's connection, so it is known by the process's
//! number. And nobody may be in the middle of a request when a process forks, so a fork waits for
//! that.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError},
};

use gang_protocol::{client::Client, error::ClientError};

use crate::result::Failure;

#[derive(Default)]
struct Connections {
    process: u32,
    client: Option<Client>,
    /// A job without a process ends with the connection that registered it. These are such
    /// connections, where it was not the common one.
    registering: Vec<(i64, Client)>,
    /// Jobs whose progress the daemon has taken from this process.
    reporting: BTreeSet<i64>,
}

static CONNECTIONS: Mutex<Connections> = Mutex::new(Connections {
    process: 0,
    client: None,
    registering: Vec::new(),
    reporting: BTreeSet::new(),
});

thread_local! {
    /// Held by the thread that forks, while it does.
    static FORKING: RefCell<Option<MutexGuard<'static, Connections>>> =
        const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(locked()));
}

extern "C" fn after_fork() {
    let _ = FORKING.try_with(|forking| drop(forking.borrow_mut().take()));
}

fn locked() -> MutexGuard<'static, Connections> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections of this process, as soon as nobody else asks.
fn connections() -> MutexGuard<'static, Connections> {
    of_this_process(locked)
}

/// The same, unless somebody asks at this moment.
fn connections_if_free() -> Option<MutexGuard<'static, Connections>> {
    match CONNECTIONS.try_lock() {
        Ok(free) => Some(of_this_process(|| free)),
        Err(TryLockError::Poisoned(free)) => Some(of_this_process(|| free.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Those of its parent are closed here, and stay open there.
fn of_this_process(
    lock: impl FnOnce() -> MutexGuard<'static, Connections>,
) -> MutexGuard<'static, Connections> {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the three functions are as pthread_atfork(3) wants them, and stay as long as the
        // library is loaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
    let mut connections = lock();
    let process = std::process::id();
    if connections.process != process {
        *connections = Connections { process, ..Connections::default() };
    }
    connections
}

/// Asks the daemon; a connection that it closed meanwhile is made anew, once.
pub fn ask<T>(question: impl Fn(&mut Client) -> Result<T, ClientError>) -> Result<T, Failure> {
    let mut connections = connections();
    if let Some(mut client) = connections.client.take() {
        match question(&mut client) {
            Err(error) if error.breaks_the_connection() => {}
            outcome => {
                connections.client = Some(client);
                return Ok(outcome?);
            }
        }
    }
    let mut client = Client::find()?;
    let outcome = question(&mut client);
    if !outcome.as_ref().is_err_and(ClientError::breaks_the_connection) {
        connections.client = Some(client);
    }
    Ok(outcome?)
}

/// Registers on a connection of its own, which is kept until the job has a process: an answer that
/// takes long keeps nobody waiting.
pub fn register_apart(
    question: impl FnOnce(&mut Client) -> Result<i64, ClientError>,
) -> Result<i64, Failure> {
    let mut client = Client::find()?;
    let job = question(&mut client)?;
    connections().registering.push((job, client));
    Ok(job)
}

/// A job has got a process: it does not depend on its connection any more.
pub fn has_process(job: i64) {
    connections().registering.retain(|(registered, _)| *registered != job);
}

/// Reports to the daemon how far a job is. The first time it waits for the answer, so that a caller
/// without the right gets an error. After that it sends, and takes the answer the next time. While
/// somebody else asks, nothing is reported.
pub fn report(job: i64, done: f64, total: f64) -> Result<(), Failure> {
    let Some(mut guard) = connections_if_free() else { return Ok(()) };
    let connections = &mut *guard;
    let known = connections.client.as_mut().filter(|_| connections.reporting.contains(&job));
    let Some(client) = known else {
        drop(guard);
        ask(|client| client.set_progress(job, done, total))?;
        self::connections().reporting.insert(job);
        return Ok(());
    };
    let outcome = client.report_progress(job, done, total);
    if let Err(error) = &outcome {
        connections.reporting.remove(&job);
        if error.breaks_the_connection() {
            connections.client = None;
            connections.reporting.clear();
            // Perhaps there is another daemon: the next report asks.
            return Ok(());
        }
    }
    Ok(outcome?)
}
