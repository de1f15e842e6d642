//! Inner packets that can be recognised: everything in them follows from their number.

use std::collections::VecDeque;

use dwell_base::Rng;

const PAYLOAD: usize = 28;
const NUMBER: std::ops::Range<usize> = PAYLOAD..PAYLOAD + 8;
const CONTENT: usize = PAYLOAD + 8;
/// The payload that every packet has.
const PAYLOAD_MIN: usize = 9;
/// The source port of the first flow.
const PORT: std::ops::Range<usize> = 20..22;
const PORT_MIN: u16 = 5_000;
/// Where an IPv4 packet names its protocol, and that of ICMP.
const PROTOCOL: usize = 9;
const ICMP: u8 = 1;
/// The type and code of an ICMP packet, and those of "fragmentation needed" (RFC 792).
const TYPE: std::ops::Range<usize> = 20..22;
const TOO_BIG: [u8; 2] = [3, 4];
/// The latest packet may be at most this far ahead of one that still comes.
const WINDOW: u64 = 1 << 16;

/// The flows of each side.
pub(crate) const FLOWS: usize = 12;
/// The kinds of content that a source sends.
pub(crate) const CONTENTS: u64 = 4;
/// The kind that can't be compressed.
pub(crate) const RANDOM: u8 = 1;

/// The packet of this number from side 0 or 1 to the other, in one of a few flows.
pub(crate) fn make(side: usize, seed: u64, (number, content): (u64, u8)) -> Vec<u8> {
    let mut rng = Rng::stream(seed ^ number, side as u64);
    let flow = rng.below(FLOWS as u64);
    // Bare acknowledgements, telemetry, and full packets.
    let payload = PAYLOAD_MIN
        + match rng.below(4) {
            0 => rng.below(20),
            1 => 40 + rng.below(200),
            _ => 400 + rng.below(900),
        } as usize;
    let mut packet = header(side, flow, payload);
    packet.extend(number.to_be_bytes());
    packet.push(content);
    let len = payload - PAYLOAD_MIN;
    match (content, flow % 3) {
        (0, 0) | (RANDOM, _) => {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            packet.extend(bytes);
        }
        (2, _) => packet.extend(prose(&mut rng, len)),
        (3, _) => packet.extend(records(&mut rng, len)),
        _ => packet.extend(text(flow, number).into_iter().cycle().take(len)),
    }
    packet
}

/// Returns the flow of a packet.
pub(crate) fn flow_of(packet: &[u8]) -> usize {
    let port = packet.get(PORT).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    usize::from(port.saturating_sub(PORT_MIN)).min(FLOWS - 1)
}

/// Words in any order, some of them more often.
fn prose(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        let most = 1 + rng.below(400);
        let word = Rng::stream(rng.below(most), 77);
        bytes.extend(letters(word));
        bytes.push(b' ');
    }
    bytes.truncate(len);
    bytes
}

/// The letters of a word.
fn letters(mut rng: Rng) -> Vec<u8> {
    let len = 2 + rng.below(8);
    (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
}

/// Measurements, each with a few digits that are new.
fn records(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut text = String::new();
    while text.len() < len {
        let (unit, value) = (rng.below(40), 20_000 + rng.below(700));
        text +=
            &format!("{{\"unit\":\"u{unit:03}\",\"kelvin_thousandths\":{value},\"ok\":true}}\n");
    }
    text.truncate(len);
    text.into_bytes()
}

fn text(flow: u64, number: u64) -> Vec<u8> {
    format!("sensor={flow} count={number} state=nominal unit=kelvin; ").into_bytes()
}

/// IPv4 and UDP.
fn header(side: usize, flow: u64, payload: usize) -> Vec<u8> {
    let (from, to) = (side as u8 + 1, 2 - side as u8);
    let total = (PAYLOAD + payload) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend([10, from, 0, 5, 10, to, 0, 9]);
    packet.extend((PORT_MIN + flow as u16).to_be_bytes());
    packet.extend(7_000_u16.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet
}

/// The latest packets that came out at one side: enough to notice duplicates.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The same, flow by flow.
    pub(crate) by_flow: [u64; FLOWS],
    /// Packets of this side that its relay refused, and said so.
    pub(crate) refusals: u64,
    /// One for each number from `first` on.
    seen: VecDeque<bool>,
    first: u64,
}

impl Arrivals {
    /// A packet came out at the other end of `from`, which has sent `made` so far.
    pub(crate) fn arrived(
        &mut self,
        packet: &[u8],
        (from, seed, made): (usize, u64, u64),
    ) -> Result<(), String> {
        if packet.get(PROTOCOL) == Some(&ICMP) && packet.get(TYPE) == Some(&TOO_BIG[..]) {
            // The relay's own answer to a packet that is larger than its path takes at present.
            self.refusals += 1;
            return Ok(());
        }
        let number = packet.get(NUMBER).and_then(|bytes| bytes.try_into().ok());
        let number = u64::from_be_bytes(number.ok_or("a packet came out too short")?);
        let content = *packet.get(CONTENT).ok_or("a packet came out too short")?;
        if number >= made {
            return Err(format!("packet {number} came out, and {made} were sent"));
        }
        if make(from, seed, (number, content)) != packet {
            return Err(format!("packet {number} came out changed"));
        }
        if number < self.first {
            return Err(format!("packet {number} came out more than {WINDOW} packets late"));
        }
        let at = (number - self.first) as usize;
        if self.seen.len() <= at {
            self.seen.resize(at + 1, false);
        }
        if std::mem::replace(&mut self.seen[at], true) {
            return Err(format!("packet {number} came out twice"));
        }
        while self.seen.len() as u64 > WINDOW {
            self.seen.pop_front();
            self.first += 1;
        }
        self.packets += 1;
        self.bytes += packet.len() as u64;
        self.by_flow[flow_of(packet)] += 1;
        Ok(())
    }
}
