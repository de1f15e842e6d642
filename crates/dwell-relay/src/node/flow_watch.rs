//! Which flows send how much, for who looks.
//!
//! Nothing is counted while nobody looks. While somebody does, each packet costs one look into a table of fixed size, and
//! nothing is allocated. Of flows that share places the ones that were silent for longest are forgotten, so
//! that those that send much are there, and of many small ones some are not.

use std::net::IpAddr;

use dwell_base::Instant;
use dwell_base::time::SECOND_NS;
use dwell_report::status::FlowStatus;
use dwell_wire::PacketInfo;

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
    /// Of the window before.
    bps: u64,
}

impl Seen {
    fn new(now: Instant, peer: usize, info: &PacketInfo) -> Self {
        Self {
            hash: info.flow_hash,
            peer,
            addresses: (info.src, info.dst),
            protocol: info.protocol,
            ports: (info.src_port, info.dst_port),
            packets: 0,
            bytes: 0,
            first_at: now,
            last_at: now,
            window_at: now,
            window_bytes: 0,
            bps: 0,
        }
    }

    /// Ends the window if it is over.
    fn turn(&mut self, now: Instant) {
        let ns = now.since_ns(self.window_at);
        if ns >= WINDOW_NS {
            let bits = u128::from(self.window_bytes) * 8 * u128::from(SECOND_NS);
            self.bps = u64::try_from(bits / u128::from(ns)).unwrap_or(u64::MAX);
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
        // Other bits than those that order queues.
        let set = &mut places[(info.flow_hash >> 48) as usize & (SETS - 1)];
        let known = set.iter().position(|seen| {
            seen.is_some_and(|seen| seen.hash == info.flow_hash && seen.peer == peer)
        });
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
            })
        };
        flows.into_iter().filter_map(describe).collect()
    }
}

fn end(address: IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => std::net::SocketAddr::new(address, port).to_string(),
    }
}

#[cfg(test)]
mod tests {
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
