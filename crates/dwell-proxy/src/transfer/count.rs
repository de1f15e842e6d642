//! How far the thread is that reads or writes, for those who show it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of files that have passed, and those of them that were there already.
#[derive(Debug, Default)]
pub(super) struct Count {
    bytes: AtomicU64,
    reused: AtomicU64,
}

impl Count {
    /// So many bytes were sent, or came.
    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were there already.
    pub(super) fn reused(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.reused.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All bytes, and those that were there already.
    pub(super) fn get(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.reused.load(Ordering::Relaxed))
    }
}
