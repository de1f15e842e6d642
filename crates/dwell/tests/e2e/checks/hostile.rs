//! Wrong keys, rubbish, replays, lies about lengths, and readers that do not read.

use std::io::Read as _;
use std::net::SocketAddrV4;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use dwell_base::Rng;
use dwell_codec::Compressor;
use dwell_lab::lab::Lab;
use dwell_lab::relays::RelaySettings;
use dwell_report::Status;
use dwell_testkit::raw::{Injector, Sniffer, udp_packet};
use dwell_wire::header::DATA_HEADER_LEN;
use dwell_wire::{BodyWriter, DataHeader, Datagram};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::site::{
    self, DWELL, EGRESS, INGRESS, SERVERS, Site, balanced, edit, is_up, kill, launch,
    resident_bytes, tunnel_routes, wait_until,
};
use crate::web::Web;

/// No limit, so that the attackers need not queue either.
const FAST: &str = "delay 1ms";
/// The growth of a relay that an attack may cause: buffers that are filled for the first time.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// A neighbour on the thin link who is nobody's peer.
const UNKNOWN_PEER: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 77), 4444);

pub(super) fn wrong_key(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::emulated(lab, FAST, &site::settings())?;
    site.kill_both()?;
    let (right, wrong) = (site.directory.join("relays/pair.psk"), site.directory.join("wrong.psk"));
    let made = Command::new(DWELL).arg("genpsk").arg("--out").arg(&wrong).output()?;
    ensure!(made.status.success(), "{made:?}");
    // It waits to be contacted: what it sends can only be answers.
    let (endpoint, right) = (format!("endpoint = \"{INGRESS}\"\n"), right.display().to_string());
    edit(&site.relays.egress, &[(&endpoint, ""), (&right, &wrong.display().to_string())])?;
    let mut sniffer = Sniffer::on(&site.pair.ingress)?;
    let log = |name: &str| site.directory.join(name);
    let (ingress, egress) = (&site.relays.ingress, &site.relays.egress);
    let _egress = launch(&site.pair.egress, egress.config(), &log("egress.log"))?;
    let _ingress = launch(&site.pair.ingress, ingress.config(), &log("ingress.log"))?;
    wait_until("hellos of a wrong key are counted", || {
        Ok(egress.status().is_ok_and(|status| status.drops["unknown_key"] >= 2))
    })?;
    ensure!(!is_up(ingress)? && !is_up(egress)?, "a session without a common key");
    let seen = sniffer.seen();
    ensure!(seen.iter().any(|datagram| datagram.from == INGRESS), "nothing was seen at all");
    let answers = seen.iter().filter(|datagram| datagram.from == EGRESS).count();
    ensure!(answers == 0, "{answers} answers to who has not the key");
    for host in [&site.pair.ingress, &site.pair.egress] {
        ensure!(!tunnel_routes(host)?.is_empty(), "packets for the peer don't come to the relay");
    }
    ensure!(!site.is_connected()?, "a ping goes past the tunnel, in the clear");
    Ok(())
}

pub(super) fn rubbish(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::emulated(lab, FAST, &site::settings())?;
    let web = Web::start(&site, 400_000, 1_000_000)?;
    let mut sniffer = Sniffer::on(&site.pair.ingress)?;
    // The kernel asks for the unknown peer's address before it sends anything there.
    site.pair.ingress.address("thin0", "10.0.0.77/24")?;
    web.fetch(&site.pair.client, SERVERS[0], "text")?;
    let captured: Vec<Vec<u8>> = sniffer
        .seen()
        .into_iter()
        .filter(|datagram| (datagram.from, datagram.to) == (INGRESS, EGRESS))
        .map(|datagram| datagram.payload)
        .collect();
    ensure!(captured.len() > 50, "{} datagrams were captured", captured.len());
    let before = site.relays.egress.status()?;
    let resident = resident_bytes(site.relays.egress.process())?;

    let mut download = web.begin(&site.pair.client, SERVERS[0], "random")?;
    download.reach(1)?;
    let injector = Injector::on(&site.pair.ingress)?;
    blast(&injector, &captured)?;
    download.finish()?;
    web.fetch(&site.pair.client, SERVERS[0], "text")?;

    let answers = sniffer.seen().iter().filter(|seen| seen.to == UNKNOWN_PEER).count();
    ensure!(answers == 0, "{answers} answers to an unknown peer");
    let grown = resident_bytes(site.relays.egress.process())?.saturating_sub(resident);
    ensure!(grown < GROWTH_BYTES_MAX, "the relay grew by {grown} bytes");
    let after = site.settled()?;
    for status in &after {
        balanced(status)?;
    }
    let (sent, after) = (after[0].peers[0].tx.sent, &after[1]);
    let what = || format!("{:?}\n{:#?}", after.drops, after.peers[0].rx);
    for drop in ["malformed_datagram", "unknown_source", "unknown_key"] {
        ensure!(after.drops[drop] > before.drops[drop], "{drop} is not counted: {}", what());
    }
    let rx = &after.peers[0].rx;
    ensure!(rx.replayed > before.peers[0].rx.replayed, "replays are not counted: {}", what());
    ensure!(rx.auth_failed > 0, "forgeries are not counted: {}", what());
    ensure!(rx.malformed + rx.decode_failed + rx.not_allowed == 0, "rubbish got in: {}", what());
    ensure!(rx.packets == sent, "not what was sent: {}", what());
    println!("{} replayed, {} forged, {:?}", rx.replayed, rx.auth_failed, after.drops);
    Ok(())
}

/// Everything that an attacker on the link can think of, in the name of the peer and in the
/// name of an unknown peer.
fn blast(injector: &Injector, captured: &[Vec<u8>]) -> anyhow::Result<()> {
    let mut rng = Rng::from_seed(1);
    for round in 0..3000_usize {
        let from = if rng.below(2) == 0 { INGRESS } else { UNKNOWN_PEER };
        let mut datagram = captured[rng.below(captured.len() as u64) as usize].clone();
        match round % 5 {
            // As it was.
            0 => {}
            1 => datagram.truncate(rng.below(datagram.len() as u64) as usize),
            2 => {
                let bit = rng.below(datagram.len() as u64 * 8) as usize;
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            // Noise, and noise that looks like dwell's.
            kind => {
                datagram.resize(rng.below(1400) as usize + 1, 0);
                rng.fill(&mut datagram);
                if kind == 4 {
                    datagram[0] = 0x10 + rng.below(4) as u8;
                }
            }
        }
        injector.send(from, EGRESS, &datagram)?;
        if round % 50 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Hellos that were heard once are sent again, by whoever heard them.
pub(super) fn replayed_hellos(lab: &mut Lab) -> anyhow::Result<()> {
    let mut site = Site::emulated(lab, FAST, &site::settings())?;
    site.pair.ingress.address("thin0", "10.0.0.77/24")?;
    let mut sniffer = Sniffer::on(&site.pair.ingress)?;
    kill(site.relays.ingress.process())?;
    let config = site.relays.ingress.config().to_owned();
    let _ingress = launch(&site.pair.ingress, &config, &site.directory.join("again.log"))?;
    wait_until("the relays find each other again", || {
        Ok(site.relays.ingress.status().is_ok()
            && is_up(&site.relays.ingress)?
            && site.is_connected()?)
    })?;
    let hellos: Vec<_> = sniffer
        .seen()
        .into_iter()
        .filter(|seen| seen.from == INGRESS && seen.payload.first() == Some(&0x12))
        .collect();
    ensure!(!hellos.is_empty(), "no hello was seen");
    let injector = Injector::on(&site.pair.ingress)?;
    for round in 0..300 {
        let hello = &hellos[round % hellos.len()].payload;
        injector.send(if round % 2 == 0 { INGRESS } else { UNKNOWN_PEER }, EGRESS, hello)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = site.relays.egress.status()?;
    let endpoint = status.peers[0].endpoint.as_deref();
    ensure!(endpoint == Some(&*INGRESS.to_string()), "the peer moved to {endpoint:?}");
    let answers = sniffer.seen().iter().filter(|seen| seen.to == UNKNOWN_PEER).count();
    ensure!(answers < 100, "{answers} answers to an unknown peer");
    ensure!(is_up(&site.relays.egress)? && is_up(&site.relays.ingress)?, "the session is gone");
    let before = site.relays.egress.status()?.peers[0].rx.packets.packets;
    let (summary, said) = site.ping(&["-c", "5", "-i", "0.05", "-W", "2", SERVERS[0]])?;
    ensure!(summary.replies.len() == 5, "{said}");
    let after = site.relays.egress.status()?.peers[0].rx.packets.packets;
    ensure!(after >= before + 5, "the pings did not go through the tunnel");
    println!("{answers} answers to 150 hellos of an unknown peer");
    Ok(())
}

/// Without a seal anybody can write records. They may be wrong in any way; the relay must not
/// be harmed.
pub(super) fn lies(lab: &mut Lab) -> anyhow::Result<()> {
    let settings = RelaySettings { sealed: false, ..site::settings() };
    let mut site = Site::emulated(lab, FAST, &settings)?;
    let mut sniffer = Sniffer::on(&site.pair.ingress)?;
    ensure!(site.is_connected()?, "no way to {}", SERVERS[0]);
    let seen = sniffer.seen();
    let own = seen.iter().filter(|seen| (seen.from, seen.to) == (INGRESS, EGRESS));
    let header = own.rev().find_map(|seen| match Datagram::parse(&seen.payload) {
        Ok(Datagram::Data { header, .. }) => Some(header),
        _ => None,
    });
    let header = header.context("no data was seen")?;
    let resident = resident_bytes(site.relays.egress.process())?;
    let injector = Injector::on(&site.pair.ingress)?;
    // Not the numbers that the relay is going to use itself.
    let mut sequence_low = header.sequence_low + 500;
    let mut tell = |body: &[u8]| -> anyhow::Result<()> {
        sequence_low += 1;
        let header = DataHeader { sequence_low, ..header }.encode();
        Ok(injector.send(INGRESS, EGRESS, &[&header[..], body].concat())?)
    };
    let (from, to) = ("10.1.0.2:9".parse()?, "10.2.0.2:9".parse()?);
    let packet = udp_packet(from, to, b"whole");
    let longest = squeezed("zstd:1", &udp_packet(from, to, &[0; 65_535 - 28]))?;
    let zeros = squeezed("zstd:1", &[0; 65_535])?;
    let one_too_long = ["zstd:1", "deflate"].map(|codec| squeezed(codec, &[0; 65_536]));
    let [zstd_too_long, deflate_too_long] = one_too_long;
    let (zstd_too_long, deflate_too_long) = (zstd_too_long?, deflate_too_long?);
    for _ in 0..20 {
        // Refused by the decoder: more than was declared, and nonsense.
        tell(&compressed(2, 0, u16::MAX, &ZSTD_OF_A_MEGABYTE))?;
        tell(&compressed(2, 0, u16::MAX, &zstd_too_long))?;
        tell(&compressed(1, 0, u16::MAX, &lz4_of_megabytes()))?;
        tell(&compressed(3, 0, u16::MAX, &deflate_too_long))?;
        tell(&compressed(9, 3, 1500, b"no such codec"))?;
        // Malformed: no packet, a packet with a tail, one cut short, records without end.
        tell(&compressed(2, 0, u16::MAX, &zeros))?;
        tell(&raw(&[&packet[..], b"tail"].concat()))?;
        tell(&raw(&packet[..packet.len() - 1]))?;
        tell(&[0x1f, 0xff, 0x45])?;
        // Not of this peer.
        tell(&raw(&udp_packet("192.0.2.1:9".parse()?, to, b"unknown_peer")))?;
        // Unknown.
        tell(&[0xf0, 1, 7])?;
        // True, and as long as a packet can be.
        tell(&compressed(2, 0, u16::MAX, &longest))?;
        tell(&raw(&packet))?;
    }
    let egress = &site.relays.egress;
    let rx = |status: &Status| status.peers[0].rx.clone();
    wait_until("all is counted", || Ok(rx(&egress.status()?).skipped_records >= 20))?;
    let status = egress.status()?;
    let counts = rx(&status);
    let got = (counts.decode_failed, counts.malformed, counts.not_allowed, counts.skipped_records);
    ensure!(got == (100, 80, 20, 20), "{got:?}: {counts:#?}");
    let taken = counts.packets.bytes;
    ensure!(taken > 20 * 65_535, "the longest packets were not taken: {counts:#?}");
    let grown = resident_bytes(site.relays.egress.process())?.saturating_sub(resident);
    ensure!(grown < GROWTH_BYTES_MAX, "the relay grew by {grown} bytes");
    let (summary, said) = site.ping(&["-c", "5", "-i", "0.05", "-W", "2", SERVERS[0]])?;
    ensure!(summary.replies.len() == 5, "{said}");
    Ok(())
}

fn raw(packet: &[u8]) -> Vec<u8> {
    record(|body| body.raw(packet).is_ok())
}

fn compressed(codec: u8, epoch: u8, original_len: u16, data: &[u8]) -> Vec<u8> {
    record(|body| body.compressed(codec, epoch, original_len, data).is_ok())
}

fn record(write: impl FnOnce(&mut BodyWriter<'_>) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; 2000 - DATA_HEADER_LEN];
    let mut body = BodyWriter::new(&mut bytes);
    let fits = write(&mut body);
    debug_assert!(fits, "the room is larger than any record here");
    let len = body.len();
    bytes.truncate(len);
    bytes
}

/// These bytes, compressed.
fn squeezed(codec: &str, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut out = vec![0; bytes.len()];
    let len = Compressor::new(codec.parse()?, None)?.compress(bytes, &mut out)?;
    out.truncate(len.context("it does not become smaller")?);
    Ok(out)
}

/// A zstd block of a byte that is repeated a million times: literals of one byte, in the form
/// with 20 bits for their number, and no sequences (RFC 8878 3.1.1.3.1.1).
const ZSTD_OF_A_MEGABYTE: [u8; 5] = [0xfd, 0xff, 0xff, b'x', 0];

/// An LZ4 block: one literal, and a match as long as a datagram can tell.
fn lz4_of_megabytes() -> Vec<u8> {
    let mut block = vec![0x1f, b'x', 1, 0];
    block.extend([0xff; 1200]);
    block.extend([0, 0x50]);
    block.extend(b"abcde");
    block
}

/// A relay without a free descriptor waits for one, and answers when there is one.
pub(super) fn no_descriptors(lab: &mut Lab) -> anyhow::Result<()> {
    const WATCHED: Duration = Duration::from_secs(2);
    let mut site = Site::thin(lab, &site::settings())?;
    let socket = site.directory.join("relays/ingress.sock");
    let pid = Pid::from_raw(site.relays.ingress.process().id().cast_signed());
    let limit = |limit: Rlimit| prlimit(pid, Resource::Nofile, limit);
    let before = site.relays.ingress.status()?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let usual = limit(Rlimit { current: Some(3), maximum })?;
    let mut reader = UnixStream::connect(&socket)?;
    std::thread::sleep(WATCHED);
    let (summary, said) = site.ping(&["-c", "3", "-i", "0.05", "-W", "2", SERVERS[0]])?;
    ensure!(summary.replies.len() == 3, "{said}");
    limit(usual)?;
    let mut waited = Vec::new();
    reader.read_to_end(&mut waited)?;
    ensure!(!waited.is_empty(), "whoever waited gets nothing");
    let took_ns = site.relays.ingress.status()?.cpu_ns - before.cpu_ns;
    println!("{} ms of processor time in {} ms", took_ns / 1_000_000, WATCHED.as_millis());
    ensure!(u128::from(took_ns) < WATCHED.as_nanos() / 8, "it spins: {took_ns} ns");
    Ok(())
}

/// Readers of the status who never read hold nobody up.
pub(super) fn readers(lab: &mut Lab) -> anyhow::Result<()> {
    let site = Site::thin(lab, &site::settings())?;
    let socket = site.directory.join("relays/ingress.sock");
    let mut readers = Vec::new();
    for _ in 0..300 {
        readers.push(UnixStream::connect(&socket)?);
    }
    let (summary, said) = site.ping(&["-c", "5", "-i", "0.05", "-W", "2", SERVERS[0]])?;
    ensure!(summary.replies.len() == 5, "{said}");
    for _ in 0..20 {
        balanced(&site.relays.ingress.status()?)?;
    }
    drop(readers);
    let reported = Command::new(DWELL).args(["status", "--socket"]).arg(&socket).output()?;
    ensure!(reported.status.success(), "dwell status: {reported:?}");
    Ok(())
}
