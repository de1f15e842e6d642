//! Packets with their bytes, as the source of a flow.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// A packet with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPacket {
    /// Its time in nanoseconds.
    pub at_ns: u64,
    /// The IP packet.
    pub bytes: Box<[u8]>,
    /// Of a piece of a packet that was cut, the headers of the whole one: they say what flow it is of, which a
    /// fragment's own do not.
    pub whole_headers: Option<Arc<[u8]>>,
}

/// Packets at their times, with their bytes: what they become is up to real codecs
/// ([`Contents`](crate::world::Contents)).
#[derive(Clone)]
pub struct Recording {
    times: Arc<[(u64, u32)]>,
    packets: Arc<[RecordedPacket]>,
    /// Of all that is in it, since a run's key follows from what is shown of a plan.
    digest: u128,
}

impl Recording {
    /// Makes a recording of packets. One that is earlier than the one before it counts as simultaneous, as in replays.
    pub fn new(packets: impl IntoIterator<Item = RecordedPacket>) -> Self {
        let (mut times, mut kept, mut last_ns) = (Vec::new(), Vec::new(), 0);
        let mut hasher = SipHasher24::new();
        let mut add = |bytes: &[u8]| {
            hasher.write(&(bytes.len() as u64).to_le_bytes());
            hasher.write(bytes);
        };
        for packet in packets {
            last_ns = packet.at_ns.max(last_ns);
            add(&last_ns.to_le_bytes());
            add(&packet.bytes);
            add(packet.whole_headers.as_deref().unwrap_or_default());
            times.push((last_ns, packet.bytes.len() as u32));
            kept.push(RecordedPacket { at_ns: last_ns, ..packet });
        }
        Self { times: times.into(), packets: kept.into(), digest: hasher.finish128().as_u128() }
    }

    /// Returns times and sizes.
    pub fn times(&self) -> &Arc<[(u64, u32)]> {
        &self.times
    }

    /// Returns the packets in order.
    pub fn packets(&self) -> &[RecordedPacket] {
        &self.packets
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets {:032x}", self.times.len(), self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_follows_from_times_and_bytes() {
        let packet = |at_ns, bytes: &[u8]| RecordedPacket {
            at_ns,
            bytes: bytes.into(),
            whole_headers: None,
        };
        let shown = |packets: &[(u64, &[u8])]| {
            let packets = packets.iter().map(|&(at_ns, bytes)| packet(at_ns, bytes));
            format!("{:?}", Recording::new(packets))
        };
        let piece = RecordedPacket { whole_headers: Some([7][..].into()), ..packet(5, b"ab") };
        assert_ne!(shown(&[(5, b"ab")]), format!("{:?}", Recording::new([piece])));
        let one = shown(&[(5, b"ab"), (9, b"c")]);
        assert_eq!(one, shown(&[(5, b"ab"), (9, b"c")]));
        for other in
            [[(5, &b"ab"[..]), (8, &b"c"[..])], [(5, b"a"), (9, b"bc")], [(5, b"ab"), (9, b"d")]]
        {
            assert_ne!(one, shown(&other));
        }
        assert_eq!(shown(&[(5, b"a"), (3, b"b")]), shown(&[(5, b"a"), (5, b"b")]));
    }
}
