use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};

use super::*;
use crate::config::{FrameCost, Objective, PortConfig, QueueLimit};
use crate::estimate::{Estimate, Estimates, Ratio};
use crate::event::{Event, LinkState};
use crate::port::Port;
use crate::port::shorthand::Wanted;
use crate::scheme::Scheme;

mod batches;
mod limits;
mod parallel;
mod steady;
mod waits;

const RATIO_PPM: u32 = 250_000;

/// A link of 10 Mbit/s with frames of 1,400 bytes, and a codec that leaves a quarter, at
/// `cost_ns` a batch.
fn port(cost_ns: u64) -> Port {
    let frame = FrameCost {
        frame_bytes: 50,
        raw_unit_bytes: 2,
        compressed_unit_bytes: 9,
        units_bytes_max: 1_400,
        fragment_bytes: 8,
        fragment_spare_bytes: 6,
        unit_bytes_named: u32::MAX,
        units_max: 64,
    };
    let mut port = Port::new(PortConfig {
        scheme: Scheme::auto(Gather::HostPair),
        rate: Some(Rate::from_mbps(10)),
        limit: QueueLimit::packets(10_000),
        frame,
        estimates: Estimates::Fixed(Estimate { ratio: Ratio::from_ppm(RATIO_PPM), cost_ns }),
        ..PortConfig::default()
    })
    .unwrap();
    port.handle(Instant::ZERO, Event::LinkBusy);
    port
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLI_NS)
}

/// A packet of a flow between hosts whose number is the flow's hundreds.
fn packet(id: u32, flow: u64, bytes: u32) -> Packet {
    let class = ClassKey::new(6, 80);
    let packet = Packet::new(PacketId(id), bytes, (class, class));
    Packet { flow: flow << 32 | flow, group: flow / 100, ..packet }
}

fn arrive(port: &mut Port, now: Instant, packet: Packet) {
    port.handle(now, Event::Arrive(packet));
}

fn ask(port: &mut Port, now: Instant) -> Option<Wanted> {
    let wanted = port.ask(now);
    if wanted.is_none() {
        port.assert_invariants();
    }
    wanted
}

fn ready(port: &mut Port, now: Instant) {
    port.handle(now, Event::LinkReady);
}

/// Reports the batch as compressed to a quarter.
fn done(port: &mut Port, took_ns: u64) {
    let bytes: u32 = port.last_batch().len() as u32 * 1_400 / 4;
    port.compressed(port.last_batch()[0], Outcome::Committed(bytes), took_ns);
}

fn frame(port: &Port) -> Vec<u32> {
    let frame = port.frame();
    let followers = frame.followers.iter().map(|packet| packet.id.0);
    frame.units.iter().map(|unit| unit.id.0).chain(followers).collect()
}

/// Each message has a connection of its own, and they take more than the link: one that lasts has its turns all the same.
#[test]
fn new_flows_without_an_end_leave_old_ones_their_turns() {
    let mut port = port(u64::from(u32::MAX)); // nothing is worth compressing
    let (mut sent_old, mut sent_new) = (0, 0);
    for ms in 0..2_000u32 {
        let now = at(ms.into());
        // The link takes 1,250 bytes a millisecond; 1,800 come, 200 of them of the flow that lasts.
        arrive(&mut port, now, packet(10 * ms, 7, 200));
        for nth in 1..=8 {
            arrive(&mut port, now, packet(10 * ms + nth, u64::from(10 * ms + nth) + 1_000, 200));
        }
        ready(&mut port, now);
        while let Some(wanted) = port.ask(now) {
            match wanted {
                Wanted::Send => {
                    for id in frame(&port) {
                        let is_old = id % 10 == 0;
                        *(if is_old { &mut sent_old } else { &mut sent_new }) +=
                            u32::from(ms > 100);
                    }
                }
                Wanted::Compress(_) | Wanted::CompressBatch => done(&mut port, 1_000_000_000),
                _ => {}
            }
        }
    }
    let share = f64::from(sent_old) / f64::from(sent_old + sent_new);
    assert!(share > 0.1, "{sent_old} and {sent_new}");
    assert!(sent_new > sent_old, "{sent_old} and {sent_new}");
}

#[test]
fn an_idle_link_gets_a_small_packet_at_once() {
    let mut port = port(1_000);
    ready(&mut port, at(0));
    arrive(&mut port, at(0), packet(1, 1, 94));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(port.frame().units[0].bypass, Some(Bypass::Sparse));
    assert_eq!(ask(&mut port, at(0)), None);
}

#[test]
fn a_full_packet_is_compressed_on_an_idle_link_if_it_arrives_sooner_so() {
    for (cost_ns, wanted) in
        [(800 * MICRO_NS, Wanted::Compress(PacketId(1))), (900 * MICRO_NS, Wanted::Send)]
    {
        // Three quarters of 1,400 bytes are 840 µs.
        let mut port = port(cost_ns);
        ready(&mut port, at(0));
        arrive(&mut port, at(0), packet(1, 1, 1_400));
        assert_eq!(ask(&mut port, at(0)), Some(wanted));
    }
}

#[test]
fn while_the_link_sends_one_batch_the_next_is_compressed_and_no_more() {
    let mut port = port(100 * MICRO_NS);
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    // Nothing was sent yet, so that nothing is known of what compression leaves: 4 ms are 5,000 bytes.
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch(), [0, 1, 2].map(PacketId));
    assert_eq!(ask(&mut port, at(0)), None);
    done(&mut port, 1_000);
    // A frame is not full yet.
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    done(&mut port, 1_000);
    assert_eq!(ask(&mut port, at(0)), None);
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(port.frame().units.len(), 1, "the other finds no room");
    // Now 4 ms are four times as much.
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 14);
    assert_eq!(port.last_batch()[0], PacketId(6));
}

/// A link of 50 Mbit/s takes 6,250 bytes a millisecond. Returns whether the second batch is begun when the first, of 17
/// packets to a quarter, came out of the compressor so long after it was begun.
fn next_is_begun(cost_ns: u64, took_ns: u64) -> bool {
    let mut port = port(cost_ns);
    let rate = Some(Rate::from_mbps(50));
    port.configure(PortConfig { rate, ..port.config().clone() }).unwrap();
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 17);
    let (now, job) = (Instant::from_ns(took_ns), port.common.job_ids().max().unwrap());
    let outcome = Outcome::Committed(17 * 1_400 / 4);
    port.handle(now, Event::Compressed { job, outcome, took_ns: cost_ns });
    ask(&mut port, now) == Some(Wanted::CompressBatch)
}

#[test]
fn the_next_batch_is_begun_while_the_link_sends_if_it_takes_as_long_or_comes_late() {
    // 5,950 bytes keep the link for a millisecond: that is time enough for what takes 100 µs, ...
    assert!(!next_is_begun(100 * MICRO_NS, 100 * MICRO_NS));
    // ... not for what takes a millisecond, ...
    assert!(next_is_begun(MILLI_NS, MILLI_NS));
    // ... nor where whoever compresses has to be woken first, or has others to serve.
    assert!(!next_is_begun(100 * MICRO_NS, 300 * MICRO_NS));
    assert!(next_is_begun(100 * MICRO_NS, 1_100 * MICRO_NS));
}

#[test]
fn a_batch_that_would_be_late_becomes_smaller() {
    // 5 µs a byte are 6.25 bytes of the link: without waiting time nothing has time, with 60 ms
    // ahead of it a batch has.
    let mut port = port(0);
    let estimate = |bytes: u64| Estimate { ratio: Ratio::ONE, cost_ns: bytes * 5_000 };
    let config =
        PortConfig { estimates: Estimates::Fixed(estimate(5_000)), ..port.config().clone() };
    port.configure(config).unwrap();
    let link = LinkState { ahead_bytes: 15_000, ..LinkState::of_rate(Some(Rate::from_mbps(10))) };
    port.handle(at(0), Event::Link(link));
    for id in 0..10 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    // 25 ms for the 5,000 bytes of 4 ms; but the link has only 12 ms left to do.
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 2);
}

#[test]
fn flows_of_one_group_share_batches_and_the_link() {
    let mut port = port(1_000);
    for id in 0..100 {
        arrive(&mut port, at(0), packet(id, u64::from(id % 3), 1_000));
    }
    let mut of_flow = [0; 3];
    for _ in 0..20 {
        while let Some(wanted) = ask(&mut port, at(0)) {
            match wanted {
                Wanted::Send => frame(&port).iter().for_each(|id| of_flow[*id as usize % 3] += 1),
                _ => done(&mut port, 1_000),
            }
        }
        ready(&mut port, at(0));
    }
    let (least, most) = (of_flow.iter().min(), of_flow.iter().max());
    assert!(of_flow.iter().sum::<i32>() > 60, "{of_flow:?}");
    assert!(most.unwrap() - least.unwrap() <= 14, "{of_flow:?}");
}

#[test]
fn a_small_flow_passes_the_backlog_of_a_large_one() {
    let mut port = port(1_000);
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    arrive(&mut port, at(0), packet(99, 2, 84));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![99], Some(Bypass::Sparse)));
    // But not what is of its own flow.
    arrive(&mut port, at(0), packet(100, 1, 84));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), None);
}

#[test]
fn what_goes_at_once_is_in_no_batch() {
    let mut port = port(1_000);
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    done(&mut port, 1_000);
    // It waits when the next batch is gathered, and is of the same hosts.
    arrive(&mut port, at(0), packet(99, 2, 84));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert!(!port.last_batch().contains(&PacketId(99)), "{:?}", port.last_batch());
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(frame(&port)[0], 99);
}

#[test]
fn a_flow_of_which_packets_are_being_sent_does_not_become_new_again() {
    let mut port = port(1_000);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    // All of it is in one batch: nothing waits in its own queue.
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 3);
    for id in 3..13 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    done(&mut port, 1_000);
    arrive(&mut port, at(0), packet(99, 2, 84));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(frame(&port)[0], 99, "what sends little passes");
}

#[test]
fn a_transfer_whose_queue_is_empty_for_a_moment_does_not_become_new() {
    for (bytes, later_ms, goes_first) in [(1_400, 1, false), (100, 1, true), (1_400, 300, true)] {
        let mut port = port(1_000);
        for id in 0..4 {
            arrive(&mut port, at(0), packet(id, 1, 1_400));
        }
        ready(&mut port, at(0));
        while let Some(wanted) = ask(&mut port, at(0)) {
            match wanted {
                Wanted::Send => ready(&mut port, at(0)),
                _ => done(&mut port, 1_000),
            }
        }
        assert_eq!(port.accounts().held.packets, 0);
        port.handle(at(later_ms), Event::LinkBusy);
        for id in 10..20 {
            arrive(&mut port, at(later_ms), packet(id, 2, 1_400));
        }
        assert_eq!(ask(&mut port, at(later_ms)), Some(Wanted::CompressBatch));
        arrive(&mut port, at(later_ms), packet(99, 1, bytes));
        done(&mut port, 1_000);
        ready(&mut port, at(later_ms));
        assert_eq!(ask(&mut port, at(later_ms)), Some(Wanted::Send));
        assert_eq!(frame(&port)[0] == 99, goes_first, "{bytes} bytes after {later_ms} ms");
    }
}

#[test]
fn many_small_flows_are_compressed_together_once_they_wait() {
    let mut port = port(1_000);
    for id in 0..200 {
        arrive(&mut port, at(0), packet(id, u64::from(id % 50), 94));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 53, "5,000 bytes");
}

#[test]
fn others_wait_for_the_compressor_only_if_they_arrive_sooner_so() {
    // Two batches that take 400 µs each, and three quarters of 1,400 bytes that take 840.
    let mut port = port(400 * MICRO_NS);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        arrive(&mut port, at(0), packet(100 + id, 101, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), None);
    // It takes longer than it should.
    assert_eq!(ask(&mut port, at(1)), Some(Wanted::Send));
    assert_eq!(frame(&port), [100]);
}

#[test]
fn others_do_not_wait_for_a_slow_compressor() {
    let mut port = port(600 * MICRO_NS);
    for id in 0..20 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        arrive(&mut port, at(0), packet(100 + id, 101, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(frame(&port), [100]);
    assert_eq!(port.frame().units[0].bypass, Some(Bypass::NoTime));
}

#[test]
fn noise_goes_raw_between_batches_and_shares_the_link() {
    let mut port = port(1_000);
    for id in 0..400 {
        let noise = Packet { looks_random: true, ..packet(1_000 + id, 2, 1_000) };
        arrive(&mut port, at(0), packet(id, 1, 1_000));
        arrive(&mut port, at(0), noise);
    }
    let (mut text_bytes, mut noise_bytes) = (0, 0);
    for _ in 0..150 {
        while let Some(wanted) = ask(&mut port, at(0)) {
            match wanted {
                Wanted::Send => {
                    for unit in &port.frame().units {
                        let sum =
                            if unit.compressed_here { &mut text_bytes } else { &mut noise_bytes };
                        *sum += unit.bytes;
                        assert_eq!(unit.compressed_here, unit.id.0 < 1_000);
                    }
                }
                _ => done(&mut port, 1_000),
            }
        }
        ready(&mut port, at(0));
    }
    assert!(text_bytes.abs_diff(noise_bytes) < 8_000, "{text_bytes} and {noise_bytes}");
}

#[test]
fn a_flow_that_stands_for_too_long_loses_packets_or_is_marked() {
    for takes_mark in [false, true] {
        let mut port = port(1_000);
        let (mut id, mut dropped, mut marked) = (0, 0, 0);
        for ms in 0..1_000 {
            // Three packets a millisecond are nine times what the link sends compressed.
            for _ in 0..3 {
                let packet = packet(id, 1, 1_400);
                arrive(&mut port, at(ms), Packet { takes_mark, looks_random: true, ..packet });
                id += 1;
            }
            ready(&mut port, at(ms));
            while let Some(wanted) = ask(&mut port, at(ms)) {
                match wanted {
                    Wanted::Drop(_, DropReason::Delay) => dropped += 1,
                    Wanted::Mark(_) => marked += 1,
                    _ => (),
                }
            }
        }
        assert_eq!((dropped > 5, marked > 5), (!takes_mark, takes_mark), "{dropped} {marked}");
        assert_eq!(port.accounts().marked, marked);
    }
}

#[test]
fn without_room_the_largest_flow_loses_its_oldest_packet() {
    let mut port = port(1_000);
    let limit = QueueLimit { packets: 20, ..QueueLimit::default() };
    port.configure(PortConfig { limit, ..port.config().clone() }).unwrap();
    arrive(&mut port, at(0), packet(900, 2, 1_400));
    for id in 0..19 {
        arrive(&mut port, at(0), packet(id, 1, 100));
    }
    // 19 packets of the one flow are 1,900 bytes, and more than the 1,400 of the other.
    assert_eq!(port.ask(at(0)), Some(Wanted::Drop(PacketId(0), DropReason::QueuePackets)));
    assert_eq!(port.accounts().held.packets, 19);
}

#[test]
fn what_the_codec_failed_on_leaves_raw_in_its_place() {
    let mut port = port(1_000);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    port.compressed(PacketId(0), Outcome::Failed, 1_000);
    let mut sent = Vec::new();
    for _ in 0..3 {
        ready(&mut port, at(0));
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
        sent.extend(frame(&port));
        assert_eq!(ask(&mut port, at(0)), None);
    }
    assert_eq!(sent, [0, 1, 2]);
}

/// The same with packets that are gathered for 20 ms.
fn gathering(cost_ns: u64) -> Port {
    let mut port = port(cost_ns);
    let objective = Objective::Bytes { max_wait_ns: 20 * MILLI_NS, cpu_ppm: 500_000 };
    port.configure(PortConfig { objective, ..port.config().clone() }).unwrap();
    port
}

#[test]
fn to_save_bytes_packets_are_gathered_on_an_idle_link() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    for id in 0..3 {
        arrive(&mut port, at(100 + u64::from(id)), packet(id, u64::from(id), 94));
        assert_eq!(ask(&mut port, at(100 + u64::from(id))), None);
        assert_eq!(port.next_deadline(), Some(at(120)));
    }
    assert_eq!(ask(&mut port, at(119)), None);
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::CompressBatch));
    assert_eq!((port.last_batch().len(), ask(&mut port, at(120))), (3, None));
    done(&mut port, 1_000);
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Send));
    assert_eq!(port.next_deadline(), None);
}

#[test]
fn one_that_may_not_wait_takes_the_others_along() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    arrive(&mut port, at(100), packet(1, 1, 94));
    arrive(&mut port, at(101), Packet { max_wait_ns: 2 * MILLI_NS, ..packet(2, 2, 94) });
    assert_eq!((ask(&mut port, at(102)), port.next_deadline()), (None, Some(at(103))));
    assert_eq!(ask(&mut port, at(103)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 2);
}

#[test]
fn what_fills_a_frame_does_not_wait_for_more() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    for id in 0..2 {
        arrive(&mut port, at(100), packet(id, 1, 1_000));
    }
    assert_eq!(ask(&mut port, at(100)), Some(Wanted::CompressBatch));
}

#[test]
fn noise_shares_frames_with_what_was_compressed() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    arrive(&mut port, at(100), packet(1, 1, 200));
    arrive(&mut port, at(100), Packet { looks_random: true, ..packet(2, 2, 200) });
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(1))));
    assert_eq!(ask(&mut port, at(120)), None);
    port.compressed(PacketId(1), Outcome::Committed(50), 1_000);
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Send));
    assert_eq!(frame(&port), [1, 2]);
}

#[test]
fn to_save_bytes_compressing_may_take_longer_than_sending() {
    // 1,400 bytes take 1.1 ms, and the codec 2.
    for (cost_ms, wanted) in [(2, Wanted::Compress(PacketId(1))), (21, Wanted::Send)] {
        let mut port = gathering(cost_ms * MILLI_NS);
        ready(&mut port, at(100));
        arrive(&mut port, at(100), packet(1, 1, 1_400));
        assert_eq!(ask(&mut port, at(100)), Some(wanted), "longer than it may wait goes raw");
    }
    // The share of the CPU is kept: half a second of each.
    let mut port = gathering(10 * MILLI_NS);
    let mut batches = 0;
    for ms in 100..1_100 {
        ready(&mut port, at(ms));
        arrive(&mut port, at(ms), packet(ms as u32, ms, 1_400));
        while let Some(wanted) = ask(&mut port, at(ms)) {
            if let Wanted::Compress(_) | Wanted::CompressBatch = wanted {
                batches += 1;
                done(&mut port, 1_000);
            }
        }
    }
    assert!((50..=55).contains(&batches), "{batches}");
}

#[test]
fn a_frame_does_not_wait_for_a_batch_that_takes_longer_than_it_should() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    arrive(&mut port, at(100), packet(1, 1, 200));
    arrive(&mut port, at(100), Packet { looks_random: true, ..packet(200, 200, 200) });
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(1))));
    assert_eq!(ask(&mut port, at(120)), None);
    let late = port.next_deadline().unwrap();
    assert!(late > at(120) && late < at(121));
    assert_eq!(ask(&mut port, late), Some(Wanted::Send));
    assert_eq!(frame(&port), [200]);
    assert_eq!((ask(&mut port, late), port.next_deadline()), (None, None));
}

/// Batches that come up to 2 ms late, of three groups, on a link that is faster than that; each fills a frame just so.
#[test]
fn whatever_is_late_a_deadline_lies_ahead() {
    for seed in 1..=300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut any = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut port = gathering(10 * MICRO_NS);
        port.handle(at(1), Event::Link(LinkState::of_rate(Some(Rate::from_mbps(100)))));
        let (mut now, mut job, mut id) = (at(100), None::<Instant>, 0);
        for _ in 0..1_000 {
            now = now + any(60) * MICRO_NS;
            match any(4) {
                0 => ready(&mut port, now),
                1 => {
                    for _ in 0..any(12) {
                        id += 1;
                        arrive(&mut port, now, packet(id, 100 * any(3), 1_400));
                    }
                }
                _ => {}
            }
            if job.take_if(|until| *until <= now).is_some() {
                let (job, outcome) =
                    (port.common.job_ids().max().unwrap(), Outcome::Committed(1_391));
                port.handle(now, Event::Compressed { job, outcome, took_ns: 10 * MICRO_NS });
            }
            while let Some(wanted) = ask(&mut port, now) {
                if let Wanted::Compress(_) | Wanted::CompressBatch = wanted {
                    job = Some(now + any(2_200) * MICRO_NS);
                }
            }
            let deadline = port.next_deadline();
            assert!(deadline.is_none_or(|at| at > now), "{deadline:?} at {now:?}, seed {seed}");
        }
    }
}

#[test]
fn a_batch_is_begun_when_the_link_is_about_to_have_nothing_to_do() {
    let mut port = port(400 * MICRO_NS);
    let link = LinkState { ahead_bytes: 1_250, ..LinkState::of_rate(Some(Rate::from_mbps(10))) };
    port.handle(at(10), Event::Link(link)); // 1 ms
    ready(&mut port, at(10));
    arrive(&mut port, at(10), packet(1, 1, 1_400));
    arrive(&mut port, at(10), packet(2, 1, 1_400));
    assert_eq!(ask(&mut port, at(10)), None);
    // The batch takes 400 µs, and 100 are left for whoever comes late.
    let begin_at = at(10) + 500 * MICRO_NS;
    assert_eq!(port.next_deadline(), Some(begin_at));
    let link = LinkState { ahead_bytes: 625, ..link };
    port.handle(begin_at, Event::Link(link));
    assert_eq!(ask(&mut port, begin_at), Some(Wanted::CompressBatch));
    assert_eq!(port.next_deadline(), None);
    // One that is full is not waited for.
    let mut port = self::port(400 * MICRO_NS);
    port.handle(at(10), Event::Link(link));
    for id in 0..4 {
        arrive(&mut port, at(10), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(10)), Some(Wanted::CompressBatch));
}

#[test]
fn what_has_no_time_goes_raw_while_a_batch_behind_it_is_compressed() {
    // Three packets that become a quarter save 2.5 ms of 5; the other 2.5 ms are two packets.
    let mut port = port(5 * MILLI_NS);
    for id in 0..7 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch(), [2, 3, 4].map(PacketId));
    let mut sent = Vec::new();
    for ms in 0..2 {
        ready(&mut port, at(ms));
        assert_eq!(ask(&mut port, at(ms)), Some(Wanted::Send));
        assert_eq!(port.frame().units[0].bypass, Some(Bypass::NoTime));
        sent.extend(frame(&port));
    }
    ready(&mut port, at(2));
    assert_eq!(ask(&mut port, at(2)), None, "those behind are of its flow");
    done(&mut port, 5 * MILLI_NS);
    assert_eq!(ask(&mut port, at(5)), Some(Wanted::Send));
    sent.extend(frame(&port));
    assert_eq!(sent, [0, 1, 2, 3, 4]);
}

/// When a packet goes raw beside a batch of others that should take 200 µs and never ends, over a link that was given
/// so many bytes just now; in microseconds.
fn passes_after_us(given_bytes: u64) -> u64 {
    let mut port = port(200 * MICRO_NS);
    let link = LinkState { given_bytes, ..LinkState::of_rate(Some(Rate::from_mbps(10))) };
    port.handle(at(0), Event::Link(link));
    for id in 0..4 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        arrive(&mut port, at(0), packet(200 + id, 200, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    ready(&mut port, at(0));
    let mut now = at(0);
    while ask(&mut port, now).is_none() {
        let next = port.next_deadline().expect("it goes at some time");
        assert!(next > now, "{next:?}");
        now = next;
    }
    assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![200], Some(Bypass::NoTime)));
    now.since_ns(at(0)) / MICRO_NS
}

#[test]
fn what_goes_raw_anyhow_does_not_wait_behind_what_waits_for_a_batch() {
    let mut port = port(200 * MICRO_NS);
    for id in 0..4 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        arrive(&mut port, at(0), packet(200 + id, 200, 1_400));
    }
    arrive(&mut port, at(0), Packet { looks_random: true, ..packet(300, 300, 1_300) });
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![300], Some(Bypass::Random)));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), None, "the others wait for the batch");
}

#[test]
fn others_pass_a_late_batch_as_soon_as_that_is_quicker_than_to_wait_as_long_again() {
    // Compressed, 1,400 bytes leave the link 840 µs sooner, and take 200: so 640 may be waited for, beyond the
    // 200 that the batch should take.
    assert_eq!(passes_after_us(0), 840);
    // What the link has to send meanwhile costs nothing: 500 bytes are 400 µs.
    assert_eq!(passes_after_us(500), 1_240);
}
