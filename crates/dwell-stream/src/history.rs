//! The most recent data, for blocks that refer to them.

use dwell_codec::HISTORY_LEN_MAX;

use crate::config::BLOCK_LEN_MAX;

/// The most that it holds, of which the oldest bytes are overwritten.
const LEN_MAX: usize = HISTORY_LEN_MAX + BLOCK_LEN_MAX;

/// The end of the data without a gap, and its position in the stream. At most 192 KiB.
///
/// Most of what is kept is never referred to, as it went uncompressed because that was sooner. So keeping it costs one copy: beyond
/// `LEN_MAX` it goes on at the beginning of the buffer, and is put in order when somebody asks. As long as somebody asks for each block it
/// stays in order: then the oldest bytes are removed, some at a time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The bytes from `begin` on, and then those before it.
    bytes: Vec<u8>,
    begin: usize,
    /// The position in the stream after the last byte.
    end: u64,
    /// True if somebody has asked since something was added.
    is_asked: bool,
}

impl History {
    /// Adds the data that begin at `start`. If the history already has the first part of them, adds
    /// the rest; if they do not follow the history, it is replaced.
    pub(crate) fn keep(&mut self, start: u64, data: &[u8]) {
        let known = self.end.checked_sub(start).and_then(|known| usize::try_from(known).ok());
        let known = known.filter(|&known| known <= data.len().min(self.bytes.len()));
        let new = match known {
            Some(known) => &data[known..],
            None => {
                self.bytes.clear();
                self.begin = 0;
                data
            }
        };
        let excess = (self.bytes.len() + new.len()).saturating_sub(LEN_MAX);
        if excess > 0 && std::mem::take(&mut self.is_asked) {
            let kept = HISTORY_LEN_MAX.saturating_sub(new.len()).min(self.bytes.len());
            self.bytes.drain(..self.bytes.len() - kept);
        }
        let wanted = (self.bytes.len() + new.len()).min(LEN_MAX);
        if wanted > self.bytes.capacity() {
            // No more than will ever be needed, unlike doubling.
            let capacity = (2 * wanted).min(LEN_MAX);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.append(new);
        self.is_asked = false;
        self.end = start + data.len() as u64;
    }

    /// Adds bytes, in the place of the oldest ones if there would be too many.
    fn append(&mut self, new: &[u8]) {
        let new = &new[new.len().saturating_sub(LEN_MAX)..];
        let (first, second) = new.split_at(new.len().min(LEN_MAX - self.bytes.len()));
        self.bytes.extend_from_slice(first);
        // From here on it is full, if anything is left.
        let (first, second) = second.split_at(second.len().min(LEN_MAX - self.begin));
        self.bytes[self.begin..][..first.len()].copy_from_slice(first);
        self.bytes[..second.len()].copy_from_slice(second);
        self.begin = match second.len() {
            0 => (self.begin + first.len()) % LEN_MAX,
            wrapped => wrapped,
        };
    }

    /// Returns the number of bytes that blocks can refer to.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().min(HISTORY_LEN_MAX)
    }

    /// Returns the bytes of memory that it takes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes the data to come to be those of another stream, whose positions begin at zero.
    pub(crate) fn restart(&mut self) {
        self.end = 0;
    }

    /// Removes everything and frees the memory.
    pub(crate) fn forget(&mut self) {
        (self.bytes, self.begin) = (Vec::new(), 0);
    }

    /// Returns the known bytes before `start`.
    pub(crate) fn before(&mut self, start: u64) -> &[u8] {
        let after = self.end.checked_sub(start).and_then(|len| usize::try_from(len).ok());
        if self.begin > 0 {
            self.bytes.rotate_left(std::mem::take(&mut self.begin));
            let kept = HISTORY_LEN_MAX.saturating_add(after.unwrap_or(0));
            self.bytes.drain(..LEN_MAX.saturating_sub(kept));
        }
        self.is_asked = true;
        let len = after.and_then(|after| self.bytes.len().checked_sub(after)).unwrap_or(0);
        &self.bytes[len.saturating_sub(HISTORY_LEN_MAX)..len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// After any sequence of keeping and forgetting, the history is correct and bounded.
        #[test]
        fn what_is_known_is_what_came(
            steps in proptest::collection::vec((1usize..=BLOCK_LEN_MAX, 0usize..6, proptest::bool::ANY), 1..30),
        ) {
            let stream: Vec<u8> = (0..2 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let (mut history, mut start) = (History::default(), 0);
            let mut kept_from = 0;
            for (len, what, asks) in steps {
                match what {
                    // A block that is not kept.
                    0 => { history.forget(); kept_from = start + len; }
                    // A withdrawn block, which is longer the second time.
                    1 => {
                        history.keep(start as u64, &stream[start..start + len / 2]);
                        history.keep(start as u64, &stream[start..start + len]);
                    }
                    _ => history.keep(start as u64, &stream[start..start + len]),
                }
                // The block itself may be asked for again; or nobody asks for a while.
                for at in [start, start + len].into_iter().filter(|_| asks) {
                    let known = history.before(at as u64);
                    prop_assert!(stream[..at].ends_with(known), "at {at}");
                    prop_assert!(known.len() <= HISTORY_LEN_MAX.min(at.saturating_sub(kept_from)));
                }
                start += len;
                if asks {
                    let known = history.before(start as u64);
                    prop_assert!(stream[..start].ends_with(known));
                    prop_assert_eq!(known.len(), HISTORY_LEN_MAX.min(start - kept_from), "all of it");
                }
                prop_assert_eq!(history.len(), HISTORY_LEN_MAX.min(start - kept_from));
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
