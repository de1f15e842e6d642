//! Batches that stand alone, as the receiving end decodes them.

use std::collections::VecDeque;

use crate::error::DecodeError;
use crate::id::CodecId;
use crate::zstd::PrimedDecoder;

/// Generations whose batches can be decoded: what is sent again may come when others have begun since.
const GENERATIONS_MAX: usize = 4;

/// A generation.
struct Generation {
    name: u8,
    /// The bytes that its batches refer to, and the offset behind them.
    base: Vec<u8>,
    offset: u64,
    /// Of which ring its places are: how often that was cut before.
    cut: u64,
}

/// Decodes the batches of the latest generations.
pub(super) struct AloneDecoder {
    decoder: PrimedDecoder,
    /// The oldest first.
    generations: VecDeque<Generation>,
}

impl AloneDecoder {
    pub(super) fn new() -> Result<Self, DecodeError> {
        let decoder = PrimedDecoder::new().ok_or(DecodeError::OutOfMemory(CodecId::Zstd))?;
        Ok(Self { decoder, generations: VecDeque::new() })
    }

    fn position(&self, name: u8) -> Option<usize> {
        self.generations.iter().position(|it| it.name == name)
    }

    pub(super) fn has(&self, name: u8) -> bool {
        self.position(name).is_some()
    }

    /// Begins a generation; the oldest makes room. `fill` writes the bytes of its base.
    pub(super) fn begin(
        &mut self,
        name: u8,
        (offset, cut): (u64, u64),
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        self.generations.retain(|it| it.name != name);
        let mut base = Vec::new();
        if self.generations.len() == GENERATIONS_MAX {
            base = self.generations.pop_front().map(|oldest| oldest.base).unwrap_or_default();
        }
        base.clear();
        fill(&mut base);
        self.generations.push_back(Generation { name, base, offset, cut });
    }

    /// Decodes a batch, which must be exactly as long as `dst`. Returns the offset of its generation's
    /// base, and of which ring its place is.
    pub(super) fn decode(
        &mut self,
        name: u8,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<(u64, u64), DecodeError> {
        let at = self.position(name).ok_or(DecodeError::NoGeneration)?;
        let generation = &self.generations[at];
        let decoded = match src.is_empty() || dst.is_empty() {
            true => Err(DecodeError::Corrupt(CodecId::Zstd)),
            false => self.decoder.decompress(&generation.base, src, dst),
        };
        match decoded {
            Ok(()) => Ok((generation.offset, generation.cut)),
            Err(reason) => {
                // Its base is not that of the sender.
                self.generations.remove(at);
                Err(reason)
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let bases: usize = self.generations.iter().map(|it| it.base.capacity()).sum();
        self.decoder.memory_bytes() + bases
    }
}
