//! A context whose decoder is with a thread, since what it decodes takes long.
//!
//! What comes of the context meanwhile is parked, whatever it is, and goes on in its order when the decoder is
//! back: so nothing in the receiver needs to know that it was away.

use std::sync::Arc;

use dwell_base::Instant;
use dwell_codec::{CodecId, ContextDecoder, ModelSpec};
use dwell_wire::{ContextBody, ContextRecord, StartBase};

use super::{Here, Receiver};
use crate::node::allowance::Allowance;
use crate::node::contexts::counts::IncomingCounts;
use crate::node::contexts::decode_job::{DecodeJob, Decoded};
use crate::node::contexts::incoming::held::Held;

/// A decoder that is with a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    serial: u64,
    pub(super) memory_bytes: usize,
    /// The base of the generation that begins with it.
    pub(super) base: Option<StartBase>,
    /// How far the ring had come before.
    pub(super) offset: u64,
    encoded_len: usize,
    /// That of the model.
    pub(super) codec: CodecId,
}

impl Receiver {
    /// Returns true if records have to wait here, since others of the context are being decoded or wait.
    pub(in crate::node::contexts::incoming) fn is_busy(&self) -> bool {
        self.away.is_some() || !self.parked.is_empty()
    }

    /// Keeps a record until the context is not busy any more.
    pub(in crate::node::contexts::incoming) fn park(&mut self, record: Held) {
        self.parked.push_back(record);
    }

    /// Returns true if the first of these can go on.
    pub(in crate::node::contexts::incoming) fn may_unpark(&self) -> bool {
        self.away.is_none() && !self.parked.is_empty()
    }

    /// Returns when it came.
    pub(in crate::node::contexts::incoming) fn parked_since(&self) -> Option<Instant> {
        self.parked.front().map(|parked| parked.came_at)
    }

    /// Takes it.
    pub(in crate::node::contexts::incoming) fn unpark(&mut self) -> Option<Held> {
        if self.away.is_some() { None } else { self.parked.pop_front() }
    }

    /// Returns the job of a model, whose turn it is; none if the batch is of another kind, or of no use:
    /// then it is to be [opened](Self::open).
    pub(in crate::node::contexts::incoming) fn depart(
        &mut self,
        record: &ContextRecord<'_>,
        here: Here<'_>,
        serial: u64,
    ) -> Option<Box<DecodeJob>> {
        let ContextBody::Batch { start, alone: None, headers, original_len, data } = record.body
        else {
            return None;
        };
        let is_newer = self.is_newer(record.generation);
        let begins = match start.filter(|_| is_newer) {
            Some(start) if ModelSpec::from_wire(start.codec, start.window_log).is_some() => {
                let model = here.model(record.context, start)?;
                Some((model, here.owned_source(start.base)?))
            }
            Some(_) => return None,
            None => {
                let goes_on = self.is_live && self.running == Some(record.generation);
                if is_newer || !goes_on || !self.decoder.has_model() {
                    return None;
                }
                None
            }
        };
        self.has_moved = true;
        self.next += 1;
        if begins.is_some() {
            (self.generation, self.evicted_at) = (Some(record.generation), None);
            (self.running, self.alone) = (self.generation, None);
            self.is_live = true;
        }
        let base = start.filter(|_| begins.is_some()).map(|start| start.base);
        // It takes the model's memory while it is away.
        let begun = begins.as_ref().map_or(0, |(model, _)| 1 << model.memory_log());
        let memory_bytes = self.decoder.memory_bytes().max(begun);
        let offset = self.decoder.offset();
        let codec = begins.as_ref().map(|(model, _)| model.codec());
        let codec = codec.or(self.decoder.model_codec()).unwrap_or(CodecId::Ppm);
        let encoded_len = data.len();
        self.away = Some(Away { serial, memory_bytes, base, offset, encoded_len, codec });
        let none = Box::new(ContextDecoder::new(self.ring_log));
        Some(Box::new(DecodeJob {
            peer: 0,
            peer_generation: 0,
            cost_ns: 0,
            took_ns: 0,
            context: record.context,
            serial,
            decoder: std::mem::replace(&mut self.decoder, none),
            begins,
            headers,
            data: data.to_vec(),
            out: vec![0; usize::from(original_len)],
            packets_left: Allowance::default(),
            decoded: Decoded::Damaged,
            is_cancelled: Arc::default(),
        }))
    }

    /// A job comes back; false if its batch is of no use.
    pub(in crate::node::contexts::incoming) fn returned(
        &mut self,
        job: &mut DecodeJob,
        counts: &mut IncomingCounts,
    ) -> bool {
        let Some(Away { base, encoded_len, .. }) =
            self.away.take_if(|away| away.serial == job.serial)
        else {
            return false;
        };
        std::mem::swap(&mut self.decoder, &mut job.decoder);
        self.has_moved = true;
        if let Some(base) = base.filter(|_| job.decoded != Decoded::NoBase) {
            counts.began_from(base);
            counts.with_model += 1;
            self.ring_generation = self.generation;
            self.forget_headers();
            (self.must_report, self.said_lost) = (false, 0);
        }
        match job.decoded {
            Decoded::Done => {
                counts.batches += 1;
                counts.bytes_in += encoded_len as u64;
                counts.bytes_out += job.out.len() as u64;
                return true;
            }
            Decoded::NoBase => counts.no_base += 1,
            Decoded::Damaged => counts.damaged += 1,
        }
        self.lose(counts);
        false
    }
}
