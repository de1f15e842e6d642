//! A slow model that is tried beside what is sent.

use dwell_base::Instant;
use dwell_codec::{CodecSpec, MODEL_RECORD_LEN_MAX, ModelEncoder, ModelSpec};
use dwell_policy::method::TriedAside;

use crate::config::{MODEL_BESIDE_BYTES, model};

/// Shorter blocks say little, in bytes.
pub(crate) const TRIAL_LEN_MIN: usize = 32 << 10;
/// It takes no longer, even if others use the processor, too, in nanoseconds; a thin link needs as long for what TCP holds.
pub(crate) const TRIAL_NS_MAX: f64 = 2e8;
/// The binary logarithm of the memory of each model, in bytes: as much as a block fills.
const MEMORY_LOG: u8 = 22;
/// What it takes: the models are there one after the other.
pub(crate) const TRIAL_BYTES: u64 = (1 << MEMORY_LOG) + MODEL_BESIDE_BYTES;

/// Which is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// The codec, and the one of the stream.
    pub(crate) codecs: (CodecSpec, CodecSpec),
    /// The memory of either in the stream.
    pub(crate) memory_log: u8,
}

impl Trial {
    /// Compresses a block by both, and measures the time of the first.
    pub(crate) fn run(
        self,
        block: &[u8],
        mut clock: impl FnMut() -> Instant,
    ) -> Option<TriedAside<CodecSpec>> {
        let spec = |codec| Some(model(codec, self.memory_log)?.within(MEMORY_LOG));
        let with = left_by(spec(self.codecs.1)?, block)?;
        let begin = clock();
        let len = left_by(spec(self.codecs.0)?, block)?;
        let cost_ns = clock().since_ns(begin) as f64 / block.len() as f64;
        Some(TriedAside { codecs: self.codecs, lens: (len, with), cost_ns })
    }
}

/// Returns what a model that knows nothing leaves.
fn left_by(spec: ModelSpec, block: &[u8]) -> Option<usize> {
    let (mut encoder, mut out) = (ModelEncoder::new(spec).ok()?, Vec::new());
    for part in block.chunks(MODEL_RECORD_LEN_MAX) {
        encoder.compress(part, &mut out).ok()?;
    }
    Some(out.len())
}
