//! Frames between hosts: one UDP socket for each port.
//!
//! A call of the kernel costs more than a frame. So frames that have come are taken many at once
//! (recvmmsg(2)), and full frames to one peer are handed over as one, which the kernel cuts
//! (UDP_SEGMENT, udp(7)).

use std::{
    collections::VecDeque,
    io, mem,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd, RawFd},
};

use gang_net::{Config, frame::HEADER};

use crate::settings::Faults;

/// The longest frame that is read: those of networks with jumbo frames fit.
const FRAME_MAX: usize = 9_216;
/// Frames that are taken at once.
pub const AT_ONCE: usize = 64;
/// Full frames that are handed over as one: the kernel cuts 64, and 64 KiB.
const SENT_AT_ONCE: usize = 40;
/// Bytes that the kernel keeps for a port that does not read; it may allow fewer.
const KEPT: libc::c_int = 4 << 20;
/// A frame that was held back goes after so many others.
const HELD_BACK: u32 = 3;

#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    came: Messages,
    /// Full frames to one peer that wait for others, or for [`Socket::flush`].
    batch: Vec<u8>,
    batch_to: SocketAddr,
    /// The length of a full frame; 0 where the kernel does not cut.
    segment: usize,
    faults: Faults,
    random: u64,
    held: VecDeque<(u32, SocketAddr, Vec<u8>)>,
}

/// The outcome of a look at a socket.
#[derive(Debug)]
pub enum Came {
    /// So many frames, which [`Socket::frame`] has until the next look.
    Frames(usize),
    /// Nobody has a socket there any more.
    Refused(SocketAddr),
    /// An error that says nothing of a peer.
    Other(io::Error),
}

/// Room for frames that come, as recvmmsg(2) takes it.
struct Messages {
    headers: Box<[libc::mmsghdr]>,
    _vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    buffer: Box<[u8]>,
}

// SAFETY: the pointers are to what it owns, and used by its owner alone.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Messages {
        let mut buffer = vec![0_u8; AT_ONCE * FRAME_MAX].into_boxed_slice();
        // SAFETY: all zero is a value of these.
        let zeroed: (libc::sockaddr_storage, libc::mmsghdr) = unsafe { mem::zeroed() };
        let mut names = vec![zeroed.0; AT_ONCE].into_boxed_slice();
        let vectors = buffer
            .chunks_exact_mut(FRAME_MAX)
            .map(|chunk| libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() });
        let mut vectors: Box<[libc::iovec]> = vectors.collect();
        let mut headers = vec![zeroed.1; AT_ONCE].into_boxed_slice();
        for (n, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = (&raw mut names[n]).cast();
            header.msg_hdr.msg_iov = &raw mut vectors[n];
            header.msg_hdr.msg_iovlen = 1;
        }
        Messages { headers, _vectors: vectors, names, buffer }
    }

    fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        for header in &mut self.headers {
            let length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_namelen = length;
        }
        // SAFETY: each header points to a name and a vector of its own, and that to a part of the
        // buffer; all live as long as this, and are not moved.
        let count = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                AT_ONCE as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn frame(&self, n: usize) -> Option<(SocketAddr, &[u8])> {
        let header = &self.headers[n];
        let is_whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let at = n * FRAME_MAX;
        let bytes = &self.buffer[at..at + (header.msg_len as usize).min(FRAME_MAX)];
        Some((address_of(&self.names[n])?, bytes)).filter(|_| is_whole)
    }
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}

impl Socket {
    /// # Errors
    /// There is no such address here, or no socket may be had.
    pub fn new(ip: IpAddr, faults: Faults) -> io::Result<Socket> {
        let socket = UdpSocket::bind((ip, 0))?;
        socket.set_nonblocking(true)?;
        let raw = socket.as_raw_fd();
        let (level, errors) = match ip {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        set(raw, level, errors, 1)?;
        set(raw, libc::SOL_SOCKET, libc::SO_RCVBUF, KEPT)?;
        set(raw, libc::SOL_SOCKET, libc::SO_SNDBUF, KEPT)?;
        let random = u64::from(std::process::id()) << 1 | 1;
        let full = HEADER + Config::default().payload_max;
        let cuts = set(raw, libc::SOL_UDP, libc::UDP_SEGMENT, full as libc::c_int).is_ok();
        let is_faulty = faults.loss > 0.0 || faults.reorder > 0.0;
        Ok(Socket {
            socket,
            came: Messages::new(),
            batch: Vec::new(),
            batch_to: SocketAddr::from(([0; 4], 0)),
            segment: if cuts && !is_faulty { full } else { 0 },
            faults,
            random,
            held: VecDeque::new(),
        })
    }

    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends a frame, if there is room for it; else it is lost as on any medium. A full frame may
    /// wait for [`Socket::flush`].
    pub fn send(&mut self, to: SocketAddr, frame: &[u8]) {
        if self.segment > 0 {
            let has_room = self.batch.len() < SENT_AT_ONCE * self.segment;
            if !self.batch.is_empty() && (to != self.batch_to || !has_room) {
                self.flush();
            }
            // A shorter one is the last of those that the kernel cuts.
            if frame.len() <= self.segment {
                self.batch_to = to;
                self.batch.extend_from_slice(frame);
                if frame.len() < self.segment {
                    self.flush();
                }
                return;
            }
            self.flush();
        }
        if self.happens(self.faults.loss) {
            return;
        }
        if self.happens(self.faults.reorder) {
            self.held.push_back((HELD_BACK, to, frame.to_vec()));
            return;
        }
        let _ = self.socket.send_to(frame, to);
        self.release(1);
    }

    /// Sends the frames that wait for others.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let sent = self.socket.send_to(&self.batch, self.batch_to);
        let refuses = [libc::EMSGSIZE, libc::EINVAL, libc::EIO, libc::EOPNOTSUPP];
        let error = sent.err().and_then(|error| error.raw_os_error());
        if error.is_some_and(|error| refuses.contains(&error)) {
            // A network of shorter frames, or a device that does not: each by itself from now on.
            let _ = set(self.descriptor(), libc::SOL_UDP, libc::UDP_SEGMENT, 0);
            for frame in self.batch.chunks(self.segment) {
                let _ = self.socket.send_to(frame, self.batch_to);
            }
            self.segment = 0;
        }
        self.batch.clear();
    }

    /// Sends frames that were held back, once enough others have overtaken them.
    fn release(&mut self, overtaking: u32) {
        for held in &mut self.held {
            held.0 = held.0.saturating_sub(overtaking);
        }
        while let Some((0, to, frame)) = self.held.front() {
            let _ = self.socket.send_to(frame, *to);
            self.held.pop_front();
        }
    }

    /// Sends all frames that were held back: no others come that overtake them.
    pub fn release_all(&mut self) {
        if !self.held.is_empty() {
            self.release(HELD_BACK);
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        if share == 0.0 {
            return false;
        }
        // xorshift64*, of which the upper bits are good.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let upper = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (upper as f64) < share * (1_u64 << 53) as f64
    }

    /// Takes what has come, [`AT_ONCE`] frames at most.
    pub fn receive(&mut self) -> Came {
        match self.came.receive(self.socket.as_raw_fd()) {
            Ok(count) => Came::Frames(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Came::Frames(0),
            Err(error) => match self.refused() {
                Some(address) => Came::Refused(address),
                None => Came::Other(error),
            },
        }
    }

    /// One of the frames that came at the last look; none where it is too long to be one.
    pub fn frame(&self, n: usize) -> Option<(SocketAddr, &[u8])> {
        self.came.frame(n)
    }

    /// The next address at which nobody took a frame; none where no error of that kind is left.
    pub fn next_refused(&self) -> Option<SocketAddr> {
        self.refused()
    }

    /// To whom a frame was sent that nobody took, from the queue of errors.
    fn refused(&self) -> Option<SocketAddr> {
        // SAFETY: all zero is a value of these.
        let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut control = [0_u64; 64];
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of_val(&name) as libc::socklen_t;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: all that the message points to lives and has the lengths that it says.
        let got = unsafe { libc::recvmsg(self.descriptor(), &raw mut message, libc::MSG_ERRQUEUE) };
        if got < 0 || !is_refusal(&message) {
            return None;
        }
        address_of(&name)
    }
}

fn address_of(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = name.sin_addr.s_addr.to_ne_bytes();
            Some(SocketAddr::from((ip, u16::from_be(name.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::from((name.sin6_addr.s6_addr, u16::from_be(name.sin6_port))))
        }
        _ => None,
    }
}

/// An error says that a port is closed, and not that a network was away for a moment.
fn is_refusal(message: &libc::msghdr) -> bool {
    // SAFETY: the kernel has filled the message in.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: the header is within the control data.
        let header = unsafe { &*control };
        let is_error = (header.cmsg_level, header.cmsg_type)
            == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if is_error {
            // SAFETY: data of this type is an error, perhaps unaligned.
            let error = unsafe {
                libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned()
            };
            return error.ee_errno == libc::ECONNREFUSED as u32;
        }
        // SAFETY: as above.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
    false
}

fn set(socket: RawFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value has the length that is said.
    let result =
        unsafe { libc::setsockopt(socket, level, option, (&raw const value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
