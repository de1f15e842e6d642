//! Limits, what comes back, and what is cleared.

use super::*;
use crate::account::Count;
use crate::event::LostBatch;
use crate::port::shorthand::Admission;

fn limited(limit: QueueLimit) -> Port {
    let mut port = port(1_000);
    port.configure(PortConfig { limit, ..port.config().clone() }).unwrap();
    port
}

fn dropped(port: &Port) -> u64 {
    port.accounts().dropped_total().packets
}

#[test]
fn as_many_bytes_wait_as_the_limit_says() {
    let mut port = limited(QueueLimit { bytes: 3_000, ..QueueLimit::packets(10_000) });
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(dropped(&port), 0);
    arrive(&mut port, at(0), packet(3, 2, 1_000));
    assert_eq!(dropped(&port), 1);
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Drop(PacketId(0), DropReason::QueueBytes)));
    // One alone may be of any size.
    let mut port = limited(QueueLimit { bytes: 3_000, ..QueueLimit::packets(10_000) });
    arrive(&mut port, at(0), packet(1, 1, 3_001));
    assert_eq!(dropped(&port), 0);
}

#[test]
fn as_much_waits_as_the_link_sends_in_the_limit_of_time() {
    // 4 ms of 10 Mbit/s are 5,000 bytes.
    let time_ns = 4 * MILLI_NS;
    let mut port = limited(QueueLimit { time_ns, ..QueueLimit::packets(10_000) });
    for id in 0..5 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(dropped(&port), 0);
    arrive(&mut port, at(0), packet(5, 1, 100));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Drop(PacketId(0), DropReason::QueueBytes)));
    assert_eq!(dropped(&port), 1);
}

#[test]
fn what_a_connection_sends_before_it_hears_of_it_may_wait_too() {
    // 16 ms of 10 Mbit/s.
    let time_ns = 4 * MILLI_NS;
    let mut port = limited(QueueLimit { time_ns, ..QueueLimit::packets(10_000) });
    let rate = Some(Rate::from_mbps(10));
    let round_trip_ns = 16 * MILLI_NS;
    port.handle(at(0), Event::Link(LinkState { round_trip_ns, ..LinkState::of_rate(rate) }));
    for id in 0..20 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(dropped(&port), 0);
    arrive(&mut port, at(0), packet(20, 1, 100));
    assert_eq!(dropped(&port), 1);
}

/// Loses a batch of these packets of 500 bytes each, of 600 bytes compressed.
fn lose(port: &mut Port, ids: std::ops::Range<u32>) -> Admission {
    let packets: Vec<_> = ids
        .map(|id| FramePacket { id: PacketId(id), original_bytes: 500, sojourn_ns: MILLI_NS })
        .collect();
    port.lose(at(10), LostBatch { packets: &packets, bytes: 600 })
}

#[test]
fn what_comes_back_goes_first_and_has_as_much_room_as_what_arrives() {
    let mut port = limited(QueueLimit::packets(5));
    let refused = Admission::Dropped(DropReason::PutBack);
    assert_eq!(
        (lose(&mut port, 0..3), lose(&mut port, 3..5)),
        (Admission::Queued, Admission::Queued)
    );
    assert_eq!((lose(&mut port, 5..6), lose(&mut port, 0..0)), (refused, refused));
    assert_eq!(ask(&mut port, at(10)), None);
    assert_eq!((port.waiting(), port.accounts().held.packets), ((0, 2), 5));
    // Two units with their headers, and one frame.
    assert_eq!(port.backlog_bytes(), 2 * 609 + 50);
    ready(&mut port, at(12));
    assert_eq!(ask(&mut port, at(12)), Some(Wanted::Send));
    assert_eq!(frame(&port), [3, 0, 4, 1, 2]);
    let unit = port.frame().units[0];
    assert_eq!((unit.bytes, unit.original_bytes, unit.followers), (600, 1_000, 1));
    assert!(unit.compressed_here);
    assert_eq!((unit.bypass, unit.sojourn_ns), (None, 3 * MILLI_NS));
    assert_eq!(port.frame().followers[0].sojourn_ns, 3 * MILLI_NS);
    assert!(port.is_empty());
    // What was sent makes room again.
    assert_eq!((lose(&mut port, 0..5), lose(&mut port, 5..6)), (Admission::Queued, refused));
}

#[test]
fn clearing_leaves_the_batch_in_the_compressor() {
    let mut port = port(1_000);
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(port.backlog_bytes(), 60 * 1_400 + 60 * 50);
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.waiting(), (57, 0));
    done(&mut port, 1_000);
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!((port.waiting(), port.last_batch()), ((54, 1), &[3, 4, 5].map(PacketId)[..]));
    // Another cost of frames: what waits is counted again, what is being compressed is not.
    let frame = FrameCost { compressed_unit_bytes: 19, ..port.config().frame };
    port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
    port.assert_invariants();
    let mut cleared = Vec::new();
    port.clear(|id, reason| {
        assert_eq!(reason, DropReason::Cleared);
        cleared.push(id.0);
    });
    port.assert_invariants();
    cleared.sort_unstable();
    assert!(cleared.iter().copied().eq((0..3).chain(6..60)), "{cleared:?}");
    assert_eq!((port.waiting(), port.accounts().held.packets), ((0, 0), 3));
    assert_eq!(port.backlog_bytes(), 0);
    done(&mut port, 1_000);
    assert_eq!(port.waiting(), (0, 1));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(super::frame(&port), [3, 4, 5]);
    assert!(port.is_empty());
}

#[test]
fn a_batch_is_booked_with_all_its_packets() {
    let mut port = port(1_000);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    port.compressed(PacketId(0), Outcome::Committed(700), 7);
    let compress = port.accounts().compress;
    assert_eq!(compress.compressed, Count { packets: 3, bytes: 3_000 });
    assert_eq!((compress.compressed_to_bytes, compress.tried), (700, 3));
}

/// A port that learns, and believes at first that a tenth is saved in no time.
fn learning(first_cost_ps_per_byte: u32) -> Port {
    let mut port = port(0);
    let learned = crate::LearnedConfig { first_cost_ps_per_byte, ..Default::default() };
    let estimates = Estimates::Learned(learned);
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    port
}

/// Compresses a batch of so many packets of `bytes` bytes, and returns what was learned of them: the
/// ratio in parts per million, and picoseconds per byte.
fn learned_of((packets, bytes): (u32, u32), outcome: Outcome, took_ns: u64) -> (u32, u32) {
    let mut port = learning(5_000);
    port.handle(at(0), Event::LinkReady);
    for id in 0..packets {
        arrive(&mut port, at(0), packet(id, 1, bytes));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    port.compressed(PacketId(0), outcome, took_ns);
    let (class, ratio, cost, _) = port.learned_classes().next().unwrap();
    assert_eq!((class, port.learned_classes().count()), (ClassKey::new(6, 80), 1));
    (ratio.ppm(), cost)
}

#[test]
fn a_batch_is_learned_once_for_each_flow() {
    let first: (u32, u32) = (900_000, 5_000);
    // A quarter is left, and 10 ns a byte: an eighth of the difference, however many packets.
    let learned =
        (first.0 - (first.0 - 250_000).div_ceil(8), first.1 + (10_000 - first.1).div_ceil(8));
    assert_eq!(learned_of((3, 1_000), Outcome::Committed(750), 30_000), learned);
    // Less than 1,000 bytes say nothing, a failure neither.
    assert_eq!(learned_of((3, 333), Outcome::Committed(249), 9_990), first);
    assert_ne!(learned_of((4, 250), Outcome::Committed(249), 9_990), first);
    assert_eq!(learned_of((3, 1_000), Outcome::Failed, 30_000), first);
    // What did not shrink is learned as such.
    assert!(learned_of((3, 1_000), Outcome::NotSmaller, 30_000).0 > first.0);
}

#[test]
fn what_the_rule_refuses_is_explored_if_it_says_something() {
    // At 2 µs a byte nothing has time: the link takes 0.8 µs, of which a tenth is saved.
    for (bytes, wanted) in [(1_000, Wanted::Compress(PacketId(1))), (999, Wanted::Send)] {
        let mut port = learning(2_000_000);
        ready(&mut port, at(0));
        arrive(&mut port, at(0), packet(1, 1, bytes));
        assert_eq!(ask(&mut port, at(0)), Some(wanted), "{bytes}");
    }
}

#[test]
fn a_flow_of_poor_results_is_left_alone_and_asked_once_for_each_packet() {
    let mut port = learning(5_000);
    let compress = |id| Some(Wanted::Compress(PacketId(id)));
    for id in 0..5 {
        ready(&mut port, at(0));
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        assert_eq!(ask(&mut port, at(0)), compress(id));
        port.compressed(PacketId(id), Outcome::NotSmaller, 1_000);
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
        assert_eq!((ask(&mut port, at(0)), frame(&port)), (None, vec![id]));
    }
    for id in 5..12 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    for id in 5..10 {
        // However often it is asked for.
        assert_eq!((ask(&mut port, at(0)), ask(&mut port, at(0))), (None, None));
        ready(&mut port, at(0));
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
        assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![id], Some(Bypass::BackOff)));
    }
    ready(&mut port, at(0));
    assert!(matches!(ask(&mut port, at(0)), Some(Wanted::Compress(_) | Wanted::CompressBatch)));
    assert_eq!(port.last_batch()[0], PacketId(10));
}
