//! The running contexts of a receiver, and those that it grants on the way (`docs/stream-wire.md`, sections 4 and 4.1).

use dwell_codec::CodecId;

use super::{Phase, Receiver};
use crate::config::MODEL_BESIDE_BYTES;
use crate::context::ContextLimits;
use crate::error::{ConfigError, StreamError};
use crate::frame::Preamble;

/// What a running context has beside three windows, in bytes.
const WINDOW_BESIDE_BYTES: u64 = 512 << 10;

impl Receiver {
    /// Returns true if its sender could make use of a running context that it is granted ([`Receiver::grant`]), and was granted
    /// none.
    pub fn may_grant(&self) -> bool {
        let may_get = self.preamble.is_some_and(|preamble| preamble.may_get_context);
        may_get && self.granted.is_none() && self.phase != Phase::Ended
    }

    /// Accepts a running context with at most such a window and model, in binary logarithms as in [`Limits`](crate::Limits), until it is
    /// dropped. The sender is to be notified, by the stream of the other direction ([`Sender::grant_context`](crate::Sender::grant_context)).
    ///
    /// # Errors
    /// If there can be no such context.
    pub fn grant(&mut self, window_log: u8, model_log: u8) -> Result<(), ConfigError> {
        let limits = ContextLimits { window_log, model_log };
        limits.check()?;
        self.granted = Some(limits);
        Ok(())
    }

    /// Returns the most memory that a running context of such a window and model takes here, in bytes.
    pub fn context_bytes_max(window_log: u8, model_log: u8) -> u64 {
        let of_model = if model_log > 0 { (1 << model_log) + MODEL_BESIDE_BYTES } else { 0 };
        (3 << window_log) + WINDOW_BESIDE_BYTES + of_model
    }

    /// Returns true if a running context was granted, and has not been dropped since.
    pub const fn has_granted(&self) -> bool {
        self.granted.is_some()
    }

    /// Takes what the other end has granted the stream of the other direction: the window of a running context, and the memory of a model
    /// or 0, in binary logarithms; for [`Sender::get_context`](crate::Sender::get_context).
    pub const fn take_offer(&mut self) -> Option<(u8, u8)> {
        match self.offered.take() {
            Some(limits) => Some((limits.window_log, limits.model_log)),
            None => None,
        }
    }

    /// Returns true if what comes is decoded by a model: that takes tens of nanoseconds for each byte, some milliseconds for a block, and
    /// who has other things to do may leave it to another thread.
    pub fn has_model(&self) -> bool {
        self.context.has_model() || self.is_slow_next()
    }

    /// Returns true if a block is coming that takes tens of milliseconds.
    pub(super) fn is_slow_next(&self) -> bool {
        matches!(&self.phase, Phase::Payload(header) if header.codec == Some(CodecId::Mix))
    }

    /// Returns the bytes of memory that the running context holds.
    pub fn context_bytes(&self) -> usize {
        self.context.memory_bytes()
    }

    /// Returns what a context may take.
    pub(super) fn limits_of_context(&self) -> Result<ContextLimits, StreamError> {
        match self.preamble {
            Some(preamble) if preamble.may_get_context => {
                self.granted.ok_or(StreamError::Header("a block of a context that was not granted"))
            }
            preamble => Ok(preamble.map(Preamble::context_limits).unwrap_or_default()),
        }
    }

    /// Drops what later blocks could refer to, and with a context what was granted. (A sender that has none may not know yet
    /// that it may.)
    pub(super) fn forget(&mut self) {
        if self.context.is_there() {
            self.granted = None;
        }
        self.history.forget();
        self.context.forget();
    }
}
