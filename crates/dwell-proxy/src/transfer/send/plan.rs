//! How a transfer is read and compressed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::mpsc as blocking;

use dwell_stream::Sender;

use super::super::count::Count;
use super::super::repeats::Finder;
use super::super::source::Source;
use super::super::{ContextLogs, TransferError, set_context};
use super::ANSWERS_MAX;
use super::reading::{Reading, read_aside};
use crate::carrier::Carrier;
use crate::clock;
use crate::config::Compression;
use crate::engine::RunError;
use crate::hello::Hello;
use crate::uplink::Uplink;

/// A transfer begins as if its link carried this many bytes a second: what is sent before the link's rate is known
/// is compressed, too, but not for long.
const RATE_AT_FIRST: f64 = 12.5e6;
/// Over links of so many bytes a second, or more, the thread that reads may be what all wait for. Over others it pays to look at all
/// that is read for what is repeated: what was not looked at is not found later.
pub(super) const FAST_RATE: f64 = 80e6;
/// As long as no more was written, none is taken to be faster: TCP takes much at once, however slow its link is.
const PRESUMED_BYTES: u64 = 64 << 10;

/// How a transfer is read and compressed.
pub(super) struct Plan {
    pub(super) compressing: Compression,
    pub(super) memory_bytes_max: u64,
    /// What this end has, for what repeats, as a binary logarithm; 0 if none.
    pub(super) window_log2: u8,
    /// What the receiver is known to hold.
    pub(super) held: Arc<AtomicU8>,
    /// The link carries at least [`FAST_RATE`].
    pub(super) link_is_fast: Arc<AtomicBool>,
    /// The length of all files.
    pub(super) bytes: Option<u64>,
    pub(super) is_quick: bool,
    pub(super) hello: Hello,
    /// The source once more, if the head is not to count.
    pub(super) again: Option<Source>,
}

impl Plan {
    /// A stream with such a context, over a link of such a rate, if that is known.
    pub(super) fn uplink(
        &self,
        carrier: &Carrier,
        context: ContextLogs,
        rate: Option<f64>,
    ) -> Result<Uplink, TransferError> {
        let mut config = self.compressing.sender_config(&carrier.theirs);
        set_context(&mut config, context, self.memory_bytes_max);
        let sender = Sender::new(&config);
        let mut sender = sender.map_err(|error| TransferError::Connection(error.to_string()))?;
        sender.expect_bulk();
        match rate {
            Some(rate) => sender.expect_rate(clock::now(), rate),
            None => sender.presume_rate(clock::now(), RATE_AT_FIRST, PRESUMED_BYTES),
        }
        Ok(Uplink::new(sender, None))
    }

    /// Has a source read, by a thread that asks what is there already, or does not.
    pub(super) fn read(&self, source: Source, asks: bool) -> Result<Reading, TransferError> {
        let (answers, for_reader) = blocking::sync_channel(ANSWERS_MAX);
        let count = Arc::new(Count::default());
        let bytes = self.bytes.unwrap_or(u64::MAX);
        let finder = (self.window_log2 > 0)
            .then(|| Finder::new(self.window_log2, bytes, Arc::clone(&self.held)));
        let for_reader = asks.then_some(for_reader);
        let is_fast = Arc::clone(&self.link_is_fast);
        let read =
            read_aside(source, for_reader, self.is_quick, (finder, is_fast), Arc::clone(&count));
        let (pieces, used) = read.map_err(RunError::from)?;
        Ok(Reading { pieces, used, answers: asks.then_some(answers), count })
    }
}
