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
