//! All packets that are anywhere in the network.

/// Not a packet: the end of a chain, or nothing in its place.
pub(crate) const NONE: u32 = u32::MAX;

/// A packet, or the first of a compressed unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The time at which its source sent its first bit.
    pub sent_ns: u64,
    /// Bytes on the wire now; for a unit of several packets, of the whole unit.
    pub bytes: u32,
    /// Bytes at its source.
    pub original_bytes: u32,
    /// Its flow.
    pub flow: u32,
    /// For TCP: the number of the segment and if it is [marked](Self::mark), or the place of the
    /// acknowledgement's contents. For other sources: its number.
    pub detail: u32,
    /// The next packet of its unit, or [`NONE`]. Free places are chained by it too.
    pub next: u32,
    /// The link whose port compressed it, if any did.
    pub compressor: u16,
    /// Its place on its route.
    pub hop: u8,
    /// True if it is on the path back.
    pub back: bool,
}

/// The mark of a segment, beside its number.
const MARKED: u32 = 1 << 31;

/// The value of [`Packet::compressor`] for a packet that is not compressed.
pub(crate) const UNCOMPRESSED: u16 = u16::MAX;

impl Packet {
    /// Marks a segment: a queue on its path was congested.
    pub(crate) fn mark(&mut self) {
        self.detail |= MARKED;
    }

    /// Returns true if a segment is marked.
    pub(crate) fn is_marked(&self) -> bool {
        self.detail & MARKED != 0
    }

    /// Returns the number of a segment.
    pub(crate) fn segment(&self) -> u64 {
        u64::from(self.detail & !MARKED)
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.compressor != UNCOMPRESSED
    }
}

/// The packets, by number; numbers are reused.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    slots: Vec<Packet>,
    free: Option<u32>,
    live: u64,
}

impl Packets {
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet) -> u32 {
        self.live += 1;
        match self.free {
            Some(id) => {
                let next = self.slots[id as usize].next;
                self.free = (next != NONE).then_some(next);
                self.slots[id as usize] = packet;
                id
            }
            None => {
                self.slots.push(packet);
                (self.slots.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Packet {
        let packet = self.slots[id as usize];
        self.slots[id as usize].next = self.free.unwrap_or(NONE);
        self.free = Some(id);
        self.live -= 1;
        packet
    }

    pub(crate) fn live(&self) -> u64 {
        self.live
    }
}

impl std::ops::Index<u32> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, id: u32) -> &Packet {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Packets {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.slots[id as usize]
    }
}
