//! The packets between the endpoints.

/// The most blocks that a receiver reports.
pub const SACK_BLOCKS_MAX: usize = 3;

/// The size of a block in an acknowledgement: two sequence numbers of 4 bytes.
pub const SACK_BLOCK_BYTES: u32 = 8;

/// The window of a receiver whose program reads at once.
pub const WINDOW_WHOLE: u32 = u32::MAX;

/// A packet of data that the sender wants sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number; the first packet of a connection is 0.
    pub seq: u64,
    /// Its size on the wire.
    pub bytes: u32,
    /// True if it was sent before.
    pub retransmission: bool,
}

/// Packets that arrived beyond a gap: `[start, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first packet.
    pub start: u64,
    /// One past the last packet.
    pub end: u64,
}

impl SackBlock {
    /// Returns true if all of `other` is in `self`.
    pub(super) fn covers(self, other: Self) -> bool {
        self.start <= other.start && self.end >= other.end
    }
}

/// An acknowledgement. Many are in flight at a time: 56 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The next packet that the receiver waits for; all before it have arrived.
    pub cumulative: u64,
    /// The time at which the answered packet was sent, as RFC 7323 says: a time stamp that can't be
    /// confused with that of another transmission.
    pub echo_ns: u64,
    /// Its size on the wire.
    pub bytes: u32,
    /// The packets from `cumulative` on for which the receiver has room; [`WINDOW_WHOLE`]: as many as its
    /// buffer holds.
    pub window: u32,
    /// True if a packet that it answers was marked.
    pub ecn_echo: bool,
    blocks_len: u8,
    /// Start and end of each block, counted from `cumulative`.
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
}

impl Ack {
    /// An acknowledgement without blocks.
    pub const fn new(cumulative: u64, echo_ns: u64, bytes: u32) -> Self {
        let blocks = [(0, 0); SACK_BLOCKS_MAX];
        let window = WINDOW_WHOLE;
        Self { cumulative, echo_ns, bytes, window, ecn_echo: false, blocks_len: 0, blocks }
    }

    /// Adds a block and its bytes. A block that does not lie beyond `cumulative`, lies
    /// 2^32 packets beyond it, or is one too many, is left out.
    pub fn push(&mut self, block: SackBlock) {
        let from_here = |seq: u64| u32::try_from(seq.checked_sub(self.cumulative)?).ok();
        let (Some(start), Some(end)) = (from_here(block.start), from_here(block.end)) else {
            return;
        };
        if let Some(slot) = self.blocks.get_mut(self.blocks_len as usize) {
            *slot = (start, end);
            self.blocks_len += 1;
            self.bytes += SACK_BLOCK_BYTES;
        }
    }

    /// The blocks, the most recent first.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = SackBlock> + '_ {
        self.blocks[..self.blocks_len as usize].iter().map(|&(start, end)| SackBlock {
            start: self.cumulative + u64::from(start),
            end: self.cumulative + u64::from(end),
        })
    }
}
