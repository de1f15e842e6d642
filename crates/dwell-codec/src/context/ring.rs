//! The plaintext that went through a context, as much of it as is remembered.

use super::Base;

/// The last bytes of all that were pushed, each with its offset: the number of bytes before it.
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
}

impl Ring {
    /// Makes an empty ring with room for `1 << log` bytes.
    pub(super) const fn new(log: u8) -> Self {
        Self { log, bytes: Vec::new(), end: 0, len: 0 }
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
        self.len.checked_sub(behind)
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
    pub(super) fn fill(&mut self, bytes: &[u8]) {
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
