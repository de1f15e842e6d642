//! A hub whose peers share its slow link.

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_report::status::{PeerStatus, RateSource};
use dwell_testkit::LinkSpec;

use super::harness::*;
use super::row::{Load, Plan, Row};

const UPLINK_BPS: u64 = 4_000_000;

/// The hub sends to the first two peers, and the two others send to the first one, through the hub: it has three times as
/// much to send to the first as to the second, and far more to either than its link carries.
fn star(rate: &str, seed: u64) -> Row {
    let lines = format!("scheme = \"auto\"\ncodec = \"zstd:1\"\nrate = \"{rate}\"\n");
    let own_lines = format!("uplink = \"{UPLINK_BPS}bit\"");
    let hub = (1..=4).map(|peer| (peer, vec![peer])).collect();
    let mut plans = vec![Plan {
        peers: hub,
        transit: true,
        lines: lines.clone(),
        own_lines,
        ..Plan::default()
    }];
    for _ in 1..=4 {
        let peers = vec![(0, vec![0])];
        plans.push(Plan {
            peers,
            wide: Some(0),
            transit: true,
            lines: lines.clone(),
            ..Plan::default()
        });
    }
    let link = LinkSpec::new().with_rate(Rate::from_mbps(100)).with_delay_ns(5 * MILLI_NS);
    let mut row = Row::new(&plans, &link, seed);
    row.run_to(200);
    let traffic = Traffic { flows: 4, six: false, payload_max: 1308, random: 1.0 };
    for (at, to) in [(0, [1, 2]), (3, [1, 1]), (4, [1, 1])] {
        let spacing_ns = 700 * MICRO_NS;
        row.load(at, Load { to, packets: 6_000, spacing_ns, traffic, ttl: 64, full: true });
    }
    row
}

fn peers(row: &Row) -> Vec<PeerStatus> {
    let hub = row.station(0);
    hub.node.status(hub.env.now.get()).peers
}

fn sent(row: &Row) -> [u64; 2] {
    let peers = peers(row);
    [0, 1].map(|at| peers[at].tx.link_bytes)
}

#[test]
fn a_link_that_peers_share_is_divided_equally() {
    for rate in ["auto", "100mbit", "unlimited"] {
        let mut row = star(rate, 1);
        row.run_to(700);
        let before = sent(&row);
        row.run_to(2_700);
        let [first, second] = [0, 1].map(|at| sent(&row)[at] - before[at]);
        let parts = first as f64 / second as f64;
        assert!((0.95..1.05).contains(&parts), "{rate}: {first} and {second} bytes");
        let all = (first + second) as f64 / (UPLINK_BPS as f64 / 8.0 * 2.0);
        assert!((0.95..1.0).contains(&all), "{rate}: {all} of the link");
        let peers = peers(&row);
        assert_eq!(peers[0].rate_source, RateSource::Share, "{rate}");
        assert!(peers[0].rate_bps.is_some_and(|bps| bps < UPLINK_BPS * 55 / 100), "{rate}");
        row.check();
    }
}

/// What the first may have beside the second it has alone when that has all it wants.
#[test]
fn who_is_left_has_all_of_a_shared_link() {
    let mut row = star("auto", 2);
    row.with(0, |hub| hub.end_load());
    row.run_to(1_700);
    let before = sent(&row);
    row.run_to(2_700);
    let [first, second] = [0, 1].map(|at| sent(&row)[at] - before[at]);
    assert!(second < first / 50, "{first} and {second} bytes");
    let part = first as f64 / (UPLINK_BPS as f64 / 8.0);
    assert!((0.95..1.0).contains(&part), "{part} of the link");
}

/// Nothing is known of the link to a peer that is found elsewhere, but that it goes through the shared one.
#[test]
fn a_peer_that_moves_has_its_share_and_no_more() {
    for rate in ["auto", "unlimited"] {
        let mut row = star(rate, 3);
        row.run_to(700);
        let before = sent(&row);
        for moment in 0..20 {
            let host = 100 + moment;
            row.with(0, |hub| hub.node.set_endpoint(0, ([192, 0, 2, host], 7733).into()));
            row.run_to(700 + 50 * u64::from(moment + 1));
        }
        let all: u64 = (0..2).map(|at| sent(&row)[at] - before[at]).sum();
        let part = all as f64 / (UPLINK_BPS as f64 / 8.0);
        assert!(part < 1.05, "{rate}: {part} of the link");
    }
}
