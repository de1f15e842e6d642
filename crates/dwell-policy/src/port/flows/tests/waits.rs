//! For how long packets of a flow may keep waiting.

use super::*;

/// Returns the packets dropped in a second of a flow that keeps waiting for so long, over a link in this state.
fn dropped(waits_ms: u64, state: LinkState) -> u64 {
    let mut port = port(1_000);
    port.handle(at(0), Event::Link(state));
    for ms in 0..1_000 {
        let noise = Packet { looks_random: true, ..packet(ms as u32, 1, 1_400) };
        arrive(&mut port, at(ms), noise);
        if ms >= waits_ms {
            ready(&mut port, at(ms));
        }
        while ask(&mut port, at(ms)).is_some() {}
    }
    port.accounts().dropped_total().packets
}

fn link() -> LinkState {
    LinkState::of_rate(Some(Rate::from_mbps(10)))
}

/// What the link needs to stay busy may wait: 20 ms here, on a link with a round trip of twice that.
#[test]
fn a_flow_may_keep_waiting_for_as_long_as_is_granted() {
    let dropped = |waits_ms, granted_ms| {
        dropped(waits_ms, LinkState { granted_ns: granted_ms * MILLI_NS, ..link() })
    };
    assert_eq!([(4, 0), (18, 20), (4, 20)].map(|(waits, may)| dropped(waits, may)), [0; 3]);
    assert!(dropped(18, 0) > 5 && dropped(22, 20) > 0);
}

/// Over a path of 400 ms nothing is dropped for less than 20 ms, and once or twice in the first second for more.
#[test]
fn a_flow_is_slowed_down_once_in_a_round_trip() {
    let dropped = |waits_ms, round_trip_ms| {
        dropped(waits_ms, LinkState { round_trip_ns: round_trip_ms * MILLI_NS, ..link() })
    };
    assert_eq!((dropped(18, 400), dropped(18, 0) > 5), (0, true));
    assert!((1..=2).contains(&dropped(30, 400)), "{}", dropped(30, 400));
}
