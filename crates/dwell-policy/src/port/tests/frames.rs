//! Frames, and the accounts of them.

use super::*;
use crate::scheme::Gather;

/// A port with these frames; its packets are of 500 bytes.
fn framed(scheme: Scheme, frame: FrameCost) -> Port {
    let port = paper(scheme, 700_000);
    Port::new(PortConfig { frame, ..port.config().clone() }).unwrap()
}

const FRAME: FrameCost = FrameCost {
    frame_bytes: 40,
    raw_unit_bytes: 2,
    compressed_unit_bytes: 5,
    units_bytes_max: 10_000,
    units_max: 3,
    ..FrameCost::FREE
};

fn arrive_all(port: &mut Port, packets: u32) {
    port.link_busy();
    for id in 0..packets {
        arrive(port, id);
    }
    assert_eq!(actions(port), [], "they wait for the link");
    port.link_ready();
}

#[test]
fn frames_and_their_bytes_are_counted() {
    let mut port = framed(Scheme::none(), FRAME);
    arrive_all(&mut port, 7);
    let mut sizes = Vec::new();
    while port.ask(Instant::ZERO) == Some(Wanted::Send) {
        sizes.push((port.frame().units.len(), port.frame().link_bytes));
        port.link_ready();
    }
    assert_eq!(sizes, [(3, 3 * 502 + 40), (3, 3 * 502 + 40), (1, 502 + 40)]);
    let accounts = port.accounts();
    assert_eq!((accounts.frames, accounts.link_bytes), (3, 7 * 502 + 3 * 40));
    assert_eq!((accounts.sent.packets, accounts.sent.bytes), (7, 3_500));
}

#[test]
fn only_a_unit_that_is_longer_than_can_be_named_ends_its_frame() {
    for (unit_bytes_named, units) in [(502, 3), (501, 1)] {
        let mut port = framed(Scheme::none(), FrameCost { unit_bytes_named, ..FRAME });
        arrive_all(&mut port, 3);
        assert_eq!(port.ask(Instant::ZERO), Some(Wanted::Send));
        assert_eq!(port.frame().units.len(), units);
    }
}

#[test]
fn a_frame_is_filled_to_its_last_byte() {
    for (units_bytes_max, units) in [(1_004, 2), (1_003, 1)] {
        let mut port = framed(Scheme::none(), FrameCost { units_bytes_max, ..FRAME });
        arrive_all(&mut port, 3);
        assert_eq!(port.ask(Instant::ZERO), Some(Wanted::Send));
        assert_eq!(port.frame().units.len(), units);
    }
}

#[test]
fn what_waits_is_counted_with_the_frames_that_it_takes() {
    for (units_bytes_max, frame_bytes, frames) in [(1_004, 40, 2), (0, 40, 0), (1_004, 0, 0)] {
        let frame = FrameCost { units_bytes_max, frame_bytes, ..FRAME };
        let mut port = framed(Scheme::none(), frame);
        port.link_busy();
        for id in 0..3 {
            arrive(&mut port, id);
        }
        assert_eq!(port.ask(Instant::ZERO), None);
        assert_eq!(port.backlog_bytes(), 3 * 502 + frames * 40);
    }
}

#[test]
fn what_did_not_shrink_and_what_failed_is_counted() {
    let mut port = paper(Scheme::all(), 700_000);
    let outcomes = [Outcome::NotSmaller, Outcome::Failed, Outcome::Smaller(500), Outcome::Failed];
    for (id, outcome) in (0..).zip(outcomes) {
        arrive(&mut port, id);
        assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(id))]);
        port.compressed(PacketId(id), outcome, 1_000);
        assert_eq!(actions(&mut port), [Wanted::Send]);
        port.link_ready();
    }
    let compress = port.accounts().compress;
    assert_eq!((compress.not_smaller, compress.failed, compress.compressed.packets), (2, 2, 0));
}

#[test]
fn the_frame_of_another_scheme_leaves_nothing_behind() {
    let mut port = paper(Scheme::backlog(Gather::Edge, 3, 0), 700_000);
    port.link_busy();
    for id in 0..4 {
        arrive(&mut port, id);
    }
    assert_eq!(actions(&mut port), [Wanted::CompressBatch]);
    port.compressed(PacketId(0), Outcome::Smaller(600), 1_000);
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!((port.frame().units.len(), port.frame().followers.len()), (1, 2));
    port.clear(|_, _| ());
    port.configure(PortConfig { scheme: Scheme::none(), ..port.config().clone() }).unwrap();
    arrive(&mut port, 9);
    port.link_ready();
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!((port.frame().units.len(), port.frame().followers.len()), (1, 0));
}

#[test]
fn what_was_compressed_has_the_header_of_compressed_units() {
    let mut port = framed(Scheme::all(), FRAME);
    arrive(&mut port, 1);
    assert_eq!(actions(&mut port), [Wanted::Compress(PacketId(1))]);
    port.compressed(PacketId(1), Outcome::Smaller(350), 1_000);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().link_bytes, 350 + 5 + 40);
    // Here or upstream.
    port.link_ready();
    let upstream = Packet { compressed: true, bytes: 300, ..packet(2) };
    assert_eq!(port.arrive_one(Instant::ZERO, upstream), Admission::Queued);
    assert_eq!(actions(&mut port), [Wanted::Send]);
    assert_eq!(port.frame().link_bytes, 300 + 5 + 40);
}

#[test]
fn what_waits_is_counted_again_when_headers_change() {
    let mut port = framed(Scheme::none(), FRAME);
    port.link_busy();
    arrive(&mut port, 1);
    arrive(&mut port, 2);
    assert_eq!(actions(&mut port), []);
    assert_eq!(port.backlog_bytes(), 2 * 502 + 40);
    let frame = FrameCost { raw_unit_bytes: 12, ..FRAME };
    port.configure(PortConfig { frame, ..port.config().clone() }).unwrap();
    assert_eq!(port.backlog_bytes(), 2 * 512 + 40);
    port.assert_invariants();
}
