//! Floods by somebody on the path, or elsewhere, who has no key.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dwell_base::Rng;
use dwell_lab::lab::Host;
use dwell_testkit::raw::{Injector, Sniffer, udp_packet};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, connect, sendmmsg};

use super::authenticated::{check_refused, note_drops, spec};
use crate::context::Context;
use crate::honest::{Pings, Traffic};
use crate::peer::Pace;
use crate::phases::{Ending, Limits, Switch, alternate};
use crate::row::Row;
use crate::site::{GOOD_RELAY, HUB_RELAY, Method, SERVER, Site, Tunnel, TunnelSpec};
use crate::watch::Watched;

const LINK_MBPS: u64 = 10;
/// Datagrams a second.
const FLOOD_A_SECOND: f64 = 100_000.0;
/// Different datagrams; they are sent over and over.
const DATAGRAMS: usize = 8_192;
/// Handed to the kernel at once.
const BATCH: usize = 64;
/// Datagrams of the honest peer that are captured before.
const CAPTURED_MIN: usize = 200;
const DATAGRAM_BYTES_MAX: u64 = 512;
/// The most bytes that a datagram on an Ethernet carries, less what a mutation may add.
const MTU_PAYLOAD_BYTES: usize = 1_456;

pub(super) fn forged(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    flood(context, name, |rng, captured| {
        // The session's name, and numbers that have not been yet, so that the seal must be tried:
        // all that can be known without the key.
        let mut datagram = pick(rng, captured).to_vec();
        datagram.resize(40 + rng.below(DATAGRAM_BYTES_MAX) as usize, 0);
        let low = u32::from_be_bytes([datagram[2], datagram[3], datagram[4], datagram[5]]);
        let low = low.wrapping_add((1 << 20) + rng.below(1 << 20) as u32);
        rng.fill(&mut datagram[6..]);
        datagram[2..6].copy_from_slice(&low.to_be_bytes());
        (GOOD_RELAY, datagram)
    })
}

pub(super) fn replayed(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    flood(context, name, |rng, captured| (GOOD_RELAY, pick(rng, captured).to_vec()))
}

pub(super) fn spoofed(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    flood(context, name, |rng, captured| {
        let address = Ipv4Addr::from(0x1400_0000 | rng.below(1 << 24) as u32);
        let mut datagram = pick(rng, captured).to_vec();
        // Half of them data, the others of all kinds, those that do not exist too.
        if rng.chance(0.5) {
            rng.fill(&mut datagram);
            datagram[0] = 0x10 + rng.below(8) as u8;
        }
        (SocketAddrV4::new(address, 1 + rng.below(65_535) as u16), datagram)
    })
}

pub(super) fn mutated(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    flood(context, name, |rng, captured| {
        let mut datagram = pick(rng, captured).to_vec();
        match rng.below(4) {
            0 => datagram.truncate(rng.below(datagram.len() as u64) as usize),
            1 => datagram.extend([0; 16]),
            _ => {
                for _ in 0..=rng.below(3) {
                    let bit = rng.below(datagram.len() as u64 * 8) as usize;
                    datagram[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        (GOOD_RELAY, datagram)
    })
}

/// Hellos that no key opens: each is tried with the key of each of the hub's peers.
pub(super) fn hellos(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let spec = TunnelSpec { method: Method::Psk, others: 15, ..spec() };
    flood_at(context, name, &spec, |rng, _| {
        let address = Ipv4Addr::from(0x1400_0000 | rng.below(1 << 24) as u32);
        // A sealed hello's first byte and length.
        let mut datagram = vec![0; 1 + 12 + 38 + 16];
        rng.fill(&mut datagram);
        datagram[0] = 0x12;
        (SocketAddrV4::new(address, 7733), datagram)
    })
}

fn pick<'a>(rng: &mut Rng, captured: &'a [Vec<u8>]) -> &'a [u8] {
    &captured[rng.below(captured.len() as u64) as usize]
}

/// Makes a datagram, and the source that it is to have, of captured ones.
type Make = fn(&mut Rng, &[Vec<u8>]) -> (SocketAddrV4, Vec<u8>);

/// Floods the hub with what `make` makes of captured datagrams of the honest peer.
fn flood(context: &mut Context, name: &'static str, make: Make) -> anyhow::Result<Row> {
    flood_at(context, name, &spec(), make)
}

/// The same for relays of another kind.
fn flood_at(
    context: &mut Context,
    name: &'static str,
    spec: &TunnelSpec,
    make: Make,
) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, spec)?;
    let mut sniffer = Sniffer::on(&site.good)?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    traffic.wait_until_it_flows()?;
    let captured = listen(&mut sniffer)?;
    drop(sniffer);
    let mut rng = Rng::from_seed(1);
    let packets: Vec<Vec<u8>> = (0..DATAGRAMS)
        .map(|_| make(&mut rng, &captured))
        .map(|(from, datagram)| udp_packet(from, HUB_RELAY, &datagram))
        .collect();
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let thread = pour(&site.evil, packets, FLOOD_A_SECOND, &switch)?;
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))???;
    drop(traffic);
    let mut row = measured.row(name, "relay", "datagrams");
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, FLOOD_A_SECOND));
    note_drops(&mut row, &tunnel);
    check_refused(&mut row, &tunnel, measured.total()[0]);
    Ok(row)
}

/// Data datagrams of the honest peer, as somebody on its path sees them.
fn listen(sniffer: &mut Sniffer) -> anyhow::Result<Vec<Vec<u8>>> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut captured = Vec::new();
    while captured.len() < CAPTURED_MIN {
        ensure!(Instant::now() < end, "only {} datagrams of the honest peer", captured.len());
        thread::sleep(Duration::from_millis(100));
        let own = sniffer.seen().into_iter().filter(|seen| seen.from == GOOD_RELAY);
        // What the kernel has not cut yet (GSO) is no datagram of the link.
        let is_whole = |payload: &Vec<u8>| (41..=MTU_PAYLOAD_BYTES).contains(&payload.len());
        captured.extend(own.map(|seen| seen.payload).filter(is_whole));
    }
    Ok(captured)
}

type Poured = thread::JoinHandle<Result<anyhow::Result<()>, dwell_lab::lab::LabError>>;

/// Sends whole IPv4 packets to the hub, over and over, while the switch is on.
pub(super) fn pour(
    host: &Host,
    packets: Vec<Vec<u8>>,
    per_second: f64,
    switch: &Switch,
) -> anyhow::Result<Poured> {
    let injector = Injector::on(host)?;
    connect(injector.socket(), &SocketAddr::from(HUB_RELAY))?;
    let switch = switch.clone();
    let thread = host.spawn_thread(move || {
        let mut pace = Pace::new(per_second / BATCH as f64);
        let mut batches = packets.chunks(BATCH).cycle();
        while !switch.is_over() {
            for _ in 0..pace.due(32) {
                let Some(batch) = batches.next().filter(|_| switch.is_on()) else { continue };
                let sent = send_batch(&injector, batch)?;
                let bytes = batch[..sent].iter().map(|packet| packet.len() as u64).sum();
                switch.done(sent as u64, bytes);
            }
            pace.wait(Duration::from_millis(20));
        }
        Ok(())
    })?;
    Ok(thread)
}

/// Hands packets to the kernel in one call; returns how many it took.
fn send_batch(injector: &Injector, packets: &[Vec<u8>]) -> anyhow::Result<usize> {
    let slices: Vec<[IoSlice<'_>; 1]> = packets.iter().map(|it| [IoSlice::new(it)]).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        packets.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<MMsgHdr<'_>> = slices
        .iter()
        .zip(&mut controls)
        .map(|(slice, control)| MMsgHdr::new(slice, control))
        .collect();
    match sendmmsg(injector.socket(), &mut messages, SendFlags::empty()) {
        Ok(sent) => Ok(sent),
        // A full queue loses packets on any host, and the hub may say that nobody listens.
        Err(
            rustix::io::Errno::NOBUFS
            | rustix::io::Errno::CONNREFUSED
            | rustix::io::Errno::AGAIN
            | rustix::io::Errno::PERM,
        ) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
