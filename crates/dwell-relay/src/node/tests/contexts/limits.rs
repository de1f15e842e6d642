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

/// On a fast link what may have to be sent again is most of what contexts take: it is kept within the node's memory, too.
#[test]
fn what_may_be_sent_again_is_kept_within_the_memory_for_contexts() {
    const BYTES_MAX: u64 = 8 << 20;
    let most_kept = |bytes_max| {
        let mut net = pair_of_rate([HOST_PAIR; 2], "100mbit", &good_link().with_loss(0.001), 3);
        net.net.with_node(net.ends[0], |end, _, _| end.node.set_history_memory(bytes_max));
        net.run_to(2_000);
        net.set_traffic(Traffic { flows: 4, six: true, random: 0.9, ..Traffic::default() });
        net.start_sources(2_000, 14_000, 100 * MICRO_NS);
        let (mut kept, mut all) = (0, 0);
        for ms in (2_100..3_400).step_by(20) {
            net.run_to(ms);
            let history = net.end(0).node.history_status();
            all = all.max(history.memory_bytes);
            kept = kept.max(net.end(0).peer().tx.contexts.kept_bytes);
        }
        net.run_to(6_000);
        assert_sound(&net);
        (kept, all)
    };
    let (kept, all) = most_kept(BYTES_MAX);
    assert!(kept <= BYTES_MAX / 2 && all <= BYTES_MAX * 9 / 8, "{kept} {all}");
    let (without, _) = most_kept(u64::MAX);
    assert!(without > 2 * kept, "{without} {kept}");
}

/// Whatever is to be saved: what there is no time for goes raw.
#[test]
fn compressing_takes_no_more_of_the_processor_than_is_configured() {
    const SECONDS: u64 = 1;
    /// As the modelled processor takes for each.
    const NS_OF_BYTE: f64 = 2.0;
    let took_ns = |codec: &str, lines: &str| {
        let lines = format!("scheme = \"auto\"\ncodec = \"{codec}\"\n{lines}");
        let mut net = pair_of_rate([&lines, &lines], "100mbit", &good_link(), 5);
        net.run_to(2_000);
        net.start_sources(2_000, SECONDS * 40_000, 25 * MICRO_NS);
        net.run_to(2_000 + SECONDS * 1_000);
        let bytes = net.end(0).peer().tx.contexts.bytes_in;
        net.run_to(20_000);
        assert_sound(&net);
        bytes as f64 * NS_OF_BYTE
    };
    for (codec, part) in [("zstd:1", 1), ("zstd:9", 2)] {
        let most_ns = (SECONDS * 10_000_000 * part) as f64;
        let limit = format!("cpu = \"{part}%\"");
        let [limited, usual] = [&limit[..], ""].map(|lines| took_ns(codec, lines));
        assert!(limited <= 1.2 * most_ns, "{codec} {part}: {limited}");
        assert!(usual > 1.5 * limited, "{codec} {part}: {limited} {usual}");
        assert!(limited > 0.5 * most_ns, "{codec} {part}: {limited} of {most_ns}");
    }
}
