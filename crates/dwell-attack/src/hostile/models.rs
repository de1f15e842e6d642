//! Generations with models (`docs/wire.md`, section 9.7) as a peer writes them that means harm.
//!
//! What costs a relay most is to learn what can't be predicted: a microsecond and more for each byte, and as much again
//! for what a model that is full learns from its history.

use dwell_base::Rng;
use dwell_codec::{Base, ContextEncoder, ContextSpec, PPM_ORDER_MAX, PPM_RECORD_LEN_MAX, PpmSpec};
use dwell_wire::{BodyWriter, ContextBody, ContextRecord, Headers, Start, StartBase};

use super::contexts::RING_LOG;
use super::{Addresses, udp_packet, write_within};

/// What a relay takes if its configuration does not say otherwise: models in so many contexts, ...
pub(crate) const MODELS: u8 = 4;
/// ... with so much memory each.
pub(crate) const MEMORY_LOG: u8 = 24;
/// The longest base of a model.
const BASE_BYTES_MAX: u64 = 32_768;
/// Room for the header of a record, with a start.
const RECORD_BYTES: usize = 40;
/// The headers of IPv4 and UDP. What is no packet ends the generation, and costs less.
const HEADERS_BYTES: usize = 28;
/// Batches that are predicted, after the first of a generation.
const PREDICTED: usize = 40;

/// Batches of one generation, one after another.
#[derive(Clone, Debug)]
struct Generation {
    model: u8,
    batches: Vec<(u16, Vec<u8>)>,
}

/// The sender's half of a context.
#[derive(Clone, Copy, Debug)]
struct Half {
    number: u64,
    generation: u8,
    offset: u64,
}

/// Writes hostile generations, the same for the same seed.
#[derive(Debug)]
pub(crate) struct HostileModels {
    rng: Rng,
    addresses: Addresses,
    body_bytes_max: usize,
    halves: [Half; MODELS as usize],
    bodies: u64,
    /// 16 KiB of one packet again and again, which are some bytes each.
    predicted: Generation,
}

impl HostileModels {
    /// A writer of bodies of at most `body_bytes_max` bytes.
    pub(crate) fn new(seed: u64, addresses: Addresses, body_bytes_max: usize) -> Self {
        let half = Half { number: 1, generation: 0, offset: 0 };
        let packet = udp_packet(addresses, &[0; 1_000]);
        let content = packet.repeat(PPM_RECORD_LEN_MAX / packet.len());
        let predicted = predicted(&content);
        let rng = Rng::from_seed(seed);
        Self {
            rng,
            addresses,
            body_bytes_max,
            halves: [half; MODELS as usize],
            bodies: 0,
            predicted,
        }
    }

    /// Noise in the largest models, noise in the smallest, which are full again and again, generations that begin from as
    /// much noise as a base can have, and long batches that take a few bytes.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        self.bodies += 1;
        let context = (self.bodies % u64::from(MODELS)) as u8;
        match self.bodies / u64::from(MODELS) % 4 {
            0 => self.noise(context, MEMORY_LOG),
            1 => self.noise(context, 20),
            2 => self.based(context),
            _ => self.long(context),
        }
    }

    /// As much noise as a body holds, which stands in the record as it is and is learned.
    fn noise(&mut self, context: u8, memory_log: u8) -> Vec<u8> {
        let mut noise = vec![0; self.body_bytes_max - RECORD_BYTES - HEADERS_BYTES];
        self.rng.fill(&mut noise);
        let noise = udp_packet(self.addresses, &noise);
        let start = self.half(context).number == 1 || self.bodies.is_multiple_of(64);
        let start = start.then(|| (model(memory_log), 0));
        self.write(|it, body| it.record(body, context, start, (noise.len() as u16, &noise)))
    }

    /// A generation in every record, each from the longest base that there can be.
    fn based(&mut self, context: u8) -> Vec<u8> {
        let memory_log = if self.rng.chance(0.5) { 20 } else { MEMORY_LOG };
        let packet = udp_packet(self.addresses, &[7]);
        let batch = (packet.len() as u16, &packet[..]);
        self.write(|it, body| {
            let len = it.half(context).offset.min(BASE_BYTES_MAX) as u32;
            while it.record(body, context, Some((model(memory_log), len)), batch) {}
            true
        })
    }

    /// Batches that restore to a hundred times their length and more.
    fn long(&mut self, context: u8) -> Vec<u8> {
        let Generation { model, batches } = self.predicted.clone();
        self.write(|it, body| {
            let mut start = Some((model, 0));
            batches.iter().all(|(len, data)| it.record(body, context, start.take(), (*len, data)));
            true
        })
    }

    fn half(&mut self, context: u8) -> &mut Half {
        &mut self.halves[usize::from(context)]
    }

    fn write(&mut self, write: impl FnOnce(&mut Self, &mut BodyWriter<'_>) -> bool) -> Vec<u8> {
        let len_max = self.body_bytes_max;
        write_within(len_max, |body| write(self, body))
    }

    /// Writes a batch; with a model and the length of a base it begins a generation. False if there is no room.
    fn record(
        &mut self,
        body: &mut BodyWriter<'_>,
        context: u8,
        start: Option<(u8, u32)>,
        (original_len, data): (u16, &[u8]),
    ) -> bool {
        let half = *self.half(context);
        let generation = half.generation.wrapping_add(u8::from(start.is_some()));
        let start = start.map(|(model, len)| {
            let base = Base { offset: half.offset, len };
            let base = StartBase::Ring { offset: base.offset, len: base.len };
            Start { codec: dwell_codec::CodecId::Ppm as u8, window_log: model, base }
        });
        let (alone, headers, number) = (None, Headers::Plain, half.number as u16);
        let content = ContextBody::Batch { start, alone, headers, original_len, data };
        let record = ContextRecord { context, generation, number, body: content };
        let is_written = body.context(&record).is_ok();
        if is_written {
            let offset = half.offset + u64::from(original_len);
            *self.half(context) = Half { number: half.number + 1, generation, offset };
        }
        is_written
    }
}

/// The byte of a model of the highest order.
fn model(memory_log: u8) -> u8 {
    PpmSpec { order: PPM_ORDER_MAX, memory_log }.to_wire().unwrap_or_default()
}

/// The same content as the batches of one generation.
fn predicted(content: &[u8]) -> Generation {
    let spec = PpmSpec { order: PPM_ORDER_MAX, memory_log: MEMORY_LOG };
    let batches = || {
        let level = ContextSpec { level: 1, window_log: RING_LOG };
        let mut encoder = ContextEncoder::new(level, RING_LOG).ok()?;
        encoder.begin_model(spec, Base::default()).ok()?;
        let mut batches = Vec::new();
        for _ in 0..PREDICTED {
            let mut data = Vec::new();
            encoder.compress(content, &mut data).ok()?;
            batches.push((content.len() as u16, data));
        }
        Some(batches)
    };
    Generation { model: model(MEMORY_LOG), batches: batches().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dwell_codec::ContextDecoder;
    use dwell_wire::{Record, Records};

    use super::*;

    const ADDRESSES: Addresses =
        Addresses { from: Ipv4Addr::new(10, 3, 0, 2), to: Ipv4Addr::new(10, 2, 0, 2) };

    /// All that is written decodes, so that nothing is dropped before it cost something.
    #[test]
    fn every_generation_decodes_and_begins_from_as_much_as_it_can() {
        let mut hostile = HostileModels::new(1, ADDRESSES, 1_400);
        let mut decoders: Vec<_> = (0..MODELS).map(|_| ContextDecoder::new(RING_LOG)).collect();
        let mut out = vec![0; PPM_RECORD_LEN_MAX];
        let (mut begun, mut longest, mut restored) = (0, 0, 0);
        for body in (0..64).map(|_| hostile.body()) {
            for record in Records::new(&body) {
                let Ok(Record::Context(record)) = record else { panic!("{record:?}") };
                let ContextBody::Batch { start, original_len, data, .. } = record.body else {
                    panic!("{record:?}")
                };
                let decoder = &mut decoders[usize::from(record.context)];
                if let Some(Start { window_log, base: StartBase::Ring { offset, len }, .. }) = start
                {
                    let spec = PpmSpec::from_wire(window_log).unwrap();
                    decoder.begin_model(spec, Base { offset, len }).unwrap();
                    (begun, longest) = (begun + 1, len.max(longest));
                }
                decoder.decode(data, &mut out[..usize::from(original_len)]).unwrap();
                restored += usize::from(original_len);
            }
        }
        assert!(begun > 300 && u64::from(longest) == BASE_BYTES_MAX, "{begun}, {longest}");
        assert!(restored > 64 * 4 * 1_400, "{restored}");
    }
}
