//! Batches of several groups that are compressed at the same time.

use super::*;

/// A port that may have so many jobs, with much of each of three groups; a job takes 20 ms.
fn loaded(jobs_max: u8) -> Port {
    let mut port = port(20 * MILLI_NS);
    let rate = Some(Rate::from_mbps(50));
    port.configure(PortConfig { rate, jobs_max, ..port.config().clone() }).unwrap();
    // The link has so much to send that there is time for all of them.
    let link = LinkState { ahead_bytes: 200_000, ..LinkState::of_rate(rate) };
    port.handle(at(0), Event::Link(link));
    for id in 0..180 {
        arrive(&mut port, at(0), packet(id, 100 * (1 + u64::from(id % 3)), 1_400));
    }
    port
}

/// The groups of what is being compressed.
fn groups(port: &Port) -> Vec<u32> {
    let mut groups: Vec<_> = port.batches().map(|batch| batch[0].0 % 3).collect();
    groups.sort_unstable();
    groups
}

fn finish(port: &mut Port, group: u32, now: Instant) {
    let first = port.batches().map(|batch| (batch[0], batch.len())).find(|it| it.0.0 % 3 == group);
    let (first, packets) = first.unwrap();
    port.finish(now, first, Outcome::Committed(packets as u32 * 350));
}

#[test]
fn as_many_batches_are_begun_as_there_may_be_each_of_another_group() {
    for (jobs_max, all) in [(1, vec![0]), (2, vec![0, 1]), (3, vec![0, 1, 2]), (9, vec![0, 1, 2])] {
        let mut port = loaded(jobs_max);
        while ask(&mut port, at(0)).is_some() {}
        assert_eq!(groups(&port), all, "{jobs_max} jobs");
        assert!(port.batches().all(|batch| batch.iter().all(|id| id.0 % 3 == batch[0].0 % 3)));
    }
}

#[test]
fn what_is_done_first_goes_first_and_makes_room_for_a_group_that_waits() {
    let mut port = loaded(2);
    while ask(&mut port, at(0)).is_some() {}
    finish(&mut port, 1, at(1));
    assert_eq!(ask(&mut port, at(1)), Some(Wanted::CompressBatch));
    assert_eq!(groups(&port), [0, 2]);
    ready(&mut port, at(1));
    assert_eq!(ask(&mut port, at(1)), Some(Wanted::Send));
    assert_eq!(port.frame().units[0].id.0 % 3, 1);
    // The next of that group waits: it has no place among the two.
    while ask(&mut port, at(1)).is_some() {}
    assert_eq!(groups(&port), [0, 2]);
}

#[test]
fn a_flow_that_changes_its_group_waits_for_its_batch() {
    let mut port = port(2 * MILLI_NS);
    let rate = Some(Rate::from_mbps(50));
    port.configure(PortConfig { rate, jobs_max: 3, ..port.config().clone() }).unwrap();
    for id in 0..60 {
        let group = if id < 30 { 1 } else { 2 };
        arrive(&mut port, at(0), Packet { group, ..packet(id, 100, 1_400) });
    }
    while ask(&mut port, at(0)).is_some() {}
    assert_eq!(port.batches().count(), 1);
}

#[test]
fn what_is_gathered_to_save_bytes_is_compressed_batch_by_batch() {
    let mut port = loaded(3);
    let objective = Objective::Bytes { max_wait_ns: MILLI_NS, cpu_ppm: 500_000 };
    port.configure(PortConfig { objective, ..port.config().clone() }).unwrap();
    ready(&mut port, at(2));
    while ask(&mut port, at(2)).is_some() {}
    assert!(port.batches().count() <= 1);
}

#[test]
fn no_more_are_begun_than_keep_the_link_busy() {
    // What comes out of one that takes a tenth of a millisecond is enough meanwhile.
    let mut port = port(100 * MICRO_NS);
    let rate = Some(Rate::from_mbps(50));
    port.configure(PortConfig { rate, jobs_max: 3, ..port.config().clone() }).unwrap();
    for id in 0..180 {
        arrive(&mut port, at(0), packet(id, 100 * (1 + u64::from(id % 3)), 1_400));
    }
    while ask(&mut port, at(0)).is_some() {}
    assert_eq!(port.batches().count(), 1);
}

/// A flow that is served out of its turn, since others' batches take so long, does not have to pay for that later.
#[test]
fn who_was_served_out_of_turn_owes_no_more_than_a_batch() {
    // Batches of two groups stay in the compressor; those of another come out at once. After a while a second flow of it begins.
    let mut port = loaded(3);
    let (mut id, mut packets) = (180, [0, 0]);
    for ms in 0..800 {
        for flow in [200, 201] {
            for _ in 0..if flow == 200 || ms >= 400 { 20 } else { 0 } {
                // The second flow's numbers are even.
                id += 2;
                let number = 3 * (id + u32::from(flow == 200)) + 1;
                arrive(&mut port, at(ms), packet(number, flow, 1_400));
            }
        }
        while ask(&mut port, at(ms)).is_some() {}
        let batch = port.batches().find(|batch| batch[0].0 % 3 == 1).map(<[_]>::to_vec);
        if let Some(batch) = batch {
            let of_second = batch.iter().filter(|id| id.0 > 540 && (id.0 / 3) % 2 == 0).count();
            packets[1] += of_second;
            packets[0] += if ms >= 400 { batch.len() - of_second } else { 0 };
            finish(&mut port, 1, at(ms));
        }
        ready(&mut port, at(ms));
    }
    assert!(packets.iter().all(|&count| count > 2_000), "{packets:?}");
}

/// What is under way is spoken for.
#[test]
fn a_limit_of_the_processor_holds_for_all_jobs_together() {
    let limit = Some(crate::event::CpuLimit::of_share(500_000));
    let mut port = loaded(3);
    let rate = Some(Rate::from_mbps(50));
    let link = LinkState { cpu_limit: limit, ahead_bytes: 200_000, ..LinkState::of_rate(rate) };
    port.handle(at(0), Event::Link(link));
    while ask(&mut port, at(1)).is_some() {}
    assert_eq!(port.batches().count(), 1);
}

/// Who can't be compressed goes beside a batch in the compressor, and takes turns there as elsewhere.
#[test]
fn flows_beside_a_batch_take_turns() {
    let mut port = loaded(1);
    for id in 0..400 {
        let noise =
            Packet { looks_random: true, ..packet(1_000 + id, 400 + u64::from(id % 2), 1_400) };
        arrive(&mut port, at(0), noise);
    }
    while ask(&mut port, at(0)).is_some() {}
    assert_eq!(port.batches().count(), 1);
    let mut sent = [0_u32, 0];
    for _ in 0..200 {
        ready(&mut port, at(1));
        while let Some(wanted) = ask(&mut port, at(1)) {
            let units = if wanted == Wanted::Send { &port.frame().units[..] } else { &[] };
            for unit in units.iter().filter(|unit| unit.id.0 >= 1_000) {
                sent[(unit.id.0 % 2) as usize] += 1;
            }
        }
    }
    let [a, b] = sent;
    assert!(a + b >= 150 && a.abs_diff(b) <= 4, "{sent:?}");
}
