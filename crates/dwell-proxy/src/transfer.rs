//! A file, or what comes through a pipe, from one machine to another.
//!
//! The receiver listens, the sender connects and offers; then comes one stream, and after it the
//! length and SHA-256 of what was read. Only when the receiver has found them in what it wrote,
//! and has put that where it belongs, it says so, and only then the sender is content.

mod key;
mod output;
mod part;
mod receive;
mod send;

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use key::{OneTimeKey, OneTimeKeyError};
pub use output::{Output, Place};
pub use part::{Stale, remove_stale};
pub use receive::{Receive, receive};
pub use send::{Send, send};

use crate::carrier::CarrierError;
use crate::engine::RunError;
use crate::security::SecurityError;
use dwell_stream::StreamError;

/// The port that a receiver listens at if none is named.
pub const FILE_PORT: u16 = 7735;

/// Read and written at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces between the thread that reads or writes and the one that sends or receives.
const PIECES_MAX: usize = 8;
/// The progress is reported this often.
const TELL: Duration = Duration::from_millis(200);

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of the file that have passed.
    pub bytes: u64,
    /// Bytes that these were on the connection, headers included, TLS not.
    pub link_bytes: u64,
    /// The length of the file, if it is known.
    pub total: Option<u64>,
    /// The elapsed time.
    pub elapsed: Duration,
}

/// The summary of a transfer.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file's name at the receiver; empty for a pipe.
    pub name: String,
    /// The progress at the end.
    pub progress: Progress,
    /// SHA-256 of the file.
    pub sha256: [u8; 32],
}

/// Why a file did not come across. Nothing of it is left at the receiver; unless its sender was cut
/// off just when it would have been notified that all is well.
#[derive(Debug, Error)]
pub enum TransferError {
    /// Keys or certificates.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Threads, or a place to listen.
    #[error(transparent)]
    Run(#[from] RunError),
    /// No connection.
    #[error("{to} can't be reached: {why}")]
    Connect {
        /// The address.
        to: String,
        /// Why.
        why: String,
    },
    /// The other end has another key.
    #[error(
        "{to} has another key: use the one that `dwell recv` printed there last, or give both ends \
         the same --psk file"
    )]
    OtherKey {
        /// The address.
        to: String,
    },
    /// The connection failed.
    #[error("the connection to the other end failed: {0}")]
    Connection(String),
    /// The received data is damaged.
    #[error("what came is damaged: {0}")]
    Damaged(StreamError),
    /// The written bytes are not those that were read.
    #[error("what arrived differs from what was sent: its length or its SHA-256 is another one")]
    Differs,
    /// The source can't be read.
    #[error("{what} can't be read: {error}")]
    Read {
        /// The file or action.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// The destination can't be written.
    #[error("{what} can't be written: {error}")]
    Write {
        /// The file or action.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// The receiver says no.
    #[error("the receiver gave up: {0}")]
    Refused(String),
    /// Somebody stopped it.
    #[error("interrupted")]
    Interrupted,
}

impl From<CarrierError> for TransferError {
    fn from(error: CarrierError) -> Self {
        Self::Connection(error.to_string())
    }
}

/// Counts towards a [`Progress`], and reports it now and then.
struct Meter<F> {
    start: Instant,
    reported: Instant,
    total: Option<u64>,
    on_progress: F,
}

impl<F: FnMut(&Progress)> Meter<F> {
    fn new(total: Option<u64>, on_progress: F) -> Self {
        let start = Instant::now();
        Self { start, reported: start, total, on_progress }
    }

    fn at(&self, bytes: u64, link_bytes: u64) -> Progress {
        Progress { bytes, link_bytes, total: self.total, elapsed: self.start.elapsed() }
    }

    fn moved(&mut self, bytes: u64, link_bytes: u64) {
        if self.reported.elapsed() >= TELL {
            self.reported = Instant::now();
            let progress = self.at(bytes, link_bytes);
            (self.on_progress)(&progress);
        }
    }
}
