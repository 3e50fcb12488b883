//! A frame goes over a medium at once: 64 bytes of header, and a part of a message.
//!
//! | bytes | field |
//! |---|---|
//! | 0–1 | `GN` |
//! | 2 | version of the layout |
//! | 3 | flags |
//! | 4–7 | length of the payload |
//! | 8–23 | key of the job |
//! | 24–27, 28–31 | ranks of sender and receiver |
//! | 32–39 | number of the frame, or of the next one where it has no payload of a message |
//! | 40–47 | all frames below this number have come |
//! | 48–55 | of those after it, bit for bit, which have come |
//! | 56–63 | frames below this number may be sent |
//!
//! Numbers are little-endian. The flags are 1 for a part of a message, 2 where the message ends
//! with it, 4 where credit is asked for, and 8 for a *receipt*: the daemon of a host sends it for a
//! port whose program does not call. It says which frames the host holds for the program.
//!
//! A frame can be put on the medium by anybody, and say anything. So a reader takes nothing on
//! trust: lengths are compared with what came, and a [`Channel`](crate::Channel) compares key and
//! ranks with its own.

use std::fmt;

/// The length of a header, in bytes.
pub const HEADER: usize = 64;

const MAGIC: [u8; 2] = *b"GN";
const VERSION: u8 = 1;

/// A process of a job, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u32);

/// The secret of a job: its frames have it, and those of no other job. Nothing prints it.
#[derive(Clone, Copy, Eq)]
pub struct Key(pub [u8; 16]);

impl PartialEq for Key {
    /// Takes as long for a wrong key as for another wrong one.
    fn eq(&self, other: &Key) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// The kinds of a frame; each but a receipt is an acknowledgement besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It has a part of a message, and a number of its own.
    pub is_data: bool,
    /// The message ends with it.
    pub ends_message: bool,
    /// The sender wants to know how many frames it may send.
    pub asks: bool,
    /// The host of the sender speaks, and not its program: `acknowledged` and `seen` say which
    /// frames the host holds for the program. Nothing else of the frame means anything.
    pub is_receipt: bool,
}

impl Flags {
    const DATA: u8 = 1;
    const ENDS: u8 = 2;
    const ASKS: u8 = 4;
    const RECEIPT: u8 = 8;

    fn to_byte(self) -> u8 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.is_data, Flags::DATA)
            | bit(self.ends_message, Flags::ENDS)
            | bit(self.asks, Flags::ASKS)
            | bit(self.is_receipt, Flags::RECEIPT)
    }

    fn from_byte(byte: u8) -> Option<Flags> {
        let flags = Flags {
            is_data: byte & Flags::DATA != 0,
            ends_message: byte & Flags::ENDS != 0,
            asks: byte & Flags::ASKS != 0,
            is_receipt: byte & Flags::RECEIPT != 0,
        };
        let is_one_kind = !flags.is_receipt || byte == Flags::RECEIPT;
        let is_known = flags.to_byte() == byte && is_one_kind;
        (is_known && (flags.is_data || !flags.ends_message)).then_some(flags)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub flags: Flags,
    pub key: Key,
    pub from: Rank,
    pub to: Rank,
    pub sequence: u64,
    /// All frames below this number have come.
    pub acknowledged: u64,
    /// Bit n: the frame `acknowledged + 1 + n` has come.
    pub seen: u64,
    /// Frames below this number may be sent.
    pub credit: u64,
}

/// A frame as it was read, or is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: Header,
    pub payload: &'a [u8],
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than a header.
    Truncated { bytes: usize },
    /// Something else than a frame.
    NotOurs,
    /// Of a newer or older layout.
    Version { found: u8 },
    /// Flags that this version does not know, or that exclude each other.
    Flags { found: u8 },
    /// Another length than the header says.
    Length { said: u32, bytes: usize },
    /// A frame that is no part of a message has a payload.
    Payload,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Truncated { bytes } => {
                write!(f, "a header has {HEADER} bytes, and {bytes} came")
            }
            Malformed::NotOurs => f.write_str("it does not begin as a frame does"),
            Malformed::Version { found } => {
                write!(f, "it is of version {found}, and {VERSION} is known")
            }
            Malformed::Flags { found } => write!(f, "it has flags that are not known: {found:#x}"),
            Malformed::Length { said, bytes } => {
                write!(f, "it says that {said} bytes follow its header, and {bytes} came")
            }
            Malformed::Payload => f.write_str("it is no part of a message, and has a payload"),
        }
    }
}

impl std::error::Error for Malformed {}

impl<'a> Frame<'a> {
    /// Reads a frame; `bytes` are all that came at once.
    ///
    /// # Errors
    /// They are no frame, for this reason.
    pub fn read(bytes: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let truncated = Malformed::Truncated { bytes: bytes.len() };
        let (header, payload) = bytes.split_first_chunk::<HEADER>().ok_or(truncated)?;
        let (magic, rest) = header.split_first_chunk::<2>().ok_or(truncated)?;
        if *magic != MAGIC {
            return Err(Malformed::NotOurs);
        }
        let mut fields = Fields(rest);
        let [version, flags] = fields.next::<2>();
        if version != VERSION {
            return Err(Malformed::Version { found: version });
        }
        let said = u32::from_le_bytes(fields.next());
        let key = Key(fields.next());
        let [from, to] = [(); 2].map(|()| Rank(u32::from_le_bytes(fields.next())));
        let [sequence, acknowledged, seen, credit] =
            [(); 4].map(|()| u64::from_le_bytes(fields.next()));
        let flags = Flags::from_byte(flags).ok_or(Malformed::Flags { found: flags })?;
        if usize::try_from(said) != Ok(payload.len()) {
            return Err(Malformed::Length { said, bytes: payload.len() });
        }
        if !flags.is_data && !payload.is_empty() {
            return Err(Malformed::Payload);
        }
        let header = Header { flags, key, from, to, sequence, acknowledged, seen, credit };
        Ok(Frame { header, payload })
    }

    /// Appends the frame to what is to be sent.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Header { flags, key, from, to, sequence, acknowledged, seen, credit } = self.header;
        out.reserve(HEADER + self.payload.len());
        out.extend(MAGIC);
        out.extend([VERSION, flags.to_byte()]);
        out.extend((self.payload.len() as u32).to_le_bytes());
        out.extend(key.0);
        out.extend([from, to].map(|rank| rank.0.to_le_bytes()).concat());
        out.extend([sequence, acknowledged, seen, credit].map(u64::to_le_bytes).concat());
        out.extend(self.payload);
    }
}

/// The fields of a header that is whole, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        let (field, rest) = self.0.split_first_chunk().expect("the layout has 64 bytes");
        self.0 = rest;
        *field
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            flags: Flags { is_data: true, ends_message: true, ..Flags::default() },
            key: Key([7; 16]),
            from: Rank(1),
            to: Rank(2),
            sequence: 3,
            acknowledged: 4,
            seen: 5,
            credit: 6,
        }
    }

    fn bytes(header: Header, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Frame { header, payload }.write(&mut out);
        out
    }

    #[test]
    fn layout_is_as_documented() {
        let written = bytes(header(), b"abc");
        assert_eq!(written.len(), HEADER + 3);
        assert_eq!(written[..8], *b"GN\x01\x03\x03\0\0\0");
        assert_eq!(written[8..24], [7; 16]);
        assert_eq!((written[24], written[28], written[32], written[40]), (1, 2, 3, 4));
        assert_eq!((written[48], written[56]), (5, 6));
        assert_eq!(Frame::read(&written), Ok(Frame { header: header(), payload: b"abc" }));
    }

    #[test]
    fn each_fault_has_its_reason() {
        let good = bytes(header(), b"abc");
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            Frame::read(&bad).unwrap_err()
        };
        assert_eq!(Frame::read(&good[..63]), Err(Malformed::Truncated { bytes: 63 }));
        assert_eq!(with(0, b'X'), Malformed::NotOurs);
        assert_eq!(with(2, 9), Malformed::Version { found: 9 });
        assert_eq!(with(3, 0x80), Malformed::Flags { found: 0x80 });
        assert_eq!(with(3, 2), Malformed::Flags { found: 2 }, "nothing ends without a part");
        assert_eq!(with(3, 9), Malformed::Flags { found: 9 }, "a receipt has no part");
        assert_eq!(with(3, 8), Malformed::Payload);
        assert_eq!(with(3, 0), Malformed::Payload);
        assert_eq!(with(4, 4), Malformed::Length { said: 4, bytes: 3 });
        assert_eq!(Frame::read(&good[..66]), Err(Malformed::Length { said: 3, bytes: 2 }));
    }

    #[test]
    fn receipt_comes_as_it_went() {
        let flags = Flags { is_receipt: true, ..Flags::default() };
        let written = bytes(Header { flags, ..header() }, &[]);
        assert_eq!((written.len(), written[3]), (HEADER, 8));
        assert_eq!(Frame::read(&written).unwrap().header.flags, flags);
    }

    #[test]
    fn nothing_prints_a_key() {
        let printed = format!("{:?}", header());
        assert!(printed.contains("Key(secret)") && !printed.contains("7, 7"), "{printed}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(
            mut noise in proptest::collection::vec(any::<u8>(), 0..200),
            is_ours in any::<bool>(),
        ) {
            if is_ours && noise.len() > 3 {
                noise[..3].copy_from_slice(b"GN\x01");
            }
            if let Ok(frame) = Frame::read(&noise) {
                prop_assert_eq!(bytes(frame.header, frame.payload), noise);
            }
        }
    }
}
