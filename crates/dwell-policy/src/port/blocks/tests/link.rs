//! Blocks of what waits in front of a link in virtual time, with a codec that is a model.

use dwell_base::{Rate, Rng};

use super::waiting::FRAME;
use super::*;
use crate::estimate::LearnedConfig;

/// Virtual seconds of a run.
const RUN_NS: u64 = 500_000_000;

/// About what zstd:1 does to text: a larger block shrinks more, and 8 KiB take 22 µs.
fn compress(bytes: u32) -> (u32, u64) {
    let to = u64::from(bytes) / 2 + 180;
    (to.min(u64::from(bytes)) as u32, 2_000 + u64::from(bytes) * 5 / 2)
}

/// When packets arrive.
#[derive(Clone, Copy)]
enum Load {
    /// This many packets are always in the port, as a sender with a window keeps them.
    Window(u64),
    /// At random moments, this share of the link's rate with all headers.
    Share(f64),
}

struct World {
    port: Port,
    rate: Rate,
    packet_bytes: u32,
    now_ns: u64,
    link_free_ns: Option<u64>,
    compressed: Option<(u64, PacketId, Outcome, u64)>,
    arrived: u32,
}

/// The results of a run.
#[derive(Debug)]
struct Result {
    /// Bytes of packets that left.
    sent_bytes: u64,
    /// Bytes on the link for them.
    link_bytes: u64,
    /// The share of packets that left compressed.
    compressed: f64,
    /// The mean time of a frame's first packet in the port.
    sojourn_ns: u64,
}

impl World {
    fn new(scheme: Scheme, mbps: u64, packet_bytes: u32) -> Self {
        let rate = Rate::from_mbps(mbps);
        let port = Port::new(PortConfig {
            scheme,
            rate: Some(rate),
            limit: QueueLimit::packets(2_000),
            frame: FRAME,
            estimates: Estimates::Learned(LearnedConfig::default()),
            compress_bytes_min: 64,
            ..PortConfig::default()
        });
        Self {
            port: port.unwrap(),
            rate,
            packet_bytes,
            now_ns: 0,
            link_free_ns: None,
            compressed: None,
            arrived: 0,
        }
    }

    fn run(mut self, load: Load) -> Result {
        let (mut units, mut sojourn_ns) = (0, 0);
        let mut rng = Rng::from_seed(1);
        let mut arrival_ns = 0;
        while self.now_ns < RUN_NS {
            if let Load::Window(packets) = load {
                while self.port.accounts().held.packets < packets {
                    self.arrive();
                }
                arrival_ns = u64::MAX;
            }
            self.pump(&mut units, &mut sojourn_ns);
            let compress_ns = self.compressed.map_or(u64::MAX, |(at_ns, ..)| at_ns);
            let link_ns = self.link_free_ns.unwrap_or(u64::MAX);
            self.now_ns = arrival_ns.min(compress_ns).min(link_ns);
            if self.now_ns == link_ns {
                self.link_free_ns = None;
                self.port.link_ready();
            } else if let Some((_, id, outcome, took_ns)) =
                self.compressed.take_if(|(at_ns, ..)| *at_ns == self.now_ns)
            {
                self.port.compressed(id, outcome, took_ns);
            } else if let Load::Share(share) = load {
                self.arrive();
                let link_bytes = self.packet_bytes + FRAME.frame_bytes + FRAME.raw_unit_bytes;
                let mean_ns = self.rate.transmission_ns(u64::from(link_bytes)) as f64 / share;
                arrival_ns += rng.exponential(mean_ns) as u64;
            }
        }
        let accounts = self.port.accounts();
        Result {
            sent_bytes: accounts.sent.bytes,
            link_bytes: accounts.link_bytes,
            compressed: accounts.compress.compressed.packets as f64 / accounts.sent.packets as f64,
            sojourn_ns: sojourn_ns / units,
        }
    }

    fn arrive(&mut self) {
        let packet = sized(self.arrived, self.packet_bytes);
        assert_eq!(self.port.arrive_one(Instant::from_ns(self.now_ns), packet), Admission::Queued);
        self.arrived += 1;
    }

    fn pump(&mut self, units: &mut u64, sojourn_ns: &mut u64) {
        while let Some(action) = self.port.ask(Instant::from_ns(self.now_ns)) {
            match action {
                Wanted::Compress(id) => self.compress(id, 1),
                Wanted::CompressBatch => {
                    let block = self.port.last_batch();
                    let (first, packets) = (block[0], block.len() as u32);
                    self.compress(first, packets);
                }
                Wanted::Send => {
                    let frame = self.port.frame();
                    *units += 1;
                    *sojourn_ns += frame.units[0].sojourn_ns;
                    let takes_ns = self.rate.transmission_ns(frame.link_bytes);
                    self.link_free_ns = Some(self.now_ns + takes_ns);
                }
                Wanted::Drop(..) | Wanted::Mark(_) => panic!("these schemes drop on arrival only"),
            }
        }
        self.port.assert_invariants();
    }

    fn compress(&mut self, first: PacketId, packets: u32) {
        let (to, took_ns) = compress(packets * self.packet_bytes);
        let outcome = Outcome::Smaller(to);
        self.compressed = Some((self.now_ns + took_ns, first, outcome, took_ns));
    }
}

fn sized(id: u32, bytes: u32) -> Packet {
    Packet { bytes, flow: 7 << 32, ..packet(id, 7) }
}

fn run(scheme: Scheme, mbps: u64, packet_bytes: u32, load: Load) -> Result {
    World::new(scheme, mbps, packet_bytes).run(load)
}

fn edge() -> Scheme {
    Scheme::waiting(Gather::Edge, 8_192)
}

#[test]
fn blocks_are_compressed_on_fast_links() {
    // The first guess, 10 % for 5 ns a byte, needs a backlog from 160 Mbit/s on: the packet that is next
    // never has one, and must not keep those behind it from being compressed.
    for mbps in [100, 200, 500, 1_000] {
        for window in [64, 16] {
            let run = |scheme| run(scheme, mbps, 1_500, Load::Window(window));
            let (none, packet, edge) = (run(Scheme::none()), run(Scheme::packet()), run(edge()));
            let gain = |result: &Result| result.sent_bytes as f64 / none.sent_bytes as f64;
            let what = format!("{mbps} Mbit/s, {window}: {none:?} {packet:?} {edge:?}");
            assert!(gain(&packet) > 1.5, "{what}");
            assert!(gain(&edge) > 1.5, "{what}");
            assert!(edge.compressed > 0.9, "{what}");
        }
    }
}

#[test]
fn a_link_that_is_not_full_carries_no_more_than_with_single_packets() {
    for (share, mbps, packet_bytes) in
        [(0.27, 10, 1_400), (0.8, 10, 1_400), (0.27, 10, 500), (0.8, 10, 500), (0.8, 50, 1_400)]
    {
        let run = |scheme| run(scheme, mbps, packet_bytes, Load::Share(share));
        let (none, packet, edge) = (run(Scheme::none()), run(Scheme::packet()), run(edge()));
        let what = format!("{share} of {mbps} Mbit/s: {none:?} {packet:?} {edge:?}");
        let ratio = |result: &Result| result.link_bytes as f64 / result.sent_bytes as f64;
        assert!(ratio(&packet) < 0.9 * ratio(&none), "{what}");
        assert!(ratio(&edge) <= 1.01 * ratio(&packet), "{what}");
        // Nobody waits longer for it.
        assert!(edge.sojourn_ns <= none.sojourn_ns + 50_000, "{what}");
    }
}

#[test]
fn a_codec_that_is_slower_than_the_link_works_on_what_waits_long_enough() {
    // Far more than the lead of 2 ms.
    let estimate = Estimate { ratio: Ratio::from_ppm(500_000), cost_ns: 10_000_000 };
    let mut port = Port::new(PortConfig {
        scheme: Scheme::waiting(Gather::Edge, 6_000),
        rate: Some(Rate::from_mbps(10)),
        limit: QueueLimit::packets(500),
        estimates: Estimates::Fixed(estimate),
        ..PortConfig::default()
    })
    .unwrap();
    port.link_busy();
    for id in 0..12 {
        assert_eq!(port.arrive_one(NOW, packet(id, 7)), Admission::Queued);
        // 10 ms are 12,500 bytes, and a packet alone saves 750 of them: of what waits, the first
        // with 11,750 ahead of it is the ninth.
        let asked = actions(&mut port);
        assert_eq!(asked.is_empty(), id < 8, "{id}: {asked:?}");
        if !asked.is_empty() {
            break;
        }
    }
    assert_eq!(port.waiting(), (0, 8));
}
