//! A running context that a stream gets on the way, in place of its history (`docs/stream-wire.md`, section 4.1).

use dwell_base::Instant;

use super::{Blocks, Refers, State};
use crate::config::Config;
use crate::context::{ContextLimits, SenderContext};
use crate::frame::Header;
use crate::rule::priors;

/// What it takes to get a context and to go on without it.
#[derive(Debug)]
pub(super) struct Granted {
    /// The settings of the stream without one.
    config: Config,
    /// What was granted, and is not made use of yet.
    limits: Option<ContextLimits>,
    /// When a block was last to go on with it, or it was got.
    used_at: Instant,
}

impl Granted {
    pub(super) fn new(config: &Config) -> Self {
        Self { config: config.clone(), limits: None, used_at: Instant::ZERO }
    }
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

    /// Notes that it may have one. It gets it when no block is being compressed that refers to the history.
    pub(crate) fn get_context(&mut self, now: Instant, limits: ContextLimits) {
        if let Some(granted) = &mut self.granted
            && self.context.is_none()
            && limits.check().is_ok()
        {
            (granted.limits, granted.used_at) = (Some(limits), now);
        }
    }

    /// Returns true if it has a context that was granted.
    pub(super) const fn has_got_context(&self) -> bool {
        self.granted.is_some() && self.context.is_some()
    }

    /// Gets the context that it may have, if it can now. What was compressed before and waits comes first on the wire, and so has its
    /// history there.
    pub(super) fn enter_context(&mut self) {
        let Some(granted) = &mut self.granted else { return };
        let is_compressing = |queue: &std::collections::VecDeque<super::Waiting>| {
            queue.iter().any(|block| matches!(block.state, State::Compressing))
        };
        if granted.limits.is_none() || self.finishing || is_compressing(&self.queue) {
            return;
        }
        let Some(limits) = granted.limits.take() else { return };
        let config = granted.config.with_context(limits);
        self.steering.change(&priors(&config));
        self.context = Some(SenderContext::new(limits.window_log, config.model_log_used()));
        self.with_history = false;
        self.history.forget();
    }

    /// Notes that a block is to go on with the context.
    pub(super) fn context_used(&mut self, now: Instant) {
        if let Some(granted) = &mut self.granted {
            granted.used_at = now;
        }
    }

    /// Returns for how long none was, if it has one or may.
    pub(crate) fn context_unused_ns(&self, now: Instant) -> Option<u64> {
        let granted = self.granted.as_ref()?;
        let has = self.context.is_some() || granted.limits.is_some();
        has.then(|| now.since_ns(granted.used_at))
    }

    /// Goes on with a history, which is empty at first, and notifies the receiver. False if what waits refers to what will be gone
    /// then: to the context, or to the history before it.
    pub(crate) fn drop_context(&mut self, now: Instant) -> bool {
        let refers = |state: &State| match state {
            State::Compressing => true,
            State::Compressed(_, refers, _) => !matches!(refers, Refers::Nothing),
            State::Raw(_) | State::Final(_) => false,
        };
        let waits = self.queue.iter().any(|block| refers(&block.state));
        if self.context_unused_ns(now).is_none() || self.ended || waits {
            return false;
        }
        self.leave_context();
        // As the receiver does.
        self.history.forget();
        self.notices.extend_from_slice(Header::Drop.to_bytes().as_slice());
        true
    }

    /// Goes on without a context that it has got or may get.
    pub(super) fn leave_context(&mut self) {
        let Some(granted) = &mut self.granted else { return };
        granted.limits = None;
        if self.context.take().is_some() {
            self.steering.change(&priors(&granted.config));
            self.with_history = true;
        }
    }
}
