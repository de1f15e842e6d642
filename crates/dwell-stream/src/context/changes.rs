//! How often a running context may get another model (`docs/stream-wire.md`, section 4).

use dwell_codec::ModelSpec;

use crate::frame::Coder;

/// So much of the stream's data lies between the beginnings of two generations with another model each, at least: to make
/// room for a model takes up to a millisecond where the allocator has to clear it, and may be asked for by a block of
/// one byte. So much data takes a receiver longer to take apart, to check and to pass on, even if it is all alike and
/// hardly a few bytes on the way, where large blocks are given back to the system (`give_back_large`), and longer to decode from a model.
pub(crate) const CHANGE_LEN_MIN: u64 = 64 << 10;

/// The models that the context of a stream has had. It outlives the context, which may be dropped after any block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelChanges {
    /// That of the present generation, if it has one.
    present: Option<ModelSpec>,
    /// Another one may come with a block that begins here in the stream's data, or later.
    next_at: u64,
}

impl ModelChanges {
    /// Returns true if a generation may begin with a block that begins at this place of the stream's data.
    pub(crate) fn allows(&self, at: u64, coder: Coder) -> bool {
        !self.is_another(coder) || at >= self.next_at
    }

    /// Notes that one has begun there.
    pub(crate) fn began(&mut self, at: u64, coder: Coder) {
        if self.is_another(coder) {
            self.next_at = at.saturating_add(CHANGE_LEN_MIN);
        }
        self.present = match coder {
            Coder::Model(spec) => Some(spec),
            Coder::Zstd(_) => None,
        };
    }

    /// Notes that the context was dropped.
    pub(crate) fn dropped(&mut self) {
        self.present = None;
    }

    fn is_another(&self, coder: Coder) -> bool {
        matches!(coder, Coder::Model(spec) if self.present != Some(spec))
    }
}

#[cfg(test)]
mod tests {
    use dwell_codec::{MixSpec, PpmSpec};

    use super::*;

    const fn ppm(order: u8, memory_log: u8) -> Coder {
        Coder::Model(ModelSpec::Ppm(PpmSpec { order, memory_log }))
    }

    const fn mix(memory_log: u8) -> Coder {
        Coder::Model(ModelSpec::Mix(MixSpec { memory_log }))
    }

    /// Begins a generation if it may.
    fn begin(changes: &mut ModelChanges, at: u64, coder: Coder) -> bool {
        let may = changes.allows(at, coder);
        if may {
            changes.began(at, coder);
        }
        may
    }

    #[test]
    fn another_model_waits_for_64_kib_and_the_same_for_nothing() {
        for other in [ppm(7, 20), ppm(6, 21), mix(20)] {
            let mut changes = ModelChanges::default();
            assert!(begin(&mut changes, 5, ppm(6, 20)), "the first, wherever it is");
            assert!(begin(&mut changes, 6, ppm(6, 20)) && begin(&mut changes, 7, ppm(6, 20)));
            assert!(!begin(&mut changes, 8, other));
            assert!(!begin(&mut changes, 4 + CHANGE_LEN_MIN, other));
            assert!(begin(&mut changes, 5 + CHANGE_LEN_MIN, other));
            assert!(!begin(&mut changes, 6 + CHANGE_LEN_MIN, ppm(6, 20)));
            assert!(begin(&mut changes, 6 + CHANGE_LEN_MIN, other));
        }
    }

    #[test]
    fn after_zstd_or_nothing_the_same_model_is_another_one() {
        let mut changes = ModelChanges::default();
        assert!(begin(&mut changes, 0, Coder::Zstd(17)) && begin(&mut changes, 1, ppm(6, 20)));
        assert!(begin(&mut changes, 2, Coder::Zstd(17)) && begin(&mut changes, 3, Coder::Zstd(16)));
        assert!(!begin(&mut changes, CHANGE_LEN_MIN, ppm(6, 20)));
        assert!(begin(&mut changes, 1 + CHANGE_LEN_MIN, ppm(6, 20)));
        changes.dropped();
        assert!(!begin(&mut changes, 2 + CHANGE_LEN_MIN, ppm(6, 20)));
        assert!(begin(&mut changes, 1 + 2 * CHANGE_LEN_MIN, ppm(6, 20)));
    }
}
