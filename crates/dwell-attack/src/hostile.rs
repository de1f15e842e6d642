//! Bodies of datagrams as a peer writes them that holds the keys and means harm.
//!
//! They are what stands between header and seal (`docs/wire.md`, sections 5 to 8). Sealing them is
//! the matter of whoever sends them.

pub(crate) mod contexts;
pub(crate) mod models;

use std::net::{Ipv4Addr, SocketAddrV4};

use dwell_base::Rng;
use dwell_codec::{CodecSpec, Compressor};
use dwell_testkit::hostile::bodies;
use dwell_wire::record::{
    CODEC_ZSTD, RECORD_BODY_NAMED_MAX, TYPE_BLOCK, TYPE_CARRIED, TYPE_COMPRESSED, TYPE_CONTROL,
    TYPE_FRAGMENT, TYPE_RAW, TYPE_RESENT,
};
use dwell_wire::{BodyWriter, Control, Numbers, Report};

/// The shortest packet with a UDP datagram in it: IPv4, UDP and one byte.
const SMALL_PACKET_BYTES: usize = 29;
const PORT_DISCARD: u16 = 9;
/// No block and no packet is longer once it is restored.
const RESTORED_BYTES_MAX: usize = 65_535;
/// Subtypes of control messages: those that exist, and the next one.
const CONTROL_SUBTYPES: u64 = 8;

/// Whose packets the records pretend to hold, and where these go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// An address in the peer's own prefixes.
    pub(crate) from: Ipv4Addr,
    /// An address behind the relay.
    pub(crate) to: Ipv4Addr,
}

/// The content of a record, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Packets as they are: cut short, too long, of somebody else.
    Raw,
    /// Compressed packets whose lengths and codecs lie.
    Compressed,
    /// Control messages of every subtype with extreme fields, or cut short.
    Control,
    /// Blocks whose lengths and contents lie.
    Block,
    /// Fragments of records that never become complete, or that hold fragments.
    Fragment,
    /// Datagrams that claim to be sent again.
    Resent,
    /// Forwarded records with wrong labels and hop limits.
    Forwarded,
    /// Types that are not assigned, and lengths beyond the datagram.
    Unassigned,
}

impl Kind {
    /// All there are.
    pub(crate) const ALL: [Self; 8] = [
        Self::Raw,
        Self::Compressed,
        Self::Control,
        Self::Block,
        Self::Fragment,
        Self::Resent,
        Self::Forwarded,
        Self::Unassigned,
    ];
}

/// Writes hostile bodies, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Hostile {
    rng: Rng,
    addresses: Addresses,
    body_bytes_max: usize,
    /// The records that restore to most packets.
    bomb: Vec<u8>,
}

impl Hostile {
    /// A writer of bodies of at most `body_bytes_max` bytes (at least 200 are used).
    pub(crate) fn new(seed: u64, addresses: Addresses, body_bytes_max: usize) -> Self {
        let body_bytes_max = body_bytes_max.max(200);
        let (bomb, _) =
            bodies::crowd(discard(addresses.from), discard(addresses.to), body_bytes_max);
        Self { rng: Rng::from_seed(seed), addresses, body_bytes_max, bomb }
    }

    /// Returns a body full of blocks, each of which restores to as many packets as a block can
    /// hold: all well-formed, and all of the peer's own.
    pub(crate) fn bomb(&self) -> &[u8] {
        &self.bomb
    }

    /// Returns a body with records of this kind, and behind them perhaps noise.
    pub(crate) fn body(&mut self, kind: Kind) -> Vec<u8> {
        let mut body = Vec::new();
        for _ in 0..=self.rng.below(4) {
            self.record(kind, &mut body);
        }
        if self.rng.chance(0.1) {
            let noise = self.noise(64);
            body.extend(noise);
        }
        body.truncate(self.body_bytes_max);
        body
    }

    fn record(&mut self, kind: Kind, body: &mut Vec<u8>) {
        let content = match kind {
            Kind::Raw => self.raw(),
            Kind::Compressed | Kind::Block => self.compressed(),
            Kind::Control => self.control(),
            Kind::Fragment => self.fragment(),
            Kind::Resent => self.rng.next_u64().to_be_bytes()[..self.below(9)].to_vec(),
            Kind::Forwarded => self.forwarded(),
            Kind::Unassigned => self.noise(300),
        };
        let record_type = match kind {
            Kind::Raw => TYPE_RAW,
            Kind::Compressed => TYPE_COMPRESSED,
            Kind::Control => TYPE_CONTROL,
            Kind::Block => TYPE_BLOCK,
            Kind::Fragment => TYPE_FRAGMENT,
            Kind::Resent => TYPE_RESENT,
            Kind::Forwarded => TYPE_CARRIED,
            Kind::Unassigned => [0, 7, 9, 12, 15][self.below(5)],
        };
        let len = match self.rng.below(8) {
            // To the end of the datagram, or beyond it.
            0 => 0,
            1 => RECORD_BODY_NAMED_MAX,
            _ => content.len(),
        };
        let header = u16::from(record_type) << 12 | (len & RECORD_BODY_NAMED_MAX) as u16;
        body.extend(header.to_be_bytes());
        body.extend(content);
    }

    fn raw(&mut self) -> Vec<u8> {
        let mut addresses = self.addresses;
        if self.rng.chance(0.3) {
            addresses.from = Ipv4Addr::from(self.rng.next_u64() as u32);
        }
        let payload = self.noise(200);
        let mut packet = udp_packet(addresses, &payload);
        match self.rng.below(4) {
            0 => packet.truncate(self.below(packet.len() + 1)),
            1 => packet.extend(self.noise(40)),
            2 => {
                let at = self.below(packet.len().min(40));
                packet[at] = self.rng.next_u64() as u8;
            }
            _ => {}
        }
        packet
    }

    /// The body of a compressed packet or of a block.
    fn compressed(&mut self) -> Vec<u8> {
        let original = match self.rng.below(4) {
            0 => vec![0; self.below(RESTORED_BYTES_MAX) + 1],
            1 => udp_packet(self.addresses, b"x").repeat(RESTORED_BYTES_MAX / SMALL_PACKET_BYTES),
            2 => self.noise(400),
            _ => udp_packet(self.addresses, &[7; 1000]),
        };
        let mut data = squeeze(&original).unwrap_or_else(|| self.noise(100));
        let mut coding = CODEC_ZSTD << 4;
        let mut original_len = original.len() as u16;
        match self.rng.below(6) {
            0 => original_len = self.rng.next_u64() as u16,
            1 => coding = self.rng.next_u64() as u8,
            2 => data = self.noise(400),
            3 => {
                let at = self.below(data.len().max(1));
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << self.rng.below(8);
                }
            }
            // Flags: columnar headers, kept, and those that do not exist.
            4 => coding |= self.rng.below(16) as u8,
            _ => {}
        }
        let mut content = vec![coding];
        content.extend(original_len.to_be_bytes());
        content.extend(data);
        content
    }

    fn control(&mut self) -> Vec<u8> {
        let subtype = 1 + self.rng.below(CONTROL_SUBTYPES) as u8;
        let mut content = vec![subtype];
        if subtype == CONTROL_CLOSE && !self.rng.chance(0.01) {
            // Rare: it ends the session, and with it what else there is to try.
            content[0] = 1;
        }
        for _ in 0..self.below(13) {
            let field = [0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX), self.rng.next_u64()];
            content.extend(field[self.below(6)].to_be_bytes());
        }
        if self.rng.chance(0.2) {
            content.truncate(self.below(content.len()) + 1);
        }
        content
    }

    fn fragment(&mut self) -> Vec<u8> {
        let id = if self.rng.chance(0.5) { self.rng.next_u64() as u32 } else { 7 };
        let (index, last) = (self.rng.below(66) as u8, self.rng.below(66) as u8);
        let mut content = id.to_be_bytes().to_vec();
        content.extend([index, last]);
        if self.rng.chance(0.3) {
            // A fragment in a fragment.
            content.extend([TYPE_FRAGMENT << 4, 20]);
        }
        let part = self.noise(1200);
        content.extend(part);
        content
    }

    fn forwarded(&mut self) -> Vec<u8> {
        let mut content = vec![[0, 1, 16, 255][self.below(4)]];
        // Prefix lengths that exist for IPv4 and IPv6, and others.
        content.push([0, 8, 32, 33, 63, 64, 128, 192, 193, 255][self.below(10)]);
        let address = match self.rng.below(3) {
            0 => self.addresses.to.octets().to_vec(),
            _ => self.noise(18),
        };
        content.extend(address);
        content.push([2, 4, 5, 8, 0, 255][self.below(6)]);
        content.extend(self.compressed());
        content
    }

    fn noise(&mut self, len_max: usize) -> Vec<u8> {
        let mut noise = vec![0; self.below(len_max + 1)];
        self.rng.fill(&mut noise);
        noise
    }

    fn below(&mut self, below: usize) -> usize {
        self.rng.below(below.max(1) as u64) as usize
    }
}

const CONTROL_CLOSE: u8 = 5;

/// A body with one control message.
pub(crate) fn control(message: &Control) -> Vec<u8> {
    write(|body| body.control(message).is_ok())
}

/// A body with these control messages, as far as there is room for them.
pub(crate) fn controls(messages: &[Control]) -> Vec<u8> {
    write(|body| messages.iter().all(|message| body.control(message).is_ok()))
}

/// A body with one report.
pub(crate) fn report(report: Report) -> Vec<u8> {
    control(&Control::Report(report))
}

/// A body that asks for as many datagrams as it can at once: `messages` times 64 of them, up to the
/// number `highest`.
pub(crate) fn missing(highest: u64, messages: u64) -> Vec<u8> {
    write(|body| {
        (0..messages).all(|message| {
            let first = highest.saturating_sub(64 * (message + 1) - 1).max(1);
            body.control(&Control::Missing(Numbers { first, bits: u64::MAX })).is_ok()
        })
    })
}

fn write(write: impl FnOnce(&mut BodyWriter<'_>) -> bool) -> Vec<u8> {
    write_within(1400, write)
}

fn write_within(len_max: usize, write: impl FnOnce(&mut BodyWriter<'_>) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; len_max];
    let mut body = BodyWriter::new(&mut bytes);
    let is_complete = write(&mut body);
    debug_assert!(is_complete, "there is room for less than was asked for");
    let len = body.len();
    bytes.truncate(len);
    bytes
}

/// A body with one honest packet, whose datagram has this many bytes.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, payload_bytes: usize) -> Vec<u8> {
    let packet = udp_packet(Addresses { from, to }, &vec![7; payload_bytes]);
    write(|body| body.raw(&packet).is_ok())
}

fn udp_packet(Addresses { from, to }: Addresses, payload: &[u8]) -> Vec<u8> {
    bodies::udp_packet(discard(from), discard(to), payload)
}

/// The port there that discards what it gets.
fn discard(ip: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(ip, PORT_DISCARD)
}

/// These bytes by zstd, if they become smaller.
fn squeeze(bytes: &[u8]) -> Option<Vec<u8>> {
    let codec: CodecSpec = "zstd:1".parse().ok()?;
    let mut out = vec![0; bytes.len()];
    let len = Compressor::new(codec, None).ok()?.compress(bytes, &mut out).ok()??;
    out.truncate(len);
    Some(out)
}

#[cfg(test)]
mod tests {
    use dwell_codec::{CodecId, Decompressor};
    use dwell_wire::{BlockPackets, Record, Records};

    use super::*;

    const ADDRESSES: Addresses =
        Addresses { from: Ipv4Addr::new(10, 3, 0, 2), to: Ipv4Addr::new(10, 2, 0, 2) };

    #[test]
    fn a_bomb_is_one_datagram_of_tens_of_thousands_of_packets() {
        let hostile = Hostile::new(1, ADDRESSES, 1400);
        let mut restored = vec![0; RESTORED_BYTES_MAX];
        let mut packets = 0;
        for record in Records::new(hostile.bomb()) {
            let Ok(Record::Block(block)) = record else { panic!("{record:?}") };
            let room = &mut restored[..usize::from(block.original_len)];
            Decompressor::new().decompress(CodecId::Zstd, None, block.data, room).unwrap();
            packets += BlockPackets::new(room).filter(Result::is_ok).count();
        }
        assert!(hostile.bomb().len() <= 1400 && packets > 50_000, "{packets} packets");
    }

    #[test]
    fn every_kind_is_written_and_read_without_harm() {
        let mut hostile = Hostile::new(2, ADDRESSES, 1400);
        for kind in Kind::ALL {
            let (mut good, mut bad) = (0, 0);
            for _ in 0..500 {
                let body = hostile.body(kind);
                assert!(body.len() <= 1400);
                for record in Records::new(&body) {
                    *(if record.is_ok() { &mut good } else { &mut bad }) += 1;
                }
            }
            assert!(bad > 0, "{kind:?}: nothing is refused");
            assert!(good > 0 || kind == Kind::Fragment, "{kind:?}: nothing is read");
        }
    }

    #[test]
    fn a_request_for_datagrams_asks_for_all_below_the_highest() {
        let body = missing(1000, 4);
        let mut asked = 0;
        for record in Records::new(&body) {
            let Ok(Record::Control(Control::Missing(numbers))) = record else { panic!() };
            assert!(numbers.iter().all(|number| number <= 1000));
            asked += numbers.iter().count();
        }
        assert_eq!(asked, 256);
    }
}
