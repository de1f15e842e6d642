//! What a datagram costs on the link beside its IP packet.

use std::fmt;
use std::str::FromStr;

/// The cost of a datagram on the link below its IP header: with it the link's own rate can be written, as its
/// owner or its provider counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOverhead {
    /// Bytes of headers and trailers that each datagram has.
    pub bytes: u32,
    /// The least that it takes with them, however short it is.
    pub bytes_min: u32,
    /// What the link packs it into.
    pub framing: Framing,
}

/// What a link packs frames into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// They go as they are.
    Plain,
    /// Cells of 53 bytes that hold 48 (ADSL).
    Atm,
    /// A byte more for each 64 (VDSL2).
    Ptm,
}

/// The links that have a name: some of those that `tc-cake(8)` knows, with the same numbers; `atm` is its `conservative`.
const NAMED: [(&str, LinkOverhead); 10] = [
    // Preamble 8, header 14, check sum 4, gap 12.
    ("ethernet", LinkOverhead { bytes: 38, bytes_min: 84, framing: Framing::Plain }),
    ("docsis", LinkOverhead { bytes: 18, bytes_min: 64, framing: Framing::Plain }),
    ("bridged-ptm", LinkOverhead { bytes: 22, bytes_min: 0, framing: Framing::Ptm }),
    ("pppoe-ptm", LinkOverhead { bytes: 30, bytes_min: 0, framing: Framing::Ptm }),
    ("pppoa-vcmux", LinkOverhead { bytes: 10, bytes_min: 0, framing: Framing::Atm }),
    ("pppoa-llc", LinkOverhead { bytes: 14, bytes_min: 0, framing: Framing::Atm }),
    ("bridged-llcsnap", LinkOverhead { bytes: 32, bytes_min: 0, framing: Framing::Atm }),
    ("pppoe-vcmux", LinkOverhead { bytes: 32, bytes_min: 0, framing: Framing::Atm }),
    ("pppoe-llcsnap", LinkOverhead { bytes: 40, bytes_min: 0, framing: Framing::Atm }),
    // More than any of those needs.
    ("atm", LinkOverhead { bytes: 48, bytes_min: 0, framing: Framing::Atm }),
];

/// What a cell of ATM carries and takes, and how many bytes of a frame PTM adds one to.
const CELL_PAYLOAD_BYTES: u64 = 48;
const CELL_BYTES: u64 = 53;
const PTM_BLOCK_BYTES: u64 = 64;

impl LinkOverhead {
    /// Makes the overhead of a link whose datagrams have this many bytes more each.
    pub const fn plain(bytes: u32) -> Self {
        Self { bytes, bytes_min: 0, framing: Framing::Plain }
    }

    /// Returns the bytes that an IP packet of this length takes on the link.
    pub fn link_bytes(self, ip_bytes: u64) -> u64 {
        let bytes = (ip_bytes + u64::from(self.bytes)).max(u64::from(self.bytes_min));
        match self.framing {
            Framing::Plain => bytes,
            Framing::Atm => bytes.div_ceil(CELL_PAYLOAD_BYTES) * CELL_BYTES,
            Framing::Ptm => bytes + bytes.div_ceil(PTM_BLOCK_BYTES),
        }
    }
}

impl Default for LinkOverhead {
    /// Ethernet's header, which is what the kernel counts (`tc`).
    fn default() -> Self {
        Self::plain(14)
    }
}

impl FromStr for LinkOverhead {
    type Err = UnknownLink;

    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        let found = NAMED.iter().find(|(name, _)| *name == text);
        found.map(|&(_, overhead)| overhead).ok_or(UnknownLink)
    }
}

/// There is no link of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLink;

impl fmt::Display for UnknownLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMED.map(|(name, _)| name).join("\", \"");
        write!(f, "must be a number of bytes from 0 to 1000, or one of \"{names}\"")
    }
}

impl std::error::Error for UnknownLink {}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(name: &str, ip_bytes: u64) -> u64 {
        name.parse::<LinkOverhead>().expect("it has a name").link_bytes(ip_bytes)
    }

    #[test]
    fn a_datagram_takes_what_the_link_makes_of_it() {
        assert_eq!(LinkOverhead::default().link_bytes(1_500), 1_514);
        // A full frame of Ethernet and the shortest one, with everything around them.
        assert_eq!((takes("ethernet", 1_500), takes("ethernet", 28)), (1_538, 84));
        assert_eq!((takes("docsis", 1_500), takes("docsis", 28)), (1_518, 64));
        // 1540 bytes fill 33 cells; 48 bytes one, and a byte more begins another.
        assert_eq!(takes("pppoe-llcsnap", 1_500), 33 * 53);
        assert_eq!((takes("pppoa-vcmux", 38), takes("pppoa-vcmux", 39)), (53, 106));
        assert_eq!(takes("pppoe-ptm", 1_490), 1_520 + 24);
    }

    #[test]
    fn names_are_those_of_a_list() {
        for (name, overhead) in NAMED {
            assert_eq!(name.parse(), Ok(overhead));
        }
        let error = "token ring".parse::<LinkOverhead>().unwrap_err().to_string();
        assert!(error.contains("\"docsis\""), "{error}");
    }
}
