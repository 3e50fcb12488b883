//! Frames between hosts: one UDP socket for each port.

use std::{
    collections::VecDeque,
    io, mem,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd, RawFd},
};

use crate::settings::Faults;

/// The longest frame that is read.
const FRAME_MAX: usize = 65_536;
/// Bytes that the kernel keeps for a port that does not read; it may allow fewer.
const KEPT: libc::c_int = 4 << 20;
/// A frame that was held back goes after so many others.
const HELD_BACK: u32 = 3;

#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    buffer: Box<[u8]>,
    faults: Faults,
    random: u64,
    held: VecDeque<(u32, SocketAddr, Vec<u8>)>,
}

/// One thing that has come to a socket.
#[derive(Debug)]
pub enum Came<'a> {
    Nothing,
    Frame(SocketAddr, &'a [u8]),
    /// Nobody has a socket there any more.
    Refused(SocketAddr),
    /// An error that says nothing of a peer.
    Other(io::Error),
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
        let buffer = vec![0; FRAME_MAX].into_boxed_slice();
        let random = u64::from(std::process::id()) << 1 | 1;
        Ok(Socket { socket, buffer, faults, random, held: VecDeque::new() })
    }

    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends a frame, if there is room for it; else it is lost as on any medium.
    pub fn send(&mut self, to: SocketAddr, frame: &[u8]) {
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

    pub fn receive(&mut self) -> Came<'_> {
        match self.socket.recv_from(&mut self.buffer) {
            Ok((length, from)) => Came::Frame(from, &self.buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Came::Nothing,
            Err(error) => match self.refused() {
                Some(address) => Came::Refused(address),
                None => Came::Other(error),
            },
        }
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
        match i32::from(name.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that it is one.
                let name = unsafe { &*(&raw const name).cast::<libc::sockaddr_in>() };
                let ip = name.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddr::from((ip, u16::from_be(name.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that it is one.
                let name = unsafe { &*(&raw const name).cast::<libc::sockaddr_in6>() };
                Some(SocketAddr::from((name.sin6_addr.s6_addr, u16::from_be(name.sin6_port))))
            }
            _ => None,
        }
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
