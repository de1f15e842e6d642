//! Attacks on the handshake by somebody who knows the hub's public key, as every other site does.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use dwell_base::time::SECOND_NS;
use dwell_relay::trust::TestPeer;
use dwell_testkit::raw::udp_packet;

use super::authenticated::{check_refused, note_drops, spec};
use super::flood::pour;
use crate::context::{Context, now, random, unix_ns};
use crate::honest::{Pings, Traffic};
use crate::peer::Pace;
use crate::phases::{Ending, Limits, Switch, alternate};
use crate::row::{Bound, Check, Row};
use crate::site::{HUB_RELAY, Keys, OUTER, SERVER, Site, Tunnel};
use crate::watch::Watched;

const LINK_MBPS: u64 = 10;
/// Addresses of the attacker.
const SOURCES: u8 = 60;
/// Ports at each, ...
const PORTS: u16 = 10;
/// ... which send what they ask with this often a second: the hub counts each time.
const TIMES: f64 = 5.0;
const ASKERS: u32 = SOURCES as u32 * PORTS as u32;
/// The honest relay must find the hub in this time, or it is given up.
const PATIENCE: Duration = Duration::from_secs(40);
/// A restart may take longer than without the attack by at most this.
const RESTART_MORE_SECONDS_MAX: f64 = 3.0;
const FLOOD_A_SECOND: f64 = 100_000.0;

/// Initiations with the right first MAC, from as many addresses as there are.
pub(super) fn initiations(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &spec())?;
    let traffic = Traffic::start((&site.client, SERVER), (&site.server, SERVER), Pings::Udp)?;
    let mut packets = Vec::new();
    let mut peer = unknown_peer(&tunnel)?;
    for number in 0..4_096_u32 {
        // As a clock would have it that runs faster: another initiation each time.
        let at = dwell_base::Instant::from_ns(now().as_ns() + u64::from(number) * 10 * SECOND_NS);
        let Some(datagram) = peer.ask(at, unix_ns() + u64::from(number)) else { continue };
        let from = SocketAddrV4::new(Ipv4Addr::from(0x1400_0000 + number * 77), 7733);
        packets.push(udp_packet(from, HUB_RELAY, &datagram));
    }
    ensure!(packets.len() > 4_000, "only {} initiations were made", packets.len());
    let watched = Watched(tunnel.hub.process().id());
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let thread = pour(&site.evil, packets, FLOOD_A_SECOND, &switch)?;
    let measured = alternate(context.timing(), &traffic, watched, &switch)?;
    switch.end();
    thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))???;
    drop(traffic);
    let mut row = measured.row(name, "relay", "initiations");
    row.checks = measured.usual_checks(context, Limits::default());
    row.checks.push(measured.rate_check(context, FLOOD_A_SECOND));
    note_drops(&mut row, &tunnel);
    check_refused(&mut row, &tunnel, measured.total()[0]);
    Ok(row)
}

/// Somebody with a key pair that the hub does not know.
fn unknown_peer(tunnel: &Tunnel) -> anyhow::Result<TestPeer> {
    Ok(TestPeer::new(&Keys::make()?.towards(&tunnel.hub_public), &mut random))
}

/// Initiations of many real addresses, which answer to cookies, while the honest relay is
/// restarted.
pub(super) fn starvation(context: &mut Context, name: &'static str) -> anyhow::Result<Row> {
    let site = Site::build(&mut context.lab, LINK_MBPS)?;
    let mut tunnel = Tunnel::start(&site, &context.dwell, &spec())?;
    for last in 0..SOURCES {
        site.evil.address(OUTER, &format!("10.0.3.{}/24", 100 + last))?;
    }
    let switch = Switch::default();
    let _ending = Ending(&switch);
    let thread = ask_from_everywhere(&site, &tunnel, &switch)?;
    let watched = Watched(tunnel.hub.process().id());
    let rounds = if context.is_quick { 1 } else { 5 };
    let memory_before = watched.resident_bytes()?;
    let mut seconds = [Vec::new(), Vec::new()];
    let mut cpu = [0.0; 2];
    let mut lasted = [0.0; 2];
    for round in 0..2 * rounds {
        let is_on = round % 2 == 1;
        switch.set(is_on);
        // Longer than a second's quota, and than the hub's memory of a busy one.
        thread::sleep(Duration::from_millis(2_500));
        let (begin, cpu_before) = (Instant::now(), watched.cpu_seconds()?);
        seconds[usize::from(is_on)].push(restart(&mut tunnel)?);
        cpu[usize::from(is_on)] += watched.cpu_seconds()? - cpu_before;
        lasted[usize::from(is_on)] += begin.elapsed().as_secs_f64();
    }
    switch.end();
    let asked = thread.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))???;
    let [without, with] = seconds.map(|mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds
    });
    let worst = with.last().copied().unwrap_or(f64::INFINITY);
    let usual = without[without.len() / 2];
    let memory_peak = watched.peak_bytes()?;
    let mut row = Row {
        attack: name.to_owned(),
        target: "relay".to_owned(),
        unit: "initiations".to_owned(),
        rate_per_second: asked,
        memory_peak_bytes: memory_peak,
        memory_grown_bytes: memory_peak.saturating_sub(memory_before),
        cpu_without: cpu[0] / lasted[0],
        cpu_with: cpu[1] / lasted[1],
        ..Row::default()
    };
    row.checks = vec![
        Check::new(
            "restart to traffic, seconds more",
            worst - usual,
            Bound::AtMost(RESTART_MORE_SECONDS_MAX * if context.is_quick { 2.0 } else { 1.0 }),
        ),
        Check::new("memory grown, MB", row.memory_grown_bytes as f64 / 1e6, Bound::AtMost(32.0)),
        Check::new("attacks a second", asked, context.rate(TIMES * f64::from(ASKERS) / 2.0)),
    ];
    let list = |seconds: &[f64]| {
        let texts: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:.2}")).collect();
        texts.join(", ")
    };
    row.notes.push(format!("restart to traffic without: {} s", list(&without)));
    row.notes.push(format!("restart to traffic with: {} s", list(&with)));
    note_drops(&mut row, &tunnel);
    check_refused(&mut row, &tunnel, 1.0);
    Ok(row)
}

/// Kills the honest relay and starts it again; returns the seconds until it has a session.
fn restart(tunnel: &mut Tunnel) -> anyhow::Result<f64> {
    tunnel.good.kill()?;
    tunnel.good.restart(None)?;
    let begin = Instant::now();
    tunnel.good.wait_for_peer(PATIENCE)?;
    Ok(begin.elapsed().as_secs_f64())
}

type Asking = thread::JoinHandle<Result<anyhow::Result<f64>, dwell_lab::lab::LabError>>;

/// Asks the hub from every address and port while the switch is on; the thread returns how many
/// times a second it did.
fn ask_from_everywhere(site: &Site, tunnel: &Tunnel, switch: &Switch) -> anyhow::Result<Asking> {
    let mut callers = Vec::new();
    for last in 0..SOURCES {
        for port in 0..PORTS {
            let from = SocketAddrV4::new(Ipv4Addr::new(10, 0, 3, 100 + last), 20_000 + port);
            let open = || {
                let socket = UdpSocket::bind(from)?;
                socket.connect(SocketAddr::from(HUB_RELAY))?;
                socket.set_nonblocking(true)?;
                Ok::<_, std::io::Error>(socket)
            };
            let socket = site.evil.run(open)??;
            callers.push(Caller { socket, peer: unknown_peer(tunnel)?, asking: Vec::new() });
        }
    }
    let switch = switch.clone();
    let count = callers.len();
    let thread = site.evil.spawn_thread(move || {
        let mut pace = Pace::new(TIMES * count as f64);
        let (mut asked, mut time) = (0_u64, Duration::ZERO);
        let mut at = 0;
        let mut last = Instant::now();
        while !switch.is_over() {
            let due = pace.due(64);
            if switch.is_on() {
                time += last.elapsed();
                for _ in 0..due {
                    let caller = &mut callers[at];
                    at = (at + 1) % count;
                    asked += u64::from(ask(caller));
                }
            }
            last = Instant::now();
            pace.wait(Duration::from_millis(20));
        }
        Ok(asked as f64 / time.as_secs_f64().max(1e-3))
    })?;
    Ok(thread)
}

/// An address and a port of the attacker.
struct Caller {
    socket: UdpSocket,
    peer: TestPeer,
    /// The latest initiation.
    asking: Vec<u8>,
}

/// Takes cookies, and asks again: as every site does once a second, and with the same words in
/// between. True if it did.
fn ask(caller: &mut Caller) -> bool {
    let mut datagram = [0; 2048];
    while let Ok(len) = caller.socket.recv(&mut datagram) {
        caller.peer.receive(now(), &mut datagram[..len]);
    }
    if let Some(asking) = caller.peer.ask(now(), unix_ns()) {
        caller.asking = asking;
    }
    caller.socket.send(&caller.asking).is_ok()
}
