//! A domain of libfabric: the state behind one lock, and threads that wait.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    completion::fi,
    member::Member,
    queue,
    settings::{Settings, Spin},
    slot::Slot,
    spin,
    state::{Log, State},
};

/// How long a port that closes waits for what it has sent, while the peers live.
const CLOSE_MAX: Duration = Duration::from_secs(30);

/// After such a time a thread that spins is one that waits, for the daemon.
const SHOWN_AFTER: Duration = Duration::from_millis(1);

pub struct Domain {
    state: Mutex<State>,
    /// Set once: how long a thread that waits spins; none: for ever.
    spin: Option<Duration>,
    /// None: the program is in no job, or nobody knows when the slots are.
    slot: Option<Slot>,
}

impl Domain {
    /// # Errors
    /// See [`State::new`].
    pub fn new(settings: Settings, log: Log) -> io::Result<Domain> {
        let Some(job) = settings.job else { return Domain::with_slot(settings, None, log) };
        let mut member = match Member::of(job) {
            Ok(member) => member,
            Err(error) => {
                log(false, &format!("waits as in a slot: {error}"));
                return Domain::with_slot(settings, None, log);
            }
        };
        let slot = match member.slot() {
            Ok(slot) => {
                log(false, &format!("waits by the slot page of job {job}"));
                Some(slot)
            }
            Err(unknown) => {
                log(false, &format!("waits as in a slot: {unknown}"));
                None
            }
        };
        let key = match member.key() {
            Ok(key) => key,
            Err(error) => {
                log(false, &format!("is not flushed by the daemon: {error}"));
                return Domain::with_slot(settings, slot, log);
            }
        };
        let domain =
            Domain::with_slot(Settings { key: key.or(settings.key), ..settings }, slot, log)?;
        let state = domain.lock();
        match member.add_port(state.page.descriptor()) {
            Ok(()) => (state.log)(false, &format!("is flushed by the daemon, in job {job}")),
            Err(error) => (state.log)(false, &format!("is not flushed by the daemon: {error}")),
        }
        drop(state);
        Ok(domain)
    }

    /// # Errors
    /// See [`State::new`].
    pub fn with_slot(settings: Settings, slot: Option<Slot>, log: Log) -> io::Result<Domain> {
        let spin = match settings.spin {
            Spin::Measured => Some(spin::measured(settings.medium)),
            Spin::For(time) => Some(time),
            Spin::Always => None,
        };
        if let Some(spin) = spin {
            log(false, &format!("a thread that waits spins for {} us", spin.as_micros()));
        }
        Ok(Domain { state: Mutex::new(State::new(settings, log)?), spin, slot })
    }

    /// Whether a thread that has waited for so long goes on spinning.
    fn spins(&self, waited: Duration) -> bool {
        let is_out = || self.slot.as_ref().is_some_and(Slot::is_out);
        self.spin.is_none_or(|spin| waited < spin && !is_out())
    }

    /// The state; a call that has panicked has left it whole enough to close.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes progress until `is_there`, for `timeout` at most: spins at first, and blocks then. Out
    /// of its slot it blocks at once.
    ///
    /// # Errors
    /// EAGAIN: the time is over.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        mut is_there: impl FnMut(&mut State) -> bool,
    ) -> Result<(), i32> {
        let began = Instant::now();
        // The daemon sees whether a message alone can end a wait, if it is no short one.
        let mut is_shown = false;
        let mut ends = |state: &mut State, is_shown: bool| {
            let is_there = is_there(state);
            match is_shown {
                true if is_there => state.page.end_wait(),
                true => state.found_nothing(),
                false => {}
            }
            is_there
        };
        loop {
            let mut state = self.lock();
            state.progress();
            if ends(&mut state, is_shown) {
                return Ok(());
            }
            let waited = began.elapsed();
            let left = timeout.map(|timeout| timeout.saturating_sub(waited));
            if left == Some(Duration::ZERO) {
                return Err(fi::EAGAIN);
            }
            let spins = self.spins(waited);
            if timeout.is_none() && !is_shown && (!spins || waited >= SHOWN_AFTER) {
                state.page.begin_wait();
                is_shown = true;
            }
            if spins {
                drop(state);
                std::hint::spin_loop();
                continue;
            }
            state.look_after_peers();
            state.reader.fall_asleep();
            // Packets that came before are seen here, and later ones wake.
            state.progress();
            if ends(&mut state, is_shown) {
                state.reader.wake_up();
                return Ok(());
            }
            let at_most = state.wakes_after().min(left.unwrap_or(Duration::MAX));
            let socket = state.socket.as_ref().map(|socket| socket.descriptor());
            let by_socket = socket.filter(|_| !state.ways.is_empty());
            let sleeping = state.reader.sleeping();
            let is_local = state.peers.len() > state.ways.len();
            drop(state);
            match by_socket {
                // A peer of this host does not wake who waits for the socket.
                Some(socket) => {
                    let soon = Duration::from_millis(1);
                    poll(socket, if is_local { at_most.min(soon) } else { at_most });
                }
                // SAFETY: the caller borrows the domain, which has the reader.
                None => unsafe { queue::sleep(sleeping, at_most) },
            }
            self.lock().reader.wake_up();
        }
    }

    /// Threads that wait look again.
    pub fn wake(&self) {
        let state = self.lock();
        state.page.happened();
        let sleeping = state.reader.sleeping();
        drop(state);
        // SAFETY: the domain has the reader.
        unsafe { queue::wake_own(sleeping) };
    }

    /// Waits until all that was sent has come, or its receivers have ended.
    pub fn close(self) {
        let began = Instant::now();
        self.lock().say_bye();
        while began.elapsed() < CLOSE_MAX {
            let mut state = self.lock();
            state.progress();
            state.look_after_peers();
            if state.is_flushed() {
                state.page.close();
                return;
            }
            drop(state);
            thread::sleep(Duration::from_micros(50));
        }
        let state = self.lock();
        state.page.close();
        (state.log)(true, "closed, though peers have not taken all that was sent");
    }
}

/// Waits until a socket has something, for `at_most`.
fn poll(socket: i32, at_most: Duration) {
    let mut descriptor = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: at_most.as_secs() as libc::time_t,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: one descriptor, a time, and no mask of signals.
    unsafe { libc::ppoll(&raw mut descriptor, 1, &raw const timeout, std::ptr::null()) };
}
