use dwell_base::time::MICRO_NS;

use super::shorthand::{Admission, Wanted};
use super::*;
use crate::account::Bypass;
use crate::action::FramePacket;
use crate::config::{FrameCost, QueueLimit};
use crate::estimate::LearnedConfig;
use crate::event::{LinkState, Outcome};
use crate::scheme::{Gather, Queue, Scheme};
use dwell_base::Rate;

mod frames;
/// Random events, and what must hold after each of them.
mod property;

const TCP_80: ClassKey = ClassKey::new(6, 80);
const TCP_HIGH: ClassKey = ClassKey::new(6, 50_000);

/// Table 2 of Shimamura et al.: 100 Mbit/s, 500-byte packets (40 µs each), C = 200 µs.
fn paper(scheme: Scheme, ratio_ppm: u32) -> Port {
    Port::new(PortConfig {
        scheme,
        rate: Some(Rate::from_mbps(100)),
        limit: QueueLimit::packets(1000),
        estimates: Estimates::Fixed(Estimate {
            ratio: Ratio::from_ppm(ratio_ppm),
            cost_ns: 200 * MICRO_NS,
        }),
        ..PortConfig::default()
    })
    .unwrap()
}

fn packet(id: u32) -> Packet {
    Packet {
        id: PacketId(id),
        bytes: 500,
        source: TCP_80,
        destination: TCP_HIGH,
        flow: 7 << 40,
        group: 0,
        max_wait_ns: Packet::NEVER_HELD,
        batch_bytes_max: u32::MAX,
        looks_random: false,
        takes_mark: false,
        compressed: false,
    }
}

fn arrive(port: &mut Port, id: u32) {
    assert_eq!(port.arrive_one(Instant::ZERO, packet(id)), Admission::Queued);
}

fn actions(port: &mut Port) -> Vec<Wanted> {
    let actions = std::iter::from_fn(|| port.ask(Instant::ZERO)).collect();
    port.assert_invariants();
    actions
}

#[test]
fn the_first_packet_goes_straight_to_an_idle_link() {
    let mut port = paper(Scheme::packet(), 700_000);
    arrive(&mut port, 1);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().units[0].id, PacketId(1));
    assert_eq!(port.accounts().compress.bypassed[Bypass::NoTime as usize], 1);
}

#[test]
fn eq_2_compresses_the_first_packet_with_five_ahead_of_it() {
    // N_R = C·B/S + (1 − R) = 5.3: with R = 0.7, W must exceed 188 µs, which is 4.7 packets.
    let mut port = paper(Scheme::packet(), 700_000);
    for id in 0..6 {
        arrive(&mut port, id);
        let asked = actions(&mut port);
        assert!(!asked.contains(&Wanted::Compress(PacketId(id))), "{id}");
    }
    arrive(&mut port, 6); // one on the wire, five waiting
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(6))]);
    // While it is being compressed, followers wait behind it, even though they have no time.
    arrive(&mut port, 7);
    assert_eq!(actions(&mut port), []);
    assert_eq!(port.waiting(), (1, 5));
    port.compressed(PacketId(6), Outcome::Smaller(350), 200 * MICRO_NS);
    // 5.7 packets ahead: number 7 has time as well.
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(7))]);
}

#[test]
fn every_job_has_a_name_of_its_own_and_is_booked() {
    let mut port = paper(Scheme::all(), 700_000);
    for (id, took_ns) in [(0, 3_000), (1, 4_000), (2, 5_000)] {
        arrive(&mut port, id);
        let Some(Action::Compress(job)) = port.poll(Instant::ZERO) else { panic!("no job") };
        assert_eq!((job.id.0, job.packets, job.bytes), (u64::from(id), 1, 500));
        let outcome = Outcome::Smaller(350);
        port.handle(Instant::ZERO, Event::Compressed { job: job.id, outcome, took_ns });
        port.link_ready();
        assert_eq!(actions(&mut port), [Wanted::Send]);
    }
    let compress = port.accounts().compress;
    assert_eq!((compress.compressions, compress.tried, compress.took_ns), (3, 3, 12_000));
    assert_eq!((compress.compressed.bytes, compress.compressed_to_bytes), (1_500, 1_050));
}

#[test]
fn what_is_as_large_as_the_least_is_compressed() {
    for (compress_bytes_min, wanted) in [(500, Wanted::Compress(PacketId(1))), (501, Wanted::Send)]
    {
        let mut port = paper(Scheme::all(), 700_000);
        port.configure(PortConfig { compress_bytes_min, ..port.config().clone() }).unwrap();
        arrive(&mut port, 1);
        assert_eq!(actions(&mut port), [wanted]);
    }
}

#[test]
fn all_compresses_even_on_an_idle_link() {
    let mut port = paper(Scheme::all(), 700_000);
    arrive(&mut port, 1);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(1))]);
    port.compressed(PacketId(1), Outcome::Smaller(350), 200 * MICRO_NS);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().units[0].bytes, 350);
    assert_eq!(port.frame().units[0].original_bytes, 500);
}

#[test]
fn a_packet_compressed_upstream_is_not_compressed_again() {
    let mut port = paper(Scheme::all(), 700_000);
    let upstream = Packet { compressed: true, bytes: 350, ..packet(1) };
    assert_eq!(port.arrive_one(Instant::ZERO, upstream), Admission::Queued);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert!(!port.frame().units[0].compressed_here);
    assert_eq!(port.accounts().compress.bypassed[Bypass::AlreadyCompressed as usize], 1);
}

#[test]
fn a_packet_compressed_upstream_can_pass_those_that_wait_for_the_cpu() {
    let mut port = paper(Scheme { queue: Queue::CpuAndLink, ..Scheme::all() }, 700_000);
    port.link_busy();
    for id in 0..3 {
        arrive(&mut port, id);
    }
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(0))]);
    let upstream = Packet { compressed: true, bytes: 350, ..packet(3) };
    assert_eq!(port.arrive_one(Instant::ZERO, upstream), Admission::Queued);
    assert_eq!(port.waiting(), (2, 1));
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().units[0].id, PacketId(3));
    port.compressed(PacketId(0), Outcome::Smaller(350), 1);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(1))]);
    assert_eq!(port.waiting(), (1, 1));
}

#[test]
fn with_passing_each_queue_has_its_own_limit() {
    let mut port = paper(Scheme { queue: Queue::CpuAndLink, ..Scheme::all() }, 700_000);
    port.configure(PortConfig { limit: QueueLimit::packets(4), ..port.config().clone() }).unwrap();
    port.link_busy();
    for id in 0..4 {
        arrive(&mut port, id); // one being compressed, three in the CPU queue
        actions(&mut port);
    }
    let full = Admission::Dropped(DropReason::QueuePackets);
    assert_eq!(port.arrive_one(Instant::ZERO, packet(4)), full);
    for id in 5..8 {
        let upstream = Packet { compressed: true, ..packet(id) };
        assert_eq!(port.arrive_one(Instant::ZERO, upstream), Admission::Queued);
    }
    assert_eq!(port.arrive_one(Instant::ZERO, Packet { compressed: true, ..packet(8) }), full);
    // The relay queue is full: what comes out of the compressor has no room.
    port.compressed(PacketId(0), Outcome::Smaller(350), 1);
    let drop = Wanted::Drop(PacketId(0), DropReason::QueuePackets);
    assert_eq!(actions(&mut port), [drop, Wanted::Compress(PacketId(1))]);
}

#[test]
fn a_unit_that_was_lost_goes_before_all_others() {
    let mut port = paper(Scheme::all(), 700_000);
    arrive(&mut port, 1);
    actions(&mut port);
    port.compressed(PacketId(1), Outcome::Smaller(350), 1);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    arrive(&mut port, 2);
    actions(&mut port);
    port.compressed(PacketId(2), Outcome::Smaller(350), 1);
    let packet = FramePacket { id: PacketId(1), original_bytes: 500, sojourn_ns: 7_000 };
    let unit = LostBatch { packets: &[packet], bytes: 350 };
    assert_eq!(port.lose(Instant::from_ns(9_000), unit), Admission::Queued);
    port.link_ready();
    assert_eq!(port.ask(Instant::from_ns(9_000)), Some(Wanted::Send));
    let unit = port.frame().units[0];
    assert_eq!((unit.id, unit.bytes, unit.sojourn_ns), (PacketId(1), 350, 7_000));
    assert_eq!(port.accounts().sent.packets, 2);
    assert_eq!(port.accounts().put_back.packets, 1);
    // There is no block here to put back.
    let unit = LostBatch { packets: &[packet, packet], bytes: 350 };
    assert_eq!(port.lose(Instant::ZERO, unit), Admission::Dropped(DropReason::PutBack));
    port.assert_invariants();
}

#[test]
fn a_result_that_is_not_smaller_is_sent_raw() {
    for outcome in [Outcome::NotSmaller, Outcome::Smaller(500), Outcome::Failed] {
        let mut port = paper(Scheme::all(), 700_000);
        arrive(&mut port, 1);
        actions(&mut port);
        port.compressed(PacketId(1), outcome, 1);
        assert_eq!(actions(&mut port), [Wanted::Send]);
        assert_eq!(port.frame().units[0].bytes, 500);
        assert!(!port.frame().units[0].compressed_here);
    }
}

#[test]
fn the_1000th_slot_is_never_filled() {
    let mut port = paper(Scheme::none(), 700_000);
    for id in 0..1000 {
        arrive(&mut port, id); // 1 on the wire and 999 waiting
        actions(&mut port);
    }
    let dropped = port.arrive_one(Instant::ZERO, packet(1000));
    assert_eq!(dropped, Admission::Dropped(DropReason::QueuePackets));
    port.assert_invariants();
}

#[test]
fn what_comes_out_of_the_compress_may_be_one_more_than_the_limit_lets_in() {
    let mut port = paper(Scheme::all(), 700_000);
    port.configure(PortConfig { limit: QueueLimit::packets(6), ..port.config().clone() }).unwrap();
    port.link_busy();
    for id in 0..6 {
        arrive(&mut port, id); // one being compressed, five waiting
        actions(&mut port);
    }
    let scheme = Scheme::none();
    port.configure(PortConfig { scheme, ..port.config().clone() }).unwrap();
    port.compressed(PacketId(0), Outcome::NotSmaller, 1);
    assert_eq!(actions(&mut port), []);
    assert_eq!(port.waiting(), (0, 6));
}

#[test]
fn the_limit_of_time_follows_the_rate_and_leaves_room_for_a_burst() {
    let limit = QueueLimit { time_ns: 1_000_000, time_floor_bytes: 2_000, ..Default::default() };
    let mut port = paper(Scheme::none(), 1);
    port.configure(PortConfig { limit, ..port.config().clone() }).unwrap();
    let fill = |port: &mut Port| {
        (0..)
            .take_while(|&id| port.arrive_one(Instant::ZERO, packet(id)) == Admission::Queued)
            .count()
    };
    assert_eq!(fill(&mut port), 25); // 1 ms at 100 Mbit/s
    port.clear(|_, _| ());
    port.set_rate(Rate::from_bps(1000));
    assert_eq!(fill(&mut port), 4);
    port.assert_invariants_except_idle();
}

#[test]
fn waiting_packets_share_a_frame() {
    let mut port = paper(Scheme::none(), 1);
    let frame = FrameCost {
        frame_bytes: 48,
        raw_unit_bytes: 2,
        compressed_unit_bytes: 5,
        units_bytes_max: 1_400,
        fragment_bytes: 0,
        fragment_spare_bytes: 0,
        unit_bytes_named: u32::MAX,
        units_max: 8,
    };
    port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
    port.link_busy();
    for id in 0..3 {
        arrive(&mut port, id);
    }
    actions(&mut port);
    assert_eq!(port.backlog_bytes(), 3 * 502 + 2 * 48);
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!((port.frame().units.len(), port.frame().link_bytes), (2, 48 + 2 * 502));
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().units.len(), 1);
}

#[test]
fn a_unit_whose_length_has_no_name_ends_its_frame() {
    let mut port = paper(Scheme::none(), 1);
    let frame = FrameCost {
        units_bytes_max: 9_000,
        fragment_bytes: 0,
        fragment_spare_bytes: 0,
        unit_bytes_named: 400,
        units_max: 8,
        ..FrameCost::FREE
    };
    port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
    port.link_busy();
    for (id, bytes) in [(0, 300), (1, 500), (2, 300)] {
        let small = Packet { bytes, ..packet(id) };
        assert_eq!(port.arrive_one(Instant::ZERO, small), Admission::Queued);
    }
    actions(&mut port);
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().units.len(), 2);
}

#[test]
fn exceptions_match_either_port() {
    let mut port = paper(Scheme::all(), 1);
    port.configure(PortConfig { exceptions: vec![TCP_HIGH, TCP_80], ..port.config().clone() })
        .unwrap();
    arrive(&mut port, 1);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.accounts().compress.bypassed[Bypass::Exception as usize], 1);
}

#[test]
fn either_port_alone_is_an_exception() {
    for listed in [TCP_HIGH, TCP_80] {
        let mut port = paper(Scheme::all(), 1);
        port.configure(PortConfig { exceptions: vec![listed], ..port.config().clone() }).unwrap();
        arrive(&mut port, 1);
        assert_eq!(actions(&mut port), [Wanted::Send], "{listed}");
        assert_eq!(port.accounts().compress.bypassed[Bypass::Exception as usize], 1);
    }
}

#[test]
fn the_headers_of_frames_are_waited_for_too() {
    // Five packets ahead do not suffice without headers (4.7 would with R = 0.7), four with them do.
    let frame = FrameCost { frame_bytes: 100, units_bytes_max: 500, ..FrameCost::FREE };
    let first_compressed = |frame: FrameCost| {
        let mut port = paper(Scheme::packet(), 700_000);
        port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
        port.link_busy();
        (0..10).find(|&id| {
            arrive(&mut port, id);
            actions(&mut port).contains(&Wanted::Compress(PacketId(id)))
        })
    };
    assert_eq!(first_compressed(FrameCost::FREE), Some(5));
    assert_eq!(first_compressed(frame), Some(4));
}

#[test]
fn an_incompressible_flow_is_soon_left_alone() {
    let mut port = paper(Scheme::packet(), 1);
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    port.link_busy();
    for id in 0..900 {
        arrive(&mut port, id);
        if let [Wanted::Compress(id)] = actions(&mut port)[..] {
            port.compressed(id, Outcome::NotSmaller, 5_000);
            actions(&mut port);
        }
    }
    let tried = port.accounts().compress.tried;
    assert!((5..20).contains(&tried), "{tried}");
}

/// Single packets that come to a link that is never behind, so that the rule refuses all of them
/// by its first guess; compressing them halves them in 5 µs. Returns how many were compressed.
fn compressed_on_an_idle_link(scheme: Scheme, explore_ppm: u32) -> u64 {
    let estimates = LearnedConfig { explore_ppm, ..LearnedConfig::default() };
    let mut port = Port::new(PortConfig {
        scheme,
        rate: Some(Rate::from_mbps(500)),
        estimates: Estimates::Learned(estimates),
        ..PortConfig::default()
    })
    .unwrap();
    for id in 0..1_000 {
        let now = Instant::from_ns(u64::from(id) * 50 * MICRO_NS);
        let arrival = Packet { bytes: 1_400, ..packet(id) };
        assert_eq!(port.arrive_one(now, arrival), Admission::Queued);
        while let Some(action) = port.ask(now) {
            if let Wanted::Compress(id) = action {
                port.compressed(id, Outcome::Smaller(700), 5 * MICRO_NS);
            } else {
                port.link_ready();
            }
        }
    }
    port.assert_invariants();
    port.accounts().compress.compressed.packets
}

#[test]
fn the_first_guess_locks_no_scheme_out() {
    for scheme in [Scheme::packet(), Scheme::waiting(Gather::Edge, 8_192)] {
        let explored = compressed_on_an_idle_link(scheme, LearnedConfig::default().explore_ppm);
        assert!(explored > 950, "{explored}");
        assert_eq!(compressed_on_an_idle_link(scheme, 0), 0, "nothing is ever learned");
    }
}

#[test]
fn a_known_refusal_is_checked_again_within_the_share() {
    // At this rate nothing is gained at once: 4 µs are saved, and 20 µs spent.
    let mut port =
        Port::new(PortConfig { rate: Some(Rate::from_mbps(500)), ..PortConfig::default() })
            .unwrap();
    let (mut tried, mut at_first) = (0, 0);
    for id in 0..40_000 {
        let now = Instant::from_ns(u64::from(id) * 50 * MICRO_NS);
        assert_eq!(port.arrive_one(now, packet(id)), Admission::Queued);
        while let Some(action) = port.ask(now) {
            if let Wanted::Compress(id) = action {
                port.compressed(id, Outcome::Smaller(250), 20 * MICRO_NS);
                tried += 1;
            } else {
                port.link_ready();
            }
        }
        at_first = if id == 99 { tried } else { at_first };
    }
    // Two seconds, of which 8 ms each may go to it, and what was saved up.
    assert!((100..=2 * 8_000 / 20 + 50).contains(&tried), "{tried}, {at_first} at first");
}

#[test]
fn what_the_link_was_given_counts_as_waiting_time() {
    let mut port = paper(Scheme::packet(), 700_000);
    // As with five packets ahead in the port.
    port.set_ahead(2_500, false);
    arrive(&mut port, 1);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(1))]);
    // A link that takes all at once leaves nothing waiting in the port.
    let mut port = paper(Scheme::packet(), 700_000);
    port.link_busy();
    port.set_ahead(0, true);
    for id in 0..20 {
        arrive(&mut port, id);
        assert_eq!(actions(&mut port), []);
    }
    port.set_ahead(0, false);
    arrive(&mut port, 20);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(20))]);
}

#[test]
fn turns_of_noise_in_a_flow_do_not_hide_its_text() {
    let run = |looks_random: fn(u32) -> bool| {
        let mut port = paper(Scheme::packet(), 1);
        let estimates = Estimates::Learned(LearnedConfig::default());
        port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
        port.link_busy();
        port.set_ahead(1 << 20, false);
        let is_noise = |id: u32| (id / 200).is_multiple_of(2);
        for id in 0..4_000 {
            port.link_ready();
            let arrival = Packet { looks_random: looks_random(id), ..packet(id) };
            assert_eq!(port.arrive_one(Instant::ZERO, arrival), Admission::Queued);
            while let Some(action) = port.ask(Instant::ZERO) {
                if let Wanted::Compress(id) = action {
                    let text = Outcome::Smaller(250);
                    let outcome = if is_noise(id.0) { Outcome::NotSmaller } else { text };
                    port.compressed(id, outcome, 5_000);
                }
            }
        }
        port.accounts().compress.compressed.packets
    };
    let (blind, seeing) = (run(|_| false), run(|id| (id / 200).is_multiple_of(2)));
    assert_eq!(seeing, 2_000, "all of its text is compressed");
    assert!(blind < 1_800, "{blind}");
}

impl Port {
    /// For tests that fill a port without draining its actions.
    fn assert_invariants_except_idle(&self) {
        let mut port = self.clone();
        while port.ask(Instant::ZERO).is_some() {}
        port.assert_invariants();
    }
}

/// Returns the packets that were tried within the last second of two, with two of them each
/// millisecond on a link that has much to do, and idles for `starved_ns` of it all the same.
fn tried_beside(scheme: Scheme, starved_ns: u64) -> u64 {
    let mut port = paper(scheme, 700_000);
    let link = LinkState { ahead_bytes: 3_700, starved_ns, ..port.common.link };
    let mut tried = 0;
    for ms in 0..2_000 {
        let now = Instant::from_ns(ms * 1_000 * MICRO_NS);
        if ms == 1_000 {
            tried = port.accounts().compress.tried;
        }
        port.handle(now, Event::LinkBusy);
        port.handle(now, Event::Link(link));
        for id in [0, 1] {
            let packet = packet((ms * 2 + id) as u32);
            port.handle(now, Event::Arrive(packet));
        }
        loop {
            match port.poll(now) {
                Some(Action::Compress(job)) => {
                    let outcome = Outcome::Smaller(job.bytes * 7 / 10);
                    port.handle(now, Event::Compressed { job: job.id, outcome, took_ns: 200_000 });
                }
                Some(_) => {}
                None if port.is_empty() => break,
                None => port.handle(now, Event::LinkReady),
            }
        }
        port.assert_invariants();
    }
    port.accounts().compress.tried - tried
}

#[test]
fn compressing_gives_way_where_the_link_waits_for_the_processor() {
    let schemes = ["packet", "edge", "auto"].map(|name| Scheme::preset(name).unwrap());
    for scheme in schemes {
        let [fed, starved] = [0, 200 * MICRO_NS].map(|ns| tried_beside(scheme, ns));
        assert!(fed > 1_900, "{scheme:?}: {fed}");
        assert!((1..fed / 5).contains(&starved), "{scheme:?}: {starved} of {fed}");
    }
    // Who compresses each packet asks for no time.
    assert_eq!(tried_beside(Scheme::all(), 200 * MICRO_NS), tried_beside(Scheme::all(), 0));
}

#[test]
fn a_port_says_what_waits_for_the_link_and_for_how_long() {
    for scheme in [Scheme::none(), Scheme::backlog(Gather::Edge, 2, 5), Scheme::auto(Gather::Flow)]
    {
        let mut port = paper(scheme, 700_000);
        port.link_busy();
        assert_eq!((port.can_send(), port.backlog_bytes(), port.waiting_ns()), (false, 0, 0));
        arrive(&mut port, 0);
        arrive(&mut port, 1);
        assert_eq!(actions(&mut port), [], "they wait for the link");
        // Two times 40 µs.
        assert!(port.can_send(), "{scheme:?}");
        assert_eq!((port.backlog_bytes(), port.waiting_ns()), (1_000, 80_000), "{scheme:?}");
        port.set_rate(None);
        assert_eq!(port.waiting_ns(), 0, "nobody knows");
    }
}

#[test]
fn a_port_says_whether_something_is_compressed() {
    let mut port = paper(Scheme::all(), 700_000);
    assert!(!port.is_compressing());
    arrive(&mut port, 0);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(0))]);
    assert!(port.is_compressing());
    port.compressed(PacketId(0), Outcome::Smaller(350), 1_000);
    assert!(!port.is_compressing());
}

#[test]
fn what_another_codec_showed_is_forgotten() {
    let mut port = paper(Scheme::all(), 700_000);
    let estimates = Estimates::Learned(LearnedConfig::default());
    port.configure(PortConfig { estimates, ..port.config().clone() }).unwrap();
    let guess = port.estimate(7 << 40, TCP_80, 500);
    arrive(&mut port, 0);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(0))]);
    port.compressed(PacketId(0), Outcome::Smaller(50), 3_000_000);
    assert_ne!(port.estimate(7 << 40, TCP_80, 500), guess);
    port.forget_estimates();
    assert_eq!(port.estimate(7 << 40, TCP_80, 500), guess);
}
