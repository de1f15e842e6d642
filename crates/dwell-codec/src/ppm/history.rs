//! The last bytes that a model has learned.

/// The last bytes of all that were pushed.
pub(super) struct History {
    /// As long as the history can be.
    bytes: Vec<u8>,
    /// Where the next byte goes.
    at: usize,
    len: usize,
}

impl History {
    pub(super) fn new(size: usize) -> Self {
        Self { bytes: vec![0; size], at: 0, len: 0 }
    }

    /// Forgets all, and can be so long from now on.
    pub(super) fn renew(&mut self, size: usize) {
        if self.bytes.len() != size {
            self.bytes = vec![0; size];
        }
        self.clear();
    }

    pub(super) fn clear(&mut self) {
        (self.at, self.len) = (0, 0);
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let size = self.bytes.len();
        let bytes = &bytes[bytes.len().saturating_sub(size)..];
        let (now, later) = bytes.split_at(bytes.len().min(size - self.at));
        self.bytes[self.at..][..now.len()].copy_from_slice(now);
        self.bytes[..later.len()].copy_from_slice(later);
        if size > 0 {
            self.at = (self.at + bytes.len()) % size;
        }
        self.len = (self.len + bytes.len()).min(size);
    }

    /// Returns the bytes, the oldest first, in two parts.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let from = self.at as isize - self.len as isize;
        match usize::try_from(from) {
            Ok(from) => [&self.bytes[from..self.at], &[]],
            Err(_) => {
                let before = self.len - self.at;
                [&self.bytes[self.bytes.len() - before..], &self.bytes[..self.at]]
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_there_in_their_order() {
        for size in [1, 2, 7, 16] {
            let (mut history, mut all) = (History::new(size), Vec::<u8>::new());
            for len in (0..40).map(|step| step * 7 % 19) {
                let bytes: Vec<u8> = (0..len).map(|at| (at + all.len()) as u8).collect();
                history.push(&bytes);
                all.extend(&bytes);
                let expected = &all[all.len().saturating_sub(size)..];
                assert_eq!(history.parts().concat(), expected);
            }
            history.clear();
            assert!(history.parts().concat().is_empty());
        }
    }
}
