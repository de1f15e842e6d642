//! Opening captures, and how far they are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is read, counted while it is packed still.
pub(super) struct Source {
    inner: Box<dyn Read + Send>,
    read_bytes: Arc<AtomicU64>,
}

/// The name that stands for standard input.
pub(super) const STDIN: &str = "-";

impl Source {
    /// Opens a file, or standard input; what is read of it is added to `read_bytes`.
    pub(super) fn open(path: &Path, read_bytes: &Arc<AtomicU64>) -> io::Result<Self> {
        let inner: Box<dyn Read + Send> = match path.as_os_str() == STDIN {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(path)?),
        };
        Ok(Self { inner, read_bytes: Arc::clone(read_bytes) })
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// How many bytes there are to read, if that is known: standard input and pipes have no length.
pub(super) fn bytes_of(paths: &[std::path::PathBuf]) -> Option<u64> {
    paths
        .iter()
        .map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            metadata.is_file().then_some(metadata.len())
        })
        .sum()
}
