//! Which flows send how much, for who looks.
//!
//! Nothing is counted while nobody looks. While somebody does, each packet costs two looks into a table of fixed size, one
//! when it comes and one when it goes, and nothing is allocated. Of flows that share places the ones that were silent for longest are forgotten, so
//! that those that send much are there, and of many small ones some are not.

use std::net::IpAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::status::FlowStatus;
use dwell_wire::PacketInfo;

use super::shares::Share;

/// Nobody looks any more after this time without a question.
const WATCH_NS: u64 = 15 * SECOND_NS;
/// Rates are of whole windows of this length.
const WINDOW_NS: u64 = SECOND_NS;
/// A flow that was silent for so long is not shown.
const SILENT_NS: u64 = 5 * SECOND_NS;
/// Sets of places, a power of two, ...
const SETS: usize = 512;
/// ... and places in each.
const WAYS: usize = 4;
/// Flows that are reported.
const REPORTED_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Seen {
    hash: u64,
    peer: usize,
    addresses: (IpAddr, IpAddr),
    protocol: u8,
    ports: (u16, u16),
    packets: u64,
    bytes: u64,
    first_at: Instant,
    last_at: Instant,
    window_at: Instant,
    window_bytes: u64,
    window_sojourn_max_ns: u64,
    /// Of the window before.
    bps: u64,
    sojourn_max_ns: u64,
    left: Left,
}

/// The packets of a flow that left the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    sent_packets: u64,
    sent_bytes: u64,
    plain_bytes: u64,
    link_bytes: f64,
    sojourn_sum_ns: u64,
    dropped: u64,
}

impl Seen {
    fn new(now: Instant, peer: usize, info: &PacketInfo) -> Self {
        Self {
            hash: info.flow_hash,
            peer,
            addresses: (info.src, info.dst),
            protocol: info.protocol,
            // The hash of fragments is without ports, also that of the first one, which has some.
            ports: if info.fragment { (0, 0) } else { (info.src_port, info.dst_port) },
            packets: 0,
            bytes: 0,
            first_at: now,
            last_at: now,
            window_at: now,
            window_bytes: 0,
            window_sojourn_max_ns: 0,
            bps: 0,
            sojourn_max_ns: 0,
            left: Left::default(),
        }
    }

    /// Ends the window if it is over.
    fn turn(&mut self, now: Instant) {
        let ns = now.since_ns(self.window_at);
        if ns >= WINDOW_NS {
            let bits = u128::from(self.window_bytes) * 8 * u128::from(SECOND_NS);
            self.bps = u64::try_from(bits / u128::from(ns)).unwrap_or(u64::MAX);
            // What is older than a window and the one before is forgotten.
            let longest_ns = std::mem::take(&mut self.window_sojourn_max_ns);
            self.sojourn_max_ns = if ns < 2 * WINDOW_NS { longest_ns } else { 0 };
            (self.window_at, self.window_bytes) = (now, 0);
        }
    }
}

/// The flows of a node.
#[derive(Debug, Default)]
pub(super) struct FlowWatch {
    places: Option<Box<[[Option<Seen>; WAYS]]>>,
    until: Instant,
}

impl FlowWatch {
    /// Counts from now on, for some time.
    pub(super) fn look(&mut self, now: Instant) {
        self.until = now + WATCH_NS;
        if self.places.is_none() {
            self.places = Some(vec![[None; WAYS]; SETS].into_boxed_slice());
        }
    }

    /// Returns true if packets are counted.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.places.is_some()
    }

    /// A packet is for this peer.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, peer: usize, info: &PacketInfo) {
        let Some(places) = &mut self.places else { return };
        if now > self.until {
            self.places = None;
            return;
        }
        let set = &mut places[set_of(info.flow_hash)];
        let known = place_of(set, peer, info.flow_hash);
        let at = known.unwrap_or_else(|| {
            let oldest = |at: &usize| set[*at].map_or(Instant::ZERO, |seen| seen.last_at);
            let at = (0..WAYS).min_by_key(oldest).unwrap_or(0);
            set[at] = Some(Seen::new(now, peer, info));
            at
        });
        if let Some(seen) = &mut set[at] {
            seen.turn(now);
            seen.packets += 1;
            seen.bytes += info.total_len as u64;
            seen.window_bytes += info.total_len as u64;
            seen.last_at = now;
        }
    }

    fn known(&mut self, peer: usize, hash: u64) -> Option<&mut Seen> {
        let set = &mut self.places.as_mut()?[set_of(hash)];
        set[place_of(set, peer, hash)?].as_mut()
    }

    /// A packet for this peer was sent. Alone it would have taken `plain_extra_bytes` more of the link than its own.
    pub(super) fn sent(
        &mut self,
        (now, peer): (Instant, usize),
        flow: u64,
        share: &Share,
        plain_extra_bytes: u32,
    ) {
        let Some(seen) = self.known(peer, flow) else { return };
        seen.turn(now);
        seen.window_sojourn_max_ns = seen.window_sojourn_max_ns.max(share.sojourn_ns);
        let left = &mut seen.left;
        left.sent_packets += 1;
        left.sent_bytes += u64::from(share.original_bytes);
        left.plain_bytes += u64::from(share.original_bytes) + u64::from(plain_extra_bytes);
        left.link_bytes += share.link_bytes;
        left.sojourn_sum_ns = left.sojourn_sum_ns.saturating_add(share.sojourn_ns);
    }

    /// A packet of this flow for this peer was dropped.
    pub(super) fn dropped(&mut self, peer: usize, flow: u64) {
        if let Some(seen) = self.known(peer, flow) {
            seen.left.dropped += 1;
        }
    }

    /// Returns the flows that sent most in the last second, those first; `name` knows the peers.
    pub(super) fn status(
        &self,
        now: Instant,
        name: impl Fn(usize) -> Option<String>,
    ) -> Vec<FlowStatus> {
        let Some(places) = &self.places else { return Vec::new() };
        let is_awake = |seen: &Seen| now.since_ns(seen.last_at) < SILENT_NS;
        let mut flows: Vec<Seen> =
            places.iter().flatten().copied().flatten().filter(is_awake).collect();
        flows.iter_mut().for_each(|seen| seen.turn(now));
        flows.sort_by_key(|seen| std::cmp::Reverse((seen.bps, seen.bytes)));
        flows.truncate(REPORTED_MAX);
        let describe = |seen: Seen| {
            Some(FlowStatus {
                peer: name(seen.peer)?,
                protocol: seen.protocol,
                source: end(seen.addresses.0, seen.ports.0),
                destination: end(seen.addresses.1, seen.ports.1),
                packets: seen.packets,
                bytes: seen.bytes,
                bps: seen.bps,
                for_ns: now.since_ns(seen.first_at),
                sent_packets: seen.left.sent_packets,
                sent_bytes: seen.left.sent_bytes,
                plain_bytes: seen.left.plain_bytes,
                link_bytes: seen.left.link_bytes.round() as u64,
                sojourn_sum_ns: seen.left.sojourn_sum_ns,
                sojourn_max_ns: seen.sojourn_max_ns.max(seen.window_sojourn_max_ns),
                dropped: seen.left.dropped,
            })
        };
        flows.into_iter().filter_map(describe).collect()
    }
}

/// The set of a flow: by other bits than those that order queues.
fn set_of(hash: u64) -> usize {
    (hash >> 48) as usize & (SETS - 1)
}

fn place_of(set: &[Option<Seen>; WAYS], peer: usize, hash: u64) -> Option<usize> {
    set.iter().position(|seen| seen.is_some_and(|seen| seen.hash == hash && seen.peer == peer))
}

fn end(address: IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => std::net::SocketAddr::new(address, port).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use dwell_policy::{Frame, FramePacket, FrameUnit};

    use super::super::shares::shares;
    use super::super::store::{Store, Treatment};
    use super::*;

    fn packet(port: u16, seed: u64) -> PacketInfo {
        let mut bytes = [0; 100];
        bytes[..10].copy_from_slice(&[0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17]);
        bytes[12..20].copy_from_slice(&[10, 1, 0, 5, 10, 2, 0, 9]);
        bytes[20..24].copy_from_slice(&[port.to_be_bytes(), 443_u16.to_be_bytes()].concat());
        PacketInfo::parse(&bytes, seed).unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn nothing_is_counted_while_nobody_looks() {
        let mut watch = FlowWatch::default();
        watch.count(at(1), 0, &packet(1, 7));
        assert!(watch.status(at(1), |_| Some(String::new())).is_empty());
        watch.look(at(2));
        watch.count(at(3), 0, &packet(1, 7));
        assert_eq!(watch.status(at(3), |_| Some(String::new())).len(), 1);
        assert!(watch.status(at(3), |_| None).is_empty(), "the peer is gone");
        watch.count(at(60_000), 0, &packet(1, 7));
        assert!(watch.places.is_none(), "its memory is given back");
    }

    #[test]
    fn the_flows_that_send_most_come_first() {
        let mut watch = FlowWatch::default();
        watch.look(at(0));
        for ms in 0..3_000 {
            watch.count(at(ms), 1, &packet(1, 7));
            if ms % 10 == 0 {
                watch.count(at(ms), 0, &packet(2, 7));
            }
        }
        let flows = watch.status(at(3_000), |peer| Some(format!("peer {peer}")));
        let shown: Vec<_> = flows.iter().map(|it| (&*it.peer, &*it.source)).collect();
        assert_eq!(shown, [("peer 1", "10.1.0.5:1"), ("peer 0", "10.1.0.5:2")]);
        assert_eq!((&*flows[0].destination, flows[0].protocol), ("10.2.0.9:443", 17));
        assert_eq!((flows[0].packets, flows[0].bytes), (3_000, 300_000));
        assert!((790_000..=810_000).contains(&flows[0].bps), "{}", flows[0].bps);
        assert!((70_000..=90_000).contains(&flows[1].bps), "{}", flows[1].bps);
        assert!(watch.status(at(9_000), |_| Some(String::new())).is_empty(), "they are silent");
    }

    /// A unit of a frame that is a batch of these packets: their ports, bytes and waits.
    fn batch(store: &mut Store, frame: &mut Frame, bytes: u32, packets: &[(u16, u32, u64)]) {
        let kept = |(port, bytes, sojourn_ns): &(u16, u32, u64)| {
            let flow = packet(*port, 7).flow_hash;
            let id = store.insert(&[0], Treatment { flow, ..Treatment::default() });
            FramePacket { id, original_bytes: *bytes, sojourn_ns: *sojourn_ns }
        };
        let all: Vec<_> = packets.iter().map(kept).collect();
        frame.units.push(FrameUnit {
            id: all[0].id,
            bytes,
            original_bytes: all.iter().map(|it| it.original_bytes).sum(),
            compressed_here: true,
            bypass: None,
            followers: all.len() as u32 - 1,
            sojourn_ns: all[0].sojourn_ns,
        });
        frame.followers.extend(&all[1..]);
    }

    fn send(
        watch: &mut FlowWatch,
        (now, peer): (Instant, usize),
        (frame, store): (&Frame, &Store),
        (link_bytes, plain_extra_bytes): (u64, u32),
    ) {
        shares(frame, link_bytes, |_, share| {
            watch.sent((now, peer), store.treatment(share.id).flow, &share, plain_extra_bytes);
        });
    }

    #[test]
    fn what_packets_take_together_is_shared_among_their_flows() {
        let (mut watch, mut store, mut frame) =
            (FlowWatch::default(), Store::default(), Frame::default());
        watch.look(at(0));
        for port in 1..=3 {
            watch.count(at(0), 0, &packet(port, 7));
        }
        batch(&mut store, &mut frame, 60, &[(1, 300, 9_000_000), (2, 100, 4_000_000)]);
        batch(&mut store, &mut frame, 20, &[(3, 50, 1_000_000)]);
        send(&mut watch, (at(5), 0), (&frame, &store), (160, 30));
        // Another peer's flow with the same ends, and one that nobody knows.
        send(&mut watch, (at(5), 1), (&frame, &store), (160, 30));
        watch.dropped(0, packet(2, 7).flow_hash);
        watch.dropped(0, packet(9, 7).flow_hash);
        let mut flows = watch.status(at(6), |_| Some(String::new()));
        flows.sort_by(|a, b| a.source.cmp(&b.source));
        let shares: Vec<_> = flows.iter().map(|it| (it.link_bytes, it.plain_bytes)).collect();
        assert_eq!(shares, [(90, 330), (30, 130), (40, 80)]);
        let waits: Vec<_> = flows.iter().map(|it| (it.sojourn_sum_ns, it.sojourn_max_ns)).collect();
        assert_eq!(waits, [9_000_000, 4_000_000, 1_000_000].map(|ns| (ns, ns)));
        assert_eq!(flows.iter().map(|it| it.dropped).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!((flows[0].sent_packets, flows[0].sent_bytes), (1, 300));
        // The longest wait is forgotten after its window and the next.
        watch.count(at(1_500), 0, &packet(1, 7));
        assert_eq!(longest(&watch, at(1_500)), 9_000_000);
        watch.count(at(2_600), 0, &packet(1, 7));
        assert_eq!(longest(&watch, at(2_600)), 0);
    }

    fn longest(watch: &FlowWatch, now: Instant) -> u64 {
        let flows = watch.status(now, |_| Some(String::new()));
        flows.iter().map(|flow| flow.sojourn_max_ns).max().unwrap()
    }

    #[test]
    fn thousands_of_small_shares_lose_nothing() {
        let (mut watch, mut store) = (FlowWatch::default(), Store::default());
        watch.look(at(0));
        watch.count(at(0), 0, &packet(1, 7));
        let mut frame = Frame::default();
        let packets: Vec<_> = (0..30).map(|_| (1, 40, 0)).collect();
        batch(&mut store, &mut frame, 70, &packets);
        for _ in 0..1_000 {
            send(&mut watch, (at(5), 0), (&frame, &store), (100, 0));
        }
        assert_eq!(watch.status(at(5), |_| Some(String::new()))[0].link_bytes, 100_000);
    }

    #[test]
    fn a_thousand_flows_leave_room_for_the_large_ones() {
        let mut watch = FlowWatch::default();
        watch.look(at(0));
        for ms in 0..2_000 {
            for small in 0..5 {
                watch.count(at(ms), 0, &packet(1_000 + (ms * 5 + small) as u16 % 5_000, 7));
            }
            for large in 1..=10 {
                watch.count(at(ms), 0, &packet(large, 7));
            }
        }
        let flows = watch.status(at(2_000), |_| Some("hub".to_owned()));
        assert_eq!(flows.len(), REPORTED_MAX);
        let large = |flow: &FlowStatus| flow.packets > 1_500;
        assert_eq!(flows.iter().take(10).filter(|flow| large(flow)).count(), 10, "{flows:?}");
    }
}
