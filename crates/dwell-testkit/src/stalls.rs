//! Stalls of the machine: a hypervisor may take a processor away for tens of milliseconds, or other
//! programs may hold it. Work that follows the clock (a paced link, a burst of packets) is then
//! late, which says nothing about the program that was kept from running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The interval at which each processor is checked.
const PERIOD: Duration = Duration::from_millis(1);
/// The delay of a wake-up from which on it counts as a stall. Timers and schedulers alone stay well
/// below, and paced senders make up for as much.
const STALL: Duration = Duration::from_millis(2);

/// Measures, until it is stopped, the delay with which a thread on each processor wakes up.
#[derive(Debug)]
pub struct StallWatch {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl StallWatch {
    /// Begins to watch every processor that this process may use.
    #[must_use]
    pub fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let mut processors: Vec<_> =
            (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect();
        if processors.is_empty() {
            processors.push(0); // the list is not available: wherever the thread runs
        }
        let watch = |processor| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || watch(processor, &ended))
        };
        let threads = processors.into_iter().map(watch).collect();
        Self { ended, threads }
    }

    /// Returns the total time for which a processor stood still, of the one with the longest.
    #[must_use]
    pub fn stop(mut self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        let stalled = std::mem::take(&mut self.threads).into_iter().filter_map(|t| t.join().ok());
        stalled.max().unwrap_or_default()
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn watch(processor: usize, ended: &AtomicBool) -> Duration {
    let mut own = CpuSet::new();
    own.set(processor);
    // A processor that has gone meanwhile is watched from another one.
    let _ = sched_setaffinity(None, &own);
    let mut stalled = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let before = Instant::now();
        std::thread::sleep(PERIOD);
        stalled += stall(before.elapsed());
    }
    stalled
}

/// Returns the stall in a sleep of one period that took this long.
fn stall(took: Duration) -> Duration {
    took.saturating_sub(PERIOD + STALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wakes_up_late_has_stalled() {
        let us = Duration::from_micros;
        assert_eq!(stall(us(1_050)), Duration::ZERO);
        assert_eq!(stall(us(2_900)), Duration::ZERO);
        assert_eq!(stall(us(33_000)), us(30_000));
    }

    #[test]
    fn no_more_is_stalled_than_was_watched() {
        let start = Instant::now();
        let watch = StallWatch::start();
        std::thread::sleep(Duration::from_millis(30));
        let stalled = watch.stop();
        assert!(stalled <= start.elapsed(), "{stalled:?}");
    }
}
