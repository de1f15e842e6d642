//! `dwell trace replay` and the relay agree: the same packets at the same times, once through
//! real relays in the lab and once through the replay, are compressed and dropped alike.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dwell_base::{Rate, Rng};
use dwell_lab::lab::Lab;
use dwell_lab::relays::{RelayRate, RelaySettings};
use dwell_report::Status;
use dwell_report::status::TxStatus;
use dwell_testkit::raw::{Injector, udp_packet};
use dwell_testkit::stalls::StallWatch;
use serde_json::Value;

use crate::harness::Skip;
use crate::site::{DWELL, Site};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// The rate that the relays are given; the real link is faster, so that it never limits.
const RATE_MBPS: u64 = 2;
const SPAN: Duration = Duration::from_secs(4);
/// The largest difference between the two.
const BOUND: f64 = 0.1;
/// Time for what a machine that stands still is kept from sending. Where that is not enough, and it
/// stood still for longer than this, it is tried again, ...
const STALLED_MAX: Duration = Duration::from_millis(20);
/// ... so often. Nothing is judged ...
const TRIES: u32 = 3;
/// ... if it stood still for longer than this.
const JUDGED_MAX: Duration = Duration::from_millis(400);

/// A packet, and when it is sent.
struct Sent {
    at: Duration,
    ports: (u16, u16),
    payload: Vec<u8>,
}

pub(super) fn agrees(lab: &mut Lab, scheme: &str) -> anyhow::Result<()> {
    let rate = RelayRate::Fixed(Rate::from_mbps(RATE_MBPS));
    let settings = RelaySettings { scheme: scheme.into(), rate, ..RelaySettings::default() };
    let site = Site::thin(lab, &settings)?;
    for attempt in 1..=TRIES {
        let mut pair = relayed(&site)?;
        let stalled_ms = pair.stalled.as_millis();
        println!("the machine stood still for {stalled_ms} ms");
        let file = site.directory.join("sent.pcap");
        fs::write(&file, pcap(&pair.packets))?;
        pair.replayed = replay(&file, scheme)?;
        let compared = if pair.stalled > JUDGED_MAX {
            let of = SPAN.as_millis();
            Err(Skip(format!("the machine stood still for {stalled_ms} of {of} ms")).into())
        } else {
            pair.compare_all()
        };
        match compared {
            Ok(said) => {
                println!("{said}");
                break;
            }
            Err(error) if pair.stalled <= STALLED_MAX || attempt == TRIES => return Err(error),
            Err(error) => println!("{error}: again, since the machine stood still"),
        }
    }
    Ok(())
}

/// The accounts of the packets, by the relay and by the replay.
struct Pair {
    /// At the times at which they were really sent.
    packets: Vec<Sent>,
    /// For how long the machine stood still meanwhile.
    stalled: Duration,
    before: TxStatus,
    after: TxStatus,
    replayed: TxStatus,
}

/// Sends the packets through the relays.
fn relayed(site: &Site) -> anyhow::Result<Pair> {
    let mut packets = packets();
    let before = tx(&site.settled()?[0])?;
    let watch = StallWatch::start();
    send(site, &mut packets)?;
    let stalled = watch.stop();
    let after = tx(&site.settled()?[0])?;
    Ok(Pair { packets, stalled, before, after, replayed: TxStatus::default() })
}

/// Bursts that the link can't take raw, of text, of noise, and of small messages.
fn packets() -> Vec<Sent> {
    let mut rng = Rng::from_seed(7);
    let text = "It is a truth universally acknowledged, that a single man in possession of a \
                good fortune, must be in want of a wife. "
        .repeat(20);
    let (mut at, mut packets) = (Duration::ZERO, Vec::new());
    while at < SPAN {
        let burst = at.as_millis() % 1000 < 500;
        at += Duration::from_nanos(rng.exponential(if burst { 1.5e6 } else { 4e6 }) as u64);
        let (port, payload) = match rng.below(8) {
            0 | 1 => {
                let mut noise = vec![0; 1000];
                rng.fill(&mut noise);
                (5004, noise)
            }
            2 => (5683, format!("{{\"t\":{},\"ok\":true}}", packets.len()).into_bytes()),
            _ => {
                let start = rng.below(100) as usize;
                (8080, text.as_bytes()[start..start + 1200].to_vec())
            }
        };
        packets.push(Sent { at, ports: (40_000 + rng.below(4) as u16, port), payload });
    }
    packets
}

fn ends(sent: &Sent) -> (SocketAddrV4, SocketAddrV4) {
    (SocketAddrV4::new(CLIENT, sent.ports.0), SocketAddrV4::new(SERVER, sent.ports.1))
}

/// Sends each at its time, or as soon as the machine lets us, and takes down when that was.
fn send(site: &Site, packets: &mut [Sent]) -> anyhow::Result<()> {
    let injector = Injector::on(&site.pair.client)?;
    let start = Instant::now();
    for packet in packets {
        let wait = packet.at.saturating_sub(start.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        let (from, to) = ends(packet);
        packet.at = start.elapsed();
        injector.send(from, to, &packet.payload)?;
    }
    Ok(())
}

/// The packets as the relay's host forwards them, as a capture with times in nanoseconds, link
/// type "raw IP".
fn pcap(packets: &[Sent]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 1 << 16, 101] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        let (from, to) = ends(packet);
        let bytes = udp_packet(from, to, &packet.payload);
        let len = bytes.len() as u32;
        let at = [packet.at.as_secs() as u32, packet.at.subsec_nanos(), len, len];
        at.iter().for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(bytes);
    }
    file
}

fn tx(status: &Status) -> anyhow::Result<TxStatus> {
    Ok(status.peers.first().context("no peer")?.tx.clone())
}

/// The same record, out of a replay.
fn replay(file: &Path, scheme: &str) -> anyhow::Result<TxStatus> {
    let rate = format!("{RATE_MBPS}mbit");
    let output = Command::new(DWELL)
        .args(["trace", "replay", "--json", "--rate", &rate, "--scheme", scheme])
        .arg(file)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "dwell trace replay: {said}");
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let status: Status = serde_json::from_value(report["status"].clone())?;
    let peer = status.peers.iter().find(|peer| peer.name == scheme);
    Ok(peer.context("the scheme is not in the report")?.tx.clone())
}

impl Pair {
    fn compare_all(&self) -> anyhow::Result<String> {
        let packets = |tx: &TxStatus| tx.sent.packets;
        let all = [
            self.compare("arrived", 0, |tx| tx.arrived.packets, packets)?,
            self.compare("sent", 0, packets, packets)?,
            self.compare("saved", 3000, TxStatus::saved_bytes, TxStatus::saved_bytes)?,
            self.compare("on the link", 0, |tx| tx.link_bytes, |tx| tx.link_bytes)?,
            self.compare("dropped", 10, |tx| tx.dropped_total().packets, packets)?,
        ];
        Ok(all.join("\n"))
    }

    /// Returns an error unless the two agree in `of`. A link that is paced by the clock loses the time in
    /// which the machine stands still, and with it so much of what it would have `carried`.
    fn compare(
        &self,
        what: &str,
        slack: u64,
        of: impl Fn(&TxStatus) -> u64,
        carried: impl Fn(&TxStatus) -> u64,
    ) -> anyhow::Result<String> {
        let real = of(&self.after) - of(&self.before);
        let lost_bytes = Rate::from_mbps(RATE_MBPS).bytes_in_ns(self.stalled.as_nanos() as u64);
        let link_bytes = self.after.link_bytes - self.before.link_bytes;
        let lost = lost_bytes as f64 / link_bytes as f64
            * (carried(&self.after) - carried(&self.before)) as f64;
        let room = (real as f64 * BOUND + lost) as u64 + slack;
        let replayed = of(&self.replayed);
        let reported = format!("{what}: replay {replayed}, relay {real}");
        ensure!(replayed.abs_diff(real) <= room, "{reported}: more than {room} apart");
        Ok(reported)
    }
}
