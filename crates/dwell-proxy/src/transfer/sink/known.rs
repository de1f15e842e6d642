//! The memory for what is known of entries while others come.

use super::SinkError;

/// There is so much at least: for a million entries that are compared with what is there of an earlier time.
const KNOWN_BYTES_MIN: usize = 64 << 20;
/// What is held of a root beside its name, and how often that is: in tables, and when roots get their names.
const ROOT_BYTES: usize = 768;
const ROOT_NAMES: usize = 6;
/// What is held of a file with several names beside its path, and of an entry that has come. A table has room for more than
/// twice of what is in it, and while it grows there is the smaller one, too.
const LINKED_BYTES: usize = 192;
const SEEN_BYTES: usize = 64;

/// The room that is left for it.
#[derive(Debug)]
pub(super) struct Known {
    left: usize,
}

impl Known {
    /// Makes room for as much as there is for what repeats.
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self { left: usize::try_from(memory_bytes).unwrap_or(usize::MAX).max(KNOWN_BYTES_MIN) }
    }

    /// Another root comes.
    ///
    /// # Errors
    /// There is no room for it, which is said.
    pub(super) fn root(&mut self, name: &[u8]) -> Result<(), SinkError> {
        let why = "more things are sent side by side than --memory-max leaves room for: raise it, or send the directory \
                   that they are in";
        let has_room = self.take(ROOT_BYTES + ROOT_NAMES * name.len());
        if has_room { Ok(()) } else { Err(SinkError::Refused(why.to_owned())) }
    }

    /// Another entry has come where something is of an earlier time.
    ///
    /// # Errors
    /// The same.
    pub(super) fn seen(&mut self) -> Result<(), SinkError> {
        let why = "there is something of a transfer that broke off, and more entries come than --memory-max leaves room \
                   to compare with it: raise it, or remove what is there, and send again";
        if self.take(SEEN_BYTES) { Ok(()) } else { Err(SinkError::Refused(why.to_owned())) }
    }

    /// A file with several names has come. Returns false if there is no room for it.
    pub(super) fn linked(&mut self, path: &[u8]) -> bool {
        self.take(LINKED_BYTES + path.len())
    }

    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// What is remembered of an entry that has come: half of a hash tells them apart.
pub(super) fn mark(path: &[u8]) -> [u8; 16] {
    let mut mark = [0; 16];
    mark.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_entries_fit_into_the_least_memory_and_no_endless_number() {
        let mut known = Known::new(0);
        assert!((0..1_000_000).all(|_| known.seen().is_ok()));
        let more = (0..100_000).filter(|_| known.seen().is_ok()).count();
        assert!(more < 100_000 && !known.linked(&[0; 4000]));
        assert!(matches!(known.root(b"name"), Err(SinkError::Refused(_))));
        // As much again as the memory.
        let mut known = Known::new(256 << 20);
        assert!((0..4_000_000).all(|_| known.seen().is_ok()));
    }
}
