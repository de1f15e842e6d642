//! Nodes between others: what came compressed goes on unopened.

use dwell_base::Rate;
use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::LinkSpec;

use super::harness::*;
use super::row::*;

const MANY: Traffic = Traffic { flows: 20, six: true, payload_max: 1308, random: 0.3 };

fn load(to: [usize; 2], traffic: Traffic) -> Load {
    Load { to, packets: 1_500, spacing_ns: 500 * MICRO_NS, traffic, ttl: 64, full: false }
}

/// Rows of three, `lines` for each of them.
fn row(lines: [&str; 3], link: &LinkSpec, seed: u64) -> Row {
    let plans: Vec<_> =
        lines.iter().enumerate().map(|(at, lines)| Plan::in_row(at, 3, lines)).collect();
    Row::new(&plans, link, seed)
}

fn scheme(name: &str) -> String {
    format!("scheme = \"{name}\"\nrate = \"9mbit\"")
}

fn link() -> LinkSpec {
    LinkSpec::new().with_rate(Rate::from_mbps(10)).with_delay_ns(2 * MILLI_NS)
}

/// Both ends send to each other and to the middle; the middle sends to one end.
fn busy(row: &mut Row, start_ms: u64) {
    row.run_to(start_ms);
    row.load(0, load([2, 2], MANY));
    row.load(2, load([0, 1], MANY));
    row.load(1, Load { spacing_ns: 2_000 * MICRO_NS, packets: 400, ..load([2, 0], MANY) });
    row.run_to(start_ms + 4_000);
}

#[test]
fn the_middle_opens_nothing_and_the_ends_have_all() {
    for name in [
        "packet",
        "all",
        "flow",
        "service",
        "host-pair",
        "edge",
        "edge\"\ncolumnar = false #",
        "edge\"\nblock_bytes = 30000 #",
    ] {
        let lines = scheme(name);
        let mut row = row([&lines, &lines, &lines], &link(), 1);
        busy(&mut row, 200);
        let (came, late) = row.check();
        row.assert_accounts();
        assert_eq!(late, 0, "{name}: order is broken");
        assert!(came > 2_500, "{name}: {came} came");
        let middle = row.station(1);
        let [left, right] = [0, 1].map(|peer| middle.peer(peer));
        assert!(left.rx.forwarded_compressed.packets > 20, "{name}: {:?}", left.rx);
        assert_eq!((left.rx.compressed, middle.routed), (0, 0), "{name}: nothing was opened");
        assert!(left.rx.forwarded.packets > 5, "{name}: {:?}", left.rx);
        assert_eq!(right.tx.forwarded_compressed, left.rx.forwarded_compressed);
        // What the other end sent to the middle was for it; what was for the first end was not.
        assert!(
            right.rx.compressed > 5 && right.rx.forwarded_compressed.packets > 5,
            "{name}: {:?}",
            right.rx
        );
        let end = row.station(2).peer(0);
        assert!(end.rx.compressed > 20, "{name}: {:?}", end.rx);
        let bypassed = right.tx.bypassed["already_compressed"];
        assert_eq!(bypassed, right.tx.forwarded_compressed.packets, "{name}: {:?}", right.tx);
    }
}

#[test]
fn hostile_links_do_no_harm() {
    for (name, retransmit) in [("packet", true), ("flow", true), ("edge", true), ("edge", false)] {
        for seed in 0..2 {
            let hostile = link().with_loss(0.01).with_reorder(0.02).with_duplicate(0.02);
            let lines = format!("{}\nretransmit = {retransmit}", scheme(name));
            let mut row = row([&lines, &lines, &lines], &hostile, 20 + seed);
            busy(&mut row, 8_000); // hellos get lost as well
            let (came, late) = row.check();
            row.assert_accounts();
            assert!(came > 2_400, "{name}: {came} came");
            // Where datagrams with blocks are sent again their receivers keep the order.
            let at_most = if retransmit && name != "packet" { came / 25 } else { came / 4 };
            assert!(late <= at_most, "{name}, {seed}: {late} of {came} late");
            let left = row.station(1).peer(0);
            assert!(left.rx.forwarded_compressed.packets > 20, "{name}: {:?}", left.rx);
            assert_eq!((left.rx.compressed, row.station(1).routed), (0, 0), "{name}");
        }
    }
}

/// Rows of four whose nodes have unlike schemes, traffic of all kinds, links of all kinds.
#[test]
fn whatever_the_schemes_all_packets_are_what_they_were() {
    const SCHEMES: [&str; 9] = [
        "none",
        "all",
        "packet",
        "flow",
        "service",
        "host-pair",
        "edge",
        "basicq",
        "chutq-dcf+cea",
    ];
    for seed in 0..12_u64 {
        let mut rng = dwell_base::Rng::from_seed(seed);
        let bad = |rng: &mut dwell_base::Rng| if rng.chance(0.5) { 0.01 } else { 0.0 };
        let hostile = link()
            .with_loss(bad(&mut rng))
            .with_reorder(bad(&mut rng))
            .with_duplicate(bad(&mut rng));
        let lines: Vec<_> = (0..4)
            .map(|_| {
                let name = SCHEMES[rng.below(SCHEMES.len() as u64) as usize];
                format!("{}\nretransmit = {}", scheme(name), rng.chance(0.7))
            })
            .collect();
        let mut plans: Vec<_> = (0..4).map(|at| Plan::in_row(at, 4, &lines[at])).collect();
        plans[1 + rng.below(2) as usize].transit = rng.chance(0.8);
        let mut row = Row::new(&plans, &hostile, seed);
        row.run_to(8_000);
        for at in 0..4 {
            let to = [0, 1].map(|_| (at + 1 + rng.below(3) as usize) % 4);
            let traffic = Traffic { payload_max: 100 + rng.below(1200), ..MANY };
            let spacing_ns = (200 + rng.below(800)) * MICRO_NS;
            row.load(at, Load { packets: 800, spacing_ns, ..load(to, traffic) });
        }
        row.run_to(14_000);
        let (came, late) = row.check();
        row.assert_accounts();
        assert!(came > 500, "{seed}, {lines:?}: {came} came");
        let is_clean = hostile == link();
        assert!(late == 0 || !is_clean, "{seed}, {lines:?}: {late} late");
    }
}

#[test]
fn the_middle_compresses_what_came_raw() {
    for name in ["packet", "edge", "flow"] {
        let lines = scheme(name);
        let mut row = row(["scheme = \"none\"", &lines, &lines], &link(), 2);
        row.run_to(200);
        row.load(0, load([2, 2], MANY));
        row.run_to(3_000);
        let (came, late) = row.check();
        row.assert_accounts();
        assert_eq!(late, 0);
        let (left, right) = (row.station(1).peer(0), row.station(1).peer(1));
        assert_eq!((left.rx.forwarded_compressed.packets, row.station(1).routed), (0, 0));
        assert_eq!(left.rx.forwarded.packets, right.tx.arrived.packets);
        assert!(right.tx.compressed.packets > 100, "{name}: {:?}", right.tx);
        assert!(came > 1_000 && row.station(2).peer(0).rx.compressed > 100);
    }
}

#[test]
fn every_scheme_passes_on_what_is_compressed() {
    let class = "\n[[class]]\nname = \"held\"\nmax_wait = \"20ms\"\nprotocols = [\"udp\"]\n";
    for (name, class, forwards) in [
        ("none", "", true),
        ("basicq", "", true),
        ("chumq", "", true),
        ("chutq-dcf+cea", "", true),
        ("basicq", class, true),
        // Nobody knows for how long what is compressed may be held back.
        ("chumq", class, false),
        ("chutq-tpf", class, false),
    ] {
        let edge = scheme("edge");
        let mut plans: Vec<_> = (0..3).map(|at| Plan::in_row(at, 3, &edge)).collect();
        plans[1].lines = scheme(name);
        plans[1].classes = class.to_owned();
        let mut row = Row::new(&plans, &link(), 3);
        row.run_to(200);
        // How long packets are held follows from the round trip, which is not known yet.
        for (from, to) in [(0, 2), (2, 0), (1, 2)] {
            row.load(from, Load { packets: 2, ..load([to, to], MANY) });
        }
        busy(&mut row, 1_500);
        let (came, late) = row.check();
        row.assert_accounts();
        assert_eq!(late, 0, "{name}{class}");
        assert!(came > 2_000, "{name}{class}: {came}");
        let left = row.station(1).peer(0);
        assert_eq!(
            left.rx.forwarded_compressed.packets > 20,
            forwards,
            "{name}{class}: {:?}",
            left.rx
        );
        assert_eq!(left.rx.compressed > 20, !forwards, "{name}{class}: {:?}", left.rx);
        assert_eq!(
            row.station(1).routed,
            0,
            "{name}{class}: what is restored takes the short path"
        );
    }
}

#[test]
fn without_transit_everything_goes_through_the_kernel() {
    let lines = scheme("edge");
    let mut plans: Vec<_> = (0..3).map(|at| Plan::in_row(at, 3, &lines)).collect();
    plans[1].transit = false;
    let mut row = Row::new(&plans, &link(), 4);
    busy(&mut row, 200);
    row.check();
    row.assert_accounts();
    let left = row.station(1).peer(0);
    assert_eq!((left.rx.forwarded_compressed.packets, left.rx.forwarded.packets), (0, 0));
    assert!(left.rx.compressed > 100 && row.station(1).routed > 1_000);
}

#[test]
fn transit_begins_and_ends_with_a_reload() {
    let lines = scheme("edge");
    let mut plans: Vec<_> = (0..3).map(|at| Plan::in_row(at, 3, &lines)).collect();
    plans[1].transit = false;
    let mut row = Row::new(&plans, &link(), 5);
    let mut carried = 0;
    for (start_ms, transit) in [(200, false), (3_000, true), (6_000, false)] {
        plans[1].transit = transit;
        row.run_to(start_ms);
        let config = plans[1].config(1);
        row.with(1, |station| {
            let endpoints = [0, 2].map(|peer| Some(address_of(peer)));
            let mut random = random_sources(start_ms, 9);
            station.node.reconfigure(&config, &endpoints, &mut random).expect("it is good");
        });
        row.run_to(start_ms + 100);
        row.load(0, Load { packets: 1_000, ..load([2, 2], MANY) });
        row.run_to(start_ms + 2_500);
        let now = row.station(1).peer(0).rx.forwarded_compressed.packets;
        assert_eq!(now > carried, transit, "{start_ms}");
        carried = now;
    }
    let (_, late) = row.check();
    assert_eq!(late, 0);
    row.assert_accounts();
}

#[test]
fn a_block_for_two_peers_is_restored() {
    // The first node knows of one peer with one prefix for all; the hub of three.
    let lines = scheme("edge");
    let plan = |peers| Plan { peers, transit: true, lines: lines.clone(), ..Plan::default() };
    let mut plans = vec![plan(vec![(1, vec![1, 2, 3])])];
    plans.push(plan(vec![(0, vec![0]), (2, vec![2]), (3, vec![3])]));
    plans.extend([0, 0].map(|_| plan(vec![(1, vec![0, 1])])));
    plans[0].wide = Some(0);
    let mut row = Row::new(&plans, &link(), 6);
    row.run_to(200);
    let four = Load { spacing_ns: 200 * MICRO_NS, ..load([2, 3], Traffic { six: false, ..MANY }) };
    row.load(0, four);
    row.run_to(3_000);
    let (came, late) = row.check();
    row.assert_accounts();
    assert!(came > 1_000 && late == 0, "{came}, {late}");
    let hub = row.station(1);
    assert!(hub.peer(0).rx.compressed > 100, "{:?}", hub.peer(0).rx);
    assert_eq!(hub.routed, 0);
    assert!(hub.peer(0).rx.forwarded.packets > 500, "{:?}", hub.peer(0).rx);
    // With a prefix for each site the blocks are each for one of them.
    plans[0].wide = None;
    let mut row = Row::new(&plans, &link(), 6);
    row.run_to(200);
    row.load(0, four);
    row.run_to(3_000);
    let (_, late) = row.check();
    let hub = row.station(1).peer(0);
    assert!(
        late == 0 && hub.rx.compressed == 0 && hub.rx.forwarded_compressed.packets > 50,
        "{:?}",
        hub.rx
    );
}

#[test]
fn what_is_too_long_for_the_next_link_is_restored() {
    let lines = scheme("edge\"\nblock_bytes = 60000\nqueue_time = \"2s\"\nqueue_packets = 9000 #");
    let mut row = row([&lines, &lines, &lines], &link(), 11);
    row.run_to(200);
    // Raw packets fit, and so do 64 parts of blocks, unless they are very long.
    row.with(1, |station| station.node.set_path_datagram_max(1, 576));
    let packets = Traffic { payload_max: 480, six: false, random: 0.8, ..MANY };
    row.load(
        0,
        Load { packets: 5_000, spacing_ns: 20 * MICRO_NS, full: true, ..load([2, 2], packets) },
    );
    row.run_to(5_000);
    let (came, late) = row.check();
    row.assert_accounts();
    assert!(came > 1_500 && late == 0, "{came}, {late}");
    let (left, right) = (row.station(1).peer(0), row.station(1).peer(1));
    assert!(left.rx.forwarded_compressed.packets > 0 && left.rx.compressed > 200, "{:?}", left.rx);
    assert_eq!(
        left.rx.forwarded.packets, left.rx.packets.packets,
        "all others take the short path"
    );
    assert_eq!(row.station(1).routed, 0);
    assert_eq!(right.tx.forwarded_compressed.packets, left.rx.forwarded_compressed.packets);
    assert!(row.station(2).peer(0).rx.fragments > 100);
}

#[test]
fn what_routers_must_answer_is_left_to_the_kernel() {
    let lines = scheme("none");
    let mut row = row([&lines, &lines, &lines], &link(), 12);
    row.run_to(200);
    row.load(0, Load { packets: 50, ttl: 1, ..load([2, 2], MANY) });
    row.run_to(1_000);
    let middle = row.station(1);
    assert_eq!((middle.expired, middle.peer(0).rx.forwarded.packets), (50, 0));
    // Too long for the next link: the sender is notified over the link that it came by.
    row.with(1, |station| station.node.set_path_datagram_max(1, 900));
    let long = Traffic { payload_max: 1_000, ..MANY };
    row.load(0, Load { packets: 50, full: true, ..load([2, 2], long) });
    row.run_to(2_000);
    let middle = row.station(1);
    assert_eq!(middle.peer(1).tx.send_errors["too_big"], 50);
    assert_eq!((middle.peer(0).rx.forwarded.packets, row.station(2).came.len()), (0, 0));
    assert_eq!(row.station(0).came.len(), 50, "of ICMP");
    row.assert_accounts();
}

#[test]
fn what_the_next_peer_cannot_decode_is_restored() {
    let lines = scheme("edge");
    let mut row = row([&lines, &lines, &lines], &link(), 7);
    row.run_to(200);
    row.with(1, |station| {
        let hello = station.node.peers[1].hello.as_mut().expect("there is a session");
        hello.codecs = 0;
    });
    row.load(0, load([2, 2], MANY));
    row.run_to(3_000);
    let (came, late) = row.check();
    row.assert_accounts();
    assert!(came > 1_000 && late == 0);
    let left = row.station(1).peer(0);
    assert!(left.rx.compressed > 100 && left.rx.forwarded_compressed.packets == 0, "{:?}", left.rx);
    assert_eq!(row.station(1).routed, 0);
}

#[test]
fn a_dead_peer_gets_nothing_and_later_all() {
    let lines = scheme("edge");
    let mut row = row([&lines, &lines, &lines], &link(), 8);
    row.run_to(200);
    let dead = link().with_loss(1.0);
    for (from, to) in [(1, 2), (2, 1)] {
        row.set_link(from, to, &dead);
    }
    row.run_to(GIVEN_UP_MS);
    assert!(!row.station(1).node.is_up(1));
    let before = row.station(1).peer(0).rx.forwarded_compressed.packets;
    row.load(0, Load { packets: 300, ..load([2, 2], MANY) });
    row.run_to(GIVEN_UP_MS + 1_000);
    // The first node does not know: it is for the kernel to say that there is no route.
    let middle = row.station(1);
    assert_eq!(middle.peer(0).rx.forwarded_compressed.packets, before);
    assert!(middle.routed > 200 && middle.peer(1).tx.send_errors["unconnected"] > 200);
    for (from, to) in [(1, 2), (2, 1)] {
        row.set_link(from, to, &link());
    }
    row.run_to(GIVEN_UP_MS + 12_000);
    row.load(0, load([2, 2], MANY));
    row.run_to(GIVEN_UP_MS + 16_000);
    let (came, late) = row.check();
    row.assert_accounts();
    assert!(came > 1_000 && late == 0, "{came}, {late}");
    assert!(row.station(1).peer(0).rx.forwarded_compressed.packets > before + 20);
}

#[test]
fn loops_end() {
    // Each of three believes that site 9 is behind the next.
    let lines = scheme("all");
    let plan = |at: usize| Plan {
        peers: vec![((at + 1) % 3, vec![(at + 1) % 3, 9]), ((at + 2) % 3, vec![(at + 2) % 3])],
        transit: true,
        lines: lines.clone(),
        ..Plan::default()
    };
    let plans: Vec<_> = (0..3).map(plan).collect();
    let mut row = Row::new(&plans, &link(), 9);
    row.run_to(200);
    row.load(0, Load { packets: 50, ..load([9, 9], Traffic { random: 0.5, ..MANY }) });
    row.run_to(5_000);
    row.assert_balanced();
    let of = |get: fn(&Station) -> u64| (0..3).map(|at| get(row.station(at))).sum::<u64>();
    let ended = of(|it| (0..2).map(|peer| it.peer(peer).rx.hop_limit).sum());
    let carried = of(|it| (0..2).map(|peer| it.peer(peer).rx.forwarded_compressed.packets).sum());
    // What came raw is stopped by its source, which is not behind the second peer.
    assert!(ended > 5 && row.refused() > 5, "{ended}, {}", row.refused());
    assert_eq!(ended + row.refused(), 50, "all of them ended");
    assert_eq!(carried, ended * 15);
}

#[test]
fn what_is_local_stays() {
    // The middle has a network of its own within what the far end has.
    let lines = scheme("packet");
    let mut plans: Vec<_> = (0..3).map(|at| Plan::in_row(at, 3, &lines)).collect();
    (plans[0].wide, plans[1].wide) = (Some(0), Some(1));
    let mut row = Row::new(&plans, &link(), 10);
    row.run_to(200);
    row.load(0, load([1, 2], Traffic { six: false, ..MANY }));
    row.run_to(3_000);
    row.check();
    row.assert_accounts();
    let (middle, end) = (row.station(1), row.station(2));
    assert!(middle.came.len() > 400 && end.came.len() > 400);
    assert!(
        middle.peer(0).rx.forwarded_compressed.packets > 20 && middle.peer(0).rx.compressed > 20
    );
}
