//! Generations with models (`docs/wire.md`, sections 9.7 and 9.9) as a peer writes them that means harm.
//!
//! What costs a relay most is to learn what can't be predicted: a microsecond and more for each byte, and with ppm as much again
//! for what a model that is full learns from its history. Or to begin one model after another, each of other memory.

use dwell_base::Rng;
use dwell_codec::{
    Base, CodecId, ContextEncoder, ContextSpec, MODEL_RECORD_LEN_MAX, MixSpec, ModelSpec,
    PPM_ORDER_MAX, PpmSpec,
};
use dwell_wire::{BodyWriter, ContextBody, ContextRecord, Headers, Start, StartBase};

use super::contexts::RING_LOG;
use super::{Addresses, udp_packet, write_within};

/// What a relay takes if its configuration does not say otherwise: models in so many contexts, ...
pub(crate) const MODELS: u8 = 4;
/// ... with so much memory each.
pub(crate) const MEMORY_LOG: u8 = 24;
/// More than a relay takes: the most that there is.
pub(crate) const MEMORY_LOG_MAX: u8 = 26;
/// Room for the header of a record, with a start.
const RECORD_BYTES: usize = 40;
/// The headers of IPv4 and UDP. What is no packet ends the generation, and costs less.
const HEADERS_BYTES: usize = 28;
/// Batches that are predicted, after the first of a generation.
const PREDICTED: usize = 40;
/// Models one after another, of which none has the memory of the one before it; or zstd.
const ALTERNATES: [Option<(Kind, u8)>; 7] = [
    Some((Kind::Mix, MEMORY_LOG)),
    Some((Kind::Ppm, MEMORY_LOG)),
    Some((Kind::Mix, 20)),
    None,
    Some((Kind::Mix, MEMORY_LOG)),
    Some((Kind::Mix, MEMORY_LOG_MAX)),
    Some((Kind::Mix, MEMORY_LOG - 1)),
];

/// A kind of models.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Ppm,
    Mix,
}

impl Kind {
    /// Returns the model that takes longest: with ppm that of the highest order.
    fn of(self, memory_log: u8) -> ModelSpec {
        match self {
            Self::Ppm => PpmSpec { order: PPM_ORDER_MAX, memory_log }.into(),
            Self::Mix => MixSpec { memory_log }.into(),
        }
    }
}

/// How a generation begins: with this model, from so many bytes of the ring; without a model by zstd.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    model: Option<ModelSpec>,
    base_len: u32,
}

/// Batches of one generation, one after another.
type Batches = Vec<(u16, Vec<u8>)>;

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
    kind: Kind,
    rng: Rng,
    addresses: Addresses,
    body_bytes_max: usize,
    halves: [Half; MODELS as usize],
    bodies: u64,
    /// 16 KiB of one packet again and again, which are some bytes each.
    predicted: Batches,
    /// A packet, by zstd in a generation of its own.
    by_zstd: Batches,
    begun: usize,
}

impl HostileModels {
    /// A writer of bodies of at most `body_bytes_max` bytes.
    pub(crate) fn new(kind: Kind, seed: u64, addresses: Addresses, body_bytes_max: usize) -> Self {
        let half = Half { number: 1, generation: 0, offset: 0 };
        let packet = udp_packet(addresses, &[0; 1_000]);
        let content = packet.repeat(MODEL_RECORD_LEN_MAX / packet.len());
        Self {
            kind,
            rng: Rng::from_seed(seed),
            addresses,
            body_bytes_max,
            halves: [half; MODELS as usize],
            bodies: 0,
            predicted: batches(Some(kind.of(MEMORY_LOG)), &content, PREDICTED),
            by_zstd: batches(None, &udp_packet(addresses, &[7]), 1),
            begun: 0,
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
        let start = start.then(|| self.beginning(memory_log, 0));
        self.write(|it, body| it.record(body, context, start, (noise.len() as u16, &noise)))
    }

    /// A generation in every record, each from the longest base that there can be.
    fn based(&mut self, context: u8) -> Vec<u8> {
        let memory_log = if self.rng.chance(0.5) { 20 } else { MEMORY_LOG };
        let packet = udp_packet(self.addresses, &[7]);
        let batch = (packet.len() as u16, &packet[..]);
        let longest = self.kind.of(memory_log).prime_len_max() as u64;
        self.write(|it, body| {
            loop {
                let base_len = it.half(context).offset.min(longest) as u32;
                let start = Some(it.beginning(memory_log, base_len));
                if !it.record(body, context, start, batch) {
                    return true;
                }
            }
        })
    }

    /// Batches that restore to a hundred times their length and more.
    fn long(&mut self, context: u8) -> Vec<u8> {
        let batches = self.predicted.clone();
        self.write(|it, body| {
            let mut start = Some(it.beginning(MEMORY_LOG, 0));
            batches.iter().all(|(len, data)| it.record(body, context, start.take(), (*len, data)));
            true
        })
    }

    /// Another model in every record, so that no memory can be kept; some with more of it than the relay takes, and zstd between
    /// them.
    pub(crate) fn alternate(&mut self) -> Vec<u8> {
        self.bodies += 1;
        let context = (self.bodies % u64::from(MODELS)) as u8;
        let packet = udp_packet(self.addresses, &[7]);
        let by_zstd = self.by_zstd.clone();
        self.write(|it, body| {
            loop {
                let model = ALTERNATES[it.begun % ALTERNATES.len()].map(|(kind, log)| kind.of(log));
                let data = if model.is_some() { &packet[..] } else { &by_zstd[0].1[..] };
                let start = Some(Beginning { model, base_len: 0 });
                if !it.record(body, context, start, (packet.len() as u16, data)) {
                    return true;
                }
                it.begun += 1;
            }
        })
    }

    fn beginning(&self, memory_log: u8, base_len: u32) -> Beginning {
        Beginning { model: Some(self.kind.of(memory_log)), base_len }
    }

    fn half(&mut self, context: u8) -> &mut Half {
        &mut self.halves[usize::from(context)]
    }

    fn write(&mut self, write: impl FnOnce(&mut Self, &mut BodyWriter<'_>) -> bool) -> Vec<u8> {
        let len_max = self.body_bytes_max;
        write_within(len_max, |body| write(self, body))
    }

    /// Writes a batch, which may begin a generation. False if there is no room.
    fn record(
        &mut self,
        body: &mut BodyWriter<'_>,
        context: u8,
        beginning: Option<Beginning>,
        (original_len, data): (u16, &[u8]),
    ) -> bool {
        let half = *self.half(context);
        let generation = half.generation.wrapping_add(u8::from(beginning.is_some()));
        let start = beginning.map(|beginning| start(beginning, half.offset));
        let is_taken = beginning.is_none_or(|it| it.model.is_none_or(is_taken));
        let (alone, headers, number) = (None, Headers::Plain, half.number as u16);
        let content = ContextBody::Batch { start, alone, headers, original_len, data };
        let record = ContextRecord { context, generation, number, body: content };
        let is_written = body.context(&record).is_ok();
        if is_written {
            let len = if is_taken { u64::from(original_len) } else { 0 };
            let offset = half.offset + len;
            *self.half(context) = Half { number: half.number + 1, generation, offset };
        }
        is_written
    }
}

/// Returns true if a relay takes such a model, by what it offers.
fn is_taken(model: ModelSpec) -> bool {
    model.memory_log() <= MEMORY_LOG
}

fn start(Beginning { model, base_len: len }: Beginning, offset: u64) -> Start {
    let wire = model.and_then(|model| model.to_wire().ok());
    let (codec, window_log) = wire.unwrap_or((CodecId::Zstd, RING_LOG));
    Start { codec: codec as u8, window_log, base: StartBase::Ring { offset, len } }
}

/// The same content as the batches of one generation, with a model or by zstd.
fn batches(model: Option<ModelSpec>, content: &[u8], count: usize) -> Batches {
    let batches = || {
        let level = ContextSpec { level: 1, window_log: RING_LOG };
        let mut encoder = ContextEncoder::new(level, RING_LOG).ok()?;
        if let Some(model) = model {
            encoder.begin_model(model, Base::default()).ok()?;
        }
        let mut batches = Vec::new();
        for _ in 0..count {
            let mut data = Vec::new();
            encoder.compress(content, &mut data).ok()?;
            batches.push((content.len() as u16, data));
        }
        Some(batches)
    };
    batches().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dwell_codec::{ContextDecoder, MIX_PRIME_LEN_MAX, PPM_PRIME_LEN_MAX};
    use dwell_wire::{Record, Records};

    use super::*;

    const ADDRESSES: Addresses =
        Addresses { from: Ipv4Addr::new(10, 3, 0, 2), to: Ipv4Addr::new(10, 2, 0, 2) };

    /// Decodes the records of bodies as a relay does, and returns how many generations with models began, the longest base, and
    /// the bytes that were restored.
    fn decoded(bodies: impl Iterator<Item = Vec<u8>>) -> (usize, u32, usize) {
        let mut decoders: Vec<_> = (0..MODELS).map(|_| ContextDecoder::new(RING_LOG)).collect();
        let mut out = vec![0; MODEL_RECORD_LEN_MAX];
        let (mut begun, mut longest, mut restored) = (0, 0, 0);
        for body in bodies {
            for record in Records::new(&body) {
                let Ok(Record::Context(record)) = record else { panic!("{record:?}") };
                let ContextBody::Batch { start, original_len, data, .. } = record.body else {
                    panic!("{record:?}")
                };
                let decoder = &mut decoders[usize::from(record.context)];
                if let Some(Start { codec, window_log, base: StartBase::Ring { offset, len } }) =
                    start
                {
                    let base = Base { offset, len };
                    match ModelSpec::from_wire(codec, window_log) {
                        None => decoder.begin(window_log, base).unwrap(),
                        Some(model) if !is_taken(model.unwrap()) => continue,
                        Some(model) => {
                            decoder.begin_model(model.unwrap(), base).unwrap();
                            begun += 1;
                        }
                    }
                    longest = len.max(longest);
                }
                decoder.decode(data, &mut out[..usize::from(original_len)]).unwrap();
                restored += usize::from(original_len);
            }
        }
        (begun, longest, restored)
    }

    /// All that is written decodes, so that nothing is dropped before it cost something.
    #[test]
    fn every_generation_decodes_and_begins_from_as_much_as_it_can() {
        let kinds = [(Kind::Ppm, PPM_PRIME_LEN_MAX, 64), (Kind::Mix, MIX_PRIME_LEN_MAX, 24)];
        for (kind, base_len, bodies) in kinds {
            let mut hostile = HostileModels::new(kind, 1, ADDRESSES, 1_400);
            let (begun, longest, restored) = decoded((0..bodies).map(|_| hostile.body()));
            assert!(begun > 5 * bodies && longest as usize == base_len, "{begun}, {longest}");
            assert!(restored > bodies * 4 * 1_400, "{restored}");
        }
    }

    #[test]
    fn models_that_alternate_decode_where_they_are_taken() {
        let mut hostile = HostileModels::new(Kind::Mix, 1, ADDRESSES, 1_400);
        let (begun, longest, restored) = decoded((0..16).map(|_| hostile.alternate()));
        assert!(begun > 16 * 15 && longest == 0 && restored > begun * 20, "{begun}, {restored}");
    }
}
