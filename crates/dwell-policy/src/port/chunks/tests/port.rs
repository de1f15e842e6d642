//! Ports that fill frames.

use dwell_base::Rate;
use dwell_base::time::MICRO_NS;
use proptest::prelude::*;

use super::at_us;
use super::property::{HOLDS_US, Model};
use crate::account::Bypass;
use crate::action::{Action, SendCause};
use crate::config::{FrameCost, QueueLimit};
use crate::estimate::{Estimate, Estimates, LearnedConfig, Ratio};
use crate::packet::ClassKey;
use crate::port::Port;
use crate::port::chunks::*;
use crate::port::shorthand::{Admission, Wanted};
use crate::scheme::Scheme;

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
        batch_bytes_max: u32::MAX,
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
        assert_eq!(port.last_batch(), [PacketId(0), PacketId(1)]);
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

#[test]
fn what_waits_is_counted_with_its_headers_and_with_the_frame_in_the_compressor() {
    for scheme in presets() {
        let frame =
            FrameCost { raw_unit_bytes: 2, compressed_unit_bytes: 5, ..FrameCost::FREE_CHUNKS };
        let mut port = port(scheme);
        port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
        assert_eq!((port.waiting(), port.can_send(), port.backlog_bytes()), ((0, 0), false, 0));
        port.link_busy();
        let upstream = Packet { compressed: true, ..packet(1, 50, 2) };
        assert_eq!(port.arrive_one(at_us(0), packet(0, 40, 2)), Admission::Queued);
        assert_eq!(port.arrive_one(at_us(0), upstream), Admission::Queued);
        assert_eq!(port.waiting(), (0, 2), "{scheme:?}");
        assert_eq!(port.backlog_bytes(), 40 + 2 + 50 + 5, "{scheme:?}");
        assert!(port.can_send());
    }
    let mut port = frames_compressed("chumq");
    assert_eq!(port.ask(at_us(50)), Some(Wanted::CompressBatch));
    assert_eq!(port.waiting(), (0, 2));
    assert_eq!(port.arrive_one(at_us(51), packet(2, 40, 2)), Admission::Queued);
    assert_eq!((port.waiting(), port.backlog_bytes()), ((0, 3), 40));
}

#[test]
fn a_frame_that_was_lost_does_not_come_back() {
    let mut port = port(Scheme::preset("chumq").unwrap());
    let packets = [FramePacket { id: PacketId(7), original_bytes: 40, sojourn_ns: 0 }];
    let lost = LostBatch { packets: &packets, bytes: 40 };
    assert_eq!(port.lose(at_us(0), lost), Admission::Dropped(DropReason::PutBack));
    port.assert_invariants();
}

#[test]
fn what_leaves_at_its_deadline_is_not_late() {
    let mut port = port(Scheme::preset("basicq").unwrap());
    port.link_busy();
    assert_eq!(port.arrive_one(at_us(0), packet(0, 40, 2)), Admission::Queued);
    assert_eq!(port.arrive_one(at_us(10), packet(1, 40, 2)), Admission::Queued);
    port.link_ready();
    assert_eq!(port.ask(at_us(60)), Some(Wanted::Send));
    assert_eq!(port.frame().units.len(), 2);
    let late = port.accounts().late;
    assert_eq!((late.packets, late.excess_max_ns), (1, 10_000), "only the first");
}

#[test]
fn where_nothing_is_compressed_exceptions_are_none() {
    for compresses in [false, true] {
        let mut port = frames_compressed("basicq");
        port.clear(|_, _| ());
        let scheme = Scheme::preset("basicq").unwrap();
        let scheme = if compresses { scheme.with_compressed_frames() } else { scheme };
        let exceptions = vec![ClassKey::new(17, 9)];
        port.configure(PortConfig { scheme, exceptions, ..port.config().clone() }).unwrap();
        let other = Packet {
            source: ClassKey::new(17, 1),
            destination: ClassKey::new(17, 1),
            ..packet(1, 50, 2)
        };
        let upstream = Packet { compressed: true, ..packet(2, 60, 2) };
        for packet in [packet(0, 40, 2), other, upstream] {
            assert_eq!(port.arrive_one(at_us(0), packet), Admission::Queued);
        }
        assert_eq!(port.ask(at_us(50)), Some(Wanted::Send));
        let bypass: Vec<_> = port.frame().units.iter().map(|unit| unit.bypass).collect();
        let (own, others) = match compresses {
            true => (Bypass::Exception, Bypass::NoBlock),
            false => (Bypass::Scheme, Bypass::Scheme),
        };
        assert_eq!(bypass, [own, others, Bypass::AlreadyCompressed].map(Some));
    }
}

/// Compresses a frame of two packets without gain, and returns true for the results of frames that look
/// like text and like noise if they were learned from it.
fn learned_from(random: [bool; 2], bytes: [u32; 2]) -> [bool; 2] {
    learned_of(Outcome::NotSmaller, random, bytes)
}

fn learned_of(outcome: Outcome, random: [bool; 2], bytes: [u32; 2]) -> [bool; 2] {
    let mut port = frames_compressed("basicq");
    port.clear(|_, _| ());
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    for id in 0..2 {
        let at = id as usize;
        let packet = Packet { looks_random: random[at], ..packet(id, bytes[at], 2) };
        assert_eq!(port.arrive_one(at_us(0), packet), Admission::Queued);
    }
    let (flow, class) = Common::FRAMES;
    let costs = |port: &mut Port| {
        let keys = [false, true].map(|random| learned_as(flow, class, random));
        keys.map(|(flow, class)| port.estimate(flow, class, 800).cost_ns)
    };
    let before = costs(&mut port);
    assert_eq!(port.ask(at_us(50)), Some(Wanted::CompressBatch));
    port.compressed(PacketId(0), outcome, 5_000_000);
    let after = costs(&mut port);
    [0, 1].map(|at| before[at] != after[at])
}

#[test]
fn frames_that_are_mostly_noise_are_learned_apart() {
    assert_eq!(learned_from([false, false], [400, 400]), [true, false]);
    assert_eq!(learned_from([true, true], [400, 400]), [false, true]);
    assert_eq!(learned_from([true, false], [500, 400]), [false, true]);
    assert_eq!(learned_from([true, false], [400, 400]), [true, false]);
    assert_eq!(learned_from([true, false], [400, 500]), [true, false]);
}

/// A codec that fails says nothing about the data.
#[test]
fn a_frame_that_failed_teaches_nothing() {
    assert_eq!(learned_of(Outcome::Failed, [false, false], [400, 400]), [false, false]);
}
