//! A port with one endpoint, as a libfabric program would have it.
#![allow(dead_code, unsafe_code, reason = "each test program uses some of it")]

use std::time::{Duration, Instant};

use gang_fabric::{
    address::Address,
    completion::{Completion, Counter, Queue, fi},
    domain::Domain,
    receiving::{Looks, Receiver},
    sending::Send,
    settings::Settings,
    spans::{Span, Spans},
    state::{Bound, Endpoint, Entry, State, Vector},
};
use gang_harness::TEST_TIMEOUT;

pub struct Port(pub Domain);

pub fn spans(bytes: &[u8]) -> Spans {
    Spans::new(&[Span { base: bytes.as_ptr() as usize, length: bytes.len() }]).unwrap()
}

pub fn settings() -> Settings {
    Settings { ip: Some("127.0.0.1".parse().unwrap()), ..Settings::default() }
}

/// Bytes that differ by message and place.
pub fn bytes(number: u64, length: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(number);
    (0..length).map(|_| rng.u8(..)).collect()
}

impl Port {
    pub fn open(settings: Settings) -> Port {
        Port::open_with(settings, |_| ())
    }

    /// The same, with what it says to the log.
    pub fn open_with(settings: Settings, log: impl Fn(&str) + std::marker::Send + 'static) -> Port {
        let domain = Domain::new(settings, Box::new(move |_, text| log(text))).unwrap();
        let port = Port(domain);
        port.add_endpoint();
        port
    }

    /// One endpoint more, with the queue and the vector of the others; its number.
    pub fn add_endpoint(&self) -> usize {
        let mut state = self.0.lock();
        if state.queues.is_empty() {
            state.queues.push(Some(Queue::new(100_000)));
            state.counters.push(Some(Counter::default()));
            state.vectors.push(Some(Vector::default()));
        }
        let bound = Bound { queue: Some(0), counter: None, is_selective: false };
        state.endpoints.push(Some(Endpoint {
            vector: Some(0),
            sent: bound,
            received: Bound { counter: Some(0), ..bound },
            is_enabled: true,
            is_directed: true,
            names_source: true,
            min_shared: 64,
            sends_max: 1_024,
            ..Endpoint::default()
        }));
        state.endpoints.len() - 1
    }

    pub fn address(&self) -> Address {
        self.0.lock().own
    }

    /// The place of an address in the vector.
    pub fn insert(&self, address: Address) -> u64 {
        let mut state = self.0.lock();
        let vector = state.vector(0).unwrap();
        let entry = Entry { address, peer: None };
        vector.entries.push(Some(entry));
        vector.places.insert(entry.source(), vector.entries.len() as u64 - 1);
        vector.entries.len() as u64 - 1
    }

    pub fn send_with(
        &self,
        to: u64,
        message: &[u8],
        change: impl FnOnce(&mut Send),
    ) -> Result<(), i32> {
        let mut send = Send {
            spans: spans(message),
            to,
            tag: Some(7),
            data: None,
            context: 1,
            is_injected: false,
            asks_report: false,
            is_silent: false,
            is_delivered: false,
        };
        change(&mut send);
        // SAFETY: tests keep messages until their sends have ended.
        unsafe { self.0.lock().send(0, &send) }
    }

    pub fn send(&self, to: u64, tag: u64, message: &[u8]) -> Result<(), i32> {
        self.send_with(to, message, |send| send.tag = Some(tag))
    }

    pub fn receive_with(
        &self,
        buffer: &mut [u8],
        change: impl FnOnce(&mut Receiver),
    ) -> Result<(), i32> {
        let mut receiver = Receiver {
            spans: spans(buffer),
            from: fi::ADDR_UNSPEC,
            tag: Some((0, u64::MAX)),
            context: 2,
            asks_report: false,
            is_shared: false,
            looks: Looks::Takes,
        };
        change(&mut receiver);
        // SAFETY: tests keep buffers until their receives have ended.
        unsafe { self.0.lock().receive(0, &receiver) }
    }

    pub fn receive(&self, tag: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.receive_with(buffer, |receiver| receiver.tag = Some((tag, 0)))
    }

    pub fn progress(&self) {
        let mut state = self.0.lock();
        state.progress();
        state.look_after_peers();
    }

    /// The next completion, well or not.
    pub fn completed(&self) -> Option<Completion> {
        let mut state = self.0.lock();
        state.progress();
        state.look_after_peers();
        let queue = state.queue(0).unwrap();
        queue.read().or_else(|_| queue.read_error()).ok()
    }

    pub fn with<T>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        call(&mut self.0.lock())
    }
}

/// The next completion of the first port, well or not, while all make progress.
pub fn wait_any(ports: &[&Port]) -> Completion {
    let began = Instant::now();
    loop {
        for port in &ports[1..] {
            port.progress();
        }
        if let Some(completion) = ports[0].completed() {
            return completion;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "no completion");
        std::thread::sleep(Duration::from_micros(10));
    }
}

/// Makes progress at all ports until the first of them has a completion of a kind.
pub fn wait_for(ports: &[&Port], flag: u64) -> Completion {
    loop {
        let completion = wait_any(ports);
        if completion.flags & flag != 0 {
            return completion;
        }
        assert_eq!(completion.error, 0, "{completion:?}");
    }
}
