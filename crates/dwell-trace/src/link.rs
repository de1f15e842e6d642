//! Finds the IP packet in a frame of a link.

use thiserror::Error;

use crate::capture::LinkType;

/// A reason why a frame is not measured. Each reason is worth a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum NotIp {
    /// The format of this link's frames is not known.
    #[error("link type {link} is not known here", link = .0.0)]
    Link(LinkType),
    /// Another protocol, by its EtherType.
    #[error("EtherType {0:#06x}")]
    EtherType(u16),
    /// Another protocol of PPP.
    #[error("PPP protocol {0:#06x}")]
    Ppp(u16),
    /// Another address family of a loopback device.
    #[error("address family {0}")]
    Family(u32),
    /// A frame of IEEE 802.2 or 802.3 that is not of IP (spanning tree, for instance).
    #[error("IEEE 802.2 frame")]
    Llc,
    /// A management or control frame of a wireless LAN.
    #[error("802.11 management or control frame")]
    Wireless,
    /// A wireless frame whose payload is encrypted.
    #[error("encrypted 802.11 frame")]
    Encrypted,
    /// The frame ends, or was cut off, before its IP packet.
    #[error("frame that ends before its payload")]
    Cut,
    /// More tags, labels and frames within each other than are followed.
    #[error("frame in more than {TAGS_MAX} frames and tags")]
    Nested,
    /// It should be IP, and isn't: wrong version or lengths, or cut off within the header.
    #[error("broken or cut IP header")]
    Broken,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;
const QINQ_OLD: [u16; 3] = [0x9100, 0x9200, 0x9300];
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE: u16 = 0x8864;
/// The smallest EtherType: below it is the length of an IEEE 802.3 frame.
const ETHERTYPE_MIN: u16 = 0x0600;
/// The largest number of tags, labels and the like that are followed.
const TAGS_MAX: usize = 16;
/// The largest number of frames within frames that are followed. Each costs stack, and a hostile
/// frame could hold thousands.
const FRAMES_MAX: usize = 8;

/// Returns the IP packet in a frame: from its first byte to the end of the frame, which may be
/// behind the packet's end (padding) or before it (a captured beginning).
///
/// GRE, VXLAN and other tunnels are left closed: the result is the packet that a router sees.
///
/// # Errors
/// The kind of frame if it holds no IP packet.
#[inline]
pub fn ip_packet(link: LinkType, frame: &[u8]) -> Result<&[u8], NotIp> {
    match link.0 {
        // EN10MB.
        1 => by_ethertype(frame.get(12..).ok_or(NotIp::Cut)?),
        // RAW, as different systems number it; IPV4, IPV6.
        12 | 14 | 101 | 228 | 229 => Ok(frame),
        // NULL, in the byte order of the capturing host; LOOP.
        0 | 108 => loopback(frame),
        // LINUX_SLL, LINUX_SLL2.
        113 => by_ethertype(frame.get(14..).ok_or(NotIp::Cut)?),
        276 => sll2(frame),
        // PPP, PPP_HDLC, PPP with directions.
        9 | 50 => ppp(frame),
        204 => ppp(frame.get(1..).ok_or(NotIp::Cut)?),
        // PPP_ETHER.
        51 => pppoe(frame, FRAMES_MAX),
        // C_HDLC: address and control, then an EtherType.
        104 => by_ethertype(frame.get(2..).ok_or(NotIp::Cut)?),
        // IEEE802_11, with radiotap's header, with PPI's.
        105 => wireless(frame, false),
        127 => radiotap(frame),
        192 => per_packet_information(frame),
        _ => Err(NotIp::Link(link)),
    }
}

/// Finds the packet from an EtherType on, of a frame that is in no other.
#[inline]
fn by_ethertype(rest: &[u8]) -> Result<&[u8], NotIp> {
    nested(rest, FRAMES_MAX)
}

/// Finds the packet from an EtherType on. `frames` may yet be within each other: every recursion
/// passes through here.
#[inline]
fn nested(mut rest: &[u8], frames: usize) -> Result<&[u8], NotIp> {
    let frames = frames.checked_sub(1).ok_or(NotIp::Nested)?;
    for _ in 0..TAGS_MAX {
        let (ethertype, payload) = word(rest)?;
        match ethertype {
            IPV4 | IPV6 => return Ok(payload),
            VLAN | QINQ => rest = payload.get(2..).ok_or(NotIp::Cut)?,
            _ if QINQ_OLD.contains(&ethertype) => rest = payload.get(2..).ok_or(NotIp::Cut)?,
            _ if MPLS.contains(&ethertype) => return mpls(payload, frames),
            PPPOE => return pppoe(payload, frames),
            ..ETHERTYPE_MIN => return llc(payload, frames),
            _ => return Err(NotIp::EtherType(ethertype)),
        }
    }
    Err(NotIp::Nested)
}

fn word(bytes: &[u8]) -> Result<(u16, &[u8]), NotIp> {
    let (word, rest) = bytes.split_first_chunk::<2>().ok_or(NotIp::Cut)?;
    Ok((u16::from_be_bytes(*word), rest))
}

/// IEEE 802.2 with SNAP, the only kind that carries IP.
fn llc(bytes: &[u8], frames: usize) -> Result<&[u8], NotIp> {
    match bytes.split_first_chunk::<6>() {
        Some(([0xaa, 0xaa, 0x03, 0, 0, 0], rest)) => match word(rest)? {
            (IPV4 | IPV6, payload) => Ok(payload),
            (VLAN | QINQ, payload) => nested(payload.get(2..).ok_or(NotIp::Cut)?, frames),
            (ethertype, _) => Err(NotIp::EtherType(ethertype)),
        },
        Some(_) => Err(NotIp::Llc),
        None => Err(NotIp::Cut),
    }
}

/// Skips labels up to the bottom of the stack; the protocol below is guessed by its first bits, as
/// routers do (RFC 4928).
fn mpls(mut bytes: &[u8], frames: usize) -> Result<&[u8], NotIp> {
    for _ in 0..TAGS_MAX {
        let (label, rest) = bytes.split_first_chunk::<4>().ok_or(NotIp::Cut)?;
        bytes = rest;
        if label[2] & 1 != 0 {
            return match bytes.first().map(|first| first >> 4) {
                Some(4 | 6) => Ok(bytes),
                // A pseudowire with its control word: most carry Ethernet.
                Some(0) => nested(bytes.get(4 + 12..).ok_or(NotIp::Cut)?, frames),
                Some(_) => Err(NotIp::EtherType(MPLS[0])),
                None => Err(NotIp::Cut),
            };
        }
    }
    Err(NotIp::Nested)
}

/// Finds the packet from the version of a PPPoE session's header on.
fn pppoe(bytes: &[u8], frames: usize) -> Result<&[u8], NotIp> {
    ppp_protocol(bytes.get(6..).ok_or(NotIp::Cut)?, frames)
}

/// Finds the packet with or without address and control (RFC 1662).
fn ppp(frame: &[u8]) -> Result<&[u8], NotIp> {
    match frame {
        [0xff, 0x03, rest @ ..] => ppp_protocol(rest, FRAMES_MAX),
        // Cisco's HDLC on what is called a PPP link.
        [0x0f | 0x8f, 0x00, rest @ ..] => by_ethertype(rest),
        _ => ppp_protocol(frame, FRAMES_MAX),
    }
}

fn ppp_protocol(bytes: &[u8], frames: usize) -> Result<&[u8], NotIp> {
    let (protocol, rest) = match bytes {
        // The first byte is left out if both ends agreed (RFC 1661 6.5): it would be even.
        [first, rest @ ..] if first & 1 == 1 => (u16::from(*first), rest),
        _ => word(bytes)?,
    };
    match protocol {
        0x0021 | 0x0057 => Ok(rest),
        0x0281 | 0x0283 => mpls(rest, frames),
        _ => Err(NotIp::Ppp(protocol)),
    }
}

fn loopback(frame: &[u8]) -> Result<&[u8], NotIp> {
    let (family, rest) = frame.split_first_chunk::<4>().ok_or(NotIp::Cut)?;
    // Families are small numbers: the smaller reading is the right one.
    let family = u32::from_be_bytes(*family).min(u32::from_le_bytes(*family));
    match family {
        // INET; INET6 of Linux, NetBSD, FreeBSD and macOS.
        2 | 10 | 24 | 28 | 30 => Ok(rest),
        // Some write EtherTypes.
        _ if family == u32::from(IPV4) || family == u32::from(IPV6) => Ok(rest),
        _ => Err(NotIp::Family(family)),
    }
}

fn sll2(frame: &[u8]) -> Result<&[u8], NotIp> {
    let payload = frame.get(20..).ok_or(NotIp::Cut)?;
    match word(frame)?.0 {
        IPV4 | IPV6 => Ok(payload),
        VLAN | QINQ => by_ethertype(payload.get(2..).ok_or(NotIp::Cut)?),
        PPPOE => pppoe(payload, FRAMES_MAX),
        ethertype if MPLS.contains(&ethertype) => mpls(payload, FRAMES_MAX),
        ethertype => Err(NotIp::EtherType(ethertype)),
    }
}

/// A frame of IEEE 802.11; the header may be padded to a multiple of four bytes.
fn wireless(frame: &[u8], is_padded: bool) -> Result<&[u8], NotIp> {
    let [control, flags] = *frame.first_chunk::<2>().ok_or(NotIp::Cut)?;
    // Data frames with data.
    if control & 0x0c != 0x08 || control & 0x40 != 0 {
        return Err(NotIp::Wireless);
    }
    if flags & 0x40 != 0 {
        return Err(NotIp::Encrypted);
    }
    let mut header = 24;
    if flags & 0x03 == 0x03 {
        header += 6;
    }
    if control & 0x80 != 0 {
        let quality = *frame.get(header).ok_or(NotIp::Cut)?;
        // Several frames in one.
        if quality & 0x80 != 0 {
            return Err(NotIp::Wireless);
        }
        header += 2;
        if flags & 0x80 != 0 {
            header += 4;
        }
    }
    if is_padded {
        header = header.next_multiple_of(4);
    }
    llc(frame.get(header..).ok_or(NotIp::Cut)?, FRAMES_MAX)
}

/// <https://www.radiotap.org>: a header whose fields are announced by bits.
fn radiotap(frame: &[u8]) -> Result<&[u8], NotIp> {
    let head: &[u8; 8] = frame.first_chunk().ok_or(NotIp::Cut)?;
    let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let present = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let inner = frame.get(len..).ok_or(NotIp::Cut)?;
    if present & 2 == 0 {
        return wireless(inner, false);
    }
    // The flags are behind the words of bits and, if it is there, an aligned time.
    let (mut at, mut last) = (8, present);
    while last & 1 << 31 != 0 {
        let more = frame.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or(NotIp::Cut)?;
        last = u32::from_le_bytes(*more);
        at += 4;
    }
    if present & 1 != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags = *frame.get(at).ok_or(NotIp::Cut)?;
    wireless(inner, flags & 0x20 != 0)
}

/// PPI: a header with its length and the link type of what follows.
fn per_packet_information(frame: &[u8]) -> Result<&[u8], NotIp> {
    let head: &[u8; 8] = frame.first_chunk().ok_or(NotIp::Cut)?;
    let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let link = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let inner = frame.get(len..).ok_or(NotIp::Cut)?;
    match link {
        105 => wireless(inner, false),
        1 => by_ethertype(inner.get(12..).ok_or(NotIp::Cut)?),
        101 => Ok(inner),
        _ => Err(NotIp::Link(LinkType(link as u16))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IP: [u8; 4] = [0x45, 0, 0, 20];

    fn found(link: u16, head: &[u8]) -> bool {
        ip_packet(LinkType(link), &[head, &IP].concat()) == Ok(&IP)
    }

    #[test]
    fn ethernet_with_tags_labels_and_sessions() {
        let macs = [0x02; 12];
        let heads: [&[u8]; 8] = [
            &[0x08, 0x00],
            &[0x81, 0x00, 0, 5, 0x08, 0x00],
            &[0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 6, 0x86, 0xdd],
            &[0x88, 0x47, 0, 0, 0x00, 64, 0, 0, 0x11, 64],
            &[0x88, 0x64, 0x11, 0, 0, 1, 0, 6, 0x00, 0x21],
            &[0x88, 0xa8, 0, 5, 0x88, 0x64, 0x11, 0, 0, 1, 0, 6, 0x00, 0x57],
            &[0, 12, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
            &[0x88, 0x47, 0, 0, 0x11, 64, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0],
        ];
        for head in heads {
            assert!(found(1, &[&macs, head].concat()), "{head:02x?}");
        }
        let arp = [&macs[..], &[0x08, 0x06, 0, 1]].concat();
        assert_eq!(ip_packet(LinkType(1), &arp), Err(NotIp::EtherType(0x0806)));
        let bridge = [&macs[..], &[0, 38, 0x42, 0x42, 3, 0, 0, 0]].concat();
        assert_eq!(ip_packet(LinkType(1), &bridge), Err(NotIp::Llc));
    }

    #[test]
    fn other_links() {
        assert!(found(101, &[]) && found(228, &[]) && found(12, &[]));
        assert!(found(0, &[2, 0, 0, 0]) && found(0, &[0, 0, 0, 30]) && found(108, &[0, 0, 0, 2]));
        let cooked = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
        assert!(found(113, &cooked));
        let cooked = [8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
        assert!(found(276, &cooked));
        assert!(found(9, &[0xff, 3, 0, 0x21]) && found(9, &[0x21]) && found(50, &[0, 0x57]));
        assert!(found(104, &[0x0f, 0, 8, 0]) && found(50, &[0x0f, 0, 8, 0]));
        assert!(found(51, &[0x11, 0, 0, 1, 0, 6, 0, 0x21]));
        assert_eq!(ip_packet(LinkType(147), &IP), Err(NotIp::Link(LinkType(147))));
    }

    #[test]
    fn wireless_data() {
        let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let plain = [&[0x08, 0x01][..], &[0; 22], &snap].concat();
        let quality = [&[0x88, 0x03][..], &[0; 30], &snap].concat();
        assert!(found(105, &plain) && found(105, &quality));
        let padded = [&[0x88, 0x01][..], &[0; 24], &[0; 2], &snap].concat();
        let radiotap = [0, 0, 17, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x20];
        let radiotap = [&radiotap[..], &padded].concat();
        assert!(found(127, &radiotap));
        let short = [&[0, 0, 8, 0, 0, 0, 0, 0][..], &plain].concat();
        assert!(found(127, &short));
        let ppi = [&[0, 0, 8, 0, 105, 0, 0, 0][..], &plain].concat();
        assert!(found(192, &ppi));
        assert_eq!(ip_packet(LinkType(105), &[0x80, 0]), Err(NotIp::Wireless));
        assert_eq!(ip_packet(LinkType(105), &[0x08, 0x41]), Err(NotIp::Encrypted));
    }

    #[test]
    fn frames_within_frames_end_somewhere() {
        let llc = [0, 12, 0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0, 0, 0];
        // A pseudowire with Ethernet in it, and one in a session.
        let wire = [&[0x88, 0x47, 0, 0, 0x11, 64][..], &[0; 4 + 12]].concat();
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 6, 0x02, 0x81, 0, 0, 0x11, 64];
        let session = [&session[..], &[0; 4 + 12]].concat();
        for one in [&llc[..], &wire, &session] {
            let frame = [&[2; 12][..], &one.repeat(21_000)].concat();
            assert_eq!(ip_packet(LinkType(1), &frame), Err(NotIp::Nested));
            let few = [&[2; 12][..], &one.repeat(3), &[8, 0]].concat();
            assert!(found(1, &few), "{one:02x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(
            link in prop::sample::select(vec![0, 1, 9, 50, 51, 101, 104, 105, 108, 113, 127, 192, 204, 276]),
            frame in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = ip_packet(LinkType(link), &frame);
        }
    }
}
