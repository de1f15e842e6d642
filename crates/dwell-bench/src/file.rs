//! A file whose bytes are sent.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dwell_cli::terminal;
use serde::{Deserialize, Serialize};

/// What is behind so many bytes of a file is not read.
const BYTES_MAX: u64 = 256 << 20;
/// The longest memory of those that take part: the window of `zstd --adapt`. A file that is not longer
/// and begins again is found in it.
const MEMORY_BYTES: u64 = 8 << 20;

/// A file as records name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NamedFile {
    pub(super) name: String,
    /// The bytes of it that are sent before it begins again.
    pub(super) bytes: u64,
}

impl NamedFile {
    /// Looks at a file without reading it.
    ///
    /// # Errors
    /// If it is not there, is no file, or is empty.
    pub(super) fn at(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let found = path.metadata().with_context(|| format!("{shown} can't be read"))?;
        ensure!(found.is_file(), "{shown} is no file");
        ensure!(found.len() > 0, "{shown} is empty");
        Ok(Self { name: name(path), bytes: found.len().min(BYTES_MAX) })
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it can't be read, or has another length meanwhile.
    pub(super) fn read(&self, path: &Path) -> anyhow::Result<Arc<Vec<u8>>> {
        if self.bytes <= MEMORY_BYTES {
            terminal::note(&format!(
                "{} begins again after {} bytes: who remembers {} MiB sends it once",
                self.name,
                self.bytes,
                MEMORY_BYTES >> 20
            ));
        }
        let shown = path.display();
        let mut body = Vec::new();
        File::open(path)
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut body))
            .with_context(|| format!("{shown} can't be read"))?;
        ensure!(body.len() as u64 == self.bytes, "{shown} changes meanwhile");
        Ok(Arc::new(body))
    }
}

/// Returns the name of a file without its directory.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_name_and_length() {
        let path = std::env::temp_dir().join(format!("dwell-file-{}", std::process::id()));
        std::fs::write(&path, "abc").unwrap();
        let named = NamedFile::at(&path).unwrap();
        assert_eq!((named.name.as_str(), named.bytes), (name(&path).as_str(), 3));
        assert_eq!(*named.read(&path).unwrap(), b"abc");
        std::fs::write(&path, "abcd").unwrap();
        assert!(named.read(&path).is_err());
        std::fs::write(&path, "").unwrap();
        assert!(NamedFile::at(&path).unwrap_err().to_string().contains("is empty"));
        std::fs::remove_file(&path).unwrap();
        assert!(NamedFile::at(&path).is_err());
        assert!(NamedFile::at(&std::env::temp_dir()).is_err());
    }
}
