//! The receiving end.

use super::{
    FLOWS, Field, Flow, Form, MOVES, PredictedError, V4_WITHOUT_OPTIONS, fields, key_parts,
};
use crate::columnar::{IP_SUM, Restored, Shape, TRANSPORT_SUM, V4, WITH_TCP, WITH_UDP, put};
use crate::ip::{TCP, UDP};
use crate::reader::Reader;

/// Restores packets that a [`HeaderPredictor`](super::HeaderPredictor) wrote, all batches in their order.
///
/// It takes any bytes.
#[derive(Clone, Debug)]
pub struct HeaderRestorer {
    flows: Box<[Flow; FLOWS]>,
    latest: usize,
}

impl Default for HeaderRestorer {
    fn default() -> Self {
        Self { flows: Box::new([Flow::EMPTY; FLOWS]), latest: FLOWS - 1 }
    }
}

impl HeaderRestorer {
    /// The bytes of memory that it takes.
    pub const MEMORY_BYTES: usize = size_of::<Self>() + FLOWS * size_of::<Flow>();

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.flows.fill(Flow::EMPTY);
        self.latest = FLOWS - 1;
    }

    /// Restores the packets of a batch, one after another, from the beginning of `dst`.
    ///
    /// # Errors
    /// If these are no such packets, more than [`PACKETS_MAX`](crate::columnar::PACKETS_MAX), or don't fit. The content of `dst` has no meaning
    /// then, and neither have further batches until [`clear`](Self::clear).
    pub fn restore(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Restored, PredictedError> {
        let mut rest = Reader(src);
        let mut restored = Restored::NONE;
        let mut dst = dst;
        while !rest.0.is_empty() {
            let len = self.restore_one(&mut rest, dst)?;
            if !restored.push(len as u16) {
                return Err(PredictedError::Count);
            }
            dst = dst.get_mut(len..).ok_or(PredictedError::Room)?;
        }
        Ok(restored)
    }

    /// Restores one packet, and returns its length.
    fn restore_one(
        &mut self,
        rest: &mut Reader<'_>,
        dst: &mut [u8],
    ) -> Result<usize, PredictedError> {
        let truncated = PredictedError::Truncated;
        let bits = rest.u8().ok_or(truncated)?;
        let shape = Shape::new(bits).ok_or(PredictedError::Shape(bits))?;
        if shape.version() == 0 {
            let len = usize::from(rest.u16().ok_or(truncated)?);
            let packet = rest.bytes(len).ok_or(truncated)?;
            dst.get_mut(..len).ok_or(PredictedError::Room)?.copy_from_slice(packet);
            return Ok(len);
        }
        let (from, at) = self.places(rest)?;
        let mut flow = self.flows[from];
        let mut head = [0; HEAD_LEN];
        read_fields(&mut flow, rest, shape, &mut head)?;
        read_sums(rest, shape, &mut head)?;
        let len = flow.numbers[Field::Len as usize] as usize;
        let head_len = shape.fixed_len() + shape.transport_len();
        let packet = dst.get_mut(..len).ok_or(PredictedError::Room)?;
        let payload_len = len.checked_sub(head_len).ok_or(PredictedError::Length)?;
        let payload = rest.bytes(payload_len).ok_or(truncated)?;
        packet[..head_len].copy_from_slice(&head[..head_len]);
        packet[head_len..].copy_from_slice(payload);
        shape.compute(packet);
        flow.end(packet, shape);
        self.flows[at] = flow;
        Ok(len)
    }

    /// Returns the place from which headers are predicted, and that where they are remembered.
    fn places(&mut self, rest: &mut Reader<'_>) -> Result<(usize, usize), PredictedError> {
        let named = rest.u8().ok_or(PredictedError::Truncated)?;
        let from = usize::from(named & !MOVES);
        if from >= FLOWS {
            return Err(PredictedError::Flow(named));
        }
        if named & MOVES == 0 {
            return Ok((from, from));
        }
        let behind = rest.u8().ok_or(PredictedError::Truncated)?;
        if usize::from(behind) >= FLOWS {
            return Err(PredictedError::Flow(behind));
        }
        self.latest = (self.latest + 1 + usize::from(behind)) % FLOWS;
        Ok((from, self.latest))
    }
}

/// The headers of IPv6 and TCP with a time stamp.
const HEAD_LEN: usize = 72;

/// Reads the mask and the fields that it names into headers, and remembers them.
fn read_fields(
    flow: &mut Flow,
    rest: &mut Reader<'_>,
    shape: Shape,
    head: &mut [u8; HEAD_LEN],
) -> Result<(), PredictedError> {
    let fields = fields(shape);
    let bytes = rest.bytes(fields.len().div_ceil(8)).ok_or(PredictedError::Truncated)?;
    let mask = bytes.iter().rev().fold(0u16, |mask, &byte| mask << 8 | u16::from(byte));
    if mask >> fields.len() != 0 {
        return Err(PredictedError::Field);
    }
    for (bit, &field) in fields.iter().enumerate() {
        let differs = mask >> bit & 1 == 1;
        let Some((at, size)) = field.place(shape) else {
            if differs {
                return Err(PredictedError::Field);
            }
            continue;
        };
        if field == Field::Key {
            read_key(flow, rest, (shape, differs), head)?;
            continue;
        }
        let expected = flow.expected(field);
        let value =
            if differs { read_number(field.form(), expected, size, rest)? } else { expected };
        flow.remember(field, value);
        match field {
            Field::Len => {}
            Field::UdpLen => {
                let beyond =
                    flow.numbers[Field::Len as usize].wrapping_sub(shape.fixed_len() as u32);
                put(head, at, size, value.wrapping_add(beyond));
            }
            _ => put(head, at, size, value),
        }
    }
    if shape.version() == V4 {
        head[0] = V4_WITHOUT_OPTIONS;
    }
    let protocol = if shape.version() == V4 { 9 } else { 6 };
    match shape.transport() {
        WITH_TCP => head[protocol] = TCP,
        WITH_UDP => head[protocol] = UDP,
        _ => {}
    }
    Ok(())
}

fn read_number(
    form: Form,
    expected: u32,
    size: usize,
    rest: &mut Reader<'_>,
) -> Result<u32, PredictedError> {
    let number = match form {
        Form::Value | Form::Difference => {
            let bytes = rest.bytes(size).ok_or(PredictedError::Truncated)?;
            bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
        }
        Form::Short => read_short(rest)?,
    };
    let value = if form == Form::Value { number } else { expected.wrapping_add(number) };
    Ok(if size == 4 { value } else { value & ((1 << (8 * size)) - 1) })
}

/// Reads a difference, seven bits in each byte, the sign at the lowest bit.
fn read_short(rest: &mut Reader<'_>) -> Result<u32, PredictedError> {
    let mut number = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = rest.u8().ok_or(PredictedError::Truncated)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let number = u32::try_from(number).map_err(|_| PredictedError::Field)?;
            return Ok(number >> 1 ^ (number & 1).wrapping_neg());
        }
    }
    Err(PredictedError::Field)
}

fn read_key(
    flow: &mut Flow,
    rest: &mut Reader<'_>,
    (shape, differs): (Shape, bool),
    head: &mut [u8; HEAD_LEN],
) -> Result<(), PredictedError> {
    let parts = key_parts(shape);
    let mask = if differs { rest.u8().ok_or(PredictedError::Truncated)? } else { 0 };
    if mask >> parts.len() != 0 {
        return Err(PredictedError::Field);
    }
    let mut in_key = 0;
    for (bit, &(at, size)) in parts.iter().enumerate() {
        let known = &mut flow.key[in_key..in_key + size];
        if mask >> bit & 1 == 1 {
            known.copy_from_slice(rest.bytes(size).ok_or(PredictedError::Truncated)?);
        }
        head[at..at + size].copy_from_slice(known);
        in_key += size;
    }
    Ok(())
}

/// Reads the checksums that are not computed.
fn read_sums(
    rest: &mut Reader<'_>,
    shape: Shape,
    head: &mut [u8; HEAD_LEN],
) -> Result<(), PredictedError> {
    if shape.version() == V4 && shape.bits() & IP_SUM == 0 {
        put(head, 10, 2, rest.u16().ok_or(PredictedError::Truncated)?.into());
    }
    if shape.transport() != 0 && shape.bits() & TRANSPORT_SUM == 0 {
        let at = shape.fixed_len() + if shape.transport() == WITH_TCP { 16 } else { 6 };
        put(head, at, 2, rest.u16().ok_or(PredictedError::Truncated)?.into());
    }
    Ok(())
}
