//! Chunks hold what came in, in order, whatever happens.

use std::collections::HashMap;

use dwell_base::Instant;
use dwell_base::time::MICRO_NS;
use proptest::prelude::*;

use super::{LIMITS, every, timers};
use crate::packet::PacketId;
use crate::port::chunks::*;
use crate::scheme::Queue;

#[derive(Clone, Debug)]
enum ChunkStep {
    Arrive { flow: usize, bytes: u32 },
    Wait { ns: u64 },
    Take,
    Drain,
}

fn step() -> impl Strategy<Value = ChunkStep> {
    prop_oneof![
        20 => (0..HOLDS_US.len(), prop_oneof![1u32..300, 300u32..3000, Just(12_000)])
            .prop_map(|(flow, bytes)| ChunkStep::Arrive { flow, bytes }),
        10 => (0u64..60_000).prop_map(|ns| ChunkStep::Wait { ns }),
        10 => Just(ChunkStep::Take),
        1 => Just(ChunkStep::Drain),
    ]
}

/// The W of each flow.
pub(super) const HOLDS_US: [u64; 7] = [0, 20, 50, 100, 120, 200, 200];

/// The packets that came in and have not come out.
#[derive(Default)]
pub(super) struct Model {
    pub(super) now: Instant,
    pub(super) next_id: u32,
    /// By name: flow and bytes.
    pub(super) waiting: HashMap<u32, (usize, u32)>,
    /// By flow: the last that came out.
    pub(super) last: [Option<u32>; HOLDS_US.len()],
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
                    ChunkStep::Arrive { flow, bytes } => model.arrive(&mut chunks, flow, bytes),
                    ChunkStep::Wait { ns } => model.now = model.now + ns,
                    ChunkStep::Take => model.take(&mut chunks, &mut chunk, &limits),
                    ChunkStep::Drain => chunks.drain(|entry| model.left(&entry)),
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
