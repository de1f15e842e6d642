//! The running context of a stream (`docs/stream-wire.md`, section 4): what each end holds of it.

use dwell_codec::{Base, CodecSpec, ContextDecoder, ContextEncoder, ContextSpec};

use crate::error::StreamError;
use crate::frame::{Generation, ROOM};

/// The longest base of a generation by its level, in bytes: to prime the codec's tables with it takes longer, the
/// better these are looked through.
const BASES: [(i32, u32); 3] = [(4, 4 << 20), (12, 2 << 20), (15, 1 << 20)];
const BASE_LEN_MIN: u32 = 256 << 10;

/// The context of a sender.
#[derive(Debug)]
pub(crate) struct SenderContext {
    window_log: u8,
    /// None before the first block, and while a job has it.
    encoder: Option<Box<ContextEncoder>>,
    /// The level of the present generation; none if there is none.
    level: Option<i32>,
    is_out: bool,
    /// The bytes that went through since the generation began.
    through: u64,
    /// Blocks with lower numbers come too late.
    next_index: u64,
    /// It has failed, and is not tried again.
    has_failed: bool,
}

impl SenderContext {
    /// Makes a context that holds nothing yet.
    pub(crate) const fn new(window_log: u8) -> Self {
        Self {
            window_log,
            encoder: None,
            level: None,
            is_out: false,
            through: 0,
            next_index: 0,
            has_failed: false,
        }
    }

    /// Returns true if the block with this number can go through it now.
    pub(crate) const fn takes(&self, index: u64) -> bool {
        !self.is_out && !self.has_failed && index >= self.next_index
    }

    /// Returns true if it is with a job.
    pub(crate) const fn is_out(&self) -> bool {
        self.is_out
    }

    /// Gives itself to a job for the block with this number, which it takes.
    pub(crate) fn lend(&mut self, index: u64, codec: CodecSpec) -> Lent {
        let begins = match (&self.encoder, self.level) {
            (Some(_), Some(level)) if level == codec.level => None,
            (Some(_), Some(_)) => Some(self.base_len(codec.level)),
            _ => Some(0),
        };
        if begins.is_some() {
            self.through = 0;
        }
        (self.level, self.is_out, self.next_index) = (Some(codec.level), true, index + 1);
        let spec = ContextSpec { level: codec.level, window_log: self.window_log };
        Lent { encoder: self.encoder.take(), spec, begins }
    }

    /// Returns what a new generation begins from.
    fn base_len(&self, level: i32) -> u32 {
        let most = BASES.iter().find(|(up_to, _)| level <= *up_to);
        let most = most.map_or(BASE_LEN_MIN, |(_, len)| *len).min(1 << self.window_log);
        u32::try_from(self.through).map_or(most, |through| through.min(most))
    }

    /// Takes itself back after a block of this length.
    pub(crate) fn returned(&mut self, lent: Lent, len: usize) {
        self.is_out = false;
        self.has_failed = lent.encoder.is_none();
        self.encoder = lent.encoder;
        self.through += len as u64;
    }

    /// Drops all that it holds.
    pub(crate) fn forget(&mut self) {
        (self.encoder, self.level, self.through) = (None, None, 0);
    }
}

/// The context while a job has it.
#[derive(Debug)]
pub(crate) struct Lent {
    /// None before the first block, and after a failure.
    encoder: Option<Box<ContextEncoder>>,
    spec: ContextSpec,
    /// The length of the base, if a generation begins.
    begins: Option<u32>,
}

impl Lent {
    /// Returns the generation that begins, if one does.
    pub(crate) fn begins(&self) -> Option<Generation> {
        let window_log = self.spec.window_log;
        self.begins.map(|base_len| Generation { window_log, base_len })
    }

    /// Returns true if the time that it takes says nothing of the codec: its tables are primed first.
    pub(crate) fn is_primed(&self) -> bool {
        self.begins.is_some_and(|base_len| base_len > 0)
    }

    /// Compresses a block to any length, after `ROOM` bytes for a header. None if it can't: then there is no context
    /// any more.
    pub(crate) fn compress(&mut self, src: &[u8], scratch: &mut Vec<u8>) -> Option<Vec<u8>> {
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => Box::new(ContextEncoder::new(self.spec, self.spec.window_log).ok()?),
        };
        if let Some(len) = self.begins {
            encoder.begin(self.spec, Base { offset: encoder.offset(), len }).ok()?;
        }
        scratch.clear();
        encoder.compress(src, scratch).ok()?;
        self.encoder = Some(encoder);
        // Allocated with its true length, because results wait in the sender's buffer and are counted there.
        let mut payload = Vec::with_capacity(ROOM + scratch.len());
        payload.resize(ROOM, 0);
        payload.extend_from_slice(scratch);
        Some(payload)
    }
}

/// The context of a receiver, which holds nothing before the first block.
#[derive(Debug, Default)]
pub(crate) struct ReceiverContext {
    decoder: Option<Box<ContextDecoder>>,
    /// The bytes that went through since the generation began.
    through: u64,
}

impl ReceiverContext {
    /// Decodes a block of exactly the length of `dst`, which begins a generation or goes on with one.
    ///
    /// A base is no longer than what went through since the last one was read: so reading bases costs no more than
    /// a copy of what comes.
    pub(crate) fn decode(
        &mut self,
        window_log: u8,
        begins: Option<Generation>,
        payload: &[u8],
        dst: &mut [u8],
    ) -> Result<(), StreamError> {
        if let Some(generation) = begins {
            if u64::from(generation.base_len) > self.through {
                return Err(StreamError::Header("a context that begins from more than there was"));
            }
            let decoder =
                self.decoder.get_or_insert_with(|| Box::new(ContextDecoder::new(window_log)));
            let base = Base { offset: decoder.offset(), len: generation.base_len };
            decoder.begin(generation.window_log, base)?;
            self.through = 0;
        }
        let Some(decoder) = &mut self.decoder else {
            return Err(StreamError::Header(
                "a block that goes on with a context that is not there",
            ));
        };
        decoder.decode(payload, dst)?;
        self.through += dst.len() as u64;
        Ok(())
    }

    /// Drops all that it holds.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.decoder.as_ref().map_or(0, |decoder| decoder.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use dwell_codec::CodecId;

    use super::*;

    const WINDOW_LOG: u8 = 17;

    fn zstd(level: i32) -> CodecSpec {
        CodecSpec { id: CodecId::Zstd, level }
    }

    /// Sends blocks, each with a level, through both ends; returns the lengths and bases.
    fn through(blocks: &[(&[u8], i32)]) -> Vec<(usize, Option<u32>)> {
        let (mut sender, mut receiver) =
            (SenderContext::new(WINDOW_LOG), ReceiverContext::default());
        let mut scratch = Vec::new();
        let mut found = Vec::new();
        for (index, &(block, level)) in blocks.iter().enumerate() {
            assert!(sender.takes(index as u64));
            let mut lent = sender.lend(index as u64, zstd(level));
            assert!(!sender.takes(index as u64 + 1), "a job has it");
            let payload = lent.compress(block, &mut scratch).unwrap();
            let mut back = vec![0; block.len()];
            let begins = lent.begins();
            receiver.decode(WINDOW_LOG, begins, &payload[ROOM..], &mut back).unwrap();
            assert!(back == block);
            sender.returned(lent, block.len());
            assert!(!sender.takes(index as u64), "it comes too late");
            found.push((payload.len() - ROOM, begins.map(|begins| begins.base_len)));
        }
        assert!(receiver.memory_bytes() <= (3 << WINDOW_LOG) + (1 << 19));
        found
    }

    #[test]
    fn a_change_of_level_keeps_what_went_through() {
        let noise: Vec<u8> =
            (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let found =
            through(&[(&noise, 1), (&noise, 1), (&noise, 6), (&noise[..100], 19), (&noise, 1)]);
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
        let found = through(&[(&noise, 1), (&noise[..1], 1)]);
        let bound = dwell_codec::context_bound(noise.len());
        assert!(found[0].0 > noise.len() && found[0].0 <= bound, "{found:?}");
    }

    #[test]
    fn a_receiver_reads_no_more_than_came() {
        let mut context = ReceiverContext::default();
        let mut dst = [0; 10];
        let generation = |window_log, base_len| Some(Generation { window_log, base_len });
        assert!(context.decode(17, None, &[0], &mut dst).is_err(), "nothing has begun");
        assert!(context.decode(17, generation(17, 1), &[0], &mut dst).is_err(), "no such base");
        assert!(
            context.decode(17, generation(18, 0), &[0], &mut dst).is_err(),
            "too long a window"
        );
        assert!(context.decode(17, generation(3, 0), &[0], &mut dst).is_err());
        assert!(context.decode(17, generation(17, 0), &[], &mut dst).is_err());
        assert!(context.memory_bytes() < 1 << 19);
    }
}
