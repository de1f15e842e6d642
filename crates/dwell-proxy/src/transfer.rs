//! Files and directories, or what comes through a pipe, from one machine to another.
//!
//! The receiver listens, the sender connects and offers. Then comes one stream of records (`record`): a thread
//! of the sender reads files and makes them (`source`), one of the receiver makes files of them (`sink`). What the
//! receiver has already it says by the hashes of its blocks (`blocks`), and only the others are sent; so a transfer
//! that broke off is gone on with. Each file gets its name when it is complete and its BLAKE3 is that of what was
//! read; a tree gets its name when all of it is there. Then the receiver says so, and only then the sender is content.

mod bases;
mod blocks;
mod chunks;
mod code;
mod count;
mod early;
mod entry;
mod key;
mod part;
mod place;
mod placing;
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

pub use bases::BASES_MAX;
pub use blocks::Have;
pub use chunks::Chunk;
pub use code::{Code, CodeError};
pub use key::{OneTimeKey, OneTimeKeyError};
pub use place::{Existing, Offer, Place};
pub use receive::{Event, Receive, receive};
#[doc(hidden)]
pub use record::read_again;
pub use send::{Send, send};
pub use sink::Kept;
pub use source::Source;

use crate::carrier::{Carrier, CarrierError};
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
    /// What was sent; at the receiver the first names of it, and where it is.
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
    /// At the receiver, the bytes that were copied from its bases.
    pub basis_bytes: u64,
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

/// The memory of a model in such a context, as a binary logarithm: at most, and what is not worthwhile.
const MODEL_LOG_MAX: u8 = 24;
const MODEL_LOG_MIN: u8 = 22;
/// What a receiver has beside that memory, in bytes.
const MODEL_BESIDE_BYTES: u64 = 192 << 10;

/// The running context that an end accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ContextLogs {
    /// The binary logarithm of its longest window.
    window: u8,
    /// The same of a model's memory; 0 if there is to be none.
    model: u8,
}

impl ContextLogs {
    /// What the other end of a connection accepts.
    const fn of(carrier: &Carrier) -> Self {
        Self { window: carrier.theirs.window_log, model: carrier.theirs.model_log }
    }
}

/// The running context of a receiver with so much memory, and what it takes, in bytes.
fn context_of_receiver(memory_bytes: u64) -> (ContextLogs, u64) {
    // Any level: a receiver has no tables.
    let bytes = |window_log| {
        ContextSpec { level: 1, window_log }.decoder_bytes_max() + (7 << window_log >> 3)
    };
    let mut logs = (CONTEXT_LOG_USUAL..=CONTEXT_LOG_MAX).rev();
    let window = logs.find(|&log| bytes(log) <= memory_bytes / CONTEXT_PART);
    let window = window.unwrap_or(CONTEXT_LOG_USUAL);
    let left = (memory_bytes / CONTEXT_PART).saturating_sub(bytes(window));
    let of_model = |log: u8| (1 << log) + MODEL_BESIDE_BYTES;
    let model = (MODEL_LOG_MIN..=MODEL_LOG_MAX).rev().find(|&log| of_model(log) <= left);
    let logs = ContextLogs { window, model: model.unwrap_or(0) };
    (logs, bytes(window) + model.map_or(0, of_model))
}

/// Gives a sender the longest running context that the receiver accepts and that fits into so much memory, and a model
/// if there is room for one beside it; what they take, in bytes.
fn set_context(config: &mut Config, accepted: ContextLogs, memory_bytes: u64) -> u64 {
    let bytes = match config.strategy {
        Strategy::Hull => set_context_of_hull(config, accepted, memory_bytes),
        _ => 0,
    };
    if config.model_log == 0 {
        config.codecs.retain(|codec| !codec.is_model());
    }
    if config.codecs.is_empty() {
        config.codecs.push(config.codec);
    }
    bytes
}

fn set_context_of_hull(config: &mut Config, accepted: ContextLogs, memory_bytes: u64) -> u64 {
    let fits = |config: &Config| {
        let bytes = config.context_bytes_max();
        (bytes > 0 && bytes <= memory_bytes / CONTEXT_PART).then_some(bytes)
    };
    let with_window = |log: u8| {
        let mut with = config.clone();
        with.set_window(log);
        fits(&with).map(|bytes| (with, bytes))
    };
    let mut logs = (CONTEXT_LOG_MIN..=accepted.window.min(CONTEXT_LOG_MAX)).rev();
    let Some((with, bytes)) = logs.find_map(with_window) else { return 0 };
    let with_model = |log: u8| {
        let mut with = with.clone();
        with.set_model(log);
        fits(&with).map(|bytes| (with, bytes))
    };
    let mut logs = (MODEL_LOG_MIN..=accepted.model.min(MODEL_LOG_MAX)).rev();
    let (with, bytes) = logs.find_map(with_model).unwrap_or_else(|| (with.clone(), bytes));
    *config = with;
    bytes
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
    use dwell_codec::CodecSpec;

    use super::*;

    #[test]
    fn contexts_fit_into_their_part_of_the_memory() {
        let of = |window, model| ContextLogs { window, model };
        assert_eq!(context_of_receiver(256 << 20).0, of(23, 24));
        assert_eq!(context_of_receiver(104 << 20).0, of(23, 0));
        assert_eq!(context_of_receiver(128 << 20).0, of(23, 22));
        assert_eq!(context_of_receiver(16 << 20).0, of(20, 0));
        assert_eq!(context_of_receiver(0).0, of(20, 0), "what every receiver holds");
        for memory in [32 << 20, 64 << 20, 128 << 20, 192 << 20, 256 << 20] {
            assert!(context_of_receiver(memory).1 <= memory / 4, "{memory}");
            let mut config = Config::new(Strategy::Hull);
            let bytes = set_context(&mut config, of(23, 26), memory);
            assert!(bytes <= memory / 4 && config.check().is_ok(), "{memory}: {bytes}");
            assert_eq!(config.window_log > 0, bytes > 0);
        }
        let logs = |accepted| {
            let [plain, mixed] = [false, true].map(|mixed_models| {
                let mut config = Config::new(Strategy::Hull);
                config.mixed_models = mixed_models;
                let bytes = set_context(&mut config, accepted, 256 << 20);
                assert!(bytes <= 64 << 20, "{bytes}");
                of(config.window_log, config.model_log)
            });
            assert_eq!(plain, mixed, "what is tried beside a model has room, too");
            plain
        };
        assert_eq!(logs(of(23, 26)), of(23, 24));
        assert_eq!(logs(of(20, 22)), of(20, 22), "no more than is accepted");
        assert_eq!(logs(of(23, 20)), of(23, 0), "too little for a model");
        assert_eq!(logs(of(23, 0)), of(23, 0), "an earlier build");
        for codecs in ["ppm:12", "zstd:3,ppm", "mix", "zstd:3,mix"] {
            for accepted in [of(23, 24), of(23, 0), of(0, 24), of(20, 21)] {
                let mut config = Config::new(Strategy::Hull);
                config.mixed_models = true;
                config.codecs = codecs.split(',').flat_map(CodecSpec::of_stream).collect();
                set_context(&mut config, accepted, 256 << 20);
                assert_eq!(config.check(), Ok(()), "{codecs} with {accepted:?}");
                let has_model = config.codecs.iter().any(|codec| codec.is_model());
                assert_eq!(has_model, config.model_log > 0 && accepted.model == 24);
            }
        }
        for (strategy, accepted) in [(Strategy::Hull, of(0, 24)), (Strategy::Mix, of(23, 24))] {
            let mut config = Config::new(strategy);
            assert_eq!(set_context(&mut config, accepted, 256 << 20), 0);
            assert_eq!(config, Config::new(strategy));
        }
    }
}
