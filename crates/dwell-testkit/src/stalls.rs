//! How long the machine stood still: a hypervisor may take a processor away for tens of milliseconds,
//! or other programs may hold it. What runs by the clock (a paced link, a burst of packets) is
//! then late, which says nothing about who was kept from running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often each processor is looked at.
const PERIOD: Duration = Duration::from_millis(1);
/// What a wake-up is later than this, is a stall. Timers and schedulers alone stay well below, and what is
/// paced makes up for as much.
const STALL: Duration = Duration::from_millis(2);

/// Watches, until asked, how late a thread on each processor wakes up.
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
            processors.push(0); // nobody tells which there are: wherever the thread runs
        }
        let watch = |processor| {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || watch(processor, &ended))
        };
        let threads = processors.into_iter().map(watch).collect();
        Self { ended, threads }
    }

    /// For how long a processor stood still in all, of the one that did so longest.
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

/// What a sleep of one period that took so long tells.
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
