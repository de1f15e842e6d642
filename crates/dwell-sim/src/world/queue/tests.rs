use super::*;
use crate::plan::{CoDel, Pie};
use crate::tcp::Like;

const MS: u64 = 1_000_000;

fn managed(discipline: Discipline, packets: u32, ecn: bool) -> Queue {
    Queue::managed(&Managed { packets, discipline, ecn }, Rng::from_seed(1))
}

fn packet(id: u32, flow: u64, since_ns: u64) -> Waiting {
    Waiting { id, bytes: 1_500, flow, since_ns, takes_mark: false, is_marked: false }
}

/// Packets that come every `gap_ns` to a queue that sends one every `send_ns`, for a while; returns the
/// delays of those that were sent, and the times of the drops.
fn overload(queue: &mut Queue, gap_ns: u64, send_ns: u64, count: u32) -> (Vec<u64>, Vec<u64>) {
    let (mut delays, mut drops, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    let mut free_ns = 0;
    for n in 0..count {
        let now_ns = u64::from(n) * gap_ns;
        while free_ns <= now_ns {
            if let Some(sent) = queue.pop(free_ns, &mut dropped) {
                delays.push(free_ns - sent.since_ns);
            }
            drops.extend(dropped.drain(..).map(|_| free_ns));
            free_ns += send_ns;
        }
        queue.push(now_ns, packet(n, u64::from(n % 3), now_ns), &mut dropped);
        drops.extend(dropped.drain(..).map(|_| now_ns));
    }
    (delays, drops)
}

#[test]
fn codel_drops_first_after_an_interval_and_then_faster() {
    let mut queue = managed(Discipline::CoDel(CoDel::default()), 10_000, false);
    let (_, drops) = overload(&mut queue, MS, 2 * MS, 1_000);
    // The delay is above 5 ms from the packet on that comes after some 10 ms.
    assert!((105..=120).contains(&(drops[0] / MS)), "{}", drops[0]);
    // The interval by the square roots: 100 ms, 71 ms, 58 ms, 50 ms.
    let gaps: Vec<u64> = drops.windows(2).take(4).map(|pair| (pair[1] - pair[0]) / MS).collect();
    let expected = [100, 70, 57, 50];
    assert!(gaps.iter().zip(expected).all(|(&gap, law)| gap.abs_diff(law) <= 3), "{gaps:?}");
}

/// By one step of Newton's from each drop to the next: 100, 50, 56 and 49 ms.
#[test]
fn codel_like_linux_drops_the_third_packet_sooner() {
    let codel = CoDel { like: Like::Linux, ..CoDel::default() };
    let mut queue = managed(Discipline::CoDel(codel), 10_000, false);
    let (_, drops) = overload(&mut queue, MS, 2 * MS, 1_000);
    let gaps: Vec<u64> = drops.windows(2).take(4).map(|pair| (pair[1] - pair[0]) / MS).collect();
    let expected = [100, 50, 56, 49];
    assert!(gaps.iter().zip(expected).all(|(&gap, law)| gap.abs_diff(law) <= 2), "{gaps:?}");
}

#[test]
fn codel_leaves_a_short_queue_alone_and_marks_what_takes_marks() {
    let mut queue = managed(Discipline::CoDel(CoDel::default()), 100, false);
    let (_, drops) = overload(&mut queue, 2 * MS, 2 * MS, 1_000);
    assert!(drops.is_empty());
    let mut queue = managed(Discipline::CoDel(CoDel::default()), 1_000, true);
    let (mut marked, mut dropped) = (0, Vec::new());
    for n in 0..400 {
        let now_ns = n * MS;
        let waiting = Waiting { takes_mark: true, ..packet(n as u32, 0, now_ns) };
        queue.push(now_ns, waiting, &mut dropped);
        if n % 2 == 0 {
            marked += u32::from(queue.pop(now_ns, &mut dropped).unwrap().is_marked);
        }
    }
    assert!(dropped.is_empty() && marked > 3, "{marked}");
}

#[test]
fn fq_codel_lets_a_thin_flow_go_first_and_drops_from_the_fattest() {
    let codel = CoDel::default();
    let discipline = Discipline::FqCoDel { codel, quantum_bytes: 1_514, queues: 1_024 };
    let mut queue = managed(discipline, 10, false);
    let mut dropped = Vec::new();
    for id in 0..10 {
        queue.push(0, packet(id, 1, 0), &mut dropped);
    }
    assert_eq!(queue.pop(0, &mut dropped).map(|p| p.id), Some(0));
    assert_eq!(queue.pop(0, &mut dropped).map(|p| p.id), Some(1));
    queue.push(0, packet(100, 2, 0), &mut dropped);
    assert_eq!(queue.pop(0, &mut dropped).map(|p| p.id), Some(100));
    assert!(dropped.is_empty());
    for id in 10..14 {
        queue.push(0, packet(id, 1, 0), &mut dropped);
    }
    // Twelve are two too many: the heads of the long queue go.
    assert_eq!((dropped, queue.len()), (vec![2, 3], 10));
}

#[test]
fn fq_codel_shares_by_bytes() {
    let codel = CoDel { target_ns: 1_000 * MS, interval_ns: 10_000 * MS, ..CoDel::default() };
    let discipline = Discipline::FqCoDel { codel, quantum_bytes: 1_500, queues: 1_024 };
    let mut queue = managed(discipline, 10_000, false);
    let mut dropped = Vec::new();
    for id in 0..300 {
        let small = Waiting { bytes: 500, ..packet(1_000 + id, 7, 0) };
        queue.push(0, packet(id, 1, 0), &mut dropped);
        queue.push(0, small, &mut dropped);
    }
    let sent = (0..200).filter_map(|_| queue.pop(MS, &mut Vec::new()));
    let small = sent.filter(|p| p.bytes == 500).count();
    assert!((147..=153).contains(&small), "{small}");
}

/// Each of these flows has one packet that waits, always, and for 8 ms.
#[test]
fn fq_codel_spares_the_last_packet_of_all_queues_and_like_ns_3_of_each() {
    let drops = |flows: u32, like| {
        let codel = CoDel { like, ..CoDel::default() };
        let discipline = Discipline::FqCoDel { codel, quantum_bytes: 1_500, queues: 1_024 };
        let mut queue = managed(discipline, 1_000, false);
        let (mut dropped, mut count) = (Vec::new(), 0);
        (0..flows).for_each(|n| queue.push(0, packet(n, u64::from(n), 0), &mut dropped));
        for n in 1..=80 * flows {
            let now_ns = u64::from(n) * 8 * MS / u64::from(flows);
            let sent = queue.pop(now_ns, &mut dropped).unwrap().id;
            count += dropped.len();
            for id in dropped.drain(..).chain([sent]).collect::<Vec<u32>>() {
                queue.push(now_ns, packet(id, u64::from(id), now_ns), &mut Vec::new());
            }
        }
        count
    };
    for like in [Like::Rfc, Like::Linux] {
        assert_eq!(drops(1, like), 0);
        assert!(drops(8, like) > 8, "{}", drops(8, like));
    }
    assert_eq!((drops(1, Like::Ns3), drops(8, Like::Ns3)), (0, 0));
}

#[test]
fn pie_brings_the_delay_to_its_target() {
    let mut queue = managed(Discipline::Pie(Pie::default()), 10_000, false);
    let (delays, drops) = overload(&mut queue, 9 * MS / 10, MS, 40_000);
    let late = &delays[delays.len() / 2..];
    let mean_ms = late.iter().sum::<u64>() as f64 / late.len() as f64 / MS as f64;
    assert!((12.0..18.0).contains(&mean_ms), "{mean_ms}");
    // A tenth more comes than is sent; the first burst is let through.
    assert!(drops.iter().all(|&at_ns| at_ns > 150 * MS));
    let share = drops.len() as f64 / 40_000.0;
    assert!((0.08..0.12).contains(&share), "{share}");
}

/// The variance of the gaps between drops is that of a geometric distribution by the RFC, and much less with derandomization.
#[test]
fn pie_like_linux_drops_evenly() {
    let spread = |like: Like| {
        let pie = Pie { like, ..Pie::default() };
        let mut queue = managed(Discipline::Pie(pie), 10_000, false);
        let (delays, drops) = overload(&mut queue, 9 * MS / 10, MS, 40_000);
        let late = &delays[delays.len() / 2..];
        let mean_ms = late.iter().sum::<u64>() as f64 / late.len() as f64 / MS as f64;
        assert!((12.0..18.0).contains(&mean_ms), "{mean_ms}");
        let late = &drops[drops.len() / 2..];
        let gaps: Vec<f64> = late.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let squares = gaps.iter().map(|gap| (gap / mean - 1.0).powi(2)).sum::<f64>();
        squares / gaps.len() as f64
    };
    let (rfc, linux) = (spread(Like::Rfc), spread(Like::Linux));
    assert!(rfc > 0.7 && linux < 0.4, "{rfc} {linux}");
}

#[test]
fn pie_forgets_while_nothing_comes() {
    let mut queue = managed(Discipline::Pie(Pie::default()), 10_000, false);
    overload(&mut queue, MS / 2, MS, 5_000);
    let mut dropped = Vec::new();
    let day_ns = 86_400_000 * MS;
    while queue.pop(day_ns, &mut dropped).is_some() {}
    dropped.clear();
    for id in 0..100 {
        queue.push(2 * day_ns, packet(id, 1, 2 * day_ns), &mut dropped);
    }
    assert!(dropped.is_empty());
}
