//! Where a port is: what libfabric hands about as an address, to the byte.
//!
//! | bytes | field |
//! |---|---|
//! | 0, 1 | `G`, and the version of the layout |
//! | 2–3 | number of the endpoint at the port |
//! | 4–11 | host: a hash of its boot id and of the PID namespace |
//! | 12–14, 15–17 | process, and its descriptor of the queue |
//! | 18–21 | when the process started, in clock ticks after boot, the lower 32 bits |
//! | 22–29 | number of the port, drawn at random |
//! | 30–45 | key of the port |
//! | 46–47 | port of the socket; 0 where there is none |
//! | 48–63 | the socket's IPv6 address, or its IPv4 address mapped |
//!
//! It has 64 bytes, since Open MPI has room for no more (FI_NAME_MAX). Numbers are little-endian.
//!
//! Two ports with the same host and namespace can reach each other's memory. The key says that
//! the holder of an address was given it.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    process, ptr,
};

use gang_net::Key;

/// The length of an address, in bytes.
pub const ADDRESS: usize = 64;

const MAGIC: [u8; 2] = *b"G\x01";

/// Processes with the same one can open each other's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub endpoint: u16,
    pub host: Host,
    pub pid: u32,
    pub descriptor: u32,
    pub started: u32,
    pub port: u64,
    pub key: Key,
    pub socket: Option<SocketAddr>,
}

impl Host {
    /// That of this process.
    ///
    /// # Errors
    /// /proc does not say.
    pub fn here() -> io::Result<Host> {
        let boot = fs::read("/proc/sys/kernel/random/boot_id")?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino().to_le_bytes();
        // FNV-1a.
        let hash = boot.iter().chain(&namespace).fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Ok(Host(hash))
    }
}

/// When a process started, in clock ticks after boot, the lower 32 bits; none if it has ended,
/// though its parent may not have waited for it.
pub fn started(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_there = !matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse::<u64>().ok().filter(|_| is_there).map(|ticks| ticks as u32)
}

/// When this process started.
///
/// # Errors
/// /proc does not say.
pub fn started_here() -> io::Result<u32> {
    started(process::id()).ok_or_else(|| io::Error::other("/proc/self/stat says no start time"))
}

impl Address {
    /// A process and a descriptor have 24 bits each.
    pub fn to_bytes(&self) -> [u8; ADDRESS] {
        let mut bytes = Vec::with_capacity(ADDRESS);
        bytes.extend(MAGIC);
        bytes.extend(self.endpoint.to_le_bytes());
        bytes.extend(self.host.0.to_le_bytes());
        bytes.extend(&self.pid.to_le_bytes()[..3]);
        bytes.extend(&self.descriptor.to_le_bytes()[..3]);
        bytes.extend(self.started.to_le_bytes());
        bytes.extend(self.port.to_le_bytes());
        bytes.extend(self.key.0);
        bytes.extend(self.socket.map_or(0, |socket| socket.port()).to_le_bytes());
        bytes.extend(match self.socket.map(|socket| socket.ip()) {
            None => [0; 16],
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
            Some(IpAddr::V6(ip)) => ip.octets(),
        });
        bytes.try_into().expect("the layout has 64 bytes")
    }

    /// None if it is no address of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Address> {
        let bytes = bytes.first_chunk::<ADDRESS>()?;
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let of_24_bits = |[a, b, c]: [u8; 3]| u32::from_le_bytes([a, b, c, 0]);
        let endpoint = u16::from_le_bytes(next(&mut rest)?);
        let host = Host(u64::from_le_bytes(next(&mut rest)?));
        let pid = of_24_bits(next(&mut rest)?);
        let descriptor = of_24_bits(next(&mut rest)?);
        let started = u32::from_le_bytes(next(&mut rest)?);
        let port = u64::from_le_bytes(next(&mut rest)?);
        let key = Key(next(&mut rest)?);
        let number = u16::from_le_bytes(next(&mut rest)?);
        let ip = Ipv6Addr::from(next::<16>(&mut rest)?);
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        let socket = (number != 0).then(|| SocketAddr::from((ip, number)));
        Some(Address { endpoint, host, pid, descriptor, started, port, key, socket })
    }
}

/// The next field.
fn next<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (field, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*field)
}

/// The address of this host that others may know: that of the usual route, else that of the first
/// interface that is up, else loopback.
pub fn own_ip() -> IpAddr {
    // Nothing is sent: the kernel looks its routes up. The address is one of documentation.
    let routed = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match routed.map(|address| address.ip()) {
        Ok(ip) if !ip.is_unspecified() => ip,
        _ => of_interface().unwrap_or(Ipv4Addr::LOCALHOST).into(),
    }
}

/// The first IPv4 address of an interface that is up, and not loopback.
fn of_interface() -> Option<Ipv4Addr> {
    let mut list = ptr::null_mut();
    // SAFETY: the list is written, and freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return None;
    }
    let (mut next, mut found) = (list, None);
    while let (false, None) = (next.is_null(), found) {
        // SAFETY: it is an entry of the list, which is not freed yet.
        let entry = unsafe { &*next };
        let flags = entry.ifa_flags as libc::c_int;
        let is_up = flags & libc::IFF_UP != 0 && flags & libc::IFF_LOOPBACK == 0;
        // SAFETY: an entry's address is null, or begins with its family.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|address| i32::from(address.sa_family));
        if is_up && family == Some(libc::AF_INET) {
            // SAFETY: the family says that it is one.
            let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
            found = Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()));
        }
        next = entry.ifa_next;
    }
    // SAFETY: nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

#[cfg(test)]
mod tests {
    use gang_net::Key;
    use proptest::prelude::*;

    use super::{ADDRESS, Address, Host, started, started_here};

    #[test]
    fn address_comes_as_it_went() {
        for socket in
            ["10.1.2.3:77", "[fe80::1]:9"].map(|it| it.parse().ok()).into_iter().chain([None])
        {
            let address = Address {
                endpoint: 3,
                host: Host::here().unwrap(),
                pid: 5,
                descriptor: 6,
                started: started_here().unwrap(),
                port: 7,
                key: Key([8; 16]),
                socket,
            };
            assert_eq!(Address::from_bytes(&address.to_bytes()), Some(address));
        }
    }

    #[test]
    fn ended_process_has_no_start() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // A zombie until somebody waits for it.
        while started(pid).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(started(pid), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..ADDRESS + 9)) {
            let _ = Address::from_bytes(&bytes);
        }
    }
}
