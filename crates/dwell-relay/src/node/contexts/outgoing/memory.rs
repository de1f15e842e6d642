//! What the contexts of what goes to a peer take of the node's memory.

use std::collections::VecDeque;

use dwell_base::Rate;
use dwell_wire::HeaderPredictor;

use super::Outgoing;
use crate::node::contexts::again::remembered_bytes;
use crate::node::contexts::counts::Reason;
use crate::node::memory::LeastRecent;

impl Outgoing {
    /// The link to the peer has this rate, and the path this round trip: says how much is kept to be encoded again.
    pub(in crate::node) fn set_path(&mut self, rate: Option<Rate>, rtt_ns: Option<u64>) {
        self.lost.set_bytes_max(remembered_bytes(rate, rtt_ns));
    }

    /// Returns the memory of all encoders with what predicts headers, of what may be encoded again, and of which
    /// datagram has which record, in bytes.
    pub(in crate::node::contexts) fn memory_bytes(&self) -> usize {
        let each = self.contexts.iter().map(|it| match &it.encoder {
            Some(encoder) => encoder.memory_bytes(),
            None if it.is_out => it.memory_bytes,
            None => 0,
        });
        let predictors = self.contexts.iter().filter(|it| it.predictor.is_some()).count();
        // What may be encoded again is held until it is confirmed.
        let originals = self.contexts.iter().map(|it| it.originals.held_bytes()).sum::<usize>();
        let in_flight = self.contexts.iter().map(|it| it.in_flight.capacity()).sum::<usize>();
        let in_flight = in_flight * size_of::<(u64, u64)>();
        let again = originals + self.lost.bytes();
        each.sum::<usize>() + predictors * HeaderPredictor::MEMORY_BYTES + again + in_flight
    }

    /// Returns the one that was used least recently, of those that can be given up now.
    pub(in crate::node::contexts) fn least_recent(&self) -> Option<LeastRecent> {
        let here = self.contexts.iter().enumerate().filter(|(_, it)| it.encoder.is_some());
        let (at, oldest) = here.min_by_key(|(_, it)| it.used_at)?;
        Some(LeastRecent { used_at: oldest.used_at, context: u8::try_from(at).ok()? })
    }

    /// Returns the number of those that can be given up now.
    pub(in crate::node::contexts) fn evictable(&self) -> usize {
        self.contexts.iter().filter(|it| it.encoder.is_some()).count()
    }

    /// Gives it up: its next batch begins from nothing. What is on its way can be decoded all the same.
    pub(in crate::node::contexts) fn evict(&mut self, at: u8) {
        if let Some(context) = self.contexts.get_mut(usize::from(at)) {
            (context.encoder, context.ended) = (None, Some(Reason::Memory));
            context.predictor = None;
            context.in_flight = VecDeque::new();
            context.originals.forget();
        }
    }
}
