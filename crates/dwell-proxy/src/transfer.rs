//! Files and directories, or what comes through a pipe, from one machine to another.
//!
//! The receiver listens, the sender connects and offers. Then comes one stream of records (`record`): a thread
//! of the sender reads files and makes them (`source`), one of the receiver makes files of them (`sink`). What the
//! receiver has already it says by the hashes of its blocks (`blocks`), and only the others are sent; so a transfer
//! that broke off is gone on with. Each file gets its name when it is complete and its BLAKE3 is that of what was
//! read; a tree gets its name when all of it is there. Then the receiver says so, and only then the sender is content.

mod blocks;
mod code;
mod count;
mod early;
mod entry;
mod key;
mod part;
mod place;
mod receive;
mod record;
mod repeats;
mod send;
mod sink;
mod source;
mod tree;

use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use blocks::Have;
pub use code::{Code, CodeError};
pub use key::{OneTimeKey, OneTimeKeyError};
pub use place::{Existing, Offer, Place};
pub use receive::{Event, Receive, receive};
#[doc(hidden)]
pub use record::read_again;
pub use send::{Send, send};
pub use sink::Kept;
pub use source::Source;

use crate::carrier::CarrierError;
use crate::engine::RunError;
use crate::hello::HelloError;
use crate::security::SecurityError;
use dwell_codec::{CONTEXT_LOG_MAX, CONTEXT_LOG_MIN, ContextSpec};
use dwell_stream::{Config, Strategy, StreamError};

/// The port that a receiver listens at if none is named.
pub const FILE_PORT: u16 = 7735;

/// Received at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces between the thread that reads or writes and the one that sends or receives.
const PIECES_MAX: usize = 8;
/// The progress is reported this often.
const TELL: Duration = Duration::from_millis(200);
/// An offer, and what is said to it, come sooner than that; and so does whatever a receiver says next. Whoever reads
/// what arrives may take any time: the receiver goes on to say that it is there.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A receiver says this often that it is there, whatever it is busy with: a sender that hears nothing for
/// [`SILENCE_MAX`] gives up.
const PULSE: Duration = Duration::from_secs(15);

/// The progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes of files that have passed, or were there.
    pub bytes: u64,
    /// Those of them that were there already.
    pub reused_bytes: u64,
    /// Bytes that the others were on the connection, headers included, TLS not.
    pub link_bytes: u64,
    /// The length of all files, if it is known.
    pub total: Option<u64>,
    /// The elapsed time.
    pub elapsed: Duration,
}

/// The summary of a transfer.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What was sent, or where it is at the receiver.
    pub name: String,
    /// The number of files that the receiver has of it.
    pub files: u64,
    /// The progress at the end.
    pub progress: Progress,
    /// BLAKE3 of a single file.
    pub blake3: Option<[u8; 32]>,
    /// Entries that this end has left out.
    pub left_out: u64,
    /// Why, of the first ones.
    pub remarks: Vec<String>,
    /// Entries that the other end has left out, if it says so.
    pub left_out_there: u64,
    /// Files that stayed as they were at the receiver, as it was asked to keep what it has.
    pub kept: u64,
}

/// A transfer that failed.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct Broken {
    /// Why.
    pub error: TransferError,
    /// What is left for the next transfer to go on with.
    pub kept: Option<Kept>,
}

impl From<TransferError> for Broken {
    fn from(error: TransferError) -> Self {
        Self { error, kept: None }
    }
}

/// Why a transfer failed. Nothing that is not complete has its name at the receiver.
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
    /// There is no agreement with the other end.
    #[error(transparent)]
    Hello(HelloError),
    /// The received data is damaged.
    #[error("what came is damaged: {0}")]
    Damaged(StreamError),
    /// The written bytes are not those that were read.
    #[error("{0}")]
    Differs(String),
    /// What came makes no sense.
    #[error("the other end sent what makes no sense: {0}")]
    Malformed(String),
    /// There is no place for what comes.
    #[error("{0}")]
    NoPlace(String),
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
        match error {
            CarrierError::Hello(error) => Self::Hello(error),
            other => Self::Connection(other.to_string()),
        }
    }
}

/// What every receiver holds for a running context, as the binary logarithm of its window.
const CONTEXT_LOG_USUAL: u8 = 20;
/// The part of the memory that a context may take is one in so many.
const CONTEXT_PART: u64 = 4;

/// The longest window of a running context for a receiver with so much memory, and what it takes, in bytes.
fn context_of_receiver(memory_bytes: u64) -> (u8, u64) {
    // Any level: a receiver has no tables.
    let bytes = |window_log| {
        ContextSpec { level: 1, window_log }.decoder_bytes_max() + (7 << window_log >> 3)
    };
    let mut logs = (CONTEXT_LOG_USUAL..=CONTEXT_LOG_MAX).rev();
    let window_log = logs.find(|&log| bytes(log) <= memory_bytes / CONTEXT_PART);
    let window_log = window_log.unwrap_or(CONTEXT_LOG_USUAL);
    (window_log, bytes(window_log))
}

/// Gives a sender the longest running context that the receiver accepts and that fits into so much memory; what
/// it takes, in bytes.
fn set_context(config: &mut Config, accepted_log: u8, memory_bytes: u64) -> u64 {
    if config.strategy != Strategy::Hull {
        return 0;
    }
    for window_log in (CONTEXT_LOG_MIN..=accepted_log.min(CONTEXT_LOG_MAX)).rev() {
        let mut with = config.clone();
        with.set_window(window_log);
        let bytes = with.context_bytes_max();
        if bytes > 0 && bytes <= memory_bytes / CONTEXT_PART {
            *config = with;
            return bytes;
        }
    }
    0
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

    fn at(&self, (bytes, reused_bytes): (u64, u64), link_bytes: u64) -> Progress {
        let (total, elapsed) = (self.total, self.start.elapsed());
        Progress { bytes, reused_bytes, link_bytes, total, elapsed }
    }

    fn moved(&mut self, bytes: (u64, u64), link_bytes: u64) {
        if self.reported.elapsed() >= TELL {
            self.reported = Instant::now();
            let progress = self.at(bytes, link_bytes);
            (self.on_progress)(&progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_fit_into_their_part_of_the_memory() {
        assert_eq!(context_of_receiver(256 << 20).0, 23);
        assert_eq!(context_of_receiver(16 << 20).0, 20);
        assert_eq!(context_of_receiver(0).0, 20, "what every receiver holds");
        for memory in [32 << 20, 64 << 20, 128 << 20, 256 << 20] {
            assert!(context_of_receiver(memory).1 <= memory / 4, "{memory}");
            let mut config = Config::new(Strategy::Hull);
            let bytes = set_context(&mut config, 23, memory);
            assert!(bytes <= memory / 4 && config.check().is_ok(), "{memory}: {bytes}");
            assert_eq!(config.window_log > 0, bytes > 0);
        }
        let mut config = Config::new(Strategy::Hull);
        set_context(&mut config, 23, 256 << 20);
        assert_eq!(config.window_log, 23);
        set_context(&mut config, 20, 256 << 20);
        assert_eq!(config.window_log, 20, "no more than is accepted");
        for (strategy, accepted) in [(Strategy::Hull, 0), (Strategy::Mix, 23)] {
            let mut config = Config::new(strategy);
            assert_eq!(set_context(&mut config, accepted, 256 << 20), 0);
            assert_eq!(config, Config::new(strategy));
        }
    }
}
