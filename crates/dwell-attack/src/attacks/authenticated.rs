//! Attacks by a peer that holds its keys.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use dwell_report::Status;

use crate::context::Context;
use crate::honest::{Pings, Traffic};
use crate::hostile::{Addresses, Hostile, Kind};
use crate::peer::{Pace, Peer};
use crate::phases::{Ending, Limits, Switch, alternate};
use crate::row::{Bound, Check, Row};
use crate::site::{EVIL, HUB_RELAY, Method, SERVER, Site, Tunnel, TunnelSpec, other_address};
use crate::watch::Watched;

/// The rate of the links of the honest site and the hub.
const LINK_MBPS: u64 = 10;
/// A little less, so that the queue is the relay's.
const RELAY_RATE: &str = "9500kbit";
pub(super) const BODY_BYTES: usize = 1_400;
/// A datagram of 1.4 kB this often is 224 kbit/s.
const BOMBS_A_SECOND: f64 = 20.0;
/// A hub that has been attacked may take this long to answer what it counted.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);
const RECORDS_A_SECOND: f64 = 5_000.0;

pub(super) fn spec() -> TunnelSpec {
    TunnelSpec {
        method: Method::Keys,
        others: 1,
        scheme: "packet",
        codec: "zstd:1",
        rate: RELAY_RATE.to_owned(),
        others_rate: None,
    }
}

/// What a peer sends, and what honest traffic may suffer from it.
pub(super) struct Sending {
    pub(super) spec: TunnelSpec,
    pub(super) per_second: f64,
    /// One datagram of so many is never sent, though it has a number; zero if all are.
    pub(super) skip_one_of: u64,
    pub(super) limits: Limits,
    /// All of it is as a peer may send it: nothing is refused.
    pub(super) is_allowed: bool,
}

impl Sending {
    pub(super) fn usual(per_second: f64) -> Self {
        Self {
            spec: spec(),
            per_second,
            skip_one_of: 0,
            limits: Limits::default(),
            is_allowed: false,
        }
    }
}

/// A writer of bodies by the hub's first other peer.
pub(super) fn addresses() -> Addresses {
    Addresses { from: other_address(0), to: SERVER }
}

pub(super) fn bombs(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let hostile = Hostile::new(1, addresses(), BODY_BYTES);
    let body = move || hostile.bomb().to_vec();
    by_peer(context, name, &Sending::usual(BOMBS_A_SECOND), body).map(|(row, _)| row)
}

pub(super) fn records(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let mut kinds = Kind::ALL.into_iter().cycle();
    let mut hostile = Hostile::new(1, addresses(), BODY_BYTES);
    let body = move || hostile.body(kinds.next().unwrap_or(Kind::Raw));
    by_peer(context, name, &Sending::usual(RECORDS_A_SECOND), body).map(|(row, _)| row)
}

/// An authenticated peer sends bodies; an honest one has its traffic.
pub(super) fn by_peer(
    context: &mut Context,
    name: &'static str,
    sending: &Sending,
    mut body: impl FnMut() -> Vec<u8> + Send + 'static,
) -> anyhow::Result<(Row, Tunnel)> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &sending.spec)?;
    let from = SocketAddrV4::new(EVIL, 7733);
    let mut peer = Peer::new(&site.evil, from, HUB_RELAY, &tunnel.others[0])?;
    peer.connect()?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let attacker = switch.clone();
    let &Sending { per_second, skip_one_of, limits, .. } = sending;
    let thread = site.evil.spawn_thread(move || {
        let mut pace = Pace::new(per_second);
        let mut number = 0_u64;
        while !attacker.is_over() {
            peer.turn();
            let due = pace.due(64);
            if attacker.is_on() {
                for _ in 0..due {
                    number += 1;
                    if skip_one_of > 0 && number.is_multiple_of(skip_one_of) {
                        peer.skip();
                    }
                    let len = peer.send(&body());
                    attacker.done(u64::from(len > 0), len as u64);
                }
            }
            pace.wait(Duration::from_millis(20));
        }
    })?;
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    drop(traffic);
    let mut row = measured.row(name, "relay", "datagrams");
    row.checks = measured.usual_checks(context, limits);
    row.checks.push(measured.rate_check(context, per_second));
    note_drops(&mut row, &tunnel);
    if !sending.is_allowed {
        check_refused(&mut row, &tunnel, measured.total()[0]);
    }
    Ok((row, tunnel))
}

/// The least share of what was sent that the hub must have refused and counted. Much of a flood is lost
/// in the queue before its socket.
const REFUSED_SHARE_MIN: f64 = 0.01;

/// Checks that the attack reached the hub, which refuses what is hostile, and counts it: an attacker that
/// sends nothing, or elsewhere, would harm nobody and prove nothing.
pub(super) fn check_refused(row: &mut Row, tunnel: &Tunnel, sent: f64) {
    let refused = tunnel.hub.status().map_or(f64::NAN, |status| refused(&status) as f64);
    let least = (sent * REFUSED_SHARE_MIN).max(1.0);
    row.checks.push(Check::new("refused by the hub", refused, Bound::AtLeast(least)));
}

/// Everything that the hub counts as not what a peer should send.
fn refused(status: &Status) -> u64 {
    let of_peers = status.peers.iter().map(|peer| {
        let rx = &peer.rx;
        let records: u64 = rx.dropped_records.values().sum();
        records
            + rx.auth_failed
            + rx.replayed
            + rx.malformed
            + rx.decode_failed
            + rx.not_allowed
            + rx.too_many_packets
            + rx.contexts.dropped.values().sum::<u64>()
    });
    let before: u64 = status.drops.values().sum();
    before + of_peers.sum::<u64>()
}

/// Notes the hub's counts of its peers.
pub(super) fn note_drops(row: &mut Row, tunnel: &Tunnel) {
    // It may have much to do still.
    let end = Instant::now() + STATUS_PATIENCE;
    let status = loop {
        match tunnel.hub.status() {
            Ok(status) => break status,
            Err(_) if Instant::now() < end => {}
            Err(error) => {
                row.notes.push(format!("the hub does not report its status: {error}"));
                row.checks.push(Check::new("status answers", 0.0, Bound::AtLeast(1.0)));
                return;
            }
        }
    };
    for peer in &status.peers {
        let rx = &peer.rx;
        if rx.datagrams + rx.auth_failed + rx.replayed == 0 {
            continue;
        }
        row.notes.push(format!(
            "peer {}: {}, {} datagrams opened, {} forged, {} replayed, {} malformed, {} not \
             decoded, {} not allowed",
            peer.name,
            peer.state.name(),
            rx.datagrams,
            rx.auth_failed,
            rx.replayed,
            rx.malformed,
            rx.decode_failed,
            rx.not_allowed,
        ));
    }
    let drops = status.drops.iter().filter(|&(_, &count)| count > 0);
    let drops: Vec<String> = drops.map(|(reason, count)| format!("{reason} {count}")).collect();
    row.notes.push(format!("dropped before a peer was known: {}", drops.join(", ")));
}
