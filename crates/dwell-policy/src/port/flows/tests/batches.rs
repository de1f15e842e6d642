//! Which packets become a batch, and when: at the very limits.

use super::*;

#[test]
fn small_packets_are_compressed_in_company_only_where_there_is_company() {
    for gather in [Gather::HostPair, Gather::Packet] {
        let mut port = port(1_000);
        let scheme = Scheme::auto(gather);
        let config = PortConfig { scheme, compress_bytes_min: 200, ..port.config().clone() };
        port.configure(config).unwrap();
        for id in 0..40 {
            arrive(&mut port, at(0), packet(id, 1, 94));
        }
        if gather == Gather::HostPair {
            assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
            assert_eq!(port.last_batch().len(), 40);
        } else {
            ready(&mut port, at(0));
            assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
            assert_eq!(port.frame().units[0].bypass, Some(Bypass::TooSmall));
        }
    }
}

#[test]
fn the_last_packet_of_a_flow_goes_at_once_if_it_is_small() {
    for (bytes, is_small) in [(255, true), (256, false)] {
        let mut port = port(1_000);
        for id in 0..2 {
            let noise = Packet { looks_random: true, ..packet(id, 1, 1_400) };
            arrive(&mut port, at(0), noise);
        }
        // The flow has sent its share before this one's turn comes: it is not new any more.
        arrive(&mut port, at(0), packet(2, 1, bytes));
        for id in 0..2 {
            ready(&mut port, at(0));
            assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
            assert_eq!(
                (frame(&port), port.frame().units[0].bypass),
                (vec![id], Some(Bypass::Random))
            );
        }
        ready(&mut port, at(0));
        if is_small {
            assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
            assert_eq!(port.frame().units[0].bypass, Some(Bypass::Sparse));
        } else {
            assert_eq!(ask(&mut port, at(0)), Some(Wanted::Compress(PacketId(2))));
        }
    }
}

#[test]
fn what_goes_at_once_waits_for_a_busy_link_only() {
    let mut port = port(1_000);
    // 2,800 bytes of flows that have just begun are little.
    arrive(&mut port, at(0), packet(1, 1, 1_400));
    arrive(&mut port, at(0), packet(2, 2, 1_400));
    assert_eq!(ask(&mut port, at(0)), None);
    arrive(&mut port, at(0), packet(3, 3, 1));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    // To save bytes what is due is compressed, whether the link is ready or not.
    let mut port = gathering(1_000);
    arrive(&mut port, at(100), packet(1, 1, 200));
    assert_eq!(ask(&mut port, at(119)), None);
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(1))));
}

#[test]
fn small_packets_of_many_flows_go_at_once_in_one_frame() {
    // Together they would be worth a batch.
    let mut port = port(1_000);
    ready(&mut port, at(0));
    for id in 0..4 {
        arrive(&mut port, at(0), packet(id, u64::from(id), 94));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!(frame(&port), [0, 1, 2, 3]);
}

#[test]
fn a_batch_that_was_decided_on_is_begun_after_what_goes_at_once() {
    let mut port = port(1_000);
    ready(&mut port, at(0));
    arrive(&mut port, at(0), packet(1, 1, 94));
    arrive(&mut port, at(0), packet(2, 2, 1_000));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![1], Some(Bypass::Sparse)));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Compress(PacketId(2))));
}

#[test]
fn the_next_batch_is_begun_while_less_than_a_frame_is_ready() {
    // With its header of 9 bytes the one fills a frame, and the other needs two.
    for (bytes, wanted) in [(1_391, Some(Wanted::CompressBatch)), (1_392, None)] {
        let mut port = port(1_000);
        for id in 0..60 {
            arrive(&mut port, at(0), packet(id, 1, 1_400));
        }
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
        port.compressed(PacketId(0), Outcome::Committed(bytes), 1_000);
        assert_eq!(ask(&mut port, at(0)), wanted);
    }
}

#[test]
fn a_batch_is_made_further_back_only_if_enough_waits() {
    // Compressing takes 5 ms: for a batch of the first packet alone 5,201 bytes have to be sent before
    // it, and it is 1,400.
    for (last_bytes, wanted) in [(1_001, None), (1_002, Some(Wanted::Compress(PacketId(4))))] {
        let mut port = port(5 * MILLI_NS);
        for id in 0..4 {
            arrive(&mut port, at(0), packet(id, 1, 1_400));
        }
        arrive(&mut port, at(0), packet(4, 1, last_bytes));
        assert_eq!(ask(&mut port, at(0)), wanted, "{last_bytes}");
    }
}

#[test]
fn no_more_goes_raw_before_a_batch_than_has_to() {
    // For a batch of 5,000 bytes 2,501 have to be sent before it: these two, with their headers.
    let mut port = port(5 * MILLI_NS);
    for (id, bytes) in [1_249, 1_248, 1_400, 1_400, 1_400, 1_400].into_iter().enumerate() {
        arrive(&mut port, at(0), packet(id as u32, 1, bytes));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch(), [2, 3, 4].map(PacketId));
    assert_eq!(port.waiting(), (1, 2));
}

#[test]
fn a_batch_further_back_does_not_begin_with_noise() {
    let mut port = port(5 * MILLI_NS);
    for id in 0..7 {
        arrive(&mut port, at(0), Packet { looks_random: id == 2, ..packet(id, 1, 1_400) });
    }
    assert_eq!(ask(&mut port, at(0)), None);
    assert_eq!(port.waiting(), (5, 2));
}

#[test]
fn a_batch_has_room_for_so_many_packets_and_bytes() {
    let mut port = port(1_000);
    for id in 0..200 {
        arrive(&mut port, at(0), packet(id, 1, 30));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch().len(), 128);
    // 4 ms are 5,000 bytes.
    for (bytes, packets) in [(1_250, 4), (1_251, 3)] {
        let mut port = self::port(1_000);
        for id in 0..10 {
            arrive(&mut port, at(0), packet(id, 1, bytes));
        }
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
        assert_eq!(port.last_batch().len(), packets, "{bytes}");
    }
}

/// The time at which a batch of `packets` packets of `bytes` bytes is begun on a link that has 2,500
/// bytes, 2 ms, to send; none if at once.
fn begins_at(packets: u32, bytes: u32) -> Option<Instant> {
    let mut port = port(400 * MICRO_NS);
    let link = LinkState { ahead_bytes: 2_500, ..LinkState::of_rate(Some(Rate::from_mbps(10))) };
    port.handle(at(10), Event::Link(link));
    ready(&mut port, at(10));
    for id in 0..packets {
        arrive(&mut port, at(10), packet(id, 1, bytes));
    }
    match ask(&mut port, at(10)) {
        None => Some(port.next_deadline().unwrap()),
        Some(Wanted::Compress(_) | Wanted::CompressBatch) => {
            assert_eq!(port.next_deadline(), None);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_that_is_not_full_is_begun_when_the_link_gets_to_it() {
    let begin_at = at(10) + 1_500 * MICRO_NS;
    // Full are 5,000 bytes or 128 packets.
    assert_eq!(begins_at(3, 1_400), Some(begin_at));
    assert_eq!(begins_at(4, 1_250), None);
    assert_eq!(begins_at(4, 1_249), Some(begin_at));
    assert_eq!(begins_at(127, 30), Some(begin_at));
    assert_eq!(begins_at(128, 30), None);
}

#[test]
fn a_frame_s_time_on_a_slow_link_is_no_waiting() {
    // A frame takes 11.6 ms at 1 Mbit/s, and packets may always wait for one and a half.
    for (delay_ms, drops) in [(16, false), (20, true)] {
        let mut port = port(1_000);
        port.set_rate(Some(Rate::from_mbps(1)));
        let mut dropped = 0;
        for ms in 0..1_500 {
            let noise = Packet { looks_random: true, ..packet(ms as u32, 1, 1_390) };
            arrive(&mut port, at(ms), noise);
            if ms >= delay_ms {
                ready(&mut port, at(ms));
            }
            while let Some(wanted) = ask(&mut port, at(ms)) {
                dropped += u32::from(matches!(wanted, Wanted::Drop(_, DropReason::Delay)));
            }
        }
        assert_eq!(dropped > 0, drops, "{delay_ms} ms: {dropped}");
    }
}

#[test]
fn an_empty_port_that_gathers_has_no_deadline() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    assert_eq!((ask(&mut port, at(100)), port.next_deadline()), (None, None));
}

#[test]
fn what_is_gathered_is_begun_when_the_link_gets_to_it() {
    let mut port = gathering(1_000);
    arrive(&mut port, at(100), packet(1, 1, 200));
    assert_eq!((ask(&mut port, at(100)), port.next_deadline()), (None, None), "the link is busy");
    let link = LinkState { ahead_bytes: 1_250, ..LinkState::of_rate(Some(Rate::from_mbps(10))) };
    port.handle(at(100), Event::Link(link)); // 1 ms
    ready(&mut port, at(100));
    assert_eq!((ask(&mut port, at(100)), port.next_deadline()), (None, Some(at(120))));
    assert_eq!(ask(&mut port, at(120)), None);
    // The codec's microsecond, and 100 for whoever comes late.
    assert_eq!(port.next_deadline(), Some(at(120) + 899 * MICRO_NS));
}

#[test]
fn after_what_was_gathered_the_next_is_gathered_as_long() {
    let mut port = gathering(1_000);
    for ms in [100, 200] {
        ready(&mut port, at(ms));
        arrive(&mut port, at(ms), packet(ms as u32, 1, 200));
        assert_eq!((ask(&mut port, at(ms)), port.next_deadline()), (None, Some(at(ms + 20))));
        assert_eq!(ask(&mut port, at(ms + 19)), None);
        assert_eq!(ask(&mut port, at(ms + 20)), Some(Wanted::Compress(PacketId(ms as u32))));
        port.compressed(PacketId(ms as u32), Outcome::Committed(50), 1_000);
        assert_eq!(ask(&mut port, at(ms + 20)), Some(Wanted::Send));
        assert_eq!(ask(&mut port, at(ms + 20)), None);
    }
}

#[test]
fn a_frame_waits_for_a_batch_as_long_as_that_should_take() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    arrive(&mut port, at(100), packet(1, 1, 200));
    arrive(&mut port, at(100), Packet { looks_random: true, ..packet(200, 200, 200) });
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(1))));
    assert_eq!(ask(&mut port, at(120) + 1_000), None);
    assert_eq!(ask(&mut port, at(120) + 1_001), Some(Wanted::Send));
}

#[test]
fn a_batch_takes_more_than_its_share_from_the_first_flow_if_others_do_not_belong() {
    let mut port = port(1_000);
    for id in 0..4 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    arrive(&mut port, at(0), packet(100, 101, 1_400));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    assert_eq!(port.last_batch(), [0, 1, 2].map(PacketId));
}

#[test]
fn flows_take_turns_of_1514_bytes_in_a_batch() {
    let batch = |bytes: u32, of_flow: u32| {
        let mut port = port(1_000);
        for id in 0..2 * of_flow {
            arrive(&mut port, at(0), packet(id, u64::from(id / of_flow), bytes));
        }
        assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
        let flows = port.last_batch().iter().map(|id| id.0 / of_flow);
        flows.collect::<Vec<_>>().chunk_by(|a, b| a == b).map(<[u32]>::len).collect::<Vec<_>>()
    };
    // 16 packets are 1,600 bytes, and what is too much is taken off the next turn.
    assert_eq!(batch(100, 50), [16, 16, 15, 3]);
    // Two are exactly a turn.
    assert_eq!(batch(757, 10), [2, 2, 2]);
}

#[test]
fn a_flow_that_sends_little_passes_a_batch_but_not_its_own() {
    let mut port = port(1_000);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    // Nothing else waits of either.
    arrive(&mut port, at(0), packet(3, 1, 300));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), None);
    let mut port = self::port(1_000);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_000));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    arrive(&mut port, at(0), packet(3, 2, 300));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::Send));
    assert_eq!((frame(&port), port.frame().units[0].bypass), (vec![3], Some(Bypass::Sparse)));
}

#[test]
fn a_flow_that_sends_a_little_again_and_again_is_not_new_each_time() {
    let mut port = port(1_000);
    for id in 0..60 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    for (id, wanted) in [(99, Some(Wanted::Send)), (100, None)] {
        arrive(&mut port, at(0), packet(id, 2, 84));
        ready(&mut port, at(0));
        assert_eq!(ask(&mut port, at(0)), wanted, "{id}");
    }
}

#[test]
fn flows_with_a_backlog_do_not_go_at_once() {
    let mut port = port(1_000);
    for id in 0..8 {
        let looks_random = id % 4 < 2;
        arrive(&mut port, at(0), Packet { looks_random, ..packet(id, u64::from(id / 4), 1_400) });
    }
    for id in [0, 1, 4, 5] {
        ready(&mut port, at(0));
        assert_eq!((ask(&mut port, at(0)), frame(&port)), (Some(Wanted::Send), vec![id]));
    }
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
}

#[test]
fn what_was_sent_counts_for_half_once_it_is_much() {
    let mut sent = Shrunk::default();
    assert_eq!((sent.shrink(1_000), sent.grow(1_000)), (1_000, 1_000));
    sent.add(1 << 18, 65_537);
    assert_eq!((sent.before, sent.after), (1 << 18, 65_537));
    sent.add(2, 0);
    assert_eq!((sent.before, sent.after), ((1 << 17) + 1, 32_769));
    assert_eq!(sent.shrink(4 * 131_073), 4 * 32_769);
    assert_eq!(sent.grow(32_769), 131_073);
}

#[test]
fn batches_of_two_groups_share_a_frame_without_waiting_for_each_other() {
    let mut port = gathering(1_000);
    ready(&mut port, at(100));
    arrive(&mut port, at(100), packet(1, 1, 600));
    arrive(&mut port, at(100), packet(101, 101, 600));
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(1))));
    port.compressed(PacketId(1), Outcome::Committed(400), 1_000);
    // 400 bytes would take the link 0.4 ms, but they wait for the others.
    assert_eq!(ask(&mut port, at(120)), Some(Wanted::Compress(PacketId(101))));
    port.compressed(PacketId(101), Outcome::Committed(400), 1_000);
    assert_eq!((ask(&mut port, at(120)), frame(&port)), (Some(Wanted::Send), vec![1, 101]));
}

#[test]
fn others_that_wait_for_the_compressor_are_asked_again_when_they_should_not_wait_longer() {
    let mut port = port(400 * MICRO_NS);
    for id in 0..3 {
        arrive(&mut port, at(0), packet(id, 1, 1_400));
        arrive(&mut port, at(0), packet(100 + id, 101, 1_400));
    }
    assert_eq!(ask(&mut port, at(0)), Some(Wanted::CompressBatch));
    ready(&mut port, at(0));
    assert_eq!(ask(&mut port, at(0)), None);
    // It should be done after 400 µs; they gain 840 by being compressed, which takes them 400, too.
    assert_eq!(port.next_deadline(), Some(at(0) + 840 * MICRO_NS));
}

#[test]
fn what_does_not_shrink_leaves_nothing_behind() {
    let mut port = port(1_000);
    for round in 0..200 {
        for id in 0..3 {
            arrive(&mut port, at(round), packet(id, 1, 1_000));
        }
        assert_eq!(ask(&mut port, at(round)), Some(Wanted::CompressBatch));
        port.compressed(PacketId(0), Outcome::NotSmaller, 1_000);
        while !port.is_empty() {
            ready(&mut port, at(round));
            assert_eq!(ask(&mut port, at(round)), Some(Wanted::Send));
            while ask(&mut port, at(round)).is_some() {}
        }
        port.handle(at(round), Event::LinkBusy);
    }
    let crate::port::Store::Flows(flows) = &port.store else { panic!("another store") };
    assert!(flows.spare.len() < 10, "{}", flows.spare.len());
}

/// Of what is sent once any lost piece of a batch loses all of it.
#[test]
fn packets_may_limit_their_batches() {
    let mut port = port(1_000);
    for id in 0..200 {
        // Those of the second flow are of another group.
        let (flow, batch_bytes_max) = if id % 2 == 0 { (1, u32::MAX) } else { (200, 8 << 10) };
        arrive(&mut port, at(0), Packet { batch_bytes_max, ..packet(id, flow, 1_400) });
    }
    let mut sizes = [Vec::new(), Vec::new()];
    while sizes.iter().map(Vec::len).sum::<usize>() < 12 {
        match ask(&mut port, at(0)) {
            Some(Wanted::CompressBatch) => {
                sizes[port.last_batch()[0].0 as usize % 2].push(port.last_batch().len());
                done(&mut port, 1_000);
            }
            Some(_) => (),
            None => ready(&mut port, at(0)),
        }
    }
    // The first ones are short, so that the link has something; five packets of 1,400 bytes are less than 8 KiB.
    assert!(sizes.iter().all(|sizes| sizes.len() > 2), "{sizes:?}");
    assert!(sizes[0][1..].iter().all(|&packets| packets > 5), "{sizes:?}");
    assert!(sizes[1][1..].iter().all(|&packets| packets == 5), "{sizes:?}");
}
