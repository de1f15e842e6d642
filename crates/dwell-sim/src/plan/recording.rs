//! Packets with their bytes, as the source of a flow.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Packets at their times, with their bytes: what they become is up to real codecs
/// ([`Contents`](crate::world::Contents)).
#[derive(Clone)]
pub struct Recording {
    times: Arc<[(u64, u32)]>,
    packets: Arc<[Box<[u8]>]>,
    /// Of all that is in it, since a run's key follows from what is shown of a plan.
    digest: u128,
}

impl Recording {
    /// Makes a recording of times in nanoseconds and IP packets. One that is earlier than the one before it counts as
    /// simultaneous, as in replays.
    pub fn new(packets: impl IntoIterator<Item = (u64, Box<[u8]>)>) -> Self {
        let (mut times, mut bytes, mut last_ns) = (Vec::new(), Vec::new(), 0);
        let mut hasher = SipHasher24::new();
        for (at_ns, packet) in packets {
            last_ns = at_ns.max(last_ns);
            hasher.write(&last_ns.to_le_bytes());
            hasher.write(&(packet.len() as u64).to_le_bytes());
            hasher.write(&packet);
            times.push((last_ns, packet.len() as u32));
            bytes.push(packet);
        }
        Self { times: times.into(), packets: bytes.into(), digest: hasher.finish128().as_u128() }
    }

    /// Returns times and sizes.
    pub fn times(&self) -> &Arc<[(u64, u32)]> {
        &self.times
    }

    /// Returns each packet with its time.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.times.iter().zip(self.packets.iter()).map(|(&(at_ns, _), packet)| (at_ns, &**packet))
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
        let shown = |packets: &[(u64, &[u8])]| {
            let packets = packets.iter().map(|&(at_ns, bytes)| (at_ns, bytes.into()));
            format!("{:?}", Recording::new(packets))
        };
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
