//! The one place that reads the machine's clocks.

use std::io;
use std::num::NonZeroU64;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The monotonic clock, and the CPU time that was spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The present moment of `CLOCK_MONOTONIC`, which neither jumps nor counts the time
    /// that the machine was asleep.
    pub fn now() -> Instant {
        Instant::from_ns(ns(clock_gettime(ClockId::Monotonic)))
    }

    /// The time in UTC, in nanoseconds since 1970. It jumps when the clock is set.
    pub fn unix_ns() -> u64 {
        ns(clock_gettime(ClockId::Realtime))
    }

    /// CPU time that the calling thread has used, in nanoseconds. A system call: a few
    /// hundred nanoseconds itself.
    pub fn thread_cpu_ns() -> u64 {
        ns(clock_gettime(ClockId::ThreadCPUTime))
    }

    /// CPU time that all threads of this process have used, in nanoseconds.
    pub fn process_cpu_ns() -> u64 {
        ns(clock_gettime(ClockId::ProcessCPUTime))
    }

    /// Asks the kernel to wake the calling thread as close to its deadlines as it can;
    /// otherwise it may be 50 µs late, to save power.
    ///
    /// # Errors
    /// Returns the kernel's error; the thread then just wakes less exactly.
    pub fn sharpen_timers() -> io::Result<()> {
        Ok(set_current_timer_slack(NonZeroU64::new(1))?)
    }
}

fn ns(time: Timespec) -> u64 {
    // These clocks never show a negative time.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on() {
        let (then, cpu) = (Clock::now(), Clock::thread_cpu_ns());
        while Clock::thread_cpu_ns() == cpu {}
        assert!(Clock::now() > then);
        assert!(Clock::process_cpu_ns() >= Clock::thread_cpu_ns() - cpu);
        Clock::sharpen_timers().unwrap();
    }
}
