mod port;
mod property;

use dwell_base::time::MICRO_NS;

use super::*;
use crate::action::SendCause;
use crate::scheme::{ClassTimers, Pull, PullPolicy};

/// Section 5 of the paper: frames of 9000 bytes, classes of Table II.
const LIMITS: Limits = Limits { bytes_max: 9000, units_max: 1000, unit_bytes_named: u32::MAX };
const TIMERS_US: [u64; 3] = [50, 100, 200];
const DCF: Pull = Pull { policy: PullPolicy::Dcf, eager: false, clamp_ns: 0, hold: false };

fn timers() -> ClassTimers {
    ClassTimers::new(&TIMERS_US.map(|us| us * MICRO_NS)).unwrap()
}

fn at_us(us: u64) -> Instant {
    Instant::from_ns(us * MICRO_NS)
}

/// A port's chunks and a clock in microseconds.
struct ChunkHarness {
    chunks: ChunkQueues,
    chunk: Chunk,
    next_id: u32,
}

impl ChunkHarness {
    fn new(queues: Queue, fill: bool) -> Self {
        let chunks = ChunkQueues::new(&queues, LIMITS, fill);
        Self { chunks, chunk: Chunk::new(LIMITS), next_id: 0 }
    }

    fn basicq() -> Self {
        Self::new(Queue::One, false)
    }

    fn chumq(fill: bool) -> Self {
        Self::new(Queue::PerClass(timers()), fill)
    }

    fn chutq(pull: Pull, fill: bool) -> Self {
        Self::new(Queue::Tandem(timers(), pull), fill)
    }

    /// Lets packets of this size and W arrive; returns the names of the first and the last.
    fn arrive(&mut self, us: u64, packets: u32, bytes: u32, hold_us: u64) -> (u32, u32) {
        let first = self.next_id;
        for _ in 0..packets {
            let (arrived, max_wait_ns) = (at_us(us), hold_us * MICRO_NS);
            let id = PacketId(self.next_id);
            let deadline = arrived + max_wait_ns;
            self.next_id += 1;
            self.chunks.arrive(
                arrived,
                Entry {
                    id,
                    bytes,
                    unit_bytes: bytes,
                    compressed: false,
                    bypass: None,
                    looks_random: false,
                    arrived,
                    deadline,
                },
            );
        }
        self.chunks.assert_invariants();
        (first, self.next_id - 1)
    }

    /// Returns the chunk that a free link gets.
    fn take(&mut self, us: u64) -> Option<(Vec<u32>, SendCause, u8)> {
        let due = self.chunks.take(at_us(us), &mut self.chunk);
        self.chunks.assert_invariants();
        let chunk = &self.chunk;
        due.then(|| (chunk.entries().iter().map(|e| e.id.0).collect(), chunk.cause, chunk.buffer))
    }

    fn next_us(&self) -> Option<u64> {
        self.chunks.next_deadline().map(|at| at.as_ns() / MICRO_NS)
    }
}

fn every() -> Vec<(Queue, bool)> {
    let mut all = vec![(Queue::One, false)];
    for fill in [false, true] {
        all.push((Queue::PerClass(timers()), fill));
        for policy in [PullPolicy::Dcf, PullPolicy::Tpf, PullPolicy::Cef] {
            for (eager, clamp_ns, hold) in
                [(false, 0, false), (true, 0, false), (false, 10_000, true), (true, 0, true)]
            {
                let pull = Pull { policy, eager, clamp_ns, hold };
                all.push((Queue::Tandem(timers(), pull), fill));
            }
        }
    }
    all
}

#[test]
fn exactly_a_frame_waits_for_the_timer_and_one_byte_more_goes() {
    for (queues, fill) in every() {
        let mut harness = ChunkHarness::new(queues, fill);
        harness.arrive(0, 6, 1500, 200);
        assert_eq!(harness.take(0), None, "{queues:?}");
        assert_eq!(harness.next_us(), Some(200), "{queues:?}");
        harness.arrive(0, 1, 40, 200);
        assert_eq!(
            harness.take(0),
            Some((vec![0, 1, 2, 3, 4, 5], SendCause::Full, harness_buffer(&queues)))
        );
        assert_eq!(harness.take(199), None);
        assert_eq!(harness.take(200), Some((vec![6], SendCause::Timer, harness_buffer(&queues))));
        assert_eq!(harness.next_us(), None);
    }
}

fn harness_buffer(queues: &Queue) -> u8 {
    if matches!(queues, Queue::PerClass(_)) { 2 } else { 0 }
}

#[test]
fn a_packet_larger_than_a_frame_goes_alone() {
    for (queues, fill) in every() {
        let mut harness = ChunkHarness::new(queues, fill);
        harness.arrive(0, 1, 9001, 200);
        let ids = |taken: Option<(Vec<u32>, SendCause, u8)>| taken.map(|(ids, ..)| ids);
        assert_eq!(ids(harness.take(0)), Some(vec![0]), "{queues:?}");
        harness.arrive(0, 1, 100, 200);
        harness.arrive(0, 1, 9001, 200);
        assert_eq!(ids(harness.take(0)), Some(vec![1]), "{queues:?}");
        assert_eq!(ids(harness.take(0)), Some(vec![2]), "{queues:?}");
    }
}

#[test]
fn a_packet_that_is_never_held_goes_at_once() {
    for (queues, fill) in every() {
        let mut harness = ChunkHarness::new(queues, fill);
        harness.arrive(0, 1, 1500, 200);
        harness.arrive(0, 1, 1500, 0);
        let (ids, ..) = harness.take(0).unwrap();
        assert!(ids.contains(&1), "{queues:?}");
    }
}

#[test]
fn a_frame_takes_only_so_many_units_and_what_it_cannot_name_last() {
    let limits = Limits { bytes_max: 9000, units_max: 3, unit_bytes_named: 1000 };
    for (queues, fill) in every() {
        let mut harness = ChunkHarness::new(queues, fill);
        harness.chunks = ChunkQueues::new(&queues, limits, fill);
        harness.chunk = Chunk::new(limits);
        harness.arrive(0, 4, 40, 200);
        assert_eq!(harness.take(0).unwrap().0, [0, 1, 2], "{queues:?}");
        harness.arrive(0, 1, 1500, 200);
        harness.arrive(0, 1, 40, 200);
        assert_eq!(harness.take(200).unwrap().0, [3, 4], "{queues:?}");
        assert_eq!(harness.take(200).unwrap().0, [5], "{queues:?}");
    }
}

#[test]
fn basicq_takes_the_smallest_deadline_of_all() {
    let mut harness = ChunkHarness::basicq();
    harness.arrive(0, 1, 1500, 200);
    assert_eq!(harness.next_us(), Some(200));
    harness.arrive(10, 1, 40, 50);
    harness.arrive(20, 1, 200, 100);
    assert_eq!(harness.next_us(), Some(60));
    assert_eq!(harness.take(59), None);
    assert_eq!(harness.take(60), Some((vec![0, 1, 2], SendCause::Timer, 0)));
}

#[test]
fn basicq_sends_on_while_what_has_expired_stands_further_back() {
    let mut harness = ChunkHarness::basicq();
    harness.arrive(0, 8, 1500, 200);
    harness.arrive(1, 1, 40, 50);
    assert_eq!(harness.take(60).unwrap().1, SendCause::Full);
    assert_eq!(harness.next_us(), Some(51));
    assert_eq!(harness.take(60), Some((vec![6, 7, 8], SendCause::Timer, 0)));
}

#[test]
fn chumq_classes_packets_on_the_safe_side() {
    let mut harness = ChunkHarness::chumq(false);
    for (hold_us, buffer) in [(20, 0), (50, 0), (99, 0), (100, 1), (199, 1), (200, 2), (900, 2)] {
        harness.arrive(0, 1, 40, hold_us);
        // Its buffer's timer runs, whatever its own W.
        assert_eq!(harness.next_us(), Some(TIMERS_US[buffer as usize]));
        assert_eq!(harness.take(300).unwrap().2, buffer, "W = {hold_us} µs");
    }
}

#[test]
fn chumq_serves_the_expired_first_then_the_full_each_from_the_first_buffer() {
    let mut harness = ChunkHarness::chumq(false);
    harness.arrive(0, 1, 1500, 200);
    harness.arrive(110, 1, 200, 100); // expires at 210
    harness.arrive(160, 230, 40, 50); // full, and expires at 210 as well
    harness.arrive(170, 50, 200, 100); // full too now
    assert_eq!(harness.take(180).unwrap().2, 0, "both are full");
    assert_eq!(harness.take(180).unwrap().2, 1);
    assert_eq!(harness.take(180), None);
    assert_eq!(harness.next_us(), Some(200));
    harness.arrive(180, 230, 40, 50);
    // Only the last buffer has expired: it goes before the first, which is full.
    assert_eq!(harness.take(200), Some((vec![0], SendCause::Timer, 2)));
    assert_eq!(harness.take(200).unwrap().2, 0);
}

#[test]
fn chumq_takes_the_timer_again_from_the_next_head() {
    let mut harness = ChunkHarness::chumq(false);
    harness.arrive(0, 225, 40, 50);
    harness.arrive(30, 1, 40, 50);
    assert_eq!(harness.take(30).unwrap().1, SendCause::Full);
    assert_eq!(harness.next_us(), Some(80));
}

#[test]
fn chumq_serves_what_is_never_held_between_the_expired_and_the_full() {
    let mut harness = ChunkHarness::chumq(false);
    harness.arrive(0, 1, 200, 100);
    harness.arrive(60, 226, 40, 50);
    harness.arrive(100, 2, 1500, 0);
    assert_eq!(harness.take(100).unwrap().2, 1);
    assert_eq!(harness.take(100), Some((vec![227, 228], SendCause::Ready, 3)));
    assert_eq!(harness.take(100).unwrap().2, 0);
}

#[test]
fn chumq_with_cea_fills_a_chunk_of_the_timer_but_not_a_full_one() {
    let mut harness = ChunkHarness::chumq(true);
    harness.arrive(0, 5, 1500, 200);
    harness.arrive(150, 10, 200, 100);
    harness.arrive(160, 1, 40, 50);
    // 7500 bytes; of the first buffer 40, of the second 7 of 10, and its timer stays.
    let (ids, cause, buffer) = harness.take(200).unwrap();
    assert_eq!(ids, [0, 1, 2, 3, 4, 15, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((cause, buffer), (SendCause::Timer, 2));
    assert_eq!(harness.next_us(), Some(250));
    harness.arrive(200, 7, 1499, 200);
    let (ids, cause, _) = harness.take(200).unwrap();
    assert_eq!((ids.len(), cause), (6, SendCause::Full), "9000 − 8994 bytes are left unused");
}

#[test]
fn chumq_with_cea_skips_a_buffer_whose_head_does_not_fit() {
    let mut harness = ChunkHarness::chumq(true);
    harness.arrive(0, 1, 8000, 50);
    harness.arrive(10, 1, 1500, 100);
    harness.arrive(10, 1, 900, 200);
    assert_eq!(harness.take(50).unwrap().0, [0, 2]);
    assert_eq!(harness.next_us(), Some(110));
}

#[test]
fn chutq_pulls_by_residual_time_and_the_first_misfit_closes() {
    let mut harness = ChunkHarness::chutq(DCF, false);
    harness.arrive(0, 4, 1500, 200);
    harness.arrive(10, 10, 200, 100);
    harness.arrive(20, 60, 40, 50);
    // 60 × 40 + 10 × 200 + 3 × 1500 = 8900 bytes: the fourth does not fit.
    let (ids, cause, _) = harness.take(20).unwrap();
    let expected: Vec<u32> = (14..74).chain(4..14).chain(0..3).collect();
    assert_eq!((ids, cause), (expected, SendCause::Full));
    assert_eq!(harness.take(20), None);
    assert_eq!(harness.next_us(), Some(200));
}

#[test]
fn chutq_lazy_chooses_when_the_link_is_free_eager_when_packets_come() {
    let first_of = |eager| {
        let mut harness = ChunkHarness::chutq(Pull { eager, ..DCF }, false);
        harness.arrive(0, 6, 1500, 200);
        harness.arrive(10, 1, 40, 50);
        harness.take(20).unwrap().0[0]
    };
    assert_eq!(first_of(false), 6);
    assert_eq!(first_of(true), 0);
}

#[test]
fn chutq_tpf_prefers_large_and_cef_small_packets() {
    let first_of = |policy| {
        let mut harness = ChunkHarness::chutq(Pull { policy, ..DCF }, false);
        harness.arrive(0, 40, 200, 100);
        harness.arrive(0, 4, 1500, 200);
        harness.take(0).unwrap().0[0]
    };
    // 200 / 100 µs against 1500 / 200 µs; 100 × 200 against 200 × 1500.
    assert_eq!(first_of(PullPolicy::Tpf), 40);
    assert_eq!(first_of(PullPolicy::Cef), 0);
}

#[test]
fn chutq_leaves_what_is_overdue_for_last_unless_clamped() {
    let first_of = |clamp_ns| {
        let mut harness = ChunkHarness::chutq(Pull { clamp_ns, ..DCF }, false);
        harness.arrive(0, 10, 200, 100);
        harness.arrive(0, 10, 1500, 200);
        harness.take(150).unwrap().0[0]
    };
    assert_eq!(first_of(0), 10);
    assert_eq!(first_of(10_000), 0);
}

#[test]
fn chutq_with_cea_adds_what_fits_and_closes_or_holds() {
    for hold in [false, true] {
        let mut harness = ChunkHarness::chutq(Pull { hold, ..DCF }, true);
        harness.arrive(0, 5, 1500, 50);
        harness.arrive(0, 1, 1600, 100); // the misfit
        harness.arrive(0, 1, 900, 200); // fits all the same
        if hold {
            assert_eq!(harness.take(0), None, "600 bytes of room are left");
            harness.arrive(5, 14, 40, 200);
            assert_eq!(harness.take(5), None, "and 40 still");
            harness.arrive(9, 1, 40, 200);
        }
        let (ids, cause, _) = harness.take(9).unwrap();
        assert_eq!(ids[..6], [0, 1, 2, 3, 4, 6]);
        assert_eq!((ids.len(), cause), (if hold { 21 } else { 6 }, SendCause::Full));
    }
}

#[test]
fn chutq_holds_until_the_timer_or_until_a_frame_waits_behind() {
    let held = || {
        let mut harness = ChunkHarness::chutq(Pull { hold: true, ..DCF }, true);
        harness.arrive(0, 7, 1450, 50); // 8700 bytes and one behind
        assert_eq!(harness.take(0), None);
        harness
    };
    let mut harness = held();
    assert_eq!(harness.take(49), None);
    assert_eq!(harness.next_us(), Some(50));
    assert_eq!(harness.take(50).unwrap().1, SendCause::Timer);

    let mut harness = held();
    harness.arrive(1, 5, 1510, 100); // 9000 bytes behind
    assert_eq!(harness.take(1), None);
    harness.arrive(1, 1, 1450, 50);
    assert_eq!(harness.take(1).unwrap().1, SendCause::Full);

    let mut harness = held();
    harness.arrive(1, 1, 1450, 0);
    assert_eq!(harness.take(1).unwrap().1, SendCause::Full, "it must not wait for others");
}
