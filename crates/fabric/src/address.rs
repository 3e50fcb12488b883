//! Where a port is: what libfabric hands about as an address, to the byte.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | `GFI`, and the version of the layout |
//! | 4–7 | number of the endpoint at the port |
//! | 8–23 | boot id of the host |
//! | 24–31 | number of the PID namespace |
//! | 32–35, 36–39 | process, and its descriptor of the queue |
//! | 40–47 | when the process started, in clock ticks after boot |
//! | 48–55 | number of the port, drawn at random |
//! | 56–71 | key of the port |
//! | 72–73, 74–75 | 0, 4 or 6: family of the socket's address; its port |
//! | 76–91 | the socket's address |
//! | 92–95 | zero |
//!
//! Two ports with the same host and namespace can reach each other's memory. The key says that
//! the holder of an address was given it.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    process,
};

use gang_net::Key;

/// The length of an address, in bytes.
pub const ADDRESS: usize = 96;

const MAGIC: [u8; 4] = *b"GFI\x01";

/// Processes with the same one can open each other's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub boot: [u8; 16],
    pub namespace: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub endpoint: u16,
    pub host: Host,
    pub pid: u32,
    pub descriptor: u32,
    pub started: u64,
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
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let odd = || io::Error::other(format!("boot_id has {text:?}"));
        let boot = u128::from_str_radix(&digits, 16).map_err(|_| odd())?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        Ok(Host { boot: boot.to_be_bytes(), namespace })
    }
}

/// When a process started, in clock ticks after boot; none if it has ended, though its parent may
/// not have waited for it.
pub fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_there = !matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| is_there)
}

/// When this process started.
///
/// # Errors
/// /proc does not say.
pub fn started_here() -> io::Result<u64> {
    started(process::id()).ok_or_else(|| io::Error::other("/proc/self/stat says no start time"))
}

impl Address {
    pub fn to_bytes(&self) -> [u8; ADDRESS] {
        let mut bytes = Vec::with_capacity(ADDRESS);
        bytes.extend(MAGIC);
        bytes.extend(u32::from(self.endpoint).to_le_bytes());
        bytes.extend(self.host.boot);
        bytes.extend(self.host.namespace.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.descriptor.to_le_bytes());
        bytes.extend(self.started.to_le_bytes());
        bytes.extend(self.port.to_le_bytes());
        bytes.extend(self.key.0);
        let (family, octets) = match self.socket.map(|socket| socket.ip()) {
            None => (0_u16, [0; 16]),
            Some(IpAddr::V4(ip)) => (4, ip.to_ipv6_mapped().octets()),
            Some(IpAddr::V6(ip)) => (6, ip.octets()),
        };
        bytes.extend(family.to_le_bytes());
        bytes.extend(self.socket.map_or(0, |socket| socket.port()).to_le_bytes());
        bytes.extend(octets);
        bytes.resize(ADDRESS, 0);
        bytes.try_into().expect("the layout has 96 bytes")
    }

    /// None if it is no address of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Address> {
        let bytes = bytes.first_chunk::<ADDRESS>()?;
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let endpoint = u16::try_from(u32::from_le_bytes(next(&mut rest)?)).ok()?;
        let host = Host { boot: next(&mut rest)?, namespace: u64::from_le_bytes(next(&mut rest)?) };
        let pid = u32::from_le_bytes(next(&mut rest)?);
        let descriptor = u32::from_le_bytes(next(&mut rest)?);
        let started = u64::from_le_bytes(next(&mut rest)?);
        let port = u64::from_le_bytes(next(&mut rest)?);
        let key = Key(next(&mut rest)?);
        let family = u16::from_le_bytes(next(&mut rest)?);
        let number = u16::from_le_bytes(next(&mut rest)?);
        let ip = Ipv6Addr::from(next::<16>(&mut rest)?);
        let socket = match family {
            0 => None,
            4 => Some(SocketAddr::from((ip.to_ipv4_mapped()?, number))),
            6 => Some(SocketAddr::from((ip, number))),
            _ => return None,
        };
        Some(Address { endpoint, host, pid, descriptor, started, port, key, socket })
    }
}

/// The next field.
fn next<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (field, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*field)
}

/// The address of an interface that other hosts may know, else that of loopback.
pub fn own_ip() -> IpAddr {
    // Nothing is sent: the kernel looks its routes up. The address is one of documentation.
    let routed = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match routed.map(|address| address.ip()) {
        Ok(ip) if !ip.is_unspecified() => ip,
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use gang_net::Key;
    use proptest::prelude::*;

    use super::{ADDRESS, Address, Host, started, started_here};

    #[test]
    fn address_comes_as_it_went() {
        for socket in ["10.1.2.3:77", "[fe80::1]:9"].map(|it| it.parse().ok()).into_iter().chain([None]) {
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
