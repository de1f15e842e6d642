//! Peers that lie about what they got, ask for it again, or have wrong clocks; and many peers.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dwell_base::time::SECOND_NS;
use dwell_lab::corpus;
use dwell_lab::relays::Relay;
use dwell_report::human;
use dwell_wire::{ContextOffer, Report};

use super::authenticated::{note_drops, spec};
use crate::context::{Context, now, unix_ns};
use crate::honest::{Pings, Traffic};
use crate::hostile;
use crate::peer::{Pace, Peer};
use crate::phases::{Ending, Limits, Measured, Switch, alternate};
use crate::row::{Bound, Check, Row};
use crate::site::{EVIL, HUB_RELAY, SERVER, Site, Tunnel, TunnelSpec, other_address};
use crate::watch::Watched;

const LINK_MBPS: u64 = 10;
/// The rate that the server offers to the attacker: 1 Mbit/s.
const OFFERED_A_SECOND: f64 = 125.0;
pub(super) const OFFERED_BYTES: usize = 1_000;
const REPORTS_A_SECOND: f64 = 200.0;
/// The relay paces nobody lower than 32 kbit/s; half of that, since datagrams are few then.
const LIAR_BPS_MIN: f64 = 16_000.0;
/// Headers, reports and what else goes to the attacker beside what is offered.
const LIAR_BPS_MAX: f64 = 1.5e6;
/// The hub is asked this often what rate it believes in.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The rate towards the peer that asks for datagrams again: less than what is offered, so that a
/// queue stands and blocks are made.
pub(super) const ASKER_RATE: &str = "300kbit";
const ASKER_BPS: f64 = 300_000.0;
const REQUESTS_A_SECOND: f64 = 200.0;
/// Of several in a datagram, a relay heeds the last one; each names 64 datagrams.
const MESSAGES_A_REQUEST: u64 = 1;
/// Bytes that are sent again for each byte that asks for it. A request of 19 bytes names up to 64
/// datagrams, and each may be sent again three times; but no faster than the peer's link takes them.
const AGAIN_BYTES_MAX: f64 = 20.0;
/// The hub's name for the attacker.
pub(super) const LIAR: &str = "other0";
/// Small and patient: peers as there are many of.
const PEERS: usize = 63;
const PACKETS_A_SECOND_EACH: f64 = 20.0;
/// A peer with a wrong clock asks this often.
const ASKS_A_SECOND: f64 = 20.0;
/// It must have a session again in this time once its clock is right, though behind.
const SESSION_SECONDS_MAX: f64 = 15.0;

/// The traffic received from the hub, without and with the attack.
#[derive(Debug, Default)]
pub(super) struct Came {
    bytes: [AtomicU64; 2],
    micros: [AtomicU64; 2],
}

impl Came {
    fn add(&self, is_on: bool, bytes: u64, time: Duration) {
        let at = usize::from(is_on);
        self.bytes[at].fetch_add(bytes, Ordering::Relaxed);
        self.micros[at].fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn bps(&self, is_on: bool) -> f64 {
        let at = usize::from(is_on);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        count(&self.bytes[at]) * 8e6 / count(&self.micros[at]).max(1.0)
    }
}

/// What the server sends to the attacker, and how.
pub(super) struct Receiving {
    pub(super) spec: TunnelSpec,
    pub(super) payload: Vec<u8>,
    /// It goes to so many addresses of the attacker in turn.
    pub(super) hosts: u8,
    /// The contexts that the attacker offers to decode.
    pub(super) contexts: Option<ContextOffer>,
}

/// One authenticated peer to whom the server sends something, and what it does with each turn.
pub(super) fn with_receiver(
    context: &mut Context,
    receiving: Receiving,
    act: impl FnMut(&mut Peer, &Switch) + Send + 'static,
    look: impl Fn(&Relay, &Switch) + Sync,
) -> anyhow::Result<(Measured, Arc<Came>, Tunnel)> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &receiving.spec)?;
    let from = SocketAddrV4::new(EVIL, 7733);
    let mut peer = Peer::new(&site.evil, from, HUB_RELAY, &tunnel.others[0])?;
    if let Some(contexts) = receiving.contexts {
        peer.end().offer_contexts(contexts);
    }
    peer.connect()?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let offering = offer(&site, (receiving.payload, receiving.hosts), &switch)?;
    let came = Arc::new(Came::default());
    let thread = {
        let (came, switch) = (Arc::clone(&came), switch.clone());
        site.evil.spawn_thread(move || turn_after_turn(&mut peer, &switch, &came, act))?
    };
    let watched = Watched(tunnel.hub.process().id());
    let measured = thread::scope(|scope| {
        scope.spawn(|| {
            while !switch.is_over() {
                look(&tunnel.hub, &switch);
                thread::sleep(LOOK_EVERY);
            }
        });
        let measured = alternate(context.timing(), &traffic, watched, &switch);
        switch.end();
        measured
    })?;
    for thread in [offering, thread] {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    Ok((measured, came, tunnel))
}

fn turn_after_turn(
    peer: &mut Peer,
    switch: &Switch,
    came: &Came,
    mut act: impl FnMut(&mut Peer, &Switch),
) {
    let mut last = (Instant::now(), peer.received_bytes);
    while !switch.is_over() {
        peer.turn();
        act(peer, switch);
        let now = (Instant::now(), peer.received_bytes);
        came.add(switch.is_on(), now.1 - last.1, now.0 - last.0);
        last = now;
        thread::sleep(Duration::from_millis(2));
    }
}

type Thread = thread::JoinHandle<Result<(), dwell_lab::lab::LabError>>;

/// The server sends datagrams for the attacker's prefix, to so many hosts there.
fn offer(site: &Site, (payload, hosts): (Vec<u8>, u8), switch: &Switch) -> anyhow::Result<Thread> {
    let socket = site.server.run(|| UdpSocket::bind((SERVER, 0)))??;
    let switch = switch.clone();
    let thread = site.server.spawn_thread(move || {
        let mut pace = Pace::new(OFFERED_A_SECOND);
        let pieces = payload.chunks(OFFERED_BYTES).cycle();
        let mut pieces = pieces.filter(|piece| piece.len() == OFFERED_BYTES);
        let [a, b, c, first] = other_address(0).octets();
        let mut hosts = (first..first.saturating_add(hosts)).cycle();
        while !switch.is_over() {
            for _ in 0..pace.due(16) {
                let piece = pieces.next().unwrap_or(&[]);
                // While there is no route it is lost.
                let to = Ipv4Addr::new(a, b, c, hosts.next().unwrap_or(first));
                let _ = socket.send_to(piece, (to, 9));
            }
            pace.wait(Duration::from_millis(20));
        }
    })?;
    Ok(thread)
}

/// Reports that can't be true: more than was sent, or a queue that is none.
pub(super) fn reports(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut pace = Pace::new(REPORTS_A_SECOND);
    let mut number = 0_u64;
    let act = move |peer: &mut Peer, switch: &Switch| {
        for _ in 0..pace.due(16) {
            number += 1;
            let report = if switch.is_on() { lie(peer, number) } else { truth(peer) };
            let len = peer.send(&hostile::report(report));
            if switch.is_on() {
                switch.done(u64::from(len > 0), len as u64);
            }
        }
    };
    // The hub finds out by the reports how fast the path to the peer is.
    let spec = TunnelSpec { rate: "auto".to_owned(), ..spec() };
    let noise = corpus::incompressible(OFFERED_BYTES * 100, 3);
    let found = Arc::new(Mutex::new(Vec::new()));
    let receiving = Receiving { spec, payload: noise, hosts: 1, contexts: None };
    let (measured, came, tunnel) = with_receiver(context, receiving, act, {
        let found = Arc::clone(&found);
        move |tunnel, switch| {
            let status = tunnel.status().ok();
            let peer = status.as_ref().and_then(|it| it.peers.iter().find(|p| p.name == LIAR));
            let rate = peer.and_then(|peer| peer.rate_bps);
            if let Some(rate) = rate.filter(|_| switch.is_on()) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push(rate);
            }
        }
    })?;
    let mut row = measured.row(name, "relay", "reports");
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, REPORTS_A_SECOND));
    let to_liar = came.bps(true);
    row.checks.push(Check::new("bits a second to the liar", to_liar, Bound::AtMost(LIAR_BPS_MAX)));
    row.checks.push(Check::new("bits a second to the liar", to_liar, Bound::AtLeast(LIAR_BPS_MIN)));
    let found = found.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((least, most)) = found.iter().min().zip(found.iter().max()) {
        row.notes.push(format!(
            "{} times the hub believed the path to the liar to carry something: {} to {}",
            found.len(),
            human::rate(*least),
            human::rate(*most)
        ));
    }
    let kbps = |is_on| format!("{:.0} kbit/s", came.bps(is_on) / 1e3);
    row.notes.push(format!("to the peer while it is honest {}, lying {}", kbps(false), kbps(true)));
    note_drops(&mut row, &tunnel);
    Ok(row)
}

fn truth(peer: &Peer) -> Report {
    Report {
        datagrams: peer.received,
        bytes: peer.received_bytes,
        records: peer.received,
        highest_sequence: peer.highest,
        highest_at_ns: peer.highest_at_ns,
        ..Report::default()
    }
}

/// Each lie goes on for half a second; that of a queue comes first, and again.
fn lie(peer: &Peer, number: u64) -> Report {
    let truth = truth(peer);
    match [1, 0, 1, 2, 3, 1, 4][(2 * number / REPORTS_A_SECOND as u64 % 7) as usize] {
        // All came at once, and much more of it: a link without a limit.
        0 => Report {
            bytes: truth.bytes.saturating_mul(1_000).saturating_add(number << 20),
            delivery_bps: 1 << 40,
            ..truth
        },
        // Every datagram is later than the one before: a queue that grows without end.
        1 => Report { highest_at_ns: now().as_ns() + number * 5_000_000, ..truth },
        // Nothing came for a long time, and all is lost.
        2 => Report {
            bytes: number,
            lost: u64::MAX,
            missing: u64::MAX,
            waiting_bytes: u64::MAX,
            waiting_ns: u64::MAX,
            highest_at_ns: now().as_ns() + 3_600 * SECOND_NS,
            ..truth
        },
        // Numbers that were never sent.
        3 => Report { highest_sequence: u64::MAX - number, datagrams: u64::MAX, ..truth },
        // Counts and clocks that go back.
        _ => Report { datagrams: 1, bytes: 1, highest_sequence: 1, highest_at_ns: 1, ..truth },
    }
}

/// Requests for datagrams that came.
pub(super) fn retransmission(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    // Only datagrams with blocks are kept.
    let spec = TunnelSpec { scheme: "edge", others_rate: Some(ASKER_RATE), ..spec() };
    let payload = corpus::text(OFFERED_BYTES * 500, 3);
    ask_again(context, name, Receiving { spec, payload, hosts: 1, contexts: None })
}

/// The same, of whatever is sent at [`ASKER_RATE`].
pub(super) fn ask_again(
    context: &mut Context,
    name: &'static str,
    receiving: Receiving,
) -> anyhow::Result<Row> {
    let mut pace = Pace::new(REQUESTS_A_SECOND);
    let highest = Arc::new(AtomicU64::new(0));
    let noted = Arc::clone(&highest);
    let act = move |peer: &mut Peer, switch: &Switch| {
        for _ in 0..pace.due(16) {
            if switch.is_on() {
                noted.store(peer.highest, Ordering::Relaxed);
                let body = hostile::missing(peer.highest, MESSAGES_A_REQUEST);
                let len = peer.send(&body);
                switch.done(u64::from(len > 0), len as u64);
            }
        }
    };
    let (measured, came, tunnel) = with_receiver(context, receiving, act, |_, _| ())?;
    let mut row = measured.row(name, "relay", "requests");
    let asked_bps = row.rate_bps.unwrap_or_default();
    let (before, with) = (came.bps(false), came.bps(true));
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, REQUESTS_A_SECOND));
    let status = tunnel.hub.status()?;
    let peer = status.peers.iter().find(|peer| peer.name == LIAR).context("the peer is there")?;
    let again = peer.tx.resent_datagrams as f64;
    // What is sent again has its place on the peer's link, before what else waits for it. Answers
    // that say what is not there any more are of the size of the questions.
    let most = 1.3 * ASKER_BPS + 1.5 * asked_bps;
    row.checks.push(Check::new("bits a second to who asks", with, Bound::AtMost(most)));
    row.checks.push(Check::new("datagrams sent again", again, Bound::AtLeast(10.0)));
    let each = peer.tx.resent_bytes as f64 / measured.total()[1].max(1.0);
    row.checks.push(Check::new(
        "bytes sent again for each of the requests",
        each,
        Bound::AtMost(AGAIN_BYTES_MAX),
    ));
    row.notes.push(format!(
        "of {} packets {} went compressed, in {} datagrams; the highest number asked for is {}",
        peer.tx.arrived.packets,
        peer.tx.compressed.packets,
        peer.tx.frames,
        highest.load(Ordering::Relaxed)
    ));
    row.notes.push(format!(
        "{:.0} kbit/s are asked with; {:.0} kbit/s came without, and {:.0} kbit/s with it: {again} \
         datagrams again",
        asked_bps / 1e3,
        before / 1e3,
        with / 1e3,
    ));
    note_drops(&mut row, &tunnel);
    Ok(row)
}

/// Many peers that do what peers do, all at once.
pub(super) fn peers(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let spec = TunnelSpec { others: PEERS, ..spec() };
    let mut tunnel = Tunnel::start(&site, &context.dwell, &spec)?;
    let mut peers = Vec::new();
    for (number, security) in tunnel.others.iter().enumerate() {
        let from = SocketAddrV4::new(EVIL, 10_000 + number as u16);
        peers.push(Peer::new(&site.evil, from, HUB_RELAY, security)?);
    }
    let end = Instant::now() + Duration::from_secs(20);
    while !peers.iter().all(Peer::is_connected) {
        ensure!(Instant::now() < end, "the hub does not take all its peers");
        peers.iter_mut().for_each(Peer::turn);
        thread::sleep(Duration::from_millis(10));
    }
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let attacker = switch.clone();
    let thread = site.evil.spawn_thread(move || {
        let mut pace = Pace::new(PACKETS_A_SECOND_EACH * PEERS as f64);
        let mut number = 0;
        while !attacker.is_over() {
            peers.iter_mut().for_each(Peer::turn);
            for _ in 0..pace.due(64) {
                number += 1;
                let at = number % PEERS;
                if attacker.is_on() {
                    let len = peers[at].send(&hostile::packet(other_address(at), SERVER, 200));
                    attacker.done(u64::from(len > 0), len as u64);
                    // Each asks for a new session every ten seconds.
                    if number / PEERS % 200 == at {
                        peers[at].end().renew();
                    }
                }
            }
            pace.wait(Duration::from_millis(10));
        }
        peers.iter().filter(|peer| peer.is_connected()).count()
    })?;
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    let connected = thread.join().map_err(|_| anyhow::anyhow!("the peers panicked"))??;
    drop(traffic);
    let mut row = measured.row(name, "relay", "datagrams");
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, PACKETS_A_SECOND_EACH * PEERS as f64));
    row.checks.push(Check::new("peers connected", connected as f64, Bound::AtLeast(PEERS as f64)));
    let up = tunnel.hub.status()?.peers.iter().filter(|peer| peer.state.name() == "up").count();
    row.checks.push(Check::new("peers up", up as f64, Bound::AtLeast((PEERS + 1) as f64)));
    Ok(row)
}

/// A peer whose clock jumps while it asks for sessions. A program's own clock can't be set in a
/// namespace; the tests of nodes do that in virtual time.
pub(super) fn clocks(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    const YEAR_NS: u64 = 365 * 86_400 * SECOND_NS;
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &spec())?;
    let from = SocketAddrV4::new(EVIL, 7733);
    let mut peer = Peer::new(&site.evil, from, HUB_RELAY, &tunnel.others[0])?;
    peer.connect()?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let attacker = switch.clone();
    let security = tunnel.others[0].clone();
    let host = site.evil.clone();
    let thread = site.evil.spawn_thread(move || {
        let mut pace = Pace::new(ASKS_A_SECOND);
        let mut number = 0_u64;
        while !attacker.is_over() {
            for _ in 0..pace.due(8) {
                number += 1;
                if attacker.is_on() {
                    // As if it were started again each time, with another clock.
                    let steps = [0, YEAR_NS, 20 * YEAR_NS, 3_600 * SECOND_NS];
                    let step = steps[(number / 2) as usize % steps.len()];
                    let time = match number % 2 {
                        0 => unix_ns().saturating_add(step),
                        _ => unix_ns().saturating_sub(step),
                    };
                    peer.ask_at(time);
                    attacker.done(1, 0);
                }
            }
            peer.turn();
            pace.wait(Duration::from_millis(20));
        }
        drop(peer);
        // Its clock is right now, and decades behind what the hub has been informed.
        let begin = Instant::now();
        let mut again = Peer::new(&host, from, HUB_RELAY, &security)?;
        while !again.is_connected() && begin.elapsed() < Duration::from_secs(40) {
            again.turn();
            thread::sleep(Duration::from_millis(10));
        }
        Ok::<_, anyhow::Error>(begin.elapsed().as_secs_f64())
    })?;
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    let seconds = thread.join().map_err(|_| anyhow::anyhow!("the peer panicked"))???;
    drop(traffic);
    let mut row = measured.row(name, "relay", "initiations");
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, ASKS_A_SECOND));
    row.checks.push(Check::new(
        "seconds to a session with the clock set back",
        seconds,
        Bound::AtMost(SESSION_SECONDS_MAX),
    ));
    note_drops(&mut row, &tunnel);
    Ok(row)
}
