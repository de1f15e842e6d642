//! A running context that a stream gets on the way, in place of its history (`docs/stream-wire.md`, section 4.1).

use dwell_base::Instant;
use dwell_codec::CodecSpec;
use dwell_policy::method::Learned;

use super::{Blocks, Refers, State, Waiting};
use crate::config::Config;
use crate::context::{ContextLimits, ModelChanges, SenderContext};
use crate::frame::Header;
use crate::rule::priors;

/// What it takes to get a context and to go on without it.
#[derive(Debug)]
pub(super) struct Granted {
    /// The settings of the stream without one.
    config: Config,
    /// What its blocks had shown of the codecs of these settings before it got the present one.
    learned: Option<Learned<CodecSpec>>,
    /// When a block was last to go on with the present one, or it was got.
    used_at: Instant,
    /// A block that goes on with it was sent: then the receiver has no history any more.
    has_begun: bool,
    /// The models that those before it had.
    changes: ModelChanges,
}

impl Granted {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            learned: None,
            used_at: Instant::ZERO,
            has_begun: false,
            changes: ModelChanges::default(),
        }
    }
}

/// Returns true if a block refers to the history, or may.
fn refers_to_history(block: &Waiting) -> bool {
    matches!(block.state, State::Compressing | State::Compressed(_, Refers::History, _))
}

impl Blocks {
    /// Notifies the other end that the stream of the other direction may get a context.
    pub(crate) fn grant(&mut self, limits: ContextLimits) -> bool {
        let may = self.granted.is_some() && !self.ended && limits.check().is_ok();
        if may {
            self.notices.extend_from_slice(Header::Grant(limits).to_bytes().as_slice());
        }
        may
    }

    /// Returns the most that such a context takes here, in bytes.
    pub(crate) fn context_bytes_max(&self, limits: ContextLimits) -> u64 {
        let config = self.granted.as_ref().map(|granted| granted.config.with_context(limits));
        config.map_or(0, |config| config.context_bytes_max())
    }

    /// Gets a context, if it is of any use. What refers to the history, or is being compressed so that it may, comes before the first
    /// block that goes on with the context, and so has its history at the receiver.
    pub(crate) fn get_context(&mut self, now: Instant, limits: ContextLimits) -> bool {
        let Some(granted) = &mut self.granted else { return false };
        if self.context.is_some() || self.finishing || limits.check().is_err() {
            return false;
        }
        let referring = self.queue.iter().rfind(|block| refers_to_history(block));
        let first = referring.map_or(0, |block| block.part.index + 1);
        let config = granted.config.with_context(limits);
        let (window_log, model_log) = (limits.window_log, config.model_log_used());
        (granted.used_at, granted.has_begun) = (now, false);
        granted.learned = self.steering.learned();
        self.context = Some(SenderContext::going_on(window_log, model_log, granted.changes, first));
        self.steering.change(&priors(&config));
        self.with_history = false;
        self.history.forget();
        true
    }

    /// Notifies the other end that this one makes no use of the context that it has granted. It does so once for all that it has
    /// granted until that is sent.
    pub(crate) fn decline_context(&mut self) {
        let may = self.granted.is_some() && self.context.is_none() && !self.ended;
        if may && self.notices.is_empty() {
            self.notices.extend_from_slice(Header::Drop.to_bytes().as_slice());
        }
    }

    /// Returns true if it has a context that was granted.
    pub(super) const fn has_got_context(&self) -> bool {
        self.granted.is_some() && self.context.is_some()
    }

    /// Returns true if the receiver is to hold what it holds after a block that is sent now, while there is a context that was granted: the
    /// context, or until that has begun, a history to which something that waits refers.
    pub(super) fn holds_with_context(&mut self, refers: Refers) -> bool {
        let history_waits = self.queue.iter().any(refers_to_history);
        let Some(granted) = &mut self.granted else { return true };
        granted.has_begun |= matches!(refers, Refers::Context(_));
        granted.has_begun || history_waits
    }

    /// Notes that a block is to go on with the context.
    pub(super) fn context_used(&mut self, now: Instant) {
        if let Some(granted) = &mut self.granted {
            granted.used_at = now;
        }
    }

    /// Returns for how long none was, if it has a context that was granted.
    pub(crate) fn context_unused_ns(&self, now: Instant) -> Option<u64> {
        let granted = self.granted.as_ref().filter(|_| self.context.is_some())?;
        Some(now.since_ns(granted.used_at))
    }

    /// Goes on with a history, which is empty at first, and notifies the receiver. False if it has no such context, or what waits goes
    /// on with it.
    pub(crate) fn drop_context(&mut self) -> bool {
        let goes_on =
            |block: &Waiting| matches!(block.state, State::Compressed(_, Refers::Context(_), _));
        let is_out = self.context.as_ref().is_some_and(SenderContext::is_out);
        if !self.has_got_context() || self.ended || is_out || self.queue.iter().any(goes_on) {
            return false;
        }
        self.leave_context();
        self.notices.extend_from_slice(Header::Drop.to_bytes().as_slice());
        true
    }

    /// Goes on without a context that it has got.
    pub(super) fn leave_context(&mut self) {
        let Some(granted) = &mut self.granted else { return };
        let Some(context) = self.context.take() else { return };
        granted.changes = context.changes_without();
        self.steering.change(&priors(&granted.config));
        if let Some(learned) = granted.learned.take() {
            self.steering.learn(&learned);
        }
        self.with_history = true;
        self.history.forget();
    }

    /// Forgets what the contexts before had, for another stream.
    pub(super) fn forget_contexts(&mut self) {
        self.leave_context();
        if let Some(granted) = &mut self.granted {
            granted.changes = ModelChanges::default();
        }
    }

    /// Returns what its blocks have shown of codecs, for streams that begin: these have no context.
    pub(super) fn learned_without_context(&self) -> Option<Learned<CodecSpec>> {
        match &self.granted {
            Some(granted) if self.context.is_some() => granted.learned.clone(),
            _ => self.steering.learned(),
        }
    }
}
