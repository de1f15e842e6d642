//! Keys of groups: packets that are compressed together have the same key.

use std::hash::{DefaultHasher, Hash, Hasher};

use dwell_policy::Gather;
use dwell_wire::PacketInfo;

/// Returns the [`group`](dwell_policy::Packet::group) of a packet: equal for packets that `gather`
/// compresses together, and different for every `seed`. `edge` distinguishes where packets leave that
/// go over the same link, if that matters; otherwise it is zero.
pub fn group_key(gather: Gather, info: &PacketInfo, seed: u64, edge: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    match gather {
        Gather::Edge => return edge,
        Gather::Service => {
            // As in the flow: fragments have no ports, so that all take the same path.
            let port = if info.fragment { 0 } else { info.dst_port };
            (info.dst, port, info.protocol).hash(&mut hasher);
        }
        Gather::HostPair => (info.src, info.dst).hash(&mut hasher),
        _ => return info.flow_hash,
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// A packet to host `host`, port `port`, of a flow of its own.
    fn info(host: u8, port: u16) -> PacketInfo {
        PacketInfo {
            version: 4,
            protocol: 6,
            flow_hash: u64::from(host) << 16 | u64::from(port),
            src_port: 40_000,
            dst_port: port,
            dscp: 0,
            header_len: 40,
            total_len: 1_000,
            fragment: false,
            dont_fragment: true,
            tcp_syn: false,
            src: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            dst: IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
        }
    }

    #[test]
    fn what_is_gathered_has_equal_keys() {
        let here = info(2, 80);
        let others = [info(2, 80), info(2, 443), info(3, 80)];
        let equal = |gather| {
            let key = group_key(gather, &here, 7, 0);
            others.map(|other| group_key(gather, &other, 7, 0) == key)
        };
        assert_eq!(equal(Gather::Flow), [true, false, false]);
        assert_eq!(equal(Gather::Packet), [true, false, false]);
        assert_eq!(equal(Gather::Service), [true, false, false]);
        assert_eq!(equal(Gather::HostPair), [true, true, false]);
        assert_eq!(equal(Gather::Edge), [true, true, true]);
        assert_eq!(group_key(Gather::Flow, &here, 7, 0), here.flow_hash);
        assert_eq!(group_key(Gather::Edge, &here, 7, 5), 5);
    }

    #[test]
    fn a_service_is_of_all_its_clients_and_a_host_pair_of_all_its_ports() {
        let here = info(2, 80);
        let other_client = PacketInfo { src_port: 50_000, flow_hash: 1, ..here };
        let from_elsewhere =
            PacketInfo { src: IpAddr::V4(Ipv4Addr::new(10, 0, 9, 9)), flow_hash: 2, ..here };
        let same = |gather, other: &PacketInfo| {
            group_key(gather, &here, 7, 0) == group_key(gather, other, 7, 0)
        };
        assert!(same(Gather::Service, &other_client) && same(Gather::Service, &from_elsewhere));
        assert!(same(Gather::HostPair, &other_client) && !same(Gather::HostPair, &from_elsewhere));
        // Fragments have no ports: those of one service are all of one group.
        let [first, next] = [80, 0].map(|dst_port| PacketInfo { fragment: true, dst_port, ..here });
        let key = |info| group_key(Gather::Service, info, 7, 0);
        assert_eq!(key(&first), key(&next));
    }

    #[test]
    fn keys_differ_for_every_seed() {
        let here = info(2, 80);
        for gather in [Gather::Service, Gather::HostPair] {
            assert_ne!(group_key(gather, &here, 7, 0), group_key(gather, &here, 8, 0));
        }
    }
}
