//! Keys that nobody else may know, and why one can't be had from a file.

pub use dwell_base::Secret;
use dwell_base::secret::SecretFormatError;
use thiserror::Error;

/// Why a secret could not be had.
#[derive(Debug, Error)]
pub enum ReadSecretError {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Others than its owner may read it.
    #[error("others may read it (mode {mode:04o}): run `chmod 600 {path}`", path = .path.display())]
    Exposed {
        /// The file.
        path: std::path::PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no key.
    #[error(transparent)]
    Format(#[from] SecretFormatError),
}
