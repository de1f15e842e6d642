//! Peers that initiate while others, who know the same public key, initiate as often as they can.

use super::harness::*;
use super::keys::{KEYS, keyed, with_keys};
use crate::node::*;
use crate::trust::GateCounts;

/// So often in a second each attacker sends.
const ATTACKS_A_SECOND: u64 = 20;

/// Somebody with an address and our public key, and a cookie as soon as he gets one.
struct Attacker {
    source: SocketAddr,
    end: End,
    initiation: Vec<u8>,
}

impl Attacker {
    fn new(source: &str, seed: u64) -> Self {
        let mut end = End::new(0, &with_keys(0, b'x', KEYS[1], "10mbit", "packet"), seed);
        end.node.timers(&mut end.env);
        let initiation = end.env.sent.pop().expect("an initiation");
        Self { source: source.parse().expect("an address"), end, initiation }
    }

    /// Sends, and takes a cookie along for the next time.
    fn attack(&mut self, victim: &mut End, now: Instant) {
        assert!(victim.env.sent.is_empty());
        let mut datagram = self.initiation.clone();
        victim.node.datagram(&mut victim.env, None, self.source, &mut datagram);
        let answers: Vec<_> = victim.env.sent.drain(..).collect();
        victim.env.sent_to.clear();
        for mut answer in answers {
            self.end.env.now.set(now);
            let from = ADDRESSES[1].parse().expect("an address");
            self.end.node.datagram(&mut self.end.env, Some(0), from, &mut answer);
            self.end.node.timers(&mut self.end.env);
            self.initiation = self.end.env.sent.pop().unwrap_or_default();
            assert!(!self.initiation.is_empty(), "it goes on with the cookie at once");
        }
    }
}

/// Attacked for 15 s; at 5 s one end is started. When it is connected, in ms after that, and what
/// the gate did.
fn restart_under_attack(from: &[String], is_known: bool, seed: u64) -> (Option<u64>, GateCounts) {
    let mut attackers: Vec<_> =
        (0..).zip(from).map(|(n, source)| Attacker::new(source, seed * 1_000 + n)).collect();
    // Within a second they come before anybody else, as often as they can.
    let every_ms = 1_000 / ATTACKS_A_SECOND / 2;
    restart_beside(is_known, seed, |ms, end, now| {
        if ms % 1_000 < 500 && ms % every_ms == 0 {
            attackers.iter_mut().for_each(|attacker| attacker.attack(end, now));
        }
    })
}

/// The same with any attack: it runs each millisecond.
fn restart_beside(
    is_known: bool,
    seed: u64,
    mut attack: impl FnMut(u64, &mut End, Instant),
) -> (Option<u64>, GateCounts) {
    let configs = [0, 1].map(|side| keyed(side, "10mbit", "packet"));
    let mut net = Net::new(&configs, &good_link(), seed);
    if !is_known {
        net.net.with_node(net.ends[1], |end, _, _| {
            let mut random = random_sources(seed + 40, 1);
            end.node = Node::new(&configs[1], &[None], &mut random).expect("it is good");
        });
    }
    net.net.with_node(net.ends[0], |end, _, _| end.asleep = Some(Vec::new()));
    let start_ms = 5_000 + seed * 97 % 1_000;
    let mut up_ms = None;
    for ms in 0..20_000 {
        if ms == start_ms {
            let fresh = End::new(0, &configs[0], seed + 9);
            net.net.with_node(net.ends[0], |end, now, out| {
                *end = fresh;
                end.env.now.set(now);
                end.node.timers(&mut end.env);
                end.after(out);
            });
        }
        net.net.with_node(net.ends[1], |end, now, _| {
            end.env.now.set(now);
            attack(ms, end, now);
        });
        net.run_to(ms + 1);
        if ms > start_ms && net.end(0).is_up() && net.end(1).is_up() {
            up_ms = Some(ms - start_ms);
            break;
        }
    }
    (up_ms, net.end(1).node.gate_counts())
}

fn addresses(of: impl Fn(u64) -> String) -> Vec<String> {
    (1..=60).map(of).collect()
}

#[test]
fn sixty_attackers_with_cookies_keep_no_peer_out() {
    let one_network = addresses(|n| format!("203.0.113.{n}:5000"));
    let many_networks = addresses(|n| format!("100.64.{n}.9:5000"));
    let its_own_network = addresses(|n| format!("192.0.2.{}:5000", 100 + n));
    for (name, from) in [
        ("one network", one_network),
        ("sixty networks", many_networks),
        ("the peer's own network", its_own_network),
    ] {
        for seed in 0..5 {
            // Where the peer is known to be: with its first initiation, in one round trip.
            let (up_ms, counts) = restart_under_attack(&from, true, seed);
            assert!(up_ms.is_some_and(|ms| ms < 50), "{name}, {seed}: {up_ms:?} {counts:?}");
            // From elsewhere: a cookie, and with it perhaps a second initiation.
            let (up_ms, counts) = restart_under_attack(&from, false, seed);
            assert!(up_ms.is_some_and(|ms| ms < 1_100), "{name}, {seed}: {up_ms:?} {counts:?}");
            assert!(counts.examined <= 7 * 225, "{counts:?}");
            assert!(counts.refused > 1_000, "they were many: {counts:?}");
        }
    }
}

#[test]
fn whoever_forges_a_known_address_does_not_keep_its_peer_out() {
    for seed in 0..10 {
        let forger = Attacker::new(ADDRESSES[0], 77 + seed);
        let (up_ms, counts) = restart_beside(true, seed, |_, victim, _| {
            // A thousand a second; the cookies go to the peer, which has not asked for them.
            let mut datagram = forger.initiation.clone();
            victim.node.datagram(&mut victim.env, None, forger.source, &mut datagram);
            victim.env.sent.clear();
            victim.env.sent_to.clear();
        });
        // A cookie, and with it a second initiation.
        assert!(up_ms.is_some_and(|ms| ms < 100), "{seed}: {up_ms:?} {counts:?}");
        assert!(counts.cookies > 4_000 && counts.examined < 7 * 225, "{counts:?}");
    }
}

#[test]
fn without_an_attack_a_restart_needs_one_round_trip() {
    for is_known in [true, false] {
        let (up_ms, counts) = restart_under_attack(&[], is_known, 1);
        assert!(up_ms.is_some_and(|ms| ms < 50), "{up_ms:?}");
        assert_eq!((counts.cookies, counts.refused), (0, 0));
    }
}
