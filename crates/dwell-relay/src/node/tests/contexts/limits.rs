//! Limits that change while a handshake is under way: what a session may carry is what its own handshake offered.

use super::super::keys::keyed_of;
use super::*;

/// A round trip of [`good_link`], and what its queue and a batch that waits behind a frame add.
const ROUND_TRIP_MS: u64 = 10 + 10;
/// With key pairs both ends may ask at once. What was sent by the session that does not last is not taken for one with the
/// same contexts: its generation is given up, and the next one begins some round trips later, as reports of lost ones are
/// 20 ms apart, and so are generations that end soon.
const AFTER_CROSSING_MS: u64 = 100;
/// The two sizes that configurations take turns with.
const LARGE: &str = "contexts_max = 8\ncontext_window = \"256KiB\"";
const SMALL: &str = "contexts_max = 1\ncontext_window = \"32KiB\"";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Psk,
    Keys,
}

impl Kind {
    /// Returns from when on all decodes, after the newest session.
    fn settled_ms(self) -> u64 {
        match self {
            Self::Psk => ROUND_TRIP_MS,
            Self::Keys => ROUND_TRIP_MS + AFTER_CROSSING_MS,
        }
    }

    fn config(self, side: usize, limits: &str) -> crate::node::Config {
        let lines = format!("{HOST_PAIR}\nmodels_max = 0\n{limits}");
        match self {
            Self::Psk => config_of(side, true, NINE_MBIT, &lines),
            Self::Keys => keyed_of(side, NINE_MBIT, &lines),
        }
    }
}

fn salts(net: &Net, side: usize) -> Option<([u8; 16], [u8; 16])> {
    net.end(side).node.peers[0].handshake.current().map(|session| session.salts())
}

/// What was not decoded though it came, or ended a generation.
fn undecoded(net: &Net) -> [u64; 2] {
    peers(net).map(|peer| {
        let rx = peer.rx.contexts;
        rx.lost_generations + rx.dropped.values().sum::<u64>()
    })
}

/// One end asks for another session under load, and either takes other limits so many milliseconds later.
fn changed(kind: Kind, limits: [&str; 2], end: usize, after_ms: u64) -> Net {
    let configs = [0, 1].map(|side| kind.config(side, limits[0]));
    let mut net = Net::new(&configs, &good_link(), 40 + after_ms);
    net.set_traffic(TEXT);
    net.run_to(1_000);
    net.start_sources(1_000, 8_600, 400 * MICRO_NS);
    net.run_to(2_000);
    net.net.with_node(net.ends[0], |end, now, out| {
        end.node.peers[0].handshake.renew();
        changes::virtual_timers(end, now, out);
    });
    net.run_to(2_000 + after_ms);
    net.reconfigure(end, &kind.config(end, limits[1]));
    net
}

/// What an end had received and made at a time.
#[derive(Clone, Copy, Debug)]
struct Look {
    undecoded: [u64; 2],
    batches: [u64; 2],
    made: [usize; 2],
}

impl Look {
    fn of(net: &Net) -> Self {
        let batches = peers(net).map(|peer| peer.rx.contexts.batches);
        Self { undecoded: undecoded(net), batches, made: [0, 1].map(|it| net.end(it).made.len()) }
    }
}

/// From a round trip after the newest session on everything decodes, or a little later.
fn change(kind: Kind, limits: [&str; 2], end: usize, after_ms: u64) {
    let case = format!("{kind:?}, {limits:?}, end {end}, after {after_ms} ms");
    let mut net = changed(kind, limits, end, after_ms);
    let (from_ms, until_ms) = (2_000 + after_ms, 4_000);
    let (mut latest, mut newest_ms) = ([0, 1].map(|side| salts(&net, side)), from_ms);
    let mut before = None;
    for ms in from_ms..until_ms {
        net.run_to(ms);
        if ms == newest_ms + kind.settled_ms() {
            before = Some(Look::of(&net));
        }
        let now = [0, 1].map(|side| salts(&net, side));
        if now != latest {
            (latest, newest_ms) = (now, ms);
        }
    }
    assert!(newest_ms < until_ms - 500, "{case}: sessions begin all the time");
    let before = before.expect("it was looked at then");
    net.run_to(5_000);
    net.assert_nothing_altered_or_doubled();
    let rx = peers(&net).map(|peer| peer.rx.contexts);
    assert_eq!(undecoded(&net), before.undecoded, "{case}: {rx:?}");
    for side in [0, 1] {
        let (from, to, rx) = (net.end(1 - side), net.end(side), &rx[side]);
        let first = before.made[1 - side];
        let came = to.env.delivered.iter().filter(|it| number_of(it) >= first as u64).count();
        assert_eq!(came, from.made.len() - first, "{case}, to {side}: {rx:?}");
        assert!(rx.batches > before.batches[side] + 20, "{case}, to {side}: {rx:?}");
        assert!(!is_damaged(&peers(&net)[side]), "{case}: {rx:?}");
    }
}

/// In steps of a millisecond: from before the request is sent until after all that answers it has come.
#[test]
fn limits_that_change_during_a_handshake_hold_from_the_next_one_on() {
    for kind in [Kind::Psk, Kind::Keys] {
        for limits in [[LARGE, SMALL], [SMALL, LARGE]] {
            for changed in [0, 1] {
                // Each moment of a handshake, or every fourth of them.
                let step = if extent::is_everything() { 1 } else { 4 };
                for after_ms in (0..20).step_by(step) {
                    change(kind, limits, changed, after_ms);
                }
            }
        }
    }
}
