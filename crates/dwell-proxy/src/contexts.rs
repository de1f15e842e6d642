//! The running contexts of a stream that turns out to be long.
//!
//! Most streams are requests and answers, for which the history of a stream is enough, and ten thousands of them may be open. Of a long one
//! a context finds what was said a megabyte ago, at less work for each block, and over a thin link it predicts what comes; but
//! it takes megabytes at both ends. So who receives grants one when much has come without a word in the other direction, and
//! shorter than it was, if there is memory; who sends makes use of it if it has memory, too, and drops it when it has not for a while.

use dwell_base::Instant;
use dwell_stream::{Receiver, Sender};
use tokio::sync::OwnedSemaphorePermit;

use crate::memory::Memory;
use crate::metrics::{Metrics, Present};

/// A stream is long when so many bytes have come without a word in the other direction.
const LONG_BYTES: u64 = 256 << 10;
/// And its blocks become shorter if those on the link are no more than this part of them.
const SHORTER_PART: f64 = 0.9;
/// The windows: beyond a megabyte SQL, logs and sources become hardly shorter.
const WINDOW_LOG: u8 = 20;
/// The memory of a model, if there is enough.
const MODEL_LOG: u8 = 22;
/// What no block has gone on with for so long is dropped, in nanoseconds.
const UNUSED_NS: u64 = 10_000_000_000;

/// The memory that the contexts of a stream have, in either direction.
#[derive(Debug)]
pub(crate) struct Contexts<'a> {
    memory: &'a Memory,
    metrics: &'a Metrics,
    sending: Option<Held<'a>>,
    receiving: Option<Held<'a>>,
    /// What was sent, received and read of the link when the other direction had something last.
    since: (u64, u64, u64),
}

/// The memory of one, while it is counted.
#[derive(Debug)]
struct Held<'a> {
    _room: OwnedSemaphorePermit,
    _present: Present<'a>,
}

impl<'a> Contexts<'a> {
    /// Of a stream that has none yet.
    pub(crate) const fn new(memory: &'a Memory, metrics: &'a Metrics) -> Self {
        Self { memory, metrics, sending: None, receiving: None, since: (0, 0, 0) }
    }

    fn held(&self, room: OwnedSemaphorePermit) -> Option<Held<'a>> {
        let _present = Present::new(&self.metrics.contexts_held);
        Some(Held { _room: room, _present })
    }

    /// Returns true if its sender has one.
    pub(crate) const fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Notes that something was received: gets what the other end grants, and grants it one.
    pub(crate) fn heard(&mut self, now: Instant, sender: &mut Sender, receiver: &mut Receiver) {
        self.leave(now, sender);
        if let Some(offered) = receiver.take_offer() {
            self.get(now, sender, offered);
        }
        let is_dropped = !receiver.has_granted() && self.receiving.take().is_some();
        let (stats, sent) = (receiver.stats(), sender.stats().accepted_bytes);
        if is_dropped || sent != self.since.0 {
            self.since = (sent, stats.data_bytes, stats.wire_bytes);
        }
        let received = stats.data_bytes - self.since.1;
        let of_link = (stats.wire_bytes - self.since.2) as f64;
        if received >= LONG_BYTES && receiver.may_grant() {
            if of_link <= SHORTER_PART * received as f64 {
                self.grant(sender, receiver);
            }
            // Not asked again for each block.
            self.since = (sent, receiver.stats().data_bytes, receiver.stats().wire_bytes);
        }
    }

    fn grant(&mut self, sender: &mut Sender, receiver: &mut Receiver) {
        let room = |model_log| {
            let room = self.memory.context(Receiver::context_bytes_max(WINDOW_LOG, model_log));
            room.map(|room| (room, model_log))
        };
        let Some((room, model_log)) = room(MODEL_LOG).or_else(|| room(0)) else { return };
        // It can't be said if this direction has ended; then the sender does without.
        if sender.grant_context(WINDOW_LOG, model_log)
            && receiver.grant(WINDOW_LOG, model_log).is_ok()
        {
            self.receiving = self.held(room);
        }
    }

    /// Gets what was granted, or what of it there is memory for, or says that it does without.
    fn get(&mut self, now: Instant, sender: &mut Sender, (window_log, model_log): (u8, u8)) {
        if self.sending.is_some() {
            // Nobody needs two, and it was said once what there is memory for.
            return;
        }
        let (window_log, model_log) = (window_log.min(WINDOW_LOG), model_log.min(MODEL_LOG));
        let room = |model_log| {
            let room = self.memory.context(sender.context_bytes_max(window_log, model_log));
            room.map(|room| (room, model_log))
        };
        match room(model_log).or_else(|| room(0)) {
            Some((room, model_log)) if sender.get_context(now, window_log, model_log) => {
                self.sending = self.held(room);
            }
            _ => sender.decline_context(),
        }
    }

    /// Drops that of the sender if no block has gone on with it for a while; whether something is to be sent for that.
    pub(crate) fn tidy(&mut self, now: Instant, sender: &mut Sender) -> bool {
        let drops = sender.context_unused_ns(now).is_some_and(|ns| ns >= UNUSED_NS)
            && sender.drop_context();
        self.leave(now, sender);
        drops
    }

    /// Leaves the memory of that of the sender to others if it has none any more: a stream that has ended has none.
    fn leave(&mut self, now: Instant, sender: &Sender) {
        if sender.context_unused_ns(now).is_none() {
            self.sending = None;
        }
    }
}
