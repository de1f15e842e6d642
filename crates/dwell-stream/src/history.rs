//! What came last, for blocks that refer to it.

use dwell_codec::HISTORY_LEN_MAX;

use crate::config::BLOCK_LEN_MAX;

/// Beyond this length the oldest bytes are moved out.
const LEN_MAX: usize = HISTORY_LEN_MAX + BLOCK_LEN_MAX;

/// The end of what was kept without a gap, and where in the stream that is. At most 192 KiB.
#[derive(Debug, Default)]
pub(crate) struct History {
    bytes: Vec<u8>,
    /// Where in the stream the last byte is followed by the next.
    end: u64,
}

impl History {
    /// Adds the data that begin at `start`. If they begin with what is already known, the rest of
    /// them; if they do not follow what is known, that is forgotten.
    pub(crate) fn keep(&mut self, start: u64, data: &[u8]) {
        let known = self.end.checked_sub(start).and_then(|known| usize::try_from(known).ok());
        let known = known.filter(|&known| known <= data.len().min(self.bytes.len()));
        let new = match known {
            Some(known) => &data[known..],
            None => {
                self.bytes.clear();
                data
            }
        };
        let excess = (self.bytes.len() + new.len()).saturating_sub(LEN_MAX);
        if excess > 0 {
            let kept = HISTORY_LEN_MAX.saturating_sub(new.len()).min(self.bytes.len());
            self.bytes.drain(..self.bytes.len() - kept);
        }
        let wanted = self.bytes.len() + new.len();
        if wanted > self.bytes.capacity() {
            // Not more than there will ever be, as doubling might.
            let capacity = (2 * wanted).min(LEN_MAX);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(new);
        self.end = start + data.len() as u64;
    }

    /// Forgets everything, and gives the memory back.
    pub(crate) fn forget(&mut self) {
        self.bytes = Vec::new();
    }

    /// What is known of the bytes before `start`.
    pub(crate) fn before(&self, start: u64) -> &[u8] {
        let after = self.end.checked_sub(start).and_then(|len| usize::try_from(len).ok());
        let len = after.and_then(|after| self.bytes.len().checked_sub(after)).unwrap_or(0);
        &self.bytes[len.saturating_sub(HISTORY_LEN_MAX)..len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is kept, forgotten and kept again: what is known is right, and it is bounded.
        #[test]
        fn what_is_known_is_what_came(
            steps in proptest::collection::vec((1usize..=BLOCK_LEN_MAX, 0usize..6), 1..30),
        ) {
            let stream: Vec<u8> = (0..2 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let (mut history, mut start) = (History::default(), 0);
            let mut kept_from = 0;
            for (len, what) in steps {
                match what {
                    // A block that is not kept.
                    0 => { history.forget(); kept_from = start + len; }
                    // Withdrawn, and longer the second time.
                    1 => {
                        history.keep(start as u64, &stream[start..start + len / 2]);
                        history.keep(start as u64, &stream[start..start + len]);
                    }
                    _ => history.keep(start as u64, &stream[start..start + len]),
                }
                // The block itself may be asked for once more.
                for at in [start, start + len] {
                    let known = history.before(at as u64);
                    prop_assert!(stream[..at].ends_with(known), "at {at}");
                    prop_assert!(known.len() <= HISTORY_LEN_MAX.min(at.saturating_sub(kept_from)));
                }
                start += len;
                let known = history.before(start as u64).len();
                prop_assert_eq!(known, HISTORY_LEN_MAX.min(start - kept_from), "all of it");
                prop_assert!(history.bytes.capacity() <= LEN_MAX);
            }
        }
    }

    #[test]
    fn a_gap_is_no_history() {
        let mut history = History::default();
        assert_eq!(history.before(0), b"");
        history.keep(0, b"abc");
        assert_eq!(history.before(3), b"abc");
        assert_eq!(history.before(2), b"ab");
        assert_eq!(history.before(9), b"", "what is not known yet");
        history.keep(10, b"def");
        assert_eq!(history.before(13), b"def");
        assert_eq!(history.before(10), b"");
        assert_eq!(history.before(3), b"");
    }
}
