//! A host's link to etcd, on a thread of its own.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use gang_cluster::change::{Granted, Refused, Wish};
use gang_cluster::keys::Keys;
use gang_cluster::member::{Identity, Overview};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::driver::{Ask, Driver, Find, Host};

/// Asks that may wait for the driver; a further one waits for its turn.
const ASKS_MAX: usize = 64;

/// The way to a [`Driver`] on a thread of its own.
pub struct Link {
    asks: Mutex<Option<mpsc::Sender<Ask>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Link {
    /// Starts the thread. Whether etcd is there, the host hears.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(find: Find, me: Identity, keys: Keys, host: Box<dyn Host>) -> io::Result<Link> {
        let (sender, asks) = mpsc::channel(ASKS_MAX);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let driver = Driver::new(find, me, keys, host, asks);
        let thread = std::thread::Builder::new().name("cluster".into());
        let thread = thread.spawn(move || runtime.block_on(driver.run()))?;
        Ok(Link { asks: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// Has a wish granted, and waits for the answer.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn wish(&self, wish: Wish) -> Result<Granted, Refused> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Wish(Box::new(wish), answer));
        answered.blocking_recv().unwrap_or(Err(Refused::Unreachable))
    }

    /// The cluster as it is now, or as it was read last where etcd is away. None once the link has
    /// ended.
    pub fn look(&self) -> Option<Overview> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Look(answer));
        answered.blocking_recv().ok()
    }

    /// Has the host look at itself now.
    pub fn see(&self) {
        self.ask(Ask::See);
    }

    fn ask(&self, ask: Ask) {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // One that is not sent is dropped, and its channel with it.
        if let Some(asks) = asks {
            let _ = asks.blocking_send(ask);
        }
    }

    /// Ends the link, and waits for that.
    pub fn close(&self) {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}
