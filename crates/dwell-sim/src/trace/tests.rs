use super::*;
use crate::World;
use crate::scenario::{Options, Scenario};

const SCENARIO: &str = r#"
[about]
title = "a link"
[run]
measure = "2s"
drain = "0s"
[topology]
kind = "graph"
[link.l]
from = "a"
to = "b"
rate = "2mbit"
delay = "10ms"
queue = "codel"
ecn = true
loss = 0.01
[link.back]
from = "b"
to = "a"
rate = "2mbit"
delay = "10ms"
[flow.t]
from = "a"
to = "b"
kind = "tcp"
flavour = "newreno"
ecn = true
[flow.u]
from = "a"
to = "b"
kind = "cbr"
packet_bytes = 100
rate = "100kbit"
[scheme]
preset = "none"
"#;

/// Blocks as their types, and the bytes of the packets in them.
fn blocks(file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut out) = (0, Vec::new());
    while at < file.len() {
        let len = word(at + 4) as usize;
        assert!(len.is_multiple_of(4) && word(at + len - 4) as usize == len);
        out.push((word(at), file[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    out
}

#[test]
fn every_packet_is_in_the_file_once_with_its_headers() {
    let none = |_: &str| Err("no files".to_owned());
    let scenario = Scenario::parse(SCENARIO, "s", "s", &Options::default(), &none).unwrap();
    let mut plan = scenario.points[0].plan.clone();
    observe(&mut plan, &[0, 1]);
    let mut file = Pcapng::new(Vec::new(), &plan, &[0, 1], u64::MAX).unwrap();
    let (mut packets, mut windows) = (0, Vec::new());
    let outcome = World::new(&plan, 1).unwrap().run_observed(|sighting| {
        if let Sighting::Packet(seen) = sighting {
            packets += 1;
            file.packet(seen).unwrap();
        }
        windows.extend(window_line(sighting));
    });
    let sent: u64 = outcome.links.iter().map(|link| link.sent).sum();
    assert_eq!(packets, sent);
    let blocks = blocks(&file.finish().unwrap());
    let of = |kind: u32| blocks.iter().filter(|block| block.0 == kind).count() as u64;
    assert_eq!((of(0x0a0d_0d0a), of(1), of(6)), (1, 2, packets));
    let frames = blocks.iter().filter(|block| block.0 == 6).map(|block| &block.1[20..]);
    // Protocols, and the bits of ECN in the second byte.
    let count = |wanted: fn(&[u8]) -> bool| frames.clone().filter(|frame| wanted(frame)).count();
    assert!(count(|frame| frame[9] == 17) > 20 && count(|frame| frame[9] == 6) > 300);
    assert!(count(|frame| frame[1] == 3) > 0, "something is marked");
    assert!(count(|frame| frame[9] == 6 && frame[33] & 64 != 0) > 0, "and echoed");
    assert!(windows.len() > 50 && windows[0].ends_with('\n'));
}

#[test]
fn no_more_packets_are_written_than_wanted() {
    let none = |_: &str| Err("no files".to_owned());
    let scenario = Scenario::parse(SCENARIO, "s", "s", &Options::default(), &none).unwrap();
    let plan = &scenario.points[0].plan;
    let mut file = Pcapng::new(Vec::new(), plan, &[0], 5).unwrap();
    World::new(plan, 1).unwrap().run_observed(|sighting| {
        if let Sighting::Packet(seen) = sighting {
            file.packet(seen).unwrap();
        }
    });
    let blocks = blocks(&file.finish().unwrap());
    assert_eq!(blocks.iter().filter(|block| block.0 == 6).count(), 5);
}
