//! The running context of a stream (`docs/stream-wire.md`, section 4): what each end holds of it.

mod changes;

use dwell_codec::{
    Base, CodecError, CodecId, CodecSpec, ContextDecoder, ContextEncoder, ContextSpec,
    MODEL_RECORD_LEN_MAX, ModelSpec,
};

use crate::config::{check_model, check_window, model};
use crate::error::{ConfigError, StreamError};
use crate::frame::{Coder, Generation, MIX_LEN_PART, PART_HEADER_LEN, ROOM};
pub(crate) use changes::ModelChanges;

/// The longest base of a generation by its level, in bytes: to prime the codec's tables with it takes longer, the
/// better these are looked through.
const BASES: [(i32, u32); 3] = [(4, 4 << 20), (12, 2 << 20), (15, 1 << 20)];
const BASE_LEN_MIN: u32 = 256 << 10;
/// The longest window of a generation by its level, as a binary logarithm: the tables of fast levels remember few places, so that a
/// longer one takes up to a fifth more time (it is in no cache) and saves nothing, or costs bytes (a match from afar is a long offset).
const WINDOW_LOGS: [(i32, u8); 1] = [(3, 21)];
/// The level of an encoder until its first generation begins: any.
const LEVEL_AT_FIRST: i32 = 1;

/// The place of a block in its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Its number.
    pub(crate) index: u64,
    /// The number of bytes of data before it.
    pub(crate) start: u64,
}

/// The context of a sender.
#[derive(Debug)]
pub(crate) struct SenderContext {
    window_log: u8,
    /// The binary logarithm of a model's memory.
    model_log: u8,
    /// None before the first block, and while a job has it.
    encoder: Option<Box<ContextEncoder>>,
    /// The codec of the present generation; none if there is none.
    codec: Option<CodecSpec>,
    is_out: bool,
    /// The bytes that went through since the generation began.
    through: u64,
    changes: ModelChanges,
    /// Blocks with lower numbers come too late.
    next_index: u64,
    /// It has failed, and is not tried again.
    has_failed: bool,
}

impl SenderContext {
    /// Makes a context that holds nothing yet.
    pub(crate) fn new(window_log: u8, model_log: u8) -> Self {
        Self {
            window_log,
            model_log,
            encoder: None,
            codec: None,
            is_out: false,
            through: 0,
            changes: ModelChanges::default(),
            next_index: 0,
            has_failed: false,
        }
    }

    /// Makes one that comes after others, which had these models, for blocks from this number on.
    pub(crate) fn going_on(
        window_log: u8,
        model_log: u8,
        changes: ModelChanges,
        next_index: u64,
    ) -> Self {
        Self { changes, next_index, ..Self::new(window_log, model_log) }
    }

    /// Returns the models that it and those before it had, now that it is dropped.
    pub(crate) fn changes_without(mut self) -> ModelChanges {
        self.changes.dropped();
        self.changes
    }

    /// Returns true if a block can go through it now, with this codec.
    pub(crate) fn takes(&self, block: Position, codec: CodecSpec) -> bool {
        let is_its_turn = !self.is_out && !self.has_failed && block.index >= self.next_index;
        is_its_turn && self.changes.allows(block.start, self.coder(codec))
    }

    /// Returns the codec as generations have it.
    fn coder(&self, codec: CodecSpec) -> Coder {
        match model(codec, self.model_log) {
            Some(spec) => Coder::Model(spec),
            None => Coder::Zstd(self.zstd_window_log(codec.level)),
        }
    }

    /// Returns the codec of the present generation; none if there is none.
    pub(crate) const fn codec(&self) -> Option<CodecSpec> {
        self.codec
    }

    /// Returns the length of its window, in bytes.
    pub(crate) const fn window_len(&self) -> usize {
        1 << self.window_log
    }

    /// Returns true if it is with a job.
    pub(crate) const fn is_out(&self) -> bool {
        self.is_out
    }

    /// Gives itself to a job for a block that it takes.
    pub(crate) fn lend(&mut self, block: Position, codec: CodecSpec) -> Lent {
        let begins = match (&self.encoder, self.codec) {
            (Some(_), Some(present)) if present == codec => None,
            (Some(_), Some(_)) => Some(self.base_len(codec)),
            _ => Some(0),
        };
        let coder = self.coder(codec);
        if begins.is_some() {
            self.through = 0;
            self.changes.began(block.start, coder);
        }
        (self.codec, self.is_out, self.next_index) = (Some(codec), true, block.index + 1);
        let (level, window_log) = (codec.level, self.window_log);
        Lent { encoder: self.encoder.take(), coder, level, window_log, begins, has_begun: false }
    }

    /// Returns the window of a generation with this level, as a binary logarithm.
    fn zstd_window_log(&self, level: i32) -> u8 {
        let most = WINDOW_LOGS.iter().find(|(up_to, _)| level <= *up_to);
        most.map_or(self.window_log, |(_, log)| self.window_log.min(*log))
    }

    /// Returns what a new generation begins from.
    fn base_len(&self, codec: CodecSpec) -> u32 {
        let most = match self.coder(codec) {
            Coder::Model(spec) => spec.prime_len_max() as u32,
            Coder::Zstd(window_log) => {
                let most = BASES.iter().find(|(up_to, _)| codec.level <= *up_to);
                most.map_or(BASE_LEN_MIN, |(_, len)| *len).min(1 << window_log)
            }
        };
        u32::try_from(self.through).map_or(most, |through| through.min(most))
    }

    /// Notes that the job goes on with so many blocks.
    pub(crate) const fn goes_on(&mut self, blocks: usize) {
        self.next_index += blocks as u64;
    }

    /// Takes itself back after blocks of this length.
    pub(crate) fn returned(&mut self, lent: Lent, len: usize) {
        self.is_out = false;
        self.has_failed = lent.encoder.is_none();
        self.encoder = lent.encoder;
        self.through += len as u64;
    }

    /// Drops all that it holds.
    pub(crate) fn forget(&mut self) {
        (self.encoder, self.codec, self.through) = (None, None, 0);
        self.changes.dropped();
    }
}

/// The context while a job has it.
#[derive(Debug)]
pub(crate) struct Lent {
    /// None before the first block, and after a failure.
    encoder: Option<Box<ContextEncoder>>,
    coder: Coder,
    /// Of zstd.
    level: i32,
    window_log: u8,
    /// The length of the base, if a generation begins.
    begins: Option<u32>,
    /// It was begun, or could not be.
    has_begun: bool,
}

impl Lent {
    /// Returns the generation that begins, if one does.
    pub(crate) fn begins(&self) -> Option<Generation> {
        self.begins.map(|base_len| Generation { coder: self.coder, base_len })
    }

    /// Returns the binary logarithm of its model's memory, if it has one.
    pub(crate) fn model_memory_log(&self) -> Option<u8> {
        match self.coder {
            Coder::Model(spec) => Some(spec.memory_log()),
            Coder::Zstd(_) => None,
        }
    }

    /// Returns true if the time that it takes says nothing of the codec: its tables are primed first.
    pub(crate) fn is_primed(&self) -> bool {
        self.begins.is_some_and(|base_len| base_len > 0)
    }

    /// Compresses a block to any length, after `ROOM` bytes for a header. None if it can't: then there is no context
    /// any more.
    pub(crate) fn compress(&mut self, src: &[u8], scratch: &mut Vec<u8>) -> Option<Vec<u8>> {
        // It failed on the block before, and the other end has none that goes on with nothing.
        if self.encoder.is_none() && (self.has_begun || self.begins.is_none()) {
            return None;
        }
        let mut encoder = self.begun().ok()?;
        scratch.clear();
        match self.coder {
            Coder::Zstd(_) => encoder.compress(src, scratch).ok()?,
            Coder::Model(spec) => compress_parts(&mut encoder, spec, src, scratch).ok()?,
        }
        self.encoder = Some(encoder);
        // Allocated with its true length, because results wait in the sender's buffer and are counted there.
        let mut payload = Vec::with_capacity(ROOM + scratch.len());
        payload.resize(ROOM, 0);
        payload.extend_from_slice(scratch);
        Some(payload)
    }

    /// Returns the encoder, in the generation that the block belongs to.
    fn begun(&mut self) -> Result<Box<ContextEncoder>, CodecError> {
        let window_log = self.window_log;
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => {
                let spec = ContextSpec { level: LEVEL_AT_FIRST, window_log };
                Box::new(ContextEncoder::new(spec, window_log)?)
            }
        };
        if let Some(len) = self.begins.filter(|_| !self.has_begun) {
            self.has_begun = true;
            let base = Base { offset: encoder.offset(), len };
            match self.coder {
                Coder::Zstd(window_log) => {
                    encoder.begin(ContextSpec { level: self.level, window_log }, base)?;
                }
                Coder::Model(spec) => encoder.begin_model(spec, base)?,
            }
        }
        Ok(encoder)
    }
}

/// Compresses a block with a model, which takes it in parts. The receiver of a mixed one may ask for more bytes than they take.
fn compress_parts(
    encoder: &mut ContextEncoder,
    spec: ModelSpec,
    src: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    for part in src.chunks(MODEL_RECORD_LEN_MAX) {
        let at = out.len();
        out.extend_from_slice(&[0; PART_HEADER_LEN]);
        encoder.compress(part, out)?;
        // From 1 to the part's own length.
        let len = (out.len() - at - PART_HEADER_LEN - 1) as u16;
        out[at..at + PART_HEADER_LEN].copy_from_slice(&len.to_be_bytes());
    }
    if matches!(spec, ModelSpec::Mix(_)) {
        out.resize(out.len().max(src.len().div_ceil(MIX_LEN_PART)), 0);
    }
    Ok(())
}

/// The most that the preamble of a stream, or who grants it, allows a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextLimits {
    /// The binary logarithm of its longest window.
    pub(crate) window_log: u8,
    /// The same of the memory of a model, in bytes; 0 if there is to be none.
    pub(crate) model_log: u8,
}

impl ContextLimits {
    /// Reads what is granted.
    pub(crate) fn from_wire([window_log, model_log]: [u8; 2]) -> Result<Self, StreamError> {
        let limits = Self { window_log, model_log };
        limits
            .check()
            .map(|()| limits)
            .map_err(|_| StreamError::Header("the grant of a context that cannot be"))
    }

    /// Checks that there can be such a context.
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        check_window(self.window_log)?;
        check_model(self.model_log)?;
        if self.window_log == 0 { Err(ConfigError::Window(0)) } else { Ok(()) }
    }
}

/// The context of a receiver, which holds nothing before the first block.
#[derive(Debug, Default)]
pub(crate) struct ReceiverContext {
    decoder: Option<Box<ContextDecoder>>,
    /// The bytes that went through since the generation began.
    through: u64,
    changes: ModelChanges,
}

impl ReceiverContext {
    /// Decodes a block of exactly the length of `dst`, which begins a generation or goes on with one, and is at `start`
    /// in the stream's data.
    ///
    /// A base is no longer than what went through since the last one was read: so reading bases costs no more than
    /// a copy of what comes, and learning them no more than to decode it once more.
    pub(crate) fn decode(
        &mut self,
        limits: ContextLimits,
        (start, codec, begins): (u64, CodecId, Option<Generation>),
        payload: &[u8],
        dst: &mut [u8],
    ) -> Result<(), StreamError> {
        if let Some(generation) = begins {
            self.begin(limits, start, generation)?;
        }
        let Some(decoder) = &mut self.decoder else {
            return Err(StreamError::Header(
                "a block that goes on with a context that is not there",
            ));
        };
        if decoder.model_codec() != (codec != CodecId::Zstd).then_some(codec) {
            return Err(StreamError::Header(
                "a block that goes on with a context of another codec",
            ));
        }
        match codec {
            CodecId::Ppm | CodecId::Mix => decode_parts(decoder, codec, payload, dst)?,
            _ => decoder.decode(payload, dst)?,
        }
        self.through += dst.len() as u64;
        Ok(())
    }

    fn begin(
        &mut self,
        limits: ContextLimits,
        start: u64,
        generation: Generation,
    ) -> Result<(), StreamError> {
        if !self.changes.allows(start, generation.coder) {
            return Err(StreamError::Header("another model too soon after the one before"));
        }
        if u64::from(generation.base_len) > self.through {
            return Err(StreamError::Header("a context that begins from more than there was"));
        }
        let new = || Box::new(ContextDecoder::new(limits.window_log));
        let decoder = self.decoder.get_or_insert_with(new);
        let base = Base { offset: decoder.offset(), len: generation.base_len };
        match generation.coder {
            Coder::Zstd(window_log) => decoder.begin(window_log, base)?,
            // Before anything is allocated for it.
            Coder::Model(spec) if spec.memory_log() > limits.model_log => {
                return Err(StreamError::Header("a model with more memory than was announced"));
            }
            Coder::Model(spec) => decoder.begin_model(spec, base)?,
        }
        self.through = 0;
        self.changes.began(start, generation.coder);
        Ok(())
    }

    /// Returns true if it is a model.
    pub(crate) fn has_model(&self) -> bool {
        self.decoder.as_ref().is_some_and(|decoder| decoder.has_model())
    }

    /// Returns true if it holds anything.
    pub(crate) const fn is_there(&self) -> bool {
        self.decoder.is_some()
    }

    /// Drops all that it holds.
    pub(crate) fn forget(&mut self) {
        (self.decoder, self.through) = (None, 0);
        self.changes.dropped();
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.decoder.as_ref().map_or(0, |decoder| decoder.memory_bytes())
    }
}

/// Decodes a block of a model, which comes in parts.
fn decode_parts(
    decoder: &mut ContextDecoder,
    codec: CodecId,
    mut payload: &[u8],
    dst: &mut [u8],
) -> Result<(), StreamError> {
    const CUT: StreamError =
        StreamError::Header("a block of a model whose parts are longer than it");
    let is_least = codec == CodecId::Mix && payload.len() == dst.len().div_ceil(MIX_LEN_PART);
    for part in dst.chunks_mut(MODEL_RECORD_LEN_MAX) {
        let (len, rest) = payload.split_first_chunk::<PART_HEADER_LEN>().ok_or(CUT)?;
        let len = usize::from(u16::from_be_bytes(*len)) + 1;
        let (record, rest) = rest.split_at_checked(len).ok_or(CUT)?;
        decoder.decode(record, part)?;
        payload = rest;
    }
    // What is missing to the least length are zeros.
    match payload.is_empty() || (is_least && payload.iter().all(|&byte| byte == 0)) {
        true => Ok(()),
        false => Err(StreamError::Header("a block of a model that is longer than its parts")),
    }
}

#[cfg(test)]
mod tests {
    use dwell_codec::{MIX_PRIME_LEN_MAX, MixSpec, PPM_PRIME_LEN_MAX, PpmSpec};

    use super::*;

    const WINDOW_LOG: u8 = 17;
    const MODEL_LOG: u8 = 21;
    const LIMITS: ContextLimits = ContextLimits { window_log: WINDOW_LOG, model_log: MODEL_LOG };

    fn zstd(level: i32) -> CodecSpec {
        CodecSpec { id: CodecId::Zstd, level }
    }

    fn ppm(order: i32) -> CodecSpec {
        CodecSpec { id: CodecId::Ppm, level: order }
    }

    const MIX: CodecSpec = CodecSpec::with_default_level(CodecId::Mix);

    const fn position(index: usize, start: usize) -> Position {
        Position { index: index as u64, start: start as u64 }
    }

    /// Sends blocks, each with a codec, through both ends; returns the lengths and bases.
    fn through(blocks: &[(&[u8], CodecSpec)]) -> Vec<(usize, Option<u32>)> {
        let (mut sender, mut receiver) =
            (SenderContext::new(WINDOW_LOG, MODEL_LOG), ReceiverContext::default());
        let mut scratch = Vec::new();
        let (mut found, mut start) = (Vec::new(), 0);
        for (index, &(block, codec)) in blocks.iter().enumerate() {
            let (here, next) = (position(index, start), position(index + 1, start + block.len()));
            assert!(sender.takes(here, codec));
            let mut lent = sender.lend(here, codec);
            assert!(!sender.takes(next, codec), "a job has it");
            let payload = lent.compress(block, &mut scratch).unwrap();
            let mut back = vec![0; block.len()];
            let begins = lent.begins();
            let header = (start as u64, codec.id, begins);
            receiver.decode(LIMITS, header, &payload[ROOM..], &mut back).unwrap();
            assert!(back == block);
            start += block.len();
            let most = (3 << WINDOW_LOG) + (1 << 19) + (1 << MODEL_LOG) + (192 << 10);
            assert!(receiver.memory_bytes() <= most, "{}", receiver.memory_bytes());
            sender.returned(lent, block.len());
            assert!(!sender.takes(here, codec), "it comes too late");
            found.push((payload.len() - ROOM, begins.map(|begins| begins.base_len)));
        }
        found
    }

    #[test]
    fn a_change_of_level_keeps_what_went_through() {
        let noise: Vec<u8> =
            (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let blocks = [(60_000, 1), (60_000, 1), (60_000, 6), (100, 19), (60_000, 1)];
        let found = through(&blocks.map(|(len, level)| (&noise[..len], zstd(level))));
        let bases: Vec<_> = found.iter().map(|(_, base)| *base).collect();
        assert_eq!(bases, [Some(0), None, Some(120_000), Some(60_000), Some(100)]);
        let half = found[0].0 / 2;
        assert!(found[1].0 < half && found[2].0 < half && found[3].0 < 50, "{found:?}");
    }

    #[test]
    fn noise_takes_a_little_more_than_its_length() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..1 << 16)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let found = through(&[(&noise, zstd(1)), (&noise[..1], zstd(1))]);
        let bound = dwell_codec::context_bound(noise.len());
        assert!(found[0].0 > noise.len() && found[0].0 <= bound, "{found:?}");
        let found = through(&[(&noise, ppm(6)), (&noise[..1], ppm(6))]);
        let lens: Vec<_> = found.iter().map(|(len, _)| *len).collect();
        assert_eq!(lens, [noise.len() + 4 * PART_HEADER_LEN, 1 + PART_HEADER_LEN]);
        let mixed = through(&[(&noise, MIX), (&noise[..1], MIX)]);
        assert!(mixed.iter().map(|(len, _)| *len).eq(lens));
    }

    #[test]
    fn a_model_takes_the_place_of_a_frame_and_the_other_way_round() {
        let text = "dwell compresses packets while they wait, and streams, too; ".repeat(1000);
        let text = text.as_bytes();
        let codecs = [zstd(1), ppm(6), ppm(6), MIX, MIX, ppm(12), zstd(19), MIX, zstd(1), ppm(2)];
        // Another model comes 64 KiB after the one before at the soonest.
        let text = text.repeat(2);
        let found = through(&codecs.map(|codec| (&text[..65_536], codec)));
        let bases: Vec<_> = found.iter().map(|(_, base)| *base).collect();
        let [ppm, mix] = [PPM_PRIME_LEN_MAX, MIX_PRIME_LEN_MAX].map(|len| Some(len as u32));
        let all = Some(65_536);
        assert_eq!(bases, [Some(0), ppm, None, mix, None, ppm, all, mix, all, ppm]);
        assert!(found.iter().all(|(len, _)| *len < 2000), "{found:?}");
    }

    /// A few bytes must not take the receiver as long as megabytes.
    #[test]
    fn what_mix_leaves_is_no_shorter_than_a_128th() {
        let (zeros, more) = ([0; 1 << 16], [0; 257]);
        let mixed = through(&[(&zeros, MIX), (&zeros, MIX), (&zeros, MIX), (&more, MIX)]);
        let lens: Vec<_> = mixed.iter().map(|(len, _)| *len).collect();
        assert!(lens[0] >= 512 && lens[1..3] == [512, 512] && lens[3] < 20, "{lens:?}");
        let by_ppm = through(&[(&zeros, ppm(6)), (&zeros, ppm(6)), (&zeros, ppm(6))]);
        assert!(by_ppm[2].0 < 40, "what any could leave: {by_ppm:?}");

        let (mut sender, mut scratch) = (SenderContext::new(WINDOW_LOG, MODEL_LOG), Vec::new());
        let mut lent = sender.lend(position(0, 0), MIX);
        let payload = lent.compress(&zeros, &mut scratch).unwrap();
        let mut lent = Lent { begins: None, ..lent };
        let next = lent.compress(&zeros, &mut scratch).unwrap();
        let decode = |change: fn(&mut Vec<u8>)| {
            let mut receiver = ReceiverContext::default();
            let begins = Some(Generation { coder: lent.coder, base_len: 0 });
            let mut decode = |begins, payload: &[u8]| {
                receiver.decode(LIMITS, (0, CodecId::Mix, begins), payload, &mut [9; 1 << 16])
            };
            decode(begins, &payload[ROOM..]).unwrap();
            let mut changed = next[ROOM..].to_vec();
            change(&mut changed);
            decode(None, &changed)
        };
        assert_eq!(decode(|_| {}), Ok(()));
        let changes: [fn(&mut Vec<u8>); 3] = [|it| it.push(0), |it| it[511] = 1, |it| it[400] = 1];
        for change in changes {
            let result = decode(change);
            assert!(matches!(result, Err(StreamError::Header(_))), "{result:?}");
        }
        // Zeros that are missing are found by the length in the header.
        let result = decode(|it| it.truncate(511));
        assert!(matches!(result, Err(StreamError::Header(_))), "{result:?}");
    }

    /// Blocks of one byte, each of which begins a generation, from both ends.
    #[test]
    fn another_model_waits_for_data() {
        let (mut sender, mut receiver) =
            (SenderContext::new(WINDOW_LOG, MODEL_LOG), ReceiverContext::default());
        let ppm_with = |order, memory_log| Coder::Model(PpmSpec { order, memory_log }.into());
        let mut decode = |start, coder: Coder| {
            let id = match coder {
                Coder::Model(spec) => spec.codec(),
                Coder::Zstd(_) => CodecId::Zstd,
            };
            let begins = Some(Generation { coder, base_len: 0 });
            receiver.decode(LIMITS, (start, id, begins), b"\0\0x", &mut [0])
        };
        assert_eq!(decode(0, ppm_with(6, 21)), Ok(()));
        for start in 1..1000 {
            assert_eq!(decode(start, ppm_with(6, 21)), Ok(()), "the same again");
        }
        let mix = Coder::Model(MixSpec { memory_log: 21 }.into());
        for other in [ppm_with(7, 21), ppm_with(6, 20), mix] {
            let result = decode(65_535, other);
            assert!(matches!(result, Err(StreamError::Header(_))), "{result:?}");
        }
        assert_eq!(decode(65_536, ppm_with(6, 20)), Ok(()));
        receiver.forget();
        let mut again = |start| {
            let begins = Some(Generation { coder: ppm_with(6, 20), base_len: 0 });
            receiver.decode(LIMITS, (start, CodecId::Ppm, begins), b"\0\0x", &mut [0]).is_ok()
        };
        assert!(!again(131_071) && again(131_072), "dropped, it is another one");

        let (first, later) = (position(0, 10), position(1, 65_545));
        let mut lent = sender.lend(first, ppm(6));
        assert!(lent.compress(b"x", &mut Vec::new()).is_some());
        sender.returned(lent, 1);
        assert!(!sender.takes(later, ppm(7)) && sender.takes(later, zstd(3)));
        assert!(!sender.takes(later, MIX));
        assert!(sender.takes(position(1, 65_546), ppm(7)));
        assert!(sender.takes(later, ppm(6)), "it goes on");
        sender.forget();
        assert!(!sender.takes(later, ppm(6)) && sender.takes(position(1, 65_546), ppm(6)));
    }

    #[test]
    fn a_receiver_reads_no_more_than_came() {
        let mut context = ReceiverContext::default();
        let mut dst = [0; 10];
        let zstd = |log, base_len| Some(Generation { coder: Coder::Zstd(log), base_len });
        let mut decode = |id, begins, payload: &[u8]| {
            context.decode(LIMITS, (0, id, begins), payload, &mut dst).is_ok()
        };
        assert!(!decode(CodecId::Zstd, None, &[0]), "nothing has begun");
        assert!(!decode(CodecId::Zstd, zstd(17, 1), &[0]), "no such base");
        assert!(!decode(CodecId::Zstd, zstd(18, 0), &[0]), "too long a window");
        assert!(!decode(CodecId::Zstd, zstd(3, 0), &[0]));
        assert!(!decode(CodecId::Zstd, zstd(17, 0), &[]));
        let ppm = |memory_log, base_len| {
            let coder = Coder::Model(PpmSpec { order: 6, memory_log }.into());
            Some(Generation { coder, base_len })
        };
        assert!(!decode(CodecId::Ppm, ppm(22, 0), &[0, 0, 0]), "too much memory");
        assert!(!decode(CodecId::Ppm, ppm(21, 1), &[0, 0, 0]), "no such base");
        let mix = |memory_log, base_len| {
            let coder = Coder::Model(MixSpec { memory_log }.into());
            Some(Generation { coder, base_len })
        };
        assert!(!decode(CodecId::Mix, mix(22, 0), &[0, 0, 0]), "too much memory");
        assert!(!decode(CodecId::Mix, mix(21, 1), &[0, 0, 0]), "no such base");
        assert!(context.memory_bytes() < 1 << 19);
        let mut decode = |id, begins, payload: &[u8]| {
            context.decode(LIMITS, (0, id, begins), payload, &mut dst).is_ok()
        };
        assert!(decode(CodecId::Ppm, ppm(21, 0), b"\0\x09as it is!!"));
        assert!(!decode(CodecId::Zstd, None, &[0]), "it is a model");
        assert!(!decode(CodecId::Mix, None, b"\0\x09as it is!!"), "of another codec");
        for payload in [&b""[..], b"\0", b"\0\0", b"\0\x09short", b"\0\x09as it is!!?"] {
            assert!(!decode(CodecId::Ppm, ppm(21, 0), payload), "{payload:?}");
        }
        assert!(context.memory_bytes() < (1 << MODEL_LOG) + (192 << 10) + (1 << 17));
    }

    #[test]
    fn after_a_failure_nothing_goes_on_with_it() {
        let (mut context, codec) =
            (SenderContext::new(20, 0), CodecSpec::with_default_level(CodecId::Zstd));
        let (block, mut scratch) = (b"A block that is compressed. ".repeat(100), Vec::new());
        let at = |index: u64| Position { index, start: index * block.len() as u64 };
        for failed_at in [0, 1] {
            let mut lent = context.lend(at(0), codec);
            assert!((0..failed_at).all(|_| lent.compress(&block, &mut scratch).is_some()));
            lent.has_begun = true;
            lent.encoder = None;
            assert!((0..3).all(|_| lent.compress(&block, &mut scratch).is_none()));
            context.returned(lent, 4 * block.len());
            assert!(!context.takes(at(9), codec));
            context = SenderContext::new(20, 0);
        }
    }
}
