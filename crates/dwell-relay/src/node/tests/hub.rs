//! A hub with 200 peers, all of which compress in contexts.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_base::{Rate, Rng};
use dwell_report::status::{PeerState, PeerStatus};
use dwell_testkit::LinkSpec;

use super::harness::*;
use super::row::{Load, Plan, Row};

const PEERS: usize = 200;
const CONTEXTS: u64 = 2;
/// Small rings: it is the number of peers that is tested.
const RING_BYTES: u64 = 32 << 10;
/// What a context may take in the hub: the decoder's ring, window and base, and what zstd has beside
/// them; the encoder's, with its tables.
const DECODER_BYTES: u64 = 3 * RING_BYTES + (512 << 10);
const ENCODER_BYTES: u64 = 3 * RING_BYTES + (1 << 20);
const DELAY_MS: u64 = 20;
const PACKETS: u64 = 80;

/// Every peer sends to the hub and to the next peer, so that the hub opens and compresses for all.
fn star(seed: u64) -> Row {
    let lines = format!(
        "scheme = \"auto\"\ncodec = \"zstd:1\"\nrate = \"1mbit\"\ncontexts_max = {CONTEXTS}\n\
         context_window = \"32KiB\"\n"
    );
    let transit = true;
    let hub = (1..=PEERS).map(|peer| (peer, vec![peer])).collect();
    let mut plans = vec![Plan { peers: hub, transit, lines: lines.clone(), ..Plan::default() }];
    for _ in 1..=PEERS {
        let peers = vec![(0, vec![0])];
        plans.push(Plan { peers, wide: Some(0), transit, lines: lines.clone(), ..Plan::default() });
    }
    let link = LinkSpec::new().with_rate(Rate::from_mbps(2)).with_delay_ns(DELAY_MS * MILLI_NS);
    let mut row = Row::new(&plans, &link, seed);
    row.run_to(200);
    let traffic = Traffic { flows: 4, six: false, payload_max: 1308, random: 0.1 };
    for peer in 1..=PEERS {
        let to = [0, peer % PEERS + 1];
        let spacing_ns = 2_300 * MICRO_NS;
        row.load(peer, Load { to, packets: PACKETS, spacing_ns, traffic, ttl: 64, full: false });
    }
    row
}

fn hub_peers(row: &Row) -> Vec<PeerStatus> {
    let hub = row.station(0);
    hub.node.status(hub.env.now.get()).peers
}

/// The memory of each peer's contexts is within what was negotiated.
fn assert_memory(row: &Row) {
    let mut sum = 0;
    for peer in hub_peers(row) {
        let (tx, rx) = (&peer.tx.contexts, &peer.rx.contexts);
        assert!(tx.open <= CONTEXTS && tx.memory_bytes <= CONTEXTS * ENCODER_BYTES, "{tx:?}");
        assert!(rx.open <= CONTEXTS && rx.memory_bytes <= CONTEXTS * DECODER_BYTES, "{rx:?}");
        sum += tx.memory_bytes + rx.memory_bytes;
    }
    assert!(sum > PEERS as u64 * RING_BYTES, "contexts were not used: {sum} bytes");
}

#[test]
fn two_hundred_peers_have_contexts_and_all_arrives() {
    let mut row = star(1);
    row.run_to(400);
    assert_memory(&row);
    row.run_to(2_000);
    row.assert_accounts();
    let (came, late) = row.check();
    assert_eq!((came, late), (PEERS * PACKETS as usize, 0));
    for peer in hub_peers(&row) {
        assert!(peer.rx.contexts.batches > 1 && peer.tx.contexts.batches > 0, "{peer:?}");
        assert_eq!(peer.rx.contexts.lost_generations, 0, "{:?}", peer.rx.contexts);
    }
}

/// The hub comes back with nothing in the middle of it: what comes by a new session decodes from its
/// first batch on, with no word back. When a peer makes its first batch is another matter: what fits into
/// the first frames of an empty queue goes raw.
#[test]
fn a_hub_that_was_restarted_decodes_at_once_what_all_its_peers_send() {
    let mut row = star(2);
    let moment = 240 + Rng::from_seed(7).below(30);
    row.run_to(moment);
    row.restart(0, 99);
    row.run_to(moment + 160);
    assert_memory(&row);
    let (mut crossed, mut raw) = (0, 0);
    for (at, peer) in hub_peers(&row).iter().enumerate() {
        assert_eq!(peer.state, PeerState::Up, "{at}: {peer:?}");
        raw += u64::from(peer.rx.contexts.batches == 0);
        let rx = &peer.rx.contexts;
        assert_eq!(rx.dropped.get("no_base").unwrap_or(&0), &0, "{at}: {rx:?}");
        crossed += u64::from(rx.lost_generations > 0);
    }
    // Where both ends begin a session at once, what was sent in the one that did not last is lost.
    assert!(crossed * 20 <= PEERS as u64, "{crossed} lost a generation");
    // With other seeds none to two of 200 have sent only what fits into frames by then; soon all have sent more.
    assert!(raw * 100 <= PEERS as u64, "{raw} of {PEERS} have sent no batch");
    row.run_to(moment + 400);
    assert!(hub_peers(&row).iter().all(|peer| peer.rx.contexts.batches > 0));
    row.run_to(2_000);
    row.check();
}

/// There is memory for a few peers only: all that is sent arrives as it was, or is lost with a context that the hub
/// could not keep; and whoever sent it begins from nothing at once.
#[test]
fn a_hub_keeps_its_contexts_within_its_memory() {
    const BYTES_MAX: u64 = 24 << 20;
    let mut row = star(3);
    row.with(0, |hub| hub.node.set_history_memory(BYTES_MAX));
    let mut most = 0;
    for ms in (200..1_200).step_by(10) {
        row.run_to(ms);
        let hub = row.station(0);
        let history = hub.node.status(hub.env.now.get()).history;
        assert_eq!(history.memory_bytes_max, Some(BYTES_MAX));
        most = most.max(history.memory_bytes);
    }
    row.run_to(3_000);
    row.assert_accounts();
    let history = row.station(0).node.status(row.station(0).env.now.get()).history;
    assert!(history.evicted > 50, "{history:?}");
    // A context grows with its first batches; that is seen a twentieth of a second later.
    assert!(most <= BYTES_MAX * 5 / 4, "{most}");
    let (came, _) = row.check();
    let sent = PEERS * PACKETS as usize;
    assert!(came * 100 > sent * 95, "{came} of {sent}");
    let peers = hub_peers(&row);
    let sum = |of: fn(&PeerStatus) -> u64| peers.iter().map(of).sum::<u64>();
    let no_base = sum(|peer| peer.rx.contexts.dropped["no_base"]);
    let (batches, crowded) = (
        sum(|peer| peer.rx.contexts.batches),
        sum(|peer| peer.tx.contexts.without_context["crowded_out"]),
    );
    println!(
        "{came} of {sent} came, {no_base} of {batches} without base, {crowded}, {history:?}, {most}"
    );
    assert!(no_base * 100 <= batches, "{no_base} of {batches}");
}

/// That there was no room is forgotten when those that took it are idle: others can begin then.
#[test]
fn who_comes_later_has_contexts_again() {
    let mut row = star(4);
    row.run_to(330);
    // All that there are are in use: some are given up, and none may begin.
    row.with(0, |hub| {
        let bytes = hub.node.history_status().memory_bytes;
        hub.node.set_history_memory(bytes - bytes / 8);
    });
    row.run_to(400);
    let short = |row: &Row| {
        let peers = row.station(0).node.peers.iter();
        peers.filter(|peer| peer.contexts.outgoing.is_short_of_memory).count()
    };
    assert_eq!(short(&row), PEERS);
    row.run_to(9_000);
    assert_eq!(short(&row), 0);
    let crowded = |row: &Row| {
        let of = |peer: &PeerStatus| peer.tx.contexts.without_context["crowded_out"];
        hub_peers(row).iter().map(of).sum::<u64>()
    };
    let before = crowded(&row);
    let traffic = Traffic { flows: 4, six: false, payload_max: 1308, random: 0.1 };
    for peer in 100..105 {
        let (to, spacing_ns) = ([0, peer + 1], 2_300 * MICRO_NS);
        row.load(peer, Load { to, packets: 400, spacing_ns, traffic, ttl: 64, full: false });
    }
    row.run_to(12_000);
    assert_eq!(crowded(&row), before);
}
