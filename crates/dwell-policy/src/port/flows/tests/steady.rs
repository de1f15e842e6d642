//! A backlog that stands, and a link and a compressor that both work on it.

use super::*;
use crate::action::{Action, JobId};
use crate::estimate::LearnedConfig;

/// A compressor that takes `fixed_ns` and `byte_ps` picoseconds for each byte, and that the driver
/// hears of `later_ns` after that.
#[derive(Clone, Copy, Debug)]
struct Compressor {
    fixed_ns: u64,
    byte_ps: u64,
    later_ns: u64,
}

/// What came of a time in which something always waited.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    compressed_bytes: u64,
    raw_bytes: u64,
}

impl Share {
    fn compressed(&self) -> f64 {
        self.compressed_bytes as f64 / (self.compressed_bytes + self.raw_bytes) as f64
    }
}

/// Lets a port work on a link that takes frames up to half a millisecond ahead of their time. One flow
/// always has two packets waiting, and after 100 ms `standing`, for 5 ms more, which count.
fn run(rate: Rate, compressor: Compressor, standing: u32) -> Share {
    let mut port = port(0);
    let estimates = Estimates::Learned(LearnedConfig::default());
    let config = PortConfig { rate: Some(rate), estimates, ..port.config().clone() };
    port.configure(config).unwrap();
    let mut share = Share::default();
    let (mut now_ns, mut free_ns, mut ids, mut waiting) = (0_u64, 0_u64, 0_u32, 0_u32);
    let mut job: Option<(u64, JobId, u32, u64)> = None;
    while now_ns < 105 * MILLI_NS {
        let is_short = now_ns < 100 * MILLI_NS;
        if is_short {
            share = Share::default();
        }
        let now = Instant::from_ns(now_ns);
        if let Some((_, id, bytes, took_ns)) = job.take_if(|it| it.0 <= now_ns) {
            let outcome = Outcome::Committed(bytes / 2);
            port.handle(now, Event::Compressed { job: id, outcome, took_ns });
            share.compressed_bytes += u64::from(bytes);
        }
        while waiting < if is_short { 2 } else { standing } {
            arrive(&mut port, now, packet(ids, 1, 1_400));
            (ids, waiting) = (ids + 1, waiting + 1);
        }
        let ahead_bytes = rate.bytes_in_ns(free_ns.saturating_sub(now_ns));
        let link = LinkState { rate: Some(rate), ahead_bytes, ..LinkState::default() };
        port.handle(now, Event::Link(link));
        loop {
            let is_free = free_ns <= now_ns + 500 * MICRO_NS;
            port.handle(now, if is_free { Event::LinkReady } else { Event::LinkBusy });
            match port.poll(now) {
                Some(Action::Compress(asked)) => {
                    let bytes: u32 = port.last_batch().len() as u32 * 1_400;
                    let took_ns =
                        compressor.fixed_ns + u64::from(bytes) * compressor.byte_ps / 1_000;
                    job = Some((now_ns + took_ns + compressor.later_ns, asked.id, bytes, took_ns));
                }
                Some(Action::Send) => {
                    let frame = port.frame();
                    let raw = frame.units.iter().filter(|unit| !unit.compressed_here);
                    share.raw_bytes += 1_400 * raw.count() as u64;
                    waiting -= (frame.units.len() + frame.followers.len()) as u32;
                    free_ns = free_ns.max(now_ns) + rate.transmission_ns(frame.link_bytes);
                }
                Some(Action::Drop(..)) => waiting -= 1,
                Some(Action::Mark(_)) => {}
                None => break,
            }
        }
        now_ns += 5 * MICRO_NS;
    }
    share
}

#[test]
fn a_backlog_after_small_batches_is_compressed_at_once() {
    for (mbps, fixed_ns) in [(200, 15_000), (200, 45_000), (500, 15_000), (500, 45_000)] {
        let compressor = Compressor { fixed_ns, byte_ps: 5_000, later_ns: 15_000 };
        for standing in [20, 60, 300] {
            let share = run(Rate::from_mbps(mbps), compressor, standing);
            // What each small batch took beside its bytes says nothing against large ones.
            let compressed = share.compressed();
            assert!(compressed > 0.99, "{mbps}, {fixed_ns}, {standing}: {compressed:.3}");
        }
    }
}

/// A port that has learned that a job takes 45 µs and 5 ns for each byte.
fn learned() -> Port {
    let mut port = port(0);
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    for round in 0..200 {
        let bytes = 1_400 * (1 + round % 4);
        let of_bytes = port.common.learn_job(bytes, 45_000 + u64::from(bytes) * 5);
        port.common.learn(KEY, (bytes, bytes / 2), of_bytes);
    }
    assert!(port.common.fixed_ns().abs_diff(45_000) < 500);
    port
}

const KEY: (u64, ClassKey) = (1 << 32 | 1, ClassKey::new(6, 80));

#[test]
fn a_batch_that_is_shrunk_to_have_time_has_it() {
    let mut port = learned();
    for (mbps, waits) in [(500, [1_500, 2_500, 4_000]), (2_000, [20_000, 40_000, 60_000])] {
        let rate = Rate::from_mbps(mbps);
        for wait_bytes in waits {
            for bytes in [1_400, 2_800, 14_000, 60_000] {
                let fits = batch::in_time(&mut port.common, KEY, (bytes, wait_bytes), rate);
                assert!(fits <= bytes);
                let needed = batch::needed(&mut port.common, KEY, fits, rate).unwrap();
                // Rounding is worth a few bytes.
                assert!(
                    fits == 0 || needed <= wait_bytes + 8,
                    "{mbps} {wait_bytes} {bytes}: {fits}"
                );
            }
        }
    }
}

#[test]
fn another_store_does_not_count_the_time_of_a_job_twice() {
    let mut port = learned();
    let scheme = Scheme::packet();
    port.configure(PortConfig { scheme, ..port.config().clone() }).unwrap();
    assert_eq!(port.common.fixed_ns(), 0);
}
