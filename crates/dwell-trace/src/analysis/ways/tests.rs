use dwell_base::Rng;

use super::super::tests::{Ticks, settings};
use super::super::{Accounts, Analysis, Analyzer, Batch, HistoryAnalyzer, Settings};
use super::*;
use crate::capture::Capture;
use crate::capture::tests::{Owned, owned, pcap, udp};
use crate::datagram::Datagram;

/// Analyses a capture in one reading, or in two: one for the sides, and one with them.
fn analysed(bytes: &[u8], settings: &Settings, is_once: bool) -> Analysis {
    let mut accounts = match is_once {
        true => Accounts::finding_sides(settings).unwrap(),
        false => {
            let (mut learner, mut capture) = (Learner::default(), Capture::open(bytes).unwrap());
            while let Some(packet) = capture.next_packet() {
                if let Ok(found) = Datagram::find(&packet, 0) {
                    learner.observe(&Ends::of(&packet), &found.info);
                }
            }
            Accounts::new(settings).with_sides(learner.finish().into())
        }
    };
    let mut capture = Capture::open(bytes).unwrap();
    let (mut analyzer, mut batch) = (Analyzer::new(settings, Ticks(0)).unwrap(), Batch::default());
    accounts.begin("a capture", capture.format());
    while accounts.fill(&mut capture, &mut batch) || !batch.is_empty() {
        analyzer.batch(&batch).unwrap();
    }
    let (sums, content) = analyzer.finish_ways();
    let mut whole = match is_once {
        true => accounts.found(&content).unwrap(),
        false => accounts.finish(),
    };
    whole.merge(sums).unwrap();
    whole
}

/// What needs no directions before the end.
fn once() -> Settings {
    Settings { context_codec: None, is_without_bound: true, ..settings() }
}

/// Frames between a few stations and hosts, some to many, of text and noise on some ports.
fn frames(rng: &mut Rng, count: u32, stations: u64, hosts: u64) -> Vec<Owned> {
    let frame = |n: u32| {
        let payload: Vec<u8> = (0..20 + rng.below(600)).map(|at| (at % 7) as u8 + 65).collect();
        let noise: Vec<u8> = payload.iter().map(|_| rng.below(256) as u8).collect();
        let payload = if rng.below(2) == 0 { payload } else { noise };
        let port = [443, 4242, 50_000][rng.below(3) as usize];
        let mut packet = udp(port, 4242, &payload);
        packet[12..16].copy_from_slice(&[10, 0, 0, rng.below(hosts) as u8]);
        let to = match rng.below(9) {
            0 => [224, 0, 0, 5],
            1 => [192, 0, 2, rng.below(hosts) as u8],
            _ => [10, 0, 0, rng.below(hosts) as u8],
        };
        packet[16..20].copy_from_slice(&to);
        let many = u8::from(rng.below(9) == 0);
        let mut data = vec![2 | many, 0, 0, 0, 0, rng.below(stations) as u8];
        data.extend([2, 0, 0, 0, 0, rng.below(stations) as u8, 8, 0]);
        data.extend(packet);
        Owned { link: 1, ..owned(u64::from(n) * 1000, &data) }
    };
    (0..count).map(frame).collect()
}

#[test]
fn one_reading_finds_what_two_do() {
    let mut rng = Rng::from_seed(3);
    for (stations, hosts) in [(1, 2), (2, 2), (2, 9), (3, 3), (5, 40), (40, 200)] {
        for count in [1, 30, 2500] {
            let bytes = pcap(&frames(&mut rng, count, stations, hosts));
            let (one, two) = (analysed(&bytes, &once(), true), analysed(&bytes, &once(), false));
            assert_eq!(one, two, "{stations} stations, {hosts} hosts, {count} frames");
        }
    }
}

#[test]
fn what_needs_directions_is_read_twice() {
    assert!(Accounts::finding_sides(&settings()).is_none());
    let with_history = Settings { is_without_bound: true, ..settings() };
    assert!(Accounts::finding_sides(&with_history).is_none());
    assert!(Accounts::finding_sides(&once()).is_some());
    assert!(HistoryAnalyzer::new(&once(), Ticks(0)).is_ok());
}

#[test]
fn too_many_ways_are_given_up() {
    let mut ways = Ways::default();
    let info = PacketInfo::parse(&udp(1, 2, &[7]), 0).unwrap();
    let count = |ways: &mut Ways, n: usize| {
        let src = IpAddr::V4(std::net::Ipv4Addr::from_bits(n as u32));
        ways.count(Ends::default(), &PacketInfo { src, ..info })
    };
    assert!((0..WAYS_MAX).all(|n| count(&mut ways, n) == u32::try_from(n).ok()));
    assert_eq!(count(&mut ways, WAYS_MAX), None);
    assert_eq!(count(&mut ways, 5), Some(5));
}
