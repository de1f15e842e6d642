//! How fast this end restores what models have compressed.

/// What a byte is assumed to take before anything was measured, in nanoseconds: about as long as text and source code with a model of
/// order 4 on a usual processor. Where it takes longer that is known after the first batches; where it would take less, and this were
/// more, it would never be known, as no model would seem worth it.
const ASSUMED_NS: f64 = 80.0;
/// That counts as much as so many bytes.
const ASSUMED_BYTES: f64 = 65_536.0;
/// A third of what was measured is left after so many bytes.
const MEASURED_BYTES: f64 = 1_048_576.0;

/// Bytes that models restored, and the processor time that it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoding {
    bytes: f64,
    ns: f64,
}

impl Default for Decoding {
    fn default() -> Self {
        Self { bytes: ASSUMED_BYTES, ns: ASSUMED_BYTES * ASSUMED_NS }
    }
}

impl Decoding {
    /// So many bytes took so long, if that is known.
    pub(super) fn took(&mut self, bytes: usize, ns: u64) {
        if ns > 0 {
            let fade = (-(bytes as f64) / MEASURED_BYTES).exp();
            self.bytes = fade * self.bytes + bytes as f64;
            self.ns = fade * self.ns + ns as f64;
        }
    }

    /// Returns the bytes that are restored in a second of a processor.
    pub(super) fn speed(&self) -> f64 {
        1e9 * self.bytes / self.ns.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_assumed_at_first_and_then_what_was_measured() {
        let mut decoding = Decoding::default();
        decoding.took(1_000_000, 0);
        assert_eq!(decoding.speed(), 1e9 / ASSUMED_NS);
        for _ in 0..2_000 {
            decoding.took(10_000, 10_000 * 900);
        }
        assert!((1.0e6..1.2e6).contains(&decoding.speed()), "{}", decoding.speed());
    }
}
