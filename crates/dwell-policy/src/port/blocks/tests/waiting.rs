//! Blocks of what waits.

use super::*;
use crate::config::FrameCost;
use crate::scheme::Select;

pub(super) const FRAME: FrameCost = FrameCost {
    frame_bytes: 50,
    raw_unit_bytes: 2,
    compressed_unit_bytes: 5,
    units_bytes_max: 1_500,
    fragment_bytes: 8,
    fragment_spare_bytes: 0,
    unit_bytes_named: 4_000,
    units_max: 64,
};

/// At 10 Mbit/s, with a compression that takes 20 µs and halves.
fn port(gather: Gather, bytes_max: u32) -> Port {
    with_rate(gather, bytes_max, Some(Rate::from_mbps(10)))
}

fn with_rate(gather: Gather, bytes_max: u32, rate: Option<Rate>) -> Port {
    let estimate = Estimate { ratio: Ratio::from_ppm(500_000), cost_ns: 20_000 };
    let mut port = Port::new(PortConfig {
        scheme: Scheme::waiting(gather, bytes_max),
        rate,
        limit: QueueLimit::packets(500),
        frame: FRAME,
        estimates: Estimates::Fixed(estimate),
        compress_bytes_min: 64,
        ..PortConfig::default()
    })
    .unwrap();
    port.link_busy();
    port
}

fn sized(id: u32, bytes: u32, flow: u64) -> Packet {
    Packet { bytes, flow, group: 7, ..packet(id, 7) }
}

fn compress(port: &mut Port, percent: u32) {
    let bytes = 1500 * port.last_batch().len() as u32;
    let (first, to) = (port.last_batch()[0], bytes * percent / 100);
    port.compressed(first, Outcome::Smaller(to), 20_000);
    port.assert_invariants();
}

#[test]
fn nothing_is_compressed_before_the_link_is_near() {
    let mut port = port(Gather::Edge, 6_000);
    // The first is compressed alone: nothing is ahead of it.
    assert_eq!(arrive(&mut port, 0, &[1]), [Wanted::Compress(PacketId(0))]);
    compress(&mut port, 90);
    // 1355 bytes are ahead, less than 2 ms of link time: still near.
    assert_eq!(arrive(&mut port, 1, &[1]), [Wanted::Compress(PacketId(1))]);
    compress(&mut port, 90);
    // Now 2710 bytes are: the others gather.
    assert_eq!(arrive(&mut port, 2, &[1; 6]), []);
    assert_eq!(sent(&mut port), [0]);
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [2, 3, 4, 5], "as much as there is room for");
    compress(&mut port, 50);
    assert_eq!(sent(&mut port), [1]);
    assert_eq!(sent(&mut port), [2, 3, 4, 5]);
}

#[test]
fn what_the_link_takes_at_once_is_compressed_before() {
    let mut port = port(Gather::Edge, 6_000);
    port.set_burst_bytes(4_000);
    arrive(&mut port, 0, &[1]);
    compress(&mut port, 90);
    arrive(&mut port, 1, &[1]);
    compress(&mut port, 90);
    // 2710 bytes are ahead: more than 2 ms of link time, but the link may take them at once.
    assert_eq!(arrive(&mut port, 2, &[1]), [Wanted::Compress(PacketId(2))]);
    compress(&mut port, 90);
    assert_eq!(arrive(&mut port, 3, &[1]), [Wanted::Compress(PacketId(3))]);
    compress(&mut port, 90);
    // Behind 5420 bytes, too, some; behind 6775 the others gather.
    assert_eq!(arrive(&mut port, 4, &[1]), [Wanted::Compress(PacketId(4))]);
    compress(&mut port, 90);
    assert_eq!(arrive(&mut port, 5, &[1; 3]), []);
}

#[test]
fn a_large_block_is_counted_with_its_fragments() {
    let mut port = port(Gather::Edge, 6_000);
    port.set_rate(Some(Rate::from_mbps(1)));
    assert_eq!(arrive(&mut port, 0, &[1]), [Wanted::Compress(PacketId(0))]);
    assert_eq!(arrive(&mut port, 1, &[1; 4]), []);
    compress(&mut port, 100); // it did not become smaller
    assert_eq!(sent(&mut port), [0]);
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [1, 2, 3, 4]);
    compress(&mut port, 50);
    let before = *port.accounts();
    assert_eq!(sent(&mut port), [1, 2, 3, 4]);
    // 3000 bytes and 5 for the header, in parts of 1492 and their 8.
    assert_eq!(port.frame().link_bytes, 3_005 + 3 * (8 + 50));
    assert_eq!(port.accounts().frames - before.frames, 3);
}

#[test]
fn without_a_rate_nothing_waits() {
    let mut port = with_rate(Gather::Edge, 6_000, None);
    assert_eq!(arrive(&mut port, 0, &[1; 20]), []);
}

#[test]
fn a_compress_that_takes_longer_than_it_saves_is_not_begun() {
    // 6000 bytes take 48 µs, and half of that is saved; compressing takes 20 µs.
    for (mbps, compressed) in [(1_000, true), (10_000, false)] {
        let mut port = with_rate(Gather::Edge, 6_000, Some(Rate::from_mbps(mbps)));
        for id in 0..4 {
            assert_eq!(port.arrive_one(NOW, sized(id, 1_500, 1)), Admission::Queued);
        }
        assert_eq!(!actions(&mut port).is_empty(), compressed, "{mbps}");
    }
}

#[test]
fn small_packets_are_compressed_in_company_only() {
    let mut port = port(Gather::Edge, 6_000);
    for id in 0..5 {
        assert_eq!(port.arrive_one(NOW, sized(id, 52, 1)), Admission::Queued);
    }
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    port.compressed(PacketId(0), Outcome::Smaller(90), 10_000);
    assert_eq!(port.arrive_one(NOW, sized(5, 52, 1)), Admission::Queued);
    assert_eq!(actions(&mut port), [], "alone");
    assert_eq!(port.accounts().compress.compressed.packets, 5);
}

#[test]
fn a_block_overtakes_other_flows_but_not_its_own() {
    let mut port = port(Gather::Edge, 9_000);
    // What was compressed upstream is a barrier; what is on the list of exceptions is passed.
    let mut config = port.config().clone();
    config.exceptions = vec![ClassKey::new(6, 443)];
    port.configure(config).unwrap();
    let https = ClassKey::new(6, 443);
    for (id, flow, listed) in [(0, 1, false), (1, 2, true), (2, 1, false), (3, 2, false)] {
        let mut packet = sized(id, 1_500, flow);
        if listed {
            packet.source = https;
        }
        assert_eq!(port.arrive_one(NOW, packet), Admission::Queued);
    }
    assert_eq!(port.arrive_one(NOW, sized(4, 1_500, 3)), Admission::Queued);
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [0, 2], "the fourth would overtake the second");
}

#[test]
fn a_frame_is_near_however_slow_the_link() {
    // A full frame takes 12 ms, and 2 ms are 250 bytes: the second packet is near all the same.
    let mut port = with_rate(Gather::Packet, 1_500, Some(Rate::from_mbps(1)));
    port.link_busy();
    assert_eq!(arrive(&mut port, 0, &[1]), [Wanted::Compress(PacketId(0))]);
    compress(&mut port, 50);
    assert_eq!(actions(&mut port), []);
    assert_eq!(arrive(&mut port, 1, &[2]), [Wanted::Compress(PacketId(1))]);
    compress(&mut port, 90);
    // More than a frame is ahead of the third.
    assert_eq!(arrive(&mut port, 2, &[3]), []);
}

#[test]
fn a_block_passes_sixteen_flows_and_no_more() {
    for (exempt, taken) in [(16, true), (17, false)] {
        let mut port = port(Gather::Edge, 9_000);
        let listed = ClassKey::new(6, 443);
        let config = PortConfig { exceptions: vec![listed], ..port.config().clone() };
        port.configure(config).unwrap();
        assert_eq!(port.arrive_one(NOW, sized(0, 1_500, 1)), Admission::Queued);
        for id in 1..=exempt {
            let packet = Packet { source: listed, ..sized(id, 100, 100 + u64::from(id)) };
            assert_eq!(port.arrive_one(NOW, packet), Admission::Queued);
        }
        assert_eq!(port.arrive_one(NOW, sized(40, 1_500, 1)), Admission::Queued);
        assert!(matches!(actions(&mut port)[..], [Wanted::Compress(_) | Wanted::CompressBatch]));
        let expected: &[u32] = if taken { &[0, 40] } else { &[0] };
        assert_eq!(ids(&port), expected, "{exempt}");
    }
}

#[test]
fn what_does_not_shrink_is_learned_and_left_alone() {
    let mut port = port(Gather::Edge, 3_000);
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    let mut compressed = 0;
    for id in 0..400 {
        let _ = port.arrive_one(NOW, sized(id, 1_500, 1));
        while let Some(action) = port.ask(NOW) {
            let id = match action {
                Wanted::Compress(id) => id,
                Wanted::CompressBatch => port.last_batch()[0],
                other => panic!("{other:?}"),
            };
            port.compressed(id, Outcome::NotSmaller, 20_000);
            compressed += 1;
        }
        if id % 2 == 0 {
            port.link_ready();
            assert!(matches!(port.ask(NOW), Some(Wanted::Send)));
        }
    }
    assert!(compressed < 40, "{compressed} useless tries of 400");
    assert!(port.accounts().compress.bypassed[Bypass::BackOff as usize] > 100);
}

#[test]
fn small_packets_alone_say_nothing_of_blocks() {
    let mut port = port(Gather::Edge, 8_000);
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    // The link is idle now and then: each packet is tried alone, or two together, without gain.
    for id in 0..40 {
        let _ = port.arrive_one(NOW, sized(id, 100, 1));
        while let Some(action) = port.ask(NOW) {
            match action {
                Wanted::Compress(id) => port.compressed(id, Outcome::NotSmaller, 20_000),
                Wanted::CompressBatch => {
                    port.compressed(port.last_batch()[0], Outcome::NotSmaller, 20_000);
                }
                other => panic!("{other:?}"),
            }
        }
        port.link_ready();
        assert_eq!(port.ask(NOW), Some(Wanted::Send));
    }
    // Now many come at once. That they were tried alone without gain must not be held against them.
    for id in 100..160 {
        let _ = port.arrive_one(NOW, sized(id, 100, 1));
    }
    assert_eq!(port.ask(NOW), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 60);
    assert_eq!(port.accounts().compress.bypassed[Bypass::BackOff as usize], 0);
}

#[test]
fn each_packet_of_a_block_has_its_share_of_the_result() {
    let mut port = port_of(Scheme::backlog(Gather::Edge, 2, 0));
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    for id in (0..90).step_by(3) {
        for (id, bytes, flow) in [(id, 2_000, 1), (id + 1, 1_000, 2), (id + 2, 1_000, 3)] {
            assert_eq!(port.arrive_one(NOW, sized(id, bytes, flow)), Admission::Queued);
        }
        assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
        assert_eq!(ids(&port), [id, id + 1]);
        assert_eq!(finish(&mut port, Outcome::Smaller(1_500)), []);
        assert_eq!((sent(&mut port), sent(&mut port)), (vec![id, id + 1], vec![id + 2]));
    }
    let class = ClassKey::new(6, 80);
    for (flow, bytes, cost_ns) in [(1, 2_000, 400_000), (2, 1_000, 200_000)] {
        let estimate = port.estimate(flow, class, bytes);
        assert!((480_000..520_000).contains(&estimate.ratio.ppm()), "{estimate:?}");
        assert!(estimate.cost_ns.abs_diff(cost_ns) < cost_ns / 10, "{estimate:?}");
    }
}

#[test]
fn a_block_has_no_more_packets_than_it_has_room_for() {
    let mut port = port(Gather::Edge, 9_000);
    let mut scheme = port.config().scheme;
    let Select::Waiting { packets_max, .. } = &mut scheme.select else { panic!("{scheme:?}") };
    *packets_max = 3;
    port.configure(PortConfig { scheme, ..port.config().clone() }).unwrap();
    for id in 0..5 {
        assert_eq!(port.arrive_one(NOW, sized(id, 500, 1)), Admission::Queued);
    }
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    assert_eq!(ids(&port), [0, 1, 2]);
}

#[test]
fn what_is_as_large_as_the_least_needs_no_company() {
    for (bytes, compressed) in [(63, false), (64, true)] {
        let mut port = port(Gather::Edge, 6_000);
        assert_eq!(port.arrive_one(NOW, sized(0, bytes, 1)), Admission::Queued);
        assert_eq!(!actions(&mut port).is_empty(), compressed, "{bytes}");
        // What finds no company because nothing is gathered never gets any.
        let mut port = port_of(Scheme::backlog(Gather::Packet, 1, 0));
        let config = PortConfig { compress_bytes_min: 64, ..port.config().clone() };
        port.configure(config).unwrap();
        for id in 0..2 {
            assert_eq!(port.arrive_one(NOW, sized(id, bytes, 1)), Admission::Queued);
        }
        assert_eq!(!actions(&mut port).is_empty(), compressed, "{bytes}");
    }
}

#[test]
fn noise_stays_out_of_contexts() {
    for (contexts, looks_random, compressed) in
        [(false, true, true), (true, false, true), (true, true, false)]
    {
        let mut port = port(Gather::Flow, 6_000);
        if contexts {
            let scheme = port.config().scheme.with_contexts();
            port.configure(PortConfig { scheme, ..port.config().clone() }).unwrap();
        }
        let arrival = Packet { looks_random, ..sized(0, 1_500, 1) };
        assert_eq!(port.arrive_one(NOW, arrival), Admission::Queued);
        assert_eq!(!actions(&mut port).is_empty(), compressed, "{contexts} {looks_random}");
    }
}

/// The order of compression is the order of sending, or the other end could not decompress.
#[test]
fn nothing_is_compressed_before_what_its_context_has_already() {
    for (contexts, group, compressed) in [(true, 7, false), (true, 8, true), (false, 7, true)] {
        let mut port = with_rate(Gather::Flow, 1_500, Some(Rate::from_mbps(1_000)));
        if contexts {
            let scheme = port.config().scheme.with_contexts();
            port.configure(PortConfig { scheme, ..port.config().clone() }).unwrap();
        }
        // The first has no time, as nothing is ahead of it; the second has.
        assert_eq!(port.arrive_one(NOW, sized(0, 3_000, 1)), Admission::Queued);
        let second = Packet { group, ..sized(1, 1_500, group) };
        assert_eq!(port.arrive_one(NOW, second), Admission::Queued);
        assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(1))]);
        let outcome = if contexts { Outcome::Committed(800) } else { Outcome::Smaller(800) };
        port.compressed(PacketId(1), outcome, 20_000);
        assert_eq!(actions(&mut port), []);
        // Now the first would have time, too.
        port.set_ahead(10_000, false);
        let expected = [Wanted::Compress(PacketId(0))];
        let expected = if compressed { &expected[..] } else { &[] };
        assert_eq!(actions(&mut port), expected, "{contexts} {group}");
    }
}

/// A port at 1 Gbit/s, where compressing takes `cost_ns` and halves, and packets of different
/// flows that wait in it: 125 bytes go in a microsecond, and 250 kB are near.
fn fast_port(packets: u32, bytes: u32, cost_ns: u64) -> Port {
    let mut port = with_rate(Gather::Flow, 6_000, Some(Rate::from_mbps(1_000)));
    let estimate = Estimate { ratio: Ratio::from_ppm(500_000), cost_ns };
    let (estimates, limit) = (Estimates::Fixed(estimate), QueueLimit::packets(2_000));
    port.configure(PortConfig { estimates, limit, ..port.config().clone() }).unwrap();
    for id in 0..packets {
        let packet = Packet { bytes, ..packet(id, u64::from(id)) };
        assert_eq!(port.arrive_one(NOW, packet), Admission::Queued);
    }
    port
}

/// A packet of 500 bytes has time behind 2251, which five are with their frames. Each that is asked
/// and has none lets as many bytes pass as a frame takes, so that few are asked.
#[test]
fn who_has_no_time_is_not_asked_again_and_again() {
    let mut port = fast_port(12, 500, 20_000);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(6))], "after the first and fourth");
    // Where more than two frames are missing, half of it passes: here the 12th is asked, the 18th,
    // 21st and 24th, though the 22nd would have had time.
    let mut port = fast_port(40, 500, 88_000);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(23))]);
}

/// Behind 1024 units none is looked for, however fast the link.
#[test]
fn the_search_for_packets_with_time_has_an_end() {
    // What was compressed upstream is passed one by one.
    for (ahead, found) in [(1_023, true), (1_024, false)] {
        let mut port = fast_port(0, 0, 1_000);
        for id in 0..ahead {
            let upstream = Packet { bytes: 100, compressed: true, ..packet(id, u64::from(id)) };
            assert_eq!(port.arrive_one(NOW, upstream), Admission::Queued);
        }
        assert_eq!(port.arrive_one(NOW, packet(1_500, 1)), Admission::Queued);
        assert_eq!(!actions(&mut port).is_empty(), found, "{ahead}");
    }
    // 150 kB must be ahead, which 1471 packets are: they are too far behind.
    assert_eq!(actions(&mut fast_port(1_600, 100, 1_200_000)), []);
}

/// A frame takes 1500 bytes, which is more than 2 ms of this link.
#[test]
fn what_is_behind_a_frame_is_not_near() {
    for (ahead_bytes, near) in [(1_499, true), (1_500, false)] {
        let mut port = with_rate(Gather::Flow, 6_000, Some(Rate::from_mbps(1)));
        let header_bytes = FRAME.compressed_unit_bytes;
        let upstream =
            Packet { bytes: ahead_bytes - header_bytes, compressed: true, ..packet(0, 1) };
        assert_eq!(port.arrive_one(NOW, upstream), Admission::Queued);
        assert_eq!(arrive(&mut port, 1, &[2]).is_empty(), !near, "{ahead_bytes}");
    }
}

/// What has no time is tried now and then, if its result says something about larger batches.
#[test]
fn small_batches_are_not_explored() {
    for (gather, bytes, explored) in
        [(Gather::Flow, 999, false), (Gather::Flow, 1_000, true), (Gather::Packet, 100, true)]
    {
        let mut port = with_rate(gather, 6_000, Some(Rate::from_mbps(1_000)));
        let learned = LearnedConfig { first_cost_ps_per_byte: 1_000_000, ..Default::default() };
        let estimates = Estimates::Learned(learned);
        port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
        assert_eq!(port.arrive_one(NOW, sized(0, bytes, 1)), Admission::Queued);
        assert_eq!(!actions(&mut port).is_empty(), explored, "{gather:?} {bytes}");
        // Without a share of the time nothing is explored.
        let estimates = Estimates::Learned(LearnedConfig { explore_ppm: 0, ..learned });
        let mut port = with_rate(gather, 6_000, Some(Rate::from_mbps(1_000)));
        port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
        assert_eq!(port.arrive_one(NOW, sized(0, bytes, 1)), Admission::Queued);
        assert_eq!(actions(&mut port), [], "{gather:?} {bytes}");
    }
}
