//! Peers that know each other's public keys, over networks of all kinds.

use dwell_base::time::{MICRO_NS, MILLI_NS};
use dwell_testkit::LinkSpec;
use dwell_wire::{Datagram, Kind, header};

use super::harness::*;
use crate::config::ReadSecretError;
use crate::node::*;
use crate::trust::public_key;

/// The private key in a file of this name is its first byte, 32 times.
fn read(path: &std::path::Path) -> Result<Secret, ReadSecretError> {
    Ok(secret(path.to_str().expect("a name").as_bytes()[0]))
}

pub(super) fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

pub(super) const KEYS: [u8; 2] = *b"ab";

pub(super) fn keyed(end: usize, rate: &str, scheme: &str) -> Config {
    with_keys(end, KEYS[end], KEYS[1 - end], rate, scheme)
}

pub(super) fn with_keys(end: usize, own: u8, peer: u8, rate: &str, scheme: &str) -> Config {
    with_keys_of(end, (own, peer), rate, &format!("scheme = \"{scheme}\"\ncodec = \"lz4\""))
}

/// The same with other lines for the peer.
pub(super) fn keyed_of(end: usize, rate: &str, lines: &str) -> Config {
    with_keys_of(end, (KEYS[end], KEYS[1 - end]), rate, lines)
}

fn with_keys_of(end: usize, (own, peer): (u8, u8), rate: &str, lines: &str) -> Config {
    let text = format!(
        "[node]\naddresses = [\"10.{number}.0.1/16\"]\nprivate_key_file = \"{own}\"\n[[peer]]\n\
         name = \"other\"\nendpoint = \"{endpoint}\"\nprefixes = [{prefix}]\n\
         public_key = \"{peer}\"\nrate = \"{rate}\"\n{lines}\n",
        number = end + 1,
        own = char::from(own),
        peer = public_key(&secret(peer)).expect("a key"),
        endpoint = ADDRESSES[1 - end],
        prefix = PREFIXES[1 - end],
    );
    Config::parse(&text, "test.toml", &read).expect("a good configuration")
}

fn keyed_pair(rate: &str, scheme: &str, link: &LinkSpec, seed: u64) -> Net {
    Net::new(&[0, 1].map(|side| keyed(side, rate, scheme)), link, seed)
}

fn salts(net: &Net, side: usize) -> Option<[u8; 16]> {
    let session = net.end(side).node.peers[0].handshake.current()?;
    let (mine, theirs) = session.salts();
    Some(mine.min(theirs))
}

#[test]
fn everything_arrives_though_both_begin_at_once() {
    for scheme in ["none", "all", "packet"] {
        let mut net = keyed_pair("10mbit", scheme, &good_link(), 1);
        net.run_to(100);
        assert!(net.end(0).is_up() && net.end(1).is_up());
        net.start_sources(100, 500, 400 * MICRO_NS);
        net.run_to(2_000);
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
            assert!(from.tx.balances() && from.tx.held.packets == 0);
            assert_eq!(from.tx.sent.packets, to.rx.packets.packets);
            assert_eq!(from.security, "keys");
            assert_eq!(to.rx.auth_failed + to.rx.malformed + to.rx.not_allowed, 0);
            assert!(from.rtt_ns >= Some(10 * MILLI_NS), "{:?}", from.rtt_ns);
        }
    }
}

#[test]
fn hostile_links_keep_nobody_apart_for_long() {
    for seed in 0..30 {
        let link = good_link().with_loss(0.3).with_duplicate(0.2).with_reorder(0.3);
        let mut net = keyed_pair("10mbit", "packet", &link, seed);
        net.run_to(10_000);
        net.start_sources(10_000, 300, MILLI_NS);
        net.run_to(15_000);
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let got = net.end(side).env.delivered.len();
            assert!(got > 50, "seed {seed}: {got} of 300 arrived");
            assert!(net.end(side).peer().tx.balances());
        }
    }
}

#[test]
fn keys_are_renewed_under_load_and_no_packet_is_lost() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 3);
    net.run_to(1_000);
    net.start_sources(1_000, 80_000, 5 * MILLI_NS); // for 400 s
    let mut seen = Vec::new();
    for second in 2..402 {
        net.run_to(second * 1_000);
        if let Some(now) = salts(&net, 0).filter(|now| seen.last() != Some(now)) {
            seen.push(now);
        }
    }
    net.run_to(403_000);
    assert!((4..=6).contains(&seen.len()), "{} sessions in 400 s", seen.len());
    assert_eq!(salts(&net, 0), salts(&net, 1), "both send by the same session");
    net.assert_nothing_altered_or_doubled();
    for side in [0, 1] {
        let peer = net.end(side).peer();
        assert_eq!(net.end(side).env.delivered.len(), 80_000);
        assert_eq!((peer.rx.auth_failed, peer.rx.replayed, peer.rx.lost_datagrams), (0, 0, 0));
        assert_eq!(peer.tx.send_errors["unconnected"], 0);
    }
}

#[test]
fn keys_are_renewed_over_a_bad_link_too() {
    let bad = good_link().with_loss(0.3).with_reorder(0.3);
    let mut net = keyed_pair("10mbit", "packet", &bad, 4);
    net.run_to(5_000);
    net.start_sources(5_000, 20_000, 20 * MILLI_NS); // for 400 s
    let mut down = 0;
    for second in 6..405 {
        net.run_to(second * 1_000);
        down += u64::from(!net.end(0).is_up() || !net.end(1).is_up());
    }
    assert_eq!(down, 0, "the peers never lose each other");
    net.assert_nothing_altered_or_doubled();
    assert_eq!(net.end(0).peer().tx.send_errors["unconnected"], 0);
}

/// Blocks that are cut, kept and put in order, while sessions come and go.
#[test]
fn blocks_survive_renewal_over_bad_links() {
    for (seed, loss) in [(0, 0.0), (1, 0.01), (2, 0.03), (3, 0.03)] {
        let mut link = good_link().with_reorder(if loss > 0.0 { 0.02 } else { 0.0 });
        link.reorder_by_ns = Some(15 * MILLI_NS);
        let mut net = keyed_pair("9mbit", "edge", &link.with_loss(loss), seed);
        net.run_to(5_000);
        net.set_traffic(Traffic { flows: 20, six: true, payload_max: 1308, random: 0.5 });
        // In bursts, so that there are blocks, around each renewal: 120 s after the first packet.
        let mut renewed = 0;
        for burst in 0..4 {
            let start = 5_000 + burst * 119_000;
            net.run_to(start);
            let before = salts(&net, 0);
            net.start_sources(start, 10_000, 300 * MICRO_NS);
            net.run_to(start + 6_000);
            renewed += u64::from(salts(&net, 0) != before);
        }
        assert!(renewed >= 2, "sessions are renewed under load: {renewed}");
        net.assert_nothing_altered_or_doubled();
        for side in [0, 1] {
            let (from, to) = (net.end(side).peer(), net.end(1 - side).peer());
            assert!(from.tx.balances() && from.tx.held.packets == 0);
            assert_eq!(net.end(side).node.store.len(), 0);
            assert!(to.rx.blocks > 500 && to.rx.fragments > 500, "{:?}", to.rx);
            assert_eq!(to.rx.malformed + to.rx.decode_failed + to.rx.not_allowed, 0);
            let lost = from.tx.sent.packets - to.rx.packets.packets;
            if loss == 0.0 {
                assert_eq!(lost, 0, "renewal alone loses nothing");
                assert_eq!(net.late_in_flow(), 0, "and keeps the order");
            }
            assert!(lost * 100 < from.tx.sent.packets, "{lost} of {}", from.tx.sent.packets);
            assert!(loss == 0.0 || to.rx.recovered_datagrams > 20, "{:?}", to.rx);
        }
    }
}

#[test]
fn the_way_is_known_until_it_is_another_one() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 12);
    net.run_to(1_000);
    net.net.with_node(net.ends[0], |end, now, _| {
        let peer = &mut end.node.peers[0];
        let hello = peer.hello.expect("there is a session");
        peer.connected(now, &hello);
        assert!(peer.deadlines.one_way_ns(None).is_some() && peer.rtt_ns.is_some());
        peer.set_endpoint(ADDRESSES[1].parse().expect("an address"));
        assert!(peer.deadlines.one_way_ns(None).is_some() && peer.rtt_ns.is_some());
        peer.set_endpoint("203.0.113.9:4711".parse().expect("an address"));
        assert!(peer.deadlines.one_way_ns(None).is_none() && peer.rtt_ns.is_none());
    });
}

#[test]
fn a_peer_where_another_is_believed_to_be_gets_through() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 13);
    let mut two = with_keys(1, b'b', b'c', "10mbit", "packet");
    two.peers[0].name = "third".to_owned();
    two.peers[0].prefixes = vec!["10.3.0.0/16".parse().expect("a prefix")];
    two.peers.extend(keyed(1, "10mbit", "packet").peers);
    let at: Option<SocketAddr> = Some(ADDRESSES[0].parse().expect("an address"));
    net.net.with_node(net.ends[1], |end, _, _| {
        let mut rng = dwell_base::Rng::from_seed(5);
        let mut random = || -> RandomSource {
            let mut rng = dwell_base::Rng::from_seed(rng.below(u64::MAX));
            Box::new(move |bytes| rng.fill(bytes))
        };
        end.node = Node::new(&two, &[at, at], &mut random).expect("a good configuration");
    });
    net.run_to(1_000);
    assert!(net.end(0).is_up());
    net.start_sources(1_000, 100, MILLI_NS);
    net.run_to(2_000);
    assert_eq!(net.end(1).env.delivered.len(), 100);
    let peers = net.end(1).node.status(net.end(1).env.now()).peers;
    assert_eq!((peers[0].rx.auth_failed, peers[0].rx.packets.packets), (0, 0));
    assert_eq!(peers[1].rx.packets.packets, 100);
}

#[test]
fn an_idle_pair_stays_up_and_says_little() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 5);
    net.run_to(86_400_000);
    assert!(net.end(0).is_up() && net.end(1).is_up());
    let bytes: u64 = [0, 1].map(|side| net.end(side).peer().tx.control_bytes).iter().sum();
    println!("{bytes} bytes in a day, both directions, Ethernet's included");
    assert!(bytes < 1_000_000, "{bytes} bytes in a day");
}

#[test]
fn a_restarted_node_is_heard_at_once_even_if_its_clock_was_set_back() {
    for back_ns in [0, 1_000_000_000_000] {
        let mut net = keyed_pair("10mbit", "packet", &good_link(), 6);
        net.run_to(1_000);
        let mut fresh = End::new(1, &keyed(1, "10mbit", "packet"), 555);
        fresh.env.clock_ahead_ns -= back_ns;
        net.net.with_node(net.ends[1], |end, _, _| *end = fresh);
        // With its clock set back it is a replay to its peer, which has doubts then, finds out
        // that it does not answer any more, and asks itself.
        net.run_to(if back_ns == 0 { 2_500 } else { 7_500 });
        assert!(net.end(0).is_up() && net.end(1).is_up(), "set back by {back_ns} ns");
        let now = net.net.now().as_ns() / MILLI_NS;
        net.start_sources(now, 100, MILLI_NS);
        net.run_to(now + 1_500);
        assert_eq!(net.end(1).env.delivered.len(), 100);
        net.assert_nothing_altered_or_doubled();
    }
}

#[test]
fn clocks_that_jump_under_load_disturb_nobody() {
    const YEAR_NS: u64 = 31_557_600 * 1_000_000_000;
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 16);
    net.run_to(1_000);
    net.start_sources(1_000, 20_000, 20 * MILLI_NS); // for 400 s
    let mut seen = Vec::new();
    for second in 2..402 {
        net.run_to(second * 1_000);
        let mut jump = |side: usize, by: fn(u64) -> u64| {
            net.net.with_node(net.ends[side], |end, _, _| {
                end.env.clock_ahead_ns = by(end.env.clock_ahead_ns);
            });
        };
        match second {
            60 => jump(0, |ahead_ns| ahead_ns + YEAR_NS),
            150 => jump(1, |ahead_ns| ahead_ns - YEAR_NS),
            200 => jump(0, |ahead_ns| ahead_ns - 2 * YEAR_NS),
            300 => jump(1, |ahead_ns| ahead_ns + YEAR_NS / 2),
            _ => {}
        }
        if let Some(now) = salts(&net, 0).filter(|now| seen.last() != Some(now)) {
            seen.push(now);
        }
    }
    net.run_to(403_000);
    // Beside those that are due: an end that learns that the clocks differ, or agree, asks for one more, of which the
    // other end learns it; and so does that one. There are four jumps.
    assert!((4..=6 + 2 * 4).contains(&seen.len()), "{} sessions in 400 s", seen.len());
    net.assert_nothing_altered_or_doubled();
    for side in [0, 1] {
        assert_eq!(net.end(side).env.delivered.len(), 20_000);
        assert_eq!(net.end(side).peer().tx.send_errors["unconnected"], 0);
        assert_eq!(net.end(side).node.drops().hello_replayed, 0);
    }
}

#[test]
fn after_a_cut_a_peer_that_was_near_is_tried_every_second() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 19);
    net.run_to(1_000);
    net.start_sources(1_000, 5_000, 10 * MILLI_NS); // to the 51st second
    for link in net.links {
        net.net.set_link(link, good_link().with_loss(1.0));
    }
    net.run_to(31_900);
    assert!(!net.end(0).is_up() && !net.end(1).is_up());
    for link in net.links {
        net.net.set_link(link, good_link());
    }
    net.run_to(33_000);
    assert!(net.end(0).is_up() && net.end(1).is_up());
}

#[test]
fn who_wakes_after_a_long_sleep_is_asked_soon() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 18);
    net.run_to(1_000);
    net.start_sources(1_000, 9_000, 10 * MILLI_NS); // to the 91st second
    net.run_to(2_000);
    net.net.with_node(net.ends[1], |end, _, _| end.asleep = Some(Vec::new()));
    net.run_to(71_000);
    // It was given up, and is asked every five seconds only.
    let asked_ms = (71_000..77_000).step_by(100).find(|&ms| {
        let asked = |net: &Net| net.end(1).asleep.as_ref().map_or(0, Vec::len);
        let before = asked(&net);
        net.run_to(ms);
        asked(&net) > before
    });
    let asked_ms = asked_ms.expect("it is asked");
    net.run_to(asked_ms + 1_200);
    assert!(!net.end(0).is_up());
    net.net.with_node(net.ends[1], |end, now, out| end.wake(now, out));
    // At once, or a second later if the first answers were to initiations of long ago.
    net.run_to(asked_ms + 2_700);
    assert!(net.end(0).is_up() && net.end(1).is_up());
    assert_eq!(salts(&net, 0), salts(&net, 1));
    net.run_to(93_000);
    net.assert_nothing_altered_or_doubled();
}

#[test]
fn old_initiations_that_are_sent_again_end_no_session() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 17);
    net.run_to(1_000);
    let before = salts(&net, 0);
    let replays = |net: &Net| net.end(1).node.drops().hello_replayed;
    net.start_sources(1_000, 500, 20 * MILLI_NS);
    // Of another time than that of the session: an hour ago.
    let mut old = End::new(0, &keyed(0, "10mbit", "packet"), 556);
    old.env.clock_ahead_ns -= 3_600_000_000_000;
    old.node.timers(&mut old.env);
    let old = old.env.sent.remove(0);
    for at in 0..100 {
        net.net.inject((net.ends[0], 0), &old);
        net.run_to(1_100 + at * 100);
    }
    net.run_to(12_000);
    assert_eq!(replays(&net), 100);
    assert_eq!(salts(&net, 0), before, "the session is the same");
    assert_eq!(net.end(1).env.delivered.len(), 500);
    let control = net.end(1).peer().tx.control_datagrams;
    assert!(control < 60, "{control} datagrams of its own in 12 s");
}

#[test]
fn a_peer_that_moves_goes_on_as_if_nothing_was() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 7);
    net.run_to(1_000);
    net.start_sources(1_000, 2_000, MILLI_NS);
    net.run_to(2_000);
    let elsewhere: SocketAddr = "203.0.113.9:4711".parse().expect("an address");
    net.net.with_node(net.ends[1], |end, _, _| end.received_from = elsewhere);
    let session = salts(&net, 1);
    net.run_to(5_000);
    assert_eq!(net.end(1).node.endpoint(0), Some(elsewhere));
    assert!(net.end(1).env.events.contains(&NodeEvent::Moved(0, elsewhere)));
    assert_eq!(salts(&net, 1), session, "by data alone, in the same session");
    for side in [0, 1] {
        assert_eq!(net.end(side).env.delivered.len(), 2_000);
        assert_eq!(net.end(side).node.drops().unknown_source, 0);
    }
}

#[test]
fn a_peer_that_is_everywhere_moves_ten_times_a_second() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 7);
    net.run_to(1_000);
    let place = |n: u64| -> SocketAddr {
        format!("203.0.113.{}:{}", n % 7, 4_000 + n).parse().expect("an address")
    };
    // Each datagram from another address, a thousand in a second.
    for n in 0..1_000 {
        let mut datagram = Vec::new();
        net.net.with_node(net.ends[0], |end, now, _| {
            end.env.now.set(now);
            let mut packet = end.make_packet();
            end.node.packet(&mut end.env, &mut packet).expect("it waits for the peer");
            end.node.pump_all(&mut end.env);
            datagram = end.env.sent.pop().expect("it is sent");
        });
        net.net.with_node(net.ends[1], |end, now, _| {
            end.env.now.set(now);
            let before = end.node.peers[0].turn.left_ns();
            let events = end.env.events.len();
            end.node.datagram(&mut end.env, None, place(n), &mut datagram);
            let cost = before - end.node.peers[0].turn.left_ns();
            let has_moved = end.env.events.len() > events;
            assert!(!has_moved || cost >= 200_000, "a move costs {cost}");
            end.node.take_turns(&mut end.env);
        });
        net.run_to(1_001 + n);
    }
    let moves = |end: &End| {
        let is_move = |event: &&NodeEvent| matches!(event, NodeEvent::Moved(..));
        end.env.events.iter().filter(is_move).count()
    };
    let end = net.end(1);
    assert!((8..=11).contains(&moves(end)), "{} moves", moves(end));
    assert_eq!(end.env.delivered.len(), 1_000, "what comes is taken all the same");
    // Where it stays, it is found.
    let home = place(5_000);
    net.net.with_node(net.ends[1], |end, _, _| end.received_from = home);
    net.start_sources(2_100, 20, 10 * MILLI_NS);
    net.run_to(3_000);
    assert_eq!(net.end(1).node.endpoint(0), Some(home));
}

#[test]
fn a_copy_from_elsewhere_moves_nobody() {
    let mut net = keyed_pair("10mbit", "packet", &good_link(), 8);
    net.run_to(1_000);
    let at_home: SocketAddr = ADDRESSES[0].parse().expect("an address");
    // A data datagram arrives, and somebody else sends it again.
    let mut copy = Vec::new();
    net.net.with_node(net.ends[0], |end, _, _| {
        let mut packet = end.make_packet();
        end.node.packet(&mut end.env, &mut packet).expect("it waits for the peer");
        end.node.pump_all(&mut end.env);
        copy = end.env.sent.pop().expect("it is sent");
    });
    net.net.with_node(net.ends[1], |end, _, _| {
        let elsewhere = "203.0.113.9:4711".parse().expect("an address");
        end.node.datagram(&mut end.env, Some(0), at_home, &mut copy.clone());
        end.node.datagram(&mut end.env, None, elsewhere, &mut copy.clone());
        let mut forged = copy.clone();
        forged[4] ^= 0x40;
        end.node.datagram(&mut end.env, None, elsewhere, &mut forged);
        assert_eq!(end.node.endpoint(0), Some(at_home));
        assert_eq!(end.node.drops().unknown_source, 2);
        assert_eq!(end.env.delivered.len(), 1);
    });
}

/// An initiation as the holder of `own` sends it to the holder of `peer`.
fn initiation(own: u8, peer: u8, seed: u64) -> Vec<u8> {
    let mut end = End::new(0, &with_keys(0, own, peer, "10mbit", "packet"), seed);
    end.node.timers(&mut end.env);
    let datagram = end.env.sent.pop().expect("an initiation is due at once");
    assert!(matches!(Datagram::parse(&datagram), Ok(Datagram::Initiation(_))));
    datagram
}

#[test]
fn unknown_keys_get_no_answer() {
    let mut end = End::new(1, &keyed(1, "10mbit", "packet"), 9);
    let source = ADDRESSES[0].parse().expect("an address");
    // Its own key is no peer's; the next does not know ours; both are silence.
    for mut datagram in [initiation(b'x', b'b', 1), initiation(b'a', b'y', 2)] {
        end.node.datagram(&mut end.env, None, source, &mut datagram);
        assert_eq!(end.env.sent.len(), 0);
    }
    assert_eq!(end.node.drops().unknown_key, 1);
    assert_eq!(end.node.gate_counts().invalid_mac, 1);
    // The peer's own is answered.
    end.node.datagram(&mut end.env, None, source, &mut initiation(b'a', b'b', 3));
    let answer = end.env.sent.pop().expect("a response");
    assert_eq!(header::peek_kind(&answer), Ok(Kind::Response));
    // Nor are hellos of the other kinds taken, whatever key they are sealed with.
    let mut psk = End::new(0, &config(0, true, "10mbit", "packet"), 4);
    psk.node.timers(&mut psk.env);
    end.node.datagram(&mut end.env, None, source, &mut psk.env.sent.pop().expect("a hello"));
    let mut plain = End::new(0, &config(0, false, "10mbit", "packet"), 4);
    plain.node.timers(&mut plain.env);
    end.node.datagram(&mut end.env, None, source, &mut plain.env.sent.pop().expect("a hello"));
    assert_eq!(end.env.sent.len(), 0);
    assert!(!end.is_up());
}

#[test]
fn a_flood_costs_a_bounded_number_of_key_agreements_and_keeps_no_peer_out() {
    let mut net = Net::new(&[0, 1].map(|side| keyed(side, "10mbit", "packet")), &good_link(), 10);
    let flood: Vec<Vec<u8>> = (0..50).map(|seed| initiation(b'x', b'b', seed)).collect();
    // 10,000 initiations a second for 10 s at one end, from as many addresses.
    for step in 0..10_000_u64 {
        net.run_to(step + 1);
        net.net.with_node(net.ends[1], |end, _, out| {
            for n in 0..10 {
                let source = SocketAddr::from(([198, 51, step as u8, n], (step >> 4) as u16));
                let mut datagram = flood[(step % 50) as usize].clone();
                end.node.datagram(&mut end.env, None, source, &mut datagram);
            }
            // What goes to the forged addresses is nobody's here.
            end.env.sent.clear();
            let _ = out;
        });
    }
    let counts = net.end(1).node.gate_counts();
    assert!(counts.examined <= 11 * 60, "{counts:?}");
    assert!(counts.cookies <= 11 * 2_000, "{counts:?}");
    assert_eq!(net.end(1).node.peers.len(), 1);
    assert!(net.end(0).is_up() && net.end(1).is_up(), "the peer gets through");
    net.start_sources(10_000, 100, MILLI_NS);
    net.run_to(11_000);
    assert_eq!(net.end(1).env.delivered.len(), 100);
}

#[test]
fn another_key_of_the_peer_or_of_the_node_ends_the_session() {
    for (own, peer) in [(b'a', b'c'), (b'c', b'b')] {
        let mut net = keyed_pair("10mbit", "packet", &good_link(), 11);
        net.run_to(1_000);
        net.net.with_node(net.ends[0], |end, _, out| {
            let new = with_keys(0, own, peer, "10mbit", "packet");
            let endpoint = Some(ADDRESSES[1].parse().expect("an address"));
            let mut random = || -> RandomSource { Box::new(|bytes| bytes.fill(1)) };
            end.node.farewell(&mut end.env, &new);
            end.node.reconfigure(&new, &[endpoint], &mut random).expect("a good configuration");
            end.after(out);
        });
        net.run_to(3_000);
        assert!(!net.end(0).is_up() && !net.end(1).is_up());
    }
}

/// Sessions are renewed every two minutes; accounts of the path go on.
#[test]
fn losses_are_counted_over_renewals() {
    let link = good_link().with_loss(0.05);
    let mut net = keyed_pair("10mbit", "none", &link, 3);
    net.run_to(1_000);
    let first = salts(&net, 0);
    net.start_sources(1_000, 20_000, 20 * MILLI_NS);
    let mut before = (0, 0);
    for second in (10..=400).step_by(10) {
        net.run_to(second * 1_000);
        let tx = net.end(0).peer().tx;
        let now = (tx.peer_got_datagrams, tx.peer_lost_datagrams);
        assert!(now.0 >= before.0 && now.1 >= before.1, "{now:?} after {before:?}");
        before = now;
    }
    assert_ne!(salts(&net, 0), first, "the session was never renewed");
    let (tx, rx) = (net.end(0).peer().tx, net.end(1).peer().rx);
    let (got, lost) = before;
    // What was lost of the present session is seen only after some 2000 numbers.
    let share = lost as f64 / (got + lost) as f64;
    assert!((0.03..0.06).contains(&share), "{share} of {}", got + lost);
    assert!(got + lost <= tx.datagrams && (got + lost) * 100 > tx.datagrams * 95, "{tx:?}");
    assert!(rx.lost_datagrams.abs_diff(lost) < 100, "{} and {lost}", rx.lost_datagrams);
}
