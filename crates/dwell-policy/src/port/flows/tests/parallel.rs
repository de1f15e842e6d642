//! Batches of several groups that are compressed at the same time.

use super::*;

/// A port that may have so many jobs, with much of each of three groups; a job takes 2 ms.
fn loaded(jobs_max: u8) -> Port {
    let mut port = port(2 * MILLI_NS);
    let rate = Some(Rate::from_mbps(50));
    port.configure(PortConfig { rate, jobs_max, ..port.config().clone() }).unwrap();
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
