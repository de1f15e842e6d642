//! The one place that reads the machine's clocks.

use dwell_base::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The present moment of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Instant {
    Instant::from_ns(ns(clock_gettime(ClockId::Monotonic)))
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time that this thread has used, as a moment.
pub(crate) fn thread_cpu() -> Instant {
    Instant::from_ns(ns(clock_gettime(ClockId::ThreadCPUTime)))
}

fn ns(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
