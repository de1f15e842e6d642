//! Clocks for what codecs take.

use std::time::Instant;

/// The machine's clock, or one that stands still, so that results follow from captures alone.
pub(super) enum Clock {
    Monotonic(Instant),
    Still,
}

impl Clock {
    pub(super) fn new(is_measured: bool) -> Self {
        if is_measured { Self::Monotonic(Instant::now()) } else { Self::Still }
    }
}

impl dwell_trace::Clock for Clock {
    fn now_ns(&mut self) -> u64 {
        match self {
            Self::Monotonic(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Self::Still => 0,
        }
    }
}
