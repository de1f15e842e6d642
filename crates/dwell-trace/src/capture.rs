//! Reading captures: pcap and pcapng, plain or compressed, from a stream, in bounded memory.
//!
//! The two formats are small, and most of this module is about matters that a library would have to
//! leave to us anyway: the reports of damage, and the memory that a false length may take.

mod buffer;
mod pcap;
mod pcapng;
#[cfg(test)]
pub(crate) mod tests;
mod unpack;

use std::fmt;
use std::io::{self, Read};

use thiserror::Error;

use self::buffer::Buffer;
use self::pcap::Pcap;
use self::pcapng::Pcapng;
use self::unpack::Unpacked;

/// The longest packet that is read, in bytes: libpcap's own limit for all links that carry IP.
/// A record that claims more is damaged.
pub const PACKET_BYTES_MAX: usize = 1 << 18;

/// A kind of link: the numbers of <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

/// A packet of a capture; its bytes are borrowed from the reader until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'c> {
    /// The time at which it was seen, in nanoseconds since 1970. None if the format doesn't say
    /// (pcapng's simple packets), or if the time can't be shown so.
    pub timestamp_ns: Option<u64>,
    /// The kind of frame.
    pub link: LinkType,
    /// The captured bytes; perhaps only the beginning of the packet.
    pub data: &'c [u8],
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
    /// The direction of the packet at the interface that captured it, if the capture says so.
    pub mark: Option<Mark>,
}

/// The direction of a packet at the interface that captured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The packet came in.
    In,
    /// The packet went out.
    Out,
}

/// The format in which the packets are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// libpcap's, and its variants.
    Pcap,
    /// Its successor.
    Pcapng,
}

/// A reason why bytes can't be read as a capture at all.
#[derive(Debug, Error)]
pub enum OpenError {
    /// They can't even be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// There are none.
    #[error("it is empty")]
    Empty,
    /// They end within the header.
    #[error("it ends within its header")]
    Cut,
    /// They begin like no known format.
    #[error("it is no capture: it begins with {0:02x?}, which is neither pcap nor pcapng")]
    Unknown([u8; 4]),
    /// It is packed in a format that is not read here: the name, and the program that unpacks it.
    #[error("it is packed with {0}, which is not read here: unpack it with `{1}` first")]
    Packed(&'static str, &'static str),
    /// It is a capture of a kind that is not read here.
    #[error("it is a capture of {0}, which is not read here: convert it with `editcap -F pcapng`")]
    Foreign(&'static str),
    /// A version that doesn't exist (yet).
    #[error("its format has the version {0}.{1}, and only 2 (pcap) and 1 (pcapng) are known")]
    Version(u16, u16),
}

/// The damage that ended a capture, and its place. Everything before it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The position of the damaged record or block, in bytes of the unpacked capture.
    pub at_byte: u64,
    /// The damage.
    pub what: Damage,
}

/// A kind of damage of a record or a block.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The capture ends within it.
    #[error("the capture ends within a record")]
    Cut,
    /// The bytes can't be read further: a device, or compressed data that are damaged or cut.
    #[error("the rest can't be read: {0}")]
    Io(String),
    /// It claims more bytes than a packet can have.
    #[error("a packet claims to have {0} bytes, and none has more than {PACKET_BYTES_MAX}")]
    PacketLength(u32),
    /// A block of pcapng has another length at its end than at its beginning, or is too short.
    #[error("a block's lengths don't agree with each other or with what is in it")]
    BlockLength(u32),
    /// A packet of pcapng is of an interface that was not described.
    #[error("a packet is of interface {0}, which was not described")]
    Interface(u32),
    /// More interfaces than are kept.
    #[error("it has more than {INTERFACES_MAX} interfaces")]
    Interfaces,
    /// A section in the middle of the capture can't be read.
    #[error("a section begins that can't be read")]
    Section,
}

/// pcapng lets every section describe as many as it likes.
pub(crate) const INTERFACES_MAX: usize = 1 << 16;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at_byte, self.what)
    }
}

/// A capture that is being read.
///
/// ```
/// # fn count(bytes: &[u8]) -> Result<u64, dwell_trace::OpenError> {
/// let mut capture = dwell_trace::Capture::open(bytes)?;
/// let mut count = 0;
/// while let Some(packet) = capture.next_packet() {
///     count += u64::from(packet.wire_len);
/// }
/// if let Some(trouble) = capture.trouble() {
///     // Still, everything up to here was good: trouble.at_byte.
/// }
/// # Ok(count) }
/// # assert!(count(b"hello").is_err());
/// ```
pub struct Capture<R: Read> {
    buffer: Buffer<Unpacked<R>>,
    reader: Reader,
    trouble: Option<Trouble>,
}

enum Reader {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl<R: Read> Capture<R> {
    /// Reads the header; gzip, zstd, bzip2 and xz are unpacked automatically. The reader has its
    /// own buffers, so that a plain file will do as `source`.
    ///
    /// # Errors
    /// If this is no capture. Damage behind the header is reported by [`trouble`](Self::trouble).
    pub fn open(source: R) -> Result<Self, OpenError> {
        let mut buffer = Buffer::new(Unpacked::new(source)?);
        if let Some(error) = buffer.peek(8).and_then(refused) {
            return Err(error);
        }
        let Some(&magic) = buffer.peek(4).and_then(<[u8]>::first_chunk::<4>) else {
            return Err(match (buffer.take_error(), buffer.available()) {
                (Some(error), _) => OpenError::Io(error),
                (None, 0) => OpenError::Empty,
                (None, _) => OpenError::Cut,
            });
        };
        let reader = if magic == pcapng::MAGIC {
            Reader::Pcapng(Pcapng::open(&mut buffer)?)
        } else {
            Reader::Pcap(Pcap::open(magic, &mut buffer)?)
        };
        Ok(Self { buffer, reader, trouble: None })
    }

    /// The next packet; none at the end, or from where the capture is broken.
    #[inline]
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        if self.trouble.is_some() {
            return None;
        }
        let at_byte = self.buffer.position();
        let next = match &mut self.reader {
            Reader::Pcap(reader) => reader.next(&mut self.buffer),
            Reader::Pcapng(reader) => reader.next(&mut self.buffer),
        };
        match next {
            Ok(found) => found.map(|found| Packet {
                timestamp_ns: found.timestamp_ns,
                link: found.link,
                data: self.buffer.last(found.data_len, found.behind),
                wire_len: found.wire_len,
                mark: found.mark,
            }),
            Err(Broken { at_byte: at, what }) => {
                let what = match self.buffer.take_error() {
                    Some(error) => Damage::Io(error.to_string()),
                    None => what,
                };
                self.trouble = Some(Trouble { at_byte: at.unwrap_or(at_byte), what });
                None
            }
        }
    }

    /// Returns the damage that ended the capture; known when there are no more packets.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Returns the format in which the packets are stored.
    pub fn format(&self) -> Format {
        match self.reader {
            Reader::Pcap(_) => Format::Pcap,
            Reader::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Returns the number of bytes read of the unpacked capture.
    pub fn position(&self) -> u64 {
        self.buffer.position()
    }
}

/// Returns an error if the first bytes are known to be those of another format.
fn refused(head: &[u8]) -> Option<OpenError> {
    const PACKED: [(&[u8], &str, &str); 5] = [
        (b"PK\x03\x04", "zip", "unzip"),
        (b"7z\xbc\xaf", "7z", "7z x"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
        (b"LZIP", "lzip", "lzip -d"),
        (b"\x1f\x9d", "compress", "uncompress"),
    ];
    if head.starts_with(b"snoop\0\0\0") {
        return Some(OpenError::Foreign("snoop"));
    }
    let packed = PACKED.iter().find(|(magic, ..)| head.starts_with(magic));
    packed.map(|&(_, name, tool)| OpenError::Packed(name, tool))
}

/// A packet whose bytes were just consumed from the buffer.
struct Found {
    timestamp_ns: Option<u64>,
    link: LinkType,
    wire_len: u32,
    mark: Option<Mark>,
    data_len: usize,
    /// The number of bytes between the end of the packet and the next read.
    behind: usize,
}

/// The reason why there is no next packet; at the beginning of this call's record unless set
/// otherwise.
struct Broken {
    at_byte: Option<u64>,
    what: Damage,
}

impl From<Damage> for Broken {
    fn from(what: Damage) -> Self {
        Self { at_byte: None, what }
    }
}

/// The byte order of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    #[inline]
    fn u16<const N: usize>(self, bytes: &[u8; N], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        match self {
            Self::Big => u16::from_be_bytes(word),
            Self::Little => u16::from_le_bytes(word),
        }
    }

    #[inline]
    fn u32<const N: usize>(self, bytes: &[u8; N], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Big => u32::from_be_bytes(word),
            Self::Little => u32::from_le_bytes(word),
        }
    }
}
