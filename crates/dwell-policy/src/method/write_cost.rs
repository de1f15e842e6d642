//! The cost of writing to the transport.

/// The rate at which past writes are forgotten, write by write.
const FORGET: f64 = 0.98;
/// The most that a write counts for, as a multiple of the usual time plus a constant in
/// nanoseconds: the time of a writer that was interrupted says nothing about the transport.
const OUTLIER: f64 = 3.0;
const CALL_NS: f64 = 10_000.0;
/// The estimate before anything was written: nanoseconds a byte, and its weight in bytes.
const PRIOR_NS: f64 = 0.5;
const PRIOR_BYTES: f64 = 65_536.0;

/// The processor time that the transport takes for a byte. The kernel needs it for its copy;
/// without hardware support, or on the same machine as the receiver, also for all other processing
/// of a segment.
#[derive(Clone, Copy, Debug)]
pub struct WriteCost {
    ns: f64,
    bytes: f64,
}

impl WriteCost {
    /// Makes the estimate, before anything was written.
    pub const fn new() -> Self {
        Self { ns: PRIOR_NS * PRIOR_BYTES, bytes: PRIOR_BYTES }
    }

    /// Returns the nanoseconds a byte.
    pub fn cost_ns(self) -> f64 {
        self.ns / self.bytes
    }

    /// Notes that the transport took this many bytes, in this time.
    pub fn measured(&mut self, len: usize, took_ns: u64) {
        let len = len as f64;
        let ns = (took_ns as f64).min(OUTLIER * self.cost_ns() * len + CALL_NS);
        self.ns = FORGET * self.ns + ns;
        self.bytes = FORGET * self.bytes + len;
    }
}

impl Default for WriteCost {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_measured_but_no_interruption() {
        let mut cost = WriteCost::new();
        for _ in 0..300 {
            cost.measured(65_536, 65_536);
        }
        assert!((cost.cost_ns() - 1.0).abs() < 0.01, "{cost:?}");
        cost.measured(65_536, 20_000_000);
        assert!(cost.cost_ns() < 1.1, "{cost:?}");
    }
    #[test]
    fn a_write_counts_for_three_times_the_usual_and_a_call_at_most() {
        let mut cost = WriteCost::new();
        assert_eq!(cost.cost_ns(), 0.5);
        cost.measured(10_000, 1_000_000_000);
        let (ns, bytes) = (0.98 * 32_768.0 + 25_000.0, 0.98 * 65_536.0 + 10_000.0);
        assert!((cost.cost_ns() - ns / bytes).abs() < 1e-9, "{cost:?}");
    }
}
