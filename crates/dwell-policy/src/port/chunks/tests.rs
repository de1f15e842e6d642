use std::collections::HashMap;

use dwell_base::Rate;
use dwell_base::time::MICRO_NS;
use proptest::prelude::*;

use super::*;
use crate::account::Bypass;
use crate::action::{Action, SendCause};
use crate::config::{FrameCost, QueueLimit};
use crate::estimate::{Estimate, Estimates, Ratio};
use crate::packet::ClassKey;
use crate::port::Port;
use crate::port::shorthand::{Admission, Wanted};
use crate::scheme::{ClassTimers, Pull, PullPolicy, Scheme};

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
struct Bench {
    chunks: ChunkQueues,
    chunk: Chunk,
    next_id: u32,
}

impl Bench {
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
        let mut bench = Bench::new(queues, fill);
        bench.arrive(0, 6, 1500, 200);
        assert_eq!(bench.take(0), None, "{queues:?}");
        assert_eq!(bench.next_us(), Some(200), "{queues:?}");
        bench.arrive(0, 1, 40, 200);
        assert_eq!(
            bench.take(0),
            Some((vec![0, 1, 2, 3, 4, 5], SendCause::Full, bench_buffer(&queues)))
        );
        assert_eq!(bench.take(199), None);
        assert_eq!(bench.take(200), Some((vec![6], SendCause::Timer, bench_buffer(&queues))));
        assert_eq!(bench.next_us(), None);
    }
}

fn bench_buffer(queues: &Queue) -> u8 {
    if matches!(queues, Queue::PerClass(_)) { 2 } else { 0 }
}

#[test]
fn a_packet_larger_than_a_frame_goes_alone() {
    for (queues, fill) in every() {
        let mut bench = Bench::new(queues, fill);
        bench.arrive(0, 1, 9001, 200);
        let ids = |taken: Option<(Vec<u32>, SendCause, u8)>| taken.map(|(ids, ..)| ids);
        assert_eq!(ids(bench.take(0)), Some(vec![0]), "{queues:?}");
        bench.arrive(0, 1, 100, 200);
        bench.arrive(0, 1, 9001, 200);
        assert_eq!(ids(bench.take(0)), Some(vec![1]), "{queues:?}");
        assert_eq!(ids(bench.take(0)), Some(vec![2]), "{queues:?}");
    }
}

#[test]
fn a_packet_that_is_never_held_goes_at_once() {
    for (queues, fill) in every() {
        let mut bench = Bench::new(queues, fill);
        bench.arrive(0, 1, 1500, 200);
        bench.arrive(0, 1, 1500, 0);
        let (ids, ..) = bench.take(0).unwrap();
        assert!(ids.contains(&1), "{queues:?}");
    }
}

#[test]
fn a_frame_takes_only_so_many_units_and_what_it_cannot_name_last() {
    let limits = Limits { bytes_max: 9000, units_max: 3, unit_bytes_named: 1000 };
    for (queues, fill) in every() {
        let mut bench = Bench::new(queues, fill);
        bench.chunks = ChunkQueues::new(&queues, limits, fill);
        bench.chunk = Chunk::new(limits);
        bench.arrive(0, 4, 40, 200);
        assert_eq!(bench.take(0).unwrap().0, [0, 1, 2], "{queues:?}");
        bench.arrive(0, 1, 1500, 200);
        bench.arrive(0, 1, 40, 200);
        assert_eq!(bench.take(200).unwrap().0, [3, 4], "{queues:?}");
        assert_eq!(bench.take(200).unwrap().0, [5], "{queues:?}");
    }
}

#[test]
fn basicq_takes_the_smallest_deadline_of_all() {
    let mut bench = Bench::basicq();
    bench.arrive(0, 1, 1500, 200);
    assert_eq!(bench.next_us(), Some(200));
    bench.arrive(10, 1, 40, 50);
    bench.arrive(20, 1, 200, 100);
    assert_eq!(bench.next_us(), Some(60));
    assert_eq!(bench.take(59), None);
    assert_eq!(bench.take(60), Some((vec![0, 1, 2], SendCause::Timer, 0)));
}

#[test]
fn basicq_sends_on_while_what_has_expired_stands_further_back() {
    let mut bench = Bench::basicq();
    bench.arrive(0, 8, 1500, 200);
    bench.arrive(1, 1, 40, 50);
    assert_eq!(bench.take(60).unwrap().1, SendCause::Full);
    assert_eq!(bench.next_us(), Some(51));
    assert_eq!(bench.take(60), Some((vec![6, 7, 8], SendCause::Timer, 0)));
}

#[test]
fn chumq_classes_packets_on_the_safe_side() {
    let mut bench = Bench::chumq(false);
    for (hold_us, buffer) in [(20, 0), (50, 0), (99, 0), (100, 1), (199, 1), (200, 2), (900, 2)] {
        bench.arrive(0, 1, 40, hold_us);
        // Its buffer's timer runs, whatever its own W.
        assert_eq!(bench.next_us(), Some(TIMERS_US[buffer as usize]));
        assert_eq!(bench.take(300).unwrap().2, buffer, "W = {hold_us} µs");
    }
}

#[test]
fn chumq_serves_the_expired_first_then_the_full_each_from_the_first_buffer() {
    let mut bench = Bench::chumq(false);
    bench.arrive(0, 1, 1500, 200);
    bench.arrive(110, 1, 200, 100); // expires at 210
    bench.arrive(160, 230, 40, 50); // full, and expires at 210 as well
    bench.arrive(170, 50, 200, 100); // full too now
    assert_eq!(bench.take(180).unwrap().2, 0, "both are full");
    assert_eq!(bench.take(180).unwrap().2, 1);
    assert_eq!(bench.take(180), None);
    assert_eq!(bench.next_us(), Some(200));
    bench.arrive(180, 230, 40, 50);
    // Only the last buffer has expired: it goes before the first, which is full.
    assert_eq!(bench.take(200), Some((vec![0], SendCause::Timer, 2)));
    assert_eq!(bench.take(200).unwrap().2, 0);
}

#[test]
fn chumq_takes_the_timer_again_from_the_next_head() {
    let mut bench = Bench::chumq(false);
    bench.arrive(0, 225, 40, 50);
    bench.arrive(30, 1, 40, 50);
    assert_eq!(bench.take(30).unwrap().1, SendCause::Full);
    assert_eq!(bench.next_us(), Some(80));
}

#[test]
fn chumq_serves_what_is_never_held_between_the_expired_and_the_full() {
    let mut bench = Bench::chumq(false);
    bench.arrive(0, 1, 200, 100);
    bench.arrive(60, 226, 40, 50);
    bench.arrive(100, 2, 1500, 0);
    assert_eq!(bench.take(100).unwrap().2, 1);
    assert_eq!(bench.take(100), Some((vec![227, 228], SendCause::Ready, 3)));
    assert_eq!(bench.take(100).unwrap().2, 0);
}

#[test]
fn chumq_with_cea_fills_a_chunk_of_the_timer_but_not_a_full_one() {
    let mut bench = Bench::chumq(true);
    bench.arrive(0, 5, 1500, 200);
    bench.arrive(150, 10, 200, 100);
    bench.arrive(160, 1, 40, 50);
    // 7500 bytes; of the first buffer 40, of the second 7 of 10, and its timer stays.
    let (ids, cause, buffer) = bench.take(200).unwrap();
    assert_eq!(ids, [0, 1, 2, 3, 4, 15, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((cause, buffer), (SendCause::Timer, 2));
    assert_eq!(bench.next_us(), Some(250));
    bench.arrive(200, 7, 1499, 200);
    let (ids, cause, _) = bench.take(200).unwrap();
    assert_eq!((ids.len(), cause), (6, SendCause::Full), "9000 − 8994 bytes are left unused");
}

#[test]
fn chumq_with_cea_skips_a_buffer_whose_head_does_not_fit() {
    let mut bench = Bench::chumq(true);
    bench.arrive(0, 1, 8000, 50);
    bench.arrive(10, 1, 1500, 100);
    bench.arrive(10, 1, 900, 200);
    assert_eq!(bench.take(50).unwrap().0, [0, 2]);
    assert_eq!(bench.next_us(), Some(110));
}

#[test]
fn chutq_pulls_by_residual_time_and_the_first_misfit_closes() {
    let mut bench = Bench::chutq(DCF, false);
    bench.arrive(0, 4, 1500, 200);
    bench.arrive(10, 10, 200, 100);
    bench.arrive(20, 60, 40, 50);
    // 60 × 40 + 10 × 200 + 3 × 1500 = 8900 bytes: the fourth does not fit.
    let (ids, cause, _) = bench.take(20).unwrap();
    let expected: Vec<u32> = (14..74).chain(4..14).chain(0..3).collect();
    assert_eq!((ids, cause), (expected, SendCause::Full));
    assert_eq!(bench.take(20), None);
    assert_eq!(bench.next_us(), Some(200));
}

#[test]
fn chutq_lazy_chooses_when_the_link_is_free_eager_when_packets_come() {
    let first_of = |eager| {
        let mut bench = Bench::chutq(Pull { eager, ..DCF }, false);
        bench.arrive(0, 6, 1500, 200);
        bench.arrive(10, 1, 40, 50);
        bench.take(20).unwrap().0[0]
    };
    assert_eq!(first_of(false), 6);
    assert_eq!(first_of(true), 0);
}

#[test]
fn chutq_tpf_prefers_large_and_cef_small_packets() {
    let first_of = |policy| {
        let mut bench = Bench::chutq(Pull { policy, ..DCF }, false);
        bench.arrive(0, 40, 200, 100);
        bench.arrive(0, 4, 1500, 200);
        bench.take(0).unwrap().0[0]
    };
    // 200 / 100 µs against 1500 / 200 µs; 100 × 200 against 200 × 1500.
    assert_eq!(first_of(PullPolicy::Tpf), 40);
    assert_eq!(first_of(PullPolicy::Cef), 0);
}

#[test]
fn chutq_leaves_what_is_overdue_for_last_unless_clamped() {
    let first_of = |clamp_ns| {
        let mut bench = Bench::chutq(Pull { clamp_ns, ..DCF }, false);
        bench.arrive(0, 10, 200, 100);
        bench.arrive(0, 10, 1500, 200);
        bench.take(150).unwrap().0[0]
    };
    assert_eq!(first_of(0), 10);
    assert_eq!(first_of(10_000), 0);
}

#[test]
fn chutq_with_cea_adds_what_fits_and_closes_or_holds() {
    for hold in [false, true] {
        let mut bench = Bench::chutq(Pull { hold, ..DCF }, true);
        bench.arrive(0, 5, 1500, 50);
        bench.arrive(0, 1, 1600, 100); // the misfit
        bench.arrive(0, 1, 900, 200); // fits all the same
        if hold {
            assert_eq!(bench.take(0), None, "600 bytes of room are left");
            bench.arrive(5, 14, 40, 200);
            assert_eq!(bench.take(5), None, "and 40 still");
            bench.arrive(9, 1, 40, 200);
        }
        let (ids, cause, _) = bench.take(9).unwrap();
        assert_eq!(ids[..6], [0, 1, 2, 3, 4, 6]);
        assert_eq!((ids.len(), cause), (if hold { 21 } else { 6 }, SendCause::Full));
    }
}

#[test]
fn chutq_holds_until_the_timer_or_until_a_frame_waits_behind() {
    let held = || {
        let mut bench = Bench::chutq(Pull { hold: true, ..DCF }, true);
        bench.arrive(0, 7, 1450, 50); // 8700 bytes and one behind
        assert_eq!(bench.take(0), None);
        bench
    };
    let mut bench = held();
    assert_eq!(bench.take(49), None);
    assert_eq!(bench.next_us(), Some(50));
    assert_eq!(bench.take(50).unwrap().1, SendCause::Timer);

    let mut bench = held();
    bench.arrive(1, 5, 1510, 100); // 9000 bytes behind
    assert_eq!(bench.take(1), None);
    bench.arrive(1, 1, 1450, 50);
    assert_eq!(bench.take(1).unwrap().1, SendCause::Full);

    let mut bench = held();
    bench.arrive(1, 1, 1450, 0);
    assert_eq!(bench.take(1).unwrap().1, SendCause::Full, "it must not wait for others");
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: usize, bytes: u32 },
    Wait { ns: u64 },
    Take,
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..HOLDS_US.len(), prop_oneof![1u32..300, 300u32..3000, Just(12_000)])
            .prop_map(|(flow, bytes)| Step::Arrive { flow, bytes }),
        10 => (0u64..60_000).prop_map(|ns| Step::Wait { ns }),
        10 => Just(Step::Take),
        1 => Just(Step::Drain),
    ]
}

/// The W of each flow.
const HOLDS_US: [u64; 7] = [0, 20, 50, 100, 120, 200, 200];

/// The packets that came in and have not come out.
#[derive(Default)]
struct Model {
    now: Instant,
    next_id: u32,
    /// By name: flow and bytes.
    waiting: HashMap<u32, (usize, u32)>,
    /// By flow: the last that came out.
    last: [Option<u32>; HOLDS_US.len()],
}

impl Model {
    fn arrive(&mut self, chunks: &mut ChunkQueues, flow: usize, bytes: u32) {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.insert(id, (flow, bytes));
        chunks.arrive(
            self.now,
            Entry {
                id: PacketId(id),
                bytes,
                unit_bytes: bytes + 2,
                compressed: false,
                bypass: None,
                looks_random: false,
                arrived: self.now,
                deadline: self.now + HOLDS_US[flow] * MICRO_NS,
            },
        );
    }

    fn left(&mut self, entry: &Entry) {
        let (flow, bytes) = self.waiting.remove(&entry.id.0).expect("it came in, once");
        assert_eq!((entry.bytes, entry.unit_bytes), (bytes, bytes + 2));
        assert!(self.last[flow] < Some(entry.id.0), "the order of flow {flow} is broken");
        self.last[flow] = Some(entry.id.0);
    }

    fn take(&mut self, chunks: &mut ChunkQueues, chunk: &mut Chunk, limits: &Limits) {
        while chunks.take(self.now, chunk) {
            let entries = chunk.entries();
            let bytes: u64 = entries.iter().map(|entry| u64::from(entry.unit_bytes)).sum();
            assert!(!entries.is_empty() && entries.len() <= limits.units_max);
            assert!(bytes <= limits.bytes_max || entries.len() == 1, "{bytes} bytes");
            for entry in &entries[..entries.len() - 1] {
                assert!(entry.unit_bytes <= limits.unit_bytes_named);
            }
            entries.iter().for_each(|entry| self.left(entry));
        }
        // The link is free and nothing was due: then nothing has expired, and nothing waits
        // that is not to be held.
        let next = chunks.next_deadline();
        assert!(next.is_none_or(|at| at > self.now), "the deadline has passed");
        assert_eq!(next.is_none(), self.waiting.is_empty(), "who wakes what waits?");
        assert!(self.waiting.values().all(|&(flow, _)| HOLDS_US[flow] > 0), "held back");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_is_lost_reordered_or_left_behind(
        steps in prop::collection::vec(step(), 1..300),
        units_max in 1usize..300,
        unit_bytes_named in prop_oneof![Just(u32::MAX), 100u32..2000],
    ) {
        let limits = Limits { units_max, unit_bytes_named, ..LIMITS };
        for (queues, fill) in every() {
            let mut chunks = ChunkQueues::new(&queues, limits, fill);
            let mut chunk = Chunk::new(limits);
            let mut model = Model::default();
            for step in &steps {
                match *step {
                    Step::Arrive { flow, bytes } => model.arrive(&mut chunks, flow, bytes),
                    Step::Wait { ns } => model.now = model.now + ns,
                    Step::Take => model.take(&mut chunks, &mut chunk, &limits),
                    Step::Drain => chunks.drain(|entry| model.left(&entry)),
                }
                chunks.assert_invariants();
                prop_assert_eq!(chunks.packets(), model.waiting.len());
            }
            chunks.drain(|entry| model.left(&entry));
            prop_assert!(model.waiting.is_empty());
        }
    }

    /// The timer of BasiCQ against the plain definition of it, with deadlines in any order.
    #[test]
    fn chunks_of_an_idle_link_are_never_late(
        gaps_ns in prop::collection::vec(0u64..30_000, 1..200),
    ) {
        for queues in [Queue::One, Queue::PerClass(timers())] {
            let mut chunks = ChunkQueues::new(&queues, LIMITS, false);
            let mut chunk = Chunk::new(LIMITS);
            let mut model = Model::default();
            for (at, gap_ns) in gaps_ns.iter().enumerate() {
                let arrives = model.now + *gap_ns;
                while let Some(wake) = chunks.next_deadline().filter(|&wake| wake <= arrives) {
                    prop_assert!(chunks.take(wake, &mut chunk), "woken for nothing");
                    prop_assert!(chunk.entries().iter().all(|entry| entry.deadline >= wake));
                    chunk.entries().iter().for_each(|entry| model.left(entry));
                }
                model.now = arrives;
                model.arrive(&mut chunks, 2 + at % 5, 100);
                while chunks.take(arrives, &mut chunk) {
                    chunk.entries().iter().for_each(|entry| model.left(entry));
                }
            }
        }
    }
}

/// The chunking schemes among the presets.
fn presets() -> Vec<Scheme> {
    let all = crate::PRESETS.map(|name| Scheme::preset(name).unwrap());
    all.into_iter().filter(|scheme| scheme.fills_frames()).collect()
}

fn port(scheme: Scheme) -> Port {
    let frame = FrameCost::FREE_CHUNKS;
    Port::new(PortConfig { scheme, frame, ..PortConfig::default() }).unwrap()
}

fn packet(id: u32, bytes: u32, flow: usize) -> Packet {
    let class = ClassKey::new(17, 9);
    Packet {
        id: PacketId(id),
        bytes,
        source: class,
        destination: class,
        flow: flow as u64,
        group: 0,
        max_wait_ns: HOLDS_US[flow] * MICRO_NS,
        looks_random: false,
        takes_mark: false,
        compressed: false,
    }
}

#[test]
fn a_port_says_when_to_ask_again_only_while_its_link_is_free() {
    for scheme in presets() {
        let mut port = port(scheme);
        assert_eq!(port.next_deadline(), None);
        assert_eq!(port.arrive_one(at_us(7), packet(0, 40, 2)), Admission::Queued);
        assert_eq!(port.ask(at_us(7)), None);
        assert_eq!(port.next_deadline(), Some(at_us(57)));
        port.link_busy();
        assert_eq!(port.next_deadline(), None);
        assert_eq!(port.ask(at_us(57)), None);
        port.link_ready();
        assert_eq!(port.ask(at_us(60)), Some(Wanted::Send));
        assert_eq!(
            (port.frame().cause, port.frame().units[0].sojourn_ns),
            (SendCause::Timer, 53_000)
        );
        let late = port.accounts().late;
        assert_eq!((late.packets, late.excess_max_ns), (1, 3_000));
        port.assert_invariants();
    }
}

#[test]
fn each_queue_drops_its_own_tail() {
    for scheme in presets() {
        let mut port = port(scheme);
        let limit = QueueLimit::packets(4);
        port.configure(PortConfig { limit, ..port.config().clone() }).unwrap();
        port.link_busy();
        let mut queued = |flow| {
            (0..6)
                .filter(|&id| {
                    port.arrive_one(Instant::ZERO, packet(id, 40, flow)) == Admission::Queued
                })
                .count()
        };
        let others = if scheme.queue == Queue::One { 0 } else { 3 };
        assert_eq!((queued(2), queued(3), queued(0)), (3, others, others), "{scheme:?}");
        port.assert_invariants();
    }
}

#[derive(Clone, Debug)]
enum PortStep {
    Arrive { flow: usize, bytes: u32, compressed: bool },
    Wait { ns: u64 },
    LinkReady,
    LinkBusy,
    Configure { preset: usize, raw_unit_bytes: u32 },
    Clear,
}

fn port_step() -> impl Strategy<Value = PortStep> {
    prop_oneof![
        20 => (0..HOLDS_US.len(), 1u32..3000, prop::bool::weighted(0.1))
            .prop_map(|(flow, bytes, compressed)| PortStep::Arrive { flow, bytes, compressed }),
        10 => (0u64..60_000).prop_map(|ns| PortStep::Wait { ns }),
        10 => Just(PortStep::LinkReady),
        2 => Just(PortStep::LinkBusy),
        1 => (0..presets().len(), 0u32..9)
            .prop_map(|(preset, raw_unit_bytes)| PortStep::Configure { preset, raw_unit_bytes }),
        1 => Just(PortStep::Clear),
    ]
}

/// Books a packet that the port lets go: each once, and each flow in order.
fn book(model: &mut Model, id: PacketId) {
    let (flow, _) = model.waiting.remove(&id.0).expect("it came in, once");
    assert!(model.last[flow] < Some(id.0), "the order of flow {flow} is broken");
    model.last[flow] = Some(id.0);
}

fn drain(port: &mut Port, model: &mut Model) {
    while let Some(action) = port.ask(model.now) {
        assert_eq!(action, Wanted::Send);
        let frame = port.frame();
        let limits = port.config().frame;
        assert!(frame.units.len() <= limits.units_max as usize);
        let bytes_max = u64::from(limits.units_bytes_max + limits.frame_bytes);
        assert!(frame.link_bytes <= bytes_max || frame.units.len() == 1);
        for unit in &frame.units {
            book(model, unit.id);
        }
    }
    port.assert_invariants();
    let next = port.next_deadline();
    assert!(next.is_none_or(|at| at > model.now), "the deadline has passed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_port_keeps_its_invariants_after_every_event(
        steps in prop::collection::vec(port_step(), 1..300),
        first in 0..presets().len(),
        packets in 2u32..40,
        bytes in 1u64..40_000,
        units_max in 2u32..50,
    ) {
        let frame = FrameCost {
            frame_bytes: 42, raw_unit_bytes: 2, compressed_unit_bytes: 5,
            units_bytes_max: 4_000, unit_bytes_named: 1_000, units_max,
            fragment_bytes: 0,
        fragment_spare_bytes: 0,
        };
        let limit = QueueLimit { packets, bytes, ..QueueLimit::default() };
        let scheme = presets()[first];
        let config = PortConfig { scheme, limit, frame, ..PortConfig::default() };
        let mut port = Port::new(config).unwrap();
        let mut model = Model::default();
        for step in &steps {
            match *step {
                PortStep::Arrive { flow, bytes, compressed } => {
                    let id = model.next_id;
                    model.next_id += 1;
                    let arrival = Packet { compressed, ..packet(id, bytes, flow) };
                    if port.arrive_one(model.now, arrival) == Admission::Queued {
                        model.waiting.insert(id, (flow, bytes));
                    }
                }
                PortStep::Wait { ns } => model.now = model.now + ns,
                PortStep::LinkReady => port.link_ready(),
                PortStep::LinkBusy => port.link_busy(),
                PortStep::Configure { preset, raw_unit_bytes } => {
                    let frame = FrameCost { raw_unit_bytes, ..frame };
                    let scheme = presets()[preset];
                    let config = PortConfig { scheme, frame, ..port.config().clone() };
                    port.configure(config).unwrap();
                }
                PortStep::Clear => port.clear(|id, _| book(&mut model, id)),
            }
            drain(&mut port, &mut model);
            prop_assert_eq!(port.accounts().held.packets, model.waiting.len() as u64);
        }
    }
}

/// Two sensor packets of 400 bytes in frames of 1,000, on a link of 1 Mbit/s.
fn frames_compressed(preset: &str) -> Port {
    let estimate = Estimate { ratio: Ratio::from_ppm(500_000), cost_ns: 10 * MICRO_NS };
    let scheme = Scheme::preset(preset).unwrap().with_frame_bytes_max(1_000);
    let mut port = Port::new(PortConfig {
        scheme: scheme.with_compressed_frames(),
        rate: Some(Rate::from_mbps(1)),
        frame: FrameCost::FREE_CHUNKS,
        estimates: Estimates::Fixed(estimate),
        ..PortConfig::default()
    })
    .unwrap();
    for id in 0..2 {
        assert_eq!(port.arrive_one(at_us(0), packet(id, 400, 2)), Admission::Queued);
    }
    port
}

#[test]
fn a_due_frame_is_compressed_as_a_whole_if_it_leaves_earlier() {
    for preset in ["basicq", "chumq", "chutq-dcf+cea"] {
        let mut port = frames_compressed(preset);
        assert_eq!(port.ask(at_us(0)), None);
        let action = port.poll(at_us(50));
        let Some(Action::Compress(job)) = action else { panic!("{action:?}") };
        assert_eq!((job.packets, job.bytes, job.is_urgent), (2, 800, true));
        assert_eq!(port.batch(), [PacketId(0), PacketId(1)]);
        // The link waits for it, and so does whatever comes now.
        assert_eq!(port.arrive_one(at_us(55), packet(2, 40, 0)), Admission::Queued);
        assert_eq!((port.ask(at_us(55)), port.next_deadline()), (None, None));
        port.assert_invariants();
        port.compressed(PacketId(0), Outcome::Smaller(300), 10_000);
        assert_eq!(port.ask(at_us(60)), Some(Wanted::Send));
        let frame = port.frame();
        let [unit] = frame.units[..] else { panic!("{frame:?}") };
        assert_eq!((unit.bytes, unit.original_bytes, unit.followers), (300, 800, 1));
        assert!(unit.compressed_here && unit.bypass.is_none());
        assert_eq!((frame.link_bytes, frame.followers[0].sojourn_ns), (300, 60_000));
        let compress = port.accounts().compress;
        assert_eq!((compress.compressions, compress.compressed.packets), (1, 2));
        port.assert_invariants();
    }
}

#[test]
fn a_frame_that_does_not_gain_leaves_as_it_was() {
    let mut port = frames_compressed("chumq");
    assert_eq!(port.ask(at_us(50)), Some(Wanted::CompressBatch));
    port.compressed(PacketId(0), Outcome::NotSmaller, 10_000);
    assert_eq!(port.ask(at_us(60)), Some(Wanted::Send));
    assert!(port.frame().units.iter().all(|unit| unit.bypass.is_none() && unit.bytes == 400));
    assert_eq!(port.accounts().compress.not_smaller, 2);
    // On a link that is faster than the compressor it is not tried.
    let mut port = frames_compressed("chumq");
    port.set_rate(Some(Rate::from_mbps(1_000)));
    assert_eq!(port.ask(at_us(50)), Some(Wanted::Send));
    assert_eq!(port.accounts().compress.bypassed[Bypass::NoTime as usize], 2);
    // Nor is one with a packet that must not be compressed, or alone.
    let mut port = frames_compressed("chumq");
    let exceptions = vec![ClassKey::new(17, 9)];
    port.configure(PortConfig { exceptions, ..port.config().clone() }).unwrap();
    let _ = port.arrive_one(at_us(1), packet(2, 40, 2));
    assert_eq!(port.ask(at_us(50)), Some(Wanted::Send));
    let bypassed = port.accounts().compress.bypassed;
    assert_eq!(bypassed[Bypass::Exception as usize] + bypassed[Bypass::NoBlock as usize], 3);
    port.assert_invariants();
}

#[test]
fn clearing_leaves_the_frame_in_the_compressor() {
    let mut port = frames_compressed("basicq");
    assert_eq!(port.ask(at_us(50)), Some(Wanted::CompressBatch));
    assert_eq!(port.arrive_one(at_us(51), packet(2, 40, 2)), Admission::Queued);
    let mut freed = Vec::new();
    port.clear(|id, _| freed.push(id));
    assert_eq!(freed, [PacketId(2)]);
    port.assert_invariants();
    port.compressed(PacketId(0), Outcome::Smaller(300), 10_000);
    port.clear(|id, _| freed.push(id));
    assert_eq!(freed, [PacketId(2), PacketId(0), PacketId(1)]);
    assert!(port.is_empty());
    port.assert_invariants();
}

#[test]
fn a_frame_of_one_packet_or_of_few_bytes_is_not_compressed() {
    let mut port = frames_compressed("chumq");
    port.clear(|_, _| ());
    assert_eq!(port.arrive_one(at_us(0), packet(5, 900, 2)), Admission::Queued);
    assert_eq!(port.ask(at_us(50)), Some(Wanted::Send));
    assert_eq!(port.accounts().compress.bypassed[Bypass::NoBlock as usize], 1);
    for (compress_bytes_min, expected) in [(800, Wanted::CompressBatch), (801, Wanted::Send)] {
        let mut port = frames_compressed("chumq");
        port.configure(PortConfig { compress_bytes_min, ..port.config().clone() }).unwrap();
        assert_eq!(port.ask(at_us(50)), Some(expected), "{compress_bytes_min}");
    }
}
