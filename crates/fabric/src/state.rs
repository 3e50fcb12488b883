//! All that a domain of libfabric has: a port, its peers, endpoints, and what is under way.
//!
//! One lock guards it (see `domain`). Endpoints of a domain share its port: one inbound queue and
//! one socket. Progress is made by whoever calls, for all endpoints at once.

use std::{collections::HashMap, io, time::Instant};

use gang_net::Key;

use crate::{
    address::{self, Address, Host, own_ip},
    completion::{Completion, Counter, Queue, fi},
    matching::{Lists, Source},
    packet::Offer,
    page::Page,
    peer::{Ended, Peer},
    queue::Reader,
    settings::{Medium, Settings},
    spans::Spans,
    table::Table,
    udp::Socket,
};

/// Says something to the log: whether it is a warning, and the text.
pub type Log = Box<dyn Fn(bool, &str) + Send>;

pub struct State {
    pub settings: Settings,
    pub log: Log,
    pub began: Instant,
    /// The port's own address, as of its endpoint 0.
    pub own: Address,
    /// The page that the daemon sees.
    pub page: Page,
    pub reader: Reader,
    pub socket: Option<Socket>,

    pub peers: Vec<Peer>,
    pub by_port: HashMap<u64, usize>,
    pub by_socket: HashMap<std::net::SocketAddr, usize>,
    /// The port whose packet was last, and its peer.
    pub last: Option<(u64, usize)>,
    /// Peers with packets that wait, and with channels.
    pub busy: Vec<usize>,
    pub ways: Vec<usize>,
    pub deaths: u32,

    pub endpoints: Vec<Option<Endpoint>>,
    pub queues: Vec<Option<Queue>>,
    pub counters: Vec<Option<Counter>>,
    pub vectors: Vec<Option<Vector>>,

    pub sends: Table<Sending>,
    pub receives: Table<Receiving>,
    pub shared: Table<SharedBuffer>,

    pub calls: u32,
    pub looked_at: Instant,
    /// The peer whose process is looked at next.
    pub look_at: usize,
    pub refused: u64,
}

/// An address vector: the place in it is the `fi_addr_t`.
#[derive(Default)]
pub struct Vector {
    pub entries: Vec<Option<Entry>>,
    pub places: HashMap<Source, u64>,
}

#[derive(Clone, Copy)]
pub struct Entry {
    pub address: Address,
    pub peer: Option<usize>,
}

impl Entry {
    pub fn source(&self) -> Source {
        Source { port: self.address.port, endpoint: self.address.endpoint }
    }
}

#[derive(Default)]
pub struct Endpoint {
    pub vector: Option<usize>,
    pub sent: Bound,
    pub received: Bound,
    pub is_enabled: bool,
    /// Receives may name a sender; completions name it.
    pub is_directed: bool,
    pub names_source: bool,
    /// A buffer for several messages is given back below so many bytes of room.
    pub min_shared: usize,
    pub sends_max: usize,
    pub sends: usize,
    pub tagged: Lists<Receive, Message>,
    pub plain: Lists<Receive, Message>,
    pub claimed: Vec<Claimed>,
}

/// Where completions of one direction go.
#[derive(Clone, Copy, Default)]
pub struct Bound {
    pub queue: Option<usize>,
    pub counter: Option<usize>,
    /// Only operations that ask for it have a completion.
    pub is_selective: bool,
}

/// A receive that was posted, or the part of one that has got a message.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    pub context: usize,
    pub spans: Spans,
    pub reports: bool,
    /// The buffer for several messages that it is, and how much of that is used.
    pub shared: Option<u64>,
    pub used: usize,
}

/// A buffer for several messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedBuffer {
    pub under_way: usize,
    pub is_used_up: bool,
}

/// A message that has come before its receive.
#[derive(Debug)]
pub struct Message {
    pub data: Option<u64>,
    pub body: Body,
}

#[derive(Debug)]
pub enum Body {
    Bytes(Vec<u8>),
    Offer { peer: usize, offer: Offer },
}

impl Body {
    pub fn length(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Offer { offer, .. } => offer.length,
        }
    }
}

/// A message that a receive with this context will take.
#[derive(Debug)]
pub struct Claimed {
    pub context: usize,
    pub is_tagged: bool,
    pub tag: u64,
    pub source: Source,
    pub message: Message,
}

/// A message that was offered.
pub struct Sending {
    pub peer: usize,
    pub spans: Spans,
    pub ended: Ended,
    /// The message itself, where its sender may use the memory again.
    pub kept: Vec<u8>,
}

/// A message whose parts come.
pub struct Receiving {
    pub peer: usize,
    pub send: u64,
    pub spans: Spans,
    pub wanted: usize,
    pub got: usize,
    pub end: Received,
}

/// How a receive that has got its message will be reported.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub endpoint: usize,
    pub receive: Receive,
    pub is_tagged: bool,
    pub tag: u64,
    pub source: Source,
    pub data: Option<u64>,
    /// The length that the sender said.
    pub length: usize,
}

fn random() -> io::Result<[u8; 24]> {
    let mut bytes = [0; 24];
    // SAFETY: the buffer has as many bytes; so few come at once.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == bytes.len() as isize { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

impl State {
    /// A port that nobody knows yet.
    ///
    /// # Errors
    /// There is no memory for the queue, or /proc does not say who this process is.
    pub fn new(settings: Settings, log: Log) -> io::Result<State> {
        let bytes = random()?;
        let (port, drawn) = bytes.split_first_chunk::<8>().expect("24 bytes");
        let key = settings.key.unwrap_or(Key(drawn.try_into().expect("16 bytes")));
        let reader = Reader::new(key)?;
        let ip = settings.ip.unwrap_or_else(own_ip);
        let socket = match Socket::new(ip, settings.faults) {
            Ok(socket) => Some(socket),
            Err(error) if settings.medium == Medium::Udp || settings.ip.is_some() => {
                return Err(io::Error::new(error.kind(), format!("UDP at {ip}: {error}")));
            }
            Err(error) => {
                log(true, &format!("there is no UDP at {ip}, only this host: {error}"));
                None
            }
        };
        let own = Address {
            endpoint: 0,
            host: Host::here()?,
            pid: std::process::id(),
            descriptor: std::os::fd::AsRawFd::as_raw_fd(reader.file()) as u32,
            started: address::started_here()?,
            port: u64::from_le_bytes(*port),
            key,
            socket: socket.as_ref().map(Socket::address).transpose()?,
        };
        let page = Page::new(own.port, key)?;
        let socket_descriptor = socket.as_ref().map(Socket::descriptor);
        page.describe(Some(own.descriptor as i32), socket_descriptor, settings.rank);
        let now = Instant::now();
        Ok(State {
            settings,
            log,
            began: now,
            own,
            page,
            reader,
            socket,
            peers: Vec::new(),
            by_port: HashMap::new(),
            by_socket: HashMap::new(),
            last: None,
            busy: Vec::new(),
            ways: Vec::new(),
            deaths: 0,
            endpoints: Vec::new(),
            queues: Vec::new(),
            counters: Vec::new(),
            vectors: Vec::new(),
            sends: Table::default(),
            receives: Table::default(),
            shared: Table::default(),
            calls: 0,
            looked_at: now,
            look_at: 0,
            refused: 0,
        })
    }

    pub fn endpoint(&mut self, number: usize) -> Result<&mut Endpoint, i32> {
        self.endpoints.get_mut(number).and_then(Option::as_mut).ok_or(fi::EINVAL)
    }

    pub fn queue(&mut self, number: usize) -> Result<&mut Queue, i32> {
        self.queues.get_mut(number).and_then(Option::as_mut).ok_or(fi::EINVAL)
    }

    pub fn counter(&mut self, number: usize) -> Result<&mut Counter, i32> {
        self.counters.get_mut(number).and_then(Option::as_mut).ok_or(fi::EINVAL)
    }

    pub fn vector(&mut self, number: usize) -> Result<&mut Vector, i32> {
        self.vectors.get_mut(number).and_then(Option::as_mut).ok_or(fi::EINVAL)
    }

    /// Closes an endpoint. Messages that it has sent go on, and it receives no more.
    pub fn close_endpoint(&mut self, number: usize) -> Option<()> {
        self.endpoints.get_mut(number).and_then(Option::take)?;
        // Their memory is the program's again.
        for send in self.sends.numbers(|it| it.ended.endpoint == number && it.kept.is_empty()) {
            self.sends.remove(send);
        }
        for receive in self.receives.numbers(|it| it.end.endpoint == number) {
            self.receives.remove(receive);
        }
        Some(())
    }

    /// Reports an operation to the queue and the counter that are bound for it.
    pub fn report(&mut self, bound: Bound, reports: bool, completion: Completion) {
        self.page.happened();
        if let Some(counter) = bound.counter.and_then(|it| self.counter(it).ok()) {
            match completion.error {
                0 => counter.value += 1,
                _ => counter.errors += 1,
            }
        }
        let reports = reports || completion.error != 0;
        if let (true, Some(queue)) = (reports, bound.queue.and_then(|it| self.queue(it).ok())) {
            queue.push(completion);
        }
    }

    /// Reports the end of a send.
    pub fn end_send(&mut self, ended: Ended, error: i32) {
        let Ok(endpoint) = self.endpoint(ended.endpoint) else { return };
        endpoint.sends = endpoint.sends.saturating_sub(1);
        let bound = endpoint.sent;
        self.report(bound, ended.reports, Completion { error, ..ended.completion });
    }
}

/// The place of a new thing in a list whose places are used again.
pub fn place<T>(list: &mut Vec<Option<T>>, thing: T) -> usize {
    match list.iter().position(Option::is_none) {
        Some(at) => {
            list[at] = Some(thing);
            at
        }
        None => {
            list.push(Some(thing));
            list.len() - 1
        }
    }
}
