//! What each packet of a frame took of the link.

use dwell_policy::{Frame, FrameUnit, PacketId};

/// A packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    pub(super) id: PacketId,
    /// Its length as it came.
    pub(super) original_bytes: u32,
    pub(super) sojourn_ns: u64,
    /// Of packets that share a record or a datagram this is a part, and a byte is too large for what many of
    /// them lose by rounding.
    pub(super) link_bytes: f64,
}

/// Tells of each packet of a frame, and of the unit that it is in. What several packets have together on the link is
/// shared: the frame's `link_bytes` among its units by their bytes as they are sent, a batch among its packets by their
/// bytes as they came.
pub(super) fn shares(frame: &Frame, link_bytes: u64, mut each: impl FnMut(&FrameUnit, Share)) {
    let sum = frame.units.iter().map(|unit| u64::from(unit.bytes)).sum::<u64>().max(1);
    // A batch's packets stand behind its unit, one after another.
    let mut followers = frame.followers.iter();
    for unit in &frame.units {
        let unit_bytes = link_bytes as f64 * f64::from(unit.bytes) / sum as f64;
        let byte_bytes = unit_bytes / f64::from(unit.original_bytes.max(1));
        let mut first_bytes = unit.original_bytes;
        let mut tell = |id, original_bytes: u32, sojourn_ns| {
            let link_bytes = byte_bytes * f64::from(original_bytes);
            each(unit, Share { id, original_bytes, sojourn_ns, link_bytes });
        };
        for packet in followers.by_ref().take(unit.followers as usize) {
            first_bytes = first_bytes.saturating_sub(packet.original_bytes);
            tell(packet.id, packet.original_bytes, packet.sojourn_ns);
        }
        tell(unit.id, first_bytes, unit.sojourn_ns);
    }
}
