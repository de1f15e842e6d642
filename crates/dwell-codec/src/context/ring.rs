//! The plaintext that went through a context, as much of it as is remembered.

use super::Base;

/// The last bytes of all that were pushed, each with its offset: the number of bytes before it.
///
/// Bytes may also come before those that they stand behind: there are holes then. The end is where the
/// first hole begins, and what is beyond it is not known as a base.
///
/// Memory is allocated as bytes come, up to the size.
#[derive(Debug)]
pub(super) struct Ring {
    log: u8,
    /// The byte with the offset *o* is at *o* modulo the size. Until the first time round, it is
    /// as long as the highest offset ever.
    bytes: Vec<u8>,
    end: u64,
    len: usize,
    /// What has come beyond the end: ranges with a hole before each, in order.
    ahead: Vec<(u64, u64)>,
}

/// Holes in what has come. Of more, so much is missing that it is not worth waiting for.
const HOLES_MAX: usize = 256;

impl Ring {
    /// Makes an empty ring with room for `1 << log` bytes.
    pub(super) const fn new(log: u8) -> Self {
        Self { log, bytes: Vec::new(), end: 0, len: 0, ahead: Vec::new() }
    }

    pub(super) const fn log(&self) -> u8 {
        self.log
    }

    const fn size(&self) -> usize {
        1 << self.log
    }

    fn position(&self, offset: u64) -> usize {
        (offset % self.size() as u64) as usize
    }

    /// Returns the offset of the next byte.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes before `offset` that are still there; none if the offset is not.
    pub(super) fn len_before(&self, offset: u64) -> Option<usize> {
        let behind = usize::try_from(self.end.checked_sub(offset)?).ok()?;
        // What came ahead has taken the place of the oldest.
        let ahead = self.ahead.last().map_or(0, |last| (last.1 - self.end) as usize);
        self.len.min(self.size() - ahead).checked_sub(behind)
    }

    /// Returns true if something is missing before what has come.
    pub(super) fn has_holes(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Returns true if a generation can begin from this base: all its bytes are there.
    pub(super) fn has(&self, base: Base) -> bool {
        let is_there = self.len_before(base.offset).is_some_and(|len| base.len as usize <= len);
        is_there || base == Base::default()
    }

    /// Forgets what came after the base, which must be there.
    pub(super) fn cut(&mut self, base: Base) {
        self.len = self.len_before(base.offset).unwrap_or(0);
        self.end = base.offset;
        self.ahead.clear();
    }

    /// Appends the bytes of a base, which must be there.
    pub(super) fn read(&self, base: Base, out: &mut Vec<u8>) {
        let len = base.len as usize;
        let from = self.position(base.offset.wrapping_sub(u64::from(base.len)));
        let first = len.min(self.size() - from);
        out.reserve_exact(len);
        out.extend_from_slice(&self.bytes[from..from + first]);
        out.extend_from_slice(&self.bytes[..len - first]);
    }

    /// Forgets all, and takes these bytes as the first that were pushed.
    pub(super) fn begin_with(&mut self, bytes: &[u8]) {
        self.cut(Base::default());
        self.push(bytes);
    }

    /// Appends bytes; the oldest make room for them.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = self.position(self.end);
            let (now, later) = bytes.split_at(bytes.len().min(self.size() - at));
            let known = now.len().min(self.bytes.len() - at);
            self.bytes[at..at + known].copy_from_slice(&now[..known]);
            self.grow(at + now.len());
            self.bytes.extend_from_slice(&now[known..]);
            self.end += now.len() as u64;
            self.len = (self.len + now.len()).min(self.size());
            bytes = later;
        }
    }

    /// Puts bytes where they belong, at the end or beyond it; what is before the end is known, and
    /// stays. False if that is too far ahead, or leaves too many holes.
    pub(super) fn fill(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(until) = offset.checked_add(bytes.len() as u64) else { return false };
        if offset < self.end || bytes.is_empty() {
            return true;
        }
        if until - self.end > self.size() as u64 {
            return false;
        }
        let at = self.ahead.partition_point(|range| range.1 < offset);
        let touched = self.ahead[at..].iter().take_while(|range| range.0 <= until).count();
        if touched == 0 && offset > self.end && self.ahead.len() == HOLES_MAX {
            return false;
        }
        let range = self.ahead[at..at + touched]
            .iter()
            .fold((offset, until), |all, it| (all.0.min(it.0), all.1.max(it.1)));
        self.write(offset, bytes);
        self.ahead.splice(at..at + touched, [range]);
        if self.ahead[0].0 == self.end {
            let (_, end) = self.ahead.remove(0);
            self.len = (self.len + (end - self.end) as usize).min(self.size());
            self.end = end;
        }
        true
    }

    /// Writes bytes to their places, with zeros before them where nothing has come yet.
    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = self.position(offset);
            let (now, later) = bytes.split_at(bytes.len().min(self.size() - at));
            let until = at + now.len();
            if self.bytes.len() < until {
                self.grow(until);
                self.bytes.resize(until, 0);
            }
            self.bytes[at..until].copy_from_slice(now);
            (offset, bytes) = (offset + now.len() as u64, later);
        }
    }

    /// Makes room for `len` bytes, at most the size: twice as much each time, but no more than that.
    fn grow(&mut self, len: usize) {
        if len > self.bytes.capacity() {
            let wanted = len.next_power_of_two().min(self.size());
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(ring: &Ring, base: Base) -> Vec<u8> {
        let mut out = Vec::new();
        ring.read(base, &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Against a list of all bytes, of which some are forgotten.
        #[test]
        fn what_is_there_is_right(
            ops in prop::collection::vec((0usize..150_000, any::<u8>(), 0u64..200_000), 1..12),
        ) {
            let mut ring = Ring::new(15);
            let (mut all, mut known) = (Vec::<u8>::new(), 0);
            for (len, fill, back) in ops {
                let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(fill)).collect();
                ring.push(&bytes);
                all.extend(&bytes);
                known = (known + len).min(1 << 15);
                let offset = (all.len() as u64).saturating_sub(back);
                let left = (known as u64).checked_sub(all.len() as u64 - offset);
                prop_assert_eq!(ring.len_before(offset), left.map(|left| left as usize));
                if let Some(left) = left {
                    let base = Base { offset, len: left as u32 };
                    prop_assert!(ring.has(base));
                    let bytes = &all[(offset - left) as usize..offset as usize];
                    prop_assert_eq!(&read(&ring, base), bytes);
                    let too_long = Base { offset, len: left as u32 + 1 };
                    prop_assert!(!ring.has(too_long));
                    ring.cut(base);
                    all.truncate(offset as usize);
                    known = left as usize;
                } else {
                    let has = ring.has(Base { offset, len: 0 });
                    prop_assert_eq!(has, offset == 0);
                }
                prop_assert_eq!(ring.end(), all.len() as u64);
                prop_assert!(ring.memory_bytes() <= 1 << 15);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Pieces that come in any order, or not at all: what is known is what was sent.
        #[test]
        fn what_comes_in_any_order_is_right(
            pieces in prop::collection::vec((1usize..9_000, any::<u32>(), 0u8..20), 1..60),
        ) {
            let all: Vec<u8> = (0..600_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut ring = Ring::new(16);
            let (mut at, mut sent) = (0, Vec::new());
            for &(len, order, lost) in &pieces {
                sent.push((order % 8 + at as u32 / 9_000, at, len, lost == 0));
                at += len;
            }
            sent.sort_unstable();
            let (mut came, mut highest) = (std::collections::BTreeMap::new(), 0);
            for (_, at, len, is_lost) in sent {
                if is_lost || at + len > ring.end() as usize + (1 << 16) {
                    continue;
                }
                prop_assert!(ring.fill(at as u64, &all[at..at + len]));
                came.insert(at, len);
                highest = highest.max(at + len);
                let mut end = 0;
                while let Some(len) = came.get(&end) {
                    end += len;
                }
                prop_assert_eq!(ring.end(), end as u64);
                prop_assert_eq!(ring.has_holes(), highest > end);
                let known = end.saturating_sub(highest.saturating_sub(1 << 16));
                prop_assert_eq!(ring.len_before(end as u64), Some(known));
                let base = Base { offset: end as u64, len: known as u32 };
                prop_assert_eq!(&read(&ring, base)[..], &all[end - known..end]);
                prop_assert!(ring.memory_bytes() <= 1 << 16);
            }
            // What was pushed behind it is as good.
            let end = ring.end();
            let base = Base { offset: end, len: 0 };
            ring.cut(base);
            prop_assert!(!ring.has_holes());
            ring.push(&all[..100]);
            prop_assert_eq!(&read(&ring, Base { offset: end + 100, len: 100 })[..], &all[..100]);
        }
    }

    #[test]
    fn holes_are_bounded_and_so_is_the_reach() {
        let mut ring = Ring::new(15);
        assert!(ring.fill(1, &[1]) && ring.has_holes());
        assert!(!ring.fill(1 << 15, &[1]), "it is beyond the ring");
        assert!(!ring.fill(u64::MAX, &[1]));
        for hole in 1..HOLES_MAX as u64 {
            assert!(ring.fill(1 + 2 * hole, &[1]));
        }
        assert!(!ring.fill(1 + 2 * HOLES_MAX as u64, &[1]), "there are too many");
        assert!(ring.fill(2, &[1, 1, 1]), "those that are there can be filled");
        assert_eq!(ring.end(), 0);
        assert!(ring.fill(0, &[1]));
        assert_eq!(ring.end(), 6);
        assert!(ring.fill(0, &[9]), "what is known stays");
        assert_eq!(read(&ring, Base { offset: 6, len: 6 }), [1; 6]);
    }

    #[test]
    fn nothing_is_there_that_never_was() {
        let mut ring = Ring::new(15);
        assert_eq!(ring.memory_bytes(), 0);
        for base in [(1, 0), (1, 1), (0, 1), (u64::MAX, 0), (u64::MAX, u32::MAX)] {
            assert!(!ring.has(Base { offset: base.0, len: base.1 }), "{base:?}");
        }
        ring.push(&[7; 100_000]);
        assert!(ring.has(Base::default()), "a cold start is always possible");
        ring.cut(Base::default());
        assert_eq!((ring.end(), ring.len_before(0), ring.len_before(1)), (0, Some(0), None));
    }
}
