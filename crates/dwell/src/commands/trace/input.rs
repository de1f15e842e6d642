//! Readers of captures that count how much has been read.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::survey::Surveyed;

/// The name that stands for standard input.
pub(super) const STDIN: &str = "-";

/// A reader that counts bytes before they are unpacked.
pub(super) struct Source {
    inner: Box<dyn Read + Send>,
    read_bytes: Arc<AtomicU64>,
}

impl Source {
    /// Opens a capture; what is read of it is added to `read_bytes`.
    pub(super) fn open(capture: &mut Surveyed, read_bytes: &Arc<AtomicU64>) -> io::Result<Self> {
        Ok(Self { inner: capture.open()?, read_bytes: Arc::clone(read_bytes) })
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
