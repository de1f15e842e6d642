//! Sorts packets by content class, which decides whether compressing can gain anything: encrypted,
//! compressed before, or neither.
//!
//! The port says what a packet should be, its first bytes show the protocol, and the evenness of
//! its bytes shows whether they can be compressed. A [`Sorter`] remembers which flows began with a
//! handshake of a protocol that encrypts, whatever their ports. It is the one rule for encrypted
//! packets: analyses and replays call it with the same packets in the same order. Evenness is
//! measured by coincidence (W. F. Friedman, "The Index of Coincidence", 1922): of all pairs of
//! bytes, the share of equal ones, times 256. It is 1 on average for random bytes whatever the
//! length of the packet, where an entropy would be too low by an amount that depends on it; with
//! [`EVEN_BYTES_MIN`] bytes it has a standard deviation of 0.18, English text has about 17, and
//! JPEG, gzip and ciphers 1.0 to 1.1.

use std::net::IpAddr;

use dwell_report::status::Count;
use dwell_wire::PacketInfo;
use serde::{Deserialize, Serialize};

use crate::frequencies::Frequencies;
use crate::keyed::KeyedMap;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;

/// The shortest payloads that are classified by their evenness.
pub const EVEN_BYTES_MIN: usize = 128;
/// The coincidence below which a payload is even: nearly three standard deviations above random for
/// the shortest that are classified, ten for a full packet, and far below everything that
/// compresses.
pub const EVEN_MAX: f64 = 1.5;

/// Ports over which TLS runs on TCP: HTTPS and its alternative, mail, LDAP, DNS, MQTT, SIP,
/// Kubernetes.
const TLS_PORTS: [u16; 13] = [443, 465, 563, 636, 853, 989, 990, 993, 995, 5061, 6443, 8443, 8883];
/// QUIC: HTTP/3 and DNS.
const QUIC_PORTS: [u16; 3] = [443, 853, 8443];
const SSH_PORT: u16 = 22;
/// IPsec's key exchange and its ESP in UDP, OpenVPN, WireGuard.
const VPN_PORTS: [u16; 4] = [500, 4500, 1194, 51820];

/// The content of a packet, by its value for compressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentClass {
    /// TLS over TCP.
    Tls,
    /// QUIC.
    Quic,
    /// SSH.
    Ssh,
    /// A tunnel that encrypts.
    Vpn,
    /// Not known to be encrypted, but equally even: compressed, or encrypted after all.
    Even,
    /// The part of an encrypted session that is in the clear: handshakes, certificates.
    Handshake,
    /// Headers, and hardly any payload.
    Bare,
    /// Everything else: compressible.
    Open,
    /// The capture lacks its end, and nothing else shows its content.
    Unseen,
}

impl ContentClass {
    /// All of them, in the order in which tables show them.
    pub const ALL: [Self; 9] = [
        Self::Tls,
        Self::Quic,
        Self::Ssh,
        Self::Vpn,
        Self::Even,
        Self::Handshake,
        Self::Bare,
        Self::Open,
        Self::Unseen,
    ];

    /// Returns its name in words, for sentences and tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tls => "TLS",
            Self::Quic => "QUIC",
            Self::Ssh => "SSH",
            Self::Vpn => "tunnels that encrypt",
            Self::Even => "compressed or encrypted by something else",
            Self::Handshake => "handshakes of sessions that encrypt",
            Self::Bare => "bare headers",
            Self::Open => "open to compressing",
            Self::Unseen => "cut off in the capture",
        }
    }

    /// Returns true if no codec can compress its payload.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Tls | Self::Quic | Self::Ssh | Self::Vpn | Self::Even)
    }

    /// Returns true if it is of a session that encrypts.
    pub const fn is_session(self) -> bool {
        matches!(self, Self::Tls | Self::Quic | Self::Ssh | Self::Vpn | Self::Handshake)
    }

    /// Returns the content class of a packet. `is_cut`: the capture has only its beginning;
    /// `of_flow`: the class by the beginning of its flow.
    ///
    /// `even`: whether the payload is even; asked only where it matters.
    fn of(
        packet: &[u8],
        info: &PacketInfo,
        is_cut: bool,
        of_flow: Option<Self>,
        even: impl FnOnce(&[u8]) -> bool,
    ) -> Self {
        let payload = payload(packet, info);
        if info.protocol == ESP {
            return Self::Vpn;
        }
        if info.total_len < usize::from(info.header_len) + BARE_BYTES_MAX {
            return Self::Bare;
        }
        let even = (payload.len() >= EVEN_BYTES_MIN && !is_cut).then(|| even(payload));
        let of_port = || {
            class_of_port(info.protocol, info.src_port)
                .or_else(|| class_of_port(info.protocol, info.dst_port))
        };
        let begun = beginning(payload, info).map(|(content, _)| content).or(of_flow);
        if let Some(named) = begun.or_else(of_port) {
            return match even {
                Some(false) if begun.is_none() && is_text(payload) => Self::Open,
                Some(false) => Self::Handshake,
                _ => named,
            };
        }
        match even {
            Some(true) => Self::Even,
            None if is_cut => Self::Unseen,
            _ => Self::Open,
        }
    }
}

/// Returns the captured part of a packet's payload.
fn payload<'p>(packet: &'p [u8], info: &PacketInfo) -> &'p [u8] {
    let end = info.total_len.min(packet.len());
    packet.get(usize::from(info.header_len)..end).unwrap_or_default()
}

/// Payloads of fewer bytes count as none: keystrokes, keep-alives.
const BARE_BYTES_MAX: usize = 8;

/// Returns the class by the beginning of a payload, and true if a session begins with it.
fn beginning(payload: &[u8], info: &PacketInfo) -> Option<(ContentClass, bool)> {
    match info.protocol {
        TCP if begins_tls(payload) => {
            // A handshake's record with a hello of a client or a server.
            Some((ContentClass::Tls, payload[0] == 22 && matches!(payload.get(5), Some(1 | 2))))
        }
        TCP if payload.starts_with(b"SSH-") => Some((ContentClass::Ssh, true)),
        UDP if begins_wireguard(payload) => Some((ContentClass::Vpn, payload[0] < 3)),
        UDP if begins_quic(payload) => Some((ContentClass::Quic, true)),
        _ => None,
    }
}

/// Returns true if nearly all of a payload is text, as plain HTTP on the port of HTTPS.
fn is_text(payload: &[u8]) -> bool {
    let is_text = |byte: &&u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    payload.iter().filter(is_text).count() * 20 >= payload.len() * 19
}

/// The most flows whose beginning is remembered.
const FLOWS_MAX: usize = 1 << 18;

/// Assigns content classes to packets, and remembers the beginnings of flows.
#[derive(Clone, Debug, Default)]
pub struct Sorter {
    flows: KeyedMap<u64, ContentClass>,
}

impl Sorter {
    /// Returns the class of the next packet. `is_cut`: the capture has only its beginning, which
    /// `packet` is.
    pub fn sort(&mut self, packet: &[u8], info: &PacketInfo, is_cut: bool) -> ContentClass {
        let begun = self.see(packet, info);
        begun.class(packet, info, is_cut, |payload| {
            is_even(&Frequencies::of(payload), payload.len())
        })
    }

    /// Notices whether a session begins with the next packet. Packets go in here in their order; their classes then
    /// follow from what this returns, in any order.
    pub(crate) fn see(&mut self, packet: &[u8], info: &PacketInfo) -> Begun {
        let payload = payload(packet, info);
        if info.src_port == 0 || payload.len() < BARE_BYTES_MAX {
            return Begun(None);
        }
        let key = flow_key(info);
        if let Some((content, true)) = beginning(payload, info)
            && (self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key))
        {
            self.flows.insert(key, content);
        }
        Begun(self.flows.get(&key).copied())
    }
}

/// The class by the beginning of a packet's flow, if a session began with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(Option<ContentClass>);

impl Begun {
    /// Returns the class of the packet. `is_even`: whether its payload is, asked only where it matters.
    pub(crate) fn class(
        self,
        packet: &[u8],
        info: &PacketInfo,
        is_cut: bool,
        is_even: impl FnOnce(&[u8]) -> bool,
    ) -> ContentClass {
        ContentClass::of(packet, info, is_cut, self.0, is_even)
    }
}

/// Returns the same key for both directions of a flow.
fn flow_key(info: &PacketInfo) -> u64 {
    let end = |address: IpAddr, port: u16| {
        let bits = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        mix(bits as u64 ^ mix((bits >> 64) as u64 ^ u64::from(port) << 16))
    };
    let (a, b) = (end(info.src, info.src_port), end(info.dst, info.dst_port));
    a.wrapping_add(b) ^ u64::from(info.protocol)
}

/// Spreads a number over 64 bits (the finalizer of MurmurHash3).
fn mix(mut bits: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

/// Returns the class of the service on this port of this protocol, if the service encrypts.
fn class_of_port(protocol: u8, port: u16) -> Option<ContentClass> {
    match protocol {
        ESP => Some(ContentClass::Vpn),
        TCP if TLS_PORTS.contains(&port) => Some(ContentClass::Tls),
        TCP if port == SSH_PORT => Some(ContentClass::Ssh),
        TCP | UDP if VPN_PORTS.contains(&port) => Some(ContentClass::Vpn),
        UDP if QUIC_PORTS.contains(&port) => Some(ContentClass::Quic),
        _ => None,
    }
}

/// A TLS record (RFC 8446, section 5.1): type 20 to 24, version 3.0 to 3.4, at most 2^14 + 2048
/// bytes.
fn begins_tls(payload: &[u8]) -> bool {
    let [kind, major, minor, high, low, ..] = *payload else { return false };
    let length = u16::from_be_bytes([high, low]);
    (20..=24).contains(&kind)
        && major == 3
        && minor <= 4
        && (1..=(1 << 14) + 2048).contains(&length)
}

/// A long header of QUIC (RFC 9000, section 17.2; RFC 9369).
fn begins_quic(payload: &[u8]) -> bool {
    let [first, a, b, c, d, ..] = *payload else { return false };
    let version = u32::from_be_bytes([a, b, c, d]);
    // The versions of the two standards, of drafts, and of Facebook's.
    first & 0xc0 == 0xc0
        && (version == 1
            || version == 0x6b33_43cf
            || version >> 8 == 0x00ff_0000
            || version >> 16 == 0xface)
}

/// WireGuard's messages: type 1 to 3 with their fixed lengths, or data; three bytes of zero.
fn begins_wireguard(payload: &[u8]) -> bool {
    let [kind, 0, 0, 0, ..] = *payload else { return false };
    match kind {
        1 => payload.len() == 148,
        2 => payload.len() == 92,
        3 => payload.len() == 64,
        4 => payload.len() >= 32 && payload.len().is_multiple_of(16),
        _ => false,
    }
}

/// The share of equal pairs among all pairs of bytes, times 256; 256 if there is no pair.
pub fn coincidence(bytes: &[u8]) -> f64 {
    coincidence_of(&Frequencies::of(bytes), bytes.len())
}

/// Whether a payload of so many bytes, which occur so often, is as even as ciphers are.
pub(crate) fn is_even(counts: &Frequencies, bytes: usize) -> bool {
    coincidence_of(counts, bytes) < EVEN_MAX
}

fn coincidence_of(counts: &Frequencies, bytes: usize) -> f64 {
    let n = bytes as u64;
    let equal = counts.squares() - n;
    match n * n.saturating_sub(1) {
        0 => 256.0,
        pairs => equal as f64 * 256.0 / pairs as f64,
    }
}

/// The composition of traffic: packets and bytes by content class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Composition {
    counts: [Count; ContentClass::ALL.len()],
}

impl Composition {
    /// Adds a packet of this class.
    pub fn add(&mut self, content: ContentClass, bytes: u64) {
        let count = &mut self.counts[content as usize];
        count.packets += 1;
        count.bytes = count.bytes.saturating_add(bytes);
    }

    /// Adds all packets of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            own.packets = own.packets.saturating_add(other.packets);
            own.bytes = own.bytes.saturating_add(other.bytes);
        }
    }

    /// Returns packets and bytes of this class.
    pub fn of(&self, content: ContentClass) -> Count {
        self.counts[content as usize]
    }

    /// Returns all packets and bytes.
    pub fn total(&self) -> Count {
        self.sum(|_| true)
    }

    /// Returns the share of bytes that no codec can compress, 0 to 1.
    pub fn closed_share(&self) -> f64 {
        self.share(self.sum(ContentClass::is_closed).bytes)
    }

    /// Returns the share of sessions that encrypt, with their handshakes, in the bytes of packets
    /// with a payload, 0 to 1.
    pub fn session_share(&self) -> f64 {
        let carried = self.total().bytes.saturating_sub(self.of(ContentClass::Bare).bytes);
        if carried == 0 {
            0.0
        } else {
            self.sum(ContentClass::is_session).bytes as f64 / carried as f64
        }
    }

    /// Returns the share of bytes of this class, 0 to 1.
    pub fn share_of(&self, content: ContentClass) -> f64 {
        self.share(self.of(content).bytes)
    }

    fn share(&self, bytes: u64) -> f64 {
        match self.total().bytes {
            0 => 0.0,
            total => bytes as f64 / total as f64,
        }
    }

    fn sum(&self, of: impl Fn(ContentClass) -> bool) -> Count {
        let classes = ContentClass::ALL.into_iter().filter(|&content| of(content));
        classes.map(|content| self.of(content)).fold(Count::default(), |sum, count| Count {
            packets: sum.packets.saturating_add(count.packets),
            bytes: sum.bytes.saturating_add(count.bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use dwell_base::Rng;

    use super::*;
    use crate::replay::samples::{tcp_v4, udp_v4};

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Rng::from_seed(seed).fill(&mut bytes);
        bytes
    }

    fn content(packet: &[u8]) -> ContentClass {
        Sorter::default().sort(packet, &PacketInfo::parse(packet, 0).unwrap(), false)
    }

    #[test]
    fn random_bytes_are_even_whatever_their_number() {
        let even = |len| (0..500).filter(|&seed| coincidence(&noise(len, seed)) < EVEN_MAX).count();
        assert!(even(EVEN_BYTES_MIN) > 490 && even(1400) == 500);
    }

    #[test]
    fn what_compresses_is_not_even() {
        let text = "Whan that Aprille with his shoures soote the droghte of March ".repeat(20);
        let numbers: Vec<u8> = (0..700u16).flat_map(|n| (n * 3).to_be_bytes()).collect();
        for open in [text.as_bytes(), &numbers, &noise(700, 1).map_hex()] {
            assert!(coincidence(open) > EVEN_MAX * 1.5, "{}", coincidence(open));
            assert_eq!(content(&tcp_v4(80, 5000, 0, open)), ContentClass::Open);
        }
    }

    trait Hex {
        fn map_hex(&self) -> Vec<u8>;
    }

    impl Hex for Vec<u8> {
        fn map_hex(&self) -> Vec<u8> {
            self.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
        }
    }

    #[test]
    fn ciphers_are_known_by_port_by_beginning_and_by_evenness() {
        let noise = noise(1200, 3);
        let begin = |head: &[u8]| [head, &noise].concat();
        assert_eq!(content(&tcp_v4(50_000, 443, 0, &noise)), ContentClass::Tls);
        assert_eq!(content(&tcp_v4(50_000, 9999, 0, &begin(&[23, 3, 3, 4, 0]))), ContentClass::Tls);
        assert_eq!(content(&udp_v4(443, 50_000, &noise)), ContentClass::Quic);
        assert_eq!(content(&udp_v4(7, 50_000, &begin(&[0xc3, 0, 0, 0, 1]))), ContentClass::Quic);
        assert_eq!(content(&tcp_v4(22, 50_000, 0, &noise[..48])), ContentClass::Ssh);
        assert_eq!(content(&udp_v4(4500, 50_000, &noise)), ContentClass::Vpn);
        assert_eq!(content(&udp_v4(7, 50_000, &begin(&[4, 0, 0, 0])[..1200])), ContentClass::Vpn);
        assert_eq!(content(&tcp_v4(80, 50_000, 0, &noise)), ContentClass::Even);
        assert_eq!(content(&tcp_v4(443, 50_000, 0, &[])), ContentClass::Bare);
    }

    #[test]
    fn plain_text_is_open_on_any_port() {
        let text = b"GET / HTTP/1.1\r\nHost: example.org\r\n".repeat(10);
        assert_eq!(content(&tcp_v4(50_000, 443, 0, &text)), ContentClass::Open);
        let packet = tcp_v4(50_000, 80, 0, &text);
        let info = PacketInfo::parse(&packet, 0).unwrap();
        assert_eq!(Sorter::default().sort(&packet, &info, true), ContentClass::Unseen);
    }

    /// A flow has the class of its beginning, in both directions and on any port; its certificates
    /// are not encrypted, and no plain text either.
    #[test]
    fn flows_are_what_they_began_with() {
        let mut sorter = Sorter::default();
        let mut sort =
            |packet: &[u8]| sorter.sort(packet, &PacketInfo::parse(packet, 0).unwrap(), false);
        let names = b"example.org, issued by nobody in particular; ".repeat(20);
        let hello = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &names[..500]].concat();
        assert_eq!(sort(&tcp_v4(50_000, 9999, 0, &noise(900, 1))), ContentClass::Even);
        assert_eq!(sort(&tcp_v4(50_000, 9999, 0, &hello)), ContentClass::Handshake);
        assert_eq!(sort(&tcp_v4(50_000, 9999, 0, &noise(900, 1))), ContentClass::Tls);
        assert_eq!(sort(&tcp_v4(50_000, 9999, 0, &names)), ContentClass::Handshake);
        assert_eq!(sort(&tcp_v4(50_001, 9999, 0, &names)), ContentClass::Open);
        assert_eq!(sort(&tcp_v4(50_002, 443, 0, &noise(700, 2).map_hex())), ContentClass::Open);
    }

    #[test]
    fn handshakes_count_as_sessions_and_not_as_encrypted() {
        let mut composition = Composition::default();
        for (content, bytes) in [
            (ContentClass::Tls, 500),
            (ContentClass::Handshake, 400),
            (ContentClass::Open, 100),
            (ContentClass::Bare, 1000),
        ] {
            composition.add(content, bytes);
        }
        assert!((composition.session_share() - 0.9).abs() < 1e-9);
        assert!((composition.closed_share() - 0.25).abs() < 1e-9);
        assert_eq!(Composition::default().session_share(), 0.0);
    }

    #[test]
    fn shares_add_up() {
        let mut composition = Composition::default();
        for packet in [tcp_v4(1, 443, 0, &noise(960, 1)), tcp_v4(1, 80, 0, &[b'a'; 960])] {
            composition.add(content(&packet), packet.len() as u64);
        }
        let mut twice = composition.clone();
        twice.merge(&composition);
        assert_eq!(twice.total().packets, 4);
        assert!((twice.closed_share() - 0.5).abs() < 1e-9);
        assert!((twice.share_of(ContentClass::Open) - 0.5).abs() < 1e-9);
    }
}
