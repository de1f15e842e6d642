//! The packets of captures, made to go from the lab's client to its server.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use dwell_base::time::SECOND_NS;
use dwell_trace::Capture;
use dwell_trace::replay::cut::cut;
use dwell_trace::replay::input::Input;
use dwell_trace::replay::merge::{Merge, MergeStep};
use dwell_wire::PacketInfo;
use dwell_wire::checksum::{checksum, transport_checksum};

/// Longer packets are cut as their senders would cut them: less than any tunnel takes here.
const PACKET_BYTES_MAX: usize = 1300;
/// The largest number of bytes for tcpreplay, which are kept in memory.
const BYTES_MAX: usize = 256 << 20;
/// A longer silence is made so short: captures that were put together have years in them.
const GAP_NS_MAX: u64 = 10 * SECOND_NS;
const TTL_MIN: u8 = 8;
const TTL: u8 = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
/// The source and destination of packets.
const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 2, 0, 2)];
const V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2)];

/// An Ethernet address.
pub(super) type Mac = [u8; 6];

/// The packets and their times, in nanoseconds from the first.
#[derive(Debug, Default)]
pub(super) struct Scene {
    packets: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    /// Packets that were not taken: cut in the capture, or nonsense.
    pub(super) left_out: u64,
    /// The time of the packet before, as captured.
    last_ns: Option<u64>,
}

impl Scene {
    /// Reads captures, one after another in time.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut scene = Self::default();
        for path in files {
            let reported = || path.display().to_string();
            let capture =
                Capture::open(File::open(path).with_context(reported)?).with_context(reported)?;
            let mut merge = Merge::new([capture]);
            scene.last_ns = None;
            loop {
                match merge.step() {
                    MergeStep::Packet(input) => scene.add(input)?,
                    MergeStep::Skipped => {}
                    MergeStep::End => break,
                }
            }
        }
        ensure!(
            scene.packets.len() > 1,
            "there are no two whole packets of IP in these captures, so nothing can be sent"
        );
        Ok(scene)
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Bytes of IP packets.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// From the first packet to the last.
    pub(super) fn span_ns(&self) -> u64 {
        self.packets.last().map_or(0, |(at_ns, _)| *at_ns)
    }

    fn add(&mut self, input: Input<'_>) -> anyhow::Result<()> {
        let info = PacketInfo::parse(input.packet, 0).ok();
        let Some(info) = info.filter(|info| info.total_len <= input.packet.len()) else {
            self.left_out += 1;
            return Ok(());
        };
        let step_ns = match (input.at_ns, self.last_ns) {
            (Some(now), Some(before)) => now.saturating_sub(before).min(GAP_NS_MAX),
            _ => 0,
        };
        self.last_ns = input.at_ns.max(self.last_ns);
        let at_ns = self.span_ns() + step_ns;
        let (packets, bytes) = (&mut self.packets, &mut self.bytes);
        let mut piece = Vec::new();
        let packet = &input.packet[..info.total_len];
        let is_cut = cut(packet, &info, PACKET_BYTES_MAX, &mut piece, |part| {
            if let Some(part) = readdressed(part) {
                *bytes += part.len();
                packets.push((at_ns, part));
            }
        });
        self.left_out += u64::from(!is_cut);
        ensure!(self.bytes <= BYTES_MAX, "these captures have more than {BYTES_MAX} bytes");
        Ok(())
    }

    /// As a capture of Ethernet frames, with times in microseconds.
    pub(super) fn write(&self, path: &Path, [from, to]: [Mac; 2]) -> anyhow::Result<()> {
        let reported = || path.display().to_string();
        let mut file = BufWriter::new(File::create(path).with_context(reported)?);
        let mut write = |bytes: &[u8]| file.write_all(bytes).with_context(reported);
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 1 << 16, 1] {
            write(&word.to_le_bytes())?;
        }
        for (at_ns, packet) in &self.packets {
            let len = (packet.len() + 14) as u32;
            let (seconds, micros) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000 / 1000);
            for word in [seconds as u32, micros as u32, len, len] {
                write(&word.to_le_bytes())?;
            }
            write(&to)?;
            write(&from)?;
            write(if packet[0] >> 4 == 4 { &[0x08, 0x00] } else { &[0x86, 0xdd] })?;
            write(packet)?;
        }
        file.flush().with_context(reported)
    }
}

/// The packet with the lab's addresses, a time to live that suffices, and right checksums.
fn readdressed(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    if packet.first()? >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        packet.get(..header.max(20))?;
        if packet[8] < TTL_MIN {
            packet[8] = TTL;
        }
        packet[12..16].copy_from_slice(&V4[0].octets());
        packet[16..20].copy_from_slice(&V4[1].octets());
        packet[10..12].fill(0);
        let sum = checksum(&packet[..header]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
    } else {
        packet.get(..40)?;
        if packet[7] < TTL_MIN {
            packet[7] = TTL;
        }
        packet[8..24].copy_from_slice(&V6[0].octets());
        packet[24..40].copy_from_slice(&V6[1].octets());
    }
    mend_transport(&mut packet);
    Some(packet)
}

/// The sum over addresses that are not the original's, or that the sender had left to its device.
fn mend_transport(packet: &mut [u8]) {
    let Ok(info) = PacketInfo::parse(packet, 0) else { return };
    let from = match packet[0] >> 4 {
        _ if info.fragment => return,
        4 => usize::from(packet[0] & 15) * 4,
        // Behind extension headers it stays as it is: nobody on the way looks at it.
        _ if packet[6] == info.protocol => 40,
        _ => return,
    };
    let at = match info.protocol {
        TCP => from + 16,
        UDP => from + 6,
        ICMP_V6 => from + 2,
        _ => return,
    };
    if packet.len() < at + 2 || (info.protocol == UDP && packet[at..at + 2] == [0, 0]) {
        return;
    }
    packet[at..at + 2].fill(0);
    let sum = transport_checksum(info.src, info.dst, info.protocol, &packet[from..]);
    let sum = if sum == 0 && info.protocol == UDP { u16::MAX } else { sum };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use dwell_trace::sides::Ends;

    fn udp(len: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 1, 17, 0, 0, 1, 2, 3, 4, 224, 0, 0, 9];
        packet.extend([0x04, 0xd2, 0x00, 0x35]);
        packet.extend((8 + len as u16).to_be_bytes());
        packet.extend([9, 9]);
        packet.extend((0..len).map(|n| n as u8));
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet
    }

    #[test]
    fn a_packet_gets_the_labs_addresses_and_right_checksums() {
        let packet = readdressed(&udp(33)).unwrap();
        let info = PacketInfo::parse(&packet, 0).unwrap();
        assert_eq!((info.src, info.dst), (IpAddr::V4(V4[0]), IpAddr::V4(V4[1])));
        assert_eq!((packet[8], checksum(&packet[..20])), (TTL, 0));
        assert_eq!(transport_checksum(info.src, info.dst, 17, &packet[20..]), 0);
        assert_eq!(&packet[28..], &udp(33)[28..]);
    }

    #[test]
    fn long_packets_are_cut_and_cut_ones_left_out() {
        let mut scene = Scene::default();
        let long = udp(3000);
        let ends = Ends::default();
        let input = |packet, at_ns| Input { at_ns: Some(at_ns), packet, wire_len: None, ends };
        scene.add(input(&long, 5_000)).unwrap();
        scene.add(input(&long[..1000], 6_000)).unwrap();
        scene.add(input(&long[..0], 6_000)).unwrap();
        let short = udp(10);
        scene.add(input(&short, 9_000)).unwrap();
        assert_eq!((scene.len(), scene.left_out, scene.span_ns()), (4, 2, 4_000));
        assert!(scene.packets.iter().all(|(_, packet)| packet.len() <= PACKET_BYTES_MAX));
    }
}
