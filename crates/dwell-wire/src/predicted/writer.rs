//! The sending end.

use super::{FLOWS, Field, Flow, Form, KEY_LEN, MOVES, V4_WITHOUT_OPTIONS, fields, key_parts};
use crate::columnar::{IP_SUM, Shape, TRANSPORT_SUM, V4, WITH_TCP, get};

/// A place that was used for one of so many packets before is not given to another flow.
const RECENT_PACKETS: u64 = FLOWS as u64;

/// What only the sender knows of a place.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Of shape and key, of shape and addresses, and of the flow that was here before.
    flow: u64,
    hosts: u64,
    before: u64,
    family: u8,
    /// No second packet of the flow came.
    is_once: bool,
    /// The number of the packet that it was used for; zero if it is free.
    used: u64,
}

/// Writes packets with predicted headers.
#[derive(Clone, Debug)]
pub struct HeaderPredictor {
    flows: Box<[Flow; FLOWS]>,
    places: Box<[Place; FLOWS]>,
    packets: u64,
    /// The place that was given to a flow last.
    latest: usize,
}

impl Default for HeaderPredictor {
    fn default() -> Self {
        Self {
            flows: Box::new([Flow::EMPTY; FLOWS]),
            places: Box::new([Place::default(); FLOWS]),
            packets: 0,
            latest: FLOWS - 1,
        }
    }
}

impl HeaderPredictor {
    /// The bytes of memory that it takes.
    pub const MEMORY_BYTES: usize =
        size_of::<Self>() + FLOWS * (size_of::<Flow>() + size_of::<Place>());

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.flows.fill(Flow::EMPTY);
        self.places.fill(Place::default());
        (self.packets, self.latest) = (0, FLOWS - 1);
    }

    /// Appends a packet of at most 65,535 bytes to `out`: at most
    /// [`GROWN_BYTES_MAX`](super::GROWN_BYTES_MAX) bytes more than it has. Of a longer one nothing is written.
    pub fn write(&mut self, packet: &[u8], out: &mut Vec<u8>) {
        let Ok(len) = u16::try_from(packet.len()) else { return };
        let shape = Shape::of(packet);
        if shape.version() == 0 || shape.version() == V4 && packet[0] != V4_WITHOUT_OPTIONS {
            out.push(0);
            out.extend(len.to_be_bytes());
            out.extend(packet);
            return;
        }
        out.push(shape.bits());
        let (from, moves) = self.place(packet, shape);
        let at = match moves {
            None => {
                out.push(from as u8);
                from
            }
            Some(behind) => {
                out.extend([from as u8 | MOVES, behind as u8]);
                self.latest = (self.latest + 1 + behind) % FLOWS;
                self.latest
            }
        };
        let mut flow = self.flows[from];
        write_fields(&mut flow, packet, shape, out);
        self.flows[at] = flow;
        if shape.version() == V4 && shape.bits() & IP_SUM == 0 {
            out.extend(&packet[10..12]);
        }
        if shape.transport() != 0 && shape.bits() & TRANSPORT_SUM == 0 {
            let sum = if shape.transport() == WITH_TCP { 16 } else { 6 };
            out.extend(&packet[shape.fixed_len() + sum..][..2]);
        }
        out.extend(&packet[shape.fixed_len() + shape.transport_len()..]);
    }

    /// Returns the place from which the headers are predicted, and, if they are to be remembered in another, how
    /// far behind the latest that is.
    fn place(&mut self, packet: &[u8], shape: Shape) -> (usize, Option<usize>) {
        self.packets += 1;
        let (hosts, flow) = hashes(packet, shape);
        let now = self.packets;
        if let Some(at) = self.places.iter().position(|it| it.used > 0 && it.flow == flow) {
            (self.places[at].used, self.places[at].is_once) = (now, false);
            return (at, None);
        }
        let of_family = |&at: &usize| {
            let place = &self.places[at];
            place.used > 0 && place.family == shape.family()
        };
        let nearness = |&at: &usize| (self.places[at].hosts == hosts, self.places[at].used);
        let like = (0..FLOWS).filter(of_family).max_by_key(nearness);
        let new =
            Place { flow, hosts, before: 0, family: shape.family(), is_once: true, used: now };
        if let Some(at) = like {
            // Questions and answers of which each has ports of its own take one place after another
            // from nobody. Flows that take turns do not take it from each other.
            let place = &mut self.places[at];
            let is_question = shape.transport() != WITH_TCP && place.is_once;
            if is_question && place.hosts == hosts && place.before != flow {
                *place = Place { before: place.flow, ..new };
                return (at, None);
            }
        }
        let behind = self.free();
        self.places[(self.latest + 1 + behind) % FLOWS] = new;
        (like.unwrap_or(0), Some(behind))
    }

    /// Returns how far behind the latest the next place is that was not used of late.
    fn free(&self) -> usize {
        let is_free = |behind: &usize| {
            let used = self.places[(self.latest + 1 + behind) % FLOWS].used;
            used == 0 || used + RECENT_PACKETS < self.packets
        };
        (0..FLOWS).find(is_free).unwrap_or(0)
    }
}

/// Writes the mask, and the fields that are not as expected.
fn write_fields(flow: &mut Flow, packet: &[u8], shape: Shape, out: &mut Vec<u8>) {
    let fields = fields(shape);
    let masks = out.len();
    out.resize(masks + fields.len().div_ceil(8), 0);
    for (bit, &field) in fields.iter().enumerate() {
        let Some((at, size)) = field.place(shape) else { continue };
        let differs = match field {
            Field::Key => write_key(flow, packet, shape, out),
            _ => {
                let value = match field {
                    Field::Len => packet.len() as u32,
                    Field::UdpLen => {
                        let rest = (packet.len() - shape.fixed_len()) as u16;
                        (get(packet, at, size) as u16).wrapping_sub(rest).into()
                    }
                    _ => get(packet, at, size),
                };
                let expected = flow.expected(field);
                flow.remember(field, value);
                if value != expected {
                    write_number(field.form(), (value, expected), size, out);
                }
                value != expected
            }
        };
        out[masks + bit / 8] |= u8::from(differs) << (bit % 8);
    }
    flow.end(packet, shape);
}

fn write_number(form: Form, (value, expected): (u32, u32), size: usize, out: &mut Vec<u8>) {
    let difference = value.wrapping_sub(expected);
    match form {
        Form::Value => out.extend(&value.to_be_bytes()[4 - size..]),
        Form::Difference => out.extend(&difference.to_be_bytes()[4 - size..]),
        Form::Short => {
            // With the sign at the lowest bit.
            let unused = 32 - 8 * size as u32;
            let signed = (difference << unused) as i32 >> unused;
            let mut rest = ((signed << 1) ^ (signed >> 31)) as u32;
            while rest >= 0x80 {
                out.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
    }
}

/// Writes the parts of the key that differ, if there are any.
fn write_key(flow: &mut Flow, packet: &[u8], shape: Shape, out: &mut Vec<u8>) -> bool {
    let mask = out.len();
    let mut differing = 0;
    let mut in_key = 0;
    for (bit, &(at, size)) in key_parts(shape).iter().enumerate() {
        let (known, part) = (&mut flow.key[in_key..in_key + size], &packet[at..at + size]);
        if known != part {
            if differing == 0 {
                out.push(0);
            }
            differing |= 1 << bit;
            known.copy_from_slice(part);
            out.extend(part);
        }
        in_key += size;
    }
    debug_assert!(in_key <= KEY_LEN, "the longest key has room");
    if differing != 0 {
        out[mask] = differing;
    }
    differing != 0
}

/// Returns numbers that are the same for packets of the same shape between the same hosts, and of the same
/// flow. Others only seldom have the same; that costs bytes, and is no error.
fn hashes(packet: &[u8], shape: Shape) -> (u64, u64) {
    let mix = |hash: u64, bytes: &[u8]| {
        bytes
            .iter()
            .fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let addresses = if shape.version() == V4 { 2 } else { 4 };
    let mut hash = mix(0xcbf2_9ce4_8422_2325, &[shape.family()]);
    let mut hosts = hash;
    for (nth, &(at, size)) in key_parts(shape).iter().enumerate() {
        hash = mix(hash, &packet[at..at + size]);
        if nth + 1 == addresses {
            hosts = hash;
        }
    }
    (hosts, hash)
}
