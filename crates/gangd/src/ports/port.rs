//! A port as the daemon has it: copies of its descriptors, and what its host holds for it.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
};

use gang_linux::process;
use gang_net::{
    Doing, Flags, Frame, Header, Held, Key, Rank, Seen,
    port::{self, Head, PEER, PEERS_MAX, Peer, SPILL, SPILL_LENGTH, queue, word},
    spill,
};
use rustix::{
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketType, getsockname, ipproto, recvfrom, sendto,
        sockopt,
    },
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

/// The longest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// Peers that are told apart: more make up their numbers.
const PEERS_TOLD_MAX: usize = 2 * PEERS_MAX;
/// Threads of a process that are looked at; one with more counts as one that computes.
const THREADS_MAX: usize = 256;
/// Errors that are taken from a socket in one go.
const ERRORS_AT_ONCE: u32 = 64;

/// Room for a datagram, with the head that it has in a ring before it.
pub type Buffer = [u8; spill::HEAD + DATAGRAM_MAX];

pub fn buffer() -> Box<Buffer> {
    Box::new([0; spill::HEAD + DATAGRAM_MAX])
}

/// A peer, by its socket and its number in frames.
type Whom = (SocketAddr, Rank);

/// The ends of a peer's channel that the host adds to.
#[derive(Debug, Default)]
struct AtHost {
    /// Frames to the port that its host holds.
    held: Held,
    /// Frames of the port that the peer's host holds: all below.
    receipted: u64,
    /// Frames that the port itself has taken, as its page said last: all below.
    expected: u64,
}

#[derive(Debug)]
pub struct Port {
    pub pid: u32,
    pub number: u64,
    pub rank: Option<u32>,
    key: Key,
    pidfd: OwnedFd,
    page: File,
    queue: Option<File>,
    socket: Option<(OwnedFd, SocketAddr)>,
    at_host: BTreeMap<Whom, AtHost>,
    /// Position in the ring.
    written: u64,
    errors: u64,
    /// Frames that are in the ring since the last flush.
    spilled: u64,
    /// CPU time of other threads than the one that waits, and how often it was another.
    others: BTreeMap<u32, u64>,
    disturbed: u64,
    polls: u64,
    is_gone: bool,
}

/// The page of a port at one moment.
#[derive(Debug)]
pub struct View {
    pub head: Head,
    /// Frames that are under way from it.
    pub under_way: u64,
    /// Frames may be begun at this moment, or there are too many peers.
    pub is_unclear: bool,
}

/// Why a page is not taken.
#[derive(Debug)]
pub enum Refused {
    /// The kernel does not hand over the descriptor.
    Kernel(&'static str, io::Error),
    /// It is something else.
    Odd(&'static str),
    /// It has another key than the job.
    Key,
}

impl Port {
    /// Takes copies of a port's descriptors from the process that has them.
    pub fn open(pid: u32, page: i32, key: Key) -> Result<Port, Refused> {
        let kernel = |what| move |error: rustix::io::Errno| Refused::Kernel(what, error.into());
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.ok_or(Refused::Odd("the process"))?;
        let pidfd = pidfd_open(process, PidfdFlags::empty()).map_err(kernel("open the process"))?;
        let copy = |descriptor: i32, what| {
            let copied = pidfd_getfd(&pidfd, descriptor, PidfdGetfdFlags::empty());
            copied.map_err(kernel(what))
        };
        let memory = |descriptor: i32, what: &'static str, length: u64| {
            let file = File::from(copy(descriptor, what)?);
            // Reads of other files might wait for somebody.
            let is_memory = rustix::fs::fcntl_get_seals(&file).is_ok();
            let is_long = file.metadata().is_ok_and(|of| of.len() >= length);
            if is_memory && is_long { Ok(file) } else { Err(Refused::Odd(what)) }
        };
        let page = memory(page, "copy the page", port::LENGTH as u64)?;
        let head = read_head(&page).ok_or(Refused::Odd("read the page"))?;
        if head.key != key {
            return Err(Refused::Key);
        }
        let queue_length = queue::cell(queue::CELLS - 1) + queue::STRIDE;
        let queue = head.queue.map(|it| memory(it as i32, "copy the queue", queue_length as u64));
        let socket = head.socket.map(|it| {
            let socket = copy(it as i32, "copy the socket")?;
            let address = address_of(&socket).ok_or(Refused::Odd("copy the socket"))?;
            Ok((socket, address))
        });
        Ok(Port {
            pid,
            number: head.port,
            rank: head.rank,
            key,
            pidfd,
            queue: queue.transpose()?,
            socket: socket.transpose()?,
            at_host: BTreeMap::new(),
            // One that a daemon before this one has written to goes on there.
            written: read_word(&page, word::SPILL_WRITTEN).unwrap_or(0),
            errors: read_word(&page, word::ERRORS).unwrap_or(0),
            page,
            spilled: 0,
            others: BTreeMap::new(),
            disturbed: 0,
            polls: head.polls,
            is_gone: false,
        })
    }

    /// The port begins no frame before a moment (CLOCK_MONOTONIC).
    pub fn hold(&self, until_ns: u64) {
        self.write_word(word::HELD_UNTIL, until_ns);
    }

    fn write_word(&self, at: usize, value: u64) {
        // A page that refuses it is of a port that nobody can flush: the flush fails.
        let _ = self.page.write_all_at(&value.to_le_bytes(), at as u64);
    }

    /// The page as it is now; none if it cannot be read.
    pub fn view(&mut self) -> Option<View> {
        let head = read_head(&self.page)?;
        let (mut under_way, mut is_unclear) = (0_u64, head.may_begin);
        is_unclear |= head.peers > PEERS_MAX as u64;
        for peer in self.peers(&head).into_iter().filter(|peer| peer.is_live) {
            let whom = (peer.socket, peer.rank);
            let numbers = peer.numbers;
            if self.at_host.len() >= PEERS_TOLD_MAX && !self.at_host.contains_key(&whom) {
                continue;
            }
            let of = self.at_host.entry(whom).or_default();
            of.expected = of.expected.max(numbers.expected);
            under_way = under_way.saturating_add(numbers.under_way(of.receipted));
        }
        Some(View { head, under_way, is_unclear })
    }

    pub fn peers(&self, head: &Head) -> Vec<Peer> {
        let count = usize::try_from(head.peers).unwrap_or(usize::MAX).min(PEERS_MAX);
        let mut bytes = vec![0; PEER * count];
        if self.page.read_exact_at(&mut bytes, port::HEAD as u64).is_err() {
            return Vec::new();
        }
        bytes.chunks_exact(PEER).filter_map(|it| it.try_into().ok()).map(Peer::read).collect()
    }

    /// Puts what has come to the socket into the ring, until there is nothing or no room, or
    /// `is_over`.
    pub fn drain(&mut self, head: &Head, buffer: &mut Buffer, is_over: impl Fn() -> bool) {
        let Some((socket, own)) = &self.socket else { return };
        let mut failed = 0;
        loop {
            // Datagrams for which there is no room stay with the kernel.
            let room = |frame| spill::room(self.written, head.spill_read, SPILL_LENGTH, frame);
            if room(usize::from(u16::MAX)).is_none() || is_over() {
                break;
            }
            let bytes = &mut buffer[spill::HEAD..];
            let (length, from) = match recvfrom(socket, bytes, RecvFlags::DONTWAIT) {
                Ok((length, _, from)) => {
                    (length, from.and_then(|from| SocketAddr::try_from(from).ok()))
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(_) => {
                    failed += 1;
                    if failed >= ERRORS_AT_ONCE {
                        break;
                    }
                    continue;
                }
            };
            let frame = buffer.get(spill::HEAD..spill::HEAD + length).map(Frame::read);
            let (Some(Ok(Frame { header, .. })), Some(from)) = (frame, from) else { continue };
            // A frame of somebody else, or one that woke a thread.
            if header.key != self.key || from == *own {
                continue;
            }
            let whom = (from, header.from);
            let is_told = self.at_host.contains_key(&whom) || self.at_host.len() < PEERS_TOLD_MAX;
            if is_told {
                // An acknowledgement in the ring says as much as a receipt.
                let of = self.at_host.entry(whom).or_default();
                of.receipted = of.receipted.max(header.acknowledged);
            }
            if header.flags.is_receipt {
                continue;
            }
            let Some(place) = room(length) else { break };
            let of_ring = spill::Head { from, length: length as u16 };
            buffer[..spill::HEAD].copy_from_slice(&of_ring.to_bytes());
            let put = |at: usize, bytes: &[u8]| self.page.write_all_at(bytes, (SPILL + at) as u64);
            let skipped = place.skip.map_or(Ok(()), |at| put(at, &[0; spill::HEAD]));
            let is_put = skipped.and_then(|()| put(place.at, &buffer[..spill::HEAD + length]));
            if is_put.is_err() {
                break;
            }
            self.written = place.written;
            self.write_word(word::SPILL_WRITTEN, place.written);
            self.spilled += 1;
            if is_told {
                let of = self.at_host.entry(whom).or_default();
                if header.flags.asks {
                    of.held.asked();
                }
                if header.flags.is_data {
                    of.held.holds(header.sequence, of.expected);
                }
            }
        }
        if failed > 0 {
            self.errors += 1;
            self.write_word(word::ERRORS, self.errors);
        }
    }

    /// Tells peers what the host holds, where they have not heard of that.
    pub fn send_receipts(&mut self, head: &Head, is_over: impl Fn() -> bool) {
        let Some((socket, _)) = &self.socket else { return };
        let peers = self.peers(head);
        let known: BTreeMap<Whom, &Peer> =
            peers.iter().filter(|it| it.is_live).map(|it| ((it.socket, it.rank), it)).collect();
        for (whom, of) in &mut self.at_host {
            let peer = known.get(whom);
            let numbers = peer.map(|peer| peer.numbers).unwrap_or_default();
            let (below, seen) = of.held.receipt(numbers.expected, numbers.seen);
            if !of.held.owes(below, numbers.answered) || is_over() {
                continue;
            }
            let header = Header {
                flags: Flags { is_receipt: true, ..Flags::default() },
                // One that has not said what it wants is taken for one of the job.
                key: peer.map_or(self.key, |peer| peer.key),
                from: Rank(self.number as u32),
                to: whom.1,
                sequence: 0,
                acknowledged: below,
                seen,
                credit: 0,
            };
            send(socket, whom.0, &header);
        }
    }

    /// Wakes a thread that waits for the socket of which the host has taken something.
    pub fn wake(&mut self) {
        let Some((socket, own)) = &self.socket else { return };
        if std::mem::take(&mut self.spilled) == 0 {
            return;
        }
        let rank = Rank(self.number as u32);
        let (flags, key, from, to) =
            (Flags { is_receipt: true, ..Flags::default() }, self.key, rank, rank);
        let (sequence, acknowledged, seen, credit) = (0, 0, 0, 0);
        let header = Header { flags, key, from, to, sequence, acknowledged, seen, credit };
        send(socket, *own, &header);
    }

    pub fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref().map(|(socket, _)| socket)
    }

    /// The host holds something that the port has not taken.
    pub fn has_inbound(&self, head: &Head) -> bool {
        let in_queue = self.queue.as_ref().is_some_and(|queue| {
            let word = read_word(queue, queue::cell(head.position));
            word.is_none_or(|word| queue::is_in_use(head.position, word))
        });
        in_queue || head.spill_read != self.written || self.socket().is_some_and(is_readable)
    }

    /// Takes down where queue and ring stand, which is all that there is to save of them: whether
    /// they hold something.
    pub fn save(&self) -> bool {
        read_head(&self.page).is_some_and(|head| self.has_inbound(&head))
    }

    /// All that is known of the port at this moment.
    pub fn seen(&mut self, proc_root: &Path, view: &View) -> Seen {
        let head = &view.head;
        self.is_gone |= process::has_ended(self.pidfd.as_fd());
        let polled = std::mem::replace(&mut self.polls, head.polls) != head.polls;
        let has_inbound = self.has_inbound(head);
        let doing = match () {
            () if head.is_closed && !self.is_gone => Doing::Closed,
            () if self.is_gone => Doing::Gone,
            () if head.waits() && self.others_are_known(proc_root, head) => Doing::Waits,
            () if polled && head.has_sent_all() && head.waiters == 0 => Doing::Polls,
            () => Doing::Computes,
        };
        let turn = head.turn.wrapping_add(head.events).wrapping_add(self.disturbed);
        let (port, awaited) = (self.number, head.awaited.clone());
        let (sent, taken) = (head.sent, head.taken);
        Seen { port, doing, awaited, sent, taken, turn, has_inbound }
    }

    /// Takes note of what other threads of the process have run since the last look: they may send
    /// where one waits. False where they cannot be looked at.
    fn others_are_known(&mut self, proc_root: &Path, head: &Head) -> bool {
        let Ok(threads) = process::threads(proc_root, self.pid) else { return false };
        if threads.len() > THREADS_MAX {
            return false;
        }
        let mut others = BTreeMap::new();
        for tid in threads.into_iter().filter(|&tid| u64::from(tid) != head.thread) {
            let path = proc_root.join(format!("{}/task/{tid}/schedstat", self.pid));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let time = text.split(' ').next().and_then(|first| first.parse().ok());
            let Some(time) = time else { return false };
            others.insert(tid, time);
        }
        if others != self.others {
            self.others = others;
            self.disturbed += 1;
        }
        true
    }

    /// It sends and takes nothing any more, as far as was seen.
    pub fn has_ended(&self, view: &View) -> bool {
        self.is_gone || view.head.is_closed
    }

    /// It sends and takes nothing any more.
    pub fn is_over(&self) -> bool {
        self.is_gone || read_head(&self.page).is_none_or(|head| head.is_closed)
    }

    /// Packets and frames that the host holds for the port, and their numbers and senders.
    pub fn contents(&self, head: &Head) -> Vec<super::contents::Held> {
        super::contents::read(self.queue.as_ref(), &self.page, self.written, head)
    }
}

fn send(socket: &OwnedFd, to: SocketAddr, header: &Header) {
    let mut bytes = Vec::new();
    Frame { header: *header, payload: &[] }.write(&mut bytes);
    // One that is lost is as one that the medium loses.
    let _ = sendto(socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to);
}

fn is_readable(socket: &OwnedFd) -> bool {
    let mut fds = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
    let now = gang_linux::clock::timespec(std::time::Duration::ZERO);
    rustix::event::poll(&mut fds, Some(&now)) != Ok(0)
}

/// The address of a UDP socket; none for another descriptor.
fn address_of(socket: &OwnedFd) -> Option<SocketAddr> {
    let is_udp = sockopt::socket_type(socket) == Ok(SocketType::DGRAM)
        && sockopt::socket_protocol(socket) == Ok(Some(ipproto::UDP));
    let domain = sockopt::socket_domain(socket).ok()?;
    let is_ip = [AddressFamily::INET, AddressFamily::INET6].contains(&domain);
    let address = getsockname(socket).ok().filter(|_| is_udp && is_ip)?;
    SocketAddr::try_from(address).ok()
}

fn read_head(page: &File) -> Option<Head> {
    let mut bytes = [0; port::HEAD];
    page.read_exact_at(&mut bytes, 0).ok()?;
    Head::read(&bytes)
}

pub fn read_word(file: &File, at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64).ok()?;
    Some(u64::from_le_bytes(bytes))
}
