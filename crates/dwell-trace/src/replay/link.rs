//! The link that packets are replayed over, and what packets take on it at most and at least.

use dwell_base::Rate;
use dwell_wire::PacketInfo;

pub use dwell_drive::link::{Link, PATH_MTU_MIN};

/// An Ethernet, whatever its rate.
fn ethernet() -> Link {
    Link::ethernet(Rate::from_mbps(1))
}

/// Returns the bytes of a packet on an Ethernet without relays, cut as its sender would if it is
/// too long.
pub fn bare_bytes(info: &PacketInfo) -> u64 {
    let (bytes, header) = (info.total_len as u64, u64::from(info.header_len).min(120));
    let link = ethernet();
    let mtu = u64::from(link.path_mtu);
    let pieces = match bytes <= mtu {
        true => 1,
        false => (bytes - header).div_ceil(mtu - header),
    };
    bytes + (pieces - 1) * header + pieces * u64::from(link.overhead_bytes)
}

/// Returns the least bytes on an Ethernet if relays send `bytes` bytes: in datagrams that are full,
/// in the clear, over IPv4, without any overhead of records.
pub fn least_bytes(bytes: u64) -> u64 {
    let frames = Link { sealed: false, ..ethernet() }.relay_frames(false);
    bytes + bytes.div_ceil(u64::from(frames.units_bytes_max)) * u64::from(frames.frame_bytes)
}
