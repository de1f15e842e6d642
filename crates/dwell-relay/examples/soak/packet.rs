//! Inner packets that can be recognised: everything in them follows from their number.

use std::collections::VecDeque;

use dwell_base::Rng;

const PAYLOAD: usize = 28;
const NUMBER: std::ops::Range<usize> = PAYLOAD..PAYLOAD + 8;
/// Where an IPv4 packet names its protocol, and that of ICMP.
const PROTOCOL: usize = 9;
const ICMP: u8 = 1;
/// The type and code of an ICMP packet, and those of "fragmentation needed" (RFC 792).
const TYPE: std::ops::Range<usize> = 20..22;
const TOO_BIG: [u8; 2] = [3, 4];
/// The latest packet may be at most this far ahead of one that still comes.
const WINDOW: u64 = 1 << 16;

/// The packet of this number from side 0 or 1 to the other, in one of a few flows.
pub(crate) fn make(side: usize, seed: u64, number: u64) -> Vec<u8> {
    let mut rng = Rng::stream(seed ^ number, side as u64);
    let flow = rng.below(12);
    // Bare acknowledgements, telemetry, and full packets.
    let payload = 8 + match rng.below(4) {
        0 => rng.below(20),
        1 => 40 + rng.below(200),
        _ => 400 + rng.below(900),
    } as usize;
    let mut packet = header(side, flow, payload);
    packet.extend(number.to_be_bytes());
    match flow % 3 {
        0 => {
            let mut bytes = vec![0; payload - 8];
            rng.fill(&mut bytes);
            packet.extend(bytes);
        }
        _ => packet.extend(text(flow, number).into_iter().cycle().take(payload - 8)),
    }
    packet
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
    packet.extend((5_000 + flow as u16).to_be_bytes());
    packet.extend(7_000_u16.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet
}

/// The latest packets that came out at one side: enough to notice duplicates.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) packets: u64,
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
        if number >= made {
            return Err(format!("packet {number} came out, and {made} were sent"));
        }
        if make(from, seed, number) != packet {
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
        Ok(())
    }
}
