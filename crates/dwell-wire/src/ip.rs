//! The layout of IP packets.

use crate::error::PacketError;

/// Protocol number of ICMP for IPv4.
pub(crate) const ICMP: u8 = 1;
/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// Protocol number of ICMP for IPv6.
pub(crate) const ICMP_V6: u8 = 58;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;

/// Fixed header of IPv4, in bytes.
pub(crate) const V4_LEN: usize = 20;
/// Fixed header of IPv6, in bytes.
pub(crate) const V6_LEN: usize = 40;

/// The most extension headers that are followed. RFC 8200 4.1 allows seven in one packet;
/// more are an attack on those who follow them.
const EXTENSIONS_MAX: usize = 8;

/// The layout of a packet, checked: `transport <= total_len <=` the bytes that are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// 4 or 6.
    pub(crate) version: u8,
    /// The protocol at offset `transport`. An IPv6 extension header's number, if the chain ends
    /// there.
    pub(crate) protocol: u8,
    /// The upper six bits of the type of service or traffic class.
    pub(crate) dscp: u8,
    /// The offset of the payload of IP.
    pub(crate) transport: usize,
    /// The offset of the packet's end.
    pub(crate) total_len: usize,
    /// True for a part of a packet, including the first.
    pub(crate) fragment: bool,
    /// True for a part that does not begin with a transport header.
    pub(crate) later_fragment: bool,
    /// True if routers may not fragment it.
    pub(crate) dont_fragment: bool,
}

impl Layout {
    #[inline]
    pub(crate) fn of(packet: &[u8]) -> Result<Self, PacketError> {
        let layout = Self::of_head(packet)?;
        if layout.total_len > packet.len() {
            return Err(PacketError::Truncated);
        }
        Ok(layout)
    }

    /// Parses a packet whose end may be missing: `transport` and `total_len` may lie beyond it.
    #[inline]
    pub(crate) fn of_head(packet: &[u8]) -> Result<Self, PacketError> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Self::of_v4(packet),
            Some(6) => Self::of_v6(packet),
            Some(other) => Err(PacketError::Version(other)),
            None => Err(PacketError::Truncated),
        }
    }

    #[inline]
    fn of_v4(packet: &[u8]) -> Result<Self, PacketError> {
        let fixed: &[u8; V4_LEN] = packet.first_chunk().ok_or(PacketError::Truncated)?;
        let transport = usize::from(fixed[0] & 0x0f) * 4;
        let total_len = usize::from(be16(fixed, 2));
        if transport < V4_LEN {
            return Err(PacketError::HeaderLength);
        }
        if total_len < transport {
            return Err(PacketError::TotalLength);
        }
        let fragment = be16(fixed, 6);
        Ok(Self {
            version: 4,
            protocol: fixed[9],
            dscp: fixed[1] >> 2,
            transport,
            total_len,
            fragment: fragment & 0x3fff != 0,
            later_fragment: fragment & 0x1fff != 0,
            dont_fragment: fragment & 0x4000 != 0,
        })
    }

    #[inline]
    fn of_v6(packet: &[u8]) -> Result<Self, PacketError> {
        let fixed: &[u8; V6_LEN] = packet.first_chunk().ok_or(PacketError::Truncated)?;
        let total_len = V6_LEN + usize::from(be16(fixed, 4));
        let packet = packet.get(..total_len).unwrap_or(packet);
        let mut layout = Self {
            version: 6,
            protocol: fixed[6],
            dscp: (fixed[0] & 0x0f) << 2 | fixed[1] >> 6,
            transport: V6_LEN,
            total_len,
            fragment: false,
            later_fragment: false,
            dont_fragment: true,
        };
        for _ in 0..EXTENSIONS_MAX {
            if !layout.step_over_extension(packet) {
                break;
            }
        }
        Ok(layout)
    }

    /// Moves behind the extension header at `transport`; returns false if there is none, or the
    /// rest cannot be parsed.
    #[inline]
    fn step_over_extension(&mut self, packet: &[u8]) -> bool {
        if self.later_fragment {
            return false;
        }
        // Every extension header has at least eight bytes.
        let rest = packet.get(self.transport..).unwrap_or_default();
        let Some(&head) = rest.first_chunk::<8>() else { return false };
        let len = match self.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY => (usize::from(head[1]) + 1) * 8,
            AUTHENTICATION => (usize::from(head[1]) + 2) * 4,
            FRAGMENT => 8,
            _ => return false,
        };
        if self.transport + len > self.total_len {
            return false;
        }
        if self.protocol == FRAGMENT {
            // Offset 0 and no more to come is a whole packet all the same (RFC 6946).
            self.fragment |= be16(&head, 2) & 0xfff9 != 0;
            self.later_fragment = be16(&head, 2) & 0xfff8 != 0;
        }
        self.protocol = head[0];
        self.transport += len;
        true
    }
}

/// Returns the big-endian word at a constant offset into a header whose length the type proves.
#[inline]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

#[cfg(test)]
pub(crate) mod tests {
    //! Packets for the tests of the modules that read them.

    /// Returns an IPv4 packet from 10.0.0.1 to 10.0.0.2, without a header checksum.
    pub(crate) fn v4(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
        let header_len = super::V4_LEN + options.len();
        let [len_high, len_low] = ((header_len + payload.len()) as u16).to_be_bytes();
        let [fragment_high, fragment_low] = fragment.to_be_bytes();
        let first = 0x40 | (header_len / 4) as u8;
        let fixed =
            [first, 0, len_high, len_low, 0, 1, fragment_high, fragment_low, 64, protocol, 0, 0];
        [&fixed[..], &[10, 0, 0, 1, 10, 0, 0, 2], options, payload].concat()
    }

    /// An IPv6 extension header.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Ext {
        /// One of this number and this many times eight bytes more than eight.
        Options(u8, u8),
        /// An authentication header of 12 bytes.
        Auth,
        /// A fragment header with these bits of offset and flags.
        Fragment(u16),
    }

    impl Ext {
        fn number(self) -> u8 {
            match self {
                Self::Options(number, _) => number,
                Self::Auth => super::AUTHENTICATION,
                Self::Fragment(_) => super::FRAGMENT,
            }
        }

        fn bytes(self, next: u8) -> Vec<u8> {
            match self {
                Self::Options(_, more) => {
                    [&[next, more][..], &vec![0; 6 + 8 * usize::from(more)]].concat()
                }
                Self::Auth => [&[next, 1][..], &[0; 10]].concat(),
                Self::Fragment(bits) => [&[next, 0][..], &bits.to_be_bytes(), &[0; 4]].concat(),
            }
        }
    }

    /// Returns an IPv6 packet from fd00::1 to fd00::2.
    pub(crate) fn v6(chain: &[Ext], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut next = protocol;
        let mut body = payload.to_vec();
        for ext in chain.iter().rev() {
            body = [ext.bytes(next), body].concat();
            next = ext.number();
        }
        let [len_high, len_low] = (body.len() as u16).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, len_high, len_low, next, 64];
        for host in [1, 2] {
            packet.extend([&[0xfd][..], &[0; 14], &[host]].concat());
        }
        packet.extend(body);
        packet
    }
}
