//! How much longer compressing takes than the codecs need.

/// The rate at which past times are forgotten, block by block: some tens of blocks are a few time
/// slices of the system's scheduler.
const FORGET_TIMES: f64 = 0.98;
/// The largest slowdown that is assumed for compression.
const SLOWDOWN_MAX: f64 = 20.0;

/// The factor by which compression takes longer than the codecs need, because the thread is
/// interrupted, or another one has to be waited for. The estimates leave interruptions out, as these say nothing of a codec; but the
/// shares must fit into the time that there is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slowdown {
    took_ns: f64,
    estimated_ns: f64,
}

impl Slowdown {
    pub(super) fn measured(&mut self, took_ns: f64, estimated_ns: f64) {
        self.took_ns = FORGET_TIMES * self.took_ns + took_ns;
        self.estimated_ns = FORGET_TIMES * self.estimated_ns + estimated_ns;
    }

    /// Notes that a block was sent uncompressed: while nothing is measured, the last interruption
    /// must not count for ever.
    pub(super) fn passed_by(&mut self) {
        let excess_ns = self.took_ns - self.estimated_ns;
        self.took_ns = self.estimated_ns + FORGET_TIMES * excess_ns;
    }

    pub(super) fn factor(self) -> f64 {
        if self.estimated_ns > 0.0 {
            (self.took_ns / self.estimated_ns).clamp(1.0, SLOWDOWN_MAX)
        } else {
            1.0
        }
    }
}
