//! Records of contexts as a peer writes them that means harm (`docs/wire.md`, section 9).
//!
//! They keep to the rules as far as it harms more: numbers without gaps and batches that decode cost a
//! relay more than what it drops at once.

use dwell_base::Rng;
use dwell_codec::{Base, ContextEncoder, ContextSpec};
use dwell_wire::record::CODEC_ZSTD;
use dwell_wire::{Alone, BodyWriter, ContextBody, ContextRecord, Headers, Start, StartBase};

use super::{Addresses, udp_packet, write_within};

/// What a relay offers if its configuration does not say otherwise.
pub(crate) const CONTEXTS: u8 = 16;
pub(crate) const RING_LOG: u8 = 20;
const RING_BYTES: u64 = 1 << RING_LOG;
const SPEC: ContextSpec = ContextSpec { level: 19, window_log: RING_LOG };
/// A batch is no longer once it is restored.
const BATCH_BYTES_MAX: usize = 65_535;
/// As long as packets mostly are: fewer of them cost less beside their bytes.
const PAYLOAD_BYTES: usize = 1_400;
/// The flow of a costly batch: short matches all over what went before.
const COSTLY_BYTES: usize = 16_000;

/// A batch that decodes at the beginning of a generation, whatever its base, or behind another one.
#[derive(Clone, Debug)]
struct Batch {
    original_len: u16,
    data: Vec<u8>,
}

/// The sender's half of a context, and what the relay should think of it.
#[derive(Clone, Copy, Debug)]
struct Half {
    number: u64,
    generation: u8,
    offset: u64,
    /// Bytes behind the offset that the relay's ring has.
    behind: u64,
}

/// Writes hostile records of contexts, the same for the same seed.
#[derive(Debug)]
pub(crate) struct HostileContexts {
    rng: Rng,
    body_bytes_max: usize,
    halves: Vec<Half>,
    /// The number of the next body.
    bodies: u64,
    /// A packet, and as many zeros as a batch has room for, each as the first batch of a generation.
    small: Batch,
    zeros: Batch,
    /// The packet as a batch that stands alone.
    small_alone: Batch,
    /// The batch that costs most, as the first one, and a thousand behind it.
    costly: Vec<Batch>,
    packet: Vec<u8>,
}

impl HostileContexts {
    /// A writer of bodies of at most `body_bytes_max` bytes.
    pub(crate) fn new(seed: u64, addresses: Addresses, body_bytes_max: usize) -> Self {
        let mut rng = Rng::from_seed(seed);
        let packet = udp_packet(addresses, &[0; PAYLOAD_BYTES]);
        let zeros = packet.repeat(BATCH_BYTES_MAX / packet.len());
        let first = |content: &[u8]| compressed(&[content.to_vec()]).pop();
        let nothing = || Batch { original_len: 1, data: vec![0] };
        let (small, zeros) = (first(&packet), first(&zeros));
        let costly = compressed(&costly(&mut rng, addresses));
        let half = Half { number: 1, generation: 0, offset: 0, behind: 0 };
        Self {
            rng,
            body_bytes_max,
            halves: vec![half; usize::from(u8::MAX)],
            bodies: 0,
            small: small.unwrap_or_else(nothing),
            zeros: zeros.unwrap_or_else(nothing),
            small_alone: alone(&packet).unwrap_or_else(nothing),
            costly,
            packet,
        }
    }

    /// Generations begin in every record: cold in all contexts that there can be, from claims that
    /// can't hold, and from as much of the ring as there is.
    pub(crate) fn starts(&mut self) -> Vec<u8> {
        self.bodies += 1;
        match self.bodies % 5 {
            0 => self.cold_starts(),
            1 => self.claims(),
            2 => self.fill(),
            3 => self.primed(),
            _ => self.primed_alone(),
        }
    }

    fn cold_starts(&mut self) -> Vec<u8> {
        let small = self.small.clone();
        let first = self.bodies as u8;
        self.records(|it, body, turn| {
            let context = first.wrapping_add(turn as u8) % u8::MAX;
            it.begin(body, context, Base::default(), &small)
        })
    }

    fn claims(&mut self) -> Vec<u8> {
        self.records(|it, body, _| {
            let context = it.rng.below(256) as u8;
            let window_log = [0, 14, 15, 20, 21, 23, 31, 63, 64, 255][it.rng.below(10) as usize];
            let offsets = [0, 1, RING_BYTES, u64::MAX, 1 << 63, it.rng.next_u64()];
            let lens = [0, 1, 1 << 15, 1 << 20, u32::MAX, it.rng.next_u64() as u32];
            let start = Start {
                codec: it.rng.below(16) as u8,
                window_log,
                base: match it.rng.below(4) {
                    0 => StartBase::Dictionary {
                        name: it.rng.next_u64(),
                        len: lens[it.rng.below(6) as usize],
                    },
                    _ => StartBase::Ring {
                        offset: offsets[it.rng.below(6) as usize],
                        len: lens[it.rng.below(6) as usize],
                    },
                },
            };
            let (generation, number) = it.next(context, true);
            let data = it.small.data.clone();
            let original_len = it.rng.next_u64() as u16 | 1;
            let start = Some(start);
            let alone = it.any_alone(start);
            // One that stands alone can't be written with less, and the body would end there.
            let least = if alone.is_some() { data.len() as u16 + 1 } else { 0 };
            let original_len = original_len.max(least);
            let headers = match it.rng.below(3) {
                0 => Headers::Columnar,
                1 if alone.is_none() => Headers::Predicted,
                _ => Headers::Plain,
            };
            let content = ContextBody::Batch { start, alone, headers, original_len, data: &data };
            body.context(&ContextRecord { context, generation, number, body: content }).is_ok()
        })
    }

    /// Fills the ring of a context, with one generation for each batch.
    fn fill(&mut self) -> Vec<u8> {
        let context = (self.bodies / 5 % u64::from(CONTEXTS)) as u8;
        let zeros = self.zeros.clone();
        self.records(|it, body, turn| {
            let base = if turn == 0 { Base::default() } else { it.longest(context, 1) };
            it.begin(body, context, base, &zeros)
        })
    }

    /// Each generation has all of the ring before it.
    fn primed(&mut self) -> Vec<u8> {
        let context = (self.bodies / 5 % u64::from(CONTEXTS)) as u8;
        let small = self.small.clone();
        self.records(|it, body, _| {
            let base = it.longest(context, RING_BYTES as u32);
            it.begin(body, context, base, &small)
        })
    }

    /// Each batch stands alone, and has a generation of its own, with as long a base as there is.
    fn primed_alone(&mut self) -> Vec<u8> {
        let context = (self.bodies / 5 % u64::from(CONTEXTS)) as u8;
        let small = self.small_alone.clone();
        let base_len_max = SPEC.alone_base_len_max();
        self.records(|it, body, turn| {
            let base = it.longest(context, base_len_max);
            let (generation, number) = it.next(context, true);
            let base = StartBase::Ring { offset: base.offset, len: base.len };
            let codec = CODEC_ZSTD;
            let start = Some(Start { codec, window_log: RING_LOG, base });
            let alone = Some(Alone { distance: 0, keeps: turn % 2 == 1 });
            let half = &mut it.halves[usize::from(context)];
            half.offset += u64::from(small.original_len);
            half.behind = RING_BYTES.min(half.behind + u64::from(small.original_len));
            it.write(body, (context, generation, number), (start, alone), &small)
        })
    }

    fn any_alone(&mut self, start: Option<Start>) -> Option<Alone> {
        // What can't be parsed does no harm.
        let may_keep = start.is_some_and(|it| matches!(it.base, StartBase::Ring { .. }));
        let distances = [0, 1, RING_BYTES as u32, u32::MAX, self.rng.next_u64() as u32];
        let distance = distances[self.rng.below(5) as usize];
        let alone = Alone { distance, keeps: may_keep && self.rng.chance(0.5) };
        self.rng.chance(0.5).then_some(alone)
    }

    fn longest(&self, context: u8, most: u32) -> Base {
        let half = self.halves[usize::from(context)];
        Base { offset: half.offset, len: (half.behind as u32).min(most) }
    }

    /// Numbers and generations far ahead, behind, around the end, twice; records that wait for what is
    /// never sent.
    pub(crate) fn numbers(&mut self) -> Vec<u8> {
        self.bodies += 1;
        let context = self.rng.below(u64::from(CONTEXTS)) as u8;
        if self.bodies.is_multiple_of(4) {
            return self.records(|it, body, _| {
                let context = it.rng.below(256) as u8;
                let (present, number) = it.next(context, false);
                let far = [0, 1, 127, 128, 129, 255, it.rng.next_u64() as u8];
                let generation = present.wrapping_add(far[it.rng.below(7) as usize]);
                let far = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, it.rng.next_u64() as u16];
                let number = number.wrapping_add(far[it.rng.below(7) as usize]);
                let data = it.small.data.clone();
                let content = match it.rng.below(3) {
                    0 => ContextBody::Raw(&it.packet[..28]),
                    _ => {
                        let (original_len, headers) = (it.small.original_len, Headers::Plain);
                        let (start, alone) = (None, it.any_alone(None));
                        ContextBody::Batch { start, alone, headers, original_len, data: &data }
                    }
                };
                body.context(&ContextRecord { context, generation, number, body: content }).is_ok()
            });
        }
        // As many bytes as a datagram holds, behind a number that never comes.
        let half = &mut self.halves[usize::from(context)];
        half.number += if self.bodies.is_multiple_of(1_000) { 2 } else { 1 };
        let (generation, number) = (half.generation, half.number as u16);
        let mut noise = vec![0; self.body_bytes_max - 100];
        self.rng.fill(&mut noise);
        let original_len = BATCH_BYTES_MAX as u16;
        let (start, alone, headers) = (None, None, Headers::Plain);
        let content = ContextBody::Batch { start, alone, headers, original_len, data: &noise };
        let record = ContextRecord { context, generation, number, body: content };
        write_within(self.body_bytes_max, |body| body.context(&record).is_ok())
    }

    /// In every context a generation that ends with its first batch: the relay reports each at once.
    pub(crate) fn losses(&mut self) -> Vec<u8> {
        let broken = Batch { original_len: 1, data: vec![0xff] };
        self.records(|it, body, turn| {
            let is_known = turn < usize::from(CONTEXTS);
            is_known && it.begin(body, turn as u8, Base::default(), &broken)
        })
    }

    /// Batches that restore to most bytes, and those that cost most for each of theirs.
    pub(crate) fn bombs(&mut self) -> Vec<u8> {
        self.bodies += 1;
        let context = (self.bodies % u64::from(CONTEXTS)) as u8;
        let zeros = self.zeros.clone();
        match self.bodies % 3 {
            0 => self.records(|it, body, turn| {
                let longest = it.longest(context, RING_BYTES as u32);
                let base = if turn == 0 { Base::default() } else { longest };
                it.begin(body, context, base, &zeros)
            }),
            // More comes out than is declared.
            1 => self.records(|it, body, _| {
                let less = Batch { original_len: it.rng.below(65_000) as u16 | 1, ..zeros.clone() };
                it.begin(body, context, Base::default(), &less)
            }),
            _ => {
                let costly = std::mem::take(&mut self.costly);
                let written = self.records(|it, body, turn| match costly.get(turn) {
                    Some(first) if turn == 0 => it.begin(body, context, Base::default(), first),
                    Some(batch) => it.go_on(body, context, batch),
                    None => false,
                });
                self.costly = costly;
                written
            }
        }
    }

    /// As many records as there is room for. `write` is given the number of each in the body, and
    /// returns false if it found none.
    fn records(
        &mut self,
        mut write: impl FnMut(&mut Self, &mut BodyWriter<'_>, usize) -> bool,
    ) -> Vec<u8> {
        let mut bytes = vec![0; self.body_bytes_max];
        let mut body = BodyWriter::new(&mut bytes);
        let mut turn = 0;
        loop {
            // What finds no room has not been sent.
            let before = self.halves.clone();
            if !write(self, &mut body, turn) {
                self.halves = before;
                break;
            }
            turn += 1;
        }
        let len = body.len();
        bytes.truncate(len);
        bytes
    }

    /// The generation and the number of the next record.
    fn next(&mut self, context: u8, is_start: bool) -> (u8, u16) {
        let Some(half) = self.halves.get_mut(usize::from(context)) else { return (1, 1) };
        half.generation = half.generation.wrapping_add(u8::from(is_start));
        half.number += 1;
        (half.generation, (half.number - 1) as u16)
    }

    fn begin(&mut self, body: &mut BodyWriter<'_>, context: u8, base: Base, batch: &Batch) -> bool {
        let (generation, number) = self.next(context, true);
        let len = u64::from(batch.original_len);
        let half = &mut self.halves[usize::from(context)];
        let cut = half.offset - base.offset.min(half.offset);
        let kept = if base == Base::default() { 0 } else { half.behind.saturating_sub(cut) };
        (half.offset, half.behind) = (base.offset + len, (kept + len).min(RING_BYTES));
        let (codec, window_log) = (CODEC_ZSTD, RING_LOG);
        let base = StartBase::Ring { offset: base.offset, len: base.len };
        let start = Start { codec, window_log, base };
        self.write(body, (context, generation, number), (Some(start), None), batch)
    }

    fn go_on(&mut self, body: &mut BodyWriter<'_>, context: u8, batch: &Batch) -> bool {
        let (generation, number) = self.next(context, false);
        let half = &mut self.halves[usize::from(context)];
        half.offset += u64::from(batch.original_len);
        self.write(body, (context, generation, number), (None, None), batch)
    }

    fn write(
        &self,
        body: &mut BodyWriter<'_>,
        (context, generation, number): (u8, u8, u16),
        (start, alone): (Option<Start>, Option<Alone>),
        batch: &Batch,
    ) -> bool {
        let (original_len, data) = (batch.original_len, &batch.data[..]);
        let headers = Headers::Plain;
        let content = ContextBody::Batch { start, alone, headers, original_len, data };
        body.context(&ContextRecord { context, generation, number, body: content }).is_ok()
    }
}

/// These batches as one generation, from nothing; as many of them as could be compressed.
fn compressed(contents: &[Vec<u8>]) -> Vec<Batch> {
    let Ok(mut encoder) = ContextEncoder::new(SPEC, RING_LOG) else { return Vec::new() };
    let one = |content: &Vec<u8>| {
        let mut data = Vec::new();
        encoder.compress(content, &mut data).ok()?;
        Some(Batch { original_len: u16::try_from(content.len()).ok()?, data })
    };
    contents.iter().map_while(one).collect()
}

/// A batch that stands alone, and refers to nothing: it decodes with any base.
fn alone(content: &[u8]) -> Option<Batch> {
    let mut encoder = ContextEncoder::new(SPEC, RING_LOG).ok()?;
    encoder.begin_alone(SPEC, Base::default(), false).ok()?;
    let mut data = Vec::new();
    encoder.compress_alone(content, &mut data).ok()?;
    Some(Batch { original_len: u16::try_from(content.len()).ok()?, data })
}

/// Packets whose contents are words of a few bytes from all over each other, so that zstd writes a
/// short reference for each: that costs most time for a byte that is sent.
fn costly(rng: &mut Rng, addresses: Addresses) -> Vec<Vec<u8>> {
    let mut words = vec![0; COSTLY_BYTES];
    rng.fill(&mut words);
    words.iter_mut().for_each(|byte| *byte &= 3);
    let mut batch = |packets: usize| {
        let mut payload = || {
            let mut payload = Vec::with_capacity(PAYLOAD_BYTES);
            while payload.len() < PAYLOAD_BYTES {
                let from = rng.below(COSTLY_BYTES as u64 - 8) as usize;
                payload.extend_from_slice(&words[from..from + 8]);
            }
            udp_packet(addresses, &payload)
        };
        (0..packets).flat_map(|_| payload()).collect()
    };
    (0..8).map(|turn| batch(if turn == 0 { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use dwell_codec::ContextDecoder;
    use dwell_wire::{Record, Records};

    use super::*;

    const ADDRESSES: Addresses =
        Addresses { from: Ipv4Addr::new(10, 3, 0, 2), to: Ipv4Addr::new(10, 2, 0, 2) };

    fn hostile() -> HostileContexts {
        HostileContexts::new(1, ADDRESSES, 1_400)
    }

    /// Decodes the bodies' records of a context as a relay does; returns how many did and did not, and the
    /// bytes of those that did.
    fn decode(context: u8, bodies: &[Vec<u8>]) -> (u32, u32, usize) {
        let mut decoder = ContextDecoder::new(RING_LOG);
        let (mut good, mut bad, mut bytes) = (0, 0, 0);
        let mut out = vec![0; BATCH_BYTES_MAX];
        for record in bodies.iter().flat_map(|body| Records::new(body)) {
            let Ok(Record::Context(record)) = record else { panic!("{record:?}") };
            let ContextBody::Batch { start, original_len, data, .. } = record.body else {
                continue;
            };
            if record.context != context {
                continue;
            }
            if let Some(Start { window_log, base: StartBase::Ring { offset, len }, .. }) = start {
                let _ = decoder.begin(window_log, Base { offset, len });
            }
            let is_good = decoder.decode(data, &mut out[..usize::from(original_len)]).is_ok();
            *(if is_good { &mut good } else { &mut bad }) += 1;
            bytes += if is_good { usize::from(original_len) } else { 0 };
        }
        (good, bad, bytes)
    }

    #[test]
    fn generations_begin_from_all_of_the_ring_and_in_every_context() {
        let mut hostile = hostile();
        let mut bodies = vec![hostile.fill()];
        assert_eq!(hostile.longest(0, u32::MAX).len, RING_BYTES as u32, "it is full");
        bodies.push(hostile.primed());
        let (good, bad, bytes) = decode(0, &bodies);
        assert!(good > 30 && bad == 0 && bytes > RING_BYTES as usize, "{good}, {bad}, {bytes}");
        let mut contexts = std::collections::BTreeSet::new();
        for _ in 0..250 {
            let body = hostile.starts();
            assert!(body.len() > 1_200, "{}", body.len());
            for record in Records::new(&body) {
                let Ok(Record::Context(record)) = record else { panic!("{record:?}") };
                assert!(record.start().is_some());
                contexts.insert(record.context);
            }
        }
        assert_eq!(contexts.len(), 256, "the offer is of 255 at most");
    }

    #[test]
    fn generations_whose_batches_stand_alone_begin_from_a_long_base_and_decode() {
        let mut hostile = hostile();
        let mut decoder = ContextDecoder::new(RING_LOG);
        let mut out = vec![0; BATCH_BYTES_MAX];
        let body = hostile.fill();
        let starts = Records::new(&body).flatten();
        for record in starts {
            let Record::Context(record) = record else { panic!("{record:?}") };
            let ContextBody::Batch { start, original_len, data, .. } = record.body else {
                panic!()
            };
            if let Some(Start { window_log, base: StartBase::Ring { offset, len }, .. }) = start {
                decoder.begin(window_log, Base { offset, len }).unwrap();
            }
            decoder.decode(data, &mut out[..usize::from(original_len)]).unwrap();
        }
        let body = hostile.primed_alone();
        let mut count = 0;
        for record in Records::new(&body) {
            let Ok(Record::Context(record)) = record else { panic!("{record:?}") };
            let ContextBody::Batch { start, alone: Some(alone), original_len, data, .. } =
                record.body
            else {
                panic!("{record:?}")
            };
            let Some(Start { window_log, base: StartBase::Ring { offset, len }, .. }) = start
            else {
                panic!("{record:?}")
            };
            assert_eq!(len, SPEC.alone_base_len_max());
            let base = Base { offset, len };
            decoder.begin_alone(record.generation, (window_log, base), alone.keeps).unwrap();
            let out = &mut out[..usize::from(original_len)];
            decoder.decode_alone(record.generation, alone.distance, data, out).unwrap();
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn a_bomb_restores_to_hundreds_of_times_its_length() {
        let mut hostile = hostile();
        let bodies: Vec<_> = (0..48).map(|_| hostile.bombs()).collect();
        let of_context: Vec<_> = (0..CONTEXTS).map(|context| decode(context, &bodies)).collect();
        let sum = |of: fn(&(u32, u32, usize)) -> usize| of_context.iter().map(of).sum::<usize>();
        let (good, bad, bytes) = (sum(|it| it.0 as usize), sum(|it| it.1 as usize), sum(|it| it.2));
        assert!(good > 300 && bad > 100, "{good} decode, and {bad} declare less than they hold");
        assert!(bytes > 16 * 800 * 1_400, "{bytes}");
    }

    #[test]
    fn numbers_are_wrong_in_every_way_and_leave_gaps() {
        let mut hostile = hostile();
        for _ in 0..100 {
            let body = hostile.numbers();
            assert!(Records::new(&body).all(|record| matches!(record, Ok(Record::Context(_)))));
        }
    }
}
